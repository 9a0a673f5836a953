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

}  // namespace

std::uint32_t shared_bytes(const GemmSpec& spec) {
  return static_cast<std::uint32_t>(contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group,
                                                          spec.math_warpgroups, spec.store_stages,
                                                          detail::gemm_scale_bytes(spec))
                                        .total);
}

GemmLaunch plan_launch(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept {
  GemmLaunch launch;
  launch.main.block = static_cast<std::uint32_t>(spec.threads());
  launch.main.shared_bytes = shared_bytes(spec);
  const int cluster = spec.cluster_m * spec.split_k;
  launch.main.cluster = static_cast<std::uint32_t>(cluster);

  const int tile_rows = spec.block_m * spec.cluster_m;
  const std::int64_t rows = ceil_div(spec.swap_ab ? extent.n : extent.m, tile_rows);
  const std::int64_t columns = ceil_div(spec.swap_ab ? extent.m : extent.n, spec.block_n);
  const std::int64_t tiles = rows * columns;  // of clusters
  std::int64_t most = max_clusters > 0 ? max_clusters : std::max(1, num_sms / cluster);
  if (extent.sm_budget > 0) most = std::clamp<std::int64_t>(extent.sm_budget / cluster, 1, most);
  // A part of k is a CTA's only tile: it adds in the ring's memory.
  const std::int64_t clusters = spec.split_k > 1 ? tiles : std::min(tiles, most);
  launch.main.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(clusters * cluster, 0xffffffff));

  const std::int64_t at_once = std::min(tiles, most);
  std::int64_t along_m = 0, along_n = 0;
  const int band_m = choose_band(rows, columns, at_once, tile_rows, spec.block_n, along_m);
  const int band_n = choose_band(columns, rows, at_once, spec.block_n, tile_rows, along_n);
  launch.bands_of_n = along_n < along_m;
  launch.band = launch.bands_of_n ? band_n : band_m;
  return launch;
}

}  // namespace kernelwright
