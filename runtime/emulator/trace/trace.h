/// The timeline of one cluster, for viewing: tracks, slices on them, and flows from the event that ends a wait to the
/// wait.
///
/// Times are virtual cycles of the SM (timeline_costs.h says how exact they are). The slices of a track are in order
/// and do not overlap.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace kernelwright::emulator {

enum class SliceKind : std::uint8_t {
  kWork,    // instructions of a warp
  kArrive,  // an arrival at a barrier
  kWait,    // only waits: for a barrier, a group of copies, wgmma
  kMma,     // mma.sync on a warp's track, wgmma on the track of the tensor cores
  kCopy,    // a copy in flight, into shared memory
  kStore,   // a copy out of shared memory
};

struct TraceSlice {
  SliceKind kind = SliceKind::kWork;
  std::uint32_t track = 0;
  std::uint64_t begin = 0, end = 0;  // cycles; at least one
  std::uint64_t amount = 0;          // kWork: instructions; kMma: multiplications; copies: bytes
  std::string name;                  // "K[2]", "m64n128k16"
  /// "wait full[2]", "wgmma m64n128k16 x4", "TMA K[2] 16 KB"
  std::string text() const;
};

struct TraceTrack {
  enum class Kind : std::uint8_t { kWarp, kTensorCores, kCopies };
  Kind kind = Kind::kWarp;
  std::uint32_t cta = 0;   // rank in the cluster
  std::uint32_t warp = 0;  // kWarp: index in the CTA; kCopies: number of such tracks before this one
  std::string name;        // "math 0, warp 4", "tensor cores", "TMA 1"
  std::string role;        // kWarp: from the launch's notes; "" if it has none. kCopies: "TMA", "cp.async", "TMA store"
};

/// The slice `to` waited for the end of the slice `from`. Both times lie within their slices.
struct TraceFlow {
  std::uint32_t from = 0, to = 0;  // indexes into Trace::slices
  std::uint64_t from_time = 0, to_time = 0;
};

/// How long each unit of a CTA's SM was busy.
struct TraceUnits {
  std::uint64_t tensor = 0, copies = 0;  // cycles
};

struct Trace {
  std::string kernel, target;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  std::uint32_t first_cta[3] = {};
  std::uint64_t cycles = 0;  // the last slice's end
  bool complete = true;      // false: the kernel continued after the end of the trace
  std::vector<TraceTrack> tracks;
  std::vector<TraceSlice> slices;
  std::vector<TraceFlow> flows;
  std::vector<TraceUnits> units;  // of each CTA
};

/// What one role of a CTA waits for, longest wait first.
struct RoleWaits {
  std::string role;
  double waiting = 0;  // share of the warp's time, 0 to 1, for the role's warp that does most
  struct Place {
    std::string name;  // "full", without its stage
    double share = 0;
  };
  std::vector<Place> places;
};
/// The waits by role, for the CTA with this rank, in the order of warps.
std::vector<RoleWaits> waits_by_role(const Trace& trace, std::uint32_t cta = 0);

/// The track of one warp per role: the warp that does most, and of equal warps the first.
std::vector<std::uint32_t> role_tracks(const Trace& trace, std::uint32_t cta);

/// Writes Chrome's trace events, which Perfetto opens: a process for each CTA, a thread for each track, 1 ns for each
/// cycle. Launches follow one another.
void write_chrome_trace(std::ostream& out, std::span<const Trace> launches);

struct SvgOptions {
  std::string title, subtitle;       // "": the trace's own
  std::uint32_t cta = 0;             // rank in the cluster
  std::uint64_t begin = 0, end = 0;  // the window, in cycles; end 0: chosen automatically
};
/// A self-contained picture: no script, no font, light and dark.
void write_svg(std::ostream& out, const Trace& trace, const SvgOptions& options = {});

}  // namespace kernelwright::emulator
