// Plain text by default: only a terminal gets escape sequences.
#include "cli/terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace kernelwright::cli {
namespace {

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    std::string lower(value);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("utf-8") != lower.npos || lower.find("utf8") != lower.npos;
  }
  return false;
}

// Columns that a cell takes: an escape sequence takes none, a UTF-8 sequence takes one.
std::size_t width_of(std::string_view cell) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < cell.size(); ++i) {
    if (cell[i] == '\x1b') {
      i = std::min(cell.find('m', i), cell.size());
    } else if ((static_cast<unsigned char>(cell[i]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

}  // namespace

Style::Style(std::FILE* stream) {
  terminal_ = ::isatty(::fileno(stream));
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  colours_ = terminal_ && !(no_colour && *no_colour) && kind && std::string_view(kind) != "dumb";
  utf8_ = utf8_locale();
}

std::string Style::paint(const char* code, std::string_view text) const {
  return colours_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string Style::verdict(bool passed) const {
  return passed ? good(utf8_ ? "✓ ok" : "ok") : bad(utf8_ ? "✗ FAILED" : "FAILED");
}

std::string Table::text(const Style& style, int indent) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i >= widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  // A column of numbers is aligned to the right, and so is its header.
  const auto is_number = [&](std::size_t column) {
    for (std::size_t r = 1; r < rows_.size(); ++r)
      if (column < rows_[r].size() && !rows_[r][column].empty() && rows_[r][column] != "-")
        return std::isdigit(static_cast<unsigned char>(rows_[r][column][0])) != 0;
    return false;
  };
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string pad(widths[i] - width_of(rows_[r][i]), ' ');
      const bool last = i + 1 == rows_[r].size();
      const std::string cell = is_number(i) ? pad + rows_[r][i] : last ? rows_[r][i] : rows_[r][i] + pad;
      line += (i ? "  " : "") + cell;
    }
    out += (r ? line : style.dim(line)) + "\n";
  }
  return out;
}

struct Progress::State {
  std::mutex mutex;
  std::string label;
  std::size_t total, done = 0;
  Style style{stderr};

  void draw(std::string_view what) {
    constexpr std::size_t kWidth = 24;
    const std::size_t full = total ? kWidth * done / total : kWidth;
    std::string bar;
    for (std::size_t i = 0; i < kWidth; ++i) bar += style.utf8() ? (i < full ? "█" : "░") : (i < full ? "#" : ".");
    fmt::print(stderr, "\r\x1b[K{} {} {}/{} {}", label, bar, done, total, what.substr(0, 40));
    std::fflush(stderr);
  }
};

Progress::Progress(std::string label, std::size_t total) : state_(nullptr) {
  if (!::isatty(STDERR_FILENO) || total < 2) return;
  state_ = new State{{}, std::move(label), total};
  state_->draw("");
}

Progress::~Progress() {
  if (state_) fmt::print(stderr, "\r\x1b[K");
  delete state_;
}

void Progress::step(std::string_view what) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  ++state_->done;
  state_->draw(what);
}

void Progress::at(std::size_t done, std::string_view what) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->done = std::min(done, state_->total);
  state_->draw(what);
}

struct SlowNotice::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread thread;
};

SlowNotice::SlowNotice(std::string text) : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get(), text = std::move(text)] {
    std::unique_lock lock(state->mutex);
    if (!state->changed.wait_for(lock, std::chrono::seconds(2), [&] { return state->over; }))
      fmt::print(stderr, "kernelwright: {}\n", text);
  });
}

SlowNotice::~SlowNotice() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

std::string more_text(const Style& style, std::size_t count, std::size_t shown) {
  if (count <= shown) return {};
  return "  " + style.dim(fmt::format("and {} more; --json has all", count - shown)) + "\n";
}

std::string first_lines_of(const std::string& text) {
  std::size_t end = 0, lines = 0;
  while (lines < kMostLines && end != text.npos && end < text.size())
    if (end = text.find('\n', end); end != text.npos) ++end, ++lines;
  if (end == text.npos || end >= text.size()) return text;
  const auto more = 1 + std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end() - 1, '\n');
  return fmt::format("{}and {} line{} more; --json has all", text.substr(0, end), more, more == 1 ? "" : "s");
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string duration_text(double milliseconds) {
  if (milliseconds < 1) return fmt::format("{:.1f} us", milliseconds * 1e3);
  if (milliseconds < 1e3) return fmt::format("{:.2f} ms", milliseconds);
  return fmt::format("{:.2f} s", milliseconds / 1e3);
}

std::string size_text(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} KB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

}  // namespace kernelwright::cli
