// Addresses of a GEMM call.
#include "kernelwright/verify/gemm/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "contract/block_scales.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/gemm/groups.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kRowBytes = 16;  // rows begin at multiples of this

std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

void HostMatrix::allocate() {
  bytes.resize(bytes_of(dtype, static_cast<std::size_t>(rows * stride)));
  fill_with_nan(dtype, bytes);
  if (!is_block_scaled(dtype)) return;
  // Past the ends of rows and k, TMA fills in zeros. Every finite scale leaves them zero.
  const auto largest = static_cast<std::byte>(nan_scale(dtype) - 1);
  const int vector = scale_vector(dtype);
  const std::int64_t scaled = scale_rows.empty() ? rows : atom_rows * contract::kScaleAtomRows;
  scales.assign(
      static_cast<std::size_t>(contract::block_scale_bytes(scaled, static_cast<std::int32_t>(columns), vector)),
      largest);
}

std::byte* HostMatrix::row(std::int64_t index) {
  return bytes.data() + bytes_of(dtype, static_cast<std::size_t>(index * stride));
}
const std::byte* HostMatrix::row(std::int64_t index) const {
  return bytes.data() + bytes_of(dtype, static_cast<std::size_t>(index * stride));
}

void HostMatrix::set_row(std::int64_t index, std::span<const float> values) {
  if (!is_block_scaled(dtype)) return encode_row(dtype, values, row(index));
  const auto vector = static_cast<std::size_t>(scale_vector(dtype));
  if (values.size() % vector != 0)
    throw Error(fmt::format("HostMatrix::set_row: {} values of {} are no whole number of blocks of {}", values.size(),
                            to_string(dtype), vector));
  for (std::size_t first = 0; first < values.size(); first += vector) {
    const auto scale = static_cast<std::byte>(
        quantize_block(dtype, values.subspan(first, vector), row(index) + bytes_of(dtype, first)));
    if (has_scales(index)) scale_byte(index, static_cast<std::int64_t>(first / vector)) = scale;
  }
}

void HostMatrix::copy_scales(std::int64_t to, const HostMatrix& from, std::int64_t row) {
  if (!is_block_scaled(dtype) || !from.has_scales(row)) return;
  for (std::int64_t block = 0; block * scale_vector(dtype) < columns; ++block)
    scale_byte(to, block) = from.scales[from.scale_index(row, block)];
}

HostMatrix HostMatrix::slice(std::int64_t first, std::int64_t count) const {
  HostMatrix part = *this;
  part.rows = count;
  part.scale_rows.clear();
  if (bytes.empty()) return part;
  part.allocate();
  std::copy(row(first), row(first + count), part.bytes.data());
  for (std::int64_t i = 0; i < count; ++i) part.copy_scales(i, *this, first + i);
  return part;
}

HostMatrix HostMatrix::gathered(std::span<const std::int32_t> from) const {
  HostMatrix part = *this;
  part.rows = static_cast<std::int64_t>(from.size());
  part.scale_rows.clear();
  part.allocate();
  const std::vector<float> zeros(static_cast<std::size_t>(columns), 0.f);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i);
    if (from[i] < 0) {
      part.set_row(to, zeros);
      continue;
    }
    std::copy(row(from[i]), row(from[i] + 1), part.row(to));
    part.copy_scales(to, *this, from[i]);
  }
  return part;
}

std::size_t HostMatrix::scale_index(std::int64_t index, std::int64_t block) const {
  const std::int32_t atoms = contract::scale_atoms_of_row(static_cast<std::int32_t>(columns), scale_vector(dtype));
  const std::int64_t scaled = scale_rows.empty() ? index : scale_rows[static_cast<std::size_t>(index)];
  return static_cast<std::size_t>(contract::block_scale_offset(atoms, scaled, static_cast<std::int32_t>(block)));
}
std::byte& HostMatrix::scale_byte(std::int64_t index, std::int64_t block) { return scales[scale_index(index, block)]; }
float HostMatrix::scale(std::int64_t index, std::int64_t block) const {
  return decode_scale(dtype, std::to_integer<std::uint8_t>(scales[scale_index(index, block)]));
}

