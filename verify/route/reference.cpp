#include "kernelwright/verify/route/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLeast = 0x1p-124;  // what ftz drops, and what overflows in 1 + exp(-x)

struct Bounded {
  double value = 0, error = 0;
};

/// ex2 and rcp add a few units, and the rounded exponent as many as it has.
Bounded sigmoid(double x) {
  const double value = 1 / (1 + std::exp(-x));
  return {value, value * (2 * std::min(std::fabs(x), 128.0) + 10) * kUnit + kLeast};
}

/// A softmax of logits, of which NaN is no part.
class Softmax {
 public:
  explicit Softmax(const std::vector<float>& logits) {
    for (const float logit : logits)
      if (!std::isnan(logit)) largest_ = std::max(largest_, static_cast<double>(logit));
    for (const float logit : logits) sum_ += exponential(logit);
  }
  /// The sum's error: a few units of each exponential, and up to 40 sums of positive terms one after another.
  Bounded of(double logit) const {
    const double value = exponential(logit) / sum_;
    const double distance = logit == largest_ ? 0 : std::min(largest_ - logit, 128.0);
    return {value, value * (2 * distance + 64) * kUnit + kLeast};
  }

 private:
  double exponential(double logit) const {
    if (std::isnan(logit)) return 0;
    return logit == largest_ ? 1 : std::exp(logit - largest_);
  }
  double largest_ = -kInf, sum_ = 0;
};

Bounded score_of(RouteScore score, const Softmax& softmax, double logit) {
  switch (score) {
    case RouteScore::kSoftmax: return softmax.of(logit);
    case RouteScore::kSigmoid: return sigmoid(logit);
    case RouteScore::kNone:
    case RouteScore::kGiven: break;
  }
  return {logit, 0};
}

/// Of the two largest scores, or of the largest one.
Bounded score_of_group(const RouteCase& call, const RouteRow& row, std::size_t first, std::size_t count) {
  std::vector<Bounded> of;
  for (std::size_t i = first; i < first + count; ++i)
    of.push_back({std::isnan(row.choice[i]) ? -kInf : row.choice[i], row.choice_error[i]});
  std::sort(of.begin(), of.end(), [](const Bounded& a, const Bounded& b) { return a.value > b.value; });
  if (call.problem.group_score == GroupScore::kMax || count == 1) return of[0];
  const double sum = of[0].value + of[1].value;
  double error = 0;  // any member may be one of the two
  for (const Bounded& one : of) error = std::max(error, one.error);
  return {sum, 2 * error + (std::isfinite(sum) ? std::fabs(sum) * kUnit : 0)};
}

}  // namespace

bool is_below(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a < b; }

RouteRow reference_row(const RouteCase& call, std::int64_t token) {
  const RouteProblem& problem = call.problem;
  const auto experts = static_cast<std::size_t>(problem.experts);
  RouteRow row;
  std::vector<double> logits(experts);
  decode_row(problem.dtype,
             call.logits.data() + static_cast<std::size_t>(token * call.logits_stride) * bytes_of(problem.dtype),
             experts, logits.data());
  row.logits.assign(logits.begin(), logits.end());
  const bool has_groups = problem.n_group > problem.topk_group;
  const bool sums = has_groups && problem.group_score == GroupScore::kTop2Sum;
  // Scores keep the order of logits. So logits are compared, unless something is added to scores.
  const bool by_score =
      problem.score != RouteScore::kNone && problem.order == RouteOrder::kScoreFirst && (problem.bias || sums);
  const Softmax softmax(row.logits);
  for (std::size_t i = 0; i < experts; ++i) {
    Bounded choice{logits[i], 0};
    if (by_score && !std::isnan(logits[i])) choice = score_of(problem.score, softmax, logits[i]);
    if (problem.bias) {
      const double sum = choice.value + call.bias[i];
      if (by_score)
        choice = {sum, choice.error + std::fabs(sum) * kUnit};
      else
        choice = {static_cast<float>(sum), 0};
    }
    row.choice.push_back(choice.value);
    row.choice_error.push_back(std::isfinite(choice.value) ? choice.error : 0);
  }
  if (!has_groups) return row;
  const std::size_t of_group = experts / static_cast<std::size_t>(problem.n_group);
  for (std::size_t first = 0; first < experts; first += of_group) {
    Bounded group = score_of_group(call, row, first, of_group);
    if (sums && !by_score) group = {static_cast<float>(group.value), 0};
    row.group.push_back(group.value);
    row.group_error.push_back(std::isfinite(group.value) ? group.error : 0);
  }
  return row;
}

