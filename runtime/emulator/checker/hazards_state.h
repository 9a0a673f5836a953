/// The checker's state of one cluster. Only hazards*.cpp include this file.
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
#include "kernelwright/runtime/emulator/checker/location.h"
#include "kernelwright/runtime/emulator/checker/shadow.h"
#include "kernelwright/runtime/emulator/checker/tensor_shadow.h"
#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

inline constexpr std::uint32_t kNoOp = ~std::uint32_t{0};  // in place of an instruction: a report has one side

struct Hazards::State {
  /// Groups of one family, as one warp counts them.
  struct Groups {
    std::uint32_t committed = 0, waited = 0;  // waited: groups known to all lanes that waited
    std::uint32_t attached = 0;               // groups that an mbarrier carries to the lanes that wait for it
    std::uint32_t filled = 0;                 // the last group that is not empty
    bool open = false;                        // something was issued since the last commit
    std::uint32_t last_op = 0;                // the instruction that was issued last
  };
  struct BusyRegister {
    std::uint32_t group = 0;
    std::uint32_t op = 0;
    bool written = false;
  };
  struct WarpState {
    Warp* warp = nullptr;
    std::uint16_t agent = 0;
    std::uint32_t now = 1;     // time of the accesses that the warp makes now
    std::uint32_t synced = 0;  // up to this time, all lanes know what any of them did
    Clock known;               // known to all lanes
    Clock partial;             // known to `partial_lanes` alone, until they synchronise with the others
    LaneMask partial_lanes = 0;
    Groups groups[kNumAsyncGroups];         // by AsyncGroup
    std::map<Slot, BusyRegister> busy;      // registers of wgmmas in flight
    std::map<Slot, std::uint32_t> loading;  // registers of tcgen05.ld in flight, and the instruction of each
    /// By instruction: when a use of its registers has completed the last tcgen05.ld that it issued.
    std::map<std::uint32_t, std::uint32_t> loaded_by_use;
    /// For each warp: how much of its work tcgen05.fence::after_thread_sync has ordered before this warp's operations
    /// in tensor memory. One entry holds for all lanes at once; the others hold for each lane that passed the fence
    /// without its siblings.
    std::vector<std::uint32_t> fenced;
    std::array<std::vector<std::uint32_t>, 32> fenced_by_lane;
    /// Registers that a tcgen05.ld, the instruction `op`, has loaded from cells that nothing has written.
    struct Unwritten {
      LaneMask lanes = 0;
      std::uint32_t op = 0;
    };
    std::map<Slot, Unwritten> unwritten;
    std::map<Slot, bool> unfenced;  // pinned registers touched since the last wgmma.fence, and whether written
    std::map<std::pair<const Cta*, std::uint32_t>, std::int64_t> seen_phase;  // of mbarriers, by this warp's waits
    /// For fences of global memory: what the last fence has ordered before strong writes, and what strong reads have
    /// seen since. Lanes are not held apart, which can only hide a hazard.
    ClusterTimes fenced_global, seen_global;

    /// By lane, then by sibling: up to which time an mbarrier has told the lane of the sibling. Null: of none.
    using LaneTimes = std::array<std::uint32_t, 32>;
    std::unique_ptr<std::array<LaneTimes, 32>> heard;
    /// For each group of wgmmas that the warp has committed: when it issued the last of them. The newest kMostIssues.
    struct Issue {
      std::uint32_t group, time;
    };
    static constexpr std::size_t kMostIssues = 64;
    std::deque<Issue> wgmma_issues;
    std::uint32_t wgmma_issued = 0;  // when the last one was issued

