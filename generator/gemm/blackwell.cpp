// The blackwell GEMM: the problems it takes, the limits of tensor memory, shared memory and copies on its tile, and its
// memory maps. blackwell_choices.cpp has its tiles.
#include <fmt/format.h>

#include <algorithm>

#include "contract/gemm_sm100.h"
#include "contract/shared_slab.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/epilogue.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kBlackwellFields = *new std::vector<std::string_view>{
    "arch",      "family",  "block_m", "block_n",    "block_k", "stages",    "store_stages", "k_group",
    "cluster",   "swizzle", "swap_ab", "split_mode", "split_k", "scheduler", "cta_group",    "accumulator_stages",
    "clc_depth", "raster"};
constexpr int kMostStoreStages = 2;
constexpr int kMostClusterCtas = 8;  // every device has room for such a cluster

int shared_bytes_of(const GemmSpec& spec) { return static_cast<int>(shared_bytes(spec)); }
int columns_of(const GemmSpec& spec) { return contract::blackwell_gemm_columns(blackwell_gemm_shape_of(spec)).used; }

/// Whether the tile's columns, of b or with swap_ab of a, are neighbours in memory. box_columns(): how many of them a
/// copy then brings.
bool columns_innermost(const GemmSpec& spec) { return !is_along_k(spec, TileSide::kColumns); }
int box_columns(const GemmSpec& spec) { return shared_slab(spec, TileSide::kColumns).width_elements(); }

/// The values that block_n may have. They follow from the steps of the products and of a CTA's share. Where scales go
/// with the products, they are lists.
std::vector<int> columns_that_fit(const GemmSpec& spec) {
  std::vector<int> fitting;
  const auto offer = [&](int columns) {
    const int share = columns / spec.cta_group;
    if (columns % (8 * spec.cluster_m) != 0) return;
    if (columns_innermost(spec) && share % box_columns(spec) != 0) return;
    if (spec.gated && bits_of(spec.d) == 8 && columns % 32 != 0) return;
    fitting.push_back(columns);
  };
  if (is_block_scaled(spec.a))
    for (const int columns : {16, 32, 64, 128, 192, 256}) {
      if (columns >= 64 || spec.cta_group == 1) offer(columns);
    }
  else if (spec.promotion > 0)
    for (const int columns : {16, 32, 64, 128}) {
      if (columns % (16 * spec.cta_group) == 0) offer(columns);
    }
  else
    for (int columns = 16 * spec.cta_group; columns <= 256; columns += 16 * spec.cta_group) offer(columns);
  return fitting;
}

/// The reasons for the list of columns, for messages.
std::string why_these_columns(const GemmSpec& spec) {
  std::string why;
  const auto because = [&](bool holds, const std::string& text) {
    if (holds) why += (why.empty() ? "" : ", ") + text;
  };
  because(is_block_scaled(spec.a), fmt::format("scales of {} are copied in atoms of 128 columns", to_string(spec.a)));
  because(spec.promotion > 0, "threads hold the sums of a row while scales of blocks multiply");
  because(spec.cta_group == 2, "two CTAs have half of them each");
  because(spec.cluster_m > spec.cta_group, fmt::format("{} CTAs load shares of whole groups of 8", spec.cluster_m));
  because(spec.gated && bits_of(spec.d) == 8,
          fmt::format("rows of {} have whole 16 bytes, and two columns make one", to_string(spec.d)));
  because(columns_innermost(spec),
          fmt::format("layout \"{}\" is loaded by the {}", to_string(spec.layout), box_columns(spec)));
  return why.empty() ? "" : ": " + why;
}

/// The nearest value in `fitting`, which ascends.
int nearest_of(const std::vector<int>& fitting, int wanted) {
  return *std::min_element(fitting.begin(), fitting.end(),
                           [&](int a, int b) { return std::abs(a - wanted) < std::abs(b - wanted); });
}

}  // namespace

