// Reads --args. Each argument is an object whose first word says its form; all other words of it must be known.
#include "cli/launch_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "cli/terminal.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright::cli {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;

enum class Family : std::uint8_t { kFloat, kSmallFloat, kSigned, kUnsigned };

/// A word for "dtype". NumPy has no bf16 and no 8-bit floats: their files hold the bits.
struct ElementRow {
  const char* name;
  const char* descr;
  std::size_t bytes;
  Family family;
  DType small = DType::kF16;  // of a small float
};
constexpr ElementRow kElements[] = {
    {"f64", "<f8", 8, Family::kFloat},
    {"f32", "<f4", 4, Family::kFloat},
    {"f16", "<f2", 2, Family::kSmallFloat, DType::kF16},
    {"bf16", "<u2", 2, Family::kSmallFloat, DType::kBf16},
    {"e4m3", "|u1", 1, Family::kSmallFloat, DType::kE4m3},
    {"e5m2", "|u1", 1, Family::kSmallFloat, DType::kE5m2},
    {"i64", "<i8", 8, Family::kSigned},
    {"i32", "<i4", 4, Family::kSigned},
    {"i16", "<i2", 2, Family::kSigned},
    {"i8", "|i1", 1, Family::kSigned},
    {"u64", "<u8", 8, Family::kUnsigned},
    {"u32", "<u4", 4, Family::kUnsigned},
    {"u16", "<u2", 2, Family::kUnsigned},
    {"u8", "|u1", 1, Family::kUnsigned},
};

const ElementRow* find_element(std::string_view name) {
  for (const ElementRow& row : kElements)
    if (row.name == name) return &row;
  return nullptr;
}

std::string element_names() {
  std::vector<std::string> names;
  for (const ElementRow& row : kElements) names.emplace_back(row.name);
  return listed(names);
}

constexpr const char* kForms =
    R"(null, {"i32": 7}, {"hex": "00ff"}, {"npy": "x.npy"}, {"zeros": [64], "dtype": "f32"} and )"
    R"({"random": [64], "dtype": "f32"} are accepted)";

/// The next number of a sequence that a seed gives (splitmix64).
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Stores `value` as an element of a float type.
void store_float(const ElementRow& row, double value, std::byte* to) {
  const auto narrow = static_cast<float>(value);
  if (row.family == Family::kSmallFloat) {
    const std::uint32_t bits = encode_float(row.small, narrow);
    std::memcpy(to, &bits, row.bytes);
  } else if (row.bytes == 4) {
    std::memcpy(to, &narrow, 4);
  } else {
    std::memcpy(to, &value, 8);
  }
}

/// One argument, for one parameter.
class Argument {
 public:
  Argument(std::string place, std::string folder, std::string_view parameter, const emulator::Variable& variable)
      : place_(std::move(place)), folder_(std::move(folder)), parameter_(parameter), variable_(variable) {}

  /// Writes the parameter's bytes to `to`, which are zero.
  void read(const JsonValue& json, std::uint64_t seed, LaunchArguments& all, emulator::GlobalMemory& memory,
            std::byte* to) const {
    if (json.is_null()) return require_bytes(8, "a null pointer has");
    if (!json.is_object()) refuse("", fmt::format("is {}; {}", json.kind(), kForms));
    if (json.members().empty()) refuse("", fmt::format("is an empty object; {}", kForms));
    if (json.find("hex")) {
      read_hex(json, to);
      return read_pointers(json, seed, all, memory, to);
    }
    if (json.find("npy") || json.find("zeros") || json.find("random")) {
      LaunchBuffer buffer{std::string(parameter_), 0, {}, {}, {}, {}};
      fill(json, seed, buffer);
      if (const JsonValue* by_value = json.find("by_value"); by_value && flag("/by_value", *by_value)) {
        if (json.find("out")) refuse("/out", R"(is for buffers, and "by_value" makes no buffer)");
        require_bytes(buffer.before.size(), "the array has");
        std::memcpy(to, buffer.before.data(), buffer.before.size());
        return read_pointers(json, seed, all, memory, to);
      }
      if (json.find("pointers")) refuse("/pointers", R"(is for structs; "by_value" makes one of a file)");
      require_bytes(8, "a buffer's address has");
      const std::uint64_t address = cli::place(buffer, memory);
      std::memcpy(to, &address, 8);
      all.buffers.push_back(std::move(buffer));
      return;
    }
    read_number(json, to);
  }

