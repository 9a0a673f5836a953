// Addresses and visibility of an attention call.
#include "kernelwright/verify/attention_case.h"

#include <algorithm>
#include <numeric>

#include "kernelwright/verify/float_formats.h"

namespace kernelwright {

std::byte* HostTensor::row(std::int64_t batch, std::int64_t token, int head) const {
  const std::int64_t at = batch * strides.batch + token * strides.token + head * strides.head;
  return buffer->data() + offset_bytes + static_cast<std::size_t>(at) * bytes_of(dtype);
}

AttentionCase::Range AttentionCase::visible(int sequence, int query) const {
  const std::int64_t keys = kv_lens[sequence];
  const std::int64_t diagonal = query + keys - q_lens[sequence];  // bottom right: the last query's is the last key
  std::int64_t first = 0, last = keys;
  if (problem.mask.kind == MaskKind::kCausal) last = diagonal + 1;
  if (problem.mask.kind == MaskKind::kSlidingWindow) {
    if (window.left >= 0) first = diagonal - window.left;
    if (window.right >= 0) last = diagonal + window.right + 1;
  }
  first = std::clamp<std::int64_t>(first, 0, keys);
  return {static_cast<int>(first), static_cast<int>(std::clamp(last, first, keys))};
}

std::byte* AttentionCase::q_row(int sequence, int query, int head) const {
  if (problem.q_layout == QLayout::kRagged) return q.row(0, q_offsets[sequence] + query, head);
  return q.row(sequence, query, head);
}

std::byte* AttentionCase::kv_row(const HostTensor& tensor, int sequence, int key, int kv_head) const {
  switch (problem.kv_layout.kind) {
    case KvLayoutKind::kRagged: return tensor.row(0, kv_offsets[sequence] + key, kv_head);
    case KvLayoutKind::kPaged: {
      const int size = problem.kv_layout.page_size;
      const std::int64_t entry = static_cast<std::int64_t>(sequence) * page_table_stride + key / size;
      return tensor.row(page_table[static_cast<std::size_t>(entry)], key % size, kv_head);
    }
    default: return tensor.row(sequence, key, kv_head);
  }
}

std::size_t AttentionCase::o_index(int sequence, int query, int head) const {
  const bool ragged = problem.q_layout == QLayout::kRagged;
  const std::int64_t token = ragged ? q_offsets[sequence] + query : query;
  return static_cast<std::size_t>((ragged ? 0 : sequence) * o_strides.batch + token * o_strides.token +
                                  head * o_strides.head);
}

std::size_t AttentionCase::lse_index(int sequence, int query, int head) const {
  const std::size_t heads = static_cast<std::size_t>(problem.heads.q);
  if (problem.q_layout == QLayout::kRagged) return static_cast<std::size_t>(q_offsets[sequence] + query) * heads + head;
  return (static_cast<std::size_t>(sequence) * heads + head) * q_len + query;
}

std::size_t AttentionCase::o_elems() const {
  return static_cast<std::size_t>(q_tokens) * problem.heads.q * problem.head_dim.v;
}

std::size_t AttentionCase::lse_elems() const { return static_cast<std::size_t>(q_tokens) * problem.heads.q; }

double AttentionCase::operations() const {
  double pairs = 0;
  for (int b = 0; b < batch; ++b) {
    if (problem.mask.kind == MaskKind::kNone)
      pairs += static_cast<double>(q_lens[b]) * kv_lens[b];
    else
      for (int i = 0; i < q_lens[b]; ++i) pairs += visible(b, i).size();
  }
  return 2 * pairs * problem.heads.q * (problem.head_dim.qk + problem.head_dim.v);
}

double AttentionCase::kv_bytes() const {
  double keys = 0;
  for (int b = 0; b < batch; ++b) {
    if (q_lens[b] == 0) continue;
    // Windows move to the right with the query, so the union is one range.
    const int last = visible(b, q_lens[b] - 1).last;
    int first = last;
    for (int i = 0; i < q_lens[b] && first == last; ++i)
      if (const Range range = visible(b, i); range.size()) first = range.first;
    keys += last - first;
  }
  return keys * problem.heads.kv * (problem.head_dim.qk + problem.head_dim.v) * bits_of(problem.dtype.kv) / 8;
}

void lay_out(AttentionCase& call) {
  const AttentionProblem& problem = call.problem;
  const auto longest = [](const std::vector<int>& lengths) {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  };
  const auto offsets = [](const std::vector<int>& lengths) {
    std::vector<std::int32_t> sums{0};
    for (const int length : lengths) sums.push_back(sums.back() + length);
    return sums;
  };
  call.batch = static_cast<int>(call.q_lens.size());
  call.q_len = longest(call.q_lens);
  call.kv_len = longest(call.kv_lens);
  const bool ragged = problem.q_layout == QLayout::kRagged;
  if (ragged) call.q_offsets = offsets(call.q_lens);
  if (problem.kv_layout.kind == KvLayoutKind::kRagged) call.kv_offsets = offsets(call.kv_lens);
  call.q_tokens = ragged ? call.q_offsets.back() : static_cast<std::int64_t>(call.batch) * call.q_len;
  const auto dense = [](std::int64_t tokens, int heads, int head_dim) {
    return contract::Strides{tokens * heads * head_dim, static_cast<std::int64_t>(heads) * head_dim, head_dim};
  };
  call.q.dtype = problem.dtype.q;
  call.k.dtype = call.v.dtype = problem.dtype.kv;
  call.q.head_dim = call.k.head_dim = problem.head_dim.qk;
  call.v.head_dim = problem.head_dim.v;
  call.q.strides = dense(call.q_len, problem.heads.q, problem.head_dim.qk);
  call.o_strides = dense(call.q_len, problem.heads.q, problem.head_dim.v);
  const bool paged = problem.kv_layout.kind == KvLayoutKind::kPaged;
  const int block = paged ? problem.kv_layout.page_size : call.kv_len;
  call.k.strides = dense(block, problem.heads.kv, problem.head_dim.qk);
  call.v.strides = dense(block, problem.heads.kv, problem.head_dim.v);
}

}  // namespace kernelwright
