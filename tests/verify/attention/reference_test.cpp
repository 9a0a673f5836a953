// The reference compared with sums done by hand, and with itself where two problems must agree.
#include "kernelwright/verify/attention/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Rows = std::map<std::tuple<int, int, int>, ReferenceRow>;

Rows reference(const AttentionCase& call) {
  Rows rows;
  std::mutex mutex;
  compute_reference(call, choose_rows(call, 1e18), score_error_model(call.problem), [&](const ReferenceRow& row) {
    const std::lock_guard lock(mutex);
    rows[{row.id.sequence, row.id.query, row.id.head}] = row;
  });
  return rows;
}

AttentionProblem problem_of(int head_dim, int q_heads = 1, int kv_heads = 1) {
  AttentionProblem problem;
  problem.head_dim = {head_dim, head_dim};
  problem.heads = {q_heads, kv_heads};
  return problem;
}

AttentionShape shape_of(int batch, int q_len, int kv_len) {
  AttentionShape shape;
  shape.name = "shape";
  shape.batch = batch;
  shape.q_len = q_len;
  shape.kv_len = kv_len;
  return shape;
}

void set(std::byte* row, DType dtype, const std::vector<float>& values) { encode_row(dtype, values, row); }

// One head of two elements, one query [1, 2] and the keys [1, 0], [0, 1], with values [10, 0] and [0, 20]: scores 1
// and 2.
AttentionCase two_keys(AttentionProblem problem = problem_of(2)) {
  AttentionCase call = make_inputs(problem, shape_of(1, 1, 2));
  call.scale = 1;
  set(call.q_row(0, 0, 0), call.q.dtype, {1, 2});
  set(call.k_row(0, 0, 0), call.k.dtype, {1, 0});
  set(call.k_row(0, 1, 0), call.k.dtype, {0, 1});
  set(call.v_row(0, 0, 0), call.v.dtype, {10, 0});
  set(call.v_row(0, 1, 0), call.v.dtype, {0, 20});
  return call;
}

TEST(AttentionReference, IsTheSoftmaxOfTheScores) {
  const ReferenceRow row = reference(two_keys())[{0, 0, 0}];
  const double p = 1 / (1 + std::exp(1.0));
  EXPECT_NEAR(row.o[0], 10 * p, 1e-14);
  EXPECT_NEAR(row.o[1], 20 * (1 - p), 1e-14);
  EXPECT_NEAR(row.lse, std::log(std::exp(1.0) + std::exp(2.0)), 1e-14);
  EXPECT_NEAR(row.square_p, p * p + (1 - p) * (1 - p), 1e-14);
  EXPECT_EQ(row.visible, 2);
}

TEST(AttentionReference, MultipliesScalesIn) {
  AttentionProblem problem = problem_of(2);
  problem.dtype.kv = DType::kE4m3;
  problem.scales = ScaleKind::kPerTensor;
  AttentionCase call = two_keys(problem);
  call.k_scale = {2};
  call.v_scale = {0.5};
  const ReferenceRow row = reference(call)[{0, 0, 0}];
  const double p = 1 / (1 + std::exp(2.0));
  EXPECT_NEAR(row.o[0], 5 * p, 1e-14);
  EXPECT_NEAR(row.o[1], 10 * (1 - p), 1e-14);
  EXPECT_NEAR(row.lse, std::log(std::exp(2.0) + std::exp(4.0)), 1e-14);
}

TEST(AttentionReference, CapsScores) {
  AttentionProblem problem = problem_of(2);
  problem.score_mod = {ScoreModKind::kSoftcap, 1.5};
  const ReferenceRow row = reference(two_keys(problem))[{0, 0, 0}];
  EXPECT_NEAR(row.lse, std::log(std::exp(1.5 * std::tanh(1 / 1.5)) + std::exp(1.5 * std::tanh(2 / 1.5))), 1e-14);
}

TEST(AttentionReference, SinksJoinTheSoftmaxWithoutAValue) {
  AttentionProblem problem = problem_of(2);
  problem.sinks = true;
  AttentionCase call = two_keys(problem);
  call.sinks = {3};
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  ReferenceRow row = reference(call)[{0, 0, 0}];
  EXPECT_NEAR(row.o[0], 10 * std::exp(1.0) / sum, 1e-14);
  EXPECT_NEAR(row.lse, std::log(sum), 1e-14);
  call.sinks = {-std::numeric_limits<float>::infinity()};
  const double lse = reference(call)[{0, 0, 0}].lse;
  EXPECT_NEAR(lse, std::log(std::exp(1.0) + std::exp(2.0)), 1e-14);
  call.sinks = {80};
  row = reference(call)[{0, 0, 0}];
  EXPECT_NEAR(row.o[0] / (10 * std::exp(-79.0)), 1, 1e-12);
  EXPECT_NEAR(row.lse, 80, 1e-12);
}

