// Archives: equal members make equal bytes, and no other file is read.
#include "kernelwright/runtime/cache/archive.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernelwright/generator/error.h"

namespace kernelwright::archive_test {
namespace {

using Bytes = std::vector<std::byte>;
using Members = std::map<std::string, Bytes>;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

ArchiveDirectory read(const Bytes& file) {
  return read_archive(file.size(), [&](std::uint64_t offset, std::span<std::byte> to) {
    if (offset > file.size() || to.size() > file.size() - offset) return false;
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    return true;
  });
}

Members example() { return {{"a/one.txt", bytes_of("one")}, {"b.json", bytes_of("{}")}, {"c", {}}}; }

TEST(Archive, ReadsWhatItWrote) {
  const Bytes file = write_archive(example());
  const ArchiveDirectory directory = read(file);
  EXPECT_EQ(directory.reason, "");
  ASSERT_EQ(directory.members.size(), 3u);
  for (const auto& [name, contents] : example()) {
    const ArchiveMember* member = directory.find(name);
    ASSERT_NE(member, nullptr) << name;
    const auto first = file.begin() + static_cast<std::ptrdiff_t>(member->offset);
    EXPECT_EQ(Bytes(first, first + static_cast<std::ptrdiff_t>(member->bytes)), contents);
    EXPECT_EQ(member->crc, crc32(contents));
  }
  EXPECT_EQ(directory.find("b"), nullptr);
  EXPECT_EQ(read(write_archive({})).reason, "");
}

TEST(Archive, HasTheChecksumOfZipFiles) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xcbf43926u);  // the check value of CRC-32
  EXPECT_EQ(crc32({}), 0u);
}

TEST(Archive, RefusesEachByteThatIsNotAMembersOwn) {
  const Bytes file = write_archive(example());
  const ArchiveDirectory whole = read(file);
  for (std::size_t i = 0; i < file.size(); ++i) {
    const bool of_member = std::ranges::any_of(
        whole.members, [&](const ArchiveMember& m) { return i >= m.offset && i < m.offset + m.bytes; });
    for (int bit = 0; bit < 8; ++bit) {
      Bytes altered = file;
      altered[i] ^= static_cast<std::byte>(1 << bit);
      const ArchiveDirectory directory = read(altered);
      bool differs = !directory.reason.empty();
      for (const ArchiveMember& member : directory.members)
        differs = differs || crc32(std::span(altered).subspan(member.offset, member.bytes)) != member.crc;
      EXPECT_TRUE(differs) << "byte " << i << ", bit " << bit;
      EXPECT_EQ(directory.reason.empty(), of_member) << "byte " << i << ", bit " << bit;
    }
  }
}

TEST(Archive, RefusesEveryLengthButItsOwn) {
  const Bytes file = write_archive(example());
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(read(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size))).reason, "") << size;
  Bytes longer = file;
  longer.push_back({});
  EXPECT_NE(read(longer).reason, "");
}

TEST(Archive, TakesPlainNamesAlone) {
  for (const char* name : {"a", "entries/0f.kw2", "model-1.2.json"}) EXPECT_TRUE(is_member_name(name)) << name;
  for (const char* name : {"", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a b", "A", "a\\b", "-a", "a/./b"}) {
    EXPECT_FALSE(is_member_name(name)) << name;
    EXPECT_THROW(write_archive({{name, {}}}), Error) << name;
  }
}

}  // namespace
}  // namespace kernelwright::archive_test
