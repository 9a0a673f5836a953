#include "runtime/emulator/launches/ptx_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"

namespace kernelwright::test {
namespace {

/// A word for "dtype". A float of less than 8 bytes has a format; an integer has none.
struct Element {
  const char* name;
  std::size_t bytes;
  const emulator::NumberFormat* format;
  bool is_float, is_signed;
};
constexpr Element kElements[] = {
    {"f64", 8, nullptr, true, true},           {"f32", 4, &emulator::kF32, true, true},
    {"f16", 2, &emulator::kF16, true, true},   {"bf16", 2, &emulator::kBf16, true, true},
    {"e4m3", 1, &emulator::kE4m3, true, true}, {"e5m2", 1, &emulator::kE5m2, true, true},
    {"i64", 8, nullptr, false, true},          {"i32", 4, nullptr, false, true},
    {"i16", 2, nullptr, false, true},          {"i8", 1, nullptr, false, true},
    {"u64", 8, nullptr, false, false},         {"u32", 4, nullptr, false, false},
    {"u16", 2, nullptr, false, false},         {"u8", 1, nullptr, false, false},
};

const Element& element_of(const std::string& name) {
  for (const Element& element : kElements)
    if (name == element.name) return element;
  throw Error(name + " is no type of an element");
}

void store(const Element& element, double value, std::byte* to) {
  if (element.format) {
    const std::uint32_t code = emulator::encode_number(*element.format, value, emulator::Rounding::kNearestEven);
    std::memcpy(to, &code, element.bytes);
  } else if (element.is_float) {
    std::memcpy(to, &value, 8);
  } else {
    const auto whole = static_cast<std::int64_t>(value);
    std::memcpy(to, &whole, element.bytes);
  }
}

double load(const Element& element, const std::byte* from) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, from, element.bytes);
  if (element.format) return emulator::decode_number(*element.format, static_cast<std::uint32_t>(bits));
  if (element.is_float) return std::bit_cast<double>(bits);
  const std::size_t unused = 64 - 8 * element.bytes;
  if (element.is_signed) return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
  return static_cast<double>(bits);
}

/// The next number of a sequence that a seed gives (splitmix64).
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::string text_of(const std::filesystem::path& path) {
  std::error_code none;
  const std::uintmax_t bytes = std::filesystem::file_size(path, none);
  std::string text(none ? 0 : bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size())) || text.empty())
    throw Error(path.string() + " cannot be read, or is empty");
  return text;
}

double number_or(const JsonValue& json, const char* key, double otherwise) {
  const JsonValue* found = json.find(key);
  return found ? found->as_double() : otherwise;
}

PtxBuffer make_buffer(const JsonValue& json) {
  PtxBuffer buffer;
  if (const JsonValue* output = json.find("output"))
    buffer.output = output->as_string() == "close" ? OutputKind::kClose : OutputKind::kBits;
  if (const JsonValue* addresses = json.find("addresses")) {
    buffer.dtype = "u64", buffer.shape = {static_cast<std::int64_t>(addresses->elements().size())};
    buffer.bytes.resize(8 * buffer.size());  // place() writes them
    return buffer;
  }
  buffer.dtype = json.at("/dtype").as_string();
  const Element& element = element_of(buffer.dtype);
  const JsonValue* values = json.find("values");
  const JsonValue* random = json.find("random");
  if (values)
    buffer.shape = {static_cast<std::int64_t>(values->elements().size())};
  else
    for (const JsonValue& extent : (random ? *random : json.at("/zeros")).elements())
      buffer.shape.push_back(extent.as_int());
  buffer.bytes.resize(buffer.size() * element.bytes);
  if (!values && !random) return buffer;
  const double low = number_or(json, "low", -1), high = number_or(json, "high", 1);
  auto seed = static_cast<std::uint64_t>(number_or(json, "seed", 0));
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    const double unit = static_cast<double>(next_random(seed) >> 11) * 0x1p-53;
    const double drawn = element.is_float ? low + unit * (high - low) : std::floor(low + unit * (high - low + 1));
    store(element, values ? values->elements()[i].as_double() : drawn, buffer.bytes.data() + i * element.bytes);
  }
  return buffer;
}

template <class Word>
Word word_of(const std::string& text) {
  const auto value = from_string<Word>(text);
  if (!value) throw Error(text + " is no word for a tensor map");
  return *value;
}

