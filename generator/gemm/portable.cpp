// The whole portable GEMM family: the problems it takes, its tiles and the model that ranks them, the limits of the
// machine on its tile, and its memory maps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "contract/gemm_portable.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/epilogue.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kPortableFields = *new std::vector<std::string_view>{
    "arch", "family", "block_m", "block_n", "block_k", "stages", "swizzle", "raster"};

/// "sm_89, sm_90a", of those for which `has`.
std::string archs_where(bool ArchInfo::*has) {
  std::string names;
  for (const ArchInfo& row : all_archs())
    if (row.*has) names.append(names.empty() ? "" : ", ").append(row.name);
  return names;
}

struct Form {
  int block_m, block_n;
};
// Small ones first: of tiles with equal cost in the model, the first is planned.
constexpr Form kForms[] = {{16, 64}, {16, 128}, {32, 64}, {64, 64}, {64, 128}, {128, 64}, {128, 128}};
// Of heads, whole ones of which a tile has.
constexpr Form kHeadForms[] = {{16, 64},  {16, 128},  {32, 64},  {32, 128}, {64, 64}, {64, 128},
                               {128, 64}, {128, 128}, {16, 256}, {32, 256}, {64, 256}};
// Of quantised results, whose columns of a tile share a scale: 256 of gates and ups, else 128.
constexpr Form kScaledForms[] = {{16, 128}, {32, 128}, {64, 128}, {128, 128}, {16, 256}, {32, 256}, {64, 256}};

/// The number of slots. kEnough slots hide the memory behind products. If an SM has room for two CTAs with that many,
/// a CTA takes as many as leave room for the second one. Else it takes all that fit. Both have a limit.
int choose_stages(GemmSpec spec, const ArchInfo& arch) {
  constexpr int kEnough = 3, kMostOfOne = 4, kMost = 8;
  spec.stages = 1;
  const int table = contract::gemm_group_table(spec.most_groups).total;
  const int slot = static_cast<int>(shared_bytes(spec)) - table;
  const int of_two = (arch.shared_bytes_per_sm / 2 - arch.reserved_shared_bytes_per_cta - table) / slot;
  if (of_two >= kEnough) return std::min(of_two, kMost);
  return std::clamp((arch.shared_bytes_per_cta - table) / slot, 2, kMostOfOne);
}

void check_portable(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch,
                    Violations& violations) {
  FamilyRules portable(Family::kPortable, violations);
  const auto [a, b, d, c] = problem.dtype;
  portable.takes("/problem/dtype/a", a, {DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2});
  if (is_fp8(a)) portable.takes("/problem/layout", problem.layout, {OperandLayout::kNt});
  if (arch && is_fp8(a) && !arch_info(*arch).fp8_mma_sync)
    violations.push_back(
        {"/problem/dtype/a", fmt::format("\"{}\" operands have no product on {}; {} have one", to_string(a),
                                         to_string(*arch), archs_where(&ArchInfo::fp8_mma_sync))});
  if (arch && is_fp8(d) && !arch_info(*arch).fp8_cvt)
    violations.push_back({"/problem/dtype/d", fmt::format("{} does not round to \"{}\"; {} do", to_string(*arch),
                                                          to_string(d), archs_where(&ArchInfo::fp8_cvt))});
  check_heads(problem, Family::kPortable, violations);
  check_blocks_of_groups(Family::kPortable, problem, violations);
  portable.has_only(schedule, kPortableFields);
  check_slab(problem, schedule, violations);
  if (!schedule.block_m.is_auto()) portable.takes("/schedule/block_m", schedule.block_m.value(), {16, 32, 64, 128});
  if (schedule.block_n.is_auto()) return;
  if (problem.kv_write) return portable.takes("/schedule/block_n", schedule.block_n.value(), {64, 128, 256});
  const bool scaled = quantizes(problem) || measures(problem);
  portable.takes(
      "/schedule/block_n", schedule.block_n.value(),
      !scaled ? std::vector<int>{32, 64, 128} : std::vector<int>{result_columns(problem) != problem.n ? 256 : 128});
}

void check_portable_tile(const GemmSpec& spec, const ArchInfo& arch, Violations& violations) {
  if (spec.has_groups_of_columns() && spec.block_n != spec.scaled_columns()) {
    violations.push_back(
        {"/schedule/block_n",
         fmt::format("{}: the columns of a tile {} of d; {} would do", spec.block_n,
                     spec.makes_blocks() ? "have whole words of scales" : "share a scale", spec.scaled_columns())});
    return;
  }
  if ((spec.has_groups_of_columns() || spec.writes_kv) && spec.block_m * spec.block_n > 128 * 128) {
    violations.push_back({"/schedule/block_m",
                          fmt::format("{} rows of {} columns of results and sums take too many registers; {} would do",
                                      spec.block_m, spec.block_n, 128 * 128 / spec.block_n)});
    return;
  }
  if (spec.stages < 2) {
    violations.push_back({"/schedule/stages",
                          fmt::format("{}: one slab is loaded while another is multiplied; 2 would do", spec.stages)});
    return;
  }
  check_heads_of_tile(spec, violations);
  const int bytes = static_cast<int>(shared_bytes(spec));
  if (bytes <= arch.shared_bytes_per_cta) return;
  GemmSpec one_slot = spec;
  one_slot.stages = 1;
  const int slot = bytes - static_cast<int>(shared_bytes(one_slot));  // of all slots but one
  const int most = 1 + (arch.shared_bytes_per_cta - (bytes - slot)) / (slot / (spec.stages - 1));
  violations.push_back(
      {"/schedule/stages", fmt::format("{}: needs {} shared bytes and {} has {}; stages {} would fit",
                                       kernel_name(spec), bytes, arch.name, arch.shared_bytes_per_cta, most)});
}