void check_blackwell(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch>,
                     Violations& violations) {
  check_result_rows(problem, violations);
  check_heads(problem, Family::kBlackwell, violations);
  FamilyRules blackwell(Family::kBlackwell, violations);
  blackwell.takes("/problem/dtype/a", problem.dtype.a,
                  {DType::kF16, DType::kBf16, DType::kTf32, DType::kE4m3, DType::kE5m2, DType::kMxfp8, DType::kMxfp4,
                   DType::kNvfp4});
  if (bits_of(problem.dtype.a) != 16) blackwell.takes("/problem/layout", problem.layout, {OperandLayout::kNt});
  blackwell.takes("/problem/groups/kind", problem.groups.kind,
                  {GroupKind::kNone, GroupKind::kRows, GroupKind::kMasked, GroupKind::kBatch, GroupKind::kK});
  const bool rstd = problem.epilogue.find("rstd") != std::string::npos;
  const bool gated = !problem.kv_write && result_columns(problem) != problem.n;
  if (gated && (measures(problem) || rstd))
    blackwell.refuse("/problem/epilogue", in_quotes(problem.epilogue), "gates without amax, squares or rstd");
  if (problem.groups.has_bounds() && is_block_scaled(problem.dtype.a)) {
    if (problem.groups.pointers)
      blackwell.refuse("/problem/groups/pointers", fmt::format("true with operands in {}", to_string(problem.dtype.a)),
                       "false there");
    // Threads copy the scales of gathered rows, to the shared memory of their own CTA.
    if (problem.groups.gather && schedule.cta_group.value_or(1) != 1)
      blackwell.refuse(
          "/schedule/cta_group",
          fmt::format("{} with gathered rows in {}", schedule.cta_group.value(), to_string(problem.dtype.a)),
          "1 there");
  }
  blackwell.has_only(schedule, kBlackwellFields);
  const auto takes = [&](const char* path, const Auto<int>& value, const std::vector<int>& built) {
    if (!value.is_auto()) blackwell.takes(path, value.value(), built);
  };
  check_slab(problem, schedule, violations);
  if (problem.groups.pointers) {  // threads copy matrices to their own CTA, in lines of 128 bytes
    if (!schedule.swizzle.is_auto()) blackwell.takes("/schedule/swizzle", schedule.swizzle.value(), {Swizzle::k128B});
    if (const int whole = 128 * 8 / bits_of(problem.dtype.a); !schedule.block_k.is_auto())
      blackwell.takes("/schedule/block_k", schedule.block_k.value(), {whole});
    takes("/schedule/cta_group", schedule.cta_group, {1});
  } else if (problem.groups.gather && !schedule.swizzle.is_auto())
    blackwell.takes("/schedule/swizzle", schedule.swizzle.value(), {Swizzle::k128B, Swizzle::k64B, Swizzle::k32B});
  takes("/schedule/block_m", schedule.block_m, {contract::kBlackwellGemmRows});
  if (!schedule.split_mode.is_auto())
    blackwell.takes("/schedule/split_mode", schedule.split_mode.value(), {SplitMode::kTurnstile});
  // How many tiles groups with bounds have is known on the device alone.
  const bool grouped = problem.groups.has_bounds();
  if (!schedule.scheduler.is_auto() && grouped)
    blackwell.takes("/schedule/scheduler", schedule.scheduler.value(), {Scheduler::kPersistent});
  else if (!schedule.scheduler.is_auto())
    blackwell.takes("/schedule/scheduler", schedule.scheduler.value(), {Scheduler::kPersistent, Scheduler::kQueued});
  if (const int parts = schedule.split_k.value_or(1); problem.groups.any() && parts > 1)
    blackwell.refuse("/schedule/split_k", fmt::format("{} parts of k of groups", parts), "1");
  takes("/schedule/k_group", schedule.k_group, {1, 2, 4});
  takes("/schedule/store_stages", schedule.store_stages, {1, kMostStoreStages});
  takes("/schedule/split_k", schedule.split_k, {1, 2, 4, 8});
  takes("/schedule/cta_group", schedule.cta_group, {1, 2});
  takes("/schedule/clc_depth", schedule.clc_depth, grouped ? std::vector<int>{0} : std::vector<int>{0, 1, 2, 3});
  const ClusterShape cluster = schedule.cluster.value_or({schedule.cta_group.value_or(1), 1});
  const bool pair = schedule.cta_group.value_or(1) == 2;
  if (!is_one_of(cluster.m, {1, 2, 4}) || !is_one_of(cluster.n, {1, 2, 4}) ||
      cluster.m * cluster.n > kMostClusterCtas || (pair && cluster.m == 1))
    blackwell.refuse("/schedule/cluster", fmt::format("[{}, {}]", cluster.m, cluster.n),
                     pair ? "[2, 1], [2, 2], [2, 4], [4, 1], [4, 2] with cta_group 2"
                          : "[1, 1], [2, 1], [4, 1], [1, 2], [2, 2], [4, 2], [1, 4], [2, 4]");
  else if (problem.groups.pointers && (cluster.m != 1 || cluster.n != 1))
    blackwell.refuse("/schedule/cluster", fmt::format("[{}, {}] with pointers", cluster.m, cluster.n), "[1, 1]");
  else if (problem.groups.slices_k() && (cluster.m != (pair ? 2 : 1) || cluster.n != 1))
    blackwell.refuse("/schedule/cluster", fmt::format("[{}, {}] with groups of kind \"k\"", cluster.m, cluster.n),
                     pair ? "[2, 1] with cta_group 2" : "[1, 1], and [2, 1] with cta_group 2");
  else if (problem.groups.gather && (cluster.m != (pair ? 2 : 1) || cluster.n != 1))
    blackwell.refuse("/schedule/cluster", fmt::format("[{}, {}] with gather", cluster.m, cluster.n),
                     pair ? "[2, 1] with cta_group 2" : "[1, 1], and [2, 1] with cta_group 2");
}