 private:
  [[noreturn]] void refuse(const std::string& member, const std::string& why) const {
    throw ConfigError(fmt::format("{}{} (parameter {})", place_, member, parameter_), why);
  }
  void require_bytes(std::uint64_t bytes, std::string_view what) const {
    if (bytes != variable_.bytes)
      refuse("", fmt::format("{} {} bytes and the parameter takes {}", what, bytes, variable_.bytes));
  }
  /// Refuses the words that this form does not have.
  void require_words(const JsonValue& json, std::initializer_list<std::string_view> words) const {
    for (const auto& [name, value] : json.members())
      if (std::find(words.begin(), words.end(), name) == words.end())
        refuse("/" + name, fmt::format("is no word of this form; it takes {}", fmt::join(words, ", ")));
  }
  const std::string& text(const std::string& member, const JsonValue& json) const {
    if (!json.is_string()) refuse(member, fmt::format("is {}; text is accepted", json.kind()));
    return json.as_string();
  }
  bool flag(const std::string& member, const JsonValue& json) const {
    if (!json.is_bool()) refuse(member, fmt::format("is {}; true and false are accepted", json.kind()));
    return json.as_bool();
  }
  std::string file(const std::string& member, const JsonValue& json) const {
    const std::string& name = text(member, json);
    if (name.empty()) refuse(member, "is empty; the name of an .npy file is accepted");
    return std::filesystem::path(folder_) / name;
  }
  const ElementRow& element(const JsonValue& json) const {
    const JsonValue* dtype = json.find("dtype");
    if (!dtype) refuse("/dtype", fmt::format("is missing; one of {} is accepted", element_names()));
    const std::string& word = text("/dtype", *dtype);
    const ElementRow* row = find_element(word);
    if (!row) refuse("/dtype", fmt::format("is \"{}\"; one of {} is accepted", word, element_names()));
    return *row;
  }

  void read_hex(const JsonValue& json, std::byte* to) const {
    require_words(json, {"hex", "pointers"});
    std::vector<std::uint8_t> digits;
    for (const char c : text("/hex", json.at("/hex"))) {
      if (c == ' ') continue;
      const bool decimal = c >= '0' && c <= '9', small = c >= 'a' && c <= 'f';
      if (!decimal && !small && !(c >= 'A' && c <= 'F'))
        refuse("/hex", fmt::format("has the character '{}'; hexadecimal digits and spaces are accepted",
                                   c >= 0x20 && c < 0x7f ? c : '?'));
      digits.push_back(static_cast<std::uint8_t>(decimal ? c - '0' : small ? c - 'a' + 10 : c - 'A' + 10));
    }
    if (digits.size() % 2) refuse("/hex", fmt::format("has {} digits; two for each byte are accepted", digits.size()));
    require_bytes(digits.size() / 2, "the text has");
    for (std::size_t i = 0; i < digits.size(); i += 2)
      to[i / 2] = static_cast<std::byte>(digits[i] << 4 | digits[i + 1]);
  }

