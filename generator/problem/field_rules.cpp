#include "kernelwright/generator/problem/field_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "kernelwright/generator/message.h"

namespace kernelwright {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  char digits[40];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

std::string interval(const range& rule) {
  std::string words = "[" + std::to_string(rule.low) + ", " + std::to_string(rule.high) + "]";
  if (rule.step > 1) words += " in steps of " + std::to_string(rule.step);
  return words;
}

}  // namespace

std::string describe(const range& rule) { return "a whole number in " + interval(rule); }
std::string describe(const real_range& rule) {
  return "a number in [" + number(rule.low) + ", " + number(rule.high) + "]";
}
std::string describe(const text& rule) { return "text of at most " + std::to_string(rule.max_length) + " bytes"; }

std::string describe(const lines& rule) {
  return "lines of text of at most " + std::to_string(rule.max_length) + " bytes";
}

std::optional<std::string> verdict(std::int64_t value, const range& rule) {
  if (value < rule.low || value > rule.high) return std::to_string(value) + " is outside " + interval(rule);
  if ((value - rule.low) % rule.step != 0) return std::to_string(value) + " is not in " + interval(rule);
  return std::nullopt;
}

std::optional<std::string> verdict(double value, const real_range& rule) {
  if (value >= rule.low && value <= rule.high) return std::nullopt;  // false for NaN
  return number(value) + " is outside [" + number(rule.low) + ", " + number(rule.high) + "]";
}

std::optional<std::string> verdict(const std::string& value, const text& rule) {
  if (value.size() > static_cast<std::size_t>(rule.max_length))
    return "is " + std::to_string(value.size()) + " bytes long; " + std::to_string(rule.max_length) +
           " are the most that fit";
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (std::any_of(value.begin(), value.end(), is_control))
    return quoted_for_message(value) + " holds a control character; it takes plain text";
  return std::nullopt;
}

std::optional<std::string> verdict(const std::string& value, const lines& rule) {
  if (value.size() > static_cast<std::size_t>(rule.max_length))
    return "is " + std::to_string(value.size()) + " bytes long; " + std::to_string(rule.max_length) +
           " are the most that fit";
  if (value.find('\0') != value.npos) return "holds a zero byte; it takes lines of text";
  return std::nullopt;
}

std::optional<std::string> name_verdict(std::string_view name) {
  const auto is_fit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  const bool is_dots = name.find_first_not_of('.') == name.npos;
  if (!name.empty() && name.size() <= kMaxNameLength && !is_dots && std::all_of(name.begin(), name.end(), is_fit))
    return std::nullopt;
  return quoted_for_message(name) + " is not a name; a name is 1 to " + std::to_string(kMaxNameLength) +
         " letters, digits, '.', '_' or '-', and not dots alone";
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words) {
  if (word.size() > 64) return "";
  std::string_view best;
  // A third of the letters may be wrong; more would be a guess.
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : words) {
    if (candidate == "auto" || candidate.size() <= 2) continue;
    std::vector<std::size_t> row(candidate.size() + 1);  // Levenshtein's table, a row at a time
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i + 1);
      for (std::size_t j = 0; j < candidate.size(); ++j) {
        const std::size_t replaced = diagonal + (word[i] != candidate[j]);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
      }
    }
    // A part of the word counts as close: "stages" for "num_stages".
    const bool is_part = word.size() >= 4 && candidate.find(word) != candidate.npos;
    const std::size_t distance = is_part ? std::min<std::size_t>(row.back(), 2) : row.back();
    if (distance < best_distance && distance < std::max(word.size(), candidate.size())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace kernelwright
