// What tune decides and prints, tested on made-up measurements.
#include "cli/tune/tune_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tuned_rows.h"

namespace kernelwright::cli {
namespace {

using ::testing::HasSubstr;

/// Three candidates of a prefill on two shapes: the model's choice and two that differ in one field.
class Report : public ::testing::Test {
 protected:
  Report() {
    AttentionConfig config;
    config.name = "llama";
    config.problem = kernelwright::test::prefill_of(32, 8);
    named.config = config;
    result.named = &named;
    result.device = "NVIDIA H100 80GB HBM3";
    result.machine = &usual_machine(Arch::kSm90a);
    result.shapes = {{.name = "2k", .batch = 8, .q_len = 2048, .kv_len = 2048},
                     {.name = "16k", .batch = 1, .q_len = 16384, .kv_len = 16384}};
    AttentionSchedule model;
    model.family = Family::kPortable;
    model.block_n = 64;
    model.num_stages = 1;
    add(model);
    AttentionSchedule wide = model, deep = model;
    wide.block_n = 96;
    deep.num_stages = 2;
    add(wide);
    add(deep);
    result.candidates.tried = 120;
    result.candidates.infeasible = 40;
    result.candidates.cut = 70;
    result.verified = 3;
    result.compiler = "NVRTC 13.0";
    result.clock_mhz = 1755;
    time(0, 100, 1000, -1);
    time(1, 90, 900, -1);
    time(2, 120, 1200, 0);
    result.race.order = {1, 0, 2};
    result.race.rounds = 2;
    result.race.best_over_baseline = paired_ratio(result.race.standings[0], result.race.standings[1]);
  }
  void add(const AttentionSchedule& schedule) {
    result.candidates.kept.push_back({schedule, plan_by_model(named.attention().problem, schedule, Arch::kSm90a), 1});
    Trial trial;
    trial.key = std::to_string(result.trials.size());
    trial.schedule = canonical_text(schedule);
    trial.registers = 200 + static_cast<int>(result.trials.size());
    trial.round = 1;
    result.trials.push_back(trial);
    result.race.standings.push_back({result.race.standings.size(), {{}, {}}, -1});
  }
  void time(std::size_t entrant, double short_us, double long_us, int out) {
    Standing& standing = result.race.standings[entrant];
    for (int pass = 0; pass < 8; ++pass) {
      standing.samples[0].push_back(short_us + 0.01 * pass);
      standing.samples[1].push_back(long_us + 0.01 * pass);
    }
    standing.out_in_round = out;
  }
  const AttentionPlan& model() const { return result.candidates.kept[0].plan; }

