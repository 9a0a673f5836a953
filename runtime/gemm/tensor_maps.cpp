#include "kernelwright/runtime/gemm/tensor_maps.h"

#include <algorithm>

#include "contract/gemm_params.h"
#include "contract/gemm_sm100.h"
#include "contract/shared_slab.h"
#include "kernelwright/generator/gemm/planner.h"

namespace kernelwright::detail {
namespace {

Swizzle swizzle_of(int bytes) {
  return bytes == 128 ? Swizzle::k128B : bytes == 64 ? Swizzle::k64B : bytes == 32 ? Swizzle::k32B : Swizzle::kNone;
}

/// The map of boxes of `matrix`.
TensorMapRequest map_of(const Matrix& matrix, int box_columns, int box_rows, Swizzle swizzle) {
  TensorMapRequest map{.address = matrix.address, .dtype = matrix.dtype, .rank = 2, .swizzle = swizzle};
  map.dims[0] = static_cast<std::uint64_t>(std::max<std::int64_t>(1, matrix.columns));
  map.dims[1] = static_cast<std::uint64_t>(std::max<std::int64_t>(1, matrix.rows));
  // Of one row: any legal stride.
  constexpr std::uint64_t kStep = kRowAlignment;
  map.strides_bytes[0] = matrix.rows > 1 ? static_cast<std::uint64_t>(matrix.stride_bytes())
                                         : (static_cast<std::uint64_t>(matrix.row_bytes()) + kStep - 1) / kStep * kStep;
  map.l2_promotion_bytes = 128;  // 256 bring the next slab, and cost large products up to 5 % on an H100
  map.box[0] = static_cast<std::uint32_t>(box_columns);
  map.box[1] = static_cast<std::uint32_t>(box_rows);
  return map;
}

/// The same of `count` matrices that lie one behind the other.
TensorMapRequest map_of_each(const Matrix& all, int count, int box_columns, int box_rows, Swizzle swizzle) {
  Matrix one = all;
  one.rows = std::max<std::int64_t>(1, all.rows / count);
  TensorMapRequest map = map_of(one, box_columns, box_rows, swizzle);
  map.rank = 3;
  map.dims[2] = all.rows < count ? 1 : static_cast<std::uint64_t>(count);  // a stand-in for nothing is one matrix
  map.strides_bytes[1] = static_cast<std::uint64_t>(one.rows) *
                         (map.dims[2] > 1 ? static_cast<std::uint64_t>(all.stride_bytes()) : map.strides_bytes[0]);
  map.box[2] = 1;
  return map;
}

/// The same of the groups of a batch, wherever they lie.
TensorMapRequest map_of_batch(const Matrix& batch, int box_columns, int box_rows, Swizzle swizzle) {
  TensorMapRequest map = map_of(batch, box_columns, box_rows, swizzle);
  map.rank = 3;
  map.dims[2] = static_cast<std::uint64_t>(batch.count);
  // Of one group: any legal stride.
  map.strides_bytes[1] =
      batch.count > 1 ? static_cast<std::uint64_t>(batch.batch_stride_bytes()) : map.strides_bytes[0];
  map.box[2] = 1;
  return map;
}

/// Packed elements of 4 bits as the bytes that hold them.
Matrix as_bytes(Matrix matrix) {
  if (bits_of(matrix.dtype) != 4) return matrix;
  matrix.dtype = DType::kE4m3;
  matrix.columns = (matrix.columns + 1) / 2;
  matrix.stride = (matrix.stride + 1) / 2;
  matrix.batch_stride /= 2;  // a multiple of 16 bytes
  return matrix;
}

/// Atoms of scales, [rows of atoms][stride][512 bytes], as words.
TensorMapRequest scale_map(DevicePtr address, std::int64_t atoms, std::int64_t atom_rows, std::int64_t stride,
                           int box_atoms, int box_rows) {
  constexpr int kAtom = contract::kScaleAtomBytes;
  TensorMapRequest map{.address = address, .dtype = DType::kF32, .rank = 3, .swizzle = Swizzle::kNone};
  map.dims[0] = kAtom / 4;
  map.dims[1] = static_cast<std::uint64_t>(std::max<std::int64_t>(1, atoms));
  map.dims[2] = static_cast<std::uint64_t>(atom_rows);
  map.strides_bytes[0] = kAtom;
  // Of one row: any legal stride.
  map.strides_bytes[1] = (map.dims[2] > 1 ? static_cast<std::uint64_t>(stride) : map.dims[1]) * kAtom;
  map.l2_promotion_bytes = 128;
  map.box[0] = kAtom / 4;
  map.box[1] = static_cast<std::uint32_t>(box_atoms);
  map.box[2] = static_cast<std::uint32_t>(box_rows);
  return map;
}

}  // namespace

GemmTensorMaps tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& of,
                              const GemmGroups& groups) noexcept {
  // The kernel's view: rows of its tile are columns of d where operands are swapped.
  const Matrix &rows = spec.swap_ab ? of.b : of.a, &columns = spec.swap_ab ? of.a : of.b;
  const auto operand = [&](const Matrix& matrix, TileSide side, int sharers) {
    const contract::SharedSlab slab = shared_slab(spec, side);
    const int box_columns = slab.width_elements(), box_rows = (slab.mn_major ? slab.depth() : slab.rows) / sharers;
    if (groups.is_batch()) return map_of_batch(matrix, box_columns, box_rows, spec.swizzle);
    const bool of_groups =
        groups.any() && !groups.slices_k() && (side == TileSide::kRows) == spec.swap_ab;  // the problem's b
    return of_groups ? map_of_each(matrix, groups.count, box_columns, box_rows, spec.swizzle)
                     : map_of(matrix, box_columns, box_rows, spec.swizzle);
  };
  GemmTensorMaps maps;
  maps.has_a = spec.swap_ab ? !spec.pointers : !spec.gather;
  maps.has_b = spec.swap_ab ? !spec.gather : !spec.pointers;
  if (maps.has_a) maps.a = operand(rows, TileSide::kRows, 1);
  if (maps.has_b) maps.b = operand(columns, TileSide::kColumns, spec.cluster_m);
  const auto stored = [&](int tile_columns) {
    const contract::GemmStoreBox box =
        contract::gemm_store_box(bits_of(of.d.dtype) / 8, spec.swap_ab, tile_columns, spec.gated);
    const Swizzle swizzle = swizzle_of(box.swizzle_bytes);
    return groups.stacks_d() ? map_of_batch(of.d, box.columns, box.rows, swizzle)
                             : map_of(of.d, box.columns, box.rows, swizzle);
  };
  const int whole = contract::gemm_store_columns(bits_of(of.d.dtype) / 8, spec.halves_columns());
  const int tail = spec.block_n % whole;
  // Else threads copy rows of d.
  const bool maps_d = (!spec.quantizes || !spec.swap_ab) && !spec.scatter && !spec.makes_blocks() && !spec.writes_kv;
  if ((maps.has_whole = maps_d && spec.block_n >= whole)) maps.d = stored(whole);
  if ((maps.has_tail = maps_d && tail != 0)) maps.d_tail = stored(tail);
  if ((maps.has_scales = spec.scales == ScaleKind::kPerBlock && of.a.columns > 0 && !groups.has_bounds())) {
    const Matrix scales{tensors.scale_a, DType::kF32, (of.a.columns + 127) / 128 * of.a.count, of.a.rows,
                        of.scale_a_stride};
    maps.scales = map_of(scales, spec.swap_ab ? spec.block_n : spec.block_m, 1, Swizzle::kNone);
    // Whole 16 bytes: what follows the last scale is the row's padding.
    if (scales.rows > 1) maps.scales.strides_bytes[0] = static_cast<std::uint64_t>(of.scale_a_stride) * 4;
  }
  return maps;
}

