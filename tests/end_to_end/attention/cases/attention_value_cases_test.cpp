// Attention cases of values: a key with nearly all the weight, equal keys, NaN and infinity, scales. Each mistake that
// they are for is made on the host and seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "end_to_end/attention/cases/attention_cases.h"
#include "end_to_end/attention/cases/attention_variants.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/simulated_attention.h"

namespace kernelwright {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void set_first(DType dtype, float value, std::byte* row) { encode_row(dtype, {&value, 1}, row); }
// All of one head's row becomes NaN.
void spoil(const HostTensor& tensor, std::byte* row) {
  fill_with_nan(tensor.dtype, {row, static_cast<std::size_t>(tensor.head_dim) * bytes_of(tensor.dtype)});
}

void values(std::vector<CudaCase>& cases) {
  for (const DType dtype : kBoth) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const auto& [name, value] : {std::pair{"nan", nan}, std::pair{"inf", static_cast<double>(kInfinity)}}) {
      CudaCase test{fmt::format("c36_masked_keys_{}_{}", name, to_string(dtype)), causal(default_problem(dtype)),
                    shape_of(1, 100, 300)};
      test.change = [value = value](AttentionCase& call) {  // the last query alone sees the last key
        const std::vector<float> row(128, static_cast<float>(value));
        for (int h = 0; h < 2; ++h) encode_row(call.k.dtype, row, call.k_row(0, 299, h));
      };
      cases.push_back(test);
    }
    CudaCase test{fmt::format("c36_nan_in_one_query_{}", to_string(dtype)), default_problem(dtype),
                  shape_of(1, 100, 300)};
    test.change = [](AttentionCase& call) { fill_with_nan(call.q.dtype, {call.q_row(0, 37, 3), 256}); };
    cases.push_back(test);
    for (const auto& [name, scale] :
         {std::pair{"zero", 0.f}, std::pair{"negative", -0.09f}, std::pair{"1e4", 1e4f}, std::pair{"minus_1e4", -1e4f}})
      for (const bool is_decode : {false, true}) {
        CudaCase scaled{fmt::format("c39_scale_{}_{}{}", name, is_decode ? "decode_" : "", to_string(dtype)),
                        is_decode ? decode(default_problem(dtype)) : causal(default_problem(dtype)),
                        shape_of(2, is_decode ? 1 : 150, 300)};
        scaled.change = [scale = scale](AttentionCase& call) { call.scale = scale; };
        cases.push_back(scaled);
      }
  }
  for (const DType dtype : {DType::kE4m3, DType::kE5m2})
    for (const ScaleKind kind : {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead})
      for (const DType q : kBoth) {
        const AttentionProblem problem = causal(fp8(default_problem(q), kind, dtype));
        const std::string name = fmt::format("c33_{}_{}_{}", to_string(dtype), to_string(kind), to_string(q));
        cases.push_back({name, problem, shape_of(2, 130, 300)});
        cases.push_back({name + "_decode", decode(problem), shape_of(2, 1, 300)});
      }
  for (const DType dtype : kBoth) {
    AttentionProblem problem = default_problem(dtype);
    problem.dtype.out = DType::kF32;
    cases.push_back({fmt::format("out_f32_{}", to_string(dtype)), problem, shape_of(2, 130, 300)});
    cases.push_back({fmt::format("out_f32_decode_{}", to_string(dtype)), decode(problem), shape_of(2, 1, 3000)});
    problem.lse = false;
    cases.push_back({fmt::format("no_lse_{}", to_string(dtype)), problem, shape_of(2, 130, 300)});
    cases.push_back({fmt::format("no_lse_decode_{}", to_string(dtype)), decode(problem), shape_of(2, 1, 3000)});
  }
}

