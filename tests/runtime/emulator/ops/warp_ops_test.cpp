// shfl, vote, match, redux, elect, activemask: compared with their definitions, lane by lane.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

std::uint32_t popcount(std::uint32_t x) { return static_cast<std::uint32_t>(__builtin_popcount(x)); }

struct ShuffleCase {
  const char* mode;
  std::uint32_t b, c;
};

// PTX ISA "shfl.sync", by its own words: the segment of a lane begins at `lane & segmask`; a source beyond its end, or
// before its beginning for up, is out of range, and the lane keeps its own value.
std::pair<int, bool> source_of(const ShuffleCase& test, int lane) {
  const int clamp = test.c & 31, mask = test.c >> 8 & 31, b = test.b & 31;
  const int lowest = lane & mask, highest = lowest | (clamp & ~mask);
  int source = 0;
  bool within = false;
  switch (test.mode[0]) {
    case 'u': source = lane - b, within = source >= highest; break;
    case 'd': source = lane + b, within = source <= highest; break;
    case 'b': source = lane ^ b, within = source <= highest; break;
    case 'i': source = lowest | (b & ~mask), within = source <= highest; break;
  }
  return {within ? source : lane, within};
}

TEST(EmulatorShuffle, TakesTheValueOfTheLaneThatItsModeNames) {
  const ShuffleCase cases[] = {{"up", 1, 0},        {"up", 5, 0x1000},     {"up", 31, 0},     {"down", 1, 0x1f},
                               {"down", 3, 0x181f}, {"down", 16, 0x100f},  {"bfly", 1, 0x1f}, {"bfly", 16, 0x1f},
                               {"bfly", 4, 0x1c1f}, {"bfly", 9, 0x0f},     {"idx", 0, 0x1f},  {"idx", 7, 0x181f},
                               {"idx", 31, 0x1f},   {"idx", 0x2d, 0x1e1f}, {"idx", 20, 0x0f}};
  const Words values = scrambled(32);
  for (const ShuffleCase& test : cases) {
    const PtxResult result = run_clean({.statements = std::string("shfl.sync.") + test.mode + ".b32 %o0|%p0, %i0, " +
                                                      std::to_string(test.b) + ", " + std::to_string(test.c) +
                                                      ", 0xffffffff;\nselp.u32 %o1, 1, 0, %p0;",
                                        .inputs = {values},
                                        .num_outputs = 2});
    for (int lane = 0; lane < 32; ++lane) {
      const auto [source, within] = source_of(test, lane);
      EXPECT_EQ(result.outputs[0][lane], values[source]) << test.mode << " " << test.b << " " << test.c << " " << lane;
      EXPECT_EQ(result.outputs[1][lane], within ? 1u : 0u)
          << test.mode << " " << test.b << " " << test.c << " " << lane;
    }
  }
}

TEST(EmulatorShuffle, ReadsTheOldValueWhereDestinationAndSourceAreOneRegister) {
  const Words values = scrambled(32);
  const PtxResult result = run_clean({.statements = "mov.b32 %o0, %i0;\nshfl.sync.idx.b32 %o0, %o0, %i1, 31, -1;",
                                      .inputs = {values, scrambled(32, 9)},
                                      .num_outputs = 1});
  const Words index = scrambled(32, 9);
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(result.outputs[0][lane], values[index[lane] & 31]);
}

TEST(EmulatorShuffle, WorksAmongTheMembersOfAMaskInDivergedHalves) {
  const Words values = scrambled(32);
  const PtxResult result = run_clean({.statements = R"(
setp.lt.u32 %p0, %lane, 16;
@%p0 bra LOW;
shfl.sync.bfly.b32 %o0, %i0, 3, 31, 0xffff0000;
bra.uni END;
LOW: shfl.sync.bfly.b32 %o0, %i0, 1, 31, 0x0000ffff;
END:)",
                                      .inputs = {values},
                                      .num_outputs = 1});
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(result.outputs[0][lane], values[lane ^ (lane < 16 ? 1 : 3)]);
}

TEST(EmulatorShuffle, AReadFromALaneThatDoesNotTakePartIsReported) {
  const PtxResult result = run_ptx({.statements = R"(
setp.lt.u32 %p0, %lane, 16;
mov.b32 %o0, 0;
@%p0 shfl.sync.down.b32 %o0, %i0, 8, 31, 0x0000ffff;)",
                                    .inputs = {scrambled(32)},
                                    .num_outputs = 1});
  ASSERT_EQ(result.report.hazards.size(), 1u);
  EXPECT_EQ(result.report.hazards[0].kind, emulator::HazardKind::kDivergence);
}

TEST(EmulatorShuffle, ALaneThatItsOwnMaskLacksIsAFault) {
  const PtxResult result = run_ptx(
      {.statements = "shfl.sync.idx.b32 %o0, %i0, 0, 31, 0x7fffffff;", .inputs = {scrambled(32)}, .num_outputs = 1});
  EXPECT_NE(result.report.fault.find("0x7fffffff"), std::string::npos) << result.report.fault;
}

