#include "kernelwright/verify/kv_write/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernelwright/verify/error_bound.h"

namespace kernelwright {
namespace {

constexpr double kNormUnits = 64;  // of the sum of squares, which are all positive: 8 to a lane, then a tree; and rsqrt

/// Sum of squares of the elements that a norm adds over, and how far it may be off, relative.
struct Squares {
  double sum = 0, relative_error = 0;
  int count = 0;
};

void add(Squares& squares, const KvWriteHead& head) {
  double error = squares.relative_error * squares.sum;
  for (std::size_t i = 0; i < head.value.size(); ++i) {
    squares.sum += head.value[i] * head.value[i];
    error += 2 * std::fabs(head.value[i]) * head.error[i];
  }
  squares.count += static_cast<int>(head.value.size());
  squares.relative_error = squares.sum > 0 ? error / squares.sum : 0;
}

KvWriteHead as_read(const KvWriteCase& call, HeadsOf of, std::int64_t token, int head) {
  const auto elements = static_cast<std::size_t>(call.head_dim(of));
  KvWriteHead read{std::vector<double>(elements), std::vector<double>(elements)};
  call.decode(of, token, head, read.value.data());
  return read;
}

/// The stream of positions by which a pair turns.
int stream_of(const RopeRotation& rope, int pair) {
  const RopeSections& sections = rope.sections;
  if (sections.pairs() == 0) return 0;
  if (!rope.interleaved) return (pair >= sections.first) + (pair >= sections.first + sections.second);
  if (pair % 3 == 1 && pair / 3 < sections.second) return 1;
  if (pair % 3 == 2 && pair / 3 < sections.third) return 2;
  return 0;
}

void rotate(const KvWriteCase& call, std::int64_t token, KvWriteHead& head) {
  const RopeRotation& rope = call.problem.rope;
  const int pairs = rope.width / 2;
  for (int pair = 0; pair < pairs; ++pair) {
    const auto index = static_cast<std::size_t>(stream_of(rope, pair) * call.tokens + token);
    const std::int64_t row = std::clamp<std::int64_t>(call.positions[index], 0, call.cos_sin_rows - 1);
    const float* angles = call.cos_sin.data() + row * rope.width;
    const double cosine = angles[pair], sine = angles[pairs + pair];
    const bool neox = rope.style == RopeStyle::kNeox;
    const auto a = static_cast<std::size_t>(rope.begin + (neox ? pair : 2 * pair));
    const std::size_t b = a + (neox ? static_cast<std::size_t>(pairs) : 1);
    const double x = head.value[a], y = head.value[b], of_x = head.error[a], of_y = head.error[b];
    head.value[a] = x * cosine - y * sine;
    head.value[b] = y * cosine + x * sine;
    const auto error = [&](double first, double of_first, double second, double of_second) {
      return (of_first + 3 * kUnit * std::fabs(first)) * std::fabs(cosine) +
             (of_second + 3 * kUnit * std::fabs(second)) * std::fabs(sine);
    };
    head.error[a] = error(x, of_x, y, of_y);
    head.error[b] = error(y, of_y, x, of_x);
  }
}

void normalise(const KvWriteCase& call, HeadsOf of, int index, const Squares& squares, KvWriteHead& head) {
  const QkNorm& norm = call.problem.qk_norm;
  const bool adds = norm.kind == NormKind::kL2 && of != HeadsOf::kV;
  const double mean = adds ? squares.sum : squares.sum / squares.count;
  const double inverse = 1 / std::sqrt(mean + static_cast<float>(norm.eps));
  const double relative = squares.relative_error + kNormUnits * kUnit;
  for (std::size_t i = 0; i < head.value.size(); ++i) {
    const double factor = inverse * call.weight(of, index, static_cast<int>(i));
    head.error[i] = std::fabs(factor) * (head.error[i] + relative * std::fabs(head.value[i]));
    head.value[i] *= factor;
  }
}

/// The matrix of Sylvester in each block: an element is -1 where its row and its column share an odd number of bits.
void transform(KvWriteHead& head, bool has_signs) {
  const std::size_t size = head.value.size(), block = size & -size;  // the largest power of two that divides it
  const double scale = 1 / std::sqrt(static_cast<double>(block));
  KvWriteHead changed{std::vector<double>(size), std::vector<double>(size)};
  for (std::size_t i = 0; has_signs && i < size; ++i) {  // docs/kv-write.md has the formula
    auto hash = static_cast<std::uint32_t>((i + 1) * 2654435761u);
    hash = (hash ^ hash >> 15) * 2246822519u;
    if (hash & 0x80000000u) head.value[i] = -head.value[i];
  }
  for (std::size_t begin = 0; begin < size; begin += block) {
    double magnitude = 0, error = 0;
    for (std::size_t i = begin; i < begin + block; ++i) magnitude += std::fabs(head.value[i]), error += head.error[i];
    for (std::size_t row = 0; row < block; ++row) {
      double& value = changed.value[begin + row];
      for (std::size_t column = 0; column < block; ++column)
        value += std::popcount(row & column) % 2 != 0 ? -head.value[begin + column] : head.value[begin + column];
      value *= scale;
      changed.error[begin + row] = scale * (error + (std::log2(static_cast<double>(block)) + 2) * kUnit * magnitude);
    }
  }
  head = std::move(changed);
}

}  // namespace

KvWriteHead reference_head(const KvWriteCase& call, HeadsOf of, std::int64_t token, int head,
                           const HeadSource& source) {
  const QkNorm& norm = call.problem.qk_norm;
  const bool is_v = of == HeadsOf::kV;
  const bool turns = !is_v && call.problem.rope.style != RopeStyle::kNone;
  const auto upto_rope = [&](int index) {
    KvWriteHead result = source ? source(of, token, index) : as_read(call, of, token, index);
    if (turns && !norm.before_rope) rotate(call, token, result);
    return result;
  };
  KvWriteHead result = upto_rope(head);
  if (norm.kind != NormKind::kNone && (!is_v || norm.v)) {
    Squares squares;
    if (norm.kind == NormKind::kRmsAllHeads && !is_v)
      for (int i = 0; i < call.heads(of); ++i) add(squares, upto_rope(i));
    else
      add(squares, result);
    normalise(call, of, head, squares, result);
  }
  if (turns && norm.before_rope) rotate(call, token, result);
  if (call.problem.hadamard && !is_v) transform(result, call.problem.hadamard_signs);
  return result;
}

}  // namespace kernelwright
