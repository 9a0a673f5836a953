#include "kernelwright/verify/route/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/route/reference.h"

namespace kernelwright {
namespace {

constexpr std::int32_t kUntouched =
    static_cast<std::int32_t>(0x01010101u * std::to_integer<std::uint32_t>(DeviceMemory::kGuardByte));

class RouteComparison {
 public:
  RouteComparison(const RouteCase& call, const RouteOutput& output, float factor, RouteVerdict& verdict)
      : call_(call),
        output_(output),
        factor_(factor),
        verdict_(verdict),
        top_k_(static_cast<std::size_t>(call.problem.top_k)) {}

  void token(std::int64_t token) {
    const RouteRow row = reference_row(call_, token);
    std::vector<int> experts;
    const auto first = output_.ids.begin() + token * call_.problem.top_k;
    experts.assign(first, first + call_.problem.top_k);
    const std::size_t faults = faults_;
    are_experts(token, experts);
    if (faults_ > faults) return;
    const std::vector<int> exact = chosen_experts(call_, row);
    if (experts != exact) {
      ++verdict_.near_ties;
      are_of_picked_groups(token, row, experts);
      are_the_largest(token, row, experts);
    }
    weights(token, reference_weights(call_, row, experts, factor_));
  }

  void sorted() {
    const bool given = call_.problem.is_given();
    const SortedPairs right = sorted_pairs(call_, given ? call_.ids : output_.ids);
    same("starts", output_.starts, right.starts);
    same("positions", output_.positions, right.positions);
    same("source_rows", output_.source_rows, right.source_rows);
    if (output_.sorted_weights.empty()) return;
    std::vector<std::int32_t> weights(right.source_rows.size(), 0);
    for (std::size_t pair = 0; pair < right.positions.size(); ++pair)
      if (right.positions[pair] >= 0) {
        const std::int32_t weight = given ? std::bit_cast<std::int32_t>(call_.weights[pair]) : output_.weights[pair];
        weights[static_cast<std::size_t>(right.positions[pair])] = weight;
      }
    same("sorted_weights", output_.sorted_weights, weights);
  }

 private:
  template <class Text>
  void fail(const Text& text) {
    ++faults_;
    verdict_.passed = false;
    if (verdict_.text.empty()) verdict_.text = text();
  }

  /// Words behind the right ones have to be untouched.
  void same(const char* name, const std::vector<std::int32_t>& found, const std::vector<std::int32_t>& right) {
    if (found.size() < right.size())
      return fail([&] { return fmt::format("{} has {} words where {} are right", name, found.size(), right.size()); });
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::int32_t wanted = i < right.size() ? right[i] : kUntouched;
      if (found[i] == wanted) continue;
      if (i >= right.size()) ++verdict_.strayed;
      fail([&] { return fmt::format("{}[{}]: {} where {} is right", name, i, found[i], wanted); });
    }
  }

  void are_experts(std::int64_t token, const std::vector<int>& experts) {
    std::set<int> seen;
    for (std::size_t slot = 0; slot < experts.size(); ++slot) {
      if (experts[slot] < 0 || experts[slot] >= call_.problem.experts)
        fail([&] { return fmt::format("ids[{}, {}]: {} is no expert", token, slot, experts[slot]); });
      if (!seen.insert(experts[slot]).second)
        fail([&] { return fmt::format("ids[{}, {}]: {} is chosen twice", token, slot, experts[slot]); });
    }
  }

  /// Whether a is below b by more than f32 may be off. NaN is below all.
  static bool surely_below(double a, double a_error, double b, double b_error) {
    return is_below(a, b) && !(a + a_error + b_error >= b);
  }
  bool surely_below(const RouteRow& row, int a, int b) const {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    return surely_below(row.choice[i], row.choice_error[i], row.choice[j], row.choice_error[j]);
  }
  /// Equal inputs give equal scores. So the lower expert comes first.
  bool are_alike(const RouteRow& row, int a, int b) const {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    if (std::isnan(row.choice[i]) || std::isnan(row.choice[j]))
      return std::isnan(row.choice[i]) && std::isnan(row.choice[j]);
    return row.logits[i] == row.logits[j] && (!call_.problem.bias || call_.bias[i] == call_.bias[j]);
  }

