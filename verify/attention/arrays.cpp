// An attention call from a folder of arrays.
#include "kernelwright/verify/attention/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "kernelwright/generator/problem/range_mask.h"
#include "kernelwright/verify/attention/policy_reference.h"
#include "kernelwright/verify/attention/records.h"
#include "kernelwright/verify/formats/array_folder.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright {
namespace {

class Reader {
 public:
  Reader(const AttentionProblem& problem, const std::string& folder) : problem_(problem), folder_(folder) {
    call_.problem = problem;
  }

  AttentionCase read() {
    refuse_what_is_not_read();
    read_queries();
    read_keys();
    read_extras();
    folder_.require_no_fault();
    check_indices();
    folder_.require_no_fault();
    lay_out(call_);  // dense strides, as in the arrays
    call_.kv_len = static_cast<int>(std::max<std::int64_t>(call_.kv_len, padded_kv_len_));
    if (problem_.kv_layout.kind == KvLayoutKind::kPadded)
      for (HostTensor* tensor : {&call_.k, &call_.v})
        tensor->strides.batch = padded_kv_len_ * problem_.heads.kv * tensor->head_dim;
    if (!own_kv_offsets_) call_.kv_offsets = call_.q_offsets;
    encode(q_, call_.q);
    if (problem_.has_records())
      encode_records();
    else
      encode(k_, call_.k);
    if (problem_.is_latent())
      call_.share_values();
    else
      encode(v_, call_.v);
    if (problem_.rope.width > 0) {
      if (problem_.kv_layout.kind == KvLayoutKind::kPadded)
        call_.k_rope.strides.batch = padded_kv_len_ * problem_.heads.kv * problem_.rope.width;
      encode(q_rope_, call_.q_rope);
      encode(k_rope_, call_.k_rope);
    }
    read_score_arrays();
    folder_.require_no_fault();
    call_.scale = 1 / std::sqrt(static_cast<float>(problem_.head_dim.qk));
    call_.softcap = static_cast<float>(problem_.score_mod.cap);
    call_.window = problem_.mask.window;
    call_.random_values = false;
    return std::move(call_);
  }

 private:
  bool ragged_q() const { return problem_.q_layout == QLayout::kRagged; }
  bool ragged_kv() const { return problem_.kv_layout.kind == KvLayoutKind::kRagged; }
  bool prompt() const {
    return problem_.cache_length == CacheLength::kPrompt;
  }  // kv_lengths excludes the queries' own
     // keys
  bool paged() const { return problem_.kv_layout.kind == KvLayoutKind::kPaged; }
  bool there(const char* name) const { return folder_.there(name); }
  void fault(const char* name, std::string message) { folder_.fault(name, std::move(message)); }

  void refuse_what_is_not_read() {
    const auto unread = [&](const char* name, bool is_read, const char* why) { folder_.unread(name, is_read, why); };
    unread("page_table", paged(), "kv_layout.kind is not paged");
    unread("q_offsets", ragged_q(), "q_layout is not ragged");
    unread("kv_offsets", ragged_kv(), "kv_layout.kind is not ragged");
    unread("kv_lengths", !ragged_kv(), "ragged keys have kv_offsets");
    unread("kv_starts", problem_.kv_starts, "the problem has no kv_starts");
    unread("sinks", problem_.sinks, "the problem has no sinks");
    unread("alibi_slopes", problem_.score_mod.kind == ScoreModKind::kAlibi, "the problem's score_mod is not alibi");
    const char* const no_scales =
        problem_.has_records() ? "the problem's records hold their scales" : "the problem's scales are none";
    const bool reads_scales = problem_.scales != ScaleKind::kNone && !problem_.has_records();
    unread("k_scale", reads_scales, no_scales);
    unread("v_scale", reads_scales && !problem_.is_latent(),
           reads_scales ? "the problem's values are a prefix of its keys, with their scale" : no_scales);
    unread("v", !problem_.is_latent(), "the problem's values are a prefix of its keys");
    unread("q_scale", call_.has_query_scales(), "the problem's scales are not per_token of e4m3 queries");
    unread("q_rope", problem_.rope.width > 0, "the problem has no rotary part");
    unread("k_rope", problem_.rope.width > 0, "the problem has no rotary part");
    unread("mask", open_mask(problem_.mask).tensor, "the problem's mask is not a tensor");
    unread("bias", problem_.score_mod.kind == ScoreModKind::kTensor, "the problem's score_mod is not a tensor");
  }

  template <class T>
  std::optional<NpyArray<T>> read_array(const char* name, const std::vector<Dim>& dims) {
    return folder_.read<T>(name, dims);
  }

  static Dim any() { return Dim::any(); }
  static Dim exactly(std::int64_t value, const std::string& name) { return Dim::exactly(value, name); }

