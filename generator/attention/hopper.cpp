// The hopper attention family, prefill and decode: the features it has, the limits that the machine sets to its tile,
// the values that a tuner tries, and its row. A feature joins a list here when its kernel lands. hopper_choices.cpp and
// hopper_decode_choices.cpp plan it.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/predicted_roles.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/range_mask.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kHopperFields = *new std::vector<std::string_view>{
    "arch",          "family",         "block_m", "block_n",         "token_gen",  "q_stages",   "num_kv_stages",
    "num_qk_stages", "num_mma_stages", "kv_ring", "math_warpgroups", "overlap",    "swizzle",    "cluster",
    "scheduler",     "pack_gqa",       "splits",  "rescale",         "pv_promote", "pv_buffers", "exp2_emulated"};
const std::vector<std::string_view>& kDecodeFields =
    *new std::vector<std::string_view>{"arch",       "family",  "block_m",  "block_n", "token_gen", "num_warps",
                                       "num_stages", "swizzle", "pack_gqa", "splits",  "merge",     "rescale"};
constexpr int kMaxHeadDim = 256;

void check_decode_schedule(const AttentionSchedule& schedule, FamilyRules& hopper) {
  hopper.has_only(schedule, kDecodeFields);
}

/// Products of 16 bits keep the bits of their sums in the tensor cores.
void check_promotion(const AttentionProblem& problem, const AttentionSchedule& schedule, FamilyRules& hopper,
                     Violations& violations) {
  for (const auto& [name, field] :
       {std::pair{"pv_promote", &schedule.pv_promote}, {"pv_buffers", &schedule.pv_buffers}})
    if (!field->is_auto() && problem.dtype.q != DType::kE4m3)
      violations.push_back(
          {std::string("/schedule/") + name, fmt::format("{}: only sums of e4m3 leave the tensor cores early, and "
                                                         "q is {}; \"auto\" would do",
                                                         field->value(), to_string(problem.dtype.q))});
  if (!schedule.pv_promote.is_auto() && problem.dtype.q == DType::kE4m3)
    hopper.takes("/schedule/pv_promote", schedule.pv_promote.value(), {0, 1, 2, 4, 8, 12, 16});
}

void check_schedule(const AttentionSchedule& schedule, FamilyRules& hopper) {
  hopper.has_only(schedule, kHopperFields);
  // Of a row that has seen no key, the special function unit's exponentials are infinite: some must be left to it.
  constexpr double kMostEmulated = 0.5;
  if (const double fraction = schedule.exp2_emulated.value_or(0); fraction > kMostEmulated)
    hopper.refuse("/schedule/exp2_emulated", fmt::format("{}", fraction), fmt::format("0 to {}", kMostEmulated));
  if (!schedule.splits.is_auto()) hopper.takes("/schedule/splits", schedule.splits.value(), {1});
  if (!schedule.scheduler.is_auto())
    hopper.takes("/schedule/scheduler", schedule.scheduler.value(),
                 {Scheduler::kGrid, Scheduler::kPersistent, Scheduler::kLongestFirst, Scheduler::kQueued});
  if (const ClusterShape cluster = schedule.cluster.value_or({}); cluster.n != 1 || !is_one_of(cluster.m, {1, 2, 4}))
    hopper.refuse("/schedule/cluster", fmt::format("[{}, {}]", cluster.m, cluster.n), "[1, 1], [2, 1], [4, 1]");
  if (!schedule.math_warpgroups.is_auto())
    hopper.takes("/schedule/math_warpgroups", schedule.math_warpgroups.value(), {1, 2, 3});
}

int shared_bytes_of(const AttentionSpec& spec) { return static_cast<int>(shared_bytes(spec)); }