void check_blackwell_tile(const GemmSpec& spec, const ArchInfo& arch, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  if (spec.quantizes && spec.swap_ab)
    refuse("swap_ab", fmt::format("true: columns of d that share a scale of {} lie in lanes of a warp; false would do",
                                  to_string(spec.d)));
  if (spec.swap_ab && (spec.measures() || spec.rstd))
    refuse("swap_ab",
           "true: rows of the result are columns of the tile, which have no amax, squares or rstd; false "
           "would do");
  if (const int whole = spec.scaled_columns() / spec.halves(); spec.block_n % whole != 0)
    refuse("block_n", fmt::format("{} columns hold a part of the {} that {} of d; {} would do", spec.block_n, whole,
                                  what_columns_share(spec), (spec.block_n + whole - 1) / whole * whole));
  if (spec.halves() > 1 && spec.split_k > 1)
    refuse("split_k",
           fmt::format("{}: a tile's results wait for those of the tile beside it; 1 would do", spec.split_k));
  if (spec.halves() > 1 && !spec.makes_blocks() && spec.store_stages != kMostStoreStages)
    refuse("store_stages", fmt::format("{}: results of half of the columns that share a scale take {}; {} would do",
                                       spec.store_stages, kMostStoreStages, kMostStoreStages));
  if (spec.gather && is_block_scaled(spec.a) && !spec.swap_ab && spec.block_n < 64)
    refuse("block_n", fmt::format("{} columns leave threads the scales of both sides, and they copy those of gathered "
                                  "rows; 64 would do",
                                  spec.block_n));
  const std::vector<int> fitting = columns_that_fit(spec);
  if (std::find(fitting.begin(), fitting.end(), spec.block_n) == fitting.end())
    return refuse("block_n",
                  fmt::format("{} columns do not fit{}; {}", spec.block_n, why_these_columns(spec),
                              fitting.empty() ? "a smaller cluster would do"
                                              : fmt::format("{} would do", nearest_of(fitting, spec.block_n))));
  check_heads_of_tile(spec, violations);
  check_shares(spec, TileSide::kRows, spec.cluster_n, violations);
  check_shares(spec, TileSide::kColumns, spec.cluster_m / spec.cta_group, violations);
  if (spec.stages % spec.k_group != 0 || spec.stages < 2 * spec.k_group)
    refuse("stages", fmt::format("{} are not two groups of {} slabs or more; {} would do", spec.stages, spec.k_group,
                                 std::max(2, spec.stages / spec.k_group) * spec.k_group));
  const bool queued = spec.scheduler == Scheduler::kQueued;
  if (queued != (spec.clc_depth > 0))
    refuse("clc_depth", queued
                            ? std::string("0 answers on their way, and scheduler \"queued\" waits for one; 2 would do")
                            : fmt::format("{} answers on their way, and scheduler \"persistent\" asks for none; 0, "
                                          "or \"queued\", would do",
                                          spec.clc_depth));
  if (queued && spec.split_k > 1)
    refuse("split_k", fmt::format("{}: parts of a tile begin in their order, and a queue hands them out in any; 1, or "
                                  "scheduler \"persistent\", would do",
                                  spec.split_k));
  if (const int columns = columns_of(spec); columns > arch.tensor_memory_columns) {
    const int scales = columns - spec.accumulators * spec.block_n;
    const int most = (arch.tensor_memory_columns - scales) / spec.block_n;
    refuse("accumulator_stages",
           fmt::format("{} of {} columns{} need {} columns of tensor memory, and {} has {}; {} would fit",
                       spec.accumulators, spec.block_n, scales > 0 ? fmt::format(", and {} of scales,", scales) : "",
                       columns, arch.name, arch.tensor_memory_columns, most));
  }
  if (const int bytes = shared_bytes_of(spec); bytes > arch.shared_bytes_per_cta) {
    GemmSpec smaller = spec;
    while (smaller.stages > 2 * spec.k_group && shared_bytes_of(smaller) > arch.shared_bytes_per_cta)
      smaller.stages -= spec.k_group;
    const bool fits = shared_bytes_of(smaller) <= arch.shared_bytes_per_cta;
    refuse("stages",
           fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                       arch.shared_bytes_per_cta,
                       fits ? fmt::format("; stages {} would fit", smaller.stages) : "; a smaller k_group would do"));
  }
}

