// Which row applies to which problem, what an overlay changes, and that a bad file does nothing to a server.
#include "kernelwright/generator/tuned/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/plan/machine.h"
#include "support/tuned_rows.h"

namespace kernelwright {
namespace {

using test::paged_decode;
using test::prefill_of;
using test::row_for;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class Overlay : public ::testing::Test {
 protected:
  Overlay() {
    std::string name = fs::temp_directory_path() / "kernelwright-tuned-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Overlay() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = fs::path(folder_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  std::string folder_;
};

TEST(TunedTable, PrefersTheVeryProblemToANearOne) {
  const TunedTable table = TunedTable::of({{"near", row_for(paged_decode(32))}, {"exact", row_for(paged_decode(64))}});
  const auto matches = table.matches(paged_decode(64), DeviceClass::kH100);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].name, "exact");
  EXPECT_TRUE(matches[0].exact);
  EXPECT_EQ(matches[1].name, "near");
  EXPECT_DOUBLE_EQ(matches[1].distance, 0.5);
}

TEST(TunedTable, HasNothingForAnotherArchitectureClassOrFamily) {
  const TunedTable table = TunedTable::of({{"row", row_for(prefill_of())}});
  EXPECT_EQ(table.matches(prefill_of(), DeviceClass::kH100).size(), 1u);
  EXPECT_TRUE(table.matches(prefill_of(), DeviceClass::kA100).empty());
  EXPECT_TRUE(table.matches(paged_decode(), DeviceClass::kH100).empty());
  EXPECT_EQ(table.matches(prefill_of(), DeviceClass::kH100, Family::kPortable).size(), 1u);
  EXPECT_TRUE(table.matches(prefill_of(), DeviceClass::kH100, Family::kHopper).empty());
}

TEST(TunedTable, OfSeveralFamiliesTheFasterRowLeads) {
  TunedRow hopper = row_for(prefill_of()), portable = row_for(prefill_of());
  hopper.schedule = {};
  hopper.schedule.family = Family::kHopper;
  hopper.provenance.shapes[0].us = 120;
  EXPECT_EQ(TunedTable::of({{"h", hopper}, {"p", portable}}).matches(prefill_of(), DeviceClass::kH100)[0].name, "p");
  hopper.provenance.shapes[0].us = 60;
  EXPECT_EQ(TunedTable::of({{"h", hopper}, {"p", portable}}).matches(prefill_of(), DeviceClass::kH100)[0].name, "h");
}

TEST(TunedTable, AProblemWithoutHeadsHasNoRow) {
  AttentionProblem problem = prefill_of();
  problem.heads = {8, 0};
  EXPECT_TRUE(TunedTable::of({{"row", row_for(prefill_of())}}).matches(problem, DeviceClass::kH100).empty());
}

TEST(TunedTable, ARowOfTheDevicesOwnClassLeadsAndAnotherClassLendsItsRowsAsNeighbours) {
  const TunedRow h100 = row_for(prefill_of()), h200 = row_for(prefill_of(), DeviceClass::kH200);
  const TunedTable both = TunedTable::of({{"h100", h100}, {"h200", h200}});
  for (const DeviceClass device : {DeviceClass::kH100, DeviceClass::kH200}) {
    const auto matches = both.matches(prefill_of(), device);
    ASSERT_EQ(matches.size(), 2u);
    EXPECT_EQ(matches[0].name, to_string(device));
    EXPECT_TRUE(matches[0].exact && !matches[0].lent);
    EXPECT_EQ(matches[0].distance, 0);
    EXPECT_TRUE(!matches[1].exact && matches[1].lent) << "the very problem on another class is a neighbour";
    EXPECT_EQ(matches[1].distance, kLentRow);
  }
}

TEST(TunedTable, AtOneDistanceTheDevicesOwnClassLeadsWhateverTheTimes) {
  TunedRow own = row_for(paged_decode(32), DeviceClass::kH200);
  own.provenance.shapes[0].us = 900;
  const TunedTable table = TunedTable::of({{"lent", row_for(paged_decode(64))}, {"own", own}});
  const auto matches = table.matches(paged_decode(64), DeviceClass::kH200);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].distance, matches[1].distance) << "a page size twice as large, or another class";
  EXPECT_EQ(matches[0].name, "own");
}

