#include "kernelwright/generator/attention/predicted.h"

#include <algorithm>
#include <cmath>

#include "contract/attention_sm100.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/predicted_roles.h"
#include "kernelwright/generator/attention/work.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/score_mods.h"

namespace kernelwright {
namespace detail {
StepClocks step_clocks(const AttentionSpec& spec, const MachineRates& machine, const SoftmaxForm& form) {
  const int rows = form.rows, rows_of_a_warp = form.rows_of_a_warp;
  // Clocks between two instructions of a softmax warp: each scheduler has one warp of a warpgroup.
  const double issue = machine.issue_clocks + (form.warps_of_a_scheduler - 1) * machine.neighbour_clocks;
  // Instructions for each score of a lane.
  constexpr double kMaximum = 1, kExponential = 3.5;  // scale and offset, the exponential, the sum, half a conversion
  constexpr double kPolynomial = 9, kHidden = 2;      // in place of the exponential; a comparison and a choice
  constexpr double kOpen = 6;                         // two comparisons, an element, its use
  const auto whole = [](int depth) { return (depth + 15) / 16 * 16; };
  const double bytes = bits_of(spec.kv) / 8.0, emulated = static_cast<double>(spec.exp2_emulated) / kExp2Step;
  const double per_lane = static_cast<double>(spec.block_n) * rows_of_a_warp / 32, per_result = per_lane * issue;
  const ScoreModFacts& mod = facts_of(spec.score_mod);
  const double narrow = spec.block_n / std::max(1.0, 1.0 * spec.cta_group);  // keys that this SM's half brings
  const double flops = machine.mma_flops * machine.mma_share * 2 / bytes;
  StepClocks clocks{};
  clocks.scores_shared = (rows + narrow) * whole(spec.head_dim_qk) * bytes / machine.shared_bytes;
  clocks.output_shared = narrow * whole(spec.head_dim_v) * bytes / machine.shared_bytes;
  clocks.scores = std::max(2.0 * rows * spec.block_n * whole(spec.head_dim_qk) / flops, clocks.scores_shared);
  clocks.output = std::max(2.0 * rows * spec.block_n * whole(spec.head_dim_v) / flops, clocks.output_shared);
  clocks.exponentials = 1.0 * rows * spec.block_n * ((1 - emulated) + mod.exponentials) / machine.exp2;
  clocks.before = machine.tile_clocks + per_result * (kMaximum + mod.instructions + (spec.opens_scores() ? kOpen : 0));
  clocks.during = per_result * (kExponential + emulated * kPolynomial);
  if (spec.rescale == Rescale::kAlways && form.rescales)
    clocks.during += spec.head_dim_v * rows_of_a_warp / 32.0 * machine.stream_clocks;
  clocks.masked = per_lane * machine.stream_clocks * kHidden;
  return clocks;
}

int copies_of(const AttentionSpec& spec, int depth) {
  const int slabs = contract::slabs_of(depth, 2, bytes_of(spec.swizzle));
  if (!contract::hopper_gathers_kv(spec.page_size))
    return slabs * (spec.block_n / contract::hopper_kv_box_rows(spec.block_n, spec.page_size));
  constexpr int kBytes = 32 * 16, kWarps = 2, kInstructions = 8;  // of an instruction; that gather; in a copy's time
  return spec.block_n * depth * bits_of(spec.kv) / 8 / (kBytes * kWarps * kInstructions) + 1;
}

}  // namespace detail

namespace {

using namespace detail;

constexpr double kMost = 0.55;    // of the time: a unit that takes less does not bound the kernel
constexpr int kClockSettles = 4;  // rounds: time from clock, then clock from time

/// A launch, without the clock rate.
struct Launch {
  const AttentionSpec& spec;
  const MachineRates& machine;
  AttentionLaunch plan;
  TimelineWork work;
  int resident = 1;  // CTAs that the busiest SM holds

