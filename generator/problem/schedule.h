/// How to compute it. Every field may be "auto", which leaves it to the planner. If a kernel family does not have a
/// field that is given, validation refuses the field by name (validate.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/problem.h"

namespace kernelwright {

struct ClusterShape {
  int m = 1, n = 1;
  bool operator==(const ClusterShape&) const = default;
};

struct AttentionSchedule {
  Auto<Arch> arch;
  Auto<Family> family;
  Auto<int> block_m, block_n, block_k, warp_n;
  Auto<int> num_stages;
  Auto<Staging> staging;
  Auto<bool> token_gen;
  Auto<int> num_warps;
  Auto<int> q_stages;
  Auto<int> num_kv_stages, num_qk_stages, num_mma_stages;
  Auto<KvRing> kv_ring;
  Auto<int> num_q, math_warpgroups;
  Auto<Overlap> overlap;
  Auto<Swizzle> swizzle;
  Auto<int> cta_group;
  Auto<ClusterShape> cluster;
  Auto<Scheduler> scheduler;
  Auto<bool> pack_gqa;
  Auto<int> splits;
  Auto<Merge> merge;
  Auto<Rescale> rescale;
  Auto<int> pv_promote, pv_buffers;
  Auto<double> exp2_emulated;
  bool operator==(const AttentionSchedule&) const = default;
};
template <class Visitor>
void visit_fields(AttentionSchedule& schedule, Visitor&& field) {
  field("arch", schedule.arch, any{}, "architecture to compile for");
  field("family", schedule.family, any{}, "kernel family");
  field("block_m", schedule.block_m, range{16, 256, 16}, "query rows of a CTA's tile");
  field("block_n", schedule.block_n, range{16, 256, 16}, "keys of a tile");
  field("block_k", schedule.block_k, range{16, 512, 16}, "depth chunk of a key tile");
  field("warp_n", schedule.warp_n, range{16, 256, 16}, "keys of a tile that a warp multiplies (portable family)");
  field("num_stages", schedule.num_stages, range{1, 32}, "stages of the KV buffer (portable family)");
  field("staging", schedule.staging, any{}, "what the KV buffer's stages are: tiles of registers, or shared slots");
  field("token_gen", schedule.token_gen, any{}, "the KV buffer's decode form: each warp walks keys of its own");
  field("num_warps", schedule.num_warps, range{1, 32}, "warps of a CTA (portable family)");
  field("q_stages", schedule.q_stages, range{1, 4}, "slots of query tiles: 2 loads the next tile behind this one");
  field("num_kv_stages", schedule.num_kv_stages, range{1, 32}, "slots of the K/V ring");
  field("num_qk_stages", schedule.num_qk_stages, range{1, 32}, "sub-stages of a tile of K, each some of its columns");
  field("num_mma_stages", schedule.num_mma_stages, range{1, 4},
        "sub-stages of a tile of V, each some of its keys, and of K unless num_qk_stages says otherwise");
  field("kv_ring", schedule.kv_ring, any{}, "one ring for K and V, or one each");
  field("num_q", schedule.num_q, range{1, 2}, "query tiles of a CTA");
  field("math_warpgroups", schedule.math_warpgroups, range{1, 4}, "warpgroups that multiply");
  field("overlap", schedule.overlap, any{}, "which exponentials hide behind which products");
  field("swizzle", schedule.swizzle, any{}, "shared-memory swizzle");
  field("cta_group", schedule.cta_group, range{1, 2}, "CTAs that share one MMA");
  field("cluster", schedule.cluster, any{}, "CTAs of a cluster, [m, n]: along the queries, along the keys");
  field("scheduler", schedule.scheduler, any{}, "order in which tiles are handed out");
  field("pack_gqa", schedule.pack_gqa, any{}, "the query heads of one KV head share a tile");
  field("splits", schedule.splits, range{1, 256}, "parts that the keys of a sequence are cut into");
  field("merge", schedule.merge, any{}, "what merges the parts");
  field("rescale", schedule.rescale, any{}, "when the output is rescaled to a new row maximum");
  field("pv_promote", schedule.pv_promote, range{0, 256},
        "e4m3 queries: key tiles after which P V leaves the tensor cores for sums in f32; 0: never");
  field("pv_buffers", schedule.pv_buffers, range{1, 2},
        "e4m3 queries: register tiles that the parts of a P V which leaves the tensor cores take in turn");
  field("exp2_emulated", schedule.exp2_emulated, real_range{0, 1}, "fraction of exponentials done by polynomial");
}

struct GemmSchedule {
  Auto<Arch> arch;
  Auto<Family> family;
  Auto<int> block_m, block_n, block_k;
  Auto<int> stages, store_stages, k_group;
  Auto<ClusterShape> cluster;
  Auto<Swizzle> swizzle;
  Auto<Roles> roles;
  Auto<int> math_warpgroups, mma_in_flight;
  Auto<bool> swap_ab;
  Auto<int> split_k;
  Auto<SplitMode> split_mode;
  Auto<Raster> raster;
  Auto<Scheduler> scheduler;
  Auto<int> cta_group, accumulator_stages, clc_depth;
  bool operator==(const GemmSchedule&) const = default;
};
template <class Visitor>
void visit_fields(GemmSchedule& schedule, Visitor&& field) {
  field("arch", schedule.arch, any{}, "architecture to compile for");
  field("family", schedule.family, any{}, "kernel family");
  field("block_m", schedule.block_m, range{16, 256, 16}, "rows of D per CTA");
  field("block_n", schedule.block_n, range{8, 256, 8}, "columns of D per CTA");
  field("block_k", schedule.block_k, range{16, 256, 16}, "depth of one slot");
  field("stages", schedule.stages, range{1, 32}, "slots of the load ring");
  field("store_stages", schedule.store_stages, range{1, 32}, "slots of the store ring");
  field("k_group", schedule.k_group, range{1, 4}, "K tiles behind one pair of barriers");
  field("cluster", schedule.cluster, any{}, "CTAs of a cluster, [m, n]");
  field("swizzle", schedule.swizzle, any{}, "shared-memory swizzle");
  field("roles", schedule.roles, any{}, "how math warpgroups share tiles");
  field("math_warpgroups", schedule.math_warpgroups, range{1, 4}, "warpgroups that multiply");
  field("mma_in_flight", schedule.mma_in_flight, range{0, 4}, "MMA groups left in flight before a slot is released");
  field("swap_ab", schedule.swap_ab, any{}, "multiply B by A, so that a small m lands on the narrow side");
  field("split_k", schedule.split_k, range{1, 256}, "parts that the reduction is cut into");
  field("split_mode", schedule.split_mode, any{}, "how the parts are added");
  field("raster", schedule.raster, any{}, "direction in which tiles are walked");
  field("scheduler", schedule.scheduler, any{}, "order in which tiles are handed out");
  field("cta_group", schedule.cta_group, range{1, 2}, "CTAs that share one MMA");
  field("accumulator_stages", schedule.accumulator_stages, range{1, 32}, "accumulators in tensor memory");
  field("clc_depth", schedule.clc_depth, range{0, 8}, "work items that cluster launch control fetches ahead");
}

/// A shape to check, bench and tune with. Lists give one length per sequence and override the single number.
struct AttentionShape {
  std::string name;
  int batch = 1, q_len = 1, kv_len = 1;
  std::vector<int> q_lens, kv_lens;
  std::vector<int> kv_starts;  // empty: every sequence begins with its key 0
  bool check = false;
  bool operator==(const AttentionShape&) const = default;
};
template <class Visitor>
void visit_fields(AttentionShape& shape, Visitor&& field) {
  field("name", shape.name, required{text{64}}, "name for --shape");
  field("batch", shape.batch, range{0, 1 << 20}, "sequences");
  field("q_len", shape.q_len, range{0, 1 << 24}, "queries of each sequence");
  field("kv_len", shape.kv_len, range{0, 1 << 24}, "keys of each sequence");
  field("q_lens", shape.q_lens, range{0, 1 << 24}, "queries of each sequence, one number each");
  field("kv_lens", shape.kv_lens, range{0, 1 << 24}, "keys of each sequence, one number each");
  field("kv_starts", shape.kv_starts, range{0, 1 << 24}, "first key of each sequence, one number each");
  field("check", shape.check, any{}, "a shape for run: small, and awkward on purpose");
}

struct GemmShape {
  std::string name;
  int m = 1;
  bool check = false;
  // Of problems with groups.
  int rows = 0;                   // how many of the m rows belong to a group; 0: all
  RowSkew skew = RowSkew::kEven;  // enums.h
  int active = 0;                 // groups that have rows, the first ones; 0: all
  std::vector<int> group_rows;    // the rows of each group instead
  int source_rows = 0;            // with gather: rows of a; 0: m. Of kind k: rows of a and b; 0: k for each group
  int result_rows = 0;            // with scatter: rows of d; 0: m
  bool operator==(const GemmShape&) const = default;
};
/// The rows to which the bounds of a shape's groups refer.
inline int rows_of_bounds(const GemmProblem& problem, const GemmShape& shape) {
  if (!problem.groups.slices_k()) return shape.m;
  constexpr std::int64_t kMost = 1 << 24;
  return shape.source_rows > 0 ? shape.source_rows
                               : static_cast<int>(std::min(kMost, std::int64_t{problem.groups.count} * problem.k));
}
template <class Visitor>
void visit_fields(GemmShape& shape, Visitor&& field) {
  field("name", shape.name, required{text{64}}, "name for --shape");
  field("m", shape.m, range{0, 1 << 24}, "rows of the result");
  field("rows", shape.rows, range{0, 1 << 24}, "rows that belong to a group; 0: all");
  field("skew", shape.skew, any{}, "how they belong to groups");
  field("active", shape.active, range{0, kMostGroups}, "groups that have rows; 0: all");
  field("group_rows", shape.group_rows, range{0, 1 << 24}, "rows of each group instead, one number each");
  field("source_rows", shape.source_rows, range{0, 1 << 24},
        "with gather: rows of a, 0: m; of kind k: rows of a and b, 0: k for each group");
  field("result_rows", shape.result_rows, range{0, 1 << 24}, "with scatter: rows of d; 0: m");
  field("check", shape.check, any{}, "a shape for run: small, and awkward on purpose");
}

}  // namespace kernelwright
