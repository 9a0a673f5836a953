/// gemm_sm90: kernel parameters and shared memory, in one place for the host and the kernel.
#pragma once

#include "contract/gemm_groups.h"
#include "contract/gemm_launch.h"
#include "contract/integers.h"
#include "contract/tensor_map.h"
#include "contract/turnstile.h"

namespace kernelwright::contract {

/// D = epilogue(A B): activation(alpha * acc + bias) + beta * c. acc includes the scales of the operands.
///
/// The kernel's tile has rows of `a` and columns of `b`. A Spec with swap_ab exchanges the operands: the kernel's a is
/// the problem's b and its b is the problem's a. m and n are exchanged likewise, and scale_a and scale_b. Then rows of
/// the tile are columns of d.
///
/// Maps where k is innermost, innermost dimension first; W is the swizzle's width (contract/shared_slab.h):
///   a   (k, m), box (W bytes of k, block_m)
///   b   (k, n), box (W bytes of k, rows of B that a CTA loads at once)
/// Maps where m or n is innermost. The elements have 16 bits, and block_n is a multiple of W / 2 if n is innermost:
///   a   (m, k), box (W / 2, k of a slab)
///   b   (n, k), box (W / 2, k of a slab / CTAs that share columns)
/// The map of per_block scales that belong to 128 elements of one row. These are the scales of the left operand (with
/// swap_ab of the problem's b), f32 [k / 128][stride]:
///   scales   (m or n, k / 128 rounded up), box (block_m or block_n, 1), no swizzle
/// With a gated epilogue, columns of the tile are gates and ups in runs of 8. bias has an element for each; d has n / 2
/// columns, one for each pair.
///
/// The maps for stores. A warp stores 16 rows of the tile and the columns of gemm_store_box() at once:
///   d        (n, m), boxes of gemm_store_columns() columns of the tile
///   d_tail   (n, m), boxes of block_n % gemm_store_columns() columns of the tile
/// With swap_ab, the box is transposed as the tile is: it has 16 columns of d, and the slab's columns are its rows.
///
/// With groups, the map of the problem's b has the group as its outermost dimension, (k, n, group) or (n, k, group).
/// Rows of a and d are those of all groups, one behind the other. bias and the scales of b are [group][..] without
/// gaps. Scales of single rows need no map: they are copied as bytes.
struct GemmParams {
  TensorMap a, b;
  TensorMap d;           // not used if block_n is less than a slab
  TensorMap d_tail;      // not used if whole slabs divide block_n
  const void* c;         // shape as d; dtype spec::kC. It may be the buffer of d
  const void* bias;      // [columns of d]
  const float* scale_a;  // per_tensor [1], per_token [m], per_block [k / 128][scale_a_stride], or [rows][stride] for b
  const float* scale_b;
  int64_t c_stride;  // elements from one row of c to the next
  int64_t scale_a_stride, scale_b_stride;
  float alpha, beta;
  int32_t m, n, k;  // elements, as the kernel sees them; m, n > 0
  GemmLaunchParams launch;
  TurnstileParams turnstile;  // for parts of k that take turns; a tile is [math threads' sums / 4][math threads][4]
  TensorMap scales;           // used with per_block, without groups
  GemmGroupsParams groups;
};

constexpr int32_t kGemmSlabBytes = 128;        // bytes of k in a slot, unless the schedule gives another number
constexpr int32_t kGemmStoreRows = 16;         // rows that a warp stores at once
constexpr int32_t kGemmStoreSlabBytes = 2048;  // 16 rows of 128 bytes

/// Columns of the tile in a slab that a warp stores. Their elements of d have 128 bytes, but 64 bytes of fp8. `halves`:
/// two columns of the tile, a gate and an up, make a column of d.
constexpr int32_t gemm_store_columns(int32_t d_bytes, bool halves = false) {
  return (d_bytes == 4 ? 32 : 64) * (halves ? 2 : 1);
}

/// A box of d, innermost first, and the swizzle of its map; swizzle 0: none.
struct GemmStoreBox {
  int32_t columns, rows, swizzle_bytes;
};
/// The box of a slab with `tile_columns` columns: gemm_store_columns(), or fewer at the end of a tile. `gated`: pairs
/// of columns of the tile, or with swap_ab pairs of rows, make columns of d.
constexpr GemmStoreBox gemm_store_box(int32_t d_bytes, bool swap_ab, int32_t tile_columns, bool gated = false) {
  if (swap_ab && gated) return {kGemmStoreRows / 2, tile_columns, 0};
  if (swap_ab) return {kGemmStoreRows, tile_columns, d_bytes == 1 ? 0 : kGemmStoreRows * d_bytes};
  const int32_t columns = gated ? tile_columns / 2 : tile_columns;
  return {columns, kGemmStoreRows, columns == gemm_store_columns(d_bytes) ? columns * d_bytes : 0};
}

/// Bytes in which the warps of a tile with swap_ab hand each other a quantised result. They are elements of d, and
/// behind them each warp's largest magnitude of each row of d. `warpgroups`: that share the tile.
constexpr int32_t gemm_swapped_result_bytes(int32_t block_m, int32_t block_n, int32_t warpgroups, bool gated) {
  const int32_t unit = gated ? 256 : 128, own = block_m / warpgroups;  // rows that share scales, and of a warpgroup
  const int32_t magnitudes = 4 * warpgroups * (own > unit ? own / unit : 1);
  return block_m / unit * block_n * 128 + magnitudes * block_n * 4;
}

/// Whether parts of k can share the end of a tile among them: columns in whole slabs, or rows in whole warps.
constexpr bool gemm_can_split(int32_t block_n, int32_t store_columns, int32_t math_warpgroups, int32_t split_k) {
  return block_n % (split_k * store_columns) == 0 || math_warpgroups * 4 % split_k == 0;
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024.
struct GemmLayout {
  int32_t a;         // `stages` tiles of [block_m][slab bytes]
  int32_t b;         // `stages` tiles of [block_n][slab bytes]
  int32_t output;    // [math warps][store stages] slabs of 16 rows of 128 bytes
  int32_t scales;    // per_block: `stages` rows of scales, for the k of each slot; each row is aligned to 128 bytes
  int32_t barriers;  // [stages / k_group] full, then as many empty
  int32_t item;      // takes_turns: 4 bytes, which part of which tile this CTA has
  int32_t dealt;     // with groups: kGemmDealtTiles tiles, then their barriers
  int32_t groups;    // GemmGroupTable
  int32_t total;
};

/// Bytes of a slot's scales: one f32 for each of `rows`, the rows of the operand that has a scale for 128 elements of
/// k. Rows of groups begin anywhere, and copies at multiples of 16 bytes: those bring up to kGemmScaleShift rows more.
constexpr int32_t kGemmScaleShift = 4;
constexpr int32_t gemm_scale_bytes(int32_t rows, bool of_groups = false) {
  return ((rows + (of_groups ? kGemmScaleShift : 0)) * 4 + 127) / 128 * 128;
}

// A warp looks up a CTA's tiles of groups, and this many may wait for the roles that read them.
constexpr int32_t kGemmDealtTiles = 4, kGemmDealtTileBytes = 32;

/// `scale_bytes`: gemm_scale_bytes(); 0 without block scales. `takes_turns`: whether parts of k take turns.
/// `slab_bytes`: bytes of k in a slot. `groups`: for which the table has room.
constexpr GemmLayout gemm_layout(int32_t block_m, int32_t block_n, int32_t stages, int32_t k_group,
                                 int32_t math_warpgroups, int32_t store_stages, int32_t scale_bytes = 0,
                                 bool takes_turns = false, int32_t slab_bytes = kGemmSlabBytes, int32_t groups = 0) {
  GemmLayout layout{};
  layout.a = 0;
  layout.b = layout.a + stages * block_m * slab_bytes;
  // Narrow slabs may end inside a pattern of the results' swizzle, so the offset is rounded up to the pattern.
  layout.output = (layout.b + stages * block_n * slab_bytes + 1023) / 1024 * 1024;
  layout.scales = layout.output + math_warpgroups * 4 * store_stages * kGemmStoreSlabBytes;
  layout.barriers = layout.scales + stages * scale_bytes;
  layout.item = layout.barriers + stages / k_group * 16;
  layout.dealt = layout.item + (takes_turns ? 16 : 0);
  layout.groups = layout.dealt + (groups > 0 ? kGemmDealtTiles * (kGemmDealtTileBytes + 16) : 0);
  layout.total = layout.groups + gemm_group_table(groups).total;
  return layout;
}

/// Columns of one product of wgmma. Without `promotion` to f32 sums, these are block_n. With it, each slab's products
/// have their own registers: one set, or with mma_in_flight two, so that one set is added while the other is computed.
/// A product then has the largest share of the columns that leaves room for these registers beside the sums. 0: no
/// share does. With promotion after several slabs, all products of a tile are kept apart from the sums.
constexpr int32_t gemm_product_columns(int32_t block_m, int32_t block_n, int32_t math_warpgroups, bool ping_pong,
                                       int32_t mma_in_flight, int32_t promotion) {
  if (promotion == 0) return block_n;
  const int32_t waves = block_m / 64 / (ping_pong ? 1 : math_warpgroups);
  const int32_t sets = mma_in_flight > 0 ? 2 : 1;
  // Registers for sums and products, of the 232 or 160 that a thread has. ptxas needs the rest.
  const int32_t registers = math_warpgroups > 2 ? 128 : ping_pong && sets > 1 ? 168 : 192;
  const int32_t sums = waves * block_n / 2;
  if (promotion > 1) return 2 * sums <= registers ? block_n : 0;
  for (int32_t shares = 1; shares <= 4; ++shares)
    if (block_n % (8 * shares) == 0 && sums + sets * (block_n / shares / 2) <= registers) return block_n / shares;
  return 0;
}

}  // namespace kernelwright::contract
