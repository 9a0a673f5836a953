// Clusters that communicate through global memory, in cases like those of hazards_test.cpp: one CTA writes a row (or
// both do) and signals it with a word; a CTA that has read the word reads the row.
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator::hazards_global_test {
namespace {

using test::Hazard;
using test::HazardCase;
using testing::IsEmpty;
using testing::SizeIs;

// Each CTA's threads write a row of 64 words behind word 16. %rd10 is the address of the thread's word in its own row,
// %rd11 that in the other CTA's row. Word 0 counts CTAs.
constexpr const char* kRows = R"(
  mov.u32 %r4, %ctaid.x; shl.b32 %r10, %r4, 6; add.u32 %r11, %r10, %r0; add.u32 %r11, %r11, 16;
  mul.wide.u32 %rd10, %r11, 4; add.s64 %rd10, %rd0, %rd10;
  xor.b32 %r12, %r4, 1; shl.b32 %r12, %r12, 6; add.u32 %r13, %r12, %r0; add.u32 %r13, %r13, 16;
  mul.wide.u32 %rd11, %r13, 4; add.s64 %rd11, %rd0, %rd11;
  setp.ne.u32 %p1, %r0, 0; mov.u32 %r20, 0;
)";

const LaunchShape kTwoCtas = {.grid = {2}, .block = {64}, .dynamic_shared_bytes = 1024};

// The CTA that arrives last reads the other one's row. `add`: thread 0's atomic addition.
std::string last_arrival(const std::string& add) {
  return kRows + std::string(R"(
      st.global.u32 [%rd10], %r0;
    ! bar.sync 0;
      @%p1 bra TOLD;
  )") + add +
         R"(
      mov.u32 %r22, data; st.shared.u32 [%r22], %r21;
    TOLD:
      bar.sync 0;
      mov.u32 %r22, data; ld.shared.u32 %r23, [%r22];
      setp.ne.u32 %p2, %r23, 1;
      @%p2 bra END;
      ld.global.cg.u32 %r24, [%rd11];
    END:
  )";
}

// %rd12 is the address of the word of the thread's neighbour, a lane of the same warp.
const std::string kNeighbour = kRows + std::string(R"(
  xor.b32 %r14, %r11, 1; mul.wide.u32 %rd12, %r14, 4; add.s64 %rd12, %rd0, %rd12;
  atom.relaxed.gpu.global.add.u32 %r21, [%rd0], 1;
)");
const LaunchShape kOneWarp = {.block = {32}, .dynamic_shared_bytes = 1024};

