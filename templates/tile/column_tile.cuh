/// Values in columns in shared memory (docs/kv-write.md): [slabs of kWidth keys][kRows elements][kWidth bytes],
/// swizzled as kWidth allows. The first elements of a slab are a box of TMA. The keys of every 16 are a run, a piece of
/// 16 bytes. Their order is that of an operand: 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15.
#pragma once

#include "contract/attention_sm90.h"
#include "contract/shared_slab.h"
#include "contract/words.h"
#include "ptx/memory.cuh"
#include "tile/byte_fragments.cuh"

namespace kernelwright::tile {

template <int kRows, int kWidth>
struct ColumnTile {
  enum : int {
    kRun = contract::kPieceBytes,
    kRuns = kWidth / kRun,  // of a slab's row
    kSwizzle = contract::column_swizzle_bytes(kWidth),
    kSlabBytes = kRows * kWidth
  };
  /// The keys of run `run` of element `row`.
  __device__ __forceinline__ static uint32_t place(uint32_t row, uint32_t run) {
    return run / kRuns * kSlabBytes + row * kWidth +
           (run % kRuns ^ contract::swizzle_of_row(row, kSwizzle)) * contract::kPieceBytes;
  }
  /// The place `rows` rows and `runs` runs behind the run at `at`. `rows` is a multiple of 8. `runs` has no bit in
  /// common with the number of that run.
  __device__ __forceinline__ static uint32_t behind(uint32_t at, uint32_t rows, uint32_t runs) {
    return (at + runs / kRuns * kSlabBytes + rows * kWidth) ^ (runs % kRuns * contract::kPieceBytes);
  }
  /// Zeros for the keys of a run for which kept(key) is false. `first`: the run's first key.
  template <class Kept>
  __device__ __forceinline__ static void mask(ptx::Vector16& keys, int first, const Kept& kept) {
#pragma unroll
    for (int w = 0; w < 4; ++w)
#pragma unroll
      for (int b = 0; b < 4; ++b)
        if (!kept(first + 2 * w + b / 2 * 8 + b % 2)) keys.word[w] &= ~(0xffu << 8 * b);
  }
  /// The same for the run at `at`.
  template <class Kept>
  __device__ __forceinline__ static void keep(uint32_t at, int first, const Kept& kept) {
    ptx::Vector16 keys = ptx::ld_shared_v4(at);
    mask(keys, first, kept);
    ptx::st_shared_v4(at, keys);
  }
};

/// Fragments of such a tile of kKeys keys: f16 operands of m16n8k16, converted behind the shared-memory read. A lane's
/// word of a run has the keys of its place in the operand. Slots are kSlotBytes apart. As KvBuffer has it.
template <int kKeys, int kDepth, int kWidth, int kSlotBytes, int kStages, DType kFp8, int kArch>
class ColumnValues {
  using Tile = ColumnTile<kDepth, kWidth>;
  static_assert(kKeys * kDepth <= kSlotBytes && kDepth % 16 == 0 && kKeys % kWidth == 0, "whole slabs in a slot");
  const uint32_t shared_, lane_at_, back_;
  mutable uint32_t kept_[2];  // the bytes of the odd pair

 public:
  static constexpr int slot_bytes = kSlotBytes, bytes = kSlotBytes * kStages;

  __device__ __forceinline__ ColumnValues(uint32_t shared, int lane)
      : shared_(shared),
        lane_at_(Tile::place(static_cast<uint32_t>(lane), 0)),
        back_(static_cast<uint32_t>(lane / 16 * 16 * kWidth)) {}

  __device__ __forceinline__ uint32_t fragment_base(int stage) const { return shared_ + stage * slot_bytes + lane_at_; }

  /// Fragments of the first and the last 8 of 16 elements, at one step of 16 keys. Call it for pairs in their order.
  __device__ __forceinline__ void load_from_shared(uint32_t (&first)[2], uint32_t (&second)[2], uint32_t base, int step,
                                                   int pair) const {
    if (pair % 2 == 0) {
      uint32_t bytes[4];  // of four MMAs; of a last pair that is alone, twice of two
      const uint32_t from = pair * 16 + 16 < kDepth ? base : base - back_;
      ptx::ldmatrix_x4(bytes, (from + step / Tile::kRuns * Tile::kSlabBytes + pair * 16 * kWidth) ^
                                  (step % Tile::kRuns * contract::kPieceBytes));
      neighbours_to_f16<kFp8, kArch>(bytes[0], first);
      neighbours_to_f16<kFp8, kArch>(bytes[1], second);
      kept_[0] = bytes[2], kept_[1] = bytes[3];
    } else {
      neighbours_to_f16<kFp8, kArch>(kept_[0], first);
      neighbours_to_f16<kFp8, kArch>(kept_[1], second);
    }
  }
};

}  // namespace kernelwright::tile
