#include "kernelwright/generator/route/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "contract/route.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/contradictions.h"

namespace kernelwright {
namespace {

using namespace detail;

constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 1;
constexpr int kFewOfLane = 16;  // logits: more take registers of which 16 warps have too few
// So many experts, in rounds of so many, are found sooner by a bound.
constexpr int kManyExperts = 64, kManyRounds = 6;
constexpr int kStaticSharedBytes = 48 << 10;  // of a CTA, on every architecture

int logits_of_lane(const RouteSpec& spec) { return contract::experts_of_lane(spec.experts, spec.groups); }

RouteSpec spec_of(const RouteProblem& problem, Arch arch) {
  RouteSpec spec;
  spec.arch = arch;
  spec.logits = problem.dtype;
  spec.experts = problem.experts;
  spec.top_k = problem.top_k;
  spec.groups = problem.topk_group == problem.n_group ? 1 : problem.n_group;  // all are picked
  spec.picked_groups = spec.groups == 1 ? 1 : problem.topk_group;
  spec.softmax = problem.score == RouteScore::kSoftmax;
  spec.sigmoid = problem.score == RouteScore::kSigmoid;
  // Sigmoids keep the order of logits, so only a bias or a sum tells one order from the other.
  spec.top_k_first = problem.order == RouteOrder::kTopKFirst;
  spec.biased = problem.bias;
  spec.sums_two = spec.groups > 1 && problem.group_score == GroupScore::kTop2Sum;
  spec.renormalized = problem.renormalize;
  spec.given = problem.is_given();
  spec.sorts = problem.sort;
  if (spec.sorts) {
    spec.mapped = problem.local_experts > 0;
    spec.buckets = spec.mapped ? problem.local_experts : problem.experts;
    spec.alignment = problem.alignment;
  }
  return spec;
}

/// Lanes whose experts may be chosen. A bound that top_k experts reach needs as many.
int choosing_lanes(const RouteSpec& spec) {
  const int of_group = std::min(contract::lanes_of_group(spec.groups), spec.experts / spec.groups);
  return of_group * spec.picked_groups;
}

void choose_warps(RouteSpec& spec, const RouteSchedule& schedule, Resolver& resolve) {
  const int of_lane = logits_of_lane(spec);
  const bool few = of_lane <= kFewOfLane && spec.buckets <= 512;
  spec.warps = resolve("warps", schedule.warps, few ? 16 : 8,
                       few ? fmt::format("a lane has {} logits, and 16 warps hide each other's latency", of_lane)
                           : fmt::format("a lane has {} logits, or counts fill the shared memory", of_lane));
  spec.few_warps = schedule.warps.is_auto() ? 8 : spec.warps;
  if (schedule.warps.is_auto() && few)
    resolve.derived("few_warps", spec.few_warps, "CTAs that each have few tokens spread over more SMs");
  if (spec.warps > 8 && !few)
    throw ConfigError("/schedule/warps",
                      fmt::format("{} warps are too many for {} experts; 8 would do", spec.warps, spec.experts));
}

void choose_choice(RouteSpec& spec, const RouteSchedule& schedule, Resolver& resolve) {
  if (spec.given) return;
  const bool many = spec.experts >= kManyExperts && spec.top_k >= kManyRounds,
             enough = choosing_lanes(spec) >= spec.top_k;
  spec.bounded =
      resolve("choice", schedule.choice, many && enough ? RouteChoice::kBound : RouteChoice::kRounds,
              many && enough ? fmt::format("{} rounds over {} experts take longer", spec.top_k, spec.experts)
              : many ? fmt::format("{} lanes have experts of picked groups, too few for a bound", choosing_lanes(spec))
                     : "few experts or few rounds are faster than a bound") == RouteChoice::kBound;
}

void choose_counts(RouteSpec& spec, const RouteSchedule& schedule, Resolver& resolve) {
  if (!spec.sorts) return;
  const int bytes = contract::route_short_sort_bytes(spec.buckets, spec.warps);
  const bool fits = bytes <= kStaticSharedBytes, many = spec.buckets >= kManyExperts;
  spec.short_counts =
      resolve("counts", schedule.counts, fits && many ? RouteCounts::kU16 : RouteCounts::kU32,
              !many  ? "the counts of few experts are read soon"
              : fits ? "every CTA of the sort reads the counts of all"
                     : fmt::format("u16 would take {} bytes of shared memory", bytes)) == RouteCounts::kU16;
  if (spec.short_counts && !fits)
    throw ConfigError("/schedule/counts",
                      fmt::format("\"u16\" takes {} bytes of shared memory for {} experts and {} warps, and a CTA has "
                                  "{}; \"u32\" is accepted",
                                  bytes, spec.buckets, spec.warps, kStaticSharedBytes));
}

}  // namespace

std::int64_t most_sorted_rows(const RouteSpec& spec, std::int64_t tokens) noexcept {
  return tokens * spec.top_k + std::int64_t{spec.alignment - 1} * spec.buckets;
}

std::int64_t most_tokens(const RouteSpec& spec) noexcept {
  return floor_div(kMostRows - most_sorted_rows(spec, 0), spec.top_k);
}

RouteLaunch plan_launch(const RouteSpec& spec, std::int64_t tokens) noexcept {
  RouteLaunch launch;
  // A CTA of few warps for each of few tokens, unless a larger CTA has all tokens.
  const bool few = tokens <= spec.few_warps ||
                   (tokens > spec.warps && tokens <= std::int64_t{contract::kMostRouteCtas} * spec.few_warps);
  const int warps = few ? spec.few_warps : spec.warps;
  const std::int64_t ctas = std::clamp<std::int64_t>(ceil_div(tokens, warps), 1, contract::kMostRouteCtas);
  // Counts of 16 bits take more CTAs instead.
  const std::int64_t most_of_warp = spec.short_counts ? contract::kMostTokensOfShortCounts / warps : kMostRows;
  launch.tokens_per_warp = static_cast<int>(std::clamp<std::int64_t>(ceil_div(tokens, ctas * warps), 1, most_of_warp));
  launch.main.block = static_cast<std::uint32_t>(32 * warps);
  launch.main.grid[0] = static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, ceil_div(tokens, std::int64_t{launch.tokens_per_warp} * warps)));
  launch.sorts_apart = spec.sorts && launch.main.grid[0] > 1;
  if (launch.sorts_apart)
    launch.workspace_bytes = std::uint64_t{launch.main.grid[0]} *
                             static_cast<std::uint64_t>(contract::route_count_row(spec.buckets, spec.short_counts)) *
                             (spec.short_counts ? sizeof(std::uint16_t) : sizeof(std::int32_t));
  return launch;
}

