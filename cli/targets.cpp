#include "cli/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::cli {

std::optional<Arch> gpu_arch() {
  try {
    return make_cuda_backend()->device(0).info().arch;
  } catch (const Error&) {  // no driver or no GPU: a verb that needs a GPU reports this itself
    return std::nullopt;
  }
}

namespace {

/// The architecture of --arch, else that of the schedule.
std::optional<Arch> named_arch(const NamedConfig& named, const Options& options) {
  const std::vector<Arch> given = parse_archs(options.archs);
  if (given.size() > 1) throw ConfigError("--arch", fmt::format("{} are named; one would do", given.size()));
  if (given.size() == 1) return given[0];
  if (!named.arch().is_auto()) return named.arch().value();
  return std::nullopt;
}

}  // namespace

Arch claimed_arch(const NamedConfig& named, const Options& options) {
  return named_arch(named, options).value_or(Arch::kSm90a);
}

Arch choose_arch(const NamedConfig& named, const Options& options) {
  if (options.device == "cuda") make_cuda_backend();  // throws if there is no GPU
  if (options.device == "emulator") return claimed_arch(named, options);
  if (const auto arch = named_arch(named, options)) return *arch;
  return gpu_arch().value_or(Arch::kSm90a);
}

const MachineClass& choose_machine(const Options& options, Arch arch) {
  // Without a second class of the architecture there is nothing to ask a device.
  const auto has_word = [&](const MachineClass& machine) { return machine.arch == arch && !machine.word.empty(); };
  if (options.device != "emulator" && std::ranges::any_of(machine_classes(), has_word)) try {
      const auto backend = make_cuda_backend();
      const DeviceInfo& device = backend->device(0).info();
      if (device.arch == arch) return machine_of(device.name, arch);
    } catch (const Error&) {  // no driver, no GPU
    }
  return usual_machine(arch);
}

std::vector<Arch> choose_archs(const NamedConfig& named, const Options& options) {
  const std::vector<Arch> given = parse_archs(options.archs);
  if (!given.empty()) return given;
  if (!named.arch().is_auto()) return {named.arch().value()};
  if (const auto arch = gpu_arch()) return {*arch};
  return {Arch::kSm80, Arch::kSm90a, Arch::kSm100a, Arch::kSm120a};
}

std::optional<SkippedConfig> skipped_on(const NamedConfig& named, std::optional<Arch> arch) {
  const Auto<Arch>& own = named.arch();
  if (!named.in_folder || own.is_auto() || !arch || *arch == own.value()) return std::nullopt;
  return SkippedConfig{named.path, named.name(), fmt::format("its schedule is for {} alone", to_string(own.value()))};
}

namespace {

template <class Plan>
Plan planned(const NamedConfig& named, const std::function<Plan()>& plan) {
  try {
    return plan();
  } catch (const ConfigError& error) {
    throw in_file(named.path, error);
  }
}

}  // namespace

AttentionPlan plan_for(const NamedConfig& named, const AttentionConfig& config, const MachineClass& machine,
                       const TunedTable& rows) {
  return planned<AttentionPlan>(named, [&] { return plan_attention(config.problem, config.schedule, machine, rows); });
}

GemmPlan plan_for(const NamedConfig& named, const GemmConfig& config, const MachineClass& machine,
                  const TunedTable& rows) {
  return planned<GemmPlan>(named, [&] { return plan_gemm(config.problem, config.schedule, machine, rows); });
}

KvWritePlan plan_for(const NamedConfig& named, const KvWriteConfig& config, const MachineClass& machine,
                     const TunedTable&) {
  return planned<KvWritePlan>(named, [&] { return plan_kv_write(config.problem, config.schedule, machine.arch); });
}

RowOpPlan plan_for(const NamedConfig& named, const RowOpConfig& config, const MachineClass& machine,
                   const TunedTable&) {
  return planned<RowOpPlan>(named, [&] { return plan_row_op(config.problem, config.schedule, machine.arch); });
}
RoutePlan plan_for(const NamedConfig& named, const RouteConfig& config, const MachineClass& machine,
                   const TunedTable&) {
  return planned<RoutePlan>(named, [&] { return plan_route(config.problem, config.schedule, machine.arch); });
}
MoeCombinePlan plan_for(const NamedConfig& named, const MoeCombineConfig& config, const MachineClass& machine,
                        const TunedTable&) {
  return planned<MoeCombinePlan>(named,
                                 [&] { return plan_moe_combine(config.problem, config.schedule, machine.arch); });
}

namespace {

std::vector<PlannedKernel> kernels_of(const KvWritePlan& plan) { return {{"main", plan.spec}}; }
std::vector<PlannedKernel> kernels_of(const RowOpPlan& plan) { return {{"main", plan.spec}}; }
std::vector<PlannedKernel> kernels_of(const MoeCombinePlan& plan) { return {{"main", plan.spec}}; }
std::vector<PlannedKernel> kernels_of(const RoutePlan& plan) {
  std::vector<PlannedKernel> kernels{{"main", plan.spec}};
  if (plan.sort) kernels.push_back({"sort", *plan.sort});
  return kernels;
}

std::vector<PlannedKernel> kernels_of(const AttentionPlan& plan) {
  std::vector<PlannedKernel> kernels{{"main", plan.main}};
  if (plan.combine) kernels.push_back({"combine", *plan.combine});
  return kernels;
}

std::vector<PlannedKernel> kernels_of(const GemmPlan& plan) {
  std::vector<PlannedKernel> kernels{{"main", plan.variants.back().spec}};
  for (std::size_t i = 0; i + 1 < plan.variants.size(); ++i)
    kernels.push_back({fmt::format("m{}", plan.variants[i].most_m), plan.variants[i].spec});
  return kernels;
}

}  // namespace

std::vector<PlannedKernel> kernels_for(const NamedConfig& named, const MachineClass& machine, const TunedTable& rows) {
  return std::visit([&](const auto& config) { return kernels_of(plan_for(named, config, machine, rows)); },
                    named.config);
}

TunedTable tuned_rows(const Options& options) {
  TunedTable rows = TunedTable::from_environment(options.tuned_dir, require_usable);
  std::vector<Violation> violations;
  for (const SkippedRow& row : rows.skipped()) violations.push_back({"tuned row " + row.name, row.reason});
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return rows;
}

}  // namespace kernelwright::cli
