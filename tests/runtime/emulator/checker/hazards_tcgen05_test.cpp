// What the checker finds in tensor memory. These cases use hazards_test.cpp's rule: each must be clean as written, and
// reported without its lines that begin with '!'.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_tcgen05_test {
namespace {

using test::Hazard;
using test::HazardCase;

/// Warp 0 allocates 32 columns: %r90 is their address and %r91 that of the warp's own lanes. Zeros for a copy of 32
/// rows at %r11, its descriptor in %rd6; an mbarrier at %r12. %p1: not warp 0, %p2: not thread 0.
const std::string kBegin = R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r0, 0; add.u32 %r12, %r10, 8;
      add.u32 %r11, %r10, 1024; mov.u32 %r80, 0; shl.b32 %r81, %r0, 3; add.u32 %r82, %r11, %r81;
      @!%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 32;
      @!%p2 mbarrier.init.shared::cta.b64 [%r12], 1;
      @!%p2 fence.mbarrier_init.release.cluster;
      st.shared.v2.u32 [%r82], {%r80, %r80};
      fence.proxy.async.shared::cta;
      bar.sync 0;
      ld.shared.b32 %r90, [%r10]; and.b32 %r88, %r1, 3; shl.b32 %r88, %r88, 21; add.u32 %r91, %r90, %r88;
      and.b32 %r83, %r11, 0x3ffff; shr.u32 %r83, %r83, 4; cvt.u64.u32 %rd5, %r83; or.b64 %rd6, %rd5, 0x400800080000;
    )";
const std::string kEnd = R"(
      tcgen05.fence::before_thread_sync;
      bar.sync 0;
      tcgen05.fence::after_thread_sync;
      @!%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r90, 32;
    )";
/// Thread 0 copies the zeros to tensor memory and commits the copy to the mbarrier.
const std::string kCopy = R"(
      @%p2 bra COPIED;
      tcgen05.cp.cta_group::1.32x128b.warpx4 [%r90], %rd6;
      tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];
    COPIED:
    )";
/// All threads wait for the mbarrier.
const std::string kWait = R"(
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], 0;
      @!%p3 bra WAIT;
    )";
/// Each warp writes a column of its lanes and waits.
const std::string kStore = R"(
      tcgen05.st.sync.aligned.32x32b.x1.b32 [%r91], {%r0};
      tcgen05.wait::st.sync.aligned;
    )";
/// Each warp reads the column and waits.
const std::string kLoad = R"(
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];
      tcgen05.wait::ld.sync.aligned;
    )";

const LaunchShape kShape = {.block = {64}, .dynamic_shared_bytes = 8192};

HazardCase make(const char* name, HazardKind kind, const std::string& body, const std::string& end = kEnd) {
  return {name, kind, kBegin + body + end, kShape, {}, "sm_100a"};
}

