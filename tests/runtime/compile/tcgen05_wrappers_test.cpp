// templates/ptx/tcgen05_mma.cuh through the real NVRTC: small kernels compile for sm_100a and sm_103a without a
// warning, contain the products of their source, and give the right numbers on the emulator. Skips by name if there is
// no NVRTC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "support/paths.h"

namespace kernelwright::tcgen05_wrappers_test {
namespace {

using testing::IsEmpty;

/// D[128][n] = A[128][64] B[n][64]^T of one CTA of 128 threads. KERNELWRIGHT_A_TENSOR: A is put into tensor memory.
constexpr const char* kKernel = R"(
#include "ptx/tcgen05_mma.cuh"
using namespace kernelwright::ptx;
constexpr int kN = 64, kK = 64;
struct Params { const uint4* a; const uint4* b; float* d; };

constexpr uint32_t descriptor() {
  InstructionDescriptor d;
  d.kind = MmaKind::kF16;
  d.a = d.b = MmaElement::kBf16;
  d.m = 128;
  d.n = kN;
  return d.bits();
}
constexpr SharedDescriptor kOperand;  // 128B, K-major

__shared__ __align__(1024) unsigned char a[128 * 128];
__shared__ __align__(1024) unsigned char b[kN * 128];
__shared__ unsigned long long full;
__shared__ uint32_t place;

__device__ uint32_t address_of(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

extern "C" __global__ void __launch_bounds__(128) test(const __grid_constant__ Params params) {
  const uint32_t thread = threadIdx.x;
  if (thread < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(address_of(&place)) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  }
  if (thread == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&full)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  for (int i = 0; i < kK / 8; ++i) {
    *reinterpret_cast<uint4*>(a + thread * 128 + (i ^ thread % 8) * 16) = params.a[thread * (kK / 8) + i];
    if (thread < kN) *reinterpret_cast<uint4*>(b + thread * 128 + (i ^ thread % 8) * 16) = params.b[thread * (kK / 8) + i];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const uint32_t d = place, lanes = (thread / 32 * 32) << 16;
#ifdef KERNELWRIGHT_A_TENSOR
  for (int i = 0; i < kK / 8; ++i) {
    const uint4 words = params.a[thread * (kK / 8) + i];
    asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %2, %3, %4};" ::"r"(d + 64 + lanes + i * 4), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w) : "memory");
  }
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
#endif
  if (thread == 0) {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
#pragma unroll
    for (int k = 0; k < kK / 16; ++k)
#ifdef KERNELWRIGHT_A_TENSOR
      tcgen05_mma_ts<MmaKind::kF16>(d, d + 64 + k * 8, kOperand.bits(address_of(b)) + k * 2, descriptor(), k > 0);
#else
      tcgen05_mma_ss<MmaKind::kF16>(d, kOperand.bits(address_of(a)) + k * 2, kOperand.bits(address_of(b)) + k * 2, descriptor(), k > 0);
#endif
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(address_of(&full)) : "memory");
  }
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W; }" ::"r"(address_of(&full)) : "memory");
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  for (int n = 0; n < kN; n += 4) {
    uint32_t r0, r1, r2, r3;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(d + lanes + n) : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    float* to = params.d + thread * kN + n;
    to[0] = __uint_as_float(r0), to[1] = __uint_as_float(r1), to[2] = __uint_as_float(r2), to[3] = __uint_as_float(r3);
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  if (thread < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(d) : "memory");
}
)";

/// Calls every wrapper once: NVRTC and ptxas must accept each.
constexpr const char* kAll = R"(
#include "ptx/tcgen05_mma.cuh"
using namespace kernelwright::ptx;
extern "C" __global__ void test(uint32_t d, uint64_t a, uint64_t b, uint32_t on) {
#ifndef KERNELWRIGHT_PAIR
  constexpr int kGroup = 1;
#else
  constexpr int kGroup = 2;
#endif
  tcgen05_mma_ss<MmaKind::kF16, kGroup>(d, a, b, 0, on);
  tcgen05_mma_ss<MmaKind::kTf32, kGroup>(d, a, b, 0, on);
  tcgen05_mma_ss<MmaKind::kF8f6f4, kGroup>(d, a, b, 0, on);
  tcgen05_mma_ts<MmaKind::kF16, kGroup>(d, d, b, 0, on);
  tcgen05_mma_ts<MmaKind::kTf32, kGroup>(d, d, b, 0, on);
  tcgen05_mma_ts<MmaKind::kF8f6f4, kGroup>(d, d, b, 0, on);
#ifndef KERNELWRIGHT_SM103
  tcgen05_mma_ss<MmaKind::kI8, kGroup>(d, a, b, 0, on);
  tcgen05_mma_ts<MmaKind::kI8, kGroup>(d, d, b, 0, on);
#endif
  tcgen05_mma_scaled_ss<MmaKind::kMxf8f6f4, 32, kGroup>(d, a, b, 0, d, d, on);
  tcgen05_mma_scaled_ss<MmaKind::kMxf4, 32, kGroup>(d, a, b, 0, d, d, on);
  tcgen05_mma_scaled_ss<MmaKind::kMxf4nvf4, 32, kGroup>(d, a, b, 0, d, d, on);
  tcgen05_mma_scaled_ss<MmaKind::kMxf4nvf4, 16, kGroup>(d, a, b, 0, d, d, on);
  tcgen05_mma_scaled_ts<MmaKind::kMxf8f6f4, 32, kGroup>(d, d, b, 0, d, d, on);
  tcgen05_mma_scaled_ts<MmaKind::kMxf4, 32, kGroup>(d, d, b, 0, d, d, on);
  tcgen05_mma_scaled_ts<MmaKind::kMxf4nvf4, 32, kGroup>(d, d, b, 0, d, d, on);
  tcgen05_mma_scaled_ts<MmaKind::kMxf4nvf4, 16, kGroup>(d, d, b, 0, d, d, on);
}
)";

