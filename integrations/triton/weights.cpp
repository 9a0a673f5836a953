// A file of safetensors: 8 bytes with the header's size, a header of JSON, and the tensors' bytes.
#include "weights.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernelwright/generator/message.h"
#include "kernelwright/runtime/slot/readiness.h"

namespace kernelwright::triton {
namespace {

constexpr std::uint64_t kSizeBytes = 8;                   // of the header's size, little-endian
constexpr std::uint64_t kChunk = std::uint64_t{8} << 20;  // of a file that is copied to a device

/// The format's word for elements of a request's types.
std::string word_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return "F16";
    case DType::kBf16: return "BF16";
    case DType::kF32: return "F32";
    default: return "no type of a model";
  }
}

/// What the header says of a tensor.
struct Entry {
  std::string dtype;
  Shape shape;
  std::int64_t begin = 0, end = 0;  // of its bytes, behind the header
};

/// Throws Error if a part is missing or of another type.
Entry read_entry(const JsonValue& tensor) {
  Entry entry{tensor.at("/dtype").as_string(),
              {},
              tensor.at("/data_offsets/0").as_int(),
              tensor.at("/data_offsets/1").as_int()};
  for (const JsonValue& extent : tensor.at("/shape").elements()) entry.shape.push_back(extent.as_int());
  return entry;
}

bool has_chosen_sizes(const Operand& operand) {
  return std::any_of(operand.shape.begin(), operand.shape.end(),
                     [](const Dimension& each) { return !each.name.empty(); });
}

}  // namespace

DevicePtr Buffer::reserve(std::uint64_t bytes) {
  if (bytes > bytes_) {
    device_->free(address_);
    address_ = bytes_ = 0;
    address_ = device_->allocate(bytes);
    bytes_ = bytes;
  }
  return address_;
}

Weights::Weights(const WeightsFile& file, std::vector<Operand>& operands)
    : path_(file.path), operands_(operands.size()) {
  std::vector<Violation> found;
  for (const auto& [operand, name] : file.names)
    if (std::none_of(operands.begin(), operands.end(),
                     [&, &of = operand](const Operand& each) { return each.name == of; }))
      found.push_back({pointer_to("/parameters", "tensor." + operand), "is given, and the problem has no such tensor"});
    else if (path_.empty())
      found.push_back({pointer_to("/parameters", "tensor." + operand), "is given, and the model has no weights"});
  if (!found.empty()) throw ConfigError(std::move(found));
  if (path_.empty()) return;

  file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) throw MissingError("kernelwright: " + path_ + " cannot be read: " + std::strerror(errno));
  try {
    std::uint64_t data = 0, data_bytes = 0;
    const JsonValue header = read_header(data, data_bytes);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      Operand& operand = operands[i];
      const auto named = file.names.find(operand.name);
      const std::string& name = named == file.names.end() ? operand.name : named->second;
      const JsonValue* tensor = header.find(name);
      const auto refuse = [&](const std::string& why) {
        found.push_back({"/" + operand.name, quoted_for_message(name) + " of " + path_ + " " + why});
      };
      if (!tensor) {
        if (named != file.names.end()) refuse("is not there");
        continue;
      }
      if (operand.is_output || has_chosen_sizes(operand)) {
        refuse(operand.is_output ? "is a result" : "has a size that a request chooses, so requests give it");
        continue;
      }
      Entry entry;
      try {
        entry = read_entry(*tensor);
      } catch (const Error& error) {
        refuse(std::string("is no tensor in the header: ") + error.what());
        continue;
      }
      const Shape wanted = shape_of(operand, {});
      if (entry.dtype != word_of(operand.dtype))
        refuse("is " + entry.dtype + "; " + word_of(operand.dtype) + " is accepted");
      if (entry.shape != wanted)
        refuse("has the shape " + text_of(entry.shape) + "; the problem's tensor has " + text_of(wanted));
      const std::uint64_t bytes = bytes_of(operand, wanted);
      if (entry.begin < 0 || entry.end < entry.begin || static_cast<std::uint64_t>(entry.end) > data_bytes ||
          static_cast<std::uint64_t>(entry.end - entry.begin) != bytes)
        refuse("has no place for its " + std::to_string(bytes) + " bytes in the file");
      operand.is_held = true;
      tensors_.push_back({i, data + static_cast<std::uint64_t>(entry.begin), bytes});
    }
    if (found.empty() && tensors_.empty())
      found.push_back({"/parameters/weights", path_ + " has no tensor of the problem"});
    if (!found.empty()) throw ConfigError(std::move(found));
  } catch (...) {
    close(file_);
    throw;
  }
}

Weights::~Weights() {
  if (file_ >= 0) close(file_);
}

JsonValue Weights::read_header(std::uint64_t& data, std::uint64_t& data_bytes) const {
  const auto refuse = [&](const std::string& why) { throw ConfigError("/parameters/weights", path_ + " " + why); };
  struct stat about = {};
  if (fstat(file_, &about) != 0 || !S_ISREG(about.st_mode)) refuse("is no file");
  const auto file_bytes = static_cast<std::uint64_t>(about.st_size);
  unsigned char little[kSizeBytes] = {};
  if (file_bytes < kSizeBytes) refuse("is no file of safetensors: it ends in its first 8 bytes");
  read(little, 0, kSizeBytes);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = kSizeBytes; i-- > 0;) bytes = bytes << 8 | little[i];
  if (bytes > file_bytes - kSizeBytes) refuse("is no file of safetensors: it ends in its header");
  if (bytes > JsonValue::kMaxBytes)
    refuse("has a header of " + std::to_string(bytes) + " bytes; at most " + std::to_string(JsonValue::kMaxBytes) +
           " are read");
  std::string text(bytes, '\0');
  read(text.data(), kSizeBytes, bytes);
  data = kSizeBytes + bytes;
  data_bytes = file_bytes - data;
  try {
    return JsonValue::parse(text);
  } catch (const ConfigError& error) {
    refuse(std::string("is no file of safetensors: its header is no JSON: ") + error.what());
  }
  return {};
}

void Weights::read(void* to, std::uint64_t offset, std::uint64_t bytes) const {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file_, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw ConfigError(
          "/parameters/weights",
          path_ + (got == 0 ? " has become shorter" : std::string(" cannot be read: ") + std::strerror(errno)));
    at += got, offset += static_cast<std::uint64_t>(got), bytes -= static_cast<std::uint64_t>(got);
  }
}

const std::vector<DevicePtr>& Weights::on(Device& device) {
  const std::lock_guard lock(mutex_);
  if (const auto known = copies_.find(&device); known != copies_.end()) return known->second.addresses;
  Copy copy;
  copy.addresses.resize(operands_);
  std::vector<std::byte> chunk;
  for (const Tensor& tensor : tensors_) {
    const DevicePtr to = copy.buffers.emplace_back(device).reserve(tensor.bytes);
    chunk.resize(std::min(kChunk, tensor.bytes));
    for (std::uint64_t done = 0; done < tensor.bytes; done += chunk.size()) {
      const std::uint64_t bytes = std::min<std::uint64_t>(chunk.size(), tensor.bytes - done);
      read(chunk.data(), tensor.offset + done, bytes);
      device.copy_to_device(to + done, chunk.data(), bytes);
    }
    copy.addresses[tensor.operand] = to;
  }
  return copies_.emplace(&device, std::move(copy)).first->second.addresses;
}

std::uint64_t Weights::bytes() {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [device, copy] : copies_)
    for (const Buffer& buffer : copy.buffers) bytes += buffer.bytes();
  return bytes;
}

}  // namespace kernelwright::triton
