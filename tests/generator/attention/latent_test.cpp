// Latent attention: what is planned on which machine, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/source/specialize.h"

namespace kernelwright::latent_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

AttentionProblem latent(int heads = 128, int queries = 1) {
  AttentionProblem problem;
  problem.head_dim = {576, 512};
  problem.heads = {heads, 1};
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  problem.v_layout = VLayout::kKeyPrefix;
  problem.mask.kind = MaskKind::kCausal;
  problem.max_q_len = queries;
  return problem;
}

std::vector<std::string> texts(const AttentionProblem& problem, const AttentionSchedule& schedule = {},
                               Arch arch = Arch::kSm90a) {
  std::vector<std::string> lines;
  for (const Violation& violation : validate({"t", problem, schedule, {}}, arch)) lines.push_back(violation.text());
  return lines;
}
std::vector<std::string> texts(const std::function<void(AttentionProblem&)>& change, Arch arch = Arch::kSm90a) {
  AttentionProblem problem = latent();
  change(problem);
  return texts(problem, {}, arch);
}

TEST(Latent, HasAKernelOnEveryArchitecture) {
  for (const ArchInfo& arch : all_archs()) {
    const AttentionPlan plan = plan_attention(latent(), {}, arch.arch);
    EXPECT_EQ(plan.main.family, arch.own.value_or(Family::kPortable)) << arch.name;
    EXPECT_TRUE(plan.main.latent);
    EXPECT_LE(static_cast<int>(shared_bytes(plan.main)), arch.shared_bytes_per_cta) << arch.name;
    EXPECT_EQ(kernel_name(plan.main), arch.own == Family::kHopper      ? "attention_latent_sm90"
                                      : arch.own == Family::kBlackwell ? "attention_latent_sm100"
                                                                       : "attention_latent_portable");
    ASSERT_TRUE(plan.combine) << "parts are merged by a kernel of their own";
  }
}

// To read the products of all widths would cost a compilation 30 ms.
TEST(Latent, NamesTheProductsOfHopper) {
  const AttentionSpec spec = plan_attention(latent(), {}, Arch::kSm90a).main;
  EXPECT_THAT(specialize(spec).spec_header, HasSubstr("#define KERNELWRIGHT_WGMMA_N0 64\n"  // keys of a tile
                                                      "#define KERNELWRIGHT_WGMMA_N1 256\n"));
  EXPECT_THAT(specialize(plan_attention(latent(), {}, Arch::kSm100a).main).spec_header,
              testing::Not(HasSubstr("WGMMA")));
}

TEST(Latent, PagesWithRoomForABoxGoByTmaAndPortableTakesTheRest) {
  for (const auto& [arch, own] :
       {std::pair{Arch::kSm90a, Family::kHopper}, std::pair{Arch::kSm100a, Family::kBlackwell}})
    for (const auto& [page, boxes] :
         {std::pair{1, false}, std::pair{8, true}, std::pair{20, false}, std::pair{128, true}}) {
      AttentionProblem problem = latent();
      problem.kv_layout.page_size = page;
      EXPECT_EQ(plan_attention(problem, {}, arch).main.family, boxes ? own : Family::kPortable) << page;
    }
}

TEST(Latent, RowsFillTilesOf64AndPortableOnesOf16Or32) {
  AttentionSchedule any;
  any.family = Family::kPortable;
  const auto portable = [&](int heads, Arch arch) { return plan_attention(latent(heads), any, arch).main.block_m; };
  EXPECT_EQ(plan_attention(latent(8), {}, Arch::kSm90a).main.block_m, 64);
  EXPECT_EQ(plan_attention(latent(8), {}, Arch::kSm100a).main.block_m, 64);
  EXPECT_EQ(portable(16, Arch::kSm80), 16);
  EXPECT_EQ(portable(17, Arch::kSm80), 32);
  EXPECT_EQ(portable(17, Arch::kSm100a), 16) << "ptxas spills 32 rows";
  EXPECT_EQ(portable(128, Arch::kSm86), 16) << "32 rows do not fit 99 KB";
}

