/// What a launch of attention_sm90 passes to the device: the tensor maps of every layout. Also arguments that only a
/// kernel with tensor maps refuses.
#include <functional>
#include <tuple>
#include <vector>

#include "contract/attention_decode_sm90.h"
#include "contract/attention_sm90.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/runtime/attention/tensor_maps.h"
#include "kernelwright/runtime/engine/notes.h"
#include "runtime/count_allocations.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test::hopper_launch_test {

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using contract::HopperAttentionParams;
using detail::AttentionTensorMaps;
using detail::LoadedAttention;

/// A tile of 128 x 128, whatever the planner would take.
AttentionSchedule hopper() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.math_warpgroups = 2;
  schedule.block_n = 128;
  schedule.kv_ring = KvRing::kSplit;
  schedule.pack_gqa = false;
  return schedule;
}

/// The tensor maps of some_tensors() (batch 2, q_len 100, kv_len 300; heads 8 and 2) after `change`.
AttentionTensorMaps maps_of(
    const AttentionProblem& problem, const std::function<void(AttentionTensors&)>& change = [](AttentionTensors&) {},
    const AttentionSchedule& schedule = hopper()) {
  AttentionTensors tensors = some_tensors();
  change(tensors);
  const LoadedAttention kernel =
      detail::describe(problem, plan_attention(problem, schedule, Arch::kSm90a), DeviceInfo{.num_sms = 132});
  return detail::tensor_maps_of(kernel, tensors, detail::resolve_strides(kernel, tensors));
}

std::vector<std::uint64_t> dims(const TensorMapRequest& map) { return {map.dims, map.dims + map.rank}; }
/// In elements of 16 bits: token, head, batch.
std::vector<std::uint64_t> strides(const TensorMapRequest& map) {
  std::vector<std::uint64_t> list(map.strides_bytes, map.strides_bytes + map.rank - 1);
  for (std::uint64_t& stride : list) stride /= 2;
  return list;
}
std::vector<std::uint32_t> box(const TensorMapRequest& map) { return {map.box, map.box + map.rank}; }

TEST(AttentionTensorMaps, OfPaddedOperandsAreDepthTokenHeadBatch) {
  const AttentionTensorMaps maps = maps_of(prefill_problem());
  EXPECT_EQ(maps.q.address, 0x10000u);
  EXPECT_EQ(maps.q.dtype, DType::kBf16);
  EXPECT_EQ(maps.q.swizzle, Swizzle::k128B);
  EXPECT_THAT(dims(maps.q), ElementsAre(128, 100, 8, 2));
  EXPECT_THAT(strides(maps.q), ElementsAre(8 * 128, 128, 100 * 8 * 128));
  EXPECT_THAT(box(maps.q), ElementsAre(64, 128, 1, 1));
  EXPECT_EQ(maps.k.address, 0x20000u);
  EXPECT_THAT(dims(maps.k), ElementsAre(128, 300, 2, 2));
  EXPECT_THAT(strides(maps.k), ElementsAre(2 * 128, 128, 300 * 2 * 128));
  EXPECT_THAT(box(maps.k), ElementsAre(64, 128, 1, 1));
  EXPECT_EQ(maps.v.address, 0x30000u);
  EXPECT_THAT(dims(maps.v), ElementsAre(128, 300, 2, 2));
}

TEST(AttentionTensorMaps, OfPackedHeadsTakeAGroupBesideItsTokens) {
  AttentionSchedule schedule = hopper();
  schedule.pack_gqa = true;
  const AttentionTensorMaps maps = maps_of(
      prefill_problem(), [](AttentionTensors&) {}, schedule);
  EXPECT_THAT(dims(maps.q), ElementsAre(128, 4, 100, 2, 2));
  EXPECT_THAT(strides(maps.q), ElementsAre(128, 8 * 128, 4 * 128, 100 * 8 * 128));
  EXPECT_THAT(box(maps.q), ElementsAre(64, 4, 32, 1, 1)) << "128 rows: 32 tokens of 4 heads";
  EXPECT_THAT(dims(maps.k), ElementsAre(128, 300, 2, 2));
}

TEST(AttentionTensorMaps, HaveTheDepthOfEachOperand) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {192, 128};
  problem.dtype = {DType::kF16, DType::kF16, DType::kF16};
  AttentionSchedule schedule = hopper();
  schedule.block_n = 112;
  const AttentionTensorMaps maps = maps_of(
      problem, [](AttentionTensors&) {}, schedule);
  EXPECT_EQ(maps.q.dtype, DType::kF16);
  EXPECT_EQ(maps.q.dims[0], 192u);
  EXPECT_EQ(maps.k.dims[0], 192u);
  EXPECT_EQ(maps.v.dims[0], 128u);
  EXPECT_EQ(maps.k.box[1], 112u) << "block_n";
}

