#include "kernelwright/runtime/compile/compiler_identity.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <cstring>

#include "kernelwright/runtime/compile/nvrtc_path.h"
#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::start_child;
using test::TempFolder;
using test::wait_for;
using test::write_file;
using ::testing::MatchesRegex;

// A file that is an ELF library only as far as its build-id: a header, one segment of notes, and a foreign note before
// the build-id.
std::string elf_with_id(const std::string& id) {
  auto bytes_of = [](const auto& value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); };
  auto note = [&](std::string name, std::uint32_t type, std::string text) {
    const Elf64_Nhdr header{static_cast<Elf64_Word>(name.size()), static_cast<Elf64_Word>(text.size()), type};
    name.resize((name.size() + 3) & ~std::size_t{3});
    text.resize((text.size() + 3) & ~std::size_t{3});
    return bytes_of(header) + name + text;
  };
  const std::string notes = note(std::string("NVIDIA\0", 7), 1, "something") +
                            (id.empty() ? "" : note(std::string("GNU\0", 4), NT_GNU_BUILD_ID, id));
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = notes.size();
  return bytes_of(header) + bytes_of(segment) + notes;
}

TEST(ElfBuildId, IsReadFromTheNotes) {
  TempFolder folder;
  write_file(folder / "x.so", elf_with_id("\x01\xab\xff"));
  EXPECT_EQ(elf_build_id(folder / "x.so"), "01abff");
}

TEST(ElfBuildId, NoFileIsTooShortOrTooStrange) {
  TempFolder folder;
  const std::string good = elf_with_id("abcdefgh12345678abcd"), path = folder / "x.so";
  EXPECT_EQ(elf_build_id(path), std::nullopt);
  EXPECT_EQ(elf_build_id(folder.path()), std::nullopt);
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_file(path, good.substr(0, size));
    ASSERT_EQ(elf_build_id(path), std::nullopt) << size;
  }
  for (std::size_t i = 0; i < good.size(); ++i) {  // any answer, no crash, nothing read out of bounds
    std::string bad = good;
    bad[i] = '\xff';
    write_file(path, bad);
    const auto id = elf_build_id(path);
    ASSERT_TRUE(!id || id->size() <= 128) << i;
  }
}

TEST(CompilerIdentity, JoinsNvrtcAndTheBuiltinsBesideIt) {
  TempFolder folder;
  write_file(folder / "libnvrtc.so.13", elf_with_id("A"));
  EXPECT_EQ(compiler_identity(folder / "libnvrtc.so.13"), "nvrtc:41");
  write_file(folder / "libnvrtc-builtins.so.13.1", elf_with_id("B"));
  write_file(folder / "libnvrtc-builtins.so.12.8", elf_with_id("C"));
  write_file(folder / "libnvrtc-builtins.alt.so.13.1", elf_with_id("D"));
  EXPECT_EQ(compiler_identity(folder / "libnvrtc.so.13"), "nvrtc:41+builtins:42");
}

TEST(CompilerIdentity, TheFullNameSelectsTheBuiltins) {
  TempFolder folder;
  write_file(folder / "libnvrtc.so.13.0.88", elf_with_id("A"));
  std::filesystem::create_symlink("libnvrtc.so.13.0.88", folder / "libnvrtc.so.13");
  write_file(folder / "libnvrtc-builtins.so.13.0", elf_with_id("B"));
  write_file(folder / "libnvrtc-builtins.so.13.1", elf_with_id("C"));
  EXPECT_EQ(compiler_identity(folder / "libnvrtc.so.13"), "nvrtc:41+builtins:42");
}

TEST(CompilerIdentity, SeesThatTheFileWasReplaced) {
  TempFolder folder;
  const std::string path = folder / "libnvrtc.so.13";
  write_file(path, elf_with_id("A"));
  EXPECT_EQ(compiler_identity(path), "nvrtc:41");
  write_file(folder / "new", elf_with_id("B"));
  std::filesystem::rename(folder / "new", path);
  EXPECT_EQ(compiler_identity(path), "nvrtc:42");
}

TEST(CompilerIdentity, ALibraryWithoutAnIdIsNamedByItsContents) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "a");
  write_file(folder / "a/libnvrtc.so.13", elf_with_id(""));
  EXPECT_EQ(compiler_identity(folder / "a/libnvrtc.so.13"), "nvrtc:sha256-" + sha256(elf_with_id("")).hex());
}

TEST(CompilerIdentity, WhatIsNoLibraryHasNone) {
  TempFolder folder;
  write_file(folder / "libnvrtc.so.13", "text");
  EXPECT_EQ(compiler_identity(folder / "libnvrtc.so.13"), std::nullopt);
  EXPECT_EQ(compiler_identity(folder / "absent"), std::nullopt);
  EXPECT_EQ(compiler_identity(""), std::nullopt);
}

