#include "kernelwright/runtime/gemm/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "contract/gemm_params.h"
#include "contract/gemm_sm100.h"
#include "contract/shared_slab.h"
#include "kernelwright/generator/gemm/planner.h"

namespace kernelwright::detail {
namespace {

constexpr DevicePtr kRowAlignment = 16;

bool along_k_a(OperandLayout layout) { return layout == OperandLayout::kNt || layout == OperandLayout::kNn; }
bool along_k_b(OperandLayout layout) { return layout == OperandLayout::kNt || layout == OperandLayout::kTt; }

Swizzle swizzle_of(int bytes) {
  return bytes == 128 ? Swizzle::k128B : bytes == 64 ? Swizzle::k64B : bytes == 32 ? Swizzle::k32B : Swizzle::kNone;
}

/// Of block-scaled operands: atoms of scales of 128 rows, side by side along k.
std::int64_t scale_atoms_of_row(std::int64_t k, DType dtype) {
  return contract::scale_atoms_of_row(static_cast<std::int32_t>(k), scale_vector(dtype));
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

/// Packed elements of 4 bits as the bytes that hold them.
Matrix as_bytes(Matrix matrix) {
  if (bits_of(matrix.dtype) != 4) return matrix;
  matrix.dtype = DType::kE4m3;
  matrix.columns = (matrix.columns + 1) / 2;
  matrix.stride = (matrix.stride + 1) / 2;
  return matrix;
}

/// Atoms of scales, [rows / 128][stride][512 bytes], as words.
TensorMapRequest scale_map(DevicePtr address, std::int64_t atoms, std::int64_t rows, std::int64_t stride, int box_atoms,
                           int box_rows) {
  constexpr int kAtom = contract::kScaleAtomBytes;
  TensorMapRequest map{.address = address, .dtype = DType::kF32, .rank = 3, .swizzle = Swizzle::kNone};
  map.dims[0] = kAtom / 4;
  map.dims[1] = static_cast<std::uint64_t>(std::max<std::int64_t>(1, atoms));
  map.dims[2] = static_cast<std::uint64_t>((rows + contract::kScaleAtomRows - 1) / contract::kScaleAtomRows);
  map.strides_bytes[0] = kAtom;
  // Of one row: any legal stride.
  map.strides_bytes[1] = (map.dims[2] > 1 ? static_cast<std::uint64_t>(stride) : map.dims[1]) * kAtom;
  map.l2_promotion_bytes = 128;
  map.box[0] = kAtom / 4;
  map.box[1] = static_cast<std::uint32_t>(box_atoms);
  map.box[2] = static_cast<std::uint32_t>(box_rows);
  return map;
}

std::int64_t or_contiguous(std::int64_t stride, std::int64_t columns) { return stride ? stride : columns; }

/// For surely_fine(), which has bounded the rows: 2^24 of them, 2^30 elements of 4 bytes apart, are the most bytes that
/// there are.
bool fits(const Matrix& matrix, bool aligned) {
  constexpr std::int64_t kStride = std::int64_t{1} << 30;
  if (matrix.stride < matrix.columns || matrix.stride > kStride || matrix.address >> 63) return false;
  const DevicePtr low = matrix.address | static_cast<DevicePtr>(matrix.rows > 1 ? matrix.stride_bytes() : 0);
  return matrix.address && (!aligned || (low & (kRowAlignment - 1)) == 0);
}

std::string beyond_memory(const Matrix& matrix) {
  return fmt::format(
      "{} elements of {} from one row to the next bring {} rows at {:#x} behind what 64-bit addresses "
      "reach, or to more than {} bytes",
      matrix.stride, to_string(matrix.dtype), matrix.rows, matrix.address, kMostBytes);
}

/// Calls `bad(broken, path, message)` for every rule, where message() makes the text.
template <class Bad>
void check(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& t, const GemmMatrices& of, Bad&& bad) {
  const auto matrix = [&](const char* name, const Matrix& matrix, bool aligned) {
    const std::string path = std::string("/") + name, stride = path + "_stride";
    bad(!matrix.address, path, [&] { return std::string("is null; give a device address"); });
    bad(aligned && (matrix.address & (kRowAlignment - 1)) != 0, path, [&] {
      return fmt::format("address {:#x} is not a multiple of {}; give an aligned one", matrix.address, kRowAlignment);
    });
    bad(matrix.stride < matrix.columns, stride,
        [&] { return fmt::format("{} is less than the {} elements of a row", matrix.stride, matrix.columns); });
    const int step = static_cast<int>(kRowAlignment) * 8 / bits_of(matrix.dtype);
    bad(aligned && matrix.rows > 1 && matrix.stride % step != 0, stride, [&] {
      return fmt::format(
          "{} elements of {} put rows off their 16-byte boundaries, from where they are copied; "
          "pad rows to a multiple of {}",
          matrix.stride, to_string(matrix.dtype), step);
    });
    bad(matrix.stride >= matrix.columns && !matrix.fits_memory(), stride, [&] { return beyond_memory(matrix); });
  };
  // Of what a kernel reads or writes through a tensor map.
  const auto mapped_stride = [&](const char* path, std::int64_t rows, CheckedInt stride, int bytes) {
    const std::int64_t apart = (stride * bytes).or_most();
    bad(rows > 1 && apart >= kTensorMapStrideBytes && apart <= kMostBytes, path, [&] {
      return fmt::format("brings rows {} bytes apart, and tensor maps take less than {}; pad rows less", apart,
                         kTensorMapStrideBytes);
    });
  };
  const auto mapped_rows = [&](const char* path, const Matrix& matrix) {
    mapped_stride(path, matrix.rows, matrix.stride_bytes(), 1);
  };
  bad(t.m < 0, "/m", [&] { return fmt::format("{} is negative", t.m); });
  bad(t.m > most_rows(spec), "/m", [&] {
    return fmt::format(
        "{} is more than {} rows, 2^31 less those of a cluster's tiles, to which the kernel counts in "
        "32 bits",
        t.m, most_rows(spec));
  });
  const std::int64_t items = count_items(spec, {t.m, kernel.n, kernel.k, 0});
  bad(t.m <= most_rows(spec) && items > kMostItems, "/m", [&] {
    return fmt::format("{} rows and {} columns are {} tiles of {} x {}{}, and a launch has at most {}", t.m, kernel.n,
                       items, spec.swap_ab ? spec.block_n : spec.block_m, spec.swap_ab ? spec.block_m : spec.block_n,
                       spec.split_k > 1 ? fmt::format(" in {} parts of k", spec.split_k) : "", kMostItems);
  });
  bad(!std::isfinite(t.alpha), "/alpha", [&] { return fmt::format("{} is not finite", t.alpha); });
  bad(!std::isfinite(t.beta), "/beta", [&] { return fmt::format("{} is not finite", t.beta); });
  bad(t.sm_budget < 0, "/sm_budget", [&] { return fmt::format("{} is negative; 0 takes all SMs", t.sm_budget); });
  bad(t.pdl && !kernel.has_pdl, "/pdl", [&] {
    return fmt::format("is true, and {} has no programmatic dependent launch, which begins with sm_90; leave it false",
                       arch_info(spec.arch).name);
  });
  if (kernel.k > 0) {
    matrix("a", of.a, true);
    matrix("b", of.b, true);
    bad(of.d.overlaps(of.a), "/d", [] { return std::string("overlaps a, which is still read while d is written"); });
    bad(of.d.overlaps(of.b), "/d", [] { return std::string("overlaps b, which is still read while d is written"); });
  }
  const bool mapped = spec.family != Family::kPortable;  // that one stores elements
  matrix("d", of.d, mapped);
  if (mapped) {
    if (kernel.k > 0) mapped_rows("/a_stride", of.a), mapped_rows("/b_stride", of.b);
    mapped_rows("/d_stride", of.d);
  }
  bad(!mapped && t.d % static_cast<DevicePtr>(bits_of(spec.d) / 8) != 0, "/d", [&] {
    return fmt::format("address {:#x} is not a multiple of {}; give an aligned one", t.d, bits_of(spec.d) / 8);
  });
  const auto optional = [&](const char* path, DevicePtr address, bool wanted, int alignment, const char* what) {
    bad(wanted && !address, path, [&] { return fmt::format("is null, and {}", what); });
    bad(!wanted && address, path, [&] { return fmt::format("is given, and nothing reads it: not so that {}", what); });
    bad(wanted && address % static_cast<DevicePtr>(alignment) != 0, path,
        [&] { return fmt::format("address {:#x} is not a multiple of {}; give an aligned one", address, alignment); });
  };
  const int element = bits_of(spec.c) / 8;
  optional("/c", t.c, spec.adds_c, element, "the epilogue has c");
  optional("/bias", t.bias, spec.bias, element, "the epilogue has bias");
  const bool per_block = spec.scales == ScaleKind::kPerBlock && kernel.k > 0;
  const bool atoms = per_block && is_block_scaled(spec.a), blocks = per_block && !atoms;
  const bool scaled = per_block || spec.scales == ScaleKind::kPerTensor || spec.scales == ScaleKind::kPerToken;
  if (scaled || spec.scales == ScaleKind::kNone) {  // of no block at all they may be given
    optional("/scale_a", t.scale_a, scaled, 4, "the operands have scales");
    optional("/scale_b", t.scale_b, scaled, 4, "the operands have scales");
  }
  if (spec.adds_c && t.c) {
    bad(of.c.stride < of.c.columns, "/c_stride",
        [&] { return fmt::format("{} is less than the {} elements of a row", of.c.stride, of.c.columns); });
    bad(of.c.stride >= of.c.columns && !of.c.fits_memory(), "/c_stride", [&] { return beyond_memory(of.c); });
    const bool same = of.c.address == of.d.address && of.c.stride_bytes() == of.d.stride_bytes() &&
                      bits_of(of.c.dtype) == bits_of(of.d.dtype);
    bad(of.d.overlaps(of.c) && !same, "/d",
        [] { return std::string("overlaps c without being it, element for element; give one of them other memory"); });
  }
  const auto scales_fit = [&](const char* path, DevicePtr address, std::int64_t rows, std::int64_t stride, int bytes) {
    const CheckedInt apart = CheckedInt(stride) * bytes;
    const auto all = static_cast<std::uint64_t>((apart * std::max<std::int64_t>(rows, 1)).or_most());
    bad(stride > 0 && !is_span(address, all), path, [&] {
      return fmt::format(
          "{} brings {} rows of scales at {:#x} behind what 64-bit addresses reach, or to more than {} "
          "bytes",
          stride, rows, address, kMostBytes);
    });
    if (mapped) mapped_stride(path, rows, stride, bytes);
  };
  if (blocks) {
    const std::int64_t k_blocks = (kernel.k + 127) / 128;
    scales_fit("/scale_a_stride", t.scale_a, k_blocks, of.scale_a_stride, 4);
    scales_fit("/scale_b_stride", t.scale_b, (kernel.n + 127) / 128, of.scale_b_stride, 4);
    bad(of.scale_a_stride < t.m || of.scale_a_stride % 4 != 0, "/scale_a_stride", [&] {
      return fmt::format("{} does not hold {} rows of a in a multiple of 4; {} would do", of.scale_a_stride, t.m,
                         (std::int64_t{t.m} + 3) / 4 * 4);
    });
    bad((t.scale_a & (kRowAlignment - 1)) != 0, "/scale_a",
        [&] { return fmt::format("address {:#x} is not a multiple of 16; give an aligned one", t.scale_a); });
    bad(of.scale_b_stride < k_blocks, "/scale_b_stride", [&] {
      return fmt::format("{} is less than the {} blocks of 128 that k = {} has", of.scale_b_stride, k_blocks, kernel.k);
    });
  }
  if (atoms) {
    const std::int64_t needed = scale_atoms_of_row(kernel.k, spec.a);
    constexpr std::int64_t kRows = contract::kScaleAtomRows;
    constexpr int kBytes = contract::kScaleAtomBytes;
    scales_fit("/scale_a_stride", t.scale_a, (t.m + kRows - 1) / kRows, of.scale_a_stride, kBytes);
    scales_fit("/scale_b_stride", t.scale_b, (kernel.n + kRows - 1) / kRows, of.scale_b_stride, kBytes);
    const auto operand = [&](const std::string& path, DevicePtr address, std::int64_t stride) {
      bad((address & (kRowAlignment - 1)) != 0, path,
          [&] { return fmt::format("address {:#x} is not a multiple of 16; give an aligned one", address); });
      bad(stride < needed, path + "_stride", [&] {
        return fmt::format("{} is less than the {} atoms of scales, of {} elements each, that k = {} has", stride,
                           needed, contract::kScaleAtomScales * scale_vector(spec.a), kernel.k);
      });
    };
    operand("/scale_a", t.scale_a, of.scale_a_stride);
    operand("/scale_b", t.scale_b, of.scale_b_stride);
  }
  const GemmExtent extent{t.m, kernel.n, kernel.k, t.sm_budget};
  bad(t.sm_budget > 0 && takes_all_sms(spec), "/sm_budget", [&] {
    return fmt::format(
        "is {}, and the kernel for {} rows takes all SMs, for {}; 0, or a schedule with {}, would do", t.sm_budget, t.m,
        spec.split_k > 1 ? "parts of k wait for each other" : "CTAs that are done take over tiles that wait",
        spec.family == Family::kHopper ? "split_k 1"
        : spec.split_k > 1             ? "split_k 1 and scheduler \"persistent\""
                                       : "scheduler \"persistent\"");
  });
  if (const std::uint64_t needed = plan_workspace(spec, extent).bytes; needed > 0) {
    bad(!t.workspace || t.workspace_bytes < needed, "/workspace", [&] {
      return fmt::format("{} bytes are given and {} are needed to add {} parts of k; see GemmKernel::workspace_bytes()",
                         t.workspace ? t.workspace_bytes : 0, needed, spec.split_k);
    });
    bad((t.workspace & (kRowAlignment - 1)) != 0, "/workspace",
        [&] { return fmt::format("address {:#x} is not a multiple of 16; give an aligned one", t.workspace); });
    bad(!is_span(t.workspace, needed), "/workspace",
        [&] { return fmt::format("{} bytes at {:#x} end behind what 64-bit addresses reach", needed, t.workspace); });
  }
}

}  // namespace

GemmMatrices matrices_of(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& t) noexcept {
  const std::int64_t m = t.m, n = kernel.n, k = kernel.k;
  const bool a_rows_m = along_k_a(spec.layout), b_rows_n = along_k_b(spec.layout);
  GemmMatrices of;
  of.a = {t.a, spec.a, a_rows_m ? m : k, a_rows_m ? k : m, or_contiguous(t.a_stride, a_rows_m ? k : m)};
  of.b = {t.b, spec.b, b_rows_n ? n : k, b_rows_n ? k : n, or_contiguous(t.b_stride, b_rows_n ? k : n)};
  of.c = {t.c, spec.c, m, n, or_contiguous(t.c_stride, n)};
  of.d = {t.d, spec.d, m, n, or_contiguous(t.d_stride, n)};
  const bool atoms = is_block_scaled(spec.a);
  of.scale_a_stride = or_contiguous(t.scale_a_stride, atoms ? scale_atoms_of_row(k, spec.a) : (m + 3) / 4 * 4);
  of.scale_b_stride = or_contiguous(t.scale_b_stride, atoms ? scale_atoms_of_row(k, spec.b) : (k + 127) / 128);
  return of;
}

bool surely_fine(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& t,
                 const GemmMatrices& of) noexcept {
  if ((t.m | t.sm_budget) < 0 || kernel.k == 0 || (t.pdl && !kernel.has_pdl)) return false;
  // Past them kernels may run out of 32 bits: the smallest tiles have 16 x 16 elements, and 16 parts of k are the most.
  constexpr std::int64_t kRows = 1 << 24, kElements = std::int64_t{1} << 32;
  if (t.m > kRows || std::int64_t{t.m} * kernel.n > kElements) return false;
  const bool mapped = spec.family != Family::kPortable;
  if (!fits(of.a, true) || !fits(of.b, true) || !fits(of.d, mapped)) return false;
  if (t.d % static_cast<DevicePtr>(bits_of(spec.d) / 8) != 0) return false;
  if (of.d.overlaps(of.a) || of.d.overlaps(of.b)) return false;
  if (spec.takes_turns() || (t.sm_budget > 0 && takes_all_sms(spec))) return false;
  if (!std::isfinite(t.alpha) || !std::isfinite(t.beta)) return false;
  return !t.c && !t.bias && !t.scale_a && !t.scale_b && !spec.adds_c && !spec.bias && spec.scales == ScaleKind::kNone;
}

std::vector<Violation> broken_rules(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                                    const GemmMatrices& matrices) {
  std::vector<Violation> violations;
  check(kernel, spec, tensors, matrices, [&](bool broken, const std::string& path, const auto& message) {
    if (broken) violations.push_back({"/tensors" + path, message()});
  });
  return violations;
}

GemmTensorMaps tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& of) noexcept {
  // The kernel's view: rows of its tile are columns of d where operands are swapped.
  const Matrix &rows = spec.swap_ab ? of.b : of.a, &columns = spec.swap_ab ? of.a : of.b;
  const auto operand = [&](const Matrix& matrix, TileSide side, int sharers) {
    const contract::SharedSlab slab = shared_slab(spec, side);
    return map_of(matrix, slab.width_elements(), (slab.mn_major ? slab.depth() : slab.rows) / sharers, spec.swizzle);
  };
  GemmTensorMaps maps;
  maps.a = operand(rows, TileSide::kRows, 1);
  maps.b = operand(columns, TileSide::kColumns, spec.cluster_m);
  const auto stored = [&](int tile_columns) {
    const contract::GemmStoreBox box = contract::gemm_store_box(bits_of(of.d.dtype) / 8, spec.swap_ab, tile_columns);
    return map_of(of.d, box.columns, box.rows, swizzle_of(box.swizzle_bytes));
  };
  const int whole = contract::gemm_store_columns(bits_of(of.d.dtype) / 8), tail = spec.block_n % whole;
  if ((maps.has_whole = spec.block_n >= whole)) maps.d = stored(whole);
  if ((maps.has_tail = tail != 0)) maps.d_tail = stored(tail);
  if ((maps.has_scales = spec.scales == ScaleKind::kPerBlock && of.a.columns > 0)) {
    const Matrix scales{tensors.scale_a, DType::kF32, (of.a.columns + 127) / 128, of.a.rows, of.scale_a_stride};
    maps.scales = map_of(scales, spec.swap_ab ? spec.block_n : spec.block_m, 1, Swizzle::kNone);
    // Whole 16 bytes: what follows the last scale is the row's padding.
    if (scales.rows > 1) maps.scales.strides_bytes[0] = static_cast<std::uint64_t>(of.scale_a_stride) * 4;
  }
  return maps;
}

BlackwellGemmTensorMaps blackwell_tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors,
                                                 const GemmMatrices& of) noexcept {
  const contract::BlackwellGemmShape shape = blackwell_gemm_shape_of(spec);
  const contract::BlackwellGemmBoxes boxes = contract::blackwell_gemm_boxes(shape);
  const bool swap = spec.swap_ab;
  const Matrix &rows = swap ? of.b : of.a, &columns = swap ? of.a : of.b;
  const auto operand = [&](const Matrix& given, TileSide side, int sharers) {
    const Matrix matrix = as_bytes(given);
    const contract::SharedSlab slab = shared_slab(spec, side);
    // Sharers bring some rows of each strip each or, with m or n innermost, some k of each box.
    return map_of(matrix, slab.width() * 8 / bits_of(matrix.dtype),
                  (slab.mn_major ? slab.depth() : slab.rows) / sharers, spec.swizzle);
  };
  BlackwellGemmTensorMaps maps;
  maps.a = operand(rows, TileSide::kRows, boxes.a_sharers);
  maps.b = operand(columns, TileSide::kColumns, boxes.b_sharers);
  const int stored = contract::blackwell_gemm_store_columns(shape);
  maps.d = swap ? map_of(of.d, contract::kBlackwellGemmWarpRows, stored, Swizzle::kNone)
                : map_of(of.d, stored, contract::kBlackwellGemmWarpRows, swizzle_of(stored * shape.d_bytes));
  maps.has_scales = shape.scale_atoms > 0;
  if (!maps.has_scales) return maps;
  const std::int64_t atoms = scale_atoms_of_row(of.a.columns, spec.a);
  const auto scales = [&](const Matrix& matrix, DevicePtr address, std::int64_t stride, int box_rows) {
    return scale_map(address, atoms, matrix.rows, stride, shape.scale_atoms, box_rows);
  };
  maps.scales_a =
      scales(rows, swap ? tensors.scale_b : tensors.scale_a, swap ? of.scale_b_stride : of.scale_a_stride, 1);
  maps.scales_b = scales(columns, swap ? tensors.scale_a : tensors.scale_b,
                         swap ? of.scale_a_stride : of.scale_b_stride, contract::blackwell_gemm_column_atoms(shape));
  return maps;
}

}  // namespace kernelwright::detail
