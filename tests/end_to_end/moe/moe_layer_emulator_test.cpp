// Whole layers of experts as one launch, on the emulator with every check on, against the reference in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/moe/device.h"
#include "kernelwright/verify/moe/reference.h"
#include "kernelwright/verify/route/reference.h"
#include "support/emulated_attention.h"
#include "support/emulated_launch.h"

namespace kernelwright::moe_layer_emulator_test {
namespace {

using testing::HasSubstr;

MoeProblem layer(int experts = 8, int top_k = 2, int hidden = 64, int intermediate = 48) {
  MoeProblem problem;
  problem.hidden = hidden, problem.intermediate = intermediate;
  problem.route.experts = experts, problem.route.top_k = top_k, problem.route.renormalize = true;
  problem.residual = true;
  return problem;
}

/// As DeepSeek-V3 has it: groups of experts, a bias, weights of e4m3 with a scale per block, a shared expert.
MoeProblem deepseek(int hidden = 128, int intermediate = 128) {
  MoeProblem problem = layer(8, 3, hidden, intermediate);
  problem.scales = ScaleKind::kPerBlock;
  problem.route.score = RouteScore::kSigmoid, problem.route.bias = true;
  problem.route.n_group = 4, problem.route.topk_group = 2, problem.route.factor = 2.5;
  return problem;
}

void expect_right(const MoeCase& call, const MoeOutput& output) {
  const RowsVerdict verdict = verify(call, output);
  EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio;
}

/// One launch into a poisoned output and workspace. It must cause no report, and write nothing beside them.
MoeOutput run_checked(Engine& engine, const MoeCase& call, const std::function<void(MoeDeviceCase&)>& change = {}) {
  MoeDeviceCase on_device(engine.device(0), call, engine.prepare(call.problem));
  if (change) change(on_device);
  on_device.poison();
  on_device.launch();
  MoeOutput output = on_device.download();
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside the output or the workspace was written";
  test::expect_no_reports(engine);
  return output;
}

class MoeLayerOnTheEmulator : public test::OnTheEmulator<Arch> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Archs, MoeLayerOnTheEmulator, testing::Values(Arch::kSm80, Arch::kSm90a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(MoeLayerOnTheEmulator, IsRightForAnyNumberOfTokens) {
  for (const int tokens : {0, 1, 5, 40}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens");
    const MoeCase call = make_moe_inputs(layer(), tokens, {.seed = 1, .gaps = true});
    expect_right(call, run_checked(engine_, call));
  }
}

TEST_P(MoeLayerOnTheEmulator, TakesGivenExpertsSomeOfWhichAreNone) {
  MoeProblem problem = layer();
  problem.route.renormalize = false, problem.route.score = RouteScore::kGiven;
  const MoeCase call = make_moe_inputs(problem, 13, {.seed = 2, .odd = true});
  expect_right(call, run_checked(engine_, call));
}

TEST_P(MoeLayerOnTheEmulator, LeavesOutExpertsOfOtherRanks) {
  MoeProblem problem = layer();
  problem.route.local_experts = 3;
  const MoeCase call = make_moe_inputs(problem, 17, {.seed = 3});
  expect_right(call, run_checked(engine_, call));
}

/// On Blackwell tcgen05 multiplies.
class MoeLayerOnBlackwell : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1, Arch::kSm100a);
};
INSTANTIATE_TEST_SUITE_P(, MoeLayerOnBlackwell, testing::Values(0));

TEST_P(MoeLayerOnBlackwell, IsRightIn16BitsAndInFp8) {
  for (const MoeProblem& problem : {layer(), deepseek()}) {
    const MoeCase call = make_moe_inputs(problem, 5, {.seed = 5, .gaps = true});
    expect_right(call, run_checked(engine_, call));
  }
}

/// What one architecture tells. Only sm_90a serves e4m3 with scales of blocks here.
class MoeLayer : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
};
INSTANTIATE_TEST_SUITE_P(, MoeLayer, testing::Values(0));

TEST_P(MoeLayer, HasBiasesAndClampedGates) {
  MoeProblem problem = layer(4, 2, 64, 32);
  problem.dtype = DType::kF16;
  problem.gates = "(clamp(up + bias, -7, 7) + 1) * min(gate + bias, 7) * sigmoid(1.702 * min(gate + bias, 7))";
  problem.down_bias = true;
  problem.route.order = RouteOrder::kTopKFirst, problem.route.renormalize = false;
  const MoeCase call = make_moe_inputs(problem, 9, {.seed = 4});
  expect_right(call, run_checked(engine_, call));
}

