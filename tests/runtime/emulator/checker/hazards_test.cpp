// Each case is a small kernel whose lines that begin with '!' are the synchronisation that it needs. With these lines
// it is clean under every completion policy and several schedules. Without them, the checker names what is missing.
// The cases of this file are barriers of a CTA, cp.async and bulk stores. Files beside it have the other subjects.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_test {
namespace {

using test::Hazard;
using test::HazardCase;
using test::kOwnWord;
using testing::Contains;

/// Each thread copies a word to its own one, at %r12, and does not wait.
const std::string kCopyOfAWord = R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11; and.b32 %r20, %r0, 3; mul.wide.u32 %rd5, %r20, 4;
      add.s64 %rd6, %rd1, %rd5;
      cp.async.ca.shared.global [%r12], [%rd6], 4;
      cp.async.commit_group;
    )";
/// Thread 0 copies 64 words from shared memory, at %r10, and waits.
const std::string kBulkStore = R"(
      setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group 0;
    DONE:
    )";

const HazardCase kCases[] = {
    {"two_warps_and_no_barrier", HazardKind::kRace, kOwnWord + R"(
    ! bar.sync 0;
      xor.b32 %r13, %r11, 128; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    )"},
    {"write_after_read_and_no_barrier", HazardKind::kRace, kOwnWord + R"(
      bar.sync 0;
      xor.b32 %r13, %r11, 128; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    ! bar.sync 0;
      st.shared.u32 [%r12], %r15;
    )"},
    {"lanes_and_no_warp_sync", HazardKind::kLaneRace, kOwnWord + R"(
    ! bar.warp.sync 0xffffffff;
      xor.b32 %r13, %r11, 4; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    )"},
    {"unwritten_shared_memory", HazardKind::kUnwritten, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
    ! st.shared.u32 [%r12], %r0;
      ld.shared.u32 %r15, [%r12];
    )"},
    {"named_barrier_between_a_producer_and_a_consumer", HazardKind::kRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r2, 2; add.u32 %r12, %r10, %r11;
      setp.ne.u32 %p1, %r1, 0;
      @%p1 bra CONSUMER;
      st.shared.u32 [%r12], %r0;
    ! bar.arrive 3, 64;
      bra DONE;
    CONSUMER:
    ! bar.sync 3, 64;
      ld.shared.u32 %r15, [%r12];
    DONE:
    )"},
    {"cp_async_and_no_wait", HazardKind::kRace, kCopyOfAWord + R"(
    ! cp.async.wait_group 0;
      ld.shared.u32 %r15, [%r12];
    )"},
    {"cp_async_waited_for_by_each_lane_alone", HazardKind::kRace, kCopyOfAWord + R"(
      cp.async.wait_group 0;
    ! bar.warp.sync 0xffffffff;
      xor.b32 %r13, %r11, 4; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    )"},
    {"bulk_store_and_no_proxy_fence", HazardKind::kProxyFence, kOwnWord + R"(
    ! fence.proxy.async.shared::cta;
      bar.sync 0;
    )" + kBulkStore},
    {"cp_async_and_no_proxy_fence_by_its_threads", HazardKind::kProxyFence, kCopyOfAWord + R"(
      cp.async.wait_group 0;
    ! fence.proxy.async.shared::cta;
      bar.sync 0;
    )" + kBulkStore},
    {"cp_async_and_no_proxy_fence_by_who_reads_it", HazardKind::kProxyFence, kCopyOfAWord + R"(
      cp.async.wait_group 0;
      bar.sync 0;
    ! fence.proxy.async.shared::cta;
    )" + kBulkStore},
    {"bulk_store_still_reading_when_its_source_is_overwritten", HazardKind::kRace, kOwnWord + R"(
      fence.proxy.async.shared::cta;
      bar.sync 0;
      setp.ne.u32 %p1, %r0, 0;
      @%p1 bra NEXT;
      cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;
      cp.async.bulk.commit_group;
    ! cp.async.bulk.wait_group.read 0;
    NEXT:
      bar.sync 0;
      st.shared.u32 [%r12], %r1;
      @%p1 bra DONE;
      cp.async.bulk.wait_group 0;
    DONE:
    )"},
    {"bulk_store_outstanding_at_exit", HazardKind::kOutstanding, kOwnWord + R"(
      fence.proxy.async.shared::cta;
      bar.sync 0;
      setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;
      cp.async.bulk.commit_group;
    ! cp.async.bulk.wait_group 0;
    DONE:
    )"},
    {"named_barrier_at_which_all_arrive_and_nobody_waits", HazardKind::kBarrier, R"(
      setp.ne.u32 %p1, %r1, 0;
      @!%p1 bra ARRIVE;
    ! bar.sync 3, 64;
    ! bra DONE;
    ARRIVE:
      bar.arrive 3, 64;
    DONE:
    )"},
};

TEST_P(Hazard, IsNoneAsWritten) { EXPECT_EQ(test::reports_as_written(GetParam()), ""); }

TEST_P(Hazard, IsReportedWithoutTheSynchronisation) {
  const HazardCase& test = GetParam();
  for (const Completion completion : {Completion::kEager, Completion::kLazy})
    EXPECT_THAT(test::kinds_without_sync(test, completion),
                Contains(testing::AnyOf(test.kind, test.also.value_or(test.kind))));
}

INSTANTIATE_TEST_SUITE_P(Small, Hazard, testing::ValuesIn(kCases), test::name_of_case);

}  // namespace
}  // namespace kernelwright::emulator::hazards_test
