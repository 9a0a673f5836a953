// Each case is a small kernel whose lines that begin with '!' are the synchronisation that it needs. With these lines
// it is clean under every completion policy and several schedules. Without them, the checker names what is missing.
#include <gtest/gtest.h>

#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator {
namespace {

using test::Hazard;
using test::HazardCase;
using testing::Contains;
using testing::IsEmpty;

const HazardCase kCases[] = {
    {"two_warps_and_no_barrier", HazardKind::kRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
    ! bar.sync 0;
      xor.b32 %r13, %r11, 128; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    )"},
    {"write_after_read_and_no_barrier", HazardKind::kRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
      bar.sync 0;
      xor.b32 %r13, %r11, 128; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    ! bar.sync 0;
      st.shared.u32 [%r12], %r15;
    )"},
    {"lanes_and_no_warp_sync", HazardKind::kLaneRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
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
    {"cp_async_and_no_wait", HazardKind::kRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11; and.b32 %r20, %r0, 3; mul.wide.u32 %rd5, %r20, 4;
      add.s64 %rd6, %rd1, %rd5;
      cp.async.ca.shared.global [%r12], [%rd6], 4;
      cp.async.commit_group;
    ! cp.async.wait_group 0;
      ld.shared.u32 %r15, [%r12];
    )"},
    {"cp_async_waited_for_by_each_lane_alone", HazardKind::kRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11; and.b32 %r20, %r0, 3; mul.wide.u32 %rd5, %r20, 4;
      add.s64 %rd6, %rd1, %rd5;
      cp.async.ca.shared.global [%r12], [%rd6], 4;
      cp.async.commit_group;
      cp.async.wait_group 0;
    ! bar.warp.sync 0xffffffff;
      xor.b32 %r13, %r11, 4; add.u32 %r14, %r10, %r13;
      ld.shared.u32 %r15, [%r14];
    )"},
    {"bulk_store_and_no_proxy_fence", HazardKind::kProxyFence, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
    ! fence.proxy.async.shared::cta;
      bar.sync 0;
      setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group 0;
    DONE:
    )"},
    {"cp_async_and_no_proxy_fence_by_its_threads", HazardKind::kProxyFence, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11; and.b32 %r20, %r0, 3; mul.wide.u32 %rd5, %r20, 4;
      add.s64 %rd6, %rd1, %rd5;
      cp.async.ca.shared.global [%r12], [%rd6], 4;
      cp.async.commit_group;
      cp.async.wait_group 0;
    ! fence.proxy.async.shared::cta;
      bar.sync 0;
      setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group 0;
    DONE:
    )"},
    {"cp_async_and_no_proxy_fence_by_who_reads_it", HazardKind::kProxyFence, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11; and.b32 %r20, %r0, 3; mul.wide.u32 %rd5, %r20, 4;
      add.s64 %rd6, %rd1, %rd5;
      cp.async.ca.shared.global [%r12], [%rd6], 4;
      cp.async.commit_group;
      cp.async.wait_group 0;
      bar.sync 0;
    ! fence.proxy.async.shared::cta;
      setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group 0;
    DONE:
    )"},
    {"bulk_store_still_reading_when_its_source_is_overwritten", HazardKind::kRace, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
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
    {"bulk_store_outstanding_at_exit", HazardKind::kOutstanding, R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
      fence.proxy.async.shared::cta;
      bar.sync 0;
      setp.ne.u32 %p1, %r0, 0;
      @%p1 bra DONE;
      cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;
      cp.async.bulk.commit_group;
    ! cp.async.bulk.wait_group 0;
    DONE:
    )"},
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
    {"named_barrier_at_which_all_arrive_and_nobody_waits", HazardKind::kBarrier, R"(
      setp.ne.u32 %p1, %r1, 0;
      @!%p1 bra ARRIVE;
    ! bar.sync 3, 64;
    ! bra DONE;
    ARRIVE:
      bar.arrive 3, 64;
    DONE:
    )"},
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
    {"cluster_barrier_around_distributed_shared_memory",
     HazardKind::kRace,
     R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
    ! barrier.cluster.arrive.release.aligned;
    ! barrier.cluster.wait.acquire.aligned;
      xor.b32 %r20, %r3, 1; mapa.shared::cluster.u32 %r21, %r12, %r20;
      ld.shared::cluster.u32 %r22, [%r21];
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
    )",
     {.grid = {2}, .block = {64}, .cluster = {2}, .dynamic_shared_bytes = 8192}},
    {"cta_exits_while_another_one_reads_it",
     HazardKind::kOutstanding,
     R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
      xor.b32 %r20, %r3, 1; mapa.shared::cluster.u32 %r21, %r12, %r20;
      ld.shared::cluster.u32 %r22, [%r21];
    ! barrier.cluster.arrive.release.aligned;
    ! barrier.cluster.wait.acquire.aligned;
    )",
     {.grid = {2}, .block = {64}, .cluster = {2}, .dynamic_shared_bytes = 8192}},
    {"cta_exits_while_another_one_arrives_on_its_mbarrier",
     HazardKind::kOutstanding,
     R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.mbarrier_init.release.cluster;
    READY:
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
      @%p1 bra DONE;
      xor.b32 %r20, %r3, 1; mapa.shared::cluster.u32 %r21, %r10, %r20;
      mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];
    ! WAIT:
    ! mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r10], 0;
    ! @!%p3 bra WAIT;
    DONE:
    )",
     {.grid = {2}, .block = {64}, .cluster = {2}, .dynamic_shared_bytes = 8192},
     HazardKind::kOutOfBounds},
    {"accumulators_read_before_wgmma_is_done",
     HazardKind::kRegister,
     R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 4; mov.u32 %r20, 0;
      add.u32 %r12, %r10, %r11;
      st.shared.v4.u32 [%r12], {%r20, %r20, %r20, %r20};
      st.shared.v4.u32 [%r12+2048], {%r20, %r20, %r20, %r20};
      fence.proxy.async.shared::cta;
      bar.sync 0;
      and.b32 %r13, %r10, 0x3ffff; shr.u32 %r14, %r13, 4; cvt.u64.u32 %rd5, %r14;
      or.b64 %rd6, %rd5, 0x0000001000080000;
      mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
      wgmma.fence.sync.aligned;
      setp.ne.u32 %p6, %r20, 1;
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd6, %p6, 1, 1, 0, 0;
      wgmma.commit_group.sync.aligned;
    ! wgmma.wait_group.sync.aligned 0;
      add.f32 %f5, %f1, %f2;
      wgmma.wait_group.sync.aligned 0;
    )",
     {.block = {128}, .dynamic_shared_bytes = 8192}},
    {"accumulators_written_without_a_fence",
     HazardKind::kRegister,
     R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 4; mov.u32 %r20, 0;
      add.u32 %r12, %r10, %r11;
      st.shared.v4.u32 [%r12], {%r20, %r20, %r20, %r20};
      st.shared.v4.u32 [%r12+2048], {%r20, %r20, %r20, %r20};
      fence.proxy.async.shared::cta;
      bar.sync 0;
      and.b32 %r13, %r10, 0x3ffff; shr.u32 %r14, %r13, 4; cvt.u64.u32 %rd5, %r14;
      or.b64 %rd6, %rd5, 0x0000001000080000;
      mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
    ! wgmma.fence.sync.aligned;
      setp.ne.u32 %p6, %r20, 1;
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd6, %p6, 1, 1, 0, 0;
      wgmma.commit_group.sync.aligned;
      wgmma.wait_group.sync.aligned 0;
      add.f32 %f5, %f1, %f2;
    )",
     {.block = {128}, .dynamic_shared_bytes = 8192}},
    {"accumulators_read_without_a_fence_before_they_are_sums_again",
     HazardKind::kRegister,
     R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 4; mov.u32 %r20, 0;
      add.u32 %r12, %r10, %r11;
      st.shared.v4.u32 [%r12], {%r20, %r20, %r20, %r20};
      st.shared.v4.u32 [%r12+2048], {%r20, %r20, %r20, %r20};
      fence.proxy.async.shared::cta;
      bar.sync 0;
      and.b32 %r13, %r10, 0x3ffff; shr.u32 %r14, %r13, 4; cvt.u64.u32 %rd5, %r14;
      or.b64 %rd6, %rd5, 0x0000001000080000;
      setp.ne.u32 %p6, %r20, 0;
      wgmma.fence.sync.aligned;
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd6, %p6, 1, 1, 0, 0;
      wgmma.commit_group.sync.aligned;
      wgmma.wait_group.sync.aligned 0;
      add.f32 %f5, %f1, %f2;
    ! wgmma.fence.sync.aligned;
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd6, %p6, 1, 1, 0, 0;
      wgmma.commit_group.sync.aligned;
      wgmma.wait_group.sync.aligned 0;
    )",
     {.block = {128}, .dynamic_shared_bytes = 8192}},
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

