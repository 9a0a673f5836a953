// What lies where in the shared memory of a GEMM.
#include <fmt/format.h>

#include "contract/gemm_params.h"
#include "contract/gemm_portable.h"
#include "kernelwright/generator/gemm_families.h"
#include "kernelwright/generator/shared_map.h"

namespace kernelwright {
namespace {

std::vector<SharedRegion> portable_map(const GemmSpec& spec) {
  const contract::GemmPortableLayout layout = contract::gemm_portable_layout(spec.block_m, spec.block_n, spec.stages);
  const auto ring = [&](const char* name, int begin, int end, int extent) {
    const auto bytes = static_cast<std::uint32_t>(end - begin);
    return SharedRegion{
        name, static_cast<std::uint32_t>(begin), bytes, bytes / static_cast<std::uint32_t>(spec.stages),
        fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, extent, contract::kGemmPortableSlabBytes)};
  };
  return {ring("A", layout.a, layout.b, spec.block_m), ring("B", layout.b, layout.total, spec.block_n)};
}

}  // namespace

std::vector<SharedRegion> shared_map(const GemmSpec& spec) {
  if (spec.family == Family::kPortable) return portable_map(spec);
  const int scale_bytes = detail::gemm_scale_bytes(spec);
  const contract::GemmLayout layout = contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group,
                                                            spec.math_warpgroups, spec.store_stages, scale_bytes);
  std::vector<SharedRegion> regions;
  const auto add = [&](std::string name, int begin, int end, int stage, std::string use) {
    if (end == begin) return;
    regions.push_back({std::move(name), static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin),
                       static_cast<std::uint32_t>(stage), std::move(use)});
  };
  const int slab = contract::kGemmSlabBytes, groups = spec.stages / spec.k_group;
  add(spec.swap_ab ? "B" : "A", layout.a, layout.b, spec.block_m * slab,
      fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, spec.block_m, slab));
  add(spec.swap_ab ? "A" : "B", layout.b, layout.output, spec.block_n * slab,
      fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, spec.block_n, slab));
  add("results", layout.output, layout.scales, contract::kGemmStoreSlabBytes,
      fmt::format("{} slabs of each of {} math warps, {} rows of {} bytes", spec.store_stages, 4 * spec.math_warpgroups,
                  contract::kGemmStoreRows, slab));
  add("scales", layout.scales, layout.barriers, scale_bytes, "scales of the rows of a slot");
  add("full", layout.barriers, layout.barriers + groups * 8, 0, fmt::format("{} mbarriers", groups));
  add("empty", layout.barriers + groups * 8, layout.total, 0, fmt::format("{} mbarriers", groups));
  return regions;
}

}  // namespace kernelwright
