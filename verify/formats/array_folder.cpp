#include "kernelwright/verify/formats/array_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/parallel.h"

namespace kernelwright {
namespace {

const char* const kOrdinals[] = {"first", "second", "third", "fourth"};

}  // namespace

Dim Dim::exactly(std::int64_t value, const std::string& name) { return {value, fmt::format("{} is {}", name, value)}; }

ArrayFolder::ArrayFolder(std::string folder) : folder_(std::move(folder)) {
  std::error_code code;
  if (!std::filesystem::is_directory(folder_, code))
    throw ConfigError(folder_, std::filesystem::exists(folder_, code)
                                   ? "is no folder; a folder of .npy files would do"
                                   : "does not exist; a folder of .npy files would do");
}

std::string ArrayFolder::path(const std::string& name) const {
  return (std::filesystem::path(folder_) / name).string() + ".npy";
}

bool ArrayFolder::there(const std::string& name) const {
  std::error_code code;
  return std::filesystem::exists(path(name), code);
}

void ArrayFolder::fault(const std::string& name, std::string message) {
  violations_.push_back({path(name), std::move(message)});
}

void ArrayFolder::unread(const std::string& name, bool is_read, const std::string& why) {
  if (!is_read && there(name)) fault(name, fmt::format("is not read: {}; take it away, or change the problem", why));
}

template <class T>
std::optional<NpyArray<T>> ArrayFolder::read(const std::string& name, const std::vector<Dim>& dims) {
  try {
    NpyArray<T> array = read_npy<T>(path(name));
    if (array.shape.size() != dims.size()) {
      fault(name, fmt::format("shape {}; it takes {} dimension{}", shape_text(array.shape), dims.size(),
                              dims.size() == 1 ? "" : "s"));
      return std::nullopt;
    }
    bool fits = true;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (array.shape[i] > std::numeric_limits<std::int32_t>::max()) {
        fault(name, fmt::format("shape {}; a dimension is at most 2^31 - 1", shape_text(array.shape)));
        fits = false;
      } else if (dims[i].wanted && array.shape[i] != *dims[i].wanted) {
        const bool last = i + 1 == dims.size() && i > 0;
        fault(name, fmt::format("shape {}; {}, so the {} dimension would be {}", shape_text(array.shape), dims[i].why,
                                last ? "last" : kOrdinals[i], *dims[i].wanted));
        fits = false;
      }
    }
    if (fits) return array;
  } catch (const ConfigError& error) {
    violations_.insert(violations_.end(), error.violations().begin(), error.violations().end());
  }
  return std::nullopt;
}
template std::optional<NpyArray<float>> ArrayFolder::read<float>(const std::string&, const std::vector<Dim>&);
template std::optional<NpyArray<std::int32_t>> ArrayFolder::read<std::int32_t>(const std::string&,
                                                                               const std::vector<Dim>&);

void ArrayFolder::require_no_fault() const {
  if (!violations_.empty()) throw ConfigError(violations_);
}

std::vector<std::byte> encode_all(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * bytes_of(dtype));
  constexpr std::size_t kPiece = 1 << 16;
  parallel_for((values.size() + kPiece - 1) / kPiece, [&](std::size_t piece) {
    const std::size_t from = piece * kPiece, count = std::min(kPiece, values.size() - from);
    encode_row(dtype, std::span(values).subspan(from, count), bytes.data() + from * bytes_of(dtype));
  });
  return bytes;
}

void make_output_folder(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder))
    throw ConfigError(folder, "cannot be made a folder" + (code ? ": " + code.message() : std::string()));
}

void write_elements(const std::string& folder, const std::string& name, const std::vector<std::int64_t>& shape,
                    DType dtype, const std::vector<std::byte>& elements) {
  std::vector<double> exact(elements.size() / bytes_of(dtype));
  decode_row(dtype, elements.data(), exact.size(), exact.data());
  write_npy<float>((std::filesystem::path(folder) / name).string() + ".npy", shape,
                   std::vector<float>(exact.begin(), exact.end()));
}

void write_rows(const std::string& folder, const std::string& name, const std::vector<std::int64_t>& shape, DType dtype,
                std::int64_t stride, const std::vector<std::byte>& rows) {
  const std::size_t row = bytes_of(dtype, static_cast<std::size_t>(shape.back())),
                    step = bytes_of(dtype, static_cast<std::size_t>(stride));
  std::vector<std::byte> dense;
  for (std::size_t first = 0; first < rows.size(); first += step)
    dense.insert(dense.end(), rows.begin() + static_cast<std::ptrdiff_t>(first),
                 rows.begin() + static_cast<std::ptrdiff_t>(first + row));
  write_elements(folder, name, shape, dtype, dense);
}

}  // namespace kernelwright
