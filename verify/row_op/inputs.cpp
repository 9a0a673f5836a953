// Seeded inputs: random values where a kernel reads, NaN everywhere else.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "contract/block_scales.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/random.h"
#include "kernelwright/verify/row_op/case.h"

namespace kernelwright {
namespace {

enum RowOpStream : std::uint64_t { kX = 401, kResidual, kNormWeights, kTensorScale, kLse };

constexpr std::int64_t kGapElements = 32;  // 16 bytes of the narrowest format

std::vector<std::byte> drawn_rows(const RowOpCase& call, std::int64_t width, std::int64_t stride, std::uint64_t seed,
                                  std::uint64_t stream) {
  const DType in = call.problem.dtype.in;
  std::vector<std::byte> bytes(call.row_bytes(stride, in));
  fill_with_nan(in, bytes);
  std::vector<float> values(static_cast<std::size_t>(width + width % 2));
  for (std::int64_t row = 0; row < call.rows; ++row) {
    Random random(seed, static_cast<std::uint64_t>(row) * 1024 + stream);
    const auto magnitude = static_cast<float>(std::exp2(random.uniform(-3, 3)));
    for (std::size_t i = 0; i < values.size(); i += 2) random.normal_pair(values[i], values[i + 1]);
    for (float& value : values) value *= magnitude;
    encode_row(in, std::span(values).first(static_cast<std::size_t>(width)),
               bytes.data() + static_cast<std::size_t>(row * stride) * bytes_of(in));
  }
  return bytes;
}

/// LSEs some units apart. Some heads of a row saw no key of one kind, some of neither.
void draw_lses(RowOpCase& call, std::uint64_t seed) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  call.lse.assign(call.lse_bytes() / 4, std::numeric_limits<float>::quiet_NaN());
  call.residual_lse = call.lse;
  Random random(seed, kLse);
  for (std::int64_t head = 0; head < call.problem.heads; ++head)
    for (std::int64_t row = 0; row < call.rows; ++row) {
      const std::size_t at = call.lse_at(row, static_cast<std::size_t>(head));
      call.lse[at] = static_cast<float>(random.uniform(-4, 12));
      call.residual_lse[at] = static_cast<float>(random.uniform(-4, 12));
      const double drawn = random.uniform(0, 1);
      if (drawn < 0.2) call.lse[at] = kNone;
      if (drawn < 0.1 || drawn > 0.9) call.residual_lse[at] = kNone;
    }
}

}  // namespace

std::size_t RowOpCase::row_bytes(std::int64_t stride, DType dtype) const {
  if (rows == 0) return 0;
  return bytes_of(dtype, static_cast<std::size_t>(rows * stride));
}

std::size_t RowOpCase::scale_bytes() const {
  if (has_atoms())
    return static_cast<std::size_t>(contract::block_scale_bytes(rows, problem.width, scale_vector(problem.dtype.out)));
  if (problem.scales.kind == ScaleKind::kPerToken) return 4 * static_cast<std::size_t>(rows);
  return 4 * static_cast<std::size_t>(scale_stride * (scale_columns() ? scale_blocks() : rows));
}

std::size_t RowOpCase::lse_bytes() const {
  return 4 * static_cast<std::size_t>(std::max(problem.heads * lse_head_stride, rows * lse_stride));
}

double RowOpCase::operations() const {
  constexpr double kOfElement = 12;
  return kOfElement * static_cast<double>(rows) * problem.width;
}

double RowOpCase::bytes() const {
  const double of_in = static_cast<double>(bits_of(problem.dtype.in)) / 8;
  const double more = adds() ? 2 : merges() ? 1 : 0;
  const double read = (read_width() + more * problem.width) * of_in + (merges() ? 3.0 * 4 * problem.heads : 0);
  const double scales = rows > 0 ? static_cast<double>(scale_bytes()) : 0;
  return static_cast<double>(rows) * (read + problem.width * static_cast<double>(bits_of(problem.dtype.out)) / 8) +
         scales + (has_weights() ? problem.width * of_in : 0);
}

void lay_out_rows(RowOpCase& call, std::int64_t gap) {
  const std::int64_t width = call.problem.width;
  call.x_stride = call.read_width() + gap;
  call.residual_stride = call.residual_out_stride = width + gap;
  call.out_stride = width + gap;
  if (call.scale_blocks() > 0)
    call.scale_stride = (call.scale_columns() ? (call.rows + 3) / 4 * 4 : call.scale_blocks()) + (gap > 0 ? 4 : 0);
  if (!call.merges()) return;
  call.lse_stride = call.problem.heads, call.lse_head_stride = 1;
  if (gap > 0) call.lse_stride = 1, call.lse_head_stride = call.rows + 3;  // as [heads, rows]
}

RowOpCase shape_only(const RowOpProblem& problem, const RowOpShape& shape) {
  RowOpCase call;
  call.problem = problem;
  call.rows = shape.rows;
  lay_out_rows(call, 0);
  return call;
}

RowOpCase make_row_op_inputs(const RowOpProblem& problem, const RowOpShape& shape, const RowOpInputOptions& options) {
  RowOpCase call = shape_only(problem, shape);
  lay_out_rows(call, options.gaps || shape.check ? kGapElements : 0);
  call.x = drawn_rows(call, call.read_width(), call.x_stride, options.seed, kX);
  if (call.adds() || call.merges())
    call.residual = drawn_rows(call, problem.width, call.residual_stride, options.seed, kResidual);
  if (call.merges()) draw_lses(call, options.seed);
  if (call.has_weights()) {
    Random random(options.seed, kNormWeights);
    std::vector<float> values(static_cast<std::size_t>(problem.width));
    for (float& value : values)
      value = static_cast<float>(random.uniform(0.5, 1.5)) - static_cast<float>(problem.norm.weight_offset);
    call.weight.resize(values.size() * bytes_of(problem.dtype.in));
    encode_row(problem.dtype.in, values, call.weight.data());
  }
  Random random(options.seed, kTensorScale);
  if (problem.scales.kind == ScaleKind::kPerTensor) call.given_scale = static_cast<float>(random.uniform(0.005, 0.02));
  if (problem.dtype.out == DType::kNvfp4) call.tensor_scale = static_cast<float>(random.uniform(0.5, 1.5));
  return call;
}

}  // namespace kernelwright
