/// Where the keys or values of one sequence and head lie: padded, ragged or paged, behind one question.
#pragma once

#include "contract/attention_params.h"
#include "contract/spec_words.h"
#include "ptx/memory.cuh"

namespace kernelwright::tile {

/// Rows of one sequence's keys (or values). For padded and ragged layouts `origin` is the sequence's first row; for
/// paged ones it is page 0, and `pages` is the sequence's line of the page table, of
/// page_line().
template <class StorageT, KvLayoutKind kLayout, int kPageSizeOrZero>
struct KvRows {
  static constexpr int kPageSize =
      kPageSizeOrZero > 0 ? kPageSizeOrZero : 1;  // no division by 0 where there are no pages
  static constexpr bool is_paged = kLayout == KvLayoutKind::kPaged;
  const StorageT* origin;
  int64_t token_stride;  // elements
  int64_t page_stride;   // elements; paged only
  const int32_t* pages;
  unsigned num_pages;

  /// Where a row lies; not `exists`: on a page that there is not, and what `at` points to must not be read.
  struct Place {
    const StorageT* at;
    bool exists;
  };

  /// Whether a tile of kTokens, aligned to its size, lies in one page: its rows are evenly spaced.
  template <int kTokens>
  static constexpr bool one_page = is_paged&& kPageSize % kTokens == 0;

  /// Row `row` of the tile of kTokens that starts at `first`. `known` is a token of the sequence: one of the tile's if
  /// it holds any, or else the tile is somewhere in that token's page, and nothing of it may be looked at.
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
  /// A negative number is none either.
  __device__ bool is_page(int page) const { return static_cast<unsigned>(page) < num_pages; }
};

}  // namespace kernelwright::tile
