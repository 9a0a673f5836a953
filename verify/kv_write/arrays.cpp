// A cache write from a folder of arrays.
#include "kernelwright/verify/kv_write/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernelwright/verify/formats/array_folder.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

class KvWriteReader {
 public:
  KvWriteReader(const KvWriteProblem& problem, const std::string& folder) : problem_(problem), folder_(folder) {
    call_.problem = problem;
  }

  /// Of rows that something else makes: so many.
  KvWriteCase read_without_rows(std::int64_t tokens) {
    for (const char* const name : {"q", "k", "v"}) folder_.unread(name, false, "the product has these rows");
    refuse_what_is_not_read();
    call_.tokens = tokens;
    tokens_ = {tokens, fmt::format("the product has {} rows", tokens)};
    read_operands();
    lay_out_dense(call_);
    return std::move(call_);
  }

  KvWriteCase read() {
    folder_.unread("q", problem_.q_out, "q_out is false");
    folder_.unread("v", problem_.v_out, "v_out is false");
    refuse_what_is_not_read();
    const Dim qk = Dim::exactly(problem_.head_dim.qk, "head_dim.qk");
    const Dim q_heads = Dim::exactly(problem_.heads.q, "heads.q"),
              kv_heads = Dim::exactly(problem_.heads.kv, "heads.kv");
    const auto k = folder_.read<float>("k", {Dim::any(), kv_heads, qk});
    if (k) call_.tokens = k->shape[0];
    tokens_ = k ? Dim{call_.tokens, fmt::format("k.npy has {} tokens", call_.tokens)} : Dim::any();
    const Dim v_dim = Dim::exactly(problem_.head_dim.v, "head_dim.v");
    const auto v = problem_.v_out ? folder_.read<float>("v", {tokens_, kv_heads, v_dim}) : std::nullopt;
    const auto q = problem_.q_out ? folder_.read<float>("q", {tokens_, q_heads, qk}) : std::nullopt;
    read_operands();
    lay_out_dense(call_);
    if (q) call_.q = encode_all(problem_.dtype.in, q->values);
    call_.k = encode_all(problem_.dtype.in, k->values);
    if (v) call_.v = encode_all(problem_.dtype.in, v->values);
    return std::move(call_);
  }

 private:
  bool by_position() const { return problem_.index == CacheIndex::kPositions; }
  bool paged() const { return problem_.kv_layout.kind == KvLayoutKind::kPaged; }
  bool padded() const { return problem_.kv_layout.kind == KvLayoutKind::kPadded; }
  bool rotates() const { return problem_.rope.style != RopeStyle::kNone; }
  bool has_weights() const { return problem_.qk_norm.kind != NormKind::kNone && problem_.qk_norm.weight; }
  static bool is_given(ScaleKind kind) { return kind == ScaleKind::kPerTensor || kind == ScaleKind::kPerHead; }

  void refuse_what_is_not_read() {
    folder_.unread("q_weight", has_weights() && problem_.q_out, "the queries have no weights");
    folder_.unread("k_weight", has_weights(), "the problem's norm has no weights");
    folder_.unread("cos_sin", rotates(), "the problem has no rotation");
    folder_.unread("positions", rotates() || by_position(), "neither rotation nor index needs positions");
    folder_.unread("slot_mapping", !by_position(), "index is positions");
    folder_.unread("batch_indices", by_position(), "index is slots");
    folder_.unread("page_table", by_position() && paged(), "pages are found by slots, or the cache has none");
    for (const auto& [name, kind] :
         {std::pair{"q_scale", problem_.scales.q}, {"k_scale", problem_.scales.k}, {"v_scale", problem_.scales.v}})
      folder_.unread(name, is_given(kind), fmt::format("its scales are {}", to_string(kind)));
    folder_.unread("num_pages", paged(), "kv_layout.kind is not paged");
    folder_.unread("batch", padded(), "kv_layout.kind is not padded");
    folder_.unread("kv_len", padded(), "kv_layout.kind is not padded");
    folder_.unread("kv_tokens", problem_.kv_layout.kind == KvLayoutKind::kRagged, "kv_layout.kind is not ragged");
  }

