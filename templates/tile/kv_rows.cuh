/// Where the keys or values of one sequence and head lie: one interface for padded, ragged and paged layouts.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "ptx/memory.cuh"

namespace kernelwright::tile {

/// Rows of one sequence's keys (or values). For padded and ragged layouts, `origin` is the sequence's first row. For
/// paged layouts, `origin` is page 0, and `pages` is the sequence's line of the page table, from page_line().
template <class StorageT, KvLayoutKind kLayout, int kPageSizeOrZero>
struct KvRows {
  static constexpr int kPageSize =
      kPageSizeOrZero > 0 ? kPageSizeOrZero : 1;  // without pages 1, to avoid a division by 0
  static constexpr bool is_paged = kLayout == KvLayoutKind::kPaged;
  const StorageT* origin;
  int64_t token_stride;  // elements
  int64_t page_stride;   // elements; paged only
  const int32_t* pages;
  unsigned num_pages;

  /// Where a row lies. `exists` false: the row's page does not exist, and memory at `at` must not be read.
  struct Place {
    const StorageT* at;
    bool exists;
  };

  /// Whether a tile of kTokens, aligned to its size, lies in one page, so that its rows are evenly spaced.
  template <int kTokens>
  static constexpr bool one_page = is_paged&& kPageSize % kTokens == 0;

  /// Row `row` of the tile of kTokens that starts at `first`. `known` is a token of the sequence, and a token of the
  /// tile if the tile has any. Otherwise the tile lies somewhere in that token's page, and none of its rows may be
  /// read.
  template <int kTokens>
  __device__ Place tile_row(int first, int row, int known) const {
    if constexpr (one_page<kTokens>) {
      const int page = ptx::ld_global_settled_s32(pages + known / kPageSize);
      return {origin + page * page_stride + (first % kPageSize + row) * token_stride, is_page(page)};
    } else {
      return this->row(first + row);
    }
  }

  __device__ Place row(int token) const {
    if constexpr (is_paged) {
      const int page = ptx::ld_global_settled_s32(pages + token / kPageSize);
      return {origin + page * page_stride + (token % kPageSize) * token_stride, is_page(page)};
    } else {
      return {origin + token * token_stride, true};
    }
  }

 private:
  /// A negative number is no page either.
  __device__ bool is_page(int page) const { return static_cast<unsigned>(page) < num_pages; }
};

}  // namespace kernelwright::tile