std::vector<int> chosen_experts(const RouteCase& call, const RouteRow& row) {
  const auto best_first = [](const std::vector<double>& values) {
    std::vector<int> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return is_below(values[static_cast<std::size_t>(b)], values[static_cast<std::size_t>(a)]);
    });
    return order;
  };
  std::vector<char> picked(row.group.size(), 0);
  const std::vector<int> groups = best_first(row.group);
  for (std::size_t i = 0; i < groups.size() && i < static_cast<std::size_t>(call.problem.topk_group); ++i)
    picked[static_cast<std::size_t>(groups[i])] = 1;
  std::vector<int> experts;
  for (const int expert : best_first(row.choice)) {
    const int group = expert / (call.problem.experts / call.problem.n_group);
    if (!picked.empty() && !picked[static_cast<std::size_t>(group)]) continue;
    if (static_cast<int>(experts.size()) < call.problem.top_k) experts.push_back(expert);
  }
  return experts;
}

RouteWeights reference_weights(const RouteCase& call, const RouteRow& row, const std::vector<int>& experts,
                               float factor) {
  const RouteProblem& problem = call.problem;
  std::vector<float> logits;
  for (const int expert : experts) logits.push_back(row.logits[static_cast<std::size_t>(expert)]);
  const Softmax softmax(problem.order == RouteOrder::kTopKFirst ? logits : row.logits);
  RouteWeights weights;
  double sum = 0, sum_error = 0;
  for (const float logit : logits) {
    const Bounded score = std::isnan(logit) ? Bounded{} : score_of(problem.score, softmax, logit);
    weights.value.push_back(score.value);
    weights.error.push_back(score.error);
    sum += score.value, sum_error += score.error;
  }
  constexpr int kSums = 8;  // of the slots, in a tree; and two roundings
  for (std::size_t i = 0; i < logits.size(); ++i) {
    double &value = weights.value[i], &error = weights.error[i];
    if (problem.renormalize) {
      error = sum > 0 ? (error + value * (sum_error / sum + kSums * kUnit)) / sum : 0;
      value = sum > 0 ? value / sum : 0;
    }
    value *= factor;
    error = error * factor + std::fabs(value) * kUnit;
    if (!std::isfinite(value)) error = 0;
  }
  return weights;
}

SortedPairs sorted_pairs(const RouteCase& call, const std::vector<std::int32_t>& ids) {
  const std::int32_t alignment = call.problem.alignment;
  const auto bucket_of = [&](std::int32_t id) {
    if (id < 0 || id >= call.problem.experts) return -1;
    return call.is_mapped() ? call.local_ids[static_cast<std::size_t>(id)] : id;
  };
  std::vector<std::vector<std::int32_t>> pairs(static_cast<std::size_t>(call.buckets()));
  const auto top_k = static_cast<std::size_t>(call.problem.top_k);
  const auto is_again = [&](std::size_t pair) {  // a lower slot of the token has the expert
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(pair / top_k * top_k);
    const auto end = ids.begin() + static_cast<std::ptrdiff_t>(pair);
    return std::find(first, end, ids[pair]) != end;
  };
  for (std::size_t pair = 0; pair < ids.size(); ++pair)
    if (const int bucket = bucket_of(ids[pair]); bucket >= 0 && !is_again(pair))
      pairs[static_cast<std::size_t>(bucket)].push_back(static_cast<std::int32_t>(pair));
  SortedPairs sorted;
  sorted.positions.assign(ids.size(), -1);
  for (const auto& of_bucket : pairs) {
    sorted.starts.push_back(static_cast<std::int32_t>(sorted.source_rows.size()));
    for (const std::int32_t pair : of_bucket) {
      sorted.positions[static_cast<std::size_t>(pair)] = static_cast<std::int32_t>(sorted.source_rows.size());
      sorted.source_rows.push_back(pair / call.problem.top_k);
    }
    while (sorted.source_rows.size() % static_cast<std::size_t>(alignment) != 0) sorted.source_rows.push_back(-1);
  }
  sorted.starts.push_back(static_cast<std::int32_t>(sorted.source_rows.size()));
  return sorted;
}

}  // namespace kernelwright
