// kernelwright explain: the Spec and why it was chosen, what lies where in shared and tensor memory, what ptxas said,
// what an SM holds, and what a device could do at best.
#include <fmt/format.h>

#include <algorithm>

#include "bound.h"
#include "exit_code.h"
#include "kernelwright/generator/arch.h"
#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/launch_plan.h"
#include "kernelwright/generator/shared_map.h"
#include "kernelwright/runtime/kernel_store.h"
#include "predicted.h"
#include "targets.h"
#include "terminal.h"
#include "verbs.h"

namespace kernelwright::cli {
namespace {

/// The compiled kernel, or why there is none.
struct Compiled {
  std::shared_ptr<const Binary> binary;
  std::string why_not;
  bool rejected = false;  // by the compiler: a fault of ours
};
Compiled compile_if_possible(KernelStore& store, const Spec& spec) {
  try {
    return {store.compile(spec), ""};
  } catch (const MissingError& error) {
    return {nullptr, error.what()};
  } catch (const CompileError& error) {
    return {nullptr, error.what(), true};
  }
}

JsonValue to_json(const TensorMemoryMap& memory) {
  JsonValue map = JsonValue::array();
  for (const TensorMemoryRegion& region : memory.regions)
    map.push(JsonValue::object()
                 .set("name", region.name)
                 .set("column", region.column)
                 .set("columns", region.columns)
                 .set("use", region.use));
  return JsonValue::object().set("used", memory.used).set("allocated", memory.allocated).set("map", std::move(map));
}

std::string tensor_memory_text(const Style& style, const TensorMemoryMap& memory, const ArchInfo& info) {
  std::string text = style.bold(fmt::format("Tensor memory: {} columns used, {} allocated of {}", memory.used,
                                            memory.allocated, info.tensor_memory_columns)) +
                     "\n";
  Table map({"column", "columns", "what", ""});
  for (const TensorMemoryRegion& region : memory.regions)
    map.row({std::to_string(region.column), std::to_string(region.columns), region.name, region.use});
  return text + map.text(style) + "\n";
}

JsonValue to_json(const Binary& binary) {
  JsonValue warnings = JsonValue::array();
  for (const std::string& warning : binary.warnings) warnings.push(warning);
  const ResourceUsage& usage = binary.usage;
  return JsonValue::object()
      .set("entry", binary.entry)
      .set("registers", usage.registers)
      .set("spill_stores", usage.spill_stores)
      .set("spill_loads", usage.spill_loads)
      .set("stack", usage.stack)
      .set("static_shared", usage.static_shared)
      .set("barriers", usage.barriers)
      .set("cubin_bytes", binary.cubin.size())
      .set("compile_ms", binary.compile_ms)
      .set("compiler", binary.compiler)
      .set("warnings", std::move(warnings));
}

std::string resources_text(const Style& style, const Compiled& compiled) {
  if (!compiled.binary) return "  not compiled: " + compiled.why_not + "\n";
  const ResourceUsage& usage = compiled.binary->usage;
  const int spills = usage.spill_stores + usage.spill_loads;
  std::string text = fmt::format("  {} registers a thread, {}, {} cubin, {} compiled in {}\n", usage.registers,
                                 spills ? style.bad(fmt::format("{} bytes spilled", spills)) : "no spills",
                                 size_text(static_cast<double>(compiled.binary->cubin.size())),
                                 compiled.binary->compiler, duration_text(compiled.binary->compile_ms));
  for (const std::string& warning : compiled.binary->warnings) text += "  " + style.bad("warning: " + warning) + "\n";
  return text;
}

}  // namespace

int explain(const Options& options) {
  const NamedConfig named = read_one_config(options.configs);
  const Arch arch = choose_arch(named, options);
  const AttentionPlan plan = plan_for(named, arch, tuned_rows(options));
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
  const DeviceRates rates = rates_of(arch);
  std::vector<AttentionShape> shapes =
      options.shapes.empty() ? named.config.shapes : choose_shapes(named, options.shapes, false);

  if (options.json) {
    JsonValue choices = JsonValue::array(), map = JsonValue::array(), bounds = JsonValue::array();
    for (const Choice& choice : plan.choices)
      choices.push(JsonValue::object()
                       .set("field", choice.field)
                       .set("value", choice.value)
                       .set("by", to_string(choice.by))
                       .set("reason", choice.reason));
    JsonValue passed_over = JsonValue::array();
    for (const SkippedRow& row : plan.passed_over)
      passed_over.push(JsonValue::object().set("row", row.name).set("reason", row.reason));
    for (const SharedRegion& region : shared_map(plan.main))
      map.push(JsonValue::object()
                   .set("name", region.name)
                   .set("offset", region.offset)
                   .set("bytes", region.bytes)
                   .set("use", region.use));
    for (const AttentionShape& shape : shapes) {
      const PredictedBound bound = predict(named.config.problem, shape, arch);
      bounds.push(JsonValue::object()
                      .set("shape", shape.name)
                      .set("operations", bound.operations)
                      .set("bytes", bound.bytes)
                      .set("microseconds", bound.microseconds())
                      .set("limit", bound.by_memory() ? "memory" : "matrix"));
    }
    JsonValue object = JsonValue::object();
    object.set("config", named.config.name)
        .set("arch", to_string(arch))
        .set("family", to_string(plan.main.family))
        .set("kernel", kernel_name(plan.main))
        .set("key", key);
    object.set("spec", canonical_text(plan.main)).set("choices", std::move(choices));
    object.set("row", plan.row).set("rows_passed_over", std::move(passed_over));
    object.set("shared_bytes", shared).set("shared_map", std::move(map)).set("threads", threads);
    if (tensor_memory.allocated > 0) object.set("tensor_memory", to_json(tensor_memory));
    object.set("ctas_per_sm", held.ctas).set("ctas_limited_by", held.limit);
    object.set("binary", main.binary ? to_json(*main.binary) : JsonValue()).set("not_compiled", main.why_not);
    if (plan.combine) object.set("combine", combine.binary ? to_json(*combine.binary) : JsonValue());
    JsonValue predicted = JsonValue::array();
    for (const AttentionShape& shape : shapes) predicted.push(predicted_json(plan, named.config.problem, shape));
    object.set("rates_of", rates.device).set("bounds", std::move(bounds)).set("predicted", std::move(predicted));
    fmt::print("{}\n", object.dump());
    return code;
  }

  const Style style(stdout);
  fmt::print("{}  {}\n\n", style.bold(named.config.name),
             style.dim(fmt::format("{} for {}, {} family, key {}", kernel_name(plan.main), to_string(arch),
                                   to_string(plan.main.family), key.substr(0, 12))));
  Table choices({"choice", "value", "by", "because"});
  for (const Choice& choice : plan.choices)
    choices.row({choice.field, choice.value, std::string(to_string(choice.by)), choice.reason});
  fmt::print("{}", choices.text(style));
  for (const SkippedRow& row : plan.passed_over)
    fmt::print("  {} {}: {}\n", style.dim("row passed over"), row.name, row.reason);
  fmt::print("\n");

  fmt::print("{}\n", style.bold("Spec"));
  std::string line = " ";
  const std::string spec = canonical_text(plan.main);
  for (std::size_t from = 0; from < spec.size();) {
    const std::size_t end = std::min(spec.find('\n', from), spec.size());
    std::string field = spec.substr(from, end - from);
    std::replace(field.begin(), field.end(), ' ', '=');
    if (line.size() + field.size() > 110) {
      fmt::print("{}\n", line);
      line = " ";
    }
    line += " " + field;
    from = end + 1;
  }
  fmt::print("{}\n\n", line);

  fmt::print("{}\n", style.bold(fmt::format("Shared memory: {} bytes of {}", shared, info.shared_bytes_per_cta)));
  Table map({"offset", "bytes", "what", ""});
  for (const SharedRegion& region : shared_map(plan.main))
    map.row({std::to_string(region.offset), std::to_string(region.bytes), region.name, region.use});
  fmt::print("{}\n", map.text(style));
  if (tensor_memory.allocated > 0) fmt::print("{}", tensor_memory_text(style, tensor_memory, info));

  fmt::print("{}\n{}", style.bold("Resources"), resources_text(style, main));
  fmt::print("  {} threads a CTA, {} CTA{} an SM, limited by {}\n", threads, held.ctas, held.ctas == 1 ? "" : "s",
             held.limit);
  if (plan.combine) fmt::print("  split keys are merged by attention_combine:\n{}", resources_text(style, combine));

  if (!shapes.empty()) {
    fmt::print("\n{}\n", style.bold(fmt::format("At best, on {}", rates.device)));
    Table bounds({"shape", "operations", "bytes", "time", "limited by"});
    for (const AttentionShape& shape : shapes) {
      const PredictedBound bound = predict(named.config.problem, shape, arch);
      bounds.row({shape.name, fmt::format("{:.3g}", bound.operations), size_text(bound.bytes),
                  duration_text(bound.microseconds() / 1e3), bound.by_memory() ? "memory" : "matrix rate"});
    }
    fmt::print("{}", bounds.text(style));
    const std::string predicted = predicted_text(style, plan, named.config.problem, shapes);
    if (!predicted.empty()) fmt::print("\n{}", predicted);
  }
  return code;
}

}  // namespace kernelwright::cli
