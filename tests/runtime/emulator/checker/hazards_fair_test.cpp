// Kernels that are right and were once reported, each beside the fault that it resembles. The cases use
// hazards_test.cpp's rule: each is clean as written, and reported without its lines that begin with '!'.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_fair_test {
namespace {

using test::Hazard;
using test::HazardCase;
using testing::ElementsAre;
using testing::IsEmpty;

/// A word of bytes has four lanes' own: %r12 is the lane's byte.
const std::string kOwnByte = R"(
      mov.u32 %r10, data; add.u32 %r12, %r10, %r0;
      st.shared.u8 [%r12], %r0;
      ld.shared.u8 %r15, [%r12];
      st.shared.u8 [%r12], %r15;
    )";
/// An mbarrier for one arrival at %r10, and a word at %r12.
const std::string kOneArrival = R"(
      mov.u32 %r10, data; add.u32 %r12, %r10, 64; setp.ne.u32 %p1, %r0, 0;
      @!%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
      bar.sync 0;
    )";
const std::string kWait = R"(
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
    )";
/// A tile of zeros for wgmma, its descriptor in %rd6. An mbarrier for one arrival at %r40.
const std::string kZeroTile = R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 4; mov.u32 %r20, 0; setp.ne.u32 %p1, %r0, 0;
      add.u32 %r12, %r10, %r11; add.u32 %r40, %r10, 6144;
      st.shared.v4.u32 [%r12], {%r20, %r20, %r20, %r20};
      st.shared.v4.u32 [%r12+2048], {%r20, %r20, %r20, %r20};
      @!%p1 mbarrier.init.shared::cta.b64 [%r40], 1;
      fence.proxy.async.shared::cta;
      bar.sync 0;
      and.b32 %r13, %r10, 0x3ffff; shr.u32 %r14, %r13, 4; cvt.u64.u32 %rd5, %r14;
      or.b64 %rd6, %rd5, 0x0000001000080000;
      mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
      setp.ne.u32 %p6, %r20, 1;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r40];
    FIRST:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r40], 0;
      @!%p3 bra FIRST;
    )";
/// A product, at whose end each warp knows that the others have issued it.
const std::string kProduct = R"(
      wgmma.fence.sync.aligned;
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd6, %p6, 1, 1, 0, 0;
      wgmma.commit_group.sync.aligned;
      wgmma.wait_group.sync.aligned 0;
    )";
/// Thread 0 alone lets the next phase complete, and all wait for it.
const std::string kNextPhase = R"(
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r40];
    SECOND:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r40], 1;
      @!%p3 bra SECOND;
    )";
const LaunchShape kWarpgroup = {.block = {128}, .dynamic_shared_bytes = 8192};
const LaunchShape kWarp = {.block = {32}, .dynamic_shared_bytes = 1024};

std::string needed(const std::string& lines) {
  std::string out = lines;
  for (std::size_t at = 0; (at = out.find("\n      ", at)) != out.npos; at += 7) out.replace(at, 7, "\n    ! ");
  return out;
}

const HazardCase kCases[] = {
    {"lanes_that_write_bytes_of_one_word", HazardKind::kLaneRace, kOwnByte + R"(
    ! bar.warp.sync 0xffffffff;
      xor.b32 %r13, %r0, 1; add.u32 %r14, %r10, %r13;
      ld.shared.u8 %r15, [%r14];
    )"},
    {"warps_that_write_bytes_of_one_word", HazardKind::kRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r2, 1; add.u32 %r11, %r11, %r1; add.u32 %r12, %r10, %r11;
      st.shared.u8 [%r12], %r0;
      ld.shared.u8 %r15, [%r12];
    ! bar.sync 0;
      xor.b32 %r13, %r11, 1; add.u32 %r14, %r10, %r13;
      ld.shared.u8 %r15, [%r14];
    )"},
    {"bytes_that_a_word_replaces", HazardKind::kLaneRace, kOwnByte + R"(
      bar.warp.sync 0xffffffff;
      shl.b32 %r13, %r0, 2; add.u32 %r14, %r10, %r13; setp.gt.u32 %p1, %r2, 7;
      bar.sync 0;
      @!%p1 st.shared.u32 [%r14], %r0;
    ! bar.sync 0;
      ld.shared.u8 %r15, [%r12];
    )",
     kWarp},
    {"lanes_ordered_by_an_mbarrier",
     HazardKind::kLaneRace,
     kOneArrival + R"(
      @%p1 bra WAIT;
      st.shared.u32 [%r12], %r0;
      mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
    )" + needed(kWait) +
         R"(
      ld.shared.u32 %r15, [%r12];
    )",
     kWarp,
     {},
     "sm_90a"},
    {"lane_that_arrives_for_its_sibling", HazardKind::kLaneRace, kOneArrival + R"(
      setp.eq.u32 %p2, %r0, 1;
      @%p2 st.shared.u32 [%r12], %r0;
    ! bar.warp.sync 0xffffffff;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
    )" + kWait + R"(
      ld.shared.u32 %r15, [%r12];
    )",
     kWarp},
    {"warps_that_a_collective_wgmma_holds_together", HazardKind::kMbarrier, kZeroTile + needed(kProduct) + kNextPhase,
     kWarpgroup, HazardKind::kDeadlock},
    {"wait_behind_the_last_wgmma", HazardKind::kMbarrier, kZeroTile + kProduct + kNextPhase + needed(kProduct) + R"(
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r40];
    THIRD:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r40], 0;
      @!%p3 bra THIRD;
    )",
     kWarpgroup, HazardKind::kDeadlock},
};

