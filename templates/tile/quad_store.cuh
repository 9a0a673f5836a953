/// Accumulator rows to global memory, directly from the registers.
#pragma once

#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright::tile {

/// Transposes 4 x 4 words over the four lanes of a quad: word k of lane c becomes word c of lane k.
__device__ __forceinline__ void transpose_quad(uint32_t (&word)[4], int lane) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = lane & distance;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low = distance == 1 ? 2 * pair : pair, high = low + distance;
      const uint32_t got = __shfl_xor_sync(0xffffffff, upper ? word[low] : word[high], distance);
      word[low] = upper ? got : word[low];
      word[high] = upper ? word[high] : got;
    }
  }
}

/// Stores one row of a wgmma accumulator, kColumns wide and multiplied by `factor`, to `row` (aligned to 16 bytes). The
/// quad's lanes exchange words so that each lane stores 16 bytes. All lanes take part; lanes whose row does not exist
/// pass `exists` false.
template <DType kOut, int kColumns, int kCount>
__device__ __forceinline__ void store_row(const float (&accumulator)[kCount], int r, float factor, uint16_t* row,
                                          bool exists, int lane) {
  constexpr int kTiles = kColumns / 8;
#pragma unroll
  for (int first = 0; first + 4 <= kTiles; first += 4) {
    uint32_t word[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int at = 4 * (first + n) + 2 * r;
      word[n] = Element<kOut>::pack(accumulator[at] * factor, accumulator[at + 1] * factor);
    }
    transpose_quad(word, lane);
    if (exists) ptx::st_global_v4(row + (first + lane % 4) * 8, ptx::Vector16{{word[0], word[1], word[2], word[3]}});
  }
#pragma unroll
  for (int n = kTiles / 4 * 4; n < kTiles; ++n) {
    const uint32_t word =
        Element<kOut>::pack(accumulator[4 * n + 2 * r] * factor, accumulator[4 * n + 2 * r + 1] * factor);
    if (exists) ptx::st_global_u32(row + n * 8 + lane % 4 * 2, word);
  }
}

}  // namespace kernelwright::tile
