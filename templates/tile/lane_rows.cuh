/// Rows of a tile, one in each lane of a warp, are written to shared memory in the layout of the box that TMA stores
/// from there.
#pragma once

#include "tile/element.cuh"

namespace kernelwright::tile {

/// kColumns of 32 rows. kTransposed: rows of the tile are columns of d. Then the box has 32 columns and kColumns rows,
/// and needs no swizzle, because lanes write neighbours. Otherwise a row of the box is a lane's row, 16 to 128 bytes,
/// swizzled as the map of this width requires. Lanes then write 16 bytes each, to as many banks as possible.
template <DType kOut, bool kTransposed, int kColumns>
struct LaneRows {
  static constexpr int kBytes = kBytesOf<kOut>;
  static constexpr uint32_t kRowBytes = kColumns * kBytes;
  static_assert(kRowBytes >= 16 && kRowBytes <= 128 && (kRowBytes & (kRowBytes - 1)) == 0);

  /// `slab` is aligned to 1024.
  __device__ __forceinline__ static void put(uint32_t slab, uint32_t lane, const float (&values)[kColumns]) {
    if constexpr (kTransposed) {
      put_transposed(slab + lane * kBytes, values);
    } else {
      constexpr int kPerWord = 4 / kBytes, kPerPiece = 16 / kBytes;
      // Patterns repeat every 8, 4 or 2 rows of 128, 64 or 32 bytes. Each row of a pattern is 128 bytes.
      const uint32_t pattern = lane * kRowBytes / 128 % (kRowBytes / 16);
#pragma unroll
      for (uint32_t piece = 0; piece < kRowBytes / 16; ++piece) {
        ptx::Vector16 vector;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          vector.word[i] = pack_word<kOut>(values, static_cast<int>(piece) * kPerPiece + i * kPerWord);
        ptx::st_shared_v4(slab + lane * kRowBytes + (piece ^ pattern) * 16, vector);
      }
    }
  }

 private:
  __device__ __forceinline__ static void put_transposed(uint32_t at, const float (&values)[kColumns]) {
    constexpr uint32_t kStep = 32 * kBytes;  // a row of the box
#pragma unroll
    for (int i = 0; i < kColumns; i += 2) {
      if constexpr (kBytes == 4) {
        ptx::st_shared_f32(at + i * kStep, values[i]);
        ptx::st_shared_f32(at + (i + 1) * kStep, values[i + 1]);
      } else if constexpr (kBytes == 2) {
        const uint32_t both = Element<kOut>::pack(values[i], values[i + 1]);
        ptx::st_shared_u16(at + i * kStep, static_cast<uint16_t>(both));
        ptx::st_shared_u16(at + (i + 1) * kStep, static_cast<uint16_t>(both >> 16));
      } else {
        const uint32_t both = fp8_pair<kOut>(values[i], values[i + 1]);
        ptx::st_shared_u8(at + i * kStep, both);
        ptx::st_shared_u8(at + (i + 1) * kStep, both >> 8);
      }
    }
  }
};

}  // namespace kernelwright::tile
