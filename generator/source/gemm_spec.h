/// The Spec of a GEMM: spec.h has what a Spec is.
#pragma once

#include <string_view>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/source/kv_write_spec.h"

namespace kernelwright {

/// One GEMM kernel. m, n and k are run-time parameters. Fields that only the sm90 form has are no part of a portable
/// kernel's text.
struct GemmSpec {
  Family family = Family::kPortable;
  Arch arch = Arch::kSm80;
  DType a = DType::kBf16, b = DType::kBf16, d = DType::kBf16, c = DType::kBf16;
  OperandLayout layout = OperandLayout::kNt;
  ScaleKind scales = ScaleKind::kNone;
  bool alpha = false, bias = false, adds_c = false;  // of the epilogue: activation(alpha acc + bias) + beta c
  Activation activation = Activation::kNone;
  bool gated = false, clamped = false;  // d is of gated products: generator/problem/epilogue.h
  float limit = 0, steepness = 0;       // of clamped gates and ups
  bool quantizes = false;               // the kernel makes scales of d, one for 128 columns of a row
  bool power_of_two = false;            // these scales are rounded up to powers of two
  bool round_up = false;                // d block-scaled: scales with which no element saturates
  bool rows_of_scales = false;          // d block-scaled: a row of scales for each row, not atoms
  bool amax = false;                    // the largest magnitude of all values is an output
  bool squares = false;                 // so are sums of squares, of 128 columns of a row each
  bool rstd = false;                    // rows have factors, which such sums give
  bool writes_kv = false;               // columns are queries, keys and values, and `kv` says what becomes of them
  KvWriteSpec kv;                       // without the fields of its own kernel
  bool swap_ab = false;                 // rows of the kernel's tile are columns of d
  int block_m = 128, block_n = 128, stages = 4;
  int slab_bytes = 128;              // of k in a slot
  Swizzle swizzle = Swizzle::k128B;  // of the operands in shared memory: contract/shared_slab.h
  int promotion = 0;                 // slabs of k between two additions to f32 sums; 0: none
  // hopper and blackwell
  int k_group = 1, store_stages = 2;
  Roles roles = Roles::kCooperative;
  int math_warpgroups = 2;
  int mma_in_flight = 1;
  int cluster_m = 1;                    // CTAs of a cluster, which share columns of the tile's right operand
  int split_k = 1;                      // parts of k
  GroupKind groups = GroupKind::kNone;  // of rows, each with a matrix b of its own
  GroupBounds bounds = GroupBounds::kStarts;
  int most_groups = 0;                         // for which shared memory has room
  bool gather = false;                         // rows of a come from where the launch says
  bool scatter = false;                        // rows of d go to where the launch says
  bool pointers = false;                       // matrices b are where the launch says
  SplitMode split_mode = SplitMode::kCluster;  // parts share a tile in a cluster, or take turns at it as blackwell's do
  // blackwell, beside k_group, store_stages, cluster_m and split_k
  int cluster_n = 1;  // CTAs of a cluster, which share rows of the left operand
  int cta_group = 1;  // CTAs that share each product; block_m is one CTA's
  int accumulators = 2;
  Scheduler scheduler = Scheduler::kPersistent;
  int clc_depth = 0;  // queued: answers of cluster launch control on their way
  // portable
  int num_warps = 4;
  std::string_view kernel = {};  // a template's name; "": the family's own. Its text lives as long as the program
  bool operator==(const GemmSpec&) const = default;

