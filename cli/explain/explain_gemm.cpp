// explain for a GEMM: its kernels by rows. The choices are those of the last kernel, which serves the most rows.
#include <fmt/format.h>

#include <limits>

#include "cli/exit_code.h"
#include "cli/explain/explained.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/shared_map.h"

namespace kernelwright::cli {
namespace {

/// A variant of the plan: the kernel for first_m to variant->most_m rows.
struct ExplainedVariant {
  const GemmVariant* variant;
  int first_m;
  ExplainedKernel kernel;

  std::string rows() const {
    if (variant->most_m == std::numeric_limits<int>::max()) return fmt::format("{} and more", first_m);
    return fmt::format("{} to {}", first_m, variant->most_m);
  }
  std::string tile() const {
    return fmt::format("{} x {}{}", variant->spec.block_m, variant->spec.block_n,
                       variant->spec.swap_ab ? " swapped" : "");
  }
};
struct ExplainedGemm {
  Explained all;
  std::vector<ExplainedVariant> variants;
  const ExplainedKernel& main() const { return variants.back().kernel; }
};

std::vector<ExplainedVariant> explain_variants(const GemmPlan& plan, KernelStore& store, const ArchInfo& info) {
  std::vector<ExplainedVariant> variants;
  int first = 1;
  for (const GemmVariant& variant : plan.variants) {
    variants.push_back({&variant, first, explain_kernel(store, variant.spec, info)});
    if (variant.most_m < std::numeric_limits<int>::max()) first = variant.most_m + 1;
  }
  return variants;
}

JsonValue to_json(const ExplainedVariant& one) {
  JsonValue object = JsonValue::object()
                         .set("first_m", one.first_m)
                         .set("most_m", one.variant->most_m)
                         .set("row", one.variant->row)
                         .set("kernel", one.kernel.name)
                         .set("key", one.kernel.key)
                         .set("spec", canonical_text(one.kernel.spec));
  add_shared_memory(object, one.kernel);
  add_binary(object, one.kernel);
  add_tensor_memory(object, one.kernel);
  return object;
}

std::string json_of(const ExplainedGemm& explained) {
  JsonValue variants = JsonValue::array();
  for (const ExplainedVariant& one : explained.variants) variants.push(to_json(one));
  JsonValue report = head_json(explained.all, explained.main());
  report.set("choices", cli::to_json(explained.all.choices))
      .set("variants", std::move(variants))
      .set("rows_passed_over", cli::to_json(explained.all.passed_over));
  add_speed(report, explained.all);
  return report.dump() + "\n";
}

std::string table_text(const Style& style, const std::vector<ExplainedVariant>& variants, const ArchInfo& info) {
  Table table(
      {"rows", "tile", "row", "by", "stages", "split_k", "threads", "shared", "registers", "CTAs an SM", "key"});
  for (const ExplainedVariant& one : variants) {
    const GemmSpec& spec = one.variant->spec;
    const ExplainedKernel& kernel = one.kernel;
    table.row({one.rows(), one.tile(), one.variant->row.empty() ? "-" : "tuned", workers_text(spec),
               std::to_string(spec.stages), std::to_string(spec.split_k), std::to_string(kernel.threads),
               fmt::format("{} of {}", kernel.shared, info.shared_bytes_per_cta),
               kernel.compiled.binary ? std::to_string(kernel.compiled.registers()) : "-",
               fmt::format("{}, by {}", kernel.held.ctas, kernel.held.limit), kernel.key.substr(0, 12)});
  }
  return style.bold("Kernels by rows") + "\n" + table.text(style) + "\n";
}

std::string text_of(const Style& style, const ExplainedGemm& explained) {
  const ArchInfo& info = arch_info(explained.all.arch);
  std::string text = head_text(style, explained.all, explained.main()) + table_text(style, explained.variants, info) +
                     choices_text(style, explained.all) + kernel_text(style, explained.main(), info) +
                     style.bold("Resources") + "\n";
  for (const ExplainedVariant& one : explained.variants)
    text += fmt::format("  {} rows:\n{}", one.rows(), resources_text(style, one.kernel.compiled));
  return text + speed_text(style, explained.all);
}

}  // namespace

int explain(const Options& options, const NamedConfig& named, const GemmConfig& config) {
  const MachineClass& machine = choose_machine(options, choose_arch(named, options));
  const GemmPlan plan = plan_for(named, config, machine, tuned_rows(options));
  KernelStore store(cache_options(options));
  const ExplainedGemm explained{explain_plan(options, named, config, machine, plan),
                                explain_variants(plan, store, arch_info(machine.arch))};
  fmt::print("{}", options.json ? json_of(explained) : text_of(Style(stdout), explained));
  for (const ExplainedVariant& one : explained.variants)
    if (one.kernel.compiled.rejected) return kMismatch;
  return kDone;
}

}  // namespace kernelwright::cli