INSTANTIATE_TEST_SUITE_P(Fair, Hazard, testing::ValuesIn(kCases), test::name_of_case);

std::vector<std::string> rules_of(const std::string& body, const LaunchShape& shape) {
  const auto run = test::run_ptx(body, shape, {.hazards = true});
  EXPECT_TRUE(run.report.completed) << run.report.fault;
  return test::rules_of(run.report);
}

TEST(EqualValues, WrittenTwiceAreANote) {
  const LaunchShape two_warps{.block = {64}, .dynamic_shared_bytes = 1024};
  const std::string address = "mov.u32 %r10, data; mov.u32 %r11, 7; setp.eq.u32 %p1, %r0, 33;\n";
  EXPECT_THAT(rules_of(address + "st.shared.u32 [%r10], %r11;", two_warps), ElementsAre("equal-values"));
  EXPECT_THAT(rules_of(address + "st.shared.u32 [%r10], %r1;", two_warps), ElementsAre("shared-race"));
  EXPECT_THAT(rules_of(address + "@%p1 st.shared.u32 [%r10], %r11; bar.sync 0; st.shared.u32 [%r10], %r11;",
                       {.block = {34}, .dynamic_shared_bytes = 1024}),
              ElementsAre("equal-values"));
}

TEST(EqualValues, OfLanesOfOneWarpAreANoteAndOthersARace) {
  const std::string two = R"(
      mov.u32 %r10, data; mov.u32 %r11, 7; setp.eq.u32 %p1, %r0, 1; setp.eq.u32 %p2, %r0, 2;
      @%p1 st.shared.u32 [%r10], %r11;
    )";
  EXPECT_THAT(rules_of(two + "@%p2 st.shared.u32 [%r10], %r11;", kWarp), ElementsAre("equal-values"));
  EXPECT_THAT(rules_of(two + "@%p2 st.shared.u32 [%r10], %r0;", kWarp), ElementsAre("lane-race"));
}

// Whatever the bytes hold when the store is checked: the copy of the same zeros may be performed after it.
TEST(EqualValues, OfAStoreAndACopyInFlightAreARace) {
  for (const Completion completion : {Completion::kEager, Completion::kLazy}) {
    const auto run = test::run_ptx(kOneArrival + R"(
      mov.u32 %r11, 0; setp.ne.u32 %p2, %r0, 1;
      @!%p1 fence.mbarrier_init.release.cluster;
      @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      @!%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%rd0], 16, [%r10];
      bar.warp.sync 0xffffffff;
      @!%p2 st.shared.v4.u32 [%r12], {%r11, %r11, %r11, %r11};
    )" + kWait,
                                   kWarp, {.hazards = true, .completion = completion});
    EXPECT_THAT(test::rules_of(run.report), ElementsAre("shared-race"));
  }
}

TEST(EqualValues, InGlobalMemoryAreANoteAndOthersARace) {
  const std::string flag = "mov.u32 %r11, 7; setp.ne.u32 %p1, %r2, 0; @!%p1 red.global.add.u32 [%rd0+64], 1;\n";
  const LaunchShape two_warps{.block = {64}};
  EXPECT_THAT(rules_of(flag + "@!%p1 st.global.u32 [%rd0], %r11;", two_warps), ElementsAre("equal-values"));
  EXPECT_THAT(rules_of(flag + "@!%p1 st.global.u32 [%rd0], %r0;", two_warps), ElementsAre("global-race"));
}

/// Warp 0 reads a row and lane 0 says so; warp 1 writes it anew. `read`: how the lanes read.
std::string release_by_lane_0(const std::string& read) {
  return R"(
      mov.u32 %r10, data; shl.b32 %r11, %r2, 2; add.u32 %r12, %r10, %r11; add.u32 %r12, %r12, 64;
      setp.ne.u32 %p1, %r0, 0; setp.ne.u32 %p2, %r1, 0; setp.lt.u32 %p4, %r2, 16;
      @!%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
      @!%p2 st.shared.u32 [%r12], %r0;
      bar.sync 0;
      @%p2 bra WAIT;
    )" + read +
         R"(
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
      bra DONE;
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
      st.shared.u32 [%r12], %r1;
    DONE:
    )";
}

TEST(LaneRelease, IsOfTheIsaWhereAllLanesReadTogetherAndElseAnError) {
  const LaunchShape two_warps{.block = {64}, .dynamic_shared_bytes = 1024};
  EXPECT_THAT(rules_of(release_by_lane_0("ld.shared.u32 %r15, [%r12]; bar.warp.sync 0xffffffff;"), two_warps),
              IsEmpty());
  EXPECT_THAT(rules_of(release_by_lane_0("ld.shared.u32 %r15, [%r12];"), two_warps), ElementsAre("lane-release"));
  EXPECT_THAT(rules_of(release_by_lane_0("@%p4 ld.shared.u32 %r15, [%r12];"), two_warps), ElementsAre("shared-race"));
}

}  // namespace
}  // namespace kernelwright::emulator::hazards_fair_test
