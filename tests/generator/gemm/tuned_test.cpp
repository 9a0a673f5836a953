// Tuned rows of a GEMM: which are read and refused, to which launches they apply, and how they change a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/plan/machine.h"
#include "support/tuned_rows.h"

namespace kernelwright {
namespace {

using test::gemm_row_for;
using test::mlp_of;
using ::testing::HasSubstr;

constexpr Arch kArch = Arch::kSm90a;
constexpr RowRange kFew{1, 16}, kMany{2049, 3072}, kMost{8193, 1 << 24};

std::string changed(const std::string& key, JsonValue value) {
  JsonValue json = JsonValue::parse(write_tuned_row(gemm_row_for(mlp_of(), kFew)));
  return json.set(key, std::move(value)).dump();
}

std::string refusal(const std::string& json) {
  try {
    read_tuned_row(json);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string line_of(const GemmPlan& plan, const std::string& field) {
  for (const Choice& choice : plan.choices)
    if (choice.field == field) return choice.value + " by " + std::string(to_string(choice.by)) + ": " + choice.reason;
  return "no line";
}

TEST(GemmTunedRow, ReadsBackWhatItWrote) {
  GemmTunedRow row = gemm_row_for(mlp_of(), kMany);
  row.problem.dtype.d = DType::kF32;
  row.problem.epilogue = "gelu(acc + bias)";
  row.tuning_class = tuning_class(row.problem);
  row.schedule.cluster = ClusterShape{2, 1};
  row.schedule.raster = Raster::kAlongN;
  row.provenance.runner_up.split_k = 4;
  EXPECT_EQ(read_tuned_row(write_tuned_row(row)), AnyTunedRow(row));
}

TEST(GemmTunedRow, RefusesWhatItDoesNotKnowOrCannotBe) {
  EXPECT_THAT(refusal(changed("row", 3)), HasSubstr("/row: is not a field here (did you mean \"rows\"?)"));
  EXPECT_THAT(refusal(changed("num_sms", 0)), HasSubstr("/num_sms: 0 is outside [1, 65536]"));
  EXPECT_THAT(refusal(changed("rows", JsonValue::object().set("least", 17).set("most", 16))),
              HasSubstr("/rows/most: 16 is less than /rows/least, 17; it takes that or more"));
  EXPECT_THAT(refusal(changed("rows", JsonValue::object().set("least", 1))), HasSubstr("/rows/most: is missing"));
  EXPECT_THAT(refusal(changed("schedule", JsonValue::object().set("family", "hopper").set("block_q", 64))),
              HasSubstr("/schedule/block_q: is not a field here"));
  EXPECT_THAT(refusal(changed("class", "gemm f16 nt 1 x 1")), HasSubstr("it takes \"gemm bf16 nt 4352 x 4096\""));
  EXPECT_THAT(refusal(changed("kind", "attention")), HasSubstr("/num_sms: is not a field here"));
}

TEST(GemmTuningClass, NamesAllButTheEpilogue) {
  GemmProblem problem = mlp_of(512, 256);
  problem.dtype = {DType::kE4m3, DType::kE5m2, DType::kBf16, DType::kBf16};
  problem.scales = ScaleKind::kPerBlock;
  problem.batch_invariant = true;
  EXPECT_EQ(tuning_class(problem), "gemm e4m3 e5m2 to bf16 nt per_block batch_invariant 512 x 256");
  problem.epilogue = "relu(acc)";
  EXPECT_EQ(tuning_class(problem), "gemm e4m3 e5m2 to bf16 nt per_block batch_invariant 512 x 256");
}

TEST(GemmRowRanges, CoverEveryRowOnceAndAPlanTellsNoFinerOnesApart) {
  int next = 1;
  std::set<int> ends{std::numeric_limits<int>::max()};
  for (const RowRange& range : gemm_row_ranges()) {
    EXPECT_EQ(range.least, next);
    EXPECT_LE(range.least, range.most);
    EXPECT_EQ(gemm_row_range(range.least), range);
    EXPECT_EQ(gemm_row_range(range.most), range);
    next = range.most + 1;
    ends.insert(range.most);
  }
  EXPECT_EQ(gemm_row_range(0), gemm_row_ranges().front());
  EXPECT_EQ(gemm_row_range(std::numeric_limits<int>::max()), gemm_row_ranges().back());
  for (const GemmVariant& variant : plan_by_model(mlp_of(), {}, kArch).variants)
    EXPECT_TRUE(ends.contains(variant.most_m)) << variant.most_m;
}

TEST(PlanGemm, TakesARowForItsRowsAloneAndSaysSo) {
  const TunedTable table = TunedTable::of({{"sm_90a/mlp", gemm_row_for(mlp_of(), kMany)}});
  const GemmPlan plan = plan_gemm(mlp_of(), {}, kArch, table), model = plan_by_model(mlp_of(), {}, kArch);
  int tuned = 0;
  for (const int m : {1, 16, 17, 2048, 2049, 3000, 3072, 3073, 100000}) {
    const GemmVariant& variant = plan.variant_for(m);
    if (!kMany.contains(m)) {
      EXPECT_EQ(variant.spec, model.variant_for(m).spec) << m;
      EXPECT_EQ(variant.row, "") << m;
      continue;
    }
    ++tuned;
    EXPECT_EQ(variant.row, "sm_90a/mlp");
    EXPECT_EQ(variant.spec.block_m, 128);
    EXPECT_EQ(variant.spec.block_n, 64);
    EXPECT_EQ(variant.spec.stages, 2);
  }
  EXPECT_EQ(tuned, 3);
  EXPECT_EQ(line_of(plan, "rows from 2049"),
            "128 x 64, 2 slots by row: tuned 2026-11-21, 1.07 x the model's choice on NVIDIA H100 80GB HBM3: row "
            "sm_90a/mlp");
  EXPECT_THAT(line_of(plan, "block_n"), HasSubstr("by model")) << "these lines are of the last variant";
}

TEST(PlanGemm, ARowForTheMostRowsExplainsTheLastVariant) {
  const TunedTable table = TunedTable::of({{"r", gemm_row_for(mlp_of(), kMost)}});
  const GemmPlan plan = plan_gemm(mlp_of(), {}, kArch, table);
  EXPECT_EQ(plan.variant_for(1 << 24).row, "r");
  EXPECT_EQ(plan.variants.back().most_m, std::numeric_limits<int>::max());
  EXPECT_THAT(line_of(plan, "block_n"), HasSubstr("64 by row: tuned"));
  EXPECT_THAT(line_of(plan, "k_group"), HasSubstr("by model")) << "what the row leaves open";
}

TEST(PlanGemm, TheSchedulesOwnFieldsWin) {
  const TunedTable table = TunedTable::of({{"r", gemm_row_for(mlp_of(), kMost)}});
  GemmSchedule schedule;
  schedule.stages = 3;
  const GemmPlan plan = plan_gemm(mlp_of(), schedule, kArch, table);
  EXPECT_EQ(plan.variants.back().spec.stages, 3);
  EXPECT_EQ(plan.variants.back().spec.block_n, 64);
  EXPECT_THAT(line_of(plan, "stages"), HasSubstr("3 by schedule"));
}

TEST(PlanGemm, TakesNoRowOfAnotherProblemOrMachine) {
  const TunedTable table = TunedTable::of({{"r", gemm_row_for(mlp_of(), kMost)}});
  const auto takes = [&](const GemmProblem& problem, int num_sms, const GemmSchedule& schedule = {}) {
    return !plan_gemm(problem, schedule, kArch, table, num_sms).variants.back().row.empty();
  };
  EXPECT_TRUE(takes(mlp_of(), 132));
  EXPECT_TRUE(takes(mlp_of(), 0)) << "a usual part has 132 SMs";
  EXPECT_FALSE(takes(mlp_of(), 114));
  EXPECT_FALSE(takes(mlp_of(4096, 4160), 132));
  GemmProblem other = mlp_of();
  other.epilogue = "relu(acc)";
  EXPECT_FALSE(takes(other, 132));
  other = mlp_of();
  other.batch_invariant = true;
  EXPECT_FALSE(takes(other, 132));
  GemmSchedule portable;
  portable.family = Family::kPortable;
  EXPECT_FALSE(takes(mlp_of(), 132, portable));
  EXPECT_TRUE(
      TunedTable::of({{"r", gemm_row_for(mlp_of(), kMost)}}).matches(mlp_of(), DeviceClass::kA100, 132).empty());
}

TEST(PlanGemm, PassesOverARowThatDoesNotFitAndSaysWhy) {
  GemmTunedRow impossible = gemm_row_for(mlp_of(), kMost), foreign = gemm_row_for(mlp_of(), kFew);
  impossible.schedule.stages = 32;
  foreign.schedule = {};
  foreign.schedule.family = Family::kPortable;
  const GemmPlan plan = plan_gemm(mlp_of(), {}, kArch, TunedTable::of({{"a", impossible}, {"b", foreign}}));
  EXPECT_EQ(plan.variants, plan_by_model(mlp_of(), {}, kArch).variants) << "the model is always there";
  ASSERT_EQ(plan.passed_over.size(), 2u);
  EXPECT_THAT(plan.passed_over[0].reason, HasSubstr("/schedule/stages"));
  EXPECT_THAT(plan.passed_over[1].reason,
              HasSubstr("/schedule/family: portable is not the family of the plan's other kernels, hopper"));
}

TEST(PlanGemm, OfTwoRowsForOneRangeTheFasterIsTaken) {
  GemmTunedRow slow = gemm_row_for(mlp_of(), {1, 1 << 24}), fast = gemm_row_for(mlp_of(), kFew);
  slow.provenance.shapes[0].us = 200;
  fast.schedule.block_n = 32;
  const GemmPlan plan = plan_gemm(mlp_of(), {}, kArch, TunedTable::of({{"slow", slow}, {"fast", fast}}));
  EXPECT_EQ(plan.variants[0].row, "fast");
  EXPECT_EQ(plan.variants[0].most_m, 16);
  ASSERT_GE(plan.variants.size(), 2u);
  for (std::size_t i = 1; i < plan.variants.size(); ++i) EXPECT_EQ(plan.variants[i].row, "slow") << i;
}

TEST(PlanGemm, ARowOfTheDevicesOwnClassIsTakenBeforeAFasterOneOfAnother) {
  GemmTunedRow h100 = gemm_row_for(mlp_of(), kFew), h200 = gemm_row_for(mlp_of(), kFew, DeviceClass::kH200);
  h200.schedule.block_n = 32;
  h200.provenance.shapes[0].us = 2 * h100.provenance.shapes[0].us;
  const MachineClass& machine = machine_of("NVIDIA H200", kArch);
  const GemmPlan own = plan_gemm(mlp_of(), {}, machine, TunedTable::of({{"h100", h100}, {"h200", h200}}));
  EXPECT_EQ(own.variants[0].row, "h200");
  EXPECT_EQ(own.choices.back().by, ChosenBy::kRow);
  const GemmPlan lent = plan_gemm(mlp_of(), {}, machine, TunedTable::of({{"h100", h100}}));
  EXPECT_EQ(lent.variants[0].row, "h100");
  EXPECT_EQ(lent.choices.back().by, ChosenBy::kNeighbour);
  EXPECT_THAT(lent.choices.back().reason, HasSubstr("tuned on another device class, h100, at distance 0.50"));
}

TEST(GemmOverlay, RowsOfOneProblemLieSideBySideByTheirRows) {
  namespace fs = std::filesystem;
  std::string folder = fs::temp_directory_path() / "kernelwright-tuned-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string few = write_tuned_file(folder, "mlp", gemm_row_for(mlp_of(), kFew));
  EXPECT_EQ(write_tuned_file(folder, "mlp", gemm_row_for(mlp_of(), kFew)), few);
  EXPECT_NE(write_tuned_file(folder, "mlp", gemm_row_for(mlp_of(), kMany)), few) << "it is for other launches";
  const TunedTable table = TunedTable::with_overlay(folder, require_usable);
  EXPECT_TRUE(table.skipped().empty());
  EXPECT_EQ(table.matches(mlp_of(), DeviceClass::kH100, 132).size(), 2u);
  EXPECT_TRUE(table.matches(mlp_of(), DeviceClass::kH100, 114).empty());
  EXPECT_EQ(table.matches(mlp_of(), DeviceClass::kH100, 132)[0].row->launches.num_sms, 132);
  fs::remove_all(folder);
}

TEST(GemmShippedRows, AreReadAndUsed) {
  for (const GemmTunedMatch& match : TunedTable::shipped().rows<GemmConfig>()) {
    EXPECT_NO_THROW(plan_by_model(match.row->problem, match.row->schedule, match.row->arch)) << match.name;
    EXPECT_EQ(match.row->provenance.gpu.find("emulated"), std::string::npos) << match.name;
    EXPECT_EQ(match.row->device, machine_of(match.row->provenance.gpu, match.row->arch).device) << match.name;
  }
}

}  // namespace
}  // namespace kernelwright