// Case 34: among 32768 keys one takes about 97 % of every row; the others' small weights must still add up.
void needles(std::vector<CudaCase>& cases) {
  const auto plant = [](int key) {
    return [key](AttentionCase& call) {
      constexpr float kQuery = 4, kKeyScale = 0.5f, kLogit = 14;
      call.k_scale = {kKeyScale};
      const float planted = kLogit / (kQuery * kKeyScale * call.scale);
      for (int h = 0; h < call.problem.heads.q; ++h)
        for (int i = 0; i < call.q_len; ++i) set_first(call.q.dtype, kQuery, call.q_row(0, i, h));
      for (int h = 0; h < call.problem.heads.kv; ++h) {
        const std::vector<float> zeros(static_cast<std::size_t>(call.problem.head_dim.qk), 0);
        encode_row(call.k.dtype, zeros, call.k_row(0, key, h));
        set_first(call.k.dtype, planted, call.k_row(0, key, h));
      }
    };
  };
  constexpr int kKeys = 32768;
  for (const DType q : kBoth) {
    const AttentionProblem problem = causal(fp8(default_problem(q)));
    for (const int key : {0, 20001, kKeys - 1})
      cases.push_back({fmt::format("c34_needle_{}_decode_{}", key, to_string(q)),
                       decode(problem),
                       shape_of(1, 1, kKeys),
                       {},
                       {},
                       plant(key)});
    cases.push_back(
        {fmt::format("c34_needle_64_rows_{}", to_string(q)), problem, shape_of(1, 64, kKeys), {}, {}, plant(20001)});
    cases.push_back({fmt::format("c34_needle_one_head_{}", to_string(q)),
                     decode(heads(dims(problem, 64, 64), 1, 1)),
                     shape_of(1, 1, kKeys),
                     {},
                     {},
                     plant(20001)});  // small enough for the host
  }
}

// Case 35: equal keys, so that O is the mean of V; and one key with all the weight.
void extreme_weights(std::vector<CudaCase>& cases) {
  const auto all_alike = [](AttentionCase& call) {
    const std::size_t bytes = static_cast<std::size_t>(call.problem.head_dim.qk) * bytes_of(call.k.dtype);
    for (int b = 0; b < call.batch; ++b)
      for (int h = 0; h < call.problem.heads.kv; ++h)
        for (int j = 1; j < call.kv_lens[b]; ++j) std::memcpy(call.k_row(b, j, h), call.k_row(b, 0, h), bytes);
  };
  const auto one_hot = [](int hot) {
    return [hot](AttentionCase& call) {  // a logit of at least 80 where all others are near 0
      for (int b = 0; b < call.batch; ++b) {
        for (int h = 0; h < call.problem.heads.q; ++h)
          for (int i = 0; i < call.q_lens[b]; ++i) set_first(call.q.dtype, 16, call.q_row(b, i, h));
        for (int h = 0; h < call.problem.heads.kv; ++h)
          for (int j = 0; j < call.kv_lens[b]; ++j)
            set_first(call.k.dtype, j == hot ? 240.f : 0.f, call.k_row(b, j, h));
      }
    };
  };
  for (const Variant& v : three_dtypes(causal)) {
    const AttentionShape prefill = shape_of(2, 150, 300), one_query = lists({}, {1000, 17, 1});
    cases.push_back({"c35_all_alike_" + v.name, v.problem, prefill, {}, {}, all_alike});
    cases.push_back({"c35_all_alike_decode_" + v.name, decode(v.problem), one_query, {}, {}, all_alike});
    for (const int hot : {0, 157, 299}) {
      cases.push_back({fmt::format("c35_one_hot_{}_{}", hot, v.name), v.problem, prefill, {}, {}, one_hot(hot)});
      cases.push_back(
          {fmt::format("c35_one_hot_{}_decode_{}", hot, v.name), decode(v.problem), one_query, {}, {}, one_hot(hot)});
    }
  }
}

