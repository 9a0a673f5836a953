// Finds the kernels that serve a GEMM. For each of a ladder of row counts, a model of the machine ranks every tile form
// that fits. Neighbouring row counts with the same choice become one range.
#include "kernelwright/generator/gemm/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "contract/gemm_groups.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/gemm/validate.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/epilogue.h"

namespace kernelwright {
namespace {

using detail::family_row;
using Violations = std::vector<Violation>;

// Row counts that every plan tells apart.
constexpr int kRowCounts[] = {16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384};
constexpr int kFewRows[] = {1, 4, 8};  // which it tells apart besides, where groups have them
constexpr int kGroupsOfOne = 8;        // that have rows, where each has one: the experts of a single token
constexpr int kMostRows = 1 << 24;     // the largest that a shape may have

/// Row counts that a plan tells apart where there are tiles for them: a tile that is best for one of them may take half
/// as long again for another. All of kRowCounts are among them.
std::vector<int> steps_of_rows() {
  std::vector<int> counts{16, 32, 48, 64, 96, 128};
  for (int m = 160; m <= 512; m += 32) counts.push_back(m);
  for (int m = 576; m <= 2048; m += 64) counts.push_back(m);
  counts.insert(counts.end(), {2304, 2560, 3072, 3584, 4096, 5120, 6144, 8192, 16384});
  return counts;
}

GemmSpec spec_of(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch, Family family) {
  const Epilogue epilogue = parse_epilogue(problem.epilogue);
  GemmSpec spec;
  spec.family = family, spec.arch = arch;
  spec.a = problem.dtype.a, spec.b = problem.dtype.b, spec.d = problem.dtype.d;
  if (epilogue.bias || epilogue.c) spec.c = problem.dtype.c;
  spec.layout = problem.layout, spec.scales = problem.scales;
  spec.alpha = epilogue.alpha, spec.bias = epilogue.bias, spec.adds_c = epilogue.c;
  spec.activation = epilogue.activation;
  spec.gated = epilogue.gated, spec.clamped = epilogue.clamped;
  spec.limit = epilogue.limit, spec.steepness = epilogue.steepness;
  spec.quantizes = epilogue.quantizes, spec.power_of_two = epilogue.power_of_two;
  spec.amax = epilogue.amax, spec.squares = epilogue.squares, spec.rstd = epilogue.rstd;
  spec.round_up = epilogue.round_up, spec.rows_of_scales = epilogue.rows_of_scales;
  const bool fp8 = bits_of(problem.dtype.a) == 8 && !is_block_scaled(problem.dtype.a);
  const bool blocks = fp8 && problem.scales == ScaleKind::kPerBlock;
  const bool keeps_f32 = family_row(spec).keeps_f32 || problem.fast_accumulation;
  spec.promotion = blocks || (fp8 && !keeps_f32) ? 1 : 0;
  if (const GemmGroups& groups = problem.groups; groups.any()) {
    spec.groups = groups.kind, spec.bounds = groups.bounds;
    if (groups.has_bounds()) spec.most_groups = contract::gemm_group_room(groups.count);
    spec.gather = groups.gather, spec.scatter = groups.scatter, spec.pointers = groups.pointers;
  }
  if (problem.kv_write) spec.writes_kv = true, spec.kv = kv_write_spec(*problem.kv_write, arch);
  detail::plan_slab(problem, schedule, spec);
  return spec;
}

Violations judge(const GemmSpec& spec) {
  Violations violations;
  family_row(spec).check_tile(spec, arch_info(spec.arch), violations);
  return violations;
}

/// The operand whose bands the family's tile prefers.
Raster raster_of(const GemmSpec& spec) {
  const auto prefers = family_row(spec).raster;
  return prefers ? prefers(spec) : Raster::kAlongM;
}

}  // namespace

int detail::most_gemm_stages(GemmSpec spec, int shared_bytes_per_cta) {
  constexpr int kMostStages = 32;
  spec.stages = kMostStages / spec.k_group * spec.k_group;
  while (spec.stages > 2 * spec.k_group && static_cast<int>(shared_bytes(spec)) > shared_bytes_per_cta)
    spec.stages -= spec.k_group;
  return spec.stages;
}

double detail::gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms) {
  return family_row(spec).cost_us(spec, extent, num_sms);
}

std::vector<RowRange> gemm_row_ranges() {
  std::vector<RowRange> ranges;
  for (const int most : steps_of_rows()) ranges.push_back({ranges.empty() ? 1 : ranges.back().most + 1, most});
  ranges.back().most = kMostRows;
  return ranges;
}