TEST_P(Hazard, IsNoneAsWritten) { EXPECT_EQ(test::reports_as_written(GetParam()), ""); }

TEST_P(Hazard, IsReportedWithoutTheSynchronisation) {
  const HazardCase& test = GetParam();
  for (const Completion completion : {Completion::kEager, Completion::kLazy})
    EXPECT_THAT(test::kinds_without_sync(test, completion),
                Contains(testing::AnyOf(test.kind, test.also.value_or(test.kind))));
}

INSTANTIATE_TEST_SUITE_P(Small, Hazard, testing::ValuesIn(kCases), test::name_of_case);

// The second CTA of a cluster alone reads its accumulators too early: warps are counted by cluster in the checker, and
// both sides of the report are warps of that CTA.
TEST(RegisterHazard, NamesTheCtaOfBothSides) {
  const auto run =
      test::run_ptx(R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 4; mov.u32 %r20, 0;
      add.u32 %r12, %r10, %r11;
      st.shared.v4.u32 [%r12], {%r20, %r20, %r20, %r20};
      st.shared.v4.u32 [%r12+2048], {%r20, %r20, %r20, %r20};
      fence.proxy.async.shared::cta;
      bar.sync 0;
      and.b32 %r13, %r10, 0x3ffff; shr.u32 %r14, %r13, 4; cvt.u64.u32 %rd5, %r14;
      or.b64 %rd6, %rd5, 0x0000001000080000;
      mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
      wgmma.fence.sync.aligned;
      setp.ne.u32 %p6, %r20, 1;
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd6, %p6, 1, 1, 0, 0;
      wgmma.commit_group.sync.aligned;
      setp.eq.u32 %p1, %r3, 1;
      @%p1 bra EARLY;
      wgmma.wait_group.sync.aligned 0;
    EARLY:
      add.f32 %f5, %f1, %f2;
      wgmma.wait_group.sync.aligned 0;
    )",
                    {.grid = {2}, .block = {128}, .cluster = {2}, .dynamic_shared_bytes = 8192}, {.hazards = true});
  ASSERT_EQ(run.report.hazards.size(), 1u) << test::texts(run.report);
  const HazardReport& report = run.report.hazards[0];
  EXPECT_EQ(report.kind, HazardKind::kRegister);
  EXPECT_EQ(report.first.cta[0], 1u);
  EXPECT_EQ(report.second.cta[0], 1u);
  EXPECT_EQ(report.first.warp, report.second.warp);
}

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
}  // namespace kernelwright::emulator
