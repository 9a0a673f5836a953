// Special registers that launches rarely need: environment registers, fourth components, 16-bit reads, predicates.
#include "kernelwright/runtime/emulator/program/special_registers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_kernel.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

TEST(SpecialRegisters, ThatALaunchDoesNotSetAreZero) {
  std::string statements = "mov.b32 %o0, 0;\n";
  for (const char* name : {"%tid.w", "%ntid.w", "%ctaid.w", "%nctaid.w", "%clusterid.w", "%cluster_nctaid.w",
                           "%envreg0", "%envreg3", "%envreg31", "%pm0", "%pm7", "%reserved_smem_offset_begin"})
    statements += "mov.u32 %r1, " + std::string(name) + ";\nor.b32 %o0, %o0, %r1;\n";
  for (const char* name : {"%pm0_64", "%pm7_64", "%current_graph_exec"})
    statements += "mov.u64 %rd0, " + std::string(name) + ";\ncvt.u32.u64 %r1, %rd0;\nor.b32 %o0, %o0, %r1;\n";
  EXPECT_EQ(run_clean({.statements = statements, .num_outputs = 1}).outputs[0], Words(32, 0));
}

TEST(SpecialRegisters, MayBeReadAs16BitsOrAsAPredicate) {
  const PtxResult result = run_clean({.statements = R"(
mov.u16 %h0, %tid.x;   cvt.u32.u16 %o0, %h0;
mov.u16 %h1, %ntid.x;  cvt.u32.u16 %o1, %h1;
mov.u16 %h2, %ctaid.w; cvt.u32.u16 %o2, %h2;
mov.pred %p0, %is_explicit_cluster;
selp.u32 %o3, 1, 0, %p0;)",
                                      .num_outputs = 4,
                                      .threads = 96});
  Words threads(96);
  std::iota(threads.begin(), threads.end(), 0u);
  EXPECT_EQ(result.outputs[0], threads);
  EXPECT_EQ(result.outputs[1], Words(96, 96));
  EXPECT_EQ(result.outputs[2], Words(96, 0));
  EXPECT_EQ(result.outputs[3], Words(96, 0));
}

TEST(SpecialRegisters, SayThatALaunchHasClusters) {
  const auto run = emulator::test::run_ptx(
      "mov.pred %p1, %is_explicit_cluster; selp.u32 %r10, 1, 2, %p1; mov.u32 %r11, %ctaid.x;\n"
      "mad.lo.u32 %r11, %r11, 32, %r0; mul.wide.u32 %rd2, %r11, 4; add.u64 %rd2, %rd2, %rd0;\n"
      "st.global.u32 [%rd2], %r10;",
      {.grid = {4, 1, 1}, .block = {32, 1, 1}, .cluster = {2, 1, 1}}, {.threads = 1}, {}, 128);
  EXPECT_EQ(run.report.fault, "");
  EXPECT_EQ(run.out, std::vector<std::uint32_t>(128, 1));
}

TEST(SpecialRegisters, ThatAreInSharedMemoryAgreeWithEachOther) {
  const PtxResult result = run_clean({.statements = R"(
mov.u32 %o0, %total_smem_size;
mov.u32 %o1, %aggr_smem_size;
mov.u32 %r1, %reserved_smem_offset_begin;
mov.u32 %r2, %reserved_smem_offset_end;
sub.u32 %o2, %r2, %r1;
mov.u32 %o3, %reserved_smem_offset_cap;
mov.u32 %o4, %r2;)",
                                      .num_outputs = 5});
  EXPECT_EQ(result.outputs[1][0], result.outputs[0][0] + result.outputs[2][0]);
  EXPECT_EQ(result.outputs[2], result.outputs[3]);
  EXPECT_EQ(result.outputs[4][0], 1024u);  // where the first variable lies
}