const HazardCase kCases[] = {
    {"a_lane_reads_what_another_wrote", HazardKind::kLaneRace, kNeighbour + R"(
      st.global.u32 [%rd10], %r0;
    ! bar.warp.sync 0xffffffff;
      ld.global.u32 %r24, [%rd12];
    )",
     kOneWarp},
    {"a_lane_writes_what_another_wrote", HazardKind::kLaneRace, kNeighbour + R"(
      st.global.u32 [%rd10], %r0;
    ! bar.warp.sync 0xffffffff;
      add.u32 %r24, %r0, 100; st.global.u32 [%rd12], %r24;
    )",
     kOneWarp},
    {"a_lane_acquires_what_another_released", HazardKind::kLaneRace, kNeighbour + R"(
      setp.gt.u32 %p3, %r0, 1;
      @%p3 bra END;
      @%p1 bra READER;
      st.global.u32 [%rd10], %r0;
      mov.u32 %r21, 77; st.release.gpu.global.u32 [%rd0+4], %r21;
      bra END;
    READER:
    ! AGAIN: ld.acquire.gpu.global.u32 %r21, [%rd0+4]; setp.ne.u32 %p4, %r21, 77; @%p4 bra AGAIN;
      ld.global.u32 %r24, [%rd12];
    END:
    )",
     kOneWarp},
    {"part_is_written_before_its_arrival", HazardKind::kRace,
     last_arrival("atom.acq_rel.gpu.global.add.u32 %r21, [%rd0], 1;"), kTwoCtas},
    {"fences_around_a_relaxed_arrival", HazardKind::kRace,
     last_arrival("fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 %r21, [%rd0], 1; fence.acq_rel.gpu;"), kTwoCtas},
    {"fence_ahead_of_a_relaxed_arrival", HazardKind::kRace, kRows + std::string(R"(
      st.global.u32 [%rd10], %r0;
      bar.sync 0;
      @%p1 bra TOLD;
    ! fence.acq_rel.gpu;
      atom.acquire.gpu.global.add.u32 %r21, [%rd0], 1;
      setp.ne.u32 %p2, %r21, 1;
      @%p2 bra TOLD;
      ld.global.u32 %r24, [%rd11];
    TOLD:
    )"),
     kTwoCtas},
    {"fence_behind_a_relaxed_poll", HazardKind::kRace, kRows + std::string(R"(
      @%p1 bra END;
      setp.eq.u32 %p3, %r4, 1;
      @%p3 bra READER;
      st.global.u32 [%rd10], %r0;
      mov.u32 %r21, 7; st.release.gpu.global.u32 [%rd0], %r21;
      bra END;
    READER:
    AGAIN:
      ld.relaxed.gpu.global.u32 %r21, [%rd0]; setp.ne.u32 %p4, %r21, 7;
      @%p4 bra AGAIN;
    ! fence.acq_rel.gpu;
      ld.global.u32 %r24, [%rd11];
    END:
    )"),
     kTwoCtas},
    // A lane polls for its warp, and tells for it.
    {"warp_meets_behind_a_poll", HazardKind::kRace, kRows + std::string(R"(
      setp.ne.u32 %p2, %r1, 0;
      @%p2 bra END;
      setp.eq.u32 %p3, %r4, 1;
      @%p3 bra READER;
      st.global.u32 [%rd10], %r0;
      bar.warp.sync 0xffffffff;
      mov.u32 %r21, 7;
      @!%p1 st.release.gpu.global.u32 [%rd0], %r21;
      bra END;
    READER:
      @%p1 bra MET;
    AGAIN:
      ld.acquire.gpu.global.u32 %r21, [%rd0]; setp.ne.u32 %p4, %r21, 7;
      @%p4 bra AGAIN;
    MET:
    ! bar.warp.sync 0xffffffff;
      ld.global.u32 %r24, [%rd11];
    END:
    )"),
     kTwoCtas},
    {"warp_meets_ahead_of_a_release", HazardKind::kRace, kRows + std::string(R"(
      setp.ne.u32 %p2, %r1, 0;
      @%p2 bra END;
      setp.eq.u32 %p3, %r4, 1;
      @%p3 bra READER;
      st.global.u32 [%rd10], %r0;
    ! bar.warp.sync 0xffffffff;
      mov.u32 %r21, 7;
      @!%p1 st.release.gpu.global.u32 [%rd0], %r21;
      bra END;
    READER:
      ld.acquire.gpu.global.u32 %r21, [%rd0]; setp.ne.u32 %p4, %r21, 7;
      @%p4 bra READER;
      ld.global.u32 %r24, [%rd11];
    END:
    )"),
     kTwoCtas},
    {"warps_of_a_cta_and_no_barrier", HazardKind::kRace, kRows + std::string(R"(
      st.global.u32 [%rd10], %r0;
    ! bar.sync 0;
      xor.b32 %r14, %r0, 32; add.u32 %r14, %r14, %r10; add.u32 %r14, %r14, 16;
      mul.wide.u32 %rd12, %r14, 4; add.s64 %rd12, %rd0, %rd12;
      ld.global.u32 %r24, [%rd12];
      atom.relaxed.gpu.global.add.u32 %r21, [%rd0], 1;
    )"),
     kTwoCtas},
};

INSTANTIATE_TEST_SUITE_P(Global, Hazard, testing::ValuesIn(kCases), test::name_of_case);

std::vector<HazardReport> reports_of(const std::string& body) {
  return test::run_ptx(kRows + body, kTwoCtas, {.hazards = true}).report.hazards;
}

