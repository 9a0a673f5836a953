// GEMMs whose result is in a block-scaled format, on the emulator, with every check on. Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "contract/block_scales.h"
#include "kernelwright/verify/row_op/device.h"
#include "support/checked_gemm.h"

namespace kernelwright::gemm_blocks_test {
namespace {

using test::gemm_problem;
using test::schedule_of;
using test::Tile;
using testing::HasSubstr;

std::string to_blocks(DType format, const std::string& value, const char* options = "") {
  return "x = " + value + "; d = quantize(x, " + std::string(to_string(format)) + ", per=token_group(" +
         std::to_string(scale_vector(format)) + ")" + options + ", scale=s)";
}
GemmProblem blocks_problem(DType operands, DType format, int n, int k, const std::string& value,
                           const char* options = "") {
  return gemm_problem(operands, format, n, k, to_blocks(format, value, options).c_str(),
                      is_block_scaled(operands) ? ScaleKind::kPerBlock : ScaleKind::kNone);
}

constexpr Tile kFewRows{"portable_16", Family::kPortable, 16, 128, 0};
constexpr Tile kPortableGates{"portable_64", Family::kPortable, 64, 256, 0};
constexpr Tile kCooperative{"cooperative", Family::kHopper, 128, 256, 2};
constexpr Tile kPingPong{"ping_pong", Family::kHopper, 64, 128, 2, Roles::kPingPong};
constexpr Tile kPairOfGates{"pair", Family::kHopper, 64, 256, 1, Roles::kCooperative, false, 2};

GemmSchedule blackwell(int block_n, int ctas = 1) {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = block_n, schedule.cta_group = ctas;
  schedule.cluster = ClusterShape{ctas, 1};
  schedule.scheduler = Scheduler::kPersistent;
  schedule.stages = 2;
  return schedule;
}

class GemmBlocks : public test::CheckedGemm {
 protected:
  /// What row_op makes of rows of f32.
  RowOpOutput blocks_of_row_op(const GemmOutput& values, DType format, int rows, int width, float tensor_scale) {
    RowOpCase call;
    call.problem.dtype = {DType::kF32, format};
    call.problem.width = width;
    call.problem.scales.kind = ScaleKind::kPerBlock;
    call.rows = rows, call.tensor_scale = tensor_scale;
    lay_out_rows(call, 0);
    call.x = values.d;
    RowOpDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem));
    on_device.poison();
    on_device.launch();
    return on_device.download();
  }
};

TEST_F(GemmBlocks, OfEachKernelAndFormat) {
  // 288 columns of d leave atoms in part, and the last tile with a part of its columns. 75 rows leave atoms in part.
  expect_right(
      blocks_problem(DType::kBf16, DType::kMxfp8, 288, 72, "gelu_tanh(alpha * acc + bias) + beta * c", ", round=up"),
      {"", 75, true}, schedule_of(kCooperative));
  const GemmProblem gated =
      blocks_problem(DType::kBf16, DType::kMxfp4, 576, 72, "silu(alpha * gate + bias) * (alpha * up + bias)",
                     ", round=up, layout=rows");
  expect_right(gated, {"", 75, true}, schedule_of(kPortableGates));
  expect_right(gated, {"", 75, true}, schedule_of(kPairOfGates));
}

TEST_F(GemmBlocks, HaveOneRightValueOfExactInputs) {
  for (const Tile& tile : {kFewRows, kPingPong})
    expect_right(blocks_problem(DType::kBf16, DType::kNvfp4, 160, 64, "acc", ", layout=atoms"), {"", 141, true},
                 schedule_of(tile), {.seed = 2, .exact = true, .padding = 3});
}

TEST_F(GemmBlocks, AreTheBitsOfRowOp) {
  constexpr int kRows = 37, kColumns = 160;
  GemmCase call = make_gemm_inputs(blocks_problem(DType::kBf16, DType::kNvfp4, kColumns, 64, "acc"), {"", kRows, true},
                                   {.seed = 5});
  std::vector<float> row(64, 0.f);
  call.a.set_row(3, row);
  row[7] = std::numeric_limits<float>::quiet_NaN();
  call.a.set_row(12, row);
  row[7] = std::numeric_limits<float>::infinity();
  call.a.set_row(20, row);
  const GemmOutput of_few_rows = run(call, schedule_of(kFewRows)), of_hopper = run(call, schedule_of(kPingPong));
  test::expect_right(call, of_few_rows);
  EXPECT_EQ(of_few_rows, of_hopper);
  for (int block = 0; block < kColumns / 16; ++block) {
    const auto scale = [&](int of_row) {
      return std::to_integer<int>(of_hopper.scale_d[call.scale_d_index(of_row, block)]);
    };
    EXPECT_EQ(scale(3), 0);
    EXPECT_EQ(scale(12), 0x7f);
    EXPECT_EQ(scale(20), 0x7f);
  }
  GemmCase plain = call;
  plain.problem.dtype.d = DType::kF32, plain.problem.epilogue = "acc";
  lay_out(plain);
  const RowOpOutput right = blocks_of_row_op(run(plain, schedule_of({"", Family::kPortable, 16, 128, 0})),
                                             DType::kNvfp4, kRows, kColumns, call.tensor_scale);
  EXPECT_EQ(of_hopper.d, right.out);
  EXPECT_EQ(of_hopper.scale_d, right.scale);
}

