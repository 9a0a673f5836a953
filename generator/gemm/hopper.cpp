// The hopper GEMM: the problems it takes, the limits of the machine on its tile, and its memory maps.
// hopper_choices.cpp has its tiles.
#include <fmt/format.h>

#include <algorithm>

#include "contract/gemm_params.h"
#include "contract/shared_slab.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/epilogue.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

constexpr int kMostParts = 16;  // parts that take turns

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kHopperFields = *new std::vector<std::string_view>{
    "arch",    "family", "block_m",         "block_n",       "block_k", "stages",  "store_stages", "k_group", "cluster",
    "swizzle", "roles",  "math_warpgroups", "mma_in_flight", "swap_ab", "split_k", "split_mode",   "raster"};

/// Accumulators that a thread has room for beside its other registers, by math warpgroups. Measured on ptxas' output.
/// With two warpgroups of 208 each, ptxas waits for every product before it issues the next. With 192 and an epilogue
/// that reads memory, it spills. Gates alone do not: their results are half as many as the sums. Groups with gates keep
/// to 128: with 2048 rows a group, tiles of 128 x 176 took 1.35 of the time of 128 x 256 on an H100. Values that are
/// measured are made twice: where that is much code, half as many sums compile in half the time, and do not spill. One
/// warpgroup with 128 sums spills where heads of 256 elements go to a cache.
int most_sums(const GemmSpec& spec) {
  const bool gates_alone = spec.gated && !spec.is_grouped();
  const bool activates = spec.gated || spec.activation != Activation::kNone;
  const bool reads = spec.bias || spec.adds_c || spec.has_groups_of_columns() || spec.rstd || spec.writes_kv ||
                     (activates && !gates_alone);
  if (spec.math_warpgroups == 1) return spec.head_columns() > 128 ? 96 : 224;
  if (spec.math_warpgroups == 2 && spec.measures() && (activates || spec.rstd)) return 64;
  if (spec.math_warpgroups == 2) return reads ? 128 : 200;
  return 104;
}

int waves(const GemmSpec& spec) {
  return spec.block_m / 64 / (spec.roles == Roles::kPingPong ? 1 : spec.math_warpgroups);
}
/// f32 registers of a thread for the tile's sums.
int sums(const GemmSpec& spec) { return waves(spec) * spec.block_n / 2; }

/// Columns of the tile that a warp stores together: a slab, or those that share scales.
int stored_columns(const GemmSpec& spec) {
  return std::max({contract::gemm_store_columns(bits_of(spec.d) / 8, spec.halves_columns()),
                   spec.scaled_columns() / spec.halves(), spec.head_columns()});
}

/// Whether parts of k finish bands of any eight columns of a tile: these are rows of d, and warps meet.
bool bands_of_eights(const GemmSpec& spec) { return spec.swap_ab && (spec.quantizes || spec.writes_kv); }

