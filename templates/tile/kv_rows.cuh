/// Where the keys or values of one sequence and head lie: padded, ragged or paged, behind one question.
#pragma once

#include "contract/attention_params.h"
#include "contract/spec_words.h"

namespace kernelwright::tile {

/// Rows of one sequence's keys (or values). For padded and ragged layouts `origin` is the sequence's first row; for paged
/// ones it is page 0, and `pages` is the sequence's line of the page table.
template <class StorageT, KvLayoutKind kLayout, int kPageSize>
struct KvRows {
  static constexpr bool is_paged = kLayout == KvLayoutKind::kPaged;
  const StorageT* origin;
  int64_t token_stride;  // elements
  int64_t page_stride;   // elements; paged only
  const int32_t* pages;

  /// Walks rows in equal steps: one 64-bit add a row where rows are evenly spaced, a look at the page table where not.
  struct Cursor {
    const KvRows& rows;
    int token;
    const StorageT* even;
    __device__ const StorageT* pointer() const {
      if constexpr (is_paged) {
        const int page = __ldg(rows.pages + token / kPageSize);
        return rows.origin + page * rows.page_stride + (token % kPageSize) * rows.token_stride;
      } else {
        return even;
      }
    }
    __device__ void advance(int tokens) {
      token += tokens;
      if constexpr (!is_paged) even += tokens * rows.token_stride;
    }
  };
  __device__ Cursor cursor(int token) const { return {*this, token, is_paged ? nullptr : origin + token * token_stride}; }
};

}  // namespace kernelwright::tile
