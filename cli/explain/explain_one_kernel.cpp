// explain for kinds that one kernel serves on every architecture: writing a cache, and steps over rows.
#include <fmt/format.h>

#include "cli/exit_code.h"
#include "cli/explain/explained.h"
#include "kernelwright/generator/kernels.h"

namespace kernelwright::cli {
namespace {

template <class KindOfConfig>
int explain_one(const Options& options, const NamedConfig& named, const KindOfConfig& config) {
  const MachineClass& machine = choose_machine(options, choose_arch(named, options));
  const auto plan = plan_for(named, config, machine, tuned_rows(options));
  const ArchInfo& info = arch_info(machine.arch);
  KernelStore store(cache_options(options));
  const ExplainedKernel kernel = explain_kernel(store, plan.spec, info);
  Explained all{named.name(), machine.arch, std::string(machine.name), plan.choices, {}, {}};
  const auto shapes = options.shapes.empty() ? config.shapes : choose_shapes(named.path, config, options.shapes, false);
  for (const auto& shape : shapes) {
    all.bounds.push_back({shape.name, predict(config.problem, shape, machine)});
    all.predicted.push(JsonValue());  // memory bounds it; no model says more
  }
  if (options.json) {
    JsonValue report = head_json(all, kernel);
    report.set("choices", cli::to_json(all.choices)).set("spec", canonical_text(kernel.spec));
    add_shared_memory(report, kernel);
    add_binary(report, kernel);
    add_speed(report, all);
    fmt::print("{}\n", report.dump());
  } else {
    const Style style(stdout);
    fmt::print("{}{}{}{}\n{}{}", head_text(style, all, kernel), choices_text(style, all),
               kernel_text(style, kernel, info), style.bold("Resources"), resources_text(style, kernel.compiled),
               fmt::format("  {} threads a CTA, {} CTA{} an SM, limited by {}\n", kernel.threads, kernel.held.ctas,
                           kernel.held.ctas == 1 ? "" : "s", kernel.held.limit) +
                   speed_text(style, all));
  }
  return kernel.compiled.rejected ? kMismatch : kDone;
}

}  // namespace

int explain(const Options& options, const NamedConfig& named, const KvWriteConfig& config) {
  return explain_one(options, named, config);
}
int explain(const Options& options, const NamedConfig& named, const RowOpConfig& config) {
  return explain_one(options, named, config);
}
int explain(const Options& options, const NamedConfig& named, const RouteConfig& config) {
  return explain_one(options, named, config);
}
int explain(const Options& options, const NamedConfig& named, const MoeCombineConfig& config) {
  return explain_one(options, named, config);
}

}  // namespace kernelwright::cli
