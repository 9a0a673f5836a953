/// Declarations that attention_sm90 and attention_sm100 share, because both load through tensor maps. They are the
/// layout of a tile in shared memory, the key tiles of an item, their copies, and the outputs of rows that see no key.
#pragma once

#include "spec.h"

#include "contract/attention_sm90.h"
#include "contract/words.h"
#include "pipeline/tma_producer_pipeline.cuh"
#include "policy/attention_item.cuh"
#include "policy/item_tiles.cuh"
#include "policy/mask.cuh"
#include "ptx/cluster.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "tile/element.cuh"

// Behind the others: the order in which namespaces appear is the order of variables in a binary.
#include "kernels/attention/attention_defaults.cuh"

namespace kernelwright {
namespace {

enum : bool {  // not a variable, which would be in every binary
  // Whether warps convert V, and K unless Q becomes two terms, as TMA brings them, to f16. Only attention_sm90 has such
  // warps.
  kConvertsKv = spec::kQDType != spec::kKvDType,
};
static_assert(!kConvertsKv || (tile::kBytesOf<spec::kQDType> == 2 && tile::kBytesOf<spec::kKvDType> == 1),
              "the operands of a product");
constexpr int kElementBytes = tile::kBytesOf<spec::kQDType>, kOutBytes = tile::kBytesOf<spec::kOutDType>;
constexpr uint32_t kRowBytes = contract::slab_width(spec::kSwizzleBytes);  // bytes of a slab's row
constexpr int kRowPieces = kRowBytes / contract::kPieceBytes, kSlabColumns = kRowBytes / kElementBytes;
constexpr int kSlabsV = contract::slabs_of(spec::kHeadDimV, kElementBytes, spec::kSwizzleBytes);
// A slab of a tile of K, and of a sub-stage of V. A sub-stage holds some of a tile's keys (pipeline/kv_rings.cuh).
constexpr int kValueStages = spec::kNumMmaStages, kStageKeys = spec::kBlockN / kValueStages;
constexpr uint32_t kKvSlabBytes = spec::kBlockN * kRowBytes, kValueSlabBytes = kStageKeys * kRowBytes;
constexpr bool kSharedRing = spec::kKvRing == KvRing::kShared;
constexpr bool kPaged = spec::kKvLayout == KvLayoutKind::kPaged;
// Whether threads copy K and V row by row, because no box of TMA lies within a page.
constexpr bool kGathersKv = contract::hopper_gathers_kv(spec::kPageSize);
// Each CTA of a cluster loads a share of every key tile for all of them, or everything for itself.
constexpr int kShares = spec::kMulticast;
constexpr int kBoxRows = contract::hopper_kv_box_rows(spec::kBlockN / kShares, spec::kPageSize);  // of K
static_assert(kStageKeys * kValueStages == spec::kBlockN && kStageKeys % (contract::kSwizzleRows * kShares) == 0,
              "a share of a sub-stage begins where the swizzle's pattern does");

template <int kRows>
using ItemOf = SpecItem<
    policy::WorkItem<spec::kQLayout, spec::kKvLayout, spec::kCacheLength, spec::kPackGqa, spec::kGroup, kRows>>;
using WorkItem = ItemOf<spec::kBlockM>;
using Mask = SpecMask<spec::kKvStarts>;

enum : int {  // not variables, which would be in every binary
  // Tiles begin with a multiple of both.
  kFirstKeyStep = kPaged && !kGathersKv ? kBoxRows : 1,
  kChunkStep = spec::kMask == MaskKind::kChunked ? spec::kChunk : 1,
};
enum : bool {
  // Whether an item's first tile may begin with keys before the start of its sequence. Otherwise it begins with the
  // start or behind, and no tile has to be masked for it.
  kHidesInTiles = spec::kKvStarts && (kFirstKeyStep > 1 || kChunkStep > 1),
  // Whether the values of such keys must be replaced by zeros. Gathering warps never copy them, and converting warps
  // write zeros instead.
  kCleansFirst = kHidesInTiles && !kGathersKv && !kConvertsKv,
};
/// The mask of a sequence whose keys are counted from the first of an item's tiles.
using TileMask = SpecMask<kHidesInTiles>;

__device__ __forceinline__ uint32_t share_rank() {
  if constexpr (kShares > 1)
    return ptx::cluster_ctarank();
  else
    return 0;
}

/// The key tiles of `work`, the item of a CTA or of a cluster.
template <class WorkItemT>
__device__ __forceinline__ policy::ItemTiles tiles_of(const contract::AttentionParams& params, const WorkItemT& work) {
  return policy::item_tiles<spec::kBlockN, kFirstKeyStep, kChunkStep, spec::kTilesFromStart, Mask>(params, work);
}

/// `tiles` are all tiles that the CTAs of a cluster see. This call finds which of them need no mask for the rows of
/// `work`, the item of one CTA. Behind the last rows of a sequence that CTA may have no rows.
__device__ __forceinline__ void find_own_full_tiles(const contract::AttentionParams& params, const WorkItem& work,
                                                    policy::ItemTiles& tiles) {
  policy::TileList& list = tiles.list;
  if (work.num_rows > 0)
    policy::find_full_tiles<spec::kBlockN>(list, work.template mask<Mask>(params).counted_from(tiles.origin),
                                           work.query(0), work.query(work.num_rows - 1));
  else
    list.full_begin = list.begin, list.full_end = list.end;  // no code reads the result
}

/// The place of a tile's keys, in coordinates of the maps.
struct KvTile {
  const int32_t* pages;  // of the sequence
  int first_key;
  int low, high;    // keys that some row of the item sees
  int start;        // ragged: token of the sequence's first key
  int head, batch;  // batch 0 if ragged

