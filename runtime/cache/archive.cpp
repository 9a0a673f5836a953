// The few structures of a zip file (PKWARE's APPNOTE.TXT, 4.3). A header lies before each member's bytes. The central
// directory has the same facts again, and a record ends the file. One function makes each of them. The reader makes
// them anew from the names and sizes that it found, and compares.
#include "kernelwright/runtime/cache/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kMostNameBytes = 128;
constexpr std::uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50, kEndMagic = 0x06054b50;
constexpr std::uint16_t kReaderVersion = 10;                   // 1.0: stored members
constexpr std::uint16_t kMadeBy = 3 << 8 | 10;                 // on Unix, so that modes mean something
constexpr std::uint16_t kDate = 0 << 9 | 1 << 5 | 1;           // 1980-01-01, the first that a zip file knows
constexpr std::uint32_t kMode = std::uint32_t{0100644} << 16;  // a regular file

using Bytes = std::vector<std::byte>;

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
    table[i] = value;
  }
  return table;
}

/// Little-endian numbers, one after another.
class ZipRecord {
 public:
  ZipRecord& u16(std::uint64_t value) { return number(value, 2); }
  ZipRecord& u32(std::uint64_t value) { return number(value, 4); }
  ZipRecord& text(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Bytes take() { return std::move(bytes_); }

 private:
  ZipRecord& number(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_.push_back(static_cast<std::byte>(value >> 8 * i & 0xff));
    return *this;
  }
  Bytes bytes_;
};

std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t offset, int size) {
  std::uint64_t value = 0;
  for (int i = size - 1; i >= 0; --i)
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + static_cast<std::size_t>(i)]);
  return value;
}

/// What both headers of a member say: from the version that reads it to the length of its extra field.
ZipRecord& facts(ZipRecord& record, const ArchiveMember& member) {
  return record.u16(kReaderVersion)
      .u16(0)  // no flags
      .u16(0)  // stored
      .u16(0)  // midnight
      .u16(kDate)
      .u32(member.crc)
      .u32(member.bytes)
      .u32(member.bytes)
      .u16(member.name.size())
      .u16(0);
}

Bytes local_header(const ArchiveMember& member) {
  ZipRecord record;
  return facts(record.u32(kLocalMagic), member).text(member.name).take();
}

std::uint64_t header_offset(const ArchiveMember& member) { return member.offset - kLocalBytes - member.name.size(); }

Bytes central_header(const ArchiveMember& member) {
  ZipRecord record;
  return facts(record.u32(kCentralMagic).u16(kMadeBy), member)
      .u16(0)  // no comment
      .u16(0)  // the first disk
      .u16(0)
      .u32(kMode)
      .u32(header_offset(member))
      .text(member.name)
      .take();
}

Bytes end_record(std::size_t members, std::uint64_t directory_bytes, std::uint64_t directory_offset) {
  return ZipRecord()
      .u32(kEndMagic)
      .u16(0)
      .u16(0)
      .u16(members)
      .u16(members)
      .u32(directory_bytes)
      .u32(directory_offset)
      .u16(0)
      .take();
}

