#include "kernelwright/generator/attention/candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/predicted.h"
#include "kernelwright/generator/attention/work.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/machine.h"

namespace kernelwright {
namespace {

using detail::CandidateCollector;
using detail::extent_of;
using detail::given_fields;
using detail::mean_cost;

/// A text that is the same for two plans that lead to the same kernel and launch.
std::string identity(const AttentionPlan& plan) {
  return kernel_name(plan.main) + "\n" + canonical_text(Spec(plan.main)) + std::to_string(plan.splits);
}

/// Calls `visit` with every combination of `axes` over `schedule`. Fields in `given` keep their value.
void combine(const std::vector<Axis>& axes, const std::set<std::string>& given, std::size_t at,
             const AttentionSchedule& schedule, const std::function<void(const AttentionSchedule&)>& visit) {
  if (at == axes.size()) return visit(schedule);
  if (given.count(axes[at].field)) return combine(axes, given, at + 1, schedule, visit);
  for (const auto& set : axes[at].values) {
    AttentionSchedule next = schedule;
    set(next);
    combine(axes, given, at + 1, next, visit);
  }
}

/// Gives the model's own choice the fields that its family tunes, if the choice is none of the combinations.
void spell_out(Candidate& model, const AttentionSchedule& schedule, const ArchInfo& info,
               const AttentionProblem& problem) {
  AttentionSchedule spelt = with_values_of(model.plan, schedule, {"family"});
  if (spelt.family.is_auto()) spelt.family = model.plan.main.family;
  std::vector<std::string> fields;
  for (const std::vector<Axis>& set :
       detail::attention_row(spelt.family.value(), problem.is_latent()).axes(problem, info))
    for (const Axis& axis : set) fields.push_back(axis.field);
  spelt = with_values_of(model.plan, spelt, fields);
  model.schedule = spelt;
}

/// Gives an open field of a schedule the value that a Spec has for it. Fields of other types have no such value.
template <class To, class From>
void take_value(Auto<To>&, const From&) {}
template <class T>
void take_value(Auto<T>& to, const T& from) {
  to = from;
}
void take_value(Auto<double>& to, const int& from) { to = static_cast<double>(from) / kExp2Step; }  // exp2_emulated

}  // namespace

AttentionSchedule with_values_of(const AttentionPlan& plan, AttentionSchedule schedule,
                                 const std::vector<std::string>& fields) {
  AttentionSpec spec = plan.main;
  visit_fields(schedule, [&](const char* name, auto& value, const auto&, const char*) {
    if (!value.is_auto() || std::find(fields.begin(), fields.end(), name) == fields.end()) return;
    visit_fields(spec, [&](const char* spec_name, auto& from, const auto&, const char*) {
      if (std::string_view(name) != spec_name) return;
      take_value(value, from);
    });
  });
  return schedule;
}

double schedule_cost(const AttentionPlan& plan, const AttentionProblem& problem, const AttentionShape& shape,
                     int num_sms) {
  const AttentionSpec& spec = plan.main;
  const MachineClass& machine = usual_machine(spec.arch);
  const AttentionLaunch launch = plan_launch(spec, extent_of(problem, shape), num_sms, plan.splits);
  const Occupancy held = occupancy(arch_info(spec.arch), static_cast<int>(launch.main.shared_bytes),
                                   static_cast<int>(launch.main.block), 0);
  // Counts items of work, not CTAs, because the grid of a persistent kernel is as large as the machine.
  const double heads = spec.pack_gqa ? problem.heads.kv : problem.heads.q;
  // The last cluster of a sequence may have CTAs without rows.
  const int m_blocks = (launch.num_m_blocks + spec.cluster_m - 1) / spec.cluster_m * spec.cluster_m;
  const double items = heads * shape.batch * m_blocks * launch.num_splits;
  if (items <= 0) return 0;
  // Items of the busiest SM: full waves, and its share of the last one.
  const double at_once = std::max(1, held.ctas), slots = num_sms * at_once;
  const double full = std::floor(items / slots);
  const double per_sm = full * at_once + std::ceil((items - full * slots) / num_sms);
  const int kv_len = extent_of(problem, shape).kv_len;
  const double tiles =
      std::ceil(std::ceil(static_cast<double>(std::max(kv_len, 1)) / spec.block_n) / launch.num_splits);
  const double ctas = std::min(at_once, std::ceil(items / num_sms));  // CTAs that an SM really holds
  const double tile_bytes = spec.block_n * (spec.head_dim_qk + spec.head_dim_v) * bits_of(spec.kv) / 8.0;
  if (spec.token_gen) {
    // With few rows, a tile costs the bytes of its keys. One slot of the ring is being read, so its bytes are not in
    // flight. Tiles that wait in registers are all in flight.
    const int loading = spec.staging == Staging::kRegisters ? spec.num_stages : spec.num_stages - 1;
    const double in_flight = ctas * std::max(1, loading) * tile_bytes;
    return per_sm * tiles * tile_bytes * std::max(1.0, machine.bytes_in_flight / in_flight);
  }
  // wgmma and tcgen05.mma keep the tensor cores busy with one warpgroup's products; mma.sync reaches about half of its
  // rate.
  if (spec.has_roles()) return per_sm * tiles * tile_bytes * spec.block_m / 2;
  const double warps = ctas * launch.main.block / 32.0;
  return per_sm * tiles * tile_bytes * spec.block_m * std::max(1.0, machine.warps_in_flight / warps);
}

Candidates enumerate_candidates(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                                const std::vector<AttentionShape>& shapes, const CandidateOptions& options) {
  constexpr std::size_t kMost = 64;
  constexpr double kWithin = 2;
  const ArchInfo& info = arch_info(arch);
  const int num_sms = options.num_sms > 0 ? options.num_sms : usual_machine(arch).sms;
  const std::set<std::string> given = given_fields(schedule);
  const auto planned = [&](const AttentionSchedule& asked) {
    Candidate candidate{asked, plan_by_model(problem, asked, arch)};
    candidate.cost = mean_cost(
        shapes, [&](const AttentionShape& shape) { return schedule_cost(candidate.plan, problem, shape, num_sms); });
    return candidate;
  };
  CandidateCollector<AttentionConfig> collector(
      planned(schedule), {planned, [](const Candidate& candidate) { return identity(candidate.plan); }});
  for (const detail::AttentionFamily* row : detail::attention_families()) {
    const Family family = row->family;
    if (!family_exists_on(family, arch) || schedule.family.value_or(family) != family) continue;
    if (row->latent != problem.is_latent()) continue;
    AttentionSchedule base = schedule;
    base.family = family;
    for (const std::vector<Axis>& set : row->axes(problem, info))
      combine(set, given, 0, base, [&](const AttentionSchedule& asked) { collector.offer(asked); });
  }
  if (!collector.model_is_spelt()) spell_out(collector.model(), schedule, info, problem);
  return collector.take(options.most.value_or(kMost), options.within.value_or(kWithin));
}

void order_by_prediction(std::vector<Candidate>& kept, const AttentionProblem& problem,
                         const std::vector<AttentionShape>& shapes) {
  std::vector<std::size_t> places;
  std::vector<Candidate> known;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    double sum = 0;
    bool all = !shapes.empty();
    for (const AttentionShape& shape : shapes) {
      const std::optional<Predicted> timeline = predict(kept[i].plan, problem, shape);
      all = all && timeline;
      if (timeline) sum += std::log(std::max(timeline->microseconds, 1e-3));
    }
    if (!all) continue;
    kept[i].predicted_us = std::exp(sum / static_cast<double>(shapes.size()));
    if (i == 0) continue;
    places.push_back(i);
    known.push_back(kept[i]);
  }
  std::stable_sort(known.begin(), known.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  for (std::size_t i = 0; i < places.size(); ++i) kept[places[i]] = std::move(known[i]);
}

}  // namespace kernelwright