  void are_of_picked_groups(std::int64_t token, const RouteRow& row, const std::vector<int>& experts) {
    if (row.group.empty()) return;
    const int of_group = call_.problem.experts / call_.problem.n_group;
    std::set<int> groups;
    for (const int expert : experts) groups.insert(expert / of_group);
    const auto most = static_cast<std::size_t>(call_.problem.topk_group);
    if (groups.size() > most)
      fail([&] { return fmt::format("ids[{}] are of {} groups, and topk_group is {}", token, groups.size(), most); });
    for (const int group : groups) {
      const auto g = static_cast<std::size_t>(group);
      std::size_t above = 0;
      for (std::size_t other = 0; other < row.group.size(); ++other)
        above += surely_below(row.group[g], row.group_error[g], row.group[other], row.group_error[other]);
      if (above >= most)
        fail([&] { return fmt::format("ids[{}] are of group {}, which {} are above", token, group, above); });
    }
  }

  void are_the_largest(std::int64_t token, const RouteRow& row, const std::vector<int>& experts) {
    for (std::size_t slot = 1; slot < experts.size(); ++slot)
      in_order(token, row, slot - 1, experts[slot - 1], experts[slot]);
    const int of_group = call_.problem.experts / call_.problem.n_group;
    for (int expert = 0; expert < call_.problem.experts; ++expert) {
      if (std::find(experts.begin(), experts.end(), expert) != experts.end()) continue;
      if (row.group.empty() || is_surely_picked(row, static_cast<std::size_t>(expert / of_group)))
        in_order(token, row, experts.size() - 1, experts.back(), expert);
    }
  }
  bool is_surely_picked(const RouteRow& row, std::size_t group) const {
    std::size_t not_below = 0;
    for (std::size_t other = 0; other < row.group.size(); ++other)
      not_below += other != group &&
                   !surely_below(row.group[other], row.group_error[other], row.group[group], row.group_error[group]);
    return not_below < static_cast<std::size_t>(call_.problem.topk_group);
  }
  void in_order(std::int64_t token, const RouteRow& row, std::size_t slot, int chosen, int other) {
    if (surely_below(row, chosen, other))
      fail([&] { return fmt::format("ids[{}, {}]: {} where {} has a larger score", token, slot, chosen, other); });
    if (are_alike(row, chosen, other) && other < chosen)
      fail([&] { return fmt::format("ids[{}, {}]: {} where {} is its equal and lower", token, slot, chosen, other); });
  }

  void weights(std::int64_t token, const RouteWeights& right) {
    for (std::size_t slot = 0; slot < top_k_; ++slot) {
      const double found = std::bit_cast<float>(output_.weights[static_cast<std::size_t>(token) * top_k_ + slot]);
      const double off = found == right.value[slot] ? 0 : std::fabs(found - right.value[slot]);
      verdict_.max_error = std::max(verdict_.max_error, off);
      const double ratio = off == 0 ? 0 : off / right.error[slot];
      if (!(ratio <= verdict_.worst_ratio)) verdict_.worst_ratio = ratio;
      if (!(ratio <= 1))
        fail([&] {
          return fmt::format("weights[{}, {}]: {} where {} is right", token, slot, found, right.value[slot]);
        });
    }
  }

  const RouteCase& call_;
  const RouteOutput& output_;
  const float factor_;
  RouteVerdict& verdict_;
  const std::size_t top_k_;
  std::size_t faults_ = 0;
};

}  // namespace

RouteVerdict verify(const RouteCase& call, const RouteOutput& output, const RouteVerdictOptions& options) {
  RouteVerdict verdict;
  verdict.passed = true;
  verdict.tokens = static_cast<std::size_t>(call.tokens);
  const float factor = options.factor >= 0 ? options.factor : static_cast<float>(call.problem.factor);
  RouteComparison comparison(call, output, factor, verdict);
  for (std::int64_t token = 0; token < call.tokens && !call.problem.is_given(); ++token) comparison.token(token);
  if (call.problem.sort) comparison.sorted();
  return verdict;
}

}  // namespace kernelwright
