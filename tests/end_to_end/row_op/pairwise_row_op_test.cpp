// Steps over rows, with every pair of values of every two fields of a problem, its schedule and its memory: launched
// twice into poisoned outputs, compared bit for bit and with the fp64 reference. On a GPU the whole list or a shard of
// it (KERNELWRIGHT_PAIRWISE_SHARD, as pairwise_launches_test.cpp has it), on the emulator with every check on.
//
//   KERNELWRIGHT_PAIRWISE_ROWS   on the emulator, how many rows of the list; by default 28
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/random.h"
#include "support/cuda_engine.h"
#include "support/emulated_row_op.h"
#include "support/pairwise.h"
#include "support/watchdog.h"

namespace kernelwright::pairwise_row_op_test {
namespace {

using test::factor;

struct Drawn {
  RowOpProblem problem;
  RowOpSchedule schedule;
  RowOpInputOptions options;
};
/// What becomes of a row.
struct Written {
  DType dtype = DType::kBf16;
  RowScales scales;
};
struct Read {
  RowInput input = RowInput::kPlain;
  RowGate gate;
  int heads = 1;
};

std::vector<test::Factor<Drawn>> factors() {
  constexpr DType bf16 = DType::kBf16, f16 = DType::kF16, f32 = DType::kF32, e4m3 = DType::kE4m3, e5m2 = DType::kE5m2;
  constexpr ScaleKind tensor = ScaleKind::kPerTensor, token = ScaleKind::kPerToken, block = ScaleKind::kPerBlock;
  constexpr RowInput gate_up = RowInput::kGateUp;
  const auto of_schedule = [](std::string name, std::vector<int> values, Auto<int> RowOpSchedule::*field) {
    return factor<Drawn>(std::move(name), values, [field](Drawn& k, int value) {
      if (value > 0) k.schedule.*field = value;
    });
  };
  return {
      factor<Drawn>("in", std::vector{bf16, f16, f32}, [](Drawn& k, DType value) { k.problem.dtype.in = value; }),
      factor<Drawn>("out",
                    std::vector<Written>{{bf16},
                                         {f16},
                                         {f32},
                                         {e4m3},
                                         {e4m3, {.kind = tensor}},
                                         {e4m3, {.kind = token}},
                                         {e4m3, {.kind = token, .power_of_two = true, .least = 0.25}},
                                         {e4m3, {.kind = block}},
                                         {e4m3, {.kind = block, .layout = ScaleLayout::kRows, .power_of_two = true}},
                                         {e5m2, {.kind = token}},
                                         {DType::kMxfp8, {.kind = block}},
                                         {DType::kMxfp4, {.kind = block}},
                                         {DType::kNvfp4, {.kind = block}}},
                    [](Drawn& k, const Written& value) {
                      k.problem.dtype.out = value.dtype;
                      k.problem.scales = value.scales;
                    }),
      factor<Drawn>("input",
                    std::vector<Read>{{},
                                      {RowInput::kAdd},
                                      {gate_up},
                                      {gate_up, {.pairs = 8}},
                                      {gate_up, {.activation = Activation::kGelu, .pairs = 1}},
                                      {gate_up, {.activation = Activation::kGeluTanh}},
                                      {gate_up, {.pairs = 1, .clamped = true}},
                                      {RowInput::kMerge},
                                      {RowInput::kMerge, {}, 4}},
                    [](Drawn& k, const Read& value) {
                      k.problem.input = value.input;
                      k.problem.gate = value.gate;
                      k.problem.heads = value.heads;
                    }),
      factor<Drawn>("norm",
                    std::vector<RowNorm>{{.kind = NormKind::kRms},
                                         {},
                                         {.kind = NormKind::kRms, .weight = false, .eps = 1e-2},
                                         {.kind = NormKind::kRms, .weight_offset = 1}},
                    [](Drawn& k, const RowNorm& value) { k.problem.norm = value; }),
      factor<Drawn>("width", std::vector{1024, 8, 64, 96, 384, 1000, 2880, 4096},
                    [](Drawn& k, int value) { k.problem.width = value; }),
      factor<Drawn>("gaps", std::vector{false, true}, [](Drawn& k, bool value) { k.options.gaps = value; }),
      of_schedule("vector", {0, 8, 16}, &RowOpSchedule::vector),
      of_schedule("threads_per_row", {0, 32, 64, 160, 512}, &RowOpSchedule::threads_per_row),
  };
}

bool is_taken(const Drawn& drawn, Arch arch) {
  try {
    plan_row_op(drawn.problem, drawn.schedule, arch);
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

/// One launch of `most` rows at most.
void launch(Engine& engine, const Drawn& drawn, std::size_t row, unsigned most) {
  Random random(row, 77);
  RowOpInputOptions options = drawn.options;
  options.seed = row;
  const RowOpShape shape{.name = "drawn", .rows = 1 + static_cast<int>(random.below(most))};
  const RowOpConfig config{"drawn", drawn.problem, drawn.schedule, {shape}};
  SCOPED_TRACE(fmt::format("row {}: {}", row, write_config(config)));
  const RowOpCase call = make_row_op_inputs(drawn.problem, shape, options);
  const auto launched = launch_twice(engine.device(0), call, engine.prepare(drawn.problem, drawn.schedule));
  EXPECT_TRUE(launched.repeats) << "two launches differ";
  EXPECT_TRUE(launched.guards_intact) << "memory beside an output was written";
  test::expect_right(call, launched.output);
}

void say(const Pairs& pairs, std::size_t launched) {
  fmt::print("row_op: {} pairs of values in {} rows, {} rows launched here; no kernel takes {} pairs\n",
             pairs.covering.pairs, pairs.rows.size(), launched, pairs.covering.excluded.size());
}

TEST(PairwiseRowOp, OnTheEmulatorIsRightWithoutAReport) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const char* given = std::getenv("KERNELWRIGHT_PAIRWISE_ROWS");
  const Pairs pairs = pairs_for(Arch::kSm90a, given ? 400 : 40);
  EXPECT_GE(pairs.rows.size(), 90u) << "the product of the two longest lists of values bounds the rows from below";
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 5);
  const std::size_t count = std::min<std::size_t>(given ? std::strtoull(given, nullptr, 10) : 28, pairs.rows.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = i * pairs.rows.size() / count;
    launch(engine, pairs.rows[row], row, 5);
    test::expect_no_reports(engine);
  }
  say(pairs, count);
}

TEST(PairwiseRowOp, OnCudaIsRight) {
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
    watchdog.watch([&] { return fmt::format("row_op row {}", row); },
                   [&] { launch(engine, pairs.rows[row], row, 3000); });
  say(pairs, launched);
}

}  // namespace
}  // namespace kernelwright::pairwise_row_op_test
