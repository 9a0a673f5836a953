#include "cli/explain/explained.h"

#include <fmt/format.h>

namespace kernelwright::cli {

JsonValue head_json(const Explained& all, const ExplainedKernel& main) {
  return JsonValue::object()
      .set("config", all.config)
      .set("arch", to_string(all.arch))
      .set("family", main.family)
      .set("kernel", main.name)
      .set("key", main.key);
}

void add_speed(JsonValue& report, const Explained& all) {
  JsonValue bounds = JsonValue::array();
  for (const auto& [shape, bound] : all.bounds) bounds.push(to_json(shape, bound));
  report.set("rates_of", all.machine).set("bounds", std::move(bounds)).set("predicted", all.predicted);
}

void add_shared_memory(JsonValue& object, const ExplainedKernel& kernel) {
  object.set("shared_bytes", kernel.shared)
      .set("shared_map", to_json(kernel.shared_map))
      .set("threads", kernel.threads);
}

void add_tensor_memory(JsonValue& object, const ExplainedKernel& kernel) {
  if (kernel.tensor_memory.allocated > 0) object.set("tensor_memory", to_json(kernel.tensor_memory));
}

void add_binary(JsonValue& object, const ExplainedKernel& kernel) {
  const Compiled& compiled = kernel.compiled;
  object.set("ctas_per_sm", kernel.held.ctas)
      .set("ctas_limited_by", kernel.held.limit)
      .set("binary", compiled.binary ? to_json(*compiled.binary) : JsonValue())
      .set("not_compiled", compiled.why_not);
}

std::string head_text(const Style& style, const Explained& all, const ExplainedKernel& main) {
  return fmt::format("{}  {}\n\n", style.bold(all.config),
                     style.dim(fmt::format("{} for {}, {} family, key {}", main.name, to_string(all.arch), main.family,
                                           main.key.substr(0, 12))));
}

std::string choices_text(const Style& style, const Explained& all) {
  return choices_text(style, all.choices) + passed_over_text(style, all.passed_over) + "\n";
}

std::string kernel_text(const Style& style, const ExplainedKernel& kernel, const ArchInfo& info) {
  std::string text = fmt::format("{}\n{}\n", spec_text(style, kernel.spec),
                                 shared_map_text(style, kernel.shared_map, kernel.shared, info));
  if (kernel.tensor_memory.allocated > 0) text += tensor_memory_text(style, kernel.tensor_memory, info);
  return text;
}

std::string speed_text(const Style& style, const Explained& all) {
  return bounds_text(style, all.bounds, all.machine) + (all.predicted_text.empty() ? "" : "\n" + all.predicted_text);
}

}  // namespace kernelwright::cli
