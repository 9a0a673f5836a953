// One CTA's pipeline as a picture: a lane for each role and unit, pale waits, and a thin curve from what ends a wait to
// the wait.
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "kernelwright/runtime/emulator/trace/trace.h"

namespace kernelwright::emulator {

namespace {

constexpr double kWidth = 960, kLeft = 104, kRight = 16, kTop = 78;
constexpr double kRoleHeight = 30, kUnitHeight = 24, kCopyHeight = 15, kGap = 12, kCopyGap = 3;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr std::size_t kMostCopyRows = 8, kMostWarps = 4;
constexpr double kCharacter = 6.0;            // approximate width of a character of the labels
constexpr std::uint64_t kLeastWindow = 8000;  // cycles
constexpr double kLegibleMultiply = 34;       // pixels of a group of multiplications, if the window is chosen

constexpr const char* kStyle = R"(
    svg { --ink: #1f2933; --soft: #5c6b7a; --line: #8a98a6; --edge: #b8c2cc; --lane: #f5f7fa; --work: #cfd7df; --copy: #c3d4fb; --copyink: #1e3a8a;
          --mma: #a9dfc8; --mmaink: #064e38; --store: #f6d9a8; --storeink: #6b4305; }
    @media (prefers-color-scheme: dark) {
      svg { --ink: #e6edf3; --soft: #9aa7b4; --line: #6b7885; --edge: #3d4753; --lane: #161b22; --work: #3d4753; --copy: #24407a; --copyink: #cfe0ff;
            --mma: #1d6b50; --mmaink: #d5f7e8; --store: #6b4b16; --storeink: #fde9c4; }
    }
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); }
    .title { font-size: 15px; font-weight: 600; }
    .note { font-size: 12px; fill: var(--soft); }
    .name { font-size: 12px; font-weight: 600; text-anchor: end; }
    .tick { font-size: 11px; fill: var(--soft); text-anchor: middle; }
    .in { font-size: 10px; text-anchor: middle; }
    .lane { fill: var(--lane); }
    .work { fill: var(--work); }
    .wait { fill: none; stroke: var(--edge); stroke-dasharray: 3 2; }
    .copy { fill: var(--copy); } .mma { fill: var(--mma); } .store { fill: var(--store); } .arrive { fill: var(--ink); }
    text.wait { fill: var(--soft); stroke: none; } text.copy { fill: var(--copyink); } text.mma { fill: var(--mmaink); } text.store { fill: var(--storeink); }
    .flow { fill: none; stroke: var(--line); stroke-width: .8; opacity: .75; }
    .rule { stroke: var(--edge); }
  )";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

const char* class_of(SliceKind kind) {
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

/// The label that fits on a slice; "" if none fits.
std::string fitting_label(const TraceSlice& slice, double width) {
  std::vector<std::string> candidates;
  if (slice.kind == SliceKind::kWait) candidates = {"wait " + slice.name, slice.name};
  if (slice.kind == SliceKind::kMma)
    candidates = {slice.text(), fmt::format("{} ×{}", slice.name.starts_with("m64") ? "wgmma" : "mma", slice.amount),
                  fmt::format("×{}", slice.amount)};
  if (slice.kind == SliceKind::kCopy || slice.kind == SliceKind::kStore) candidates = {slice.name};
  for (const std::string& label : candidates)
    if (static_cast<double>(label.size()) * kCharacter + 4 <= width) return label;
  return "";
}

/// The smallest number of the form 1, 2 or 5 times a power of ten that gives at most ten ticks.
std::uint64_t tick_step(std::uint64_t cycles) {
  for (std::uint64_t power = 1;; power *= 10)
    for (const std::uint64_t factor : {1, 2, 5})
      if (cycles / (power * factor) <= 10) return power * factor;
}

class Picture {
 public:
  Picture(std::ostream& out, const Trace& trace, const SvgOptions& options)
      : out_(out), trace_(trace), options_(options), lane_of_(trace.tracks.size(), -1) {
    choose_window();
    choose_lanes();
  }

  void write() {
    const double plot_end = bottom_ + 6, height = plot_end + 82;
    out_ << fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1:.0f}" width="{0}" height="{1:.0f}" role="img" aria-labelledby="title desc">)"
        "\n",
        kWidth, height);
    out_ << fmt::format("  <title id=\"title\">{}</title>\n  <desc id=\"desc\">{}</desc>\n  <style>{}</style>\n",
                        escaped(title()), escaped(units_caption() + " " + waits_caption()), kStyle);
    text("title", 16, 26, title());
    text("note", 16, 44, subtitle());
    legend();
    lanes();
    flows();
    slices();
    axis(plot_end);
    text("note", 16, plot_end + 48, units_caption());
    text("note", 16, plot_end + 66, waits_caption());
    out_ << "</svg>\n";
  }

