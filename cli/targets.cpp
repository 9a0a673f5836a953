#include "targets.h"

#include <fmt/format.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/backend.h"

namespace kernelwright::cli {

std::optional<Arch> gpu_arch() {
  try {
    return make_cuda_backend()->device(0).info().arch;
  } catch (const Error&) {  // no driver, no GPU: a verb that needs one says so itself
    return std::nullopt;
  }
}

namespace {

/// --arch, else the schedule's.
std::optional<Arch> named_arch(const NamedConfig& named, const Options& options) {
  const std::vector<Arch> given = parse_archs(options.archs);
  if (given.size() > 1) throw ConfigError("--arch", fmt::format("{} are named; one would do", given.size()));
  if (given.size() == 1) return given[0];
  if (!named.config.schedule.arch.is_auto()) return named.config.schedule.arch.value();
  return std::nullopt;
}

}  // namespace

Arch claimed_arch(const NamedConfig& named, const Options& options) {
  return named_arch(named, options).value_or(Arch::kSm90a);
}

Arch choose_arch(const NamedConfig& named, const Options& options) {
  if (options.device == "cuda") make_cuda_backend();  // throws where there is none
  if (options.device == "emulator") return claimed_arch(named, options);
  if (const auto arch = named_arch(named, options)) return *arch;
  return gpu_arch().value_or(Arch::kSm90a);
}

std::vector<Arch> choose_archs(const NamedConfig& named, const Options& options) {
  const std::vector<Arch> given = parse_archs(options.archs);
  if (!given.empty()) return given;
  if (!named.config.schedule.arch.is_auto()) return {named.config.schedule.arch.value()};
  if (const auto arch = gpu_arch()) return {*arch};
  return {Arch::kSm80, Arch::kSm90a, Arch::kSm100a, Arch::kSm120a};
}

std::optional<SkippedConfig> skipped_on(const NamedConfig& named, std::optional<Arch> arch) {
  const Auto<Arch>& own = named.config.schedule.arch;
  if (!named.in_folder || own.is_auto() || !arch || *arch == own.value()) return std::nullopt;
  return SkippedConfig{named.path, named.config.name,
                       fmt::format("its schedule is for {} alone", to_string(own.value()))};
}

AttentionPlan plan_for(const NamedConfig& named, Arch arch, const TunedTable& rows) {
  require_valid(named, arch);
  try {
    return plan_attention(named.config.problem, named.config.schedule, arch, rows);
  } catch (const ConfigError& error) {
    throw in_file(named.path, error);
  }
}

TunedTable tuned_rows(const Options& options) {
  TunedTable rows = TunedTable::from_environment(options.tuned_dir);
  for (const SkippedRow& row : rows.skipped())
    fmt::print(stderr, "kernelwright: tuned row {}: {}\n", row.name, row.reason);
  return rows;
}

}  // namespace kernelwright::cli
