// cp.async: where data lands, zero fill, groups and mbarriers, under each completion policy.
#include <gtest/gtest.h>

#include <numeric>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

using emulator::Completion;
using emulator::HazardKind;

constexpr Completion kPolicies[] = {Completion::kEager, Completion::kLazy, Completion::kRandom};

/// %r1: this lane's 16 bytes of shared memory; %rd1: its 16 bytes of global memory.
const std::string kPlaces = R"(
shl.b32 %r1, %lane, 4; cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %rd1, %memory; add.u32 %r1, %r1, %shared;
)";
const std::string kLoad = "ld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%r1];\n";

PtxRun run_of(const std::string& statements, Completion completion = Completion::kEager, bool hazards = true) {
  return {.statements = kPlaces + statements,
          .num_outputs = 4,
          .memory = bytes_of_words(scrambled(1024)),
          .options = {.hazards = hazards, .completion = completion, .seed = 3, .threads = 1}};
}

TEST(EmulatorCopyAsync, CopiesUnderEveryPolicy) {
  const Words memory = scrambled(1024);
  for (const Completion policy : kPolicies)
    for (const bool hazards : {false, true}) {
      const PtxResult result =
          run_clean(run_of("cp.async.cg.shared.global.L2::128B [%r1], [%rd1+512], 16;\n"
                           "cp.async.commit_group; cp.async.wait_group 0;\n" +
                               kLoad,
                           policy, hazards));
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) EXPECT_EQ(result.outputs[i][lane], memory[128 + lane * 4 + i]);
    }
}

/// 32 bytes have a vector's size, and still ask for no more than 16 bytes of alignment, on both sides.
TEST(EmulatorCopyAsync, BulkCopiesOfAnySizeBeginAtMultiplesOf16) {
  const Words memory = scrambled(1024);
  for (const int bytes : {16, 32, 48, 64}) {
    const std::string size = std::to_string(bytes);
    const PtxResult result = run_clean(run_of(R"(
        setp.eq.u32 %p0, %lane, 0;
        add.u32 %r2, %shared, 2048; add.u32 %r3, %shared, 16; add.u64 %rd2, %memory, 16;
        @%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
        fence.mbarrier_init.release.cluster;
        st.shared.v4.b32 [%r1], {%r1, %r1, %r1, %r1};
        fence.proxy.async.shared::cta;
        bar.warp.sync 0xffffffff;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd3, [%r2], )" +
                                              size + R"(;
        @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], )" +
                                              size +
                                              R"(, [%r2];
      WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
        @!%p1 bra WAIT;
        )" + kLoad));
    for (int lane = 1; lane <= bytes / 16; ++lane)
      for (int i = 0; i < 4; ++i) EXPECT_EQ(result.outputs[i][lane], memory[lane * 4 + i]) << bytes;
  }
}

TEST(EmulatorCopyAsync, FillsWithZerosWhatItIsNotToldToRead) {
  const Words memory = scrambled(1024);
  const std::string fill = "st.shared.v4.b32 [%r1], {%r1, %r1, %r1, %r1};\n";
  const std::string wait = "\ncp.async.wait_all;\n" + kLoad;
  for (const Completion policy : kPolicies)
    for (const bool hazards : {false, true}) {
      // Sizes: lane l reads l % 17 bytes; lanes that read all or nothing take the fast path.
      for (const bool partial : {false, true}) {
        const PtxResult result = run_clean(
            run_of(fill + (partial ? "rem.u32 %r2, %lane, 17;" : "and.b32 %r2, %lane, 1; shl.b32 %r2, %r2, 4;") +
                       "setp.eq.u32 %p0, %r2, 0; @%p0 mov.u64 %rd1, 0;\n"  // nothing is read: no address is needed
                       "cp.async.ca.shared.global [%r1], [%rd1], 16, %r2;" +
                       wait,
                   policy, hazards));
        for (int lane = 0; lane < 32; ++lane) {
          const int size = partial ? lane % 17 : lane % 2 * 16;
          for (int byte = 0; byte < 16; ++byte) {
            const std::uint32_t found = result.outputs[byte / 4][lane] >> (byte % 4 * 8) & 0xff;
            const std::uint32_t expected = memory[lane * 4 + byte / 4] >> (byte % 4 * 8) & 0xff;
            EXPECT_EQ(found, byte < size ? expected : 0u) << lane << " " << byte;
          }
        }
      }
      for (const bool negated : {false, true}) {
        const PtxResult result =
            run_clean(run_of(fill + "setp.lt.u32 %p1, %lane, 10;\ncp.async.cg.shared.global [%r1], [%rd1], 16, " +
                                 (negated ? "!%p1;" : "%p1;") + wait,
                             policy, hazards));
        for (int lane = 0; lane < 32; ++lane)
          EXPECT_EQ(result.outputs[1][lane], (lane < 10) != negated ? 0 : memory[lane * 4 + 1]) << lane;
      }
    }
}