/// The buffers of a case in the emulator's memory, and the arguments that point to them.
class Memory {
 public:
  Memory(const JsonValue& json, emulator::GlobalMemory& memory) {
    for (const auto& [name, buffer] : json.members()) buffers_[name] = make_buffer(buffer);
    for (const auto& [name, buffer] : buffers_) addresses_[name] = memory.allocate(buffer.bytes.size(), name);
    for (const auto& [name, buffer] : json.members())
      if (const JsonValue* list = buffer.find("addresses"))
        for (std::size_t i = 0; i < list->elements().size(); ++i) {
          const std::uint64_t address = address_in_list(list->elements()[i]);
          std::memcpy(buffers_[name].bytes.data() + 8 * i, &address, 8);
        }
    for (const auto& [name, buffer] : buffers_)
      std::memcpy(reinterpret_cast<void*>(addresses_[name]), buffer.bytes.data(), buffer.bytes.size());
  }

  const std::map<std::string, PtxBuffer>& buffers() const { return buffers_; }

  std::map<std::string, PtxBuffer> now() const {
    std::map<std::string, PtxBuffer> all = buffers_;
    for (auto& [name, buffer] : all)
      std::memcpy(buffer.bytes.data(), reinterpret_cast<const void*>(addresses_.at(name)), buffer.bytes.size());
    return all;
  }

  /// Writes one argument of at most `bytes` bytes.
  void write(const JsonValue& json, std::byte* to, std::size_t bytes) const {
    if (json.is_null()) return;
    if (const JsonValue* members = json.find("struct")) {
      for (const JsonValue& member : members->elements()) {
        const auto offset = static_cast<std::size_t>(member.elements().at(0).as_int());
        if (offset >= bytes) throw Error("a member lies outside of its struct");
        write(member.elements().at(1), to + offset, bytes - offset);
      }
      return;
    }
    if (const JsonValue* map = json.find("tensor_map")) {
      const TensorMap encoded = tensor_map(*map);
      if (bytes < sizeof encoded) throw Error("a tensor map has 128 bytes");
      std::memcpy(to, &encoded, sizeof encoded);
      return;
    }
    if (json.find("buffer")) {
      const std::uint64_t address =
          address_of(json.at("/buffer").as_string()) + static_cast<std::uint64_t>(number_or(json, "offset", 0));
      if (bytes < 8) throw Error("an address has 8 bytes");
      std::memcpy(to, &address, 8);
      return;
    }
    const auto& [type, value] = json.members().at(0);
    const Element& element = element_of(type);
    if (bytes < element.bytes) throw Error("a parameter is smaller than " + type);
    store(element, value.as_double(), to);
  }

 private:
  std::uint64_t address_of(const std::string& name) const {
    const auto found = addresses_.find(name);
    if (found == addresses_.end()) throw Error("there is no buffer " + name);
    return found->second;
  }
  std::uint64_t address_in_list(const JsonValue& json) const {
    if (json.is_string()) return address_of(json.as_string());
    return address_of(json.elements().at(0).as_string()) + static_cast<std::uint64_t>(json.elements().at(1).as_int());
  }
  TensorMap tensor_map(const JsonValue& json) const {
    TensorMapRequest request;
    request.address = address_of(json.at("/buffer").as_string());
    request.dtype = word_of<DType>(json.at("/dtype").as_string());
    request.swizzle = word_of<Swizzle>(json.at("/swizzle").as_string());
    const auto copy = [&](const char* key, auto& to) {
      const auto& from = json.at(key).elements();
      if (from.size() > std::size(to)) throw Error("a tensor map has at most 5 dimensions");
      for (std::size_t i = 0; i < from.size(); ++i)
        to[i] = static_cast<std::remove_reference_t<decltype(to[0])>>(from[i].as_int());
      return static_cast<int>(from.size());
    };
    request.rank = copy("/dims", request.dims);
    copy("/strides", request.strides_bytes);
    copy("/box", request.box);
    return emulator::encode_tensor_map(emulator::describe(request));
  }

  std::map<std::string, PtxBuffer> buffers_;
  std::map<std::string, std::uint64_t> addresses_;
};

emulator::Dim3 dim3_of(const JsonValue& launch, const char* key) {
  emulator::Dim3 dim;
  if (const JsonValue* extents = launch.find(key))
    for (std::size_t i = 0; i < std::min<std::size_t>(3, extents->elements().size()); ++i)
      dim[static_cast<int>(i)] = static_cast<std::uint32_t>(extents->elements()[i].as_int());
  return dim;
}