  /// Clocks of the SM that has most to do, at `ghz`.
  double clocks(double ghz) const {
    const double read = work.q_bytes + work.kv_bytes, share = 1 / ghz / machine.sms;
    const double read_gb_s = memory_us() > 0 ? read * 1e-3 / memory_us() : machine.read_gb_s;
    const double missing = work.fetched_bytes > 0 ? std::min(1.0, work.kv_bytes / work.fetched_bytes) : 1;
    const SmRates rates{machine, read_gb_s * share, missing};
    return family_row(spec).clocks(spec, work, rates, resident) * work.repeats;
  }
  /// Microseconds that the device's memory takes for all reads and writes.
  double memory_us() const {
    return ((work.q_bytes + work.kv_bytes) / machine.read_gb_s + work.o_bytes / machine.write_gb_s) * 1e-3;
  }
  double merge_us() const {
    if (plan.num_splits <= 1) return 0;
    return spec.cluster_n > 1 ? machine.merge_us / 2 : machine.merge_us;  // no counter, and no traffic to memory
  }
};

Launch launch_of(const AttentionPlan& plan, const AttentionProblem& problem, const AttentionShape& shape,
                 const MachineRates& machine) {
  const AttentionSpec& spec = plan.main;
  Launch launch{spec, machine, plan_launch(spec, extent_of(problem, shape), machine.sms, plan.splits), {}};
  int held = 1;
  if (!spec.has_roles())
    held = std::max(1, occupancy(arch_info(spec.arch), static_cast<int>(launch.plan.main.shared_bytes),
                                 static_cast<int>(launch.plan.main.block), 0)
                           .ctas);
  launch.work = timeline_work(spec, problem, shape, launch.plan, machine.sms, held);
  launch.resident = static_cast<int>(std::clamp(std::ceil(launch.work.items / machine.sms), 1.0, 1.0 * held));
  return launch;
}

bool has_model(const AttentionSpec& spec) {
  const auto is_predicted = family_row(spec).is_predicted;
  return is_predicted && is_predicted(spec);
}

/// The time that each unit of the busiest SM would take alone, at `ghz`.
std::vector<PredictedTerm> terms_of(const Launch& launch, double ghz) {
  const AttentionSpec& spec = launch.spec;
  const MachineRates& machine = launch.machine;
  const TimelineWork& work = launch.work;
  const double us = 1e-3 / ghz, tiles = work.walk_tiles * work.repeats;
  std::vector<PredictedTerm> terms;
  if (spec.has_roles()) {
    const SoftmaxForm form = family_row(spec).softmax(spec);
    const StepClocks step = step_clocks(spec, machine, form);
    const double steps = tiles * form.parts * us;
    terms.push_back({"products", steps * (step.scores + step.output), "the tensor cores, both products"});
    terms.push_back({"exponentials", steps * step.exponentials, "the special-function units"});
    terms.push_back(
        {"softmax", tiles * us * (step.before + step.during) / form.warps_in_turn, "the instructions of one warp"});
    terms.push_back({"shared memory", steps * (step.scores_shared + step.output_shared), "what products read"});
  }
  const double tile_bytes = spec.block_n * (spec.head_dim_qk + spec.head_dim_v) * bits_of(spec.kv) / 8.0;
  terms.push_back({"L2", tiles * launch.resident * tile_bytes / spec.cta_group / machine.l2_bytes * us,
                   "K and V into shared memory"});
  terms.push_back({"memory", launch.memory_us(), "Q, K, V and O of the whole launch, once"});
  return terms;
}

}  // namespace

std::optional<Predicted> predict(const AttentionPlan& plan, const AttentionProblem& problem,
                                 const AttentionShape& shape) {
  return predict(plan, problem, shape, usual_machine(plan.main.arch));
}

std::optional<Predicted> predict(const AttentionPlan& plan, const AttentionProblem& problem,
                                 const AttentionShape& shape, const MachineClass& machine) {
  if (!machine.timeline) return std::nullopt;
  return predict(plan, problem, shape, *machine.timeline);
}

std::optional<Predicted> predict(const AttentionPlan& plan, const AttentionProblem& problem,
                                 const AttentionShape& shape, const MachineRates& machine) {
  if (!has_model(plan.main)) return std::nullopt;
  const Launch launch = launch_of(plan, problem, shape, machine);
  const double outside_us = machine.launch_us + launch.merge_us();
  const double peak_us_ghz =
      launch.work.operations / machine.mma_flops / machine.sms * 1e-3 * bits_of(plan.main.kv) / 16;
  Predicted timeline{.operations = launch.work.operations, .clock_ghz = machine.clock_ghz, .machine = &machine};
  for (int round = 0; round < kClockSettles; ++round) {
    const double us = launch.clocks(timeline.clock_ghz) * 1e-3 / timeline.clock_ghz;
    timeline.microseconds = outside_us + std::max(us, launch.memory_us());
    // Power grows with the rate of products and with the square of the clock, because the voltage follows the clock.
    // `busy` is the tensor cores' share at this clock of the time over which the power limit averages.
    const double busy = peak_us_ghz / timeline.clock_ghz / (timeline.microseconds + machine.idle_us);
    const double clock = machine.clock_ghz * std::min(1.0, std::cbrt(machine.cool_share / std::max(busy, 1e-9)));
    if (std::abs(clock - timeline.clock_ghz) < 1e-3) break;
    timeline.clock_ghz = clock;
  }
  timeline.terms = terms_of(launch, timeline.clock_ghz);
  timeline.terms.push_back(
      {"launch", outside_us, launch.plan.num_splits > 1 ? "start, end, merge of parts" : "start and end"});
  const TimelineWork& work = launch.work;
  const double uneven =
      work.walk_tiles > 0 ? std::max(0.0, 1 - work.even_tiles / (work.walk_tiles * work.repeats * launch.resident)) : 0;
  timeline.terms.push_back(
      {"uneven", uneven * (timeline.microseconds - outside_us), "the busiest SM against the mean"});
  const auto longest = std::max_element(timeline.terms.begin(), timeline.terms.end() - 2,
                                        [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  timeline.bound = longest->microseconds >= kMost * timeline.microseconds ? longest->name : "latency";
  return timeline;
}

}  // namespace kernelwright
