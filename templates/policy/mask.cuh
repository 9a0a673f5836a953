/// Masks as two numbers per query row: the keys [low, high) that the row sees. A TileList is built once per work item.
/// It says which key tiles a block of rows walks, and in which of them single keys must be checked.
#pragma once

#include "contract/attention_params.h"
#include "contract/key_range.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

using contract::KeyRange;

/// The keys that a row does not see, beside its range: those before it, those from its end on.
enum class Side { kBefore, kFrom, kBoth };

/// The mask of one sequence. All masks are aligned to the bottom right: the diagonal key of the last query is the last
/// key. kChunk: keys of a chunk, for chunked masks only.
template <MaskKind kMask, int kChunk>
struct Mask {
  static_assert(contract::is_key_range(kMask), "the host folds every other mask into one of these");
  static constexpr MaskKind kind = kMask;
  static constexpr bool hides_low = contract::hides_low(kMask);  // whether a row may not see the first keys
  static constexpr Side hides = hides_low ? Side::kBoth : Side::kFrom;
  const contract::AttentionParams& params;
  int kv_len;
  int diagonal;  // kv_len - q_len: the diagonal key of query 0

  __device__ KeyRange visible(int query) const {
    return contract::key_range(kMask,
                               {params.window_left, params.window_right, kChunk > 0 ? kChunk : 1, params.chunk_reach},
                               query + diagonal, kv_len);
  }

  /// The same mask with keys counted from `origin`, which begins a chunk and is at most the first key that any of the
  /// queries sees.
  __device__ Mask counted_from(int origin) const { return {params, kv_len - origin, diagonal - origin}; }
};

/// The mask of a sequence whose first key a launch may give: keys before `start` do not exist.
template <MaskKind kMask, int kChunk>
struct MaskFrom : Mask<kMask, kChunk> {
  using Whole = Mask<kMask, kChunk>;
  enum : bool { hides_low = true };
  static constexpr Side hides = Side::kBoth;
  int start;

  __device__ MaskFrom(const Whole& whole, int start) : Whole(whole), start(start) {}
  __device__ MaskFrom(const contract::AttentionParams& params, int kv_len, int diagonal, int start)
      : MaskFrom(Whole{params, kv_len, diagonal}, start) {}

  __device__ KeyRange visible(int query) const {
    return contract::key_range(
        kMask, {this->params.window_left, this->params.window_right, kChunk > 0 ? kChunk : 1, this->params.chunk_reach},
        query + this->diagonal, this->kv_len, start);
  }

  /// As for Mask.
  __device__ MaskFrom counted_from(int origin) const { return {Whole::counted_from(origin), max(start - origin, 0)}; }
};

/// Key tiles of kBlockN keys that rows [first_query, last_query] walk: [begin, end). Every row sees all keys of the
/// tiles [full_begin, full_end). `keys` is the union of the keys that the rows see.
struct TileList {
  KeyRange keys;
  int begin, end;
  int full_begin, full_end;
  __device__ bool is_partial(int tile) const { return tile < full_begin || tile >= full_end; }

  /// Takes part `part` of `parts`, as even as possible; the first parts take the remainder. A part may be empty.
  __device__ void take_part(int part, int parts) {
    const int count = end - begin, each = count / parts, left = count % parts;
    const int first = begin + part * each + min(part, left);
    end = first + each + (part < left ? 1 : 0);
    begin = first;
  }
};

template <int kBlockN, class MaskT>
__device__ TileList tile_list(const MaskT& mask, int first_query, int last_query) {
  const KeyRange first = mask.visible(first_query), last = mask.visible(last_query);
  TileList tiles;
  // Both ends of a row's range grow with the row's index, so the first and the last row bound them all.
  tiles.keys = {first.low, last.high};
  if (tiles.keys.high <= tiles.keys.low) return {{0, 0}, 0, 0, 0, 0};
  tiles.begin = tiles.keys.low / kBlockN;
  tiles.end = (tiles.keys.high + kBlockN - 1) / kBlockN;
  tiles.full_begin = (last.low + kBlockN - 1) / kBlockN;
  tiles.full_end = first.high / kBlockN;
  return tiles;
}

/// The tiles, of a list made for these and other rows, that rows [first_query, last_query] see whole. A tile that they
/// do not see at all counts as seen in part.
template <int kBlockN, class MaskT>
__device__ void find_full_tiles(TileList& tiles, const MaskT& mask, int first_query, int last_query) {
  tiles.full_begin = (mask.visible(last_query).low + kBlockN - 1) / kBlockN;
  tiles.full_end = mask.visible(first_query).high / kBlockN;
}

}  // namespace kernelwright::policy
