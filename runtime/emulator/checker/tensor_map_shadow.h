/// What the checker remembers of tensor maps that kernels write. A copy reads its map through the tensormap proxy. So a
/// map that a kernel wrote needs two fences: a release after the write, then an acquire in the CTA that uses the map.
/// See PTX ISA "membar/fence", fence.proxy.tensormap::generic.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "kernelwright/runtime/emulator/checker/clock.h"
#include "kernelwright/runtime/emulator/checker/global_write.h"
#include "kernelwright/runtime/emulator/checker/hazard_report.h"

namespace kernelwright::emulator {

/// Scopes of a fence, from narrow to wide.
enum class FenceScope : std::uint8_t { kCta, kCluster, kGpu };

/// The fences of one launch.
struct TensorMapFences {
  /// A fence that `lanes` of a warp have executed together, at a time by the warp's clock.
  struct Event {
    std::uint32_t cluster = 0, time = 0;
    std::uint16_t agent = 0;
    std::uint32_t lanes = 0;
    FenceScope scope = FenceScope::kGpu;
  };
  struct Release : Event {
    ClusterTimes covered;  // the writes ahead of the fence
  };
  struct Acquire : Event {
    std::vector<GlobalWrite> covered;  // the writes to the map that a release had made visible to this fence
  };
  static constexpr std::size_t kKept = 64;               // of each warp: the newest
  using Warp = std::pair<std::uint32_t, std::uint16_t>;  // its cluster, and its agent there
  std::map<Warp, std::deque<Release>> releases;
  std::map<std::uint64_t, std::map<Warp, std::deque<Acquire>>> acquires;  // by the map's address

  template <class Kind>
  static void keep(std::deque<Kind>& events, Kind&& event) {
    if (events.size() == kKept) events.pop_front();
    events.push_back(std::forward<Kind>(event));
  }
};

/// A copy that may still read a map. The copy is over for a lane that knows `time` of `agent`.
struct TensorMapUse {
  std::uint32_t agent = 0, time = 0, op = 0;
  std::uint16_t issuer = 0;  // the warp
  std::uint8_t lane = 0;
};

/// The maps that launches of a device have edited (tensormap.replace, tensormap.cp_fenceproxy), by address.
struct TensorMapEdits {
  struct Edit {
    std::uint32_t launch = 0;  // which edited the map last
    bool released = false;     // a fence of that launch came after the edit
    HazardSide by;             // that edit
  };
  static constexpr std::size_t kMost = 65536;  // of further maps, no edit is kept
  std::map<std::uint64_t, Edit> edits;
};

}  // namespace kernelwright::emulator