TEST_P(MoeLayer, QuantisesTokensAndRowsBetweenTheGemms) {
  const MoeCase call = make_moe_inputs(deepseek(256, 256), 3, {.seed = 5, .gaps = true});
  expect_right(call, run_checked(engine_, call));
}

// Rows of experts are added up in the order of a token's slots, and nothing else meets the rows of other tokens.
TEST_P(MoeLayer, GivesATokenTheSameBitsHoweverManyFollow) {
  for (MoeProblem problem : {layer(), deepseek()}) {
    problem.batch_invariant = true;
    const auto output_of = [&](int tokens) {
      return run_checked(engine_, make_moe_inputs(problem, tokens, {.seed = 11})).out;
    };
    const std::vector<std::byte> many = output_of(33);
    for (const int tokens : {1, 9}) {
      const std::vector<std::byte> few = output_of(tokens);
      EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin())) << tokens;
    }
  }
}

TEST_P(MoeLayer, QuantisesOnARankOfSeveral) {
  MoeProblem problem = deepseek();
  problem.route.local_experts = 3;
  const MoeCase call = make_moe_inputs(problem, 11, {.seed = 6});
  expect_right(call, run_checked(engine_, call));
}

TEST_P(MoeLayer, AWrongElementIsFound) {
  MoeCase call = make_moe_inputs(deepseek(), 3, {.seed = 7});
  MoeOutput output = run_checked(engine_, call);
  expect_right(call, output);
  const std::vector<float> one{round_to(DType::kBf16, 4 + decode_float(DType::kBf16, [&] {
                                                        std::uint16_t bits;
                                                        std::memcpy(&bits, output.out.data() + 2 * 77, sizeof bits);
                                                        return bits;
                                                      }()))};
  encode_row(DType::kBf16, one, output.out.data() + 2 * 77);
  EXPECT_THAT(verify(call, output).text, HasSubstr("out[0, 77]"));
  MoeCase others = make_moe_inputs(call.problem, 3, {.seed = 7});
  output = run_checked(engine_, others);
  others.route.bias[0] -= 8;  // another expert is chosen
  EXPECT_FALSE(verify(others, output).passed);
  std::swap(call.gate_up_scale[0], call.gate_up_scale[1]);  // of the gates and ups of an expert
  for (std::size_t expert = 1; expert < 8; ++expert)
    std::swap(call.gate_up_scale[2 * expert], call.gate_up_scale[2 * expert + 1]);
  EXPECT_FALSE(verify(call, output).passed);
}

/// Many tokens are sorted by a launch of its own: seven kernels with scales.
TEST_P(MoeLayer, SortsManyTokensApart) {
  const MoeCase call = make_moe_inputs(layer(), 70, {.seed = 8});
  expect_right(call, run_checked(engine_, call));
}

TEST_P(MoeLayer, GivesTheSameBitsWithPdlInPlaceAndInALargerWorkspace) {
  const MoeCase call = make_moe_inputs(layer(), 10, {.seed = 9});
  const MoeOutput usual = run_checked(engine_, call);
  EXPECT_EQ(run_checked(engine_, call, [](auto& on_device) { on_device.tensors().pdl = true; }), usual);
  EXPECT_EQ(run_checked(engine_, call, [](auto& on_device) { on_device.tensors().workspace_bytes += 4096; }), usual);
  MoeDeviceCase in_place(engine_.device(0), call, engine_.prepare(call.problem));
  in_place.tensors().x = in_place.tensors().out;
  in_place.poison();
  engine_.device(0).copy_to_device(in_place.tensors().out, call.x.data(), call.x.size());
  in_place.launch();
  EXPECT_EQ(in_place.download(), usual);
  test::expect_no_reports(engine_);
}

TEST_P(MoeLayer, WritesItsChoiceWhereItIsAskedTo) {
  const MoeCase call = make_moe_inputs(layer(), 10, {.seed = 10});
  MoeDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem));
  on_device.poison();
  on_device.launch();
  const MoeOutput usual = on_device.download();
  DeviceMemory memory(engine_.device(0));
  const DevicePtr ids = memory.allocate(20 * 4), weights = memory.allocate(20 * 4);
  on_device.tensors().ids = ids, on_device.tensors().weights = weights;
  on_device.poison();
  on_device.launch();
  EXPECT_EQ(on_device.download(), usual);
  std::vector<std::int32_t> found(20);
  std::vector<float> shares(20);
  engine_.device(0).copy_to_host(found.data(), ids, 80);
  engine_.device(0).copy_to_host(shares.data(), weights, 80);
  for (std::size_t token = 0; token < 10; ++token) {
    const RouteRow row = reference_row(call.route, static_cast<std::int64_t>(token));
    const std::vector<int> right = chosen_experts(call.route, row);
    EXPECT_EQ(found[2 * token], right[0]) << token;
    EXPECT_EQ(found[2 * token + 1], right[1]) << token;
    EXPECT_NEAR(shares[2 * token] + shares[2 * token + 1], 1, 1e-6) << token;
  }
}

