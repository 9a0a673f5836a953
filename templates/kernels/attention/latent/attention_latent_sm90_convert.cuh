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
    kStepBytes = kStepRows * 128,
    kTailPieces = (spec::kHeadDimQk - spec::kHeadDimV) / 16,  // of a row behind the latents, where it has 8 bits
  };
  static_assert(kTailPieces == 0 || kTailPieces * kStepRows == 32, "a lane has one piece of a step");

 public:
  /// `warp`: which of kConvertWarps. A lane has one row of each step: piece lane % 4 of either half of its 128 columns.
  /// Eight lanes that access memory at once have two rows, whose numbers differ by the bits 1 and 4. So the swizzle
  /// keeps them on other banks, of the codes as of the elements.
  __device__ __forceinline__ Converter(const Work& work, const Shared& shared, int warp)
      : shared_(shared),
        count_(work.count()),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x % 32)),
        row_((lane_ / 8) ^ (lane_ / 4 % 2 * 5)),
        from_(Slab::offset(row_, lane_ % 4)),
        to_(Slab::offset(row_, lane_ % 4 * 2)),
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
    convert_part(kPart);
    if constexpr (kPart + 1 == contract::kLatentParts && kTailPieces > 0 && !kRecords) {
#pragma unroll 1
      for (int step = warp_; step < kSteps; step += kConvertWarps) convert_tail(step * kStepRows);
    }
    pipeline::SignalledByWarp{static_cast<uint32_t>(lane_)}(ring_.full<kPart>(ring_.state.index));
    if constexpr (kPart + 1 < contract::kLatentParts) convert_parts<kPart + 1>();
  }

  /// This warp's rows of a part's two slabs of values. While the codes of one half are converted, those of the next
  /// half are on their way.
  __device__ __forceinline__ void convert_part(int part) const {
    // Eight steps are no multiple of three warps: parts take turns at which warp has fewer.
    int step = (warp_ + part) % kConvertWarps;
    const uint32_t low = shared_.keys(slot(), part * contract::kLatentPartSlabs);
    uint32_t from = low + kSlabBytes + step * kStepBytes + from_, to = low + step * kStepBytes + to_;
    uint32_t scales = shared_.scales(slot(), step * kStepRows + row_) + part * 4;
    ptx::Vector16 codes = ptx::ld_shared_v4(from);
    float scale = scale_at(scales);
#pragma unroll 1
    for (;;) {
      const ptx::Vector16 second = ptx::ld_shared_v4(from ^ 64);
      write(codes, scale, to);
      __syncwarp();  // all lanes have read their bytes of these rows
      step += kConvertWarps, from += kConvertWarps * kStepBytes, scales += kConvertWarps * kStepRows * 16;
      const float of_second = scale;
      if (step < kSteps) codes = ptx::ld_shared_v4(from), scale = scale_at(scales);
      write(second, of_second, to + kSlabBytes);
      if (step >= kSteps) return;
      to += kConvertWarps * kStepBytes;
    }
  }
  __device__ __forceinline__ static float scale_at(uint32_t at) {
    if constexpr (kRecords) return ptx::ld_shared_f32(at);
    return 1;
  }
  __device__ __forceinline__ static void write(const ptx::Vector16& codes, float scale, uint32_t to) {
    ptx::Vector16 elements[2];
    convert_codes(codes, scale, elements);
    ptx::st_shared_v4(to, elements[0]);
    ptx::st_shared_v4(to ^ 16, elements[1]);
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
  const int row_;             // of a step
  const uint32_t from_, to_;  // bytes from a step's first: the lane's codes in the first half, and their elements
  KeyRing ring_;
};

}  // namespace
}  // namespace kernelwright
