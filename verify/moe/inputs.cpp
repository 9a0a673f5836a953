#include <cmath>
#include <span>

#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/moe/case.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

constexpr int kGapElements = 8;  // rows stay at multiples of 16 bytes

/// Streams of random numbers.
enum : std::uint64_t { kX = 301, kResidual, kGateUp, kGateUpScale, kGateUpBias, kDown, kDownScale, kDownBias };

/// `rows` rows of normal values times `factor`, `stride` elements apart, with NaN between them.
std::vector<std::byte> normal_rows(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                   float factor, Random random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * stride) * bytes_of(dtype));
  fill_with_nan(dtype, bytes);
  std::vector<float> values(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) random.normal_pair(values[i], values[i + 1]);
    for (float& value : values) value *= factor;
    encode_row(dtype, std::span<const float>(values),
               bytes.data() + static_cast<std::size_t>(row * stride) * bytes_of(dtype));
  }
  return bytes;
}

std::vector<float> drawn_scales(std::int64_t count, float factor, Random random) {
  std::vector<float> scales(static_cast<std::size_t>(count));
  for (float& scale : scales) scale = factor * static_cast<float>(random.uniform(0.25, 2));
  return scales;
}

}  // namespace

MoeCase make_moe_inputs(const MoeProblem& problem, std::int64_t tokens, const MoeInputOptions& options) {
  MoeCase call;
  call.problem = problem;
  call.route =
      make_route_inputs(problem.route, {.name = "drawn", .tokens = static_cast<int>(tokens)},
                        {.seed = options.seed, .gaps = options.gaps, .odd = options.odd && problem.route.is_given()});
  const std::int64_t hidden = problem.hidden, wide = problem.intermediate, experts = problem.own_experts();
  const std::int64_t stride = hidden + (options.gaps ? kGapElements : 0);
  call.x_stride = call.residual_stride = call.out_stride = stride;
  const auto random = [&](std::uint64_t stream) { return Random(options.seed, stream); };
  const auto root = [](std::int64_t k) { return 1 / std::sqrt(static_cast<float>(k)); };
  call.x = normal_rows(problem.dtype, tokens, hidden, stride, 1, random(kX));
  if (problem.residual) call.residual = normal_rows(problem.dtype, tokens, hidden, stride, 1, random(kResidual));
  // Elements of e4m3 are near 16, and their scales make up for it.
  const float element = call.is_quantised() ? 16 : 1;
  const DType dtype = call.weight_dtype();
  const auto weights = [&](std::int64_t rows, std::int64_t k, std::uint64_t stream) {
    return normal_rows(dtype, experts * rows, k, k, call.is_quantised() ? element : root(k), random(stream));
  };
  call.gate_up = weights(2 * wide, hidden, kGateUp);
  call.down = weights(hidden, wide, kDown);
  if (call.is_quantised()) {
    const std::int64_t rows = scale_rows_of_b(2 * problem.intermediate, true);
    call.gate_up_scale = drawn_scales(experts * rows * (hidden / 128), root(hidden) / element, random(kGateUpScale));
    call.down_scale = drawn_scales(experts * (hidden / 128) * (wide / 128), root(wide) / element, random(kDownScale));
  }
  if (parse_epilogue(problem.gates).bias)
    call.gate_up_bias = normal_rows(problem.dtype, experts, 2 * wide, 2 * wide, 0.5f, random(kGateUpBias));
  if (problem.down_bias) call.down_bias = normal_rows(problem.dtype, experts, hidden, hidden, 0.5f, random(kDownBias));
  return call;
}

}  // namespace kernelwright
