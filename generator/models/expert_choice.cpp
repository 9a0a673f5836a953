// How the mixtures of a model choose experts, and how an expert makes products of gates and ups.
#include <fmt/format.h>

#include "kernelwright/generator/models/families.h"

namespace kernelwright::detail {

std::string gates_of_experts(const ModelFields& fields, const ExpertRow& row) {
  if (row.clamped) {
    const std::string limit = fmt::format("{}", fields.number_if_given("swiglu_limit").value_or(7));
    const std::string gate = "min(gate + bias, " + limit + ")";
    return "(clamp(up + bias, -" + limit + ", " + limit + ") + 1) * " + gate + " * sigmoid(1.702 * " + gate + ")";
  }
  const std::string word = fields.word("hidden_act");
  if (word.empty() || word == "silu" || word == "swish") return "silu(gate) * up";
  if (word == "gelu_pytorch_tanh") return "gelu_tanh(gate) * up";
  return word == "gelu" || word == "relu" ? word + "(gate) * up" : "";
}

void fill_choice(const ModelFields& fields, const ExpertRow& row, DType logits, ExpertLayer& experts) {
  RouteProblem& route = experts.route;
  route.dtype = logits;
  const auto number = [&](const char* field) {
    const auto fact = fields.whole_above_zero(field);
    return fact ? static_cast<int>(fact->value()) : 1;
  };
  if (row.choice == ChoiceRule::kChosenSoftmax) {
    route.order = RouteOrder::kTopKFirst;
    experts.choice = "softmax of the chosen experts, as the model type has it";
    return;
  }
  const bool sigmoid = row.choice == ChoiceRule::kSigmoid;
  route.renormalize = fields.flag("norm_topk_prob", sigmoid);
  experts.choice = "softmax of all experts; norm_topk_prob";
  if (row.choice == ChoiceRule::kSoftmax) return;
  route.factor = fields.number_if_given("routed_scaling_factor").value_or(row.factor);
  const bool limited = sigmoid || fields.word("topk_method") == "group_limited_greedy";
  if (limited) route.n_group = number("n_group"), route.topk_group = number("topk_group");
  if (sigmoid) route.score = RouteScore::kSigmoid, route.bias = true;
  if (!sigmoid && route.n_group > 1) route.group_score = GroupScore::kMax;
  experts.choice = std::string(sigmoid ? "sigmoid with a bias" : "softmax of all experts") +
                   "; n_group, topk_group, norm_topk_prob, routed_scaling_factor";
}

}  // namespace kernelwright::detail
