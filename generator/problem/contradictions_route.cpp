// route: which fields contradict each other, on any architecture and in any kernel family.
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/rule_check.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

void check_groups(const RouteProblem& problem, Violations& violations) {
  const auto bad = [&](const char* path, int found, const std::string& why) {
    violations.push_back({path, std::to_string(found) + " " + why});
  };
  // A rank may be given more pairs of a token than it has experts: those of other ranks have numbers past the last.
  if (problem.n_group < 1 || problem.topk_group < 1 || problem.is_given()) return;
  if (problem.experts % problem.n_group != 0)
    return bad("/problem/n_group", problem.n_group,
               "does not divide " + std::to_string(problem.experts) + " experts; groups have equal numbers of them");
  if (problem.topk_group > problem.n_group)
    return bad("/problem/topk_group", problem.topk_group,
               "groups are more than n_group, which is " + std::to_string(problem.n_group));
  const int within = problem.experts / problem.n_group * problem.topk_group;
  if (problem.top_k > within)
    bad("/problem/top_k", problem.top_k,
        problem.n_group == 1 ? "is more than the " + std::to_string(problem.experts) + " experts"
                             : "is more than the " + std::to_string(within) + " experts of topk_group groups");
  if (problem.n_group == 1 && problem.group_score != GroupScore::kTop2Sum)
    violations.push_back(
        {"/problem/group_score", in_quotes(to_string(problem.group_score)) + " has no meaning for one group"});
}

void check_scores(const RouteProblem& problem, Violations& violations) {
  if (problem.is_given()) return;
  if (problem.order == RouteOrder::kTopKFirst && problem.score == RouteScore::kNone)
    violations.push_back({"/problem/order", "\"top_k_first\" has no meaning for score \"none\"; leave it out"});
  if (!problem.renormalize) return;
  if (problem.score == RouteScore::kNone)
    violations.push_back({"/problem/renormalize", "true is for scores, whose sum is not below 0: softmax or sigmoid"});
  if (problem.score == RouteScore::kSoftmax && problem.order == RouteOrder::kTopKFirst)
    violations.push_back(
        {"/problem/renormalize", "true has no meaning for a softmax of the chosen experts, whose sum is 1"});
}

/// Where experts are given, there is nothing to choose.
void check_given(const RouteProblem& problem, Violations& violations) {
  if (!problem.is_given()) return;
  const auto bad = [&](bool wrong, const char* path, const char* found) {
    if (wrong)
      violations.push_back({path, std::string(found) + " has no meaning where experts are given; leave it out"});
  };
  if (!problem.sort) violations.push_back({"/problem/sort", "false leaves nothing to do where experts are given"});
  bad(problem.order != RouteOrder::kScoreFirst, "/problem/order", "\"top_k_first\"");
  bad(problem.bias, "/problem/bias", "true");
  bad(problem.n_group > 1, "/problem/n_group", "more than one group");
  bad(problem.renormalize, "/problem/renormalize", "true");
  bad(problem.factor != 1, "/problem/factor", "another number than 1");
  bad(problem.dtype != DType::kF32, "/problem/dtype", "a dtype of logits");
}

void check_sort(const RouteProblem& problem, Violations& violations) {
  if (!problem.sort && problem.alignment != 1)
    violations.push_back({"/problem/alignment", std::to_string(problem.alignment) + " has no meaning without sort"});
  if (!problem.sort && problem.local_experts != 0)
    violations.push_back(
        {"/problem/local_experts", std::to_string(problem.local_experts) + " has no meaning without sort"});
  if (problem.local_experts > problem.experts)
    violations.push_back({"/problem/local_experts", std::to_string(problem.local_experts) + " is more than the " +
                                                        std::to_string(problem.experts) + " experts"});
}

void check_schedule(const RouteConfig& config, Violations& violations) {
  if (config.problem.is_given() && !config.schedule.choice.is_auto())
    violations.push_back({"/schedule/choice", in_quotes(to_string(config.schedule.choice.value())) +
                                                  " has no meaning where experts are given; leave it out"});
  if (!config.problem.sort && !config.schedule.counts.is_auto())
    violations.push_back({"/schedule/counts", in_quotes(to_string(config.schedule.counts.value())) +
                                                  " has no meaning without sort; leave it out"});
}

}  // namespace

std::vector<Violation> contradictions(const RouteConfig& config) {
  Violations violations;
  check_fields(config, violations);
  takes("/problem/dtype", config.problem.dtype, {DType::kF16, DType::kBf16, DType::kF32}, violations);
  check_groups(config.problem, violations);
  check_scores(config.problem, violations);
  check_given(config.problem, violations);
  check_sort(config.problem, violations);
  check_schedule(config, violations);
  check_family(config.schedule, violations);
  return violations;
}

}  // namespace kernelwright
