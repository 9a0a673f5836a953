/// What a launch of a GEMM passes to the device, which arguments it refuses, and which of its kernels serves a row
/// count.
#include <fmt/format.h>

#include <climits>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "contract/gemm_params.h"
#include "kernelwright/runtime/engine/notes.h"
#include "kernelwright/runtime/gemm/arguments.h"
#include "kernelwright/runtime/gemm/tensor_maps.h"
#include "runtime/gemm/launch_fixture.h"

namespace kernelwright::test::launch_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using contract::GemmParams;
using detail::GemmTensorMaps;
using detail::LoadedGemm;

GemmProblem mlp() { return mlp_of_depth(256); }

GemmSchedule tile(int block_m, int block_n) {
  GemmSchedule schedule;
  schedule.block_m = block_m;
  schedule.block_n = block_n;
  schedule.roles = Roles::kCooperative;
  schedule.math_warpgroups = block_m / 64;
  schedule.k_group = 1;
  return schedule;
}

struct GemmLaunchTest : GemmLaunches<GemmParams> {
  GemmLaunchTest() : GemmLaunches(Arch::kSm90a, 132) {}

  std::string refusal(const GemmProblem& problem, const GemmTensors& tensors) {
    Engine engine(options());
    const GemmKernel kernel = engine.prepare(problem);
    return message_of<ConfigError>([&] { kernel.launch(tensors, some_stream()); });
  }
};

GemmTensorMaps maps_of(const GemmProblem& problem, const GemmSchedule& schedule, const GemmTensors& tensors) {
  const LoadedGemm kernel =
      detail::describe(problem, plan_gemm(problem, schedule, Arch::kSm90a), DeviceInfo{.num_sms = 132});
  const GemmSpec& spec = kernel.variant_for(tensors.m).spec;
  return detail::tensor_maps_of(spec, tensors, detail::matrices_of(kernel, spec, tensors), kernel.groups);
}

TEST(GemmTensorMaps, OfOperandsAlongKAreKThenRows) {
  GemmTensors tensors = some_operands();
  tensors.a_stride = 264;
  const GemmTensorMaps maps = maps_of(mlp(), tile(128, 176), tensors);
  EXPECT_EQ(maps.a.address, 0x100000u);
  EXPECT_THAT(dims(maps.a), ElementsAre(256, 100));
  EXPECT_EQ(maps.a.strides_bytes[0], 264u * 2);
  EXPECT_THAT(box(maps.a), ElementsAre(64, 128));
  EXPECT_EQ(maps.a.swizzle, Swizzle::k128B);
  EXPECT_THAT(dims(maps.b), ElementsAre(256, 512));
  EXPECT_THAT(box(maps.b), ElementsAre(64, 176));
  EXPECT_THAT(dims(maps.d), ElementsAre(512, 100));
  EXPECT_THAT(box(maps.d), ElementsAre(64, 16));
  ASSERT_TRUE(maps.has_tail);
  EXPECT_THAT(box(maps.d_tail), ElementsAre(48, 16)) << "176 columns are 2 slabs of 64 and 48 more";
  EXPECT_EQ(maps.d_tail.swizzle, Swizzle::kNone);
}

TEST(GemmTensorMaps, OfOtherLayoutsAreSquaresOf64) {
  GemmProblem problem = mlp();
  problem.layout = OperandLayout::kTn;
  GemmTensors tensors = some_operands();
  tensors.m = 104;
  const GemmTensorMaps maps = maps_of(problem, tile(128, 128), tensors);
  EXPECT_THAT(dims(maps.a), ElementsAre(104, 256));
  EXPECT_THAT(box(maps.a), ElementsAre(64, 64));
  EXPECT_THAT(dims(maps.b), ElementsAre(512, 256));
  EXPECT_THAT(box(maps.b), ElementsAre(64, 64));
}

TEST(GemmTensorMaps, SwappedOperandsChangePlaces) {
  GemmSchedule schedule = tile(64, 16);
  schedule.swap_ab = true;
  const GemmTensorMaps maps = maps_of(mlp(), schedule, some_operands());
  EXPECT_EQ(maps.a.address, 0x200000u);
  EXPECT_THAT(box(maps.a), ElementsAre(64, 64));
  EXPECT_EQ(maps.b.address, 0x100000u);
  EXPECT_THAT(box(maps.b), ElementsAre(64, 16));
  EXPECT_FALSE(maps.has_whole) << "a tile has fewer columns than a slab";
  EXPECT_THAT(dims(maps.d_tail), ElementsAre(512, 100));
  EXPECT_THAT(box(maps.d_tail), ElementsAre(16, 16));
}

