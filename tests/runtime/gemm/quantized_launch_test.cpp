/// What a launch of a GEMM with a quantised result passes to the device, and which arguments it refuses.
#include <limits>
#include <string>

#include "contract/gemm_params.h"
#include "contract/gemm_portable.h"
#include "kernelwright/runtime/gemm/arguments.h"
#include "runtime/gemm/launch_fixture.h"

namespace kernelwright::test::quantized_launch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kEpilogue = "x = acc + bias; d = quantize(x, e4m3, per=token_group(128), scale=s)";

GemmProblem quantized() {
  GemmProblem problem = mlp_of_depth(256, DType::kE4m3, ScaleKind::kPerBlock);
  problem.dtype.d = DType::kE4m3;
  problem.epilogue = kEpilogue;
  return problem;
}
GemmTensors operands() {
  GemmTensors tensors = scaled_operands();
  tensors.bias = 0x700000;
  tensors.scale_d = 0x800000;
  tensors.scale_d_stride = 104;
  return tensors;
}

class QuantizedLaunch : public GemmLaunches<contract::GemmWithScales<contract::GemmParams>> {
 protected:
  QuantizedLaunch() : GemmLaunches(Arch::kSm90a, 132) {}

  std::string refusal(const GemmTensors& tensors, const GemmProblem& problem = quantized()) {
    Engine engine(options());
    const GemmKernel kernel = engine.prepare(problem);
    return message_of<ConfigError>([&] { kernel.launch(tensors, some_stream()); });
  }
};

TEST_F(QuantizedLaunch, PassesTheScalesBehindTheFamilysParameters) {
  Engine engine(options());
  for (const bool swapped : {false, true}) {
    GemmSchedule schedule;
    schedule.block_m = 128, schedule.block_n = swapped ? 32 : 128, schedule.swap_ab = swapped;
    engine.prepare(quantized(), schedule).launch(operands(), some_stream());
    EXPECT_EQ(reinterpret_cast<DevicePtr>(launched().scale_d), 0x800000u);
    EXPECT_EQ(launched().scale_d_stride, 104);
    EXPECT_EQ(reinterpret_cast<DevicePtr>(launched().groups.d), 0x400000u);
    EXPECT_EQ(launched().groups.d_stride, 512);
  }
  GemmSchedule portable;
  portable.family = Family::kPortable;
  GemmTensors tensors = operands();
  tensors.scale_d_stride = 0;
  engine.prepare(quantized(), portable).launch(tensors, some_stream());
  const auto params = device().launches().back().as<contract::GemmWithScales<contract::GemmPortableParams>>();
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.scale_d), 0x800000u);
  EXPECT_EQ(params.scale_d_stride, 100);
}

TEST_F(QuantizedLaunch, ScalesOfTheResultHaveTheirRules) {
  GemmTensors tensors = operands();
  tensors.scale_d = 0;
  EXPECT_THAT(refusal(tensors), HasSubstr("/tensors/scale_d: is null, and the epilogue quantises"));
  tensors.scale_d = 0x800002, tensors.scale_d_stride = 96;
  EXPECT_THAT(refusal(tensors), AllOf(HasSubstr("/tensors/scale_d: address 0x800002 is not a multiple of 4"),
                                      HasSubstr("/tensors/scale_d_stride: 96")));
  tensors = operands();
  for (const auto& [address, name] : {std::pair{tensors.a, "a"},
                                      {tensors.b, "b"},
                                      {tensors.d, "d"},
                                      {tensors.bias, "bias"},
                                      {tensors.scale_a, "scale_a"},
                                      {tensors.scale_b, "scale_b"}}) {
    tensors.scale_d = address + 16;
    EXPECT_THAT(refusal(tensors), HasSubstr(std::string("/tensors/scale_d: overlaps ") + name + ","));
  }
  tensors.scale_d = 0x800000, tensors.scale_d_stride = std::int64_t{1} << 62;
  EXPECT_THAT(refusal(tensors), HasSubstr("/tensors/scale_d_stride: 4611686018427387904"));
  tensors.scale_d_stride = 0;
  EXPECT_EQ(refusal(tensors), "nothing was thrown") << "100 rows are a multiple of 4";
  GemmProblem plain = quantized();
  plain.epilogue = "acc + bias";
  EXPECT_THAT(refusal(tensors, plain), HasSubstr("/tensors/scale_d: is given, and nothing reads it"));
}