void append_bytes(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

bool is_at(std::span<const std::byte> bytes, std::size_t offset, const Bytes& wanted) {
  return offset <= bytes.size() && wanted.size() <= bytes.size() - offset &&
         std::memcmp(bytes.data() + offset, wanted.data(), wanted.size()) == 0;
}

/// Reads the member whose central header is at `at`, where its contents must begin at or behind `from`. Returns false
/// if the header is not what write_archive() would have made.
bool read_member(std::span<const std::byte> directory, std::size_t at, std::uint64_t from, ArchiveMember& member) {
  if (at > directory.size() || directory.size() - at < kCentralBytes) return false;
  const auto name_bytes = static_cast<std::size_t>(number_at(directory, at + 28, 2));
  if (name_bytes > kMostNameBytes || directory.size() - at - kCentralBytes < name_bytes) return false;
  member.name.assign(reinterpret_cast<const char*>(directory.data()) + at + kCentralBytes, name_bytes);
  member.crc = static_cast<std::uint32_t>(number_at(directory, at + 16, 4));
  member.bytes = number_at(directory, at + 20, 4);
  member.offset = from + kLocalBytes + name_bytes;
  return is_member_name(member.name) && is_at(directory, at, central_header(member));
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t value = 0xffffffff;
  for (const std::byte byte : bytes) value = value >> 8 ^ kTable[(value ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  return ~value;
}

bool is_member_name(std::string_view name) {
  if (name.empty() || name.size() > kMostNameBytes || name.back() == '/') return false;
  bool begins = true;  // a word begins here
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!plain && (begins || (c != '-' && c != '.' && c != '/'))) return false;
    begins = c == '/';
  }
  return true;
}

std::vector<std::byte> write_archive(const std::map<std::string, std::vector<std::byte>>& members) {
  if (members.size() > kMaxArchiveMembers)
    throw Error(
        fmt::format("an archive of {} files is too large; it takes at most {}", members.size(), kMaxArchiveMembers));
  Bytes bytes, directory;
  for (const auto& [name, contents] : members) {
    if (!is_member_name(name)) throw Error(fmt::format("\"{}\" is no name of a file in an archive", name));
    if (bytes.size() + contents.size() > kMaxArchiveBytes)
      throw Error(fmt::format("an archive with {} would be larger than {} bytes", name, kMaxArchiveBytes));
    const ArchiveMember member{name, bytes.size() + kLocalBytes + name.size(), contents.size(), crc32(contents)};
    append_bytes(bytes, local_header(member));
    append_bytes(bytes, contents);
    append_bytes(directory, central_header(member));
  }
  const std::uint64_t directory_offset = bytes.size();
  append_bytes(bytes, directory);
  append_bytes(bytes, end_record(members.size(), directory.size(), directory_offset));
  return bytes;
}

const ArchiveMember* ArchiveDirectory::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(members, name, {},
                                           [](const ArchiveMember& member) { return std::string_view(member.name); });
  return at != members.end() && at->name == name ? &*at : nullptr;
}

ArchiveDirectory read_archive(std::uint64_t file_bytes, const ReadAt& read_at) {
  const auto refused = [](std::string reason) { return ArchiveDirectory{{}, std::move(reason)}; };
  const std::string unread = "cannot be read", altered = "was altered, or another program made it";
  if (file_bytes < kEndBytes) return refused(fmt::format("is cut short: {} bytes", file_bytes));
  if (file_bytes > 2 * kMaxArchiveBytes) return refused(fmt::format("is too large: {} bytes", file_bytes));
  Bytes end(kEndBytes);
  if (!read_at(file_bytes - kEndBytes, end)) return refused(unread);
  if (number_at(end, 0, 4) != kEndMagic) return refused("is cut short, or no bundle: a zip file's end is missing");
  const auto count = static_cast<std::size_t>(number_at(end, 10, 2));
  const std::uint64_t directory_bytes = number_at(end, 12, 4), directory_offset = number_at(end, 16, 4);
  if (count > kMaxArchiveMembers || directory_offset + directory_bytes + kEndBytes != file_bytes ||
      end != end_record(count, directory_bytes, directory_offset))
    return refused(altered);
  if (directory_bytes > count * (kCentralBytes + kMostNameBytes)) return refused(altered);
  Bytes directory(static_cast<std::size_t>(directory_bytes));
  if (!read_at(directory_offset, directory)) return refused(unread);

  ArchiveDirectory found;
  std::size_t at = 0;
  std::uint64_t from = 0;
  for (std::size_t i = 0; i < count; ++i) {
    ArchiveMember member;
    const auto bad_header = [&] {
      const std::string name = is_member_name(member.name) ? " (" + member.name + ")" : "";
      return refused(fmt::format("the header of file {} of {}{} {}", i + 1, count, name, altered));
    };
    if (!read_member(directory, at, from, member)) return bad_header();
    if (!found.members.empty() && found.members.back().name >= member.name) return bad_header();
    at += kCentralBytes + member.name.size();
    from = member.offset + member.bytes;
    if (from > directory_offset) return bad_header();
    const Bytes wanted = local_header(member);
    Bytes local(wanted.size());
    if (!read_at(header_offset(member), local)) return refused(unread);
    if (local != wanted) return bad_header();
    found.members.push_back(std::move(member));
  }
  if (at != directory.size() || from != directory_offset) return refused(altered);
  return found;
}

}  // namespace kernelwright
