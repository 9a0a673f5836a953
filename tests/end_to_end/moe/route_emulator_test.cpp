// Choices of experts, on the emulator with every check on, against an exact stable sort on the host.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/route/reference.h"
#include "support/emulated_route.h"

namespace kernelwright::route_emulator_test {
namespace {

using test::grouped_router;
using test::plain_router;
using test::run_checked;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_right(const RouteCase& call, const RouteOutput& output, const RouteVerdictOptions& options = {}) {
  const RouteVerdict verdict = verify(call, output, options);
  EXPECT_TRUE(verdict.passed) << verdict.text;
}

class RouteOnTheEmulator : public test::OnTheEmulator<Arch> {
 protected:
  void expect_right_for(const RouteProblem& problem, int tokens, const RouteSchedule& schedule = {}) {
    SCOPED_TRACE(testing::Message() << problem.experts << " experts, top " << problem.top_k << ", " << tokens
                                    << " tokens");
    const RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = tokens}, {.gaps = true, .odd = true});
    expect_right(call, run_checked(engine_, call, schedule));
  }
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Archs, RouteOnTheEmulator, testing::Values(Arch::kSm80, Arch::kSm90a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(RouteOnTheEmulator, TakesAnyNumberOfExpertsAndTokens) {
  for (const auto& [experts, top_k] : {std::pair{1, 1}, {8, 2}, {60, 4}, {32, 32}, {512, 10}})
    for (const int tokens : {0, 1, 16, 39}) expect_right_for(plain_router(experts, top_k), tokens);
}

TEST_P(RouteOnTheEmulator, PicksGroupsOfExperts) {
  expect_right_for(grouped_router(), 40);
  RouteProblem problem = grouped_router(60, 6);  // three groups leave lanes without experts
  problem.n_group = 3, problem.topk_group = 2;
  expect_right_for(problem, 20);
  problem = plain_router(160, 6);  // DeepSeek-V2
  problem.dtype = DType::kBf16;
  problem.n_group = 8, problem.topk_group = 3, problem.group_score = GroupScore::kMax;
  expect_right_for(problem, 20);
  problem.n_group = 32, problem.topk_group = 6, problem.group_score = GroupScore::kTop2Sum;
  expect_right_for(problem, 20);
}

TEST_P(RouteOnTheEmulator, SortsGivenExperts) {
  for (const auto& [experts, top_k] : {std::pair{1, 1}, {8, 2}, {4, 8}, {60, 4}, {32, 32}, {256, 8}})
    for (const int tokens : {0, 1, 16, 39}) {
      RouteProblem problem = plain_router(experts, top_k);
      problem.score = RouteScore::kGiven;
      expect_right_for(problem, tokens);
      problem.alignment = 16, problem.local_experts = (experts + 1) / 2;
      expect_right_for(problem, tokens);
    }
}

/// What no architecture changes.
class Route : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
};
INSTANTIATE_TEST_SUITE_P(, Route, testing::Values(0));

TEST_P(Route, MakesWeightsOfEachScoreInEachOrder) {
  for (const RouteScore score : {RouteScore::kSoftmax, RouteScore::kSigmoid, RouteScore::kNone})
    for (const RouteOrder order : {RouteOrder::kScoreFirst, RouteOrder::kTopKFirst})
      for (const bool bias : {false, true}) {
        if (order == RouteOrder::kTopKFirst && score == RouteScore::kNone) continue;
        SCOPED_TRACE(testing::Message() << to_string(score) << " " << to_string(order) << (bias ? " bias" : ""));
        RouteProblem problem = plain_router(bias ? 128 : 48, 4);
        problem.dtype = bias ? DType::kF16 : DType::kBf16;
        problem.score = score, problem.order = order, problem.bias = bias;
        problem.renormalize = score == RouteScore::kSigmoid;
        problem.factor = 1.5;
        problem.sort = false;
        const RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = 17}, {.odd = true});
        expect_right(call, run_checked(engine_, call));
      }
}

