// A trace in words: its slices, and which role waits for what.
#include "kernelwright/runtime/emulator/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace kernelwright::emulator {

namespace {

std::string size_text(std::uint64_t bytes) {
  return bytes >= 1024 ? fmt::format("{:.4g} KB", static_cast<double>(bytes) / 1024) : fmt::format("{} B", bytes);
}

std::string without_stage(const std::string& name) { return name.substr(0, name.find('[')); }

}  // namespace

std::string TraceSlice::text() const {
  switch (kind) {
    case SliceKind::kWork: return "work";
    case SliceKind::kArrive: return "arrive " + name;
    case SliceKind::kWait: return "wait " + name;
    case SliceKind::kMma: {
      const char* opcode = name.starts_with("m64") ? "wgmma" : "mma";
      return amount > 1 ? fmt::format("{} {} x{}", opcode, name, amount) : fmt::format("{} {}", opcode, name);
    }
    case SliceKind::kCopy: return fmt::format("load {} {}", name, size_text(amount));
    case SliceKind::kStore: return fmt::format("store {} {}", name, size_text(amount));
  }
  return name;
}

std::vector<std::uint32_t> role_tracks(const Trace& trace, std::uint32_t cta) {
  std::vector<std::uint64_t> busy(trace.tracks.size());
  for (const TraceSlice& slice : trace.slices)
    if (slice.kind != SliceKind::kWait) busy[slice.track] += slice.end - slice.begin;
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t i = 0; i < trace.tracks.size(); ++i) {
    const TraceTrack& track = trace.tracks[i];
    if (track.kind != TraceTrack::Kind::kWarp || track.cta != cta) continue;
    const auto known =
        std::ranges::find_if(chosen, [&](std::uint32_t c) { return trace.tracks[c].role == track.role; });
    if (known == chosen.end())
      chosen.push_back(i);
    else if (busy[i] > busy[*known])
      *known = i;
  }
  std::erase_if(chosen, [&](std::uint32_t track) { return busy[track] == 0; });
  return chosen;
}

std::vector<RoleWaits> waits_by_role(const Trace& trace, std::uint32_t cta) {
  std::vector<RoleWaits> all;
  for (const std::uint32_t track : role_tracks(trace, cta)) {
    RoleWaits& role = all.emplace_back();
    role.role = trace.tracks[track].role.empty() ? trace.tracks[track].name : trace.tracks[track].role;
    std::map<std::string, std::uint64_t> places;
    std::uint64_t end = 1;
    for (const TraceSlice& slice : trace.slices) {
      if (slice.track != track) continue;
      end = std::max(end, slice.end);
      if (slice.kind == SliceKind::kWait) places[without_stage(slice.name)] += slice.end - slice.begin;
    }
    for (const auto& [name, cycles] : places) {
      const double share = static_cast<double>(cycles) / static_cast<double>(end);
      role.waiting += share;
      role.places.push_back({name, share});
    }
    std::ranges::stable_sort(role.places, std::greater<>{}, &RoleWaits::Place::share);
  }
  return all;
}

}  // namespace kernelwright::emulator
