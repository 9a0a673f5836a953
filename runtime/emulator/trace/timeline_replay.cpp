#include "kernelwright/runtime/emulator/trace/timeline_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <queue>

namespace kernelwright::emulator {

namespace {

using Time = std::uint64_t;
constexpr std::uint32_t kNoSlice = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kPiece = 32;  // cycles of a warp's turn on its scheduler

class Replay {
 public:
  Replay(const Recording& recording, const MachineCosts& machine) : recording_(recording), machine_(machine) {}

  Trace run() {
    begin();
    while (!ready_.empty()) {
      const auto [time, warp] = ready_.top();
      ready_.pop();
      warps_[warp].time = time;
      step(warp);
    }
    for (const TraceSlice& slice : trace_.slices) trace_.cycles = std::max(trace_.cycles, slice.end);
    for (std::uint32_t cta = 0; cta < sms_.size(); ++cta)
      trace_.units[cta].tensor = sms_[cta].core_cycles / kNumSchedulers;
    return std::move(trace_);
  }

 private:
  struct WarpState {
    Time time = 0;
    std::size_t next = 0;           // index of the current record
    std::uint32_t done = 0;         // cycles of that record that are done
    Time landed = 0;                // when the last of the warp's copies lands
    std::uint32_t copy = kNoSlice;  // the slice of that copy
    Time last_landed = 0;           // when the copy before this record lands
    std::uint32_t last_copy = kNoSlice;
  };
  struct GateState {
    std::uint32_t missing = 0;
    Time time = 0;  // of the latest contribution
    std::uint32_t source = kNoSlice;
    std::vector<std::uint32_t> waiting;  // waiting warps
  };
  struct Sm {
    Time scheduler[kNumSchedulers] = {}, tensor[kNumSchedulers] = {};
    Time copies = 0;
    Time core_cycles = 0;  // cycles of the CTA's four tensor cores together
    std::uint32_t tensor_track = kNoSlice;
    std::map<std::string, std::vector<std::uint32_t>> copy_tracks;  // by engine
  };

  void begin() {
    trace_.kernel = recording_.kernel;
    trace_.target = recording_.target;
    std::ranges::copy(recording_.grid, trace_.grid);
    std::ranges::copy(recording_.block, trace_.block);
    std::ranges::copy(recording_.cluster, trace_.cluster);
    std::ranges::copy(recording_.first_cta, trace_.first_cta);
    trace_.complete = recording_.complete;
    trace_.units.resize(recording_.num_ctas);
    sms_.resize(recording_.num_ctas);
    for (const Gate& gate : recording_.gates) gates_.push_back({.missing = gate.contributions});
    warps_.resize(recording_.warps.size());
    for (std::uint32_t i = 0; i < warps_.size(); ++i) {
      const WarpLog& log = recording_.warps[i];
      add_track(
          {.kind = TraceTrack::Kind::kWarp,
           .cta = log.cta,
           .warp = log.warp,
           .name = log.role.empty() ? fmt::format("warp {}", log.warp) : fmt::format("{}, warp {}", log.role, log.warp),
           .role = log.role});
      ready_.push({0, i});
    }
  }

  std::uint32_t add_track(TraceTrack track) {
    trace_.tracks.push_back(std::move(track));
    last_slice_.push_back(kNoSlice);
    return static_cast<std::uint32_t>(trace_.tracks.size() - 1);
  }

  const std::string& label(LabelId id) const { return recording_.labels[id]; }

  std::uint32_t add_slice(SliceKind kind, std::uint32_t track, Time begin, Time end, std::uint64_t amount,
                          const std::string& name) {
    trace_.slices.push_back({.kind = kind,
                             .track = track,
                             .begin = begin,
                             .end = std::max(end, begin + 1),
                             .amount = amount,
                             .name = name});
    return last_slice_[track] = static_cast<std::uint32_t>(trace_.slices.size() - 1);
  }
  /// Adds a slice, or extends the slice before it if both belong together.
  std::uint32_t extend_slice(SliceKind kind, std::uint32_t track, Time begin, Time end, std::uint64_t amount,
                             const std::string& name, bool same_record) {
    const std::uint32_t last = last_slice_[track];
    if (last != kNoSlice) {
      TraceSlice& slice = trace_.slices[last];
      // A warp that takes turns with others continues its slice.
      if (slice.kind == kind && slice.name == name && (same_record || slice.end >= begin)) {
        slice.end = std::max(slice.end, end);
        slice.amount += amount;
        return last;
      }
    }
    return add_slice(kind, track, begin, end, amount, name);
  }