// Case 36 beyond plain prefill: which outputs a NaN or an infinity reaches, according to docs/attention/portable.md.
void not_finite(std::vector<CudaCase>& cases) {
  for (const Variant& v : three_dtypes(same)) {
    CudaCase test{"c36_masked_key_in_decode_" + v.name, decode(causal(v.problem), 4), shape_of(2, 4, 300)};
    test.change = [](AttentionCase& call) {  // seen by the last query, or the last two, of one KV head
      spoil(call.k, call.k_row(0, 299, 0));
      spoil(call.k, call.k_row(1, 298, 1));
    };
    cases.push_back(test);
    cases.push_back({"c36_key_left_of_windows_" + v.name,
                     windowed(v.problem, 16, 0),
                     shape_of(1, 100, 300),
                     {},
                     {},
                     [](AttentionCase& call) { spoil(call.k, call.k_row(0, 220, 0)); }});  // queries 20 to 36
    cases.push_back({"c36_nan_in_one_query_of_decode_" + v.name,
                     decode(v.problem, 4),
                     shape_of(2, 4, 300),
                     {},
                     {},
                     [](AttentionCase& call) { spoil(call.q, call.q_row(1, 2, 5)); }});
    // One part of the keys gives NaN, the other 15 see no key (sequence 0) or finite scores.
    cases.push_back({"c36_nan_in_one_part_" + v.name,
                     decode(v.problem),
                     lists({}, {5, 1000, 4096, 1}),
                     splits(16),
                     {},
                     [](AttentionCase& call) {
                       for (int j = 0; j < 5; ++j) spoil(call.k, call.k_row(0, j, 0));
                       spoil(call.k, call.k_row(0, 4, 1));
                       spoil(call.k, call.k_row(1, 3, 1));
                       spoil(call.k, call.k_row(2, 4000, 0));
                     }});
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      if (std::isinf(value) && v.name == "fp8") continue;  // e4m3 has no infinity
      const auto spoil_unseen = [value](AttentionCase& call) {
        const std::vector<float> row(128, value);
        for (int b = 0; b < call.batch; ++b)
          for (int h = 0; h < call.problem.heads.kv; ++h)
            for (int j = 0; j < call.visible(b, 0).first; ++j) {
              encode_row(call.k.dtype, row, call.k_row(b, j, h));
              encode_row(call.v.dtype, row, call.v_row(b, j, h));
            }
      };
      const std::string name = fmt::format("{}_{}", std::isinf(value) ? "inf" : "nan", v.name);
      cases.push_back(
          {"c36_outside_every_union_" + name, windowed(v.problem), shape_of(1, 100, 1000), {}, {}, spoil_unseen});
      for (const int parts : {1, 16})
        cases.push_back({fmt::format("c36_outside_every_union_decode_splits{}_{}", parts, name),
                         decode(windowed(v.problem), 4),
                         shape_of(2, 4, 4096),
                         splits(parts),
                         {},
                         spoil_unseen});
    }
  }
}

}  // namespace

void add_value_cases(std::vector<CudaCase>& cases) {
  needles(cases);
  extreme_weights(cases);
  not_finite(cases);
  values(cases);
  add_fp8_query_cases(cases);
  add_key_scale_cases(cases);
}

namespace {

AttentionCase made(const std::string& name) {
  for (const CudaCase& test : all_cuda_cases()) {
    if (test.name != name) continue;
    AttentionCase call = make_inputs(test.problem, test.shape, test.options);
    test.change(call);
    return call;
  }
  throw std::runtime_error("no case is named " + name);
}

// The purpose of the planted values: a test sees the mistake of each.
TEST(AttentionCases, CatchALostNeedleAndALostHotKey) {
  const AttentionCase needle = made("c34_needle_one_head_bf16"), hot = made("c35_one_hot_157_decode_fp8");
  EXPECT_FALSE(verify(needle, simulate_attention(needle, {.dropped_key = 20001})).passed);
  EXPECT_FALSE(verify(hot, simulate_attention(hot, {.dropped_key = 157})).passed);
}

TEST(AttentionCases, CatchANanThatIsHiddenOrSpread) {
  const AttentionCase part = made("c36_nan_in_one_part_bf16"), masked = made("c36_masked_key_in_decode_bf16");
  AttentionOutput output = simulate_attention(part);
  const std::vector<float> zeros(128, 0);  // as if the row had seen no key
  encode_row(DType::kBf16, zeros, output.o.data() + part.o_index(0, 0, 0) * 2);
  EXPECT_FALSE(verify(part, output).passed);
  output = simulate_attention(masked);
  fill_with_nan(DType::kBf16, {output.o.data() + masked.o_index(0, 0, 0) * 2, 2});
  EXPECT_FALSE(verify(masked, output).passed);
}

}  // namespace
}  // namespace kernelwright
