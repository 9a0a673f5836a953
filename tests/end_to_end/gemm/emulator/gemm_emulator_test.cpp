// gemm_sm90 on the emulator, with every check on. Each case must match the fp64 reference on random data, and to the
// bit on exact data. It must cause no report and write nothing beside d. Two machines that differ in everything on
// which a kernel must not depend must give the same bits. Needs NVRTC and no GPU.
#include <gtest/gtest.h>
#include <ostream>

#include "support/emulated_gemm.h"

namespace kernelwright::gemm_emulator_test {
namespace {

using test::gemm_problem;

struct Case {
  const char* name;
  GemmProblem problem;
  int m;
  GemmSchedule schedule;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

GemmProblem laid_out(GemmProblem problem, OperandLayout layout) {
  problem.layout = layout;
  return problem;
}
GemmProblem fast(GemmProblem problem) {
  problem.fast_accumulation = true;
  return problem;
}
GemmProblem with_c(GemmProblem problem, DType c) {
  problem.dtype.c = c;
  return problem;
}
GemmProblem mixed(GemmProblem problem, DType b) {
  problem.dtype.b = b;
  return problem;
}

GemmSchedule tile(int block_m, int block_n, int warpgroups = 1, Roles roles = Roles::kCooperative) {
  GemmSchedule schedule;
  schedule.block_m = block_m;
  schedule.block_n = block_n;
  schedule.math_warpgroups = warpgroups;
  schedule.roles = roles;
  schedule.stages = 4;
  return schedule;
}
GemmSchedule ping_pong(int block_m, int block_n) { return tile(block_m, block_n, 2, Roles::kPingPong); }
GemmSchedule in_turn(GemmSchedule schedule, int parts, int k_group = 1) {
  schedule.split_k = parts;
  schedule.split_mode = SplitMode::kTurnstile;
  schedule.k_group = k_group;
  return schedule;
}
template <class Change>
GemmSchedule with(GemmSchedule schedule, Change change) {
  change(schedule);
  return schedule;
}

// Ragged in every direction: rows that end inside a tile, columns inside a slab, k inside a slab.
constexpr int kRows = 83, kColumns = 152, kDepth = 200;

GemmProblem bf16(const char* epilogue = "acc") {
  return gemm_problem(DType::kBf16, DType::kBf16, kColumns, kDepth, epilogue);
}
GemmProblem fp8(ScaleKind scales, DType result = DType::kBf16) {
  return gemm_problem(DType::kE4m3, result, kColumns + 8, kDepth + 8 + 128, "acc", scales);
}

std::vector<Case> cases() {
  const GemmSchedule small = tile(64, 64);
  return {
      {"bf16", bf16(), kRows, small},
      {"f16", gemm_problem(DType::kF16, DType::kF16, kColumns, kDepth), kRows, small},
      {"f32_result", gemm_problem(DType::kF16, DType::kF32, kColumns, kDepth), kRows, small},
      {"nn", laid_out(bf16(), OperandLayout::kNn), kRows, small},
      {"tn", laid_out(bf16(), OperandLayout::kTn), kRows, small},
      {"tt", laid_out(bf16(), OperandLayout::kTt), kRows, small},
      {"tn_swapped", laid_out(bf16("acc + bias"), OperandLayout::kTn), 24,
       with(tile(64, 64), [](auto& s) { s.swap_ab = true; })},
      {"as_planned", bf16(), kRows, {}},
      {"one_row", bf16(), 1, small},
      {"cooperative", bf16(), 200, tile(128, 152, 2)},
      {"ping_pong", bf16(), 300, ping_pong(64, 88)},
      {"k_groups", bf16(), kRows, with(small, [](auto& s) { s.k_group = 2; })},
      {"cluster", bf16(), 200,
       with(ping_pong(64, 64),
            [](auto& s) {
              s.cluster = ClusterShape{2, 1};
            })},
      {"split_k", gemm_problem(DType::kBf16, DType::kBf16, 256, 520), 70,
       with(tile(64, 128), [](auto& s) { s.split_k = 2; })},
      {"swap_ab", bf16(), 19, with(tile(64, 32), [](auto& s) { s.swap_ab = true; })},
      {"bias", bf16("acc + bias"), kRows, small},
      {"gelu", bf16("gelu(acc + bias)"), kRows, small},
      {"relu_alpha", with_c(bf16("relu(alpha * acc + bias)"), DType::kF32), kRows, small},
      {"silu", bf16("silu(acc)"), kRows, small},
      {"gelu_tanh", bf16("gelu_tanh(acc)"), kRows, small},
      {"residual", bf16("acc + c"), kRows, small},
      {"beta", with_c(bf16("alpha * acc + beta * c"), DType::kF32), kRows, ping_pong(64, 64)},
      {"residual_swapped", bf16("acc + bias + c"), 19, with(tile(64, 32), [](auto& s) { s.swap_ab = true; })},
      {"fp8", fp8(ScaleKind::kNone), kRows, small},
      {"fp8_fast", fast(fp8(ScaleKind::kPerTensor)), kRows, small},
      {"fp8_mixed", mixed(fp8(ScaleKind::kPerTensor), DType::kE5m2), kRows, small},
      {"fp8_mixed_swapped", mixed(fp8(ScaleKind::kPerToken), DType::kE5m2), 19,
       with(tile(64, 32), [](auto& s) { s.swap_ab = true; })},
      {"fp8_token", fp8(ScaleKind::kPerToken), kRows, small},
      {"fp8_block", fp8(ScaleKind::kPerBlock), kRows, tile(64, 128)},
      {"fp8_block_ping_pong", fp8(ScaleKind::kPerBlock, DType::kF32), 200, ping_pong(64, 128)},
      {"fp8_result", fp8(ScaleKind::kPerToken, DType::kE4m3), kRows, small},
      {"turns", gemm_problem(DType::kBf16, DType::kBf16, kColumns, 520), 200, in_turn(small, 2)},
      {"turns_of_three_in_groups", gemm_problem(DType::kF16, DType::kF32, kColumns, 904), kRows, in_turn(small, 3, 2)},
      {"turns_of_more_parts_than_slabs", bf16("acc + bias"), kRows, in_turn(small, 16)},
      {"turns_of_warpgroups", with_c(bf16("gelu(alpha * acc + bias) + beta * c"), DType::kF32), 200,
       in_turn(tile(128, 152, 2), 2)},
      {"turns_of_three_warpgroups", bf16("acc + c"), 200, in_turn(tile(192, 72, 3), 3)},
      {"turns_of_tall_warpgroups", bf16("silu(acc)"), 300, in_turn(tile(256, 72, 2), 2)},
      {"turns_swapped", gemm_problem(DType::kBf16, DType::kBf16, kColumns, 520, "acc + bias + c"), 19,
       in_turn(with(tile(64, 16), [](auto& s) { s.swap_ab = true; }), 5)},
      {"turns_tn", laid_out(bf16("relu(acc)"), OperandLayout::kTn), kRows, in_turn(small, 2)},
      {"turns_fp8", fp8(ScaleKind::kNone), kRows, in_turn(small, 2)},
      {"turns_fp8_tensor", fast(fp8(ScaleKind::kPerTensor)), kRows, in_turn(small, 2)},
      {"turns_fp8_token", fp8(ScaleKind::kPerToken, DType::kE4m3), kRows, in_turn(small, 3)},
      {"turns_fp8_block", fp8(ScaleKind::kPerBlock), 200, in_turn(tile(64, 128), 2)},
      {"turns_fp8_block_swapped", fp8(ScaleKind::kPerBlock), 19,
       in_turn(with(tile(64, 32), [](auto& s) { s.swap_ab = true; }), 2)},
  };
}

class GemmOnTheEmulator : public test::OnTheEmulator<Case> {};

TEST_P(GemmOnTheEmulator, IsRightWhateverTheMachine) {
  const Case& test = GetParam();
  Engine one = test::make_checking_engine(5, emulator::Completion::kEager, 1);
  Engine other = test::make_checking_engine(2, emulator::Completion::kRandom, 2);
  const GemmCase call = make_gemm_inputs(test.problem, {"random", test.m, true}, {.seed = 3, .padding = 5});
  const GemmOutput output = test::run_checked(one, call, test.schedule);
  test::expect_right(call, output);
  EXPECT_EQ(test::run_checked(other, call, test.schedule), output) << "two machines differ";
}

TEST_P(GemmOnTheEmulator, IsExactWhereTheInputsAre) {
  const Case& test = GetParam();
  Engine engine = test::make_checking_engine(3, emulator::Completion::kLazy, 1);
  const GemmCase call = make_gemm_inputs(test.problem, {"exact", test.m, true}, {.seed = 4, .exact = true});
  test::expect_right(call, test::run_checked(engine, call, test.schedule));
}

INSTANTIATE_TEST_SUITE_P(Cases, GemmOnTheEmulator, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::gemm_emulator_test
