// The list of cases is well formed: each case is planned and laid out without a GPU.
#include "end_to_end/attention/cases/attention_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "end_to_end/attention/cases/attention_variants.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/verify/attention/bound.h"
#include "support/simulated_attention.h"

namespace kernelwright {

namespace {

void lengths(std::vector<CudaCase>& cases) {
  for (const Variant& v : three_dtypes(same))
    cases.push_back({"c01_one_by_one_" + v.name, v.problem, shape_of(3, 1, 1)});
  std::vector<int> every;
  for (int length = 1; length <= 65; ++length) every.push_back(length);
  for (const int length : {127, 128, 129, 511, 512, 513}) every.push_back(length);
  for (const auto& [q, kv] : {std::pair{8, 1}, std::pair{64, 8}})
    for (const Variant& v : three_dtypes([q = q, kv = kv](auto p) { return decode(heads(p, q, kv)); }))
      cases.push_back({fmt::format("c02_decode_every_length_{}_{}_{}", q, kv, v.name), v.problem, lists({}, every)});
  for (const Variant& v : three_dtypes(causal))
    for (const int length : {127, 128, 129})
      cases.push_back({fmt::format("c03_causal_{}_{}", length, v.name), v.problem, shape_of(3, length, length)});
  for (const Variant& v : three_dtypes(same))
    for (const int length : {175, 176, 177, 191, 192, 193, 223, 224, 225})
      cases.push_back({fmt::format("c04_dense_{}_{}", length, v.name), v.problem, shape_of(3, length, length)});
  for (const DType dtype : kBoth)
    cases.push_back(
        {fmt::format("c05_empty_rows_{}", to_string(dtype)), causal(default_problem(dtype)), shape_of(3, 799, 3)});
  for (const int kv : {6, 2, 1})
    for (const auto& [q_len, kv_len] :
         {std::pair{1023, 1024}, std::pair{1024, 1023}, std::pair{255, 256}, std::pair{108, 256}})
      for (const bool is_causal : {false, true})
        for (const Variant& v : three_dtypes([&](auto p) { return heads(is_causal ? causal(p) : p, 6, kv); }))
          cases.push_back(
              {fmt::format("c06_{}_{}_{}_6_{}_{}", q_len, kv_len, is_causal ? "causal" : "dense", kv, v.name),
               v.problem, shape_of(1, q_len, kv_len)});
  cases.push_back({"c07_no_keys", default_problem(), shape_of(3, 64, 0)});
  cases.push_back({"c07_no_keys_decode", decode(default_problem()), shape_of(3, 1, 0)});
  cases.push_back({"c07_no_keys_in_some_pages", paged(default_problem(), 16), lists({}, {0, 5, 0})});
  cases.push_back({"c08_ragged_with_empty_ones", causal(ragged(default_problem())),
                   lists({113, 0, 1, 64, 0, 129, 3, 0, 200}, {203, 17, 0, 64, 0, 128, 257, 1, 191})});
  cases.push_back({"c08_ragged_all_empty", causal(ragged(default_problem())), lists({0, 0, 0}, {0, 0, 0})});
  cases.push_back({"c08_ragged_queries_over_pages",
                   causal(paged(
                       [] {
                         AttentionProblem p = ragged(default_problem());
                         p.kv_offsets = false;
                         return p;
                       }(),
                       16)),
                   lists({9, 0, 1, 128}, {100, 64, 0, 511})});
  std::vector<int> one_long{16384};
  for (int i = 0; i < 511; ++i) one_long.push_back(1 + i % 64);
  cases.push_back({"c09_one_long_of_512", causal(heads(ragged(default_problem()), 8, 1)), lists(one_long, one_long)});
  cases.push_back({"c10_batch_4096", decode(default_problem()), shape_of(4096, 1, 17)});
  cases.push_back({"c10_batch_4096_prefill", causal(heads(default_problem(), 16, 16)), shape_of(4096, 3, 17)});
  cases.push_back({"c11_131072_causal", causal(heads(default_problem(), 1, 1)), shape_of(1, 131072, 131072)});
}

void head_sizes(std::vector<CudaCase>& cases) {
  for (const int d : {64, 80, 96, 128, 192, 256})
    for (const Variant& v : three_dtypes([d](auto p) { return causal(dims(p, d, d)); })) {
      cases.push_back({fmt::format("c12_d{}_{}", d, v.name), v.problem, shape_of(2, 130, 300)});
      cases.push_back({fmt::format("c12_d{}_decode_{}", d, v.name), decode(v.problem), shape_of(3, 1, 300)});
    }
  for (const auto& [qk, v_dim] : {std::pair{192, 128}, std::pair{64, 256}, std::pair{256, 64}, std::pair{96, 80}})
    for (const Variant& v : three_dtypes([qk = qk, v_dim = v_dim](auto p) { return causal(dims(p, qk, v_dim)); })) {
      cases.push_back({fmt::format("c13_{}_{}_{}", qk, v_dim, v.name), v.problem, shape_of(2, 200, 333)});
      cases.push_back({fmt::format("c13_{}_{}_decode_{}", qk, v_dim, v.name), decode(v.problem), shape_of(2, 1, 333)});
    }
  for (const int group : {1, 2, 3, 5, 6, 7, 8, 12, 16, 64})
    for (const bool pack : {false, true})
      for (const int q_len : {1, 3, 17, 100}) {
        CudaCase test{fmt::format("c14_group{}_{}_q{}", group, pack ? "packed" : "apart", q_len),
                      causal(heads(dims(default_problem(), 64, 64), 2 * group, 2)), shape_of(2, q_len, 150)};
        test.schedule.pack_gqa = pack;
        cases.push_back(test);
      }
  for (const int group : {1, 3, 8, 16, 64})
    cases.push_back({fmt::format("c14_group{}_decode", group), decode(causal(heads(default_problem(), 2 * group, 2))),
                     shape_of(2, 1, 777)});
}

void masks(std::vector<CudaCase>& cases) {
  for (const auto& [q_len, kv_len] : {std::pair{300, 300}, std::pair{37, 1000}})
    for (const auto& [left, right] :
         {std::pair{0, 0}, std::pair{1, 0}, std::pair{127, 0}, std::pair{128, 0}, std::pair{129, 0}, std::pair{64, 64},
          std::pair{2000, 0}, std::pair{-1, 3}, std::pair{5, -1}})
      cases.push_back({fmt::format("c15_window_{}_{}_{}_{}", q_len, kv_len, left < 0 ? "all" : std::to_string(left),
                                   right < 0 ? "all" : std::to_string(right)),
                       windowed(default_problem(), left, right), shape_of(3, q_len, kv_len)});
  cases.push_back({"c15_window_empty_rows", windowed(default_problem(), 16, 0), shape_of(2, 200, 40)});
  for (const Variant& v : three_dtypes([](auto p) { return decode(windowed(p), 4); }))
    for (const int q_len : {1, 2, 3, 4})
      for (const int window : {127, 128, 1000})
        for (const int parts : {0, 16}) {
          CudaCase test{fmt::format("c16_decode_window_{}_{}_splits{}_{}", q_len, window, parts, v.name), v.problem,
                        shape_of(2, q_len, 4096)};
          if (parts) test.schedule = splits(parts);
          test.change = [window](AttentionCase& call) { call.window = {window, 0}; };
          cases.push_back(test);
        }
  for (const int chunk : {1, 100, 8192})
    for (const Variant& v : three_dtypes([chunk](auto p) { return masked(p, chunks(chunk)); })) {
      cases.push_back({fmt::format("c17_chunk_{}_{}", chunk, v.name), v.problem, shape_of(3, 16, 20000)});
      cases.push_back({fmt::format("c17_chunk_{}_decode_{}", chunk, v.name), decode(v.problem, 4),
                       lists({}, {20000, 8193, 8192, 1, 0})});
    }
  for (const int chunk : {1, 64, 100})
    for (const auto& [q_len, kv_len] : {std::pair{300, 300}, std::pair{37, 1000}, std::pair{200, 40}})
      cases.push_back({fmt::format("c17_chunk_{}_{}_{}", chunk, q_len, kv_len),
                       masked(default_problem(), chunks(chunk)), shape_of(2, q_len, kv_len)});
  for (const auto& [name, mask] : joined_masks()) {
    AttentionShape shape = lists({}, {333, 40, 0, 129});
    shape.q_len = 150;
    cases.push_back({"c17_" + name, masked(heads(default_problem(), 4, 2), mask), shape});
    cases.push_back({"c17_" + name + "_decode", decode(masked(default_problem(), mask), 3),
                     lists({}, {333, 40, 0, 129, 1000}), splits(3)});
  }
  for (const DType dtype : kBoth) {
    CudaCase test{fmt::format("c18_sinks_{}", to_string(dtype)), causal(with_sinks(default_problem(dtype))),
                  shape_of(2, 100, 60)};
    test.change = [](AttentionCase& call) {  // the first 40 queries see no key
      for (std::size_t h = 0; h < call.sinks.size(); ++h)
        call.sinks[h] = std::vector<float>{-std::numeric_limits<float>::infinity(), 0, 80, -3.5f}[h % 4];
    };
    cases.push_back(test);
    test.name = fmt::format("c18_sinks_decode_{}", to_string(dtype));
    test.problem = decode(test.problem);
    test.shape = lists({}, {0, 1, 300, 5000});
    cases.push_back(test);
  }
  for (const Variant& v : three_dtypes([](auto p) { return windowed(with_sinks(heads(dims(p, 64, 64), 64, 8))); })) {
    cases.push_back({"c19_gpt_oss_prefill_" + v.name, v.problem, shape_of(1, 2048, 2048)});
    cases.push_back({"c19_gpt_oss_decode_" + v.name, decode(paged(v.problem, 16)), lists({}, {2048, 100, 1, 129})});
  }
  for (const double cap : {15, 30, 50})
    for (const DType dtype : kBoth) {
      CudaCase test{fmt::format("c20_softcap_{}_{}", cap, to_string(dtype)), capped(default_problem(dtype), 15),
                    shape_of(2, 150, 300)};
      test.options.q_magnitude = 100;  // logits of several hundreds
      test.change = [cap](AttentionCase& call) { call.softcap = static_cast<float>(cap); };
      cases.push_back(test);
      test.name = fmt::format("c20_softcap_causal_paged_{}_{}", cap, to_string(dtype));
      test.problem = causal(paged(test.problem, 16));
      cases.push_back(test);
      test.name = fmt::format("c20_softcap_decode_{}_{}", cap, to_string(dtype));
      test.problem = decode(test.problem);
      test.shape = shape_of(2, 1, 1000);
      cases.push_back(test);
    }
}

void biases(std::vector<CudaCase>& cases) {
  for (const Variant& v : three_dtypes([](auto p) { return causal(with_alibi(p)); })) {
    cases.push_back({"alibi_causal_" + v.name, v.problem, shape_of(2, 150, 300)});
    cases.push_back({"alibi_decode_" + v.name, decode(v.problem, 3), lists({}, {300, 2, 0, 5000}), splits(5)});
    cases.push_back({"alibi_given_" + v.name, v.problem, shape_of(2, 90, 140), {}, {}, give_slopes});
  }
  const AttentionProblem problem = with_alibi(default_problem());
  for (const auto& [q_heads, kv_heads] :  // where they are no power of two the series has two parts
       {std::pair{1, 1}, std::pair{2, 2}, std::pair{6, 2}, std::pair{12, 4}, std::pair{40, 2}})
    cases.push_back(
        {fmt::format("alibi_{}_heads", q_heads), causal(heads(problem, q_heads, kv_heads)), shape_of(1, 70, 130)});
  cases.push_back({"alibi_keys_right_of_the_diagonal", problem, shape_of(2, 70, 200)});
  cases.push_back({"alibi_more_queries_than_keys", problem, shape_of(2, 200, 40)});
  cases.push_back({"alibi_empty_rows", causal(problem), shape_of(2, 200, 40)});
  cases.push_back({"alibi_window_sinks_pages", windowed(with_sinks(paged(problem, 16)), 100, 3), [] {
                     AttentionShape shape = lists({}, {333, 40, 0, 129});
                     shape.q_len = 150;
                     return shape;
                   }()});
  cases.push_back({"alibi_chunks_ragged",
                   masked(ragged(problem), chunks(100)),
                   lists({113, 0, 64, 3}, {203, 17, 64, 257}),
                   {},
                   {},
                   give_slopes});
  cases.push_back({"alibi_d64", causal(dims(problem, 64, 64)), shape_of(1, 200, 260)});
  cases.push_back({"alibi_d256", causal(dims(problem, 256, 256)), shape_of(1, 70, 130)});
  cases.push_back({"alibi_negative_scale", causal(problem), shape_of(1, 100, 100), {}, {}, [](AttentionCase& call) {
                     call.scale = -0.09f;
                   }});
}

/// Lengths that count the cache alone; the queries' own keys lie behind it.
void prompts(std::vector<CudaCase>& cases) {
  const auto prompt = [](AttentionProblem problem) {
    problem.cache_length = CacheLength::kPrompt;
    return problem;
  };
  AttentionProblem ragged_queries = prompt(causal(default_problem()));
  ragged_queries.q_layout = QLayout::kRagged;
  const AttentionShape lens = lists({1, 0, 33, 90, 7}, {200, 7, 33, 300, 50});
  cases.push_back({"prompt_padded", prompt(causal(default_problem())), [] {
                     AttentionShape shape = lists({}, {70, 200, 133});
                     shape.q_len = 70;
                     return shape;
                   }()});
  cases.push_back({"prompt_of_one_length", prompt(default_problem()), shape_of(2, 40, 100)});
  cases.push_back({"prompt_ragged", ragged_queries, lens});
  cases.push_back({"prompt_paged", windowed(paged(ragged_queries, 16), 60, 2), lens});
  cases.push_back({"prompt_small_pages", paged(ragged_queries, 5), lens});
  cases.push_back({"prompt_decode", decode(prompt(causal(paged(default_problem(), 64))), 3),
                   [] {
                     AttentionShape shape = lists({}, {300, 3, 64, 700});
                     shape.q_len = 3;
                     return shape;
                   }(),
                   splits(5)});
}

/// Left padding. Sequences begin in the middle of a tile, at the end of one, behind their last key, and with key 0.
void starts(std::vector<CudaCase>& cases) {
  const AttentionProblem problem = left_padded(heads(dims(default_problem(), 64, 64), 2, 1));
  AttentionShape several = lists({}, {300, 130, 64, 77, 200});
  several.q_len = 64;
  several.kv_starts = {70, 128, 64, 1, 0};
  AttentionShape few = several, mixed = several, equal = shape_of(3, 70, 150);
  few.q_len = 3;
  mixed.q_lens = {64, 3, 0, 77, 150};
  equal.kv_starts = {149, 40, 100};
  const auto ragged_queries = [](AttentionProblem p) {
    p.q_layout = QLayout::kRagged;
    return p;
  };
  cases.push_back({"starts_dense", problem, equal});
  cases.push_back({"starts_causal", causal(problem), several});
  cases.push_back({"starts_not_given", causal(problem), shape_of(2, 40, 100)});
  cases.push_back({"starts_window_sinks", windowed(with_sinks(problem), 60, 3), several});
  cases.push_back({"starts_chunks", masked(problem, chunks(48)), several});
  cases.push_back({"starts_chunks_paged", masked(paged(problem, 16), chunks(100)), several});
  cases.push_back({"starts_alibi_ragged_queries", causal(with_alibi(ragged_queries(problem))), mixed});
  cases.push_back({"starts_paged", causal(paged(ragged_queries(problem), 32)), mixed});
  cases.push_back({"starts_paged_dense", paged(problem, 64), several});
  cases.push_back({"starts_small_pages", windowed(paged(problem, 5), 100, 0), several});
  cases.push_back({"starts_fp8", causal(fp8(paged(problem, 16))), several});
  CudaCase prompt{"starts_prompt", causal(problem), several};
  prompt.problem.cache_length = CacheLength::kPrompt;
  cases.push_back(prompt);
  CudaCase shared{"starts_shared_pages", causal(paged(problem, 64)), several};
  shared.options.share_pages = true;
  cases.push_back(shared);
  cases.push_back({"starts_decode", decode(causal(problem), 3), few, splits(3)});
  cases.push_back({"starts_decode_paged", decode(paged(problem, 16), 3), few, splits(5)});
  cases.push_back({"starts_decode_window", decode(windowed(paged(problem, 64), 90, 0), 3), few, splits(1)});
  cases.push_back({"starts_decode_fp8", decode(fp8(problem), 3), few, splits(2)});
}

void memory(std::vector<CudaCase>& cases) {
  for (const int page : {1, 5, 16, 32, 64, 128, 256})
    for (const Variant& v : three_dtypes([page](auto p) { return causal(paged(p, page)); })) {
      const AttentionShape shape = lists({}, {700, 1, 257, 64});
      AttentionShape prefill = shape;
      prefill.q_len = 65;
      cases.push_back({fmt::format("c21_page{}_{}", page, v.name), v.problem, prefill});
      cases.push_back({fmt::format("c21_page{}_decode_{}", page, v.name), decode(v.problem), shape});
      CudaCase shared{fmt::format("c21_page{}_shared_{}", page, v.name), v.problem, shape_of(3, 20, 600)};
      shared.options.share_pages = true;
      cases.push_back(shared);
    }
  // c22, poisoned pages and slots, holds for every case: make_inputs() does it.
  for (const AttentionProblem& problem :
       {paged(causal(default_problem()), 16), causal(default_problem()), decode(default_problem())}) {
    const std::string kind = problem.kv_layout.kind == KvLayoutKind::kPaged ? "paged"
                             : problem.max_q_len                            ? "decode"
                                                                            : "padded";
    for (const int variant : {0, 1, 2, 3}) {
      CudaCase test{fmt::format("c23_strides_{}_{}", kind, variant), problem,
                    shape_of(2, problem.max_q_len ? 1 : 70, 300)};
      test.options.heads_first = variant & 1;
      test.options.interleave_kv = variant & 2;
      test.options.padding_tokens = 3;
      cases.push_back(test);
    }
  }
  for (const int parts : {1, 2, 3, 7, 33, 128, 256})
    for (const Variant& v : three_dtypes([](AttentionProblem p) { return decode(p); }))
      cases.push_back({fmt::format("c25_splits_{}_{}", parts, v.name), v.problem, lists({}, {4096, 100, 1, 0, 513}),
                       splits(parts)});
}

/// The portable family's swizzles: rows of whole spans and of a span and a rest (80 columns), chunks of the depth, keys
/// that come through registers. Hopper has no block_k, and cases of its own.
void swizzles(std::vector<CudaCase>& cases) {
  const auto add = [&](Swizzle swizzle, const char* name, AttentionProblem problem, const AttentionShape& shape,
                       int block_k) {
    CudaCase test{fmt::format("swizzle_{}_{}", to_string(swizzle), name), heads(std::move(problem), 4, 2), shape};
    test.schedule.swizzle = swizzle;
    test.schedule.block_k = block_k;
    cases.push_back(test);
  };
  AttentionShape several = lists({}, {213, 40, 0});
  several.q_len = 70;
  const AttentionProblem problem = default_problem();
  add(Swizzle::kNone, "window", windowed(dims(problem, 80, 80), 50, 3), several, 80);
  add(Swizzle::k32B, "paged", causal(paged(dims(default_problem(DType::kF16), 96, 80), 16)), several, 32);
  add(Swizzle::k64B, "fp8", causal(fp8(dims(problem, 80, 64))), several, 80);
  add(Swizzle::k64B, "chunks", causal(dims(problem, 128, 96)), several, 64);
  several.q_len = 4;
  add(Swizzle::kNone, "decode", decode(paged(dims(problem, 96, 96), 16), 4), several, 96);
  add(Swizzle::k32B, "decode", decode(fp8(dims(problem, 80, 80)), 4), several, 80);
  add(Swizzle::k64B, "decode", decode(causal(dims(problem, 128, 80)), 4), several, 32);
}

}  // namespace

CudaCase of_family(CudaCase test, Family family) {
  test.schedule.family = family;
  test.name = fmt::format("{}_{}", to_string(family), test.name);
  return test;
}

const std::vector<CudaCase>& shared_cases_on_hopper() {
  static const std::vector<CudaCase> taken = [] {  // plans each case, for several lists of tests
    std::vector<CudaCase> cases;
    for (const CudaCase& test : all_cuda_cases()) {
      CudaCase on_hopper = of_family(test, Family::kHopper);
      if (is_taken(on_hopper, Arch::kSm90a)) cases.push_back(std::move(on_hopper));
    }
    return cases;
  }();
  return taken;
}

void give_slopes(AttentionCase& call) {
  for (int h = 0; h < call.problem.heads.q; ++h)
    call.alibi_slopes.push_back(h % 5 == 3 ? 0.f : 0.3f / static_cast<float>(1 + h) * (h % 4 == 2 ? -1.f : 1.f));
}

std::vector<std::pair<std::string, Mask>> joined_masks() {
  const Mask causal{MaskKind::kCausal, {}, 0, {}}, padding{MaskKind::kPadding, {}, 0, {}};
  return {{"padding", padding},
          {"causal_and_padding", all_of({causal, padding})},
          {"causal_or_padding", any_of({causal, padding})},
          {"windows_and", all_of({window(100, 9), window(7, -1)})},
          {"windows_or", any_of({window(100, 0), window(7, 30)})},
          {"chunk_and_window", all_of({chunks(64), window(40)})},
          {"chunk_or_window", any_of({chunks(64), window(40, 5)})},
          {"chunk_or_causal", any_of({chunks(64), causal})},
          {"nested", all_of({any_of({chunks(50), window(20)}), window(60, 3), any_of({causal, window(0, 2)})})}};
}

const std::vector<CudaCase>& all_cuda_cases() {
  static const std::vector<CudaCase> all = [] {  // every start of the binary asks for it several times
    std::vector<CudaCase> cases;
    lengths(cases);
    head_sizes(cases);
    masks(cases);
    biases(cases);
    prompts(cases);
    starts(cases);
    memory(cases);
    add_value_cases(cases);
    swizzles(cases);
    return cases;
  }();
  return all;
}

namespace {

TEST(AttentionCases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const CudaCase& test : all_cuda_cases()) {
    EXPECT_TRUE(names.insert(test.name).second) << test.name;
    EXPECT_EQ(test.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"),
              std::string::npos)
        << test.name;
  }
}

TEST(AttentionCases, AreTakenByThePortableFamilyOnEveryArchitecture) {
  for (const CudaCase& test : all_cuda_cases())
    for (const Arch arch : {Arch::kSm80, Arch::kSm86, Arch::kSm90a, Arch::kSm120a})
      EXPECT_TRUE(is_taken(of_family(test, Family::kPortable), arch)) << test.name << " on " << to_string(arch);
}

TEST(AttentionCases, FitTheirProblems) {
  for (const CudaCase& test : all_cuda_cases()) EXPECT_NO_THROW(shape_only(test.problem, test.shape)) << test.name;
}

// The reference and the bound hold on every kind of data in the list: a kernel's arithmetic on the host passes them.
TEST(AttentionCases, PassWithAKernelsArithmetic) {
  int judged = 0;
  for (const CudaCase& test : all_cuda_cases()) {
    if (shape_only(test.problem, test.shape).operations() > 1e7) continue;
    AttentionCase call = make_inputs(test.problem, test.shape, test.options);
    if (test.change) test.change(call);
    const Verdict verdict = verify(call, simulate_attention(call));
    EXPECT_TRUE(verdict.passed) << test.name << ": " << verdict.text;
    ++judged;
  }
  EXPECT_GE(judged, 100);
}

// Slopes that are 5 % off, or the neighbouring head's, are seen.
TEST(AttentionCases, CatchAWrongSlope) {
  const AttentionCase call = make_inputs(causal(with_alibi(default_problem())), shape_of(2, 150, 300));
  AttentionCase steeper = call, shifted = call;
  for (int h = 0; h < 8; ++h) {
    steeper.alibi_slopes.push_back(static_cast<float>(call.alibi_slope(h)) * 1.05f);
    shifted.alibi_slopes.push_back(static_cast<float>(call.alibi_slope((h + 1) % 8)));
  }
  EXPECT_TRUE(verify(call, simulate_attention(call)).passed);
  EXPECT_FALSE(verify(call, simulate_attention(steeper)).passed);
  EXPECT_FALSE(verify(call, simulate_attention(shifted)).passed);
}

}  // namespace
}  // namespace kernelwright
