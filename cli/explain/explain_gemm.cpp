// explain for a GEMM: its kernels by rows, why the last kernel's fields have their values, what ptxas reported for
// each, and the best that a device could do.
#include <fmt/format.h>

#include <limits>

#include "cli/exit_code.h"
#include "cli/explain/explain_parts.h"
#include "cli/explain/predicted.h"
#include "cli/targets.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/shared_map.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::cli {
namespace {

/// A variant of the plan, with the resources of an SM that it takes.
struct Explained {
  const GemmVariant* variant;
  int first_m;  // the smallest m that the variant serves
  std::string key;
  Compiled compiled;
  int shared;
  Occupancy held;

  std::string rows() const {
    if (variant->most_m == std::numeric_limits<int>::max()) return fmt::format("{} and more", first_m);
    return fmt::format("{} to {}", first_m, variant->most_m);
  }
  std::string tile() const {
    return fmt::format("{} x {}{}", variant->spec.block_m, variant->spec.block_n,
                       variant->spec.swap_ab ? " swapped" : "");
  }
};

std::vector<Explained> explain_variants(const GemmPlan& plan, KernelStore& store, const ArchInfo& info) {
  std::vector<Explained> variants;
  int first = 1;
  for (const GemmVariant& variant : plan.variants) {
    Explained one{&variant,
                  first,
                  store.key(variant.spec).digest().hex(),
                  compile_if_possible(store, variant.spec),
                  static_cast<int>(shared_bytes(variant.spec)),
                  {}};
    one.held = occupancy(info, one.shared, variant.spec.threads(), one.compiled.registers());
    if (variant.most_m < std::numeric_limits<int>::max()) first = variant.most_m + 1;
    variants.push_back(std::move(one));
  }
  return variants;
}

JsonValue to_json(const Explained& one) {
  const GemmSpec& spec = one.variant->spec;
  JsonValue object = JsonValue::object();
  object.set("first_m", one.first_m)
      .set("most_m", one.variant->most_m)
      .set("row", one.variant->row)
      .set("kernel", kernel_name(spec))
      .set("key", one.key)
      .set("spec", canonical_text(spec))
      .set("shared_bytes", one.shared)
      .set("shared_map", cli::to_json(shared_map(spec)))
      .set("threads", spec.threads())
      .set("ctas_per_sm", one.held.ctas)
      .set("ctas_limited_by", one.held.limit)
      .set("binary", one.compiled.binary ? cli::to_json(*one.compiled.binary) : JsonValue())
      .set("not_compiled", one.compiled.why_not);
  if (const TensorMemoryMap memory = tensor_memory_map(spec); memory.allocated > 0)
    object.set("tensor_memory", cli::to_json(memory));
  return object;
}

}  // namespace

int explain(const Options& options, const NamedConfig& named, const GemmConfig& config) {
  const Arch arch = choose_arch(named, options);
  const GemmPlan plan = plan_for(named, config, arch, tuned_rows(options));
  const ArchInfo& info = arch_info(arch);
  KernelStore store(cache_options(options));
  const std::vector<Explained> variants = explain_variants(plan, store, info);
  const Explained& main = variants.back();
  int code = kDone;
  for (const Explained& one : variants)
    if (one.compiled.rejected) code = kMismatch;
  const std::vector<GemmShape> shapes =
      options.shapes.empty() ? config.shapes : choose_shapes(named.path, config, options.shapes, false);
  const MachineClass& machine = choose_machine(options, arch);
  std::vector<BoundOfShape> best;
  for (const GemmShape& shape : shapes) best.push_back({shape.name, predict(config.problem, shape, machine)});

  if (options.json) {
    JsonValue list = JsonValue::array(), bounds = JsonValue::array();
    for (const Explained& one : variants) list.push(to_json(one));
    for (const auto& [shape, bound] : best) bounds.push(cli::to_json(shape, bound));
    JsonValue predicted = JsonValue::array();
    for (const GemmShape& shape : shapes) predicted.push(predicted_json(plan, config.problem, shape, machine));
    fmt::print("{}\n", JsonValue::object()
                           .set("config", named.name())
                           .set("arch", to_string(arch))
                           .set("family", to_string(main.variant->spec.family))
                           .set("kernel", kernel_name(main.variant->spec))
                           .set("key", main.key)
                           .set("choices", cli::to_json(plan.choices))
                           .set("variants", std::move(list))
                           .set("rows_passed_over", cli::to_json(plan.passed_over))
                           .set("rates_of", machine.name)
                           .set("bounds", std::move(bounds))
                           .set("predicted", std::move(predicted))
                           .dump());
    return code;
  }

  const Style style(stdout);
  fmt::print("{}  {}\n\n", style.bold(named.name()),
             style.dim(fmt::format("{} for {}, {} family, key {}", kernel_name(main.variant->spec), to_string(arch),
                                   to_string(main.variant->spec.family), main.key.substr(0, 12))));
  fmt::print("{}\n", style.bold("Kernels by rows"));
  Table table(
      {"rows", "tile", "row", "by", "stages", "split_k", "threads", "shared", "registers", "CTAs an SM", "key"});
  for (const Explained& one : variants) {
    const GemmSpec& spec = one.variant->spec;
    table.row({one.rows(), one.tile(), one.variant->row.empty() ? "-" : "tuned", workers_text(spec),
               std::to_string(spec.stages), std::to_string(spec.split_k), std::to_string(spec.threads()),
               fmt::format("{} of {}", one.shared, info.shared_bytes_per_cta),
               one.compiled.binary ? std::to_string(one.compiled.registers()) : "-",
               fmt::format("{}, by {}", one.held.ctas, one.held.limit), one.key.substr(0, 12)});
  }
  fmt::print("{}\n{}\n", table.text(style),
             choices_text(style, plan.choices) + passed_over_text(style, plan.passed_over));
  fmt::print("{}\n", spec_text(style, main.variant->spec));
  fmt::print("{}\n", shared_map_text(style, shared_map(main.variant->spec), main.shared, info));
  if (const TensorMemoryMap memory = tensor_memory_map(main.variant->spec); memory.allocated > 0)
    fmt::print("{}", tensor_memory_text(style, memory, info));
  fmt::print("{}\n", style.bold("Resources"));
  for (const Explained& one : variants)
    fmt::print("  {}:\n{}", one.rows() + " rows", resources_text(style, one.compiled));
  fmt::print("{}", bounds_text(style, best, machine.name));
  const std::string predicted = predicted_text(style, plan, config.problem, shapes, machine);
  if (!predicted.empty()) fmt::print("\n{}", predicted);
  return code;
}

}  // namespace kernelwright::cli
