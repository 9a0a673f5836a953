// Tuned rows as an engine sees them.
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/tuned/row.h"
#include "kernelwright/generator/tuned/table.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::HasSubstr;

class TunedEngine : public EngineTest {
 protected:
  TunedEngine() {
    row.arch = kFakeArch;
    row.device = DeviceClass::kRtx5090;
    row.problem = prefill_problem();
    row.tuning_class = tuning_class(row.problem);
    row.schedule = other_schedule();
    row.schedule.family = Family::kPortable;
  }
  EngineOptions with(std::vector<std::pair<std::string, AnyTunedRow>> rows) {
    EngineOptions result = options();
    result.custom_rows = std::make_shared<const TunedTable>(TunedTable::of(std::move(rows)));
    return result;
  }
  TunedRow row;
};

TEST_F(TunedEngine, ARowIsTheScheduleAsIfItHadBeenGiven) {
  Engine engine(with({{"mine", row}})), plain(with({}));
  const AttentionKernel tuned = engine.prepare(prefill_problem());
  EXPECT_EQ(tuned.plan().row, "mine");
  EXPECT_EQ(tuned.key(), plain.prepare(prefill_problem(), other_schedule()).key())
      << "where a schedule comes from is no part of a kernel's key";
  EXPECT_NE(tuned.key(), plain.prepare(prefill_problem()).key());
}

TEST_F(TunedEngine, AGemmsRowServesItsRowsAndTheModelTheOthers) {
  GemmProblem problem;
  problem.n = problem.k = 4096;
  GemmTunedRow tuned_row;
  tuned_row.arch = kFakeArch;
  tuned_row.device = DeviceClass::kRtx5090;
  tuned_row.problem = problem;
  tuned_row.tuning_class = tuning_class(problem);
  tuned_row.launches = {.num_sms = backend->device(0).info().num_sms, .rows = {1, 16}};
  tuned_row.schedule.family = Family::kPortable;
  tuned_row.schedule.block_m = 32, tuned_row.schedule.block_n = 128, tuned_row.schedule.stages = 3;
  Engine engine(with({{"mine", tuned_row}})), plain(with({}));
  const GemmKernel tuned = engine.prepare(problem), model = plain.prepare(problem);
  EXPECT_EQ(tuned.plan().variant_for(16).row, "mine");
  EXPECT_EQ(tuned.key(16), plain.prepare(problem, tuned_row.schedule).key(16))
      << "where a schedule comes from is no part of a kernel's key";
  EXPECT_NE(tuned.key(16), model.key(16));
  EXPECT_EQ(tuned.key(17), model.key(17));
  tuned_row.launches.num_sms += 1;
  EXPECT_EQ(Engine(with({{"other", tuned_row}})).prepare(problem).key(16), model.key(16)) << "another machine's row";
}

TEST_F(TunedEngine, ARowOfTheDevicesOwnClassIsTaken) {
  DeviceInfo& info = device().mutable_info();
  info.compute_major = 9, info.compute_minor = 0, info.arch = Arch::kSm90a;
  TunedRow h100 = row, h200 = row;
  h100.arch = h200.arch = Arch::kSm90a;
  h100.device = DeviceClass::kH100, h200.device = DeviceClass::kH200;
  for (const auto& [name, taken] : {std::pair("NVIDIA H100 80GB HBM3", "h100"), std::pair("NVIDIA H200", "h200")}) {
    info.name = name;
    EXPECT_EQ(Engine(with({{"h100", h100}, {"h200", h200}})).prepare(prefill_problem()).plan().row, taken) << name;
  }
}

TEST_F(TunedEngine, AnOverlayThatCannotBeUsedIsAnEventAndNoError) {
  EngineOptions bad = options();
  bad.tuned_dir = "/nonexistent/rows";
  Engine engine(bad);
  ASSERT_EQ(events_of(EventKind::kTunedRow).size(), 1u);
  EXPECT_EQ(events_of(EventKind::kTunedRow)[0].name, "/nonexistent/rows");
  EXPECT_THAT(events_of(EventKind::kTunedRow)[0].detail, HasSubstr("No such file"));
  EXPECT_EQ(engine.prepare(prefill_problem()).state(), KernelState::kReady);
}

TEST_F(TunedEngine, ARowThatNoLongerFitsLeavesTheModel) {
  row.schedule.num_stages = 32;
  Engine engine(with({{"stale", row}})), plain(with({}));
  const AttentionKernel kernel = engine.prepare(prefill_problem());
  EXPECT_EQ(kernel.key(), plain.prepare(prefill_problem()).key());
  ASSERT_EQ(kernel.plan().passed_over.size(), 1u);
  EXPECT_EQ(kernel.plan().passed_over[0].name, "stale");
}

}  // namespace
}  // namespace kernelwright::test
