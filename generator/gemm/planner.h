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

struct MachineClass;  // plan/machine.h

namespace contract {
struct BlackwellGemmShape;
struct SharedSlab;
struct TileBands;
}  // namespace contract

/// The run-time shape of a launch, and how much of the device the launch may take.
struct GemmExtent {
  int m = 1, n = 1, k = 1;
  int sm_budget = 0;  // SMs that the grid takes at most, but a cluster at least; 0: all
  int groups = 0;     // of m rows in all; 0: the rows are no groups

  /// Rows of a group, if all have as many.
  int rows_of_group() const { return groups > 1 ? static_cast<int>((std::int64_t{m} + groups - 1) / groups) : m; }
};

/// One of the kernels of a plan.
struct GemmVariant {
  int most_m = 0;  // it serves launches of at most so many rows, or rows of a group, that no earlier variant serves
  GemmSpec spec;
  bool bands_of_n = false;  // as schedule.raster says: in the kernel's view
  std::string row;          // the tuned row that chose it, by name; "": none
  bool operator==(const GemmVariant&) const = default;
};

/// The kernels of one problem. A few rows need other tiles than many, so there are several. A schedule that gives
/// enough fields leaves one. Kernels do not depend on n and k: problems share them.
struct GemmPlan {
  std::vector<GemmVariant> variants;    // most_m ascends; the last takes any m
  std::vector<Choice> choices;          // of the last variant; and a line for each variant that a tuned row chose
  std::vector<SkippedRow> passed_over;  // rows for the problem whose schedule does not fit, and why

  const GemmVariant& variant_for(int m) const {
    for (const GemmVariant& variant : variants)
      if (m <= variant.most_m) return variant;
    return variants.back();
  }
};

/// Plans with the schedule's fields where it gives them. For each range of rows, the others come from a tuned row of
/// the very problem, range and SM count whose schedule fits, else from the model. Rows of the device's own class come
/// before those that another class of the architecture lends. An architecture stands for its usual_machine(). Throws
/// ConfigError with every violation if no kernel of the family fits. `num_sms`: SMs of the device; 0: as many as a
/// usual part of the architecture.
GemmPlan plan_gemm(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch,
                   const TunedTable& rows = TunedTable::shipped(), int num_sms = 0);
GemmPlan plan_gemm(const GemmProblem& problem, const GemmSchedule& schedule, const MachineClass& machine,
                   const TunedTable& rows = TunedTable::shipped(), int num_sms = 0);

/// The rows that choose the kernel of a shape: m, or rows of a group that has any, on average.
int planned_rows(const GemmProblem& problem, const GemmShape& shape) noexcept;
/// A shape's extent, with those groups that have rows.
GemmExtent extent_of(const GemmProblem& problem, const GemmShape& shape) noexcept;

/// The same without any row.
GemmPlan plan_by_model(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch);

/// The ranges of row counts that a plan tells apart at most, in their order, without gaps. The last one reaches to the
/// most rows there are, and a plan's last variant serves it.
std::vector<RowRange> gemm_row_ranges();
/// Row counts that stand for the others where each costs time: the plan of a model lists these. Each ends a range.
std::vector<int> gemm_usual_rows();
/// The one of these ranges that contains `m`.
RowRange gemm_row_range(int m);

template <>
struct PlanOfKind<GemmConfig> {
  using type = GemmPlan;
};

/// Dynamic shared bytes of one CTA. Used by validation, launch and explain alike.
std::uint32_t shared_bytes(const GemmSpec& spec);

/// The sides of the kernel's tile, each with its operand: rows of the tile, or columns. Shared memory holds a slot's
/// part of the operand.
enum class TileSide { kRows, kColumns };
/// Whether k is innermost in that operand's memory.
bool is_along_k(const GemmSpec& spec, TileSide side) noexcept;
/// A CTA's part of that operand in a slot: what copies bring, and the places of its parts.
contract::SharedSlab shared_slab(const GemmSpec& spec, TileSide side) noexcept;

/// The shape from which contract/gemm_sm100.h computes shared memory, tensor memory, boxes and barriers.
contract::BlackwellGemmShape blackwell_gemm_shape_of(const GemmSpec& spec) noexcept;

/// Bands of tiles' rows, or of columns, that a grid walks together: policy/tile_raster.cuh. With groups, their band
/// alone holds. `max_clusters`: clusters of the kernel that the device holds at a time; 0: num_sms / size of a cluster.
contract::TileBands choose_bands(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters,
                                 bool bands_of_n) noexcept;

/// Whether CTAs that walk tiles share an SM where they fit: those of a batch, whose few slabs leave the memory idle at
/// a tile's end.
bool shares_sms(const GemmSpec& spec) noexcept;

/// No allocation, no exceptions.
LaunchPlan plan_launch(const GemmSpec& spec, const GemmExtent& extent, int num_sms, int max_clusters) noexcept;

/// Kernels count in 32 bits. They count rows to the end of a cluster's last tile, and items: tiles, or parts of k of
/// tiles. most_rows(): the most rows that a launch may have. count_items(): a launch's items, in whole clusters.
/// kMostItems: the most items of a launch. It is less than 32 bits hold, because a kernel adds the size of the grid to
/// an item's number.
int most_rows(const GemmSpec& spec) noexcept;
std::int64_t count_items(const GemmSpec& spec, const GemmExtent& extent) noexcept;
inline constexpr std::int64_t kMostItems = std::int64_t{1} << 28;

/// Whether launches take every SM, whatever GemmExtent::sm_budget says. They do where running CTAs take the items of
/// waiting ones. They also do where parts of k take turns, because all parts must be able to run.
bool takes_all_sms(const GemmSpec& spec) noexcept;

/// The global memory for parts of k that take turns at a tile (GemmSpec::takes_turns()). First come words that name the
/// part whose turn it is, zero when the kernel begins. Behind them are the sums so far.
struct GemmWorkspace {
  std::uint64_t bytes = 0, zeros = 0;     // 0: no memory is needed; how many bytes at the start are zeros
  std::uint64_t turns = 0, partials = 0;  // offsets
};
GemmWorkspace plan_workspace(const GemmSpec& spec, const GemmExtent& extent) noexcept;

}  // namespace kernelwright
