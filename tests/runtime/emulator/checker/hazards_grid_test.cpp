// What the checker finds between a launch and the launch ahead of it, which may still run: by the rule of
// hazards_test.cpp.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_grid_test {
namespace {

using test::Hazard;
using test::HazardCase;
using testing::IsEmpty;

const HazardCase kCases[] = {
    {"read_before_the_launch_ahead_has_ended",
     HazardKind::kGridDependency,
     R"(
    ! griddepcontrol.wait;
      ld.global.u32 %r10, [%rd1];
    )",
     {.block = {64}, .after_unknown = true}},
    {"write_before_the_launch_ahead_has_ended",
     HazardKind::kGridDependency,
     R"(
    ! griddepcontrol.wait;
      st.global.u32 [%rd0], %r0;
    )",
     {.block = {64}, .after_unknown = true}},
    {"one_warp_waits_for_the_launch_ahead_and_the_other_does_not_for_it",
     HazardKind::kGridDependency,
     R"(
      setp.ne.u32 %p1, %r1, 0;
      @%p1 bra OTHER;
      griddepcontrol.wait;
    OTHER:
    ! bar.sync 0;
      ld.global.u32 %r10, [%rd1];
    )",
     {.block = {64}, .after_unknown = true}},
    {"one_lane_waits_for_the_launch_ahead_and_its_siblings_do_not_for_it",
     HazardKind::kGridDependency,
     R"(
      setp.ne.u32 %p1, %r2, 5;
      @%p1 bra OTHERS;
      griddepcontrol.wait;
    OTHERS:
    ! bar.warp.sync 0xffffffff;
      ld.global.u32 %r10, [%rd1];
    )",
     {.block = {32}, .after_unknown = true}},
    {"copy_that_is_issued_before_the_launch_ahead_has_ended",
     HazardKind::kGridDependency,
     R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra OTHERS;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.mbarrier_init.release.cluster;
    ! griddepcontrol.wait;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 16, [%r10];
    OTHERS:
      bar.sync 0;
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
      st.global.u32 [%rd0], %r0;
    )",
     {.block = {64}, .dynamic_shared_bytes = 8192, .after_unknown = true}},
};

INSTANTIATE_TEST_SUITE_P(Grid, Hazard, testing::ValuesIn(kCases), test::name_of_case);

/// Reports of two launches, the second of which may start before the first has ended, on two buffers.
std::vector<HazardReport> reports_of_dependents(const std::string& first, const std::string& second,
                                                bool after_previous = true) {
  Emulator emulator({.hazards = true});
  const auto ahead = emulator.load(test::ptx_kernel(first)), behind = emulator.load(test::ptx_kernel(second));
  const std::uint64_t arguments[] = {emulator.memory().allocate(4096, "a"), emulator.memory().allocate(4096, "b")};
  const auto bytes = std::as_bytes(std::span(arguments));
  EXPECT_THAT(emulator.launch(*ahead, "test", {.block = {32}}, bytes).hazards, IsEmpty());
  return emulator.launch(*behind, "test", {.block = {32}, .after_previous = after_previous}, bytes).hazards;
}

TEST(GridDependency, IsWhatTheLaunchAheadConflictsWith) {
  const std::string reads = "ld.global.u32 %r10, [%rd0];", writes = "st.global.u32 [%rd0], %r0;",
                    reads_other = "ld.global.u32 %r10, [%rd1];", wait = "griddepcontrol.wait;\n";
  for (const auto& [first, second, words] : {std::tuple{writes, reads, "4 bytes are read that the launch ahead writes"},
                                             {reads, writes, "4 bytes are written that the launch ahead reads"},
                                             {writes, writes, "4 bytes are written that the launch ahead writes"}}) {
    const auto reports = reports_of_dependents(first, second);
    ASSERT_EQ(reports.size(), 1u) << first << second;
    EXPECT_EQ(reports[0].kind, HazardKind::kGridDependency);
    EXPECT_EQ(reports[0].what, std::string(words) + ": griddepcontrol.wait has not been passed");
    EXPECT_THAT(reports_of_dependents(first, wait + second), IsEmpty());
    EXPECT_THAT(reports_of_dependents(first, second, false), IsEmpty()) << "no programmatic launch";
  }
  EXPECT_THAT(reports_of_dependents(reads, reads), IsEmpty());
  EXPECT_THAT(reports_of_dependents(writes, reads_other), IsEmpty()) << "nobody writes it";
}

}  // namespace
}  // namespace kernelwright::emulator::hazards_grid_test