TEST_P(MoeLayer, ACapturedGraphReplaysWithOtherTokens) {
  const MoeProblem problem = deepseek();
  const MoeCase first = make_moe_inputs(problem, 7, {.seed = 11});
  MoeCase second = first;
  const MoeCase drawn = make_moe_inputs(problem, 7, {.seed = 12});
  second.x = drawn.x, second.residual = drawn.residual, second.route.logits = drawn.route.logits;
  MoeDeviceCase on_device(engine_.device(0), first, engine_.prepare(problem));
  on_device.poison();
  Device& device = engine_.device(0);
  device.begin_capture(on_device.stream());
  on_device.launch();
  const std::unique_ptr<Device::Graph> graph = device.end_capture(on_device.stream());
  graph->replay(on_device.stream());
  const MoeOutput once = on_device.download();
  expect_right(first, once);
  on_device.take_tokens(second);
  graph->replay(on_device.stream());
  expect_right(second, on_device.download());
  on_device.take_tokens(first);
  graph->replay(on_device.stream());
  EXPECT_EQ(on_device.download(), once);
  on_device.poison();
  on_device.launch();
  EXPECT_EQ(on_device.download(), once) << "a launch without a graph";
  test::expect_no_reports(engine_);
}

TEST_P(MoeLayer, ByProblemIsTheSameLayerAndRefusesACaptureThatComesFirst) {
  const MoeCase call = make_moe_inputs(layer(), 5, {.seed = 14});
  const MoeOutput usual = run_checked(engine_, call);
  Engine fresh = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
  MoeDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem));
  on_device.poison();
  engine_.moe(call.problem, on_device.tensors(), on_device.stream());
  EXPECT_EQ(on_device.download(), usual);
  Device& device = fresh.device(0);
  const Stream stream = device.create_stream();
  device.begin_capture(stream);
  EXPECT_THROW(fresh.moe(call.problem, on_device.tensors(), stream), NotReadyError);
  device.end_capture(stream);
  device.destroy_stream(stream);
}

TEST_P(MoeLayer, NamesEveryArgumentThatDoesNotFitAndQueuesNothing) {
  const MoeCase call = make_moe_inputs(deepseek(), 5, {.seed = 13});
  const auto refusal = [&](const std::function<void(MoeTensors&)>& change) {
    return test::refusal_of<MoeDeviceCase>(engine_, call, change);
  };
  const auto field = [&](const char* path, const std::function<void(MoeTensors&)>& change, const char* words) {
    EXPECT_THAT(refusal(change), HasSubstr(std::string("/tensors/") + path + ": " + words));
  };
  EXPECT_EQ(refusal([](auto& t) { t.tokens = -1; }), "/tensors/tokens: -1 is outside [0, 715806037]");
  field(
      "tokens", [](auto& t) { t.tokens = 1 << 30; }, "1073741824 is outside");
  EXPECT_EQ(refusal([](auto& t) { t.x = 0; }), "/tensors/x: is null; give a device address");
  EXPECT_EQ(refusal([](auto& t) { t.gate_up = 0, t.down = 0; }),
            "/tensors/gate_up: is null; give a device address\n/tensors/down: is null; give a device address");
  EXPECT_EQ(refusal([](auto& t) { t.workspace_bytes /= 2; }).substr(0, 20), "/tensors/workspace: ");
  for (DevicePtr MoeTensors::*member :
       {&MoeTensors::x, &MoeTensors::logits, &MoeTensors::bias, &MoeTensors::gate_up, &MoeTensors::gate_up_scale,
        &MoeTensors::down, &MoeTensors::down_scale, &MoeTensors::residual, &MoeTensors::out, &MoeTensors::workspace})
    EXPECT_NE(refusal([&](auto& t) { t.*member = 0; }), "");
  field(
      "gate_up_bias", [](auto& t) { t.gate_up_bias = t.down; }, "is given, and nothing reads it");
  field(
      "x_stride", [](auto& t) { t.x_stride = 120; }, "120 is less than the 128 elements of a row");
  field(
      "logits_stride", [](auto& t) { t.logits_stride = 4; }, "4 is less than the 8 elements of a row");
  field(
      "out", [](auto& t) { t.out = t.down; }, "overlaps down");
  field(
      "workspace", [](auto& t) { t.workspace = t.x; }, "overlaps x");
  field(
      "factor", [](auto& t) { t.factor = -1.f; }, "-1 is no finite number from 0 on");
  EXPECT_EQ(refusal([](auto& t) { t.tokens = 0, t.x = 0, t.out = 0, t.workspace = 0; }), "");
}

