/// A work item of the attention kernels: the rows of the sequence and head that a CTA owns, and where their operands
/// lie.
#pragma once

#include "contract/attention_params.h"
#include "contract/key_range.h"
#include "contract/words.h"

namespace kernelwright::policy {

/// The order in which block indices map to tiles. (Sequence, head) pairs come in sections of params.head_section, so
/// that the keys of a section stay in the L2. Within a section the last query tiles come first, because under a causal
/// mask they are the longest. The pairs of a section run side by side.
struct TileCoord {
  int m_block, head, batch, split;
  __device__ TileCoord(int m_block, int head, int batch) : m_block(m_block), head(head), batch(batch), split(0) {}
  __device__ TileCoord(const contract::AttentionParams& params, int heads, unsigned index)
      : TileCoord(params, heads, index, params.num_m_blocks) {}
  __device__ TileCoord(const contract::AttentionParams& params, int heads, unsigned index, unsigned m_blocks) {
    split = 0;
    if (params.num_splits > 1) {
      split = index % params.num_splits;
      index /= params.num_splits;
    }
    const unsigned pairs = static_cast<unsigned>(params.batch) * heads;
    const unsigned section = params.head_section;
    const unsigned first_pair = index / (section * m_blocks) * section;
    const unsigned in_section = min(section, pairs - first_pair);  // the last section may be short
    const unsigned rest = index - first_pair * m_blocks;
    m_block = static_cast<int>(m_blocks - 1 - rest / in_section);
    const unsigned pair = first_pair + rest % in_section;
    head = static_cast<int>(pair % heads);
    batch = static_cast<int>(pair / heads);
  }
};

/// Rows [start, start + count) of a ragged tensor of `tokens` rows; `offsets` has the ends for each sequence. Whatever
/// the offsets are, these rows exist: an offset below 0 or past the end counts as the end, and a sequence that ends
/// before it begins has no rows.
struct RaggedRows {
  int start, count;
  __device__ RaggedRows(const int32_t* offsets, int batch, int tokens)
      : RaggedRows(offsets[batch], offsets[batch + 1], tokens) {}
  __device__ RaggedRows(int begin, int end, int tokens)
      : start(bounded(begin, tokens)), count(max(bounded(end, tokens) - start, 0)) {}
  __device__ static int bounded(int offset, int tokens) {
    return static_cast<int>(min(static_cast<unsigned>(offset), static_cast<unsigned>(tokens)));
  }
};

/// The rows of all `batch` sequences.
__device__ inline RaggedRows all_rows(const int32_t* offsets, int batch, int tokens) {
  return {offsets[0], offsets[batch], tokens};
}

/// The ragged queries of a sequence. Queries from q_len on are not computed, because the launch was not sized for them.
__device__ inline RaggedRows ragged_queries(const contract::AttentionParams& params, int batch) {
  RaggedRows rows(params.q_offsets, batch, params.q_tokens);
  rows.count = min(rows.count, params.q_len);
  return rows;
}

/// Lengths of one sequence, and the offsets of its first query and key in ragged tensors. They stay within the tensors,
/// whatever device memory says.
template <QLayout kQLayout, KvLayoutKind kKvLayout, CacheLength kCacheLength>
struct Sequence {
  int q_len, kv_len;
  int64_t q_start = 0, kv_start = 0;
  __device__ Sequence(const contract::AttentionParams& params, int batch) : q_len(params.q_len), kv_len(params.kv_len) {
    if constexpr (kQLayout == QLayout::kRagged) {
      const RaggedRows rows = ragged_queries(params, batch);
      q_start = rows.start;
      q_len = rows.count;
    }
    if constexpr (kKvLayout == KvLayoutKind::kRagged) {
      const RaggedRows rows(params.kv_offsets, batch, params.kv_tokens);
      kv_start = rows.start;
      kv_len = rows.count;
    } else if constexpr (kCacheLength == CacheLength::kPrompt) {  // the queries' own keys lie after those of the cache
      kv_len = min(max(min(params.kv_lengths[batch], params.kv_len - q_len), 0) + q_len, params.kv_len);
    } else if (params.kv_lengths != nullptr) {
      kv_len = max(min(params.kv_lengths[batch], params.kv_len), 0);
    }
  }
};

/// Rows of a tile: query and head of row r. With packed heads, the kGroup query heads of one KV head are neighbours.
template <bool kPackGqa, int kGroup>
struct RowMap {
  int head;  // query head, or KV head if heads are packed
  __device__ static int query(int row) { return kPackGqa ? row / kGroup : row; }
  __device__ static int head_in_group(int row) { return kPackGqa ? row % kGroup : 0; }
  __device__ int q_head(int row) const { return kPackGqa ? head * kGroup + row % kGroup : head; }
  __device__ int kv_head() const { return kPackGqa ? head : head / kGroup; }
  __device__ static int rows(int q_len) { return kPackGqa ? q_len * kGroup : q_len; }
};

/// The rows of a tile in q or o. Rows of one head are evenly spaced; packed heads interleave.
template <class StorageT, class WorkItemT, bool kPackGqa>
struct TileRows {
  static constexpr bool even = !kPackGqa;
  StorageT* tensor;
  const contract::Strides& strides;
  const WorkItemT& item;
  __device__ StorageT* row(int row) const { return tensor + item.offset(strides, row); }
  __device__ int64_t step() const { return strides.token; }  // from row to row, if rows are evenly spaced
};

/// The whole work item. It is cheap enough to derive twice: an epilogue that derives it from an opaque block index
/// holds no register across the loop over keys.
template <QLayout kQLayout, KvLayoutKind kKvLayout, CacheLength kCacheLength, bool kPackGqa, int kGroup, int kBlockM>
struct WorkItem {
  TileCoord coord;
  Sequence<kQLayout, kKvLayout, kCacheLength> sequence;
  RowMap<kPackGqa, kGroup> row_map;
  int first_row;
  int num_rows;  // of this tile; 0 or less: a shorter sequence of a ragged batch ends before this tile
  __device__ WorkItem(const contract::AttentionParams& params, unsigned block_index)
      : WorkItem(params, TileCoord(params, kPackGqa ? params.kv_heads : params.q_heads, block_index)) {}
  __device__ WorkItem(const contract::AttentionParams& params, TileCoord where)
      : coord(where),
        sequence(params, coord.batch),
        row_map{coord.head},
        first_row(coord.m_block * kBlockM),
        num_rows(min(row_map.rows(sequence.q_len) - first_row, kBlockM)) {}