std::uint64_t most_workspace_bytes(const RouteSpec& spec, std::int64_t tokens) noexcept {
  // So many tokens have all CTAs. For more tokens a CTA takes more, and only counts of 16 bits need more CTAs.
  const std::int64_t spread = std::int64_t{contract::kMostRouteCtas} * spec.few_warps;
  return std::max(plan_launch(spec, tokens).workspace_bytes,
                  plan_launch(spec, std::min(tokens, spread)).workspace_bytes);
}

std::vector<Violation> validate(const RouteConfig& config, std::optional<Arch> arch) {
  std::vector<Violation> violations = contradictions(config);
  check_target(config.schedule, arch, violations);
  if (const Family family = config.schedule.family.value_or(Family::kPortable); family != Family::kPortable)
    violations.push_back(
        {"/schedule/family", fmt::format("\"{}\" has no kernel that routes; portable has one for every "
                                         "architecture",
                                         to_string(family))});
  return violations;
}

RoutePlan plan_route(const RouteProblem& problem, const RouteSchedule& schedule, Arch arch) {
  std::vector<Violation> violations = validate(RouteConfig{"", problem, schedule, {}}, arch);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  RoutePlan plan{spec_of(problem, arch), {}, {}};
  Resolver resolve(plan.choices);
  resolve("family", schedule.family, Family::kPortable, "one kernel serves every architecture");
  choose_warps(plan.spec, schedule, resolve);
  choose_choice(plan.spec, schedule, resolve);
  choose_counts(plan.spec, schedule, resolve);
  if (plan.spec.sorts) {
    plan.sort.emplace();
    static_cast<RouteSortFields&>(*plan.sort) = plan.spec;
    plan.sort->arch = arch;
  }
  return plan;
}

}  // namespace kernelwright