  /// The head of q and k without its rotary part.
  Dim plain_dim() const {
    if (problem_.rope.width == 0) return exactly(problem_.head_dim.qk, "head_dim.qk");
    return exactly(problem_.head_dim.qk - problem_.rope.width, "head_dim.qk without rope.width");
  }
  /// Reads an array that has one entry for each row of another array: the dimensions of that array except the last, and
  /// `last` if it is given.
  void read_beside(const char* name, const std::vector<std::int64_t>& shape, const char* of, std::optional<Dim> last,
                   std::vector<float>& to) {
    std::vector<Dim> dims;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i)
      dims.push_back({shape[i], fmt::format("{}.npy has {} there", of, shape[i])});
    if (last) dims.push_back(*last);
    if (!shape.empty())
      if (const auto array = read_array<float>(name, dims)) to = array->values;
  }

  void read_queries() {
    const Dim heads = exactly(problem_.heads.q, "heads.q"), head_dim = plain_dim();
    const auto q = ragged_q() ? read_array<float>("q", {any(), heads, head_dim})
                              : read_array<float>("q", {any(), any(), heads, head_dim});
    if (q) {
      q_ = q->values;
      q_shape_ = q->shape;
    }
    if (ragged_q()) {
      if (const auto offsets = read_array<std::int32_t>("q_offsets", {any()})) {
        call_.q_offsets = offsets->values;
        if (check_offsets("q_offsets", call_.q_offsets, q ? q->shape[0] : -1, "q.npy"))
          batch_ = static_cast<std::int64_t>(call_.q_offsets.size()) - 1;
      }
    } else if (q) {
      batch_ = q->shape[0];
    }
    batch_why_ = ragged_q() ? "q_offsets.npy has" : "q.npy has";
  }

  Dim batch_dim(std::int64_t more = 0) const {
    if (!batch_) return any();
    return {*batch_ + more, fmt::format("{} {} sequence{}", batch_why_, *batch_, *batch_ == 1 ? "" : "s")};
  }

  void read_keys() {
    const Dim heads = exactly(problem_.heads.kv, "heads.kv");
    const Dim qk = plain_dim(), v_dim = exactly(problem_.head_dim.v, "head_dim.v");
    Dim first = any(), second = any();
    if (paged()) second = exactly(problem_.kv_layout.page_size, "kv_layout.page_size");
    if (problem_.kv_layout.kind == KvLayoutKind::kPadded) first = batch_dim();
    const auto dims = [&](const Dim& head_dim) {
      return ragged_kv() ? std::vector<Dim>{first, heads, head_dim} : std::vector<Dim>{first, second, heads, head_dim};
    };
    const auto k = read_array<float>("k", dims(qk));
    if (k) {
      k_ = k->values;
      k_shape_ = k->shape;
      first = {k->shape[0], fmt::format("k.npy has {}", k->shape[0])};
      if (!paged() && !ragged_kv()) second = {k->shape[1], fmt::format("k.npy has {} keys", k->shape[1])};
    }
    const std::vector<Dim> columns{first, heads, v_dim, second};
    if (!problem_.is_latent())
      if (const auto v = read_array<float>("v", call_.has_value_columns() ? columns : dims(v_dim))) v_ = v->values;
    if (!k) return;
    if (ragged_kv()) {
      own_kv_offsets_ = problem_.kv_offsets || there("kv_offsets");
      if (own_kv_offsets_) {
        if (const auto offsets = read_array<std::int32_t>("kv_offsets", {batch_dim(1)})) {
          call_.kv_offsets = offsets->values;
          check_offsets("kv_offsets", call_.kv_offsets, k->shape[0], "k.npy");
        }
      } else {
        call_.kv_offsets = call_.q_offsets;
        if (!call_.q_offsets.empty() && call_.q_offsets.back() != k->shape[0])
          fault("k",
                fmt::format("has {} tokens and q_offsets.npy, which keys share, ends at {}; kv_offsets.npy would do",
                            k->shape[0], call_.q_offsets.back()));
      }
    }
    if (paged()) {
      if (const auto table = read_array<std::int32_t>("page_table", {batch_dim(), any()})) {
        call_.page_table = table->values;
        call_.page_table_stride = static_cast<int>(table->shape[1]);
      }
    }
    if (problem_.kv_layout.kind == KvLayoutKind::kPadded) padded_kv_len_ = k->shape[1];
    if (paged() || prompt() || (!ragged_kv() && there("kv_lengths")))
      if (const auto lengths = read_array<std::int32_t>("kv_lengths", {batch_dim()}))
        call_.kv_lengths = lengths->values;
    if (problem_.kv_starts && there("kv_starts"))
      if (const auto starts = read_array<std::int32_t>("kv_starts", {batch_dim()})) call_.kv_starts = starts->values;
  }

