// GEMM: a launch of one kernel.
#include <algorithm>
#include <cmath>

#include "contract/gemm_params.h"
#include "contract/gemm_portable.h"
#include "contract/gemm_sm100.h"
#include "contract/shared_slab.h"
#include "contract/tile_bands.h"
#include "contract/turnstile.h"
#include "kernelwright/generator/gemm/family.h"

namespace kernelwright {
namespace {

/// The number of rows of tiles that CTAs walk together. A region of tiles that is as wide as tall reads the fewest rows
/// of operands. The result is a power of two, so that bands are alike. On an H100, bands of 11 rows read less than
/// bands of 8, but were slower by a twelfth.
int band_of(std::int64_t rows, std::int64_t columns, std::int64_t at_once, int tile_rows, int tile_columns) {
  if (rows * columns <= at_once) {
    // All tiles are worked on at a time. Neighbours share the longer operand, which comes from memory.
    constexpr std::int64_t kLong = 4;
    const std::int64_t tall = rows * tile_rows, wide = columns * tile_columns;
    if (tall >= kLong * wide) return 1;
    if (wide >= kLong * tall) return static_cast<int>(rows);
  }
  constexpr double kSlack = 1.2;  // prefers the upper power where a square is a little less tall
  const double square = kSlack * std::sqrt(static_cast<double>(at_once) * tile_columns / tile_rows);
  int band = 1;
  while (band * 2 <= square && band * 2 <= rows) band *= 2;
  return band;
}

constexpr std::int64_t kMostCtas = 0x7fffffff;  // of a grid, along x
constexpr std::int64_t kCtasOfSm = 2;           // portable, with groups

/// CTAs, or clusters, that take turns at a tile.
int turns_of(const GemmSpec& spec) { return spec.takes_turns() ? spec.split_k : 1; }

/// A launch's tiles, in clusters.
struct Tiles {
  Tiles(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept
      : cluster(spec.cluster()),
        of_rows(spec.block_m * spec.cluster_m),
        of_columns(spec.block_n * spec.cluster_n * spec.halves()),
        rows(spec.swap_ab ? ceil_div(extent.n, of_rows) : tiles_of_groups(spec, extent, of_rows)),
        columns(spec.swap_ab ? tiles_of_groups(spec, extent, of_columns) : ceil_div(extent.n, of_columns)),
        most_clusters(max_clusters > 0 ? max_clusters : std::max(1, num_sms / cluster)) {
    if (extent.sm_budget > 0) most_clusters = std::clamp<std::int64_t>(extent.sm_budget / cluster, 1, most_clusters);
  }
  std::int64_t count() const { return rows * columns; }
  /// Along the rows of all groups. Each group with bounds may end with a tile that it does not fill: these are the most
  /// tiles that there can be. Groups with a whole matrix d have as many each.
  static std::int64_t tiles_of_groups(const GemmSpec& spec, const GemmExtent& extent, int of_tile) {
    if (extent.groups == 0) return ceil_div(extent.m, of_tile);
    if (spec.stacks_d()) return ceil_div(extent.rows_of_group(), of_tile) * extent.groups;
    return extent.m / of_tile + std::min(extent.groups, extent.m);
  }

  int cluster, of_rows, of_columns;  // CTAs; rows and columns of the kernel's d in a cluster
  std::int64_t rows, columns, most_clusters;
};

}  // namespace

bool is_along_k(const GemmSpec& spec, TileSide side) noexcept {
  const bool of_a = (side == TileSide::kRows) != spec.swap_ab;  // the problem's a
  return spec.layout == OperandLayout::kNt || spec.layout == (of_a ? OperandLayout::kNn : OperandLayout::kTt);
}

contract::SharedSlab shared_slab(const GemmSpec& spec, TileSide side) noexcept {
  const int columns = spec.block_n / spec.cta_group;  // a CTA has its share
  return {.bytes = spec.slab_bytes,
          .swizzle_bytes = bytes_of(spec.swizzle),
          .element_bits = bits_of(spec.a),
          .rows = side == TileSide::kRows ? spec.block_m : columns,
          .mn_major = !is_along_k(spec, side)};
}

contract::BlackwellGemmShape blackwell_gemm_shape_of(const GemmSpec& spec) noexcept {
  const int atoms = is_block_scaled(spec.a) ? contract::kBlackwellGemmSlabBytes * 8 / bits_of(spec.a) /
                                                  (contract::kScaleAtomScales * scale_vector(spec.a))
                                            : 0;
  return {.block_n = spec.block_n,
          .ctas = spec.cta_group,
          .cluster_m = spec.cluster_m,
          .cluster_n = spec.cluster_n,
          .stages = spec.stages,
          .k_group = spec.k_group,
          .accumulators = spec.accumulators,
          .scale_atoms = atoms,
          .store_stages = spec.store_stages,
          .d_bytes = spec.makes_blocks() ? 1
                     : spec.quantizes    ? 4
                                         : bits_of(spec.d) / 8,  // f32 until it is scaled
          .swap_ab = spec.swap_ab,
          .items = spec.clc_depth,
          .slab_bytes = spec.slab_bytes};
}

contract::TileBands choose_bands(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters,
                                 bool bands_of_n) noexcept {
  GemmExtent of_group = extent;
  of_group.m = extent.rows_of_group(), of_group.groups = 0;
  const Tiles tiles(spec, of_group, num_sms, max_clusters);
  const auto bands = [&](std::int64_t rows, std::int64_t columns, int of_rows, int of_columns) {
    const int band = band_of(rows, columns, tiles.most_clusters, of_rows, of_columns);
    return contract::tile_bands(static_cast<int>(rows), static_cast<int>(columns), band);
  };
  return bands_of_n ? bands(tiles.columns, tiles.rows, tiles.of_columns, tiles.of_rows)
                    : bands(tiles.rows, tiles.columns, tiles.of_rows, tiles.of_columns);
}

bool shares_sms(const GemmSpec& spec) noexcept { return spec.is_batched() && spec.family == Family::kHopper; }

LaunchPlan plan_launch(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept {
  const Tiles tiles(spec, extent, num_sms, max_clusters);
  LaunchPlan plan;
  plan.block = static_cast<std::uint32_t>(spec.threads());
  plan.shared_bytes = shared_bytes(spec);
  plan.cluster = static_cast<std::uint32_t>(tiles.cluster);
  // Launch as many CTAs as finish in the same round. Idle SMs leave their share of the power budget to the busy ones.
  // Three kinds of launch have a CTA for each tile. A part of k is a CTA's only tile: the CTA adds in the ring's
  // memory, or waits for the part before, which must have begun. An SM holds several portable CTAs, so each has one
  // tile unless the launch has a budget of SMs. A queued kernel launches a CTA for each tile, and a running CTA takes
  // the tiles of those that have not begun.
  const bool many_ctas = detail::family_row(spec).one_tile_a_cta;
  const bool one_each = takes_all_sms(spec) || spec.split_k > 1 || (many_ctas && extent.sm_budget == 0);
  // CTAs share SMs where each has two tiles at least, so that one loads while the other one is stored. With fewer
  // tiles, some SMs would have two CTAs and others one.
  std::int64_t most = tiles.most_clusters;
  if (shares_sms(spec)) {
    constexpr std::int64_t kTilesOfCta = 2, kCtasThatShare = 2;
    const bool share = tiles.count() >= kTilesOfCta * kCtasThatShare * num_sms;
    most = std::min<std::int64_t>(most, share ? tiles.count() / kTilesOfCta : num_sms);
  }
  const std::int64_t rounds = one_each ? 1 : ceil_div(tiles.count(), most);
  std::int64_t clusters = ceil_div(tiles.count(), std::max<std::int64_t>(1, rounds)) * turns_of(spec);
  // How many tiles groups have is known on the device alone, and each CTA reads all bounds. So CTAs take many tiles.
  if (extent.groups > 0 && spec.has_bounds())
    clusters = std::min(tiles.count(), tiles.most_clusters * (many_ctas && extent.sm_budget == 0 ? kCtasOfSm : 1));
  plan.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(clusters * tiles.cluster, kMostCtas));
  return plan;
}

int most_rows(const GemmSpec& spec) noexcept {
  const int tile = spec.swap_ab ? spec.block_n * spec.cluster_n : spec.block_m * spec.cluster_m;
  return static_cast<int>((std::int64_t{1} << 31) - tile);
}

std::int64_t count_items(const GemmSpec& spec, const GemmExtent& extent) noexcept {
  return Tiles(spec, extent, 1, 1).count() * spec.cluster_m * spec.cluster_n * spec.split_k;
}

bool takes_all_sms(const GemmSpec& spec) noexcept { return spec.takes_turns() || spec.scheduler == Scheduler::kQueued; }

GemmWorkspace plan_workspace(const GemmSpec& spec, const GemmExtent& extent) noexcept {
  if (turns_of(spec) == 1 || extent.m == 0) return {};
  const Tiles tiles(spec, extent, 1, 1);
  const int warps = detail::family_row(spec).storing_warps(spec);
  const contract::TurnstileWorkspace of =
      contract::turnstile_workspace(tiles.count() * tiles.cluster, warps, spec.block_m * spec.block_n);
  const auto bytes = [](std::int64_t count) { return static_cast<std::uint64_t>(count); };
  return {.bytes = bytes(of.total), .zeros = bytes(of.zeros), .turns = bytes(of.turns), .partials = bytes(of.partials)};
}

}  // namespace kernelwright