    /// Whether `lane` knows what its sibling `by` had done at `time`, other than by bar.warp.sync.
    bool knows_sibling(int lane, int by, std::uint32_t time) const;
    /// What `lane` does now, at the instruction that the warp executes.
    AccessRecord record_of(int lane) const;
    ClusterTimes fenced_maps, seen_maps;  // the same for fence.proxy.tensormap
  };
  struct Mbarrier {
    std::uint16_t agent = 0;
    std::uint32_t phase = 0;  // phases completed since init
    Clock gathering, done[2];
    std::map<std::uint16_t, WarpState::LaneTimes> lane_arrivals, told[2];  // by warp: when each lane arrived
    AccessRecord arrival{.op = ~std::uint32_t{0}};  // the last, or the last operation that will complete here
    bool live = false, used = false;
    /// When the initialising warp made the init visible to asynchronous operations: first and last time. Time 0: never.
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
    std::uint32_t observed = 0;                       // phases that some lane waited for
    std::map<std::uint16_t, AccessRecord> observers;  // for the last phase, by warp: the warp's last wait
    /// A lane of warp `agent`, the first of its warp, saw at `time` that `phase` was complete. Only the last kWitnesses
    /// are kept.
    struct Witness {
      std::uint16_t agent;
      std::uint8_t lane;
      std::uint32_t time;
      std::int64_t phase;
    };
    static constexpr std::size_t kWitnesses = 64;
    std::deque<Witness> witnesses;
    std::map<std::pair<std::uint16_t, std::uint8_t>, AccessRecord> remote_arrivals;  // by other CTAs
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
  /// Whether `lane`, or a lane for which it has waited, has passed griddepcontrol.wait.
  bool knows_ahead(const WarpState& warp, int lane) const {
    return warp.known.ahead || ((warp.partial_lanes >> lane & 1) && warp.partial.ahead);
  }
  /// Adds to `clock` what `lanes` of `warp` know and have done. Then a new time begins.
  void release(WarpState& warp, LaneMask lanes, Clock& clock);
  void acquire(WarpState& warp, LaneMask lanes, const Clock& clock);
  /// A wgmma ends for all four warps of a warpgroup at once. So `clock` learns that each of them has issued its groups
  /// up to `done`.
  void pass_issues(const WarpState& warp, std::uint32_t done, Clock& clock);
  /// Afterwards all lanes know what any of them knew.
  void join_lanes(WarpState& warp);

  void check(WarpState& warp, int lane, Access access, const AccessRecord& record, Cta& cta, std::uint32_t offset,
             std::uint32_t bytes);
  /// The same check for a cell of tensor memory. `record` is complete except for its lanes.
  void check_tensor_cell(WarpState& warp, int lane, Access access, const TensorRecord& record, TensorCell& cell,
                         const Cta& cta, const TensorBlock& block);
  /// Whether `record` is of a tcgen05.ld that a use of its registers has completed, and the access comes behind the
  /// use.
  bool completed_by_use(const WarpState& warp, int lane, const TensorRecord& record) const;
  /// Whether the access `record` is over, or is ahead in the same pipeline, when `warp` makes its own access. Reports a
  /// hazard if neither holds. `now` and `before` name the two accesses in the report.
  bool check_tensor_order(WarpState& warp, int lane, const char* now, const char* before, const TensorRecord& record,
                          bool pipelined, const Cta& cta, const TensorBlock& block);
  /// The time up to which a fence of `lane` covers what warp `by` did in tensor memory. Lane -1: a fence of all lanes.
  static std::uint32_t fenced_until(const WarpState& warp, int lane, std::uint32_t by);
  bool knows_completed(const WarpState& warp, int lane, const TensorRecord& record) const;  // lane -1: all lanes
  /// A CTA exits: reports columns of its tensor memory that are still allocated.
  void check_tensor_leaks(const Cta& cta, const Warp& last);
  TensorShadow& tensor_shadow(const Cta& cta);
  /// `op` reads or writes a register. Reports the use of a value that no one has written.
  void touch_unwritten(WarpState& warp, const Op& op, Slot slot, bool written);
  /// A load's values are gone and nothing has used them: leaves a note.
  void note_unused(const WarpState& warp, const WarpState::Unwritten& unwritten);
  /// Whether `op` is a plain move into registers from which only further moves read.
  bool moves_to_nowhere(const Op& op);

