// The clusters of one launch may communicate through global memory. This file checks plain accesses of a lane to what
// another lane (of any cluster) has written, and follows the words and fences that order them.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernelwright/runtime/emulator/checker/hazards_state.h"

namespace kernelwright::emulator {

ClusterTimes Hazards::State::released_by(WarpState& warp, LaneMask lanes) {
  Clock own;
  release(warp, lanes, own);
  ClusterTimes released = std::move(own.others);
  released[cluster.id] = std::move(static_cast<Times&>(own));
  return released;
}

void Hazards::State::acquire_global(WarpState& warp, LaneMask lanes, const ClusterTimes& released) {
  Clock clock;
  clock.resize(warps.size(), warps.size());
  clock.others = released;
  if (const auto own = clock.others.find(cluster.id); own != clock.others.end()) {
    static_cast<Times&>(clock).join(own->second);
    clock.others.erase(own);
  }
  acquire(warp, lanes, clock);
}

bool Hazards::State::knows_global(const WarpState& warp, int lane, const GlobalWrite& write) const {
  if (write.cluster == cluster.id) {
    if (knows(warp, lane, write.agent, write.lane, write.time)) return true;
    // A lane can acquire what its sibling has released.
    return write.agent == warp.agent && (warp.partial_lanes >> lane & 1) &&
           warp.partial.covers(write.agent, write.lane, write.time);
  }
  return warp.known.covers_other(write.cluster, write.agent, write.lane, write.time) ||
         ((warp.partial_lanes >> lane & 1) &&
          warp.partial.covers_other(write.cluster, write.agent, write.lane, write.time));
}

void Hazards::exchange_global(Warp& warp, int lane, Access access, std::uint64_t address, std::uint64_t bytes,
                              std::uint8_t uses, const std::byte* stored) {
  GlobalShadow* const shadow = state_->launch.exchange;
  if (!shadow) return;
  State::WarpState& state = state_->of(warp);
  const bool strong = uses & kStrongUse, writes = access == Access::kWrite;
  if (strong && !writes)
    if (const auto word = shadow->released.find(address); word != shadow->released.end()) {
      if (uses & kOrderingUse) state_->acquire_global(state, LaneMask{1} << lane, word->second.times);
      join(state.seen_global, word->second.times);
      join(state.seen_maps, word->second.maps);
    }
  const std::uint32_t op = warp.current->index;
  // The memory still holds what was written before.
  const auto equal = [&](std::uint64_t at, std::uint8_t mask) {
    return stored && std::memcmp(stored + (at - address), reinterpret_cast<const std::byte*>(at),
                                 static_cast<std::size_t>(std::popcount(mask))) == 0;
  };
  shadow->visit(address, bytes, [&](GlobalWrite& write, std::uint8_t mask, std::uint64_t at) {
    const bool same_warp = write.cluster == state_->cluster.id && write.agent == state.agent;
    if ((write.bytes & mask) && !(write.strong && strong) && !state_->knows_global(state, lane, write)) {
      const HazardRule race = same_warp ? HazardRule::kLaneRace : HazardRule::kGlobalRace;
      state_->report_global(equal(at, mask) ? HazardRule::kEqualValues : race, warp, lane, access, address, write);
    }
    if (!writes) return;
    write.cluster = state_->cluster.id;
    write.time = state.now, write.op = op;
    write.agent = state.agent, write.lane = static_cast<std::uint8_t>(lane);
    write.bytes = mask & 0xf, write.strong = strong;
  });
  if (!strong || !writes) return;
  GlobalShadow::Released& word = shadow->released[address];
  // A thread's store to a word adds to what the same thread has released there before: the ISA's release pattern.
  const auto by_lane = static_cast<std::uint8_t>(lane);
  const bool own = word.cluster == state_->cluster.id && word.agent == state.agent && word.lane == by_lane;
  if (!(uses & kAtomicUse) && !own) word.times.clear(), word.maps.clear();
  word.cluster = state_->cluster.id, word.agent = state.agent, word.lane = by_lane;
  join(word.times, state.fenced_global);
  join(word.maps, state.fenced_maps);
  if (uses & kOrderingUse) join(word.times, state_->released_by(state, LaneMask{1} << lane));
}

void Hazards::fence_global(Warp& warp, LaneMask lanes) {
  if (!state_->launch.exchange) return;
  State::WarpState& state = state_->of(warp);
  state_->acquire_global(state, lanes, state.seen_global);
  join(state.fenced_global, state_->released_by(state, lanes));
}

void Hazards::State::report_global(HazardRule rule, const Warp& warp, int lane, Access access, std::uint64_t address,
                                   const GlobalWrite& write) {
  std::uint64_t& count = reported[{rule, warp.current->index, write.op}];
  if (++count > 1) return;
  HazardReport made;
  made.rule = rule;
  made.kind = row_of(rule).kind;
  made.what =
      fmt::format("a {} of global memory is not ordered after a write of the same bytes{}",
                  access == Access::kWrite ? "write" : "read",
                  rule == HazardRule::kEqualValues ? ", and both write the same value"
                  : write.cluster == cluster.id    ? ""
                                                   : ": nothing that its warp has acquired was released behind it");
  if (const GlobalMemory::Allocation* allocation = launch.memory->find(address))
    made.where = fmt::format("{} bytes into an {}", address - allocation->begin, allocation->what);
  made.first = side_of(notes, warp, lane, warp.current->index);
  made.second = side_of_write(write);
  log.add(std::move(made));
}

HazardSide Hazards::State::side_of_write(const GlobalWrite& write) const {
  const std::uint32_t rank = write.agent / warps_per_cta;
  std::uint32_t rest[2] = {write.cluster, rank}, cta[3];
  for (int i = 0; i < 3; ++i) {
    const std::uint32_t clusters = launch.grid[i] / launch.cluster[i];
    cta[i] = rest[0] % clusters * launch.cluster[i] + rest[1] % launch.cluster[i];
    rest[0] /= clusters, rest[1] /= launch.cluster[i];
  }
  return side_of(notes, *launch.program, cta, write.agent % warps_per_cta, write.lane, write.op);
}

}  // namespace kernelwright::emulator