  KvTile() = default;
  __device__ __forceinline__ KvTile(const contract::AttentionParams& params, const WorkItem& work,
                                    const policy::ItemTiles& tiles)
      : pages(params.page_table + static_cast<int64_t>(work.coord.batch) * params.page_table_stride),
        first_key(0),
        low(tiles.origin + tiles.list.keys.low),
        high(tiles.origin + tiles.list.keys.high),
        start(static_cast<int>(work.sequence.kv_start)),
        head(work.row_map.kv_head()),
        batch(spec::kKvLayout == KvLayoutKind::kRagged ? 0 : work.coord.batch) {}
};

/// Boxes for this CTA alone.
struct OwnBoxes {
  __device__ __forceinline__ static void load(uint32_t to, const contract::TensorMap& map, int x, int y, int z, int w,
                                              uint32_t full) {
    ptx::cp_async_bulk_tensor_4d(to, map, x, y, z, w, full);
  }
  __device__ __forceinline__ static void load(uint32_t to, const contract::TensorMap& map, int x, int y, int z, int w,
                                              int v, uint32_t full) {
    ptx::cp_async_bulk_tensor_5d(to, map, x, y, z, w, v, full);
  }
};

/// The share of every tile of K, or sub-stage of V, that a CTA loads, and the CTAs that receive it. The share is kRows
/// keys from first_row() on, and the maps' columns from first_column() on. It goes to slabs of kSlabBytes, from their
/// row row_in_slot() on. This struct is a share of kKeys keys for all CTAs of the cluster. Without a cluster it is
/// everything. row_bytes: of a slab.
template <int kKeys>
struct Shares {
  static constexpr int kRows = kKeys / kShares, kSlabs = kSlabsV;  // slabs of V
  static constexpr uint32_t kSlabBytes = kKeys * kRowBytes;
  enum : uint32_t { row_bytes = kRowBytes };
  __device__ static int first_row() { return static_cast<int>(share_rank()) * kRows; }
  __device__ static int row_in_slot() { return first_row(); }
  __device__ static int first_column() { return 0; }
  /// The place of part kPart of the ring's tile. Its barrier is armed.
  template <int kPart, class Ring>
  __device__ __forceinline__ static pipeline::TileTarget target(Ring& ring) {
    return ring.template get_tile<kPart>(true);
  }
  __device__ __forceinline__ static void load(uint32_t to, const contract::TensorMap& map, int column, int key,
                                              int head, int batch, uint32_t full) {
    if constexpr (kShares > 1)
      ptx::cp_async_bulk_tensor_4d_multicast(to, map, column, key, head, batch, full, (1 << kShares) - 1);
    else
      OwnBoxes::load(to, map, column, key, head, batch, full);
  }
};

using KeyShares = Shares<spec::kBlockN>;
using ValueShares = Shares<kStageKeys>;

/// Columns of a map that become a slab of one head.
struct SlabSource {
  const contract::TensorMap* map;
  int column, head;
};
/// Slab `slab` of an operand that has one map. Operands without a single map have an overload of their own.
__device__ __forceinline__ SlabSource slab_source(const contract::TensorMap& map, int slab, int head) {
  return {&map, slab * kSlabColumns, head};
}

/// Two maps of an operand: one of its plain part, which becomes kPlainSlabs slabs, and one of its rotary part. Its
/// slabs of kRopeColumns columns follow.
template <int kPlainSlabs, int kRopeColumns>
struct RopeMaps {
  const contract::TensorMap& plain;
  const contract::TensorMap& rope;
  int rope_head_step;  // 0: all heads share one rotary part
};
template <int kPlainSlabs, int kRopeColumns>
__device__ __forceinline__ SlabSource slab_source(const RopeMaps<kPlainSlabs, kRopeColumns>& maps, int slab, int head) {
  if (slab < kPlainSlabs) return {&maps.plain, slab * kSlabColumns, head};
  return {&maps.rope, (slab - kPlainSlabs) * kRopeColumns, head * maps.rope_head_step};
}

/// Loads slabs [0, kSlabs), counted from the operand's slab kFirstSlab on, for the part of the tile that Part
/// describes.
template <class Part, int kFirstSlab, int kSlabs, class Maps>
__device__ __forceinline__ void load_tile(const Maps& maps, const pipeline::TileTarget& to, const KvTile& tile) {
  const int first_row = Part::first_row();
  const int first_column = Part::first_column();
  const uint32_t smem = to.smem + Part::row_in_slot() * Part::row_bytes;
  if constexpr (kPaged) {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
    constexpr int kBoxRows = contract::hopper_kv_box_rows(Part::kRows, spec::kPageSize);
#pragma unroll 1
    for (int row = 0; row < Part::kRows; row += kBoxRows) {
      const int key = tile.first_key + first_row + row;
      // The table may end with the sequence, and begin with the window or the start. A page outside of the tensor reads
      // as zeros: the map knows how many pages exist, so a wrong entry of the table needs no check here.
      const int page = key < tile.high && key + kBoxRows > tile.low ? tile.pages[key / kPage] : -1;
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        const SlabSource from = slab_source(maps, kFirstSlab + slab, tile.head);
        Part::load(smem + slab * Part::kSlabBytes + row * Part::row_bytes, *from.map, first_column + from.column,
                   key % kPage, from.head, page, to.full);
      }
    }
  } else {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const SlabSource from = slab_source(maps, kFirstSlab + slab, tile.head);
      Part::load(smem + slab * Part::kSlabBytes, *from.map, first_column + from.column,
                 tile.start + tile.first_key + first_row, from.head, tile.batch, to.full);
    }
  }
}