emulator::LaunchReport launch(emulator::Emulator& machine, const emulator::LoadedModule& module, const JsonValue& json,
                              const Memory& memory) {
  const std::string& name = json.at("/entry").as_string();
  const emulator::Entry* entry = module.module().find(name);
  if (!entry) throw Error("the PTX has no entry " + name);
  const auto& arguments = json.at("/arguments").elements();
  if (arguments.size() != entry->parameters.size())
    throw Error(name + " takes " + std::to_string(entry->parameters.size()) + " arguments");
  std::vector<std::byte> parameters(entry->parameter_bytes);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& variable = entry->parameters[i].second;
    memory.write(arguments[i], parameters.data() + variable.offset, variable.bytes);
  }
  emulator::LaunchShape shape;
  shape.grid = dim3_of(json, "grid"), shape.block = dim3_of(json, "block"), shape.cluster = dim3_of(json, "cluster");
  shape.dynamic_shared_bytes = static_cast<std::uint32_t>(number_or(json, "shared", 0));
  const JsonValue* pdl = json.find("pdl");
  shape.after_previous = shape.after_unknown = pdl && pdl->as_bool();
  return machine.launch(module, name, shape, parameters);
}

bool close(const PtxBuffer& a, const PtxBuffer& b) {
  const Element& element = element_of(a.dtype);
  const int digits = element.format ? element.format->mantissa_bits + 1 : 53;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a.at(i)));
  const double allowed = std::ldexp(largest * std::sqrt(static_cast<double>(a.size())), -digits);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a.at(i) - b.at(i)) <= allowed)) return false;
  return true;
}

/// Calls `take(name, case)` for each case of a JSON file. Errors name the file.
template <class Take>
void each_case(const std::string& path, Take&& take) {
  try {
    const JsonValue document = JsonValue::parse(text_of(path));
    for (const JsonValue& json : document.at("/cases").elements()) take(json.at("/name").as_string(), json);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

}  // namespace

std::size_t PtxBuffer::size() const {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

double PtxBuffer::at(std::size_t index) const {
  const Element& element = element_of(dtype);
  return load(element, bytes.data() + index * element.bytes);
}

std::vector<double> PtxBuffer::values() const {
  std::vector<double> all(size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = at(i);
  return all;
}

double PtxCase::number(const std::string& key) const { return json.at("/numbers/" + key).as_double(); }

std::vector<std::string> ptx_case_names(const std::string& path) {
  std::vector<std::string> names;
  each_case(path, [&](const std::string& name, const JsonValue&) { names.push_back(name); });
  return names;
}

std::vector<PtxCase> read_ptx_cases(const std::string& path, const std::string& filter) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<PtxCase> cases;
  each_case(path, [&](const std::string& name, const JsonValue& json) {
    if (name.find(filter) == std::string::npos) return;
    const std::string& file = json.at("/ptx").as_string();
    cases.push_back({name, file, text_of(folder / file), json});
  });
  return cases;
}

std::vector<std::byte> PtxCaseRun::outputs() const {
  std::vector<std::byte> all;
  for (const auto& [name, buffer] : after)
    if (buffer.output != OutputKind::kNone) all.insert(all.end(), buffer.bytes.begin(), buffer.bytes.end());
  return all;
}

PtxCaseRun run_ptx_case(const PtxCase& test, const std::string& ptx, const emulator::Options& options) {
  emulator::Emulator machine(options);
  const auto module = machine.load(ptx);
  const Memory memory(test.json.at("/buffers"), machine.memory());
  PtxCaseRun run;
  run.before = memory.buffers();
  for (const JsonValue& json : test.json.at("/launches").elements()) {
    emulator::LaunchReport report = launch(machine, *module, json, memory);
    run.warp_instructions += report.statistics.warp_instructions;
    std::move(report.hazards.begin(), report.hazards.end(), std::back_inserter(run.hazards));
    if (report.completed) continue;
    run.fault = report.fault;
    break;
  }
  run.after = memory.now();
  return run;
}

bool agree(const std::map<std::string, PtxBuffer>& a, const std::map<std::string, PtxBuffer>& b) {
  for (const auto& [name, buffer] : a) {
    if (buffer.output == OutputKind::kBits && buffer.bytes != b.at(name).bytes) return false;
    if (buffer.output == OutputKind::kClose && !close(buffer, b.at(name))) return false;
  }
  return true;
}

}  // namespace kernelwright::test
