// Bounds: kUnit is the largest relative error of one rounding to f32, kHalfUnit to f16. A sum of n terms in f32, in any
// order, has an error of at most n units of the sum of magnitudes. Tensor cores may truncate, which doubles a unit.
#include "runtime/emulator/triton/triton_references.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"

namespace kernelwright::test {
namespace {

using Buffers = std::map<std::string, PtxBuffer>;
using Results = std::map<std::string, Expected>;
using Reference = Results (*)(const PtxCase&, const Buffers&);

constexpr double kUnit = 0x1p-24, kHalfUnit = 0x1p-11;
constexpr double kHalfLeast = 0x1p-25;  // half of f16's smallest step
constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
constexpr double kPowerUnits = 8;  // of ex2.approx, and of the division by a sum

std::size_t count_of(const PtxCase& test, const char* name) { return static_cast<std::size_t>(test.number(name)); }

Expected zeros(std::size_t count) { return {std::vector<double>(count), std::vector<double>(count)}; }

Results add_vectors(const PtxCase&, const Buffers& before) {
  const std::vector<double> left = before.at("left").values(), right = before.at("right").values();
  Expected total = zeros(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    total.value[i] = left[i] + right[i];
    total.allowed[i] = kUnit * std::abs(total.value[i]);
  }
  return {{"total", total}};
}

/// CUDA's guide gives asinf two units in the last place.
Results arc_sine(const PtxCase&, const Buffers& before) {
  const std::vector<double> values = before.at("values").values();
  Expected results = zeros(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    results.value[i] = std::asin(values[i]);
    results.allowed[i] = 4 * kUnit * std::abs(results.value[i]);
  }
  return {{"results", results}};
}

Results softmax_rows(const PtxCase& test, const Buffers& before) {
  const std::size_t rows = count_of(test, "rows"), columns = count_of(test, "columns"),
                    stride = count_of(test, "stride");
  const std::vector<double> scores = before.at("scores").values();
  Expected weights = zeros(scores.size());  // the columns up to the stride stay zero
  for (std::size_t row = 0; row < rows; ++row) {
    const double* score = scores.data() + row * stride;
    const double top = *std::max_element(score, score + columns);
    const double low = *std::min_element(score, score + columns);
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += std::exp(score[i] - top);
    const double relative = (static_cast<double>(columns) + 4 * (top - low) * kLog2E + 2 * kPowerUnits) * kUnit;
    for (std::size_t i = 0; i < columns; ++i) {
      weights.value[row * stride + i] = std::exp(score[i] - top) / sum;
      weights.allowed[row * stride + i] = relative * weights.value[row * stride + i];
    }
  }
  return {{"weights", weights}};
}

/// The first word of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") for a counter.
std::uint32_t philox(std::uint32_t seed, std::uint32_t counter) {
  std::uint32_t word[4] = {counter, 0, 0, 0}, key[2] = {seed, 0};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * word[0], second = std::uint64_t{0xCD9E8D57} * word[2];
    const std::uint32_t next[4] = {
        static_cast<std::uint32_t>(second >> 32) ^ word[1] ^ key[0], static_cast<std::uint32_t>(second),
        static_cast<std::uint32_t>(first >> 32) ^ word[3] ^ key[1], static_cast<std::uint32_t>(first)};
    std::copy(std::begin(next), std::end(next), word);
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  return word[0];
}

Results drop_and_scale(const PtxCase& test, const Buffers& before) {
  const std::vector<double> values = before.at("values").values();
  const double rate = test.number("rate");
  Expected kept = zeros(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto drawn = static_cast<std::int32_t>(
        philox(static_cast<std::uint32_t>(test.number("seed")), static_cast<std::uint32_t>(i)));
    // Triton folds the sign, so that both halves of the numbers give [0, 1).
    const double uniform = (drawn < 0 ? -(drawn + 1) : drawn) * 4.6566127342e-10;
    kept.value[i] = uniform > rate ? values[i] / (1 - rate) : 0;
    kept.allowed[i] = 4 * kUnit * kept.value[i];
  }
  return {{"kept", kept}};
}

/// left [m][k] times right, whose element (k, n) is at k * right_k + n * right_n.
struct Product {
  const std::vector<double>&left, &right;
  std::size_t m, n, k, right_k, right_n;

