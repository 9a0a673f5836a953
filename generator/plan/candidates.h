/// The schedules worth measuring for a problem. Each kernel family names the values worth trying of each of its fields;
/// the planner itself judges every combination, so that nothing here knows what fits; and an estimate cuts what cannot
/// be fast. A new family is one function and one line of the table in candidates.cpp.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

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

/// The portable family's.
AxisSets portable_axes(const AttentionProblem& problem, const ArchInfo& arch);
/// The hopper family's.
AxisSets hopper_axes(const AttentionProblem& problem, const ArchInfo& arch);
/// The blackwell family's.
AxisSets blackwell_axes(const AttentionProblem& problem, const ArchInfo& arch);

template <class KindOfConfig>
struct CandidateOf {
  ScheduleOf<KindOfConfig> schedule;  // the fields that were given, the family and every field that was varied
  PlanOf<KindOfConfig> plan;
  double cost = 0;          // estimated: schedule_cost(), or microseconds of a GEMM
  double predicted_us = 0;  // by order_by_timeline(): the geometric mean over shapes; 0 where there is no model
};
using Candidate = CandidateOf<AttentionConfig>;
using GemmCandidate = CandidateOf<GemmConfig>;

struct CandidateOptions {
  int num_sms = 0;                  // 0: arch_info().typical_sms
  std::optional<std::size_t> most;  // kept; 0: all. 64, of a GEMM 32
  std::optional<double> within;     // kept if the estimate is at most so many times the least: 2, of a GEMM 1.3
};

template <class KindOfConfig>
struct CandidateList {
  std::vector<CandidateOf<KindOfConfig>> kept;  // the model's own choice first, the others by estimate; of those within
                                                // a fifth, those that differ from the model's choice in fewer fields
  std::size_t tried = 0;                        // combinations
  std::size_t infeasible = 0;                   // of those: refused by the planner
  std::size_t same = 0;                         // of those: another combination gives the same kernel
  std::size_t cut = 0;                          // of those: by the estimate
};
using Candidates = CandidateList<AttentionConfig>;
using GemmCandidates = CandidateList<GemmConfig>;

/// Every feasible schedule of the families that run on `arch`. The fields that `schedule` gives stay as they are.
/// `shapes` are those that will be measured; the estimate is the geometric mean over them. Throws ConfigError if the
/// model itself finds no kernel.
Candidates enumerate_candidates(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                                const std::vector<AttentionShape>& shapes, const CandidateOptions& options = {});

/// Schedules of one kernel for launches of one range of rows (gemm_row_range()), which `shapes` are of: each tile that
/// the planner knows of the family that serves the problem, and what differs from one of them in a single field. The
/// fields that `schedule` gives stay as they are; fields that the family does not have are auto. Where `shapes` are of
/// several ranges the model's choice is that for the most rows. Throws ConfigError if the model itself finds no kernel.
GemmCandidates enumerate_candidates(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch,
                                    const std::vector<GemmShape>& shapes, const CandidateOptions& options = {});

/// Puts `kept` in the order of predicted times (predicted.h), so that a budget that ends early has been spent on the
/// likeliest. None is left out; the first, the model's own choice, stays first; those that no timeline is known of keep
/// their places.
void order_by_timeline(std::vector<Candidate>& kept, const AttentionProblem& problem,
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
