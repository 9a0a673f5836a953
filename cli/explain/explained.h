/// What explain says about a config of any kind: one struct, from which JSON and text are made. Each kind says in
/// explain_<kind>.cpp which kernels it has and how it lists them.
#pragma once

#include <string>
#include <vector>

#include "cli/explain/explain_parts.h"
#include "cli/explain/predicted.h"
#include "cli/targets.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::cli {

/// A kernel, compiled where a compiler is, and the resources of an SM that it takes.
struct ExplainedKernel {
  Spec spec;
  std::string name, key;
  std::string_view family;
  Compiled compiled;
  int shared, threads;
  std::vector<SharedRegion> shared_map;
  TensorMemoryMap tensor_memory;
  Occupancy held;
};

/// `spec` is an AttentionSpec, a GemmSpec, a KvWriteSpec or a RowOpSpec.
template <class SpecOfKind>
ExplainedKernel explain_kernel(KernelStore& store, const SpecOfKind& spec, const ArchInfo& info) {
  ExplainedKernel kernel{spec,
                         kernel_name(spec),
                         store.key(spec).digest().hex(),
                         to_string(spec.family),
                         compile_if_possible(store, spec),
                         static_cast<int>(shared_bytes(spec)),
                         spec.threads(),
                         shared_map(spec),
                         tensor_memory_map(spec),
                         {}};
  kernel.held = occupancy(info, kernel.shared, kernel.threads, kernel.compiled.registers());
  return kernel;
}

/// A plan's choices, and how fast its kernels could be.
struct Explained {
  std::string config;
  Arch arch;
  std::string machine;  // the class of devices for which bounds and predictions are
  std::vector<Choice> choices;
  std::vector<SkippedRow> passed_over;
  std::vector<BoundOfShape> bounds;  // of the chosen shapes
  JsonValue predicted = JsonValue::array();
  std::string predicted_text;
};

template <class ConfigOfKind, class PlanOfKind>
Explained explain_plan(const Options& options, const NamedConfig& named, const ConfigOfKind& config,
                       const MachineClass& machine, const PlanOfKind& plan) {
  const auto shapes = options.shapes.empty() ? config.shapes : choose_shapes(named.path, config, options.shapes, false);
  Explained all{named.name(), machine.arch, std::string(machine.name), plan.choices, plan.passed_over, {}};
  for (const auto& shape : shapes) {
    all.bounds.push_back({shape.name, predict(config.problem, shape, machine)});
    all.predicted.push(predicted_json(plan, config.problem, shape, machine));
  }
  all.predicted_text = predicted_text(Style(stdout), plan, config.problem, shapes, machine);
  return all;
}

/// The first members of the report: config, arch, and the main kernel's family, name and key.
JsonValue head_json(const Explained& all, const ExplainedKernel& main);
/// Adds the last members of the report: the device, bounds and predictions.
void add_speed(JsonValue& report, const Explained& all);
/// Adds shared memory and threads.
void add_shared_memory(JsonValue& object, const ExplainedKernel& kernel);
/// Adds tensor memory, if the kernel has any.
void add_tensor_memory(JsonValue& object, const ExplainedKernel& kernel);
/// Adds CTAs an SM, and the binary or the reason why there is none.
void add_binary(JsonValue& object, const ExplainedKernel& kernel);

/// The config, and the main kernel's name, architecture, family and key.
std::string head_text(const Style& style, const Explained& all, const ExplainedKernel& main);
std::string choices_text(const Style& style, const Explained& all);
/// The Spec, shared memory and tensor memory.
std::string kernel_text(const Style& style, const ExplainedKernel& kernel, const ArchInfo& info);
/// Bounds and predictions.
std::string speed_text(const Style& style, const Explained& all);

}  // namespace kernelwright::cli