TEST(Latent, PartsFillTheMachineAndClustersCountAsOne) {
  AttentionPlan plan = plan_attention(latent(), {}, Arch::kSm90a);
  const AttentionExtent one{.batch = 1, .q_heads = 128, .kv_heads = 1, .q_len = 1, .kv_len = 32768, .q_tokens = 1};
  AttentionLaunch launch = plan_launch(plan.main, one, 132, 0);
  EXPECT_EQ(launch.num_m_blocks, 2);
  EXPECT_GE(launch.num_splits, 60);
  EXPECT_EQ(launch.main.grid[0], 2u * static_cast<unsigned>(launch.num_splits));
  EXPECT_EQ(launch.combine.grid[0], 128u) << "four warps for each row of 512 columns";
  AttentionSchedule pair;
  pair.cluster = ClusterShape{2, 1};
  plan = plan_attention(latent(), pair, Arch::kSm90a);
  launch = plan_launch(plan.main, one, 132, 0);
  EXPECT_EQ(launch.num_m_blocks, 1);
  EXPECT_EQ(launch.main.cluster, 2u);
  EXPECT_EQ(launch.main.grid[0], 2u * static_cast<unsigned>(launch.num_splits));
}

TEST(Latent, BalancedTeamsFillTheMachineAndMergeInTheirKernel) {
  AttentionSchedule balanced;
  balanced.scheduler = Scheduler::kBalanced;
  EXPECT_FALSE(plan_attention(latent(), {}, Arch::kSm90a).main.balanced);
  AttentionPlan plan = plan_attention(latent(), balanced, Arch::kSm90a);
  EXPECT_TRUE(plan.main.balanced);
  EXPECT_FALSE(plan.combine);
  AttentionExtent extent{.batch = 7, .q_heads = 128, .kv_heads = 1, .q_len = 1, .kv_len = 32768, .q_tokens = 7};
  AttentionLaunch launch = plan_launch(plan.main, extent, 133, 0);
  EXPECT_TRUE(launch.balanced);
  EXPECT_EQ(launch.num_m_blocks, 2);
  EXPECT_EQ(launch.main.grid[0], 132u) << "whole teams of two";
  EXPECT_EQ(launch.partial_lse_offset, 132u * 128 * 512 * 4) << "two parts of 64 rows for each CTA";
  EXPECT_EQ(launch.merge_counters_offset, launch.partial_lse_offset + 132u * 128 * 4);
  EXPECT_EQ(launch.workspace_bytes, launch.merge_counters_offset + 132u * 16);
  EXPECT_GT(launch.num_splits, 1);
  extent = {.batch = 1, .q_heads = 128, .kv_heads = 1, .q_len = 1, .kv_len = 640, .q_tokens = 1};
  EXPECT_EQ(plan_launch(plan.main, extent, 132, 0).main.grid[0], 6u)
      << "three pieces of 10 tiles and what a sequence costs beside";
  extent.kv_len = 0;
  EXPECT_EQ(plan_launch(plan.main, extent, 132, 0).main.grid[0], 4u) << "one tile, and what a sequence costs beside";
  extent.batch = extent.kv_len = 0x7fffffff;
  launch = plan_launch(plan.main, extent, 132, 0);
  EXPECT_EQ(launch.num_splits, 1) << "their costs would not fit 31 bits";
  EXPECT_EQ(launch.main.grid[0], 132u);
}

TEST(Latent, SharesOfABatchAreNotBatchInvariant) {
  AttentionSchedule schedule;
  AttentionProblem problem = latent();
  problem.batch_invariant = true;
  EXPECT_EQ(plan_attention(problem, schedule, Arch::kSm90a).splits, 1);
  schedule.scheduler = Scheduler::kBalanced;
  EXPECT_THAT(
      texts(problem, schedule),
      ElementsAre("/schedule/scheduler: \"balanced\" cuts keys where the shares of the whole batch end, and the "
                  "problem is batch_invariant; \"grid\" is accepted"));
}