TEST_P(MoeLayer, AWorkspaceForMoreTokensServesFewer) {
  const MoeKernel kernel = engine_.prepare(layer());
  EXPECT_EQ(kernel.workspace_bytes(0), 0u);
  std::uint64_t before = 0;
  for (std::int64_t tokens = 1; tokens < 30000; tokens += 7) {
    const std::uint64_t bytes = kernel.workspace_bytes(tokens);
    EXPECT_GE(bytes, before) << tokens;
    before = bytes;
  }
  EXPECT_THROW(kernel.workspace_bytes(-1), ConfigError);
  EXPECT_THROW(kernel.workspace_bytes(kernel.most_tokens() + 1), ConfigError);
}

TEST_P(MoeLayer, PreparesAndNamesItsParts) {
  const MoeProblem problem = deepseek();
  EXPECT_FALSE(engine_.find(problem));
  const MoeKernel kernel = engine_.prepare(problem);
  EXPECT_EQ(engine_.find(problem), kernel);
  EXPECT_EQ(engine_.prepare(problem), kernel);
  EXPECT_EQ(kernel.state(), KernelState::kReady);
  EXPECT_EQ(kernel.error(), "");
  EXPECT_TRUE(kernel.quantize_x() && kernel.quantize_rows());
  EXPECT_EQ(kernel.down().problem().n, 128);
  engine_.seal();
  EXPECT_EQ(engine_.prepare(problem), kernel);
  try {
    engine_.prepare(layer(5, 2, 128, 136));
    FAIL() << "nothing was thrown";
  } catch (const NotReadyError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the engine is sealed"));
    EXPECT_THAT(error.what(), testing::StartsWith("route: "));
  }
}

TEST(MoeLayerOnAnOldArch, NamesThePartThatTheArchLacks) {
  Engine ampere = test::make_checking_engine(4, emulator::Completion::kRandom, 1, Arch::kSm80);
  try {
    ampere.prepare(deepseek());
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/gate_up/problem/dtype"));
  }
}

TEST(MoeLayerProblem, NamesEveryFieldThatDoesNotFit) {
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
  const auto refusal = [&](const std::function<void(MoeProblem&)>& change) -> std::string {
    MoeProblem problem = deepseek();
    change(problem);
    try {
      engine.prepare(problem);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](auto& p) { p.route.experts = 0; }).substr(0, 49),
            "/problem/route/experts: 0 is outside [1, 1024]\n/p");
  EXPECT_EQ(refusal([](auto& p) { p.dtype = DType::kF32; }),
            "/problem/dtype: \"f32\" does not fit; it takes f16 or bf16");
  EXPECT_EQ(refusal([](auto& p) { p.hidden = 136, p.intermediate = 72; }),
            "/problem/hidden: 136 is no multiple of 128, and blocks of so many elements share a scale\n"
            "/problem/intermediate: 72 is no multiple of 128, and blocks of so many elements share a scale");
  EXPECT_EQ(refusal([](auto& p) { p.gates = "silu(acc)"; }),
            "/problem/gates: \"silu(acc)\" has no gates; it takes activation(gate) * up");
  EXPECT_EQ(refusal([](auto& p) { p.route.sort = false; }),
            "/problem/route/sort: false leaves the layer without rows by expert; leave it out");
  EXPECT_EQ(refusal([](auto& p) { p.route.alignment = 16; }),
            "/problem/route/alignment: 16 leaves rows between experts empty; 1 would do");
  EXPECT_EQ(refusal([](auto& p) { p.scales = ScaleKind::kPerToken; }),
            "/problem/scales: \"per_token\" is no kind of scales that a layer takes; it takes one of none, per_block");
}

}  // namespace
}  // namespace kernelwright::moe_layer_emulator_test
