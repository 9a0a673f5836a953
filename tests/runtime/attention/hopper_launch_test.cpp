/// What a launch of attention_sm90 passes to the device. Also arguments that only a kernel with tensor maps refuses.
#include <vector>

#include "contract/attention_decode_sm90.h"
#include "contract/attention_sm90.h"
#include "kernelwright/runtime/engine/notes.h"
#include "runtime/attention/hopper_calls.h"
#include "runtime/count_allocations.h"

namespace kernelwright::test::hopper_launch_test {

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using contract::HopperAttentionParams;
using detail::AttentionTensorMaps;
using hopper_calls::give_rotary_parts;
using hopper_calls::hopper;
using hopper_calls::hopper_decode;
using hopper_calls::maps_of;
using hopper_calls::rotary_problem;
using hopper_calls::rotary_schedule;
using hopper_calls::short_queries;

struct HopperLaunchTest : EngineTest {
  HopperLaunchTest() : engine(options()) {
    DeviceInfo& info = device().mutable_info();
    info.compute_major = 9;
    info.arch = Arch::kSm90a;
  }
  std::vector<std::string> refused(const AttentionProblem& problem, const AttentionTensors& tensors) {
    std::vector<std::string> lines;
    try {
      engine.prepare(problem, hopper()).launch(tensors, some_stream());
    } catch (const ConfigError& error) {
      for (const Violation& violation : error.violations()) lines.push_back(violation.text());
    }
    EXPECT_THAT(device().launches(), SizeIs(lines.empty() ? 1 : 0));
    device().forget_launches();
    return lines;
  }
  Engine engine;
};

TEST_F(HopperLaunchTest, DecodeTakesTheMapsOfItsKeysAndMergesInOneLaunch) {
  AttentionTensors tensors = some_tensors();
  tensors.q_len = 4;
  const AttentionKernel kernel = engine.prepare(short_queries(), hopper_decode());
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
  EXPECT_GT(tensors.workspace_bytes, 0u);
  kernel.launch(tensors, some_stream());
  ASSERT_THAT(device().launches(), SizeIs(1));
  const FakeLaunch launch = device().launches()[0];
  EXPECT_TRUE(launch.kernel->entry.starts_with("attention_decode_sm90_"));
  const auto params = launch.as<contract::HopperDecodeParams>();
  const AttentionTensorMaps expected = maps_of(
      short_queries(), [](AttentionTensors& t) { t.q_len = 4; }, hopper_decode());
  EXPECT_EQ(device().tensor_map(&params.k), expected.k);
  EXPECT_EQ(device().tensor_map(&params.v), expected.v);
  EXPECT_EQ(params.attention.num_splits, 3);
  EXPECT_NE(params.attention.merge_counters, nullptr);
  EXPECT_EQ(launch.config.block, 128u);
  EXPECT_EQ(launch.config.grid[0], 2u * 2 * 3) << "sequences, KV heads, parts: one tile of rows";
}

TEST_F(HopperLaunchTest, PassesMapsAndNumbersByValue) {
  const AttentionKernel kernel = engine.prepare(prefill_problem(), hopper());
  EXPECT_EQ(kernel.workspace_bytes(kernel.extent(some_tensors())), 8u) << "a queue, which a launch may do without";
  kernel.launch(some_tensors(), some_stream());
  ASSERT_THAT(device().launches(), SizeIs(1));
  const FakeLaunch launch = device().launches()[0];
  EXPECT_TRUE(launch.kernel->entry.starts_with("attention_sm90_"));
  const auto params = launch.as<HopperAttentionParams>();
  const AttentionTensorMaps expected = maps_of(prefill_problem());
  EXPECT_EQ(device().tensor_map(&params.q), expected.q);
  EXPECT_EQ(device().tensor_map(&params.k), expected.k);
  EXPECT_EQ(device().tensor_map(&params.v), expected.v);
  EXPECT_EQ(params.num_items, 2 * 8);
  EXPECT_EQ(params.m_chunk, 1);
  EXPECT_EQ(params.queue, nullptr);
  EXPECT_EQ(params.attention.num_m_blocks, 1);
  EXPECT_EQ(params.attention.kv_len, 300);
  EXPECT_EQ(params.attention.o, reinterpret_cast<void*>(0x40000));
  EXPECT_EQ(launch.config.grid[0], 16u);
  EXPECT_EQ(launch.config.block, 384u);
  EXPECT_EQ(launch.config.shared_bytes, launch.kernel->max_shared_bytes);
}

TEST_F(HopperLaunchTest, PassesTheMapsOfARotaryPartBehindTheOthers) {
  const AttentionKernel kernel = engine.prepare(rotary_problem(), rotary_schedule());
  AttentionTensors tensors = some_tensors();
  EXPECT_THROW(kernel.launch(tensors, some_stream()), ConfigError) << "q_rope and k_rope are missing";
  give_rotary_parts(tensors);
  kernel.launch(tensors, some_stream());
  ASSERT_THAT(device().launches(), SizeIs(1));
  const auto params = device().launches()[0].as<contract::HopperRotaryParams>();
  const AttentionTensorMaps expected = maps_of(rotary_problem(), give_rotary_parts, rotary_schedule());
  EXPECT_EQ(device().tensor_map(&params.q), expected.q);
  EXPECT_EQ(device().tensor_map(&params.v), expected.v);
  EXPECT_EQ(device().tensor_map(&params.q_rope), expected.q_rope);
  EXPECT_EQ(device().tensor_map(&params.k_rope), expected.k_rope);
  EXPECT_EQ(params.rope_head_step, 0);
  EXPECT_EQ(params.num_items, 2 * 8);
  tensors.k_rope_strides = {};
  kernel.launch(tensors, some_stream());
  EXPECT_EQ(device().launches()[1].as<contract::HopperRotaryParams>().rope_head_step, 1) << "one for each head";
}

TEST_F(HopperLaunchTest, StartsBeforeTheKernelAheadHasEndedOnlyIfAsked) {
  AttentionSchedule decode;
  decode.family = Family::kHopper;
  decode.token_gen = true;
  AttentionProblem one_token = prefill_problem();
  one_token.max_q_len = 1;
  AttentionTensors query = some_tensors();
  query.q_len = 1;
  query.kv_len = 64;
  for (const bool pdl : {true, false}) {
    AttentionTensors tensors = some_tensors();
    tensors.pdl = query.pdl = pdl;
    device().forget_launches();
    engine.prepare(prefill_problem(), hopper()).launch(tensors, some_stream());
    engine.prepare(one_token, decode).launch(query, some_stream());
    ASSERT_THAT(device().launches(), SizeIs(2));
    EXPECT_EQ(device().launches()[0].config.pdl, pdl);
    EXPECT_EQ(device().launches()[1].config.pdl, pdl);
  }
}

TEST_F(HopperLaunchTest, TakesNoMoreCtasThanItsBudgetHasSms) {
  const auto ctas = [&](int sm_budget, Scheduler scheduler, int cluster = 1) {
    AttentionSchedule schedule = hopper();
    schedule.scheduler = scheduler;
    schedule.cluster = ClusterShape{cluster, 1};
    AttentionTensors tensors = some_tensors();
    tensors.batch = 40;  // 320 tiles
    tensors.workspace = 0x80000;
    tensors.workspace_bytes = 8;
    tensors.sm_budget = sm_budget;
    device().forget_launches();
    engine.prepare(prefill_problem(), schedule).launch(tensors, some_stream());
    const FakeLaunch launch = device().launches().at(0);
    EXPECT_EQ(launch.as<HopperAttentionParams>().num_items, 320);
    return launch.config.grid[0];
  };
  for (const Scheduler scheduler : {Scheduler::kPersistent, Scheduler::kLongestFirst, Scheduler::kQueued}) {
    EXPECT_EQ(ctas(0, scheduler), 132u) << "all SMs";
    EXPECT_EQ(ctas(100, scheduler), 100u);
    EXPECT_EQ(ctas(1, scheduler), 1u);
    EXPECT_EQ(ctas(1000, scheduler), 132u) << "more than there are";
  }
  EXPECT_EQ(ctas(100, Scheduler::kGrid), 320u) << "no persistent kernel";
  EXPECT_EQ(ctas(101, Scheduler::kPersistent, 2), 100u) << "an SM is left over";
  EXPECT_EQ(ctas(1, Scheduler::kPersistent, 2), 2u) << "a cluster at least";
}

TEST_F(HopperLaunchTest, HasTheQueueInTheWorkspace) {
  AttentionSchedule schedule = hopper();
  schedule.scheduler = Scheduler::kQueued;
  const AttentionKernel kernel = engine.prepare(prefill_problem(), schedule);
  AttentionTensors tensors = some_tensors();
  EXPECT_EQ(kernel.workspace_bytes(kernel.extent(tensors)), 8u);
  const auto refused = [&] {
    try {
      kernel.launch(tensors, some_stream());
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = 4;
  EXPECT_EQ(refused(),
            "/tensors/workspace: 4 bytes are given and 8 are needed for the queue of tiles; see "
            "AttentionKernel::workspace_bytes()");
  tensors.workspace = 0x80008;
  tensors.workspace_bytes = 8;
  EXPECT_EQ(refused(), "/tensors/workspace: address 0x80008 is not a multiple of 16; give an aligned one");
  EXPECT_THAT(device().launches(), IsEmpty());
  tensors.workspace = 0x80000;
  EXPECT_EQ(refused(), "");
  ASSERT_THAT(device().launches(), SizeIs(1));
  EXPECT_EQ(device().launches()[0].as<HopperAttentionParams>().queue, reinterpret_cast<std::uint64_t*>(0x80000));
  tensors.workspace = 0;
  tensors.workspace_bytes = 0;
  EXPECT_EQ(refused(), "") << "tiles are dealt beforehand";
  ASSERT_THAT(device().launches(), SizeIs(2));
  EXPECT_EQ(device().launches()[1].as<HopperAttentionParams>().queue, nullptr);
}

TEST_F(HopperLaunchTest, AsksForTheClustersOfItsSchedule) {
  const auto shape = [&](const AttentionSchedule& schedule) {
    device().forget_launches();
    engine.prepare(prefill_problem(), schedule).launch(some_tensors(), some_stream());
    const LaunchConfig config = device().launches().at(0).config;
    EXPECT_EQ(config.cluster[1] * config.cluster[2], 1u);
    return std::pair(config.grid[0], config.cluster[0]);
  };
  EXPECT_EQ(shape(hopper()), std::pair(16u, 1u));
  AttentionSchedule schedule = hopper();
  schedule.cluster = ClusterShape{2, 1};
  EXPECT_EQ(shape(schedule), std::pair(32u, 2u)) << "the second CTA of each has no rows";
}

TEST_F(HopperLaunchTest, RefusesInputsThatBroadcast) {
  AttentionTensors tensors = some_tensors();
  tensors.k_strides = {.batch = 0, .token = 256, .head = 128};
  tensors.v_strides = {.batch = 300 * 128, .token = 128, .head = 0};
  const std::string tail =
      "] broadcast, which attention_sm90 does not: it reads through tensor maps; copy the operand, or prepare the "
      "problem with \"family\": \"portable\"";
  EXPECT_THAT(refused(prefill_problem(), tensors),
              ElementsAre("/tensors/k_strides: strides [batch 0, token 256, head 128" + tail,
                          "/tensors/v_strides: strides [batch 38400, token 128, head 0" + tail));
  tensors.batch = 1;
  tensors.v_strides = {};
  EXPECT_THAT(refused(prefill_problem(), tensors), IsEmpty()) << "one sequence is no broadcast";
  AttentionTensors no_keys = some_tensors();
  no_keys.kv_len = 0;
  EXPECT_THAT(refused(prefill_problem(), no_keys), IsEmpty()) << "contiguous strides of nothing are 0";
}

TEST_F(HopperLaunchTest, RefusesStridesThatNoTensorMapTakes) {
  AttentionTensors tensors = some_tensors();
  tensors.k_strides = {std::int64_t{1} << 39, 256, 128};  // of two bytes
  EXPECT_THAT(refused(prefill_problem(), tensors),
              ElementsAre("/tensors/k_strides: strides [batch 549755813888, token 256, head 128] of bf16 reach 2^40 "
                          "bytes, and tensor maps take less; copy the operand, or prepare the problem with \"family\": "
                          "\"portable\""));
  tensors.batch = 1;
  EXPECT_THAT(refused(prefill_problem(), tensors), IsEmpty()) << "nothing is that far apart";
}

TEST_F(HopperLaunchTest, AsksForTheRowsOfRaggedKeys) {
  AttentionProblem problem = prefill_problem();
  problem.q_layout = QLayout::kRagged;
  problem.kv_layout.kind = KvLayoutKind::kRagged;
  AttentionTensors tensors = some_tensors();
  tensors.q_tokens = 130;
  tensors.q_offsets = 0x50000;
  tensors.kv_offsets = 0x51000;
  EXPECT_THAT(refused(problem, tensors),
              ElementsAre("/tensors/kv_tokens: is 0, and the kernel has to know how many rows k and v have, lest it "
                          "reads behind them; give kv_offsets[batch]"));
  tensors.kv_tokens = -1;
  EXPECT_THAT(refused(problem, tensors), ::testing::Contains("/tensors/kv_tokens: -1 is negative"));
  tensors.kv_tokens = 300;
  EXPECT_THAT(refused(problem, tensors), IsEmpty());
  tensors.kv_tokens = 0;
  tensors.kv_offsets = tensors.q_offsets;
  EXPECT_THAT(refused(problem, tensors), IsEmpty());
}

TEST_F(HopperLaunchTest, AllocatesNothing) {
  const AttentionKernel kernel = engine.prepare(prefill_problem(), hopper());
  const AttentionTensors tensors = some_tensors();
  kernel.launch(tensors, some_stream());
  allocations = 0;
  count_allocations = true;
  kernel.launch(tensors, some_stream());
  count_allocations = false;
  EXPECT_EQ(allocations, 0);
}

TEST_F(HopperLaunchTest, IsServedByThePortableKernelUntilItIsCompiled) {
  store->hold("family hopper");
  AttentionKernel kernel =
      engine.prepare(prefill_problem(), hopper(), {.on_miss = OnMiss::kFallback, .background = true});
  kernel.launch(some_tensors(), some_stream());
  EXPECT_TRUE(kernel.serves_fallback());
  EXPECT_TRUE(device().launches().at(0).kernel->entry.starts_with("attention_portable_"));
  store->release();
  kernel.wait();
  engine.promote();
  kernel.launch(some_tensors(), some_stream());
  EXPECT_TRUE(device().launches().at(1).kernel->entry.starts_with("attention_sm90_"));
}

TEST_F(HopperLaunchTest, HasNoFallbackWhereThePortableKernelWillNotDo) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {72, 72};
  AttentionKernel kernel = engine.prepare(problem, {}, {.on_miss = OnMiss::kFallback});
  kernel.launch(some_tensors(), some_stream());
  EXPECT_FALSE(kernel.serves_fallback());
  EXPECT_TRUE(device().launches().at(0).kernel->entry.starts_with("attention_sm90_"));
}

TEST(HopperNotes, NameTheLoadingAndTheMultiplyingWarpgroups) {
  const AttentionSpec spec = plan_attention(prefill_problem(), hopper(), Arch::kSm90a).main;
  const KernelNotes notes = notes_of(spec);
  ASSERT_THAT(notes.roles, SizeIs(3));
  EXPECT_EQ(notes.roles[0].name, "load");
  EXPECT_EQ(notes.roles[1].name, "math 0");
  EXPECT_EQ(notes.roles[1].first_warp, 4u);
  EXPECT_EQ(notes.roles[2].first_warp + notes.roles[2].num_warps, static_cast<std::uint32_t>(spec.threads() / 32));
  EXPECT_EQ(notes.shared[1].name, "keys");
  EXPECT_EQ(notes.shared[1].stage_bytes, 128u * 128 * 2);
}

}  // namespace
}  // namespace kernelwright::test::hopper_launch_test
