// Archives: equal members make equal bytes, and no other file is read.
#include "kernelwright/runtime/cache/archive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

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

/// A file of a zip as another program may write it: everything that its headers can say.
struct ForeignFile {
  std::string name, contents = "contents";
  unsigned flags = 0, method = 0, time = 0, date = 0x21;
  std::uint32_t mode = 0100644;
  std::string extra;              // in the central header
  std::optional<unsigned> begin;  // of its local header, if it is not where the file before it ends
  std::optional<unsigned> size;   // if it is not that of its contents
};

Bytes foreign_zip(const std::vector<ForeignFile>& files, const std::string& comment = "",
                  const std::string& junk = "") {
  std::string zip, directory;
  const auto number = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
    return text;
  };
  for (const ForeignFile& file : files) {
    const std::size_t size = file.size.value_or(static_cast<unsigned>(file.contents.size()));
    const std::string facts = number(10, 2) + number(file.flags, 2) + number(file.method, 2) + number(file.time, 2) +
                              number(file.date, 2) + number(crc32(bytes_of(file.contents)), 4) + number(size, 4) +
                              number(size, 4) + number(file.name.size(), 2);
    directory += number(0x02014b50, 4) + number(3 << 8 | 10, 2) + facts + number(file.extra.size(), 2) + number(0, 6) +
                 number(std::uint64_t{file.mode} << 16, 4) +
                 number(file.begin.value_or(static_cast<unsigned>(zip.size())), 4) + file.name + file.extra;
    zip += number(0x04034b50, 4) + facts + number(0, 2) + file.name + file.contents;
  }
  const std::string end = number(0x06054b50, 4) + number(0, 4) + number(files.size(), 2) + number(files.size(), 2) +
                          number(directory.size(), 4) + number(zip.size(), 4) + number(comment.size(), 2) + comment;
  return bytes_of(zip + directory + junk + end);
}

TEST(Archive, TakesAForeignFileThatSaysWhatItWouldSay) {
  EXPECT_EQ(read(foreign_zip({{.name = "a"}, {.name = "b/c"}})).reason, "");
  EXPECT_EQ(foreign_zip({{.name = "a"}}), write_archive({{"a", bytes_of("contents")}}));
}

TEST(Archive, RefusesWhatAnUnpackerWouldTrust) {
  const auto reason = [](std::vector<ForeignFile> files) {
    files.insert(files.begin(), {.name = "a"});
    return read(foreign_zip(files)).reason;
  };
  const std::string second = "the header of file 2 of 2", altered = " was altered, or another program made it";
  for (const char* name : {"../b", "/b", "b/../../c", "b\\c", "b/", "C:b", "B"})
    EXPECT_EQ(reason({{.name = name}}), second + altered) << name << " leads elsewhere, or may";
  const std::string named = second + " (b)" + altered;
  EXPECT_EQ(reason({{.name = "a"}}), second + " (a)" + altered) << "twice";
  EXPECT_EQ(reason({{.name = "b", .method = 8}}), named) << "packed";
  EXPECT_EQ(reason({{.name = "b", .flags = 1}}), named) << "encrypted";
  EXPECT_EQ(reason({{.name = "b", .flags = 8}}), named) << "sizes stand behind the contents";
  EXPECT_EQ(reason({{.name = "b", .mode = 0120777}}), named) << "a symbolic link";
  EXPECT_EQ(reason({{.name = "b", .mode = 0104755}}), named) << "a set-user-id program";
  EXPECT_EQ(reason({{.name = "b", .date = 0x5921}}), named) << "another time";
  EXPECT_EQ(reason({{.name = "b", .begin = 0}}), named) << "it lies over the first";
  EXPECT_EQ(reason({{.name = "b", .begin = 38}}), named) << "it lies half in the first";
  EXPECT_EQ(reason({{.name = "b", .size = 9}}), named) << "it reaches into the directory";
  EXPECT_NE(reason({{.name = "b", .size = 7}}), "") << "a byte belongs to no file";
  EXPECT_EQ(reason({{.name = "b", .size = 0xffffffff}}), named) << "ZIP64";
  EXPECT_NE(reason({{.name = "b", .extra = "xxxx"}}), "") << "an extra field";
  EXPECT_EQ(read(foreign_zip({{.name = "b"}, {.name = "a"}})).reason, second + " (a)" + altered) << "not sorted";
  EXPECT_NE(read(foreign_zip({{.name = "a"}}, "a comment")).reason, "");
  EXPECT_NE(read(foreign_zip({{.name = "a"}}, "", "junk")).reason, "");
  Bytes before = bytes_of("junk");
  const Bytes zip = foreign_zip({{.name = "a"}});
  before.insert(before.end(), zip.begin(), zip.end());
  EXPECT_NE(read(before).reason, "") << "junk in front";
  EXPECT_NE(read_archive(std::uint64_t{3} << 30, [](auto, auto) { return true; }).reason, "") << "3 GiB";
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