  void read_extras() {
    const auto list = [&](const char* name, std::int64_t count, std::string why, std::vector<float>& to) {
      if (const auto array = read_array<float>(name, {{count, std::move(why)}})) to = array->values;
    };
    if (problem_.sinks) list("sinks", problem_.heads.q, fmt::format("heads.q is {}", problem_.heads.q), call_.sinks);
    if (problem_.score_mod.kind == ScoreModKind::kAlibi && there("alibi_slopes"))
      list("alibi_slopes", problem_.heads.q, fmt::format("heads.q is {}", problem_.heads.q), call_.alibi_slopes);
    if (problem_.rope.width > 0) {
      const Dim width = exactly(problem_.rope.width, "rope.width");
      read_beside("q_rope", q_shape_, "q", width, q_rope_);
      read_beside("k_rope", k_shape_, "k", width, k_rope_);
    }
    if (problem_.scales == ScaleKind::kNone || problem_.has_records()) return;
    if (call_.has_query_scales()) read_beside("q_scale", q_shape_, "q", std::nullopt, call_.q_scale);
    if (problem_.scales == ScaleKind::kPerToken) {
      read_beside("k_scale", k_shape_, "k", std::nullopt, call_.k_scale);
      read_beside("v_scale", k_shape_, "k", std::nullopt, call_.v_scale);
      return;
    }
    if (problem_.scales == ScaleKind::kPerPage) {
      if (k_shape_.empty()) return;
      const Dim pages{k_shape_[0], fmt::format("k.npy has {} pages", k_shape_[0])};
      const Dim heads = exactly(problem_.heads.kv, "heads.kv");
      if (const auto array = read_array<float>("k_scale", {pages, heads})) call_.k_scale = array->values;
      if (const auto array = read_array<float>("v_scale", {pages, heads})) call_.v_scale = array->values;
      return;
    }
    const bool per_head = problem_.scales == ScaleKind::kPerHead;
    const std::int64_t count = per_head ? problem_.heads.kv : 1;
    const std::string why =
        per_head ? fmt::format("heads.kv is {} and scales are per_head", count) : "scales are per_tensor";
    list("k_scale", count, why, call_.k_scale);
    if (problem_.is_latent())
      call_.v_scale = call_.k_scale;
    else
      list("v_scale", count, why, call_.v_scale);
  }

  /// mask and bias: arrays with an element for each score.
  void read_score_arrays() {
    load_references(call_);
    const auto read = [&](const char* name, const ScoreTensor& shape, ScoreArray& to) {
      const auto dim = [](bool own, std::int64_t extent, const char* what, const char* field) {
        return own ? Dim{extent, fmt::format("there are {} {}", extent, what)}
                   : Dim{1, fmt::format("the problem's tensor.{} is false", field)};
      };
      const auto array = read_array<float>(
          name,
          {dim(shape.batch, call_.batch, "sequences", "batch"), dim(shape.heads, problem_.heads.q, "heads", "heads"),
           dim(shape.q, call_.q_len, "queries in the longest sequence", "q"),
           Dim{call_.kv_len, fmt::format("there are {} keys in the longest sequence", call_.kv_len)}});
      lay_out(call_, shape, 0, 0, to);
      if (array) to.values = array->values;
    };
    if (const Mask* mask = open_mask(problem_.mask).tensor) {
      read("mask", mask->tensor, call_.mask);
      for (float& value : call_.mask.values) value = value != 0 ? 1.f : 0.f;
    }
    if (problem_.score_mod.kind == ScoreModKind::kTensor) {
      read("bias", problem_.score_mod.tensor, call_.bias);
      for (float& value : call_.bias.values) value = round_to(problem_.score_mod.dtype, value);
    }
  }

  bool check_offsets(const char* name, const std::vector<std::int32_t>& offsets, std::int64_t tokens,
                     const char* array) {
    if (offsets.empty()) return fault(name, "is empty; it takes one offset more than there are sequences"), false;
    if (offsets[0] != 0) return fault(name, fmt::format("starts at {}; it would start at 0", offsets[0])), false;
    for (std::size_t i = 1; i < offsets.size(); ++i)
      if (offsets[i] < offsets[i - 1])
        return fault(name,
                     fmt::format("decreases from {} to {} at index {}; offsets grow", offsets[i - 1], offsets[i], i)),
               false;
    if (tokens >= 0 && offsets.back() != tokens)
      return fault(name, fmt::format("ends at {}; {} has {} tokens", offsets.back(), array, tokens)), false;
    return true;
  }