 private:
  struct Lane {
    double y, height;
    std::string name;  // "" except for the first of several rows
  };

  // ---- what is shown
  void choose_window() {
    begin_ = options_.begin;
    end_ = options_.end;
    if (end_ > begin_) return;
    std::vector<std::uint64_t> lengths;
    for (const TraceSlice& slice : trace_.slices)
      if (slice.kind == SliceKind::kMma && trace_.tracks[slice.track].cta == options_.cta)
        lengths.push_back(slice.end - slice.begin);
    std::uint64_t window = trace_.cycles;
    if (!lengths.empty()) {
      std::ranges::nth_element(lengths, lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2));
      const double median = static_cast<double>(lengths[lengths.size() / 2]);
      // A run of mma.sync is short, so some more of the loop around it is shown.
      window = std::min(window,
                        std::max(kLeastWindow, static_cast<std::uint64_t>(kPlot / kLegibleMultiply * median) + 1000));
    }
    end_ = begin_ + std::max<std::uint64_t>(window, 100);
  }

  void choose_lanes() {
    std::vector<std::uint32_t> warps = role_tracks(trace_, options_.cta);
    const bool alike = warps.size() == 1;
    if (alike) {  // then the warps themselves are shown
      warps.clear();
      for (std::uint32_t i = 0; i < trace_.tracks.size() && warps.size() < kMostWarps; ++i)
        if (trace_.tracks[i].kind == TraceTrack::Kind::kWarp && trace_.tracks[i].cta == options_.cta)
          warps.push_back(i);
    }
    // Data flows down: the loading warps, the copies, the computing warps, the tensor cores.
    for (std::size_t i = 0; i < warps.size(); ++i) {
      const TraceTrack& track = trace_.tracks[warps[i]];
      add_lane(warps[i], kRoleHeight, track.role.empty() || alike ? track.name : track.role, kGap);
      if (!alike)  // flows to a sibling end on the same lane
        for (std::uint32_t other = 0; other < trace_.tracks.size(); ++other)
          if (trace_.tracks[other].kind == TraceTrack::Kind::kWarp && trace_.tracks[other].cta == options_.cta &&
              trace_.tracks[other].role == track.role)
            lane_of_[other] = lane_of_[warps[i]];
      shown_.push_back(warps[i]);
      if (i == 0 && !alike) copy_lanes();
    }
    if (alike) copy_lanes();
    for (std::uint32_t i = 0; i < trace_.tracks.size(); ++i)
      if (trace_.tracks[i].kind == TraceTrack::Kind::kTensorCores && trace_.tracks[i].cta == options_.cta) {
        add_lane(i, kUnitHeight, "tensor cores", kGap);
        shown_.push_back(i);
      }
  }

  void copy_lanes() {
    for (const char* engine : {"TMA", "cp.async", "TMA store"}) {
      std::size_t rows = 0;
      for (std::uint32_t i = 0; i < trace_.tracks.size() && rows < kMostCopyRows; ++i) {
        const TraceTrack& track = trace_.tracks[i];
        if (track.kind != TraceTrack::Kind::kCopies || track.cta != options_.cta || track.role != engine) continue;
        const bool seen = std::ranges::any_of(trace_.slices, [&](const TraceSlice& slice) {
          return slice.track == i && slice.end > begin_ && slice.begin < end_;
        });
        if (!seen) continue;
        add_lane(i, kCopyHeight, rows == 0 ? engine : "", kCopyGap);
        shown_.push_back(i);
        ++rows;
      }
      if (rows != 0) bottom_ += kGap - kCopyGap;
    }
  }

  void add_lane(std::uint32_t track, double height, std::string name, double gap) {
    lane_of_[track] = static_cast<int>(lanes_.size());
    lanes_.push_back({bottom_, height, std::move(name)});
    bottom_ += height + gap;
  }

  // ---- words
  std::string title() const { return options_.title.empty() ? "Pipeline of " + trace_.kernel : options_.title; }
  std::string subtitle() const {
    if (!options_.subtitle.empty()) return options_.subtitle;
    std::string words = fmt::format("{}, grid {}x{}x{}, {} threads", trace_.target, trace_.grid[0], trace_.grid[1],
                                    trace_.grid[2], trace_.block[0] * trace_.block[1] * trace_.block[2]);
    if (trace_.units.size() > 1) words += fmt::format(", cluster of {}", trace_.units.size());
    return words + fmt::format("; CTA {}, cycles {} to {}", options_.cta, begin_, std::min(end_, trace_.cycles));
  }
  std::string units_caption() const {
    const auto share = [&](std::uint64_t cycles) {
      return 100.0 * static_cast<double>(cycles) / static_cast<double>(std::max<std::uint64_t>(1, trace_.cycles));
    };
    const TraceUnits& units = trace_.units.at(options_.cta);
    return fmt::format(
        "Of all {} cycles the tensor cores are busy for {:.0f} %, the way to shared memory for {:.0f} %.",
        trace_.cycles, share(units.tensor), share(units.copies));
  }
  std::string waits_caption() const {
    std::string words;
    for (const RoleWaits& role : waits_by_role(trace_, options_.cta)) {
      words += fmt::format("{}{} waits for {:.0f} %", words.empty() ? "" : "; ", role.role, 100 * role.waiting);
      if (!role.places.empty() && role.places.front().share > 0.01)
        words += fmt::format(", most for {}", role.places.front().name);
    }
    return words.empty() ? "Nobody waits." : words + ".";
  }

  // ---- drawing
  double x(std::uint64_t cycle) const {
    const double at = (static_cast<double>(cycle) - static_cast<double>(begin_)) / static_cast<double>(end_ - begin_);
    return kLeft + kPlot * std::clamp(at, 0.0, 1.0);
  }
  bool visible(const TraceSlice& slice) const { return slice.end > begin_ && slice.begin < end_; }

  void text(const char* kind, double at_x, double at_y, const std::string& words) {
    out_ << fmt::format("  <text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kind, at_x, at_y, escaped(words));
  }

  void legend() {
    double at = kLeft;
    for (const auto& [kind, words] :
         {std::pair{"work", "instructions"}, std::pair{"wait", "wait"}, std::pair{"copy", "copy"},
          std::pair{"mma", "matrix multiply"}, std::pair{"store", "store"}}) {
      const bool drawn = std::ranges::any_of(trace_.slices, [&, kind = kind](const TraceSlice& slice) {
        return visible(slice) && trace_.tracks[slice.track].cta == options_.cta &&
               std::string_view(class_of(slice.kind)) == kind;
      });
      if (!drawn) continue;
      out_ << fmt::format("  <rect class=\"{}\" x=\"{:.1f}\" y=\"56\" width=\"14\" height=\"10\" rx=\"2\"/>\n", kind,
                          at);
      text("note", at + 20, 65, words);
      at += 44 + 6.2 * static_cast<double>(std::string_view(words).size());
    }
    out_ << fmt::format("  <path class=\"flow\" d=\"M{:.1f} 66C{:.1f} 54 {:.1f} 66 {:.1f} 56\"/>\n", at, at + 5,
                        at + 11, at + 16);
    text("note", at + 22, 65, "what ends a wait");
  }

  void lanes() {
    for (const Lane& lane : lanes_) {
      out_ << fmt::format(
          "  <rect class=\"lane\" x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\"/>\n", kLeft, lane.y,
          kPlot, lane.height);
      if (!lane.name.empty()) text("name", kLeft - 10, lane.y + lane.height / 2 + 4, lane.name);
    }
  }

  void slices() {
    for (const std::uint32_t track : shown_) {
      const Lane& lane = lanes_[static_cast<std::size_t>(lane_of_[track])];
      for (const TraceSlice& slice : trace_.slices)
        if (slice.track == track && visible(slice)) draw(slice, lane);
    }
  }

  void draw(const TraceSlice& slice, const Lane& lane) {
    const double from = x(slice.begin), width = x(slice.end) - from;
    if (width < 0.05) return;
    const auto rect = [&](const char* kind, double inset_top, double inset_bottom, double wide) {
      out_ << fmt::format(
          "  <rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{:.1f}\"><title>{}, "
          "cycles "
          "{} to {}</title></rect>\n",
          kind, from, lane.y + inset_top, wide, lane.height - inset_top - inset_bottom, std::min(2.0, wide / 3),
          escaped(slice.text()), slice.begin, slice.end);
    };
    const bool wait = slice.kind == SliceKind::kWait, arrive = slice.kind == SliceKind::kArrive;
    rect(arrive ? "work" : class_of(slice.kind), wait ? 3 : 0, wait ? 3 : 0, width);
    if (arrive) rect("arrive", lane.height - 6, 0, 1.2);  // a notch
    if (const std::string label = fitting_label(slice, width); !label.empty())
      out_ << fmt::format("  <text class=\"in {}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", class_of(slice.kind),
                          from + width / 2, lane.y + lane.height / 2 + 3.5, escaped(label));
  }

  void flows() {
    for (const TraceFlow& flow : trace_.flows) {
      const TraceSlice &from = trace_.slices[flow.from], &to = trace_.slices[flow.to];
      const int source = lane_of_[from.track], target = lane_of_[to.track];
      const bool drawn = std::ranges::find(shown_, to.track) != shown_.end();  // one warp stands for its role
      if (source < 0 || !drawn || source == target || flow.from_time < begin_ || flow.to_time >= end_) continue;
      const Lane &a = lanes_[static_cast<std::size_t>(source)], &b = lanes_[static_cast<std::size_t>(target)];
      const bool down = a.y < b.y;
      const double y1 = down ? a.y + a.height : a.y, y2 = down ? b.y : b.y + b.height, middle = (y1 + y2) / 2;
      const double x1 = x(flow.from_time), x2 = x(flow.to_time);
      out_ << fmt::format("  <path class=\"flow\" d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\"/>\n",
                          x1, y1, x1, middle, x2, middle, x2, y2);
    }
  }

  void axis(double y) {
    out_ << fmt::format("  <line class=\"rule\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>\n", kLeft, y,
                        kWidth - kRight, y);
    const std::uint64_t step = tick_step(end_ - begin_);
    for (std::uint64_t at = (begin_ + step - 1) / step * step; at <= end_; at += step) {
      out_ << fmt::format("  <line class=\"rule\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n",
                          x(at), y, y + 5);
      text("tick", std::min(x(at), kWidth - kRight - 12), y + 18, fmt::format("{}", at));
    }
    text("name", kLeft - 10, y + 18, "cycles");
  }

  std::ostream& out_;
  const Trace& trace_;
  const SvgOptions& options_;
  std::uint64_t begin_ = 0, end_ = 0;
  double bottom_ = kTop;
  std::vector<Lane> lanes_;
  std::vector<int> lane_of_;          // for each track; -1: not shown
  std::vector<std::uint32_t> shown_;  // tracks whose slices are drawn
};

}  // namespace

void write_svg(std::ostream& out, const Trace& trace, const SvgOptions& options) {
  Picture(out, trace, options).write();
}

}  // namespace kernelwright::emulator