  void check_cell(WarpState& warp, int lane, Access access, const AccessRecord& record, ShadowCell& cell, Cta& cta,
                  std::uint32_t offset, std::uint32_t size);
  /// The rule that two unordered accesses break. `other` is the earlier one.
  HazardRule rule_of_race(const WarpState& warp, int lane, const AccessRecord& other, bool equal_values) const;
  /// Whether the store that is checked writes what [offset, +size) of `cta` holds.
  bool stores_what_is_there(const Cta& cta, std::uint32_t offset, std::uint32_t size) const;

  /// What `lanes` know and have done, for all clusters. Then a new time begins.
  ClusterTimes released_by(WarpState& warp, LaneMask lanes);
  /// `lanes` have read words at which `released` was released.
  void acquire_global(WarpState& warp, LaneMask lanes, const ClusterTimes& released);
  bool knows_global(const WarpState& warp, int lane, const GlobalWrite& write) const;

  /// A CTA of a cluster exits: reports what other CTAs may still do with its shared memory.
  void check_remote_uses(const Cta& cta, const Warp& last);
  /// `warp` uses shared memory of `cta`: reports if that CTA has exited.
  void check_lives(WarpState& warp, int lane, const Cta& cta, std::uint32_t offset);

  /// Reports a hazard of the instruction that `warp` executes, with an earlier access if there is one.
  void report(HazardRule rule, const Warp& warp, int lane, std::string what, std::string where = {},
              const AccessRecord* other = nullptr);
  void report_global(HazardRule rule, const Warp& warp, int lane, Access access, std::uint64_t address,
                     const GlobalWrite& write);
  HazardSide side_of_write(const GlobalWrite& write) const;

  /// Whether `lane` knows of a fence. `more`: what else it knows; may be null.
  bool knows_fence(const WarpState& warp, int lane, const TensorMapFences::Event& fence,
                   const ClusterTimes* more) const;
  /// A release fence behind `write` that `lane` knows, of a scope that reaches `lane`. Null if there is none.
  const TensorMapFences::Release* release_of(const WarpState& warp, int lane, const GlobalWrite& write,
                                             FenceScope acquiring) const;
  /// Whether a thread of the CTA that `lane` knows has acquired the map by a fence that is `wanted`.
  template <class Wanted>
  bool acquired(const WarpState& warp, int lane, std::uint64_t address, Wanted&& wanted) const;
  /// The same check for a map that launch `writer` wrote.
  void check_earlier_map(const Warp& warp, int lane, std::uint64_t address, std::uint32_t writer,
                         const std::string& where);
  /// `lane` edits a map: reports copies that may still read the map.
  void check_edit(const Warp& warp, int lane, std::uint64_t address);
  void report_map(HazardRule rule, const Warp& warp, int lane, std::string where, std::uint32_t other_op,
                  const HazardSide& other, std::string what);
  /// `other_warp` is the agent of the warp that issued `other_op`: an index into `warps`, not into its CTA. -1: the
  /// report has one side.
  void report_pair(HazardRule rule, const Warp& warp, int lane, std::uint32_t op, std::string what, std::string where,
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
  /// The lanes that have read each answer of cluster launch control, by CTA rank and 16 bytes of its shared memory.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<AccessRecord>> answers;
  /// The cluster's copies by maps that kernels may edit, by the map's address: the last one of each agent.
  std::map<std::uint64_t, std::vector<TensorMapUse>> map_uses;
  /// Hazards reported already, with their counts: the long text is made once for each pair of instructions.
  std::map<std::tuple<HazardRule, std::uint32_t, std::uint32_t>, std::uint64_t> reported;
  /// The bytes that the access which is checked will store from `stored_at` on. Null: they are not known.
  const std::byte* stored = nullptr;
  std::uint32_t stored_at = 0;
  std::vector<bool> used_registers;  // of the entry: those that more than moves read; made when first asked for
  const GlobalMemory::Allocation* last_allocation = nullptr;
};

}  // namespace kernelwright::emulator
