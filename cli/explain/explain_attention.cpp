// explain for attention: the Spec and why it was chosen, the layout of shared and tensor memory, and what ptxas
// reported. Then how many CTAs an SM holds, and the best that a device could do.
#include <fmt/format.h>

#include "cli/exit_code.h"
#include "cli/explain/explain_parts.h"
#include "cli/explain/predicted.h"
#include "cli/targets.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::cli {
int explain(const Options& options, const NamedConfig& named, const AttentionConfig& config) {
  const Arch arch = choose_arch(named, options);
  const AttentionPlan plan = plan_for(named, config, arch, tuned_rows(options));
  const ArchInfo& info = arch_info(arch);
  KernelStore store(cache_options(options));
  const Compiled main = compile_if_possible(store, plan.main);
  Compiled combine;
  if (plan.combine) combine = compile_if_possible(store, *plan.combine);
  const int code = main.rejected || combine.rejected ? kMismatch : kDone;
  const std::string key = store.key(plan.main).digest().hex();
  const int shared = static_cast<int>(shared_bytes(plan.main)), threads = plan.main.threads();
  const Occupancy held = occupancy(info, shared, threads, main.binary ? main.binary->usage.registers : 0);
  const TensorMemoryMap tensor_memory = tensor_memory_map(plan.main);
  const MachineClass& machine = choose_machine(options, arch);
  const std::vector<AttentionShape> shapes =
      options.shapes.empty() ? config.shapes : choose_shapes(named.path, config, options.shapes, false);
  std::vector<BoundOfShape> best;
  for (const AttentionShape& shape : shapes) best.push_back({shape.name, predict(config.problem, shape, machine)});

  if (options.json) {
    JsonValue bounds = JsonValue::array();
    for (const auto& [shape, bound] : best) bounds.push(to_json(shape, bound));
    JsonValue object = JsonValue::object();
    object.set("config", named.name())
        .set("arch", to_string(arch))
        .set("family", to_string(plan.main.family))
        .set("kernel", kernel_name(plan.main))
        .set("key", key);
    object.set("spec", canonical_text(plan.main)).set("choices", to_json(plan.choices));
    object.set("row", plan.row).set("rows_passed_over", to_json(plan.passed_over));
    object.set("shared_bytes", shared).set("shared_map", to_json(shared_map(plan.main))).set("threads", threads);
    if (tensor_memory.allocated > 0) object.set("tensor_memory", to_json(tensor_memory));
    object.set("ctas_per_sm", held.ctas).set("ctas_limited_by", held.limit);
    object.set("binary", main.binary ? to_json(*main.binary) : JsonValue()).set("not_compiled", main.why_not);
    if (plan.combine) object.set("combine", combine.binary ? to_json(*combine.binary) : JsonValue());
    JsonValue predicted = JsonValue::array();
    for (const AttentionShape& shape : shapes) predicted.push(predicted_json(plan, config.problem, shape, machine));
    object.set("rates_of", machine.name).set("bounds", std::move(bounds)).set("predicted", std::move(predicted));
    fmt::print("{}\n", object.dump());
    return code;
  }

  const Style style(stdout);
  fmt::print("{}  {}\n\n", style.bold(named.name()),
             style.dim(fmt::format("{} for {}, {} family, key {}", kernel_name(plan.main), to_string(arch),
                                   to_string(plan.main.family), key.substr(0, 12))));
  fmt::print("{}{}\n", choices_text(style, plan.choices), passed_over_text(style, plan.passed_over));

  fmt::print("{}\n", spec_text(style, plan.main));
  fmt::print("{}\n", shared_map_text(style, shared_map(plan.main), shared, info));
  if (tensor_memory.allocated > 0) fmt::print("{}", tensor_memory_text(style, tensor_memory, info));

  fmt::print("{}\n{}", style.bold("Resources"), resources_text(style, main));
  fmt::print("  {} threads a CTA, {} CTA{} an SM, limited by {}\n", threads, held.ctas, held.ctas == 1 ? "" : "s",
             held.limit);
  if (plan.combine) fmt::print("  split keys are merged by attention_combine:\n{}", resources_text(style, combine));

  fmt::print("{}", bounds_text(style, best, machine.name));
  const std::string predicted = predicted_text(style, plan, config.problem, shapes, machine);
  if (!predicted.empty()) fmt::print("\n{}", predicted);
  return code;
}

}  // namespace kernelwright::cli
