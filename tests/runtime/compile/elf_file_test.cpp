// Files that would crash the loader, made from a small library of the build.
#include "kernelwright/runtime/compile/elf_file.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::read_file;
using test::TempFolder;
using test::write_file;
using ::testing::HasSubstr;

struct LibraryFault : ::testing::Test {
  std::string fault_of(const std::string& bytes) {
    write_file(folder / "x.so", bytes);
    return library_fault(folder / "x.so");
  }
  TempFolder folder;
  const std::string whole = read_file(KERNELWRIGHT_STUB_NVML);
};

TEST_F(LibraryFault, IsNoneInALibraryThatIsWhole) {
  ASSERT_GT(whole.size(), 4096u);
  EXPECT_EQ(library_fault(KERNELWRIGHT_STUB_NVML), "");
  EXPECT_EQ(fault_of(whole + "a signature behind it"), "");
}

TEST_F(LibraryFault, NamesWhatIsNoLibrary) {
  EXPECT_THAT(library_fault(folder / "nothing"), HasSubstr("cannot be opened: No such file"));
  EXPECT_EQ(library_fault(folder.path()), "is not a file");
  EXPECT_EQ(fault_of(""), "is an empty file");
  EXPECT_EQ(fault_of("<html>404</html>"), "is not a shared library: it does not begin as an ELF file");
}

TEST_F(LibraryFault, EveryCutIsSeen) {
  for (std::size_t size = 4; size < whole.size(); size += size < 256 ? 5 : 509)
    ASSERT_THAT(fault_of(whole.substr(0, size)), HasSubstr("is cut short: ")) << size;
  EXPECT_THAT(fault_of(whole.substr(0, whole.size() - 1)),
              HasSubstr("its headers name " + std::to_string(whole.size()) + " bytes, and the file has "));
}

TEST_F(LibraryFault, ATailOfZerosIsSeen) {
  std::string hollow = whole;
  std::fill(hollow.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2), hollow.end(), '\0');
  EXPECT_THAT(fault_of(hollow), HasSubstr("is damaged: its section headers"));
}

TEST_F(LibraryFault, AnotherMachinesIsNamed) {
  std::string foreign = whole;
  const Elf64_Half machine = EM_S390;
  std::memcpy(foreign.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof(machine));
  EXPECT_THAT(fault_of(foreign), HasSubstr("is a library for machine 22, and this is "));
}

TEST_F(LibraryFault, HeadersThatWrapAroundAreSeen) {
  for (const std::size_t field : {offsetof(Elf64_Ehdr, e_phoff), offsetof(Elf64_Ehdr, e_shoff)}) {
    std::string wrapping = whole;
    const std::uint64_t far = UINT64_MAX - 16;
    std::memcpy(wrapping.data() + field, &far, sizeof(far));
    EXPECT_THAT(fault_of(wrapping), HasSubstr("is cut short"));
  }
}

}  // namespace
}  // namespace kernelwright