// Masks are often written as a bias of -1e9. Such a key's rounding is its own, and not that of keys that weigh
// something.
TEST(AttentionReference, AHugeBiasOfAHiddenKeyLoosensNoBound) {
  AttentionProblem problem = problem_of(2);
  problem.score_mod.kind = ScoreModKind::kTensor;
  problem.score_mod.dtype = DType::kF32;
  AttentionCase call = two_keys(problem);
  call.bias.values = {0, 0};
  const ReferenceRow without = reference(call)[{0, 0, 0}];
  call.bias.values = {0, -1e9F};
  const ReferenceRow hidden = reference(call)[{0, 0, 0}];
  EXPECT_EQ(hidden.o[0], 10);
  EXPECT_EQ(hidden.max_abs_score, 1);
  EXPECT_LE(hidden.score_noise, without.score_noise);
  EXPECT_LT(lse_bound(call, hidden), 1e-4);
  call.bias.values = {-1e9F, -1e9F};  // both have weight, and are as coarse as f32 makes them
  EXPECT_GT((reference(call)[{0, 0, 0}].score_noise), 10);
}

TEST(AttentionReference, ARowThatSeesNothingIsZero) {
  AttentionProblem problem = problem_of(8);
  problem.mask.kind = MaskKind::kCausal;
  AttentionCase call = make_inputs(problem, shape_of(1, 5, 2));  // queries 0, 1 and 2 come before the first key
  Rows rows = reference(call);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((rows[{0, i, 0}].lse), -kInfinity);
    EXPECT_THAT((rows[{0, i, 0}].o), testing::Each(0.0));
  }
  EXPECT_EQ((rows[{0, 3, 0}].visible), 1);
  EXPECT_TRUE(std::isfinite(rows[{0, 3, 0}].lse));
  call.problem.sinks = true;
  call.sinks = {-0.5};
  EXPECT_EQ((reference(call)[{0, 0, 0}].lse), -0.5);
}

TEST(AttentionReference, WindowsCountKeysBesideTheDiagonal) {
  AttentionProblem problem = problem_of(8);
  problem.mask = {MaskKind::kSlidingWindow, {2, 1}, 0, {}};
  AttentionCase call = make_inputs(problem, shape_of(1, 10, 10));
  EXPECT_EQ(call.visible(0, 5).first, 3);
  EXPECT_EQ(call.visible(0, 5).last, 7);
  EXPECT_EQ(call.visible(0, 0).first, 0);
  EXPECT_EQ(call.visible(0, 9).last, 10);
  call.window = {-1, 0};
  EXPECT_EQ(call.visible(0, 5).first, 0);
  EXPECT_EQ(call.visible(0, 5).last, 6);
}

void expect_same(Rows a, Rows b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [id, row] : a) {
    EXPECT_EQ(row.lse, b[id].lse);
    EXPECT_EQ(row.o, b[id].o);
  }
}

TEST(AttentionReference, AUnboundedWindowIsCausal) {
  AttentionProblem causal = problem_of(32, 2), window = causal;
  causal.mask.kind = MaskKind::kCausal;
  window.mask = {MaskKind::kSlidingWindow, {-1, 0}, 0, {}};
  expect_same(reference(make_inputs(causal, shape_of(2, 37, 50))), reference(make_inputs(window, shape_of(2, 37, 50))));
}

TEST(AttentionReference, DoesNotDependOnTheLayout) {
  AttentionProblem padded = problem_of(32, 4, 2), ragged = padded, paged = padded;
  ragged.q_layout = QLayout::kRagged;
  ragged.kv_layout.kind = KvLayoutKind::kRagged;
  paged.kv_layout = {KvLayoutKind::kPaged, 16};
  AttentionShape shape = shape_of(3, 20, 0);
  shape.kv_lens = {65, 0, 130};
  const Rows rows = reference(make_inputs(padded, shape));
  ASSERT_EQ(rows.size(), 3u * 20 * 4);
  expect_same(rows, reference(make_inputs(ragged, shape)));
  expect_same(rows, reference(make_inputs(paged, shape)));
  expect_same(rows, reference(make_inputs(paged, shape, {.heads_first = true, .padding_tokens = 5})));
  expect_same(rows, reference(make_inputs(padded, shape, {.interleave_kv = true})));
}

