/// The thread of attention_latent_sm90 that loads. It fills the slots of keys, part by part.
#pragma once

#include "kernels/attention/latent/attention_latent_sm90_tiles.cuh"
#include "ptx/tma.cuh"

namespace kernelwright {
namespace {

class Loader {
  enum : bool {
    kPaged = spec::kKvLayout == KvLayoutKind::kPaged,
    kLooksAhead = kShareRows / kBoxRows <= 4,  // registers hold the pages of two tiles
  };
  enum : int {
    kBoxes = kShareRows / kBoxRows,
    kPage = spec::kPageSize > 0 ? spec::kPageSize : 1,
  };
  static_assert(kBoxRows % contract::kSwizzleRows == 0, "a box begins where the swizzle's pattern does");
  static_assert(spec::kBlockN % kPage == 0 || kPage % kBoxRows == 0);

  const contract::TensorMap& map_;
  const policy::TileList& tiles_;
  const int32_t* const table_;
  const int start_, batch_, head_, share_;
  Laps& laps_;
  KeyRing ring_;
  uint32_t keys_;
  int page_[kBoxes];

 public:
  __device__ __forceinline__ Loader(const contract::HopperLatentParams& params, const Work& work, const Shared& shared,
                                    Laps& laps)
      : map_(params.k),
        tiles_(work.tiles),
        table_(params.attention.page_table +
               static_cast<int64_t>(work.cluster.coord.batch) * params.attention.page_table_stride),
        start_(static_cast<int>(work.cluster.sequence.kv_start)),
        batch_(spec::kKvLayout == KvLayoutKind::kRagged ? 0 : work.cluster.coord.batch),
        head_(work.cluster.coord.head),
        share_(kCluster > 1 ? static_cast<int>(ptx::cluster_ctarank()) * kShareRows : 0),
        laps_(laps),
        ring_(KeyRing::producer(shared.key_barriers())),
        keys_(shared.keys(0)) {}

  __device__ __forceinline__ void run() {
    look_up(tiles_.begin);
    int ahead = 0;
#pragma unroll 1
    for (int tile = tiles_.begin; tile < tiles_.end; ++tile, ++ahead) {
      // Queries and the first tile go first: nothing can be multiplied before they are there.
      if (ahead == 1) ring_.template consumer_wait_at<0>({0, laps_.before(0)});
      if constexpr (spec::kBalanced) ring_.state.phase = laps_.of(ring_.state.index) ^ 1;
      if constexpr (kLooksAhead) {
        int page[kBoxes];
#pragma unroll
        for (int box = 0; box < kBoxes; ++box) page[box] = page_[box];
        look_up(tile + 1);  // the table answers while this tile waits for its slot
        load_parts<0>(tile * spec::kBlockN + share_, page);
      } else {
        load_parts<0>(tile * spec::kBlockN + share_, page_);
        look_up(tile + 1);
      }
      if constexpr (spec::kBalanced) laps_.fill(ring_.state.index);
      ring_.step();
    }
  }

 private:
  /// The pages of a tile's boxes. The table may end with the sequence, and begin with the window. A page outside of the
  /// tensor reads as zeros: the map knows how many pages exist, so a wrong entry of the table needs no check here.
  __device__ __forceinline__ void look_up(int tile) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      page_[box] = batch_;
      if constexpr (kPaged) {
        const int key = tile * spec::kBlockN + share_ + box * kBoxRows;
        const bool seen = tile < tiles_.end && key < tiles_.keys.high && key + kBoxRows > tiles_.keys.low;
        page_[box] = seen ? table_[key / kPage] : -1;
      }
    }
  }

  template <int kPart>
  __device__ __forceinline__ void load_parts(int key, const int (&page)[kBoxes]) {
    ring_.template producer_wait<kPart>();
    const uint32_t full = ring_.template expect_bytes<kPart>(slabs_of_part(kPart) * kSlabBytes);
    constexpr int kFirst = kPart * contract::kLatentPartSlabs;
    const uint32_t to = keys_ + ring_.state.index * kLayout.slot + kFirst * kSlabBytes + share_ * 128;
#pragma unroll
    for (int slab = 0; slab < slabs_of_part(kPart); ++slab)
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        load_box(to + slab * kSlabBytes + box * kBoxRows * 128, (kFirst + slab) * 64, key + box * kBoxRows, page[box],
                 full);
    if constexpr (kPart + 1 < contract::kLatentParts) load_parts<kPart + 1>(key, page);
  }

  __device__ __forceinline__ void load_box(uint32_t to, int column, int key, int page, uint32_t full) const {
    const int row = kPaged ? key % kPage : start_ + key;
    if constexpr (kCluster > 1)
      ptx::cp_async_bulk_tensor_4d_multicast(to, map_, column, row, head_, page, full, (1 << kCluster) - 1);
    else
      ptx::cp_async_bulk_tensor_4d(to, map_, column, row, head_, page, full);
  }
};

}  // namespace
}  // namespace kernelwright
