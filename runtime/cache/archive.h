/// The zip files that bundles are. Members are stored, not packed, and sorted by name. Times and modes are fixed. So
/// equal members make equal bytes, and every byte of a file is either a member's or follows from the members: a reader
/// refuses any other file. Programs such as unzip read them too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright {

inline constexpr std::uint64_t kMaxArchiveBytes = std::uint64_t{1} << 30;
inline constexpr std::size_t kMaxArchiveMembers = 65'000;  // a zip file without extensions counts to 65 535

/// The CRC-32 of zip files.
std::uint32_t crc32(std::span<const std::byte> bytes);

/// Whether an archive may have a member of that name: lower-case letters, digits, "-", "." and single "/" between words
/// that begin with a letter or digit. So a program that unpacks it writes below its folder alone.
bool is_member_name(std::string_view name);

/// The bytes of an archive. Throws Error for a name that is_member_name() refuses, and beyond the limits above.
std::vector<std::byte> write_archive(const std::map<std::string, std::vector<std::byte>>& members);

struct ArchiveMember {
  std::string name;
  std::uint64_t offset = 0, bytes = 0;  // of the contents, in the file
  std::uint32_t crc = 0;                // of the contents, not checked yet
};

struct ArchiveDirectory {
  std::vector<ArchiveMember> members;  // by name
  std::string reason;                  // why the file is no archive of ours; "" if it is one
  const ArchiveMember* find(std::string_view name) const;
};

/// Reads `size` bytes at `offset` of a file into the span. Returns false if it cannot.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte>)>;

/// Reads the headers of any file of `file_bytes`. Contents are not read. Throws nothing but std::bad_alloc, and
/// allocates in proportion to the headers.
ArchiveDirectory read_archive(std::uint64_t file_bytes, const ReadAt& read_at);

}  // namespace kernelwright
