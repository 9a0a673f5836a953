#include "cli/explain/predicted.h"

#include <fmt/format.h>

#include "kernelwright/generator/attention/predicted.h"
#include "kernelwright/generator/gemm/predicted.h"

namespace kernelwright::cli {
namespace {

template <class Plan, class Problem, class Shape>
std::string text_of(const Style& style, const Plan& plan, const Problem& problem, const std::vector<Shape>& shapes,
                    const MachineClass& device) {
  std::string text;
  std::vector<std::string> head{"shape", "time", "TFLOP/s", "bound by", "GHz"};
  std::vector<std::vector<std::string>> rows;
  for (const Shape& shape : shapes) {
    const std::optional<Predicted> timeline = predict(plan, problem, shape, device);
    if (!timeline) return "";
    if (rows.empty()) {
      const MachineRates& machine = *timeline->machine;
      text = style.bold(fmt::format("Predicted, on {} with {} SMs{}", machine.device, machine.sms,
                                    machine.measured ? "" : " (not measured: no such device has run it)")) +
             "\n";
      for (const PredictedTerm& term : timeline->terms) head.push_back(term.name);
    }
    std::vector<std::string> row{shape.name, duration_text(timeline->microseconds / 1e3),
                                 fmt::format("{:.0f}", timeline->tflops()), timeline->bound,
                                 fmt::format("{:.2f}", timeline->clock_ghz)};
    for (const PredictedTerm& term : timeline->terms) row.push_back(duration_text(term.microseconds / 1e3));
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return "";
  Table table(head);
  for (std::vector<std::string>& row : rows) table.row(std::move(row));
  return text + table.text(style) +
         style.dim(
             "  From \"products\" on: what each unit of the busiest SM would take if nothing waited; what is left of "
             "the time is waiting.") +
         "\n";
}

template <class Plan, class Problem, class Shape>
JsonValue json_of(const Plan& plan, const Problem& problem, const Shape& shape, const MachineClass& device) {
  const std::optional<Predicted> timeline = predict(plan, problem, shape, device);
  if (!timeline) return JsonValue();
  JsonValue terms = JsonValue::array();
  for (const PredictedTerm& term : timeline->terms)
    terms.push(JsonValue::object().set("name", term.name).set("microseconds", term.microseconds).set("of", term.of));
  return JsonValue::object()
      .set("shape", shape.name)
      .set("device", timeline->machine->device)
      .set("measured", timeline->machine->measured)
      .set("microseconds", timeline->microseconds)
      .set("tflops", timeline->tflops())
      .set("bound", timeline->bound)
      .set("clock_ghz", timeline->clock_ghz)
      .set("terms", std::move(terms));
}

}  // namespace

std::string predicted_text(const Style& style, const AttentionPlan& plan, const AttentionProblem& problem,
                           const std::vector<AttentionShape>& shapes, const MachineClass& machine) {
  return text_of(style, plan, problem, shapes, machine);
}
std::string predicted_text(const Style& style, const GemmPlan& plan, const GemmProblem& problem,
                           const std::vector<GemmShape>& shapes, const MachineClass& machine) {
  return text_of(style, plan, problem, shapes, machine);
}

JsonValue predicted_json(const AttentionPlan& plan, const AttentionProblem& problem, const AttentionShape& shape,
                         const MachineClass& machine) {
  return json_of(plan, problem, shape, machine);
}
JsonValue predicted_json(const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape,
                         const MachineClass& machine) {
  return json_of(plan, problem, shape, machine);
}

}  // namespace kernelwright::cli
