/// Scales that differ by key in attention_sm100: policy/key_scales.cuh has the arithmetic. One warp makes the numbers
/// of each tile's keys. Every softmax thread has a whole row of scores, and so reads the numbers of all keys.
#pragma once

#include "kernels/attention/sm100/attention_sm100_tiles.cuh"
#include "policy/key_scales.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Tiles are walked from the last to the first.
using KeyScales = policy::WarpKeyScales<spec::kBlockN, -1, spec::kKvLayout, spec::kPageSize>;
static_assert(!kTokenScales || spec::kBlockN % 32 == 0, "a lane of the warp has whole keys");
static_assert(!(kQueued && kTokenScales), "slots are counted over one item");

/// Role of one warp: writes the numbers of each tile's keys, for both softmax warpgroups or for the one that takes the
/// tile.
__device__ __forceinline__ void load_key_scales(const contract::AttentionParams& params, const Shared& shared) {
  const Work work(params, ptx::opaque(blockIdx.x));
  const policy::TileList& tiles = work.tiles.list;
  const int lane = static_cast<int>(threadIdx.x % 32), origin = work.tiles.origin;
  KeyScales scales(params, work.item.coord.batch, work.item.row_map.kv_head(), work.item.sequence.kv_start,
                   origin + (tiles.end - 1) * spec::kBlockN, static_cast<int>(spec::kBlockN), origin + tiles.keys.low,
                   origin + tiles.keys.high, lane);
#pragma unroll 1
  for (int j = 0; j < tiles.end - tiles.begin; ++j) {
    const int slot = j % contract::kScaleSlots, lap = j / contract::kScaleSlots;
    scales.step(params);
    shared.scale_empty(slot).wait_before(lap);
    scales.for_each_of_lane([&](int key, float score, float shift, float inverse) {
      ptx::st_shared_f32(shared.key_number(slot, contract::kKeyFactor, key), score);
      ptx::st_shared_f32(shared.key_number(slot, contract::kKeyShift, key), shift);
      ptx::st_shared_f32(shared.key_number(slot, contract::kKeyWeight, key), inverse);
    });
    __syncwarp();
    if (lane == 0) shared.scale_full(slot).arrive();
  }
}

/// The numbers of one tile's keys, for a softmax thread. Where all keys have the same scales there are none.
struct TileNumbers {
  const Shared& shared;
  int slot, lap;

  /// `step`: of the tile, in the order of the walk.
  __device__ __forceinline__ TileNumbers(const Shared& memory, int step)
      : shared(memory), slot(step % contract::kScaleSlots), lap(step / contract::kScaleSlots) {}

  /// Waits for the numbers, and multiplies the scores of each key by the key's scale.
  __device__ __forceinline__ void scale_by_keys(float (&scores)[spec::kBlockN]) const {
    shared.scale_full(slot).wait(lap);
    read<spec::kBlockN>(contract::kKeyFactor, 0, [&](int i, float factor) { scores[i] *= factor; });
  }
  /// Turns scores, modified, into exponents that the scales of values have joined: a unit of score is `scale` of them.
  __device__ __forceinline__ void shift_by_values(float (&scores)[spec::kBlockN], float scale) const {
    read<spec::kBlockN>(contract::kKeyShift, 0, [&](int i, float shift) { scores[i] = fmaf(scores[i], scale, shift); });
  }
  /// Adds the exponentials of keys [first, first + kCount) to a row's sums.
  template <int kCount>
  __device__ __forceinline__ void add_to_sums(float (&part)[2], const float (&scores)[spec::kBlockN], int first) const {
    if constexpr (kTokenScales) {
      read<kCount>(contract::kKeyWeight, first,
                   [&](int i, float weight) { part[i % 2] = fmaf(scores[i], weight, part[i % 2]); });
    } else {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) part[0] += scores[first + i], part[1] += scores[first + i + 1];
    }
  }
  /// All lanes have read what they need: they have handed over the tile's probabilities.
  __device__ __forceinline__ void let_go(int lane) const {
    if (lane == 0) shared.scale_empty(slot).arrive();
  }

 private:
  /// Calls use(i, number) for keys [first, first + kCount) of the tile.
  template <int kCount, class Use>
  __device__ __forceinline__ void read(contract::KeyNumber which, int first, const Use& use) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const ptx::Vector16 four = ptx::ld_shared_v4(shared.key_number(slot, which, first + i));
#pragma unroll
      for (int k = 0; k < 4; ++k) use(first + i + k, __uint_as_float(four.word[k]));
    }
  }
};

}  // namespace
}  // namespace kernelwright