TEST(GemmTensorMaps, OfBlockScalesHaveARowForEvery128OfK) {
  GemmProblem problem = mlp_of_depth(256, DType::kE4m3, ScaleKind::kPerBlock);
  problem.k = 400;
  GemmTensors tensors = scaled_operands();
  tensors.m = 99;
  const GemmTensorMaps maps = maps_of(problem, tile(128, 128), tensors);
  ASSERT_TRUE(maps.has_scales);
  EXPECT_EQ(maps.scales.dtype, DType::kF32);
  EXPECT_THAT(dims(maps.scales), ElementsAre(99, 4));
  EXPECT_EQ(maps.scales.strides_bytes[0], 100u * 4);
  EXPECT_THAT(box(maps.scales), ElementsAre(128, 1));
  EXPECT_THAT(box(maps.a), ElementsAre(128, 128)) << "128 bytes of k are 128 elements";
}

TEST_F(GemmLaunchTest, PassesSizesStridesAndNumbers) {
  Engine engine(options());
  const GemmKernel kernel = engine.prepare(with_full_epilogue(mlp()), tile(128, 128));
  expect_the_full_epilogue(kernel, operands_of_the_full_epilogue(), 256);
  EXPECT_EQ(launch_config().grid[0], 4u);
  EXPECT_EQ(launch_config().block, 384u);
}

TEST_F(GemmLaunchTest, SwappedLaunchesAreTheKernelsView) {
  Engine engine(options());
  GemmSchedule schedule = tile(64, 32);
  schedule.swap_ab = true;
  engine.prepare(mlp(), schedule).launch(some_operands(), some_stream());
  const GemmParams params = launched();
  EXPECT_EQ(params.m, 512);
  EXPECT_EQ(params.n, 100);
  EXPECT_EQ(launch_config().grid[0], 8u * 4u);
}

TEST_F(GemmLaunchTest, EachRowCountHasItsKernel) {
  Engine engine(options());
  GemmProblem problem = mlp();
  problem.n = 4096;
  problem.k = 4096;
  const GemmKernel kernel = engine.prepare(problem);
  ASSERT_GT(kernel.plan().variants.size(), 1u);
  EXPECT_THAT(kernel.binaries(), SizeIs(kernel.plan().variants.size()));
  GemmTensors tensors = some_operands();
  tensors.b = 0x80000000;
  tensors.d = 0x40000000;
  for (const GemmVariant& variant : kernel.plan().variants) {
    tensors.m = std::min(variant.most_m, 20000);
    kernel.launch(tensors, some_stream());
    EXPECT_EQ(launch_config().shared_bytes, shared_bytes(variant.spec));
    EXPECT_EQ(kernel.key(variant.most_m), kernel.key(tensors.m));
  }
  EXPECT_NE(kernel.key(1), kernel.key(INT_MAX));
}

TEST_F(GemmLaunchTest, ProblemsOfOtherSizesShareKernels) {
  Engine engine(options());
  const GemmSchedule schedule = tile(128, 128);
  GemmProblem other = mlp();
  other.n = 1024;
  other.k = 64;
  EXPECT_EQ(engine.prepare(mlp(), schedule).key(1), engine.prepare(other, schedule).key(1));
  EXPECT_EQ(engine.counters().loads, 1u);
  EXPECT_NE(engine.find(mlp()), engine.find(other));
}

TEST_F(GemmLaunchTest, ByProblemItIsFoundAgain) {
  Engine engine(options());
  engine.gemm(mlp(), some_operands(), some_stream());
  engine.gemm(mlp(), some_operands(), some_stream());
  EXPECT_THAT(device().launches(), SizeIs(2));
  EXPECT_TRUE(engine.find(mlp()));
  GemmProblem another = mlp();
  another.epilogue = "relu(acc)";
  EXPECT_FALSE(engine.find(another));
  another.epilogue = "gelu_tanh(alpha * acc + bias) + beta * c";  // longer than a key has room for
  EXPECT_FALSE(engine.find(another));
  engine.prepare(another);
  EXPECT_TRUE(engine.find(another));
}

