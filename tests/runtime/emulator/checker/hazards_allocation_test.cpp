// Triton reuses the word to which tcgen05.alloc wrote its address: a bulk copy overwrites it, without a proxy fence.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_allocation_test {
namespace {

using test::rules_of;
using testing::ElementsAre;
using testing::IsEmpty;

/// Warp 0 allocates and all threads read the address. Thread 32 fills the 12 bytes behind it. Then thread 0 does `use`
/// of the word at %r10; an mbarrier for its copies is at %r40. `fence` stands ahead of the barrier between the two.
LaunchReport report_of(const std::string& fence, const std::string& use) {
  const std::string body = R"(
      mov.u32 %r10, data; add.u32 %r40, %r10, 64; setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r0, 0; setp.ne.u32 %p4, %r0, 32;
      @!%p4 st.shared.b32 [%r10+4], 0;
      @!%p4 st.shared.b64 [%r10+8], 0;
      @!%p4 fence.proxy.async.shared::cta;
      @!%p2 mbarrier.init.shared::cta.b64 [%r40], 1;
      @!%p2 fence.mbarrier_init.release.cluster;
      @!%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 32;
      bar.sync 0;
      ld.shared.b32 %r90, [%r10];
    )" + fence + R"(
      bar.sync 0;
      @!%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    )" + use + R"(
      @!%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r90, 32;
    )";
  return test::run_ptx(body, {.block = {64}, .dynamic_shared_bytes = 8192}, {.hazards = true}, {}, 1024, "sm_100a")
      .report;
}

const std::string kOverwrite = R"(
      @!%p2 mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r40], 16;
      @!%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1], 16, [%r40];
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r40], 0;
      @!%p3 bra WAIT;
    )";
TEST(AllocationHazards, OfAnOverwrittenAddressAreOfGradeIsa) {
  const LaunchReport report = report_of("", kOverwrite);
  EXPECT_EQ(report.fault, "");
  EXPECT_THAT(rules_of(report), ElementsAre("allocation-proxy-fence"));
  EXPECT_EQ(row_of(HazardRule::kAllocationProxyFence).grade, HazardGrade::kIsa);
  EXPECT_THAT(rules_of(report_of("fence.proxy.async.shared::cta;", kOverwrite)), IsEmpty());
}

/// The same word, stored by a thread, keeps the grade error.
TEST(AllocationHazards, OfOtherStoresStayErrors) {
  EXPECT_THAT(rules_of(report_of("@!%p2 st.shared.b32 [%r10], %r90;", kOverwrite)), testing::Contains("proxy-fence"));
}

/// A copy that reads the address needs the fence.
TEST(AllocationHazards, OfAReadAddressStayErrors) {
  const std::string copy = R"(
      @!%p4 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 16;
      @!%p4 cp.async.bulk.commit_group;
      @!%p4 cp.async.bulk.wait_group 0;
    )";
  EXPECT_THAT(rules_of(report_of("", copy)), ElementsAre("proxy-fence"));
  EXPECT_THAT(rules_of(report_of("fence.proxy.async.shared::cta;", copy)), IsEmpty());
}

}  // namespace
}  // namespace kernelwright::emulator::hazards_allocation_test
