/// Output for people: colours if the terminal supports them, marks if the locale has them, tables whose columns line
/// up.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright::cli {

/// What `stream` can display. Colours need a terminal and an unset NO_COLOR; marks need a UTF-8 locale.
class Style {
 public:
  explicit Style(std::FILE* stream);
  std::string good(std::string_view text) const { return paint("32", text); }
  std::string bad(std::string_view text) const { return paint("31", text); }
  std::string dim(std::string_view text) const { return paint("2", text); }
  std::string bold(std::string_view text) const { return paint("1", text); }
  /// "✓ ok" or "ok"; "✗ FAILED" or "FAILED".
  std::string verdict(bool passed) const;
  bool utf8() const { return utf8_; }
  bool terminal() const { return terminal_; }

 private:
  std::string paint(const char* code, std::string_view text) const;
  bool terminal_, colours_, utf8_;
};

/// Rows of cells; a column is as wide as its widest cell. Cells that start with a digit are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text(const Style& style, int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A bar on standard error during long work, if standard error is a terminal; otherwise nothing. Safe from any number
/// of threads.
class Progress {
 public:
  Progress(std::string label, std::size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::string_view what);
  /// As step(), for work that is not counted in steps.
  void at(std::size_t done, std::string_view what);

 private:
  struct State;
  State* state_;
};

/// Prints `text` on standard error, once, if the object lives longer than two seconds.
class SlowNotice {
 public:
  explicit SlowNotice(std::string text);
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The most lines of a list that are printed; --json has all of them.
inline constexpr std::size_t kMostLines = 40;

/// "  and 960 more; --json has all"; "" if all lines were printed. There are `count` lines; `shown` were printed.
std::string more_text(const Style& style, std::size_t count, std::size_t shown = kMostLines);

/// The first kMostLines lines of `text`, and how many more there are.
std::string first_lines_of(const std::string& text);

/// "a, b, c"; for a long list the first twelve names, "and 30 more".
std::string listed(const std::vector<std::string>& names);

/// "1.23 ms", "45.6 us"
std::string duration_text(double milliseconds);
/// "12.3 KB", "4.5 MB"
std::string size_text(double bytes);

}  // namespace kernelwright::cli
