/// What instructions cost in virtual time: a small model of one SM, made for pictures of a pipeline and not for
/// predictions. Rates are the vendor's published ones (CUDA C++ Programming Guide, "Arithmetic Instructions"; the
/// architectures' white papers), latencies are rounded from public microbenchmarks. What it knows:
///   - four schedulers, warp i on scheduler i % 4. Each issues one instruction a cycle; one warp alone issues one every
///     second cycle, because its instructions wait for one another. Scarce units count as several cycles.
///   - tensor cores: a wgmma takes all four, in the order of issue; an mma.sync that of its scheduler.
///   - copies into and out of a CTA's shared memory share a path of so many bytes a cycle, in the order of issue, and
///     land a latency later.
/// What it does not know: caches and bank conflicts, registers that are not ready, other CTAs on the SM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

inline constexpr std::uint32_t kNumSchedulers = 4;
inline constexpr std::uint32_t kIssueInterval = 2;    // cycles between instructions of a warp that is alone
inline constexpr std::uint32_t kArriveCycles = 4;     // an arrival, to whom it releases in the same CTA
inline constexpr std::uint32_t kWakeCycles = 16;      // from the end of a phase to the first instruction after the wait
inline constexpr std::uint32_t kClusterCycles = 200;  // an arrival in another CTA of the cluster
inline constexpr std::uint32_t kMultiplyLatency = 32;  // of the last wgmma of a group, beyond its turn

/// One SM of an architecture, and its share of what the SMs share.
struct MachineCosts {
  std::string_view target;      // as .target says it
  std::uint32_t wgmma_macs;     // 16-bit multiply-adds a cycle, of the four tensor cores; 0: no wgmma
  std::uint32_t mma_sync_macs;  // the same for mma.sync
  std::uint32_t copy_bytes;     // a cycle between L2 and shared memory, while all SMs copy
  std::uint32_t copy_latency;   // of a copy, in cycles, beyond its bytes
  std::uint32_t store_latency;  // until a bulk store has read its source
};

/// The row of `target` ("sm_90a"); that of the closest older architecture for one that has none.
const MachineCosts& machine_costs(std::string_view target);

/// What the timeline must know of an instruction.
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
  std::uint32_t number = 0;  // kCopy: bytes a lane; waits: groups that may be incomplete
  std::string_view shape;    // "m64n128k16"

  /// Cycles until the warp's next instruction, where it is alone on its scheduler.
  std::uint32_t alone() const { return issue == 0 ? 0 : std::max(issue, kIssueInterval); }
};

InstructionCost instruction_cost(const Instruction& instruction, const MachineCosts& machine);

}  // namespace kernelwright::emulator
