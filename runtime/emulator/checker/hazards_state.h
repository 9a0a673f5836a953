/// The checker's state of one cluster; for hazards*.cpp alone.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/checker/clock.h"
#include "kernelwright/runtime/emulator/checker/global_shadow.h"
#include "kernelwright/runtime/emulator/checker/hazard_log.h"
#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/checker/shadow.h"
#include "kernelwright/runtime/emulator/checker/tensor_shadow.h"
#include "kernelwright/runtime/emulator/program/location.h"
#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

struct Hazards::State {
  /// Groups of one family, as one warp counts them.
  struct Groups {
    std::uint32_t committed = 0, waited = 0;  // waited: groups known to all lanes that waited
    std::uint32_t attached = 0;               // groups that an mbarrier carries to whoever waits for it
    std::uint32_t filled = 0;                 // the last group that has something in it
    bool open = false;                        // something was issued since the last commit
    std::uint32_t last_op = 0;                // that was issued last
  };
  struct BusyRegister {
    std::uint32_t group = 0;
    std::uint32_t op = 0;
    bool written = false;
  };
  struct WarpState {
    Warp* warp = nullptr;
    std::uint16_t agent = 0;
    std::uint32_t now = 1;     // time of the accesses that it makes now
    std::uint32_t synced = 0;  // what any lane did until then is known to all of them
    Clock known;               // to all lanes
    Clock partial;             // to `partial_lanes` alone, until they synchronise with the others
    LaneMask partial_lanes = 0;
    Groups groups[kNumAsyncGroups];         // by AsyncGroup
    std::map<Slot, BusyRegister> busy;      // registers of wgmmas in flight
    std::map<Slot, std::uint32_t> loading;  // registers of tcgen05.ld in flight, and its op
    /// What tcgen05.fence::after_thread_sync has put before this warp's operations in tensor memory, by warp: of all
    /// its lanes at once, and of each that passed it without some of the others.
    std::vector<std::uint32_t> fenced;
    std::array<std::vector<std::uint32_t>, 32> fenced_by_lane;
    std::map<Slot, bool> unfenced;  // pinned registers touched since the last wgmma.fence, and whether written
    std::map<std::pair<const Cta*, std::uint32_t>, std::int64_t> seen_phase;  // of mbarriers, by this warp's waits
    /// For fences of global memory: what the last one has put ahead of strong writes, and what strong reads have seen
    /// since. Of some lanes together, which can only hide a hazard.
    ClusterTimes fenced_global, seen_global;
  };
  struct Mbarrier {
    std::uint16_t agent = 0;
    std::uint32_t phase = 0;  // phases completed since init
    Clock gathering, done[2];
    bool live = false, used = false;
    /// When the initialising warp made it visible to asynchronous operations, first and last; time 0: it did not.
    struct Fence {
      std::uint32_t time = 0;
      std::uint8_t lane = 0;
    } first_fence, last_fence;
    std::uint16_t init_warp = 0;
    std::uint8_t init_lane = 0;
    std::uint32_t init_time = 0, init_op = 0;
    std::uint32_t attached = 0;  // the last phase (from 1) that an asynchronous operation completes
    std::uint32_t attached_op = 0;
    std::uint16_t attached_warp = 0;
    std::uint32_t observed = 0;                       // phases that somebody waited for
    std::map<std::uint16_t, AccessRecord> observers;  // of the last phase, by warp: its last wait
    /// A lane of warp `agent`, its first to do so, saw at `time` that `phase` was complete. The last kWitnesses.
    struct Witness {
      std::uint16_t agent;
      std::uint8_t lane;
      std::uint32_t time;
      std::int64_t phase;
    };
    static constexpr std::size_t kWitnesses = 64;
    std::deque<Witness> witnesses;
    std::map<std::pair<std::uint16_t, std::uint8_t>, AccessRecord> remote_arrivals;  // last, by other CTAs' warp, lane
  };
  struct Barrier {
    Clock gathering, done;
  };

  State(Cluster& cluster_, const Launch& launch_, const LaunchNotes* notes_, HazardLog& log_);

  WarpState& of(const Warp& warp) { return warps[warp_agent(warp)]; }
  std::size_t warp_agent(const Warp& warp) const { return warp.cta->rank * warps_per_cta + warp.index; }
  std::uint32_t group_agent(const WarpState& warp, AsyncGroup group) const;
  Shadow& shadow(const Cta& cta) { return shadows[cta.rank]; }
  Mbarrier& mbarrier(const Cta& cta, std::uint32_t offset) { return mbarriers[{cta.rank, offset}]; }

