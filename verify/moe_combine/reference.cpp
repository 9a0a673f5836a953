#include "kernelwright/verify/moe_combine/reference.h"

#include <cmath>

#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

MoeCombineRow reference_row(const MoeCombineCase& call, std::int64_t token) {
  const MoeCombineProblem& problem = call.problem;
  const auto width = static_cast<std::size_t>(problem.width);
  MoeCombineRow row{std::vector<double>(width), std::vector<double>(width)};
  std::vector<double> part(width);
  int terms = 0;
  const auto add = [&](const std::vector<std::byte>& bytes, std::int64_t index, std::int64_t stride, double weight) {
    const DType in = problem.dtype.in;
    decode_row(in, bytes.data() + static_cast<std::size_t>(index * stride) * bytes_of(in), width, part.data());
    for (std::size_t i = 0; i < width; ++i) {
      row.value[i] += weight * part[i];
      row.error[i] += std::fabs(weight * part[i]);
    }
    ++terms;
  };
  for (std::int64_t slot = 0; slot < problem.top_k; ++slot) {
    const auto pair = static_cast<std::size_t>(token * problem.top_k + slot);
    if (call.reads(pair)) add(call.rows, call.positions[pair], call.rows_stride, call.weight_of(pair));
  }
  if (problem.residual) add(call.residual, token, call.residual_stride, 1);
  // A product and its sum are rounded once, or each if they are not fused. Below the normal range, rounding errs by a
  // half of the smallest subnormal.
  for (double& error : row.error) error = gamma(2.0 * terms, kUnit) * error + terms * 0x1p-149;
  return row;
}

}  // namespace kernelwright