TEST(AttentionTensorMaps, HaveBoxesAsWideAsTheSwizzle) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {96, 32};
  for (const auto& [swizzle, columns] : {std::pair{Swizzle::kNone, 8u}, std::pair{Swizzle::k32B, 16u},
                                         std::pair{Swizzle::k64B, 32u}, std::pair{Swizzle::k128B, 64u}}) {
    AttentionSchedule schedule = hopper();
    schedule.swizzle = swizzle;
    const AttentionTensorMaps maps = maps_of(
        problem, [](AttentionTensors&) {}, schedule);
    for (const TensorMapRequest* map : {&maps.q, &maps.k, &maps.v}) {
      EXPECT_EQ(map->swizzle, swizzle);
      EXPECT_THAT(box(*map), ElementsAre(columns, 128, 1, 1)) << to_string(swizzle);
    }
  }
}

AttentionProblem rotary_problem() {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {192, 128};
  problem.rope.width = 64;
  return problem;
}
AttentionSchedule rotary_schedule() {
  AttentionSchedule schedule = hopper();
  schedule.block_n = 112;
  return schedule;
}
/// Queries as one projection leaves them, keys and values as another, and rotary parts as a cache of latents has them.
void give_rotary_parts(AttentionTensors& tensors) {
  tensors.q_strides = tensors.q_rope_strides = {100 * 8 * 192, 8 * 192, 192};
  tensors.q_rope = tensors.q + 128 * 2;
  tensors.k_strides = tensors.v_strides = {300 * 2 * 256, 2 * 256, 256};
  tensors.v = tensors.k + 128 * 2;
  tensors.k_rope = 0x80000;
  tensors.k_rope_strides = {300 * 576, 576, 0};
}

TEST(AttentionTensorMaps, OfARotaryPartAreBesideThoseOfTheOtherPart) {
  const AttentionTensorMaps maps = maps_of(rotary_problem(), give_rotary_parts, rotary_schedule());
  EXPECT_THAT(dims(maps.q), ElementsAre(128, 100, 8, 2));
  EXPECT_THAT(strides(maps.q), ElementsAre(8 * 192, 192, 100 * 8 * 192));
  EXPECT_EQ(maps.q_rope.address, 0x10000u + 256);
  EXPECT_THAT(dims(maps.q_rope), ElementsAre(64, 100, 8, 2));
  EXPECT_EQ(strides(maps.q_rope), strides(maps.q));
  EXPECT_EQ(box(maps.q_rope), box(maps.q));
  EXPECT_THAT(dims(maps.k), ElementsAre(128, 300, 2, 2));
  EXPECT_THAT(strides(maps.k), ElementsAre(2 * 256, 256, 300 * 2 * 256));
  EXPECT_EQ(maps.k_rope.address, 0x80000u);
  EXPECT_EQ(maps.k_rope.dtype, DType::kBf16);
  EXPECT_THAT(dims(maps.k_rope), ElementsAre(64, 300, 1, 2)) << "one for all heads";
  EXPECT_EQ(strides(maps.k_rope)[0], 576u);
  EXPECT_THAT(box(maps.k_rope), ElementsAre(64, 112, 1, 1));
  EXPECT_TRUE(maps.one_rope);
}

TEST(AttentionTensorMaps, OfARotaryPartForAllHeadsNeedNoFurtherCheck) {
  AttentionTensors tensors = some_tensors();
  give_rotary_parts(tensors);
  const LoadedAttention kernel = detail::describe(
      rotary_problem(), plan_attention(rotary_problem(), rotary_schedule(), Arch::kSm90a), DeviceInfo{.num_sms = 132});
  const auto is_fine = [&] {
    return detail::surely_fine(kernel, tensors, detail::resolve_strides(kernel, tensors), 2 * 100);
  };
  EXPECT_TRUE(is_fine());
  tensors.k_rope_strides.token = 0;
  EXPECT_FALSE(is_fine()) << "one for all keys is a broadcast";
}