TEST(GlobalHazard, NamesBothCtas) {
  const auto reports = reports_of(R"(
      @%p1 bra END;
      setp.eq.u32 %p3, %r4, 1;
      @%p3 bra READER;
      st.global.u32 [%rd10+4], %r0;
      mov.u32 %r21, 7; st.relaxed.gpu.global.u32 [%rd0], %r21;
      bra END;
    READER:
      ld.acquire.gpu.global.u32 %r21, [%rd0]; setp.ne.u32 %p4, %r21, 7;
      @%p4 bra READER;
      ld.global.u32 %r24, [%rd11+4];
    END:
  )");
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_EQ(
      reports[0].what,
      "a read of global memory is not ordered after a write of the same bytes: nothing that its warp has acquired "
      "was released behind it");
  EXPECT_EQ(reports[0].where, "68 bytes into an out");
  EXPECT_EQ(reports[0].first.cta[0], 1u);
  EXPECT_EQ(reports[0].second.cta[0], 0u);
  EXPECT_NE(reports[0].second.instruction.find("st.global.u32"), std::string::npos);
}

TEST(GlobalHazard, IsNotWhatIsStrongOnBothSidesNorWhatLiesBeside) {
  EXPECT_THAT(reports_of("st.relaxed.gpu.global.u32 [%rd0], %r4; atom.relaxed.gpu.global.add.u32 %r21, [%rd0], 1;"
                         "ld.relaxed.gpu.global.u32 %r22, [%rd0];"),
              IsEmpty());
  EXPECT_THAT(reports_of("cvt.u64.u32 %rd12, %r4; add.s64 %rd12, %rd0, %rd12; cvt.u16.u32 %h1, %r4;"
                         "@!%p1 st.global.u8 [%rd12+8], %h1; atom.relaxed.gpu.global.add.u32 %r21, [%rd0], 1;"),
              IsEmpty());
}

TEST(GlobalHazard, IsTwoCtasThatWriteTheSame) {
  EXPECT_THAT(reports_of("@!%p1 st.global.u32 [%rd0+8], %r4; atom.relaxed.gpu.global.add.u32 %r21, [%rd0], 1;"),
              SizeIs(1));
}

TEST(GlobalHazard, IsANoteWhereTheLanesOfAWarpWriteTheSame) {
  Options options;
  options.hazards = true;
  const std::string body =
      "mov.u32 %r9, 7; atom.relaxed.gpu.global.add.u32 %r21, [%rd0], 1; st.global.u32 [%rd0+8], %r9;";
  const LaunchReport report = test::run_ptx(body, kOneWarp, options).report;
  EXPECT_THAT(test::rules_of(report), testing::ElementsAre("equal-values"));
}

// An addition continues what was released at the word, and so does a store of the releasing thread. A store of another
// thread begins anew.
TEST(GlobalHazard, IsNoneBehindWhatContinuesARelease) {
  const auto body = [](const std::string& amid) {
    return R"(
      setp.ne.u32 %p5, %r0, 1;
      setp.eq.u32 %p3, %r4, 1;
      @%p3 bra READER;
      @!%p1 st.global.u32 [%rd10], %r0;
      mov.u32 %r21, 7; mov.u32 %r25, 8;
      @!%p1 st.release.gpu.global.u32 [%rd0], %r21;
      bar.sync 0;
      )" + amid +
           R"(
      bra END;
    READER:
      @%p1 bra END;
    AGAIN:
      ld.acquire.gpu.global.u32 %r21, [%rd0]; setp.ne.u32 %p4, %r21, 8;
      @%p4 bra AGAIN;
      ld.global.u32 %r24, [%rd11];
    END:
    )";
  };
  EXPECT_THAT(reports_of(body("@!%p5 red.relaxed.gpu.global.add.u32 [%rd0], 1;")), IsEmpty());
  EXPECT_THAT(reports_of(body("@!%p1 st.relaxed.gpu.global.u32 [%rd0], %r25;")), IsEmpty());
  EXPECT_THAT(reports_of(body("@!%p5 st.relaxed.gpu.global.u32 [%rd0], %r25;")), SizeIs(1));
}

}  // namespace
}  // namespace kernelwright::emulator::hazards_global_test