/// Loads the next tile of K, of kSlabs slabs: each sub-stage as soon as its slot is released.
template <int kSlabs, class Part = KeyShares, int kStage = 0, class Maps, class Keys>
__device__ __forceinline__ void load_keys(const Maps& maps, Keys& keys, const KvTile& tile) {
  constexpr int kStageSlabs = kSlabs / spec::kNumQkStages;
  keys.template acquire_k<kStage>();
  load_tile<Part, kStage * kStageSlabs, kStageSlabs>(maps, Part::template target<kStage>(keys), tile);
  if constexpr (kStage + 1 < spec::kNumQkStages)
    load_keys<kSlabs, Part, kStage + 1>(maps, keys, tile);
  else
    keys.commit_step();
}

/// Loads the next tile of V, likewise.
template <class Part = ValueShares, int kStage = 0, class Values>
__device__ __forceinline__ void load_values(const contract::TensorMap& map, Values& values, const KvTile& tile) {
  values.template acquire_v<kStage>();
  load_tile<Part, 0, Part::kSlabs>(map, Part::template target<kStage>(values), tile);
  if constexpr (kStage + 1 < kValueStages) {
    KvTile rest = tile;
    rest.first_key += kStageKeys;
    load_values<Part, kStage + 1>(map, values, rest);
  } else {
    values.commit_step();
  }
}

/// The bytes between the sub-stages of a tile of V ahead of its key `key`: sub-stages are kStageBytes apart.
template <uint32_t kStageBytes>
__device__ __forceinline__ uint32_t between_stages(int key) {
  if constexpr (kValueStages == 1)
    return 0;
  else
    return static_cast<uint32_t>(key) / kStageKeys * (kStageBytes - kValueSlabBytes);
}

/// Loads queries in kSlabs boxes of `kRows` rows. The first is row `row` of the CTA's. The caller has armed `full`.
template <int kRows, int kSlabs, class Boxes = OwnBoxes, class Maps>
__device__ __forceinline__ void load_queries(const Maps& maps, uint32_t to, const WorkItem& work, int row,
                                             uint32_t full) {
  const int token = static_cast<int>(work.sequence.q_start) + work.query(row);
  const int batch = spec::kQLayout == QLayout::kRagged ? 0 : work.coord.batch;
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
    const uint32_t slab_at = to + slab * kRows * kRowBytes;
    const SlabSource from = slab_source(maps, slab, work.coord.head);
    if constexpr (spec::kPackGqa)
      Boxes::load(slab_at, *from.map, from.column, 0, token, from.head, batch, full);
    else
      Boxes::load(slab_at, *from.map, from.column, token, from.head, batch, full);
  }
}

/// Writes O = 0 and the LSE of nothing (of the sink, if there is one) to rows first, first + step, .. of an item that
/// sees no key. All lanes of a warp call it.
__device__ __forceinline__ void fill_unseen_rows(const contract::AttentionParams& params, const WorkItem& work,
                                                 int lane, int first, int step) {
  for (int row = first; row < work.num_rows; row += step) {
    unsigned char* const to = static_cast<unsigned char*>(params.o) + work.offset(params.o_strides, row) * kOutBytes;
    for (int byte = lane * 16; byte < spec::kHeadDimV * kOutBytes; byte += 32 * 16) ptx::st_global_v4(to + byte, {});
    if constexpr (spec::kLse)
      if (lane == 0)
        params.lse[work.lse_index(params, row)] = spec::kSinks ? params.sinks[work.q_head(row)] : ptx::minus_infinity();
  }
}

}  // namespace
}  // namespace kernelwright
