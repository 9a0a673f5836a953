// Seeded inputs: random values where a kernel reads, NaN everywhere else.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/gemm/case.h"
#include "kernelwright/verify/gemm/groups.h"
#include "kernelwright/verify/parallel.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

enum Stream : std::uint64_t { kA = 101, kB, kC, kBias, kScaleA, kScaleB, kNumbers };

/// Draws integers up to `largest` in magnitude, three quarters of them zero.
void draw_small(Random& random, std::vector<float>& values, int largest) {
  for (float& value : values) {
    const std::uint64_t bits = random.next();
    const int magnitude = 1 + static_cast<int>((bits >> 8) % static_cast<std::uint64_t>(largest));
    value = bits & 3 ? 0.f : bits & 4 ? static_cast<float>(-magnitude) : static_cast<float>(magnitude);
  }
}

void draw_normal(Random& random, std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); i += 2) {
    float second;
    random.normal_pair(values[i], i + 1 < values.size() ? values[i + 1] : second);
  }
}

float draw_scale(Random& random, bool exact) {
  if (exact) return std::ldexp(1.f, static_cast<int>(random.below(4)) - 2);
  return static_cast<float>(random.uniform(0.25, 2));
}

/// Draws a row of a block-scaled operand. Exact operands draw their scales separately.
void draw_blocks(Random& random, HostMatrix& matrix, std::int64_t row, std::vector<float>& values, bool exact) {
  const auto vector = static_cast<std::size_t>(scale_vector(matrix.dtype));
  if (!exact) {
    draw_normal(random, values);
    for (std::size_t first = 0; first < values.size(); first += vector) {
      const float factor = draw_scale(random, false);
      for (float& value : std::span(values).subspan(first, vector)) value *= factor;
    }
    matrix.set_row(row, values);
    return;
  }
  const bool fp4 = bits_of(matrix.dtype) == 4;
  draw_small(random, values, fp4 ? 5 : 4);
  for (float& value : values)
    if (std::fabs(value) == 5) value = std::copysign(6.f, value);  // e2m1 cannot hold 5
  encode_row(matrix.dtype, values, matrix.row(row));
  for (std::size_t block = 0; matrix.has_scales(row) && block < values.size() / vector; ++block)
    matrix.scale_byte(row, static_cast<std::int64_t>(block)) =
        static_cast<std::byte>(encode_scale(matrix.dtype, draw_scale(random, true)));
}

void fill(HostMatrix& matrix, Stream stream, const GemmInputOptions& options) {
  matrix.allocate();
  const bool fp8 = bits_of(matrix.dtype) == 8;
  // Each row has its own stream of random numbers. So its values do not depend on the number of threads, on padding or
  // on the number of further rows.
  parallel_for(static_cast<std::size_t>(matrix.rows), [&](std::size_t index) {
    const auto row = static_cast<std::int64_t>(index);
    Random random(options.seed, static_cast<std::uint64_t>(index) * 256 + stream);
    std::vector<float> values(static_cast<std::size_t>(matrix.columns));
    if (is_block_scaled(matrix.dtype)) return draw_blocks(random, matrix, row, values, options.exact);
    options.exact ? draw_small(random, values, fp8 ? 4 : 8) : draw_normal(random, values);
    matrix.set_row(row, values);
  });
}

/// `rows` rows of `columns` scales, `stride` apart; NaN between them.
std::vector<float> draw_scales(std::int64_t rows, std::int64_t columns, std::int64_t stride, Stream stream,
                               const GemmInputOptions& options) {
  std::vector<float> scales(static_cast<std::size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t row = 0; row < rows; ++row) {
    Random random(options.seed, static_cast<std::uint64_t>(row) * 256 + stream);
    for (std::int64_t column = 0; column < columns; ++column)
      scales[static_cast<std::size_t>(row * stride + column)] = draw_scale(random, options.exact);
  }
  return scales;
}