  /// Threads of a CTA.
  int threads() const {
    if (family == Family::kBlackwell) return 256;
    return family == Family::kPortable ? 32 * num_warps : 128 * (1 + math_warpgroups);
  }
  bool is_grouped() const { return groups != GroupKind::kNone; }
  bool is_batched() const { return groups == GroupKind::kBatch; }
  bool slices_k() const { return groups == GroupKind::kK; }
  bool stacks_d() const { return is_batched() || slices_k(); }       // each group has a whole matrix d
  bool has_bounds() const { return is_grouped() && !is_batched(); }  // of groups, which the launch gives
  /// Blackwell: whether each CTA counts the atoms of scales of the groups ahead of each one.
  bool counts_atoms() const { return groups == GroupKind::kRows && (is_block_scaled(a) || makes_blocks()); }
  /// Hopper: whether threads copy an operand, which tensor maps do not reach.
  bool copies() const { return gather || pointers; }
  /// Hopper: whether a warp deals tiles to the other roles: kDeals of gemm_sm90_deal.cuh.
  bool deals_tiles() const { return has_bounds() && !slices_k() && !copies(); }
  /// Whether d is made of the sums alone, row by row: it is them, rounded or with scales, or gates and ups.
  bool needs_sums_alone() const {
    return !bias && !adds_c && (gated ? !quantizes || halves() > 1 : !alpha && activation == Activation::kNone) &&
           !measures() && !makes_blocks() && !rstd && !writes_kv && !scatter;
  }
  bool stores_sums() const { return needs_sums_alone() && !gated && !quantizes; }
  /// Whether Hopper's kernel stores a tile while the next one's first products run, if mma_in_flight is 0 and a product
  /// has whole slabs of results: kStoresBehind of gemm_sm90_math.cuh.
  bool may_store_behind() const {
    return scales == ScaleKind::kPerBlock && roles == Roles::kCooperative && split_k == 1 && !swap_ab && !copies() &&
           !(has_bounds() && cluster_m > 1) && needs_sums_alone();
  }
  /// Whether two columns of the kernel's tile make a column of d. Where operands are swapped, two rows do.
  bool halves_columns() const { return gated && !swap_ab; }
  /// Whether d is in a block-scaled format.
  bool makes_blocks() const { return quantizes && is_block_scaled(d); }
  /// Columns of the kernel's tile, or with swap_ab rows, whose results share scales; 1: there are no scales. Of
  /// block-scaled results, those that have whole atoms of them.
  int scaled_columns() const { return has_groups_of_columns() ? (gated ? 256 : 128) : 1; }
  /// Whether values of 128 columns of a row make something together.
  bool has_groups_of_columns() const { return quantizes || measures(); }
  bool measures() const { return amax || squares; }
  /// Columns of a head, whole ones of which a tile has; 1 without a cache.
  int head_columns() const { return writes_kv ? kv.head_dim_qk : 1; }
  /// Whether parts of k take turns at a tile, through a workspace.
  bool takes_turns() const {
    return split_k > 1 && (family == Family::kBlackwell || split_mode == SplitMode::kTurnstile);
  }
  /// Hopper: columns of one product of wgmma. 0: the registers have no room for sums and products.
  int product_columns() const;
  /// Tiles that a CTA takes together, side by side: those of results that share scales. Blackwell works at them as one
  /// item (templates/contract/gemm_sm100.h), Hopper at one behind the other (gemm_sm90_store.cuh).
  int halves() const {
    if (!gated || !quantizes) return 1;
    if (family == Family::kHopper) return !makes_blocks() && !swap_ab && block_n == 128 ? 2 : 1;
    return family == Family::kBlackwell && promotion > 0 ? 2 : 1;
  }
  /// CTAs of a cluster.
  int cluster() const {
    if (family == Family::kBlackwell) return cluster_m * cluster_n;
    return cluster_m * (takes_turns() ? 1 : split_k);
  }
};
template <class Visitor>
void visit_fields(GemmSpec& spec, Visitor&& field) {
  field("family", spec.family, any{}, "kernel family");
  field("arch", spec.arch, any{}, "architecture");
  field("a", spec.a, any{}, "dtype of the left operand");
  field("b", spec.b, any{}, "dtype of the right operand");
  field("d", spec.d, any{}, "dtype of the result");
  field("c", spec.c, any{}, "dtype of bias and c");
  field("layout", spec.layout, any{}, "which operands lie with k innermost");
  field("scales", spec.scales, any{}, "granularity of the operands' scales");
  field("alpha", spec.alpha, any{}, "a number multiplies the sums");
  field("bias", spec.bias, any{}, "a row is added to each row of the sums");
  field("activation", spec.activation, any{}, "what happens to them then");
  field("adds_c", spec.adds_c, any{}, "a matrix times a number is added at last");
  field("gated", spec.gated, any{}, "sums are gates and ups, and two of them make a result");
  field("clamped", spec.clamped, any{}, "gates and ups are clamped");
  field("limit", spec.limit, any{}, "clamped: the largest gate, and the largest magnitude of an up");
  field("steepness", spec.steepness, any{}, "clamped: of the sigmoid");
  field("swap_ab", spec.swap_ab, any{}, "rows of the kernel's tile are columns of the result");
  field("block_m", spec.block_m, any{}, "rows of a tile");
  field("block_n", spec.block_n, any{}, "columns of a tile");
  field("stages", spec.stages, any{}, "slots of the operands' ring");
  field("slab_bytes", spec.slab_bytes, any{}, "bytes of k in a slot");
  field("swizzle", spec.swizzle, any{}, "shared-memory swizzle of the operands");
  if (spec.family != Family::kBlackwell || spec.is_grouped()) {
    field("groups", spec.groups, any{}, "whether rows belong to groups, each with a right operand of its own");
    field("bounds", spec.bounds, any{}, "what the bounds of groups say");
    field("most_groups", spec.most_groups, any{}, "groups for which shared memory has room");
    field("gather", spec.gather, any{}, "a launch says which row of the left operand each row is");
  }
  // Part of the text only where they are not the defaults of templates/kernels/gemm/gemm_defaults.cuh.
  if (spec.quantizes) {
    field("quantizes", spec.quantizes, any{},
          is_block_scaled(spec.d) ? "columns of a row of the result share a scale, as its format has it"
                                  : "128 columns of a row of the result share a scale, which is made of them");
    field("power_of_two", spec.power_of_two, any{}, "that scale is rounded up to a power of two");
    if (is_block_scaled(spec.d)) {
      field("round_up", spec.round_up, any{}, "a block's scale is the smallest with which no element saturates");
      field("rows_of_scales", spec.rows_of_scales, any{}, "each row of the result has a row of scales, not atoms");
    }
  }
  if (spec.amax) field("amax", spec.amax, any{}, "the largest magnitude of all values is an output");
  if (spec.squares) field("squares", spec.squares, any{}, "sums of squares of 128 columns of a row are an output");
  if (spec.rstd) field("rstd", spec.rstd, any{}, "rows have factors, of sums of squares of the left operand");
  if (spec.writes_kv) {
    field("writes_kv", spec.writes_kv, any{}, "columns are queries, keys and values; these go to a cache");
    visit_steps(spec.kv, field);
  }
  if (spec.scatter) field("scatter", spec.scatter, any{}, "a launch says which row of the result each row becomes");
  if (spec.pointers) field("pointers", spec.pointers, any{}, "a launch says where each group's right operand is");
  if (spec.family == Family::kPortable) {
    field("num_warps", spec.num_warps, any{}, "warps of a CTA");
    field("promotion", spec.promotion, any{}, "slabs of k between additions to f32 sums; 0: none");
    return;
  }
  field("k_group", spec.k_group, any{}, "slots behind one pair of barriers");
  field("store_stages", spec.store_stages, any{}, "slabs of results of a warp on their way");
  field("cluster_m", spec.cluster_m, any{}, "CTAs of a cluster, which share columns of the right operand");
  if (spec.family == Family::kBlackwell) {
    field("cluster_n", spec.cluster_n, any{}, "CTAs of a cluster, which share rows of the left operand");
    field("cta_group", spec.cta_group, any{}, "CTAs that share each product");
    field("accumulators", spec.accumulators, any{}, "sums that tensor memory holds at a time");
    field("scheduler", spec.scheduler, any{}, "how CTAs come to their tiles");
    field("clc_depth", spec.clc_depth, any{}, "answers of cluster launch control on their way");
    field("promotion", spec.promotion, any{}, "slabs of k between additions to f32 sums; 0: none");
    field("split_k", spec.split_k, any{}, "CTAs that take turns at a tile, each with a part of k");
    return;
  }
  field("roles", spec.roles, any{}, "whether the math warpgroups share a tile");
  field("math_warpgroups", spec.math_warpgroups, any{}, "warpgroups that multiply; one more loads");
  field("mma_in_flight", spec.mma_in_flight, any{}, "groups of products left in flight before a slot is released");
  field("promotion", spec.promotion, any{}, "slabs of k between additions to f32 sums; 0: none");
  field("split_k", spec.split_k, any{}, "parts of k, of a CTA each");
  field("split_mode", spec.split_mode, any{}, "whether these are a cluster's or take turns");
}

}  // namespace kernelwright