TEST(Latent, BalancedRefusesWhatItDecidesItself) {
  AttentionSchedule schedule;
  schedule.scheduler = Scheduler::kBalanced;
  const auto text = [&] {
    try {
      plan_attention(latent(), schedule, Arch::kSm90a);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(text(), "");
  schedule.splits = 3;
  EXPECT_THAT(text(), HasSubstr("/schedule/splits: 3: does not fit scheduler \"balanced\""));
  schedule.splits = {};
  schedule.cluster = ClusterShape{2, 1};
  EXPECT_THAT(text(), HasSubstr("/schedule/cluster: [2, 1]: does not fit scheduler \"balanced\""));
  schedule.cluster = {};
  schedule.merge = Merge::kCombine;
  EXPECT_THAT(text(), HasSubstr("/schedule/merge"));
  schedule = {};
  schedule.family = Family::kHopper;
  schedule.scheduler = Scheduler::kBalanced;
  AttentionProblem capped = latent();
  capped.score_mod = {ScoreModKind::kSoftcap, 20};
  EXPECT_THROW(plan_attention(capped, schedule, Arch::kSm90a), ConfigError);
  schedule.scheduler = Scheduler::kQueued;
  EXPECT_THAT(texts(latent(), schedule), ElementsAre(HasSubstr("it has grid, balanced")));
  schedule = {};
  schedule.scheduler = Scheduler::kBalanced;
  EXPECT_THAT(texts(latent(), schedule, Arch::kSm80), testing::Contains(HasSubstr("/schedule/scheduler")));
}

TEST(Latent, BlackwellFillsTensorMemoryAndSharedMemoryOnce) {
  for (const int depth : {512, 576}) {
    AttentionProblem problem = latent();
    problem.head_dim.qk = depth;
    const AttentionPlan plan = plan_attention(problem, {}, Arch::kSm100a);
    const TensorMemoryMap tensor = tensor_memory_map(plan.main);
    EXPECT_EQ(tensor.used, 2 * 32 + 2 * 128) << "64 rows are folded over 128 lanes: half of N columns each";
    EXPECT_EQ(tensor.allocated, 512);
    int column = 0;
    for (const TensorMemoryRegion& region : tensor.regions) {
      EXPECT_EQ(region.column, column) << region.name;
      column += region.columns;
    }
    EXPECT_EQ(column, tensor.used);
    std::uint32_t offset = 0;
    for (const SharedRegion& region : shared_map(plan.main)) {
      EXPECT_EQ(region.offset, offset) << region.name;
      offset += region.bytes;
    }
    EXPECT_EQ(offset, shared_bytes(plan.main));
    int warps = 0;
    for (const KernelRole& role : roles(plan.main)) warps += role.num_warps;
    EXPECT_EQ(warps * 32, plan.main.threads());
  }
}

TEST(Latent, RefusesByNameWhatNoKernelTakes) {
  EXPECT_THAT(texts([](AttentionProblem& p) {
                p.head_dim = {640, 512};
              }),
              ElementsAre("/problem/head_dim/qk: 640 is not built yet for the portable family; it has 512, 576"));
  EXPECT_THAT(texts([](AttentionProblem& p) {
                p.head_dim = {576, 256};
              }),
              ElementsAre("/problem/head_dim/v: 256 is not built yet for the portable family; it has 512"));
  EXPECT_THAT(texts([](AttentionProblem& p) {
                p.head_dim = {512, 576};
              })[0],
              HasSubstr("does not fit v_layout \"key_prefix\": keys of 512 elements"));
  EXPECT_THAT(texts([](AttentionProblem& p) { p.dtype.kv = DType::kE5m2; })[0],
              HasSubstr("\"e5m2\" does not fit v_layout \"key_prefix\" with bf16 queries; the same dtype would do, or "
                        "e4m3"));
  EXPECT_THAT(texts([](AttentionProblem& p) { p.score_mod.kind = ScoreModKind::kAlibi; }),
              ElementsAre(HasSubstr("it has none, softcap")));
  EXPECT_THAT(texts([](AttentionProblem& p) { p.rope.width = 64; })[0], HasSubstr("/problem/rope/width: 64"));
  EXPECT_THAT(texts([](AttentionProblem& p) { p.heads.q = 0; })[0], HasSubstr("/problem/heads/q"));
  AttentionSchedule blackwell;
  blackwell.family = Family::kBlackwell;
  blackwell.cta_group = 2;
  EXPECT_THAT(texts(latent(), blackwell, Arch::kSm100a), ElementsAre(HasSubstr("/schedule/cta_group")));
  AttentionProblem small_pages = latent();
  small_pages.kv_layout.page_size = 4;
  blackwell.cta_group = {};
  AttentionSchedule balanced = blackwell;
  balanced.scheduler = Scheduler::kBalanced;
  EXPECT_THAT(
      texts(latent(), balanced, Arch::kSm100a),
      ElementsAre(HasSubstr("/schedule/scheduler: \"balanced\" is not built yet for the blackwell family; it has "
                            "grid")));
  EXPECT_THAT(texts(small_pages, blackwell, Arch::kSm100a),
              ElementsAre("/problem/kv_layout/page_size: 4 is not built yet for the blackwell family; it has multiples "
                          "of 8; the portable family takes this problem"));
  AttentionSchedule three;
  three.cluster = ClusterShape{3, 1};
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a})
    EXPECT_THROW(plan_attention(latent(), three, arch), ConfigError);
  AttentionSchedule tall;
  tall.family = Family::kPortable;
  tall.block_m = 64;
  EXPECT_THROW(plan_attention(latent(), tall, Arch::kSm80), ConfigError);
}

AttentionProblem in_bytes(ScaleKind scales) {
  AttentionProblem problem = latent();
  problem.dtype.kv = DType::kE4m3;
  problem.scales = scales;
  return problem;
}