  void add_flow(std::uint32_t from, Time from_time, std::uint32_t to) {
    const TraceSlice &source = trace_.slices[from], &wait = trace_.slices[to];
    const Time at = std::clamp(from_time, source.begin + 1, source.end) - 1;
    trace_.flows.push_back({.from = from, .to = to, .from_time = at, .to_time = std::max(wait.end - 1, wait.begin)});
  }

  // ---- gates

  /// A contribution by a warp of `cta`; the last one starts a group of wgmma.
  void contribute(GateId id, std::uint32_t cta, Time time, std::uint32_t source) {
    if (id == kNoGate) return;
    GateState& gate = gates_[id];
    if (time >= gate.time) {
      gate.time = time;
      gate.source = source;
    }
    if (gate.missing == 0 || --gate.missing > 0) return;
    if (recording_.gates[id].tensor_cycles != 0) multiply(id, cta);
    for (const std::uint32_t warp : gate.waiting) wake(warp, id, warps_[warp].time);
    gate.waiting.clear();
  }

  /// Wakes a warp that has waited since `since` for a gate that is open.
  void wake(std::uint32_t warp, GateId id, Time since) {
    const GateState& gate = gates_[id];
    Time now = since;
    if (gate.time > since) {
      now = gate.time + kWakeCycles;
      const Gate& awaited = recording_.gates[id];
      const std::uint32_t slice =
          add_slice(SliceKind::kWait, warp, since, now, 0, awaited.tensor_cycles != 0 ? "wgmma" : label(awaited.label));
      if (gate.source != kNoSlice) add_flow(gate.source, gate.time, slice);
    }
    ready_.push({now, warp});
  }

  /// Performs a group of wgmma that all four warps have issued.
  void multiply(GateId id, std::uint32_t cta) {
    const Gate& job = recording_.gates[id];
    GateState& gate = gates_[id];
    Sm& sm = sms_[cta];
    if (sm.tensor_track == kNoSlice)
      sm.tensor_track = add_track({.kind = TraceTrack::Kind::kTensorCores, .cta = cta, .name = "tensor cores"});
    const Time begin = std::max(gate.time, *std::ranges::max_element(sm.tensor)), end = begin + job.tensor_cycles;
    std::ranges::fill(sm.tensor, end);
    sm.core_cycles += Time{job.tensor_cycles} * kNumSchedulers;
    gate.source = add_slice(SliceKind::kMma, sm.tensor_track, begin, end, job.count, label(job.label));
    gate.time = end + kMultiplyLatency;
  }

  // ---- copies

  void copy(std::uint32_t index, const Record& record) {
    WarpState& warp = warps_[index];
    const std::uint32_t cta = recording_.warps[index].cta;
    Sm& sm = sms_[cta];
    const bool store = record.kind == RecordKind::kStore;
    const auto cycles = (record.cycles + machine_.copy_bytes - 1) / machine_.copy_bytes;
    const Time begin = warp.time, served = std::max(begin, sm.copies) + cycles;
    sm.copies = served;
    trace_.units[cta].copies += cycles;
    warp.last_landed = served + (store ? machine_.store_latency : machine_.copy_latency);
    const char* engine = store ? "TMA store" : record.bulk ? "TMA" : "cp.async";
    warp.last_copy =
        show_copy(cta, engine, store ? SliceKind::kStore : SliceKind::kCopy, begin, warp.last_landed, record);
    if (!record.bulk && warp.last_landed >= warp.landed) {
      warp.landed = warp.last_landed;
      warp.copy = warp.last_copy;
    }
    contribute(record.gate, cta, warp.last_landed, warp.last_copy);
  }