/// Which columns a tile may have, so that it ends with whole rows of what TMA stores and with whole scales.
void check_stored_columns(const GemmSpec& spec, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  if (spec.swap_ab && spec.gated && bits_of(spec.d) == 8 && !spec.quantizes)
    refuse("swap_ab",
           fmt::format("true: a warp has 8 columns of {}, no whole 16 bytes, which TMA stores; false would do",
                       to_string(spec.d)));
  if (spec.halves_columns() && spec.block_n % (2 * kGatePairs) != 0)  // 32-bit d: the next rule has the others
    if (bits_of(spec.d) == 32)
      refuse("block_n", fmt::format("{} columns are no whole runs of {} gates and as many ups; {} would do",
                                    spec.block_n, kGatePairs, spec.block_n + kGatePairs));
  if (const int columns = 128 / bits_of(spec.d) * (spec.gated ? 2 : 1); !spec.swap_ab && spec.block_n % columns != 0)
    refuse("block_n", fmt::format("{} columns of {} are rows of no whole 16 bytes, which TMA stores; {} would do",
                                  spec.block_n, to_string(spec.d), (spec.block_n + columns - 1) / columns * columns));
  if (spec.swap_ab && spec.makes_blocks()) {
    refuse("swap_ab", fmt::format("true: columns of d that share a scale of {} lie in rows of several warps; false "
                                  "would do",
                                  to_string(spec.d)));
    return;
  }
  if (spec.swap_ab && (spec.measures() || spec.rstd)) {
    refuse("swap_ab",
           "true: rows of the result are columns of the tile, which have no amax, squares or rstd; false "
           "would do");
    return;
  }
  const int whole = spec.scaled_columns();
  const auto part = [&](int extent, const char* what) {
    return fmt::format("{} {} hold a part of the {}{} that {} of d; {} would do", extent, what, whole,
                       spec.gated ? " gates and ups" : "", what_columns_share(spec),
                       (extent + whole - 1) / whole * whole);
  };
  if (spec.swap_ab && spec.block_m % whole != 0) refuse("block_m", part(spec.block_m, "rows"));
  // Halves are of one wave of products, are stored behind the next tile's, and have two slabs to stay in.
  const bool halves = spec.halves() > 1 && spec.may_store_behind() && spec.mma_in_flight == 0 && waves(spec) == 1 &&
                      spec.store_stages == 2 && !spec.slices_k();
  if (!spec.swap_ab && spec.block_n % whole != 0 && !halves) refuse("block_n", part(spec.block_n, "columns"));
  if (!bands_of_eights(spec) || spec.block_m % whole != 0) return;
  if (const int step = 8 * spec.split_k; spec.split_k > 1 && !spec.takes_turns() && spec.block_n % step != 0)
    refuse("split_k",
           fmt::format("{} parts finish bands of whole eights of a swapped tile's columns, and {} columns have "
                       "none; block_n {} would do",
                       spec.split_k, spec.block_n, (spec.block_n + step - 1) / step * step));
  if (!spec.quantizes) return;
  const int warpgroups = spec.roles == Roles::kPingPong ? 1 : spec.math_warpgroups;
  const auto bytes = [&](int columns) {
    return contract::gemm_swapped_result_bytes(spec.block_m, columns, warpgroups, spec.gated);
  };
  const int room = 4 * warpgroups * spec.store_stages * contract::kGemmStoreSlabBytes;
  if (bytes(spec.block_n) > room)
    refuse("block_n", fmt::format("{} columns of a swapped tile hand {} bytes of a quantised result from warp to warp, "
                                  "and {} stages of results have {}; {} would fit",
                                  spec.block_n, bytes(spec.block_n), spec.store_stages, room, room / bytes(8) * 8));
}

bool fits_registers(const GemmSpec& spec) { return sums(spec) <= most_sums(spec) && spec.product_columns() > 0; }

}  // namespace

const char* what_columns_share(const GemmSpec& spec) {
  if (!spec.quantizes) return "have a sum of squares";
  return spec.makes_blocks() ? "have whole words of scales" : "share a scale";
}

void check_result_rows(const GemmProblem& problem, Violations& violations) {
  if (const int columns = result_columns(problem), step = 128 / bits_of(problem.dtype.d); columns == problem.n)
    check_row("/problem/n", columns, problem.dtype.d, "d", violations);
  else if (columns % step != 0)
    violations.push_back({"/problem/n", fmt::format("{} gates and ups leave rows of d, {}, off their 16-byte "
                                                    "boundaries; it takes a multiple of {}",
                                                    problem.n, to_string(problem.dtype.d), 2 * step)});
}

void check_blocks_of_groups(Family family, const GemmProblem& problem, Violations& violations) {
  if (problem.groups.any() && quantizes(problem) && is_block_scaled(problem.dtype.d))
    FamilyRules(family, violations)
        .refuse("/problem/groups/kind",
                fmt::format("{} with an epilogue that quantises to {}", in_quotes(to_string(problem.groups.kind)),
                            to_string(problem.dtype.d)),
                "none there; the blackwell family has rows and masked");
}