TEST(SpecialRegisters, ComeAsVectors) {
  const PtxResult result = run_clean({.statements = R"(
.reg .v4 .u32 v;
mov.v4.u32 {%o0, _, _, %o1}, %tid;
mov.v4.u32 v, %ntid;
mov.u32 %o2, v.x;
add.u32 %o3, v.y, v.b;)",
                                      .num_outputs = 4,
                                      .threads = 64});
  Words threads(64);
  std::iota(threads.begin(), threads.end(), 0u);
  EXPECT_EQ(result.outputs, (std::vector<Words>{threads, Words(64, 0), Words(64, 64), Words(64, 2)}));
}

TEST(SpecialRegisters, ThatAreClocksMayBeSourcesOfConversions) {
  // Each read keeps the guard of its instruction, and belongs to the label before it.
  const PtxResult result = run_clean({.statements = R"(
mov.b32 %o0, 7; mov.b32 %o3, 0;
setp.eq.u32 %p0, %lane, 3;
cvt.u32.u64 %r1, %clock64;
bra.uni NEXT;
NEXT:
cvt.u64.u32 %rd1, %clock;
cvt.u32.u64 %r2, %rd1;
@%p0 cvt.u32.u64 %o0, %globaltimer;
mov.b64 {%r3, %o3}, %clock64;
setp.le.u32 %p1, %r1, %r2;
setp.le.u32 %p2, %r2, %r3;
selp.u32 %o1, 1, 0, %p1;
selp.u32 %o2, 1, 0, %p2;)",
                                      .num_outputs = 4});
  for (std::size_t lane = 0; lane < 32; ++lane) EXPECT_EQ(result.outputs[0][lane] == 7, lane != 3) << lane;
  EXPECT_EQ(result.outputs[1], Words(32, 1));
  EXPECT_EQ(result.outputs[2], Words(32, 1));
  EXPECT_EQ(result.outputs[3], Words(32, 0));
}

TEST(SpecialRegisters, OpenTheReservedMemoryToAKernelThatReadsItsOffset) {
  const std::string use = "st.shared.u32 [%r1+284], %lane;\nbar.warp.sync -1;\n";
  const PtxResult result = run_clean({.statements = "mov.u32 %r1, %reserved_smem_offset_1;\nld.shared.u32 %o0, [%r1];\n"
                                                    "setp.eq.u32 %p0, %lane, 5;\n@%p0 st.shared.u32 [%r1+284], %lane;\n"
                                                    "bar.warp.sync -1;\nld.shared.u32 %o1, [%r1+284];",
                                      .num_outputs = 2});
  EXPECT_EQ(result.outputs[0], Words(32, 0));
  EXPECT_EQ(result.outputs[1], Words(32, 5));
  EXPECT_THAT(run_ptx({.statements = "mov.u32 %r1, 512;\n" + use}).report.fault,
              testing::HasSubstr("outside the CTA's 4096 bytes from 0x400"));
}

TEST(SpecialRegisters, AreRefusedWithAnotherNameOrSize) {
  for (const char* statement :
       {"mov.u32 %r1, %envreg32;", "mov.u32 %r1, %envreg00;", "mov.u32 %r1, %envreg;", "mov.u32 %r1, %pm8;",
        "mov.u32 %r1, %envreg0_64;", "mov.u64 %rd1, %envreg0;", "mov.u64 %rd1, %pm0;", "mov.u32 %r1, %pm0_64;",
        "mov.u16 %h1, %laneid;", "mov.u32 %r1, %is_explicit_cluster;", "mov.pred %p1, %tid.x;", "mov.u32 %r1, %tid.v;",
        "mov.u32 %r1, %tid;", "mov.b64 %rd1, %tid;", "mov.v2.u32 {%r1, %r2}, %tid;",
        "mov.u32 %r1, %reserved_smem_offset_2;"})
    EXPECT_THROW(run_ptx({.statements = statement}), emulator::PtxError) << statement;
}