/// A tile with fewer stages or, if none fits, with fewer keys; "" where neither fits.
std::string nearest_in_shared_memory(AttentionSpec smaller, int limit, int least_kv_stages) {
  while (smaller.num_kv_stages > least_kv_stages) {
    --smaller.num_kv_stages;
    if (shared_bytes_of(smaller) <= limit) return fmt::format("; num_kv_stages {} would fit", smaller.num_kv_stages);
  }
  if (smaller.q_stages > 1) {
    smaller.q_stages = 1;
    if (shared_bytes_of(smaller) <= limit)
      return fmt::format("; q_stages 1 with num_kv_stages {} would fit", smaller.num_kv_stages);
  }
  const int step = staged_key_step(smaller, 16);
  while (smaller.block_n > step) {
    smaller.block_n = (smaller.block_n - 1) / step * step;
    if (shared_bytes_of(smaller) <= limit)
      return fmt::format("; block_n {} with num_kv_stages {} and q_stages {} would fit", smaller.block_n,
                         smaller.num_kv_stages, smaller.q_stages);
  }
  return "";
}

void check_hopper(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  FamilyRules hopper(Family::kHopper, violations);
  const bool decode = schedule.token_gen.value_or(false);
  // Decode multiplies with mma.sync, 16 columns at a time. It converts fp8 keys and values behind the shared-memory
  // read, and fp8 queries before. Prefill converts what TMA has brought. It also multiplies fp8, whose products have
  // registers of their own.
  const bool narrow = problem.dtype.q == DType::kE4m3;
  check_mapped_problem(problem,
                       {.depth_step = decode ? 16 : 8,
                        .most_qk = kMaxHeadDim,
                        .most_v = kMaxHeadDim,
                        .gathers = !decode && !narrow && problem.dtype.kv == problem.dtype.q,
                        .multiplies_narrow = true,
                        .has_rotary_parts = !decode,
                        .converts_narrow = true,
                        .stores_narrow = false,
                        .takes_columns = true},
                       hopper);
  if (problem.rope.width != 0 && !decode) check_rotary_type(problem, hopper);
  if (const int v = problem.head_dim.v; narrow && !decode && v <= kMaxHeadDim && v % contract::group_columns(v) != 0)
    hopper.refuse("/problem/head_dim/v", std::to_string(v), "multiples of 16 to 128, and of 32 above");
  (decode ? check_decode_schedule : check_schedule)(schedule, hopper);
  if (!decode) check_promotion(problem, schedule, hopper, violations);
}

/// Checks what kernels of fp8 keys do not do: those whose warps make operands, and those that read V in columns.
void check_fp8(const AttentionSpec& spec, Violations& violations) {
  if (!restages_keys(spec) && !spec.v_columns) return;
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  const std::string_view kv = to_string(spec.kv), done = converts_keys(spec) ? "converted"
                                                         : spec.v_columns    ? "loaded"
                                                                             : "transposed";
  if (spec.swizzle == Swizzle::kNone && restages_keys(spec))
    refuse("swizzle",
           fmt::format("\"none\": tiles of {} are {} by pieces of 16 bytes in rows of two at least; \"32B\" would do",
                       kv, done));
  if (spec.cluster_m > 1)
    refuse("cluster", fmt::format("[{}, 1]: tiles of {} are {} by each CTA for itself; [1, 1] would do", spec.cluster_m,
                                  kv, done));
  if (spec.num_mma_stages > 1)
    refuse("num_mma_stages", fmt::format("{}: tiles of {} are {} whole; 1 would do", spec.num_mma_stages, kv, done));
  if (spec.num_qk_stages > 1)
    refuse("num_qk_stages", fmt::format("{}: tiles of {} are {} whole; 1 would do", spec.num_qk_stages, kv, done));
  if ((!converts_keys(spec) || spec.splits_q()) && spec.kv_ring == KvRing::kShared)
    refuse("kv_ring", fmt::format("\"shared\": {}; \"split\" would do",
                                  spec.v_columns && !spec.splits_q()
                                      ? "rows of ones stay behind the values of each slot"
                                      : fmt::format("TMA fills the slots of keys, and warps those of {} values", kv)));
  if (!converts_keys(spec) && spec.block_n % value_key_step(spec) != 0)
    refuse("block_n",
           fmt::format("{}: products with values of {} take {} keys at a time; {} would do", spec.block_n, kv,
                       value_key_step(spec), (spec.block_n / value_key_step(spec) + 1) * value_key_step(spec)));
}