const HazardCase kCases[] = {
    make("loaded_register_read_before_the_wait", HazardKind::kRegister, kStore + R"(
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];
    ! tcgen05.wait::ld.sync.aligned;
      add.u32 %r21, %r20, 1;
      tcgen05.wait::ld.sync.aligned;
    )"),
    make("register_loaded_twice_without_a_wait", HazardKind::kRegister, kStore + R"(
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];
    ! tcgen05.wait::ld.sync.aligned;
    )" + kLoad),
    make("store_read_before_the_wait", HazardKind::kRace, R"(
      tcgen05.st.sync.aligned.32x32b.x1.b32 [%r91], {%r0};
    ! tcgen05.wait::st.sync.aligned;
    )" + kLoad + R"(
      tcgen05.wait::st.sync.aligned;
    )"),
    make("store_over_a_load_in_flight", HazardKind::kRace, kStore + R"(
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];
    ! tcgen05.wait::ld.sync.aligned;
    )" + kStore + R"(
      tcgen05.wait::ld.sync.aligned;
    )"),
    make("cells_that_nothing_wrote", HazardKind::kUnwritten, R"(
    ! tcgen05.st.sync.aligned.16x64b.x2.b32 [%r91], {%r0, %r0};
    ! tcgen05.wait::st.sync.aligned;
      tcgen05.ld.sync.aligned.16x64b.x2.b32 {%r20, %r21}, [%r91];
      tcgen05.wait::ld.sync.aligned;
    )"),
    make("columns_that_are_never_given_back", HazardKind::kTensorMemory, "", R"(
    ! @!%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r90, 32;
    )"),
    make("lanes_of_another_warp", HazardKind::kTensorMemory, R"(
      mov.u32 %r91, %r90;
    ! add.u32 %r91, %r91, %r88;
    )" + kStore),
    make("columns_freed_while_another_warp_reads", HazardKind::kTensorMemory, kStore + kLoad,
         R"(
    ! bar.sync 0;
      @!%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r90, 32;
    )"),
    make("copy_read_without_its_mbarrier", HazardKind::kRace, R"(
      @%p2 bra COPIED;
      tcgen05.cp.cta_group::1.32x128b.warpx4 [%r90], %rd6;
    ! tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];
      tcgen05.fence::before_thread_sync;
    COPIED:
      bar.sync 0;
    ! WAIT:
    ! mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], 0;
    ! @!%p3 bra WAIT;
      tcgen05.fence::after_thread_sync;
    )" + kLoad),
    make("copy_read_without_a_fence_after_the_wait", HazardKind::kTensorFence, kCopy + kWait + R"(
    ! tcgen05.fence::after_thread_sync;
    )" + kLoad),
    make("copy_read_where_half_of_the_lanes_have_no_fence", HazardKind::kTensorFence, kCopy + kWait + R"(
      setp.lt.u32 %p4, %r2, 16;
      @%p4 bra OTHERS;
      tcgen05.fence::after_thread_sync;
      bra READ;
    OTHERS:
    ! tcgen05.fence::after_thread_sync;
    READ:
      vote.sync.any.pred %p5, %p4, 0xffffffff;
    )" + kLoad),
    make("copy_that_nobody_commits", HazardKind::kOutstanding, R"(
      @%p2 bra COPIED;
      tcgen05.cp.cta_group::1.32x128b.warpx4 [%r90], %rd6;
    ! tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];
    COPIED:
    ! WAIT:
    ! mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], 0;
    ! @!%p3 bra WAIT;
    )"),
    make("commit_that_nobody_waits_for", HazardKind::kOutstanding, kCopy + R"(
    ! WAIT:
    ! mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], 0;
    ! @!%p3 bra WAIT;
    )"),
    make("copy_over_cells_that_a_load_reads", HazardKind::kRace, kStore + R"(
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];
    ! tcgen05.wait::ld.sync.aligned;
      tcgen05.fence::before_thread_sync;
      bar.sync 0;
      tcgen05.fence::after_thread_sync;
    )" + kCopy + R"(
      tcgen05.wait::ld.sync.aligned;
    )" + kWait),
    make("copy_after_a_load_without_the_fence_before", HazardKind::kTensorFence, kStore + kLoad + R"(
    ! tcgen05.fence::before_thread_sync;
      bar.sync 0;
      tcgen05.fence::after_thread_sync;
    )" + kCopy + kWait),
    make("copies_by_two_threads_that_do_not_synchronise", HazardKind::kRace, R"(
      @%p2 bra SECOND;
      tcgen05.cp.cta_group::1.32x128b.warpx4 [%r90], %rd6;
      tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];
    SECOND:
    ! bar.sync 0;
      tcgen05.fence::after_thread_sync;
      setp.ne.u32 %p4, %r0, 32;
      @%p4 bra COPIED;
      tcgen05.cp.cta_group::1.32x128b.warpx4 [%r90], %rd6;
      mbarrier.init.shared::cta.b64 [%r12+8], 1;
      fence.mbarrier_init.release.cluster;
      tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12+8];
    COPIED:
      bar.sync 0;
    )" + kWait + R"(
    WAIT2:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12+8], 0;
      @!%p3 bra WAIT2;
    )"),
    make("source_of_a_copy_overwritten", HazardKind::kRace, kCopy + R"(
    ! WAIT:
    ! mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], 0;
    ! @!%p3 bra WAIT;
      bar.sync 0;
      st.shared.u32 [%r82], %r0;
    WAIT2:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], 0;
      @!%p3 bra WAIT2;
    )"),
    make("source_of_a_copy_not_published", HazardKind::kProxyFence, R"(
      st.shared.u32 [%r82], %r0;
    ! fence.proxy.async.shared::cta;
      bar.sync 0;
    )" + kCopy + kWait),
};

INSTANTIATE_TEST_SUITE_P(Tensor, Hazard, testing::ValuesIn(kCases), test::name_of_case);

TEST(TensorHazards, HaveNamesOfTheirOwnAndSynchronisationToTakeOut) {
  std::set<std::string> names;
  for (const HazardCase& test : kCases) {
    EXPECT_TRUE(names.insert(test.name).second) << test.name;
    EXPECT_NE(test::with_sync(test.body, true), test::with_sync(test.body, false)) << test.name;
    EXPECT_EQ(test::reports_as_written(test), "") << test.name;
  }
}

/// A launch of kBegin, a store to column 0, `body` and kEnd.
test::PtxRun run_stored(const std::string& body, Completion completion = Completion::kEager, std::uint64_t seed = 1) {
  auto run = test::run_ptx(kBegin + kStore + body + kEnd, kShape,
                           {.hazards = true, .completion = completion, .seed = seed, .shuffle = seed > 1}, {}, 1024,
                           "sm_100a");
  EXPECT_TRUE(run.report.completed) << run.report.fault;
  return run;
}

