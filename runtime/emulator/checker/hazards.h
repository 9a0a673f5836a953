/// The checker: finds the synchronisation that a kernel lacks, whether or not this run went wrong for it.
///
/// Happens-before with vector clocks (FastTrack's shadow cells, per 4 bytes of shared memory). Agents are warps, and
/// for each asynchronous family the thing that says "done": an mbarrier (clock: its phases), the cp.async and bulk
/// groups of a warp, the wgmma groups of a warpgroup. Two finer grains hold a warp's lanes apart until bar.warp.sync:
///   - what a lane has done is known to others only if that lane, or a lane that synchronised with it, released it;
///   - what a lane has observed (a wait by one elected lane) is known to its siblings only after they synchronise.
/// A second clock per warp agent says what a proxy fence has made visible to the asynchronous proxy.
///
/// Accesses are checked when an asynchronous operation is issued, not when it is performed, so that what is found does
/// not depend on the completion policy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/tensor_memory.h"

namespace kernelwright::emulator {

enum class Proxy : std::uint8_t { kGeneric, kAsync };

/// How a lane uses global memory itself; flags.
enum GlobalUse : std::uint8_t {
  kWeakUse = 0,
  kStrongUse = 1,    // relaxed, volatile, atomic: no race with others of the kind
  kOrderingUse = 2,  // a strong one that acquires, of a read, or releases, of a write
  kAtomicUse = 4,    // a strong one that reads and writes: what others have released at the word stays so
};

/// The families whose completion a warp waits for by counting groups. kTensor is tcgen05.mma, .cp and .shift, whose
/// groups tcgen05.commit makes and an mbarrier ends; the last two end with tcgen05.wait::ld and ::st.
enum class AsyncGroup : std::uint8_t { kCopy, kBulk, kWgmma, kTensor, kTensorLoad, kTensorStore };
inline constexpr int kNumAsyncGroups = 6;

/// Who performs an asynchronous access, and when by that agent's clock: done once an observer's clock has reached it.
struct AsyncAgent {
  std::uint32_t agent = 0, clock = 0;
};

/// Gathers the reports of one launch: equal ones (same kind, same two instructions) are counted. Safe from any number
/// of threads.
class HazardLog;

/// The checker of one cluster. Used by the one thread that runs the cluster.
class Hazards {
 public:
  Hazards(Cluster& cluster, const Launch& launch, const LaunchNotes* notes, HazardLog& log);
  ~Hazards();

