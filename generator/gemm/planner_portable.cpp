// Tiles of the portable GEMM: a few forms, and a model that ranks them.
#include <algorithm>
#include <cmath>

#include "contract/gemm_portable.h"
#include "kernelwright/generator/gemm/family.h"

namespace kernelwright::detail {
namespace {

struct Form {
  int block_m, block_n;
};
// Small ones first: of those that the model takes to be alike the first is planned.
constexpr Form kForms[] = {{16, 64}, {16, 128}, {32, 64}, {64, 64}, {64, 128}, {128, 64}, {128, 128}};

/// Slots that leave room for a second CTA of the SM, if these are enough to hide the memory behind products; else all
/// that fit. No more than that takes.
int choose_stages(GemmSpec spec, const ArchInfo& arch) {
  constexpr int kEnough = 3, kMostOfOne = 4, kMost = 8;
  spec.stages = 1;
  const int slot = static_cast<int>(shared_bytes(spec));
  const int of_two = (arch.shared_bytes_per_sm / 2 - arch.reserved_shared_bytes_per_cta) / slot;
  if (of_two >= kEnough) return std::min(of_two, kMost);
  return std::clamp(arch.shared_bytes_per_cta / slot, 2, kMostOfOne);
}

}  // namespace

std::vector<GemmSpec> portable_gemm_tiles(const GemmSpec& base, const GemmSchedule& schedule) {
  std::vector<GemmSpec> specs;
  for (const Form& form : kForms) {
    GemmSpec spec = base;
    spec.block_m = schedule.block_m.value_or(form.block_m);
    spec.block_n = schedule.block_n.value_or(form.block_n);
    spec.num_warps = contract::gemm_portable_warps(spec.block_m, spec.block_n);
    spec.stages = schedule.stages.value_or(choose_stages(spec, arch_info(spec.arch)));
    specs.push_back(spec);
  }
  return specs;
}

void explain_portable_gemm(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                           std::vector<Choice>& choices) {
  Resolver resolve(choices);
  resolve.derived("arch", spec.arch, "the device, or --arch");
  resolve("family", schedule.family, spec.family,
          own_family(spec.arch) ? "no family of the architecture's own computes this"
                                : "mma.sync: all the architecture has");
  resolve("block_m", schedule.block_m, spec.block_m, why);
  resolve("block_n", schedule.block_n, spec.block_n, why);
  explain_slab(spec, schedule, choices);
  resolve("stages", schedule.stages, spec.stages, "slots that leave room for a second CTA, where three or more do");
  resolve.derived("num_warps", spec.num_warps, "64 rows and 32 columns of the tile for each, or less");
}

double portable_gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms) {
  // Of the machine only ratios count here: 1024 products of 16-bit elements a clock of an SM, 128 bytes of shared
  // memory, 40 of the L2; a device's memory brings 1.5 TB/s to all. A tile that others hide costs its products; each
  // slab a barrier, and a tile its first slots and its results.
  constexpr double kClockMhz = 1500, kBytesPerUs = 1.5e6, kLaunchUs = 2, kBarrier = 60, kFirst = 1200;
  constexpr double kProducts = 1024 * 2.0, kSharedBytes = 128, kL2Bytes = 40;
  const double slab_bytes = spec.slab_bytes;
  const double tiles =
      std::ceil(extent.m / static_cast<double>(spec.block_m)) * std::ceil(extent.n / static_cast<double>(spec.block_n));
  const double bytes_of_element = bits_of(spec.a) / 8.0;
  const double slabs = std::ceil(extent.k * bytes_of_element / slab_bytes);
  const double row_warps = contract::gemm_portable_row_warps(spec.block_m), column_warps = spec.num_warps / row_warps;
  const double tensor = spec.block_m * spec.block_n * slab_bytes / kProducts;
  const double shared = (spec.block_m * column_warps + spec.block_n * row_warps) * slab_bytes / kSharedBytes;
  const double l2 = (spec.block_m + spec.block_n) * slab_bytes / kL2Bytes;
  const double slab = std::max({tensor, shared, l2}) + kBarrier;
  const double store = spec.block_m * spec.block_n * bits_of(spec.d) / 8.0 / 32;
  const double sm_us = std::ceil(tiles / num_sms) * (slabs * slab + store + kFirst) / kClockMhz;
  const double bytes = (static_cast<double>(extent.m) + extent.n) * extent.k * bytes_of_element +
                       static_cast<double>(extent.m) * extent.n * bits_of(spec.d) / 8.0;
  return kLaunchUs + std::max(sm_us, bytes / (kBytesPerUs * std::min(1.0, tiles / num_sms)));
}

}  // namespace kernelwright::detail
