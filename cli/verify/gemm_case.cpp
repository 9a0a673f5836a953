// Addresses of a GEMM call.
#include "kernelwright/verify/gemm_case.h"

#include <cstring>

#include "kernelwright/verify/float_formats.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kRowBytes = 16;  // rows begin at multiples of so many

std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

std::byte* HostMatrix::row(std::int64_t index) {
  return bytes.data() + static_cast<std::size_t>(index * stride) * bytes_of(dtype);
}
const std::byte* HostMatrix::row(std::int64_t index) const {
  return bytes.data() + static_cast<std::size_t>(index * stride) * bytes_of(dtype);
}

void HostMatrix::decode(std::int64_t index, std::int64_t first, std::size_t count, double* to) const {
  decode_row(dtype, row(index) + static_cast<std::size_t>(first) * bytes_of(dtype), count, to);
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
  switch (problem.scales) {
    case ScaleKind::kPerTensor: return product(0, 0);
    case ScaleKind::kPerToken: return product(row, column);
    case ScaleKind::kPerBlock:
      return product(block * scale_a_stride + row, column / kScaleBlock * scale_b_stride + block);
    default: return 1;
  }
}

double GemmCase::operations() const { return 2.0 * m * problem.n * problem.k; }

double GemmCase::bytes() const {
  const double a_elems = static_cast<double>(m) * problem.k, b_elems = static_cast<double>(problem.n) * problem.k;
  const double elems = static_cast<double>(m) * problem.n;
  return (a_elems * bits_of(problem.dtype.a) + b_elems * bits_of(problem.dtype.b) +
          elems * (bits_of(problem.dtype.d) + (epilogue.c ? bits_of(problem.dtype.c) : 0))) /
         8;
}

void lay_out(GemmCase& call, int padding) {
  const GemmProblem& problem = call.problem;
  call.epilogue = parse_epilogue(problem.epilogue);
  // Kernels take rows of a, b and d at multiples of 16 bytes alone.
  const auto stride_of = [padding](DType dtype, std::int64_t columns) {
    return rounded_up(columns + padding, kRowBytes / static_cast<std::int64_t>(bytes_of(dtype)));
  };
  const auto extents = [&](HostMatrix& matrix, DType dtype, std::int64_t rows, std::int64_t columns) {
    matrix.dtype = dtype;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.stride = stride_of(dtype, columns);
  };
  const std::int64_t m = call.m, n = problem.n, k = problem.k;
  call.a_is_transposed() ? extents(call.a, problem.dtype.a, k, m) : extents(call.a, problem.dtype.a, m, k);
  call.b_is_k_major() ? extents(call.b, problem.dtype.b, n, k) : extents(call.b, problem.dtype.b, k, n);
  if (call.epilogue.c) {
    extents(call.c, problem.dtype.c, m, n);
    if (padding == 0) call.c.stride = n;
  }
  if (call.epilogue.bias) {
    extents(call.bias, problem.dtype.c, 1, n);
    call.bias.stride = n;
  }
  call.d_stride = stride_of(problem.dtype.d, n);
  if (problem.scales == ScaleKind::kPerBlock) {
    call.scale_a_stride = rounded_up(m + padding, 4);
    call.scale_b_stride = (k + kScaleBlock - 1) / kScaleBlock + padding;
  }
}

GemmCase shape_only(const GemmProblem& problem, const GemmShape& shape) {
  GemmCase call;
  call.problem = problem;
  call.m = shape.m;
  lay_out(call);
  return call;
}

}  // namespace kernelwright
