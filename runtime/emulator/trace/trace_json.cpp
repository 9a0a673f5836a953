// Chrome's trace event format, as Perfetto reads it. It has complete events (X) on threads, flows (s, f) that bind to
// the slices around their times, and metadata (M) for names and order.
#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "kernelwright/runtime/emulator/trace/trace.h"

namespace kernelwright::emulator {

namespace {

constexpr std::uint64_t kBetweenLaunches = 1000;  // cycles
constexpr std::uint32_t kProcessesPerLaunch = 100;

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

/// Timestamps count microseconds; a cycle is drawn as a nanosecond.
std::string stamp(std::uint64_t cycles) { return fmt::format("{}.{:03}", cycles / 1000, cycles % 1000); }

const char* category(SliceKind kind) {
  switch (kind) {
    case SliceKind::kWork: return "work";
    case SliceKind::kArrive: return "arrive";
    case SliceKind::kWait: return "wait";
    case SliceKind::kMma: return "mma";
    case SliceKind::kCopy: return "copy";
    case SliceKind::kStore: return "store";
  }
  return "";
}

const char* amount_name(SliceKind kind) {
  return kind == SliceKind::kCopy || kind == SliceKind::kStore ? "bytes" : "instructions";
}

class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {}

  void write(std::span<const Trace> launches) {
    out_ << "{\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"clock\": \"1 ns is 1 cycle of the SM\"},\n"
            "\"traceEvents\": [";
    for (const Trace& trace : launches) launch(trace);
    out_ << "\n]}\n";
  }

 private:
  /// What is drawn at a time, in the order of writing.
  struct Event {
    std::uint64_t time;
    char phase;
    std::uint32_t index;
  };

  void launch(const Trace& trace) {
    names(trace);
    std::vector<Event> events;
    for (std::uint32_t i = 0; i < trace.slices.size(); ++i) events.push_back({trace.slices[i].begin, 'X', i});
    for (std::uint32_t i = 0; i < trace.flows.size(); ++i) {
      events.push_back({trace.flows[i].from_time, 's', i});
      events.push_back({trace.flows[i].to_time, 't', i});
    }
    std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
      return std::pair(a.time, a.phase) < std::pair(b.time, b.phase);  // slices before their flows, s before f
    });
    for (const Event& event : events) event.phase == 'X' ? slice(trace, event.index) : flow(trace, event);
    start_ += trace.cycles + kBetweenLaunches;
    first_flow_ += static_cast<std::uint32_t>(trace.flows.size());
    first_process_ += kProcessesPerLaunch;
  }

  void begin_event() { out_ << (std::exchange(first_, false) ? "\n" : ",\n"); }

  std::string place(const Trace& trace, std::uint32_t track) const {
    return fmt::format("\"pid\": {}, \"tid\": {}", first_process_ + trace.tracks[track].cta, track + 1);
  }

  void metadata(const char* what, const std::string& where, const std::string& arguments) {
    begin_event();
    out_ << fmt::format(R"({{"name": "{}", "ph": "M", {}, "args": {{{}}}}})", what, where, arguments);
  }

  void names(const Trace& trace) {
    for (std::uint32_t cta = 0; cta < trace.units.size(); ++cta) {
      const std::string where = fmt::format("\"pid\": {}, \"tid\": 0", first_process_ + cta);
      metadata("process_name", where,
               "\"name\": " +
                   in_quotes(fmt::format("{} on {}, CTA {} of the cluster at ({}, {}, {})", trace.kernel, trace.target,
                                         cta, trace.first_cta[0], trace.first_cta[1], trace.first_cta[2])));
      metadata("process_sort_index", where, fmt::format("\"sort_index\": {}", first_process_ + cta));
    }
    std::vector<bool> used(trace.tracks.size());
    for (const TraceSlice& slice : trace.slices) used[slice.track] = true;
    for (std::uint32_t i = 0; i < trace.tracks.size(); ++i) {
      if (!used[i]) continue;
      metadata("thread_name", place(trace, i), "\"name\": " + in_quotes(trace.tracks[i].name));
      metadata("thread_sort_index", place(trace, i), fmt::format("\"sort_index\": {}", i + 1));
    }
  }

  void slice(const Trace& trace, std::uint32_t index) {
    const TraceSlice& slice = trace.slices[index];
    begin_event();
    out_ << fmt::format(R"({{"name": {}, "cat": "{}", "ph": "X", "ts": {}, "dur": {}, {})", in_quotes(slice.text()),
                        category(slice.kind), stamp(start_ + slice.begin), stamp(slice.end - slice.begin),
                        place(trace, slice.track));
    if (slice.amount != 0) out_ << fmt::format(R"(, "args": {{"{}": {}}})", amount_name(slice.kind), slice.amount);
    out_ << '}';
  }

  void flow(const Trace& trace, const Event& event) {
    const TraceFlow& flow = trace.flows[event.index];
    const bool start = event.phase == 's';
    const TraceSlice &at = trace.slices[start ? flow.from : flow.to], &wait = trace.slices[flow.to];
    begin_event();
    out_ << fmt::format(R"({{"name": {}, "cat": "phase", "ph": "{}", "id": {}, "ts": {}, {}{}}})", in_quotes(wait.name),
                        start ? "s" : "f", first_flow_ + event.index, stamp(start_ + event.time),
                        place(trace, at.track), start ? "" : R"(, "bp": "e")");
  }

  std::ostream& out_;
  std::uint64_t start_ = 0;
  std::uint32_t first_flow_ = 1, first_process_ = 1;
  bool first_ = true;
};

}  // namespace

void write_chrome_trace(std::ostream& out, std::span<const Trace> launches) { Writer(out).write(launches); }

}  // namespace kernelwright::emulator
