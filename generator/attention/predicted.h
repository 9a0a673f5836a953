/// Predicted speed. Of an attention kernel, an analytical timeline: the roles of one CTA are followed key tile by key
/// tile as a recurrence of events (scores ready, probabilities ready, output added, slot free), on the SM that has most
/// to do, with the rates of machine_rates.h. Arithmetic only, the same on every machine; 10 us to a few ms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/plan/machine_rates.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

/// What one of the machine's units would take if nothing else had to be waited for.
struct TimelineTerm {
  std::string name;  // "products", "exponentials", ...
  double microseconds = 0;
  std::string of;  // what it counts
};

struct Timeline {
  double microseconds = 0;  // of the launch: what a stream waits for
  double operations = 0;    // of the product, or the two over visible keys; a multiply and an add counted as two
  double clock_ghz = 0;     // that power allows
  std::string bound;        // the term that is longest, or "latency" if none takes most of the time
  std::vector<TimelineTerm> terms;
  const MachineRates* machine = nullptr;

  double tflops() const { return microseconds > 0 ? operations / microseconds * 1e-6 : 0; }
  /// The term of that name; 0 if there is none.
  double term(std::string_view name) const;
};

/// nullopt where there is no model: the portable family, a cluster of Hopper CTAs, an architecture without rates.
std::optional<Timeline> predict_timeline(const AttentionPlan& plan, const AttentionProblem& problem,
                                         const AttentionShape& shape);
/// The same on a machine of the caller's own.
std::optional<Timeline> predict_timeline(const AttentionPlan& plan, const AttentionProblem& problem,
                                         const AttentionShape& shape, const MachineRates& machine);

/// A GEMM's, by the model that plans it: the units of the busiest SM, its rounds of tiles, and the memory. nullopt for
/// all but the blackwell family.
std::optional<Timeline> predict_timeline(const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape);

}  // namespace kernelwright
