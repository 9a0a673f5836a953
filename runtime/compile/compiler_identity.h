/// Which compiler a path holds, without loading it: 110 MB and 5 ms that a cache hit must not pay, on machines that may
/// have no compiler at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kernelwright {

/// "nvrtc:<id>+builtins:<id>": the GNU build-ids of libnvrtc and of the builtins library beside it, read from the ELF
/// headers (a file without one is named by its SHA-256). The same bytes give the same text wherever they are installed.
/// Nothing if `nvrtc_path` is not an ELF library. Remembered by path, inode, size and time. Any number of threads may
/// call it.
std::optional<std::string> compiler_identity(const std::string& nvrtc_path);

/// The builtins libraries that the NVRTC at `nvrtc_path` may load, in its folder. The name has major and minor, which a
/// plain "libnvrtc.so.13" does not tell: then all of its major count, which at worst tells two equal compilers apart.
/// Names are tried, not listed: a system's library folder has thousands.
std::vector<std::string> builtins_beside(const std::string& nvrtc_path);

/// The GNU build-id of a 64-bit ELF file in hex; nothing if it is not one or has none. Reads any file whatsoever.
std::optional<std::string> elf_build_id(const std::string& path);

}  // namespace kernelwright
