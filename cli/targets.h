/// The architecture for which a verb works, and the kernels of a config on that architecture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/row_op/plan.h"

namespace kernelwright::cli {

/// The architecture of GPU 0; empty if there is no GPU or no known architecture fits it.
std::optional<Arch> gpu_arch();

/// The architecture that the emulator claims to be for a config: that of --arch, else of the schedule, else sm_90a.
Arch claimed_arch(const NamedConfig& named, const Options& options);

/// The one architecture of a verb that explains: that of --arch, else of the schedule, else of the GPU, else sm_90a.
/// With --device cuda the GPU must exist; on the emulator it does not matter.
Arch choose_arch(const NamedConfig& named, const Options& options);

/// The class of devices for which a verb plans on `arch`: the GPU's where --device does not say emulator and it is of
/// that architecture, else the usual one.
const MachineClass& choose_machine(const Options& options, Arch arch);

/// Those of `compile`: --arch, else the schedule's, else the GPU's, else sm_80, sm_90a, sm_100a and sm_120a.
std::vector<Arch> choose_archs(const NamedConfig& named, const Options& options);

/// A config that came from a folder and whose schedule is for another architecture than `arch` is skipped, and reported
/// by name. A config that was named itself is not skipped: planning refuses it.
std::optional<SkippedConfig> skipped_on(const NamedConfig& named, std::optional<Arch> arch);

/// The plan of `config`, which is in `named`, on `machine`. Throws ConfigError with the file's path in front.
AttentionPlan plan_for(const NamedConfig& named, const AttentionConfig& config, const MachineClass& machine,
                       const TunedTable& rows);
GemmPlan plan_for(const NamedConfig& named, const GemmConfig& config, const MachineClass& machine,
                  const TunedTable& rows);
KvWritePlan plan_for(const NamedConfig& named, const KvWriteConfig& config, const MachineClass& machine,
                     const TunedTable& rows);
RowOpPlan plan_for(const NamedConfig& named, const RowOpConfig& config, const MachineClass& machine,
                   const TunedTable& rows);
RoutePlan plan_for(const NamedConfig& named, const RouteConfig& config, const MachineClass& machine,
                   const TunedTable& rows);
MoeCombinePlan plan_for(const NamedConfig& named, const MoeCombineConfig& config, const MachineClass& machine,
                        const TunedTable& rows);

/// One kernel of a config on one class of devices.
struct PlannedKernel {
  /// "main"; attention's "combine", which merges split keys; "m64", the kernel for a GEMM of at most 64 rows.
  std::string role;
  Spec spec;
};
/// All kernels of the config, "main" first.
std::vector<PlannedKernel> kernels_for(const NamedConfig& named, const MachineClass& machine, const TunedTable& rows);

/// The library's rows, overridden by those of --tuned-dir or $KERNELWRIGHT_TUNED_DIR. Throws ConfigError with every row
/// that cannot be used there. Also throws if the folder is missing or cannot be trusted, because the user named it on
/// purpose.
TunedTable tuned_rows(const Options& options);

}  // namespace kernelwright::cli