/// n = 512: 4 atoms of mxfp8's scales for 128 rows.
GemmProblem in_blocks(const char* options = "") {
  GemmProblem problem = mlp_of_depth(256);
  problem.dtype.d = DType::kMxfp8;
  problem.epilogue = std::string("d = quantize(acc, mxfp8, per=token_group(32), scale=s") + options + ")";
  return problem;
}
GemmTensors operands_of_blocks() {
  GemmTensors tensors = some_operands();
  tensors.scale_d = 0x800000, tensors.tensor_scale = 0.5f;
  return tensors;
}

TEST_F(QuantizedLaunch, PassesElementsAndAtomsToEachFamily) {
  Engine engine(options());
  for (const bool rows : {false, true})
    for (const Family family : {Family::kHopper, Family::kPortable}) {
      GemmSchedule schedule;
      schedule.family = family;
      GemmTensors tensors = operands_of_blocks();
      if (rows) tensors.d_stride = 544, tensors.scale_d_stride = 21;
      engine.prepare(in_blocks(rows ? ", layout=rows" : ""), schedule).launch(tensors, some_stream());
      const auto expect = [&](const auto& params) {
        EXPECT_EQ(reinterpret_cast<DevicePtr>(params.elements), 0x400000u);
        EXPECT_EQ(reinterpret_cast<DevicePtr>(params.scale_d), 0x800000u);
        EXPECT_EQ(params.row_bytes, rows ? 544 : 512);
        EXPECT_EQ(params.scale_d_stride, rows ? 21 : 4);
        EXPECT_EQ(params.tensor_scale, 0.5f);
      };
      if (family == Family::kHopper)
        expect(device().launches().back().as<contract::GemmWithBlocks<contract::GemmParams>>());
      else
        expect(device().launches().back().as<contract::GemmWithBlocks<contract::GemmPortableParams>>());
    }
}

TEST_F(QuantizedLaunch, AtomsHaveTheirRules) {
  GemmTensors tensors = operands_of_blocks();
  EXPECT_EQ(refusal(tensors, in_blocks()), "nothing was thrown");
  tensors.scale_d_stride = 3;
  EXPECT_THAT(refusal(tensors, in_blocks()), HasSubstr("/tensors/scale_d_stride: 3 is less than the 4 atoms of scales "
                                                       "that 512 columns of d have"));
  tensors.scale_d_stride = 0, tensors.scale_d = 0x800008;
  EXPECT_THAT(refusal(tensors, in_blocks()), HasSubstr("/tensors/scale_d: address 0x800008 is not a multiple of 16"));
  EXPECT_EQ(refusal(tensors, in_blocks(", layout=rows")), "nothing was thrown");
  for (const DevicePtr near : {tensors.a, tensors.b, tensors.d}) {
    tensors.scale_d = near + 16;
    EXPECT_THAT(refusal(tensors, in_blocks()), HasSubstr("/tensors/scale_d: overlaps"));
  }
  tensors = operands_of_blocks(), tensors.d += 8;
  EXPECT_THAT(refusal(tensors, in_blocks()), HasSubstr("/tensors/d: address 0x400008 is not a multiple of 16"));
  for (const float scale : {0.f, -1.f, std::numeric_limits<float>::infinity()}) {
    tensors = operands_of_blocks(), tensors.tensor_scale = scale;
    EXPECT_THAT(refusal(tensors, in_blocks()), HasSubstr("does not divide; it takes a finite number above 0"));
  }
  tensors = operands(), tensors.tensor_scale = 2;
  EXPECT_THAT(refusal(tensors), HasSubstr("/tensors/tensor_scale: 2 is given, and d is in no block-scaled format"));
}