std::vector<int> gemm_usual_rows() { return {std::begin(kRowCounts), std::end(kRowCounts)}; }

RowRange gemm_row_range(int m) {
  const std::vector<RowRange> ranges = gemm_row_ranges();
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const RowRange& range) { return m <= range.most; });
  return found == ranges.end() ? ranges.back() : *found;
}

GemmExtent extent_of(const GemmProblem& problem, const GemmShape& shape) noexcept {
  if (!problem.groups.any()) return {shape.m, problem.n, problem.k, 0};
  if (problem.groups.stacks_d()) return {shape.m, problem.n, problem.k, 0, problem.groups.count};
  int rows = shape.rows > 0 ? shape.rows : shape.m, active = shape.active > 0 ? shape.active : problem.groups.count;
  if (shape.skew == RowSkew::kOne) active = 1;
  if (!shape.group_rows.empty()) {
    rows = active = 0;
    for (const int of_group : shape.group_rows) rows += of_group, active += of_group > 0 ? 1 : 0;
  }
  return {rows, problem.n, problem.k, 0, std::max(1, std::min(active, rows))};
}

int planned_rows(const GemmProblem& problem, const GemmShape& shape) noexcept {
  return extent_of(problem, shape).rows_of_group();
}

std::vector<detail::GemmTile> detail::gemm_tiles(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch) {
  const GemmConfig config{"", problem, schedule, {}};
  Violations refused = contradictions(config);
  check_target(schedule, arch, refused);
  const ServingGemm serving = serving_gemm(problem, schedule, arch);
  // validate() judges all of this again, and names the nearest value that fits.
  if (!refused.empty() || !serving.lacks.empty()) throw ConfigError(validate(config, arch));
  const GemmSpec base = spec_of(problem, schedule, arch, serving.family);
  std::vector<GemmTile> tiles;
  Violations first;
  for (const GemmTile& tile : family_row(base).tiles(base, problem, schedule)) {
    const auto same = [&](const GemmTile& other) { return other.spec == tile.spec && other.rows == tile.rows; };
    if (std::find_if(tiles.begin(), tiles.end(), same) != tiles.end()) continue;
    Violations violations = judge(tile.spec);
    if (violations.empty())
      tiles.push_back(tile);
    else if (first.empty())
      first = std::move(violations);
  }
  if (tiles.empty()) throw ConfigError(std::move(first));
  return tiles;
}

GemmPlan plan_by_model(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch) {
  const std::vector<detail::GemmTile> tiles = detail::gemm_tiles(problem, schedule, arch);
  GemmPlan plan;
  const int num_sms = usual_machine(arch).sms;
  const GemmSpec& any = tiles.front().spec;
  const auto has_steps = family_row(any).has_steps;
  std::vector<int> counts = has_steps && has_steps(any) ? steps_of_rows() : gemm_usual_rows();
  if (problem.groups.any()) counts.insert(counts.begin(), std::begin(kFewRows), std::end(kFewRows));
  for (const int m : counts) {
    // With groups, a plan tells apart how many rows a group has.
    const int count = problem.groups.any() ? problem.groups.count : 0;
    const bool few_have_rows = m == 1 && problem.groups.has_bounds() && !problem.groups.slices_k();
    const int groups = few_have_rows ? std::min(count, kGroupsOfOne) : count;
    const int rows = std::min<std::int64_t>(kMostRows, std::int64_t{m} * std::max(1, groups));
    // A tile that is not for so many rows serves them where the schedule leaves no other.
    const auto cost = [&](const detail::GemmTile& tile) {
      const double us = detail::gemm_cost_us(tile.spec, {rows, problem.n, problem.k, 0, groups}, num_sms);
      return std::pair(!tile.rows.contains(m), us);
    };
    const GemmSpec& best = std::min_element(tiles.begin(), tiles.end(), [&](const auto& a, const auto& b) {
                             return cost(a) < cost(b);
                           })->spec;
    if (!plan.variants.empty() && plan.variants.back().spec == best)
      plan.variants.back().most_m = m;
    else
      plan.variants.push_back({m, best, schedule.raster.value_or(raster_of(best)) == Raster::kAlongN, ""});
  }
  plan.variants.back().most_m = std::numeric_limits<int>::max();
  const GemmSpec& last = plan.variants.back().spec;
  family_row(last).explain(last, schedule,
                           fmt::format("least time of {} tiles by the model, for {} columns and {} deep", tiles.size(),
                                       problem.n, problem.k),
                           plan.choices);
  return plan;
}

}  // namespace kernelwright
