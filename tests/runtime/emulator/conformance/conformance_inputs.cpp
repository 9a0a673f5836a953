#include "runtime/emulator/conformance/conformance_inputs.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"

namespace kernelwright::test {
namespace {

using emulator::NumberFormat;

constexpr ElementType::Kind kUnsigned = ElementType::Kind::kUnsigned, kSigned = ElementType::Kind::kSigned,
                            kFloat = ElementType::Kind::kFloat;
constexpr ElementType kTypes[] = {
    {"b8", 8, kUnsigned},   {"u8", 8, kUnsigned},   {"s8", 8, kSigned},     {"b16", 16, kUnsigned},
    {"u16", 16, kUnsigned}, {"s16", 16, kSigned},   {"b32", 32, kUnsigned}, {"u32", 32, kUnsigned},
    {"s32", 32, kSigned},   {"b64", 64, kUnsigned}, {"u64", 64, kUnsigned}, {"s64", 64, kSigned},
    {"f16", 16, kFloat},    {"bf16", 16, kFloat},   {"f32", 32, kFloat},    {"f64", 64, kFloat},
    {"e4m3", 8, kFloat},    {"e5m2", 8, kFloat},
};

const NumberFormat& format_of(const ElementType& type) {
  if (type.name == "f16") return emulator::kF16;
  if (type.name == "bf16") return emulator::kBf16;
  if (type.name == "e4m3") return emulator::kE4m3;
  if (type.name == "e5m2") return emulator::kE5m2;
  return emulator::kF32;
}

std::uint64_t mask_of(const ElementType& type) { return ~std::uint64_t{0} >> (64 - type.bits); }

/// SplitMix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  std::uint64_t state_;
};

/// One segment's words.
class Words {
 public:
  explicit Words(std::string_view segment) : text_(segment), stream_(std::string(segment)) {}
  std::string word(std::string_view what) {
    std::string found;
    if (!(stream_ >> found)) throw std::runtime_error(fmt::format("`{}` lacks {}", text_, what));
    return found;
  }
  bool more() { return !(stream_ >> std::ws).eof(); }
  void expect(std::string_view wanted) {
    if (const std::string found = word(wanted); found != wanted)
      throw std::runtime_error(fmt::format("`{}` has `{}` where `{}` belongs", text_, found, wanted));
  }
  std::uint64_t number(std::string_view what) {
    const std::string found = word(what);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
    if (error != std::errc() || end != found.data() + found.size())
      throw std::runtime_error(fmt::format("`{}` has `{}` where {} belongs", text_, found, what));
    return value;
  }
  double real(std::string_view what) {
    const std::string found = word(what);
    char* end = nullptr;
    const double value = std::strtod(found.c_str(), &end);
    if (*end != 0) throw std::runtime_error(fmt::format("`{}` has `{}` where {} belongs", text_, found, what));
    return value;
  }

 private:
  std::string text_;
  std::istringstream stream_;
};

/// 0x…: a code; else a number.
std::uint64_t code_of_text(const ElementType& type, const std::string& text) {
  char* end = nullptr;
  std::uint64_t code = 0;
  if (text.rfind("0x", 0) == 0) {
    code = std::strtoull(text.c_str() + 2, &end, 16);
  } else if (type.kind == kFloat) {
    code = code_of(type, std::strtod(text.c_str(), &end));
  } else {
    code = text.front() == '-' ? static_cast<std::uint64_t>(std::strtoll(text.c_str(), &end, 10))
                               : std::strtoull(text.c_str(), &end, 10);
  }
  if (*end != 0) throw std::runtime_error(fmt::format("`{}` is no {}", text, type.name));
  return code & mask_of(type);
}

std::uint64_t number_between(const ElementType& type, Random& random, double low, double high, bool whole) {
  if (type.kind == kFloat && !whole) return code_of(type, low + (high - low) * random.unit());
  const double value = std::floor(low + (high - low + 1) * random.unit());
  if (type.kind == kFloat) return code_of(type, value);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) & mask_of(type);
}

/// Any sign and mantissa, the exponent evenly spread; an integer's number of bits likewise.
std::uint64_t spread_number(const ElementType& type, Random& random, double low, double high) {
  if (type.kind == kFloat) {
    const double exponent = std::floor(low + (high - low + 1) * random.unit());
    const double magnitude = std::ldexp(1 + random.unit(), static_cast<int>(exponent));
    return code_of(type, random.next() & 1 ? -magnitude : magnitude);
  }
  const auto kept = static_cast<int>(low + (high - low + 1) * random.unit());  // bits
  if (kept <= 0) return 0;
  const std::uint64_t magnitude = random.next() >> (64 - std::min(kept, type.bits));
  return (type.kind == kSigned && random.next() & 1 ? ~magnitude : magnitude) & mask_of(type);
}

