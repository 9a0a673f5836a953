#include "runtime/emulator/conformance/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "runtime/emulator/conformance/conformance_inputs.h"

namespace kernelwright::test {
namespace {

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw std::runtime_error(fmt::format("{}: cannot be read", file.string()));
  return std::move(text).str();
}

/// The first word of `text`, which loses it; "" at the end.
std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ')));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

template <class Number>
Number number(const std::string& text) {
  std::istringstream stream(text);
  Number value{};
  if (!(stream >> value) || !stream.eof()) throw std::runtime_error(fmt::format("`{}` is no number", text));
  return value;
}

/// "f32[128]"
void read_shape(ConformanceBuffer& buffer, const std::string& text) {
  const std::size_t open = text.find('[');
  if (open == std::string::npos || text.back() != ']')
    throw std::runtime_error(fmt::format("`{}` is no type[count]", text));
  buffer.type = &element_type(std::string_view(text).substr(0, open));
  buffer.count = number<std::size_t>(text.substr(open + 1, text.size() - open - 2));
  if (buffer.count == 0 || buffer.count > 1u << 22) throw std::runtime_error(fmt::format("`{}` is no size", text));
}

/// "exact", "ulp 2", "relative 1e-3 absolute 1e-6"; then, after "because", why.
Comparison read_comparison(const std::vector<std::string>& words) {
  Comparison comparison;
  std::size_t at = 0;
  const auto next = [&]() -> const std::string& {
    if (at >= words.size()) throw std::runtime_error("a comparison lacks its end");
    return words[at++];
  };
  const std::string kind = next();
  if (kind == "bits") {
    comparison.kind = Comparison::Kind::kBits;
  } else if (kind == "exact") {
    comparison.kind = Comparison::Kind::kExact;
  } else if (kind == "ulp") {
    comparison.kind = Comparison::Kind::kUlp;
    comparison.bound = number<double>(next());
  } else if (kind == "relative") {
    comparison.kind = Comparison::Kind::kRelative;
    comparison.bound = number<double>(next());
    if (at < words.size() && words[at] == "absolute") {
      ++at;
      comparison.absolute = number<double>(next());
    }
  } else {
    throw std::runtime_error(fmt::format("`{}` is none of bits, exact, ulp, relative", kind));
  }
  if (at < words.size() && words[at] != "because")
    throw std::runtime_error(fmt::format("`{}` stands where `because` or the end belongs", words[at]));
  return comparison;
}

void fill_buffer(ConformanceBuffer& buffer, std::string_view segments) {
  const std::vector<std::uint64_t> codes = make_inputs(*buffer.type, segments);
  if (codes.size() != buffer.count)
    throw std::runtime_error(fmt::format("{} values are given for {}[{}]", codes.size(), buffer.name, buffer.count));
  buffer.contents.resize(buffer.bytes());
  for (std::size_t i = 0; i < codes.size(); ++i)
    std::memcpy(buffer.contents.data() + i * buffer.type->bytes(), &codes[i], buffer.type->bytes());
}

void read_launch(LaunchConfig& launch, const std::vector<std::string>& words) {
  std::size_t at = 0;
  const auto value = [&] {
    if (at >= words.size()) throw std::runtime_error("a launch shape lacks its end");
    return number<std::uint32_t>(words[at++]);
  };
  while (at < words.size()) {
    const std::string what = words[at++];
    if (what == "grid") {
      for (auto& size : launch.grid) size = value();
    } else if (what == "block") {
      launch.block = value();
    } else if (what == "cluster") {
      for (auto& size : launch.cluster) size = value();
    } else if (what == "shared") {
      launch.shared_bytes = value();
    } else {
      throw std::runtime_error(fmt::format("`{}` is none of grid, block, cluster, shared", what));
    }
  }
}

/// "tiles of x dtype bf16 dims 64 32 strides 128 box 64 8 swizzle 128B"
ConformanceMap read_map(const std::vector<std::string>& words) {
  if (words.size() < 3 || words[1] != "of") throw std::runtime_error("a map is: NAME of BUFFER …");
  ConformanceMap map;
  map.name = words[0];
  map.buffer = words[2];
  TensorMapRequest& request = map.request;
  request.rank = 0;
  request.swizzle = Swizzle::kNone;
  std::size_t at = 3;
  const auto numbers = [&](auto* to, int most) {
    int count = 0;
    while (at < words.size() && std::isdigit(static_cast<unsigned char>(words[at].front()))) {
      if (count == most) throw std::runtime_error("a map has too many dimensions");
      to[count++] = number<std::uint32_t>(words[at++]);
    }
    return count;
  };
  while (at < words.size()) {
    const std::string what = words[at++];
    if (what == "dims") {
      request.rank = numbers(request.dims, 5);
    } else if (what == "strides") {
      numbers(request.strides_bytes, 4);
    } else if (what == "box") {
      numbers(request.box, 5);
    } else if (what == "dtype" && at < words.size()) {
      const std::string& name = words[at++];
      if (name == "bf16")
        request.dtype = DType::kBf16;
      else if (name == "f16")
        request.dtype = DType::kF16;
      else if (name == "f32")
        request.dtype = DType::kF32;
      else if (name == "e4m3")
        request.dtype = DType::kE4m3;
      else
        throw std::runtime_error(fmt::format("`{}` is none of bf16, f16, f32, e4m3", name));
    } else if (what == "swizzle" && at < words.size()) {
      const std::string& name = words[at++];
      if (name == "none")
        request.swizzle = Swizzle::kNone;
      else if (name == "32B")
        request.swizzle = Swizzle::k32B;
      else if (name == "64B")
        request.swizzle = Swizzle::k64B;
      else if (name == "128B")
        request.swizzle = Swizzle::k128B;
      else
        throw std::runtime_error(fmt::format("`{}` is none of none, 32B, 64B, 128B", name));
    } else {
      throw std::runtime_error(fmt::format("`{}` is none of dtype, dims, strides, box, swizzle", what));
    }
  }
  return map;
}

/// One "// …" line of the header; false if it says nothing to us.
bool read_directive(ConformanceCase& test, const std::string& line) {
  std::vector<std::string> words = split_words(line);
  if (words.size() < 2 || words[0] != "//") return false;
  const std::string what = words[1];
  if (what == "launch:") {
    read_launch(test.launch, {words.begin() + 2, words.end()});
    return true;
  }
  const std::size_t colon = line.find(": ");
  if (what == "map:") {
    ConformanceMap map = read_map({words.begin() + 2, words.end()});
    test.parameter_bytes = (test.parameter_bytes + 63) / 64 * 64;
    map.parameter_offset = test.parameter_bytes;
    test.parameter_bytes += sizeof(TensorMap);
    test.maps.push_back(std::move(map));
    return true;
  }
  if (what != "in:" && what != "out:" && what != "inout:") return false;
  ConformanceBuffer buffer;
  buffer.role = what == "in:"    ? ConformanceBuffer::Role::kIn
                : what == "out:" ? ConformanceBuffer::Role::kOut
                                 : ConformanceBuffer::Role::kInOut;
  const std::size_t equals = line.find('=');
  const bool has_contents = buffer.role != ConformanceBuffer::Role::kOut;
  if (has_contents != (equals != std::string::npos))
    throw std::runtime_error(has_contents ? "lacks `= values`" : "an output takes no `= values`");
  words = split_words(line.substr(colon + 2, has_contents ? equals - colon - 2 : std::string::npos));
  if (words.size() < 2) throw std::runtime_error("a buffer is: NAME type[count] …");
  buffer.name = words[0];
  read_shape(buffer, words[1]);
  if (buffer.role != ConformanceBuffer::Role::kIn)
    buffer.comparison = read_comparison({words.begin() + 2, words.end()});
  if (has_contents)
    fill_buffer(buffer, std::string_view(line).substr(equals + 1));
  else
    buffer.contents.assign(buffer.bytes(), std::byte{0xa5});
  test.parameter_bytes = (test.parameter_bytes + 7) / 8 * 8;
  buffer.parameter_offset = test.parameter_bytes;
  test.parameter_bytes += 8;
  test.buffers.push_back(std::move(buffer));
  return true;
}

std::uint64_t code_at(const ConformanceBuffer& buffer, const std::vector<std::byte>& bytes, std::size_t i) {
  std::uint64_t code = 0;
  std::memcpy(&code, bytes.data() + i * buffer.type->bytes(), buffer.type->bytes());
  return code;
}

/// Codes as integers in the order of the numbers that they stand for; the zeros are one.
std::int64_t place_of(const ElementType& type, std::uint64_t code) {
  if (type.kind == ElementType::Kind::kUnsigned) return static_cast<std::int64_t>(code);
  const int unused = 64 - type.bits;
  if (type.kind == ElementType::Kind::kSigned) return static_cast<std::int64_t>(code << unused) >> unused;
  const std::uint64_t sign = std::uint64_t{1} << (type.bits - 1);
  const auto magnitude = static_cast<std::int64_t>(code & (sign - 1));
  return code & sign ? -magnitude : magnitude;
}

std::string show(const ElementType& type, std::uint64_t code) {
  const auto hex = fmt::format("0x{:0{}x}", code, type.bits / 4);
  return type.kind == ElementType::Kind::kFloat ? fmt::format("{} ({:.9g})", hex, value_of(type, code)) : hex;
}

}  // namespace