TEST_F(GemmLaunchTest, LaunchesAllocateNothing) {
  Engine engine(options());
  const GemmKernel kernel = engine.prepare(mlp());
  kernel.launch(some_operands(), some_stream());
  GemmTensors other = some_operands();
  other.m = 77;
  const int allocated = allocations_of([&] {
    kernel.launch(some_operands(), some_stream());
    kernel.launch(other, some_stream());
  });
  EXPECT_THAT(device().launches(), SizeIs(3));
  EXPECT_EQ(allocated, 0);
}

TEST_F(GemmLaunchTest, NoRowsQueueNothingAndNoDepthReadsAZero) {
  Engine engine(options());
  engine.prepare(mlp()).launch(GemmTensors{}, some_stream());
  EXPECT_THAT(device().launches(), IsEmpty());
  GemmProblem flat = mlp();
  flat.k = 0;
  GemmTensors tensors = some_operands();
  tensors.a = tensors.b = 0;  // empty
  engine.prepare(flat).launch(tensors, some_stream());
  EXPECT_THAT(device().launches(), SizeIs(1));
  EXPECT_EQ(launched().k, 1) << "of which there is one element, and it is zero";
}

TEST_F(GemmLaunchTest, EveryBrokenRuleIsSaidAtOnce) {
  GemmTensors tensors = some_operands();
  tensors.a = 0x100004;
  tensors.a_stride = 257;
  tensors.b = 0;
  tensors.d_stride = 100;
  tensors.bias = 0x700000;
  tensors.sm_budget = -1;
  tensors.alpha = std::numeric_limits<float>::quiet_NaN();
  tensors.beta = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(mlp(), tensors),
              AllOf(HasSubstr("/tensors/a: address 0x100004 is not a multiple of 16; give an aligned one"),
                    HasSubstr("/tensors/a_stride: 257 elements of bf16 put rows off their 16-byte boundaries, from "
                              "where they are copied; pad rows to a multiple of 8"),
                    HasSubstr("/tensors/b: is null; give a device address"),
                    HasSubstr("/tensors/d_stride: 100 is less than the 512 elements of a row"),
                    HasSubstr("/tensors/bias: is given, and nothing reads it"),
                    HasSubstr("/tensors/alpha: nan is not finite"), HasSubstr("/tensors/beta: -inf is not finite"),
                    HasSubstr("/tensors/sm_budget: -1 is negative; 0 takes all SMs")));
}

TEST_F(GemmLaunchTest, StridesThatNoMemoryHasAreRefused) {
  const auto with = [&](std::int64_t GemmTensors::*stride, std::int64_t value) {
    GemmTensors tensors = some_operands();
    tensors.*stride = value;
    return refusal(mlp(), tensors);
  };
  for (const auto& [name, stride, address] :
       {std::tuple("a", &GemmTensors::a_stride, 0x100000), std::tuple("b", &GemmTensors::b_stride, 0x200000),
        std::tuple("d", &GemmTensors::d_stride, 0x400000)}) {
    SCOPED_TRACE(name);
    // With 16 bits each, 2^60 elements are 2^64 bits.
    for (const int power : {54, 60, 62})
      EXPECT_THAT(with(stride, std::int64_t{1} << power),
                  HasSubstr(fmt::format("/tensors/{}_stride: {} elements of bf16 from one row to the next bring", name,
                                        std::int64_t{1} << power)));
    EXPECT_THAT(with(stride, std::numeric_limits<std::int64_t>::min()),
                HasSubstr(fmt::format("/tensors/{}_stride: -9223372036854775808 is less than the", name)));
    EXPECT_THAT(with(stride, std::int64_t{1} << 39),
                HasSubstr(fmt::format("/tensors/{}_stride: brings rows 1099511627776 bytes apart, and tensor maps take "
                                      "less than 1099511627776; pad rows less",
                                      name)));
  }
  EXPECT_EQ(with(&GemmTensors::d_stride, std::int64_t{1} << 38), "nothing was thrown");
  GemmTensors tensors = some_operands();
  tensors.a = ~DevicePtr{0} - 4095;
  EXPECT_THAT(refusal(mlp(), tensors),
              HasSubstr("/tensors/a_stride: 256 elements of bf16 from one row to the next bring 100 rows at "
                        "0xfffffffffffff000 behind what 64-bit addresses reach"));
  GemmProblem residual = mlp();
  residual.epilogue = "acc + c";
  tensors = some_operands();
  tensors.c = 0x800000;
  tensors.c_stride = std::int64_t{1} << 60;
  EXPECT_THAT(refusal(residual, tensors), HasSubstr("/tensors/c_stride: 1152921504606846976 elements of bf16"));

  const GemmProblem scaled = mlp_of_depth(256, DType::kE4m3, ScaleKind::kPerBlock);
  tensors = scaled_operands();
  tensors.scale_a_stride = std::int64_t{1} << 62, tensors.scale_b_stride = std::int64_t{1} << 61;
  EXPECT_THAT(
      refusal(scaled, tensors),
      AllOf(HasSubstr("/tensors/scale_a_stride: 4611686018427387904 brings 2 rows of scales at 0x500000 behind"),
            HasSubstr("/tensors/scale_b_stride: 2305843009213693952 brings 4 rows of scales at 0x600000")));
}

