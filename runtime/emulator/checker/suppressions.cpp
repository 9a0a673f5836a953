#include "kernelwright/runtime/emulator/checker/suppressions.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/error.h"

namespace kernelwright::emulator {

namespace {

constexpr std::string_view kBlanks = " \t\r";

/// Takes the next word off `line`. "" if there is none.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

/// Whether `pattern`, in which `*` stands for any characters, is all of `text`.
bool fits(std::string_view pattern, std::string_view text) {
  std::size_t at = 0, in = 0, star = pattern.npos, resume = 0;
  while (in < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resume = in;
    } else if (at < pattern.size() && pattern[at] == text[in]) {
      ++at, ++in;
    } else if (star != pattern.npos) {
      at = star + 1;
      in = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == pattern.npos;
}

bool fits_place(std::string_view pattern, const HazardSide& side) {
  if (side.ptx_line == 0) return pattern == "*";
  if (!side.function.empty() && fits(pattern, "func:" + side.function)) return true;
  return fits(pattern, side.source) || fits(pattern, fmt::format("ptx:{}", side.ptx_line));
}

}  // namespace

Suppressions::Suppressions(std::string_view text, const std::string& path) {
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    Suppression made{.line = ++number};
    made.rule = take_word(line);
    if (made.rule.empty() || made.rule.front() == '#') continue;
    made.kernel = take_word(line);
    made.place = take_word(line);
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    made.reason = line.substr(0, line.find_last_not_of(kBlanks) + 1);
    const std::string where = fmt::format("{}:{}", path, number);
    if (made.rule != "*" && !find_hazard_rule(made.rule))
      throw ConfigError(where,
                        fmt::format("{} is no rule of the checker; docs/emulator/checker.md lists them", made.rule));
    if (made.reason.empty())
      throw ConfigError(where, "a suppression is a rule, a kernel, a place and the reason, in this order");
    all_.push_back(std::move(made));
  }
}

const Suppression* Suppressions::match(std::string_view kernel, const HazardReport& report) {
  const std::string_view rule = row_of(report.rule).name;
  const auto names = [&](const Suppression& one) {
    return fits(one.rule, rule) && fits(one.kernel, kernel) &&
           (fits_place(one.place, report.first) || fits_place(one.place, report.second));
  };
  const auto found = std::ranges::find_if(all_, names);
  if (found == all_.end()) return nullptr;
  ++found->matches;
  return &*found;
}

}  // namespace kernelwright::emulator