void HostMatrix::decode(std::int64_t index, std::int64_t first, std::size_t count, double* to) const {
  if (first % 2 != 0 && bits_of(dtype) == 4 && count > 0) {  // the upper half of a byte
    double pair[2];
    decode_row(dtype, row(index) + bytes_of(dtype, static_cast<std::size_t>(first - 1)), 2, pair);
    decode_row(dtype, row(index) + bytes_of(dtype, static_cast<std::size_t>(first + 1)), count - 1, to + 1);
    to[0] = pair[1];
  } else {
    decode_row(dtype, row(index) + bytes_of(dtype, static_cast<std::size_t>(first)), count, to);
  }
  const int vector = scale_vector(dtype);
  for (std::size_t i = 0; vector && i < count;) {
    const std::int64_t block = (first + static_cast<std::int64_t>(i)) / vector;
    const float factor = first + static_cast<std::int64_t>(i) < columns ? scale(index, block) : 1;
    const auto end = std::min(count, static_cast<std::size_t>((block + 1) * vector - first));
    for (; i < end; ++i) to[i] *= factor;
  }
}

void HostMatrix::decode_column(std::int64_t index, std::int64_t first, std::size_t count, double* to) const {
  for (std::size_t i = 0; i < count; ++i) decode(first + static_cast<std::int64_t>(i), index, 1, to + i);
}

bool GemmCase::a_is_transposed() const {
  return problem.layout == OperandLayout::kTn || problem.layout == OperandLayout::kTt;
}
bool GemmCase::b_is_k_major() const {
  return problem.layout == OperandLayout::kNt || problem.layout == OperandLayout::kTt;
}

bool GemmCase::has_f32_block_scales() const {
  return problem.scales == ScaleKind::kPerBlock && !is_block_scaled(problem.dtype.a);
}

void GemmCase::decode_a(std::int64_t row, std::int64_t first, std::size_t count, double* to) const {
  a_is_transposed() ? a.decode_column(row, first, count, to) : a.decode(row, first, count, to);
}
void GemmCase::decode_b(std::int64_t column, std::int64_t first, std::size_t count, double* to) const {
  b_is_k_major() ? b.decode(column, first, count, to) : b.decode_column(column, first, count, to);
}

double GemmCase::scale(std::int64_t row, std::int64_t column, std::int64_t block) const {
  const auto product = [&](std::int64_t of_a, std::int64_t of_b) {
    return static_cast<double>(scale_a[static_cast<std::size_t>(of_a)]) * scale_b[static_cast<std::size_t>(of_b)];
  };
  if (is_block_scaled(problem.dtype.a)) return 1;  // decode_a() and decode_b() have applied the scales
  switch (problem.scales) {
    case ScaleKind::kPerTensor: return product(0, 0);
    case ScaleKind::kPerToken: return product(row, column);
    case ScaleKind::kPerBlock:
      return product(block * scale_a_stride + row, scale_row_of_b(column) * scale_b_stride + block);
    default: return 1;
  }
}

double GemmCase::rstd(std::int64_t row) const {
  if (!epilogue.rstd) return 1;
  double sum = 0;
  for (std::int64_t at = row; at < static_cast<std::int64_t>(squares_a.size()); at += squares_a_stride)
    sum += squares_a[static_cast<std::size_t>(at)];
  return 1 / std::sqrt(sum / problem.k + rms_eps);
}

std::int64_t GemmCase::scale_row_of_b(std::int64_t column) const {
  if (!epilogue.gated) return column / kScaleBlock;
  const std::int64_t pair = column / kGatePairs, of_d = pair / 2 * kGatePairs + column % kGatePairs;
  return pair % 2 * (scale_rows_of_b(problem.n, true) / 2) + of_d / kScaleBlock;
}