ConformanceCase read_conformance_case(const std::filesystem::path& file) {
  ConformanceCase test;
  test.file = file;
  test.family = file.parent_path().filename().string();
  test.name = file.stem().string();
  test.text = read_text(file);
  std::istringstream lines(test.text);
  int at = 0;
  for (std::string line; std::getline(lines, line);) {
    ++at;
    try {
      if (line.rfind("//", 0) == 0) read_directive(test, line);
      if (line.rfind(".target", 0) == 0) test.target = split_words(line).at(1);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{}: line {}: {}", file.string(), at, error.what()));
    }
  }
  const auto is_output = [](const ConformanceBuffer& buffer) { return buffer.role != ConformanceBuffer::Role::kIn; };
  if (std::none_of(test.buffers.begin(), test.buffers.end(), is_output))
    throw std::runtime_error(fmt::format("{}: has no `// out:` line", file.string()));
  for (const ConformanceMap& map : test.maps)
    if (std::none_of(test.buffers.begin(), test.buffers.end(),
                     [&](const auto& buffer) { return buffer.name == map.buffer; }))
      throw std::runtime_error(
          fmt::format("{}: map {} is of `{}`, which is no buffer", file.string(), map.name, map.buffer));
  test.parameter_bytes = test.maps.empty() ? test.parameter_bytes : (test.parameter_bytes + 63) / 64 * 64;
  return test;
}