TEST_F(GemmLaunchTest, TheStrideOfOneRowOfScalesIsNobodys) {
  const GemmProblem scaled = mlp_of_depth(128, DType::kE4m3, ScaleKind::kPerBlock);  // one block
  GemmTensors tensors = scaled_operands();
  tensors.scale_a_stride = std::int64_t{1} << 40;
  EXPECT_EQ(refusal(scaled, tensors), "nothing was thrown");
  const GemmParams params = launched();
  EXPECT_LT(device().tensor_map(&params.scales).strides_bytes[0], std::uint64_t{1} << 40);
}

TEST_F(GemmLaunchTest, OverlapsAreRefused) {
  GemmTensors tensors = some_operands();
  tensors.d = tensors.a + 1024;
  EXPECT_THAT(refusal(mlp(), tensors), HasSubstr("/tensors/d: overlaps a, which is still read while d is written"));
  tensors = some_operands();
  tensors.d = tensors.b - 100 * 512 * 2 + 16;
  EXPECT_THAT(refusal(mlp(), tensors), HasSubstr("/tensors/d: overlaps b"));
  tensors.d = tensors.b - 100 * 512 * 2;
  EXPECT_EQ(refusal(mlp(), tensors), "nothing was thrown") << "side by side";
  GemmProblem residual = mlp();
  residual.epilogue = "acc + c";
  tensors.c = tensors.d;
  EXPECT_EQ(refusal(residual, tensors), "nothing was thrown") << "in place";
  tensors.c = tensors.d + 16;
  EXPECT_THAT(refusal(residual, tensors), HasSubstr("/tensors/d: overlaps c without being it"));
}

TEST_F(GemmLaunchTest, ScalesHaveTheirRules) {
  GemmProblem problem = mlp_of_depth(256, DType::kE4m3, ScaleKind::kPerBlock);
  GemmTensors tensors = some_operands();
  tensors.scale_a = 0x500004;
  tensors.scale_a_stride = 98;
  tensors.scale_b_stride = 1;
  EXPECT_THAT(
      refusal(problem, tensors),
      AllOf(HasSubstr("/tensors/scale_b: is null, and the operands have scales"),
            HasSubstr("/tensors/scale_a_stride: 98 does not hold 100 rows of a in a multiple of 4; 100 would do"),
            HasSubstr("/tensors/scale_a: address 0x500004 is not a multiple of 16"),
            HasSubstr("/tensors/scale_b_stride: 1 is less than the 2 blocks of 128 that k = 256 has")));
}

TEST_F(GemmLaunchTest, PartsOfKInTurnHaveTheirWordsClearedAheadOfThem) {
  Engine engine(options());
  GemmSchedule schedule = tile(128, 128);
  schedule.split_k = 3;
  schedule.split_mode = SplitMode::kTurnstile;
  const GemmKernel kernel = engine.prepare(mlp(), schedule);
  GemmTensors tensors = some_operands();
  constexpr std::uint64_t kTiles = 4, kZeros = 16 + kTiles * 8 * 4, kBytes = kZeros + kTiles * 128 * 128 * 4;
  EXPECT_EQ(kernel.workspace_bytes(tensors.m), kBytes);
  tensors.sm_budget = 8;
  EXPECT_THAT(
      message_of<ConfigError>([&] { kernel.launch(tensors, some_stream()); }),
      AllOf(HasSubstr("/tensors/workspace: 0 bytes are given and " + std::to_string(kBytes) +
                      " are needed to add 3 parts of k; see GemmKernel::workspace_bytes()"),
            HasSubstr("/tensors/sm_budget: is 8, and the kernel for 100 rows takes all SMs, for parts of k wait "
                      "for each other; 0, or a schedule with split_k 1, would do")));
  tensors.sm_budget = 0;
  expect_a_cleared_turnstile(kernel, tensors, kZeros);
  EXPECT_EQ(launch_config().grid[0], 3u * kTiles);
  EXPECT_EQ(launch_config().cluster[0], 1u);
}