  // Checks contents, once all shapes fit each other.
  void check_indices() {
    const auto lengths_of = [](const std::vector<std::int32_t>& offsets) {
      std::vector<int> lengths;
      for (std::size_t i = 1; i < offsets.size(); ++i) lengths.push_back(offsets[i] - offsets[i - 1]);
      return lengths;
    };
    const auto batch = static_cast<std::size_t>(*batch_);
    call_.q_lens = ragged_q() ? lengths_of(call_.q_offsets) : std::vector<int>(batch, static_cast<int>(q_shape_[1]));
    if (problem_.max_q_len > 0)
      for (std::size_t b = 0; b < batch; ++b)
        if (call_.q_lens[b] > problem_.max_q_len) {
          fault("q",
                fmt::format("sequence {} has {} queries; max_q_len is {}", b, call_.q_lens[b], problem_.max_q_len));
          break;
        }
    if (ragged_kv()) {
      call_.kv_lens = lengths_of(call_.kv_offsets);
      return;
    }
    const std::int64_t room =
        paged() ? std::int64_t{call_.page_table_stride} * problem_.kv_layout.page_size : padded_kv_len_;
    call_.kv_lens.assign(batch, static_cast<int>(padded_kv_len_));
    for (std::size_t b = 0; b < call_.kv_lengths.size(); ++b) {
      const std::int32_t length = call_.kv_lengths[b];
      const std::int64_t own = prompt() ? call_.q_lens[b] : 0;
      if (length < 0 || length + own > room)
        return fault("kv_lengths",
                     fmt::format("sequence {} has length {}{}; {} holds 0 to {} keys", b, length,
                                 own ? fmt::format(" and {} queries with a key each", own) : std::string(),
                                 paged() ? "its row of page_table.npy" : "k.npy", room));
      call_.kv_lens[b] = static_cast<int>(length + own);
    }
    for (std::size_t b = 0; b < call_.kv_starts.size(); ++b)
      if (call_.kv_starts[b] < 0 || call_.kv_starts[b] > call_.kv_lens[b])
        return fault("kv_starts", fmt::format("sequence {} starts at key {}; it has {} keys, so 0 to {} would do", b,
                                              call_.kv_starts[b], call_.kv_lens[b], call_.kv_lens[b]));
    if (!paged()) return;
    const int size = problem_.kv_layout.page_size;
    for (std::size_t b = 0; b < batch; ++b)
      for (int page = call_.first_key(static_cast<int>(b)) / size; page < (call_.kv_lens[b] + size - 1) / size;
           ++page) {
        const std::int32_t id = call_.page_table[b * static_cast<std::size_t>(call_.page_table_stride) + page];
        if (id < 0 || id >= k_shape_[0])
          return fault("page_table",
                       fmt::format("[{}, {}] is {} and in use, as kv_lengths[{}] is {}; k.npy has pages 0 to {}", b,
                                   page, id, b, call_.kv_lens[b], k_shape_[0] - 1));
      }
  }

  static void encode(const std::vector<float>& values, HostTensor& tensor) {
    tensor.buffer = std::make_shared<std::vector<std::byte>>(encode_all(tensor.dtype, values));
  }

  /// k.npy has the elements of keys, whatever their records hold.
  void encode_records() {
    const auto depth = static_cast<std::size_t>(problem_.head_dim.qk),
               bytes = static_cast<std::size_t>(call_.k.head_dim);
    const std::size_t keys = k_.size() / depth;
    call_.k.buffer = std::make_shared<std::vector<std::byte>>(keys * bytes);
    for (std::size_t i = 0; i < keys; ++i)
      encode_record(problem_, std::span(k_).subspan(i * depth, depth), call_.k.buffer->data() + i * bytes);
  }

  const AttentionProblem& problem_;
  ArrayFolder folder_;
  AttentionCase call_;
  std::vector<float> q_, k_, v_, q_rope_, k_rope_;
  std::vector<std::int64_t> q_shape_, k_shape_;
  std::optional<std::int64_t> batch_;
  std::string batch_why_;
  std::int64_t padded_kv_len_ = 0;
  bool own_kv_offsets_ = true;
};

}  // namespace

AttentionCase read_case(const AttentionProblem& problem, const std::string& folder) {
  return Reader(problem, folder).read();
}

void write_output(const AttentionCase& call, const AttentionOutput& output, const std::string& folder) {
  make_output_folder(folder);
  const AttentionProblem& problem = call.problem;
  const bool ragged = problem.q_layout == QLayout::kRagged;
  std::vector<std::int64_t> shape{problem.heads.q, problem.head_dim.v};
  if (ragged)
    shape.insert(shape.begin(), call.q_tokens);
  else
    shape.insert(shape.begin(), {call.batch, call.q_len});
  write_elements(folder, "o", shape, problem.dtype.out, output.o);
  if (!problem.lse) return;
  if (ragged)
    shape = {call.q_tokens, problem.heads.q};
  else
    shape = {call.batch, problem.heads.q, call.q_len};
  write_npy<float>((std::filesystem::path(folder) / "lse.npy").string(), shape, output.lse);
}

}  // namespace kernelwright
