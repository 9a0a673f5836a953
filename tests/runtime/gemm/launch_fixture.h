/// An Engine on a fake device of one architecture, GEMM calls for it, and what the launches of all families have in
/// common.
#pragma once

#include <vector>

#include "contract/turnstile.h"
#include "runtime/count_allocations.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {

/// n = 512; a, b, c and d of bf16 unless `operands` says otherwise.
inline GemmProblem mlp_of_depth(int k, DType operands = DType::kBf16, ScaleKind scales = ScaleKind::kNone) {
  GemmProblem problem;
  problem.n = 512;
  problem.k = k;
  problem.dtype = {operands, operands, DType::kBf16, DType::kBf16};
  problem.scales = is_block_scaled(operands) ? ScaleKind::kPerBlock : scales;
  return problem;
}

inline GemmTensors some_operands() {
  GemmTensors tensors;
  tensors.a = 0x100000;
  tensors.b = 0x200000;
  tensors.d = 0x400000;
  tensors.m = 100;
  return tensors;
}
inline GemmTensors scaled_operands() {
  GemmTensors tensors = some_operands();
  tensors.scale_a = 0x500000;
  tensors.scale_b = 0x600000;
  return tensors;
}
/// Operands of any size, apart from each other.
inline GemmTensors far_apart(int m) {
  GemmTensors tensors;
  tensors.b = std::uint64_t{1} << 20;
  tensors.a = std::uint64_t{1} << 48;
  tensors.d = std::uint64_t{1} << 50;
  tensors.m = m;
  return tensors;
}

/// An epilogue that reads everything, and operands for it.
inline GemmProblem with_full_epilogue(GemmProblem problem) {
  problem.epilogue = "gelu(alpha * acc + bias) + beta * c";
  return problem;
}
inline GemmTensors operands_of_the_full_epilogue() {
  GemmTensors tensors = some_operands();
  tensors.bias = 0x700000;
  tensors.c = 0x800000;
  tensors.c_stride = 1024;
  tensors.alpha = 0.5f;
  tensors.beta = 2;
  return tensors;
}

inline std::vector<std::uint64_t> dims(const TensorMapRequest& map) { return {map.dims, map.dims + map.rank}; }
inline std::vector<std::uint32_t> box(const TensorMapRequest& map) { return {map.box, map.box + map.rank}; }

/// `ParamsOfFamily`: what the family's kernels take, of contract/.
template <class ParamsOfFamily>
struct GemmLaunches : EngineTest {
  using Params = ParamsOfFamily;

  explicit GemmLaunches(Arch arch, int num_sms) {
    DeviceInfo& info = device().mutable_info();
    info.arch = arch;
    info.compute_major = arch_info(arch).major;
    info.num_sms = num_sms;
    info.shared_bytes_per_cta = arch_info(arch).shared_bytes_per_cta;
  }

  /// The parameters and the shape of the last launch.
  Params launched() { return device().launches().back().template as<Params>(); }
  LaunchConfig launch_config() { return device().launches().back().config; }

  /// Launches the full epilogue and expects the kernel to get every number and address of it.
  void expect_the_full_epilogue(const GemmKernel& kernel, const GemmTensors& tensors, int k) {
    kernel.launch(tensors, some_stream());
    const Params params = launched();
    EXPECT_EQ(params.m, tensors.m);
    EXPECT_EQ(params.n, 512);
    EXPECT_EQ(params.k, k);
    EXPECT_EQ(params.alpha, 0.5f);
    EXPECT_EQ(params.beta, 2);
    EXPECT_EQ(params.c_stride, 1024);
    EXPECT_EQ(reinterpret_cast<DevicePtr>(params.c), 0x800000u);
    EXPECT_EQ(reinterpret_cast<DevicePtr>(params.bias), 0x700000u);
  }

  /// Launches with a workspace at 0x900000 and without an allocation. Expects its first `zeros` bytes, which hold the
  /// turnstile's words, to be cleared ahead of the launch.
  void expect_a_cleared_turnstile(const GemmKernel& kernel, GemmTensors tensors, std::uint64_t zeros) {
    tensors.workspace = 0x900000;
    tensors.workspace_bytes = kernel.workspace_bytes(tensors.m);
    EXPECT_EQ(allocations_of([&] { kernel.launch(tensors, some_stream()); }), 0);
    const FakeDevice::Fill fill = device().last_fill();
    EXPECT_EQ(fill.address, 0x900000u);
    EXPECT_EQ(fill.byte, 0);
    EXPECT_EQ(fill.bytes, zeros);
    EXPECT_EQ(fill.launches_before, 0u);
    const contract::TurnstileParams turnstile = launched().turnstile;
    EXPECT_EQ(reinterpret_cast<DevicePtr>(turnstile.begun), 0x900000u);
    EXPECT_EQ(reinterpret_cast<DevicePtr>(turnstile.turns), 0x900010u);
    EXPECT_EQ(reinterpret_cast<DevicePtr>(turnstile.partials), 0x900000u + zeros);
  }
};

}  // namespace kernelwright::test