TEST(AttentionReference, GroupedHeadsAreRepeatedHeads) {
  AttentionCase grouped = make_inputs(problem_of(16, 6, 2), shape_of(1, 9, 40));
  AttentionCase full = make_inputs(problem_of(16, 6, 6), shape_of(1, 9, 40));
  full.q = grouped.q;
  for (int j = 0; j < 40; ++j)
    for (int h = 0; h < 6; ++h) {
      std::copy_n(grouped.k_row(0, j, h / 3), 32, full.k_row(0, j, h));
      std::copy_n(grouped.v_row(0, j, h / 3), 32, full.v_row(0, j, h));
    }
  expect_same(reference(grouped), reference(full));
}

TEST(AttentionReference, TouchesVisibleKeysAlone) {
  AttentionProblem problem = problem_of(16);
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  problem.mask.kind = MaskKind::kCausal;
  AttentionCase call = make_inputs(problem, shape_of(1, 8, 70));  // 58 slots of the second page hold NaN
  fill_with_nan(call.v.dtype, {call.v_row(0, 69, 0), 32});        // only the last query sees this one
  Rows rows = reference(call);
  for (int i = 0; i < 7; ++i)
    for (const double value : rows[{0, i, 0}].o) EXPECT_TRUE(std::isfinite(value)) << i;
  EXPECT_TRUE(std::isnan(rows[{0, 7, 0}].o[0]));
}

TEST(ChooseRows, TakesAllRowsOfSmallWorkAndEveryHeadOfLargeWork) {
  const AttentionCase call = make_inputs(problem_of(16, 6, 2), shape_of(2, 300, 40));
  EXPECT_EQ(choose_rows(call).size(), 2u * 300 * 6);
  const std::vector<RowId> sampled = choose_rows(call, call.operations() / 30, 7);
  EXPECT_EQ(sampled.size(), 2u * 10 * 6);
  std::map<std::pair<int, int>, int> heads;
  int edges = 0;
  for (const RowId& row : sampled) {
    ++heads[{row.sequence, row.head}];
    edges += row.query % 16 == 0 || row.query % 16 == 15 || row.query == 299;
  }
  EXPECT_EQ(heads.size(), 12u);
  EXPECT_GE(edges, 60);
  for (const int query : {0, 299})
    EXPECT_EQ(std::count_if(sampled.begin(), sampled.end(), [&](const RowId& row) { return row.query == query; }), 12);
  EXPECT_EQ(sampled, choose_rows(call, call.operations() / 30, 7));
}

TEST(AttentionInputs, AreTheSameForASeed) {
  const AttentionProblem problem = problem_of(16, 2, 2);
  EXPECT_EQ(*make_inputs(problem, shape_of(2, 8, 8), {.seed = 3}).k.buffer,
            *make_inputs(problem, shape_of(2, 8, 8), {.seed = 3}).k.buffer);
  EXPECT_NE(*make_inputs(problem, shape_of(2, 8, 8), {.seed = 3}).k.buffer,
            *make_inputs(problem, shape_of(2, 8, 8), {.seed = 4}).k.buffer);
}

TEST(AttentionInputs, AreNormal) {
  const AttentionCase call = make_inputs(problem_of(128, 8, 8), shape_of(1, 128, 1));
  double sum = 0, squares = 0, fourth = 0;
  std::vector<double> row(128);
  for (int i = 0; i < 128; ++i)
    for (int h = 0; h < 8; ++h) {
      decode_row(call.q.dtype, call.q_row(0, i, h), 128, row.data());
      for (const double x : row) sum += x, squares += x * x, fourth += x * x * x * x;
    }
  const double n = 128 * 8 * 128;
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n) + 1e-3);
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n) + 1e-2);
}

TEST(AttentionInputs, PoisonWhatNoQueryMayRead) {
  AttentionProblem problem = problem_of(8);
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  AttentionShape shape = shape_of(2, 1, 0);
  shape.kv_lens = {5, 2};
  const AttentionCase call = make_inputs(problem, shape);
  EXPECT_EQ(call.page_table_stride, 3);
  EXPECT_EQ(call.page_table[2], 2147480000);
  EXPECT_EQ(call.page_table[4], 2147480000);
  std::vector<double> values(call.k.buffer->size() / 2);
  decode_row(call.k.dtype, call.k.buffer->data(), values.size(), values.data());
  EXPECT_EQ(std::count_if(values.begin(), values.end(), [](double x) { return !std::isnan(x); }), 7 * 8);
}

