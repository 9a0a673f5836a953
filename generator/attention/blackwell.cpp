// The blackwell attention family: the features it has, the limits that tensor memory and shared memory set to its tile,
// the values that a tuner tries, and its row. A feature joins a list here when its kernel lands. blackwell_choices.cpp
// plans it.
#include <fmt/format.h>

#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/predicted_roles.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kBlackwellFields = *new std::vector<std::string_view>{
    "arch",           "family",   "block_m", "block_n", "num_kv_stages", "num_qk_stages",
    "num_mma_stages", "kv_ring",  "num_q",   "swizzle", "cta_group",     "cluster",
    "scheduler",      "pack_gqa", "splits",  "merge",   "rescale",       "exp2_emulated"};
constexpr int kHeadDimStep = 8, kMostQk = 192, kMostV = 128;  // two of block_n and two of V fit tensor memory
constexpr int kMinKeys = 64, kMaxKeys = 192;
// A softmax thread holds a row of scores in the 192 registers that setmaxnreg gives it. ptxas spills from 144 on.
constexpr int kMostScores = 128;
constexpr int kLeastKvStages = 2;

int shared_bytes_of(const AttentionSpec& spec) { return static_cast<int>(shared_bytes(spec)); }

int columns_of(const AttentionSpec& spec) { return contract::blackwell_columns(blackwell_shape_of(spec)).used; }

/// Bytes of the output of a part of split keys: f32, in slabs of 32 columns.
int part_bytes(const AttentionSpec& spec) { return contract::kQueryTileRows * 4 * ((spec.head_dim_v + 31) / 32 * 32); }
int stages_for_part(AttentionSpec spec) {
  while (contract::blackwell_layout(blackwell_shape_of(spec)).factors < part_bytes(spec)) ++spec.num_kv_stages;
  return spec.num_kv_stages;
}

/// A tile with fewer stages or, if none fits, with fewer keys; "" where neither fits.
std::string nearest_in_shared_memory(AttentionSpec smaller, int limit) {
  while (smaller.num_kv_stages > kLeastKvStages) {
    --smaller.num_kv_stages;
    if (shared_bytes_of(smaller) <= limit) return fmt::format("; num_kv_stages {} would fit", smaller.num_kv_stages);
  }
  const int step = staged_key_step(smaller, blackwell_key_step(smaller));
  while (smaller.block_n - step >= kMinKeys) {
    smaller.block_n = (smaller.block_n - 1) / step * step;
    if (shared_bytes_of(smaller) <= limit)
      return fmt::format("; block_n {} with num_kv_stages {} would fit", smaller.block_n, smaller.num_kv_stages);
  }
  return "";
}

/// The rules of a cluster whose CTAs take a part of the keys each.
void check_cluster_parts(const AttentionSchedule& schedule, int parts, Violations& violations) {
  if (const int splits = schedule.splits.value_or(parts); splits != parts)
    violations.push_back(
        {"/schedule/splits",
         fmt::format("{0} beside a cluster of [1, {1}], of which each CTA takes a part of the keys; {1} would do",
                     splits, parts)});
  if (!schedule.merge.is_auto())
    violations.push_back({"/schedule/merge", fmt::format("\"{}\" beside a cluster of [1, {}], whose CTAs merge their "
                                                         "parts themselves; \"auto\" would do",
                                                         to_string(schedule.merge.value()), parts)});
}

/// Refuses what does not go together with split keys.
void check_parts(const AttentionSpec& spec, Violations& violations) {
  const bool cluster = spec.cluster_n > 1;
  if (!cluster && !spec.split_keys) return;
  const char* const path = cluster ? "/schedule/cluster" : "/schedule/splits";
  const std::string parts = cluster ? fmt::format("[1, {}]", spec.cluster_n) : "keys in parts";
  const char* const nearest = cluster ? "[1, 1]" : "splits 1";
  if (cluster && spec.num_q != 1)
    violations.push_back(
        {"/schedule/num_q", fmt::format("{}: the CTAs of a cluster of {} share one query tile; 1 would "
                                        "do",
                                        spec.num_q, parts)});
  if (spec.cta_group != 1)
    violations.push_back({path, fmt::format("{}: CTAs that share products (cta_group {}) take all keys; {} would do",
                                            parts, spec.cta_group, nearest)});
  if (spec.scheduler == Scheduler::kQueued)
    violations.push_back({path, fmt::format("{}: the queue hands out whole items; {}, or scheduler \"longest_first\", "
                                            "would do",
                                            parts, nearest)});
}