void check_hopper(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch>,
                  Violations& violations) {
  check_result_rows(problem, violations);
  check_heads(problem, Family::kHopper, violations);
  check_blocks_of_groups(Family::kHopper, problem, violations);
  FamilyRules hopper(Family::kHopper, violations);
  hopper.takes("/problem/dtype/a", problem.dtype.a, {DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2});
  if (bits_of(problem.dtype.a) == 8) hopper.takes("/problem/layout", problem.layout, {OperandLayout::kNt});
  hopper.has_only(schedule, kHopperFields);
  check_slab(problem, schedule, violations);
  if (const int parts = schedule.split_k.value_or(1); problem.groups.any() && parts > 1)
    hopper.refuse("/schedule/split_k", fmt::format("{} parts of k of groups", parts), "1");
  if (problem.groups.slices_k()) {
    if (!schedule.roles.is_auto()) hopper.takes("/schedule/roles", schedule.roles.value(), {Roles::kCooperative});
    if (schedule.swap_ab.value_or(false)) hopper.refuse("/schedule/swap_ab", "true with groups of kind \"k\"", "false");
    if (const ClusterShape cluster = schedule.cluster.value_or({}); cluster.m > 1)
      hopper.refuse("/schedule/cluster", fmt::format("[{}, {}] with groups of kind \"k\"", cluster.m, cluster.n),
                    "[1, 1]");
  }
  if (problem.groups.gather || problem.groups.pointers) {
    if (const ClusterShape cluster = schedule.cluster.value_or({}); cluster.m > 1)
      hopper.refuse(
          "/schedule/cluster",
          fmt::format("[{}, {}] with {}", cluster.m, cluster.n, problem.groups.gather ? "gather" : "pointers"),
          "[1, 1]");
    if (!schedule.swizzle.is_auto()) hopper.takes("/schedule/swizzle", schedule.swizzle.value(), {Swizzle::k128B});
    if (const int whole = 128 * 8 / bits_of(problem.dtype.a); !schedule.block_k.is_auto())
      hopper.takes("/schedule/block_k", schedule.block_k.value(), {whole});
  }
  if (!schedule.split_mode.is_auto())
    hopper.takes("/schedule/split_mode", schedule.split_mode.value(), {SplitMode::kCluster, SplitMode::kTurnstile});
  if (!schedule.mma_in_flight.is_auto())
    hopper.takes("/schedule/mma_in_flight", schedule.mma_in_flight.value(), {0, 1});
  if (!schedule.k_group.is_auto()) hopper.takes("/schedule/k_group", schedule.k_group.value(), {1, 2, 4});
  const bool turns = schedule.split_mode.value_or(SplitMode::kCluster) == SplitMode::kTurnstile;
  if (const int parts = schedule.split_k.value_or(1); turns ? parts > kMostParts : !is_one_of(parts, {1, 2, 4, 8}))
    hopper.refuse("/schedule/split_k", std::to_string(parts),
                  fmt::format("{}1 to {} with split_mode \"turnstile\"", turns ? "" : "1, 2, 4, 8, and ", kMostParts));
  if (!schedule.math_warpgroups.is_auto())
    hopper.takes("/schedule/math_warpgroups", schedule.math_warpgroups.value(), {1, 2, 3});
  if (const ClusterShape cluster = schedule.cluster.value_or({}); cluster.n != 1 || !is_one_of(cluster.m, {1, 2, 4}))
    hopper.refuse("/schedule/cluster", fmt::format("[{}, {}]", cluster.m, cluster.n), "[1, 1], [2, 1], [4, 1]");
}

int gemm_scale_bytes(const GemmSpec& spec) {
  if (spec.scales != ScaleKind::kPerBlock) return 0;
  return contract::gemm_scale_bytes(spec.swap_ab ? spec.block_n : spec.block_m, spec.has_bounds());
}