  /// Writes addresses into a struct, at the offsets that "pointers" names.
  void read_pointers(const JsonValue& json, std::uint64_t seed, LaunchArguments& all, emulator::GlobalMemory& memory,
                     std::byte* to) const {
    const JsonValue* pointers = json.find("pointers");
    if (!pointers) return;
    if (!pointers->is_object())
      refuse("/pointers", fmt::format(R"(is {}; offsets with buffers are accepted: {{"16": {{"npy": "x.npy"}}}})",
                                      pointers->kind()));
    for (const auto& [word, value] : pointers->members()) {
      std::uint64_t offset = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), offset);
      if (error != std::errc() || stop != word.data() + word.size() || variable_.bytes < 8 ||
          offset > variable_.bytes - 8)
        refuse("/pointers/" + word, fmt::format("is no offset of 8 bytes in a parameter of {} bytes", variable_.bytes));
      const std::string name = fmt::format("{}+{}", parameter_, offset);
      emulator::Variable pointer;
      pointer.bytes = 8;
      const Argument argument(place_ + "/pointers/" + word, folder_, name, pointer);
      argument.read(value, seed + 1000003 * (offset + 1), all, memory, to + offset);
    }
  }

  void read_number(const JsonValue& json, std::byte* to) const {
    const auto& [name, value] = json.members().front();
    const ElementRow* row = find_element(name);
    if (!row) refuse("/" + name, fmt::format("is no form of an argument; {}", kForms));
    require_words(json, {name});
    if (!value.is_number()) refuse("/" + name, fmt::format("is {}; a number is accepted", value.kind()));
    require_bytes(row->bytes, fmt::format("a number of type {} has", name));
    if (row->family == Family::kFloat || row->family == Family::kSmallFloat) {
      const double most =
          row->family == Family::kSmallFloat ? float_format(row->small).largest : std::numeric_limits<float>::max();
      if (row->bytes <= 4 && std::abs(value.as_double()) > most)
        refuse("/" + name, fmt::format("is {}, which is too large for {}", value.dump(), name));
      return store_float(*row, value.as_double(), to);
    }
    if (!value.is_integer()) refuse("/" + name, fmt::format("is {}; an integer is accepted", value.dump()));
    const bool negative = value.is_int64() && value.as_int() < 0;
    std::uint64_t bits = 0;
    if (value.is_int64())
      bits = static_cast<std::uint64_t>(value.as_int());
    else
      bits = std::stoull(value.dump());
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * row->bytes);
    const bool is_signed = row->family == Family::kSigned;
    if (is_signed ? !fits_signed(bits, negative, most) : negative || bits > most)
      refuse("/" + name, fmt::format("is {}, which is outside the range of {}", value.dump(), name));
    std::memcpy(to, &bits, row->bytes);
  }
  static bool fits_signed(std::uint64_t bits, bool negative, std::uint64_t most) {
    return negative ? 0 - bits <= most / 2 + 1 : bits <= most / 2;
  }

  /// Gives a buffer its contents, element type, shape and file.
  void fill(const JsonValue& json, std::uint64_t seed, LaunchBuffer& buffer) const {
    if (json.find("npy")) {
      require_words(json, {"npy", "dtype", "by_value", "pointers", "out"});
      load(json, buffer);
    } else {
      const bool random = json.find("random");
      if (random)
        require_words(json, {"random", "dtype", "seed", "out"});
      else
        require_words(json, {"zeros", "dtype", "out"});
      const ElementRow& row = element(json);
      const std::string member = random ? "/random" : "/zeros";
      const std::int64_t count = shape(member, json.at(member), row, buffer.shape);
      buffer.descr = row.descr;
      buffer.before.resize(static_cast<std::size_t>(count) * row.bytes);
      if (random) draw(json, row, seed, buffer.before);
    }
    if (const JsonValue* out = json.find("out")) buffer.out = file("/out", *out);
  }

  void load(const JsonValue& json, LaunchBuffer& buffer) const {
    NpyBytes array = read_npy_bytes(file("/npy", json.at("/npy")), kMostBytes);
    if (array.bytes.empty()) refuse("/npy", fmt::format("has the shape {} and no element", shape_text(array.shape)));
    buffer.descr = array.descr;
    buffer.shape = std::move(array.shape);
    if (!json.find("dtype")) {
      buffer.before = std::move(array.bytes);
      return;
    }
    const ElementRow& row = element(json);
    buffer.descr = row.descr;
    if (array.descr == row.descr) {
      buffer.before = std::move(array.bytes);
      return;
    }
    const bool rounds = row.family == Family::kSmallFloat;
    if (!rounds || array.descr != "<f4")
      refuse("/npy", fmt::format("holds elements of descr '{}'; {} takes '{}'{}", array.descr, row.name, row.descr,
                                 rounds ? ", or '<f4', which is rounded" : ""));
    buffer.before.resize(array.bytes.size() / 4 * row.bytes);
    for (std::size_t i = 0; i < array.bytes.size() / 4; ++i) {
      float value = 0;
      std::memcpy(&value, array.bytes.data() + 4 * i, 4);
      store_float(row, value, buffer.before.data() + row.bytes * i);
    }
  }

  std::int64_t shape(const std::string& member, const JsonValue& json, const ElementRow& row,
                     std::vector<std::int64_t>& shape) const {
    if (!json.is_array()) refuse(member, fmt::format("is {}; a shape is accepted: [64, 32]", json.kind()));
    if (json.elements().size() > 8) refuse(member, "has more than 8 dimensions");
    std::int64_t count = 1;
    for (const JsonValue& dim : json.elements()) {
      if (!dim.is_int64() || dim.as_int() < 1)
        refuse(member, fmt::format("has the dimension {}; integers from 1 on are accepted", dim.dump()));
      if (__builtin_mul_overflow(count, dim.as_int(), &count) ||
          count > kMostBytes / static_cast<std::int64_t>(row.bytes))
        refuse(member, fmt::format("takes more than {} bytes, the most that a buffer has", kMostBytes));
      shape.push_back(dim.as_int());
    }
    return count;
  }

  void draw(const JsonValue& json, const ElementRow& row, std::uint64_t seed, std::vector<std::byte>& bytes) const {
    if (const JsonValue* given = json.find("seed")) {
      if (!given->is_int64() || given->as_int() < 0)
        refuse("/seed", fmt::format("is {}; an integer from 0 on is accepted", given->dump()));
      seed = static_cast<std::uint64_t>(given->as_int());
    }
    const bool whole = row.family == Family::kSigned || row.family == Family::kUnsigned;
    for (std::size_t at = 0; at < bytes.size(); at += row.bytes) {
      const std::uint64_t bits = next_random(seed);
      if (const std::uint64_t small = bits % 128; whole)
        std::memcpy(bytes.data() + at, &small, row.bytes);
      else
        store_float(row, static_cast<double>(bits >> 11) * 0x1p-52 - 1, bytes.data() + at);
    }
  }

  std::string place_, folder_;
  std::string_view parameter_;
  const emulator::Variable& variable_;
};

