/// Which compiler a path holds, without loading it. Loading takes 110 MB and 5 ms, too much for a cache hit. The
/// machine may also have no compiler at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kernelwright {

/// "nvrtc:<id>+builtins:<id>": the GNU build-ids of libnvrtc and of the builtins library beside it, read from the ELF
/// headers. A file without one is named by its SHA-256. The same bytes give the same text in any folder. Nothing if
/// `nvrtc_path` is not an ELF library. The result is remembered by path, inode, size and time. Any number of threads
/// may call it.
std::optional<std::string> compiler_identity(const std::string& nvrtc_path);

/// The builtins libraries that the NVRTC at `nvrtc_path` may load, in its folder. Their name has major and minor. A
/// plain "libnvrtc.so.13" does not tell the minor: then all libraries of its major count. At worst, two equal compilers
/// get different identities. The code tries names and lists no folder, because a system's library folder has thousands
/// of files.
std::vector<std::string> builtins_beside(const std::string& nvrtc_path);

/// The GNU build-id of a 64-bit ELF file in hex; nothing if it is no such file or has none. Reads any file.
std::optional<std::string> elf_build_id(const std::string& path);

}  // namespace kernelwright