TEST(EmulatorVote, SumsUpThePredicatesOfItsMembers) {
  for (const std::uint32_t set : {0u, 0xffffffffu, 0x00010000u, 0xfffffffeu, 0x12345678u}) {
    const PtxResult result = run_clean({.statements = R"(
shr.u32 %r1, %i0, %lane; and.b32 %r1, %r1, 1; setp.ne.u32 %p0, %r1, 0;
vote.sync.all.pred %p1, %p0, -1;   selp.u32 %o0, 1, 0, %p1;
vote.sync.any.pred %p1, %p0, -1;   selp.u32 %o1, 1, 0, %p1;
vote.sync.uni.pred %p1, %p0, -1;   selp.u32 %o2, 1, 0, %p1;
vote.sync.ballot.b32 %o3, %p0, -1;
vote.sync.ballot.b32 %o4, !%p0, -1;
vote.sync.any.pred %p1, !%p0, -1;  selp.u32 %o5, 1, 0, %p1;)",
                                        .inputs = {Words(32, set)},
                                        .num_outputs = 6});
    const Words expected = {set == ~0u, set != 0, set == 0 || set == ~0u, set, ~set, set != ~0u};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(result.outputs[i], Words(32, expected[i])) << set << " " << i;
  }
}

TEST(EmulatorVote, LeavesOutExitedLanesAndNonMembers) {
  const PtxResult result = run_clean({.statements = R"(
mov.b32 %o0, 0;
setp.ge.u32 %p0, %lane, 24;
st.global.b32 [%out], 0;
@%p0 exit;
setp.lt.u32 %p1, %lane, 8;
@!%p1 bra END;
setp.ge.u32 %p2, %lane, 4;
vote.sync.ballot.b32 %o0, %p2, 0x000000ff;
END:
activemask.b32 %o1;)",
                                      .num_outputs = 2});
  for (int lane = 0; lane < 8; ++lane) EXPECT_EQ(result.outputs[0][lane], 0xf0u);
  EXPECT_EQ(result.outputs[1][9] & 0xff000000u, 0u);  // the scheduler chooses what else runs with it
  EXPECT_NE(result.outputs[1][9] & 0x200u, 0u);
}

TEST(EmulatorMatch, FindsTheLanesWithAnEqualValue) {
  Words values(32);
  for (int lane = 0; lane < 32; ++lane) values[lane] = lane * lane % 7;
  const PtxResult result = run_clean({.statements = R"(
match.any.sync.b32 %o0, %i0, -1;
cvt.u64.u32 %rd0, %i0; shl.b64 %rd0, %rd0, 40;
match.any.sync.b64 %o1, %rd0, -1;
match.all.sync.b32 %o2|%p0, %i0, -1; selp.u32 %o3, 1, 0, %p0;
match.all.sync.b64 %o4|%p0, 5, -1;   selp.u32 %o5, 1, 0, %p0;)",
                                      .inputs = {values},
                                      .num_outputs = 6});
  for (int lane = 0; lane < 32; ++lane) {
    std::uint32_t equal = 0;
    for (int other = 0; other < 32; ++other) equal |= values[other] == values[lane] ? 1u << other : 0;
    EXPECT_EQ(result.outputs[0][lane], equal);
    EXPECT_EQ(result.outputs[1][lane], equal);
  }
  EXPECT_EQ(result.outputs[2], Words(32, 0));
  EXPECT_EQ(result.outputs[3], Words(32, 0));
  EXPECT_EQ(result.outputs[4], Words(32, ~0u));
  EXPECT_EQ(result.outputs[5], Words(32, 1));
}

TEST(EmulatorRedux, ReducesOverItsMembers) {
  const Words values = scrambled(32);
  const PtxResult result = run_clean({.statements = R"(
redux.sync.add.u32 %o0, %i0, -1;  redux.sync.add.s32 %o1, %i0, -1;
redux.sync.min.u32 %o2, %i0, -1;  redux.sync.min.s32 %o3, %i0, -1;
redux.sync.max.u32 %o4, %i0, -1;  redux.sync.max.s32 %o5, %i0, -1;
redux.sync.and.b32 %o6, %i0, -1;  redux.sync.or.b32 %o7, %i0, -1;  redux.sync.xor.b32 %o8, %i0, -1;)",
                                      .inputs = {values},
                                      .num_outputs = 9});
  std::uint32_t sum = 0, all = ~0u, any = 0, odd = 0;
  for (const std::uint32_t value : values) sum += value, all &= value, any |= value, odd ^= value;
  const auto below = [](std::uint32_t x, std::uint32_t y) {
    return static_cast<std::int32_t>(x) < static_cast<std::int32_t>(y);
  };
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const auto [signed_low, signed_high] = std::minmax_element(values.begin(), values.end(), below);
  const Words expected = {sum, sum, *low, *signed_low, *high, *signed_high, all, any, odd};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(result.outputs[i], Words(32, expected[i])) << i;
}

