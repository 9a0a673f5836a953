// Tensor maps that kernels write. A use of a map is checked when the copy is issued. Each write of the map's bytes
// needs a release fence behind it, and an acquire fence of the map behind that. The acquire is by a thread of the CTA
// that uses the map, and the user has synchronised with this thread.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/emulator/checker/hazards_state.h"

namespace kernelwright::emulator {
namespace {

constexpr const char* kRelease = "no fence.proxy.tensormap::generic.release or tensormap.cp_fenceproxy";
constexpr const char* kAcquire = "no fence.proxy.tensormap::generic.acquire of the map by a thread of the CTA";

bool same(const GlobalWrite& a, const GlobalWrite& b) {
  return a.cluster == b.cluster && a.agent == b.agent && a.lane == b.lane && a.time == b.time && a.op == b.op;
}

/// The writes of this launch to the map at `address`. Each is listed once.
std::vector<GlobalWrite> writes_of(GlobalShadow& shadow, std::uint64_t address) {
  std::vector<GlobalWrite> found;
  shadow.visit(address, sizeof(TensorMap), [&](const GlobalWrite& write, std::uint8_t, std::uint64_t) {
    const auto known = [&](const GlobalWrite& other) { return same(write, other); };
    if (write.bytes != 0 && std::none_of(found.begin(), found.end(), known)) found.push_back(write);
  });
  return found;
}

}  // namespace

bool Hazards::State::knows_fence(const WarpState& warp, int lane, const TensorMapFences::Event& fence,
                                 const ClusterTimes* more) const {
  if (fence.cluster == cluster.id && fence.agent == warp.agent)
    return (fence.lanes >> lane & 1) != 0 || fence.time <= warp.synced;
  const auto also = more ? more->find(fence.cluster) : ClusterTimes::const_iterator();
  for (std::uint32_t left = fence.lanes; left != 0; left &= left - 1) {
    GlobalWrite at;
    at.cluster = fence.cluster, at.time = fence.time, at.agent = fence.agent;
    at.lane = static_cast<std::uint8_t>(__builtin_ctz(left));
    if (knows_global(warp, lane, at)) return true;
    if (more && also != more->end() && also->second.covers(at.agent, at.lane, at.time)) return true;
  }
  return false;
}

const TensorMapFences::Release* Hazards::State::release_of(const WarpState& warp, int lane, const GlobalWrite& write,
                                                           FenceScope acquiring) const {
  const auto reaches = [&](const TensorMapFences::Event& fence) {
    if (fence.cluster != cluster.id) return std::min(fence.scope, acquiring) >= FenceScope::kGpu;
    if (fence.agent / warps_per_cta != warp.agent / warps_per_cta)
      return std::min(fence.scope, acquiring) >= FenceScope::kCluster;
    return true;
  };
  for (const auto& [who, releases] : launch.exchange->maps.releases)
    for (auto release = releases.rbegin(); release != releases.rend(); ++release) {
      const auto covered = release->covered.find(write.cluster);
      if (covered != release->covered.end() && covered->second.covers(write.agent, write.lane, write.time) &&
          reaches(*release) && knows_fence(warp, lane, *release, &warp.seen_maps))
        return &*release;
    }
  return nullptr;
}

void Hazards::tensor_map_written(Warp& warp, int lane, std::uint64_t address) {
  if (state_->launch.exchange) state_->check_edit(warp, lane, address);
  access_global(warp, lane, Access::kWrite, address, sizeof(TensorMap));
  exchange_global(warp, lane, Access::kWrite, address, sizeof(TensorMap), kWeakUse);
  auto& edits = state_->launch.map_edits->edits;
  if (edits.size() >= TensorMapEdits::kMost && !edits.contains(address)) return;
  TensorMapEdits::Edit& edit = edits[address];
  edit.launch = state_->launch.number;
  edit.released = false;
  edit.by = side_of(state_->notes, warp, lane, warp.current->index);
}

void Hazards::State::check_edit(const Warp& warp, int lane, std::uint64_t address) {
  const auto uses = map_uses.find(address);
  if (uses == map_uses.end()) return;
  const WarpState& state = warps[warp_agent(warp)];
  const GlobalMemory::Allocation* allocation = launch.memory->find(address);
  const auto find = [&] { return fmt::format("{} bytes into an {}", address - allocation->begin, allocation->what); };
  for (const TensorMapUse& use : uses->second)
    if (!knows(state, lane, use.agent, use.lane, use.time))
      report_map(HazardRule::kMapInUse, warp, lane, find(), use.op,
                 side_of(notes, *warps[use.issuer].warp, use.lane, use.op),
                 "a tensor map is edited, and a copy may still read it");
}

void Hazards::tensor_map_released(Warp& warp, LaneMask lanes, FenceScope scope) {
  GlobalShadow* const shadow = state_->launch.exchange;
  if (!shadow) return;
  State::WarpState& state = state_->of(warp);
  TensorMapFences::Release release;
  release.cluster = state_->cluster.id, release.agent = state.agent;
  release.time = state.now, release.lanes = lanes, release.scope = scope;
  release.covered = state_->released_by(state, lanes);
  join(state.fenced_maps, release.covered);
  for (auto& [address, edit] : state_->launch.map_edits->edits) {
    if (edit.launch != state_->launch.number || edit.released) continue;
    const std::vector<GlobalWrite> writes = writes_of(*shadow, address);
    edit.released = std::all_of(writes.begin(), writes.end(), [&](const GlobalWrite& write) {
      const auto covered = release.covered.find(write.cluster);
      return covered != release.covered.end() && covered->second.covers(write.agent, write.lane, write.time);
    });
  }
  TensorMapFences::keep(shadow->maps.releases[{release.cluster, release.agent}], std::move(release));
}

void Hazards::tensor_map_acquired(Warp& warp, LaneMask lanes, std::uint64_t address, FenceScope scope) {
  GlobalShadow* const shadow = state_->launch.exchange;
  if (!shadow) return;
  const GlobalMemory::Allocation* allocation = state_->launch.memory->find(address);
  if (!allocation || allocation->end - address < sizeof(TensorMap)) return;  // no map can be there
  State::WarpState& state = state_->of(warp);
  const std::vector<GlobalWrite> writes = writes_of(*shadow, address);
  // Lanes that have waited alone know more than their siblings.
  for (const LaneMask group : {lanes & state.partial_lanes, lanes & ~state.partial_lanes}) {
    if (group == 0) continue;
    TensorMapFences::Acquire acquire;
    acquire.cluster = state_->cluster.id, acquire.agent = state.agent;
    acquire.time = state.now, acquire.lanes = group, acquire.scope = scope;
    for (const GlobalWrite& write : writes)
      if (state_->release_of(state, __builtin_ctz(group), write, scope)) acquire.covered.push_back(write);
    TensorMapFences::keep(shadow->maps.acquires[address][{acquire.cluster, acquire.agent}], std::move(acquire));
  }
}

template <class Wanted>
bool Hazards::State::acquired(const WarpState& warp, int lane, std::uint64_t address, Wanted&& wanted) const {
  const auto of_map = launch.exchange->maps.acquires.find(address);
  if (of_map == launch.exchange->maps.acquires.end()) return false;
  for (const auto& [who, acquires] : of_map->second) {
    if (who.first != cluster.id || who.second / warps_per_cta != warp.agent / warps_per_cta) continue;
    for (const TensorMapFences::Acquire& acquire : acquires)
      if (wanted(acquire) && knows_fence(warp, lane, acquire, nullptr)) return true;
  }
  return false;
}

void Hazards::tensor_map_held(Warp& warp, int lane, std::uint64_t address, AsyncAgent agent) {
  std::vector<TensorMapUse>& uses = state_->map_uses[address];
  auto use = std::find_if(uses.begin(), uses.end(), [&](const auto& known) { return known.agent == agent.agent; });
  if (use == uses.end()) use = uses.emplace(uses.end());
  *use = {.agent = agent.agent,
          .time = agent.clock,
          .op = warp.current->index,
          .issuer = state_->of(warp).agent,
          .lane = static_cast<std::uint8_t>(lane)};
}

bool Hazards::tensor_map_used(Warp& warp, int lane, std::uint64_t address) {
  const Launch& launch = state_->launch;
  const GlobalMemory::Allocation* allocation = launch.memory->find(address);
  if (!allocation || allocation->users.empty()) return false;  // parameters, or memory that no kernel writes
  std::uint32_t writer = 0, earlier = 0;  // launches that wrote a part of the map: the last, and the last before this
  const std::uint64_t first = (address - allocation->begin) / kUserGranule;
  for (std::uint64_t at = first; at < first + sizeof(TensorMap) / kUserGranule; ++at) {
    const std::uint32_t by = std::atomic_ref(allocation->users[at].writer).load(std::memory_order_relaxed);
    writer = std::max(writer, by);
    if (by != launch.number) earlier = std::max(earlier, by);
  }
  if (writer == 0) return launch.exchange != nullptr;  // the host made the map
  State::WarpState& state = state_->of(warp);
  const auto find = [&] { return fmt::format("{} bytes into an {}", address - allocation->begin, allocation->what); };
  if (!launch.exchange) {  // the kernel has no such fence at all
    state_->report_map(HazardRule::kMapProxyFence, warp, lane, find(), kNoOp, {},
                       fmt::format("a copy uses a tensor map that a kernel wrote: {}", kAcquire));
    return false;
  }
  if (earlier != 0) state_->check_earlier_map(warp, lane, address, earlier, find());
  for (const GlobalWrite& write : writes_of(*launch.exchange, address)) {
    const auto covers = [&](const TensorMapFences::Acquire& acquire) {
      return std::any_of(acquire.covered.begin(), acquire.covered.end(),
                         [&](const GlobalWrite& covered) { return same(write, covered); });
    };
    if (state_->acquired(state, lane, address, covers)) continue;
    const bool released = state_->release_of(state, lane, write, FenceScope::kGpu) != nullptr;
    if (!released && !state_->knows_global(state, lane, write))
      state_->report_map(HazardRule::kGlobalRace, warp, lane, find(), write.op, state_->side_of_write(write),
                         "a copy uses a tensor map, and a write of the map is not ordered ahead of it");
    else
      state_->report_map(HazardRule::kMapProxyFence, warp, lane, find(), write.op, state_->side_of_write(write),
                         fmt::format("a copy uses a tensor map that the kernel wrote: {} between them",
                                     released ? kAcquire : kRelease));
  }
  return true;
}

void Hazards::State::check_earlier_map(const Warp& warp, int lane, std::uint64_t address, std::uint32_t writer,
                                       const std::string& where) {
  const auto edit = launch.map_edits->edits.find(address);
  const bool known = edit != launch.map_edits->edits.end() && edit->second.launch == writer;
  const HazardSide by = known ? edit->second.by : HazardSide();
  const auto report_missing = [&](const char* fence) {
    report_map(HazardRule::kMapProxyFence, warp, lane, where, kNoOp, by,
               fmt::format("a copy uses a tensor map that an earlier launch wrote: {} between them", fence));
  };
  if (known && !edit->second.released) return report_missing(kRelease);
  const auto any = [](const TensorMapFences::Acquire&) { return true; };
  if (!acquired(warps[warp_agent(warp)], lane, address, any)) report_missing(kAcquire);
}

void Hazards::State::report_map(HazardRule rule, const Warp& warp, int lane, std::string where, std::uint32_t other_op,
                                const HazardSide& other, std::string what) {
  std::uint64_t& count = reported[{rule, warp.current->index, other_op}];
  if (++count > 1) return;
  HazardReport made;
  made.rule = rule;
  made.kind = row_of(rule).kind;
  made.what = std::move(what);
  made.where = std::move(where);
  made.first = side_of(notes, warp, lane, warp.current->index);
  made.second = other;
  log.add(std::move(made));
}

}  // namespace kernelwright::emulator