  NamedConfig named;
  TuneResult<AttentionConfig> result;
  TuneMachine machine{.driver = "12.8", .kernelwright = "0.1.0", .date = "2026-11-21"};
  const Style plain{[] {
    static std::FILE* file = std::tmpfile();  // no terminal: no colours
    return file;
  }()};
};

TEST_F(Report, TableIsTheGoldenOne) {
  result.trials[2].verdict = TrialVerdict::kSlower;
  EXPECT_EQ(report_text(result, Decision::kRow, "configs/tuned/sm_90a/llama.json", machine, plain),
            R"(llama  120 combinations, 73 feasible kernels, 3 kept, 3 checked, on NVIDIA H100 80GB HBM3 at 1755 MHz
     schedule                  2k       16k      mean  vs model  registers  rounds
  1  block_n 96           90.0 us  900.0 us  284.7 us     1.111        201       2
  2  the model's choice  100.0 us   1.00 ms  316.3 us     1.000        200       2
  3  num_stages 2        120.0 us   1.20 ms  379.5 us     0.833        202       1
  1.111 (1.111 .. 1.111) x the model's choice, beyond noise
  row: configs/tuned/sm_90a/llama.json
)");
}

TEST_F(Report, SaysWhatWasRefusedAndWhatTheEmulatorIs) {
  result.trials[1].verdict = TrialVerdict::kSpills;
  result.trials[2].verdict = TrialVerdict::kWrong;
  machine.emulator = true;
  const std::string text = report_text(result, Decision::kNothing, "", machine, plain);
  EXPECT_THAT(text, HasSubstr("refused: 1 spilled registers, 1 gave a wrong result\n"));
  EXPECT_THAT(text, HasSubstr("these times are the emulator's: they say nothing about any GPU\n"));
}

TEST_F(Report, AModelThatFailsIsSaid) {
  result.trials[0].verdict = TrialVerdict::kWrong;
  result.trials[0].round = -1;
  result.trials[0].reason = "check: o[0]: far off";
  EXPECT_EQ(decide(result, model()), Decision::kNone);
  EXPECT_THAT(report_text(result, Decision::kNone, "", machine, plain),
              HasSubstr("the model's own choice wrong: check: o[0]: far off"));
}

TEST_F(Report, AFasterScheduleBecomesARowWithItsProvenance) {
  ASSERT_EQ(decide(result, model()), Decision::kRow);
  const TunedRow row = row_of(result, Decision::kRow, machine);
  EXPECT_EQ(row.schedule.block_n.value(), 96);
  EXPECT_EQ(row.problem, named.attention().problem);
  EXPECT_EQ(row.device, DeviceClass::kH100);
  EXPECT_EQ(row_name(result), "llama");
  EXPECT_EQ(row.provenance.gpu, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(row.provenance.clock_mhz, 1755);
  EXPECT_NEAR(row.provenance.speedup, 1.111, 1e-3);
  EXPECT_EQ(row.provenance.model.block_n.value(), 64);
  EXPECT_EQ(row.provenance.runner_up.block_n.value(), 64) << "the second best was the model's";
  ASSERT_EQ(row.provenance.shapes.size(), 2u);
  EXPECT_EQ(row.provenance.shapes[1].shape.name, "16k");
  EXPECT_NEAR(row.provenance.shapes[1].us, 900, 1);
  EXPECT_NEAR(row.provenance.shapes[1].model_us, 1000, 1);
  EXPECT_EQ(read_tuned_row(write_tuned_row(row)), AnyTunedRow(row));
  const AttentionPlan plan = plan_attention(row.problem, {}, Arch::kSm90a, TunedTable::of({{"r", row}}));
  EXPECT_EQ(plan.main, result.candidates.kept[1].plan.main) << "the row leads to the kernel that was measured";
}

TEST_F(Report, ARowNamesTheClassOfTheDeviceThatItWasMeasuredOn) {
  result.device = "NVIDIA H200";
  result.machine = &machine_of(result.device, Arch::kSm90a);
  const TunedRow row = row_of(result, Decision::kRow, machine);
  EXPECT_EQ(row.arch, Arch::kSm90a);
  EXPECT_EQ(row.device, DeviceClass::kH200);
  EXPECT_EQ(row_name(result), "llama-h200") << "the name alone is the usual class's";
  EXPECT_EQ(read_tuned_row(write_tuned_row(row)), AnyTunedRow(row));
}

TEST_F(Report, AModelThatIsNotBeatenLeavesNoRow) {
  time(1, 100, 1000, -1);
  result.race.standings[1].samples = result.race.standings[0].samples;
  result.race.best_over_baseline = paired_ratio(result.race.standings[0], result.race.standings[1]);
  EXPECT_EQ(decide(result, model()), Decision::kNothing);
}

TEST_F(Report, AModelThatIsNotBeatenIsPinnedWhereAnotherRowWouldBeTaken) {
  result.race.best_over_baseline = {1.002, 0.99, 1.01, 8};
  ASSERT_EQ(decide(result, result.candidates.kept[2].plan), Decision::kPinned);
  const TunedRow row = row_of(result, Decision::kPinned, machine);
  EXPECT_EQ(row.schedule.block_n.value(), 64);
  EXPECT_EQ(row.provenance.speedup, 1);
  EXPECT_EQ(row.provenance.runner_up.block_n.value(), 96);
}

TEST_F(Report, AnInterruptedRaceDecidesNothing) {
  result.race.interrupted = true;
  EXPECT_EQ(decide(result, model()), Decision::kNone);
}

/// Two candidates of a GEMM in one range of rows.
class GemmReport : public ::testing::Test {
 protected:
  GemmReport() {
    GemmConfig config;
    config.name = "mlp";
    config.problem = kernelwright::test::mlp_of();
    named.config = config;
    result.named = &named;
    result.device = "NVIDIA H100 80GB HBM3";
    result.machine = &usual_machine(Arch::kSm90a);
    result.launches = {.num_sms = 132, .rows = gemm_row_range(8)};
    result.shapes = {{.name = "few", .m = 8}};
    result.candidates = enumerate_candidates(config.problem, {}, Arch::kSm90a, result.shapes, {.most = 2});
    for (std::size_t i = 0; i < 2; ++i) {
      Trial trial;
      trial.key = std::to_string(i);
      trial.round = 1;
      result.trials.push_back(trial);
      result.race.standings.push_back({i, {std::vector<double>(8, i == 0 ? 10.0 : 8.0)}, -1});
    }
    result.race.order = {1, 0};
    result.race.rounds = 1;
    result.race.best_over_baseline = paired_ratio(result.race.standings[0], result.race.standings[1]);
  }
  GemmPlan planned(const TunedTable& rows = {}) const {
    return plan_gemm(result.config().problem, {}, Arch::kSm90a, rows);
  }
  NamedConfig named;
  TuneResult<GemmConfig> result;
  TuneMachine machine{.driver = "12.8", .kernelwright = "0.1.0", .date = "2026-11-21"};
};

TEST_F(GemmReport, AFasterScheduleBecomesARowOfItsRangeAndSmCount) {
  ASSERT_EQ(result.candidates.kept.size(), 2u);
  ASSERT_EQ(decide(result, planned()), Decision::kRow);
  const GemmTunedRow row = row_of(result, Decision::kRow, machine);
  EXPECT_EQ(row_name(result), "mlp-m16");
  EXPECT_EQ(row.device, DeviceClass::kH100);
  EXPECT_EQ(row.launches.num_sms, 132);
  EXPECT_EQ(row.launches.rows, (RowRange{1, 16}));
  EXPECT_NEAR(row.provenance.speedup, 1.25, 1e-9);
  EXPECT_EQ(read_tuned_row(write_tuned_row(row)), AnyTunedRow(row));
  const GemmPlan plan = planned(TunedTable::of({{"r", row}}));
  EXPECT_EQ(plan.variant_for(8).spec, result.candidates.kept[1].plan.variants[0].spec)
      << "the row leads to the kernel that was measured";
  EXPECT_EQ(plan.variant_for(8).bands_of_n, result.candidates.kept[1].plan.variants[0].bands_of_n);
}

TEST_F(GemmReport, AModelThatIsNotBeatenIsPinnedWhereAnotherRowWouldBeTaken) {
  result.race.best_over_baseline = {1.002, 0.99, 1.01, 8};
  EXPECT_EQ(decide(result, planned()), Decision::kNothing);
  const GemmTunedRow other = kernelwright::test::gemm_row_for(result.config().problem, {1, 64});
  EXPECT_EQ(decide(result, planned(TunedTable::of({{"wide", other}}))), Decision::kPinned);
}

TEST_F(GemmReport, NamesTheRange) {
  const Style plain(std::tmpfile());
  EXPECT_EQ(report_text(result, Decision::kNone, "", machine, plain).substr(0, 18), "mlp, 1 to 16 rows ");
  EXPECT_EQ(report_json(result, Decision::kNone, "", machine).at("/rows/most").as_int(), 16);
}

TEST(GroupsOf, PutsShapesOfOneRangeTogether) {
  const auto groups =
      groups_of(GemmConfig{}, std::vector<GemmShape>{{"a", 40}, {"b", 4}, {"none", 0}, {"c", 16}, {"d", 45}});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0], (std::vector<GemmShape>{{"b", 4}, {"c", 16}}));
  EXPECT_EQ(groups[1], (std::vector<GemmShape>{{"a", 40}, {"d", 45}}));
}

TEST(ParseSeconds, TakesUnits) {
  EXPECT_DOUBLE_EQ(parse_seconds("--budget", "90"), 90);
  EXPECT_DOUBLE_EQ(parse_seconds("--budget", "120s"), 120);
  EXPECT_DOUBLE_EQ(parse_seconds("--budget", "1.5m"), 90);
  EXPECT_DOUBLE_EQ(parse_seconds("--budget", "2h"), 7200);
  for (const char* bad : {"", "s", "12 s", "0", "-3s", "nan", "1e9", "5 minutes"})
    EXPECT_THROW(parse_seconds("--budget", bad), ConfigError) << bad;
}

}  // namespace
}  // namespace kernelwright::cli
