// GEMMs on the GPU, of groups, of batches and dense, with gates and without: random problems, bounds and tiles against
// the dense product of each group, weights of more than 2^31 elements, new bounds under the same arguments, and bad
// bounds. Skipped by name if there is no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/validate.h"
#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"
#include "kernelwright/verify/random.h"
#include "support/cuda_engine.h"

namespace kernelwright {
namespace {

constexpr int kRepeats = 20;

class GroupsOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!engine()) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  }
  static Engine* engine() { return test::CudaEngine::get().engine.get(); }

  /// One launch against the reference, then repeats, some with few SMs: the bits must stay.
  void run(const GemmCase& call, const GemmSchedule& schedule, int repeats) {
    const GemmKernel kernel = engine()->prepare(call.problem, schedule);
    GemmDeviceCase on_device(engine()->device(0), call, kernel);
    on_device.poison();
    on_device.launch();
    const GemmOutput output = on_device.download();
    EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside the groups' rows was written";
    EXPECT_EQ(on_device.status(), 0);
    const GemmVerdict verdict = verify(call, output, {.budget_operations = 5e8});
    EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio;
    for (int i = 1; i < repeats; ++i) {
      on_device.tensors().sm_budget = i % 3 == 1 ? 1 + i * 7 % 100 : 0;
      on_device.poison();
      on_device.launch();
      ASSERT_EQ(on_device.download(), output) << "run " << i << " of " << repeats;
    }
  }
};

/// Draws one of a list, or a number below another one.
struct Draw {
  Random random;
  int below(int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); }
  template <class List>
  auto one_of(const List& list) {
    return list[below(static_cast<int>(std::size(list)))];
  }
};

/// A random problem of groups, or one in six dense, with a tile of Hopper's kernel or the portable one.
GemmProblem draw_problem(Draw& draw) {
  constexpr GroupBounds kBounds[] = {GroupBounds::kStarts, GroupBounds::kEnds, GroupBounds::kCounts};
  constexpr int kCounts[] = {1, 2, 3, 8, 32, 60, 128, 300, 1000}, kColumns[] = {16, 72, 136, 512, 1000, 1536};
  constexpr int kDepths[] = {16, 128, 272, 1024, 2048};
  constexpr ScaleKind kScales[] = {ScaleKind::kPerBlock, ScaleKind::kPerToken, ScaleKind::kPerTensor};
  constexpr const char* kEpilogues[] = {"acc", "acc", "acc + bias", "silu(acc)", "alpha * acc + bias + beta * c"};
  constexpr const char* kGates[] = {"silu(gate) * up", "gelu_tanh(gate + bias) * (up + bias)",
                                    "(clamp(up, -5, 5) + 1) * min(gate, 5) * sigmoid(1.5 * min(gate, 5))"};
  GemmProblem problem;
  const bool fp8 = draw.below(2) == 0;
  problem.n = draw.one_of(kColumns), problem.k = draw.one_of(kDepths);
  problem.dtype.a = problem.dtype.b = fp8 ? DType::kE4m3 : draw.below(4) == 0 ? DType::kF16 : DType::kBf16;
  if (fp8) problem.scales = draw.one_of(kScales);
  if (!fp8 && draw.below(4) == 0) problem.layout = OperandLayout::kNn;
  const bool gates = draw.below(3) == 0;
  problem.epilogue = gates ? draw.one_of(kGates) : draw.one_of(kEpilogues);
  if (gates) problem.n = problem.n / 16 * 16;
  if (draw.below(5) == 0) problem.dtype.d = DType::kF32;
  problem.groups.bounds = draw.one_of(kBounds);
  problem.groups.kind = problem.groups.bounds == GroupBounds::kCounts ? GroupKind::kMasked : GroupKind::kRows;
  constexpr std::int64_t kMostWeights = 30'000'000;  // which the host draws and rounds
  do problem.groups.count = draw.one_of(kCounts);
  while (std::int64_t{problem.groups.count} * problem.n * problem.k > kMostWeights);
  problem.groups.gather = draw.below(3) == 0;
  problem.groups.scatter = draw.below(3) == 0;
  problem.groups.pointers = draw.below(3) == 0;
  if (draw.below(5) == 0) problem.groups = {.kind = GroupKind::kBatch, .count = problem.groups.count};
  if (!fp8 && draw.below(5) == 0) {
    problem.layout = OperandLayout::kTn;
    problem.groups = {.kind = GroupKind::kK, .count = problem.groups.count};
  }
  if (draw.below(6) == 0) problem.groups = {};  // dense
  return problem;
}
GemmSchedule draw_tile(Draw& draw, const GemmProblem& problem) {
  GemmSchedule schedule;
  constexpr int kTokens[] = {8, 16, 24, 32, 64, 72, 128, 256};
  if (draw.below(6) == 0) {
    schedule.family = Family::kPortable;
    schedule.block_m = 16 << draw.below(4), schedule.block_n = 64;
    return schedule;
  }
  schedule.family = Family::kHopper;
  const bool slices = problem.groups.slices_k();
  schedule.swap_ab = draw.below(2) == 0 && !slices;
  schedule.roles = draw.below(2) == 0 || slices ? Roles::kCooperative : Roles::kPingPong;
  schedule.math_warpgroups = 2;
  schedule.block_m = schedule.roles == Roles::kCooperative ? 128 : 64;
  schedule.block_n = schedule.swap_ab.value() ? draw.one_of(kTokens) : 64 << draw.below(2);
  if (!schedule.swap_ab.value() && !problem.groups.gather && !problem.groups.pointers && !slices && draw.below(3) == 0)
    schedule.cluster = ClusterShape{2, 1};
  return schedule;
}
GemmShape draw_shape(Draw& draw, const GemmProblem& problem) {
  constexpr RowSkew kSkews[] = {RowSkew::kEven, RowSkew::kUniform, RowSkew::kZipf, RowSkew::kOne};
  GemmShape shape{"drawn"};
  const int each = 1 + draw.below(draw.below(2) == 0 ? 20 : 300);
  shape.m = problem.groups.is_even() ? problem.groups.count * std::min(each, 100)
                                     : std::min(8000, problem.groups.count * each);
  if (problem.groups.is_batch()) return shape;
  shape.skew = draw.one_of(kSkews);
  if (problem.groups.slices_k()) {
    shape.m = problem.groups.count * 8 * (1 + draw.below(20));
    shape.source_rows = std::min(8000, problem.groups.count * each);
  }
  shape.rows = 1 + draw.below(rows_of_bounds(problem, shape));
  if (draw.below(3) == 0) shape.active = 1 + draw.below(problem.groups.count);
  if (problem.groups.gather) shape.source_rows = 1 + draw.below(shape.m);
  if (problem.groups.scatter) shape.result_rows = 1 + draw.below(2 * shape.m);
  return shape;
}

