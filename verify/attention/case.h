/// One attention call on the host. Every operand is already rounded to the problem's dtypes, in the layout that a
/// kernel reads. The reference, the devices and the .npy files share this class.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "contract/attention_params.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

/// Elements of one dtype with strides of any kind. Two tensors may share one buffer (interleaved keys and values).
struct HostTensor {
  DType dtype = DType::kBf16;
  int head_dim = 0;
  contract::Strides strides{};  // elements
  std::shared_ptr<std::vector<std::byte>> buffer;
  std::size_t offset_bytes = 0;

  /// Where the head of one token starts; head_dim elements follow. `batch` is a page if keys are paged.
  std::byte* row(std::int64_t batch, std::int64_t token, int head) const;
};

/// An array with an f32 element for each score: 0 hides a key (mask), or the element is added (bias). A stride of 0:
/// one element for all.
struct ScoreArray {
  std::int64_t batch_stride = 0, query_stride = 0, head_stride = 0;  // elements; keys are contiguous
  std::vector<float> values;                                         // empty: the call has no such array
  float at(int sequence, int query, int head, int key) const {
    return values[static_cast<std::size_t>(sequence * batch_stride + query * query_stride + head * head_stride + key)];
  }
};

/// The place of a score, as in templates/policy/place.cuh.
struct ScorePlace {
  int sequence, query, head, key;
  int q_len, kv_len;
};

struct AttentionCase {
  AttentionProblem problem;
  int batch = 1;
  int q_len = 1, kv_len = 1;         // of the longest sequence
  std::vector<int> q_lens, kv_lens;  // [batch]
  std::int64_t q_tokens = 1;         // rows of o and lse: batch * q_len, or the ragged queries

  HostTensor q, k, v;                    // q and k without the rotary part
  HostTensor q_rope, k_rope;             // empty without a rotary part
  contract::Strides o_strides{};         // elements; o is contiguous
  std::vector<std::int32_t> q_offsets;   // [batch + 1], ragged queries
  std::vector<std::int32_t> kv_offsets;  // [batch + 1], ragged keys
  std::vector<std::int32_t> kv_lengths;  // [batch]; empty: kv_len for all; with cache_length prompt it excludes q_lens
  std::vector<std::int32_t> kv_starts;   // [batch]; empty: 0 for all
  std::vector<std::int32_t> page_table;  // [batch, page_table_stride]
  int page_table_stride = 0;
  std::vector<float> sinks;  // [q_heads]
  /// [1] or [kv_heads]; per_token: as k without its last dimension; per_page: [pages, kv_heads]. These two lie by
  /// key_scale_strides.
  std::vector<float> k_scale, v_scale;
  contract::Strides key_scale_strides{};  // elements
  std::vector<float> q_scale;             // per_token with e4m3 queries: as q without its last dimension
  std::vector<float> alibi_slopes;        // [q_heads]; empty: the geometric series
  ScoreArray mask, bias;                  // if the problem has them; bias is rounded to its dtype
  // The references of the problem's sources: whether a key is shown, and the score that replaces a score. Called from
  // any thread.
  std::function<bool(const ScorePlace&)> shows;
  std::function<double(double, const ScorePlace&)> modifies;
  std::string unchecked;  // names sources without a reference, so what cannot be checked; "": everything can be checked

  float scale = 1;
  float softcap = 0;  // used if the problem has one
  Window window;      // used if the mask is sliding_window
  /// Whether values are independent draws, so that rounding errors are independent too. Then the root-mean-square test
  /// applies.
  bool random_values = true;

  /// The first key of a sequence that exists for its queries: kv_starts, bounded.
  int first_key(int sequence) const;
  /// The keys [first, last) that query `query` of sequence `sequence` sees.
  struct Range {
    int first, last;
    int size() const { return last - first; }
  };
  Range visible(int sequence, int query) const;

  /// ALiBi's slope of a query head; the bias of a score is slope * (key - diagonal_key()).
  double alibi_slope(int head) const;
  std::int64_t diagonal_key(int sequence, int query) const { return query + kv_lens[sequence] - q_lens[sequence]; }