  /// Draws a copy on the first free track of its engine. Warps that fill one place together share a slice.
  std::uint32_t show_copy(std::uint32_t cta, const char* engine, SliceKind kind, Time begin, Time end,
                          const Record& record) {
    std::vector<std::uint32_t>& tracks = sms_[cta].copy_tracks[engine];
    const std::string& name = label(record.label);
    for (const std::uint32_t track : tracks) {
      TraceSlice& slice = trace_.slices[last_slice_[track]];
      if (slice.name == name && slice.end > begin)
        return extend_slice(kind, track, begin, end, record.cycles, name, true);
    }
    for (const std::uint32_t track : tracks)
      if (trace_.slices[last_slice_[track]].end <= begin)
        return add_slice(kind, track, begin, end, record.cycles, name);
    const auto before = static_cast<std::uint32_t>(tracks.size());
    tracks.push_back(add_track({.kind = TraceTrack::Kind::kCopies,
                                .cta = cta,
                                .warp = before,
                                .name = before == 0 ? std::string(engine) : fmt::format("{} {}", engine, before + 1),
                                .role = engine}));
    return add_slice(kind, tracks.back(), begin, end, record.cycles, name);
  }

  // ---- warps

  void step(std::uint32_t index) {
    WarpState& warp = warps_[index];
    const WarpLog& log = recording_.warps[index];
    if (warp.next == log.records.size()) return;
    const Record& record = log.records[warp.next];
    switch (record.kind) {
      case RecordKind::kWork:
      case RecordKind::kMma:
        if (work(index, record)) finish(warp);
        ready_.push({warp.time, index});
        return;
      case RecordKind::kWait:
        finish(warp);
        if (gates_[record.gate].missing == 0)
          wake(index, record.gate, warp.time);
        else
          gates_[record.gate].waiting.push_back(index);
        return;
      case RecordKind::kArrive: {
        const std::uint32_t slice = add_slice(SliceKind::kArrive, index, warp.time, warp.time + kArriveCycles,
                                              record.count, label(record.label));
        warp.time += kArriveCycles;
        contribute(record.gate, log.cta, warp.time + (record.remote ? kClusterCycles : 0), slice);
        break;
      }
      case RecordKind::kCopy:
      case RecordKind::kStore: copy(index, record); break;
      case RecordKind::kCopyAlso: contribute(record.gate, log.cta, warp.last_landed, warp.last_copy); break;
      case RecordKind::kCopiesArrive:
        contribute(record.gate, log.cta, std::max(warp.time, warp.landed), warp.copy);
        break;
      case RecordKind::kMultiply: contribute(record.gate, log.cta, warp.time, kNoSlice); break;
    }
    finish(warp);
    ready_.push({warp.time, index});
  }

  static void finish(WarpState& warp) {
    ++warp.next;
    warp.done = 0;
  }

  /// Performs one piece of a record; true at the record's end.
  bool work(std::uint32_t index, const Record& record) {
    WarpState& warp = warps_[index];
    const WarpLog& log = recording_.warps[index];
    const bool mma = record.kind == RecordKind::kMma;
    Sm& sm = sms_[log.cta];
    Time& unit = (mma ? sm.tensor : sm.scheduler)[log.warp % kNumSchedulers];
    const std::uint32_t cycles = std::min(kPiece, record.cycles - warp.done);
    // Instructions issued between the mma.sync of a run hide behind them if they are shorter.
    const Time alone = std::max<Time>(cycles, Time{record.alone} * cycles / std::max(1u, record.cycles));
    const Time start = std::max(warp.time, unit);
    unit = start + cycles;
    const bool first = warp.done == 0;
    warp.done += cycles;
    const bool last = warp.done == record.cycles;
    if (mma) sm.core_cycles += cycles;
    extend_slice(mma ? SliceKind::kMma : SliceKind::kWork, index, first ? start : warp.time, start + alone,
                 last ? record.count : 0, mma ? label(record.label) : std::string(), !first);
    warp.time = start + alone;
    return last;
  }

  const Recording& recording_;
  const MachineCosts& machine_;
  Trace trace_;
  std::vector<WarpState> warps_;
  std::vector<GateState> gates_;
  std::vector<Sm> sms_;
  std::vector<std::uint32_t> last_slice_;        // of each track
  using Ready = std::pair<Time, std::uint32_t>;  // time, warp
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace

Trace replay(const Recording& recording, const MachineCosts& machine) { return Replay(recording, machine).run(); }

}  // namespace kernelwright::emulator