std::vector<std::filesystem::path> conformance_files(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) return {folder};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".ptx") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::byte> conformance_parameters(const ConformanceCase& test, const std::vector<std::uint64_t>& addresses,
                                              const std::vector<TensorMap>& maps) {
  std::vector<std::byte> parameters(test.parameter_bytes);
  for (std::size_t i = 0; i < test.buffers.size(); ++i)
    std::memcpy(parameters.data() + test.buffers[i].parameter_offset, &addresses.at(i), 8);
  for (std::size_t i = 0; i < test.maps.size(); ++i)
    std::memcpy(parameters.data() + test.maps[i].parameter_offset, &maps.at(i), sizeof(TensorMap));
  return parameters;
}

Agreement compare_output(const ConformanceBuffer& buffer, const std::vector<std::byte>& found,
                         const std::vector<std::byte>& recorded) {
  if (found.size() != buffer.bytes() || recorded.size() != buffer.bytes())
    throw std::runtime_error(fmt::format("{}: has {} bytes, recorded {}, not {}", buffer.name, found.size(),
                                         recorded.size(), buffer.bytes()));
  Agreement agreement;
  const ElementType& type = *buffer.type;
  const Comparison& how = buffer.comparison;
  const bool floating = type.kind == ElementType::Kind::kFloat;
  double worst = 0;
  for (std::size_t i = 0; i < buffer.count; ++i) {
    const std::uint64_t a = code_at(buffer, found, i), b = code_at(buffer, recorded, i);
    ++agreement.compared;
    if (a == b) continue;
    const double x = floating ? value_of(type, a) : 0, y = floating ? value_of(type, b) : 0;
    const bool a_nan = std::isnan(x), b_nan = std::isnan(y);
    bool within = how.kind != Comparison::Kind::kBits && a_nan && b_nan;
    double error = within ? 0 : INFINITY;
    if (!within && !a_nan && !b_nan) {
      // Codes are compared where the bound is in codes: an infinity then follows the largest number.
      const bool relative = how.kind == Comparison::Kind::kRelative && floating;
      const double places = static_cast<double>(place_of(type, a)) - static_cast<double>(place_of(type, b));
      error = relative ? std::fabs(x - y) / std::max(std::fabs(y), 1e-300) : std::fabs(places);
      within = how.kind == Comparison::Kind::kUlp ? error <= how.bound
               : relative                         ? std::fabs(x - y) <= how.absolute + how.bound * std::fabs(y)
                                                  : false;
    }
    worst = std::max(worst, error);
    if (within) continue;
    if (agreement.differing++ == 0)
      agreement.first = fmt::format("[{}]: {}, recorded {}", i, show(type, a), show(type, b));
  }
  const bool relative = how.kind == Comparison::Kind::kRelative;
  agreement.worst = std::isinf(worst) ? "NaN"
                    : relative        ? fmt::format("{:.3g}", worst)
                                      : fmt::format("{:g} ulp", worst);
  return agreement;
}