void check_blackwell(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  FamilyRules blackwell(Family::kBlackwell, violations);
  check_mapped_problem(problem,
                       {.depth_step = kHeadDimStep,
                        .most_qk = kMostQk,
                        .most_v = kMostV,
                        .gathers = true,
                        .multiplies_narrow = true,
                        .widens = true,
                        .has_rotary_parts = true},
                       blackwell);
  blackwell.has_only(schedule, kBlackwellFields);
  if (!schedule.scheduler.is_auto())
    blackwell.takes("/schedule/scheduler", schedule.scheduler.value(),
                    {Scheduler::kGrid, Scheduler::kLongestFirst, Scheduler::kQueued});
  if (!schedule.num_q.is_auto()) blackwell.takes("/schedule/num_q", schedule.num_q.value(), {1, 2});
  if (!schedule.cta_group.is_auto()) blackwell.takes("/schedule/cta_group", schedule.cta_group.value(), {1, 2});
  if (schedule.scheduler.value_or(Scheduler::kGrid) == Scheduler::kQueued && scales_differ_by_key(problem.scales))
    blackwell.refuse("/schedule/scheduler", "\"queued\"", "grid, longest_first for scales that differ by key");
  const bool pair = schedule.cta_group.value_or(1) == 2;
  const ClusterShape cluster = schedule.cluster.value_or(ClusterShape{pair ? 2 : 1, 1});
  if (pair ? cluster != ClusterShape{2, 1} : cluster.m != 1 || !is_one_of(cluster.n, {1, 2, 4, 8}))
    blackwell.refuse("/schedule/cluster", fmt::format("[{}, {}]", cluster.m, cluster.n),
                     pair ? "[2, 1] with cta_group 2" : "[1, 1], [1, 2], [1, 4], [1, 8] with cta_group 1");
  else if (cluster.n > 1)
    check_cluster_parts(schedule, cluster.n, violations);
}

void check_tile(const AttentionSpec& spec, const AttentionSchedule&, const ArchInfo& arch, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  if (spec.cta_group == 2 && spec.num_q != 2)
    refuse("num_q", fmt::format("{}: each CTA of a pair has two query tiles; 2, or cta_group 1, would do", spec.num_q));
  if (spec.cta_group == 2 && spec.scheduler == Scheduler::kQueued)
    refuse("scheduler",
           "\"queued\" hands tiles to CTAs one by one, and a pair takes them together; longest_first would do");
  if (spec.cta_group == 2 && contract::hopper_gathers_kv(spec.page_size))
    refuse("cta_group",
           fmt::format("2: keys of pages of {} are gathered by each CTA for itself; 1 would do", spec.page_size));
  const int rows = contract::kQueryTileRows * spec.num_q;
  if (spec.block_m != rows)
    refuse("block_m",
           fmt::format("{} is not {} rows for each query tile, of which there {} {}; {} would do", spec.block_m,
                       contract::kQueryTileRows, spec.num_q == 1 ? "is" : "are", spec.num_q, rows));
  if (spec.pack_gqa && contract::kQueryTileRows % spec.group != 0)
    refuse("pack_gqa", fmt::format("true: {} rows of a query tile are not whole groups of {} heads; false would do",
                                   contract::kQueryTileRows, spec.group));
  check_parts(spec, violations);
  check_swizzle(spec, violations);
  check_rings(spec, contract::qk_slabs(blackwell_shape_of(spec)), kLeastKvStages, violations);
  const int key_step = blackwell_key_step(spec);
  if (spec.block_n < kMinKeys || spec.block_n > kMaxKeys || spec.block_n % key_step != 0)
    return refuse("block_n",
                  fmt::format("{} does not fit; it takes multiples of {} from {} to {}{}", spec.block_n, key_step,
                              kMinKeys, kMaxKeys, spec.cta_group == 2 ? " where two CTAs share a product" : ""));
  if (const int columns = columns_of(spec); columns > arch.tensor_memory_columns) {
    AttentionSpec smaller = spec;
    while (smaller.block_n > kMinKeys && columns_of(smaller) > arch.tensor_memory_columns) smaller.block_n -= key_step;
    refuse("block_n", fmt::format("{0} keys and values of {1} need {2} columns of tensor memory, 2 x ({0} + {3}), and "
                                  "{4} has {5}; block_n {6} would fit",
                                  spec.block_n, spec.head_dim_v, columns, contract::output_columns(spec.head_dim_v),
                                  arch.name, arch.tensor_memory_columns, smaller.block_n));
  }
  if (spec.block_n > kMostScores)
    refuse("block_n", fmt::format("{} scores of a row do not fit the registers of a softmax thread; {} would do",
                                  spec.block_n, kMostScores));
  if (const int short_by = part_bytes(spec) - contract::blackwell_layout(blackwell_shape_of(spec)).factors;
      spec.cluster_n > 1 && short_by > 0)
    refuse("num_kv_stages",
           fmt::format("{}: the slots of Q, K and V are {} bytes short of the f32 output of a cluster's part, which "
                       "lies over them at the end; {} would do",
                       spec.num_kv_stages, short_by, stages_for_part(spec)));
  if (const int bytes = shared_bytes_of(spec); bytes > arch.shared_bytes_per_cta) {
    const std::string nearest = nearest_in_shared_memory(spec, arch.shared_bytes_per_cta);
    refuse(nearest.starts_with("; block_n") ? "block_n" : "num_kv_stages",
           fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                       arch.shared_bytes_per_cta, nearest));
  }
}

constexpr int kColumnsOfOneCta = 64;  // columns of V: halves of fewer gain little

