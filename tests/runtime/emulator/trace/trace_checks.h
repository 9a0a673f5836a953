/// Properties of every trace and every file made from one, as sentences about what is wrong.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/emulator/trace/trace.h"

namespace kernelwright::emulator::test {

/// Slices of a track are in order and apart; flows have their times within their slices and go forwards.
inline std::string problems_of(const Trace& trace) {
  std::string problems;
  std::vector<std::uint64_t> ends(trace.tracks.size());
  for (const TraceSlice& slice : trace.slices) {
    if (slice.end <= slice.begin) problems += slice.text() + " is empty\n";
    if (slice.begin < ends[slice.track])
      problems += fmt::format("{} on {} begins at {}, before the slice ahead of it ends at {}\n", slice.text(),
                              trace.tracks[slice.track].name, slice.begin, ends[slice.track]);
    ends[slice.track] = slice.end;
  }
  for (const TraceFlow& flow : trace.flows) {
    const TraceSlice &from = trace.slices.at(flow.from), &to = trace.slices.at(flow.to);
    if (flow.from_time < from.begin || flow.from_time >= from.end || flow.to_time < to.begin || flow.to_time >= to.end)
      problems += fmt::format("a flow from {} to {} leaves its slices\n", from.text(), to.text());
    if (flow.from_time > flow.to_time) problems += fmt::format("a flow to {} goes back in time\n", to.text());
    if (to.kind != SliceKind::kWait) problems += fmt::format("a flow ends in {}\n", to.text());
  }
  return problems;
}

/// Chrome's format: named threads, slices that do not overlap, timestamps in order, flows with both ends in slices.
inline std::string problems_of_json(const std::string& text) {
  using Thread = std::pair<std::int64_t, std::int64_t>;
  struct End {
    Thread thread;
    double time;
  };
  std::string problems;
  const JsonValue document = JsonValue::parse(text);
  std::set<Thread> named;
  std::map<Thread, std::vector<std::pair<double, double>>> slices;
  std::map<std::int64_t, End> starts, ends;
  double last = 0;
  for (const JsonValue& event : document.at("/traceEvents").elements()) {
    const std::string& phase = event.at("/ph").as_string();
    const Thread thread{event.at("/pid").as_int(), event.at("/tid").as_int()};
    if (phase == "M") {
      if (event.at("/name").as_string() == "thread_name") named.insert(thread);
      continue;
    }
    const double time = event.at("/ts").as_double();
    if (time < last) problems += fmt::format("{} comes after {}\n", time, last);
    last = time;
    if (event.at("/name").as_string().empty()) problems += "an event has no name\n";
    if (!named.contains(thread)) problems += fmt::format("thread {} has no name\n", thread.second);
    if (phase == "X") {
      auto& track = slices[thread];
      if (!track.empty() && time < track.back().second - 1e-9) problems += fmt::format("slices overlap at {}\n", time);
      track.emplace_back(time, time + event.at("/dur").as_double());
    } else if (phase == "s" || phase == "f") {
      auto& side = phase == "s" ? starts : ends;
      if (!side.emplace(event.at("/id").as_int(), End{thread, time}).second) problems += "a flow has two such ends\n";
      if (phase == "f" && event.at("/bp").as_string() != "e") problems += "a flow ends beside its slice\n";
    } else {
      problems += "an event of phase " + phase + "\n";
    }
  }
  for (const auto* side : {&starts, &ends})
    for (const auto& [id, end] : *side) {
      if (!(side == &starts ? ends : starts).contains(id)) problems += fmt::format("flow {} has one end\n", id);
      bool inside = false;
      for (const auto& [begin, stop] : slices[end.thread]) inside = inside || (end.time >= begin && end.time < stop);
      if (!inside) problems += fmt::format("flow {} is at {}, where its thread has no slice\n", id, end.time);
    }
  return problems;
}

/// Checks that XML elements are closed, that nothing external is used, and that all numbers are valid.
inline std::string problems_of_svg(const std::string& text) {
  std::string problems;
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == text.npos) return "an element has no end\n";
    const std::string tag = text.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /\n", 1));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "</" + tag.substr(1) + "> closes nothing\n";
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  if (!open.empty()) problems += open.back() + " is not closed\n";
  for (const char* word : {"<script", "href", "url(", "@import", "@font-face", "nan", "inf\""})
    if (text.find(word) != text.npos) problems += std::string("it has ") + word + "\n";
  if (text.find("prefers-color-scheme: dark") == text.npos) problems += "it has no dark colours\n";
  return problems;
}

}  // namespace kernelwright::emulator::test