  /// Whether `lane` of `warp` knows of an access.
  bool knows(const WarpState& warp, int lane, std::uint32_t agent, int by_lane, std::uint32_t time) const;
  bool knows_proxy(const WarpState& warp, int lane, std::uint32_t agent, std::uint32_t time) const;
  /// Whether `lane`, or somebody whom it has waited for, has passed griddepcontrol.wait.
  bool knows_ahead(const WarpState& warp, int lane) const {
    return warp.known.ahead || ((warp.partial_lanes >> lane & 1) && warp.partial.ahead);
  }
  /// Adds to `clock` what `lanes` of `warp` know and have done, and begins a new time.
  void release(WarpState& warp, LaneMask lanes, Clock& clock);
  void acquire(WarpState& warp, LaneMask lanes, const Clock& clock);
  /// All lanes know what any of them knows.
  void join_lanes(WarpState& warp);

  void check(WarpState& warp, int lane, Access access, const AccessRecord& record, Cta& cta, std::uint32_t offset,
             std::uint32_t bytes);
  /// The same in tensor memory. `record` is complete but for its lanes.
  void check_tensor_cell(WarpState& warp, int lane, Access access, bool accumulates, const TensorRecord& record,
                         TensorCell& cell, const Cta& cta, const TensorBlock& block);
  /// Whether what `record` did (`before`) is over, or ahead in the same pipeline, when `warp` does something (`now`);
  /// reports if it is not.
  bool check_tensor_order(WarpState& warp, int lane, const char* now, const char* before, const TensorRecord& record,
                          bool pipelined, const Cta& cta, const TensorBlock& block);
  /// Until when what warp `by` did in tensor memory is behind a fence of `lane`, or with -1 of all lanes.
  static std::uint32_t fenced_until(const WarpState& warp, int lane, std::uint32_t by);
  bool knows_completed(const WarpState& warp, int lane, const TensorRecord& record) const;  // lane -1: all lanes
  /// A CTA exits: finds columns of its tensor memory that are allocated.
  void check_tensor_leaks(const Cta& cta, const Warp& last);
  TensorShadow& tensor_shadow(const Cta& cta);

  void check_cell(WarpState& warp, int lane, Access access, const AccessRecord& record, ShadowCell& cell, Cta& cta,
                  std::uint32_t offset);

  /// What `lanes` know and have done, of all clusters. Begins a new time.
  ClusterTimes released_by(WarpState& warp, LaneMask lanes);
  /// `lanes` have read words where it was released.
  void acquire_global(WarpState& warp, LaneMask lanes, const ClusterTimes& released);
  bool knows_global(const WarpState& warp, int lane, const GlobalWrite& write) const;

  /// A CTA of a cluster exits: finds what other CTAs may still do with its shared memory.
  void check_remote_uses(const Cta& cta, const Warp& last);
  /// `warp` uses shared memory of `cta`.
  void check_lives(WarpState& warp, int lane, const Cta& cta, std::uint32_t offset);

  /// A report about the instruction that `warp` executes, and perhaps an earlier one.
  void report(HazardKind kind, const Warp& warp, int lane, std::string what, std::string where = {},
              const AccessRecord* other = nullptr);
  void report_global(const Warp& warp, int lane, Access access, std::uint64_t address, const GlobalWrite& write);
  /// `other_warp` is the agent of the warp whose instruction `other_op` is: its index in `warps`, not in its CTA. -1:
  /// the report has one side.
  void report_pair(HazardKind kind, const Warp& warp, int lane, std::uint32_t op, std::string what, std::string where,
                   std::uint32_t other_op, int other_warp, int other_lane);

  Cluster& cluster;
  const Launch& launch;
  const LaunchNotes* notes;
  HazardLog& log;
  std::uint32_t warps_per_cta = 0, groups_per_cta = 0, next_agent = 0;
  std::vector<WarpState> warps;
  std::vector<Shadow> shadows;                                // by CTA rank
  std::vector<std::unique_ptr<TensorShadow>> tensor_shadows;  // by CTA rank; made when used
  std::map<std::pair<std::uint32_t, std::uint32_t>, Mbarrier> mbarriers;
  std::map<const void*, Barrier> barriers;
  /// Who has read each answer of cluster launch control, by CTA rank and 16 bytes of its shared memory.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<AccessRecord>> answers;
  /// What was reported already: a long text is made once for each pair of instructions.
  std::map<std::tuple<HazardKind, std::uint32_t, std::uint32_t>, std::uint64_t> reported;
  const GlobalMemory::Allocation* last_allocation = nullptr;
};

}  // namespace kernelwright::emulator
