// explain for attention. A plan has one kernel, or two if a launch of its own merges split keys.
#include <fmt/format.h>

#include "cli/exit_code.h"
#include "cli/explain/explained.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/shared_map.h"

namespace kernelwright::cli {
namespace {

struct ExplainedAttention {
  Explained all;
  ExplainedKernel main;
  std::optional<Compiled> combine;
  std::string row;
};

std::string json_of(const ExplainedAttention& explained) {
  const auto& [all, main, combine, row] = explained;
  JsonValue report = head_json(all, main);
  report.set("spec", canonical_text(main.spec)).set("choices", to_json(all.choices));
  report.set("row", row).set("rows_passed_over", to_json(all.passed_over));
  add_shared_memory(report, main);
  add_tensor_memory(report, main);
  add_binary(report, main);
  if (combine) report.set("combine", combine->binary ? to_json(*combine->binary) : JsonValue());
  add_speed(report, all);
  return report.dump() + "\n";
}

std::string text_of(const Style& style, const ExplainedAttention& explained) {
  const auto& [all, main, combine, row] = explained;
  std::string text = head_text(style, all, main) + choices_text(style, all) +
                     kernel_text(style, main, arch_info(all.arch)) + style.bold("Resources") + "\n" +
                     resources_text(style, main.compiled);
  text += fmt::format("  {} threads a CTA, {} CTA{} an SM, limited by {}\n", main.threads, main.held.ctas,
                      main.held.ctas == 1 ? "" : "s", main.held.limit);
  if (combine) text += "  split keys are merged by attention_combine:\n" + resources_text(style, *combine);
  return text + speed_text(style, all);
}

}  // namespace

int explain(const Options& options, const NamedConfig& named, const AttentionConfig& config) {
  const MachineClass& machine = choose_machine(options, choose_arch(named, options));
  const AttentionPlan plan = plan_for(named, config, machine, tuned_rows(options));
  KernelStore store(cache_options(options));
  ExplainedAttention explained{explain_plan(options, named, config, machine, plan),
                               explain_kernel(store, plan.main, arch_info(machine.arch)),
                               {},
                               plan.row};
  if (plan.combine) explained.combine = compile_if_possible(store, *plan.combine);
  fmt::print("{}", options.json ? json_of(explained) : text_of(Style(stdout), explained));
  return explained.main.compiled.rejected || (explained.combine && explained.combine->rejected) ? kMismatch : kDone;
}

}  // namespace kernelwright::cli
