// What the checker finds about the registers of wgmma, by the rule of hazards_test.cpp.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_wgmma_test {
namespace {

using test::Hazard;
using test::HazardCase;

/// A tile of zeros in shared memory, and its descriptor in %rd6.
const std::string kZeroTile = R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 4; mov.u32 %r20, 0;
      add.u32 %r12, %r10, %r11;
      st.shared.v4.u32 [%r12], {%r20, %r20, %r20, %r20};
      st.shared.v4.u32 [%r12+2048], {%r20, %r20, %r20, %r20};
      fence.proxy.async.shared::cta;
      bar.sync 0;
      and.b32 %r13, %r10, 0x3ffff; shr.u32 %r14, %r13, 4; cvt.u64.u32 %rd5, %r14;
      or.b64 %rd6, %rd5, 0x0000001000080000;
    )";
/// The tile times itself, added to %f1 to %f4 if %p6, and a commit.
const std::string kProduct = R"(
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd6, %p6, 1, 1, 0, 0;
      wgmma.commit_group.sync.aligned;
    )";

const HazardCase kCases[] = {
    {"accumulators_read_before_wgmma_is_done",
     HazardKind::kRegister,
     kZeroTile + R"(
      mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
      wgmma.fence.sync.aligned;
      setp.ne.u32 %p6, %r20, 1;
    )" + kProduct +
         R"(
    ! wgmma.wait_group.sync.aligned 0;
      add.f32 %f5, %f1, %f2;
      wgmma.wait_group.sync.aligned 0;
    )",
     {.block = {128}, .dynamic_shared_bytes = 8192}},
    {"accumulators_written_without_a_fence",
     HazardKind::kRegister,
     kZeroTile + R"(
      mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
    ! wgmma.fence.sync.aligned;
      setp.ne.u32 %p6, %r20, 1;
    )" + kProduct +
         R"(
      wgmma.wait_group.sync.aligned 0;
      add.f32 %f5, %f1, %f2;
    )",
     {.block = {128}, .dynamic_shared_bytes = 8192}},
    {"accumulators_read_without_a_fence_before_they_are_sums_again",
     HazardKind::kRegister,
     kZeroTile + R"(
      setp.ne.u32 %p6, %r20, 0;
      wgmma.fence.sync.aligned;
    )" + kProduct +
         R"(
      wgmma.wait_group.sync.aligned 0;
      add.f32 %f5, %f1, %f2;
    ! wgmma.fence.sync.aligned;
    )" + kProduct +
         R"(
      wgmma.wait_group.sync.aligned 0;
    )",
     {.block = {128}, .dynamic_shared_bytes = 8192}},
};

INSTANTIATE_TEST_SUITE_P(Wgmma, Hazard, testing::ValuesIn(kCases), test::name_of_case);

// The second CTA of a cluster alone reads its accumulators too early: warps are counted by cluster in the checker, and
// both sides of the report are warps of that CTA.
TEST(RegisterHazard, NamesTheCtaOfBothSides) {
  const auto run =
      test::run_ptx(kZeroTile + R"(
      mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
      wgmma.fence.sync.aligned;
      setp.ne.u32 %p6, %r20, 1;
    )" + kProduct + R"(
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

}  // namespace
}  // namespace kernelwright::emulator::hazards_wgmma_test