TEST(TunedTable, ARowThatIsTooFarWithItsClassIsNotLent) {
  const TunedTable table = TunedTable::of({{"row", row_for(prefill_of(8, 1))}});  // 2.75 away
  EXPECT_EQ(table.matches(prefill_of(256, 8), DeviceClass::kH100).size(), 1u);
  EXPECT_TRUE(table.matches(prefill_of(256, 8), DeviceClass::kH200).empty());
}

TEST(RowDistance, AddsUpWhatDiffers) {
  EXPECT_EQ(row_distance(prefill_of(8, 2), prefill_of(8, 2)), 0);
  EXPECT_DOUBLE_EQ(*row_distance(prefill_of(16, 4), prefill_of(8, 2)), 0.25) << "KV heads: log2(2) / 4";
  EXPECT_DOUBLE_EQ(*row_distance(prefill_of(8, 1), prefill_of(4, 1)), 1) << "heads of a group: log2(2)";
  AttentionProblem other = prefill_of(8, 2);
  other.sinks = true;
  other.lse = true;
  EXPECT_DOUBLE_EQ(*row_distance(other, prefill_of(8, 2)), 0.5);
  other = prefill_of(8, 8);
  other.q_layout = QLayout::kRagged;
  EXPECT_DOUBLE_EQ(*row_distance(other, prefill_of(8, 8)), 0.5);
  other = prefill_of(8, 2);
  other.q_layout = QLayout::kRagged;
  EXPECT_EQ(row_distance(other, prefill_of(8, 2)), std::nullopt)
      << "heads that share tiles are walked in another order";
  EXPECT_EQ(row_distance(prefill_of(64, 1), prefill_of(4, 1)), std::nullopt) << "16 times the group is too far";
  AttentionProblem wide = prefill_of(8, 2);
  wide.mask = {.kind = MaskKind::kSlidingWindow, .window = {1023, 0}};
  AttentionProblem narrow = wide;
  narrow.mask.window.left = 127;
  EXPECT_DOUBLE_EQ(*row_distance(wide, narrow), 1.5) << "windows: log2(8) / 2";
}

TEST(PlanAttention, TakesTheRowsFieldsAndSaysSo) {
  const TunedTable table = TunedTable::of({{"sm_90a/llama", row_for(prefill_of())}});
  const AttentionPlan plan = plan_attention(prefill_of(), {}, Arch::kSm90a, table);
  EXPECT_EQ(plan.main.rescale, Rescale::kAlways);
  EXPECT_EQ(plan.row, "sm_90a/llama");
  AttentionSchedule portable;
  portable.family = Family::kPortable;
  AttentionSpec model = plan_by_model(prefill_of(), portable, Arch::kSm90a).main;
  EXPECT_EQ(model.rescale, Rescale::kLazy);
  model.rescale = Rescale::kAlways;
  EXPECT_EQ(plan.main, model) << "what the row leaves open is the model's";
  for (const Choice& choice : plan.choices) {
    const bool of_row = choice.field == "rescale" || choice.field == "family";
    EXPECT_EQ(choice.by, of_row ? ChosenBy::kRow : ChosenBy::kModel) << choice.field;
    if (choice.field == "rescale") {
      EXPECT_EQ(choice.reason,
                "tuned 2026-11-21, 1.07 x the model's choice on NVIDIA H100 80GB HBM3: row sm_90a/llama");
    }
  }
}

TEST(PlanAttention, TheSchedulesOwnFieldsWin) {
  const TunedTable table = TunedTable::of({{"row", row_for(prefill_of())}});
  AttentionSchedule schedule;
  schedule.rescale = Rescale::kLazy;
  const AttentionPlan plan = plan_attention(prefill_of(), schedule, Arch::kSm90a, table);
  EXPECT_EQ(plan.main.rescale, Rescale::kLazy);
  for (const Choice& choice : plan.choices) {
    if (choice.field == "rescale") {
      EXPECT_EQ(choice.by, ChosenBy::kSchedule);
    }
  }
}