std::filesystem::path recorded_file(const ConformanceCase& test) { return test.file.parent_path() / "recorded.txt"; }

Recorded Recorded::read(const std::filesystem::path& file) {
  Recorded recorded;
  if (!std::filesystem::exists(file)) return recorded;
  const std::string text = read_text(file);
  std::string test;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty() || line.front() == '#') continue;
    const bool is_output = line.front() == ' ';
    const std::string name(next_word(line));
    if (!is_output) {
      test = name;
      continue;
    }
    if (test.empty()) throw std::runtime_error(fmt::format("{}: outputs before a case's name", file.string()));
    std::vector<std::byte> bytes;
    bytes.reserve(line.size() / 2);
    std::size_t element_bytes = 1;
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      if (bytes.empty()) element_bytes = word.size() / 2;
      for (std::size_t at = word.size(); at >= 2;
           at -= 2) {  // most significant digit first, lowest byte first in memory
        unsigned value = 0;
        const auto [end, error] = std::from_chars(word.data() + at - 2, word.data() + at, value, 16);
        if (error != std::errc() || end != word.data() + at)
          throw std::runtime_error(fmt::format("{}: `{}` is not hexadecimal", file.string(), word));
        bytes.push_back(static_cast<std::byte>(value));
      }
    }
    recorded.element_bytes_[test + "/" + name] = element_bytes;
    recorded.outputs_[test][name] = std::move(bytes);
  }
  return recorded;
}

const Outputs* Recorded::find(const ConformanceCase& test) const {
  const auto found = outputs_.find(test.name);
  if (found == outputs_.end()) return nullptr;
  for (const ConformanceBuffer& buffer : test.buffers) {
    if (buffer.role == ConformanceBuffer::Role::kIn) continue;
    const auto output = found->second.find(buffer.name);
    if (output == found->second.end() || output->second.size() != buffer.bytes())
      throw std::runtime_error(fmt::format("{}: what is recorded of `{}` is of another version; record it again",
                                           test.file.string(), buffer.name));
  }
  return &found->second;
}

void Recorded::set(const ConformanceCase& test, Outputs outputs) {
  for (const ConformanceBuffer& buffer : test.buffers)
    if (buffer.role != ConformanceBuffer::Role::kIn)
      element_bytes_[test.name + "/" + buffer.name] = buffer.type->bytes();
  outputs_[test.name] = std::move(outputs);
}

void Recorded::write(const std::filesystem::path& file, const std::string& device) const {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << "# Outputs of " << device << ", as kernelwright_conformance --record wrote them.\n";
  for (const auto& [test, outputs] : outputs_) {
    out << test << "\n";
    for (const auto& [buffer, bytes] : outputs) {
      const std::size_t each = element_bytes_.at(test + "/" + buffer);
      out << " " << buffer;
      for (std::size_t i = 0; i + each <= bytes.size(); i += each) {
        out << " ";
        for (std::size_t at = each; at-- > 0;) out << fmt::format("{:02x}", static_cast<unsigned>(bytes[i + at]));
      }
      out << "\n";
    }
  }
  if (!out.flush()) throw std::runtime_error(fmt::format("{}: cannot be written", file.string()));
}

}  // namespace kernelwright::test
