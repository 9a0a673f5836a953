// What the checker finds about mbarriers and about copies that complete on one, by the rule of hazards_test.cpp.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_mbarrier_test {
namespace {

using test::Hazard;
using test::HazardCase;

const HazardCase kCases[] = {
    {"mbarrier_whose_init_is_not_visible", HazardKind::kMbarrier, R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 64;
    READY:
    ! bar.sync 0;
      bar.warp.sync 0xffffffff;
      setp.eq.u32 %p2, %r1, 1;
      @%p2 nanosleep.u32 20;
      mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
    )"},
    {"mbarrier_whose_init_the_copy_does_not_see", HazardKind::kMbarrier, R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
    ! fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 16, [%r10];
    READY:
      bar.sync 0;
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
      ld.shared.u32 %r15, [%r11];
    )"},
    {"mbarrier_that_nobody_initialised", HazardKind::kMbarrier, R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
    ! mbarrier.init.shared::cta.b64 [%r10], 1;
      mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
    DONE:
    )"},
    {"mbarrier_whose_init_is_fenced_after_the_barrier_that_tells_the_others",
     HazardKind::kMbarrier,
     R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
    ! fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 4;
    READY:
      barrier.cluster.arrive.release.aligned;
      fence.proxy.async.shared::cta;
      barrier.cluster.wait.acquire.aligned;
      @%p1 bra WAIT;
      xor.b32 %r20, %r3, 1; mapa.shared::cluster.u32 %r21, %r10, %r20; mapa.shared::cluster.u32 %r22, %r11, %r20;
      st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r22], %r3, [%r21];
    WAIT:
      mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
      ld.shared.u32 %r15, [%r11];
    )",
     {.grid = {2}, .block = {64}, .cluster = {2}, .dynamic_shared_bytes = 8192}},
    {"mbarrier_left_in_the_middle_of_a_phase", HazardKind::kOutstanding, R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      mbarrier.init.shared::cta.b64 [%r10], 2;
      mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
    ! mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
    DONE:
    )"},
    {"bulk_load_and_no_wait", HazardKind::kRace, R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 16, [%r10];
    READY:
      bar.sync 0;
    ! WAIT:
    ! mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
    ! @!%p3 bra WAIT;
      ld.shared.u32 %r15, [%r11];
    )"},
    {"bulk_load_that_one_lane_waits_for", HazardKind::kRace, R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 16, [%r10];
    READY:
      bar.sync 0;
      setp.ne.u32 %p2, %r2, 0;
      @%p2 bra READ;
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
    READ:
    ! bar.warp.sync 0xffffffff;
      ld.shared.u32 %r15, [%r11];
    )"},
    {"stage_refilled_before_it_is_released",
     HazardKind::kRace,
     R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; add.u32 %r12, %r10, 8; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      mbarrier.init.shared::cta.b64 [%r12], 1;
      fence.mbarrier_init.release.cluster;
    READY:
      bar.sync 0;
      setp.eq.u32 %p2, %r1, 1;
      @%p2 bra CONSUMER;
      @%p1 bra DONE;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 16, [%r10];
    ! EMPTY:
    ! mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], 0;
    ! @!%p3 bra EMPTY;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 16, [%r10];
      bra DONE;
    CONSUMER:
      mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r10], 0;
      @!%p4 bra CONSUMER;
      ld.shared.u32 %r15, [%r11];
      bar.warp.sync 0xffffffff;
      setp.ne.u32 %p5, %r2, 0;
      @!%p5 mbarrier.arrive.shared::cta.b64 %rd9, [%r12];
    AGAIN:
      mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r10], 1;
      @!%p4 bra AGAIN;
      ld.shared.u32 %r15, [%r11];
    DONE:
    )",
     {.block = {64}, .dynamic_shared_bytes = 8192},
     HazardKind::kMbarrier},
    {"stage_released_by_a_lane_that_did_not_sync_with_its_warp", HazardKind::kRace, R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; add.u32 %r12, %r10, 8; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r12], 1;
    READY:
      shl.b32 %r20, %r2, 2; add.u32 %r21, %r11, %r20;
      setp.eq.u32 %p2, %r1, 0;
      @%p2 st.shared.u32 [%r21], %r0;
      bar.sync 0;
      @%p2 bra PRODUCER;
      ld.shared.u32 %r15, [%r21];
    ! bar.warp.sync 0xffffffff;
      setp.ne.u32 %p5, %r2, 0;
      @!%p5 mbarrier.arrive.shared::cta.b64 %rd9, [%r12];
      bra DONE;
    PRODUCER:
      mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r12], 0;
      @!%p4 bra PRODUCER;
      st.shared.u32 [%r21], %r0;
    DONE:
    )"},
    {"phase_that_nothing_orders_after_the_wait_for_the_one_before",
     HazardKind::kMbarrier,
     R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0; setp.ne.u32 %p2, %r1, 1;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
    READY:
      bar.sync 0;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
      @%p2 bra NEXT;
    FIRST:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra FIRST;
    NEXT:
    ! bar.sync 0;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
      @%p2 bra DONE;
    SECOND:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 1;
      @!%p3 bra SECOND;
    DONE:
    )",
     {.block = {64}, .dynamic_shared_bytes = 8192},
     HazardKind::kDeadlock},
    // Warp 1 sees phases 0 and 2. That phase 1 is over it knows from warp 2, at a barrier of theirs.
    {"phase_that_another_warp_has_seen_and_says_nothing_of",
     HazardKind::kMbarrier,
     R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r1, 1; setp.eq.u32 %p5, %r1, 2;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
    READY:
      bar.sync 0;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
      @!%p2 bra SECOND;
    FIRST:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra FIRST;
    SECOND:
      bar.sync 0;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
      @!%p5 bra THIRD;
    SEEN:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 1;
      @!%p3 bra SEEN;
      bar.arrive 1, 64;
    ! bar.arrive 2, 64;
    THIRD:
      setp.eq.u32 %p4, %r1, 0;
      @%p4 bra PRODUCER;
    ! @%p2 bar.sync 2, 64;
      @%p2 bra LAST;
      bra DONE;
    PRODUCER:
      bar.sync 1, 64;
      @!%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
      bra DONE;
    LAST:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra LAST;
    DONE:
    )",
     {.block = {96}, .dynamic_shared_bytes = 8192}},
    {"copy_that_nobody_waits_for", HazardKind::kOutstanding, R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 16, [%r10];
    ! WAIT:
    ! mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
    ! @!%p3 bra WAIT;
    DONE:
    )"},
    {"mbarrier_initialised_again_while_in_use", HazardKind::kMbarrier, R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      mbarrier.arrive.shared::cta.b64 %rd9, [%r10];
    ! mbarrier.inval.shared::cta.b64 [%r10];
      mbarrier.init.shared::cta.b64 [%r10], 1;
    DONE:
    )"},
};

INSTANTIATE_TEST_SUITE_P(Mbarrier, Hazard, testing::ValuesIn(kCases), test::name_of_case);

}  // namespace
}  // namespace kernelwright::emulator::hazards_mbarrier_test
