/// The attention schedules worth measuring for a problem. Each kernel family names the values worth trying of each of
/// its fields, and an estimate cuts what cannot be fast.
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

/// What a family's function gives: the axes whose every combination is tried, in sets. Sets keep apart what shares no
/// values: prefill and decode forms, say.
using AxisSets = std::vector<std::vector<Axis>>;

using Candidate = CandidateOf<AttentionConfig>;
using Candidates = CandidateList<AttentionConfig>;

/// Every feasible schedule of the families that run on `arch`. The fields that `schedule` gives stay as they are.
/// `shapes` are those that will be measured; the estimate is the geometric mean over them. Throws ConfigError if the
/// model itself finds no kernel.
Candidates enumerate_candidates(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                                const std::vector<AttentionShape>& shapes, const CandidateOptions& options = {});

/// Puts `kept` in the order of predicted times (predicted.h), so that a budget that ends early has been spent on the
/// likeliest. None is left out; the first, the model's own choice, stays first; those that no timeline is known of keep
/// their places.
void order_by_prediction(std::vector<Candidate>& kept, const AttentionProblem& problem,
                         const std::vector<AttentionShape>& shapes);

/// An estimate that ranks schedules of one problem, in arbitrary units: the work of the SM that has the most of it. It
/// knows what is lost to rows and keys that pad the last tile, to the last wave of CTAs, and to an SM that holds too
/// little to hide its latencies: fewer than eight warps that multiply or, where bytes decide, fewer than 40 KB of keys
/// and values on their way. CTAs an SM follow from shared memory and threads; registers are not known before ptxas has
/// spoken. It knows nothing of instructions or bank conflicts: a factor of two between estimates means something, a
/// tenth does not.
double schedule_cost(const AttentionPlan& plan, const AttentionProblem& problem, const AttentionShape& shape,
                     int num_sms);

/// `schedule` with the values that `plan` gave to `fields`, where the Spec has a field of that name and type.
AttentionSchedule with_values_of(const AttentionPlan& plan, AttentionSchedule schedule,
                                 const std::vector<std::string>& fields);

}  // namespace kernelwright
