// gemm_sm100 on the emulator, with every check on. Each case must match the fp64 reference on random data, and to the
// bit on exact data. It must cause no report and write nothing beside d. Machines that differ in everything on which a
// kernel must not depend must give the same bits. This is its only run: there is no such GPU here. Needs NVRTC.
#include <gtest/gtest.h>
#include <ostream>

#include <algorithm>

#include "support/emulated_gemm.h"

namespace kernelwright::blackwell_gemm_emulator_test {
namespace {

using test::gemm_problem;

struct Case {
  const char* name;
  GemmProblem problem;
  int m;
  GemmSchedule schedule;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

template <class Thing, class Change>
Thing with(Thing thing, Change change) {
  change(thing);
  return thing;
}
GemmProblem laid_out(GemmProblem problem, OperandLayout layout) {
  problem.layout = layout;
  return problem;
}
GemmProblem with_c(GemmProblem problem, DType c) {
  problem.dtype.c = c;
  return problem;
}

GemmSchedule tile(int block_n, int cta_group = 1, ClusterShape cluster = {0, 0}) {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = block_n;
  schedule.cta_group = cta_group;
  schedule.cluster = cluster.m > 0 ? cluster : ClusterShape{cta_group, 1};
  schedule.scheduler = Scheduler::kPersistent;
  schedule.stages = 4;
  return schedule;
}
GemmSchedule grouped(GemmSchedule schedule, int k_group) {
  schedule.k_group = k_group;
  schedule.stages = 2 * k_group;
  return schedule;
}
GemmSchedule queued(GemmSchedule schedule, int depth = 2) {
  schedule.scheduler = Scheduler::kQueued;
  schedule.clc_depth = depth;
  return schedule;
}
GemmSchedule swapped(GemmSchedule schedule) {
  schedule.swap_ab = true;
  return schedule;
}
GemmSchedule split(GemmSchedule schedule, int parts) {
  schedule.split_k = parts;
  return schedule;
}

// Ragged in every direction: rows that end inside a tile, columns inside a slab, k inside a slab.
constexpr int kRows = 203, kColumns = 152, kDepth = 200;

GemmProblem bf16(const char* epilogue = "acc") {
  return gemm_problem(DType::kBf16, DType::kBf16, kColumns, kDepth, epilogue);
}
GemmProblem fp8(ScaleKind scales, DType result = DType::kBf16) {
  return gemm_problem(DType::kE4m3, result, kColumns + 8, kDepth + 8 + 128, "acc", scales);
}
GemmProblem scaled(DType operands, int k = 800, DType result = DType::kBf16) {
  return gemm_problem(operands, result, kColumns, k, "acc", ScaleKind::kPerBlock);
}

std::vector<Case> cases() {
  const GemmSchedule small = tile(64), pair = tile(128, 2);
  return {
      {"bf16", bf16(), kRows, small},
      {"f16", gemm_problem(DType::kF16, DType::kF16, kColumns, kDepth), kRows, small},
      {"tf32", gemm_problem(DType::kTf32, DType::kF32, kColumns, 100), kRows, small},
      {"as_planned", bf16(), kRows, {}},
      {"one_row", bf16(), 1, small},
      {"wide", bf16(), kRows, tile(256)},
      {"odd_columns", bf16(), kRows, tile(112)},
      {"nn", laid_out(bf16(), OperandLayout::kNn), kRows, small},
      {"tn", laid_out(bf16(), OperandLayout::kTn), kRows + 5, small},
      {"tt", laid_out(bf16(), OperandLayout::kTt), kRows + 5, small},
      {"tn_pair_cluster", laid_out(bf16(), OperandLayout::kTn), 520, tile(128, 2, {4, 2})},
      {"tn_swapped", laid_out(bf16("acc + bias"), OperandLayout::kTn), 24, swapped(small)},
      {"k_groups_of_2", bf16(), kRows, grouped(small, 2)},
      {"k_groups_of_4", bf16(), kRows, grouped(tile(16), 4)},
      {"one_accumulator", bf16(), kRows, with(small, [](auto& s) { s.accumulator_stages = 1; })},
      {"one_store_stage", bf16(), kRows, with(small, [](auto& s) { s.store_stages = 1; })},
      {"along_n", bf16(), kRows, with(small, [](auto& s) { s.raster = Raster::kAlongN; })},
      {"pair", bf16(), 300, pair},
      {"pair_narrow", bf16(), 300, tile(32, 2)},
      {"pair_queued", bf16(), 300, queued(pair)},
      {"cluster_2x1", bf16(), 300, tile(64, 1, {2, 1})},
      {"cluster_1x2", bf16(), kRows, tile(64, 1, {1, 2})},
      {"cluster_2x2_queued", bf16(), 300, queued(tile(64, 1, {2, 2}), 1)},
      {"cluster_4x1", bf16(), 517, tile(64, 1, {4, 1})},
      {"cluster_1x4", bf16(), kRows, tile(32, 1, {1, 4})},
      {"cluster_4x2_queued", bf16(), 517, queued(tile(64, 2, {4, 2}), 3)},
      {"cluster_2x4", bf16(), 300, tile(32, 2, {2, 4})},
      {"queued", bf16(), kRows, queued(tile(16))},
      {"swap_ab", bf16(), 19, swapped(tile(32))},
      {"swap_ab_pair", bf16(), 45, swapped(tile(32, 2))},
      {"swap_ab_f32", gemm_problem(DType::kF16, DType::kF32, kColumns, kDepth), 19, swapped(tile(16))},
      {"swap_ab_fp8", fp8(ScaleKind::kPerToken, DType::kE4m3), 19, swapped(tile(48))},
      {"split_2", gemm_problem(DType::kBf16, DType::kBf16, kColumns, 520), 135, split(small, 2)},
      {"split_8", gemm_problem(DType::kBf16, DType::kF32, kColumns, 264), 70, split(small, 8)},
      {"split_swapped", gemm_problem(DType::kBf16, DType::kBf16, kColumns, 520), 19, split(swapped(tile(16)), 4)},
      {"split_pair_cluster", gemm_problem(DType::kBf16, DType::kBf16, kColumns, 520, "silu(acc + bias)"), 300,
       split(tile(64, 2, {2, 2}), 2)},
      {"bias", bf16("acc + bias"), kRows, small},
      {"gelu", bf16("gelu(acc + bias)"), kRows, small},
      {"relu_alpha", with_c(bf16("relu(alpha * acc + bias)"), DType::kF32), kRows, small},
      {"residual", bf16("acc + c"), kRows, small},
      {"beta", with_c(bf16("alpha * acc + beta * c"), DType::kF32), kRows, pair},
      {"residual_swapped", bf16("acc + bias + c"), 19, swapped(tile(32))},
      {"fp8", fp8(ScaleKind::kNone), kRows, small},
      {"fp8_tensor", with(fp8(ScaleKind::kPerTensor), [](auto& p) { p.dtype.b = DType::kE5m2; }), kRows, pair},
      {"fp8_token", fp8(ScaleKind::kPerToken), kRows, small},
      {"fp8_result", fp8(ScaleKind::kPerToken, DType::kE4m3), kRows, small},
      {"fp8_block", fp8(ScaleKind::kPerBlock), kRows, small},
      {"fp8_block_pair", fp8(ScaleKind::kPerBlock, DType::kF32), 300, queued(pair)},
      {"fp8_block_swapped", fp8(ScaleKind::kPerBlock), 19, swapped(tile(32))},
      {"fp8_block_narrow", fp8(ScaleKind::kPerBlock), kRows,
       with(tile(16), [](auto& s) { s.accumulator_stages = 32; })},
      {"fp8_block_split", fp8(ScaleKind::kPerBlock), 135, split(small, 2)},
      {"mxfp8", scaled(DType::kMxfp8, 416), kRows, small},
      {"mxfp8_pair", scaled(DType::kMxfp8, 416), 300, queued(tile(192, 2))},
      {"mxfp8_wide", scaled(DType::kMxfp8, 416), kRows, with(tile(256), [](auto& s) { s.stages = 3; })},
      {"mxfp8_gathered", scaled(DType::kMxfp8, 416), kRows, grouped(tile(16), 2)},
      {"mxfp8_swapped", scaled(DType::kMxfp8, 416), 19, swapped(tile(32))},
      {"mxfp4", scaled(DType::kMxfp4), kRows, tile(128)},
      {"mxfp4_cluster", scaled(DType::kMxfp4, 800, DType::kF32), 300, grouped(tile(64, 2, {2, 2}), 2)},
      {"mxfp4_gathered", scaled(DType::kMxfp4), kRows, tile(32, 1, {2, 1})},
      {"nvfp4", scaled(DType::kNvfp4), kRows, tile(64)},
      {"nvfp4_pair", scaled(DType::kNvfp4), 300, queued(tile(128, 2))},
      {"nvfp4_wide_cluster", scaled(DType::kNvfp4), 517, tile(256, 2, {4, 1})},
      {"nvfp4_gathered", scaled(DType::kNvfp4), 45, swapped(grouped(tile(16), 4))},
      {"nvfp4_split", scaled(DType::kNvfp4, 1056), 135, split(tile(64), 2)},
  };
}

class BlackwellGemmOnTheEmulator : public test::OnTheEmulator<Case> {};

/// Machines that differ in how many CTAs run at a time, and in when copies land and warps run.
struct Machine {
  int num_sms;
  emulator::Completion completion;
  std::uint64_t seed;
};
constexpr Machine kMachines[] = {{16, emulator::Completion::kLazy, 0},
                                 {8, emulator::Completion::kRandom, 2},
                                 {40, emulator::Completion::kRandom, 77},
                                 {9, emulator::Completion::kEager, 5}};

TEST_P(BlackwellGemmOnTheEmulator, IsRightWhateverTheMachine) {
  const Case& test = GetParam();
  const GemmCase call = make_gemm_inputs(test.problem, {"random", test.m, true}, {.seed = 3, .padding = 5});
  GemmOutput first;
  for (const auto& [num_sms, completion, seed] : kMachines) {
    Engine engine = test::make_checking_engine(num_sms, completion, seed, Arch::kSm100a);
    const GemmOutput output = test::run_checked(engine, call, test.schedule);
    if (first.d.empty())
      test::expect_right(call, first = output);
    else
      EXPECT_EQ(output, first) << "other bits with " << num_sms << " SMs, seed " << seed;
  }
}

TEST_P(BlackwellGemmOnTheEmulator, IsExactWhereTheInputsAre) {
  const Case& test = GetParam();
  Engine engine = test::make_checking_engine(11, emulator::Completion::kEager, 1, Arch::kSm100a);
  const GemmCase call = make_gemm_inputs(test.problem, {"exact", test.m, true}, {.seed = 4, .exact = true});
  test::expect_right(call, test::run_checked(engine, call, test.schedule));
}

INSTANTIATE_TEST_SUITE_P(Cases, BlackwellGemmOnTheEmulator, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

/// batch_invariant relies on this: the order of a row's sums depends on k only, so that kernels for other row counts,
/// with other tiles, give the same bits.
TEST(BlackwellGemmInvariance, ARowIsTheSameWhateverTheTileAndTheBatch) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  Engine engine = test::make_checking_engine(148, emulator::Completion::kRandom, 3, Arch::kSm100a);
  GemmProblem problem = gemm_problem(DType::kBf16, DType::kF32, 136, 648);
  problem.batch_invariant = true;
  const struct {
    int m;
    GemmSchedule schedule;
  } calls[] = {{260, tile(128, 2)},     {260, tile(256, 2, {2, 2})}, {129, tile(64)}, {33, grouped(tile(32), 4)},
               {33, swapped(tile(64))}, {16, swapped(tile(16))},     {1, {}}};
  GemmOutput whole;
  for (const auto& [m, schedule] : calls) {  // a row of the input does not depend on how many there are
    const GemmCase call = make_gemm_inputs(problem, {"rows", m, true}, {.seed = 6});
    const GemmOutput output = test::run_checked(engine, call, schedule);
    if (whole.d.empty()) whole = output;
    EXPECT_EQ(output.d.size(), static_cast<std::size_t>(m) * 136 * 4);
    EXPECT_TRUE(std::equal(output.d.begin(), output.d.end(), whole.d.begin())) << m << " rows";
  }
}

class BlackwellGemmWithoutDepth : public test::OnTheEmulator<Case> {};

TEST_P(BlackwellGemmWithoutDepth, LeavesWhatTheEpilogueMakesOfZeros) {
  const Case& test = GetParam();
  Engine engine = test::make_checking_engine(5, emulator::Completion::kRandom, 1, Arch::kSm100a);
  const GemmCase call = make_gemm_inputs(test.problem, {"flat", test.m, true}, {.seed = 5});
  test::expect_right(call, test::run_checked(engine, call, test.schedule));
}

std::vector<Case> flat_cases() {
  const auto flat = [](DType operands, ScaleKind scales) {
    return gemm_problem(operands, DType::kBf16, kColumns, 0, "acc + bias", scales);
  };
  return {{"bf16", flat(DType::kBf16, ScaleKind::kNone), 131, tile(64)},
          {"pair", flat(DType::kBf16, ScaleKind::kNone), 131, queued(tile(64, 2))},
          {"parts", flat(DType::kBf16, ScaleKind::kNone), 131, split(tile(64), 2)},
          {"fp8_block", flat(DType::kE4m3, ScaleKind::kPerBlock), 131, tile(64)},
          {"nvfp4", flat(DType::kNvfp4, ScaleKind::kPerBlock), 131, tile(64)},
          {"nvfp4_gathered", flat(DType::kNvfp4, ScaleKind::kPerBlock), 131, tile(16)}};
}

INSTANTIATE_TEST_SUITE_P(Cases, BlackwellGemmWithoutDepth, testing::ValuesIn(flat_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::blackwell_gemm_emulator_test