void check_hopper_prefill(const AttentionSpec& spec, const ArchInfo& arch, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  if (spec.block_m != 64 * spec.math_warpgroups)
    refuse("block_m",
           fmt::format("{} is not 64 rows for each math warpgroup, of which there {} {}; {} would do", spec.block_m,
                       spec.math_warpgroups == 1 ? "is" : "are", spec.math_warpgroups, 64 * spec.math_warpgroups));
  if (spec.pack_gqa && spec.block_m % spec.group != 0)
    refuse("pack_gqa", fmt::format("true: {} rows of a tile are not whole groups of {} heads; false would do",
                                   spec.block_m, spec.group));
  const bool takes_turns = spec.overlap == Overlap::kPingPong || spec.overlap == Overlap::kBoth;
  if (takes_turns && spec.math_warpgroups < 2)
    refuse("overlap", fmt::format("\"{}\" has warpgroups take turns, and there is 1; {} would do",
                                  to_string(spec.overlap), spec.overlap == Overlap::kBoth ? "intra" : "none"));
  const int least_kv_stages = spec.kv_ring == KvRing::kShared ? 2 : 1;
  check_swizzle(spec, violations);
  check_fp8(spec, violations);
  check_rings(spec, hopper_shape_of(spec).qk_row() / contract::slab_width(bytes_of(spec.swizzle)), least_kv_stages,
              violations);

  if (const int share = contract::kSwizzleRows * spec.cluster_m; spec.block_n % share != 0)
    refuse("block_n", fmt::format("{} keys are not a multiple of 8 for each CTA of a cluster of {}; {} would do",
                                  spec.block_n, spec.cluster_m, (spec.block_n + share - 1) / share * share));

  if (spec.cluster_m > 1 && contract::hopper_gathers_kv(spec.page_size))
    refuse("cluster", fmt::format("[{}, 1]: keys of pages of {} are gathered by each CTA for itself; [1, 1] would do",
                                  spec.cluster_m, spec.page_size));
  if (spec.scheduler == Scheduler::kQueued && spec.cluster_m > 1)
    refuse("scheduler",
           fmt::format("\"queued\" hands tiles to CTAs one by one, and a cluster of {} takes them together; "
                       "longest_first would do",
                       spec.cluster_m));

  if (spec.pv_buffers > 1 && !spec.parts_take_turns())
    refuse("pv_buffers",
           fmt::format("{}: P V has no parts of {} columns that leave the tensor cores one after the other; 1 would do",
                       spec.pv_buffers, spec.block_n));
  const int budget = hopper_register_budget(spec, spec.math_warpgroups);
  if (hopper_registers(spec) > budget) {
    AttentionSpec smaller = spec;
    const int step = staged_key_step(smaller, 16);
    while (smaller.block_n > step && hopper_registers(smaller) > budget)
      smaller.block_n = (smaller.block_n - 1) / step * step;
    const bool fits = hopper_registers(smaller) <= budget;
    refuse(fits ? "block_n" : "math_warpgroups",
           fmt::format("{} keys and values of {} need about {} registers a thread, and {} math warpgroup{} {}{}",
                       spec.block_n, spec.head_dim_v, hopper_registers(spec), spec.math_warpgroups,
                       spec.math_warpgroups == 1 ? " has" : "s have", budget,
                       fits ? fmt::format("; block_n {} would fit", smaller.block_n) : "; fewer warpgroups would do"));
  }
  if (const int bytes = shared_bytes_of(spec); bytes > arch.shared_bytes_per_cta) {
    const std::string nearest = nearest_in_shared_memory(spec, arch.shared_bytes_per_cta, least_kv_stages);
    refuse(nearest.starts_with("; block_n")    ? "block_n"
           : nearest.starts_with("; q_stages") ? "q_stages"
                                               : "num_kv_stages",
           fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                       arch.shared_bytes_per_cta, nearest));
  }
}

