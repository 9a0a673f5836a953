// mbarriers as lanes use them; the recorded cases test their phases and counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator {
namespace {

using test::run_ptx;
using testing::HasSubstr;
using testing::IsEmpty;

const LaunchShape kOneWarp = {.block = {32}, .dynamic_shared_bytes = 1024};
constexpr const char* kInit = R"(
  mov.u32 %r10, data; setp.eq.u32 %p0, %r0, 0;
  @%p0 mbarrier.init.shared::cta.b64 [%r10], 2; @%p0 mbarrier.init.shared::cta.b64 [%r10+8], 1;
  bar.sync 0;
)";

std::string fault_of(const std::string& body, const LaunchShape& shape = kOneWarp) {
  return run_ptx(kInit + body, shape, {}).report.fault;
}

TEST(Mbarrier, NamesAnArrivalTooMany) {
  EXPECT_THAT(fault_of("mbarrier.arrive.shared::cta.b64 %rd5, [%r10+8], 2;"),
              HasSubstr("2 more have arrived, and its phase (parity 0) was missing 1 of 1"));
}

TEST(Mbarrier, NamesAWordThatIsNone) {
  EXPECT_THAT(fault_of("mbarrier.arrive.shared::cta.b64 %rd5, [%r10+16];"), HasSubstr("was mbarrier.init forgotten"));
  EXPECT_THAT(fault_of("@%p0 mbarrier.inval.shared::cta.b64 [%r10]; bar.warp.sync -1; @%p0 "
                       "mbarrier.arrive.shared::cta.b64 %rd5, [%r10];"),
              HasSubstr("there is no mbarrier"));
}

TEST(Mbarrier, SaysWhatAWaitLacks) {
  const std::string fault = fault_of(R"(
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r10], 96;
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r10], 0; @!%p1 bra WAIT;
  )");
  EXPECT_THAT(
      fault,
      HasSubstr("the phase with parity 0 of the mbarrier at shared 1024 (1 of 2 arrivals and 96 bytes missing)"));
}

TEST(Mbarrier, RefusesATransactionCountOutOfRange) {
  EXPECT_THAT(fault_of("@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 1048576;"),
              HasSubstr("its transaction count would become 1048576"));
}

/// Lane 0 waits for what lane 1 does only after its own wait.
TEST(Mbarrier, LetsLanesWaitForDifferentBarriers) {
  const auto run = run_ptx(std::string(kInit) + R"(
    setp.lt.u32 %p2, %r0, 2; @!%p2 bra DONE;
    setp.eq.u32 %p3, %r0, 1; shl.b32 %r11, %r0, 3; add.u32 %r11, %r11, %r10;
    @%p0 mbarrier.arrive.shared::cta.b64 %rd5, [%r10];
    @%p0 mbarrier.arrive.shared::cta.b64 %rd5, [%r10+8];
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r11], 0; @!%p1 bra WAIT;
    @%p3 mbarrier.arrive.shared::cta.b64 %rd5, [%r10];
    mul.wide.u32 %rd2, %r0, 4; add.s64 %rd2, %rd2, %rd0; mov.u32 %r12, 7; st.global.u32 [%rd2], %r12;
    DONE:
  )",
                           kOneWarp, {});
  EXPECT_THAT(run.report.fault, IsEmpty());
  EXPECT_EQ(run.out[0], 7u);
  EXPECT_EQ(run.out[1], 7u);
}

TEST(Mbarrier, PollsWithTestWaitWhileAnotherWarpWorks) {
  const auto run = run_ptx(std::string(kInit) + R"(
    setp.ge.u32 %p2, %r0, 32; @%p2 bra SECOND;
    POLL: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r10+8], 0; @!%p1 bra POLL;
    @%p0 st.global.u32 [%rd0], %r10; bra DONE;
    SECOND: setp.eq.u32 %p3, %r0, 32; @%p3 mbarrier.arrive.shared::cta.b64 %rd5, [%r10+8];
    DONE:
  )",
                           {.block = {64}, .dynamic_shared_bytes = 1024}, {.shuffle = true});
  EXPECT_THAT(run.report.fault, IsEmpty());
  EXPECT_EQ(run.out[0], 1024u);
}

}  // namespace
}  // namespace kernelwright::emulator
