/// Problems and shapes of groups, and the checks of what a launch of them is given, for every family.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/checked_gemm.h"

namespace kernelwright::test {

/// Groups of kind masked if their bounds are counts, else of kind rows.
inline GemmProblem grouped(GemmProblem problem, GroupBounds bounds, int count) {
  problem.groups.kind = bounds == GroupBounds::kCounts ? GroupKind::kMasked : GroupKind::kRows;
  problem.groups.bounds = bounds;
  problem.groups.count = count;
  return problem;
}
/// As `problem`, with rows of a gathered.
inline GemmProblem gathering(GemmProblem problem) {
  problem.groups.gather = true;
  return problem;
}
/// Rows are gathered from `sources` of them.
inline GemmShape from(GemmShape shape, int sources) {
  shape.source_rows = sources;
  return shape;
}
inline GemmShape rows_of(std::vector<int> group_rows, int m) {
  GemmShape shape{"groups", m, true};
  shape.group_rows = std::move(group_rows);
  return shape;
}

inline GemmProblem batched(GemmProblem problem, int count) {
  problem.groups.kind = GroupKind::kBatch;
  problem.groups.count = count;
  return problem;
}
/// A batch of bf16 products.
inline GemmProblem plain_batch(int count, int n = 72, int k = 104) {
  return batched(gemm_problem(DType::kBf16, DType::kBf16, n, k), count);
}
/// Of kind k: each group has slices of a and b along k.
inline GemmProblem sliced(int count, int n = 72, GroupBounds bounds = GroupBounds::kStarts) {
  GemmProblem problem = gemm_problem(DType::kBf16, DType::kBf16, n, 64);
  problem.layout = OperandLayout::kTn;
  problem.groups.kind = GroupKind::kK;
  problem.groups.count = count;
  problem.groups.bounds = bounds;
  return problem;
}
/// `rows`: of a and b.
inline GemmShape slices_of(std::vector<int> group_rows, int rows_of_d, int rows) {
  GemmShape shape{"slices", rows_of_d * static_cast<int>(group_rows.size()), true};
  shape.group_rows = std::move(group_rows);
  shape.source_rows = rows;
  return shape;
}

/// A batch twice: groups behind each other, and side by side. Both give the same bits.
inline void expect_batch_right(Engine& engine, const GemmProblem& problem, int rows, const GemmSchedule& schedule,
                               int padding = 0) {
  const GemmShape shape{"batch", rows * problem.groups.count, true};
  GemmCase call = make_gemm_inputs(problem, shape, {.seed = 5, .padding = padding});
  const GemmOutput behind = run_checked(engine, call, schedule);
  expect_right(call, behind);
  call.side_by_side = true;
  EXPECT_EQ(run_checked(engine, call, schedule), behind) << "groups side by side";
}

/// Slices without rows give zeros, from null operands too.
inline void expect_zeros_without_rows(Engine& engine, const GemmSchedule& schedule) {
  GemmCase call = make_gemm_inputs(sliced(2), slices_of({0, 0}, 24, 16), {.seed = 5});
  std::fill(call.bounds.begin(), call.bounds.end(), 0);
  const GemmOutput output =
      run_checked(engine, call, schedule, [](GemmTensors& t) { t.a = t.b = 0, t.source_rows = 0; });
  EXPECT_TRUE(std::all_of(output.d.begin(), output.d.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

/// Products of slices are added to f32 sums, in a matrix of their own or in place.
inline void expect_slices_add_to_gradients(Engine& engine, const GemmSchedule& schedule) {
  GemmProblem problem = sliced(3);
  problem.dtype.d = problem.dtype.c = DType::kF32;
  problem.epilogue = "alpha * acc + beta * c";
  const GemmCase call = make_gemm_inputs(problem, slices_of({20, 0, 70}, 40, 90), {.seed = 5});
  const GemmOutput apart = run_checked(engine, call, schedule);
  expect_right(call, apart);
  GemmDeviceCase in_place(engine.device(0), call, engine.prepare(problem, schedule));
  in_place.accumulate_in_place();
  in_place.poison();
  in_place.launch();
  EXPECT_EQ(in_place.download(), apart);
  expect_no_reports(engine);
}

/// A slice's result depends neither on the number of SMs nor on other slices.
inline void expect_slices_stand_alone(Engine& engine, const GemmSchedule& schedule, int sm_budget) {
  GemmCase call = make_gemm_inputs(sliced(3), slices_of({50, 60, 70}, 136, 200), {.seed = 3});
  const GemmOutput all = run_checked(engine, call, schedule);
  EXPECT_EQ(run_checked(engine, call, schedule, [&](GemmTensors& tensors) { tensors.sm_budget = sm_budget; }), all);
  call.bounds[1] = call.bounds[0];  // the first slice is empty, and the second one longer
  const GemmOutput changed = run_checked(engine, call, schedule);
  expect_right(call, changed);
  const auto last = static_cast<std::ptrdiff_t>(all.d.size() / 3 * 2);
  EXPECT_TRUE(std::equal(all.d.begin() + last, all.d.end(), changed.d.begin() + last));
}

/// Bad bounds of slices set the status, and nothing is written.
inline void expect_bad_slices_are_refused(Engine& engine, const GemmSchedule& schedule) {
  const std::vector<std::int32_t> cases[] = {{0, 20, 10, 40}, {-1, 20, 30, 40}, {0, 20, 30, 61}};
  for (const std::vector<std::int32_t>& bounds : cases) {
    SCOPED_TRACE(testing::PrintToString(bounds));
    const GemmCase call = make_gemm_inputs(sliced(3), slices_of({20, 10, 15}, 24, 60), {.seed = 5});
    GemmDeviceCase on_device(engine.device(0), call, engine.prepare(call.problem, schedule));
    engine.device(0).copy_to_device(on_device.tensors().bounds, bounds.data(), bounds.size() * 4);
    on_device.poison();
    const GemmOutput before = on_device.download();
    on_device.launch();
    EXPECT_EQ(on_device.download(), before);
    EXPECT_TRUE(on_device.guards_are_intact());
    EXPECT_EQ(on_device.status(), 1);
    expect_no_reports(engine);
  }
}

/// Indices past the source stand for rows of zeros, as -1 does. `problem`: two groups that gather.
inline void expect_zeros_past_the_source(Engine& engine, const GemmProblem& problem, const GemmSchedule& schedule) {
  GemmCase call = make_gemm_inputs(problem, from(rows_of({20, 30}, 50), 8), {.seed = 5});
  std::vector<std::int32_t> given = call.gather;
  given[3] = 8, given[21] = 2147483647, given[40] = -2147483647 - 1;
  for (const std::size_t row : {3, 21, 40}) call.gather[row] = -1;
  GemmDeviceCase on_device(engine.device(0), call, engine.prepare(call.problem, schedule));
  engine.device(0).copy_to_device(on_device.tensors().gather, given.data(), given.size() * 4);
  on_device.poison();
  on_device.launch();
  expect_right(call, on_device.download());
  expect_no_reports(engine);
}

/// A launch with `bounds`, which are bad, sets the status and writes nothing. `problem`: three groups.
inline void expect_bad_bounds_are_refused(Engine& engine, const GemmProblem& problem, const GemmSchedule& schedule,
                                          const std::vector<std::int32_t>& bounds) {
  GemmCase none = make_gemm_inputs(problem, rows_of({20, 10, 15}, 60), {.seed = 5});
  std::fill(none.bounds.begin(), none.bounds.end(), 0);  // as which the output is judged: no group has rows
  GemmDeviceCase on_device(engine.device(0), none, engine.prepare(problem, schedule));
  engine.device(0).copy_to_device(on_device.tensors().bounds, bounds.data(), bounds.size() * 4);
  on_device.poison();
  on_device.launch();
  EXPECT_TRUE(on_device.guards_are_intact()) << "something was written";
  EXPECT_EQ(on_device.status(), 1);
  expect_no_reports(engine);
}

}  // namespace kernelwright::test