TEST(CompilerIdentity, TheInstalledNvrtcHasTwoIdsAndIsNotLoaded) {
  const auto path = find_nvrtc();
  if (!path) GTEST_SKIP() << "no NVRTC here";
  EXPECT_EQ(wait_for(start_child([&] {
              const std::string before = test::read_file("/proc/self/maps");
              const auto identity = compiler_identity(*path);
              if (!identity || identity->find('+') == std::string::npos) return 1;
              return static_cast<int>(test::read_file("/proc/self/maps").find("nvrtc") != std::string::npos &&
                                      before.find("nvrtc") == std::string::npos);
            })),
            0);
  EXPECT_THAT(compiler_identity(*path).value_or(""), MatchesRegex("nvrtc:[0-9a-f]+\\+builtins:[0-9a-f]+"));
}

class FindNvrtc : public ::testing::Test {
 protected:
  /// find_nvrtc() in a child with that environment; "" for nothing. The child writes its answer to a file. `own`: the
  /// folders of the program and of the library, if they are not the test's.
  std::string found(const std::vector<std::pair<const char*, std::string>>& environment,
                    const std::vector<std::string>& own = {}) {
    wait_for(start_child([&] {
      for (const char* name : {"KERNELWRIGHT_NVRTC", "CUDA_HOME", "LD_LIBRARY_PATH"}) unsetenv(name);
      for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
      write_file(folder_ / "answer", (own.empty() ? find_nvrtc() : find_nvrtc(own)).value_or(""));
      return 0;
    }));
    return test::read_file(folder_ / "answer");
  }
  std::string make(const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / path).parent_path());
    write_file(folder_ / path, "x");
    return folder_ / path;
  }
  TempFolder folder_;
};

TEST_F(FindNvrtc, TakesTheFileThatIsNamed) {
  EXPECT_EQ(found({{"KERNELWRIGHT_NVRTC", make("my-nvrtc.so")}}), folder_ / "my-nvrtc.so");
  EXPECT_EQ(found({{"KERNELWRIGHT_NVRTC", "/nonexistent/nvrtc"}}), "/nonexistent/nvrtc") << "and hides all others";
}

TEST_F(FindNvrtc, LooksIntoTheFolderThatIsNamedAndIntoWheelsBelowIt) {
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_EQ(found({{"KERNELWRIGHT_NVRTC", folder_ / "empty"}}), "");
  const std::string older = make("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  EXPECT_EQ(found({{"KERNELWRIGHT_NVRTC", folder_ / "site"}}), older);
  const std::string newer = make("site/nvidia/cu13/lib/libnvrtc.so.13");
  EXPECT_EQ(found({{"KERNELWRIGHT_NVRTC", folder_ / "site"}}), newer);
}

TEST_F(FindNvrtc, PrefersCudaHomeAndItsNewestAndNeverTheAltLibrary) {
  make("cuda/lib64/libnvrtc.alt.so.13");
  make("cuda/lib64/libnvrtc.alt.so.12");
  const std::string older = make("cuda/lib64/libnvrtc.so.12");
  EXPECT_EQ(found({{"CUDA_HOME", folder_ / "cuda"}}), older);
  const std::string newer = make("cuda/lib/libnvrtc.so.13");
  EXPECT_EQ(found({{"CUDA_HOME", folder_ / "cuda"}}), newer);
}

TEST_F(FindNvrtc, TakesTheWheelBesideThePackageForTheLibraryAndForTheCommand) {
  const std::string library = folder_ / "site/kernelwright", command = library + "/bin";
  make("site/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9");
  const std::string older = make("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  make("site/nvidia/cu13/lib/libnvrtc.alt.so.13");
  EXPECT_EQ(found({}, {library}), older);
  EXPECT_EQ(found({}, {"/usr/bin", library}), older) << "Python is the program";
  EXPECT_EQ(found({}, {command}), older);
  const std::string newer = make("site/nvidia/cu13/lib/libnvrtc.so.13");
  EXPECT_EQ(found({}, {library}), newer);
  EXPECT_EQ(found({}, {command}), newer);
}

TEST_F(FindNvrtc, LetsBothVariablesGoBeforeTheWheelBesideThePackage) {
  make("site/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string home = make("cuda/lib64/libnvrtc.so.12"), named = make("named/libnvrtc.so.12");
  const std::vector<std::string> own{folder_ / "site/kernelwright"};
  EXPECT_EQ(found({{"CUDA_HOME", folder_ / "cuda"}}, own), home);
  EXPECT_EQ(found({{"CUDA_HOME", folder_ / "cuda"}, {"KERNELWRIGHT_NVRTC", folder_ / "named"}}, own), named);
}

TEST_F(FindNvrtc, PassesOverAnOldWheelThatAnotherPackageBrought) {
  make("site/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.6");
  const std::string old = make("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  EXPECT_NE(found({}, {folder_ / "site/kernelwright"}), old);
  make("site/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.8");
  EXPECT_EQ(found({}, {folder_ / "site/kernelwright"}), old);
}

TEST_F(FindNvrtc, TakesNoWheelBesideAFolderOfAnotherName) {
  const std::string wheel = make("site/nvidia/cu13/lib/libnvrtc.so.13");
  for (const char* own : {"site/other", "site/other/bin", "site", "site/kernelwright/lib"})
    EXPECT_NE(found({}, {folder_ / own}), wheel) << own;
}

}  // namespace
}  // namespace kernelwright
