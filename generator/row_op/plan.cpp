#include "kernelwright/generator/row_op/plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "contract/block_scales.h"
#include "contract/row_op.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/contradictions.h"

namespace kernelwright {
namespace {

using namespace detail;

constexpr int kWarpElements = 512;   // rows of up to so many have no more than a warp
constexpr int kPartElements = 2048;  // of a CTA, where CTAs may share a row
constexpr int kThreadsOfCta = 128;   // of rows that have a warp or less
// Rows that are summed have a CTA. Its threads have one vector each, if an SM has room for two such CTAs. Threads of
// wider rows, of f32, and of scales in atoms need more registers: up to kMostThreads have 16 elements each, or a
// multiple.
constexpr int kMostThreads = 512, kElementsOfThread = 16;
constexpr int kMostElementsOfThread = 32;
constexpr int kMostOfWideRows = 64;  // of rows that do not fit kMostThreads otherwise

int walked(const RowOpSpec& spec) { return contract::walked_elements(spec.width, scale_vector(spec.out)); }
/// Of a CTA.
int vectors_of(const RowOpSpec& spec) {
  return static_cast<int>(ceil_div(ceil_div(walked(spec), spec.vector), spec.ctas_per_row));
}
/// Whether threads of a row wait for each other's elements.
bool sums_rows(const RowOpSpec& spec) { return spec.norm != NormKind::kNone || spec.scales == ScaleKind::kPerToken; }
bool has_two_operands(const RowOpSpec& spec) { return spec.adds || spec.merges || spec.gated; }
/// Whether the planner gives CTAs a part of a row each. Rows of one operand gained 0.6 % alone, and a layer lost 0.9 %.
/// Rows with scales in atoms lost 5 %: bench/results/rows/2026-11-30-h200-row-op.md.
bool may_share_rows(const RowOpSpec& spec) { return !sums_rows(spec) && has_two_operands(spec) && !spec.has_atoms(); }

/// Threads whose elements have scales together: four blocks with atoms, whose bytes are a word.
int least_threads(const RowOpSpec& spec) {
  if (spec.has_atoms()) return 4 * scale_vector(spec.out) / spec.vector;
  return spec.scales == ScaleKind::kPerBlock ? contract::kRowScaleBlock / spec.vector : 1;
}

/// The least power of two from `count` on, up to a warp; beyond, whole warps.
int whole_threads(int count) {
  if (count > 32) return (count + 31) / 32 * 32;
  int threads = 1;
  while (threads < count) threads *= 2;
  return threads;
}

int usual_threads(const RowOpSpec& spec) {
  const int vectors = vectors_of(spec);
  if (spec.width <= kWarpElements) return std::max(least_threads(spec), std::min(whole_threads(vectors), 32));
  const int most = arch_info(spec.arch).max_threads_per_sm / 2;
  const bool one_each =
      may_share_rows(spec) || (sums_rows(spec) && vectors <= most && bits_of(spec.in) == 16 && !spec.has_atoms());
  if (one_each) return std::max(whole_threads(vectors), 32);
  int rounds = kElementsOfThread / spec.vector;
  while (whole_threads(static_cast<int>(ceil_div(vectors, rounds))) > kMostThreads) ++rounds;
  return std::max(whole_threads(static_cast<int>(ceil_div(vectors, rounds))), 32);
}

RowOpSpec spec_of(const RowOpProblem& problem, Arch arch) {
  RowOpSpec spec;
  spec.arch = arch;
  spec.in = problem.dtype.in;
  spec.out = problem.dtype.out;
  spec.width = problem.width;
  spec.adds = problem.input == RowInput::kAdd;
  spec.gated = problem.input == RowInput::kGateUp;
  spec.merges = problem.input == RowInput::kMerge;
  spec.heads = problem.heads;
  if (spec.gated) {
    spec.activation = problem.gate.activation;
    spec.pairs = problem.gate.pairs;
    spec.clamped = problem.gate.clamped;
  }
  spec.norm = problem.norm.kind;
  if (spec.norm != NormKind::kNone) {  // without a norm these leave one kernel
    spec.norm_weight = problem.norm.weight;
    spec.weight_offset = problem.norm.weight_offset;
  }
  if (!spec.has_atoms()) spec.scales = problem.scales.kind;
  spec.scale_columns = spec.scales == ScaleKind::kPerBlock && problem.scales.layout == ScaleLayout::kColumns;
  spec.power_of_two = problem.scales.power_of_two;
  spec.round_up = problem.scales.round == ScaleRound::kUp;
  spec.has_least = problem.scales.least > 0;
  return spec;
}

void choose(RowOpSpec& spec, const RowOpSchedule& schedule, std::vector<Choice>& choices) {
  Resolver resolve(choices);
  resolve("family", schedule.family, Family::kPortable, "one kernel serves every architecture");
  const bool wide = bits_of(spec.out) <= 8 && (!has_two_operands(spec) || spec.has_atoms()) && spec.width % 16 == 0 &&
                    spec.width > kWarpElements;
  spec.vector = resolve("vector", schedule.vector, wide ? 16 : 8,
                        wide ? "so many narrow elements are stored at once" : "16 bytes or more are loaded at once");
  const int parts = may_share_rows(spec) ? static_cast<int>(ceil_div(walked(spec), kPartElements)) : 1;
  spec.ctas_per_row = resolve("ctas_per_row", schedule.ctas_per_row, parts,
                              sums_rows(spec) ? "threads of a CTA sum over a row"
                              : parts > 1     ? "nothing is summed over a row: few rows have many SMs"
                                              : "a CTA has room for the row");
  const int threads = usual_threads(spec);
  const std::string has = "a CTA has a " + std::string(spec.ctas_per_row > 1 ? "part of a row" : "row");
  spec.threads_per_row =
      resolve("threads_per_row", schedule.threads_per_row, threads,
              threads <= 32 ? "lanes of a warp share a row, and meet without a barrier"
                            : has + "; a thread has " + std::to_string(spec.vector) + " elements of it " +
                                  std::to_string(ceil_div(vectors_of(spec), threads)) + " times");
  spec.rows_per_cta = resolve("rows_per_cta", schedule.rows_per_cta,
                              spec.threads_per_row > 32 ? 1 : kThreadsOfCta / spec.threads_per_row,
                              spec.threads_per_row > 32 ? "warps of a row meet in its CTA"
                                                        : "four warps of a CTA spread few rows over the SMs");
}

/// Whether the schedule's numbers fit each other and the row.
void check_threads(const RowOpSpec& spec, std::vector<Violation>& violations) {
  const auto bad = [&](const char* field, int found, const std::string& why) {
    violations.push_back({std::string("/schedule/") + field, std::to_string(found) + " " + why});
  };
  if (spec.width % spec.vector != 0)
    return bad("vector", spec.vector, "does not divide rows of " + std::to_string(spec.width) + "; 8 would do");
  const int threads = spec.threads_per_row, whole = whole_threads(threads);
  if (threads != whole)
    return bad("threads_per_row", threads,
               "is no power of two up to 32, and no whole warps; " + std::to_string(whole) + " would do");
  const int elements = static_cast<int>(ceil_div(walked(spec), spec.ctas_per_row));
  const int most = elements > kMostThreads * kMostElementsOfThread ? kMostOfWideRows : kMostElementsOfThread;
  const int least = std::max(least_threads(spec), whole_threads(static_cast<int>(ceil_div(elements, most))));
  if (threads < least)
    return bad(
        "threads_per_row", threads,
        "threads are too few for a row of " + std::to_string(spec.width) + "; " + std::to_string(least) + " would do");
  if (spec.ctas_per_row > 1 && sums_rows(spec))
    return bad("ctas_per_row", spec.ctas_per_row, "CTAs cannot sum over a row; 1 would do");
  if (threads > 32 && spec.rows_per_cta != 1)
    return bad("rows_per_cta", spec.rows_per_cta, "does not fit rows of more than a warp; 1 would do");
  const int step = std::max(1, 32 / threads), most_rows = 1024 / threads;
  if (threads <= 32 && (spec.rows_per_cta % step != 0 || spec.rows_per_cta > most_rows))
    bad("rows_per_cta", spec.rows_per_cta,
        "does not fit whole warps; it takes a multiple of " + std::to_string(step) + " up to " +
            std::to_string(most_rows));
}

}  // namespace

LaunchPlan plan_launch(const RowOpSpec& spec, std::int64_t rows) noexcept {
  // Rows past the end have scales of 0 where scales lie in atoms.
  if (spec.has_atoms()) rows = ceil_div(rows, contract::kScaleAtomRows) * contract::kScaleAtomRows;
  LaunchPlan plan;
  plan.block = static_cast<std::uint32_t>(spec.threads());
  plan.grid[0] = static_cast<std::uint32_t>(ceil_div(rows, spec.rows_per_cta) * spec.ctas_per_row);
  return plan;
}

std::vector<Violation> validate(const RowOpConfig& config, std::optional<Arch> arch) {
  std::vector<Violation> violations = contradictions(config);
  check_target(config.schedule, arch, violations);
  if (const Family family = config.schedule.family.value_or(Family::kPortable); family != Family::kPortable)
    violations.push_back({"/schedule/family", "\"" + std::string(to_string(family)) +
                                                  "\" has no kernel for steps over rows; portable has one for every "
                                                  "architecture"});
  return violations;
}

RowOpPlan plan_row_op(const RowOpProblem& problem, const RowOpSchedule& schedule, Arch arch) {
  std::vector<Violation> violations = validate(RowOpConfig{"", problem, schedule, {}}, arch);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  RowOpPlan plan{spec_of(problem, arch), {}};
  choose(plan.spec, schedule, plan.choices);
  check_threads(plan.spec, violations);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return plan;
}

}  // namespace kernelwright
