/// Inside of the generator: the work of the timeline's roles. It has the items of a launch, and those of the SM that
/// has most of them.
#pragma once

#include <vector>

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright::detail {

/// A query tile of one head, or a part of its keys.
struct TimelineItem {
  int tiles = 0;   // key tiles
  int masked = 0;  // tiles that some row sees in part; they come first, those of a window's far end last
  int rows = 0;    // rows that exist
};

struct TimelineWork {
  std::vector<TimelineItem> walk;  // of the SM that has most, in its order; if an SM holds several CTAs, of one of them
  double items = 0, tiles = 0;     // of the launch
  double even_tiles = 0;           // tiles of an SM if all SMs had the same number
  double walk_tiles = 0;           // tiles of the walk
  double repeats = 1;              // how many such walks the SM has, one after another
  double operations = 0;
  double q_bytes = 0, o_bytes = 0;
  double kv_bytes = 0;       // bytes that some query sees, each counted once
  double fetched_bytes = 0;  // bytes of K and V that the SMs request
};

/// `sms` take the items in the way of the Spec's scheduler; an SM holds `at_once` CTAs.
TimelineWork timeline_work(const AttentionSpec& spec, const AttentionProblem& problem, const AttentionShape& shape,
                           const AttentionLaunch& launch, int sms, int at_once);

/// The extent of a shape, for plan_launch().
AttentionExtent extent_of(const AttentionProblem& problem, const AttentionShape& shape);

}  // namespace kernelwright::detail
