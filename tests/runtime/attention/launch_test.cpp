/// What a launch passes to the device. Refusals are in arguments_test.cpp.
#include <cmath>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/problem/arch.h"
#include "runtime/attention/launch_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::SizeIs;

using contract::AttentionParams;
using contract::CombineParams;

TEST_F(LaunchTest, ContiguousStridesFollowFromTheShape) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {192, 128};
  const AttentionParams params = launched(problem, some_tensors());  // batch 2, q_len 100, kv_len 300, heads 8 and 2
  expect_strides(params.q_strides, 100 * 8 * 192, 8 * 192, 192);
  expect_strides(params.k_strides, 300 * 2 * 192, 2 * 192, 192);
  expect_strides(params.v_strides, 300 * 2 * 128, 2 * 128, 128);
  expect_strides(params.o_strides, 100 * 8 * 128, 8 * 128, 128);
  EXPECT_EQ(params.batch, 2);
  EXPECT_EQ(params.q_len, 100);
  EXPECT_EQ(params.kv_len, 300);
  EXPECT_EQ(params.q_heads, 8);
  EXPECT_EQ(params.kv_heads, 2);
  EXPECT_EQ(params.q, reinterpret_cast<const void*>(0x10000));
  EXPECT_EQ(params.o, reinterpret_cast<void*>(0x40000));
  EXPECT_FLOAT_EQ(params.scale, 1 / std::sqrt(192.f));
  EXPECT_EQ(params.num_splits, 1);
  EXPECT_EQ(params.partial_o, nullptr);
}

TEST_F(LaunchTest, GivenStridesArePassedOn) {
  AttentionTensors tensors = some_tensors();
  tensors.q_strides = {.batch = 1 << 20, .token = 128, .head = 128 * 200};  // [batch, heads, len, head_dim]
  tensors.k_strides = {.batch = 0, .token = 256, .head = 128};              // all sequences share one sequence's keys
  const AttentionParams params = launched(prefill_problem(), tensors);
  expect_strides(params.q_strides, 1 << 20, 128, 128 * 200);
  expect_strides(params.k_strides, 0, 256, 128);
}

TEST_F(LaunchTest, RaggedAndPagedOperandsHaveTheirOwnStrides) {
  AttentionProblem problem = prefill_problem();
  problem.q_layout = QLayout::kRagged;
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  AttentionTensors tensors = some_tensors();
  tensors.q_tokens = 130;
  tensors.q_offsets = 0x50000;
  tensors.kv_lengths = 0x60000;
  tensors.page_table = 0x70000;
  tensors.page_table_stride = 5;
  const AttentionParams params = launched(problem, tensors);
  expect_strides(params.q_strides, 0, 8 * 128, 128);
  expect_strides(params.k_strides, 64 * 2 * 128, 2 * 128, 128);
  EXPECT_EQ(params.page_table, reinterpret_cast<const std::int32_t*>(0x70000));
  EXPECT_EQ(params.page_table_stride, 5);
}

// Kernels with starts read them where ragged ones read offsets: contract/attention_params.h.
TEST_F(LaunchTest, StartsArePassedWhereTheProblemHasThem) {
  AttentionProblem problem = prefill_problem();
  problem.kv_starts = true;
  EXPECT_EQ(launched(problem, some_tensors()).kv_offsets, nullptr);
  AttentionTensors tensors = some_tensors();
  tensors.kv_starts = 0x60000;
  EXPECT_EQ(launched(problem, tensors).kv_offsets, reinterpret_cast<const std::int32_t*>(0x60000));
}

TEST_F(LaunchTest, RunTimeNumbersOverrideTheProblems) {
  AttentionProblem problem = prefill_problem();
  problem.mask = {.kind = MaskKind::kSlidingWindow, .window = {.left = 256, .right = 0}};
  problem.score_mod = {.kind = ScoreModKind::kSoftcap, .cap = 50};
  AttentionParams params = launched(problem, some_tensors());
  EXPECT_EQ(params.window_left, 256);
  EXPECT_EQ(params.softcap, 50);
  AttentionTensors tensors = some_tensors();
  tensors.window = Window{.left = 7, .right = -1};
  tensors.softcap = 30;
  tensors.scale = -2;
  params = launched(problem, tensors);
  EXPECT_EQ(params.window_left, 7);
  EXPECT_EQ(params.window_right, -1);
  EXPECT_EQ(params.softcap, 30);
  EXPECT_EQ(params.scale, -2);
}

TEST_F(LaunchTest, SplitKeysAreMergedByASecondLaunchThatMayStartEarly) {
  const AttentionKernel kernel = engine.prepare(decode_problem(), four_parts());
  AttentionTensors tensors = decode_tensors();
  tensors.lse = 0x90000;
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
  const std::uint64_t rows = 2 * 8, o_bytes = 4 * rows * 128 * 4, lse_bytes = 4 * rows * 4;
  EXPECT_GE(tensors.workspace_bytes, o_bytes + lse_bytes);
  kernel.launch(tensors, some_stream());
  const auto launches = device().launches();
  ASSERT_THAT(launches, SizeIs(2));
  EXPECT_FALSE(launches[0].config.pdl);
  EXPECT_EQ(launches[1].config.pdl, arch_info(kernel.plan().main.arch).pdl);
  const auto main = launches[0].as<AttentionParams>();
  const auto combine = launches[1].as<CombineParams>();
  EXPECT_EQ(main.num_splits, 4);
  EXPECT_EQ(main.partial_o, reinterpret_cast<float*>(0x80000));
  EXPECT_GE(reinterpret_cast<std::uint64_t>(main.partial_lse), 0x80000 + o_bytes);
  EXPECT_LE(reinterpret_cast<std::uint64_t>(main.partial_lse), 0x80000 + tensors.workspace_bytes - lse_bytes);
  EXPECT_EQ(combine.partial_o, main.partial_o);
  EXPECT_EQ(combine.partial_lse, main.partial_lse);
  EXPECT_EQ(combine.num_splits, 4);
  EXPECT_EQ(combine.rows, static_cast<int>(rows));
  EXPECT_EQ(combine.q_heads, 8);
  EXPECT_EQ(combine.q_len, 1);
  EXPECT_EQ(combine.lse, reinterpret_cast<float*>(0x90000));
  expect_strides(combine.o_strides, 8 * 128, 8 * 128, 128);
}