  /// `half`: the result is rounded to f16.
  Expected expected(bool half) const {
    Expected result = zeros(m * n);
    for (std::size_t row = 0; row < m; ++row)
      for (std::size_t column = 0; column < n; ++column) {
        double sum = 0, magnitude = 0;
        for (std::size_t i = 0; i < k; ++i) {
          const double term = left[row * k + i] * right[i * right_k + column * right_n];
          sum += term, magnitude += std::abs(term);
        }
        const double error = 2 * static_cast<double>(k + 2) * kUnit * magnitude;
        result.value[row * n + column] = sum;
        result.allowed[row * n + column] = error + (half ? kHalfUnit * (std::abs(sum) + error) + kHalfLeast : 0);
      }
    return result;
  }
};

Results matmul(const PtxCase& test, const Buffers& before) {
  const std::vector<double> a = before.at("a").values(), b = before.at("b").values();
  const std::size_t m = count_of(test, "m"), n = count_of(test, "n"), k = count_of(test, "k");
  return {{"c", Product{a, b, m, n, k, n, 1}.expected(true)}};
}

Results matmul_transposed(const PtxCase& test, const Buffers& before) {
  const std::vector<double> a = before.at("a").values(), b = before.at("b").values();
  const std::size_t m = count_of(test, "m"), n = count_of(test, "n"), k = count_of(test, "k");
  return {{"c", Product{a, b, m, n, k, 1, k}.expected(before.at("c").dtype == "f16")}};
}

Results grouped(const PtxCase& test, const Buffers& before, bool transposed) {
  const std::vector<double> sizes = before.at("sizes").values();
  Results results;
  for (std::size_t group = 0; group < count_of(test, "groups"); ++group) {
    const std::string number = std::to_string(group);
    const std::vector<double> a = before.at("a" + number).values(), b = before.at("b" + number).values();
    const auto m = static_cast<std::size_t>(sizes[3 * group]), n = static_cast<std::size_t>(sizes[3 * group + 1]),
               k = static_cast<std::size_t>(sizes[3 * group + 2]);
    results["c" + number] = Product{a, b, m, n, k, transposed ? 1 : n, transposed ? k : 1}.expected(true);
  }
  return results;
}
Results grouped_matmul(const PtxCase& test, const Buffers& before) { return grouped(test, before, false); }
Results grouped_matmul_tensors(const PtxCase& test, const Buffers& before) { return grouped(test, before, true); }

/// The elements of an operand times their scales, one for 32 elements. Bytes hold two elements of e2m1.
std::vector<double> scaled(const PtxBuffer& buffer, const PtxBuffer& scales) {
  std::vector<double> values;
  if (buffer.dtype == "u8")
    for (const std::byte byte : buffer.bytes)
      for (const int shift : {0, 4}) values.push_back(emulator::kE2m1Values[std::to_integer<int>(byte) >> shift & 15]);
  else
    values = buffer.values();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= std::exp2(scales.at(i / 32) - 127);
  return values;
}

Results matmul_scaled(const PtxCase& test, const Buffers& before) {
  const std::vector<double> a = scaled(before.at("a"), before.at("scales_a")),
                            b = scaled(before.at("b"), before.at("scales_b"));
  const std::size_t m = count_of(test, "m"), n = count_of(test, "n"), k = count_of(test, "k");
  return {{"c", Product{a, b, m, n, k, 1, k}.expected(false)}};
}

Results normalize(const PtxCase& test, const Buffers& before) {
  const std::size_t rows = count_of(test, "rows"), columns = count_of(test, "columns");
  const std::vector<double> x = before.at("x").values(), weight = before.at("weight").values(),
                            bias = before.at("bias").values();
  const auto length = static_cast<double>(columns);
  Expected y = zeros(x.size()), means = zeros(rows), deviations = zeros(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0, magnitude = 0, squares = 0, distance = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += x[row * columns + i], magnitude += std::abs(x[row * columns + i]);
    const double mean = sum / length, mean_error = (length + 4) * kUnit * magnitude / length;
    for (std::size_t i = 0; i < columns; ++i) {
      const double centred = x[row * columns + i] - mean;
      squares += centred * centred, distance += std::abs(centred);
    }
    const double variance = squares / length + test.number("epsilon"), inverse = 1 / std::sqrt(variance);
    // Of the variance: its sum, and the mean's error in each term. The root halves it.
    const double relative =
        (length + 2 * kPowerUnits) * kUnit + (distance / length * mean_error + mean_error * mean_error) / variance;
    means.value[row] = mean, means.allowed[row] = mean_error;
    deviations.value[row] = inverse, deviations.allowed[row] = relative * inverse;
    for (std::size_t i = 0; i < columns; ++i) {
      const std::size_t at = row * columns + i;
      const double scaled = (x[at] - mean) * inverse * weight[i];
      y.value[at] = scaled + bias[i];
      y.allowed[at] = std::abs(scaled) * (relative + 4 * kUnit) + mean_error * inverse * std::abs(weight[i]) +
                      (2 * kUnit + kHalfUnit) * std::abs(y.value[at]) + kHalfLeast;
    }
  }
  return {{"y", y}, {"means", means}, {"deviations", deviations}};
}

Results normalize_backward(const PtxCase& test, const Buffers& before) {
  const std::size_t rows = count_of(test, "rows"), columns = count_of(test, "columns"),
                    groups = count_of(test, "groups");
  const std::vector<double> x = before.at("x").values(), dy = before.at("dy").values(),
                            weight = before.at("weight").values(), means = before.at("means").values(),
                            deviations = before.at("deviations").values();
  const auto length = static_cast<double>(columns), per_group = static_cast<double>(rows / groups + 1);
  Expected dx = zeros(x.size()), part_weight = zeros(groups * columns), part_bias = zeros(groups * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    double along = 0, average = 0, along_size = 0, average_size = 0;
    const auto normal = [&](std::size_t i) { return (x[row * columns + i] - means[row]) * deviations[row]; };
    for (std::size_t i = 0; i < columns; ++i) {
      const double weighted = dy[row * columns + i] * weight[i];
      along += normal(i) * weighted / length, along_size += std::abs(normal(i) * weighted) / length;
      average += weighted / length, average_size += std::abs(weighted) / length;
    }
    for (std::size_t i = 0; i < columns; ++i) {
      const std::size_t at = row * columns + i, part = row % groups * columns + i;
      const double weighted = dy[at] * weight[i], inverse = deviations[row];
      dx.value[at] = (weighted - normal(i) * along - average) * inverse;
      dx.allowed[at] =
          (length + 8) * kUnit * inverse * (std::abs(weighted) + std::abs(normal(i)) * along_size + average_size) +
          kHalfUnit * std::abs(dx.value[at]) + kHalfLeast;
      part_weight.value[part] += dy[at] * normal(i), part_bias.value[part] += dy[at];
      part_weight.allowed[part] += (per_group + 4) * kUnit * std::abs(dy[at] * normal(i));
      part_bias.allowed[part] += per_group * kUnit * std::abs(dy[at]);
    }
  }
  Expected locks = zeros(2 * groups);  // free again, and each group was begun
  std::fill(locks.value.begin() + static_cast<std::ptrdiff_t>(groups), locks.value.end(), 1);
  return {{"dx", dx}, {"part_weight", part_weight}, {"part_bias", part_bias}, {"locks", locks}};
}

Results sum_groups(const PtxCase& test, const Buffers& before) {
  const std::size_t groups = count_of(test, "groups"), columns = count_of(test, "columns");
  Expected total = zeros(columns);
  for (std::size_t i = 0; i < groups * columns; ++i) {
    total.value[i % columns] += before.at("parts").at(i);
    total.allowed[i % columns] += static_cast<double>(groups) * kUnit * std::abs(before.at("parts").at(i));
  }
  return {{"total", total}};
}

/// Heads of attention: rows of `depth` elements, head after head.
struct Heads {
  std::size_t heads, length, depth;
  double scale;
  explicit Heads(const PtxCase& test)
      : heads(count_of(test, "heads")),
        length(count_of(test, "length")),
        depth(count_of(test, "depth")),
        scale(test.number("scale")) {}

