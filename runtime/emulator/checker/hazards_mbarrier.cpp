// The checker's side of mbarriers: what a phase carries from the arriving lanes to the waiting ones, and how kernels
// misuse the mbarriers themselves.
#include <fmt/format.h>

#include "kernelwright/runtime/emulator/checker/hazards_state.h"
#include "kernelwright/runtime/emulator/machine/mbarrier.h"

namespace kernelwright::emulator {

void Hazards::fence_mbarrier_init(Warp& warp, LaneMask lanes) {
  const State::WarpState& state = state_->of(warp);
  for (auto& [at, mbarrier] : state_->mbarriers) {
    if (!mbarrier.live || mbarrier.init_warp != state.agent) continue;
    const bool by_initialiser = lanes >> mbarrier.init_lane & 1;
    mbarrier.last_fence = {state.now,
                           by_initialiser ? mbarrier.init_lane : static_cast<std::uint8_t>(first_lane(lanes))};
    if (mbarrier.first_fence.time == 0) mbarrier.first_fence = mbarrier.last_fence;
  }
}

void Hazards::mbarrier_init(Warp& warp, int lane, Cta& cta, std::uint32_t offset) {
  State::WarpState& state = state_->of(warp);
  access(warp, lane, Access::kWrite, {&cta, offset, cta.shared.data() + offset}, 8);
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  if (mbarrier.live && mbarrier.used)
    state_->report_pair(HazardRule::kMbarrierInitAgain, warp, lane, warp.current->index,
                        "an mbarrier is initialised again while it is in use: mbarrier.inval ends its use",
                        name_of_shared(state_->notes, *state_->launch.program, offset), mbarrier.init_op,
                        mbarrier.init_warp, mbarrier.init_lane);
  const std::uint16_t agent = mbarrier.agent;
  mbarrier = {};
  mbarrier.agent = agent != 0 ? agent : static_cast<std::uint16_t>(state_->next_agent++);
  mbarrier.live = true;
  mbarrier.init_warp = state.agent;
  mbarrier.init_lane = static_cast<std::uint8_t>(lane);
  mbarrier.init_time = state.now;
  mbarrier.init_op = warp.current->index;
  for (State::WarpState& other : state_->warps) other.seen_phase.erase({&cta, offset});
}

void Hazards::mbarrier_invalidate(Warp& warp, int lane, Cta& cta, std::uint32_t offset) {
  mbarrier_use(warp, lane, cta, offset, false);
  state_->mbarrier(cta, offset).live = false;
}

void Hazards::mbarrier_use(Warp& warp, int lane, Cta& cta, std::uint32_t offset, bool async) {
  State::WarpState& state = state_->of(warp);
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  state_->check_lives(state, lane, cta, offset);
  mbarrier.used = true;
  if (!mbarrier.live) {
    state_->report(HazardRule::kMbarrierMissing, warp, lane,
                   "an mbarrier is used that no mbarrier.init has made, or none since mbarrier.inval",
                   name_of_shared(state_->notes, *state_->launch.program, offset));
    return;
  }
  const auto report = [&](HazardRule rule, std::string what) {
    state_->report_pair(rule, warp, lane, warp.current->index, std::move(what),
                        name_of_shared(state_->notes, *state_->launch.program, offset), mbarrier.init_op,
                        mbarrier.init_warp, mbarrier.init_lane);
  };
  if (!state_->knows(state, lane, mbarrier.init_warp, mbarrier.init_lane, mbarrier.init_time)) {
    report(HazardRule::kMbarrierInitOrder,
           "an mbarrier is used by a thread that its initialisation is not visible to: no barrier between them");
    return;
  }
  const auto knows = [&](const State::Mbarrier::Fence& fence) {
    return fence.time != 0 && state_->knows(state, lane, mbarrier.init_warp, fence.lane, fence.time);
  };
  if (async && !knows(mbarrier.first_fence) && !knows(mbarrier.last_fence))
    report(HazardRule::kMbarrierInitFence,
           "an asynchronous operation uses an mbarrier whose initialisation no fence.mbarrier_init (or "
           "fence.proxy.async) has made visible to it");
}

void Hazards::mbarrier_arrive(Warp& warp, int lane, Cta& cta, std::uint32_t offset) {
  State::WarpState& state = state_->of(warp);
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  mbarrier.arrival = state.record_of(lane);
  if (warp.cta != &cta) mbarrier.remote_arrivals[{state.agent, static_cast<std::uint8_t>(lane)}] = mbarrier.arrival;
  mbarrier.lane_arrivals[state.agent][static_cast<std::size_t>(lane)] = state.now;
  // With the last lane of an instruction of all lanes, the whole warp has arrived.
  const bool all = warp.current_lanes == warp.live && (warp.live >> lane) == 1;
  state_->release(state, all ? warp.live : LaneMask{1} << lane, mbarrier.gathering);
}

void Hazards::mbarrier_attach(Warp& warp, int lane, Cta& cta, std::uint32_t offset) {
  State::WarpState& state = state_->of(warp);
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  mbarrier.arrival = state.record_of(lane);
  // A lane that waits for the operation learns what the operation's issuer knew when it issued it.
  state_->release(state, LaneMask{1} << lane, mbarrier.gathering);
}

void Hazards::mbarrier_attach_copies(Warp& warp, int lane, Cta& cta, std::uint32_t offset) {
  State::WarpState& state = state_->of(warp);
  State::Groups& groups = state.groups[static_cast<int>(AsyncGroup::kCopy)];
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  // The copies of a warp are one agent. What its lanes have issued so far becomes a group, and this phase carries the
  // group.
  if (groups.open) {
    ++groups.committed;
    groups.open = false;
  }
  groups.attached = groups.committed;
  mbarrier.arrival = state.record_of(lane);
  state_->release(state, LaneMask{1} << lane, mbarrier.gathering);
  mbarrier.gathering.raise(state_->group_agent(state, AsyncGroup::kCopy), groups.committed);
  mbarrier.attached = mbarrier.phase + 1;
}

AsyncAgent Hazards::completes_on(Cta& cta, std::uint32_t offset) {
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  mbarrier.gathering.raise(mbarrier.agent, mbarrier.phase + 1);
  mbarrier.attached = mbarrier.phase + 1;
  return {mbarrier.agent, mbarrier.phase + 1};
}

void Hazards::mbarrier_complete(Cta& cta, std::uint32_t offset) {
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  // A wait tells the last phase from the one before by parity only. So the wait must have happened when the next phase
  // completes, under every schedule. Otherwise the waiting thread may find the next phase under way and wait for
  // another one.
  for (const auto& [agent, wait] : mbarrier.observers)
    if (!mbarrier.gathering.covers_passage(agent, wait.time))
      state_->report_pair(HazardRule::kMbarrierMayRunAhead, *state_->warps[agent].warp, wait.lane, wait.op,
                          "the phase after the one that is waited for completes, and nothing orders that after the "
                          "wait: the mbarrier may run ahead of this warp",
                          name_of_shared(state_->notes, *state_->launch.program, offset), mbarrier.arrival.op,
                          mbarrier.arrival.issuer, mbarrier.arrival.lane);
  mbarrier.observers.clear();
  mbarrier.done[mbarrier.phase & 1] = mbarrier.gathering;
  mbarrier.told[mbarrier.phase & 1] = std::move(mbarrier.lane_arrivals);
  mbarrier.lane_arrivals.clear();
  mbarrier.gathering.clear();
  ++mbarrier.phase;
}

void Hazards::mbarrier_observe(Warp& warp, LaneMask lanes, Cta& cta, std::uint32_t offset, std::uint32_t parity) {
  State::WarpState& state = state_->of(warp);
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  // A wait for `parity` succeeds because the last completed phase has this parity.
  const std::int64_t completed = static_cast<std::int64_t>(mbarrier.phase) - 1;
  if (completed >= 0) {
    state_->acquire(state, lanes, mbarrier.done[parity & 1]);
    if (const auto told = mbarrier.told[parity & 1].find(state.agent); told != mbarrier.told[parity & 1].end()) {
      if (!state.heard) state.heard = std::make_unique<std::array<State::WarpState::LaneTimes, 32>>();
      for_each_lane(lanes, [&](int lane) {
        State::WarpState::LaneTimes& times = (*state.heard)[static_cast<std::size_t>(lane)];
        for (std::size_t by = 0; by < times.size(); ++by) times[by] = std::max(times[by], told->second[by]);
      });
    }
    mbarrier.observed = mbarrier.phase;
    mbarrier.observers[state.agent] = {.time = state.now,
                                       .op = warp.current->index,
                                       .agent = state.agent,
                                       .issuer = state.agent,
                                       .lane = static_cast<std::uint8_t>(first_lane(lanes))};
  }
  const auto [seen, first] = state.seen_phase.try_emplace({&cta, offset}, completed);
  // The newest phase that this warp has seen, or that it knows another warp to have seen. Warps that take turns skip
  // phases.
  std::int64_t known = seen->second;
  for (const State::Mbarrier::Witness& other : mbarrier.witnesses)
    if (other.phase > known && state_->knows(state, first_lane(lanes), other.agent, other.lane, other.time))
      known = other.phase;
  const auto is_noted = [&](const State::Mbarrier::Witness& other) {
    return other.agent == state.agent && other.phase == completed;  // another lane of this warp noted it
  };
  if (std::none_of(mbarrier.witnesses.begin(), mbarrier.witnesses.end(), is_noted)) {
    if (mbarrier.witnesses.size() == State::Mbarrier::kWitnesses) mbarrier.witnesses.pop_front();
    mbarrier.witnesses.push_back({state.agent, static_cast<std::uint8_t>(first_lane(lanes)), state.now, completed});
  }
  if (first) return;
  // The next phase with this parity.
  const std::int64_t meant = ((known + 1) & 1) == static_cast<std::int64_t>(parity & 1) ? known + 1 : known;
  if (completed >= meant + 2)
    state_->report(
        HazardRule::kMbarrierRanAhead, warp, first_lane(lanes),
        fmt::format("a wait for parity {} is satisfied by phase {}, {} phases later than the one that it means: "
                    "the mbarrier has run ahead of this warp",
                    parity & 1, completed, completed - meant),
        name_of_shared(state_->notes, *state_->launch.program, offset));
  seen->second = completed;
}

void Hazards::cta_exit(Warp& last) {
  const Cta& cta = *last.cta;
  for (const auto& [at, mbarrier] : state_->mbarriers) {
    if (at.first != cta.rank || !mbarrier.live) continue;
    const auto report = [&, offset = at.second, &made = mbarrier](HazardRule rule, std::string what) {
      state_->report_pair(rule, last, -1, last.current->index, std::move(what),
                          name_of_shared(state_->notes, *state_->launch.program, offset), made.init_op, made.init_warp,
                          made.init_lane);
    };
    if (mbarrier.attached > mbarrier.observed) {
      report(HazardRule::kMbarrierCopyAtExit,
             "a CTA exits and nobody has waited for the last copy that completes on this mbarrier");
    } else if (holds_mbarrier(cta, at.second)) {
      // All warps that share a stage must release it equally often. Otherwise the mbarrier counts on other arrivals
      // than those that come.
      const MbarrierState word = mbarrier_state(cta, at.second);
      if (word.pending != word.expected)
        report(HazardRule::kMbarrierPhaseAtExit,
               fmt::format("a CTA exits in the middle of a phase of this mbarrier: {} of {} have arrived",
                           word.expected - word.pending, word.expected));
    }
  }
  state_->check_tensor_leaks(cta, last);
  if (state_->warps.size() > state_->warps_per_cta) state_->check_remote_uses(cta, last);
  for (int id = 0; id < kNumNamedBarriers; ++id)
    if (cta.barriers[id].arrived != 0)
      state_->report(
          HazardRule::kBarrierArrivalsAtExit, last, -1,
          fmt::format("a CTA exits while {} threads have arrived at named barrier {} and nobody waits for them",
                      cta.barriers[id].arrived, id));
}

void Hazards::State::check_lives(WarpState& warp, int lane, const Cta& cta, std::uint32_t offset) {
  if (cta.live_warps != 0) return;
  report(HazardRule::kClusterAfterExit, *warp.warp, lane,
         fmt::format("the CTA of rank {} has exited, and its shared memory is used by another one of the cluster",
                     cta.rank),
         name_of_shared(notes, *launch.program, offset));
}

void Hazards::State::check_remote_uses(const Cta& cta, const Warp& last) {
  // What any warp of this CTA knows happened before the CTA exits.
  Clock known;
  for (const Warp& warp : cta.warps) {
    const WarpState& state = of(warp);
    known.join(state.known);
    if (state.partial_lanes != 0) known.join(state.partial);
  }
  // The CTA's own warps have ended. warp_exit() and cta_exit() check the groups, and what completes on the CTA's own
  // mbarriers.
  std::set<std::uint32_t> own;
  for (const Warp& warp : cta.warps) {
    own.insert(of(warp).agent);
    for (const AsyncGroup group : {AsyncGroup::kCopy, AsyncGroup::kBulk, AsyncGroup::kWgmma, AsyncGroup::kTensor})
      own.insert(group_agent(of(warp), group));
  }
  for (const auto& [at, mbarrier] : mbarriers)
    if (at.first == cta.rank) own.insert(mbarrier.agent);

  const auto require = [&](const AccessRecord& record, const char* what, std::uint32_t offset) {
    if (own.count(record.agent) || known.covers(record.agent, record.lane, record.time)) return;
    report_pair(
        HazardRule::kClusterAtExit, last, -1, last.current->index,
        fmt::format("a CTA exits, and nothing says that another one of the cluster has {} its shared memory", what),
        name_of_shared(notes, *launch.program, offset), record.op, record.issuer, record.lane);
  };
  shadows[cta.rank].visit_all([&](const ShadowCell& cell, std::uint32_t offset) {
    if (cell.write.bytes != 0) require(cell.write, "written", offset);
    for (const AccessRecord& read : cell.reads)
      if (read.bytes != 0) require(read, "read", offset);
  });
  for (const auto& [at, mbarrier] : mbarriers)
    if (at.first == cta.rank)
      for (const auto& [by, record] : mbarrier.remote_arrivals) require(record, "arrived on an mbarrier of", at.second);
}

}  // namespace kernelwright::emulator
