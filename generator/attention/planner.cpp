// Chooses the family that computes a problem. The families' own choices are in <family>_choices.cpp.
#include "kernelwright/generator/attention/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "contract/key_range.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/range_mask.h"

namespace kernelwright {

namespace {

using namespace detail;
using Violations = std::vector<Violation>;

/// A family to try, and the reason to take it.
struct Offer {
  Family family;
  std::string reason;
  bool decodes = false;  // the family's decode form is meant; the schedule leaves that open
};

/// Whether a family that loads by TMA comes first where it has to gather keys row by row. Not measured yet.
constexpr bool kPrefersGathering = false;

std::string will_not_do(Family family, const Violation& violation) {
  return fmt::format("{} will not do: {}", to_string(family), violation.text());
}

/// The reason why the architecture's own family does not come first; "" if it does. `of_own` is what that family lacks.
std::string why_not_own(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                        const Violations& of_own) {
  const std::optional<Family> own = own_family(arch);
  if (!own) return fmt::format("{} has no family of its own yet", to_string(arch));
  if (schedule.token_gen.value_or(false)) return "the schedule asks for the decode form";
  const bool keeps = problem.dtype.q == DType::kE4m3 && attention_row(*own).keeps_few_narrow_rows;
  if (schedule.token_gen.is_auto() && is_decode(problem) && !keeps)
    return "few rows: bandwidth decides, and the decode form splits the keys";
  if (!of_own.empty()) return will_not_do(*own, of_own[0]);
  if (!kPrefersGathering && contract::hopper_gathers_kv(problem.kv_layout.page_size))
    return fmt::format("no box of TMA lies within pages of {} keys", problem.kv_layout.page_size);
  return "";
}

std::string why_own(Family family) {
  return fmt::format("TMA and {}: products decide, and their tensor cores take them fastest",
                     attention_row(family).mma);
}

/// The families that take the problem with some tile, the best one first. A tile may still not fit one of them.
std::vector<Offer> offers(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch) {
  std::vector<Offer> list;
  if (!schedule.family.is_auto()) {
    if (lacks(schedule.family.value(), problem, schedule).empty()) list.push_back({schedule.family.value(), ""});
    return list;
  }
  const std::optional<Family> own = own_family(arch);
  const Violations of_general = lacks(kGeneralFamily, problem, schedule);
  const Violations of_own = own ? lacks(*own, problem, schedule) : Violations{};
  if (problem.is_latent()) {
    if (own && of_own.empty()) list.push_back({*own, "values are a prefix of their keys: each key is read once"});
    if (of_general.empty())
      list.push_back(
          {kGeneralFamily, own && !of_own.empty()
                               ? will_not_do(*own, of_own[0])
                               : fmt::format("{} has no family of its own for values in keys", to_string(arch))});
    return list;
  }
  for (const AttentionFamily* row : attention_families())
    if (row->decodes_best && family_exists_on(row->family, arch) && row->decodes_best(problem, schedule))
      list.push_back({row->family, "few rows: bandwidth decides, and TMA keeps most bytes on their way", true});
  if (!of_general.empty() && (!own || !of_own.empty())) return list;
  const std::string why_not = why_not_own(problem, schedule, arch, of_own);
  if (own && why_not.empty()) list.push_back({*own, why_own(*own)});
  if (of_general.empty()) list.push_back({kGeneralFamily, why_not});
  if (!why_not.empty() && own && of_own.empty())
    list.push_back({*own, of_general.empty() ? fmt::format("{} will not do", to_string(kGeneralFamily))
                                             : will_not_do(kGeneralFamily, of_general[0])});
  return list;
}

/// Fixes what a problem demands of its result beyond being right. Tiles and their order within a sequence follow from
/// the Spec and from the sequence's own lengths. With batch_invariant three more things are fixed, because they would
/// follow other queries:
/// - the number of parts of keys, which a launch would choose from the whole batch;
/// - the maxima of rows that share a warp, which would move together;
/// - the key from which an item's tiles are counted, which would be the first that some row of the item sees.
/// Where a sequence brings one query, it has no other ones for the last two.
AttentionSchedule demanded(const AttentionProblem& problem, AttentionSchedule schedule, AttentionSpec& spec,
                           Violations& violations) {
  if (!problem.batch_invariant) return schedule;
  if (schedule.splits.is_auto()) schedule.splits = 1;
  if (problem.max_q_len == 1) return schedule;
  spec.tiles_from_start = spec.has_roles() && contract::hides_low(spec.mask);
  spec.rescale = schedule.rescale.value_or(Rescale::kLazy);
  if (!spec.shares_maxima()) return schedule;
  if (!schedule.rescale.is_auto())
    violations.push_back(
        {"/schedule/rescale",
         "\"lazy\" moves the maxima of a warp's rows together, so a query would depend on others, and the "
         "problem is batch_invariant; \"always\" is accepted"});
  schedule.rescale = Rescale::kAlways;
  return schedule;
}
void explain_demands(const AttentionProblem& problem, const AttentionSchedule& given, AttentionPlan& plan) {
  Resolver resolve(plan.choices);
  if (problem.deterministic)
    resolve.derived("deterministic", true,
                    "sums have one order, and parts are merged in theirs: as in every kernel here");
  if (!problem.batch_invariant) return;
  for (Choice& choice : plan.choices) {
    if (choice.field == "splits" && given.splits.is_auto())
      choice.reason =
          "batch_invariant: a number that follows the batch would change sums; the schedule may give another";
    if (choice.field == "rescale" && given.rescale.is_auto() && plan.main.rescale == Rescale::kAlways)
      choice.reason = "batch_invariant: rows of a warp would move their maxima together";
  }
  resolve.derived(
      "batch_invariant", true,
      plan.splits > 1
          ? fmt::format("tiles follow a sequence's own lengths, and its keys are cut into {} parts always", plan.splits)
          : "tiles follow a sequence's own lengths, and its keys are never cut into parts");
}

AttentionPlan plan_for(Family family, std::string reason, const AttentionProblem& problem,
                       const AttentionSchedule& schedule, Arch arch, Violations& violations, bool decodes) {
  AttentionPlan plan;
  Resolver resolve(plan.choices);
  AttentionSpec& spec = plan.main;
  spec.arch = arch;
  resolve.derived("arch", arch, "the device, or --arch");
  spec.family = resolve("family", schedule.family, family, std::move(reason));
  spec.q = problem.dtype.q, spec.kv = problem.dtype.kv, spec.out = problem.dtype.out;
  spec.head_dim_qk = problem.head_dim.qk, spec.head_dim_v = problem.head_dim.v;
  spec.rope_width = problem.rope.width, spec.rope = problem.rope.dtype;
  spec.group = problem.group();
  spec.q_layout = problem.q_layout;
  spec.kv_layout = problem.kv_layout.kind, spec.page_size = problem.kv_layout.page_size;
  spec.cache_length = problem.cache_length;
  spec.kv_starts = problem.kv_starts;
  spec.v_columns = problem.v_layout == VLayout::kColumns;
  spec.latent = problem.is_latent();
  const RangeMask mask = range_mask(problem.mask);
  if (mask.kind != problem.mask.kind)
    resolve.derived("mask", mask.kind,
                    fmt::format("what \"{}\" comes to{}", to_string(problem.mask.kind),
                                open_mask(problem.mask).tensor   ? ", beside a tensor that hides single keys"
                                : open_mask(problem.mask).source ? ", beside a source that hides single keys"
                                                                 : ""));
  const OpenMask open = open_mask(problem.mask);
  const auto source_of = [](const PolicySource& source, std::string field) {
    return SpecSource{source.type, source.text, source.file, std::move(field)};
  };
  spec.mask_tensor = open.tensor != nullptr;
  if (open.source) spec.mask_source = source_of(open.source->source, open.source_path);
  if (problem.score_mod.kind == ScoreModKind::kSource)
    spec.score_source = source_of(problem.score_mod.source, "/problem/score_mod");
  if (problem.score_mod.kind == ScoreModKind::kTensor) spec.bias = problem.score_mod.dtype;
  spec.mask = mask.kind, spec.chunk = mask.chunk, spec.score_mod = problem.score_mod.kind;
  spec.sinks = problem.sinks, spec.lse = problem.lse, spec.scales = problem.scales;
  spec.token_gen = schedule.token_gen.value_or(decodes);
  const AttentionFamily& row = attention_row(family, problem.is_latent());
  const AttentionSchedule asked = demanded(problem, schedule, spec, violations);
  row.plan(problem, asked, plan);
  row.check_tile(plan.main, asked, arch_info(arch), violations);
  explain_demands(problem, schedule, plan);
  return plan;
}

}  // namespace

AttentionPlan plan_by_model(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch) {
  const AttentionConfig config{"", problem, schedule, {}};
  Violations refused = contradictions(config);
  check_target(schedule, arch, refused);
  std::vector<Offer> list;
  if (refused.empty()) list = offers(problem, schedule, arch);
  // validate() checks the config again, and names the nearest value that fits.
  if (list.empty()) throw ConfigError(validate(config, arch));
  Violations first;
  std::string before;
  for (Offer& offer : list) {
    Violations violations;
    std::string reason = before.empty() ? std::move(offer.reason) : before;
    AttentionPlan plan = plan_for(offer.family, std::move(reason), problem, schedule, arch, violations, offer.decodes);
    if (violations.empty()) return plan;
    before = will_not_do(offer.family, violations[0]);
    if (first.empty()) first = std::move(violations);
  }
  throw ConfigError(std::move(first));
}

}  // namespace kernelwright
