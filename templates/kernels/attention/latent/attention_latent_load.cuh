/// The thread that loads by TMA in kernels of latent attention. It fills the slots of keys, part by part.
///
/// Keys of 8 bits land where their 16-bit elements will be (attention_latent_sm90_convert.cuh). Two slabs of a part
/// have 128 columns. The 128 bytes of these columns land in the second slab, each key's in the key's own row.
#pragma once

#include "kernels/attention/latent/attention_latent_ring.cuh"
#include "ptx/tma.cuh"

namespace kernelwright {
namespace {

/// `SharedT`: the places of a kernel's shared memory.
template <class SharedT>
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

  const Params& params_;
  const SharedT& shared_;
  const policy::TileList& tiles_;
  const int32_t* const table_;
  const int start_, batch_, head_, share_;
  Laps& laps_;
  KeyRing ring_;
  uint32_t keys_;
  int page_[kBoxes];

 public:
  __device__ __forceinline__ Loader(const Params& params, const Work& work, const SharedT& shared, Laps& laps)
      : params_(params),
        shared_(shared),
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
  /// The same, and waits until all slots have been released: so no commit of a product arrives at a CTA that has
  /// exited.
  __device__ __forceinline__ void run_and_drain() {
    run();
    ring_.drain();
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

  /// The column of k at which a slab's boxes begin, in elements of the map. kNoBox: nothing lands in the slab, because
  /// the bytes of the slab behind it become its elements, too.
  static constexpr int kNoBox = -1;
  __device__ static constexpr int column_of(int slab) {
    if (!kConverts) return slab * 64;
    if (slab >= kValueSlabs) return kKey.rest;
    return slab % 2 == 1 ? slab / 2 * 128 : kNoBox;
  }
  __device__ static constexpr int bytes_of_part(int part) {
    int bytes = part == 0 && kRecords ? contract::kLatentScaleBytes : 0;
    for (int slab = 0; slab < slabs_of_part(part); ++slab)
      if (column_of(part * contract::kLatentPartSlabs + slab) != kNoBox) bytes += kSlabBytes;
    return bytes;
  }
  /// Arms the barrier on which a part's boxes complete.
  template <int kPart>
  __device__ __forceinline__ uint32_t expect_part() const {
    constexpr uint32_t kBytes = bytes_of_part(kPart);
    if constexpr (kConverts) {
      const auto landed = shared_.landed(static_cast<int>(ring_.state.index), kPart);
      landed.expect_bytes(kBytes);
      return landed.address;
    } else {
      return ring_.template expect_bytes<kPart>(kBytes);
    }
  }

  template <int kPart>
  __device__ __forceinline__ void load_parts(int key, const int (&page)[kBoxes]) {
    ring_.template producer_wait<kPart>();
    const uint32_t barrier = expect_part<kPart>();
    constexpr int kFirst = kPart * contract::kLatentPartSlabs;
    const uint32_t to = keys_ + ring_.state.index * kSlotBytes + kFirst * kSlabBytes + share_ * 128;
#pragma unroll
    for (int slab = 0; slab < slabs_of_part(kPart); ++slab) {
      if (column_of(kFirst + slab) == kNoBox) continue;
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        load_box(params_.k, to + slab * kSlabBytes + box * kBoxRows * 128, column_of(kFirst + slab),
                 key + box * kBoxRows, page[box], barrier);
    }
    if constexpr (kRecords && kPart == 0) {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        load_box(scale_map(params_), shared_.scales(static_cast<int>(ring_.state.index), box * kBoxRows), kKey.scales,
                 key + box * kBoxRows, page[box], barrier);
    }
    if constexpr (kPart + 1 < contract::kLatentParts) load_parts<kPart + 1>(key, page);
  }

  __device__ __forceinline__ void load_box(const contract::TensorMap& map, uint32_t to, int column, int key, int page,
                                           uint32_t barrier) const {
    const int row = kPaged ? key % kPage : start_ + key;
    if constexpr (kCluster > 1)
      ptx::cp_async_bulk_tensor_4d_multicast(to, map, column, row, head_, page, barrier, (1 << kCluster) - 1);
    else
      ptx::cp_async_bulk_tensor_4d(to, map, column, row, head_, page, barrier);
  }
};

}  // namespace
}  // namespace kernelwright