/// The values that a tuner tries. No Blackwell has been measured: the values are those that fit tensor memory and
/// registers. The planner chooses the stages: as many as fit.
AxisSets blackwell_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  std::vector<bool> packs{false};
  if (packs_well(problem, contract::kQueryTileRows)) packs.push_back(true);
  std::vector<int> tiles;
  AttentionSpec spec;
  spec.q = problem.dtype.q;
  for (int keys = 64; keys <= 128; keys += blackwell_key_step(spec)) tiles.push_back(keys);
  const Axis keys = axis("block_n", &S::block_n, tiles);
  const Axis packed = axis("pack_gqa", &S::pack_gqa, packs);
  const Axis order = axis("scheduler", &S::scheduler, {Scheduler::kGrid, Scheduler::kLongestFirst, Scheduler::kQueued});
  const Axis exponentials = axis("exp2_emulated", &S::exp2_emulated, {0.0, 1.0 / 16, 2.0 / 16, 3.0 / 16, 4.0 / 16});
  const auto ring = [](KvRing kind) { return axis("kv_ring", &S::kv_ring, {kind}); };
  std::vector<int> chunks{1};
  if (contract::slabs_of(problem.head_dim.qk, bits_of(problem.dtype.q) / 8, 128) % 2 == 0) chunks.push_back(2);
  // Each CTA of a pair has half of every tile, in twice the stages.
  const Axis pair = axis("cta_group", &S::cta_group, {2}), pair_keys = axis("block_n", &S::block_n, {64, 96, 128});
  AxisSets sets{
      {keys, ring(KvRing::kShared), packed, order, exponentials},
      {keys, ring(KvRing::kSplit), axis("num_qk_stages", &S::num_qk_stages, chunks), packed, order, exponentials}};
  // Sub-stages of both tiles: a product begins when the first of them has landed.
  sets.push_back({axis("block_n", &S::block_n, {64, 96, 128}), axis("num_mma_stages", &S::num_mma_stages, {2, 3, 4}),
                  axis("kv_ring", &S::kv_ring, {KvRing::kShared, KvRing::kSplit}), packed, order});
  const bool rows_for_both = problem.max_q_len == 0 || problem.max_q_len > 2 * contract::kQueryTileRows;
  if (rows_for_both && problem.head_dim.v > kColumnsOfOneCta && bits_of(problem.dtype.q) == 16 &&
      problem.rope.width == 0) {
    sets.push_back({pair, pair_keys, ring(KvRing::kShared), packed, order, exponentials});
    sets.push_back({pair, pair_keys, ring(KvRing::kSplit), packed, order, exponentials});
  }
  // With few rows there are few CTAs. The planner cuts their keys for the workspace; a cluster needs no second kernel.
  if (problem.max_q_len > 0 && problem.max_q_len <= contract::kQueryTileRows)
    sets.push_back({axis("cluster", &S::cluster, {ClusterShape{1, 2}, ClusterShape{1, 4}, ClusterShape{1, 8}}), keys,
                    packed, exponentials});
  const Axis swizzles = axis("swizzle", &S::swizzle, swizzles_to_try(problem));
  if (swizzles.values.size() > 1)
    for (std::vector<Axis>& set : sets) set.push_back(swizzles);
  return sets;
}

std::uint32_t bytes_in_shared_memory(const AttentionSpec& spec) {
  return contract::blackwell_layout(blackwell_shape_of(spec)).total;
}

std::vector<KernelRole> roles_of(const AttentionSpec& spec) {
  std::vector<KernelRole> roles{{4, "softmax 0"}, {4, "softmax 1"}, {4, "correction"}, {1, "mma"}, {1, "load"}};
  if (contract::hopper_gathers_kv(spec.page_size)) {
    roles.push_back({2, "gather"});
  } else {
    roles.push_back({1, "clean"});
    roles.push_back({1, spec.scheduler == Scheduler::kQueued ? "load queries"
                        : scales_differ_by_key(spec.scales)  ? "load scales"
                                                             : "idle"});
  }
  return roles;
}

double clocks_of(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates, int) {
  return blackwell_clocks(spec, work, rates);
}

}  // namespace

const AttentionFamily& blackwell_attention() {
  static constexpr AttentionFamily row = {.family = Family::kBlackwell,
                                          .check = check_blackwell,
                                          .check_tile = check_tile,
                                          .plan = plan_blackwell,
                                          .axes = blackwell_axes,
                                          .shared_bytes = bytes_in_shared_memory,
                                          .shared_map = blackwell_map,
                                          .roles = roles_of,
                                          .mma = "tcgen05",
                                          .reader = "tcgen05.mma",
                                          .tensor_memory_map = blackwell_tensor_memory,
                                          .is_predicted = [](const AttentionSpec&) { return true; },
                                          .clocks = clocks_of,
                                          .softmax = blackwell_softmax,
                                          .alike_items_go_by_pair = true,
                                          .keeps_few_narrow_rows = true};
  return row;
}

}  // namespace kernelwright::detail
