/// Numbers on the command line. CLI11 uses strtoull and strtod, which read "-1" as 2^64 - 1, clamp what is too large,
/// read "0x10" as 16 and accept "nan". These checks look at the word first.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace kernelwright::cli {

/// The help's word for every number. Completions and tests recognise numbers by this word.
inline constexpr const char* kNumberType = "NUMBER";

/// An integer in decimal digits, from `least` to `most`.
class WholeNumber : public CLI::Validator {
 public:
  WholeNumber(std::uint64_t least, std::uint64_t most) : CLI::Validator("") {
    const bool bounded = most != std::numeric_limits<std::uint64_t>::max();
    const std::string range = bounded ? fmt::format("from {} to {}", least, most) : fmt::format("from {} on", least);
    if (bounded && most <= 1'000'000) desc_function_ = [range] { return range; };
    func_ = [least, most, range](std::string& word) -> std::string {
      std::uint64_t value = 0;
      const char* end = word.data() + word.size();
      const auto [stop, fault] = std::from_chars(word.data(), end, value);
      if (fault == std::errc() && stop == end && value >= least && value <= most) return {};
      return fmt::format("{} is no whole number {}", word, range);
    };
  }
};

/// A finite number from `least` to `most`.
class FiniteNumber : public CLI::Validator {
 public:
  FiniteNumber(double least, double most) : CLI::Validator("") {
    func_ = [least, most](std::string& word) -> std::string {
      double value = 0;
      const char* end = word.data() + word.size();
      const auto [stop, fault] = std::from_chars(word.data(), end, value);
      if (fault == std::errc() && stop == end && value >= least && value <= most) return {};
      return fmt::format("{} is no number from {:g} to {:g}", word, least, most);
    };
  }
};

inline constexpr std::uint64_t kAnyWhole = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t kMostInt = std::numeric_limits<int>::max();
inline constexpr std::uint64_t kMostUnsigned = std::numeric_limits<std::uint32_t>::max();

/// An option of `verb` whose value is an integer from `least` to `most`.
template <class T>
CLI::Option* whole(CLI::App* verb, const char* name, T& to, const char* text, std::uint64_t least, std::uint64_t most) {
  return verb->add_option(name, to, text)->type_name(kNumberType)->check(WholeNumber(least, most));
}

/// An option of `verb` whose value is a number from 0 to `most`.
template <class T>
CLI::Option* finite(CLI::App* verb, const char* name, T& to, const char* text, double most) {
  return verb->add_option(name, to, text)->type_name(kNumberType)->check(FiniteNumber(0, most));
}

}  // namespace kernelwright::cli