TEST(AttentionInputs, SharedPagesHoldTheFirstSequencesKeys) {
  AttentionProblem problem = problem_of(8);
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  const AttentionCase call = make_inputs(problem, shape_of(3, 1, 6), {.share_pages = true});
  EXPECT_EQ(call.k_row(0, 2, 0), call.k_row(2, 2, 0));
  EXPECT_NE(call.k_row(0, 5, 0), call.k_row(2, 5, 0));
}

TEST(AttentionInputs, RefusesAShapeThatDoesNotFit) {
  AttentionShape shape = shape_of(2, 1, 1);
  shape.kv_lens = {1, 2, 3};
  EXPECT_THROW(make_inputs(problem_of(8), shape), ConfigError);
  shape = shape_of(1, 1, 1);
  shape.q_lens = {1, 2};
  EXPECT_THROW(make_inputs(problem_of(8), shape), ConfigError);
}

TEST(AttentionReference, CountsRotaryPartsAndMultipliesWithScalesOfTokens) {
  AttentionProblem problem = problem_of(4);
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kF32};
  problem.head_dim.v = 2;
  problem.rope = {2, DType::kBf16};
  problem.scales = ScaleKind::kPerToken;
  problem.lse = true;
  AttentionCase call = make_inputs(problem, shape_of(1, 1, 2));
  EXPECT_EQ(call.q.head_dim, 2);
  call.scale = 0.5f;
  call.q_scale = {2};
  call.k_scale = {3, 0.25f};
  call.v_scale = {4, 0.5f};
  set(call.q_row(0, 0, 0), call.q.dtype, {1, 2});
  set(call.q_rope.row(0, 0, 0), DType::kBf16, {1, 0.5f});
  set(call.k_row(0, 0, 0), call.k.dtype, {1, 0});
  set(call.k_rope_row(0, 0, 0), DType::kBf16, {0, 1});
  set(call.k_row(0, 1, 0), call.k.dtype, {0, 1});
  set(call.k_rope_row(0, 1, 0), DType::kBf16, {2, 0});
  set(call.v_row(0, 0, 0), call.v.dtype, {1, 0});
  set(call.v_row(0, 1, 0), call.v.dtype, {0, 2});
  const double first = 0.5 * 2 * 3 * (1 + 0.5), second = 0.5 * 2 * 0.25 * (2 + 2);
  const double p = 1 / (1 + std::exp(second - first));
  const ReferenceRow row = reference(call).at({0, 0, 0});
  EXPECT_NEAR(row.o[0], 4 * p, 1e-12);
  EXPECT_NEAR(row.o[1], 1 * (1 - p), 1e-12);
  EXPECT_NEAR(row.lse, std::log(std::exp(first) + std::exp(second)), 1e-12);
}

TEST(AttentionInputs, ShapesThatNoMemoryHasAreRefusedBeforeAnythingIsCounted) {
  const auto refusal = [](const AttentionProblem& problem, const AttentionShape& shape) -> std::string {
    try {
      make_inputs(problem, shape);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "made";
  };
  // The largest sizes that configs may have. 2^20 x 2^24 x 2^12 heads x 2^10 elements are 2^66.
  const AttentionProblem large = problem_of(1024, 4096, 4096);
  EXPECT_EQ(refusal(large, shape_of(1 << 20, 1 << 24, 1)),
            "/shapes/shape: its queries take more than 72057594037927936 bytes, which no memory has");
  EXPECT_EQ(refusal(large, shape_of(1 << 20, 1, 1 << 24)),
            "/shapes/shape: its keys take more than 72057594037927936 bytes, which no memory has");
  AttentionProblem ragged = problem_of(64);
  ragged.q_layout = QLayout::kRagged;
  EXPECT_EQ(refusal(ragged, shape_of(256, 1 << 24, 1)),
            "/shapes/shape/q_lens: 256 sequences are 4294967296 tokens, and offsets count to 2147483647");
  ragged.kv_layout.kind = KvLayoutKind::kRagged;
  EXPECT_EQ(refusal(ragged, shape_of(256, 1, 1 << 24)),
            "/shapes/shape/kv_lens: 256 sequences are 4294967296 tokens, and offsets count to 2147483647");
  AttentionProblem paged = problem_of(64);
  paged.kv_layout = {KvLayoutKind::kPaged, 1};
  EXPECT_EQ(refusal(paged, shape_of(256, 1, 1 << 24)),
            "/shapes/shape: its keys take more than the 2147483647 pages that a table numbers");
}

}  // namespace
}  // namespace kernelwright