// The definition: the least or greatest of the numbers, -0 below +0. A NaN counts only with .NaN, or without a number.
float reduced(const std::vector<float>& values, bool max, bool absolute, bool nan_wins) {
  std::vector<float> numbers;
  for (const float value : values)
    if (!std::isnan(value)) numbers.push_back(absolute ? std::fabs(value) : value);
  if (numbers.empty() || (nan_wins && numbers.size() < values.size())) return NAN;
  const auto below = [](float x, float y) { return x < y || (x == y && std::signbit(x) && !std::signbit(y)); };
  return max ? *std::max_element(numbers.begin(), numbers.end(), below)
             : *std::min_element(numbers.begin(), numbers.end(), below);
}

TEST(EmulatorRedux, ReducesFloats) {
  const float special[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 1.5f, -2.5f, INFINITY, -INFINITY, NAN, -NAN};
  const std::string forms[] = {"", ".abs", ".NaN", ".abs.NaN"};
  for (std::uint32_t round = 0; round < 24; ++round) {
    // Few different numbers a round, so that a round may have zeros alone, or NaN values alone.
    const Words choice = scrambled(32, round + 1);
    std::vector<float> values(32);
    for (std::size_t lane = 0; lane < 32; ++lane) values[lane] = special[(round + choice[lane] % (1 + round / 3)) % 10];
    Words in(32);
    std::memcpy(in.data(), values.data(), sizeof(float) * 32);
    for (std::uint32_t form = 0; form < 8; ++form) {
      const bool max = form >= 4;
      const std::string text = "redux.sync." + std::string(max ? "max" : "min") + forms[form % 4] + ".f32";
      const PtxResult result = run_clean({.statements = "mov.b32 %o1, 0;\n" + text + " %o0, %i0, -1;\n" +
                                                        "setp.lt.u32 %p0, %lane, 5;\n@%p0 " + text + " %o1, %i0, 31;",
                                          .inputs = {in},
                                          .num_outputs = 2,
                                          .target = "sm_100a"});
      const auto code = [&](std::size_t lanes) {
        const std::vector<float> some(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(lanes));
        const float value = reduced(some, max, (form & 1) != 0, (form & 2) != 0);
        return std::isnan(value) ? 0x7fffffffu : std::bit_cast<std::uint32_t>(value);
      };
      EXPECT_EQ(result.outputs[0], Words(32, code(32))) << text << " " << round;
      EXPECT_EQ(result.outputs[1][4], code(5)) << text << " " << round;
    }
  }
}

TEST(EmulatorRedux, RefusesWhatNoTargetOrThisTargetLacks) {
  for (const char* target : {"sm_90a", "sm_100", "sm_110a", "sm_120a"}) {
    EXPECT_THAT([&] { run_ptx({.statements = "redux.sync.min.f32 %f0, %f1, -1;", .target = target}); },
                testing::ThrowsMessage<emulator::PtxError>(testing::HasSubstr("needs sm_100a")));
  }
  for (const char* form : {"add.f32", "min.abs.s32", "min.NaN.u32", "max.ftz.f32"}) {
    const std::string text = "redux.sync." + std::string(form) + " %r0, %r1, -1;";
    EXPECT_THROW(run_ptx({.statements = text, .target = "sm_100a"}), emulator::PtxError) << text;
  }
}

TEST(EmulatorElect, ChoosesOneMemberAndTellsAll) {
  const PtxResult result = run_clean({.statements = R"(
elect.sync %o0|%p0, -1;  selp.u32 %o1, 1, 0, %p0;
mov.b32 %o2, 0;
setp.ge.u32 %p1, %lane, 20;
@%p1 elect.sync _|%p2, 0xfff00000;
@%p1 selp.u32 %o2, 1, 0, %p2;)",
                                      .num_outputs = 3});
  EXPECT_EQ(result.outputs[0], Words(32, result.outputs[0][0]));
  std::uint32_t elected = 0;
  for (int lane = 0; lane < 32; ++lane) elected |= result.outputs[1][lane] << lane;
  EXPECT_EQ(elected, 1u << result.outputs[0][0]);
  std::uint32_t among = 0;
  for (int lane = 0; lane < 32; ++lane) among |= result.outputs[2][lane] << lane;
  EXPECT_EQ(popcount(among), 1u);
  EXPECT_EQ(among & ~0xfff00000u, 0u);
}

// Turns of one instruction, drawn by chance, may pass while lanes park for others of their warp: those still go on.
TEST(WarpScheduling, LanesThatCanGoOnAreNoDeadlockHoweverShortATurnIs) {
  PtxRun run{.statements =
                 "setp.ne.u32 %p0, %lane, 0;\n@%p0 bra WAIT;\nmov.u32 %r1, 60;\n"
                 "AGAIN:\nsub.u32 %r1, %r1, 1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra AGAIN;\n"
                 "WAIT:\nbar.sync 0;\nmov.u32 %o0, %lane;",
             .num_outputs = 1};
  run.options.shuffle = true;
  for (run.options.seed = 1; run.options.seed <= 2000; ++run.options.seed) {
    const PtxResult result = run_clean(run);
    ASSERT_EQ(result.outputs[0][31], 31u) << "seed " << run.options.seed;
  }
}

}  // namespace
}  // namespace kernelwright::test
