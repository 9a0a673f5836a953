/// Products of gemm_sm90's slabs: descriptors of the operands, and the instructions that multiply.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/barrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"

namespace kernelwright {
namespace {

/// The descriptor of an operand in shared memory, for wgmma.
__device__ __forceinline__ uint64_t descriptor_a(uint32_t address) {
  return ptx::wgmma_descriptor<spec::kSwizzleBytes>(address, kASlab.leading_bytes(), kASlab.stride_bytes());
}
__device__ __forceinline__ uint64_t descriptor_b(uint32_t address) {
  return ptx::wgmma_descriptor<spec::kSwizzleBytes>(address, kBSlab.leading_bytes(), kBSlab.stride_bytes());
}

/// Issues the products of a slab: one for each 32 bytes of k, or for each 16 rows of k.
template <int kCount>
__device__ __forceinline__ void issue(float (&sums)[kCount], uint64_t a, uint64_t b, uint32_t accumulate) {
  if constexpr (kASlab.steps() == 4 && kASlab.even_steps() && kBSlab.even_steps()) {
    constexpr int kStepA = kASlab.step_offset(1) / 16, kStepB = kBSlab.step_offset(1) / 16;
    if constexpr (kElementBytes == 1)
      ptx::wgmma_fp8_ss_x4<kRowsDType, kColumnsDType, kStepA, kStepB>(sums, a, b, accumulate);
    else
      ptx::wgmma_ss_x4<kRowsDType, kBMnMajor, kStepA, kStepB, kAMnMajor>(sums, a, b, accumulate);
  } else {
#pragma unroll
    for (int step = 0; step < kASlab.steps(); ++step) {
      const uint64_t left = a + kASlab.step_offset(step) / 16, right = b + kBSlab.step_offset(step) / 16;
      const uint32_t adds = step > 0 ? 1 : accumulate;
      if constexpr (kElementBytes == 1)
        ptx::wgmma_fp8_ss<kRowsDType, kColumnsDType>(sums, left, right, adds);
      else
        ptx::wgmma_ss<kRowsDType, kBMnMajor, kAMnMajor>(sums, left, right, adds);
    }
  }
}

/// Writes zeros over a slab's rows of k from `rows` on. The swizzle moves pieces within a row.
template <int kParts, int kPartBytes, int kRowBytes>
__device__ __forceinline__ void clear_rows(uint32_t slab, int rows, int thread) {
  constexpr int kPieces = kPartBytes / contract::kPieceBytes, kMathThreads = 32 * kMathWarps;
  const int first = rows * (kRowBytes / contract::kPieceBytes);
#pragma unroll 1
  for (int piece = first + thread; piece < kPieces; piece += kMathThreads)
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      ptx::st_shared_v4(slab + static_cast<uint32_t>(part * kPartBytes + piece * contract::kPieceBytes), {});
}

/// Behind the wait for the last slots of a slice, of which they have `left` rows: writes zeros over the others. The
/// warpgroups share the slots, and none multiplies before all have written.
template <class Stage>
__device__ __forceinline__ void clear_end(const Stage& stage, int left) {
  constexpr uint32_t kBarrier = 5, kMathThreads = 32 * kMathWarps;  // behind those of policy::Turns
  const int thread = static_cast<int>(threadIdx.x) - kLoadThreads;
#pragma unroll
  for (int j = 0; j < spec::kKGroup; ++j) {
    const auto tile = stage.get_tile(j);
    const int rows = min(max(left - j * kSlabDepth, 0), kSlabDepth);
    clear_rows<kASlab.parts(), kASlab.part_bytes(), kASlab.width()>(tile.a(), rows, thread);
    clear_rows<kBSlab.parts(), kBSlab.part_bytes(), kBSlab.width()>(tile.b(), rows, thread);
  }
  ptx::fence_proxy_async_shared();
  ptx::bar_sync(kBarrier, kMathThreads);
}

}  // namespace
}  // namespace kernelwright
