/// The schedules worth measuring for a problem, for all kinds. Candidates are planned, made unique, ranked and cut. The
/// planner itself judges every combination, so this code does not know what fits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/choice.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/schedule_fields.h"

namespace kernelwright {

template <class KindOfConfig>
struct CandidateOf {
  ScheduleOf<KindOfConfig> schedule;  // given fields, the family, and all varied fields
  PlanOf<KindOfConfig> plan;
  double cost = 0;          // estimated: schedule_cost(), or microseconds of a GEMM
  double predicted_us = 0;  // by order_by_prediction(): the geometric mean over shapes; 0 without a model
};

struct CandidateOptions {
  int num_sms = 0;                  // 0: SMs of usual_machine()
  std::optional<std::size_t> most;  // the most that are kept; 0: all. 64, of a GEMM 32
  std::optional<double> within;     // the largest estimate that is kept, over the least: 2, of a GEMM 1.3
};

template <class KindOfConfig>
struct CandidateList {
  std::vector<CandidateOf<KindOfConfig>> kept;  // the model's own choice first, the others by estimate; of those within
                                                // a fifth, those that differ from the model's choice in fewer fields
  std::size_t tried = 0;                        // combinations
  std::size_t infeasible = 0;                   // combinations that the planner refused
  std::size_t same = 0;                         // combinations that give the same kernel as another
  std::size_t cut = 0;                          // combinations that the estimate cut
};

namespace detail {

/// The functions by which the collector knows a kind of problem.
template <class KindOfConfig>
struct CandidateRules {
  using Candidate = CandidateOf<KindOfConfig>;
  /// The candidate of a combination, with its plan and its cost. Throws ConfigError for one that is infeasible.
  std::function<Candidate(const ScheduleOf<KindOfConfig>&)> plan;
  /// A text that is the same for two plans that lead to the same kernel and launch.
  std::function<std::string(const Candidate&)> identity;
};

template <class KindOfConfig>
class CandidateCollector {
 public:
  using Candidate = CandidateOf<KindOfConfig>;

  CandidateCollector(Candidate model, CandidateRules<KindOfConfig> rules)
      : rules_(std::move(rules)), model_(std::move(model)), model_identity_(rules_.identity(model_)) {
    seen_.insert(model_identity_);
  }

  void offer(const ScheduleOf<KindOfConfig>& asked) {
    ++list_.tried;
    try {
      Candidate candidate = rules_.plan(asked);
      const std::string name = rules_.identity(candidate);
      if (seen_.insert(name).second) {
        others_.push_back(std::move(candidate));
      } else if (!model_is_spelt_ && name == model_identity_) {
        // The model's own choice is also a combination. That candidate has all its fields spelt out.
        model_.schedule = candidate.schedule;
        model_is_spelt_ = true;
      } else {
        ++list_.same;
      }
    } catch (const ConfigError&) {
      ++list_.infeasible;
    }
  }

  bool model_is_spelt() const { return model_is_spelt_; }
  Candidate& model() { return model_; }

  /// The model's choice and at most `most` - 1 others whose cost is at most `within` times the least; 0: any number.
  CandidateList<KindOfConfig> take(std::size_t most, double within) {
    double least = model_.cost;
    for (const Candidate& candidate : others_) least = std::min(least, candidate.cost);
    const auto rank = [&](const Candidate& candidate) {
      const double octaves = least > 0 ? std::log2(candidate.cost / least) : 0;
      return std::tuple(std::floor(kStepsAnOctave * octaves), fields_apart(candidate.schedule, model_.schedule),
                        candidate.cost);
    };
    std::stable_sort(others_.begin(), others_.end(),
                     [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
    list_.kept.push_back(std::move(model_));
    for (Candidate& candidate : others_) {
      const bool full = most && list_.kept.size() >= most;
      if (full || candidate.cost > within * least)
        ++list_.cut;
      else
        list_.kept.push_back(std::move(candidate));
    }
    return std::move(list_);
  }

 private:
  static constexpr double kStepsAnOctave = 4;  // estimates within a fifth of each other are alike

  CandidateRules<KindOfConfig> rules_;
  Candidate model_;
  const std::string model_identity_;
  bool model_is_spelt_ = false;
  std::set<std::string> seen_;
  std::vector<Candidate> others_;
  CandidateList<KindOfConfig> list_;
};

/// The geometric mean of `cost` over `shapes`; 1 without any.
template <class Shape, class Cost>
double mean_cost(const std::vector<Shape>& shapes, Cost&& cost) {
  double sum = 0;
  for (const Shape& shape : shapes) sum += std::log(std::max(cost(shape), 1e-9));
  return shapes.empty() ? 1 : std::exp(sum / static_cast<double>(shapes.size()));
}

}  // namespace detail
}  // namespace kernelwright
