/// Which architecture a verb works for, and the kernels of a config on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/plan/machine.h"

namespace kernelwright::cli {

/// The architecture of GPU 0; nothing where no GPU is or no row fits it.
std::optional<Arch> gpu_arch();

/// What the emulator claims to be for a config: --arch, else the schedule's, else sm_90a.
Arch claimed_arch(const NamedConfig& named, const Options& options);

/// The one architecture of a verb that explains: --arch, else the schedule's, else the GPU's, else sm_90a. A GPU that
/// --device asks for must be there; on the emulator it does not matter.
Arch choose_arch(const NamedConfig& named, const Options& options);

/// The class of the device that an explanation for `arch` is about: the GPU's where --device does not say emulator and
/// it is of that architecture, else the usual one.
const MachineClass& choose_machine(const Options& options, Arch arch);

/// Those of `compile`: --arch, else the schedule's, else the GPU's, else sm_80, sm_90a, sm_100a and sm_120a.
std::vector<Arch> choose_archs(const NamedConfig& named, const Options& options);

/// A config that a folder brought and whose schedule is for another architecture than `arch`: it is passed over, by
/// name. One that was named itself is not; it is refused when it is planned.
std::optional<SkippedConfig> skipped_on(const NamedConfig& named, std::optional<Arch> arch);

/// The plan of `config`, which is what `named` holds, on `arch`. Throws ConfigError led by the file's path.
AttentionPlan plan_for(const NamedConfig& named, const AttentionConfig& config, Arch arch, const TunedTable& rows);
GemmPlan plan_for(const NamedConfig& named, const GemmConfig& config, Arch arch, const TunedTable& rows);

/// One kernel of a config on one architecture.
struct PlannedKernel {
  /// "main"; attention's "combine", which merges split keys; "m64", what serves a GEMM of at most so many rows.
  std::string role;
  Spec spec;
};
/// All of them, "main" first.
std::vector<PlannedKernel> kernels_for(const NamedConfig& named, Arch arch, const TunedTable& rows);

/// The library's rows under those of --tuned-dir or $KERNELWRIGHT_TUNED_DIR. Throws ConfigError with every row that
/// cannot be used there, and for a folder that is missing or not to be trusted: who names one means it.
TunedTable tuned_rows(const Options& options);

}  // namespace kernelwright::cli
