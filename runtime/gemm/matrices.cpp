#include "kernelwright/runtime/gemm/matrices.h"

#include "contract/block_scales.h"
#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/runtime/gemm/launch.h"

namespace kernelwright::detail {
namespace {

bool along_k_a(OperandLayout layout) { return layout == OperandLayout::kNt || layout == OperandLayout::kNn; }
bool along_k_b(OperandLayout layout) { return layout == OperandLayout::kNt || layout == OperandLayout::kTt; }

std::int64_t or_contiguous(std::int64_t stride, std::int64_t columns) { return stride ? stride : columns; }

}  // namespace

std::int64_t scaled_rows(const LoadedGemm& kernel, std::int64_t m, std::int64_t source_rows) noexcept {
  if (kernel.groups.gather) return source_rows;
  return kernel.groups.is_even() ? m / kernel.groups.count : m;
}

bool own_scales(const LoadedGemm& kernel) noexcept { return kernel.groups.is_even() && !kernel.groups.gather; }

std::int64_t scale_atom_rows(const GemmGroups& groups, std::int64_t m) noexcept {
  if (groups.is_even()) return groups.count * contract::scale_atom_rows_of_groups(m / groups.count, 1);
  return contract::scale_atom_rows_of_groups(m, groups.count);
}

std::int64_t scale_atom_rows_of_b(const GemmGroups& groups, std::int64_t n) noexcept {
  return groups.count * contract::scale_atom_rows_of_groups(n, 1);
}

std::int64_t scale_atoms_of_row(std::int64_t k, DType dtype) noexcept {
  return contract::scale_atoms_of_row(static_cast<std::int32_t>(k), scale_vector(dtype));
}

bool has_no_sources(const LoadedGemm& kernel, const GemmTensors& tensors) noexcept {
  const bool reads_sources = kernel.groups.gather || kernel.groups.slices_k();
  return reads_sources && tensors.source_rows == 0 && kernel.k > 0;
}

GemmMatrices matrices_of(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& t) noexcept {
  const std::int64_t n = kernel.n, k = kernel.groups.slices_k() ? t.source_rows : kernel.k;
  const GemmGroups& groups = kernel.groups;
  const std::int64_t m = groups.stacks_d() ? t.m / groups.count : t.m;
  const bool a_rows_m = along_k_a(spec.layout), b_rows_n = along_k_b(spec.layout);
  GemmMatrices of;
  const std::int64_t rows_of_a = groups.gather ? t.source_rows : m;
  // That are one behind the other. With pointers, b is one of those to which they lead.
  const std::int64_t matrices = groups.stacks_d() || groups.pointers ? 1 : groups.count;
  of.a = {t.a, spec.a, a_rows_m ? rows_of_a : k, a_rows_m ? k : m, or_contiguous(t.a_stride, a_rows_m ? k : m)};
  of.b = {t.b, spec.b, (b_rows_n ? n : k) * matrices, b_rows_n ? k : n, or_contiguous(t.b_stride, b_rows_n ? k : n)};
  const std::int64_t rows_of_d = groups.scatter ? t.result_rows : m;
  of.c = {t.c, spec.c, rows_of_d, n, or_contiguous(t.c_stride, n)};
  of.d = {t.d, spec.d, rows_of_d, kernel.d_columns, or_contiguous(t.d_stride, kernel.d_columns)};
  if (groups.stacks_d()) {
    const auto batch = [&](Matrix& of_batch, std::int64_t batch_stride) {
      of_batch.count = groups.count;
      of_batch.batch_stride = batch_stride ? batch_stride : (CheckedInt(of_batch.rows) * of_batch.stride).or_most();
    };
    if (groups.is_batch()) batch(of.a, t.a_batch_stride), batch(of.b, t.b_batch_stride);
    batch(of.c, t.c_batch_stride), batch(of.d, t.d_batch_stride);
  }
  const bool atoms = is_block_scaled(spec.a);
  of.scale_a_stride = or_contiguous(
      t.scale_a_stride, atoms ? scale_atoms_of_row(k, spec.a) : (scaled_rows(kernel, t.m, t.source_rows) + 3) / 4 * 4);
  if (spec.makes_blocks()) {
    const std::int64_t atoms = scale_atoms_of_row(kernel.d_columns, spec.d);
    const std::int64_t row = spec.rows_of_scales ? kernel.d_columns / scale_vector(spec.d) : atoms;
    const std::int64_t unit = spec.rows_of_scales ? 1 : contract::kScaleAtomBytes;
    const std::int64_t rows = spec.rows_of_scales ? m : scale_atom_rows(kernel.groups, m);
    of.scale_d_stride = or_contiguous(t.scale_d_stride, row);
    of.scale_d = {t.scale_d, DType::kE4m3, rows, row * unit, (CheckedInt(of.scale_d_stride) * unit).or_most()};
  } else if (spec.quantizes) {
    const std::int64_t parts = groups.is_even() ? groups.count : 1, rows = t.m / parts;
    of.scale_d = {t.scale_d, DType::kF32, kernel.d_columns / kQuantizedGroup * parts, rows,
                  or_contiguous(t.scale_d_stride, (rows + 3) / 4 * 4)};
  }
  const auto sums = [&](DevicePtr address, std::int64_t columns, std::int64_t stride) {
    return Matrix{address, DType::kF32, (columns + kQuantizedGroup - 1) / kQuantizedGroup, m,
                  or_contiguous(stride, (m + 3) / 4 * 4)};
  };
  if (spec.squares) of.squares = sums(t.squares, kernel.d_columns, t.squares_stride);
  if (spec.rstd) of.squares_a = sums(t.squares_a, k, t.squares_a_stride);
  of.scale_b_stride = or_contiguous(t.scale_b_stride, atoms ? scale_atoms_of_row(k, spec.b) : (k + 127) / 128);
  return of;
}

}  // namespace kernelwright::detail
