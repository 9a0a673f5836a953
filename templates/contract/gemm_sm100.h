/// gemm_sm100: kernel parameters, warps, shared memory and tensor memory, in one place for the host and the kernel.
#pragma once

#include "contract/block_scales.h"
#include "contract/gemm_groups.h"
#include "contract/gemm_launch.h"
#include "contract/integers.h"
#include "contract/shared_slab.h"
#include "contract/tensor_map.h"
#include "contract/turnstile.h"

namespace kernelwright::contract {

/// D = epilogue(A B): activation(alpha * acc + bias) + beta * c. acc includes the scales of the operands.
///
/// The kernel's tile has rows of `a` and columns of `b`. A Spec with swap_ab exchanges the operands: the kernel's a is
/// the problem's b and its b is the problem's a. m and n are exchanged likewise, and scale_a and scale_b. Then rows of
/// the tile are columns of d.
///
/// Maps, innermost dimension first. A slab is slab_bytes of k (for packed 4-bit elements, a map of bytes). With m or n
/// innermost the elements have 16 bits, and a slab has as many rows of k. contract/shared_slab.h says what one copy
/// brings of a slab, and blackwell_gemm_boxes() which CTA loads it:
///   a  (k, m) or (m, k), b  (k, n) or (n, k)                      swizzle_bytes
///   scales_a, scales_b (128 words, atoms of k, atoms of rows) no swizzle; contract/block_scales.h defines the atoms
///   d  (n, m)           swizzled by the bytes of a row of the box; with swap_ab none
struct BlackwellGemmParams {
  TensorMap a, b, d;
  TensorMap scales_a, scales_b;  // used by block-scaled formats only; scales_b is unused if threads gather the scales
  const void* c;                 // shape as d; dtype spec::kC. It may be the buffer of d
  const void* bias;              // [columns of d]
  // f32: per_tensor [1], per_token [m], per_block [k / 128][scale_a_stride], or [rows][stride] for the problem's b.
  // Block-scaled formats use scale_b only: the atoms, [rows / 128][scale_b_stride][512 bytes].
  const void* scale_a;
  const void* scale_b;
  TurnstileParams turnstile;  // if split_k > 1; a tile is [block_n / 4][128 rows][4]
  int64_t c_stride;           // elements from one row of c to the next
  int64_t scale_a_stride, scale_b_stride;
  float alpha, beta;
  int32_t m, n, k;  // elements, as the kernel sees them; m, n > 0
  GemmLaunchParams launch;
};

/// The same with groups of rows that have bounds. The map of the problem's b then has the group as its outermost
/// dimension, (k, n, group) or (n, k, group). Rows of a and d are those of all groups, one behind the other. bias and
/// the scales of b are [group][..] without gaps. With gather, the map of the problem's a has boxes of one row. With
/// pointers there is no map of its b.
struct BlackwellGemmGroupedParams : BlackwellGemmParams {
  GemmGroupsParams groups;
};

/// The same with groups of kind k, whose bounds are those of rows of a and b. Both lie with m and n innermost, and
/// their maps have two dimensions. a_rows and b_rows have boxes of one row. The map of d has the group as its outermost
/// dimension, as it has in a batch, where those of a and b have it, too.
struct BlackwellGemmSlicesParams : BlackwellGemmGroupedParams {
  TensorMap a_rows, b_rows;
};

// Warps 0-3 take accumulators out of tensor memory. Warp 4 multiplies, 5 loads, 6 asks for tiles, 7 gathers scales.
constexpr int32_t kBlackwellGemmThreads = 256;
constexpr int32_t kBlackwellGemmStoreWarps = 4;   // warps 0-3
constexpr int32_t kBlackwellGemmRows = 128;       // rows of a CTA's tile: lanes of tensor memory
constexpr int32_t kBlackwellGemmSlabBytes = 128;  // bytes of k in a slot, unless the schedule gives another number
constexpr int32_t kBlackwellGemmWarpRows = 32;    // rows of a storing warp
constexpr int32_t kTensorMemoryColumns = 512;     // of an SM, 32 bits each

/// The parameters from which the layouts below follow.
struct BlackwellGemmShape {
  int32_t block_n;  // columns of a tile
  int32_t ctas;     // 2: a pair shares each product of 256 rows; each CTA has half of b's rows
  int32_t cluster_m, cluster_n;
  int32_t stages, k_group;  // slots of a slab each, and how many slots become full and empty together
  int32_t accumulators;     // number of sums in tensor memory at a time: those of tiles, or with promotion of slabs
  int32_t scale_atoms;      // atoms per 128 rows of a slab: 1 mxfp8, 2 mxfp4, 4 nvfp4; 0 without block scales
  int32_t store_stages, d_bytes;
  bool swap_ab;
  int32_t items;  // queued: answers of cluster launch control that wait to be read; 0: the grid's tiles are dealt out
                  // in advance
  int32_t slab_bytes = kBlackwellGemmSlabBytes;  // bytes of k in a slot; 128 with block scales
};

/// Tiles of an item, side by side. `promotes`: each slab's products have f32 scales, so that the sums of a tile's row
/// are in the registers of a thread, which has room for those of 128 columns. 256 gates and ups make the 128 columns of
/// d that share a scale, or whole words of scales. So an item has two tiles then.
constexpr int32_t blackwell_gemm_halves(bool promotes, bool gated, bool quantizes) {
  return promotes && gated && quantizes ? 2 : 1;
}

/// Whether threads place the scales of the tile's columns. Tiles of less than 64 columns begin within an atom, and no
/// address of tensor memory points within an atom.
constexpr bool blackwell_gemm_gathers(const BlackwellGemmShape& shape) {
  return shape.scale_atoms > 0 && shape.block_n < 64;
}
/// Atoms of 128 rows in which the tile's columns lie.
constexpr int32_t blackwell_gemm_column_atoms(const BlackwellGemmShape& shape) {
  return (shape.block_n + kScaleAtomRows - 1) / kScaleAtomRows;
}

/// Columns of tensor memory, all 128 lanes. Planner, validation, explain and kernel use this one table.
struct BlackwellGemmColumns {
  int32_t accumulators;        // [accumulators][block_n]
  int32_t scales_a, scales_b;  // for one slab: [atoms of k][4], [atoms of k][4 * atoms of columns]
  int32_t used;
  int32_t allocated;  // a power of two
};
constexpr BlackwellGemmColumns blackwell_gemm_columns(const BlackwellGemmShape& shape) {
  BlackwellGemmColumns columns{};
  columns.accumulators = 0;
  columns.scales_a = shape.accumulators * shape.block_n;
  columns.scales_b = columns.scales_a + 4 * shape.scale_atoms;
  columns.used = columns.scales_b + 4 * shape.scale_atoms * blackwell_gemm_column_atoms(shape);
  columns.allocated = 32;
  while (columns.allocated < columns.used) columns.allocated *= 2;
  return columns;
}

/// Bytes of one CTA's part of a slot.
constexpr int32_t blackwell_gemm_a_bytes(const BlackwellGemmShape& shape) {
  return kBlackwellGemmRows * shape.slab_bytes;
}
constexpr int32_t blackwell_gemm_b_bytes(const BlackwellGemmShape& shape) {
  return shape.block_n / shape.ctas * shape.slab_bytes;
}
constexpr int32_t blackwell_gemm_scale_a_bytes(const BlackwellGemmShape& shape) {
  return shape.scale_atoms * kScaleAtomBytes;
}
constexpr int32_t blackwell_gemm_scale_b_bytes(const BlackwellGemmShape& shape) {
  return shape.scale_atoms * blackwell_gemm_column_atoms(shape) * kScaleAtomBytes;
}

/// What one copy brings if k is innermost. CTAs of a cluster that share rows of an operand load equal shares.
struct BlackwellGemmBoxes {
  int32_t a_sharers, b_sharers;  // CTAs
  int32_t a_rows, b_rows;
};
constexpr BlackwellGemmBoxes blackwell_gemm_boxes(const BlackwellGemmShape& shape) {
  BlackwellGemmBoxes boxes{};
  boxes.a_sharers = shape.cluster_n;
  boxes.b_sharers = shape.cluster_m / shape.ctas;
  boxes.a_rows = kBlackwellGemmRows / boxes.a_sharers;
  boxes.b_rows = shape.block_n / shape.ctas / boxes.b_sharers;
  return boxes;
}

/// Columns of the tile that a warp stores at once with its 32 rows. This is the largest power of two that divides
/// block_n and takes at most 64 columns and 128 bytes.
constexpr int32_t blackwell_gemm_store_columns(const BlackwellGemmShape& shape) {
  int32_t columns = shape.d_bytes == 4 ? 32 : 64;
  while (shape.block_n % columns != 0) columns /= 2;
  return columns;
}
constexpr int32_t kBlackwellGemmStoreSlabBytes = 4096;  // 32 rows of 128 bytes

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024.
struct BlackwellGemmLayout {
  int32_t a, b;                // `stages` slots each
  int32_t scales_a, scales_b;  // `stages` slots of atoms, [atoms of columns][atoms of k]
  int32_t output;              // [4 warps][store stages] slabs
  int32_t items;               // answers of 16 bytes
  int32_t barriers;            // mbarriers, in the order of blackwell_gemm_barriers()
  int32_t tensor_address;      // 4 bytes: where the tensor memory begins
  int32_t first_item;          // 4 bytes, split_k > 1: one for the cluster, in its first CTA
  int32_t total;
};

/// Indices of mbarriers, with the threads that arrive. In a pair, only the first CTA waits for full slots and free
/// accumulators. Both CTAs arrive on these barriers of the first CTA.
struct BlackwellGemmBarriers {
  int32_t full;               // [stages / k_group] TMA, and the warp that gathers scales or the threads that copy b
  int32_t empty;              // [stages / k_group] tcgen05.commit of each CTA (or pair) for which this CTA loads
  int32_t accumulator_full;   // [accumulators] tcgen05.commit
  int32_t accumulator_empty;  // [accumulators] 4 warps of each CTA of the pair
  int32_t item_full;          // [items] an answer has landed
  int32_t item_empty;         // [items] in the cluster's first CTA: every warp of the cluster that reads the answer has
                              // read it
  int32_t item_wanted;        // [items ? 1 : 0] in the first CTA: its loading warp has begun the tile before
  int32_t count;
};
constexpr BlackwellGemmBarriers blackwell_gemm_barriers(const BlackwellGemmShape& shape) {
  BlackwellGemmBarriers barriers{};
  const int32_t groups = shape.stages / shape.k_group;
  barriers.full = 0;
  barriers.empty = barriers.full + groups;
  barriers.accumulator_full = barriers.empty + groups;
  barriers.accumulator_empty = barriers.accumulator_full + shape.accumulators;
  barriers.item_full = barriers.accumulator_empty + shape.accumulators;
  barriers.item_empty = barriers.item_full + shape.items;
  barriers.item_wanted = barriers.item_empty + shape.items;
  barriers.count = barriers.item_wanted + (shape.items > 0 ? 1 : 0);
  return barriers;
}

constexpr BlackwellGemmLayout blackwell_gemm_layout(const BlackwellGemmShape& shape) {
  BlackwellGemmLayout layout{};
  layout.a = 0;
  layout.b = layout.a + shape.stages * blackwell_gemm_a_bytes(shape);
  // Narrow slabs may end inside a pattern of the results' swizzle, so the offset is rounded up to the pattern.
  layout.output = (layout.b + shape.stages * blackwell_gemm_b_bytes(shape) + 1023) / 1024 * 1024;
  layout.scales_a = layout.output + 4 * shape.store_stages * kBlackwellGemmStoreSlabBytes;
  layout.scales_b = layout.scales_a + shape.stages * blackwell_gemm_scale_a_bytes(shape);
  layout.items = layout.scales_b + shape.stages * blackwell_gemm_scale_b_bytes(shape);
  layout.barriers = layout.items + shape.items * 16;
  layout.tensor_address = layout.barriers + blackwell_gemm_barriers(shape).count * 8;
  layout.first_item = layout.tensor_address + 4;
  layout.total = (layout.first_item + 4 + 15) / 16 * 16;
  // An SM's tensor memory must suffice for all CTAs that its shared memory holds. Otherwise a CTA could wait in
  // tcgen05.alloc for another CTA to end, while that CTA waits for the first one at the cluster's barrier or for its
  // turn.
  constexpr int32_t kSharedBytes = 228 * 1024, kReservedBytes = 1024;  // of an SM; for each CTA
  const int32_t most_ctas = kTensorMemoryColumns / blackwell_gemm_columns(shape).allocated;
  const int32_t least = kSharedBytes / (most_ctas + 1) - kReservedBytes + 16;
  if (layout.total < least) layout.total = least / 16 * 16;
  return layout;
}

/// Dynamic shared memory, with the table of groups behind the rest. `groups`: for which the table has room. `atoms`: it
/// also says where their scales begin.
constexpr int32_t blackwell_gemm_groups_offset(const BlackwellGemmShape& shape) {
  return blackwell_gemm_layout(shape).total;
}
constexpr int32_t blackwell_gemm_shared_bytes(const BlackwellGemmShape& shape, int32_t groups, bool atoms) {
  return blackwell_gemm_groups_offset(shape) +
         (gemm_group_table(groups).total + (atoms ? gemm_group_atoms_bytes(groups) : 0) + 15) / 16 * 16;
}

}  // namespace kernelwright::contract