  /// What is read beside the rows.
  void read_operands() {
    const Dim qk = Dim::exactly(problem_.head_dim.qk, "head_dim.qk");
    const Dim q_heads = Dim::exactly(problem_.heads.q, "heads.q"),
              kv_heads = Dim::exactly(problem_.heads.kv, "heads.kv");
    read_weights(q_heads, kv_heads, qk);
    read_places();
    read_scale("q_scale", problem_.scales.q, q_heads, call_.q_scale);
    read_scale("k_scale", problem_.scales.k, kv_heads, call_.k_scale);
    read_scale("v_scale", problem_.scales.v, kv_heads, call_.v_scale);
    folder_.require_no_fault();
    read_cache();
    folder_.require_no_fault();
  }

  void read_weights(const Dim& q_heads, const Dim& kv_heads, const Dim& qk) {
    if (!has_weights()) return;
    const bool all = problem_.qk_norm.kind == NormKind::kRmsAllHeads;
    const auto read = [&](const char* name, const Dim& heads, std::vector<std::byte>& to) {
      if (const auto array = folder_.read<float>(name, all ? std::vector{heads, qk} : std::vector{qk}))
        to = encode_all(problem_.dtype.in, array->values);
    };
    if (problem_.q_out) read("q_weight", q_heads, call_.q_weight);
    read("k_weight", kv_heads, call_.k_weight);
  }

  template <class T>
  void read_list(const char* name, const std::vector<Dim>& dims, std::vector<T>& to) {
    if (const auto array = folder_.read<std::int32_t>(name, dims))
      to.assign(array->values.begin(), array->values.end());
  }

  void read_places() {
    if (rotates() || by_position())
      read_list("positions",
                call_.streams() == 3 ? std::vector<Dim>{{3, "rope.sections are of three streams"}, tokens_}
                                     : std::vector<Dim>{tokens_},
                call_.positions);
    if (rotates()) {
      if (const auto table =
              folder_.read<float>("cos_sin", {Dim::any(), Dim::exactly(problem_.rope.width, "rope.width")}))
        call_.cos_sin = table->values, call_.cos_sin_rows = static_cast<int>(table->shape[0]);
    }
    if (!by_position()) return read_list("slot_mapping", {tokens_}, call_.slot_mapping);
    read_list("batch_indices", {tokens_}, call_.batch_indices);
    if (!paged()) return;
    if (const auto table = folder_.read<std::int32_t>("page_table", {Dim::any(), Dim::any()})) {
      call_.page_table = table->values;
      call_.batch = static_cast<int>(table->shape[0]), call_.page_table_stride = static_cast<int>(table->shape[1]);
    }
  }

  void read_scale(const char* name, ScaleKind kind, const Dim& heads, std::vector<float>& to) {
    if (!is_given(kind) || (std::strcmp(name, "q_scale") == 0 && !problem_.q_out)) return;
    const Dim dim = kind == ScaleKind::kPerHead ? heads : Dim{1, "scales are per_tensor"};
    if (auto array = folder_.read<float>(name, {dim})) to = std::move(array->values);
  }

  /// NAME.npy, or one above the largest of `places`.
  template <class Places>
  int extent(const char* name, const Places& places) {
    std::int64_t count = 1;
    for (const auto place : places) count = std::max<std::int64_t>(count, std::int64_t{place} + 1);
    if (folder_.there(name)) {
      const auto array = folder_.read<std::int32_t>(name, {{1, "it is one number"}});
      if (array && array->values[0] < 1) folder_.fault(name, fmt::format("{} is below 1", array->values[0]));
      if (array) count = array->values[0];
    }
    if (count > kMostRows)
      folder_.fault(name, fmt::format("{} is more than a folder's cache may have, {}", count, kMostRows));
    return static_cast<int>(std::min(count, kMostRows));
  }