TEST_P(Route, TakesManyExpertsWithEightWarps) {
  const RouteCase call = make_route_inputs(plain_router(1024, 8), {.name = "drawn", .tokens = 20}, {.odd = true});
  expect_right(call, run_checked(engine_, call));
}

TEST_P(Route, SortsForLocalExpertsAndInAlignedRuns) {
  RouteProblem problem = plain_router(60, 4);
  for (const int local : {0, 1, 15, 60})
    for (const int alignment : {1, 8}) {
      problem.local_experts = local, problem.alignment = alignment;
      for (const int tokens : {0, 3, 50}) {
        SCOPED_TRACE(testing::Message() << local << " local experts, alignment " << alignment << ", " << tokens);
        const RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = tokens});
        expect_right(call, run_checked(engine_, call));
      }
    }
}

TEST_P(Route, GivesTheSameBitsWithAnyGrid) {
  const RouteCase call = make_route_inputs(grouped_router(64, 4), {.name = "drawn", .tokens = 70}, {.odd = true});
  const RouteOutput usual = run_checked(engine_, call);
  RouteSchedule schedule;
  schedule.warps = 8;
  EXPECT_EQ(run_checked(engine_, call, schedule), usual);
  EXPECT_EQ(run_checked(engine_, call, {}, [](RouteDeviceCase& on_device) { on_device.tensors().pdl = true; }), usual);
}

RouteSchedule schedule_of(RouteChoice choice, RouteCounts counts) {
  RouteSchedule schedule;
  schedule.choice = choice, schedule.counts = counts;
  return schedule;
}

TEST_P(Route, HasTheBitsOfRoundsWithABound) {
  RouteProblem three = plain_router(60, 6);  // groups of lanes without experts, and half of a lane's
  three.n_group = 3, three.topk_group = 2, three.score = RouteScore::kSigmoid, three.bias = true;
  RouteProblem lanes = plain_router(64, 5);  // groups of a lane
  lanes.n_group = 32, lanes.topk_group = 7, lanes.group_score = GroupScore::kMax;
  RouteProblem few = grouped_router(64, 8);  // fewer lanes with picked experts than a bound needs
  few.topk_group = 1;
  for (const RouteProblem& problem : {grouped_router(), plain_router(128, 8), plain_router(8, 2), plain_router(1, 1),
                                      plain_router(1024, 32), three, lanes, few}) {
    SCOPED_TRACE(testing::Message() << problem.experts << " experts in " << problem.n_group << " groups");
    const RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = 50}, {.gaps = true, .odd = true});
    const RouteOutput rounds = run_checked(engine_, call, schedule_of(RouteChoice::kRounds, RouteCounts::kU32));
    EXPECT_EQ(run_checked(engine_, call, schedule_of(RouteChoice::kBound, RouteCounts::kU32)), rounds);
    expect_right(call, rounds);
  }
}

TEST_P(Route, HasTheSameBitsWithCountsOf16Bits) {
  RouteProblem mapped = plain_router(40, 4);  // no whole vectors of counts
  mapped.local_experts = 21, mapped.alignment = 8;
  for (const RouteProblem& problem : {plain_router(8, 2), plain_router(200, 3), mapped})
    for (const int tokens : {0, 1, 16, 17, 300}) {
      SCOPED_TRACE(testing::Message() << problem.experts << " experts, " << tokens << " tokens");
      const RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = tokens}, {.odd = true});
      EXPECT_EQ(run_checked(engine_, call, schedule_of(RouteChoice::kRounds, RouteCounts::kU16)),
                run_checked(engine_, call, schedule_of(RouteChoice::kRounds, RouteCounts::kU32)));
    }
}

TEST_P(Route, AddsMoreRowsOfCountsThanThreadsLoadAtOnce) {
  RouteProblem problem = plain_router(512, 2);
  problem.score = RouteScore::kGiven;
  RouteSchedule schedule;
  schedule.warps = 8, schedule.counts = RouteCounts::kU16;
  const RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = 1100}, {.odd = true});
  expect_right(call, run_checked(engine_, call, schedule));
}

