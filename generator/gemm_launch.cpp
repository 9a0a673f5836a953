// GEMM: a launch of one kernel.
#include <algorithm>
#include <limits>

#include "contract/gemm_params.h"
#include "kernelwright/generator/gemm_families.h"

namespace kernelwright {
namespace {

constexpr int kMostBand = 32;

/// Rows of tiles to walk together: what the CTAs work on at a time shall read as few rows of operands as can be.
int choose_band(std::int64_t rows, std::int64_t columns, std::int64_t at_once, int tile_rows, int tile_columns,
                std::int64_t& read) {
  int best = 1;
  read = std::numeric_limits<std::int64_t>::max();
  for (int band = 1; band <= kMostBand && band <= rows; ++band) {
    // Whole bands, and the rest of the last one.
    const auto of = [&](std::int64_t height) {
      return height * tile_rows + std::min(columns, ceil_div(at_once, height)) * tile_columns;
    };
    const std::int64_t rest = rows % band;
    const std::int64_t mean = floor_div((rows - rest) * of(band) + (rest > 0 ? rest * of(rest) : 0), rows);
    if (mean < read) read = mean, best = band;
  }
  return best;
}

/// A launch's tiles, in clusters.
struct Tiles {
  Tiles(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept
      : cluster(spec.cluster_m * spec.split_k),
        of_rows(spec.block_m * spec.cluster_m),
        rows(ceil_div(spec.swap_ab ? extent.n : extent.m, of_rows)),
        columns(ceil_div(spec.swap_ab ? extent.m : extent.n, spec.block_n)),
        most_clusters(max_clusters > 0 ? max_clusters : std::max(1, num_sms / cluster)) {
    if (extent.sm_budget > 0) most_clusters = std::clamp<std::int64_t>(extent.sm_budget / cluster, 1, most_clusters);
  }
  std::int64_t count() const { return rows * columns; }

  int cluster, of_rows;  // CTAs; rows of d that a cluster has
  std::int64_t rows, columns, most_clusters;
};

}  // namespace

std::uint32_t shared_bytes(const GemmSpec& spec) {
  return static_cast<std::uint32_t>(contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group,
                                                          spec.math_warpgroups, spec.store_stages,
                                                          detail::gemm_scale_bytes(spec))
                                        .total);
}

GemmRaster choose_raster(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept {
  const Tiles tiles(spec, extent, num_sms, max_clusters);
  const std::int64_t at_once = std::min(tiles.count(), tiles.most_clusters);
  std::int64_t along_m = 0, along_n = 0;
  const int band_m = choose_band(tiles.rows, tiles.columns, at_once, tiles.of_rows, spec.block_n, along_m);
  const int band_n = choose_band(tiles.columns, tiles.rows, at_once, spec.block_n, tiles.of_rows, along_n);
  const bool turned = along_n < along_m;
  return {turned ? band_n : band_m, turned};
}

LaunchPlan plan_launch(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept {
  const Tiles tiles(spec, extent, num_sms, max_clusters);
  LaunchPlan plan;
  plan.block = static_cast<std::uint32_t>(spec.threads());
  plan.shared_bytes = shared_bytes(spec);
  plan.cluster = static_cast<std::uint32_t>(tiles.cluster);
  // A part of k is a CTA's only tile: it adds in the ring's memory.
  const std::int64_t clusters = spec.split_k > 1 ? tiles.count() : std::min(tiles.count(), tiles.most_clusters);
  plan.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(clusters * tiles.cluster, 0xffffffff));
  return plan;
}

}  // namespace kernelwright
