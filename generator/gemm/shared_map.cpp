#include "kernelwright/generator/gemm/shared_map.h"

#include <fmt/format.h>

#include "contract/gemm_params.h"
#include "contract/gemm_portable.h"
#include "contract/gemm_sm100.h"
#include "kernelwright/generator/gemm/family.h"

namespace kernelwright {
namespace {

std::vector<SharedRegion> portable_map(const GemmSpec& spec) {
  const contract::GemmPortableLayout layout =
      contract::gemm_portable_layout(spec.block_m, spec.block_n, spec.stages, spec.slab_bytes);
  const auto ring = [&](const char* name, int begin, int end, int extent) {
    const auto bytes = static_cast<std::uint32_t>(end - begin);
    return SharedRegion{name, static_cast<std::uint32_t>(begin), bytes, bytes / static_cast<std::uint32_t>(spec.stages),
                        fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, extent, spec.slab_bytes)};
  };
  return {ring("A", layout.a, layout.b, spec.block_m), ring("B", layout.b, layout.total, spec.block_n)};
}

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
  return regions;
}

}  // namespace

TensorMemoryMap tensor_memory_map(const GemmSpec& spec) {
  TensorMemoryMap map;
  if (spec.family != Family::kBlackwell) return map;
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

std::vector<SharedRegion> shared_map(const GemmSpec& spec) {
  if (spec.family == Family::kPortable) return portable_map(spec);
  if (spec.family == Family::kBlackwell) return blackwell_map(spec);
  const int scale_bytes = detail::gemm_scale_bytes(spec);
  const contract::GemmLayout layout =
      contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group, spec.math_warpgroups,
                            spec.store_stages, scale_bytes, spec.takes_turns(), spec.slab_bytes);
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
  add("item", layout.item, layout.total, 0, "which part of which tile is the CTA's");
  return regions;
}

}  // namespace kernelwright
