// The schedules of a GEMM that are worth measuring: the planner's own tiles of the family that serves the problem, and
// their neighbours. The model that ranks tiles knows what a tile costs. It knows little of the other fields.
#include <algorithm>
#include <string_view>
#include <type_traits>

#include "kernelwright/generator/gemm/candidates.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/machine.h"

namespace kernelwright {
namespace {

using detail::add_values;
using detail::CandidateCollector;
using detail::check_gemm;
using detail::given_fields;

using Change = detail::GemmChange;

/// Turns `variant` into a schedule that leads to it: `schedule` with every field that the family has.
class Speller {
 public:
  Speller(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch)
      : problem_(problem), schedule_(schedule), arch_(arch) {}

  GemmSchedule operator()(const GemmVariant& variant) const {
    GemmSchedule spelt = schedule_;
    GemmSpec spec = variant.spec;
    spelt.family = spec.family;
    ClusterShape cluster;
    visit_fields(spec, [&](const char* name, auto& from, const auto&, const char*) {
      using T = std::remove_cvref_t<decltype(from)>;
      const std::string_view field = name;
      if constexpr (std::is_same_v<T, int>) {
        if (field == "cluster_m") cluster.m = from;
        if (field == "cluster_n") cluster.n = from;
      }
      visit_fields(spelt, [&](const char* to_name, auto& to, const auto&, const char*) {
        if constexpr (std::is_same_v<decltype(to), Auto<T>&>)
          if (field == to_name && to.is_auto()) set(spelt, to, from);
      });
    });
    if (spelt.cluster.is_auto()) set(spelt, spelt.cluster, cluster);
    if (spelt.block_k.is_auto()) set(spelt, spelt.block_k, spec.slab_bytes * 8 / bits_of(spec.a));
    if (spelt.raster.is_auto()) set(spelt, spelt.raster, variant.bands_of_n ? Raster::kAlongN : Raster::kAlongM);
    return spelt;
  }

 private:
  /// Does nothing for a field that the family does not have: the family refuses any value of it.
  template <class T>
  void set(GemmSchedule& schedule, Auto<T>& field, T value) const {
    std::vector<Violation> without, with;
    check_gemm(schedule.family.value(), problem_, schedule, arch_, without);
    field = value;
    check_gemm(schedule.family.value(), problem_, schedule, arch_, with);
    if (with.size() > without.size()) field = {};
  }

  const GemmProblem& problem_;
  const GemmSchedule& schedule_;
  const Arch arch_;
};

/// Shortens the ring by `fewer` groups of slots.
Change shorter_by(int fewer) {
  return [fewer](GemmSchedule& schedule) {
    schedule.stages = std::max(1, schedule.stages.value() - fewer * schedule.k_group.value_or(1));
  };
}

/// The changes to a tile that are tried, one field at a time.
std::vector<Change> changes_of(Family family, const GemmProblem& problem, const GemmSchedule& given) {
  using S = GemmSchedule;
  std::vector<Change> changes;
  const detail::GemmFamily& row = detail::gemm_row(family);
  if (!row.add_changes) return changes;
  add_values(changes, &S::raster, {Raster::kAlongM, Raster::kAlongN});
  changes.push_back(shorter_by(1));
  changes.push_back(shorter_by(2));
  // Slots of half the depth; and slots of the same depth in strips of half the width.
  changes.push_back([](S& schedule) {
    schedule.block_k = schedule.block_k.value() / 2;
    schedule.swizzle = {};
    schedule.stages = {};
  });
  changes.push_back([](S& schedule) { schedule.swizzle = Swizzle::k64B; });
  row.add_changes(changes, problem, given);
  return changes;
}

/// `wanted`, with the fields that `schedule` gives.
GemmSchedule keeping(const GemmSchedule& schedule, GemmSchedule wanted) {
  GemmSchedule kept = schedule;
  detail::visit_both(wanted, kept, [](const char*, auto& value, const auto& given) {
    if (!given.is_auto()) value = given;
  });
  return wanted;
}

}  // namespace

GemmCandidates enumerate_candidates(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch,
                                    const std::vector<GemmShape>& shapes, const CandidateOptions& options) {
  constexpr std::size_t kMost = 32;
  constexpr double kWithin = 1.3;
  const int num_sms = options.num_sms > 0 ? options.num_sms : usual_machine(arch).sms;
  int most_m = 1;
  for (const GemmShape& shape : shapes) most_m = std::max(most_m, planned_rows(problem, shape));
  const Speller spelt(problem, schedule, arch);
  const auto candidate_of = [&](const GemmVariant& variant) {
    GemmCandidate candidate{spelt(variant), {}};
    candidate.plan = plan_by_model(problem, candidate.schedule, arch);
    const GemmSpec& spec = candidate.plan.variants.back().spec;
    candidate.cost = detail::mean_cost(
        shapes, [&](const GemmShape& shape) { return detail::gemm_cost_us(spec, extent_of(problem, shape), num_sms); });
    return candidate;
  };
  const auto planned = [&](const GemmSchedule& asked) {
    return candidate_of(plan_by_model(problem, asked, arch).variant_for(most_m));
  };
  const auto identity = [](const GemmCandidate& candidate) {
    const GemmVariant& variant = candidate.plan.variants.back();
    return canonical_text(Spec(variant.spec)) + (variant.bands_of_n ? "n" : "m");
  };
  CandidateCollector<GemmConfig> collector(planned(schedule), {planned, identity});
  for (const detail::GemmTile& tile : detail::gemm_tiles(problem, schedule, arch)) {
    GemmVariant variant;
    variant.spec = tile.spec;
    const GemmSchedule whole = spelt(variant);
    collector.offer(whole);
    for (const Change& change : changes_of(tile.spec.family, problem, schedule)) {
      GemmSchedule neighbour = whole;
      change(neighbour);
      collector.offer(keeping(schedule, neighbour));
    }
  }
  return collector.take(options.most.value_or(kMost), options.within.value_or(kWithin));
}

}  // namespace kernelwright