/// What NVCC makes of cooperative_groups: this_grid().sync(), for one warp a CTA. In even rounds each CTA writes its
/// number, all meet, and each reads the number of the next one. In odd rounds all meet.
constexpr const char* kGridSync = R"(
mov.u32 %r10, %envreg2; cvt.u64.u32 %rd7, %r10; mov.u32 %r11, %envreg1; cvt.u64.u32 %rd8, %r11;
bfi.b64 %rd9, %rd8, %rd7, 32, 32;
mov.u32 %r12, %ctaid.x; mov.u32 %r13, %nctaid.x;
setp.ne.u64 %p1, %rd9, 0;
@!%p1 bra NONE;
mov.u32 %r30, 0; mov.u32 %r31, 0;
AGAIN:
and.b32 %r18, %r30, 1; setp.eq.u32 %p5, %r18, 1; setp.ne.u32 %p2, %r0, 0; or.pred %p7, %p2, %p5;
@%p7 bra MEET;
mul.wide.u32 %rd10, %r12, 4; add.u64 %rd10, %rd10, %rd1; mad.lo.u32 %r14, %r12, 3, %r30; st.global.u32 [%rd10], %r14;
MEET:
barrier.sync 0;
@%p2 bra MET;
setp.eq.u32 %p3, %r12, 0;
sub.u32 %r15, 0x80000001, %r13;
selp.b32 %r15, %r15, 1, %p3;
add.u64 %rd11, %rd9, 4;
atom.add.release.gpu.u32 %r16, [%rd11], %r15;
WAIT:
ld.acquire.gpu.u32 %r17, [%rd11];
xor.b32 %r17, %r17, %r16;
setp.gt.s32 %p4, %r17, -1;
@%p4 bra WAIT;
MET:
barrier.sync 0;
@%p5 bra NEXT;
add.u32 %r19, %r12, 1; rem.u32 %r19, %r19, %r13; mul.wide.u32 %rd10, %r19, 4; add.u64 %rd10, %rd10, %rd1;
ld.global.u32 %r20, [%rd10]; mad.lo.u32 %r31, %r31, 31, %r20;
NEXT:
add.u32 %r30, %r30, 1; setp.lt.u32 %p6, %r30, 6;
@%p6 bra AGAIN;
bra.uni STORE;
NONE:
mov.u32 %r31, 0xffffffff;
STORE:
mad.lo.u32 %r21, %r12, 32, %r0; mul.wide.u32 %rd10, %r21, 4; add.u64 %rd10, %rd10, %rd0; st.global.u32 [%rd10], %r31;
)";

TEST(SpecialRegisters, GiveAGridItsWorkspaceToSynchroniseThrough) {
  const std::vector<std::uint32_t> in(64);
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    const auto run = emulator::test::run_ptx(kGridSync, {.grid = {12, 1, 1}, .block = {32, 1, 1}, .cooperative = true},
                                             {.hazards = true, .seed = seed, .shuffle = seed > 0}, in, 12 * 32);
    ASSERT_EQ(run.report.fault, "");
    for (const auto& hazard : run.report.hazards) ADD_FAILURE() << hazard.text();
    for (std::uint32_t cta = 0; cta < 12; ++cta) {
      std::uint32_t expected = 0;
      for (std::uint32_t round = 0; round < 6; round += 2) expected = expected * 31 + (cta + 1) % 12 * 3 + round;
      for (std::uint32_t thread = 0; thread < 32; ++thread) ASSERT_EQ(run.out[cta * 32 + thread], expected) << cta;
    }
  }
}

TEST(SpecialRegisters, GiveALaunchThatIsNotCooperativeNoWorkspace) {
  const std::vector<std::uint32_t> in(64);
  const auto run = emulator::test::run_ptx(kGridSync, {.grid = {12, 1, 1}, .block = {32, 1, 1}}, {}, in, 12 * 32);
  EXPECT_EQ(run.report.fault, "");
  EXPECT_EQ(run.out, std::vector<std::uint32_t>(12 * 32, ~0u));
}

TEST(SpecialRegisters, RefuseACooperativeLaunchThatIsNotResident) {
  const std::vector<std::uint32_t> in(64);
  try {
    emulator::test::run_ptx(kGridSync, {.grid = {40, 1, 1}, .block = {32, 1, 1}, .cooperative = true}, {.num_sms = 39},
                            in, 40 * 32);
    FAIL() << "it is launched";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("a cooperative launch of 40 CTAs, of which 39 are resident at once"));
  }
}

}  // namespace
}  // namespace kernelwright::test
