#include "cli/tune/race_view.h"

#include <fmt/format.h>

#include <algorithm>

namespace kernelwright::cli {
namespace {

constexpr std::size_t kMostShown = 8;
constexpr std::size_t kWidestLabel = 44;  // so that a line fits 80 columns: a line that wraps could not be cleared
constexpr std::chrono::milliseconds kBetweenDrawings{100};

/// The entrants that have a time on every shape, the fastest first.
std::vector<const Standing*> ranked(std::vector<const Standing*> in) {
  std::erase_if(in, [](const Standing* standing) { return standing->mean_us() == 0; });
  std::ranges::stable_sort(in, {}, [](const Standing* standing) { return standing->mean_us(); });
  return in;
}

double model_us(const std::vector<const Standing*>& in) {
  for (const Standing* standing : in)
    if (standing->entrant == 0) return standing->mean_us();
  return 0;
}

}  // namespace

RaceView::RaceView(std::FILE* stream, std::string name) : stream_(stream), style_(stream), name_(std::move(name)) {}
RaceView::~RaceView() { clear(); }

void RaceView::clear() {
  if (drawn_) fmt::print(stream_, "\x1b[{}F\x1b[J", drawn_);
  drawn_ = 0;
}

void RaceView::round(int round, const std::vector<const Standing*>& in, const Label& label) {
  if (!style_.terminal()) fmt::print(stream_, "{}\n", line_of(name_, round, in, label));
}

void RaceView::pass(int round, int pass, const std::vector<const Standing*>& in, double share, const Label& label) {
  const auto now = std::chrono::steady_clock::now();
  if (!style_.terminal() || now - drawn_at_ < kBetweenDrawings) return;
  drawn_at_ = now;
  const std::string table = table_of(name_, round, pass, in, share, label, style_);
  clear();
  fmt::print(stream_, "{}", table);
  std::fflush(stream_);
  drawn_ = static_cast<std::size_t>(std::ranges::count(table, '\n'));
}

std::string RaceView::line_of(const std::string& name, int round, const std::vector<const Standing*>& in,
                              const Label& label) {
  const std::vector<const Standing*> order = ranked(in);
  std::string line = fmt::format("{}: round {}, {} schedule{}", name, round + 1, in.size(), in.size() == 1 ? "" : "s");
  if (order.empty()) return line;
  line += fmt::format("; fastest: {}, {}", label(*order[0]), duration_text(order[0]->mean_us() / 1e3));
  if (order[0]->entrant == 0) return line;
  return line + fmt::format(", {:.3f} x the model's choice", model_us(in) / order[0]->mean_us());
}

std::string RaceView::table_of(const std::string& name, int round, int pass, const std::vector<const Standing*>& in,
                               double share, const Label& label, const Style& style) {
  std::string text = fmt::format("{}  {}\n", style.bold(name),
                                 style.dim(fmt::format("round {}, pass {}, {} in, {:.0f} % of the budget", round + 1,
                                                       pass + 1, in.size(), 100 * std::clamp(share, 0.0, 1.0))));
  Table table({"", "schedule", "mean", "vs model"});
  std::size_t rank = 0;
  for (const Standing* standing : ranked(in)) {
    if (++rank > kMostShown && standing->entrant != 0) continue;
    std::string words = label(*standing);
    if (words.size() > kWidestLabel) words = words.substr(0, kWidestLabel - 3) + "...";
    table.row({std::to_string(rank), std::move(words), duration_text(standing->mean_us() / 1e3),
               fmt::format("{:.3f}", model_us(in) / standing->mean_us())});
  }
  return rank ? text + table.text(style) : text;
}

}  // namespace kernelwright::cli