namespace {

std::vector<SharedRegion> blackwell_map(const GemmSpec& spec) {
  const contract::BlackwellGemmShape shape = blackwell_gemm_shape_of(spec);
  const contract::BlackwellGemmLayout layout = contract::blackwell_gemm_layout(shape);
  const contract::BlackwellGemmBarriers barriers = contract::blackwell_gemm_barriers(shape);
  std::vector<SharedRegion> regions;
  const auto add = [&](std::string name, int begin, int end, int stage, std::string use) {
    if (end == begin) return;
    regions.push_back({std::move(name), static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin),
                       static_cast<std::uint32_t>(stage), std::move(use)});
  };
  const auto slots = [&](int rows) {
    return fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, rows, spec.slab_bytes);
  };
  add(spec.swap_ab ? "B" : "A", layout.a, layout.b, contract::blackwell_gemm_a_bytes(shape), slots(spec.block_m));
  add(spec.swap_ab ? "A" : "B", layout.b, layout.output, contract::blackwell_gemm_b_bytes(shape),
      slots(spec.block_n / spec.cta_group));
  add("results", layout.output, layout.scales_a, contract::kBlackwellGemmStoreSlabBytes,
      fmt::format("{} slabs of each of 4 warps, {} rows each", spec.store_stages, contract::kBlackwellGemmWarpRows));
  const auto scales = [&](int rows) {
    return fmt::format("{} slots of {} atoms, 128 rows by 4 scales each", spec.stages, rows * shape.scale_atoms);
  };
  add("scales of rows", layout.scales_a, layout.scales_b, contract::blackwell_gemm_scale_a_bytes(shape), scales(1));
  add("scales of columns", layout.scales_b, layout.items, contract::blackwell_gemm_scale_b_bytes(shape),
      scales(contract::blackwell_gemm_column_atoms(shape)));
  add("tiles", layout.items, layout.barriers, 16, "answers of cluster launch control");
  const auto add_barriers = [&](std::string name, int first, int end, const char* who) {
    add(std::move(name), layout.barriers + first * 8, layout.barriers + end * 8, 8,
        fmt::format("{} mbarrier{}: {}", end - first, end - first == 1 ? "" : "s", who));
  };
  add_barriers("full", barriers.full, barriers.empty, "what is loaded has landed");
  add_barriers("empty", barriers.empty, barriers.accumulator_full, "products have read it");
  add_barriers("accumulator full", barriers.accumulator_full, barriers.accumulator_empty, "its sums are whole");
  add_barriers("accumulator empty", barriers.accumulator_empty, barriers.item_full, "they have been read");
  add_barriers("tile full", barriers.item_full, barriers.item_empty, "an answer is there");
  add_barriers("tile empty", barriers.item_empty, barriers.item_wanted, "all have read it");
  add_barriers("tile wanted", barriers.item_wanted, barriers.count, "loads of the one before have begun");
  add("tensor address", layout.tensor_address, layout.total, 0, "where the tensor memory begins");
  add("groups", layout.total, static_cast<int>(shared_bytes(spec)), 0,
      fmt::format("the rows and tiles of {} groups", spec.most_groups));
  return regions;
}