TEST_F(GemmBlocks, PartsOfK) {
  GemmSchedule schedule = schedule_of(kCooperative);
  schedule.block_m = 64, schedule.block_n = 256, schedule.math_warpgroups = 1, schedule.split_k = 2;
  expect_right(blocks_problem(DType::kBf16, DType::kMxfp8, 288, 328, "acc"), {"", 70, true}, schedule);
}

TEST_F(GemmBlocks, FeedTheNextGemmOnBlackwell) {
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 7, Arch::kSm100a);
  for (const DType format : {DType::kMxfp8, DType::kNvfp4}) {
    SCOPED_TRACE(to_string(format));
    const bool pair = format == DType::kNvfp4;
    GemmCase first =
        make_gemm_inputs(blocks_problem(format, format, 288, 160, "acc + bias"), {"", 203, true}, {.seed = 3});
    const GemmOutput middle = test::run_checked(engine, first, blackwell(pair ? 256 : 128, pair ? 2 : 1));
    test::expect_right(first, middle);
    GemmCase second = make_gemm_inputs(gemm_problem(format, DType::kF32, 72, 288, "alpha * acc", ScaleKind::kPerBlock),
                                       {"", 203, true}, {.seed = 4});
    ASSERT_EQ(second.a.bytes.size(), middle.d.size());
    ASSERT_EQ(second.a.scales.size(), middle.scale_d.size());
    second.a.bytes = middle.d, second.a.scales = middle.scale_d;
    second.alpha = first.tensor_scale;  // undoes the division
    test::expect_right(second, test::run_checked(engine, second, blackwell(64)));
  }
}

TEST_F(GemmBlocks, OfAPortableKernelFeedTheNextGemmOnBlackwell) {
  Engine engine = test::make_checking_engine(4, emulator::Completion::kEager, 1, Arch::kSm100a);
  GemmCase first = make_gemm_inputs(blocks_problem(DType::kBf16, DType::kMxfp4, 256, 64, "silu(gate) * up"),
                                    {"", 45, true}, {.seed = 3});
  first.tensor_scale = 1;
  const GemmOutput middle = test::run_checked(engine, first, schedule_of({"", Family::kPortable, 16, 256, 0}));
  test::expect_right(first, middle);
  GemmCase second = make_gemm_inputs(gemm_problem(DType::kMxfp4, DType::kF32, 72, 128, "acc", ScaleKind::kPerBlock),
                                     {"", 45, true}, {.seed = 4});
  second.a.bytes = middle.d, second.a.scales = middle.scale_d;
  test::expect_right(second, test::run_checked(engine, second, blackwell(64)));
}

TEST_F(GemmBlocks, RefuseProblemsAndTiles) {
  const GemmProblem right = blocks_problem(DType::kBf16, DType::kMxfp8, 288, 64, "acc");
  GemmProblem problem = right;
  problem.n = 272;
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/n: 272 columns leave a part of the 32 columns of d that share a "
                                          "scale; it takes a multiple of 32"));
  problem = right, problem.dtype.d = DType::kMxfp4;
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/dtype/d: \"mxfp4\" is not what the epilogue quantises to; it takes "
                                          "mxfp8"));
  problem.epilogue = "acc";
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/dtype/d: \"mxfp4\" does not fit; the result is f16, bf16, f32, "
                                          "e4m3 or e5m2, or the epilogue quantises to mxfp4"));
  problem = right, problem.groups = {GroupKind::kRows, 2};
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/groups/kind: \"rows\" with an epilogue that quantises to mxfp8 is "
                                          "not built yet for the hopper family; it has none there; the blackwell "
                                          "family has rows and masked"));
  problem.groups = {GroupKind::kBatch, 2};
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/groups/kind: \"batch\" does not go with an epilogue that quantises "
                                          "to mxfp8; it takes none, rows or masked"));
  GemmSchedule schedule = schedule_of({"", Family::kHopper, 128, 32, 2, Roles::kCooperative, true});
  EXPECT_THAT(refusal(right, schedule),
              HasSubstr("/schedule/swap_ab: true: columns of d that share a scale of mxfp8 lie "
                        "in rows of several warps; false would do"));
  schedule = schedule_of(kCooperative), schedule.block_n = 192;
  EXPECT_THAT(refusal(right, schedule),
              HasSubstr("/schedule/block_n: 192 columns hold a part of the 128 that have whole "
                        "words of scales of d; 256 would do"));
}

}  // namespace
}  // namespace kernelwright::gemm_blocks_test
