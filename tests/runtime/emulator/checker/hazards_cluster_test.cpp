// What the checker finds between the CTAs of a cluster, by the rule of hazards_test.cpp.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_cluster_test {
namespace {

using test::Hazard;
using test::HazardCase;
using test::kOwnWord;

const HazardCase kCases[] = {
    {"cluster_barrier_around_distributed_shared_memory",
     HazardKind::kRace,
     kOwnWord + R"(
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
     kOwnWord + R"(
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
};

INSTANTIATE_TEST_SUITE_P(Cluster, Hazard, testing::ValuesIn(kCases), test::name_of_case);

}  // namespace
}  // namespace kernelwright::emulator::hazards_cluster_test
