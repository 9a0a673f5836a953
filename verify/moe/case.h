/// One launch of a layer of experts, on the host: operands in the layout that its kernels read. The reference and the
/// devices share this struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernelwright/generator/problem/moe.h"
#include "kernelwright/verify/route/case.h"

namespace kernelwright {

struct MoeCase {
  MoeProblem problem;
  RouteCase route;                                                 // logits, bias, local_ids; or the experts given
  std::int64_t x_stride = 0, residual_stride = 0, out_stride = 0;  // elements

  // As MoeTensors has them: bytes of dtype, and with scales per_block weights of e4m3.
  std::vector<std::byte> x, residual;
  std::vector<std::byte> gate_up, gate_up_bias, down, down_bias;
  std::vector<float> gate_up_scale, down_scale;

  std::int64_t tokens() const { return route.tokens; }
  bool is_quantised() const { return problem.scales == ScaleKind::kPerBlock; }
  DType weight_dtype() const { return is_quantised() ? DType::kE4m3 : problem.dtype; }
};

/// The output of a launch. Bytes that it did not write hold DeviceMemory::kGuardByte.
struct MoeOutput {
  std::vector<std::byte> out;
  bool operator==(const MoeOutput&) const = default;
};

struct MoeInputOptions {
  std::uint64_t seed = 0;
  bool gaps = false;  // between rows of x, residual and out
  bool odd = false;   // given experts: some are no experts, and some are given twice
};

/// Seeded inputs: normal values, weights divided by the root of the sums' length. Memory that no kernel may read is
/// NaN.
MoeCase make_moe_inputs(const MoeProblem& problem, std::int64_t tokens, const MoeInputOptions& options = {});

}  // namespace kernelwright