/// Whether the tile is one that the family has: a plan refuses others by name.
bool has_tile(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch) {
  if (!validate(GemmConfig{"drawn", problem, schedule, {}}, arch).empty()) return false;
  try {
    plan_by_model(problem, schedule, arch);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

class RandomGroupsOnCuda : public GroupsOnCuda, public testing::WithParamInterface<int> {};

TEST_P(RandomGroupsOnCuda, AreRightAndRepeatToTheBit) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  Draw draw{Random(seed, 41)};
  GemmProblem problem;
  GemmSchedule schedule;
  do {
    problem = draw_problem(draw);
    schedule = draw_tile(draw, problem);
  } while (!has_tile(problem, schedule, engine()->device(0).info().arch.value()));
  for (int i = 0; i < 4; ++i) {
    const GemmShape shape = draw_shape(draw, problem);
    SCOPED_TRACE(fmt::format("{} groups, {} rows of {}, {} x {}", problem.groups.count, shape.rows, shape.m, problem.n,
                             problem.k));
    const GemmInputOptions options{.seed = seed, .padding = seed % 3 == 0 ? 3 : 0, .side_by_side = draw.below(2) == 0};
    run(make_gemm_inputs(problem, shape, options), schedule, i == 0 ? kRepeats : 3);
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGroupsOnCuda, testing::Range(0, 80));

/// A call of two groups, whose matrices become the first and the last of `count` on the device. No other group has
/// rows.
TEST_F(GroupsOnCuda, OfWeightsPast2To31Elements) {
  constexpr int kCount = 300;
  GemmProblem problem;
  problem.n = 2048, problem.k = 4096;
  problem.dtype.a = problem.dtype.b = DType::kE4m3;
  problem.groups = {GroupKind::kRows, 2, GroupBounds::kStarts};
  GemmShape shape{"large", 200};
  shape.group_rows = {90, 110};
  const GemmCase two = make_gemm_inputs(problem, shape, {.seed = 3, .exact = true});
  GemmCase many = two;
  many.problem.groups.count = kCount;
  many.bounds.assign(kCount + 1, 90);
  many.bounds.front() = 0, many.bounds.back() = 200;
  const std::size_t matrix = std::size_t{2048} * 4096;
  ASSERT_GT(matrix * kCount, std::size_t{1} << 31);
  many.b.rows = problem.n * kCount;

  Device& device = engine()->device(0);
  const DevicePtr weights = device.allocate(matrix * kCount);
  device.copy_to_device(weights, two.b.bytes.data(), matrix);
  device.copy_to_device(weights + matrix * (kCount - 1), two.b.bytes.data() + matrix, matrix);
  {
    GemmDeviceCase on_device(device, many, engine()->prepare(many.problem));
    on_device.tensors().b = weights;
    on_device.poison();
    on_device.launch();
    const GemmVerdict verdict = verify(two, on_device.download(), {.budget_operations = 1e9});
    EXPECT_TRUE(verdict.passed) << verdict.text;
    EXPECT_EQ(on_device.status(), 0);
  }
  device.free(weights);
}

TEST_F(GroupsOnCuda, BadBoundsFaultNothing) {
  GemmProblem problem;
  problem.n = 512, problem.k = 512;
  problem.groups = {GroupKind::kRows, 3, GroupBounds::kStarts};
  GemmShape shape{"bad", 4000};
  GemmCase call = make_gemm_inputs(problem, shape, {.seed = 3});
  std::fill(call.bounds.begin(), call.bounds.end(), 0);
  for (const std::vector<std::int32_t>& bounds : {std::vector<std::int32_t>{0, 100, 50, 4000},
                                                  {-5, 10, 20, 30},
                                                  {0, 1, 2, 4001},
                                                  {0, 2000000000, -2000000000, 1}}) {
    GemmDeviceCase on_device(engine()->device(0), call, engine()->prepare(problem));
    engine()->device(0).copy_to_device(on_device.tensors().bounds, bounds.data(), bounds.size() * 4);
    on_device.poison();
    on_device.launch();
    EXPECT_TRUE(on_device.guards_are_intact());
    EXPECT_EQ(on_device.status(), 1);
  }
}

}  // namespace
}  // namespace kernelwright
