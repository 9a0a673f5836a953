#include "kernelwright/runtime/emulator/machine/device_print.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "kernelwright/runtime/emulator/machine/memory.h"

namespace kernelwright::emulator {
namespace {

constexpr int kWidest = 1024;  // of one number

template <class T>
T value_at(Warp& warp, int lane, std::uint64_t address) {
  T value;
  std::memcpy(&value, generic_place(warp, lane, address, sizeof value, Access::kRead).host, sizeof value);
  return value;
}

/// Reads arguments in order.
class Arguments {
 public:
  Arguments(Warp& warp, int lane, std::uint64_t begin) : warp_(warp), lane_(lane), at_(begin) {}
  template <class T>
  T next() {
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const T value = value_at<T>(warp_, lane_, at_);
    at_ += sizeof(T);
    ++count_;
    return value;
  }
  int count() const { return count_; }

 private:
  Warp& warp_;
  int lane_;
  std::uint64_t at_;
  int count_ = 0;
};

/// "%-8.3" of "%-8.3lf": what stands between the percent sign and the length.
struct Spec {
  std::string flags;
  int width = -1, precision = -1;
  bool is_long = false;  // 64-bit integers
  int halves = 0;        // "h": 16-bit integers, "hh": 8-bit ones
  char conversion = 0;

  template <class T>
  std::string shown(const char* length, T value) const {
    std::string spelt = "%" + flags;
    if (width >= 0) spelt += std::to_string(width);
    if (precision >= 0) spelt += "." + std::to_string(precision);
    spelt += length;
    spelt += conversion;
    char text[2 * kWidest + 512];  // the longest f64 has 309 digits before its point
    const int written = std::snprintf(text, sizeof text, spelt.c_str(), value);
    return std::string(text, static_cast<std::size_t>(std::clamp(written, 0, static_cast<int>(sizeof text) - 1)));
  }
  const char* length() const { return is_long ? "ll" : halves > 1 ? "hh" : halves == 1 ? "h" : ""; }
  std::string padded(std::string text) const {
    const auto whole = static_cast<std::size_t>(std::max(width, 0));
    if (text.size() >= whole) return text;
    const std::string blanks(whole - text.size(), ' ');
    return flags.find('-') != std::string::npos ? text + blanks : blanks + text;
  }
};

int read_number(std::string_view format, std::size_t& at, Arguments& arguments) {
  if (at < format.size() && format[at] == '*') {
    ++at;
    return std::clamp(arguments.next<int>(), -kWidest, kWidest);
  }
  int number = 0;
  for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at)
    number = std::min(10 * number + (format[at] - '0'), kWidest);
  return number;
}

/// Reads what follows a percent sign. The conversion is 0 if the format ends before it.
Spec read_spec(std::string_view format, std::size_t& at, Arguments& arguments) {
  Spec spec;
  for (; at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos; ++at)
    if (spec.flags.find(format[at]) == std::string::npos) spec.flags += format[at];
  if (at < format.size() && (format[at] == '*' || (format[at] >= '1' && format[at] <= '9'))) {
    const int width = read_number(format, at, arguments);
    if (width < 0) spec.flags += '-';  // of "%*d": to the left
    spec.width = std::abs(width);
  }
  if (at < format.size() && format[at] == '.') {
    ++at;
    spec.precision = std::max(read_number(format, at, arguments), -1);  // below 0: none
  }
  for (; at < format.size() && std::string_view("hljztL").find(format[at]) != std::string_view::npos; ++at)
    if (format[at] == 'h')
      ++spec.halves;
    else
      spec.is_long |= format[at] != 'L';
  if (at < format.size()) spec.conversion = format[at++];
  return spec;
}

std::string shown(Warp& warp, int lane, const Spec& spec, Arguments& arguments) {
  switch (spec.conversion) {
    case '%': return "%";
    case 'd':
    case 'i':
      return spec.is_long ? spec.shown("ll", arguments.next<long long>())
                          : spec.shown(spec.length(), arguments.next<int>());
    case 'u':
    case 'o':
    case 'x':
    case 'X':
      return spec.is_long ? spec.shown("ll", arguments.next<unsigned long long>())
                          : spec.shown(spec.length(), arguments.next<unsigned>());
    case 'c': return spec.shown("", arguments.next<int>());
    case 's': {
      const std::size_t limit = spec.precision < 0 ? kLongestText : static_cast<std::size_t>(spec.precision);
      return spec.padded(text_at(warp, lane, arguments.next<std::uint64_t>(), limit));
    }
    case 'p': return spec.shown("", reinterpret_cast<void*>(arguments.next<std::uint64_t>()));
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
    case 'a':
    case 'A': return spec.shown("", arguments.next<double>());
    default: return std::string("%") + spec.conversion;  // as a GPU does, print what is no conversion
  }
}

}  // namespace

std::string text_at(Warp& warp, int lane, std::uint64_t address, std::size_t limit) {
  if (address == 0) return std::string("(null)").substr(0, limit);
  std::string text;
  while (text.size() < limit) {
    const char next = value_at<char>(warp, lane, address + text.size());
    if (next == 0) break;
    text += next;
  }
  return text;
}

Printed print_for_lane(Warp& warp, int lane, std::uint64_t format_address, std::uint64_t arguments_address) {
  if (format_address == 0) return {.text = "", .arguments = -1};
  const std::string format = text_at(warp, lane, format_address);
  Arguments arguments(warp, lane, arguments_address);
  Printed printed;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      printed.text += format[at++];
      continue;
    }
    ++at;
    const Spec spec = read_spec(format, at, arguments);
    if (spec.conversion != 0) printed.text += shown(warp, lane, spec, arguments);
  }
  printed.arguments = arguments.count();
  return printed;
}

}  // namespace kernelwright::emulator