/// Under 16-bit queries, a box has the columns of theirs, in half of the bytes. Under fp8 queries boxes are alike.
TEST(AttentionTensorMaps, OfFp8KeysUnderBf16QueriesHaveTheSlabsOfATerm) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {96, 64};
  problem.dtype = {DType::kBf16, DType::kE4m3, DType::kBf16};
  for (const auto& [swizzle, of_keys, columns] :
       {std::tuple{Swizzle::k32B, Swizzle::k32B, 32u}, std::tuple{Swizzle::k64B, Swizzle::k32B, 32u},
        std::tuple{Swizzle::k128B, Swizzle::k128B, 128u}}) {
    AttentionSchedule schedule = hopper();
    schedule.swizzle = swizzle;
    const AttentionTensorMaps maps = maps_of(
        problem, [](AttentionTensors&) {}, schedule);
    EXPECT_EQ(maps.q.swizzle, swizzle);
    EXPECT_EQ(maps.k.swizzle, of_keys);
    EXPECT_THAT(box(maps.k), ElementsAre(columns, 128, 1, 1)) << to_string(swizzle);
    EXPECT_EQ(maps.v.swizzle, half_of(swizzle)) << "V is converted";
    EXPECT_EQ(box(maps.v)[0], box(maps.q)[0]);
  }
}

TEST(AttentionTensorMaps, OfFp8KeysHaveTheColumnsOfTheQueries) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {96, 64};
  problem.dtype = {DType::kF16, DType::kE4m3, DType::kF16};
  for (const auto& [swizzle, half, columns] :
       {std::tuple{Swizzle::k32B, Swizzle::kNone, 16u}, std::tuple{Swizzle::k64B, Swizzle::k32B, 32u},
        std::tuple{Swizzle::k128B, Swizzle::k64B, 64u}}) {
    AttentionSchedule schedule = hopper();
    schedule.swizzle = swizzle;
    const AttentionTensorMaps maps = maps_of(
        problem, [](AttentionTensors&) {}, schedule);
    EXPECT_EQ(maps.q.swizzle, swizzle);
    for (const TensorMapRequest* map : {&maps.q, &maps.k, &maps.v})
      EXPECT_THAT(box(*map), ElementsAre(columns, 128, 1, 1)) << to_string(swizzle);
    for (const TensorMapRequest* map : {&maps.k, &maps.v}) {
      EXPECT_EQ(map->swizzle, half);
      EXPECT_EQ(map->dtype, DType::kE4m3);
      EXPECT_EQ(map->strides_bytes[0], 2 * map->dims[0]) << "two heads of a token";
    }
  }
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  AttentionSchedule schedule = hopper();
  schedule.block_n = 96;
  const AttentionTensorMaps maps = maps_of(
      problem, [](AttentionTensors&) {}, schedule);
  for (const TensorMapRequest* map : {&maps.q, &maps.k, &maps.v}) {
    EXPECT_EQ(map->swizzle, Swizzle::k128B);
    EXPECT_THAT(box(*map), ElementsAre(128, map == &maps.q ? 128 : 96, 1, 1));
  }
}

TEST(AttentionTensorMaps, OfRaggedOperandsHaveOneBatchOfAllTokens) {
  AttentionProblem problem = prefill_problem();
  problem.q_layout = QLayout::kRagged;
  problem.kv_layout.kind = KvLayoutKind::kRagged;
  const auto ragged = [](AttentionTensors& tensors) {
    tensors.q_tokens = 130;
    tensors.q_offsets = tensors.kv_offsets = 0x50000;
  };
  AttentionTensorMaps maps = maps_of(problem, ragged);
  EXPECT_THAT(dims(maps.q), ElementsAre(128, 130, 8, 1));
  EXPECT_THAT(strides(maps.q), ElementsAre(8 * 128, 128, 128));
  EXPECT_THAT(dims(maps.k), ElementsAre(128, 130, 2, 1)) << "keys that share the queries' offsets";
  maps = maps_of(problem, [&](AttentionTensors& tensors) {
    ragged(tensors);
    tensors.kv_offsets = 0x51000;
    tensors.kv_tokens = 401;
  });
  EXPECT_THAT(dims(maps.k), ElementsAre(128, 401, 2, 1));
  EXPECT_THAT(dims(maps.v), ElementsAre(128, 401, 2, 1));
}