class Tcgen05Wrappers : public testing::Test {
 protected:
  void SetUp() override {
    if (compiler_.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  Binary compile(const std::string& source, const std::string& arch) {
    SourceUnit unit;
    unit.kernel = unit.entry = "test";
    unit.arch = arch;
    unit.source = source;
    for (const char* header : {"contract/integers.h", "contract/tcgen05_descriptor.h", "ptx/tcgen05_mma.cuh"}) {
      std::ifstream in(test::source_dir() / "templates" / header, std::ios::binary);
      texts_.push_back(
          std::make_unique<std::string>(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
      unit.headers.push_back({header, *texts_.back(), {}});
    }
    unit.options = {"--gpu-architecture=" + arch,
                    "--std=c++17",
                    "--no-cache",
                    "-default-device",
                    "--ptxas-options=-v",
                    "--ptxas-options=--warn-on-spills",
                    "--ptxas-options=--warn-on-local-memory-usage"};
    return compiler_.compile(unit);
  }
  static int count(const std::string& text, const std::string& word) {
    int found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  }

  Compiler compiler_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

TEST_F(Tcgen05Wrappers, CompileForEveryBlackwellOfTheDataCentre) {
  for (const char* arch : {"sm_100a", "sm_103a"})
    for (const char* pair : {"", "#define KERNELWRIGHT_PAIR\n"}) {
      const bool sm103 = std::string(arch) == "sm_103a";
      const Binary binary = compile(std::string(pair) + (sm103 ? "#define KERNELWRIGHT_SM103\n" : "") + kAll, arch);
      EXPECT_THAT(binary.warnings, IsEmpty());
      EXPECT_EQ(count(binary.ptx, "tcgen05.mma."), sm103 ? 14 : 16) << arch << pair;
      EXPECT_EQ(count(binary.ptx, ".cta_group::2"), *pair ? (sm103 ? 14 : 16) : 0);
    }
}

TEST_F(Tcgen05Wrappers, MultiplyOnTheEmulator) {
  using namespace emulator;
  std::mt19937 random(3);
  std::vector<std::uint16_t> a(128 * 64), b(64 * 64);
  for (auto* values : {&a, &b})
    for (std::uint16_t& value : *values) value = f32_to_bf16(static_cast<float>(random() % 9) - 4);
  for (const char* arch : {"sm_100a", "sm_103a"})
    for (const char* place : {"", "#define KERNELWRIGHT_A_TENSOR\n"}) {
      const Binary binary = compile(place + std::string(kKernel), arch);
      EXPECT_THAT(binary.warnings, IsEmpty());
      EXPECT_EQ(count(binary.ptx, "tcgen05.mma."), 4);
      Emulator machine({.hazards = true, .threads = 1});
      const auto module = machine.load(binary.ptx);
      const auto put = [&](const std::vector<std::uint16_t>& values) {
        const std::uint64_t at = machine.memory().allocate(values.size() * 2);
        std::memcpy(reinterpret_cast<void*>(at), values.data(), values.size() * 2);
        return at;
      };
      const std::uint64_t out = machine.memory().allocate(128 * 64 * 4), arguments[] = {put(a), put(b), out};
      const LaunchReport report =
          machine.launch(*module, "test", {.grid = {1}, .block = {128}}, std::as_bytes(std::span(arguments)));
      EXPECT_THAT(report.fault, IsEmpty());
      for (const auto& hazard : report.hazards) ADD_FAILURE() << hazard.text();
      const auto* d = reinterpret_cast<const float*>(out);
      for (int m = 0; m < 128; ++m)
        for (int n = 0; n < 64; ++n) {
          float sum = 0;
          for (int k = 0; k < 64; ++k) sum += bf16_to_f32(a[m * 64 + k]) * bf16_to_f32(b[n * 64 + k]);
          ASSERT_EQ(d[m * 64 + n], sum) << arch << place << m << " " << n;
        }
    }
}

}  // namespace
}  // namespace kernelwright::tcgen05_wrappers_test
