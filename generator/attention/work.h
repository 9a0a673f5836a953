/// Inside of the generator: what the timeline's roles work on. The items of a launch, and those that fall to the SM
/// that has most of them.
#pragma once

#include <vector>

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright::detail {

/// A query tile of one head, or a part of its keys.
struct TimelineItem {
  int tiles = 0;   // of keys
  int masked = 0;  // of those, that some row sees in part; they come first, those of a window's far end last
  int rows = 0;    // that exist
};

struct TimelineWork {
  std::vector<TimelineItem> walk;  // of the SM that has most, in its order; with several CTAs an SM, of one of them
  double items = 0, tiles = 0;     // of the launch
  double even_tiles = 0;           // those that each SM would have if all had the same
  double walk_tiles = 0;           // of the walk
  double repeats = 1;              // the walk stands for so many of its kind, one after another
  double operations = 0;
  double q_bytes = 0, o_bytes = 0;
  double kv_bytes = 0;       // seen by some query, each once
  double fetched_bytes = 0;  // K and V as the SMs ask for them
};

/// `sms` take the items as the Spec's scheduler has it; `at_once`: CTAs that an SM holds.
TimelineWork timeline_work(const AttentionSpec& spec, const AttentionProblem& problem, const AttentionShape& shape,
                           const AttentionLaunch& launch, int sms, int at_once);

/// The extent of a shape, for plan_launch().
AttentionExtent extent_of(const AttentionProblem& problem, const AttentionShape& shape);

}  // namespace kernelwright::detail
