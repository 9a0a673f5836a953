// The table of rules, the page that shows it, and the files that take reports out.
#include "kernelwright/runtime/emulator/machine/hazard_rule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/checker/suppressions.h"
#include "runtime/emulator/checker/hazard_cases.h"
#include "support/paths.h"

namespace kernelwright::emulator::hazard_rule_test {
namespace {

using testing::HasSubstr;

TEST(HazardRule, HasOneRowInItsPlace) {
  std::set<std::string_view> names;
  std::size_t index = 0;
  for (const HazardRuleRow& row : hazard_rules()) {
    EXPECT_EQ(static_cast<std::size_t>(row.rule), index++) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(find_hazard_rule(row.name), &row);
    EXPECT_FALSE(row.mend.empty()) << row.name;
  }
  EXPECT_EQ(index, static_cast<std::size_t>(HazardRule::kFault) + 1);
  EXPECT_EQ(find_hazard_rule("no-rule"), nullptr);
}

TEST(HazardRule, StandsOnThePageOfTheChecker) {
  std::ifstream in(kernelwright::test::source_dir() / "docs" / "emulator" / "checker.md");
  const std::string page(std::istreambuf_iterator<char>(in), {});
  for (const HazardRuleRow& row : hazard_rules())
    EXPECT_THAT(page, HasSubstr(fmt::format("| `{}` | {} | {} | {} |", row.name, name_of(row.grade),
                                            row.section.empty() ? "-" : row.section, row.mend)));
}

TEST(HazardRule, OfAFaultHasTheFaultsKind) {
  for (const HazardKind kind :
       {HazardKind::kMbarrier, HazardKind::kDivergence, HazardKind::kBarrier, HazardKind::kRegisterPool,
        HazardKind::kTensorMemory, HazardKind::kOutOfBounds, HazardKind::kDeadlock, HazardKind::kFault}) {
    EXPECT_EQ(row_of(rule_of_fault(kind)).kind, kind);
    EXPECT_EQ(row_of(rule_of_fault(kind)).grade, HazardGrade::kError);
  }
}

TEST(HazardReport, NamesRuleGradeSectionBothSidesAndWhatMendsIt) {
  const auto run = test::run_ptx(test::kOwnWord + R"(
      xor.b32 %r13, %r11, 128; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    )",
                                 {.block = {64}, .dynamic_shared_bytes = 8192}, {.hazards = true});
  const auto found = std::ranges::find_if(run.report.hazards, [](const HazardReport& hazard) {
    return hazard.rule == HazardRule::kSharedRace && hazard.first.instruction.starts_with("ld.shared");
  });
  ASSERT_NE(found, run.report.hazards.end()) << test::texts(run.report);
  const HazardReport& report = *found;
  EXPECT_EQ(report.rule, HazardRule::kSharedRace);
  EXPECT_EQ(report.kind, HazardKind::kRace);
  EXPECT_NE(report.first.warp, report.second.warp);
  EXPECT_THAT(report.second.instruction, HasSubstr("st.shared"));
  EXPECT_THAT(report.text(), HasSubstr("rule   shared-race, error, PTX ISA \"Memory Consistency Model"));
  EXPECT_THAT(report.text(), HasSubstr("mend   a barrier"));
}

// The init is of warp 1, and warp 0 is the last to exit.
TEST(HazardReport, HasTwoSidesThatAreOneEventEach) {
  const auto run = test::run_ptx(R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 32; setp.ge.u32 %p2, %r0, 32;
      @!%p1 mbarrier.init.shared::cta.b64 [%r10], 2;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
      bar.sync 0;
      @%p2 bra DONE;
      nanosleep.u32 20;
      nanosleep.u32 20;
    DONE:
    )",
                                 {.block = {64}, .dynamic_shared_bytes = 1024}, {.hazards = true});
  ASSERT_EQ(test::rules_of(run.report), std::vector<std::string>{"mbarrier-phase-at-exit"});
  const HazardReport& report = run.report.hazards[0];
  EXPECT_EQ(report.first.warp, 0);
  EXPECT_THAT(report.first.instruction, HasSubstr("ret"));
  EXPECT_EQ(report.second.warp, 1);
  EXPECT_EQ(report.second.lane, 0);
  EXPECT_THAT(report.second.instruction, HasSubstr("mbarrier.init"));
}

HazardReport report_at(HazardRule rule, const char* first, const char* second) {
  HazardReport report;
  report.rule = rule;
  report.first.source = first, report.first.ptx_line = 10;
  report.second.source = second, report.second.ptx_line = 20;
  return report;
}

TEST(Suppressions, MatchRuleKernelAndEitherSide) {
  Suppressions file(
      "# judged by hand\n\n"
      "lane-release gemm_* epilogue.cu:4* the warp is converged here\n"
      "tensor-lanes * ptx:20 the hardware ignores the bits\r\n"
      "* none * never\n",
      "accepted.txt");
  ASSERT_EQ(file.all().size(), 3u);
  EXPECT_EQ(file.all()[1].line, 4);
  EXPECT_EQ(file.all()[1].reason, "the hardware ignores the bits");

  const HazardReport release = report_at(HazardRule::kLaneRelease, "main.cu:7", "epilogue.cu:41");
  const Suppression* by = file.match("gemm_sm90", release);
  ASSERT_TRUE(by);
  EXPECT_EQ(by->reason, "the warp is converged here");
  EXPECT_FALSE(file.match("attention_sm90", release));
  EXPECT_FALSE(file.match("gemm_sm90", report_at(HazardRule::kLaneRelease, "main.cu:7", "epilogue.cu:14")));
  EXPECT_FALSE(file.match("gemm_sm90", report_at(HazardRule::kSharedRace, "main.cu:7", "epilogue.cu:41")));
  EXPECT_TRUE(file.match("any", report_at(HazardRule::kTensorLanes, "", "")));
  EXPECT_EQ(file.all()[0].matches, 1u);
  EXPECT_EQ(file.all()[1].matches, 1u);
  EXPECT_EQ(file.all()[2].matches, 0u);
}

TEST(Suppressions, NeedAKnownRuleAndAReason) {
  const auto message = [](const char* text) {
    try {
      Suppressions(text, "accepted.txt");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("\nlane-races * * why\n"), HasSubstr("accepted.txt:2"));
  EXPECT_THAT(message("lane-races * * why"), HasSubstr("lane-races is no rule"));
  EXPECT_THAT(message("lane-race * *  "), HasSubstr("the reason"));
  EXPECT_EQ(message("lane-race * * x"), "");
}

}  // namespace
}  // namespace kernelwright::emulator::hazard_rule_test