TEST_F(LaunchTest, PdlIsTheFirstKernelsAndTheMergingOneHasItAnyway) {
  const AttentionKernel kernel = engine.prepare(decode_problem(), four_parts());
  AttentionTensors tensors = decode_tensors();
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
  for (const bool pdl : {true, false}) {
    tensors.pdl = pdl;
    device().forget_launches();
    kernel.launch(tensors, some_stream());
    const auto launches = device().launches();
    ASSERT_THAT(launches, SizeIs(2));
    EXPECT_EQ(launches[0].config.pdl, pdl);
    EXPECT_TRUE(launches[1].config.pdl);
  }
}

TEST_F(LaunchTest, PdlOfAPrefillIsPassedOn) {
  AttentionTensors tensors = some_tensors();
  for (const bool pdl : {true, false}) {
    tensors.pdl = pdl;
    launched(prefill_problem(), tensors);
    EXPECT_EQ(device().launches().at(0).config.pdl, pdl);
  }
}

TEST_F(LaunchTest, PdlIsRefusedWhereTheArchitectureHasNone) {
  DeviceInfo& info = device().mutable_info();
  info.compute_major = 8;
  info.arch = Arch::kSm80;
  AttentionTensors tensors = some_tensors();
  tensors.pdl = true;
  EXPECT_EQ(refusal(prefill_problem(), tensors),
            "/tensors/pdl: is true, and sm_80 has no programmatic dependent launch, which begins with sm_90; leave it "
            "false");
  tensors.pdl = false;
  launched(prefill_problem(), tensors);
}

TEST_F(LaunchTest, TheLastCtaMergesWithCountersBehindTheParts) {
  const AttentionKernel kernel = engine.prepare(decode_problem(), four_parts(Merge::kInKernel));
  EXPECT_EQ(kernel.plan().combine, std::nullopt);
  AttentionTensors tensors = decode_tensors();
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
  kernel.launch(tensors, some_stream());
  const auto launches = device().launches();
  ASSERT_THAT(launches, SizeIs(1));
  const auto main = launches[0].as<AttentionParams>();
  EXPECT_EQ(main.num_splits, 4);
  const auto counters = reinterpret_cast<std::uint64_t>(main.merge_counters);
  const std::uint64_t parts_end = reinterpret_cast<std::uint64_t>(main.partial_lse) + 4 * 2 * 8 * sizeof(float);
  const std::uint64_t items = launches[0].config.grid[0] / 4;
  EXPECT_GE(counters, parts_end);
  EXPECT_EQ(counters % 8, 0u);
  EXPECT_EQ(counters + items * 8, 0x80000 + tensors.workspace_bytes);
}

TEST_F(LaunchTest, OnePartHasNoCounters) {
  AttentionSchedule schedule = four_parts(Merge::kInKernel);
  schedule.splits = 1;
  const AttentionKernel kernel = engine.prepare(decode_problem(), schedule);
  EXPECT_EQ(kernel.workspace_bytes(kernel.extent(decode_tensors())), 0u);
  kernel.launch(decode_tensors(), some_stream());
  EXPECT_EQ(device().launches().back().as<AttentionParams>().merge_counters, nullptr);
}

TEST_F(LaunchTest, ARefusedSecondLaunchIsReported) {
  const AttentionKernel kernel = engine.prepare(decode_problem(), four_parts());
  AttentionTensors tensors = decode_tensors();
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
  device().refuse_launch = 1;
  EXPECT_THROW(kernel.launch(tensors, some_stream()), DeviceError);
}

TEST_F(LaunchTest, NoQueriesQueueNothingAndNeedNoTensors) {
  const AttentionKernel kernel = engine.prepare(prefill_problem());
  AttentionTensors none;
  none.batch = 0;
  kernel.launch(none, some_stream());
  none.batch = 3;
  none.q_len = 0;
  kernel.launch(none, some_stream());
  EXPECT_EQ(kernel.workspace_bytes(kernel.extent(none)), 0u);
  EXPECT_THAT(device().launches(), SizeIs(0));
}

TEST_F(LaunchTest, NoKeysAreLaunchedWithoutKeysAndValues) {
  AttentionTensors tensors = some_tensors();
  tensors.kv_len = 0;
  tensors.k = tensors.v = 0;
  EXPECT_EQ(launched(prefill_problem(), tensors).kv_len, 0);
}

TEST_F(LaunchTest, TensorsOfMasksAndBiasesAreContiguousAsTheProblemShapesThemOrHaveStrides) {
  AttentionTensors tensors = open_tensors();
  AttentionParams params = launched(open_problem(), tensors);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.mask), tensors.mask);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.bias), tensors.bias);
  expect_strides(params.mask_strides, 300 * 100, 300, 0);
  expect_strides(params.bias_strides, 0, 300, 300 * 100);
  tensors.mask_strides = {64000, 0, 0};
  tensors.bias_strides = {0, 320, 300};
  params = launched(open_problem(), tensors);
  expect_strides(params.mask_strides, 64000, 0, 0);
  expect_strides(params.bias_strides, 0, 320, 300);
}

}  // namespace
}  // namespace kernelwright::test