TEST(PlanAttention, TakesANeighboursRowWhereItFits) {
  const TunedTable table = TunedTable::of({{"row", row_for(paged_decode(32))}});
  const AttentionPlan plan = plan_attention(paged_decode(64), {}, Arch::kSm90a, table);
  EXPECT_EQ(plan.main.rescale, Rescale::kAlways);
  for (const Choice& choice : plan.choices)
    if (choice.field == "rescale") {
      EXPECT_EQ(choice.by, ChosenBy::kNeighbour);
      EXPECT_THAT(choice.reason, HasSubstr("tuned for a neighbour at distance 0.50"));
    }
}

TEST(PlanAttention, TakesARowThatAnotherClassLendsAndSaysSo) {
  const TunedTable table = TunedTable::of({{"sm_90a/llama", row_for(prefill_of())}});
  const MachineClass& h200 = machine_of("NVIDIA H200", Arch::kSm90a);
  const AttentionPlan plan = plan_attention(prefill_of(), {}, h200, table);
  EXPECT_EQ(plan.main, plan_attention(prefill_of(), {}, Arch::kSm90a, table).main);
  EXPECT_EQ(plan.row, "sm_90a/llama");
  int of_row = 0;
  for (const Choice& choice : plan.choices)
    if (choice.by != ChosenBy::kModel) {
      ++of_row;
      EXPECT_EQ(choice.by, ChosenBy::kNeighbour) << choice.field;
      EXPECT_EQ(choice.reason,
                "tuned on another device class, h100, at distance 0.50, 1.07 x the model's choice on NVIDIA H100 80GB "
                "HBM3: row sm_90a/llama");
    }
  EXPECT_EQ(of_row, 2) << "family and rescale";
}

TEST(PlanAttention, AnArchitectureStandsForItsUsualClass) {
  TunedRow h200 = row_for(prefill_of(), DeviceClass::kH200);
  h200.schedule.block_n = 32;
  const TunedTable table = TunedTable::of({{"h100", row_for(prefill_of())}, {"h200", h200}});
  EXPECT_EQ(plan_attention(prefill_of(), {}, Arch::kSm90a, table).row, "h100");
  EXPECT_EQ(plan_attention(prefill_of(), {}, machine_of("NVIDIA H100 80GB HBM3", Arch::kSm90a), table).row, "h100");
  const AttentionPlan on_h200 = plan_attention(prefill_of(), {}, machine_of("NVIDIA H200", Arch::kSm90a), table);
  EXPECT_EQ(on_h200.row, "h200");
  EXPECT_EQ(on_h200.main.block_n, 32);
}

TEST(PlanAttention, PassesOverARowThatDoesNotFitAndSaysWhy) {
  TunedRow impossible = row_for(prefill_of());
  impossible.schedule.num_stages = 32;
  TunedRow foreign = row_for(prefill_of(16, 4));
  foreign.schedule.kv_ring = KvRing::kSplit;  // the portable family has none
  const TunedRow good = row_for(prefill_of(32, 8));
  const TunedTable table = TunedTable::of({{"a", impossible}, {"b", foreign}, {"c", good}});
  const AttentionPlan plan = plan_attention(prefill_of(), {}, Arch::kSm90a, table);
  EXPECT_EQ(plan.row, "c");
  ASSERT_EQ(plan.passed_over.size(), 2u);
  EXPECT_EQ(plan.passed_over[0].name, "a");
  EXPECT_THAT(plan.passed_over[0].reason, HasSubstr("/schedule/num_stages: attention_portable: needs"));
  EXPECT_THAT(plan.passed_over[1].reason, HasSubstr("/schedule/kv_ring: the portable family has no kv_ring"));
  const AttentionPlan alone = plan_attention(prefill_of(), {}, Arch::kSm90a, TunedTable::of({{"a", impossible}}));
  EXPECT_EQ(alone.main, plan_by_model(prefill_of(), {}, Arch::kSm90a).main) << "the model is always there";
  EXPECT_EQ(alone.row, "");
}

