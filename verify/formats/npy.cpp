// The header of a .npy file is the text of a Python dict. This code searches its three keys in a text of bounded
// length, and refuses everything that is not exactly what NumPy writes.
#include "kernelwright/verify/formats/npy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

namespace kernelwright {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeader = 64 * 1024;
constexpr int kMaxRank = 8;

template <class T>
constexpr std::string_view kDescr = "";
template <>
constexpr std::string_view kDescr<float> = "<f4";
template <>
constexpr std::string_view kDescr<std::int32_t> = "<i4";

template <class T>
constexpr std::string_view kElement = "";
template <>
constexpr std::string_view kElement<float> = "float32 (descr '<f4')";
template <>
constexpr std::string_view kElement<std::int32_t> = "int32 (descr '<i4')";

// A regular file, opened for reading; closes itself.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
    if (S_ISDIR(info.st_mode)) refuse("is a directory; an .npy file would do");
    if (!S_ISREG(info.st_mode)) refuse("is no regular file; an .npy file would do");  // a FIFO would block the reader
    size_ = info.st_size;
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::int64_t size() const { return size_; }
  std::int64_t position() const { return position_; }
  void read(void* to, std::size_t bytes, const char* what) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = ::read(fd_, static_cast<char*>(to) + done, bytes - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
      if (got == 0) refuse(fmt::format("ends after {} bytes, inside its {}", position_, what));
      done += static_cast<std::size_t>(got);
      position_ += got;
    }
  }
  [[noreturn]] void refuse(const std::string& why) const { throw ConfigError(path_, why); }

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0, position_ = 0;
};

// The text after "'key':" up to where it can end, or nothing.
std::optional<std::string_view> value_of(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = std::string(1, quote) + std::string(key) + quote;
    const std::size_t at = header.find(quoted);
    if (at == header.npos) continue;
    std::string_view rest = header.substr(at + quoted.size());
    const std::size_t colon = rest.find_first_not_of(' ');
    if (colon == rest.npos || rest[colon] != ':') return std::nullopt;
    rest.remove_prefix(colon + 1);
    const std::size_t start = rest.find_first_not_of(' ');
    if (start == rest.npos) return std::nullopt;
    return rest.substr(start);
  }
  return std::nullopt;
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return shown;
}

std::vector<std::int64_t> parse_shape(const File& file, std::string_view text) {
  std::vector<std::int64_t> shape;
  const std::size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == text.npos) file.refuse("has a header without a shape");
  std::string_view list = text.substr(1, end - 1);
  while (true) {
    while (!list.empty() && (list[0] == ' ' || list[0] == ',')) list.remove_prefix(1);
    if (list.empty()) return shape;
    std::int64_t dim = 0;
    std::size_t digits = 0;
    for (; digits < list.size() && list[digits] >= '0' && list[digits] <= '9'; ++digits) {
      dim = dim * 10 + (list[digits] - '0');
      if (dim > (std::int64_t{1} << 40)) file.refuse("has a dimension above 2^40");
    }
    if (!digits) file.refuse(fmt::format("has a shape that does not read: ({}", printable(text.substr(1))));
    shape.push_back(dim);
    if (static_cast<int>(shape.size()) > kMaxRank) file.refuse(fmt::format("has more than {} dimensions", kMaxRank));
    list.remove_prefix(digits);
  }
}

struct Header {
  std::string descr;
  std::vector<std::int64_t> shape;
};

