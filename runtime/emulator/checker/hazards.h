/// The checker: finds synchronisation that a kernel lacks, also where this run happened to go right.
///
/// It tracks happens-before with vector clocks (FastTrack's shadow cells, per 4 bytes of shared memory). Agents are the
/// warps, and for each asynchronous family the object that says "done". These objects are an mbarrier (its clock counts
/// phases), the cp.async and bulk groups of a warp, and the wgmma groups of a warpgroup. Two finer grains hold a warp's
/// lanes apart until bar.warp.sync:
///   - Others know what a lane has done only if that lane, or a lane that synchronised with it, released it.
///   - Siblings know what a lane has observed (for example the wait of one elected lane) only after they synchronise.
/// A second clock per warp agent says which writes a proxy fence has made visible to the asynchronous proxy.
///
/// An access of an asynchronous operation is checked when the operation is issued, not when it is performed. So the
/// findings do not depend on the completion policy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/hazard_rule.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/names.h"
#include "kernelwright/runtime/emulator/machine/tensor_memory.h"

namespace kernelwright::emulator {

enum class FenceScope : std::uint8_t;  // tensor_map_shadow.h

enum class Proxy : std::uint8_t { kGeneric, kAsync };

/// How a lane accesses global memory itself; flags.
enum GlobalUse : std::uint8_t {
  kWeakUse = 0,
  kStrongUse = 1,    // relaxed, volatile or atomic: two such accesses do not race
  kOrderingUse = 2,  // a strong read that acquires, or a strong write that releases
  kAtomicUse = 4,    // a strong read and write in one: what others have released at the word stays released
};

/// The families whose completion a warp waits for by counting groups.
/// kTensor is tcgen05.mma, .cp and .shift: tcgen05.commit makes their groups, and an mbarrier ends them.
/// The last two end with tcgen05.wait::ld and ::st.
enum class AsyncGroup : std::uint8_t { kCopy, kBulk, kWgmma, kTensor, kTensorLoad, kTensorStore };
inline constexpr int kNumAsyncGroups = 6;

/// The agent that performs an asynchronous access, and the time by its clock. The access is done for an observer once
/// the observer knows this time.
struct AsyncAgent {
  std::uint32_t agent = 0, clock = 0;
};

/// Gathers the reports of one launch and counts equal ones (same kind, same two instructions). Safe from any number of
/// threads.
class HazardLog;

/// The checker of one cluster. Only the thread that runs the cluster uses it.
class Hazards {
 public:
  Hazards(Cluster& cluster, const Launch& launch, const LaunchNotes* notes, HazardLog& log);
  ~Hazards();