  void read_cache() {
    std::vector<std::int64_t> rows = call_.slot_mapping;
    if (padded() && by_position()) {
      call_.batch = extent("batch", call_.batch_indices);
      call_.kv_len = extent("kv_len", call_.positions);
    } else if (padded()) {
      call_.batch = extent("batch", std::vector<int>{});
      call_.kv_len = extent("kv_len", rows);
    } else if (!paged()) {
      call_.kv_tokens = extent("kv_tokens", rows);
    } else {
      for (std::int64_t& row : rows) row = row < 0 ? row : row / problem_.kv_layout.page_size;
      call_.num_pages = by_position() ? extent("num_pages", call_.page_table) : extent("num_pages", rows);
    }
  }

  static constexpr std::int64_t kMostRows = 1 << 22;
  const KvWriteProblem& problem_;
  ArrayFolder folder_;
  Dim tokens_;
  KvWriteCase call_;
};

}  // namespace

KvWriteCase read_case(const KvWriteProblem& problem, const std::string& folder) {
  return KvWriteReader(problem, folder).read();
}

KvWriteCase read_cache_case(const KvWriteProblem& problem, std::int64_t tokens, const std::string& folder) {
  return KvWriteReader(problem, folder).read_without_rows(tokens);
}

void write_output(const KvWriteCase& call, const KvWriteOutput& output, const std::string& folder) {
  make_output_folder(folder);
  const KvWriteProblem& problem = call.problem;
  if (problem.q_out)
    write_elements(folder, "q_out", {call.tokens, problem.heads.q, problem.head_dim.qk}, problem.dtype.q, output.q_out);
  const std::int64_t keys = call.keys_of_page(), pages = call.slots() / keys;
  for (const HeadsOf of : {HeadsOf::kK, HeadsOf::kV}) {
    if (call.heads(of) == 0) continue;
    const int heads = call.heads(of), elements = call.head_dim(of);
    std::vector<float> values(static_cast<std::size_t>(call.slots() * heads * elements),
                              std::numeric_limits<float>::quiet_NaN());
    std::vector<float> scales(static_cast<std::size_t>(call.slots() * heads), std::numeric_limits<float>::quiet_NaN());
    const std::vector<std::byte>& made = of == HeadsOf::kK ? output.k_scale : output.v_scale;
    for (std::int64_t token = 0; token < call.tokens; ++token) {
      const std::int64_t row = call.slot_of(token);
      for (int head = 0; row >= 0 && head < heads; ++head) {
        const auto at = static_cast<std::size_t>(row * heads + head);
        for (int i = 0; i < elements; ++i) {
          double value = 0;
          decode_row(problem.dtype.kv, output.cache.data() + call.cache_byte(of, row, head, i), 1, &value);
          values[at * static_cast<std::size_t>(elements) + static_cast<std::size_t>(i)] = static_cast<float>(value);
        }
        if (!made.empty()) scales[at] = call.scale_at(made.data() + at * call.scale_bytes());
      }
    }
    std::vector<std::int64_t> rows{pages, keys};
    if (problem.kv_layout.kind == KvLayoutKind::kRagged) rows = {call.slots()};
    rows.push_back(heads);
    const std::string name = of == HeadsOf::kK ? "k" : "v";
    if (!made.empty()) write_npy(folder + "/" + name + "_scale.npy", rows, scales);
    rows.push_back(elements);
    write_npy(folder + "/" + name + "_cache.npy", rows, values);
  }
  if (output.q_scale.empty()) return;
  std::vector<float> scales;
  for (std::size_t i = 0; i < output.q_scale.size(); i += call.scale_bytes())
    scales.push_back(call.scale_at(output.q_scale.data() + i));
  write_npy(folder + "/q_scale.npy", {call.tokens, problem.heads.q}, scales);
}

}  // namespace kernelwright
