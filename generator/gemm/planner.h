/// GEMM: problem + schedule + architecture -> the kernels that serve it, and a launch of one of them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/generator/plan/choice.h"
#include "kernelwright/generator/plan/launch.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"
#include "kernelwright/generator/source/spec.h"
#include "kernelwright/generator/tuned/table.h"

namespace kernelwright {

namespace contract {
struct BlackwellGemmShape;
struct SharedSlab;
}  // namespace contract

/// One of the kernels of a plan.
struct GemmVariant {
  int most_m = 0;  // it serves launches of at most so many rows that no earlier one serves
  GemmSpec spec;
  bool bands_of_n = false;  // as schedule.raster says: in the kernel's view
  std::string row;          // the tuned row that chose it, by name; "": none
  bool operator==(const GemmVariant&) const = default;
};

/// The kernels of one problem. A few rows want other tiles than many, so there are several; a schedule that says
/// enough leaves one. Kernels do not depend on n and k: problems share them.
struct GemmPlan {
  std::vector<GemmVariant> variants;    // most_m ascends; the last takes any m
  std::vector<Choice> choices;          // of the last variant; and a line for each that a tuned row chose
  std::vector<SkippedRow> passed_over;  // rows for the problem whose schedule does not fit, and why

  const GemmVariant& variant_for(int m) const {
    for (const GemmVariant& variant : variants)
      if (m <= variant.most_m) return variant;
    return variants.back();
  }
};

/// The schedule's fields where it gives them; the others, for each range of rows, from a tuned row of the very problem,
/// range and SM count whose schedule fits, else by model. Throws ConfigError with every violation if no kernel of the
/// family fits. `num_sms`: SMs of the device; 0: as many as a usual part of `arch`.
GemmPlan plan_gemm(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch,
                   const TunedTable& rows = TunedTable::shipped(), int num_sms = 0);

/// The same without any row.
GemmPlan plan_by_model(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch);

/// The ranges that a plan tells apart, in their order, without gaps; the last one reaches to the most rows there are,
/// and a plan's last variant serves it.
std::vector<RowRange> gemm_row_ranges();
/// That of them which `m` lies in.
RowRange gemm_row_range(int m);

template <>
struct PlanOfKind<GemmConfig> {
  using type = GemmPlan;
};

/// The run-time shape that a launch is planned for, and how much of the device it may take.
struct GemmExtent {
  int m = 1, n = 1, k = 1;
  int sm_budget = 0;  // SMs that the grid takes at most, but a cluster at least; 0: all
};

/// Dynamic shared bytes of one CTA. Used by validation, launch and explain alike.
std::uint32_t shared_bytes(const GemmSpec& spec);

/// Operands of the kernel's view, a slot's part of which lies in shared memory: rows of the tile, or columns.
enum class TileSide { kRows, kColumns };
/// Whether k is innermost in that operand's memory.
bool is_along_k(const GemmSpec& spec, TileSide side) noexcept;
/// What a CTA has of it in a slot: what copies bring, and where its parts lie.
contract::SharedSlab shared_slab(const GemmSpec& spec, TileSide side) noexcept;

/// What contract/gemm_sm100.h's tables of shared memory, tensor memory, boxes and barriers follow from.
contract::BlackwellGemmShape blackwell_gemm_shape_of(const GemmSpec& spec) noexcept;

/// Rows of tiles, or columns, that a grid walks together: policy/tile_raster.cuh. `max_clusters`: clusters of the
/// kernel that the device holds at a time; where it is 0, num_sms / size of a cluster.
int choose_band(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters,
                bool bands_of_n) noexcept;

/// No allocation, no exceptions.
LaunchPlan plan_launch(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept;

/// Kernels count in 32 bits: rows to the end of a cluster's last tile, and items, which are tiles or parts of k of
/// them. The most rows that a launch may have, its items, those of whole clusters, and the most that it may have: fewer
/// than 32 bits hold, for kernels add the grid to one's number.
int most_rows(const GemmSpec& spec) noexcept;
std::int64_t count_items(const GemmSpec& spec, const GemmExtent& extent) noexcept;
inline constexpr std::int64_t kMostItems = std::int64_t{1} << 28;

/// Whether launches take every SM, whatever GemmExtent::sm_budget says: where CTAs that run take over those that wait,
/// and where parts of k take turns, which must all be on their way.
bool takes_all_sms(const GemmSpec& spec) noexcept;

/// The global memory of parts of k that take turns at a tile (GemmSpec::takes_turns()): words that name the part whose
/// turn it is, zero when the kernel begins, and behind them the sums so far.
struct GemmWorkspace {
  std::uint64_t bytes = 0, zeros = 0;     // 0: nothing; how many at the start are zeros
  std::uint64_t turns = 0, partials = 0;  // offsets
};
GemmWorkspace plan_workspace(const GemmSpec& spec, const GemmExtent& extent) noexcept;

}  // namespace kernelwright