// Compilers put moves and arithmetic ahead of the wait. The hardware makes each of them wait for the load.
TEST(TensorLoad, IsDoneWhenAnInstructionTouchesItsRegisters) {
  const std::string early = R"(
      mul.wide.u32 %rd7, %r0, 4; add.s64 %rd8, %rd0, %rd7;
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r21}, [%r91];
      mov.b32 %r22, %r20;
      add.u32 %r23, %r22, %r20;
      mov.u32 %r21, 5;
      tcgen05.wait::ld.sync.aligned;
      add.u32 %r23, %r23, %r21;
      st.global.u32 [%rd8], %r23;
    )";
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
      const auto run = run_stored(early, completion, seed);
      for (std::uint32_t thread = 0; thread < 64; ++thread) EXPECT_EQ(run.out[thread], 2 * thread + 5);
      EXPECT_THAT(test::rules_of(run.report), testing::ElementsAre("tensor-load-register", "tensor-load-register"));
    }
  EXPECT_EQ(row_of(HazardRule::kTensorLoadRegister).grade, HazardGrade::kIsa);
}

// The use has waited for the load, so a store over its cells comes behind the load. Without a use, nothing orders them.
TEST(TensorLoad, ThatAUseHasCompletedMayBeStoredOver) {
  const auto body = [](const std::string& stored) {
    return R"(
      mul.wide.u32 %rd7, %r0, 4; add.s64 %rd8, %rd0, %rd7;
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];
      add.u32 %r22, )" +
           stored + R"(, 7;
      tcgen05.st.sync.aligned.32x32b.x1.b32 [%r91], {%r22};
      tcgen05.wait::st.sync.aligned;
      tcgen05.wait::ld.sync.aligned;
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r23}, [%r91];
      tcgen05.wait::ld.sync.aligned;
      st.global.u32 [%rd8], %r23;
    )";
  };
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
      const auto run = run_stored(body("%r20"), completion, seed);
      for (std::uint32_t thread = 0; thread < 64; ++thread) EXPECT_EQ(run.out[thread], thread + 7);
      EXPECT_THAT(test::rules_of(run.report), testing::ElementsAre("tensor-load-register"));
      EXPECT_THAT(test::rules_of(run_stored(body("%r0"), completion, seed).report),
                  testing::ElementsAre("tensor-race"));
    }
}

TEST(TensorLoad, OverARegisterOfALoadInFlightIsAnError) {
  const std::string load = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r91];\n";
  const std::string wait = "tcgen05.wait::ld.sync.aligned;\n";
  EXPECT_THAT(test::rules_of(run_stored(load + load + wait).report), testing::ElementsAre("tensor-load-twice"));
  EXPECT_THAT(test::rules_of(run_stored(load + wait + load + wait).report), testing::IsEmpty());
  EXPECT_EQ(row_of(HazardRule::kTensorLoadTwice).grade, HazardGrade::kError);
}

// Column 0 is written and column 1 is not.
TEST(UnwrittenTensorMemory, IsANoteUntilTheValueIsUsed) {
  const std::string load = R"(
      tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r20, %r21}, [%r91];
      tcgen05.wait::ld.sync.aligned;
      add.u32 %r22, %r20, 1;
    )";
  const auto rules = [&](const std::string& use) { return test::rules_of(run_stored(load + use).report); };
  using testing::ElementsAre;
  EXPECT_THAT(rules(""), ElementsAre("unwritten-unused"));
  EXPECT_THAT(rules("mov.u32 %r30, %r21; mov.b64 %rd7, {%r30, %r20};"), ElementsAre("unwritten-unused"));
  EXPECT_THAT(rules("mov.u32 %r21, 3; add.u32 %r22, %r21, 1;"), ElementsAre("unwritten-unused"));
  EXPECT_THAT(rules("mov.u32 %r30, %r21; add.u32 %r31, %r30, 1;"), ElementsAre("unwritten-tensor"));
  EXPECT_THAT(rules("st.global.u32 [%rd0], %r21;"), ElementsAre("unwritten-tensor"));
  EXPECT_THAT(rules("setp.eq.u32 %p4, %r0, 77; @%p4 st.global.u32 [%rd0], %r21;"), ElementsAre("unwritten-unused"));
  EXPECT_EQ(row_of(HazardRule::kUnwrittenUnused).grade, HazardGrade::kNote);
  EXPECT_EQ(row_of(HazardRule::kUnwrittenTensor).grade, HazardGrade::kError);
}

}  // namespace
}  // namespace kernelwright::emulator::hazards_tcgen05_test