TEST(EmulatorCopyAsync, CopiesFourAndEightBytesForSomeLanes) {
  const Words memory = scrambled(1024);
  for (const Completion policy : kPolicies) {
    const PtxResult result =
        run_clean(run_of("st.shared.v4.b32 [%r1], {0, 0, 0, 0}; setp.lt.u32 %p0, %lane, 5;\n"
                         "@%p0 cp.async.ca.shared.global [%r1+4], [%rd1], 4;\n"
                         "cp.async.ca.shared::cta.global [%r1+8], [%rd1+8], 8;\n"
                         "cp.async.wait_all;\n" +
                             kLoad,
                         policy));
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(result.outputs[0][lane], 0u);
      EXPECT_EQ(result.outputs[1][lane], lane < 5 ? memory[lane * 4] : 0u);
      EXPECT_EQ(result.outputs[2][lane], memory[lane * 4 + 2]);
      EXPECT_EQ(result.outputs[3][lane], memory[lane * 4 + 3]);
    }
  }
}

TEST(EmulatorCopyAsync, WaitGroupLeavesTheNewestGroupsInFlight) {
  // Two groups; the first must be there after wait_group 1, and the second is read only after wait_group 0.
  const Words memory = scrambled(1024);
  for (const Completion policy : kPolicies) {
    const PtxResult result = run_clean(run_of(R"(
cp.async.ca.shared.global [%r1], [%rd1], 4;       cp.async.commit_group;
cp.async.ca.shared.global [%r1+4], [%rd1+4], 4;   cp.async.commit_group;
cp.async.wait_group 1;  ld.shared.b32 %o0, [%r1];
cp.async.wait_group 0;  ld.shared.b32 %o1, [%r1+4];)",
                                              policy));
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(result.outputs[0][lane], memory[lane * 4]);
      EXPECT_EQ(result.outputs[1][lane], memory[lane * 4 + 1]);
    }
  }
}

TEST(EmulatorCopyAsync, AReadBeforeTheWaitIsReportedUnderEveryPolicy) {
  for (const Completion policy : kPolicies) {
    const PtxResult result =
        run_ptx(run_of("cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group; ld.shared.b32 %o0, [%r1]; "
                       "cp.async.wait_all;",
                       policy));
    ASSERT_FALSE(result.report.hazards.empty());
    EXPECT_EQ(result.report.hazards[0].kind, HazardKind::kRace) << result.report.hazards[0].text();
  }
}

TEST(EmulatorCopyAsync, CopiesThatNobodyWaitsForAreReported) {
  const PtxResult result = run_ptx(run_of("cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group;"));
  ASSERT_EQ(result.report.hazards.size(), 1u);
  EXPECT_EQ(result.report.hazards[0].kind, HazardKind::kOutstanding);
}

TEST(EmulatorCopyAsync, FaultsNameWhatIsOutOfBounds) {
  for (const char* copy :
       {"cp.async.ca.shared.global [%r1], [%rd1+65536], 4;", "cp.async.ca.shared.global [%r1+4096], [%rd1], 4;",
        "cp.async.cg.shared.global [%r1], [%rd1+4], 16;", "cp.async.cg.shared.global [%r1+8], [%rd1], 16;",
        "mov.b32 %r2, 17; cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;"})
    for (const bool hazards : {false, true})
      EXPECT_NE(run_ptx(run_of(copy, Completion::kEager, hazards)).report.fault, "") << copy;
}

TEST(EmulatorCopyAsync, SizesThatPtxLacksAreRefused) {
  EXPECT_THROW(run_ptx(run_of("cp.async.ca.shared.global [%r1], [%rd1], 12;")), emulator::PtxError);
  EXPECT_THROW(run_ptx(run_of("cp.async.cg.shared.global [%r1], [%rd1], 8;")), emulator::PtxError);
}

TEST(EmulatorCopyAsync, AnMbarrierPhaseWaitsForTheCopiesOfThoseWhoArriveOnIt) {
  const Words memory = scrambled(1024);
  for (const Completion policy : kPolicies)
    for (const bool noinc : {false, true}) {
      // Warp 0 copies; warp 1 waits for the phase and reads. Without .noinc the copies' arrivals are extra.
      PtxRun run = run_of("", policy);
      run.threads = 64;
      run.statements =
          kPlaces + R"(
add.u32 %r8, %shared, 2048;
mov.u32 %r2, %tid.x;
setp.ne.u32 %p0, %r2, 0;
@!%p0 mbarrier.init.shared::cta.b64 [%r8], 32;
bar.sync 0;
setp.ge.u32 %p1, %r2, 32;
@%p1 bra WAIT;
cp.async.cg.shared.global [%r1], [%rd1], 16;
)" +
          (noinc ? "cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];\n"
                 : "cp.async.mbarrier.arrive.shared.b64 [%r8];\nmbarrier.arrive.shared::cta.b64 _, [%r8];\n") +
          R"(
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0;
@!%p2 bra WAIT;
)" + kLoad;
      SCOPED_TRACE(testing::Message() << "policy " << static_cast<int>(policy) << ", noinc " << noinc);
      const PtxResult result = run_clean(run);
      for (int thread = 0; thread < 64; ++thread)
        for (int i = 0; i < 4; ++i) EXPECT_EQ(result.outputs[i][thread], memory[thread % 32 * 4 + i]);
    }
}

}  // namespace
}  // namespace kernelwright::test
