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

  __device__ const StorageT* row(int token) const {
    if constexpr (is_paged) {
      const int page = __ldg(pages + token / kPageSize);
      return origin + page * page_stride + (token % kPageSize) * token_stride;
    } else {
      return origin + token * token_stride;
    }
  }
};

}  // namespace kernelwright::tile
