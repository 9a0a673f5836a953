/// Inside of the generator: what each GEMM kernel family takes, and how it is planned.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright::detail {

/// The family that serves a config: the schedule's, else the architecture's own where it takes the config, else
/// portable where that does.
Family gemm_family(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch);

/// What `family` lacks of `problem` and `schedule`, whatever the tile; on `arch`, where one is known. No
/// contradictions: validate() has those.
void check_gemm(Family family, const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch,
                std::vector<Violation>& violations);
void check_gemm_hopper(const GemmProblem& problem, const GemmSchedule& schedule, std::vector<Violation>& violations);
void check_gemm_blackwell(const GemmProblem& problem, const GemmSchedule& schedule, std::vector<Violation>& violations);
void check_gemm_portable(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch,
                         std::vector<Violation>& violations);

/// block_k and swizzle: what a slot has of k, and how it lies. The same in all families.
void check_slab(const GemmProblem& problem, const GemmSchedule& schedule, std::vector<Violation>& violations);
/// The schedule's, else 128 bytes and the widest swizzle that divides them.
void plan_slab(const GemmProblem& problem, const GemmSchedule& schedule, GemmSpec& spec);
/// That CTAs which load shares of `side` of a slab load whole groups of 8 rows.
void check_shares(const GemmSpec& spec, TileSide side, int sharers, std::vector<Violation>& violations);
/// What explain says of them.
void explain_slab(const GemmSpec& spec, const GemmSchedule& schedule, std::vector<Choice>& choices);

/// The resolved tile against the machine: rows, registers, shared memory, with the nearest that fits.
void check_gemm_hopper_tile(const GemmSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations);
/// As above: columns, tensor memory, shared memory.
void check_gemm_blackwell_tile(const GemmSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations);
/// As above: stages against shared memory.
void check_gemm_portable_tile(const GemmSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations);

/// The portable family's tiles with the schedule's fields in them, `base` having all but these. What does not fit is
/// among them: check_gemm_portable_tile() judges.
std::vector<GemmSpec> portable_gemm_tiles(const GemmSpec& base, const GemmSchedule& schedule);
/// What explain says of one.
void explain_portable_gemm(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                           std::vector<Choice>& choices);

/// As those of the portable family.
std::vector<GemmSpec> blackwell_gemm_tiles(const GemmSpec& base, const GemmProblem& problem,
                                           const GemmSchedule& schedule);
void explain_blackwell_gemm(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                            std::vector<Choice>& choices);

/// Most slots that fit beside the rest, in whole groups; at least two groups.
int most_gemm_stages(GemmSpec spec, int shared_bytes_per_cta);

/// Every tile of the family that serves the problem, with the schedule's fields in it, that fits: what the model
/// chooses from, without repeats. Throws ConfigError as plan_gemm().
std::vector<GemmSpec> gemm_tiles(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch);

/// Scales of one slot in shared memory, bytes.
int gemm_scale_bytes(const GemmSpec& spec);

/// Microseconds that a launch is expected to take on a device like the architecture's typical one: the tensor cores'
/// or the memory's, whichever is longer, of the busiest SM. It ranks tiles; it is no promise.
double gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms);
double portable_gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms);
double blackwell_gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms);

}  // namespace kernelwright::detail