TEST(AttentionTensorMaps, OfPagedKeysHaveBoxesWithinAPage) {
  AttentionProblem problem = prefill_problem();
  for (const auto& [page_size, rows] : {std::pair{64u, 64u}, {256u, 128u}, {16u, 16u}, {24u, 8u}}) {
    problem.kv_layout = {KvLayoutKind::kPaged, static_cast<int>(page_size)};
    const AttentionTensorMaps maps = maps_of(problem);
    EXPECT_EQ(maps.k.dims[1], page_size);
    EXPECT_GE(maps.k.dims[3], 1u << 30) << "any page that the table names";
    EXPECT_THAT(strides(maps.k), ElementsAre(2 * 128, 128, page_size * 2 * 128));
    EXPECT_THAT(box(maps.k), ElementsAre(64, rows, 1, 1));
    EXPECT_THAT(box(maps.v), ElementsAre(64, rows, 1, 1));
    EXPECT_THAT(box(maps.q), ElementsAre(64, 128, 1, 1));
  }
}

TEST(AttentionTensorMaps, HaveNoKeysWhereTheKernelGathersThem) {
  AttentionProblem problem = prefill_problem();
  for (const int page_size : {1, 12}) {
    problem.kv_layout = {KvLayoutKind::kPaged, page_size};
    const AttentionTensorMaps maps = maps_of(problem);
    EXPECT_TRUE(maps.gathers);
    EXPECT_EQ(maps.k.address, 0u);
    EXPECT_EQ(maps.v.address, 0u);
    EXPECT_THAT(box(maps.q), ElementsAre(64, 128, 1, 1));
  }
  problem.kv_layout.page_size = 16;
  EXPECT_FALSE(maps_of(problem).gathers);
}

TEST(AttentionTensorMaps, HaveTheCallersStrides) {
  const AttentionTensorMaps maps = maps_of(prefill_problem(), [](AttentionTensors& tensors) {
    tensors.q_strides = {.batch = 1 << 20, .token = 128, .head = 128 * 200};  // [batch, heads, len, head_dim]
  });
  EXPECT_THAT(strides(maps.q), ElementsAre(128, 128 * 200, 1 << 20));
}

TEST(AttentionTensorMaps, AreLegalWhereThereIsNothingToLoad) {
  AttentionProblem problem = prefill_problem();
  problem.heads = {1, 1};
  const AttentionTensorMaps maps = maps_of(problem, [](AttentionTensors& tensors) {
    tensors.kv_len = 0;
    tensors.k = tensors.v = 0;
    tensors.batch = 1;
    tensors.q_strides = {.batch = 0, .token = 128, .head = 0};
  });
  EXPECT_THAT(dims(maps.k), ElementsAre(128, 1, 1, 1));
  EXPECT_NE(maps.k.address, 0u);
  EXPECT_NE(maps.v.address, 0u);
  for (const TensorMapRequest& map : {maps.q, maps.k, maps.v})
    for (const std::uint64_t stride : strides(map)) EXPECT_GE(stride, 128u);
}

AttentionSchedule hopper_decode() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.token_gen = true;
  schedule.num_warps = 4;
  schedule.block_n = 128;
  schedule.splits = 3;
  return schedule;
}

AttentionProblem short_queries() {
  AttentionProblem problem = prefill_problem();
  problem.max_q_len = 4;
  return problem;
}

TEST(AttentionTensorMaps, OfDecodeHaveTheRowsOfOneWarp) {
  AttentionProblem problem = short_queries();
  const auto rows_of = [&] {
    const AttentionTensorMaps maps = maps_of(
        problem, [](AttentionTensors& tensors) { tensors.q_len = 4; }, hopper_decode());
    EXPECT_EQ(maps.k.box[1], maps.v.box[1]);
    return maps.k.box[1];
  };
  EXPECT_EQ(rows_of(), 32u);
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  EXPECT_EQ(rows_of(), 32u);
  problem.kv_layout.page_size = 24;
  EXPECT_EQ(rows_of(), 8u);
}

TEST(AttentionTensorMaps, OfAClusterHaveTheRowsThatOneCtaLoads) {
  AttentionSchedule schedule = hopper();
  schedule.block_n = 96;
  AttentionProblem problem = prefill_problem();
  const auto rows_of = [&](int size) {
    schedule.cluster = ClusterShape{size, 1};
    const AttentionTensorMaps maps = maps_of(
        problem, [](AttentionTensors&) {}, schedule);
    EXPECT_EQ(maps.k.box[1], maps.v.box[1]);
    return maps.k.box[1];
  };
  EXPECT_EQ(rows_of(1), 96u);
  EXPECT_EQ(rows_of(2), 48u);
  EXPECT_EQ(rows_of(4), 24u);
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  EXPECT_EQ(rows_of(2), 16u) << "of 48 rows, within pages of 64";
  schedule.block_n = 128;
  EXPECT_EQ(rows_of(2), 64u);
}

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