std::vector<GemmTile> portable_tiles(const GemmSpec& base, const GemmProblem&, const GemmSchedule& schedule) {
  std::vector<GemmTile> tiles;
  std::span<const Form> forms = kForms;
  if (base.writes_kv) forms = kHeadForms;
  if (base.has_groups_of_columns()) forms = kScaledForms;
  for (const Form& form : forms) {
    GemmSpec spec = base;
    spec.block_m = schedule.block_m.value_or(form.block_m);
    spec.block_n = schedule.block_n.value_or(form.block_n);
    spec.num_warps = contract::gemm_portable_warps(spec.block_m, spec.block_n);
    spec.stages = schedule.stages.value_or(choose_stages(spec, arch_info(spec.arch)));
    tiles.push_back({spec});
  }
  return tiles;
}

void explain_portable(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
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

double portable_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms) {
  // An SM makes 1024 products of 16-bit elements a clock. A tile that other tiles hide costs its products. Each slab
  // costs a barrier, and a tile its first slots and its results.
  const GemmRates& machine = portable_gemm_rates();
  constexpr double kProducts = 1024 * 2.0, kBarrier = 60, kFirst = 1200;
  const double slab_bytes = spec.slab_bytes, groups = std::max(1, extent.groups);
  const double tiles = groups * std::ceil(extent.rows_of_group() / static_cast<double>(spec.block_m)) *
                       std::ceil(extent.n / static_cast<double>(spec.block_n));
  const double bytes_of_element = bits_of(spec.a) / 8.0;
  const double slabs = std::ceil(extent.k * bytes_of_element / slab_bytes);
  const double row_warps = contract::gemm_portable_row_warps(spec.block_m), column_warps = spec.num_warps / row_warps;
  const double tensor = spec.block_m * spec.block_n * slab_bytes / kProducts;
  const double shared = (spec.block_m * column_warps + spec.block_n * row_warps) * slab_bytes / machine.shared_bytes;
  const double l2 = (spec.block_m + spec.block_n) * slab_bytes / machine.l2_bytes;
  const double slab = std::max({tensor, shared, l2}) + kBarrier;
  const double store = spec.block_m * spec.block_n * bits_of(spec.d) / 8.0 / machine.store_bytes;
  const double sm_us = std::ceil(tiles / num_sms) * (slabs * slab + store + kFirst) / machine.clock_mhz;
  const double bytes = (static_cast<double>(extent.m) + groups * extent.n) * extent.k * bytes_of_element +
                       static_cast<double>(extent.m) * extent.n * bits_of(spec.d) / 8.0;
  return machine.launch_us + std::max(sm_us, bytes / (machine.bytes_per_us * std::min(1.0, tiles / num_sms)));
}

std::vector<SharedRegion> portable_map(const GemmSpec& spec) {
  const contract::GemmPortableLayout layout =
      contract::gemm_portable_layout(spec.block_m, spec.block_n, spec.stages, spec.slab_bytes, spec.most_groups);
  const auto ring = [&](const char* name, int begin, int end, int extent) {
    const auto bytes = static_cast<std::uint32_t>(end - begin);
    return SharedRegion{name, static_cast<std::uint32_t>(begin), bytes, bytes / static_cast<std::uint32_t>(spec.stages),
                        fmt::format("{} slots of {} rows, {} bytes of k each", spec.stages, extent, spec.slab_bytes)};
  };
  std::vector<SharedRegion> regions{ring("A", layout.a, layout.b, spec.block_m),
                                    ring("B", layout.b, layout.groups, spec.block_n)};
  if (spec.has_bounds())
    regions.push_back({"groups", static_cast<std::uint32_t>(layout.groups),
                       static_cast<std::uint32_t>(layout.total - layout.groups), 0,
                       fmt::format("the rows and tiles of {} groups", spec.most_groups)});
  return regions;
}

std::uint32_t portable_shared_bytes(const GemmSpec& spec) {
  return static_cast<std::uint32_t>(
      contract::gemm_portable_layout(spec.block_m, spec.block_n, spec.stages, spec.slab_bytes, spec.most_groups).total);
}

std::vector<KernelRole> portable_roles(const GemmSpec& spec) { return {{spec.num_warps, "math"}}; }

std::string portable_workers(const GemmSpec& spec) { return fmt::format("{} warps", spec.num_warps); }

/// Adds the changes of a tile that only this family tries.
void add_portable_changes(std::vector<GemmChange>&, const GemmProblem&, const GemmSchedule&) {}

}  // namespace

const GemmFamily& portable_gemm() {
  static constexpr GemmFamily row = {.family = Family::kPortable,
                                     .check = check_portable,
                                     .check_tile = check_portable_tile,
                                     .tiles = portable_tiles,
                                     .explain = explain_portable,
                                     .cost_us = portable_cost_us,
                                     .shared_bytes = portable_shared_bytes,
                                     .shared_map = portable_map,
                                     .roles = portable_roles,
                                     .workers = portable_workers,
                                     .add_changes = add_portable_changes,
                                     .one_tile_a_cta = true};
  return row;
}

}  // namespace kernelwright::detail