TEST_P(Route, LaunchesAgainWithOtherLogitsInTheSameWorkspace) {
  const RouteProblem problem = plain_router(32, 4);
  const RouteCase first = make_route_inputs(problem, {.name = "drawn", .tokens = 40}, {.seed = 1});
  const RouteCase second = make_route_inputs(problem, {.name = "drawn", .tokens = 40}, {.seed = 2});
  RouteDeviceCase on_device(engine_.device(0), first, engine_.prepare(problem));
  on_device.poison();
  on_device.launch();
  const RouteOutput once = on_device.download();
  expect_right(first, once);
  on_device.take_logits(second);
  on_device.launch();
  expect_right(second, on_device.download());
  on_device.take_logits(first);
  on_device.launch();
  EXPECT_EQ(on_device.download(), once);
  test::expect_no_reports(engine_);
}

/// Logits of one token, in f32.
RouteCase one_token(const RouteProblem& problem, const std::vector<float>& logits) {
  RouteCase call = make_route_inputs(problem, {.name = "one", .tokens = 1});
  std::memcpy(call.logits.data(), logits.data(), logits.size() * sizeof(float));
  return call;
}
std::vector<float> floats_of(const std::vector<std::int32_t>& words) {
  std::vector<float> values;
  for (const std::int32_t word : words) values.push_back(std::bit_cast<float>(word));
  return values;
}
using Ids = std::vector<std::int32_t>;
using Weights = std::vector<float>;

TEST_P(Route, ChoosesTheLowerOfEqualExperts) {
  const RouteOutput equal = run_checked(engine_, one_token(plain_router(40, 3), std::vector<float>(40, 0.5f)));
  EXPECT_EQ(equal.ids, (Ids{0, 1, 2}));
  std::vector<float> zeros(40, -1.f);
  zeros[7] = 0.f, zeros[3] = -0.f, zeros[39] = 1.f;
  EXPECT_EQ(run_checked(engine_, one_token(plain_router(40, 3), zeros)).ids, (Ids{39, 3, 7})) << "zeros are equal";
}

TEST_P(Route, FindsExpertsByABoundWhereverTheyAre) {
  RouteProblem problem = plain_router(256, 8);
  problem.sort = false;
  RouteSchedule schedule;
  schedule.choice = RouteChoice::kBound;
  std::vector<float> logits(256, -1.f);
  for (int i = 0; i < 8; ++i) logits[static_cast<std::size_t>(16 + i)] = static_cast<float>(i % 3);  // those of a lane
  EXPECT_EQ(run_checked(engine_, one_token(problem, logits), schedule).ids, (Ids{18, 21, 17, 20, 23, 16, 19, 22}));
  for (int i = 0; i < 40; ++i) logits[static_cast<std::size_t>(6 * i)] = 5;  // more equal ones than lanes
  EXPECT_EQ(run_checked(engine_, one_token(problem, logits), schedule).ids, (Ids{0, 6, 12, 18, 24, 30, 36, 42}));
  std::fill(logits.begin(), logits.end(), -kInfinity);  // fewer numbers than experts to choose
  logits[255] = logits[100] = -3, logits[101] = kInfinity;
  EXPECT_EQ(run_checked(engine_, one_token(problem, logits), schedule).ids, (Ids{101, 100, 255, 0, 1, 2, 3, 4}));
  for (std::size_t i = 0; i < 256; ++i) logits[i] = i % 2 == 0 ? -0.f : 0.f;
  for (int i = 0; i < 7; ++i) logits[static_cast<std::size_t>(250 - 30 * i)] = 1e-30f * static_cast<float>(i + 1);
  EXPECT_EQ(run_checked(engine_, one_token(problem, logits), schedule).ids, (Ids{70, 100, 130, 160, 190, 220, 250, 0}));
}

