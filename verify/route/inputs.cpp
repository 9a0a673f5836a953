// Seeded inputs: random values where a kernel reads, NaN everywhere else.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/random.h"
#include "kernelwright/verify/route/case.h"

namespace kernelwright {
namespace {

enum RouteStream : std::uint64_t { kLogits = 501, kBias, kLocalIds, kIds };

constexpr std::int64_t kGapElements = 32;

/// Logits as a model may have them at its worst.
void make_odd(std::vector<float>& logits, std::int64_t token, Random& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto any = [&]() -> float& { return logits[random.below(logits.size())]; };
  switch (token % 8) {
    case 1: std::fill(logits.begin(), logits.end(), logits[0]); break;
    case 2:
      for (float& logit : logits) logit = std::round(logit);  // many ties
      break;
    case 3: std::fill(logits.begin(), logits.end(), kNan); break;
    case 4: any() = kNan, any() = kInf, any() = -kInf; break;
    case 5: std::fill(logits.begin(), logits.end(), -kInf); break;
    case 6:
      for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = i % 2 == 0 ? 0.f : -0.f;
      break;
    default: break;
  }
}

/// Different experts for each token. Odd ones: numbers that are no experts, and experts that are there twice.
void make_ids(RouteCase& call, const RouteInputOptions& options, bool odd) {
  const RouteProblem& problem = call.problem;
  std::vector<std::int32_t> experts(static_cast<std::size_t>(problem.experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (std::int64_t token = 0; token < call.tokens; ++token) {
    Random random(options.seed, static_cast<std::uint64_t>(token) * 1024 + kIds);
    for (int slot = 0; slot < problem.top_k; ++slot) {
      const auto at = static_cast<std::size_t>(slot);
      if (at < experts.size()) std::swap(experts[at], experts[at + random.below(experts.size() - at)]);
      std::int32_t id = at < experts.size() ? experts[at] : problem.experts;  // more slots than experts
      if (odd && token % 4 == 1 && random.below(3) == 0) id = slot % 2 == 0 ? -1 : problem.experts;
      if (odd && token % 4 == 2 && slot > 0 && random.below(2) == 0) id = call.ids.back();
      call.ids.push_back(id);
      call.weights.push_back(static_cast<float>(random.uniform(-1, 1)));
    }
  }
}

}  // namespace

double RouteCase::operations() const {
  return static_cast<double>(pairs()) * (problem.is_given() ? 1 : problem.experts);
}

double RouteCase::bytes() const {
  const double logits_bytes =
      problem.is_given() ? 0 : static_cast<double>(tokens) * problem.experts * bits_of(problem.dtype) / 8;
  const double of_pair = 8 + (problem.sort ? 8 : 0);
  return logits_bytes + of_pair * static_cast<double>(pairs()) + (problem.bias ? 4.0 * problem.experts : 0) +
         (is_mapped() ? 4.0 * problem.experts : 0) + (problem.sort ? 4.0 * (buckets() + 1) : 0);
}

RouteCase shape_only(const RouteProblem& problem, const RouteShape& shape) {
  RouteCase call;
  call.problem = problem;
  call.tokens = shape.tokens;
  call.logits_stride = problem.experts;
  return call;
}

RouteCase make_route_inputs(const RouteProblem& problem, const RouteShape& shape, const RouteInputOptions& options) {
  RouteCase call = shape_only(problem, shape);
  const auto experts = static_cast<std::size_t>(problem.experts);
  if (call.is_mapped()) {  // neighbours, as a rank has them, but in an order of their own
    Random random(options.seed, kLocalIds);
    call.local_ids.assign(experts, -1);
    const auto local = static_cast<std::size_t>(problem.local_experts);
    const std::size_t first = random.below(experts - local + 1);
    for (std::size_t i = 0; i < local; ++i) call.local_ids[first + i] = static_cast<std::int32_t>(local - 1 - i);
  }
  if (problem.is_given()) {
    make_ids(call, options, options.odd || shape.check);
    return call;
  }
  if (options.gaps || shape.check) call.logits_stride += kGapElements;
  call.logits.resize(static_cast<std::size_t>(call.tokens * call.logits_stride) * bytes_of(problem.dtype));
  fill_with_nan(problem.dtype, call.logits);
  std::vector<float> logits(experts + experts % 2);
  for (std::int64_t token = 0; token < call.tokens; ++token) {
    Random random(options.seed, static_cast<std::uint64_t>(token) * 1024 + kLogits);
    logits.resize(experts + experts % 2);
    for (std::size_t i = 0; i < logits.size(); i += 2) random.normal_pair(logits[i], logits[i + 1]);
    for (float& logit : logits) logit *= 2;
    logits.resize(experts);
    if (options.odd || shape.check) make_odd(logits, token, random);
    encode_row(problem.dtype, std::span<const float>(logits),
               call.logits.data() + static_cast<std::size_t>(token * call.logits_stride) * bytes_of(problem.dtype));
  }
  if (problem.bias) {
    Random random(options.seed, kBias);
    for (std::size_t i = 0; i < experts; ++i) call.bias.push_back(static_cast<float>(random.uniform(-0.2, 0.2)));
    if (experts > 3) call.bias[2] = call.bias[1];
  }
  return call;
}

}  // namespace kernelwright
