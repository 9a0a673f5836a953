/// The attention schedules worth measuring for a problem. Each kernel family names the values worth trying of each of
/// its fields. An estimate removes schedules that cannot be fast.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/plan/candidates.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/config.h"

namespace kernelwright {

/// The values worth trying of one field.
struct Axis {
  std::string field;
  std::vector<std::function<void(AttentionSchedule&)>> values;
};

template <class T>
Axis axis(const char* field, Auto<T> AttentionSchedule::*member, std::vector<T> values) {
  Axis result{field, {}};
  for (const T& value : values)
    result.values.push_back([member, value](AttentionSchedule& schedule) { schedule.*member = value; });
  return result;
}

/// What a family's function returns: axes, in sets. Every combination of a set's axes is tried. Forms that share no
/// values, such as prefill and decode, have sets of their own.
using AxisSets = std::vector<std::vector<Axis>>;

using Candidate = CandidateOf<AttentionConfig>;
using Candidates = CandidateList<AttentionConfig>;

/// Every feasible schedule of the families that run on `arch`. The fields that `schedule` gives stay as they are.
/// `shapes` are the shapes that will be measured; the estimate is the geometric mean over them. Throws ConfigError if
/// the model itself finds no kernel.
Candidates enumerate_candidates(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                                const std::vector<AttentionShape>& shapes, const CandidateOptions& options = {});

/// Puts `kept` in the order of predicted times (predicted.h), so that a budget that ends early was spent on the
/// likeliest. No candidate is removed. The first one, the model's own choice, stays first. Candidates without a model
/// keep their places.
void order_by_prediction(std::vector<Candidate>& kept, const AttentionProblem& problem,
                         const std::vector<AttentionShape>& shapes);

/// An estimate that ranks schedules of one problem, in arbitrary units: the work of the SM that has most of it. It
/// counts rows and keys that only pad the last tile, and the last wave of CTAs. It also counts latencies that an SM
/// cannot hide. To hide them, an SM needs eight warps that multiply or, where bytes decide, 40 KB of keys and values in
/// flight. CTAs per SM follow from shared memory and threads, because registers are not known before ptxas has run. The
/// estimate knows nothing of instructions or bank conflicts. A factor of two between estimates means something, a tenth
/// does not.
double schedule_cost(const AttentionPlan& plan, const AttentionProblem& problem, const AttentionShape& shape,
                     int num_sms);

/// `schedule` with the values that `plan` gave to `fields`, where the Spec has a field of that name and type.
AttentionSchedule with_values_of(const AttentionPlan& plan, AttentionSchedule schedule,
                                 const std::vector<std::string>& fields);

}  // namespace kernelwright
