/// Which work items a persistent CTA takes, and in what order: one thread of the CTA walks them and tells the rest. The
/// CTAs of a cluster take the same items: one is then kCluster neighbouring query tiles, and a tile's place in this
/// file (m_block, m_chunk, laps) counts them together.
#pragma once

#include "contract/attention_sm90.h"
#include "contract/spec_words.h"
#include "policy/attention_item.cuh"
#include "policy/item_queue.cuh"

namespace kernelwright::policy {

/// Items by length, the index-th of `pairs` (batch, head) pairs of `m_blocks` query tiles each.
///
/// Under a causal mask the last query tiles are the longest. `m_chunk` of them of one pair stand side by side, then as
/// many of the next pair, and once all pairs have been seen the next m_chunk tiles: few enough that items still come by
/// length, and enough that several CTAs read the same keys at the same time, which halves what the memory has to give.
/// Without a mask m_chunk is all tiles: pair after pair.
struct ItemPlace {
  unsigned m_block, pair;
  __device__ ItemPlace(unsigned index, unsigned pairs, unsigned m_blocks, unsigned m_chunk) {
    const unsigned above = index / (pairs * m_chunk) * m_chunk;  // tiles of each pair that come before
    const unsigned chunk = min(m_chunk, m_blocks - above);       // the last may be short
    const unsigned rest = index - above * pairs;
    pair = rest / chunk;
    m_block = m_blocks - 1 - above - rest % chunk;
  }
};

/// All items that the longest sequence has, of each sequence.
template <int kCluster>
class AllItems {
  const contract::HopperAttentionParams& params_;
  int heads_;  // that items count: query heads, or KV heads if packed

 public:
  __device__ AllItems(const contract::HopperAttentionParams& params, int heads) : params_(params), heads_(heads) {}
  __device__ unsigned count() const { return static_cast<unsigned>(params_.num_items); }
  __device__ TileCoord at(unsigned item) const {
    const contract::AttentionParams& attention = params_.attention;
    const unsigned m_blocks = (static_cast<unsigned>(attention.num_m_blocks) + kCluster - 1) / kCluster;
    const ItemPlace place(item, static_cast<unsigned>(attention.batch) * heads_, m_blocks, params_.m_chunk);
    return TileCoord(static_cast<int>(place.m_block), static_cast<int>(place.pair % heads_),
                     static_cast<int>(place.pair / heads_));
  }
};

/// From an item of one lap to that of the next, for `self` of `walkers`: place b of one is place walkers - 1 - b of the
/// other. back: from a lap that runs backwards.
__device__ __forceinline__ unsigned next_lap(bool back, unsigned self, unsigned walkers) {
  return back ? 1 + 2 * self : 2 * (walkers - self) - 1;
}

/// Items come in laps of one per CTA, and every other lap runs backwards: whoever had the longest item of a lap has the
/// shortest of the next, so that all CTAs end together without a counter in memory.
template <int kCluster>
class ItemWalk {
  AllItems<kCluster> items_;
  unsigned item_;
  bool back_ = false;

  static __device__ unsigned self() { return blockIdx.x / kCluster; }
  static __device__ unsigned walkers() { return gridDim.x / kCluster; }

 public:
  __device__ ItemWalk(const contract::HopperAttentionParams& params, int heads)
      : items_(params, heads), item_(self()) {}

  /// False past the last item; else where the item lies, and on to the next.
  __device__ bool next(TileCoord& coord) {
    if (item_ >= items_.count()) return false;
    coord = items_.at(item_);
    item_ += next_lap(back_, self(), walkers());
    back_ = !back_;
    return true;
  }

  /// Before the last copies of an item are issued: now is the time to find out about the next.
  __device__ void look_ahead() {}
};

/// Of ragged queries only the tiles that there are, sequence after sequence.
template <class RowMapT, int kBlockM, int kCluster>
class RaggedItems {
  const contract::AttentionParams& params_;
  int heads_;

  __device__ int tiles(int batch) const {
    constexpr int kRows = kBlockM * kCluster;
    return (RowMapT::rows(ragged_queries(params_, batch).count) + kRows - 1) / kRows;
  }

 protected:
  int item_;
  int batch_ = 0, begin_ = 0;  // a sequence and its first item

  __device__ RaggedItems(const contract::HopperAttentionParams& params, int heads, unsigned item)
      : params_(params.attention), heads_(heads), item_(static_cast<int>(item)) {}

  __device__ int count(const contract::HopperAttentionParams& params) const {
    int items = 0;
#pragma unroll 4
    for (int batch = 0; batch < params.attention.batch; ++batch) items += tiles(batch) * heads_;
    return items;
  }

