#include "kernelwright/runtime/emulator/machine/hazard_rule.h"

#include <algorithm>

namespace kernelwright::emulator {

namespace {

using enum HazardGrade;
using Kind = HazardKind;
using Rule = HazardRule;

constexpr std::string_view kCausality = "Memory Consistency Model: Causality order";
constexpr std::string_view kTensorOrder = "tcgen05: Memory Consistency Model Specializations";

constexpr HazardRuleRow kRows[] = {
    {Rule::kSharedRace, "shared-race", Kind::kRace, kError, kCausality,
     "a barrier, an mbarrier's phase or a wait for the group between the two accesses"},
    {Rule::kGlobalRace, "global-race", Kind::kRace, kError, kCausality,
     "a release behind the write and an acquire of it ahead of the access"},
    {Rule::kTensorRace, "tensor-race", Kind::kRace, kError, kTensorOrder,
     "tcgen05.wait, or a tcgen05.commit and a wait for its mbarrier; then a synchronisation of the threads"},
    {Rule::kLaneRelease, "lane-release", Kind::kRace, kIsa, "Memory Consistency Model: Release and Acquire Patterns",
     "bar.warp.sync behind the access of all lanes and ahead of the release by one of them"},
    {Rule::kEqualValues, "equal-values", Kind::kRace, kNote, kCausality,
     "one writer; the two writes store the same value, so that their order does not matter"},
    {Rule::kLaneRace, "lane-race", Kind::kLaneRace, kError, kCausality, "bar.warp.sync between the two accesses"},
    {Rule::kProxyFence, "proxy-fence", Kind::kProxyFence, kError, "membar, fence: fence.proxy.async",
     "fence.proxy.async by the writing threads, ahead of the synchronisation"},
    {Rule::kAllocationProxyFence, "allocation-proxy-fence", Kind::kProxyFence, kIsa, "tcgen05.alloc",
     "fence.proxy.async by the warp that allocated, ahead of the synchronisation"},
    {Rule::kAnswerProxyFence, "answer-proxy-fence", Kind::kProxyFence, kError, "clusterlaunchcontrol.try_cancel",
     "fence.proxy.async by the reading threads, ahead of the synchronisation"},
    {Rule::kMapProxyFence, "map-proxy-fence", Kind::kProxyFence, kError, "membar, fence: fence.proxy.tensormap",
     "fence.proxy.tensormap::generic: .release behind the write, .acquire ahead of the copy"},
    {Rule::kMapInUse, "map-in-use", Kind::kRace, kError, kCausality,
     "a wait for the copy's mbarrier or group ahead of the edit"},
    {Rule::kUnwrittenShared, "unwritten-shared", Kind::kUnwritten, kError, "State Spaces: Shared State Space",
     "a write of these bytes ahead of the read"},
    {Rule::kUnwrittenTensor, "unwritten-tensor", Kind::kUnwritten, kError, "tcgen05: Tensor Memory",
     "a write of these cells ahead of the read, or a product without scale of D"},
    {Rule::kUnwrittenUnused, "unwritten-unused", Kind::kUnwritten, kNote, "tcgen05.ld",
     "a load of fewer columns; nothing uses the value"},
    {Rule::kMbarrierMissing, "mbarrier-missing", Kind::kMbarrier, kError, "mbarrier.init",
     "mbarrier.init ahead of the use"},
    {Rule::kMbarrierInitOrder, "mbarrier-init-order", Kind::kMbarrier, kError, "mbarrier.init",
     "a barrier between the init and the use"},
    {Rule::kMbarrierInitFence, "mbarrier-init-fence", Kind::kMbarrier, kIsa, "membar, fence: fence.mbarrier_init",
     "fence.mbarrier_init.release.cluster behind the init, by the same thread"},
    {Rule::kMbarrierInitAgain, "mbarrier-init-again", Kind::kMbarrier, kError, "mbarrier.init",
     "mbarrier.inval ahead of the second init"},
    {Rule::kMbarrierMayRunAhead, "mbarrier-may-run-ahead", Kind::kMbarrier, kError, "mbarrier.test_wait, try_wait",
     "an arrival by the waiting warp, or by a thread that has synchronised with it, in the next phase"},
    {Rule::kMbarrierRanAhead, "mbarrier-ran-ahead", Kind::kMbarrier, kError, "mbarrier.test_wait, try_wait",
     "a wait for each phase, or an arrival that holds the next phase back"},
    {Rule::kMbarrierCount, "mbarrier-count", Kind::kMbarrier, kError, "mbarrier: Phase Completion",
     "as many arrivals and bytes as the phase expects"},
    {Rule::kWgmmaFence, "wgmma-fence", Kind::kRegister, kError, "wgmma.fence",
     "wgmma.fence between the access of the register and the wgmma"},
    {Rule::kWgmmaRegister, "wgmma-register", Kind::kRegister, kError, "wgmma.wait_group",
     "wgmma.wait_group ahead of the access"},
    {Rule::kWgmmaFragment, "wgmma-fragment", Kind::kRegister, kError, "wgmma.wait_group",
     "wgmma.wait_group ahead of the second wgmma"},
    {Rule::kTensorLoadRegister, "tensor-load-register", Kind::kRegister, kIsa, "tcgen05.wait",
     "tcgen05.wait::ld ahead of the access"},
    {Rule::kTensorLoadTwice, "tensor-load-twice", Kind::kRegister, kError, "tcgen05.wait",
     "tcgen05.wait::ld between the two loads, or other registers"},
    {Rule::kCopyAtExit, "copy-at-exit", Kind::kOutstanding, kError, "cp.async.wait_group, cp.async.wait_all",
     "cp.async.wait_all ahead of the exit"},
    {Rule::kBulkStoreAtExit, "bulk-store-at-exit", Kind::kOutstanding, kIsa, "cp.async.bulk.wait_group",
     "cp.async.bulk.commit_group and .wait_group 0 ahead of the exit"},
    {Rule::kWgmmaAtExit, "wgmma-at-exit", Kind::kOutstanding, kError, "wgmma.wait_group",
     "wgmma.commit_group and .wait_group 0 ahead of the exit"},
    {Rule::kTensorWorkAtExit, "tensor-work-at-exit", Kind::kOutstanding, kError, "tcgen05.commit",
     "tcgen05.commit and a wait for its mbarrier ahead of the exit"},
    {Rule::kTensorLoadAtExit, "tensor-load-at-exit", Kind::kOutstanding, kIsa, "tcgen05.wait",
     "tcgen05.wait::ld ahead of the exit"},
    {Rule::kTensorStoreAtExit, "tensor-store-at-exit", Kind::kOutstanding, kError, "tcgen05.wait",
     "tcgen05.wait::st ahead of the exit"},
    {Rule::kMbarrierCopyAtExit, "mbarrier-copy-at-exit", Kind::kOutstanding, kError, "mbarrier: Phase Completion",
     "a wait for the mbarrier's last phase ahead of the exit"},
    {Rule::kMbarrierPhaseAtExit, "mbarrier-phase-at-exit", Kind::kOutstanding, kNote, "mbarrier: Phase Completion",
     "as many arrivals as the phase expects, or another count in mbarrier.init"},
    {Rule::kBarrierArrivalsAtExit, "barrier-arrivals-at-exit", Kind::kOutstanding, kIsa, "bar, barrier",
     "a bar.sync for the arrivals, or one bar.arrive less"},
    {Rule::kClusterAtExit, "cluster-at-exit", Kind::kOutstanding, kError, "Clusters: barrier.cluster",
     "barrier.cluster.arrive and .wait ahead of the exit"},
    {Rule::kClusterAfterExit, "cluster-after-exit", Kind::kOutstanding, kError, "Clusters: barrier.cluster",
     "barrier.cluster.arrive and .wait ahead of the exit of the CTA that owns the memory"},
    {Rule::kDivergence, "divergence", Kind::kDivergence, kError, "Control Flow: .aligned and .sync",
     "the same instruction for all lanes of the mask"},
    {Rule::kShuffleSource, "shuffle-source", Kind::kDivergence, kError, "shfl.sync",
     "a mask that names the source lanes"},
    {Rule::kBarrierArrivalsAlone, "barrier-arrivals-alone", Kind::kBarrier, kError, "bar, barrier",
     "bar.sync by the threads that wait for this phase"},
    {Rule::kBarrierCount, "barrier-count", Kind::kBarrier, kError, "bar, barrier",
     "the same number of threads in each use of the barrier's phase"},
    {Rule::kRegisterPool, "register-pool", Kind::kRegisterPool, kError, "setmaxnreg",
     "numbers whose sum the CTA's registers allow"},
    {Rule::kGridDependency, "grid-dependency", Kind::kGridDependency, kError, "griddepcontrol",
     "griddepcontrol.wait ahead of the access"},
    {Rule::kTensorLeak, "tensor-leak", Kind::kTensorMemory, kError, "tcgen05.dealloc",
     "tcgen05.dealloc ahead of the exit"},
    {Rule::kTensorLanes, "tensor-lanes", Kind::kTensorMemory, kIsa, "tcgen05: Tensor Memory access restrictions",
     "the warp's own lanes in the address: 32 times its number modulo 4, shifted left by 16"},
    {Rule::kTensorFreedInUse, "tensor-freed-in-use", Kind::kTensorMemory, kError, "tcgen05.dealloc",
     "a wait for the work, and a synchronisation, ahead of tcgen05.dealloc"},
    {Rule::kTensorMemoryUse, "tensor-memory-use", Kind::kTensorMemory, kError, "tcgen05.alloc",
     "columns and lanes that are allocated"},
    {Rule::kTensorFenceBefore, "tensor-fence-before", Kind::kTensorFence, kIsa, "tcgen05.fence",
     "tcgen05.fence::before_thread_sync behind the first access, ahead of the synchronisation"},
    {Rule::kTensorFenceAfter, "tensor-fence-after", Kind::kTensorFence, kIsa, "tcgen05.fence",
     "tcgen05.fence::after_thread_sync behind the synchronisation, ahead of the second access"},
    {Rule::kBadData, "bad-data", Kind::kData, kError, "", "data that agree with the tensors of the launch"},
    {Rule::kOutOfBounds, "out-of-bounds", Kind::kOutOfBounds, kError, "State Spaces",
     "an address within one allocation"},
    {Rule::kDeviceHeap, "device-heap", Kind::kOutOfBounds, kError, "",
     "accesses within a block from malloc, ahead of its one free, by the address that malloc returned"},
    {Rule::kStackOverflow, "stack-overflow", Kind::kOutOfBounds, kError, "call",
     "calls that nest less deep, or smaller frames"},
    {Rule::kWrongCall, "wrong-call", Kind::kFault, kError, "call",
     "the address of a function that has the parameters of the call's prototype"},
    {Rule::kTrap, "trap", Kind::kFault, kError, "trap", "what the kernel's own check asks for"},
    {Rule::kDeadlock, "deadlock", Kind::kDeadlock, kError, "", "the arrivals and bytes for which the warps wait"},
    {Rule::kFault, "fault", Kind::kFault, kError, "", "operands that the instruction allows"},
};

}  // namespace

std::string_view name_of(HazardGrade grade) {
  switch (grade) {
    case kError: return "error";
    case kIsa: return "isa";
    case kNote: break;
  }
  return "note";
}

std::span<const HazardRuleRow> hazard_rules() { return kRows; }

const HazardRuleRow& row_of(HazardRule rule) { return kRows[static_cast<std::size_t>(rule)]; }

const HazardRuleRow* find_hazard_rule(std::string_view name) {
  const auto* const found = std::ranges::find(kRows, name, &HazardRuleRow::name);
  return found == std::end(kRows) ? nullptr : found;
}

HazardRule rule_of_fault(HazardKind kind) {
  switch (kind) {
    case Kind::kMbarrier: return Rule::kMbarrierCount;
    case Kind::kDivergence: return Rule::kDivergence;
    case Kind::kBarrier: return Rule::kBarrierCount;
    case Kind::kRegisterPool: return Rule::kRegisterPool;
    case Kind::kTensorMemory: return Rule::kTensorMemoryUse;
    case Kind::kOutOfBounds: return Rule::kOutOfBounds;
    case Kind::kDeadlock: return Rule::kDeadlock;
    default: return Rule::kFault;
  }
}

}  // namespace kernelwright::emulator