TensorMemoryMap blackwell_tensor_memory(const GemmSpec& spec) {
  TensorMemoryMap map;
  const contract::BlackwellGemmColumns columns = contract::blackwell_gemm_columns(blackwell_gemm_shape_of(spec));
  map.used = columns.used;
  map.allocated = columns.allocated;
  for (int i = 0; i < spec.accumulators; ++i)
    map.regions.push_back(
        {fmt::format("D{}", i), columns.accumulators + i * spec.block_n, spec.block_n,
         fmt::format("sums, [{}][{}] f32{}", spec.block_m, spec.block_n, spec.promotion > 0 ? ", of a slab" : "")});
  if (columns.scales_b > columns.scales_a) {
    map.regions.push_back({"scales of rows", columns.scales_a, columns.scales_b - columns.scales_a, "of a slab"});
    map.regions.push_back({"scales of columns", columns.scales_b, columns.used - columns.scales_b, "of a slab"});
  }
  return map;
}

std::uint32_t blackwell_shared_bytes(const GemmSpec& spec) {
  return static_cast<std::uint32_t>(
      contract::blackwell_gemm_shared_bytes(blackwell_gemm_shape_of(spec), spec.most_groups, spec.counts_atoms()));
}

std::vector<KernelRole> blackwell_roles(const GemmSpec& spec) {
  if (spec.pointers) return {{4, "store"}, {1, "mma"}, {1, "load"}, {2, "copy"}};
  return {{4, "store"}, {1, "mma"}, {1, "load"}, {1, "tiles"}, {1, "scales"}};
}

std::string blackwell_workers(const GemmSpec& spec) {
  return fmt::format("{} x {} {}, {}", spec.cluster_m, spec.cluster_n, spec.cta_group == 2 ? "in pairs" : "alone",
                     to_string(spec.scheduler));
}

int blackwell_storing_warps(const GemmSpec&) { return contract::kBlackwellGemmStoreWarps; }

}  // namespace

const GemmFamily& blackwell_gemm() {
  static constexpr GemmFamily row = {.family = Family::kBlackwell,
                                     .check = check_blackwell,
                                     .check_tile = check_blackwell_tile,
                                     .tiles = blackwell_gemm_tiles,
                                     .explain = explain_blackwell_gemm,
                                     .cost_us = blackwell_gemm_cost_us,
                                     .shared_bytes = blackwell_shared_bytes,
                                     .shared_map = blackwell_map,
                                     .roles = blackwell_roles,
                                     .workers = blackwell_workers,
                                     .tensor_memory_map = blackwell_tensor_memory,
                                     .predict = predict_blackwell_gemm,
                                     .storing_warps = blackwell_storing_warps,
                                     .keeps_f32 = true};
  return row;
}

}  // namespace kernelwright::detail
