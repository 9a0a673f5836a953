// gemm_portable on the emulator, with every check on and for four architectures. Each case must match the fp64
// reference on random data, and to the bit on exact data. It must cause no report and write nothing beside d. Two
// machines that differ in everything on which a kernel must not depend must give the same bits. Needs NVRTC and no GPU.
#include <gtest/gtest.h>
#include <ostream>

#include <limits>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_gemm.h"

namespace kernelwright::gemm_portable_emulator_test {
namespace {

using test::gemm_problem;

struct Case {
  const char* name;
  Arch arch;
  GemmProblem problem;
  int m;
  GemmSchedule schedule;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

constexpr Arch kA = Arch::kSm80, kL = Arch::kSm89, kH = Arch::kSm90a, kB = Arch::kSm120a;

GemmSchedule tile(int block_m, int block_n, int stages = 3) {
  GemmSchedule schedule;
  schedule.family = Family::kPortable;
  schedule.block_m = block_m;
  schedule.block_n = block_n;
  schedule.stages = stages;
  return schedule;
}

// Ragged in every direction: rows that end inside a tile, k inside a slab, columns inside a pair.
constexpr int kRows = 83, kColumns = 151, kDepth = 200;

/// If b's rows run along n, they are whole 16 bytes. If neither operand's rows run along k, k is odd.
GemmProblem laid_out(OperandLayout layout, DType dtype = DType::kBf16) {
  const bool n_inside = layout == OperandLayout::kNn || layout == OperandLayout::kTn;
  GemmProblem problem =
      gemm_problem(dtype, dtype, n_inside ? 152 : kColumns, layout == OperandLayout::kTn ? 201 : kDepth);
  problem.layout = layout;
  return problem;
}
GemmProblem bf16(const char* epilogue, DType result = DType::kBf16, DType c = DType::kBf16) {
  GemmProblem problem = gemm_problem(DType::kBf16, result, kColumns, kDepth, epilogue);
  problem.dtype.c = c;
  return problem;
}
GemmProblem fp8(ScaleKind scales, DType result = DType::kBf16, DType a = DType::kE4m3, DType b = DType::kE4m3) {
  GemmProblem problem = gemm_problem(a, result, kColumns, 336, "acc", scales);
  problem.dtype.b = b;
  return problem;
}
GemmProblem fast(GemmProblem problem) {
  problem.fast_accumulation = true;
  return problem;
}

std::vector<Case> cases() {
  constexpr auto kNt = OperandLayout::kNt, kNn = OperandLayout::kNn, kTn = OperandLayout::kTn, kTt = OperandLayout::kTt;
  const GemmSchedule small = tile(64, 64);
  return {
      {"nt", kA, laid_out(kNt), kRows, small},
      {"nn", kA, laid_out(kNn), kRows, small},
      {"tn", kA, laid_out(kTn), kRows, small},
      {"tt", kA, laid_out(kTt), kRows, small},
      {"nt_large", kH, laid_out(kNt, DType::kF16), 140, tile(128, 128, 2)},
      {"tn_large", kB, laid_out(kTn, DType::kF16), 140, tile(128, 128)},
      {"nn_wide", kL, laid_out(kNn), kRows, tile(64, 128, 4)},
      {"tt_tall", kH, laid_out(kTt), 200, tile(128, 64, 5)},
      {"tt_narrow", kA, laid_out(kTt), kRows, tile(128, 32)},
      {"tn_32", kB, laid_out(kTn), 45, tile(32, 64)},
      {"tn_two_warps", kA, laid_out(kTn), 45, tile(32, 32)},
      {"nt_16", kH, laid_out(kNt), 19, tile(16, 64, 8)},
      {"tn_16", kL, laid_out(kTn), 19, tile(16, 128)},
      {"as_planned", kA, laid_out(kNt), kRows, {}},
      {"few_as_planned", kB, laid_out(kNn), 7, {}},
      {"fallen_back_from_hopper", kH, laid_out(kNt), kRows, {}},  // rows of d begin anywhere
      {"f16_result", kA, bf16("acc", DType::kF16), kRows, small},
      {"f32_result", kA, bf16("acc", DType::kF32), kRows, small},
      {"e4m3_result", kL, bf16("acc", DType::kE4m3), kRows, small},
      {"e5m2_result", kB, bf16("acc", DType::kE5m2), kRows, small},
      {"bias", kA, bf16("acc + bias"), kRows, small},
      {"gelu", kH, bf16("gelu(acc + bias)", DType::kF32, DType::kF16), kRows, small},
      {"relu_alpha", kA, bf16("relu(alpha * acc + bias)", DType::kBf16, DType::kF32), kRows, small},
      {"silu", kB, bf16("silu(acc) + c"), kRows, small},
      {"gelu_tanh", kA, bf16("gelu_tanh(acc)"), kRows, tile(16, 64)},
      {"beta", kL, bf16("alpha * acc + bias + beta * c", DType::kF16, DType::kF32), kRows, small},
      {"fp8", kL, fp8(ScaleKind::kNone), kRows, small},
      {"fp8_fast", kB, fast(fp8(ScaleKind::kPerTensor)), kRows, small},
      {"fp8_mixed", kH, fp8(ScaleKind::kPerTensor, DType::kF32, DType::kE5m2), kRows, small},
      {"fp8_mixed_too", kB, fp8(ScaleKind::kNone, DType::kF32, DType::kE4m3, DType::kE5m2), 19, tile(16, 64)},
      {"fp8_e5m2", kL, fp8(ScaleKind::kPerToken, DType::kE5m2, DType::kE5m2, DType::kE5m2), kRows, small},
      {"fp8_token", kB, fp8(ScaleKind::kPerToken, DType::kF16), kRows, small},
      {"fp8_block", kL, fp8(ScaleKind::kPerBlock), kRows, small},
      {"fp8_block_large", kB, fp8(ScaleKind::kPerBlock, DType::kE4m3), 140, tile(128, 128)},
      {"fp8_block_few", kH, fp8(ScaleKind::kPerBlock), 19, tile(16, 64)},
  };
}

class PortableGemm : public test::OnTheEmulator<Case> {
 protected:
  /// Rows of d begin at odd elements, and the gaps between them are guarded.
  static GemmCase inputs(const GemmInputOptions& options) {
    GemmCase call = make_gemm_inputs(GetParam().problem, {"case", GetParam().m, true}, options);
    call.d_stride = call.problem.n + 3 - call.problem.n % 2;
    return call;
  }
  static GemmOutput run(int num_sms, emulator::Completion completion, std::uint64_t seed, const GemmCase& call,
                        const test::TensorChange& change = {}) {
    Engine engine = test::make_checking_engine(num_sms, completion, seed, GetParam().arch);
    return test::run_checked(engine, call, GetParam().schedule, change);
  }
};

TEST_P(PortableGemm, IsRightWhateverTheMachine) {
  const GemmCase call = inputs({.seed = 3, .padding = 5});
  const GemmOutput output = run(5, emulator::Completion::kEager, 1, call);
  test::expect_right(call, output);
  const auto on_one_sm = [](GemmTensors& tensors) { tensors.sm_budget = 1; };
  EXPECT_EQ(run(2, emulator::Completion::kRandom, 2, call, on_one_sm), output) << "two machines differ";
}

TEST_P(PortableGemm, IsExactWhereTheInputsAre) {
  const GemmCase call = inputs({.seed = 4, .exact = true});
  test::expect_right(call, run(3, emulator::Completion::kLazy, 1, call));
}

INSTANTIATE_TEST_SUITE_P(Cases, PortableGemm, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

class PortableGemmEdges : public testing::Test {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  static GemmCase inputs(const GemmProblem& problem, int m) {
    return make_gemm_inputs(problem, {"edge", m, true}, {.seed = 9, .padding = 3});
  }
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kEager, 1, Arch::kSm80);
};

TEST_F(PortableGemmEdges, WithoutKTheEpilogueIsOfZeros) {
  for (const int m : {1, 70}) {
    const GemmCase call = inputs(gemm_problem(DType::kBf16, DType::kBf16, 71, 0, "alpha * acc + bias + beta * c"), m);
    test::expect_right(call, test::run_checked(engine_, call));
  }
  const GemmCase none = inputs(gemm_problem(DType::kBf16, DType::kBf16, 71, 8), 0);
  EXPECT_TRUE(test::run_checked(engine_, none).d.empty());
}

TEST_F(PortableGemmEdges, DMayBeC) {
  const GemmProblem problem = gemm_problem(DType::kBf16, DType::kBf16, 71, 104, "acc + beta * c");
  GemmCase call = inputs(problem, 70);
  call.d_stride = call.c.stride;
  GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(problem));
  on_device.accumulate_in_place();
  on_device.poison();
  on_device.launch();
  test::expect_right(call, on_device.download());
  EXPECT_TRUE(on_device.guards_are_intact());
}

/// Rows of d may begin at 16-byte boundaries although n is odd: memory after a row's last column must not change. This
/// holds on sm_90a too: hopper's stores take whole 16 bytes, so it leaves the problem to this kernel.
TEST_F(PortableGemmEdges, OddColumnsInRowsOf16Bytes) {
  for (const Arch arch : {Arch::kSm80, Arch::kSm90a})
    for (const DType result : {DType::kBf16, DType::kF32}) {
      Engine engine = test::make_checking_engine(4, emulator::Completion::kEager, 1, arch);
      GemmCase call = inputs(gemm_problem(DType::kBf16, result, 71, 104, "acc + bias + c"), 70);
      call.d_stride = 71;
      const GemmOutput dense = test::run_checked(engine, call);
      test::expect_right(call, dense);
      call.d_stride = 72;
      EXPECT_EQ(test::run_checked(engine, call), dense) << to_string(arch);
      EXPECT_EQ(engine.prepare(call.problem).plan().variants.back().spec.family, Family::kPortable);
    }
  GemmSchedule hopper;
  hopper.family = Family::kHopper;
  try {
    plan_by_model(gemm_problem(DType::kBf16, DType::kBf16, 71, 104), hopper, Arch::kSm90a);
    ADD_FAILURE() << "hopper took an odd n";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("/problem/n: 71 leaves rows of d"), std::string::npos) << error.what();
  }
}

TEST_F(PortableGemmEdges, NanAndInfinityPropagate) {
  GemmCase call = inputs(gemm_problem(DType::kBf16, DType::kBf16, 71, 104), 70);
  fill_with_nan(DType::kBf16, {call.a.row(3), 2});
  const float infinity = std::numeric_limits<float>::infinity();
  encode_row(DType::kBf16, {&infinity, 1}, call.b.row(50));
  call.random_values = false;
  test::expect_right(call, test::run_checked(engine_, call));
}

/// All kernels of a plan add in one order: a row is the same to the bit in whichever tile.
TEST_F(PortableGemmEdges, ARowIsTheSameInEveryTile) {
  const GemmProblem problem = gemm_problem(DType::kBf16, DType::kF32, 200, 200);
  const GemmCase call = inputs(problem, 40);
  const GemmOutput first = test::run_checked(engine_, call, tile(16, 64));
  for (const auto& [block_m, block_n] : {std::pair{128, 128}, {64, 64}, {32, 32}})
    EXPECT_EQ(test::run_checked(engine_, call, tile(block_m, block_n)), first) << block_m;
}

TEST_F(PortableGemmEdges, ArgumentsThatDoNotFitAreNamed) {
  const GemmCase call = inputs(gemm_problem(DType::kBf16, DType::kBf16, 71, 104), 9);
  EXPECT_EQ(test::refusal_of_launch(engine_, call, [](GemmTensors& t) { t.d += 2; }), "");
  EXPECT_NE(test::refusal_of_launch(engine_, call, [](GemmTensors& t) { t.d += 1; }).find("/tensors/d: address"),
            std::string::npos);
  EXPECT_NE(test::refusal_of_launch(engine_, call, [](GemmTensors& t) { t.a += 2; }).find("/tensors/a: address"),
            std::string::npos);
  EXPECT_NE(test::refusal_of_launch(engine_, call, [](GemmTensors& t) { t.a_stride = 107; })
                .find("/tensors/a_stride: 107 elements of bf16 put rows off their 16-byte boundaries"),
            std::string::npos);
}

}  // namespace
}  // namespace kernelwright::gemm_portable_emulator_test