  __device__ int first_key() const { return 0; }  // of the sequence
  __device__ int query(int row) const { return row_map.query(first_row + row); }
  __device__ int q_head(int row) const { return row_map.q_head(first_row + row); }
  __device__ int64_t token(int row) const { return sequence.q_start + query(row); }
  /// Elements from the start of q (or o) to a row of the tile.
  __device__ int64_t offset(const contract::Strides& strides, int row) const {
    const int64_t sequence_start = kQLayout == QLayout::kPadded ? coord.batch * strides.batch : 0;
    return sequence_start + token(row) * strides.token + q_head(row) * strides.head;
  }
  /// Index into the LSE: [batch, q_heads, q_len] or [tokens, q_heads].
  __device__ int64_t lse_index(const contract::AttentionParams& params, int row) const {
    if constexpr (kQLayout == QLayout::kRagged) return token(row) * params.q_heads + q_head(row);
    return (static_cast<int64_t>(coord.batch) * params.q_heads + q_head(row)) * params.q_len + query(row);
  }
  /// Number of rows of each part of split keys, [batch * q_len or tokens, q_heads], and the index there of a row of the
  /// tile.
  __device__ static int64_t partial_rows(const contract::AttentionParams& params) {
    const int64_t tokens =
        kQLayout == QLayout::kRagged ? params.q_tokens : static_cast<int64_t>(params.batch) * params.q_len;
    return tokens * params.q_heads;
  }
  __device__ int64_t partial_row(const contract::AttentionParams& params, int row) const {
    const int64_t padded_start = kQLayout == QLayout::kPadded ? static_cast<int64_t>(coord.batch) * params.q_len : 0;
    return (padded_start + token(row)) * params.q_heads + q_head(row);
  }
  template <class StorageT>
  __device__ TileRows<StorageT, WorkItem, kPackGqa> rows(StorageT* tensor, const contract::Strides& strides) const {
    return {tensor, strides, *this};
  }
  template <class MaskT>
  __device__ MaskT mask(const contract::AttentionParams& params) const {
    return {params, sequence.kv_len, sequence.kv_len - sequence.q_len};
  }
};

/// A work item of a sequence whose first key the launch may give.
template <class Item>
struct ItemFrom : Item {
  int start;  // keys before it do not exist
  template <class... Where>
  __device__ ItemFrom(const contract::AttentionParams& params, const Where&... where)
      : Item(params, where...), start(start_of(params, *this)) {}
  __device__ int first_key() const { return start; }
  template <class MaskT>
  __device__ MaskT mask(const contract::AttentionParams& params) const {
    return {params, this->sequence.kv_len, this->sequence.kv_len - this->sequence.q_len, start};
  }

 private:
  __device__ static int start_of(const contract::AttentionParams& params, const Item& item) {
    const int32_t* const kv_starts = params.kv_offsets;  // contract/attention_params.h
    if (kv_starts == nullptr) return 0;
    return contract::first_key_of(kv_starts[item.coord.batch], item.sequence.kv_len);
  }
};

}  // namespace kernelwright::policy