/// Reads the header; `wanted` says which elements are accepted, for messages.
template <class Accepts>
Header read_header(File& file, std::string_view wanted, const Accepts& accepts) {
  std::array<unsigned char, 12> start{};
  if (file.size() < 10) file.refuse(fmt::format("has {} bytes and is no .npy file", file.size()));
  file.read(start.data(), 8, "magic");
  if (std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) file.refuse("does not begin as an .npy file does");
  const int version = start[6];
  if (version != 1 && version != 2) file.refuse(fmt::format("has format version {}; 1 and 2 are read", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  file.read(start.data() + 8, length_bytes, "header");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= std::size_t{start[8 + i]} << (8 * i);
  if (length > kMaxHeader)
    file.refuse(fmt::format("has a header of {} bytes; at most {} are read", length, kMaxHeader));
  std::string header(length, ' ');
  file.read(header.data(), length, "header");

  const auto descr = value_of(header, "descr");
  if (!descr) file.refuse("has a header without a descr");
  if ((*descr)[0] != '\'' && (*descr)[0] != '"')
    file.refuse(fmt::format("holds records, not numbers; {} would do", wanted));
  const std::string_view type = descr->substr(1, descr->find((*descr)[0], 1) - 1);
  if (!accepts(type)) file.refuse(fmt::format("holds elements of descr '{}'; {} would do", printable(type), wanted));
  const auto order = value_of(header, "fortran_order");
  if (!order) file.refuse("has a header without fortran_order");
  if (order->starts_with("True")) file.refuse("is in Fortran order; C order would do (numpy.ascontiguousarray)");
  if (!order->starts_with("False")) file.refuse("has a fortran_order that is neither True nor False");
  const auto shape = value_of(header, "shape");
  if (!shape) file.refuse("has a header without a shape");
  return {std::string(type), parse_shape(file, *shape)};
}

/// The bytes of the data, at most `max_bytes` of them.
std::int64_t data_bytes(const File& file, const std::vector<std::int64_t>& shape, std::size_t element,
                        std::int64_t max_bytes) {
  auto bytes = static_cast<std::int64_t>(element);
  for (const std::int64_t dim : shape)
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > max_bytes)
      file.refuse(fmt::format("shape {} takes more than the {} bytes that are read", shape_text(shape), max_bytes));
  const std::int64_t there = file.size() - file.position();
  if (there != bytes)  // checked before memory is allocated, because a header may claim any size
    file.refuse(fmt::format("holds {} bytes of data and its shape {} takes {}", there, shape_text(shape), bytes));
  return bytes;
}

/// The size of the elements that NumPy calls `descr`: "<f2" has 2 bytes. 0 for what is no plain little-endian number.
std::size_t element_bytes(std::string_view descr) {
  if (descr.size() != 3 || std::string_view("<|").find(descr[0]) == std::string_view::npos ||
      std::string_view("fiub").find(descr[1]) == std::string_view::npos)
    return 0;
  const int bytes = descr[2] - '0';
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return 0;
  if ((bytes == 1) != (descr[0] == '|') || (descr[1] == 'f' && bytes == 1) || (descr[1] == 'b' && bytes != 1)) return 0;
  return static_cast<std::size_t>(bytes);
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

template <class T>
NpyArray<T> read_npy(const std::string& path, std::int64_t max_bytes) {
  File file(path);
  NpyArray<T> array;
  array.shape = read_header(file, kElement<T>, [](std::string_view type) { return type == kDescr<T>; }).shape;
  const auto bytes = static_cast<std::size_t>(data_bytes(file, array.shape, sizeof(T), max_bytes));
  array.values.resize(bytes / sizeof(T));
  file.read(array.values.data(), bytes, "data");
  return array;
}

NpyBytes read_npy_bytes(const std::string& path, std::int64_t max_bytes) {
  File file(path);
  Header header = read_header(file, "a plain little-endian number, '<f4' or '|u1' for instance,",
                              [](std::string_view type) { return element_bytes(type) != 0; });
  NpyBytes array{std::move(header.descr), std::move(header.shape), {}};
  const auto bytes = static_cast<std::size_t>(data_bytes(file, array.shape, element_bytes(array.descr), max_bytes));
  array.bytes.resize(bytes);
  file.read(array.bytes.data(), bytes, "data");
  return array;
}

void write_npy_bytes(const std::string& path, std::string_view descr, const std::vector<std::int64_t>& shape,
                     std::span<const std::byte> bytes) {
  std::string dims;
  for (const std::int64_t dim : shape) dims += fmt::format("{},{}", dim, shape.size() == 1 ? "" : " ");
  if (shape.size() > 1) dims.resize(dims.size() - 2);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dims);
  header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');  // data starts at a multiple of 64
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  text += header;

  const auto fail = [&]() { throw ConfigError(path, fmt::format("cannot be written: {}", std::strerror(errno))); };
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail();
  const auto write = [&](const char* from, std::size_t count) {
    while (count) {
      const ssize_t put = ::write(fd, from, count);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        const int code = errno;
        ::close(fd);
        errno = code;
        fail();
      }
      from += put;
      count -= static_cast<std::size_t>(put);
    }
  };
  write(text.data(), text.size());
  write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (::close(fd) != 0) fail();
}

template <class T>
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape, const std::vector<T>& values) {
  write_npy_bytes(path, kDescr<T>, shape, std::as_bytes(std::span(values)));
}

template NpyArray<float> read_npy<float>(const std::string&, std::int64_t);
template NpyArray<std::int32_t> read_npy<std::int32_t>(const std::string&, std::int64_t);
template void write_npy<float>(const std::string&, const std::vector<std::int64_t>&, const std::vector<float>&);
template void write_npy<std::int32_t>(const std::string&, const std::vector<std::int64_t>&,
                                      const std::vector<std::int32_t>&);

}  // namespace kernelwright