TEST_F(QuantizedLaunch, PassesWhatIsMeasured) {
  GemmProblem problem = mlp_of_depth(256);
  problem.epilogue = "x = rstd * acc; d = x; amax = amax(x); squares = sum(x * x, over=n)";
  GemmTensors tensors = some_operands();
  tensors.amax = 0x800000, tensors.squares = 0x900000, tensors.squares_a = 0xa00000;
  tensors.squares_a_stride = 104, tensors.rms_eps = 0.5f;
  EXPECT_EQ(refusal(tensors, problem), "nothing was thrown");
  const auto params = device().launches().back().as<contract::GemmWithStatistics<contract::GemmParams>>();
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.statistics.amax), 0x800000u);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.statistics.squares), 0x900000u);
  EXPECT_EQ(params.statistics.squares_stride, 100);
  EXPECT_EQ(reinterpret_cast<DevicePtr>(params.statistics.squares_a), 0xa00000u);
  EXPECT_EQ(params.statistics.squares_a_stride, 104);
  EXPECT_EQ(params.statistics.eps, 0.5f);

  GemmTensors other = tensors;
  other.amax = 0, other.squares_a = 0, other.squares_stride = 96;
  EXPECT_THAT(refusal(other, problem), AllOf(HasSubstr("/tensors/amax: is null, and the epilogue has amax"),
                                             HasSubstr("/tensors/squares_a: is null, and the epilogue has rstd"),
                                             HasSubstr("/tensors/squares_stride: 96")));
  for (const DevicePtr near : {tensors.a, tensors.b, tensors.d, tensors.squares_a}) {
    other = tensors, other.squares = near + 16;
    EXPECT_THAT(refusal(other, problem), HasSubstr("/tensors/squares: overlaps"));
    other = tensors, other.amax = near + 16;
    EXPECT_THAT(refusal(other, problem), HasSubstr("/tensors/amax: overlaps"));
  }
  other = tensors, other.rms_eps = -1;
  EXPECT_THAT(refusal(other, problem), HasSubstr("/tensors/rms_eps: -1 does not fit"));
  EXPECT_THAT(refusal(tensors, mlp_of_depth(256)),
              AllOf(HasSubstr("/tensors/amax: is given"), HasSubstr("/tensors/squares: is given")));
}

TEST_F(QuantizedLaunch, ScalesOfMaskedGroupsAreOfACapacityEach) {
  GemmProblem problem = quantized();
  problem.groups = {GroupKind::kMasked, 5, GroupBounds::kCounts};
  GemmTensors tensors = operands();
  tensors.bounds = 0x900000, tensors.b = 0x2000000, tensors.scale_d_stride = 0;
  EXPECT_EQ(refusal(tensors, problem), "nothing was thrown");
  EXPECT_EQ(launched().scale_d_stride, 20);
  tensors.scale_d_stride = 19;
  EXPECT_THAT(refusal(tensors, problem), HasSubstr("/tensors/scale_d_stride: 19"));
  tensors.scale_d_stride = 20, tensors.bounds = tensors.scale_d + 4 * 20 * 4 * 5 - 4;  // the last scale
  EXPECT_THAT(refusal(tensors, problem), HasSubstr("/tensors/scale_d: overlaps bounds"));
}

TEST_F(QuantizedLaunch, ScalesDoNotLieOverTheLastOfTheStarts) {
  GemmProblem problem = quantized();
  problem.groups = {GroupKind::kRows, 5, GroupBounds::kStarts};
  GemmTensors tensors = operands();
  tensors.b = 0x2000000;
  tensors.bounds = tensors.scale_d - 6 * 4;
  EXPECT_EQ(refusal(tensors, problem), "nothing was thrown");
  tensors.bounds += 4;
  EXPECT_THAT(refusal(tensors, problem), HasSubstr("/tensors/scale_d: overlaps bounds"));
}

}  // namespace
}  // namespace kernelwright::test::quantized_launch_test