TEST(PlanAttention, ProvenanceDoesNotReachTheSpec) {
  TunedRow row = row_for(prefill_of());
  const AttentionPlan plan = plan_attention(prefill_of(), {}, Arch::kSm90a, TunedTable::of({{"a", row}}));
  row.provenance = {};
  row.provenance.gpu = "another";
  const AttentionPlan other = plan_attention(prefill_of(), {}, Arch::kSm90a, TunedTable::of({{"b", row}}));
  EXPECT_EQ(canonical_text(Spec(plan.main)), canonical_text(Spec(other.main)));
}

TEST(PlanAttention, AnInvalidProblemIsRefusedAsWithoutRows) {
  AttentionProblem problem = prefill_of();
  AttentionSchedule schedule;
  schedule.block_m = 80;
  const TunedTable table = TunedTable::of({{"row", row_for(prefill_of())}});
  std::string with, without;
  try {
    plan_attention(problem, schedule, Arch::kSm90a, table);
  } catch (const ConfigError& error) {
    with = error.what();
  }
  try {
    plan_by_model(problem, schedule, Arch::kSm90a);
  } catch (const ConfigError& error) {
    without = error.what();
  }
  EXPECT_EQ(with, without);
  EXPECT_NE(with, "");
}

TEST_F(Overlay, TakesThePlaceOfARowForTheSameProblem) {
  TunedRow row = row_for(prefill_of());
  write_tuned_file(folder_, "first", row);
  const TunedTable table = TunedTable::with_overlay(folder_, require_usable);
  EXPECT_TRUE(table.skipped().empty());
  const auto matches = table.matches(prefill_of(), DeviceClass::kH100);
  ASSERT_GE(matches.size(), 1u);
  EXPECT_EQ(matches[0].name, folder_ + "/sm_90a/first.json");
  EXPECT_EQ(*matches[0].row, row);
}

TEST_F(Overlay, ARowOfAnotherClassStandsBesideTheOneOfTheSameProblem) {
  const std::string h100 = write_tuned_file(folder_, "name", row_for(prefill_of()));
  const std::string h200 = write_tuned_file(folder_, "name", row_for(prefill_of(), DeviceClass::kH200));
  EXPECT_NE(h100, h200);
  const TunedTable table = TunedTable::with_overlay(folder_, require_usable);
  EXPECT_TRUE(table.skipped().empty());
  EXPECT_EQ(table.matches(prefill_of(), DeviceClass::kH100)[0].name, h100);
  EXPECT_EQ(table.matches(prefill_of(), DeviceClass::kH200)[0].name, h200);
}

TEST_F(Overlay, SetsBadFilesAsideAndKeepsTheGoodOnes) {
  write_tuned_file(folder_, "good", row_for(prefill_of()));
  const std::string bad = write("sm_90a/bad.json", "{\"version\": 1,}");
  const std::string misplaced = write("sm_80/misplaced.json", write_tuned_row(row_for(paged_decode())));
  const std::string twin = write("sm_90a/twin.json", write_tuned_row(row_for(prefill_of())));
  write("sm_90a/notes.txt", "not a row, and nobody's business");
  const TunedTable table = TunedTable::with_overlay(folder_, require_usable);
  EXPECT_EQ(table.matches(prefill_of(), DeviceClass::kH100)[0].name, folder_ + "/sm_90a/good.json");
  std::map<std::string, std::string> reasons;
  for (const SkippedRow& row : table.skipped()) reasons[row.name] = row.reason;
  EXPECT_EQ(reasons.size(), 3u);
  EXPECT_THAT(reasons[bad], HasSubstr("drop the comma before it"));
  EXPECT_THAT(reasons[misplaced], HasSubstr("/arch: the row is for sm_90a and lies in the folder of sm_80"));
  EXPECT_THAT(reasons[twin], HasSubstr("good.json has a row for it already"));
}

