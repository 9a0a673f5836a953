/// What instructions cost in virtual time: a small model of one SM, made for pictures of a pipeline and not for
/// predictions. Rates of instructions are the vendor's published ones (CUDA C++ Programming Guide, "Arithmetic
/// Instructions"; the architectures' white papers). What differs from machine to machine is in MachineCosts. The model
/// has:
///   - four schedulers, warp i on scheduler i % 4. Each issues one instruction per cycle. A warp alone issues one every
///     second cycle, because its instructions wait for one another. Scarce units count as several cycles.
///   - tensor cores: a wgmma takes all four, in the order of issue; an mma.sync takes that of its scheduler.
///   - copies into and out of a CTA's shared memory: they share a path of a fixed number of bytes per cycle. They go in
///     the order of issue, and land after a latency.
/// The model does not have caches and bank conflicts, registers that are not ready, and other CTAs on the SM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kernelwright/runtime/emulator/machine/machine_costs.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

inline constexpr std::uint32_t kNumSchedulers = 4;
inline constexpr std::uint32_t kIssueInterval = 2;    // cycles between the instructions of a warp that is alone
inline constexpr std::uint32_t kArriveCycles = 4;     // from an arrival to the warps that it releases in the same CTA
inline constexpr std::uint32_t kWakeCycles = 16;      // from the end of a phase to the first instruction after the wait
inline constexpr std::uint32_t kClusterCycles = 200;  // from an arrival in another CTA of the cluster
inline constexpr std::uint32_t kMultiplyLatency = 32;  // of the last wgmma of a group, after its turn

/// What the timeline must know about an instruction.
enum class CostKind : std::uint8_t {
  kWork,
  kMma,             // mma.sync
  kMultiply,        // wgmma.mma_async
  kMultiplyCommit,  // wgmma.commit_group
  kMultiplyWait,    // wgmma.wait_group
  kCopy,            // cp.async
  kCopyCommit,      // cp.async.commit_group
  kCopyWait,        // cp.async.wait_group
  kCopyWaitAll,     // cp.async.wait_all
  kBulkCommit,      // cp.async.bulk.commit_group
  kBulkWait,        // cp.async.bulk.wait_group
};

struct InstructionCost {
  CostKind kind = CostKind::kWork;
  std::uint32_t issue = 1;   // cycles of its scheduler
  std::uint32_t tensor = 0;  // kMma: cycles of its scheduler's tensor core; kMultiply: of all four
  std::uint32_t number = 0;  // kCopy: bytes per lane; waits: groups that may be incomplete
  std::string_view shape;    // "m64n128k16"

  /// Cycles until the warp's next instruction, if the warp is alone on its scheduler.
  std::uint32_t alone() const { return issue == 0 ? 0 : std::max(issue, kIssueInterval); }
};

InstructionCost instruction_cost(const Instruction& instruction, const MachineCosts& machine);

}  // namespace kernelwright::emulator
