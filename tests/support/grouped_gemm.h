/// Problems and shapes of groups, and the checks of what a launch of them is given, for every family.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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