void check_tile(const AttentionSpec& spec, const AttentionSchedule&, const ArchInfo& arch, Violations& violations) {
  if (!spec.token_gen) return check_hopper_prefill(spec, arch, violations);
  check_swizzle(spec, violations);
  check_portable_tile(spec, arch, violations);  // all warps do the same, as in portable's decode form
}

constexpr int kLongSequence = 4096;  // queries

/// The values that a tuner tries: docs/attention/hopper.md measured each of them to win somewhere. The planner chooses
/// the stages: as many as fit.
AxisSets hopper_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  const int depth = std::max(problem.head_dim.qk, problem.head_dim.v);
  const Axis keys = axis("block_n", &S::block_n, {64, 80, 96, 112, 128, 144, 160, 176, 192});
  const Axis queries = axis("q_stages", &S::q_stages, {1, 2});
  const Axis ring = axis("kv_ring", &S::kv_ring, {KvRing::kSplit, KvRing::kShared});
  const Axis order =
      axis("scheduler", &S::scheduler,
           {range_mask(problem.mask).kind == MaskKind::kNone ? Scheduler::kPersistent : Scheduler::kLongestFirst,
            Scheduler::kQueued});
  const bool narrow = bits_of(problem.dtype.q) == 8;
  std::vector<int> several{2};
  if (std::max(problem.head_dim.v, narrow ? 0 : depth) <= 128) several.push_back(3);
  std::vector<bool> packs{false};
  if (packs_well(problem, kWgmmaRows)) packs.push_back(true);
  const Axis packed = axis("pack_gqa", &S::pack_gqa, packs);
  // Multicast pays where the same keys are read again and again: long sequences.
  std::vector<ClusterShape> clusters{{1, 1}};
  const bool windowed = range_mask(problem.mask).kind == MaskKind::kSlidingWindow;
  if (problem.max_q_len == 0 || problem.max_q_len >= kLongSequence)
    if (!windowed && bits_of(problem.dtype.kv) == 16 && problem.q_layout == QLayout::kPadded)
      clusters.push_back({2, 1});
  const Axis cluster = axis("cluster", &S::cluster, clusters);
  const Axis swizzles = axis("swizzle", &S::swizzle, swizzles_to_try(problem));
  // One product after the other gains registers in fp8 alone.
  std::vector<Overlap> overlaps{Overlap::kBoth, Overlap::kIntra};
  if (narrow) overlaps.insert(overlaps.end(), {Overlap::kPingPong, Overlap::kNone});
  AxisSets sets{
      {axis("math_warpgroups", &S::math_warpgroups, several), keys, queries, ring,
       axis("overlap", &S::overlap, overlaps), order, packed, cluster},
      {axis("math_warpgroups", &S::math_warpgroups, several), axis("block_n", &S::block_n, {64, 96, 128, 160, 192}),
       ring, axis("num_mma_stages", &S::num_mma_stages, {2, 4}),
       axis("overlap", &S::overlap, {Overlap::kBoth, Overlap::kIntra}), order, packed},
      {axis("math_warpgroups", &S::math_warpgroups, {1}), keys, queries, ring,
       axis("overlap", &S::overlap, {Overlap::kIntra}), order, packed}};
  if (narrow)  // a sum after each tile, and after runs
    sets.push_back({axis("math_warpgroups", &S::math_warpgroups, several), axis("block_n", &S::block_n, {64, 96, 128}),
                    axis("overlap", &S::overlap, overlaps), axis("pv_promote", &S::pv_promote, {1, 8, 16}),
                    axis("pv_buffers", &S::pv_buffers, {1, 2})});
  if (narrow)  // the special function unit is as busy as the tensor cores
    sets.push_back({axis("math_warpgroups", &S::math_warpgroups, several), axis("overlap", &S::overlap, overlaps),
                    axis("exp2_emulated", &S::exp2_emulated, {1.0 / 16, 2.0 / 16, 4.0 / 16, 6.0 / 16})});
  // The decode form, where portable_axes() tries its own decode form.
  if (problem.max_q_len > 0 && problem.max_q_len * problem.group() <= 128)
    sets.push_back({axis("token_gen", &S::token_gen, {true}), axis("num_warps", &S::num_warps, {2, 4, 8}),
                    axis("block_m", &S::block_m, {16, 32}), axis("block_n", &S::block_n, {32, 64, 128, 256}),
                    axis("num_stages", &S::num_stages, {2, 3, 4, 5, 6, 8})});
  if (swizzles.values.size() > 1)
    for (std::vector<Axis>& set : sets) set.push_back(swizzles);
  return sets;
}