  struct Dot {
    double value = 0, error = 0;
  };
  /// Of two rows, in f32.
  Dot dot(const std::vector<double>& a, std::size_t row_a, const std::vector<double>& b, std::size_t row_b) const {
    Dot sum;
    for (std::size_t i = 0; i < depth; ++i) {
      const double term = a[row_a * depth + i] * b[row_b * depth + i];
      sum.value += term, sum.error += std::abs(term);
    }
    sum.error *= 2 * static_cast<double>(depth + 2) * kUnit;
    return sum;
  }
  /// A score in base 2.
  Dot score(const std::vector<double>& q, std::size_t query, const std::vector<double>& k, std::size_t key) const {
    const Dot product = dot(q, query, k, key);
    const double value = product.value * scale * kLog2E;
    return {value, product.error * scale * kLog2E + 4 * kUnit * std::abs(value)};
  }
};

Results attend(const PtxCase& test, const Buffers& before) {
  const Heads shape(test);
  const std::vector<double> q = before.at("q").values(), k = before.at("k").values(), v = before.at("v").values();
  Expected o = zeros(q.size()), lse = zeros(shape.heads * shape.length);
  for (std::size_t query = 0; query < shape.heads * shape.length; ++query) {
    const std::size_t first = query / shape.length * shape.length;
    double top = -std::numeric_limits<double>::infinity(), weight = 0, error = 0;
    std::vector<Heads::Dot> scores;
    for (std::size_t key = first; key <= query; ++key) {
      scores.push_back(shape.score(q, query, k, key));
      top = std::max(top, scores.back().value), error = std::max(error, scores.back().error);
    }
    for (const Heads::Dot& score : scores) weight += std::exp2(score.value - top);
    // Each block of keys rescales what is there, and both ends of a difference have the scores' error.
    const auto keys = static_cast<double>(scores.size());
    const double relative = 2 * kLn2 * error + (2 * keys + 2 * kPowerUnits) * kUnit;
    lse.value[query] = top + std::log2(weight);
    lse.allowed[query] = relative / kLn2 + error + 4 * kUnit * (std::abs(lse.value[query]) + std::abs(top));
    for (std::size_t i = 0; i < shape.depth; ++i) {
      const std::size_t at = query * shape.depth + i;
      double magnitude = 0;
      for (std::size_t key = 0; key < scores.size(); ++key) {
        const double power = std::exp2(scores[key].value - top) / weight, value = v[(first + key) * shape.depth + i];
        o.value[at] += power * value, magnitude += (power * (kHalfUnit + 2 * relative) + kHalfLeast) * std::abs(value);
      }
      o.allowed[at] = magnitude + kHalfUnit * std::abs(o.value[at]) + kHalfLeast;
    }
  }
  return {{"o", o}, {"lse", lse}};
}

Results attend_backward(const PtxCase& test, const Buffers& before) {
  const Heads shape(test);
  const std::vector<double> q = before.at("q").values(), k = before.at("k").values(), v = before.at("v").values(),
                            slopes = before.at("do").values(), lse = before.at("lse").values(),
                            delta = before.at("delta").values();
  Expected dq = zeros(q.size()), dk = zeros(q.size()), dv = zeros(q.size());
  const double sums = 2 * static_cast<double>(shape.length + 4) * kUnit;
  for (std::size_t query = 0; query < shape.heads * shape.length; ++query)
    for (std::size_t key = query / shape.length * shape.length; key <= query; ++key) {
      const Heads::Dot score = shape.score(q, query, k, key), product = shape.dot(slopes, query, v, key);
      const double power = std::exp2(score.value - lse[query]);
      const double relative = kLn2 * (score.error + kUnit * std::abs(score.value - lse[query])) + kPowerUnits * kUnit;
      const double change = power * (product.value - delta[query]);
      const double change_error = std::abs(change) * (relative + kHalfUnit + 2 * kUnit + sums) + power * product.error +
                                  power * kUnit * std::abs(product.value - delta[query]) + kHalfLeast;
      for (std::size_t i = 0; i < shape.depth; ++i) {
        const std::size_t at_q = query * shape.depth + i, at_k = key * shape.depth + i;
        dv.value[at_k] += power * slopes[at_q];
        dv.allowed[at_k] += (power * (relative + kHalfUnit + sums) + kHalfLeast) * std::abs(slopes[at_q]);
        dk.value[at_k] += shape.scale * change * q[at_q];
        dk.allowed[at_k] += shape.scale * change_error * std::abs(q[at_q]);
        dq.value[at_q] += shape.scale * change * k[at_k];
        dq.allowed[at_q] += shape.scale * change_error * std::abs(k[at_k]);
      }
    }
  for (Expected* rounded : {&dk, &dv})
    for (std::size_t i = 0; i < rounded->value.size(); ++i)
      rounded->allowed[i] += kHalfUnit * std::abs(rounded->value[i]) + kHalfLeast;
  return {{"dq", dq}, {"dk", dk}, {"dv", dv}};
}

constexpr struct {
  const char* name;
  Reference reference;
} kReferences[] = {
    {"add_vectors", add_vectors},
    {"arc_sine", arc_sine},
    {"softmax_rows", softmax_rows},
    {"drop_and_scale", drop_and_scale},
    {"normalize", normalize},
    {"normalize_backward", normalize_backward},
    {"sum_groups", sum_groups},
    {"matmul", matmul},
    {"matmul_split", matmul_transposed},
    {"matmul_tensors", matmul_transposed},
    {"matmul_scaled", matmul_scaled},
    {"grouped_matmul", grouped_matmul},
    {"grouped_matmul_tensors", grouped_matmul_tensors},
    {"attend", attend},
    {"attend_backward", attend_backward},
};

}  // namespace

std::map<std::string, Expected> triton_expected(const PtxCase& test, const std::map<std::string, PtxBuffer>& before) {
  const std::string& name = test.json.at("/reference").as_string();
  for (const auto& row : kReferences)
    if (name == row.name) return row.reference(test, before);
  throw Error("there is no reference " + name);
}

}  // namespace kernelwright::test