std::int64_t GemmCase::scale_d_rows() const {
  if (!epilogue.quantizes) return 0;
  if (has_atoms_of_d()) return atom_rows();
  if (epilogue.makes_blocks()) return m;
  return std::int64_t{d_columns() / kQuantizedGroup} * (problem.groups.is_even() ? problem.groups.count : 1);
}
std::int64_t GemmCase::scale_d_columns() const {
  if (!epilogue.quantizes) return 0;
  if (has_atoms_of_d())
    return contract::scale_atoms_of_row(d_columns(), epilogue.scaled_columns()) * contract::kScaleAtomBytes;
  if (epilogue.makes_blocks()) return d_columns() / epilogue.scaled_columns();
  return problem.groups.is_even() ? m / problem.groups.count : m;
}

std::int64_t GemmCase::scale_d_stride_bytes() const {
  return scale_d_stride * (has_atoms_of_d() ? contract::kScaleAtomBytes : scale_d_bytes());
}
std::size_t GemmCase::scale_d_index(std::int64_t row, std::int64_t block) const {
  if (!has_atoms_of_d()) return static_cast<std::size_t>(row * scale_d_columns() + block);
  const std::int32_t atoms = contract::scale_atoms_of_row(d_columns(), epilogue.scaled_columns());
  return static_cast<std::size_t>(contract::block_scale_offset(atoms, row, static_cast<std::int32_t>(block)));
}

double GemmCase::operations() const {
  if (problem.groups.slices_k())
    return 2.0 * static_cast<double>(rows_of_a()) * problem.n * static_cast<double>(depth_in_groups());
  return 2.0 * static_cast<double>(rows_in_groups()) * problem.n * problem.k;
}

double GemmCase::bytes() const {
  const auto operand_bits = [&](DType dtype) {
    return bits_of(dtype) + (is_block_scaled(dtype) ? 8.0 / scale_vector(dtype) : 0);
  };
  const double rows = static_cast<double>(rows_in_groups()), matrices = problem.groups.any() ? groups_with_rows() : 1;
  double a_elems = (problem.groups.gather ? std::min<double>(rows, source_rows) : rows) * problem.k,
         b_elems = matrices * problem.n * problem.k;
  if (problem.groups.slices_k()) {
    const auto depth = static_cast<double>(depth_in_groups());
    a_elems = depth * static_cast<double>(rows_of_a()), b_elems = depth * problem.n;
  }
  const double elems = rows * d_columns();
  const double of_cache = problem.kv_write ? rows * (problem.n - d_columns()) * bits_of(problem.kv_write->dtype.kv) : 0;
  return (of_cache + a_elems * operand_bits(problem.dtype.a) + b_elems * operand_bits(problem.dtype.b) +
          elems * (bits_of(problem.dtype.d) + (epilogue.c ? bits_of(problem.dtype.c) : 0) +
                   (epilogue.quantizes ? 8.0 * scale_d_bytes() / epilogue.scaled_columns() : 0))) /
         8;
}

namespace {

/// Where block-scaled operands of groups have their scales.
void place_scales(GemmCase& call) {
  const GemmGroups& groups = call.problem.groups;
  if (!groups.any() || !is_block_scaled(call.problem.dtype.a)) return;
  constexpr std::int64_t kRows = contract::kScaleAtomRows;
  const auto place = [&](HostMatrix& matrix, std::int64_t first, std::int64_t count, std::int64_t atoms) {
    for (std::int64_t row = 0; row < count; ++row)
      matrix.scale_rows[static_cast<std::size_t>(first + row)] = atoms * kRows + row;
  };
  for (HostMatrix* matrix : {&call.a, &call.b}) matrix->scale_rows.assign(static_cast<std::size_t>(matrix->rows), -1);
  const std::int64_t n = call.problem.n, of_b = (n + kRows - 1) / kRows, capacity = call.m / groups.count;
  call.b.atom_rows = of_b * groups.count, call.a.atom_rows = call.atom_rows();
  for (int g = 0; g < groups.count; ++g) {
    const GemmCase::Rows rows = call.rows_of_group(g);
    const bool masked = groups.kind == GroupKind::kMasked;
    place(call.b, g * n, n, g * of_b);
    if (!groups.gather) place(call.a, rows.first, masked ? capacity : rows.count(), call.atom_rows_ahead(g));
  }
  if (groups.gather) {  // from a matrix like any other
    call.a.atom_rows = contract::scale_atom_rows_of_groups(call.a.rows, 1);
    place(call.a, 0, call.a.rows, 0);
  }
}

}  // namespace

