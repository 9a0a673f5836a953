// The fp64 reference. Work comes in pieces of chosen rows and columns. The operands of a piece are decoded once for the
// whole piece, a block of k at a time.
#include "kernelwright/verify/gemm/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/parallel.h"
#include "kernelwright/verify/random.h"
#include "kernelwright/verify/wide.h"

namespace kernelwright {
namespace {

constexpr int kPiece = 64;  // chosen rows, and chosen columns, of a piece of work
constexpr int kLanes = 8;

// sum[j] += scale sum_i a[i] b[i][j], magnitude[j] likewise of |a b|; b is [count][kPiece].
KERNELWRIGHT_WIDE void multiply_block(const double* a, const double* b, int count, const double* scale, double* sum,
                                      double* magnitude) {
  for (int from = 0; from < kPiece; from += kLanes) {
    double part[kLanes] = {}, abs_part[kLanes] = {};
    for (int i = 0; i < count; ++i) {
      const double* values = b + static_cast<std::ptrdiff_t>(i) * kPiece + from;
      for (int lane = 0; lane < kLanes; ++lane) {
        const double product = a[i] * values[lane];
        part[lane] += product;
        abs_part[lane] += std::fabs(product);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      sum[from + lane] += scale[from + lane] * part[lane];
      magnitude[from + lane] += std::fabs(scale[from + lane]) * abs_part[lane];
    }
  }
}

double square_norm(const double* values, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i] * values[i];
  return sum;
}

/// Elements of k that are summed as one: within them, neither scales nor magnitudes of the operands change.
int block_of(const GemmProblem& problem) {
  return is_block_scaled(problem.dtype.a) ? scale_vector(problem.dtype.a) : kScaleBlock;
}

GemmReference compute_piece(const GemmCase& call, std::span<const int> rows, std::span<const int> columns) {
  GemmReference piece{rows, columns, {}, {}, {}};
  const std::size_t width = columns.size(), elements = rows.size() * width;
  // Sums are kPiece wide while they are computed.
  std::vector<double> sum(rows.size() * kPiece), magnitude(sum.size()), square(sum.size());
  std::vector<double> a(kScaleBlock), column(kScaleBlock), b(static_cast<std::size_t>(kScaleBlock) * kPiece);
  double scale[kPiece] = {}, norms[kPiece] = {};
  const int block = block_of(call.problem);
  for (int first = 0; first < call.problem.k; first += block) {
    const int count = std::min(block, call.problem.k - first);
    for (std::size_t j = 0; j < width; ++j) {
      call.decode_b(columns[j], first, static_cast<std::size_t>(count), column.data());
      norms[j] = square_norm(column.data(), count);
      for (int i = 0; i < count; ++i) b[static_cast<std::size_t>(i) * kPiece + j] = column[static_cast<std::size_t>(i)];
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      call.decode_a(rows[i], first, static_cast<std::size_t>(count), a.data());
      for (std::size_t j = 0; j < width; ++j) scale[j] = call.scale(rows[i], columns[j], first / kScaleBlock);
      multiply_block(a.data(), b.data(), count, scale, &sum[i * kPiece], &magnitude[i * kPiece]);
      const double norm = square_norm(a.data(), count) / count;
      for (std::size_t j = 0; j < width; ++j) square[i * kPiece + j] += scale[j] * scale[j] * norm * norms[j];
    }
  }
  for (auto* to : {&piece.sum, &piece.magnitude, &piece.square}) to->reserve(elements);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < width; ++j) {
      piece.sum.push_back(sum[i * kPiece + j]);
      piece.magnitude.push_back(magnitude[i * kPiece + j]);
      piece.square.push_back(square[i * kPiece + j]);
    }
  return piece;
}

/// About `share` of [0, count), and some of every kTileSide.
std::vector<int> choose(int count, double share, Random& random) {
  std::set<int> chosen;
  if (count > 0) chosen = {0, count - 1};
  constexpr int kBlocks[] = {16, 64, 128};
  for (int first = 0; first < count; first += kTileSide) {
    const int last = std::min(first + kTileSide, count);
    const int wanted = std::max(1, static_cast<int>(std::lround(share * (last - first))));
    for (int i = 0; i < wanted; ++i) {
      int index = first + static_cast<int>(random.below(static_cast<std::uint64_t>(last - first)));
      if (i % 2) {
        const int block = kBlocks[random.below(3)];
        index = index / block * block + (random.below(2) ? block - 1 : 0);
      }
      if (index < count) chosen.insert(index);
    }
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace

GemmSample choose_elements(const GemmCase& call, double budget_operations, std::uint64_t seed) {
  const double share = std::sqrt(budget_operations / std::max(1.0, call.operations()));
  const auto all = [](int count) {
    std::vector<int> indices(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) indices[static_cast<std::size_t>(i)] = i;
    return indices;
  };
  const int columns_of_d = call.d_columns();
  // Of a quantised d, all columns that share a scale are chosen or none.
  const auto choose_columns = [&](double part, Random& random) {
    if (!call.epilogue.quantizes) return choose(columns_of_d, part, random);
    std::vector<int> chosen;
    const int together = call.epilogue.scaled_columns();
    for (const int group : choose(columns_of_d / together, part, random))
      for (int i = 0; i < together; ++i) chosen.push_back(group * together + i);
    return chosen;
  };
  const auto sampled = [&](std::vector<int> of_rows, const std::vector<int>& of_columns) -> GemmSample {
    if (!call.epilogue.gated) return {std::move(of_rows), of_columns};
    std::vector<int> pairs;
    for (const int column : of_columns) {
      pairs.push_back(gate_column(column));
      pairs.push_back(gate_column(column) + kGatePairs);
    }
    return {std::move(of_rows), std::move(pairs)};
  };
  Random rows(seed, 201), columns(seed, 202);
  if (call.kv)  // heads are whole, and all of a row is chosen
    return {share >= 1 ? all(call.m) : choose(call.m, share * share, rows), all(call.problem.n)};
  if (share >= 1) return sampled(all(call.m), all(columns_of_d));
  // If one side is short, all of it is chosen, and the other side gets its share.
  if (call.m <= kTileSide) return sampled(all(call.m), choose_columns(share * share, columns));
  if (columns_of_d <= kTileSide) return sampled(choose(call.m, share * share, rows), all(columns_of_d));
  return sampled(choose(call.m, share, rows), choose_columns(share, columns));
}

void compute_reference(const GemmCase& call, const GemmSample& sample,
                       const std::function<void(const GemmReference&)>& visit) {
  const auto pieces_of = [](const std::vector<int>& indices) {
    std::vector<std::span<const int>> pieces;
    for (std::size_t from = 0; from < indices.size(); from += kPiece)
      pieces.push_back(std::span(indices).subspan(from, std::min<std::size_t>(kPiece, indices.size() - from)));
    return pieces;
  };
  const auto rows = pieces_of(sample.rows), columns = pieces_of(sample.columns);
  parallel_for(rows.size() * columns.size(), [&](std::size_t i) {
    visit(compute_piece(call, rows[i / columns.size()], columns[i % columns.size()]));
  });
}

double activate(Activation activation, double value) {
  switch (activation) {
    case Activation::kRelu: return value < 0 ? 0 : value;
    case Activation::kSilu: return value / (1 + std::exp(-value));
    case Activation::kGelu: return value / 2 * std::erfc(-value / std::numbers::sqrt2);
    case Activation::kGeluTanh:
      return value / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (value + 0.044715 * value * value * value)));
    case Activation::kNone: break;
  }
  return value;
}

EpilogueValue epilogue_value(const GemmCase& call, int row, int column, double sum) {
  EpilogueValue result{};
  result.scaled = (call.epilogue.alpha ? call.alpha * sum : sum) * call.rstd(row);
  if (call.epilogue.bias) call.bias.decode(0, column, 1, &result.bias);
  result.linear = result.scaled + result.bias;
  result.activated = activate(call.epilogue.activation, result.linear);
  if (call.epilogue.c) {
    call.c.decode(row, column, 1, &result.added);
    if (call.epilogue.beta) result.added *= call.beta;
  }
  return result;
}

GatedValue gated_value(const GemmCase& call, int row, int gate_column, double gate_sum, double up_sum) {
  GatedValue result{};
  const double sums[2] = {gate_sum, up_sum};
  double linear[2];
  for (int i = 0; i < 2; ++i) {
    result.scaled[i] = (call.epilogue.alpha ? call.alpha * sums[i] : sums[i]) * call.rstd(row);
    if (call.epilogue.bias) call.bias.decode(0, gate_column + i * kGatePairs, 1, &result.bias[i]);
    linear[i] = result.scaled[i] + result.bias[i];
  }
  if (!call.epilogue.clamped) {
    result.gate = linear[0];
    result.activated = activate(call.epilogue.activation, linear[0]);
    result.factor = linear[1];
    return result;
  }
  const double limit = call.epilogue.limit, steepness = call.epilogue.steepness;
  result.gate = linear[0] > limit ? limit : linear[0];  // NaN stays NaN
  result.activated = result.gate / (1 + std::exp(-steepness * result.gate));
  result.factor = (linear[1] > limit ? limit : linear[1] < -limit ? -limit : linear[1]) + 1;
  return result;
}

}  // namespace kernelwright
