/// The tensor maps of attention_sm90, of every layout.
#include <string>
#include <tuple>
#include <vector>

#include "runtime/attention/hopper_calls.h"

namespace kernelwright::test::hopper_tensor_maps_test {

namespace {

using ::testing::ElementsAre;

using detail::AttentionTensorMaps;
using detail::LoadedAttention;
using hopper_calls::give_rotary_parts;
using hopper_calls::hopper;
using hopper_calls::hopper_decode;
using hopper_calls::maps_of;
using hopper_calls::rotary_problem;
using hopper_calls::rotary_schedule;
using hopper_calls::short_queries;

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
/// K under bf16 queries has the slabs of one of the two terms that a query becomes.
TEST(AttentionTensorMaps, OfFp8KeysHaveTheColumnsOfTheQueries) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {96, 64};
  using Maps = std::tuple<DType, Swizzle, Swizzle, unsigned>;
  for (const auto& [q, swizzle, of_keys, columns] :
       {Maps{DType::kF16, Swizzle::k32B, Swizzle::kNone, 16}, Maps{DType::kF16, Swizzle::k64B, Swizzle::k32B, 32},
        Maps{DType::kF16, Swizzle::k128B, Swizzle::k64B, 64}, Maps{DType::kBf16, Swizzle::k32B, Swizzle::k32B, 32},
        Maps{DType::kBf16, Swizzle::k64B, Swizzle::k32B, 32},
        Maps{DType::kBf16, Swizzle::k128B, Swizzle::k128B, 128}}) {
    SCOPED_TRACE(std::string(to_string(q)) + " " + std::string(to_string(swizzle)));
    problem.dtype = {q, DType::kE4m3, q};
    AttentionSchedule schedule = hopper();
    schedule.swizzle = swizzle;
    const AttentionTensorMaps maps = maps_of(
        problem, [](AttentionTensors&) {}, schedule);
    EXPECT_EQ(maps.q.swizzle, swizzle);
    EXPECT_EQ(maps.k.swizzle, of_keys);
    EXPECT_EQ(maps.v.swizzle, half_of(swizzle)) << "V is converted";
    const int of_queries = bytes_of(swizzle) / 2;
    EXPECT_THAT(box(maps.q), ElementsAre(of_queries, 128, 1, 1));
    EXPECT_THAT(box(maps.k), ElementsAre(columns, 128, 1, 1));
    EXPECT_THAT(box(maps.v), ElementsAre(of_queries, 128, 1, 1));
    for (const TensorMapRequest* map : {&maps.k, &maps.v}) {
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

}  // namespace
}  // namespace kernelwright::test::hopper_tensor_maps_test
