// Where the tiles, the barriers and the rest of a hopper kernel lie in shared memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/attention_sm90.h"
#include "generator/attention/hopper_plans.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/shared_map.h"

namespace kernelwright::hopper_layout_test {
namespace {

using test::hopper_plans::hopper;
using test::hopper_plans::planned;
using test::hopper_plans::prefill;

/// Tiles that no barrier depends on, with these rings.
contract::HopperShape tiles(int q_stages, int kv_stages, int qk_stages, bool shared_ring, bool gathers = false,
                            int mma_stages = 1) {
  return {128, 64, 128, 128, q_stages, kv_stages, qk_stages, shared_ring, gathers, mma_stages};
}

TEST(HopperLayout, PlacesSlotsOn1024AndBarriersBehindThem) {
  for (const bool shared_ring : {false, true})
    for (const int depth_qk : {16, 72, 128, 192, 256})
      for (const int block_n : {16, 80, 112, 128}) {
        const int stages = 3, q_stages = 2, depth_v = depth_qk - 8;
        const contract::HopperLayout map =
            contract::hopper_layout({128, block_n, depth_qk, depth_v, q_stages, stages, 1, shared_ring});
        for (const int offset : {map.keys, map.values, map.barriers, map.query_slot, map.key_slot, map.value_slot})
          EXPECT_EQ(offset % 1024, 0);
        EXPECT_EQ(map.query_slot, 128 * contract::padded_depth(depth_qk, 128) * 2);
        EXPECT_EQ(map.keys, q_stages * map.query_slot);
        EXPECT_EQ(map.values, shared_ring ? map.keys : map.keys + stages * map.key_slot);
        EXPECT_EQ(map.barriers, map.values + stages * map.value_slot);
        EXPECT_EQ(map.items % 16, 0) << "records are read by vectors";
        const int barriers = 2 * q_stages + (shared_ring ? 2 : 4) * stages;
        EXPECT_EQ(map.items, map.barriers + (barriers * 8 + 15) / 16 * 16);
        EXPECT_EQ(map.total, map.items + (q_stages + 2) * 64);
      }
}

// The kernel has slots of whole tiles (pipeline/kv_rings.cuh), whatever a narrow slab's come to.
TEST(HopperLayout, PlacesNarrowSlotsOneBehindTheOtherWhereTheirSwizzleBegins) {
  for (const int swizzle : {0, 32, 64})
    for (const int block_n : {16, 48, 80, 104})
      for (const bool shared_ring : {false, true}) {
        const contract::HopperLayout map =
            contract::hopper_layout({64, block_n, 96, 32, 1, 3, 1, shared_ring, false, 1, swizzle});
        EXPECT_EQ(map.key_slot, block_n * 96 * 2);
        EXPECT_EQ(map.value_slot, block_n * (shared_ring ? 96 : 32) * 2);
        for (const int offset : {map.keys, map.values, map.key_slot, map.value_slot})
          EXPECT_EQ(offset % (8 * contract::slab_width(swizzle)), 0) << swizzle << " bytes, " << block_n << " keys";
      }
}

TEST(HopperLayout, BeginsARotaryPartWithASlabOfItsOwn) {
  contract::HopperShape shape = tiles(1, 2, 1, false);
  shape.depth_qk = 192, shape.rope_depth = 64;
  EXPECT_EQ(shape.score_depth(), 192) << "whole slabs: as without a rotary part";
  EXPECT_EQ(shape.qk_row(), 3 * 128);
  shape.depth_qk = 56, shape.rope_depth = 16;
  EXPECT_EQ(shape.score_depth(), 64 + 16) << "24 zeros between 40 and 16 columns";
  EXPECT_EQ(shape.qk_row(), 2 * 128);
  shape.swizzle_bytes = 0;
  EXPECT_EQ(shape.score_depth(), 48 + 16) << "a product takes two pieces at a time";
  EXPECT_EQ(shape.qk_row(), 8 * 16);
}

TEST(HopperLayout, NumbersEveryBarrierOnce) {
  const contract::HopperBarriers split = contract::hopper_barriers(tiles(2, 3, 2, false));
  EXPECT_EQ(split.query_empty, 2);
  EXPECT_EQ(split.key_full, 4);
  EXPECT_EQ(split.key_empty, 10);
  EXPECT_EQ(split.value_full, 16);
  EXPECT_EQ(split.value_empty, 19);
  EXPECT_EQ(split.count, 22);
  const contract::HopperBarriers shared = contract::hopper_barriers(tiles(1, 5, 1, true));
  EXPECT_EQ(shared.key_full, 2);
  EXPECT_EQ(shared.value_full, shared.key_full);
  EXPECT_EQ(shared.value_empty, shared.key_empty);
  EXPECT_EQ(shared.count, 12);
}

TEST(HopperLayout, HasABarrierForEachSubStageOfEachSlot) {
  const contract::HopperBarriers split = contract::hopper_barriers(tiles(2, 3, 1, false, true, 4));
  EXPECT_EQ(split.key_full, 4);
  EXPECT_EQ(split.key_empty, 7);
  EXPECT_EQ(split.value_full, 10);
  EXPECT_EQ(split.value_empty, 22);
  EXPECT_EQ(split.gather_posted, 34);
  const contract::HopperBarriers shared = contract::hopper_barriers(tiles(1, 5, 2, true, false, 2));
  EXPECT_EQ(shared.key_full, 2);
  EXPECT_EQ(shared.key_empty, 12);
  EXPECT_EQ(shared.value_full, shared.key_full);
  EXPECT_EQ(shared.count, 22);
  const int tiles = contract::hopper_layout({128, 64, 128, 128, 1, 5, 1, true}).barriers;
  const contract::HopperLayout map = contract::hopper_layout({128, 64, 128, 128, 1, 5, 2, true, false, 2});
  EXPECT_EQ(map.barriers, tiles) << "sub-stages are parts of the same slots";
  EXPECT_EQ(map.items, map.barriers + 22 * 8);
}

TEST(HopperLayout, HasWhatGatherersAreToldBehindTheRest) {
  for (const bool shared_ring : {false, true})
    for (const int q_stages : {1, 2, 3}) {
      const contract::HopperBarriers without = contract::hopper_barriers(tiles(q_stages, 3, 1, shared_ring)),
                                     barriers = contract::hopper_barriers(tiles(q_stages, 3, 1, shared_ring, true));
      EXPECT_EQ(barriers.gather_posted, without.count);
      EXPECT_EQ(barriers.count, without.count + q_stages + 2);
      const contract::HopperLayout map =
          contract::hopper_layout({128, 80, 128, 128, q_stages, 3, 1, shared_ring, true});
      EXPECT_GE(map.items, map.barriers + barriers.count * 8);
      EXPECT_EQ(map.gathers, map.items + (q_stages + 2) * 64);
      EXPECT_EQ(map.gather_rows, map.gathers + (q_stages + 2) * 16);
      EXPECT_EQ(map.gather_rows % 16, 0) << "two addresses are read at once";
      EXPECT_EQ(map.total, map.gather_rows + 3 * 80 * 8);
    }
}

TEST(HopperLayout, HasRawTilesOfHalfTheBytesBehindTheRestWhereWarpsConvertThem) {
  for (const bool shared_ring : {false, true})
    for (const int depth : {64, 80, 128, 192}) {
      contract::HopperShape shape = tiles(2, 3, 1, shared_ring);
      shape.depth_qk = depth;
      const int plain = contract::hopper_layout(shape).total;
      EXPECT_EQ(contract::hopper_raw_ring(shape).total, plain);
      EXPECT_EQ(contract::hopper_raw_ring(shape).slots, 0);
      shape.kv_bytes = 1;
      const contract::HopperLayout map = contract::hopper_layout(shape);
      EXPECT_EQ(contract::hopper_barriers(shape).count, contract::hopper_barriers(shape).gather_posted + 4);
      EXPECT_EQ(map.gather_rows, map.total) << "no addresses of rows";
      const contract::HopperRawRing raw = contract::hopper_raw_ring(shape);
      EXPECT_EQ(raw.slots, depth > 128 ? 2 : 4);
      EXPECT_EQ(raw.slot, std::max(map.key_slot, map.value_slot) / 2);
      EXPECT_EQ(raw.tiles % 1024, 0);
      EXPECT_GE(raw.tiles, map.total);
      EXPECT_EQ(raw.keys, shape.block_n);
      EXPECT_GE(raw.full, map.total) << "barriers lie ahead of the tiles, in what the alignment leaves";
      EXPECT_EQ(raw.empty, raw.full + 8 * raw.slots);
      EXPECT_GE(raw.tiles, raw.empty + 8 * raw.slots);
      EXPECT_EQ(raw.total, raw.tiles + raw.slots * raw.slot);
    }
}

TEST(HopperLayout, HasRawTilesOfVAndTransposedOnesWhereQueriesAreFp8) {
  for (const int depth : {64, 80, 128})
    for (const int block_n : {64, 96, 160}) {
      contract::HopperShape shape = tiles(2, 3, 1, false);
      shape.depth_qk = 192, shape.depth_v = depth, shape.block_n = block_n;
      shape.q_bytes = shape.kv_bytes = 1;
      const contract::HopperLayout map = contract::hopper_layout(shape);
      EXPECT_EQ(map.query_slot, 128 * 256) << "two slabs of 128 bytes";
      EXPECT_EQ(map.key_slot, block_n * 256);
      EXPECT_EQ(map.value_slot, (depth + 8) * block_n) << "rows of keys and of ones, in slabs that keys fill";
      EXPECT_EQ(map.value_slot % (8 * contract::transposed_swizzle_bytes(block_n, 128)), 0) << "whole patterns";
      const contract::HopperRawRing raw = contract::hopper_raw_ring(shape);
      EXPECT_EQ(raw.slots, 2);
      EXPECT_EQ(raw.slot, block_n * 128);
      EXPECT_EQ(raw.total, raw.tiles + 2 * raw.slot);
    }
}

TEST(HopperLayout, HasKeysAsTheyAreStoredWhereQueriesBecomeTwoTerms) {
  for (const int depth : {64, 80, 128, 192, 256}) {
    contract::HopperShape shape = tiles(2, 3, 1, false);
    shape.depth_qk = depth, shape.depth_v = 128, shape.kv_bytes = 1, shape.splits_q = true;
    const contract::HopperLayout map = contract::hopper_layout(shape);
    const int slabs = (depth + 63) / 64;
    EXPECT_EQ(map.query_slot, 128 * slabs * 128) << "both terms in the bytes of 16-bit queries";
    EXPECT_EQ(shape.key_swizzle(), slabs % 2 == 0 ? 128 : 64) << "whole slabs";
    EXPECT_EQ(map.key_slot, 64 * slabs * 64) << "a byte for each element";
    EXPECT_EQ(map.key_slot % 1024, 0);
    EXPECT_EQ(map.value_slot, 64 * 2 * 128) << "f16";
    const contract::HopperRawRing raw = contract::hopper_raw_ring(shape);
    EXPECT_EQ(raw.slots, 2) << "of V alone";
    EXPECT_EQ(raw.slot, map.value_slot / 2);
    EXPECT_EQ(raw.keys, 64);
    EXPECT_EQ(raw.total, raw.tiles + 2 * raw.slot);
  }
  contract::HopperShape shape = tiles(2, 3, 1, false);
  shape.depth_qk = 64, shape.kv_bytes = 1, shape.splits_q = true, shape.swizzle_bytes = 32;
  EXPECT_EQ(shape.key_swizzle(), 32) << "four slabs of a query's row, and two of a key's";
}

TEST(HopperLayout, HasRawTilesOfHalfTheKeysOfTheLargestV) {
  contract::HopperShape shape = tiles(2, 2, 1, false);
  shape.depth_qk = shape.depth_v = 256, shape.block_m = shape.block_n = 128;
  shape.q_bytes = shape.kv_bytes = 1;
  const contract::HopperRawRing raw = contract::hopper_raw_ring(shape);
  EXPECT_EQ(raw.keys, 64);
  EXPECT_EQ(raw.slots, 2);
  EXPECT_EQ(raw.slot, 64 * 256);
  EXPECT_EQ(raw.total, 227 * 1024) << "all that a CTA may have";
  shape.swizzle_bytes = 64;
  EXPECT_EQ(contract::hopper_raw_ring(shape).keys, 128) << "only rows of 128 bytes";
  shape.swizzle_bytes = 128, shape.block_n = 64;
  EXPECT_EQ(contract::hopper_raw_ring(shape).keys, 64);
  shape.block_n = 128, shape.depth_v = shape.depth_qk = 192;
  EXPECT_EQ(contract::hopper_raw_ring(shape).keys, 128) << "whole tiles fit";
}

TEST(HopperLayout, SwizzlesTransposedValuesInSlabsThatKeysFill) {
  EXPECT_EQ(contract::transposed_swizzle_bytes(128, 128), 128);
  EXPECT_EQ(contract::transposed_swizzle_bytes(64, 128), 64);
  EXPECT_EQ(contract::transposed_swizzle_bytes(96, 128), 32);
  EXPECT_EQ(contract::transposed_swizzle_bytes(128, 64), 64) << "no wider than the schedule's";
}

TEST(HopperLayout, HasHalvesOfSumsBehindTheRest) {
  contract::HopperShape shape = tiles(2, 3, 1, false);
  shape.block_m = 192, shape.depth_qk = shape.depth_v = 128, shape.block_n = 96;
  shape.q_bytes = shape.kv_bytes = 1;
  const contract::HopperLayout without = contract::hopper_layout(shape);
  shape.keeps_halves = true;
  const contract::HopperLayout with = contract::hopper_layout(shape);
  EXPECT_EQ(with.halves, without.total);
  EXPECT_EQ(with.halves % 8, 0);
  EXPECT_EQ(with.total - with.halves, 192 * (128 + 8) * 2) << "a bf16 for each sum";
}

TEST(HopperLayout, HasKeysGatheredWherePagesAreNoMultipleOfTheSwizzlesRows) {
  for (const int page : {1, 2, 3, 4, 7, 12, 20, 129}) EXPECT_TRUE(contract::hopper_gathers_kv(page)) << page;
  for (const int page : {0, 8, 24, 64, 256}) EXPECT_FALSE(contract::hopper_gathers_kv(page)) << page;
}

TEST(HopperLayout, TakesTheWidestBoxThatEndsWithThePage) {
  EXPECT_EQ(contract::hopper_kv_box_rows(128, 0), 128);
  EXPECT_EQ(contract::hopper_kv_box_rows(128, 64), 64);
  EXPECT_EQ(contract::hopper_kv_box_rows(112, 64), 16);
  EXPECT_EQ(contract::hopper_kv_box_rows(80, 256), 16);
  EXPECT_EQ(contract::hopper_kv_box_rows(128, 24), 8);
}

TEST(HopperSharedMap, NamesTheHalvesOfSums) {
  AttentionProblem problem = prefill(128, 128);
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  AttentionSchedule schedule = hopper();
  schedule.math_warpgroups = 3;
  schedule.pv_promote = 16;
  std::uint32_t bytes = 0;
  for (const SharedRegion& region : shared_map(planned(problem, schedule)))
    if (region.name == "halves of sums") bytes = region.bytes;
  EXPECT_EQ(bytes, 192u * (128 + 8) * 2);
  schedule.math_warpgroups = 2;
  for (const SharedRegion& region : shared_map(planned(problem, schedule))) EXPECT_NE(region.name, "halves of sums");
}

TEST(HopperSharedMap, CoversEveryByteOnce) {
  for (const KvRing ring : {KvRing::kSplit, KvRing::kShared})
    for (const int q_stages : {1, 2}) {
      AttentionSchedule schedule = hopper();
      schedule.kv_ring = ring;
      schedule.q_stages = q_stages;
      schedule.num_kv_stages = 3;
      schedule.block_n = 64;
      const AttentionSpec spec = planned(prefill(128, 128), schedule);
      std::uint32_t end = 0;
      for (const SharedRegion& region : shared_map(spec)) {
        if (region.name == "items") end = (end + 15) / 16 * 16;
        EXPECT_EQ(region.offset, end) << region.name;
        end = region.offset + region.bytes;
      }
      EXPECT_EQ(end, shared_bytes(spec));
    }
}

}  // namespace
}  // namespace kernelwright::hopper_layout_test