  /// Goes to the sequence that has item_, and says how many tiles each of its heads has.
  __device__ int find() {
    while (item_ < begin_) begin_ -= tiles(--batch_) * heads_;
    int count = tiles(batch_);
    while (item_ >= begin_ + count * heads_) {
      begin_ += count * heads_;
      count = tiles(++batch_);
    }
    return count;
  }
  __device__ int heads() const { return heads_; }
};

/// Ragged queries, in the order of the batch. Every other CTA walks its items backwards: where a batch begins with long
/// chunks and ends with sequences that decode, or the other way round, half of the SMs multiply while the other half
/// waits for memory.
template <class RowMapT, int kBlockM, int kCluster>
class RaggedWalk : RaggedItems<RowMapT, kBlockM, kCluster> {
  using Items = RaggedItems<RowMapT, kBlockM, kCluster>;
  using Items::item_, Items::batch_, Items::begin_;
  int step_, left_;  // the way to the item after the next, how many there are

 public:
  __device__ RaggedWalk(const contract::HopperAttentionParams& params, int heads)
      : Items(params, heads, blockIdx.x / kCluster) {
    const int items = this->count(params);
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
    const int count = this->find();
    const int rest = item_ - begin_;
    coord = TileCoord(count - 1 - rest % count, rest / count, batch_);
    item_ += step_;
    return true;
  }
  __device__ void look_ahead() {}
};

/// The items of a ragged batch for a queue: each sequence's by length, one sequence after another.
template <class RowMapT, int kBlockM>
class RaggedQueueItems : RaggedItems<RowMapT, kBlockM, 1> {
  using Items = RaggedItems<RowMapT, kBlockM, 1>;
  unsigned m_chunk_, count_;

 public:
  __device__ RaggedQueueItems(const contract::HopperAttentionParams& params, int heads)
      : Items(params, heads, 0), m_chunk_(params.m_chunk), count_(Items::count(params)) {}
  __device__ unsigned count() const { return count_; }
  __device__ TileCoord at(unsigned item) {
    this->item_ = static_cast<int>(item);
    const unsigned tiles = this->find();
    const ItemPlace place(item - this->begin_, this->heads(), tiles, min(m_chunk_, tiles));
    return TileCoord(static_cast<int>(place.m_block), static_cast<int>(place.pair), this->batch_);
  }
};

/// Items go to whoever is free: a CTA's first one is its own, further ones come from a queue that all share. Which CTA
/// computes an item changes no bit of it. A launch without a queue has them dealt in laps, as ItemWalk's.
///
/// Each item is followed by one question for the next: the queue has as many as there are items, and its last answer is
/// some CTA's last, past the end like those of the others. A CTA that has no item asks nothing.
template <class Items>
class QueueWalk {
  Items items_;
  ItemQueue queue_;
  unsigned item_, lap_ = 0;
  bool asked_ = false;

 public:
  __device__ QueueWalk(const contract::HopperAttentionParams& params, int heads)
      : items_(params, heads), queue_(params.queue), item_(blockIdx.x) {}

  /// As ItemWalk's. Not called again once it was false.
  __device__ bool next(TileCoord& coord) {
    if (lap_ > 0) {
      if (queue_.exists()) {
        look_ahead();
        item_ = gridDim.x + queue_.answer(items_.count());
        asked_ = false;
      } else {
        item_ += next_lap(lap_ % 2 == 0, blockIdx.x, gridDim.x);
      }
    }
    ++lap_;
    if (item_ >= items_.count()) return false;
    coord = items_.at(item_);
    return true;
  }

  /// Asks, unless that is done. As late as may be: an item that a CTA has asked for waits for it, though another may be
  /// free. As early as must be: an answer takes as long as a key tile.
  __device__ void look_ahead() {
    if (queue_.exists() && !asked_) queue_.ask();
    asked_ = true;
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

/// How a schedule has items walked by those who load them.
template <Scheduler kScheduler, QLayout kQLayout, class RowMapT, int kBlockM, int kCluster>
struct Walks {
  static constexpr bool kRagged = kQLayout == QLayout::kRagged, kQueued = kScheduler == Scheduler::kQueued;
  static_assert(!kQueued || kCluster == 1, "a CTA asks for itself: the others of a cluster would not know");
  using Queue = QueueWalk<typename Either<kRagged, RaggedQueueItems<RowMapT, kBlockM>, AllItems<1>>::type>;
  /// The same items, dealt beforehand: for those whose share need not be even.
  using Static = typename Either<kRagged && (kQueued || kScheduler == Scheduler::kPersistent),
                                 RaggedWalk<RowMapT, kBlockM, kCluster>, ItemWalk<kCluster>>::type;
  using Loading = typename Either<kQueued, Queue, Static>::type;
};

}  // namespace kernelwright::policy
