// Kernels that write a cache, with every pair of values of every two fields of a problem, its schedule and its memory:
// launched twice into poisoned outputs, compared bit for bit and with the fp64 reference. On a GPU the whole list or a
// shard of it (KERNELWRIGHT_PAIRWISE_SHARD, as pairwise_launches_test.cpp has it), on the emulator with every check on.
//
//   KERNELWRIGHT_PAIRWISE_ROWS   on the emulator, how many rows of the list; by default 24
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/verify/random.h"
#include "support/cuda_engine.h"
#include "support/emulated_kv_write.h"
#include "support/pairwise.h"
#include "support/watchdog.h"

namespace kernelwright::pairwise_kv_write_test {
namespace {

using test::factor;

/// A kernel and the memory that it works on.
struct Drawn {
  KvWriteProblem problem;
  KvWriteSchedule schedule;
  KvWriteInputOptions options;
};

/// What becomes of queries: dtype and scales; kNone alone: they are not written.
struct Written {
  bool exists = true;
  DType dtype = DType::kBf16;
  ScaleKind scales = ScaleKind::kNone;
};
struct Cached {
  DType dtype = DType::kBf16;
  ScaleKind k = ScaleKind::kNone, v = ScaleKind::kNone;
};

RopeRotation turns(RopeStyle style, int width, int begin, RopeSections sections = {}, bool interleaved = false) {
  return {.style = style, .width = width, .begin = begin, .sections = sections, .interleaved = interleaved};
}

std::vector<test::Factor<Drawn>> factors() {
  constexpr DType bf16 = DType::kBf16, f16 = DType::kF16, e4m3 = DType::kE4m3, e5m2 = DType::kE5m2;
  constexpr ScaleKind none = ScaleKind::kNone, tensor = ScaleKind::kPerTensor, head = ScaleKind::kPerHead,
                      token = ScaleKind::kPerToken;
  constexpr RopeStyle neox = RopeStyle::kNeox, gptj = RopeStyle::kGptj;
  constexpr NormKind rms = NormKind::kRms, all_heads = NormKind::kRmsAllHeads, l2 = NormKind::kL2;
  const auto of_problem = [](std::string name, auto values, auto KvWriteProblem::*field) {
    return factor<Drawn>(std::move(name), values, [field](Drawn& k, const auto& value) { k.problem.*field = value; });
  };
  const auto of_options = [](std::string name, auto values, auto KvWriteInputOptions::*field) {
    return factor<Drawn>(std::move(name), values, [field](Drawn& k, const auto& value) { k.options.*field = value; });
  };
  const auto of_schedule = [](std::string name, std::vector<int> values, Auto<int> KvWriteSchedule::*field) {
    return factor<Drawn>(std::move(name), values, [field](Drawn& k, int value) {
      if (value > 0) k.schedule.*field = value;
    });
  };
  return {
      factor<Drawn>("in", std::vector{bf16, f16}, [](Drawn& k, DType value) { k.problem.dtype.in = value; }),
      factor<Drawn>("q",
                    std::vector<Written>{{},
                                         {false},
                                         {true, f16},
                                         {true, e4m3},
                                         {true, e4m3, tensor},
                                         {true, e4m3, head},
                                         {true, e4m3, token},
                                         {true, e5m2, tensor},
                                         {true, e5m2, token}},
                    [](Drawn& k, const Written& value) {
                      k.problem.q_out = value.exists;
                      k.problem.dtype.q = value.dtype;
                      k.problem.scales.q = value.scales;
                    }),
      factor<Drawn>("kv",
                    std::vector<Cached>{{bf16},
                                        {f16},
                                        {e4m3},
                                        {e4m3, tensor, tensor},
                                        {e4m3, head, head},
                                        {e4m3, token, token},
                                        {e4m3, token, tensor},
                                        {e4m3, head, token},
                                        {e5m2, tensor, head},
                                        {e5m2, token, token}},
                    [](Drawn& k, const Cached& value) {
                      k.problem.dtype.kv = value.dtype;
                      k.problem.scales.k = value.k, k.problem.scales.v = value.v;
                    }),
      factor<Drawn>("power_of_two", std::vector{0, 1, 2},
                    [](Drawn& k, int value) {
                      k.problem.scales.power_of_two = value > 0;
                      k.problem.scales.ue8m0 = value > 1;
                    }),
      factor<Drawn>("least", std::vector{0.0, 0.75, 1e-4},
                    [](Drawn& k, double value) { k.problem.scales.least = value; }),
      of_problem("v_out", std::vector{true, false}, &KvWriteProblem::v_out),
      of_problem("head_dim",
                 std::vector<HeadDim>{{64, 64}, {128, 128}, {80, 80}, {96, 64}, {192, 128}, {256, 256}, {64, 128}},
                 &KvWriteProblem::head_dim),
      of_problem("heads", std::vector<Heads>{{4, 2}, {3, 3}, {8, 1}, {5, 1}, {6, 2}}, &KvWriteProblem::heads),
      of_problem("kv_layout",
                 std::vector<KvLayout>{{KvLayoutKind::kPaged, 16},
                                       {KvLayoutKind::kPaged, 1},
                                       {KvLayoutKind::kPaged, 3},
                                       {KvLayoutKind::kPadded, 0},
                                       {KvLayoutKind::kRagged, 0}},
                 &KvWriteProblem::kv_layout),
      of_problem("index", std::vector{CacheIndex::kSlots, CacheIndex::kPositions}, &KvWriteProblem::index),
      of_problem("qk_norm",
                 std::vector<QkNorm>{{},
                                     {.kind = rms},
                                     {.kind = rms, .weight_offset = 1, .v = true},
                                     {.kind = rms, .weight = false},
                                     {.kind = rms, .before_rope = false, .eps = 1e-2},
                                     {.kind = all_heads},
                                     {.kind = all_heads, .weight = false, .v = true},
                                     {.kind = l2, .weight_offset = 1},
                                     {.kind = l2, .weight = false, .before_rope = false, .v = true}},
                 &KvWriteProblem::qk_norm),
      of_problem("rope",
                 std::vector<RopeRotation>{{},
                                           turns(neox, 64, 0),
                                           turns(neox, 16, 8),
                                           turns(neox, 32, 32),
                                           turns(gptj, 64, 0),
                                           turns(gptj, 8, 16),
                                           turns(neox, 48, 0, {8, 8, 8}),
                                           turns(neox, 64, 0, {12, 10, 10}, true),
                                           turns(gptj, 32, 0, {6, 5, 5})},
                 &KvWriteProblem::rope),
      of_problem("v_layout", std::vector{VLayout::kRows, VLayout::kColumns}, &KvWriteProblem::v_layout),
      of_problem("hadamard", std::vector{false, true}, &KvWriteProblem::hadamard),
      of_problem("hadamard_signs", std::vector{false, true}, &KvWriteProblem::hadamard_signs),
      of_options("order",
                 std::vector{CacheOrder::kNhd, CacheOrder::kHnd, CacheOrder::kPackedTokens, CacheOrder::kPackedHeads},
                 &KvWriteInputOptions::order),
      of_options("packed_rows", std::vector{false, true}, &KvWriteInputOptions::packed_rows),
      of_options("position_bytes", std::vector{4, 8}, &KvWriteInputOptions::position_bytes),
      of_schedule("num_warps", {0, 1, 3, 8}, &KvWriteSchedule::num_warps),
      of_schedule("heads_per_lane", {0, 1, 2, 8}, &KvWriteSchedule::heads_per_lane),
  };
}

bool is_taken(const Drawn& drawn, Arch arch) {
  const KvLayoutKind layout = drawn.problem.kv_layout.kind;
  const bool by_head = drawn.options.order == CacheOrder::kHnd || drawn.options.order == CacheOrder::kPackedHeads;
  if (layout == KvLayoutKind::kRagged && by_head) return false;  // a ragged cache has no pages
  const bool packed =
      drawn.options.order == CacheOrder::kPackedTokens || drawn.options.order == CacheOrder::kPackedHeads;
  if (packed && drawn.problem.v_layout == VLayout::kColumns) return false;  // values lie apart from keys
  if (packed && drawn.problem.head_dim.qk != drawn.problem.head_dim.v) return false;
  if (drawn.options.packed_rows && !drawn.problem.q_out) return false;
  try {
    plan_kv_write(drawn.problem, drawn.schedule, arch);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

struct Pairs {
  std::vector<Drawn> rows;
  test::Covering covering;
};
Pairs pairs_for(Arch arch, int attempts) {
  const auto all = factors();
  Pairs pairs;
  pairs.covering = test::cover_pairs<Drawn>(
      all, [&](const Drawn& drawn) { return is_taken(drawn, arch); }, 3, attempts);
  for (const test::PairwiseRow& row : pairs.covering.rows) pairs.rows.push_back(config_of(all, row));
  return pairs;
}

/// One launch of `most` tokens at most, of which some are skipped and some have no place.
void launch(Engine& engine, const Drawn& drawn, std::size_t row, unsigned most) {
  Random random(row, 77);
  KvWriteInputOptions options = drawn.options;
  options.seed = row, options.wrong_places = true;
  const KvWriteShape shape{.name = "drawn", .tokens = 1 + static_cast<int>(random.below(most)), .check = true};
  const KvWriteConfig config{"drawn", drawn.problem, drawn.schedule, {shape}};
  SCOPED_TRACE(fmt::format("row {}: {}", row, write_config(config)));
  const KvWriteCase call = make_kv_write_inputs(drawn.problem, shape, options);
  const auto launched = launch_twice(engine.device(0), call, engine.prepare(drawn.problem, drawn.schedule));
  EXPECT_TRUE(launched.repeats) << "two launches differ";
  EXPECT_TRUE(launched.guards_intact) << "memory beside an output was written";
  test::expect_right(call, launched.output);
}

void say(const Pairs& pairs, std::size_t launched) {
  fmt::print("kv_write: {} pairs of values in {} rows, {} rows launched here; no kernel takes {} pairs\n",
             pairs.covering.pairs, pairs.rows.size(), launched, pairs.covering.excluded.size());
}

TEST(PairwiseKvWrite, OnTheEmulatorIsRightWithoutAReport) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  if (test::tests_run_on_cuda()) GTEST_SKIP() << "OnCudaIsRight launches the whole list on the GPU";
  const char* given = std::getenv("KERNELWRIGHT_PAIRWISE_ROWS");
  const Pairs pairs = pairs_for(Arch::kSm90a, given ? 400 : 20);
  EXPECT_GE(pairs.rows.size(), 90u) << "the product of the two longest lists of values bounds the rows from below";
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 5);
  const std::size_t count = std::min<std::size_t>(given ? std::strtoull(given, nullptr, 10) : 24, pairs.rows.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = i * pairs.rows.size() / count;
    launch(engine, pairs.rows[row], row, 40);
    KvWriteCase wrong;
    wrong.wrong_places = true;
    test::expect_no_reports_but_of_places(engine, wrong);
  }
  say(pairs, count);
}

TEST(PairwiseKvWrite, OnCudaIsRight) {
  if (!test::CudaEngine::get().engine) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  Engine& engine = *test::CudaEngine::get().engine;
  const Pairs pairs = pairs_for(*engine.device(0).info().arch, 400);
  std::size_t first = 0, step = 1, launched = 0;
  if (const char* shard = std::getenv("KERNELWRIGHT_PAIRWISE_SHARD"))
    ASSERT_TRUE(std::sscanf(shard, "%zu/%zu", &first, &step) == 2 && first < step) << "i/n with i < n";
  PrepareOptions background;
  background.background = true;
  for (std::size_t row = first; row < pairs.rows.size(); row += step)
    engine.prepare(pairs.rows[row].problem, pairs.rows[row].schedule, background);
  test::Watchdog watchdog(std::chrono::seconds(60));
  for (std::size_t row = first; row < pairs.rows.size(); row += step, ++launched)
    watchdog.watch([&] { return fmt::format("kv_write row {}", row); },
                   [&] { launch(engine, pairs.rows[row], row, 3000); });
  say(pairs, launched);
}

}  // namespace
}  // namespace kernelwright::pairwise_kv_write_test
