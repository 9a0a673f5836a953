/// Inside of the generator: what each GEMM kernel family takes, and how it is planned.
#pragma once

#include <optional>
#include <vector>

#include "kernelwright/generator/arch.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm_plan.h"
#include "kernelwright/generator/problem.h"
#include "kernelwright/generator/schedule.h"

namespace kernelwright::detail {

/// The family that serves a config: the schedule's, else the architecture's own, else portable.
Family gemm_family(const GemmSchedule& schedule, std::optional<Arch> arch);

/// What `family` lacks of `problem` and `schedule`, whatever the tile. No contradictions: validate() has those.
void check_gemm(Family family, const GemmProblem& problem, const GemmSchedule& schedule,
                std::vector<Violation>& violations);

/// The resolved tile against the machine: rows, registers, shared memory, with the nearest that fits.
void check_gemm_hopper_tile(const GemmSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations);

/// Scales of one slot in shared memory, bytes.
int gemm_scale_bytes(const GemmSpec& spec);

/// Columns of one product of wgmma; 0: sums and products do not fit the registers.
int gemm_product_columns(const GemmSpec& spec);

/// Microseconds that a launch is expected to take on a device like the architecture's typical one: the tensor cores'
/// or the memory's, whichever is longer, of the busiest SM. It ranks tiles; it is no promise.
double gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms);

}  // namespace kernelwright::detail