void append_segment(std::vector<std::uint64_t>& codes, const ElementType& type, std::string_view segment) {
  Words words(segment);
  const std::string kind = words.word("its kind");
  if (kind == "list") {
    while (words.more()) codes.push_back(code_of_text(type, words.word("a value")));
    return;
  }
  const std::uint64_t count = words.number("a count");
  if (count > 1u << 22) throw std::runtime_error(fmt::format("`{}` asks for {} values", segment, count));
  if (kind == "special") {
    words.expect("stride");
    const std::uint64_t stride = words.number("a stride");
    const auto& special = special_codes(type);
    for (std::uint64_t i = 0; i < count; ++i)
      codes.push_back(special[i / std::max<std::uint64_t>(stride, 1) % special.size()]);
  } else if (kind == "bits" || kind == "random" || kind == "whole" || kind == "spread") {
    words.expect("seed");
    Random random(words.number("a seed"));
    double low = 0, high = 0;
    if (kind != "bits") {
      low = words.real("a lower bound");
      high = words.real("an upper bound");
    }
    for (std::uint64_t i = 0; i < count; ++i)
      codes.push_back(kind == "bits"     ? random.next() & mask_of(type)
                      : kind == "spread" ? spread_number(type, random, low, high)
                                         : number_between(type, random, low, high, kind == "whole"));
  } else if (kind == "iota") {
    const std::uint64_t first = words.number("a first number"), step = words.number("a step");
    for (std::uint64_t i = 0; i < count; ++i)
      codes.push_back(type.kind == kFloat ? code_of(type, static_cast<double>(first + i * step))
                                          : (first + i * step) & mask_of(type));
  } else if (kind == "fill") {
    codes.insert(codes.end(), count, code_of_text(type, words.word("a value")));
  } else {
    throw std::runtime_error(
        fmt::format("`{}` is none of special, bits, random, whole, spread, iota, fill, list", kind));
  }
  if (words.more()) throw std::runtime_error(fmt::format("`{}` goes on where it should end", segment));
}

std::vector<std::uint64_t> special_integers(const ElementType& type) {
  const std::uint64_t mask = mask_of(type), top = std::uint64_t{1} << (type.bits - 1);
  const std::uint64_t codes[] = {0,        1,        mask,         top,  top - 1, top + 1, 2,        3,
                                 7,        31,       32,           33,   63,      64,      100,      255,
                                 mask - 1, mask / 3, mask / 3 * 2, 0x7f, 0x80,    0xff7f,  top >> 1, 0x12345678u};
  std::vector<std::uint64_t> special;
  for (const std::uint64_t code : codes) special.push_back(code & mask);
  return special;
}
std::vector<std::uint64_t> special_floats(const ElementType& type) {
  const bool f64 = type.bits == 64;
  const NumberFormat format = format_of(type);
  const int mantissa_bits = f64 ? 52 : format.mantissa_bits;
  const std::uint64_t sign = std::uint64_t{1} << (type.bits - 1), one_ulp = 1,
                      min_normal = std::uint64_t{1} << mantissa_bits;
  const std::uint64_t largest = f64 ? 0x7fefffffffffffffu : format.max_code, one = code_of(type, 1);
  std::vector<std::uint64_t> special = {
      0,       sign,           one,        one | sign,     one + one_ulp,           one - one_ulp,
      one_ulp, one_ulp | sign, min_normal, min_normal - 1, (min_normal - 1) | sign, min_normal + 1,
      largest, largest | sign};
  for (const double value : {0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.5, 0.75, 3.0, -100.25})
    special.push_back(code_of(type, value));
  if (f64 || format.has_infinity) {
    special.push_back(largest + 1);
    special.push_back((largest + 1) | sign);
  }
  special.push_back(f64 ? 0x7ff8000000000000u : format.nan_code);
  if (f64 || format.has_infinity) special.push_back((largest + 2) | sign);  // a negative NaN; signalling, but in e5m2
  return special;
}

}  // namespace

const ElementType& element_type(std::string_view name) {
  for (const ElementType& type : kTypes)
    if (type.name == name) return type;
  throw std::runtime_error(fmt::format("`{}` is no element type", name));
}

double value_of(const ElementType& type, std::uint64_t code) {
  if (type.bits == 64) return std::bit_cast<double>(code);
  return emulator::decode_number(format_of(type), static_cast<std::uint32_t>(code));
}
std::uint64_t code_of(const ElementType& type, double value) {
  if (type.bits == 64) return std::bit_cast<std::uint64_t>(value);
  return emulator::encode_number(format_of(type), value, emulator::Rounding::kNearestEven);
}

const std::vector<std::uint64_t>& special_codes(const ElementType& type) {
  static const auto made = [] {
    std::map<std::string_view, std::vector<std::uint64_t>> by_type;
    for (const ElementType& each : kTypes)
      by_type[each.name] = each.kind == kFloat ? special_floats(each) : special_integers(each);
    return by_type;
  }();
  return made.at(type.name);
}

std::vector<std::uint64_t> make_inputs(const ElementType& type, std::string_view segments) {
  std::vector<std::uint64_t> codes;
  while (true) {
    const std::size_t comma = segments.find(',');
    append_segment(codes, type, segments.substr(0, comma));
    if (comma == std::string_view::npos) return codes;
    segments.remove_prefix(comma + 1);
  }
}

}  // namespace kernelwright::test