  // ---- accesses to shared memory; the instruction is warp.current
  /// An access by a lane, in the generic proxy. `stored`: the bytes that a store will write, where the caller has them.
  void access(Warp& warp, int lane, Access access, const SharedPlace& place, std::uint32_t bytes,
              const std::byte* stored = nullptr);
  /// An access by an asynchronous operation that `lane` issues now. cp.async is in the generic proxy; TMA, bulk and
  /// wgmma are not.
  void access_async(Warp& warp, int lane, Access access, Proxy proxy, AsyncAgent agent, Cta& cta, std::uint32_t offset,
                    std::uint32_t bytes);
  /// An atomic access: ordered with other atomics on the same bytes, and checked against plain accesses.
  void access_atomic(Warp& warp, int lane, const SharedPlace& place, std::uint32_t bytes);
  /// A clusterlaunchcontrol.try_cancel by `lane` will write an answer of 16 bytes. A thread that read the previous
  /// answer there by ordinary loads must have passed a proxy fence since then, as the ISA's example does.
  void answer_wanted(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  // ---- and to global memory
  /// An access to global memory that griddepcontrol.wait orders.
  void access_global(Warp& warp, int lane, Access access, std::uint64_t address, std::uint64_t bytes);
  /// An access by the lane itself (not by an operation that it issues) to global memory through which clusters of a
  /// launch communicate. `uses` are GlobalUse flags. Checked are reads and writes of what another lane wrote. Writes of
  /// what another lane reads are not checked.
  void exchange_global(Warp& warp, int lane, Access access, std::uint64_t address, std::uint64_t bytes,
                       std::uint8_t uses, const std::byte* stored = nullptr);
  /// fence.acq_rel or fence.sc of a scope beyond the cluster: strong accesses around the fence release and acquire.
  void fence_global(Warp& warp, LaneMask lanes);

  // ---- tensor maps in global memory that kernels write, and their proxy
  void tensor_map_written(Warp& warp, int lane, std::uint64_t address);  // by an instruction of tensormap.*
  void tensor_map_released(Warp& warp, LaneMask lanes, FenceScope scope);
  void tensor_map_acquired(Warp& warp, LaneMask lanes, std::uint64_t address, FenceScope scope);
  /// A copy that `lane` issues uses a map. Returns whether the kernel may edit the map.
  bool tensor_map_used(Warp& warp, int lane, std::uint64_t address);
  /// That copy may read the map until `agent` says that the copy is over.
  void tensor_map_held(Warp& warp, int lane, std::uint64_t address, AsyncAgent agent);

  // ---- agents of asynchronous operations
  AsyncAgent completes_on(Cta& cta, std::uint32_t mbarrier);  // at the phase that is pending now
  AsyncAgent of_group(Warp& warp, AsyncGroup group);          // the group that is open now
  void commit_group(Warp& warp, AsyncGroup group);
  /// `lanes` know that all but the newest `allowed` groups are complete.
  void wait_group(Warp& warp, LaneMask lanes, AsyncGroup group, std::uint32_t allowed);

  // ---- synchronisation
  void wait_for_launches_ahead(Warp& warp, LaneMask lanes);  // griddepcontrol.wait
  void sync_lanes(Warp& warp, LaneMask lanes);               // bar.warp.sync
  void fence_proxy_async(Warp& warp, LaneMask lanes);
  void fence_mbarrier_init(Warp& warp, LaneMask lanes);
  /// A barrier, named by the address of its state. Arrivals gather clocks. Completion publishes them to the lanes that
  /// observe it.
  void barrier_arrive(Warp& warp, LaneMask lanes, const void* barrier);
  void barrier_complete(const void* barrier);
  void barrier_observe(Warp& warp, LaneMask lanes, const void* barrier);

  // ---- mbarriers, by their offset in `cta`
  void mbarrier_init(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  void mbarrier_invalidate(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  /// Any use by a lane: reports an init that is not visible to the lane. `async`: an operation that the lane issues
  /// uses the barrier.
  void mbarrier_use(Warp& warp, int lane, Cta& cta, std::uint32_t offset, bool async);
  void mbarrier_arrive(Warp& warp, int lane, Cta& cta, std::uint32_t offset);  // releases what the lane knows
  /// An operation issued by `lane` will complete on the mbarrier. It carries the issuer's clock to the lanes that wait.
  void mbarrier_attach(Warp& warp, int lane, Cta& cta, std::uint32_t offset);
  /// cp.async.mbarrier.arrive: the arrival follows all cp.async that `lane` has issued, committed or not. To the lanes
  /// that wait, it carries the completion of these copies and what `lane` knows.
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
  /// Called before every instruction with op.touches_pinned.
  void registers_touched(Warp& warp, const Op& op);

  // ---- tensor memory
  /// An access to tensor memory by an operation of family `by` (kTensor, kTensorLoad or kTensorStore), which `lane`
  /// issues now. Lane -1: the whole warp issues it. `accumulates`: a write that reads the cells first. Returns whether
  /// a tcgen05.ld reads cells that nothing has written; for other operations the checker reports that itself.
  bool tensor_access(Warp& warp, int lane, Access access, AsyncGroup by, Cta& cta, const TensorBlock& block,
                     bool accumulates = false);
  /// tcgen05.commit: called once for the commit itself, then once for each mbarrier on which the commit will arrive.
  void tensor_commit(Warp& warp, int lane);
  void tensor_commit_arrives(Warp& warp, int lane, Cta& cta, std::uint32_t mbarrier);
  void tensor_fence_before(Warp& warp, LaneMask lanes);
  void tensor_fence_after(Warp& warp, LaneMask lanes);
  /// tcgen05.wait::ld or ::st by the whole warp.
  void tensor_wait(Warp& warp, AsyncGroup group);
  /// `registers` are written by a tcgen05.ld until the warp's next tcgen05.wait::ld.
  void registers_loading(Warp& warp, std::span<const Slot> registers);
  /// Whether something has written the cell.
  bool tensor_written(Cta& cta, std::uint32_t lane, std::uint32_t column) const;
  /// The tcgen05.ld that is executed gives `lanes` of a register a value that nothing has written. The checker reports
  /// its use, or else leaves a note.
  void register_unwritten(Warp& warp, Slot slot, LaneMask lanes);
  /// The columns are allocated anew, or freed. When they are freed, all work on them must be over: this is checked.
  void tensor_allocated(Cta& cta, std::uint32_t column, std::uint32_t columns);
  void tensor_deallocated(Warp& warp, Cta& cta, std::uint32_t column, std::uint32_t columns);

  // ---- the end
  void warp_exit(Warp& warp, LaneMask lanes);
  void cta_exit(Warp& last);  // the CTA's last warp has exited: reports what is still outstanding

  /// Reports a hazard that an instruction's handler found by itself. `other` may be null.
  void report(HazardRule rule, Warp& warp, LaneMask lanes, const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kernelwright::emulator
