// Identity by build-id. NVRTC's version call returns 13.0 only, while two builds of 13.0 may differ in code. NVRTC
// itself loads the builtins library, which changes the result of a compile as well.
#include "kernelwright/runtime/compile/compiler_identity.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/runtime/process/files.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMaxProgramHeaders = 512, kMaxNoteBytes = 64 << 10, kMaxIdBytes = 64;

bool read_at(int fd, std::uint64_t offset, void* to, std::size_t size) {
  return offset <= LLONG_MAX && pread(fd, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// The id in one note segment: records of {name size, description size, type}, each part padded to 4.
std::optional<std::string> id_in_notes(const std::vector<unsigned char>& notes) {
  std::size_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof(note));
    at += sizeof(note);
    const std::size_t name_bytes = (std::size_t{note.n_namesz} + 3) & ~std::size_t{3};
    const std::size_t text_bytes = (std::size_t{note.n_descsz} + 3) & ~std::size_t{3};
    if (name_bytes > notes.size() - at || text_bytes > notes.size() - at - name_bytes) return std::nullopt;
    const bool build_id =
        note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes.data() + at, ELF_NOTE_GNU, 4) == 0;
    if (build_id && note.n_descsz > 0 && note.n_descsz <= kMaxIdBytes) {
      std::string hex;
      for (std::size_t i = 0; i < note.n_descsz; ++i) hex += fmt::format("{:02x}", notes[at + name_bytes + i]);
      return hex;
    }
    at += name_bytes + text_bytes;
  }
  return std::nullopt;
}

bool open_elf(const std::string& path, Fd& file, Elf64_Ehdr& header) {
  file = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return file && read_at(file.get(), 0, &header, sizeof(header)) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
}

std::optional<std::string> hash_of_file(int fd) {
  std::vector<std::byte> all;
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size <= 0 || info.st_size > (1ll << 30)) return std::nullopt;
  all.resize(static_cast<std::size_t>(info.st_size));
  std::size_t done = 0;
  while (done < all.size()) {
    const ssize_t got = pread(fd, all.data() + done, all.size() - done, static_cast<off_t>(done));
    if (got <= 0) return std::nullopt;
    done += static_cast<std::size_t>(got);
  }
  return "sha256-" + sha256(all).hex();
}

std::optional<std::string> identity_of_library(const std::string& path) {
  if (auto id = elf_build_id(path)) return id;
  Fd file;
  Elf64_Ehdr header;
  return open_elf(path, file, header) ? hash_of_file(file.get()) : std::nullopt;
}

using Stamp = std::tuple<dev_t, ino_t, off_t, time_t, long>;
std::optional<Stamp> stamp_of(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return Stamp{info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

struct Memo {
  struct Item {
    Stamp stamp;
    std::optional<std::string> id;
  };
  ForkSafeMutex mutex;
  std::map<std::string, Item> items;
  static Memo& get() {
    static Memo* const memo = new Memo;  // outlives static destructors
    return *memo;
  }
};

std::optional<std::string> remembered_identity(const std::string& path) {
  const auto stamp = stamp_of(path);
  if (!stamp) return std::nullopt;
  Memo& memo = Memo::get();
  {
    std::lock_guard hold(memo.mutex);
    const auto known = memo.items.find(path);
    if (known != memo.items.end() && known->second.stamp == *stamp) return known->second.id;
  }
  auto id = identity_of_library(path);
  std::lock_guard hold(memo.mutex);
  memo.items.insert_or_assign(path, Memo::Item{*stamp, id});
  return id;
}

}  // namespace

std::optional<std::string> elf_build_id(const std::string& path) {
  Fd file;
  Elf64_Ehdr header;
  if (!open_elf(path, file, header)) return std::nullopt;
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMaxProgramHeaders) return std::nullopt;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file.get(), header.e_phoff + i * sizeof(segment), &segment, sizeof(segment))) return std::nullopt;
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) continue;
    std::vector<unsigned char> notes(segment.p_filesz);
    if (!read_at(file.get(), segment.p_offset, notes.data(), notes.size())) continue;
    if (auto id = id_in_notes(notes)) return id;
  }
  return std::nullopt;
}

std::vector<std::string> builtins_beside(const std::string& nvrtc_path) {
  std::array<char, PATH_MAX> resolved{};
  const std::string real = realpath(nvrtc_path.c_str(), resolved.data()) ? resolved.data() : nvrtc_path;
  const std::size_t slash = real.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : real.substr(0, slash);
  const std::string name = real.substr(slash + 1);
  int major = 0, minor = 0;
  const int parts = std::sscanf(name.c_str(), "libnvrtc.so.%d.%d", &major, &minor);
  std::vector<std::string> found;
  for (int each = parts == 2 ? minor : 0; each <= (parts == 2 ? minor : 9); ++each) {
    std::string path = fmt::format("{}/libnvrtc-builtins.so.{}.{}", folder, major, each);
    if (parts >= 1 && access(path.c_str(), R_OK) == 0) found.push_back(std::move(path));
  }
  if (std::string plain = folder + "/libnvrtc-builtins.so"; found.empty() && access(plain.c_str(), R_OK) == 0)
    found.push_back(std::move(plain));
  return found;
}

std::optional<std::string> compiler_identity(const std::string& nvrtc_path) {
  const auto nvrtc = remembered_identity(nvrtc_path);
  if (!nvrtc) return std::nullopt;
  std::string text = "nvrtc:" + *nvrtc;
  for (const std::string& path : builtins_beside(nvrtc_path))
    if (const auto id = remembered_identity(path)) text += "+builtins:" + *id;
  return text;
}

}  // namespace kernelwright