  // ---- accesses to shared memory; the instruction is warp.current
  /// By a lane, in the generic proxy.
  void access(Warp& warp, int lane, Access access, const SharedPlace& place, std::uint32_t bytes);
  /// By an asynchronous operation that `lane` issues now. cp.async is in the generic proxy, TMA, bulk and wgmma are
  /// not.
  void access_async(Warp& warp, int lane, Access access, Proxy proxy, AsyncAgent agent, Cta& cta, std::uint32_t offset,
                    std::uint32_t bytes);
  /// An atomic access: ordered with other atomics on the same bytes, checked against plain ones.
  void access_atomic(Warp& warp, int lane, const SharedPlace& place, std::uint32_t bytes);
  /// clusterlaunchcontrol.try_cancel by `lane` will write an answer, 16 bytes. Whoever has read the one before it there
  /// by ordinary loads has to have passed a proxy fence since, as in the ISA's example of it.
  void answer_wanted(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  // ---- and to global memory
  /// What griddepcontrol.wait orders.
  void access_global(Warp& warp, int lane, Access access, std::uint64_t address, std::uint64_t bytes);
  /// What clusters of a launch that communicate order through words of it, by the lane itself (not by what it issues):
  /// `uses` are GlobalUse. Reads and writes of what another warp wrote are checked, not writes of what another reads.
  void exchange_global(Warp& warp, int lane, Access access, std::uint64_t address, std::uint64_t bytes,
                       std::uint8_t uses);
  /// fence.acq_rel or .sc of a scope beyond the cluster: strong accesses around it release and acquire.
  void fence_global(Warp& warp, LaneMask lanes);

  // ---- agents of asynchronous operations
  AsyncAgent completes_on(Cta& cta, std::uint32_t mbarrier);  // at the phase that is pending now
  AsyncAgent of_group(Warp& warp, AsyncGroup group);          // the group that is open now
  void commit_group(Warp& warp, AsyncGroup group);
  /// `lanes` know all but the newest `allowed` groups to be complete.
  void wait_group(Warp& warp, LaneMask lanes, AsyncGroup group, std::uint32_t allowed);

  // ---- synchronisation
  void wait_for_launches_ahead(Warp& warp, LaneMask lanes);  // griddepcontrol.wait
  void sync_lanes(Warp& warp, LaneMask lanes);               // bar.warp.sync
  void fence_proxy_async(Warp& warp, LaneMask lanes);
  void fence_mbarrier_init(Warp& warp, LaneMask lanes);
  /// A barrier, named by the address of its state: arrivals gather clocks, completion publishes them to whoever
  /// observes it.
  void barrier_arrive(Warp& warp, LaneMask lanes, const void* barrier);
  void barrier_complete(const void* barrier);
  void barrier_observe(Warp& warp, LaneMask lanes, const void* barrier);

  // ---- mbarriers, by their offset in `cta`
  void mbarrier_init(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  void mbarrier_invalidate(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  /// Any use by a lane: finds inits that are not visible to it. `async`: the use is by an operation that it issues.
  void mbarrier_use(Warp& warp, int lane, Cta& cta, std::uint32_t offset, bool async);
  void mbarrier_arrive(Warp& warp, int lane, Cta& cta, std::uint32_t offset);  // releases what the lane knows
  /// An operation issued by `lane` will complete on it: carries the issuer's clock to whoever waits.
  void mbarrier_attach(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  /// cp.async.mbarrier.arrive: the arrival follows all cp.async that `lane` has issued, committed or not, and carries
  /// their completion, besides what the lane knows, to whoever waits.
  void mbarrier_attach_copies(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  /// A phase has completed; the barrier now is in phase `phase` (0 after init).
  void mbarrier_complete(Cta& cta, std::uint32_t offset);
  /// A wait or test of `parity` by `lanes` has succeeded.
  void mbarrier_observe(Warp& warp, LaneMask lanes, Cta& cta, std::uint32_t offset, std::uint32_t parity);

  // ---- registers of wgmma
  /// `registers` (slots, b32) belong to an asynchronous wgmma from now until a wait_group of this warp covers it.
  void registers_busy(Warp& warp, std::span<const Slot> registers, bool written);
  /// wgmma.fence: register accesses before it are ordered with the wgmmas after it.
  void registers_fence(Warp& warp);
  /// Called before every instruction with op.touches_pinned while wgmmas are in flight.
  void registers_touched(Warp& warp, const Op& op);

  // ---- tensor memory
  /// By an operation of `by` (kTensor, kTensorLoad or kTensorStore) that `lane` issues now; lane -1: the whole warp
  /// does. `accumulates`: a write that reads the cells first.
  void tensor_access(Warp& warp, int lane, Access access, AsyncGroup by, Cta& cta, const TensorBlock& block,
                     bool accumulates = false);
  /// tcgen05.commit, once, and then for each mbarrier that it will arrive on.
  void tensor_commit(Warp& warp, int lane);
  void tensor_commit_arrives(Warp& warp, int lane, Cta& cta, std::uint32_t mbarrier);
  void tensor_fence_before(Warp& warp, LaneMask lanes);
  void tensor_fence_after(Warp& warp, LaneMask lanes);
  /// tcgen05.wait::ld or ::st by the whole warp.
  void tensor_wait(Warp& warp, AsyncGroup group);
  /// `registers` are written by a tcgen05.ld until the warp's next tcgen05.wait::ld.
  void registers_loading(Warp& warp, std::span<const Slot> registers);
  /// The columns begin a new life, or end it; ending checks that all that was done with them is over.
  void tensor_allocated(Cta& cta, std::uint32_t column, std::uint32_t columns);
  void tensor_deallocated(Warp& warp, Cta& cta, std::uint32_t column, std::uint32_t columns);

  // ---- the end
  void warp_exit(Warp& warp, LaneMask lanes);
  void cta_exit(Cta& cta);  // finds what is outstanding

  /// Reports something that a handler found by itself. `other` may be null.
  void report(HazardKind kind, Warp& warp, LaneMask lanes, const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kernelwright::emulator