  std::byte* q_row(int sequence, int query, int head) const;
  std::byte* k_row(int sequence, int key, int kv_head) const { return kv_row(k, sequence, key, kv_head); }
  std::byte* k_rope_row(int sequence, int key, int kv_head) const { return kv_row(k_rope, sequence, key, kv_head); }
  /// Not for values in columns, whose heads have no rows.
  std::byte* v_row(int sequence, int key, int kv_head) const { return kv_row(v, sequence, key, kv_head); }
  std::size_t o_index(int sequence, int query, int head) const;  // index of the head's first element
  std::size_t lse_index(int sequence, int query, int head) const;
  std::size_t o_elems() const;
  /// For paged keys: the number of pages in the memory of k.
  int num_pages() const;
  std::size_t lse_elems() const;
  /// The whole head including its rotary part: head_dim.qk values.
  void decode_query(int sequence, int query, int head, double* to) const;
  void decode_key(int sequence, int key, int kv_head, double* to) const;
  /// The head of a value, head_dim.v elements, whatever v_layout says.
  void decode_value(int sequence, int key, int kv_head, double* to) const;
  /// Writes `from`, a head in the layout of v_row(), to its place.
  void put_value(int sequence, int key, int kv_head, std::span<const std::byte> from) const;
  /// Makes the values of latent keys: they are the keys' own memory.
  void share_values();
  bool has_value_columns() const { return problem.v_layout == VLayout::kColumns; }
  /// Whether scales are per_token or per_page.
  bool has_key_scales() const { return scales_differ_by_key(problem.scales); }
  /// Whether each query and head has a scale.
  bool has_query_scales() const { return problem.scales == ScaleKind::kPerToken && is_fp8(problem.dtype.q); }
  std::size_t q_scale_index(int sequence, int query, int head) const;
  /// Of scales that differ by key: of k_scale and v_scale.
  std::size_t key_scale_index(int sequence, int key, int kv_head) const;
  double k_scale_of(int sequence, int key, int kv_head) const { return scale_of(k_scale, sequence, key, kv_head); }
  /// Where scales differ by key, as kernels take it: between 2^-60, which NaN is too, and 2^100.
  double v_scale_of(int sequence, int key, int kv_head) const {
    const double scale = scale_of(v_scale, sequence, key, kv_head);
    if (!has_key_scales()) return scale;
    return scale >= 0x1p-60 ? std::min(scale, 0x1p100) : 0x1p-60;
  }
  /// Floating-point operations of the two products over visible keys, a multiply and an add counted as two.
  double operations() const;
  /// Bytes of K and V that some query sees, each counted once.
  double kv_bytes() const;

 private:
  std::byte* kv_row(const HostTensor& tensor, int sequence, int key, int kv_head) const;
  /// The first element of a value in columns; the next one is a page's keys further on.
  std::byte* v_column(int sequence, int key, int kv_head) const;
  double scale_of(const std::vector<float>& scales, int sequence, int key, int kv_head) const {
    if (scales.empty()) return 1;
    if (has_key_scales()) return scales[key_scale_index(sequence, key, kv_head)];
    return scales[scales.size() == 1 ? 0 : static_cast<std::size_t>(kv_head)];
  }
};

/// The output of a kernel: o in problem.dtype.out; lse is empty unless the problem has it.
struct AttentionOutput {
  std::vector<std::byte> o;
  std::vector<float> lse;
  bool of_terms = false;  // a kernel made it that multiplies two terms of each query (AttentionSpec::splits_q())
  /// Compares bits, not values: NaN equals itself, and -0 is not 0.
  bool operator==(const AttentionOutput& other) const {
    return o == other.o && std::ranges::equal(std::as_bytes(std::span(lse)), std::as_bytes(std::span(other.lse)));
  }
};

/// Layouts that a kernel must take, for tests. Scales that differ by key lie as keys do.
struct InputOptions {
  std::uint64_t seed = 0;
  bool heads_first = false;  // [.., heads, tokens, head_dim] instead of [.., tokens, heads, head_dim]
  // K and V of a token side by side in one buffer; needs head_dim.qk, without a rotary part, == head_dim.v. Not for V
  // in columns.
  bool interleave_kv = false;
  int padding_tokens = 0;    // NaN tokens after the tokens of each sequence or page
  bool share_pages = false;  // sequences share the first page of sequence 0
  bool one_rope = false;     // all KV heads share one rotary part
  int unused_pages = 3;      // NaN pages between the used ones
  double q_magnitude = 1;    // standard deviation of the queries
};

/// Seeded normal data rounded to the problem's dtypes. Pages are in random order. Memory that no query may read holds
/// NaN: unused pages, keys before a sequence's start, slots past its length, padding. The tail of each row of the page
/// table holds numbers that are no pages. Three of four bytes of a mask show their key; one row of eight hides all
/// keys. A bias is normal, and -inf for one key of 32; elements of a bias that no query reads are NaN. Scales are drawn
/// from (0.25, 2), and those of values from (2^-6, 4) where they differ by key; sinks are of the standard normal
/// distribution. Throws ConfigError if the shape does not fit the
/// problem
/// ("/shapes/NAME/...").
AttentionCase make_inputs(const AttentionProblem& problem, const AttentionShape& shape,
                          const InputOptions& options = {});

/// The lengths and dense layout that make_inputs() would give, without data: for counting operations and bytes.
AttentionCase shape_only(const AttentionProblem& problem, const AttentionShape& shape);

/// Gives `array` the strides of `shape` for a case that is laid out, and memory for the elements, all equal to `value`.
/// Its rows are `padding` elements longer than kv_len.
void lay_out(const AttentionCase& call, const ScoreTensor& shape, int padding, float value, ScoreArray& array);

/// Sets lengths, offsets and dense strides of a case from its problem and lengths; the operands stay empty.
void lay_out(AttentionCase& call);

}  // namespace kernelwright