void check_hopper_tile(const GemmSpec& spec, const ArchInfo& arch, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  const bool ping_pong = spec.roles == Roles::kPingPong;
  const int step = 64 * (ping_pong ? 1 : spec.math_warpgroups);
  if (spec.block_m % step != 0) {
    refuse("block_m", fmt::format("{} is not a multiple of {} rows{}; {} would do", spec.block_m, step,
                                  ping_pong ? " of a warpgroup's product"
                                            : fmt::format(", 64 for each of {} math warpgroups", spec.math_warpgroups),
                                  std::max(step, spec.block_m / step * step)));
    return;
  }
  if (ping_pong && spec.math_warpgroups < 2)
    refuse("math_warpgroups", "1: \"ping_pong\" has warpgroups take turns; 2 would do");
  const int shares = 8 * spec.cluster_m;
  if (spec.block_n % shares != 0)
    refuse("block_n", fmt::format("{} columns are not a multiple of 8 for each CTA of a cluster of {}; {} would do",
                                  spec.block_n, spec.cluster_m, (spec.block_n + shares - 1) / shares * shares));
  const contract::SharedSlab columns_slab = shared_slab(spec, TileSide::kColumns);
  check_shares(spec, TileSide::kColumns, spec.cluster_m, violations);
  if (const int box = columns_slab.width_elements(); columns_slab.mn_major && spec.block_n % box != 0)
    refuse("block_n", fmt::format("{} columns of layout \"{}\" are loaded by the {}; {} would do", spec.block_n,
                                  to_string(spec.layout), box, (spec.block_n + box - 1) / box * box));
  check_stored_columns(spec, violations);
  check_heads_of_tile(spec, violations);
  if (spec.stages % spec.k_group != 0 || spec.stages < 2 * spec.k_group)
    refuse("stages", fmt::format("{} are not two groups of {} slabs or more; {} would do", spec.stages, spec.k_group,
                                 std::max(2, spec.stages / spec.k_group) * spec.k_group));
  if (spec.split_k > 1 && (ping_pong || spec.cluster_m > 1))
    refuse("split_k",
           fmt::format("{}: {}, and warpgroups that take turns have tiles of their own; 1 would do", spec.split_k,
                       spec.takes_turns() ? "parts that take turns are no cluster's"
                                          : "CTAs of a cluster either share a tile or its columns"));
  if (spec.split_k > 1 && !spec.takes_turns() && !bands_of_eights(spec) &&
      !contract::gemm_can_split(spec.block_n, stored_columns(spec), spec.math_warpgroups, spec.split_k))
    refuse("split_k",
           fmt::format("{} parts store bands of whole slabs of {} columns each, or of whole warps' rows, and a "
                       "tile of {} columns and {} warpgroup{} has neither; block_n {} would do",
                       spec.split_k, stored_columns(spec), spec.block_n, spec.math_warpgroups,
                       spec.math_warpgroups == 1 ? "" : "s", stored_columns(spec) * spec.split_k));
  // Parts in a cluster exchange f32 sums in the memory of the ring.
  const int slot = (spec.block_m + spec.block_n) * spec.slab_bytes, exchanged = spec.block_m * spec.block_n * 4;
  if (spec.split_k > 1 && !spec.takes_turns() && spec.stages * slot < exchanged) {
    const int slots = (exchanged + slot - 1) / slot;
    refuse("stages",
           fmt::format("{} slots have no room for the {} bytes of sums that {} parts of a tile hand each other; "
                       "{} would do",
                       spec.stages, exchanged, spec.split_k, (slots + spec.k_group - 1) / spec.k_group * spec.k_group));
  }
  if (!fits_registers(spec)) {
    GemmSpec smaller = spec;
    const int step = spec.swap_ab ? 8 : std::max(8, spec.head_columns());
    while (smaller.block_n > step && !fits_registers(smaller)) smaller.block_n -= step;
    refuse("block_n",
           fmt::format(
               "{} columns of {} rows take {} registers a thread{}, too many for {} math warpgroup{}; {}", spec.block_n,
               spec.block_m, sums(spec), spec.promotion > 0 ? ", and products that are added to them more" : "",
               spec.math_warpgroups, spec.math_warpgroups == 1 ? "" : "s",
               fits_registers(smaller) ? fmt::format("{} would fit", smaller.block_n) : "more of them would do"));
  }
  if (const int bytes = static_cast<int>(shared_bytes(spec)); bytes > arch.shared_bytes_per_cta) {
    GemmSpec smaller = spec;
    while (smaller.stages > 2 * spec.k_group && static_cast<int>(shared_bytes(smaller)) > arch.shared_bytes_per_cta)
      smaller.stages -= spec.k_group;
    const bool fits = static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta;
    refuse("stages",
           fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                       arch.shared_bytes_per_cta,
                       fits ? fmt::format("; stages {} would fit", smaller.stages) : "; a smaller block_n would do"));
  }
}

