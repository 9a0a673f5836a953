// Seeded inputs: random values where a kernel reads, NaN everywhere else.
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/moe_combine/case.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

enum MoeCombineStream : std::uint64_t { kPositions = 601, kWeights, kRows, kResidual };

constexpr std::int64_t kGapElements = 32;

/// Rows of NaN.
std::vector<std::byte> nan_rows(DType dtype, std::int64_t rows, std::int64_t stride) {
  std::vector<std::byte> bytes(bytes_of(dtype, static_cast<std::size_t>(rows * stride)));
  fill_with_nan(dtype, bytes);
  return bytes;
}

void draw_row(const MoeCombineCase& call, std::uint64_t seed, std::uint64_t stream, std::int64_t row,
              std::int64_t stride, std::vector<std::byte>& bytes) {
  std::vector<float> values(static_cast<std::size_t>(call.problem.width));  // a multiple of 8
  Random random(seed, static_cast<std::uint64_t>(row) * 1024 + stream);
  for (std::size_t i = 0; i < values.size(); i += 2) random.normal_pair(values[i], values[i + 1]);
  const DType in = call.problem.dtype.in;
  encode_row(in, values, bytes.data() + static_cast<std::size_t>(row * stride) * bytes_of(in));
}

/// Pairs as a launch may have them at its worst: no row here, positions that no array has, and weights of 0.
void make_odd(MoeCombineCase& call, Random& random) {
  for (std::size_t pair = 0; pair < call.positions.size(); ++pair) {
    switch (random.below(8)) {
      case 0: call.positions[pair] = -1; break;
      case 1: call.positions[pair] = static_cast<std::int32_t>(call.num_rows); break;
      case 2: call.positions[pair] = std::numeric_limits<std::int32_t>::min(); break;
      case 3:
        if (call.problem.weighted) call.weights[pair] = random.below(2) == 0 ? 0.f : -0.f;
        break;
      case 4: call.positions[pair] = call.positions[random.below(call.positions.size())]; break;  // a row twice
      default: break;
    }
  }
}

}  // namespace

double MoeCombineCase::operations() const { return 2.0 * static_cast<double>(tokens) * problem.top_k * problem.width; }

double MoeCombineCase::bytes() const {
  const auto bytes_of_row = [&](DType dtype) { return problem.width * static_cast<double>(bits_of(dtype)) / 8; };
  const double words = 4.0 * problem.top_k * (problem.weighted ? 2 : 1);
  const int read = problem.top_k + (problem.residual ? 1 : 0);
  return static_cast<double>(tokens) *
         (read * bytes_of_row(problem.dtype.in) + bytes_of_row(problem.dtype.out) + words);
}

MoeCombineCase shape_only(const MoeCombineProblem& problem, const MoeCombineShape& shape) {
  MoeCombineCase call;
  call.problem = problem;
  call.tokens = shape.tokens;
  call.num_rows = call.tokens * problem.top_k;
  call.rows_stride = call.residual_stride = call.out_stride = problem.width;
  return call;
}

MoeCombineCase make_moe_combine_inputs(const MoeCombineProblem& problem, const MoeCombineShape& shape,
                                       const MoeCombineInputOptions& options) {
  MoeCombineCase call = shape_only(problem, shape);
  if (options.gaps || shape.check)
    for (std::int64_t* stride : {&call.rows_stride, &call.residual_stride, &call.out_stride}) *stride += kGapElements;
  const auto pairs = static_cast<std::size_t>(call.num_rows);
  Random order(options.seed, kPositions), weights(options.seed, kWeights);
  call.positions.resize(pairs);
  std::iota(call.positions.begin(), call.positions.end(), 0);
  for (std::size_t i = 0; i < pairs; ++i) std::swap(call.positions[i], call.positions[i + order.below(pairs - i)]);
  if (problem.weighted)
    for (std::size_t i = 0; i < pairs; ++i) call.weights.push_back(static_cast<float>(weights.uniform(0.01, 1)));
  if (options.odd || shape.check) make_odd(call, order);
  call.rows = nan_rows(problem.dtype.in, call.num_rows, call.rows_stride);
  for (std::size_t pair = 0; pair < pairs; ++pair)
    if (call.reads(pair)) draw_row(call, options.seed, kRows, call.positions[pair], call.rows_stride, call.rows);
  if (!problem.residual) return call;
  call.residual = nan_rows(problem.dtype.in, call.tokens, call.residual_stride);
  for (std::int64_t token = 0; token < call.tokens; ++token)
    draw_row(call, options.seed, kResidual, token, call.residual_stride, call.residual);
  return call;
}

}  // namespace kernelwright