std::string arguments_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in || text.empty()) throw ConfigError("--args", fmt::format("{} cannot be read, or is empty", path));
  return text;
}

std::string takes_text(const emulator::Entry& entry) {
  std::vector<std::string> all;
  for (const auto& [name, variable] : entry.parameters)
    all.push_back(fmt::format("{} ({} bytes)", name, variable.bytes));
  return all.empty() ? "none" : listed(all);
}

}  // namespace

std::size_t LaunchBuffer::changed_bytes() const {
  const auto* now = reinterpret_cast<const std::byte*>(address);
  std::size_t changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) changed += now[i] != before[i];
  return changed;
}

void LaunchArguments::write_back() const {
  for (const LaunchBuffer& buffer : buffers)
    if (!buffer.out.empty())
      write_npy_bytes(buffer.out, buffer.descr, buffer.shape,
                      {reinterpret_cast<const std::byte*>(buffer.address), buffer.before.size()});
}

std::uint64_t place(LaunchBuffer& buffer, emulator::GlobalMemory& memory) {
  buffer.address = memory.allocate(buffer.before.size(), fmt::format("the buffer of {}", buffer.parameter));
  std::memcpy(reinterpret_cast<void*>(buffer.address), buffer.before.data(), buffer.before.size());
  return buffer.address;
}

LaunchArguments arguments_of(const emulator::Entry& entry, const Options& options, emulator::GlobalMemory& memory) {
  const std::size_t first = options.arguments.find_first_not_of(" \t\n");
  const bool is_inline =
      first != std::string::npos && (options.arguments[first] == '[' || options.arguments[first] == '{');
  const std::string place = is_inline ? "--args" : options.arguments;
  const std::string folder = is_inline ? "" : std::filesystem::path(options.arguments).parent_path().string();
  JsonValue list;
  try {
    list = JsonValue::parse(is_inline ? options.arguments : arguments_text(options.arguments));
  } catch (const ConfigError& error) {
    if (!error.violations().empty() && error.violations()[0].path == "--args") throw;
    throw in_file(place, error);
  }
  if (!list.is_array())
    throw ConfigError(place, fmt::format("is {}; a list with an argument for each parameter is accepted", list.kind()));
  if (list.elements().size() != entry.parameters.size())
    throw ConfigError(place, fmt::format("has {} arguments; {} takes {}: {}", list.elements().size(), entry.name,
                                         entry.parameters.size(), takes_text(entry)));
  LaunchArguments made;
  made.parameters.resize(entry.parameter_bytes);
  for (std::size_t i = 0; i < entry.parameters.size(); ++i) {
    const auto& [name, variable] = entry.parameters[i];
    const Argument argument(fmt::format("{}: /{}", place, i), folder, name, variable);
    argument.read(list.elements()[i], options.seed * 1000 + i, made, memory, made.parameters.data() + variable.offset);
  }
  return made;
}

}  // namespace kernelwright::cli