TEST_F(GemmLaunchTest, RowsEndATileBeforeThirtyTwoBitsDo) {
  Engine engine(options());
  GemmSchedule portable;
  portable.family = Family::kPortable;
  portable.block_m = portable.block_n = 64;
  GemmSchedule pairs = tile(128, 128);
  pairs.cluster = ClusterShape{2, 1};
  GemmSchedule swapped = tile(64, 32);
  swapped.swap_ab = true;
  const std::pair<GemmSchedule, int> cases[] = {{tile(128, 128), 128}, {pairs, 256}, {swapped, 32}, {portable, 64}};
  for (const auto& [schedule, rows] : cases) {
    GemmProblem narrow = mlp();
    narrow.n = 64;
    const GemmKernel kernel = engine.prepare(narrow, schedule);
    const int most = INT_MAX - rows + 1;
    kernel.launch(far_apart(most), some_stream());
    for (const int m : {most + 1, INT_MAX})
      EXPECT_THAT(message_of<ConfigError>([&] { kernel.launch(far_apart(m), some_stream()); }),
                  HasSubstr(fmt::format("/tensors/m: {} is more than {} rows, 2^31 less those of a cluster's tiles, to "
                                        "which the kernel counts in 32 bits",
                                        m, most)));
  }
  EXPECT_THAT(device().launches(), SizeIs(std::size(cases)));
}

TEST_F(GemmLaunchTest, TilesAreNoMoreThanKernelsCount) {
  Engine engine(options());
  GemmProblem wide = mlp();
  wide.n = 1 << 24;
  wide.k = 8;
  GemmSchedule portable;
  portable.family = Family::kPortable;
  portable.block_m = portable.block_n = 64;
  for (const GemmSchedule& schedule : {tile(64, 64), portable}) {
    const GemmKernel kernel = engine.prepare(wide, schedule);
    kernel.launch(far_apart(64 << 10), some_stream());
    EXPECT_THAT(message_of<ConfigError>([&] { kernel.launch(far_apart((64 << 10) + 1), some_stream()); }),
                HasSubstr("/tensors/m: 65537 rows and 16777216 columns are 268697600 tiles of 64 x 64, and a launch "
                          "has at most 268435456"));
  }
  GemmSchedule parts = tile(64, 128);
  parts.split_k = 2;
  const GemmKernel kernel = engine.prepare(wide, parts);
  kernel.launch(far_apart(64 << 10), some_stream());
  EXPECT_THAT(message_of<ConfigError>([&] { kernel.launch(far_apart((64 << 10) + 1), some_stream()); }),
              HasSubstr("are 268697600 tiles of 64 x 128 in 2 parts of k, and"));
}

TEST_F(GemmLaunchTest, SizesOfAProblemAreFarFromThirtyTwoBits) {
  Engine engine(options());
  GemmProblem large = mlp();
  large.n = (1 << 24) + 8;
  large.k = (1 << 24) + 8;
  EXPECT_THAT(message_of<ConfigError>([&] { engine.prepare(large); }),
              AllOf(HasSubstr("/problem/n: 16777224"), HasSubstr("/problem/k: 16777224")));
}

TEST(GemmNotes, NameRolesAndMemory) {
  const GemmSpec spec = plan_gemm(mlp(), tile(128, 128), Arch::kSm90a).variants[0].spec;
  const KernelNotes notes = notes_of(spec);
  ASSERT_THAT(notes.roles, SizeIs(3));
  EXPECT_EQ(notes.roles[0].name, "load");
  EXPECT_EQ(notes.roles[2].name, "math 1");
  ASSERT_GE(notes.shared.size(), 4u);
  EXPECT_EQ(notes.shared[0].name, "A");
  EXPECT_EQ(notes.shared[0].stage_bytes, 128u * 128);
  EXPECT_EQ(notes.shared.back().offset + notes.shared.back().bytes, shared_bytes(spec));
}

}  // namespace
}  // namespace kernelwright::test::launch_test