void lay_out(GemmCase& call, int padding) {
  const GemmProblem& problem = call.problem;
  call.epilogue = parse_epilogue(problem.epilogue);
  // Kernels accept rows of a, b and d only at multiples of 16 bytes.
  const auto stride_of = [padding](DType dtype, std::int64_t columns) {
    return rounded_up(columns + padding, kRowBytes * 8 / bits_of(dtype));
  };
  const auto extents = [&](HostMatrix& matrix, DType dtype, std::int64_t rows, std::int64_t columns) {
    matrix.dtype = dtype;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.stride = stride_of(dtype, columns);
  };
  const bool slices = problem.groups.slices_k();
  const std::int64_t m = call.m, n = problem.n, k = slices ? call.source_rows : problem.k;
  const std::int64_t groups = problem.groups.count, rows_of_a = call.rows_of_a(), matrices = slices ? 1 : groups;
  call.a_is_transposed() ? extents(call.a, problem.dtype.a, k, rows_of_a)
                         : extents(call.a, problem.dtype.a, rows_of_a, k);
  call.b_is_k_major() ? extents(call.b, problem.dtype.b, matrices * n, k)
                      : extents(call.b, problem.dtype.b, matrices * k, n);
  if (call.epilogue.c) {
    extents(call.c, problem.dtype.c, call.rows_of_d(), n);
    if (padding == 0) call.c.stride = n;
  }
  if (call.epilogue.bias) {
    extents(call.bias, problem.dtype.c, groups, n);
    call.bias.stride = n;
  }
  place_scales(call);
  call.d_stride = stride_of(problem.dtype.d, call.d_columns());
  if (call.epilogue.squares) call.squares_stride = rounded_up(m, 4) + padding;
  if (call.epilogue.rstd) call.squares_a_stride = rounded_up(m, 4) + padding;
  if (call.has_atoms_of_d())
    call.scale_d_stride = call.scale_d_columns() / contract::kScaleAtomBytes + (padding > 0 ? 1 : 0);
  else if (call.epilogue.makes_blocks())
    call.scale_d_stride = call.scale_d_columns() + padding;
  else if (call.epilogue.quantizes)
    call.scale_d_stride = rounded_up(call.scale_d_columns() + padding, 4);
  if (call.has_f32_block_scales()) {
    const bool even = problem.groups.is_even() && !problem.groups.gather;
    const std::int64_t rows = even ? m / groups : rows_of_a;
    call.scale_a_stride = rounded_up(rows + padding, 4);
    call.scale_b_stride = (k + kScaleBlock - 1) / kScaleBlock + padding;
  }
}

GemmCase shape_only(const GemmProblem& problem, const GemmShape& shape) {
  GemmCase call;
  call.problem = problem;
  call.m = shape.m;
  call.bounds = draw_bounds(problem, shape, 0);
  if (problem.groups.gather) call.source_rows = shape.source_rows > 0 ? shape.source_rows : shape.m;
  if (problem.groups.slices_k()) call.source_rows = rows_of_bounds(problem, shape);
  draw_scatter(call, shape, 0);
  lay_out(call);
  return call;
}

}  // namespace kernelwright
