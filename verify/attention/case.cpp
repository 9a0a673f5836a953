// Addresses and visibility of an attention call.
#include "kernelwright/verify/attention/case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/attention/records.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/value_columns.h"

namespace kernelwright {

std::byte* HostTensor::row(std::int64_t batch, std::int64_t token, int head) const {
  const std::int64_t at = batch * strides.batch + token * strides.token + head * strides.head;
  return buffer->data() + offset_bytes + static_cast<std::size_t>(at) * bytes_of(dtype);
}

namespace {

using KeyRange = AttentionCase::Range;

// The keys of [0, keys) that `mask` shows to a query whose diagonal key is `diagonal`. `window` is the outermost
// mask's.
KeyRange keys_seen(const Mask& mask, const Window& window, std::int64_t diagonal, std::int64_t keys) {
  std::int64_t first = 0, last = keys;
  switch (mask.kind) {
    case MaskKind::kCausal: last = diagonal + 1; break;
    case MaskKind::kSlidingWindow:
      if (window.left >= 0) first = diagonal - window.left;
      if (window.right >= 0) last = diagonal + window.right + 1;
      break;
    case MaskKind::kChunked:
      first = diagonal < 0 ? 0 : diagonal - diagonal % mask.chunk;
      last = diagonal + 1;
      break;
    case MaskKind::kAnd:
      for (const Mask& operand : mask.operands) {
        const KeyRange one = keys_seen(operand, operand.window, diagonal, keys);
        first = std::max<std::int64_t>(first, one.first);
        last = std::min<std::int64_t>(last, one.last);
      }
      break;
    case MaskKind::kOr:
      first = last = 0;
      for (const Mask& operand : mask.operands) {
        const KeyRange one = keys_seen(operand, operand.window, diagonal, keys);
        if (!one.size()) continue;
        const bool none_before = first == last;
        if (!none_before && (one.first > last || one.last < first))
          throw Error("AttentionCase::visible: an \"or\" of masks that share no key is no range");
        first = none_before ? one.first : std::min<std::int64_t>(first, one.first);
        last = none_before ? one.last : std::max<std::int64_t>(last, one.last);
      }
      break;
    default: break;
  }
  first = std::clamp<std::int64_t>(first, 0, keys);
  return {static_cast<int>(first), static_cast<int>(std::clamp(last, first, keys))};
}

}  // namespace

int AttentionCase::first_key(int sequence) const {
  if (kv_starts.empty()) return 0;
  return std::clamp(kv_starts[static_cast<std::size_t>(sequence)], 0, kv_lens[static_cast<std::size_t>(sequence)]);
}

AttentionCase::Range AttentionCase::visible(int sequence, int query) const {
  const std::int64_t keys = kv_lens[sequence];
  // Aligned to the bottom right: the last query's diagonal key is the last key.
  const KeyRange range = keys_seen(problem.mask, window, diagonal_key(sequence, query), keys);
  const int start = first_key(sequence);
  return {std::max(range.first, start), std::max(range.last, start)};
}

double AttentionCase::alibi_slope(int head) const {
  if (!alibi_slopes.empty()) return alibi_slopes[static_cast<std::size_t>(head)];
  // The slopes of the paper: for n heads, n a power of two, they are 2^(-8/n), its square, ... Further heads take the
  // first, third, ... slope of twice as many heads.
  int n = 1;
  while (2 * n <= problem.heads.q) n *= 2;
  return head < n ? std::pow(2.0, -8.0 * (head + 1) / n) : std::pow(2.0, -8.0 * (2 * (head - n) + 1) / (2 * n));
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

void AttentionCase::decode_query(int sequence, int query, int head, double* to) const {
  const auto plain = static_cast<std::size_t>(q.head_dim), rope = static_cast<std::size_t>(problem.rope.width);
  decode_row(q.dtype, q_row(sequence, query, head), plain, to);
  const bool ragged = problem.q_layout == QLayout::kRagged;
  if (rope == 0) return;
  const std::byte* from = ragged ? q_rope.row(0, q_offsets[sequence] + query, head) : q_rope.row(sequence, query, head);
  decode_row(q_rope.dtype, from, rope, to + plain);
}

void AttentionCase::decode_key(int sequence, int key, int kv_head, double* to) const {
  const auto plain = static_cast<std::size_t>(k.head_dim), rope = static_cast<std::size_t>(problem.rope.width);
  if (problem.has_records())
    return decode_record(problem, k_row(sequence, key, kv_head), static_cast<std::size_t>(problem.head_dim.qk), to);
  decode_row(k.dtype, k_row(sequence, key, kv_head), plain, to);
  if (rope > 0) decode_row(k_rope.dtype, kv_row(k_rope, sequence, key, kv_head), rope, to + plain);
}

std::byte* AttentionCase::v_column(int sequence, int key, int kv_head) const {
  const int size = problem.kv_layout.page_size;
  const std::int64_t entry = static_cast<std::int64_t>(sequence) * page_table_stride + key / size;
  return v.row(page_table[static_cast<std::size_t>(entry)], 0, kv_head) + place_in_column(key % size);
}

void AttentionCase::decode_value(int sequence, int key, int kv_head, double* to) const {
  const auto elements = static_cast<std::size_t>(problem.head_dim.v);
  if (problem.has_records()) return decode_record(problem, k_row(sequence, key, kv_head), elements, to);
  if (!has_value_columns()) return decode_row(v.dtype, v_row(sequence, key, kv_head), elements, to);
  const std::byte* from = v_column(sequence, key, kv_head);
  for (std::size_t i = 0; i < elements; ++i, from += problem.kv_layout.page_size) decode_row(v.dtype, from, 1, to + i);
}

void AttentionCase::share_values() {
  v.buffer = k.buffer;
  v.offset_bytes = k.offset_bytes;
  v.strides = k.strides;
}

void AttentionCase::put_value(int sequence, int key, int kv_head, std::span<const std::byte> from) const {
  if (!has_value_columns()) {
    std::copy(from.begin(), from.end(), v_row(sequence, key, kv_head));
    return;
  }
  std::byte* to = v_column(sequence, key, kv_head);
  for (const std::byte element : from) *to = element, to += problem.kv_layout.page_size;
}

std::size_t AttentionCase::q_scale_index(int sequence, int query, int head) const {
  const bool ragged = problem.q_layout == QLayout::kRagged;
  const std::int64_t token = ragged ? q_offsets[sequence] + query : std::int64_t{sequence} * q_len + query;
  return static_cast<std::size_t>(token * problem.heads.q + head);
}

std::size_t AttentionCase::key_scale_index(int sequence, int key, int kv_head) const {
  std::int64_t block = sequence, token = key;
  if (problem.kv_layout.kind == KvLayoutKind::kRagged) block = 0, token += kv_offsets[sequence];
  if (problem.kv_layout.kind == KvLayoutKind::kPaged) {
    const int size = problem.kv_layout.page_size;
    const std::int64_t entry = static_cast<std::int64_t>(sequence) * page_table_stride + key / size;
    block = page_table[static_cast<std::size_t>(entry)], token = key % size;
  }
  const auto& [of_block, of_token, of_head] = key_scale_strides;
  return static_cast<std::size_t>(block * of_block + token * of_token + kv_head * of_head);
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

int AttentionCase::num_pages() const {
  const auto page_bytes = static_cast<std::size_t>(k.strides.batch) * bytes_of(k.dtype);
  return page_bytes == 0 ? 0 : static_cast<int>((k.buffer->size() - k.offset_bytes + page_bytes - 1) / page_bytes);
}

std::size_t AttentionCase::lse_elems() const { return static_cast<std::size_t>(q_tokens) * problem.heads.q; }

double AttentionCase::operations() const {
  double pairs = 0;
  for (int b = 0; b < batch; ++b) {
    if (problem.mask.kind == MaskKind::kNone)
      pairs += static_cast<double>(q_lens[b]) * (kv_lens[b] - first_key(b));
    else
      for (int i = 0; i < q_lens[b]; ++i) pairs += visible(b, i).size();
  }
  return 2 * pairs * problem.heads.q * (problem.head_dim.qk + problem.head_dim.v);
}

double AttentionCase::kv_bytes() const {
  double keys = 0;
  for (int b = 0; b < batch; ++b) {
    if (q_lens[b] == 0) continue;
    // Windows move to the right with the query, so their union is one range.
    const int last = visible(b, q_lens[b] - 1).last;
    int first = last;
    for (int i = 0; i < q_lens[b] && first == last; ++i)
      if (const Range range = visible(b, i); range.size()) first = range.first;
    keys += last - first;
  }
  const int elements = problem.is_latent() ? key_width(problem) : problem.head_dim.qk + problem.head_dim.v;
  return keys * problem.heads.kv * elements * bits_of(problem.dtype.kv) / 8;
}

void lay_out(const AttentionCase& call, const ScoreTensor& shape, int padding, float value, ScoreArray& array) {
  const std::int64_t row = std::int64_t{call.kv_len} + padding, head = shape.q ? row * call.q_len : row,
                     batch = shape.heads ? head * call.problem.heads.q : head;
  array.query_stride = shape.q ? row : 0;
  array.head_stride = shape.heads ? head : 0;
  array.batch_stride = shape.batch ? batch : 0;
  array.values.assign(static_cast<std::size_t>(shape.batch ? batch * call.batch : batch), value);
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
  const int rope = problem.rope.width, plain = problem.head_dim.qk - rope;
  call.q.head_dim = plain, call.k.head_dim = key_width(problem);
  call.v.head_dim = problem.head_dim.v;
  call.q_rope.dtype = call.k_rope.dtype = problem.rope.dtype;
  call.q_rope.head_dim = call.k_rope.head_dim = rope;
  call.q.strides = dense(call.q_len, problem.heads.q, plain);
  call.q_rope.strides = dense(call.q_len, problem.heads.q, rope);
  call.o_strides = dense(call.q_len, problem.heads.q, problem.head_dim.v);
  const bool paged = problem.kv_layout.kind == KvLayoutKind::kPaged;
  const int block = paged ? problem.kv_layout.page_size : call.kv_len;
  call.k.strides = dense(block, problem.heads.kv, call.k.head_dim);
  call.k_rope.strides = dense(block, problem.heads.kv, rope);
  call.v.strides = dense(block, problem.heads.kv, problem.head_dim.v);
  const std::int64_t kv_heads = problem.heads.kv;
  call.key_scale_strides = {block * kv_heads, kv_heads, 1};
  if (problem.scales == ScaleKind::kPerPage) call.key_scale_strides = {kv_heads, 0, 1};
  if (call.has_value_columns())
    call.v.strides.token = 0, call.v.strides.head = std::int64_t{block} * problem.head_dim.v;
}

}  // namespace kernelwright