TEST_P(Route, RanksNanLastAndGivesItNoWeight) {
  RouteProblem problem = plain_router(4, 4);
  RouteOutput output = run_checked(engine_, one_token(problem, {kNan, -kInfinity, 1, 1}));
  EXPECT_EQ(output.ids, (Ids{2, 3, 1, 0}));
  EXPECT_EQ(floats_of(output.weights), (Weights{0.5f, 0.5f, 0, 0}));
  problem.renormalize = true;
  output = run_checked(engine_, one_token(problem, {kNan, kNan, kNan, kNan}));
  EXPECT_EQ(output.ids, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(floats_of(output.weights), (Weights{0, 0, 0, 0})) << "weights are numbers";
  EXPECT_EQ(output.starts, (Ids{0, 1, 2, 3, 4}));
}

TEST_P(Route, SharesTheWeightAmongInfiniteLogits) {
  const RouteOutput output = run_checked(engine_, one_token(plain_router(4, 3), {kInfinity, 5, kInfinity, 6}));
  EXPECT_EQ(output.ids, (Ids{0, 2, 3}));
  EXPECT_EQ(floats_of(output.weights), (Weights{0.5f, 0.5f, 0}));
  const RouteOutput lowest = run_checked(engine_, one_token(plain_router(4, 2), std::vector<float>(4, -kInfinity)));
  EXPECT_EQ(lowest.ids, (Ids{0, 1}));
  EXPECT_EQ(floats_of(lowest.weights), (Weights{0.25f, 0.25f}));
}

TEST_P(Route, TakesTheFactorOfTheLaunch) {
  const RouteCase call = make_route_inputs(grouped_router(64, 4), {.name = "drawn", .tokens = 5});
  const RouteOutput output =
      run_checked(engine_, call, {}, [](RouteDeviceCase& on_device) { on_device.tensors().factor = 0.25f; });
  expect_right(call, output, {.factor = 0.25f});
}

TEST_P(Route, IgnoresNumbersOfLocalExpertsThatDoNotExist) {
  RouteProblem problem = plain_router(8, 2);
  problem.local_experts = 2;
  RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = 5});
  call.local_ids = {-1, 0, 2, 1 << 30, -7, 1, -1, -1};
  const RouteOutput output = run_checked(engine_, call);
  for (std::int32_t& id : call.local_ids)
    if (id < 0 || id >= 2) id = -1;
  expect_right(call, output);
}

TEST_P(Route, NamesEveryArgumentThatDoesNotFit) {
  RouteProblem problem = grouped_router(64, 4);
  problem.local_experts = 16;
  const RouteCase call = make_route_inputs(problem, {.name = "drawn", .tokens = 40});
  const auto refusal = [&](const std::function<void(RouteTensors&)>& change) {
    return test::refusal_of<RouteDeviceCase>(engine_, call, change);
  };
  EXPECT_EQ(refusal([](RouteTensors& t) { t.tokens = -1; }), "/tensors/tokens: -1 is outside [0, 536870911]");
  EXPECT_EQ(refusal([](RouteTensors& t) { t.logits_stride = 32; }),
            "/tensors/logits_stride: 32 is less than the 64 elements of a row");
  EXPECT_EQ(refusal([](RouteTensors& t) { t.logits_stride = 65; }),
            "/tensors/logits_stride: 65 elements put tokens off what a lane loads at once; it takes a multiple of 2");
  EXPECT_EQ(refusal([](RouteTensors& t) { t.factor = -1.f; }), "/tensors/factor: -1 is no finite number from 0 on");
  EXPECT_EQ(refusal([](RouteTensors& t) { t.workspace_bytes = 16; }),
            "/tensors/workspace: 16 bytes are given and 320 are needed to sort 40 tokens; see "
            "RouteKernel::workspace_bytes()");
  EXPECT_EQ(refusal([](RouteTensors& t) { t.ids = t.positions; }),
            "/tensors/ids: overlaps positions; give one of them other memory");
  for (DevicePtr RouteTensors::*member :
       {&RouteTensors::logits, &RouteTensors::bias, &RouteTensors::local_ids, &RouteTensors::ids,
        &RouteTensors::weights, &RouteTensors::starts, &RouteTensors::source_rows, &RouteTensors::positions,
        &RouteTensors::workspace})
    EXPECT_NE(refusal([&](RouteTensors& t) { t.*member = 0; }), "");
}

}  // namespace
}  // namespace kernelwright::route_emulator_test
