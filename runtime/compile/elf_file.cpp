#include "kernelwright/runtime/compile/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernelwright/runtime/process/files.h"

namespace kernelwright {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kThisMachine = EM_AARCH64;
#else
constexpr Elf64_Half kThisMachine = EM_NONE;  // not compared
#endif

std::string machine_name(Elf64_Half machine) {
  if (machine == EM_X86_64) return "x86_64";
  if (machine == EM_AARCH64) return "aarch64";
  return fmt::format("machine {}", machine);
}

/// A file and its size; reads never go past it.
struct Bytes {
  Fd file;
  std::uint64_t size = 0;

  bool holds(std::uint64_t offset, std::uint64_t bytes) const { return offset <= size && bytes <= size - offset; }
  bool read(std::uint64_t offset, void* to, std::size_t bytes) const {
    return holds(offset, bytes) &&
           pread(file.get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }
};

/// The extent in the file of a table of headers of type T: where it ends, and whether it could be read.
template <class T>
bool read_table(const Bytes& bytes, std::uint64_t offset, std::size_t count, std::vector<T>& table) {
  table.resize(count);
  return bytes.read(offset, table.data(), count * sizeof(T));
}

std::uint64_t end_of(std::uint64_t offset, std::uint64_t bytes) {
  return offset > UINT64_MAX - bytes ? UINT64_MAX : offset + bytes;
}

}  // namespace

std::string library_fault(const std::string& path) {
  Bytes bytes{Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  if (!bytes.file) return fmt::format("cannot be opened: {}", std::strerror(errno));
  struct stat info {};
  if (fstat(bytes.file.get(), &info) != 0) return fmt::format("cannot be opened: {}", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return "is not a file";
  bytes.size = static_cast<std::uint64_t>(info.st_size);
  if (bytes.size == 0) return "is an empty file";

  Elf64_Ehdr header;
  const bool whole_header = bytes.read(0, &header, sizeof(header));
  unsigned char magic[SELFMAG] = {};
  if (!bytes.read(0, magic, sizeof(magic)) || std::memcmp(magic, ELFMAG, SELFMAG) != 0)
    return "is not a shared library: it does not begin as an ELF file";
  const auto cut_short = [&](std::uint64_t named) {
    return fmt::format("is cut short: its headers name {} bytes, and the file has {}", named, bytes.size);
  };
  if (!whole_header) return cut_short(sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 || header.e_phnum == PN_XNUM)
    return "is not a shared library of 64 bits";
  if (kThisMachine != EM_NONE && header.e_machine != kThisMachine)
    return fmt::format("is a library for {}, and this is {}", machine_name(header.e_machine),
                       machine_name(kThisMachine));

  // The largest end in any header, so that the message says how long the file should be.
  std::uint64_t named = end_of(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
  std::vector<Elf64_Phdr> segments;
  if (read_table(bytes, header.e_phoff, header.e_phnum, segments))
    for (const Elf64_Phdr& segment : segments) named = std::max(named, end_of(segment.p_offset, segment.p_filesz));
  std::vector<Elf64_Shdr> sections;  // a stripped library has none
  if (header.e_shoff != 0 && header.e_shnum != 0 && header.e_shentsize == sizeof(Elf64_Shdr)) {
    named = std::max(named, end_of(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr)));
    if (read_table(bytes, header.e_shoff, header.e_shnum, sections))
      for (const Elf64_Shdr& section : sections)
        if (section.sh_type != SHT_NOBITS) named = std::max(named, end_of(section.sh_offset, section.sh_size));
  }
  if (named > bytes.size) return cut_short(named);
  if (std::none_of(segments.begin(), segments.end(), [](const Elf64_Phdr& each) { return each.p_type == PT_LOAD; }))
    return "is damaged: nothing in it is to be loaded";
  if (!sections.empty() && header.e_shstrndx != SHN_UNDEF &&
      (header.e_shstrndx >= sections.size() || sections[header.e_shstrndx].sh_type != SHT_STRTAB))
    return "is damaged: its section headers are not where its header places them";
  return "";
}

}  // namespace kernelwright
