// The GEMM schedules that the tuner measures: legal, all different, the model's own among them, and the same every
// time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/candidates.h"
#include "kernelwright/generator/gemm/family.h"
#include "support/tuned_rows.h"

namespace kernelwright {
namespace {

using test::mlp_of;

std::vector<GemmShape> rows(int m) { return {{.name = "m", .m = m}}; }
const CandidateOptions kAll{.num_sms = 132, .most = 0, .within = 1e9};

std::string name_of(const GemmVariant& variant) {
  return canonical_text(Spec(variant.spec)) + (variant.bands_of_n ? "n" : "m");
}

class GemmCandidatesOf : public ::testing::TestWithParam<std::pair<int, Arch>> {
 protected:
  int m() const { return GetParam().first; }
  Arch arch() const { return GetParam().second; }
};
INSTANTIATE_TEST_SUITE_P(RowsAndFamilies, GemmCandidatesOf,
                         ::testing::Values(std::pair{16, Arch::kSm90a}, std::pair{128, Arch::kSm90a},
                                           std::pair{4096, Arch::kSm90a}, std::pair{64, Arch::kSm80},
                                           std::pair{16, Arch::kSm100a}, std::pair{4096, Arch::kSm100a}));

TEST_P(GemmCandidatesOf, EveryOneIsOneLegalKernelAndNoTwoAreAlike) {
  const GemmCandidates all = enumerate_candidates(mlp_of(), {}, arch(), rows(m()), kAll);
  EXPECT_GT(all.kept.size(), arch() == Arch::kSm90a ? 60u : arch() == Arch::kSm80 ? 20u : 3u);
  std::set<std::string> seen;
  for (const GemmCandidate& candidate : all.kept) {
    const GemmPlan plan = plan_by_model(mlp_of(), candidate.schedule, arch());
    ASSERT_EQ(plan.variants.size(), 1u) << canonical_text(candidate.schedule);
    EXPECT_EQ(plan.variants, candidate.plan.variants);
    EXPECT_TRUE(seen.insert(name_of(plan.variants[0])).second);
    EXPECT_LE(static_cast<int>(shared_bytes(plan.variants[0].spec)), arch_info(arch()).shared_bytes_per_cta);
    EXPECT_GT(candidate.cost, 0);
  }
}

TEST_P(GemmCandidatesOf, TheModelsChoiceIsFirstAndFewAreKept) {
  const GemmCandidates few = enumerate_candidates(mlp_of(), {}, arch(), rows(m()));
  EXPECT_LE(few.kept.size(), 32u);
  EXPECT_GE(few.kept.size(), 2u);
  const GemmVariant model = plan_by_model(mlp_of(), {}, arch()).variant_for(m());
  EXPECT_EQ(name_of(few.kept[0].plan.variants[0]), name_of(model));
  EXPECT_EQ(few.kept[0].schedule.block_n.value(), model.spec.block_n) << "its fields are spelt out";
  EXPECT_EQ(few.kept[0].schedule.family.value(), model.spec.family);
  double least = few.kept[0].cost;
  for (const GemmCandidate& candidate : few.kept) least = std::min(least, candidate.cost);
  for (std::size_t i = 1; i < few.kept.size(); ++i) EXPECT_LE(few.kept[i].cost, 1.3 * least);
}

TEST_P(GemmCandidatesOf, AreTheSameEveryTime) {
  const GemmCandidates once = enumerate_candidates(mlp_of(), {}, arch(), rows(m()));
  const GemmCandidates again = enumerate_candidates(mlp_of(), {}, arch(), rows(m()));
  ASSERT_EQ(once.kept.size(), again.kept.size());
  for (std::size_t i = 0; i < once.kept.size(); ++i) EXPECT_EQ(once.kept[i].schedule, again.kept[i].schedule);
}

TEST(GemmCandidates, VaryEveryFieldThatTheModelKnowsLittleOf) {
  std::set<int> stages, groups, clusters, splits, in_turn, in_flight;
  std::set<bool> swapped, along_n;
  std::set<Roles> roles;
  for (const GemmCandidate& candidate : enumerate_candidates(mlp_of(), {}, Arch::kSm90a, rows(512), kAll).kept) {
    const GemmSpec& spec = candidate.plan.variants[0].spec;
    stages.insert(spec.stages), groups.insert(spec.k_group), clusters.insert(spec.cluster_m);
    splits.insert(spec.split_k), in_flight.insert(spec.mma_in_flight), swapped.insert(spec.swap_ab);
    if (spec.takes_turns()) in_turn.insert(spec.split_k);
    roles.insert(spec.roles), along_n.insert(candidate.plan.variants[0].bands_of_n);
  }
  EXPECT_GT(stages.size(), 4u);
  EXPECT_EQ(groups, (std::set{1, 2, 4}));
  EXPECT_EQ(clusters, (std::set{1, 2, 4}));
  EXPECT_EQ(splits, (std::set{1, 2, 4}));
  EXPECT_THAT(in_turn, ::testing::IsEmpty()) << "a row that needs a workspace would serve who has none";
  EXPECT_EQ(in_flight, (std::set{0, 1}));
  EXPECT_EQ(swapped.size() + roles.size() + along_n.size(), 6u);
}

TEST(GemmCandidates, PartsThatTakeTurnsAreTriedWhereTheScheduleAsksForThem) {
  GemmSchedule schedule;
  schedule.split_mode = SplitMode::kTurnstile;
  std::set<int> in_turn;
  for (const GemmCandidate& candidate : enumerate_candidates(mlp_of(), schedule, Arch::kSm90a, rows(512), kAll).kept) {
    const GemmSpec& spec = candidate.plan.variants[0].spec;
    EXPECT_TRUE(spec.takes_turns() || spec.split_k == 1);
    if (spec.takes_turns()) in_turn.insert(spec.split_k);
  }
  EXPECT_EQ(in_turn, (std::set{2, 4, 8}));
}

TEST(GemmCandidates, ABatchInvariantProblemHasNoPartsOfK) {
  GemmProblem problem = mlp_of();
  problem.batch_invariant = true;
  for (const GemmCandidate& candidate : enumerate_candidates(problem, {}, Arch::kSm90a, rows(16), kAll).kept)
    EXPECT_EQ(candidate.plan.variants[0].spec.split_k, 1);
}

TEST(GemmCandidates, KeepTheFieldsThatAreGiven) {
  GemmSchedule schedule;
  schedule.block_n = 64;
  schedule.stages = 4;
  for (const GemmCandidate& candidate : enumerate_candidates(mlp_of(), schedule, Arch::kSm90a, rows(16), kAll).kept) {
    EXPECT_EQ(candidate.plan.variants[0].spec.block_n, 64);
    EXPECT_EQ(candidate.plan.variants[0].spec.stages, 4);
  }
}

TEST(GemmCandidates, AreRefusedWithTheModel) {
  EXPECT_THROW(enumerate_candidates(mlp_of(4096, 4095), {}, Arch::kSm90a, rows(16)), ConfigError);
}

TEST(GemmCandidates, OfAQuantisedResultHoldWholeScales) {
  for (const char* value : {"acc", "silu(gate) * up"})
    for (const int rows : {8, 4096}) {
      GemmProblem problem;
      problem.n = problem.k = 4096, problem.dtype.d = DType::kE4m3;
      problem.epilogue = std::string("d = quantize(") + value + ", e4m3, per=token_group(128), scale=s)";
      const GemmCandidates found = enumerate_candidates(problem, {}, Arch::kSm90a, {{"", rows}});
      EXPECT_GT(found.kept.size(), 4u) << value << ", " << rows << " rows";
      for (const GemmCandidate& candidate : found.kept) {
        const GemmSpec& spec = candidate.plan.variants.back().spec;
        EXPECT_EQ((spec.swap_ab ? spec.block_m : spec.block_n) % spec.scaled_columns(), 0);
      }
    }
}

}  // namespace
}  // namespace kernelwright
