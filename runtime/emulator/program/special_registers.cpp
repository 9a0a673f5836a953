#include "kernelwright/runtime/emulator/program/special_registers.h"

#include <algorithm>

#include "kernelwright/runtime/emulator/program/shared_layout.h"

namespace kernelwright::emulator {
namespace {

struct Row {
  std::string_view name;
  Special what;
  std::uint64_t value = 0;
};
constexpr Row kRows[] = {
    {"%tid.x", Special::kTidX},
    {"%tid.y", Special::kTidY},
    {"%tid.z", Special::kTidZ},
    {"%ntid.x", Special::kNtidX},
    {"%ntid.y", Special::kNtidY},
    {"%ntid.z", Special::kNtidZ},
    {"%ctaid.x", Special::kCtaidX},
    {"%ctaid.y", Special::kCtaidY},
    {"%ctaid.z", Special::kCtaidZ},
    {"%nctaid.x", Special::kNctaidX},
    {"%nctaid.y", Special::kNctaidY},
    {"%nctaid.z", Special::kNctaidZ},
    {"%laneid", Special::kLaneId},
    {"%warpid", Special::kWarpId},
    {"%nwarpid", Special::kNwarpId},
    {"%lanemask_eq", Special::kLanemaskEq},
    {"%lanemask_le", Special::kLanemaskLe},
    {"%lanemask_lt", Special::kLanemaskLt},
    {"%lanemask_ge", Special::kLanemaskGe},
    {"%lanemask_gt", Special::kLanemaskGt},
    {"%clusterid.x", Special::kClusterIdX},
    {"%clusterid.y", Special::kClusterIdY},
    {"%clusterid.z", Special::kClusterIdZ},
    {"%nclusterid.x", Special::kNclusterIdX},
    {"%nclusterid.y", Special::kNclusterIdY},
    {"%nclusterid.z", Special::kNclusterIdZ},
    {"%cluster_ctaid.x", Special::kClusterCtaidX},
    {"%cluster_ctaid.y", Special::kClusterCtaidY},
    {"%cluster_ctaid.z", Special::kClusterCtaidZ},
    {"%cluster_nctaid.x", Special::kClusterNctaidX},
    {"%cluster_nctaid.y", Special::kClusterNctaidY},
    {"%cluster_nctaid.z", Special::kClusterNctaidZ},
    {"%cluster_ctarank", Special::kClusterCtarank},
    {"%cluster_nctarank", Special::kClusterNctarank},
    {"%dynamic_smem_size", Special::kDynamicSharedBytes},
    {"%total_smem_size", Special::kTotalSharedBytes},
    {"%smid", Special::kSmId},
    {"%nsmid", Special::kNsmId},
    {"%gridid", Special::kGridId},
    // The system's own bytes of shared memory lie before the program's.
    {"%aggr_smem_size", Special::kTotalSharedBytes, kSharedBase},
    {"%reserved_smem_offset_begin", Special::kNumber, 0},
    {"%reserved_smem_offset_end", Special::kNumber, kSharedBase},
    {"%reserved_smem_offset_cap", Special::kNumber, kSharedBase},
    {"%reserved_smem_offset_0", Special::kNumber, 0},
    // Groups of several warps synchronise through the memory from here on (cooperative_groups::tiled_partition).
    {"%reserved_smem_offset_1", Special::kNumber, kReservedSharedBegin},
};

/// The number behind `prefix`, if `name` is those two and the number is below `count`.
std::optional<int> numbered(std::string_view name, std::string_view prefix, int count) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.empty() || name.size() > 2 || (name.size() == 2 && name[0] == '0')) return std::nullopt;
  int number = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + (c - '0');
  }
  return number < count ? std::optional(number) : std::nullopt;
}

/// Those that older code may read as 16 bits.
bool fills_16_bits(std::string_view name) {
  for (const std::string_view of : {"%tid.", "%ntid.", "%ctaid.", "%nctaid."})
    if (name.starts_with(of)) return true;
  return name == "%gridid";
}

}  // namespace

std::optional<SpecialRegister> find_special_register(std::string_view name) {
  if (name == "%is_explicit_cluster")
    return SpecialRegister{.what = Special::kIsExplicitCluster, .size = RegisterClass::kPredicate};
  // A driver sets %envreg1 and %envreg2 for a cooperative launch: the address of the grid's workspace.
  if (const std::optional<int> number = numbered(name, "%envreg", 32)) {
    const bool workspace = *number == 1 || *number == 2;
    return SpecialRegister{.what = workspace ? Special::kGridWorkspace : Special::kNumber,
                           .value = *number == 1 ? 32u : 0u,  // the first of the two has the upper half
                           .size = RegisterClass::k32};
  }
  // Counters of a profiler, which does not run here.
  const bool wide = name.ends_with("_64");
  if (numbered(wide ? name.substr(0, name.size() - 3) : name, "%pm", 8))
    return SpecialRegister{.size = wide ? RegisterClass::k64 : RegisterClass::k32};
  if (name == "%current_graph_exec")
    return SpecialRegister{.size = RegisterClass::k64};  // no launch is part of a graph
  if (name.ends_with(".w")) return SpecialRegister{.fills_16_bits = fills_16_bits(name)};  // always zero
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& at) { return at.name == name; });
  if (row == std::end(kRows)) return std::nullopt;
  return SpecialRegister{.what = row->what, .value = row->value, .fills_16_bits = fills_16_bits(name)};
}

}  // namespace kernelwright::emulator