BlackwellGemmTensorMaps blackwell_tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors,
                                                 const GemmMatrices& of, const GemmGroups& groups) noexcept {
  const contract::BlackwellGemmShape shape = blackwell_gemm_shape_of(spec);
  const contract::BlackwellGemmBoxes boxes = contract::blackwell_gemm_boxes(shape);
  const bool swap = spec.swap_ab;
  const Matrix &rows = swap ? of.b : of.a, &columns = swap ? of.a : of.b;
  const auto operand = [&](const Matrix& given, TileSide side, int sharers) {
    const Matrix matrix = as_bytes(given);
    const contract::SharedSlab slab = shared_slab(spec, side);
    const bool of_b = (side == TileSide::kRows) == swap;
    const int box_columns = slab.width() * 8 / bits_of(matrix.dtype);
    // Sharers bring some rows of each strip each or, with m or n innermost, some k of each box.
    const int box_rows = spec.gather && !of_b ? 1 : (slab.mn_major ? slab.depth() : slab.rows) / sharers;
    if (groups.is_batch()) return map_of_batch(matrix, box_columns, box_rows, spec.swizzle);
    return of_b && groups.has_bounds() && !groups.slices_k()
               ? map_of_each(matrix, groups.count, box_columns, box_rows, spec.swizzle)
               : map_of(matrix, box_columns, box_rows, spec.swizzle);
  };
  BlackwellGemmTensorMaps maps;
  maps.has_a = !(spec.pointers && swap), maps.has_b = !spec.pointers || swap;
  if (maps.has_a) maps.a = operand(rows, TileSide::kRows, boxes.a_sharers);
  if (maps.has_b) maps.b = operand(columns, TileSide::kColumns, boxes.b_sharers);
  const int stored = contract::blackwell_gemm_store_columns(shape);
  maps.has_d = !spec.scatter && !spec.quantizes && !spec.writes_kv;  // else threads store d
  const int halves = spec.gated ? 2 : 1;                             // two columns of the product make one of d
  if (maps.has_d) {
    constexpr int kWarpRows = contract::kBlackwellGemmWarpRows;
    const auto map = groups.stacks_d() ? map_of_batch : map_of;
    maps.d = swap ? map(of.d, kWarpRows / halves, stored, Swizzle::kNone)
                  : map(of.d, stored / halves, kWarpRows, swizzle_of(stored / halves * shape.d_bytes));
  }
  if (groups.slices_k()) {
    maps.a_rows = maps.a, maps.b_rows = maps.b;
    maps.a_rows.box[1] = maps.b_rows.box[1] = 1;
  }
  if (shape.scale_atoms == 0) return maps;
  // Threads copy scales of gathered rows. Those may be null, if there is no row.
  maps.has_scales_a = !spec.gather || swap, maps.has_scales_b = !spec.gather || !swap;
  const std::int64_t atoms = scale_atoms_of_row(of.a.columns, spec.a);
  const auto scales = [&](bool of_b, int box_rows) {
    // Of all groups. What stands in for nothing is one matrix of a zero.
    const std::int64_t rows_of_a = of.a.rows * of.a.count, rows_of_b = of.b.rows * of.b.count;
    const bool stands_in = rows_of_b < groups.count;
    const std::int64_t atom_rows = stands_in ? 1
                                   : of_b    ? scale_atom_rows_of_b(groups, rows_of_b / groups.count)
                                             : scale_atom_rows(groups, rows_of_a);
    return scale_map(of_b ? tensors.scale_b : tensors.scale_a, atoms, atom_rows,
                     of_b ? of.scale_b_stride : of.scale_a_stride, shape.scale_atoms, box_rows);
  };
  if (maps.has_scales_a) maps.scales_a = scales(swap, 1);
  if (maps.has_scales_b) maps.scales_b = scales(!swap, contract::blackwell_gemm_column_atoms(shape));
  return maps;
}

}  // namespace kernelwright::detail
