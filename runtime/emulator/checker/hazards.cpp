#include "kernelwright/runtime/emulator/checker/hazards.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernelwright/runtime/emulator/checker/hazards_state.h"

namespace kernelwright::emulator {

namespace {

std::string_view name_of_access(Access access) { return access == Access::kWrite ? "write" : "read"; }

}  // namespace

Hazards::State::State(Cluster& cluster_, const Launch& launch_, const LaunchNotes* notes_, HazardLog& log_)
    : cluster(cluster_), launch(launch_), notes(notes_), log(log_) {
  warps_per_cta = static_cast<std::uint32_t>(cluster.ctas.front()->warps.size());
  groups_per_cta = (warps_per_cta + 3) / 4;
  const std::size_t num_warps = warps_per_cta * cluster.ctas.size();
  warps.resize(num_warps);
  for (const auto& cta : cluster.ctas) {
    shadows.emplace_back(cta->shared.size());
    for (Warp& warp : cta->warps) {
      WarpState& state = warps[warp_agent(warp)];
      state.warp = &warp;
      state.agent = static_cast<std::uint16_t>(warp_agent(warp));
      state.known.resize(num_warps, num_warps);
    }
  }
  // Agents after the warps: the cp.async, bulk and tcgen05 groups of each warp, the wgmma groups of each warpgroup,
  // then the mbarriers.
  next_agent = static_cast<std::uint32_t>(6 * num_warps + groups_per_cta * cluster.ctas.size());
}

std::uint32_t Hazards::State::group_agent(const WarpState& warp, AsyncGroup group) const {
  const auto num_warps = static_cast<std::uint32_t>(warps.size());
  switch (group) {
    case AsyncGroup::kCopy: return num_warps + warp.agent;
    case AsyncGroup::kBulk: return 2 * num_warps + warp.agent;
    case AsyncGroup::kTensor: return 3 * num_warps + warp.agent;
    case AsyncGroup::kTensorLoad: return 4 * num_warps + warp.agent;
    case AsyncGroup::kTensorStore: return 5 * num_warps + warp.agent;
    case AsyncGroup::kWgmma: break;
  }
  return 6 * num_warps + warp.warp->cta->rank * groups_per_cta + warp.warp->index / 4;
}

bool Hazards::State::knows(const WarpState& warp, int lane, std::uint32_t agent, int by_lane,
                           std::uint32_t time) const {
  if (agent == warp.agent) return by_lane == lane || time <= warp.synced || warp.knows_sibling(lane, by_lane, time);
  if (warp.known.covers(agent, by_lane, time)) return true;
  if ((warp.partial_lanes >> lane & 1) && warp.partial.covers(agent, by_lane, time)) return true;
  // A lane that has waited for its own cp.async knows them. It knows those of its siblings only after they synchronise.
  return agent == group_agent(warp, AsyncGroup::kCopy) && by_lane == lane &&
         time <= warp.groups[static_cast<int>(AsyncGroup::kCopy)].waited;
}

bool Hazards::State::knows_proxy(const WarpState& warp, int lane, std::uint32_t agent, std::uint32_t time) const {
  return warp.known.covers_proxy(agent, time) ||
         ((warp.partial_lanes >> lane & 1) && warp.partial.covers_proxy(agent, time));
}

bool Hazards::State::WarpState::knows_sibling(int lane, int by, std::uint32_t time) const {
  const auto covers = [&](const Clock& clock) { return agent < clock.all.size() && clock.all[agent] >= time; };
  if (covers(known)) return true;
  if (lane < 0 || by < 0) return false;
  return ((partial_lanes >> lane & 1) && covers(partial)) ||
         (heard && (*heard)[static_cast<std::size_t>(lane)][static_cast<std::size_t>(by)] >= time);
}

void Hazards::State::release(WarpState& warp, LaneMask lanes, Clock& clock) {
  clock.join(warp.known);
  if (warp.partial_lanes & lanes) clock.join(warp.partial);
  const bool whole = (lanes & warp.warp->live) == warp.warp->live;
  clock.raise(warp.agent, whole ? warp.now : warp.synced);
  clock.raise(group_agent(warp, AsyncGroup::kCopy),
              whole ? warp.groups[static_cast<int>(AsyncGroup::kCopy)].waited : 0);
  if (!whole) {
    clock.some[warp.agent] = std::max(clock.some[warp.agent], warp.now);
    clock.lanes[warp.agent] |= lanes;
  }
  ++warp.now;
}

void Hazards::State::acquire(WarpState& warp, LaneMask lanes, const Clock& clock) {
  if ((lanes & warp.warp->live) == warp.warp->live) {
    warp.known.join(clock);
    return;
  }
  warp.partial.join(clock);
  warp.partial_lanes |= lanes;
  // Once every lane has waited for its own copies, all lanes know them.
  if ((warp.partial_lanes & warp.warp->live) == warp.warp->live) {
    warp.known.join(warp.partial);
    warp.partial.clear();
    warp.partial_lanes = 0;
  }
}

void Hazards::State::join_lanes(WarpState& warp) {
  warp.synced = warp.now++;
  if (warp.partial_lanes != 0) {
    warp.known.join(warp.partial);
    warp.partial.clear();
    warp.partial_lanes = 0;
  }
  warp.known.raise(group_agent(warp, AsyncGroup::kCopy), warp.groups[static_cast<int>(AsyncGroup::kCopy)].waited);
}

// ---------------------------------------------------------------------------------------------- accesses

void Hazards::State::check_cell(WarpState& warp, int lane, Access access, const AccessRecord& record, ShadowCell& cell,
                                Cta& cta, std::uint32_t offset, std::uint32_t size) {
  const AccessRecord& write = cell.write;
  const auto where = [&] { return name_of_shared(notes, *launch.program, offset); };
  const auto conflict = [&](const AccessRecord& other, Access earlier) {
    // Memory holds what the last ordinary store wrote. An asynchronous write may not be performed yet.
    const bool stores = access == Access::kWrite && earlier == access && other.agent < warps.size() && !other.atomic;
    const bool equal = stores && !other.async_proxy && stores_what_is_there(cta, offset, size);
    const HazardRule rule = rule_of_race(warp, lane, other, equal);
    const char* more = other.agent == warp.agent ? " by another lane of the warp: no bar.warp.sync between them" : "";
    if (rule == HazardRule::kLaneRelease)
      more = ": another lane of its warp released, and no bar.warp.sync before that";
    if (rule == HazardRule::kEqualValues) more = ", and both write the same value";
    report(rule, *warp.warp, lane,
           fmt::format("a {} is not ordered after a {} of the same bytes{}", name_of_access(access),
                       name_of_access(earlier), more),
           where(), &other);
  };
  if (write.bytes == 0) {
    if (access == Access::kRead && offset >= kSharedBase)  // the system zeroes what is below
      report(HazardRule::kUnwrittenShared, *warp.warp, lane, "shared memory is read that nothing has written", where());
  } else if ((write.bytes & record.bytes) && !(write.atomic && record.atomic)) {
    // One instruction may write the same word from several lanes.
    const bool same_instruction = write.agent == record.agent && write.op == record.op && write.time == record.time;
    if (!knows(warp, lane, write.agent, write.lane, write.time)) {
      if (!same_instruction) conflict(write, Access::kWrite);
    } else if (record.async_proxy && !write.async_proxy && !knows_proxy(warp, lane, write.agent, write.time)) {
      // The ISA does not say by which proxy an allocation writes its address.
      const bool allocation = launch.program->entry->instructions[write.op].opcode.starts_with("tcgen05.alloc");
      const bool overwrites = allocation && access == Access::kWrite;
      const char* writer = allocation ? "tcgen05.alloc" : write.agent < warps.size() ? "ordinary stores" : "cp.async";
      report(overwrites ? HazardRule::kAllocationProxyFence : HazardRule::kProxyFence, *warp.warp, lane,
             fmt::format("an asynchronous {} of bytes that were written with {}: no fence.proxy.async between them",
                         name_of_access(access), writer),
             where(), &write);
    }
  }
  if (access == Access::kWrite) {
    for (const AccessRecord& read : cell.reads)
      if ((read.bytes & record.bytes) && !(read.atomic && record.atomic) &&
          !knows(warp, lane, read.agent, read.lane, read.time) &&
          !(read.agent == record.agent && read.op == record.op && read.time == record.time))
        conflict(read, Access::kRead);
    const std::uint8_t bytes = write.bytes | record.bytes;
    cell.write = record;
    cell.write.bytes = bytes;
    for (AccessRecord& read : cell.reads) {
      read.bytes &= static_cast<std::uint8_t>(~record.bytes);
    }
    return;
  }
  // Keep the reader: in the place of the same agent's, a free place, or of one that is ordered before this read.
  AccessRecord* place = nullptr;
  for (AccessRecord& read : cell.reads) {
    if (read.bytes != 0 && read.agent == record.agent && (read.lane == record.lane || read.time == record.time)) {
      const auto bytes = static_cast<std::uint8_t>(read.bytes | record.bytes);
      read = record;
      read.bytes = bytes;
      return;
    }
    if (read.bytes == 0 && !place) place = &read;
  }
  for (AccessRecord& read : cell.reads)
    if (!place && knows(warp, lane, read.agent, read.lane, read.time)) place = &read;
  if (!place) place = &cell.reads[offset / 16 % ShadowCell::kReaders];
  *place = record;
}

HazardRule Hazards::State::rule_of_race(const WarpState& warp, int lane, const AccessRecord& other,
                                        bool equal_values) const {
  if (equal_values) return HazardRule::kEqualValues;
  if (other.agent == warp.agent) return HazardRule::kLaneRace;
  const bool released = warp.known.covers_some(other.agent, other.time) ||
                        ((warp.partial_lanes >> lane & 1) && warp.partial.covers_some(other.agent, other.time));
  return other.together && released ? HazardRule::kLaneRelease : HazardRule::kSharedRace;
}

bool Hazards::State::stores_what_is_there(const Cta& cta, std::uint32_t offset, std::uint32_t size) const {
  return stored && std::memcmp(stored + (offset - stored_at), cta.shared.data() + offset, size) == 0;
}

void Hazards::State::check(WarpState& warp, int lane, Access access, const AccessRecord& record, Cta& cta,
                           std::uint32_t offset, std::uint32_t bytes) {
  check_lives(warp, lane, cta, offset);
  shadow(cta).visit(offset, bytes, access == Access::kWrite,
                    [&](ShadowCell& cell, std::uint8_t mask, std::uint32_t at, std::uint32_t size) {
                      AccessRecord part = record;
                      part.bytes = mask;
                      check_cell(warp, lane, access, part, cell, cta, at, size);
                    });
}

Hazards::Hazards(Cluster& cluster, const Launch& launch, const LaunchNotes* notes, HazardLog& log)
    : state_(std::make_unique<State>(cluster, launch, notes, log)) {}
Hazards::~Hazards() {
  // A hazard seen more than once adds to the count; its text is there already.
  const auto line = [&](std::uint32_t op) { return place_of(*state_->launch.program, op).line; };
  for (const auto& [key, count] : state_->reported)
    state_->log.add_count(std::get<0>(key), line(std::get<1>(key)), line(std::get<2>(key)), count);
}

void Hazards::access(Warp& warp, int lane, Access access, const SharedPlace& place, std::uint32_t bytes,
                     const std::byte* stored) {
  State::WarpState& state = state_->of(warp);
  const AccessRecord record{.time = state.now,
                            .op = warp.current->index,
                            .agent = state.agent,
                            .issuer = state.agent,
                            .lane = static_cast<std::uint8_t>(lane),
                            .together = warp.current_lanes == warp.live};
  state_->stored = stored;
  state_->stored_at = place.offset;
  state_->check(state, lane, access, record, *place.cta, place.offset, bytes);
  state_->stored = nullptr;
  if (access != Access::kRead || state_->answers.empty()) return;
  if (const auto answer = state_->answers.find({place.cta->rank, place.offset / 16}); answer != state_->answers.end()) {
    std::erase_if(answer->second, [&](const AccessRecord& before) {
      return before.agent == record.agent && before.lane == record.lane;
    });
    answer->second.push_back(record);
  }
}

void Hazards::answer_wanted(Warp& warp, int lane, Cta& cta, std::uint32_t offset) {
  State::WarpState& state = state_->of(warp);
  std::vector<AccessRecord>& reads = state_->answers[{cta.rank, offset / 16}];
  for (const AccessRecord& read : reads)
    if (state_->knows(state, lane, read.agent, read.lane, read.time) &&  // without this order the two accesses race
        !state_->knows_proxy(state, lane, read.agent, read.time))
      state_->report(HazardRule::kAnswerProxyFence, warp, lane,
                     "an answer is asked for where one was read with ordinary loads: no fence.proxy.async between them",
                     name_of_shared(state_->notes, *state_->launch.program, offset), &read);
  reads.clear();
}

void Hazards::access_atomic(Warp& warp, int lane, const SharedPlace& place, std::uint32_t bytes) {
  State::WarpState& state = state_->of(warp);
  const AccessRecord record{.time = state.now,
                            .op = warp.current->index,
                            .agent = state.agent,
                            .issuer = state.agent,
                            .lane = static_cast<std::uint8_t>(lane),
                            .atomic = true};
  state_->check(state, lane, Access::kWrite, record, *place.cta, place.offset, bytes);
}

void Hazards::access_async(Warp& warp, int lane, Access access, Proxy proxy, AsyncAgent agent, Cta& cta,
                           std::uint32_t offset, std::uint32_t bytes) {
  State::WarpState& state = state_->of(warp);
  const AccessRecord record{.time = agent.clock,
                            .op = warp.current->index,
                            .agent = static_cast<std::uint16_t>(agent.agent),
                            .issuer = state.agent,
                            .lane = static_cast<std::uint8_t>(lane),
                            .async_proxy = proxy == Proxy::kAsync};
  state_->check(state, lane, access, record, cta, offset, bytes);
}

void Hazards::access_global(Warp& warp, int lane, Access access, std::uint64_t address, std::uint64_t bytes) {
  const Launch& launch = state_->launch;
  const GlobalMemory::Allocation* allocation = state_->last_allocation;
  if (!allocation || address < allocation->begin || address >= allocation->end)
    allocation = state_->last_allocation = launch.memory->find(address);
  if (!allocation || allocation->users.empty()) return;
  const bool early = (launch.depends_on != 0 || launch.depends_on_all) && !state_->knows_ahead(state_->of(warp), lane);
  const auto missing = [&](std::string_view what) {
    state_->report(HazardRule::kGridDependency, warp, lane,
                   fmt::format("{} bytes are {} {}: griddepcontrol.wait has not been passed", bytes,
                               access == Access::kWrite ? "written" : "read", what));
  };
  if (early && launch.depends_on_all) return missing("that any launch ahead may use");
  const auto ahead = [&](std::uint32_t& user) {
    return early && std::atomic_ref(user).load(std::memory_order_relaxed) == launch.depends_on;
  };
  // Many read a flag that few set. Writing it again would take the line from the caches of the other cores.
  const auto note = [&](std::uint32_t& user) {
    const std::atomic_ref<std::uint32_t> last(user);
    if (last.load(std::memory_order_relaxed) != launch.number) last.store(launch.number, std::memory_order_relaxed);
  };
  const std::uint64_t first = (address - allocation->begin) / kUserGranule,
                      last = (address + bytes - 1 - allocation->begin) / kUserGranule;
  for (std::uint64_t at = first; at <= last; ++at) {
    GlobalMemory::Users& users = allocation->users[at];
    if (ahead(users.writer)) return missing("that the launch ahead writes");
    if (access == Access::kWrite && ahead(users.reader)) return missing("that the launch ahead reads");
    note(access == Access::kWrite ? users.writer : users.reader);
  }
}

// ---------------------------------------------------------------------------------------------- groups

AsyncAgent Hazards::of_group(Warp& warp, AsyncGroup group) {
  State::WarpState& state = state_->of(warp);
  State::Groups& groups = state.groups[static_cast<int>(group)];
  groups.open = true;
  groups.last_op = warp.current->index;
  if (group == AsyncGroup::kWgmma) state.wgmma_issued = state.now++;
  return {state_->group_agent(state, group), groups.committed + 1};
}

void Hazards::commit_group(Warp& warp, AsyncGroup group) {
  State::WarpState& state = state_->of(warp);
  State::Groups& groups = state.groups[static_cast<int>(group)];
  ++groups.committed;
  if (group == AsyncGroup::kWgmma) {
    if (state.wgmma_issues.size() == State::WarpState::kMostIssues) state.wgmma_issues.pop_front();
    state.wgmma_issues.push_back({groups.committed, state.wgmma_issued});
  }
  if (groups.open) groups.filled = groups.committed;
  groups.open = false;
}

void Hazards::wait_group(Warp& warp, LaneMask lanes, AsyncGroup group, std::uint32_t allowed) {
  State::WarpState& state = state_->of(warp);
  State::Groups& groups = state.groups[static_cast<int>(group)];
  const std::uint32_t done = groups.committed - std::min(allowed, groups.committed);
  groups.waited = std::max(groups.waited, done);
  if (group == AsyncGroup::kCopy) return;  // see knows(): each lane knows its own copies until the lanes synchronise
  Clock clock;
  clock.raise(state_->group_agent(state, group), done);
  if (group == AsyncGroup::kWgmma) state_->pass_issues(state, done, clock);
  state_->acquire(state, lanes, clock);
  if (group == AsyncGroup::kWgmma)
    std::erase_if(state.busy, [&](const auto& entry) { return entry.second.group <= done; });
}

// ---------------------------------------------------------------------------------------------- synchronisation

void Hazards::wait_for_launches_ahead(Warp& warp, LaneMask lanes) {
  Clock clock;
  clock.ahead = true;
  state_->acquire(state_->of(warp), lanes, clock);
}

void Hazards::sync_lanes(Warp& warp, LaneMask lanes) {
  // An arrival by several lanes counts for the whole warp. This can hide a hazard but never invent one.
  if (count_lanes(lanes) > 1 || lanes == warp.live) state_->join_lanes(state_->of(warp));
}

void Hazards::fence_proxy_async(Warp& warp, LaneMask lanes) {
  State::WarpState& state = state_->of(warp);
  state.known.publish();
  if (state.partial_lanes & lanes) state.partial.publish();
  // A lane publishes the copies that it has waited for. Those of one lane count for all lanes, which can only hide a
  // hazard.
  const std::size_t copies = state_->group_agent(state, AsyncGroup::kCopy);
  if (state.known.proxy.size() <= copies) state.known.proxy.resize(copies + 1);
  state.known.proxy[copies] =
      std::max(state.known.proxy[copies], state.groups[static_cast<int>(AsyncGroup::kCopy)].waited);
  if ((lanes & warp.live) == warp.live) {
    state.known.proxy[state.agent] = state.now;
  } else {
    state.known.proxy[state.agent] = std::max(state.known.proxy[state.agent], state.synced);
    state.partial.resize(state_->warps.size(), state_->warps.size());
    state.partial.proxy[state.agent] = state.now;
    state.partial_lanes |= lanes;
  }
  ++state.now;
  fence_mbarrier_init(warp, lanes);
}

void Hazards::barrier_arrive(Warp& warp, LaneMask lanes, const void* barrier) {
  State::WarpState& state = state_->of(warp);
  State::Barrier& object = state_->barriers[barrier];
  state_->join_lanes(state);  // the lanes of a warp arrive together
  state_->release(state, lanes, object.gathering);
}

void Hazards::barrier_complete(const void* barrier) {
  State::Barrier& object = state_->barriers[barrier];
  object.done = object.gathering;
  object.gathering.clear();
}

void Hazards::barrier_observe(Warp& warp, LaneMask lanes, const void* barrier) {
  state_->acquire(state_->of(warp), lanes, state_->barriers[barrier].done);
}

}  // namespace kernelwright::emulator
