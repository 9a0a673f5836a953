/// Which work items a persistent CTA takes, and in what order. One thread of the CTA walks the items and tells the
/// others. The CTAs of a cluster take the same items: an item is then kCluster neighbouring query tiles, and positions
/// in this file (m_block, m_chunk, laps) count these tiles as one.
#pragma once

#include "contract/attention_sm90.h"
#include "contract/words.h"
#include "policy/attention_item.cuh"
#include "policy/either.cuh"
#include "policy/item_queue.cuh"

namespace kernelwright::policy {

/// Items ordered by length: the index-th item of `pairs` (batch, head) pairs with `m_blocks` query tiles each.
///
/// Under a causal mask the last query tiles are the longest. `m_chunk` tiles of one pair come first, then as many of
/// the next pair. After all pairs, the next m_chunk tiles follow. m_chunk is small enough that items still come by
/// length. It is large enough that several CTAs read the same keys at the same time, which halves the traffic to
/// memory. Without a mask m_chunk is all tiles: the pairs come one after another.
struct ItemPlace {
  unsigned m_block, pair;
  __device__ ItemPlace(unsigned index, unsigned pairs, unsigned m_blocks, unsigned m_chunk) {
    const unsigned above = index / (pairs * m_chunk) * m_chunk;  // tiles of each pair that come before this chunk
    const unsigned chunk = min(m_chunk, m_blocks - above);       // the last chunk may be short
    const unsigned rest = index - above * pairs;
    pair = rest / chunk;
    m_block = m_blocks - 1 - above - rest % chunk;
  }
};

/// All items: every sequence gets as many items as the longest one.
template <int kCluster>
class AllItems {
  const contract::HopperAttentionParams& params_;
  int heads_;  // heads that items count: query heads, or KV heads if heads are packed

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

/// Steps from an item of one lap to the item of the next, for walker `self` of `walkers`. Place b of one lap is place
/// walkers - 1 - b of the next. back: from a lap that runs backwards.
__device__ __forceinline__ unsigned next_lap(bool back, unsigned self, unsigned walkers) {
  return back ? 1 + 2 * self : 2 * (walkers - self) - 1;
}

/// Items come in laps of one per CTA, and every other lap runs backwards. The CTA with the longest item of a lap has
/// the shortest item of the next, so all CTAs end together without a counter in memory.
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

  /// False past the last item. Otherwise sets the item's place and steps to the next item.
  __device__ bool next(TileCoord& coord) {
    if (item_ >= items_.count()) return false;
    coord = items_.at(item_);
    item_ += next_lap(back_, self(), walkers());
    back_ = !back_;
    return true;
  }

  /// Called before the last copies of an item are issued: the moment to ask for the next item.
  __device__ void look_ahead() {}
};

/// For ragged queries: only the tiles that exist, sequence after sequence.
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

  /// Goes to the sequence that contains item_, and returns how many tiles each of its heads has.
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

/// Ragged queries, in the order of the batch. Every other CTA walks its items backwards. A batch may begin with long
/// chunks and end with sequences that decode, or the other way round. Then half of the SMs multiply while the other
/// half wait for memory.
template <class RowMapT, int kBlockM, int kCluster>
class RaggedWalk : RaggedItems<RowMapT, kBlockM, kCluster> {
  using Items = RaggedItems<RowMapT, kBlockM, kCluster>;
  using Items::item_, Items::batch_, Items::begin_;
  int step_, left_;  // steps to the item after the next, and number of items left

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

  /// As in ItemWalk.
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

/// The items of a ragged batch for a queue: sequence after sequence, each sequence's items by length.
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

/// Each item goes to a free CTA. A CTA's first item is fixed; its further items come from a queue that all CTAs share.
/// The result does not depend on which CTA computes an item. In a launch without a queue, items are dealt in laps, as
/// in ItemWalk.
///
/// Each item is followed by one question for the next item, so the queue answers as many questions as there are items.
/// The last answers, one for each CTA, are past the end. A CTA without an item asks nothing.
template <class Items>
class QueueWalk {
  Items items_;
  ItemQueue queue_;
  unsigned item_, lap_ = 0;
  bool asked_ = false;

 public:
  __device__ QueueWalk(const contract::HopperAttentionParams& params, int heads)
      : items_(params, heads), queue_(params.queue), item_(blockIdx.x) {}

  /// As in ItemWalk. Not called again once it returned false.
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

  /// Asks for the next item, unless that is done. It must be late: an item that a CTA has asked for waits for this CTA,
  /// even if another CTA is free. It must be early enough: an answer takes as long as a key tile.
  __device__ void look_ahead() {
    if (queue_.exists() && !asked_) queue_.ask();
    asked_ = true;
  }
};

/// How the loading warps walk items under a schedule.
template <Scheduler kScheduler, QLayout kQLayout, class RowMapT, int kBlockM, int kCluster>
struct Walks {
  static constexpr bool kRagged = kQLayout == QLayout::kRagged, kQueued = kScheduler == Scheduler::kQueued;
  static_assert(!kQueued || kCluster == 1, "a CTA asks for itself: the others of a cluster would not know");
  using Queue = QueueWalk<typename Either<kRagged, RaggedQueueItems<RowMapT, kBlockM>, AllItems<1>>::type>;
  /// The same items, dealt in advance: for warps whose shares need not be even.
  using Static = typename Either<kRagged && (kQueued || kScheduler == Scheduler::kPersistent),
                                 RaggedWalk<RowMapT, kBlockM, kCluster>, ItemWalk<kCluster>>::type;
  using Loading = typename Either<kQueued, Queue, Static>::type;
};

}  // namespace kernelwright::policy
