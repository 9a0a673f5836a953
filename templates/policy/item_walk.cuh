/// Which work items a persistent CTA takes, and in what order: one thread of the CTA walks them and tells the rest. The
/// CTAs of a cluster take the same items: one is then kCluster neighbouring query tiles, and a tile's place in this
/// file (m_block, m_chunk, laps) counts them together.
#pragma once

#include "contract/hopper_attention.h"
#include "contract/spec_words.h"
#include "policy/attention_item.cuh"

namespace kernelwright::policy {

/// Items come in laps of one per CTA, the longest first, and every other lap runs backwards: whoever had the longest
/// item of a lap has the shortest of the next, so that all CTAs end together without a counter in memory.
///
/// Under a causal mask the last query tiles are the longest. `m_chunk` of them of one (batch, head) pair stand side by
/// side, then as many of the next pair, and once all pairs have been seen the next m_chunk tiles: few enough that items
/// still come by length, and enough that several CTAs read the same keys at the same time, which halves what the memory
/// has to give. Without a mask m_chunk is all tiles: pair after pair.
template <int kCluster>
class ItemWalk {
  const contract::HopperAttentionParams& params_;
  int heads_;  // that items count: query heads, or KV heads if packed
  unsigned item_;
  bool back_ = false;

  static __device__ unsigned self() { return blockIdx.x / kCluster; }
  static __device__ unsigned walkers() { return gridDim.x / kCluster; }

 public:
  __device__ ItemWalk(const contract::HopperAttentionParams& params, int heads)
      : params_(params), heads_(heads), item_(self()) {}

  /// False past the last item; else where the item lies, and on to the next.
  __device__ bool next(TileCoord& coord) {
    if (item_ >= static_cast<unsigned>(params_.num_items)) return false;
    const contract::AttentionParams& attention = params_.attention;
    const unsigned pairs = static_cast<unsigned>(attention.batch) * heads_;
    const unsigned m_blocks = (static_cast<unsigned>(attention.num_m_blocks) + kCluster - 1) / kCluster;
    const unsigned above = item_ / (pairs * params_.m_chunk) * params_.m_chunk;  // tiles of each pair that come before
    const unsigned chunk = min(static_cast<unsigned>(params_.m_chunk), m_blocks - above);  // the last may be short
    const unsigned rest = item_ - above * pairs, pair = rest / chunk;
    coord = TileCoord(static_cast<int>(m_blocks - 1 - above - rest % chunk), static_cast<int>(pair % heads_),
                      static_cast<int>(pair / heads_));
    // Place b of one lap is place grid - 1 - b of the next.
    item_ += back_ ? 1 + 2 * self() : 2 * (walkers() - self()) - 1;
    back_ = !back_;
    return true;
  }
};

/// Ragged queries, in the order of the batch: only the tiles that sequences have. Every other CTA walks its items
/// backwards: where a batch begins with long chunks and ends with sequences that decode, or the other way round, half
/// of the SMs multiply while the other half waits for memory.
template <class RowMapT, int kBlockM, int kCluster>
class RaggedWalk {
  const int32_t* offsets_;
  int heads_;
  int item_, step_, left_;     // the next item, the way to the one after it, how many there are
  int batch_ = 0, begin_ = 0;  // a sequence and its first item

  __device__ int tiles(int batch) const {
    constexpr int kRows = kBlockM * kCluster;
    return (RowMapT::rows(offsets_[batch + 1] - offsets_[batch]) + kRows - 1) / kRows;
  }

 public:
  __device__ RaggedWalk(const contract::HopperAttentionParams& params, int heads)
      : offsets_(params.attention.q_offsets), heads_(heads), item_(static_cast<int>(blockIdx.x / kCluster)) {
    int items = 0;
#pragma unroll 4
    for (int batch = 0; batch < params.attention.batch; ++batch) items += tiles(batch) * heads;
    const int walkers = static_cast<int>(gridDim.x / kCluster);
    left_ = (items - item_ + walkers - 1) / walkers;
    step_ = walkers;
    if (item_ % 2 == 0 || left_ < 2) return;
    item_ += (left_ - 1) * walkers;
    step_ = -walkers;
  }

  /// As ItemWalk's.
  __device__ bool next(TileCoord& coord) {
    if (left_ <= 0) return false;
    --left_;
    while (item_ < begin_) begin_ -= tiles(--batch_) * heads_;
    int count = tiles(batch_);
    while (item_ >= begin_ + count * heads_) {
      begin_ += count * heads_;
      count = tiles(++batch_);
    }
    const int rest = item_ - begin_;
    coord = TileCoord(count - 1 - rest % count, rest / count, batch_);
    item_ += step_;
    return true;
  }
};

template <bool kTrue, class A, class B>
struct Either {
  using type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using type = B;
};

/// The walk of a schedule.
template <Scheduler kScheduler, QLayout kQLayout, class RowMapT, int kBlockM, int kCluster>
using WalkOf = typename Either<kQLayout == QLayout::kRagged && kScheduler == Scheduler::kPersistent,
                               RaggedWalk<RowMapT, kBlockM, kCluster>, ItemWalk<kCluster>>::type;

}  // namespace kernelwright::policy