TEST_F(Overlay, AFolderThatIsNotThereIsReportedAndNothingElse) {
  const TunedTable table = TunedTable::with_overlay(folder_ + "/none", require_usable);
  ASSERT_EQ(table.skipped().size(), 1u);
  EXPECT_EQ(table.skipped()[0].name, folder_ + "/none");
  EXPECT_THAT(table.skipped()[0].reason, HasSubstr("No such file or directory"));
  EXPECT_NO_THROW(plan_attention(prefill_of(), {}, Arch::kSm90a, table));
}

TEST_F(Overlay, WhatOthersCouldHaveWrittenIsNotTrusted) {
  namespace fs = std::filesystem;
  const std::string file = write_tuned_file(folder_, "row", row_for(prefill_of())), arch = folder_ + "/sm_90a";
  const fs::path link = folder_ + "-link";
  for (const std::string& path : {folder_, arch, file}) {
    const fs::perms before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
    const TunedTable table = TunedTable::with_overlay(folder_, require_usable);
    fs::permissions(path, before);
    ASSERT_EQ(table.skipped().size(), 1u) << path;
    EXPECT_EQ(table.skipped()[0].name, path);
    EXPECT_THAT(table.skipped()[0].reason, HasSubstr("is writable by others"));
    EXPECT_THAT(table.matches(prefill_of(), DeviceClass::kH100),
                ::testing::Each(::testing::Field(&TunedMatch::name, ::testing::Not(file))));
  }
  EXPECT_TRUE(TunedTable::with_overlay(folder_, require_usable).skipped().empty());
  fs::create_symlink(folder_, link);
  EXPECT_THAT(TunedTable::with_overlay(link, require_usable).skipped().at(0).reason, HasSubstr("symbolic link"));
  fs::remove(link);
}

TEST_F(Overlay, ARowThatCannotBePlannedForItsOwnProblemIsSetAside) {
  TunedRow row = row_for(prefill_of());
  row.schedule.num_stages = 32;  // more than shared memory
  const std::string file = write_tuned_file(folder_, "row", row);
  const TunedTable table = TunedTable::with_overlay(folder_, require_usable);
  ASSERT_EQ(table.skipped().size(), 1u);
  EXPECT_EQ(table.skipped()[0].name, file);
  EXPECT_THAT(table.skipped()[0].reason, HasSubstr("/schedule/"));
}

TEST_F(Overlay, AFileOfAnotherProblemIsNotOverwritten) {
  const std::string first = write_tuned_file(folder_, "name", row_for(prefill_of()));
  const std::string again = write_tuned_file(folder_, "name", row_for(prefill_of()));
  const std::string other = write_tuned_file(folder_, "name", row_for(paged_decode()));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_TRUE(TunedTable::with_overlay(folder_, require_usable).skipped().empty());
  EXPECT_THROW(write_tuned_file(write("file", ""), "name", row_for(prefill_of())), ConfigError);
}

TEST(ShippedRows, AreReadUsedAndNoTwoAreForOneProblem) {
  const TunedTable& shipped = TunedTable::shipped();
  std::vector<SkippedRow> unreadable;
  std::set<std::string> problems;
  EXPECT_TRUE(shipped.skipped().empty());
  for (const TunedMatch& match : shipped.rows<AttentionConfig>(&unreadable)) {
    const TunedRow& row = *match.row;
    EXPECT_EQ(match.name.substr(0, match.name.find('/')), to_string(row.arch)) << "the folder says the architecture";
    EXPECT_EQ(row.device, machine_of(row.provenance.gpu, row.arch).device) << match.name << " ran on another class";
    const std::string id = std::string(to_string(row.device)) + std::string(to_string(row.schedule.family.value())) +
                           canonical_text(row.problem);
    EXPECT_TRUE(problems.insert(id).second) << match.name << " is for the problem of another row";
    EXPECT_NO_THROW(plan_by_model(row.problem, row.schedule, row.arch)) << match.name;
    EXPECT_EQ(row.provenance.gpu.find("emulated"), std::string::npos) << match.name << ": those times mean nothing";
    EXPECT_FALSE(row.provenance.shapes.empty()) << match.name;
  }
  EXPECT_TRUE(unreadable.empty()) << unreadable[0].name << ": " << unreadable[0].reason;
}

}  // namespace
}  // namespace kernelwright