/// The cache, places and scales of a problem that writes one. Its rows are the product's, about sqrt(k) large.
void draw_cache(GemmCase& call, const GemmShape& shape, const GemmInputOptions& options) {
  KvWriteInputOptions of_kv = options.kv;
  of_kv.seed = options.seed;
  KvWriteShape of_shape{.name = shape.name, .tokens = shape.m};
  of_shape.check = shape.check;
  call.kv = make_kv_write_inputs(*call.problem.kv_write, of_shape, of_kv);
  for (auto* rows : {&call.kv->q, &call.kv->k, &call.kv->v}) rows->clear();
  for (auto* scales : {&call.kv->q_scale, &call.kv->k_scale, &call.kv->v_scale})
    for (float& scale : *scales) scale *= static_cast<float>(std::sqrt(std::max(1, call.problem.k)));
}

}  // namespace

GemmCase make_gemm_inputs(const GemmProblem& problem, const GemmShape& shape, const GemmInputOptions& options) {
  GemmCase call;
  call.problem = problem;
  call.m = shape.m;
  call.exact = options.exact;
  call.random_values = !options.exact;
  call.side_by_side = options.side_by_side && problem.groups.is_batch();
  call.bounds = draw_bounds(problem, shape, options.seed);
  draw_gather(call, shape, options.seed);
  draw_scatter(call, shape, options.seed);
  if (problem.groups.slices_k()) call.source_rows = rows_of_bounds(problem, shape);
  lay_out(call, options.padding);
  fill(call.a, kA, options);
  fill(call.b, kB, options);
  if (call.epilogue.c) fill(call.c, kC, options);
  if (call.epilogue.bias) fill(call.bias, kBias, options);
  const std::int64_t n = problem.n, blocks = (problem.k + kScaleBlock - 1) / kScaleBlock;
  const std::int64_t groups = problem.groups.count, rows_of_a = call.rows_of_a();
  const std::int64_t of_even = problem.groups.is_even() && !problem.groups.gather ? groups : 1;
  switch (problem.scales) {
    case ScaleKind::kPerTensor:
      call.scale_a = draw_scales(1, 1, 1, kScaleA, options);
      call.scale_b = draw_scales(1, groups, groups, kScaleB, options);
      break;
    case ScaleKind::kPerToken:
      call.scale_a = draw_scales(1, rows_of_a, rows_of_a, kScaleA, options);
      call.scale_b = draw_scales(groups, n, n, kScaleB, options);
      break;
    case ScaleKind::kPerBlock:
      if (!call.has_f32_block_scales()) break;
      call.scale_a = draw_scales(of_even * blocks, rows_of_a / of_even, call.scale_a_stride, kScaleA, options);
      call.scale_b = draw_scales(groups * scale_rows_of_b(problem.n, call.epilogue.gated), blocks, call.scale_b_stride,
                                 kScaleB, options);
      break;
    default: break;
  }
  hide_rows_outside_groups(call);
  Random numbers(options.seed, kNumbers);
  // Neither is 1, so that a kernel that ignores one of them fails.
  if (call.epilogue.alpha) call.alpha = options.exact ? 0.5f : static_cast<float>(numbers.uniform(0.25, 0.75));
  if (call.epilogue.rstd) {
    const std::int64_t rows = (problem.k + kQuantizedGroup - 1) / kQuantizedGroup;
    call.squares_a.assign(static_cast<std::size_t>(rows * call.squares_a_stride),
                          std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t row = 0; row < call.m; ++row)
        call.squares_a[static_cast<std::size_t>(i * call.squares_a_stride + row)] =
            static_cast<float>(numbers.uniform(20, 300));
    call.rms_eps = 0.125f;  // of no small part, so that a kernel without it fails
  }
  if (problem.kv_write) draw_cache(call, shape, options);
  if (call.epilogue.makes_blocks())
    call.tensor_scale = options.exact ? 0.25f : static_cast<float>(numbers.uniform(0.25, 0.75));
  if (call.epilogue.beta) call.beta = options.exact ? -2.f : static_cast<float>(numbers.uniform(-2, -1.25));
  return call;
}

}  // namespace kernelwright
