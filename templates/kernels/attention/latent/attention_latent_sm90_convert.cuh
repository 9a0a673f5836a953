/// The warps of attention_latent_sm90 that convert: keys of 8 bits become elements of the queries' dtype, in the slot
/// in which they landed. The warps that multiply see no difference to keys of 16 bits.
///
/// A key's 128 bytes of a part lie in the key's row of the part's second slab. They become that row of both slabs. So a
/// warp reads whole rows into registers, and then writes the same rows. No warp waits for another one.
#pragma once

#include "kernels/attention/latent/attention_latent_sm90_tiles.cuh"
#include "ptx/memory.cuh"
#include "tile/shared_tile.cuh"

namespace kernelwright {
namespace {

class Converter {
  using Slab = tile::SharedTile<contract::kLatentRows, 64, 128>;
  enum : int {
    kStepRows = 8,  // rows of a step: 64 pieces of 16 bytes, two for each lane
    kSteps = contract::kLatentRows / kStepRows,
    kLanesOfRow = 8,
    kRowsAtOnce = 32 / kLanesOfRow,
    kTailPieces = (spec::kHeadDimQk - spec::kHeadDimV) / 16,  // of a row behind the latents, where it has 8 bits
  };
  static_assert(kTailPieces == 0 || kTailPieces * kStepRows == 32, "a lane has one piece of a step");

 public:
  /// `warp`: which of kConvertWarps.
  __device__ __forceinline__ Converter(const Work& work, const Shared& shared, int warp)
      : shared_(shared),
        count_(work.count()),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x % 32)),
        ring_(KeyRing::consumer(shared.key_barriers())) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int tile = 0; tile < count_; ++tile, ring_.step()) convert_parts<0>();
  }

 private:
  __device__ __forceinline__ int slot() const { return static_cast<int>(ring_.state.index); }

  template <int kPart>
  __device__ __forceinline__ void convert_parts() const {
    shared_.landed(slot(), kPart).wait(ring_.state);
    // Eight steps are no multiple of three warps: parts take turns at which warp has fewer.
#pragma unroll 1
    for (int step = (warp_ + kPart) % kConvertWarps; step < kSteps; step += kConvertWarps)
      convert_rows(kPart, step * kStepRows);
    if constexpr (kPart + 1 == contract::kLatentParts && kTailPieces > 0 && !kRecords) {
#pragma unroll 1
      for (int step = warp_; step < kSteps; step += kConvertWarps) convert_tail(step * kStepRows);
    }
    pipeline::SignalledByWarp{static_cast<uint32_t>(lane_)}(ring_.full<kPart>(ring_.state.index));
    if constexpr (kPart + 1 < contract::kLatentParts) convert_parts<kPart + 1>();
  }

  /// Rows [first, first + kStepRows) of a part's two slabs of values.
  __device__ __forceinline__ void convert_rows(int part, int first) const {
    const int piece = lane_ % kLanesOfRow;
    const uint32_t low = shared_.keys(slot(), part * contract::kLatentPartSlabs), high = low + kSlabBytes;
    ptx::Vector16 codes[kStepRows / kRowsAtOnce];
    float scale[kStepRows / kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kStepRows / kRowsAtOnce; ++i) {
      const int row = row_of(first, i);
      codes[i] = ptx::ld_shared_v4(high + Slab::offset(row, piece));
      scale[i] = 1;
      if constexpr (kRecords) scale[i] = ptx::ld_shared_f32(shared_.scales(slot(), row) + part * 4);
    }
    __syncwarp();  // all lanes have read their bytes of these rows
    // Pieces 0 to 3 become the row of the first slab, the others that of the second one. Lanes of the latter begin with
    // their second vector: banks are those of the place in a slab's row.
    const bool second_first = piece >= kLanesOfRow / 2;
    const uint32_t slab = second_first ? high : low;
    const int to = piece % (kLanesOfRow / 2) * 2;
#pragma unroll
    for (int i = 0; i < kStepRows / kRowsAtOnce; ++i) {
      ptx::Vector16 elements[2];
      convert_codes(codes[i], scale[i], elements);
      const int row = row_of(first, i);
      // Word by word: an address that depends on the lane would put the vectors into local memory.
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const uint32_t low_word = elements[0].word[word], high_word = elements[1].word[word];
        elements[0].word[word] = second_first ? high_word : low_word;
        elements[1].word[word] = second_first ? low_word : high_word;
      }
      ptx::st_shared_v4(slab + Slab::offset(row, to + second_first), elements[0]);
      ptx::st_shared_v4(slab + Slab::offset(row, to + !second_first), elements[1]);
    }
  }
  __device__ __forceinline__ int row_of(int first, int i) const {
    return first + i * kRowsAtOnce + lane_ / kLanesOfRow;
  }

  /// The same for the slab behind the values, in whose rows 64 bytes have landed.
  __device__ __forceinline__ void convert_tail(int first) const {
    constexpr int kPieces = kTailPieces > 0 ? kTailPieces : 1;
    const uint32_t slab = shared_.keys(slot(), kValueSlabs);
    const int row = first + lane_ / kPieces, piece = lane_ % kPieces;
    const ptx::Vector16 codes = ptx::ld_shared_v4(slab + Slab::offset(row, piece));
    __syncwarp();
    ptx::Vector16 elements[2];
    convert_codes(codes, 1, elements);
#pragma unroll
    for (int i = 0; i < 2; ++i) ptx::st_shared_v4(slab + Slab::offset(row, 2 * piece + i), elements[i]);
  }

  const Shared& shared_;
  const int count_, warp_, lane_;
  KeyRing ring_;
};

}  // namespace
}  // namespace kernelwright