/// Whether the decode form is the fastest of all families. Measured with rows that fill one m16 tile, and 16-bit heads
/// of 128 or fp8 heads of 64, 128 and 256: docs/attention/hopper.md. fp8 keys that the portable form lacks take this
/// form too.
bool decodes_best(const AttentionProblem& problem, AttentionSchedule schedule) {
  if (!is_decode(problem) || !schedule.token_gen.value_or(true)) return false;
  Violations lacks;
  const int depth = std::max(problem.head_dim.qk, problem.head_dim.v);
  const bool converts = bits_of(problem.dtype.kv) == 8;
  if (max_rows_of_a_kv_head(problem) > 16 || (!converts && (depth <= 64 || depth > 128))) {
    if (!converts) return false;
    attention_row(kGeneralFamily).check(problem, schedule, lacks);
    if (lacks.empty()) return false;
    lacks.clear();
  }
  schedule.token_gen = true;
  check_hopper(problem, schedule, lacks);
  return lacks.empty();
}

std::uint32_t bytes_in_shared_memory(const AttentionSpec& spec) {
  return static_cast<std::uint32_t>(spec.token_gen ? hopper_decode_layout_of(spec).total : hopper_shared_bytes(spec));
}

std::vector<SharedRegion> map_of(const AttentionSpec& spec) {
  return spec.token_gen ? hopper_decode_map(spec) : hopper_map(spec);
}

std::vector<KernelRole> roles_of(const AttentionSpec& spec) {
  if (spec.token_gen) return alike_roles(spec);
  std::vector<KernelRole> roles{{4, "load"}};
  for (int i = 0; i < spec.math_warpgroups; ++i) roles.push_back({4, fmt::format("math {}", i)});
  return roles;
}

bool is_predicted(const AttentionSpec& spec) {
  return spec.token_gen || (spec.cluster_m == 1 && bits_of(spec.kv) == 16);
}

double clocks_of(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates, int resident) {
  return spec.token_gen ? decode_clocks(spec, work, rates, resident) : hopper_clocks(spec, work, rates);
}

}  // namespace

const AttentionFamily& hopper_attention() {
  static constexpr AttentionFamily row = {.family = Family::kHopper,
                                          .check = check_hopper,
                                          .check_tile = check_tile,
                                          .plan = plan_hopper,
                                          .axes = hopper_axes,
                                          .shared_bytes = bytes_in_shared_memory,
                                          .shared_map = map_of,
                                          .roles = roles_of,
                                          .mma = "wgmma",
                                          .reader = "wgmma",
                                          .decodes_best = decodes_best,
                                          .is_predicted = is_predicted,
                                          .clocks = clocks_of,
                                          .softmax = hopper_softmax,
                                          .deals_items = true};
  return row;
}

}  // namespace kernelwright::detail