TEST(LatentBytes, HaveAKernelOnEveryArchitecture) {
  for (const ArchInfo& arch : all_archs())
    for (const ScaleKind scales : {ScaleKind::kPerBlock, ScaleKind::kPerTensor, ScaleKind::kNone}) {
      const AttentionPlan plan = plan_attention(in_bytes(scales), {}, arch.arch);
      EXPECT_EQ(plan.main.family, arch.own == Family::kHopper ? Family::kHopper : Family::kPortable) << arch.name;
      EXPECT_LE(static_cast<int>(shared_bytes(plan.main)), arch.shared_bytes_per_cta) << arch.name;
      EXPECT_EQ(plan.main.key_width(), scales == ScaleKind::kPerBlock ? 656 : 576);
      EXPECT_EQ(plan.main.kv_bytes(), plan.main.key_width());
    }
}

TEST(LatentBytes, SharedMemoryHasScalesOfRecordsAndKeysAsTheyLand) {
  const auto names = [](const AttentionPlan& plan) {
    std::vector<std::string> found;
    for (const SharedRegion& region : shared_map(plan.main)) found.push_back(region.name);
    return found;
  };
  const auto on = [&](ScaleKind scales, Arch arch) { return names(plan_attention(in_bytes(scales), {}, arch)); };
  EXPECT_THAT(on(ScaleKind::kPerBlock, Arch::kSm90a), testing::Contains("scales, then sums"));
  EXPECT_THAT(on(ScaleKind::kPerTensor, Arch::kSm90a), testing::Contains("sums"));
  EXPECT_THAT(on(ScaleKind::kPerBlock, Arch::kSm80), ElementsAre("queries", "keys", "keys as they land", "scores"));
}

TEST(LatentBytes, RefuseByNameWhatNoKernelTakes) {
  const auto refused = [](const std::function<void(AttentionProblem&)>& change) {
    AttentionProblem problem = in_bytes(ScaleKind::kPerBlock);
    change(problem);
    return texts(problem);
  };
  EXPECT_THAT(refused([](AttentionProblem& p) { p.scales = ScaleKind::kPerHead; }),
              ElementsAre("/problem/scales: \"per_head\" is not built yet for the portable family; it has none, "
                          "per_tensor, per_block"));
  EXPECT_THAT(
      refused([](AttentionProblem& p) {
        p.head_dim = {512, 512};
      }),
      ElementsAre(HasSubstr("/problem/head_dim/qk: 512 is not built yet for the portable family; it has 576 for "
                            "scales \"per_block\": records of 512 latents, 4 scales and 64 elements of bf16")));
  EXPECT_THAT(refused([](AttentionProblem& p) { p.dtype.kv = DType::kBf16; }),
              ElementsAre(HasSubstr("/problem/scales: \"per_block\" has no meaning for bf16 keys")));
  EXPECT_THAT(refused([](AttentionProblem& p) { p.v_layout = VLayout::kRows; }),
              testing::Contains(HasSubstr("\"per_block\" is not built yet")));
  EXPECT_THAT(refused([](AttentionProblem& p) { p.dtype.q = p.dtype.out = DType::kE4m3; }),
              testing::Contains(HasSubstr("/problem/dtype/q: \"e4m3\"")));
  AttentionSchedule blackwell;
  blackwell.family = Family::kBlackwell;
  EXPECT_THAT(
      texts(in_bytes(ScaleKind::kPerTensor), blackwell, Arch::kSm100a),
      ElementsAre(HasSubstr("/problem/dtype/kv: \"e4m3\" is not built yet for the blackwell family; it has f16, bf16"),
                  HasSubstr("/problem/scales: \"per_tensor\" is not built yet for the blackwell family; it has none")));
  AttentionSchedule pair;
  pair.family = Family::kHopper;
  pair.cluster = ClusterShape{2, 1};
  EXPECT_THAT([&] { plan_attention(in_bytes(ScaleKind::kPerBlock), pair, Arch::kSm90a); },
              testing::ThrowsMessage<ConfigError>(
                  HasSubstr("/schedule/cluster: [2, 1]: each CTA converts keys of e4m3 for itself; [1, 1] would do")));
}

TEST(Latent, KeysOf576WithoutThePrefixAreToldOfIt) {
  const std::vector<std::string> found = texts([](AttentionProblem& p) { p.v_layout = VLayout::kRows; });
  EXPECT_THAT(found,
              testing::Contains(HasSubstr("\"v_layout\": \"key_prefix\" takes keys of 576 that hold their values")));
}

}  // namespace
}  // namespace kernelwright::latent_test