namespace {

std::vector<SharedRegion> hopper_map(const GemmSpec& spec) {
  const int scale_bytes = gemm_scale_bytes(spec);
  const contract::GemmLayout layout =
      contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group, spec.math_warpgroups,
                            spec.store_stages, scale_bytes, spec.takes_turns(), spec.slab_bytes, spec.most_groups);
  std::vector<SharedRegion> regions;
  const auto add = [&](std::string name, int begin, int end, int stage, std::string use) {
    if (end == begin) return;
    regions.push_back({std::move(name), static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin),
                       static_cast<std::uint32_t>(stage), std::move(use)});
  };
  const int slab = spec.slab_bytes, groups = spec.stages / spec.k_group;
  add(spec.swap_ab ? "B" : "A", layout.a, layout.b, spec.block_m * slab,
      fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, spec.block_m, slab));
  add(spec.swap_ab ? "A" : "B", layout.b, layout.output, spec.block_n * slab,
      fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, spec.block_n, slab));
  add("results", layout.output, layout.scales, contract::kGemmStoreSlabBytes,
      fmt::format("{} slabs of each of {} math warps, {} rows of {} bytes", spec.store_stages, 4 * spec.math_warpgroups,
                  contract::kGemmStoreRows, contract::kGemmStoreSlabBytes / contract::kGemmStoreRows));
  add("scales", layout.scales, layout.barriers, scale_bytes, "scales of the rows of a slot");
  add("full", layout.barriers, layout.barriers + groups * 8, 0, fmt::format("{} mbarriers", groups));
  add("empty", layout.barriers + groups * 8, layout.item, 0, fmt::format("{} mbarriers", groups));
  add("item", layout.item, layout.dealt, 0, "which part of which tile is the CTA's");
  if (spec.deals_tiles()) {
    const int end = layout.dealt + contract::kGemmDealtTiles * contract::kGemmDealtTileBytes;
    add("tiles", layout.dealt, end, contract::kGemmDealtTileBytes,
        fmt::format("{} tiles that wait for the roles", contract::kGemmDealtTiles));
    add("tile barriers", end, layout.groups, 0, fmt::format("{} mbarriers", 2 * contract::kGemmDealtTiles));
  } else {
    add("unused", layout.dealt, layout.groups, 0, "each role looks up its own tiles");
  }
  add("groups", layout.groups, layout.total, 0, fmt::format("the rows and tiles of {} groups", spec.most_groups));
  return regions;
}

std::uint32_t hopper_shared_bytes(const GemmSpec& spec) {
  return static_cast<std::uint32_t>(contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group,
                                                          spec.math_warpgroups, spec.store_stages,
                                                          gemm_scale_bytes(spec), spec.takes_turns(), spec.slab_bytes,
                                                          spec.most_groups)
                                        .total);
}

std::vector<KernelRole> hopper_roles(const GemmSpec& spec) {
  std::vector<KernelRole> roles{{4, "load"}};
  for (int i = 0; i < spec.math_warpgroups; ++i) roles.push_back({4, fmt::format("math {}", i)});
  return roles;
}

std::string hopper_workers(const GemmSpec& spec) {
  return fmt::format("{} {}", spec.math_warpgroups, to_string(spec.roles));
}

int hopper_storing_warps(const GemmSpec& spec) { return 4 * spec.math_warpgroups; }

void add_hopper_changes(std::vector<GemmChange>& changes, const GemmProblem& problem, const GemmSchedule& given) {
  using S = GemmSchedule;
  add_values(changes, &S::k_group, {1, 2, 4});
  add_values(changes, &S::cluster, {ClusterShape{1, 1}, ClusterShape{2, 1}, ClusterShape{4, 1}});
  add_values(changes, &S::swap_ab, {false, true});
  add_values(changes, &S::mma_in_flight, {0, 1});
  add_values(changes, &S::store_stages, {1, 2, 3});
  // With parts of k, a row's sums would depend on the number of rows.
  if (!problem.batch_invariant) {
    add_values(changes, &S::split_k, {1, 2, 4});
    // A tuned row that needs a workspace would also be given to callers without one. So these parts are tried only if
    // the schedule asks for them.
    if (given.split_mode.value_or(SplitMode::kCluster) == SplitMode::kTurnstile) add_values(changes, &S::split_k, {8});
  }
  for (const Roles roles : {Roles::kCooperative, Roles::kPingPong})
    for (const int warpgroups : {1, 2})
      changes.push_back([roles, warpgroups](S& schedule) {
        schedule.roles = roles;
        schedule.math_warpgroups = warpgroups;
        schedule.stages = {};
      });
}

}  // namespace

const GemmFamily& hopper_gemm() {
  static constexpr GemmFamily row = {.family = Family::kHopper,
                                     .check = check_hopper,
                                     .check_tile = check_hopper_tile,
                                     .tiles = hopper_gemm_tiles,
                                     .explain = explain_hopper_gemm,
                                     .cost_us = hopper_gemm_cost_us,
                                     .shared_bytes = hopper_shared_bytes,
                                     .shared_map = hopper_map,
                                     .roles = hopper_roles,
                                     .workers = hopper_workers,
                                     .add_changes = add_hopper_changes,
                                     .raster = hopper_raster,
                                     .storing_warps = hopper_storing_warps,
                                     .has_steps = hopper_gemm_has_steps};
  return row;
}

}  // namespace kernelwright::detail
