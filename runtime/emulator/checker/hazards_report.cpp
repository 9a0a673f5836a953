// The checker at the end of a warp, and how it makes its reports.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/checker/hazards_state.h"

namespace kernelwright::emulator {

AccessRecord Hazards::State::WarpState::record_of(int lane) const {
  AccessRecord record{.time = now, .op = warp->current->index, .agent = agent, .issuer = agent};
  record.lane = static_cast<std::uint8_t>(lane);
  return record;
}

void Hazards::warp_exit(Warp& warp, LaneMask) {
  State::WarpState& state = state_->of(warp);
  constexpr const char* kNames[] = {"cp.async", "bulk copies", "wgmma", "tcgen05", "tcgen05.ld", "tcgen05.st"};
  constexpr HazardRule kRules[] = {HazardRule::kCopyAtExit,       HazardRule::kBulkStoreAtExit,
                                   HazardRule::kWgmmaAtExit,      HazardRule::kTensorWorkAtExit,
                                   HazardRule::kTensorLoadAtExit, HazardRule::kTensorStoreAtExit};
  for (const auto& [slot, unwritten] : state.unwritten) state_->note_unused(state, unwritten);
  state.unwritten.clear();
  for (int family = 0; family < kNumAsyncGroups; ++family) {
    const State::Groups& groups = state.groups[family];
    if (!groups.open && std::max(groups.waited, groups.attached) >= groups.filled) continue;
    state_->report_pair(kRules[family], warp, -1, groups.last_op,
                        groups.open ? fmt::format("a warp exits with {} that were never committed", kNames[family])
                                    : fmt::format("a warp exits without waiting for {} of its groups of {}",
                                                  groups.filled - groups.waited, kNames[family]),
                        "", kNoOp, -1, -1);
  }
}

void Hazards::report(HazardRule rule, Warp& warp, LaneMask lanes, const std::string& text) {
  state_->report(rule, warp, count_lanes(lanes) == 1 ? first_lane(lanes) : -1, text);
}

void Hazards::State::report(HazardRule rule, const Warp& warp, int lane, std::string what, std::string where,
                            const AccessRecord* other) {
  report_pair(rule, warp, lane, warp.current->index, std::move(what), std::move(where), other ? other->op : kNoOp,
              other ? other->issuer : -1, other ? other->lane : -1);
}

void Hazards::State::report_pair(HazardRule rule, const Warp& warp, int lane, std::uint32_t op, std::string what,
                                 std::string where, std::uint32_t other_op, int other_warp, int other_lane) {
  std::uint64_t& count = reported[{rule, op, other_op}];
  if (++count > 1) return;
  HazardReport made;
  made.rule = rule;
  made.kind = row_of(rule).kind;
  made.what = std::move(what);
  made.where = std::move(where);
  made.first = side_of(notes, warp, lane, op);
  if (other_op != kNoOp && other_warp >= 0)
    made.second = side_of(notes, *warps[static_cast<std::size_t>(other_warp)].warp, other_lane, other_op);
  log.add(std::move(made));
}

}  // namespace kernelwright::emulator
