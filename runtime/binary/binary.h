/// The result of one compilation: both forms of the code, and what ptxas reported about it. Also the place where a
/// binary was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright {

/// ptxas' own report for one entry. Bytes, except registers (32-bit, per thread).
struct ResourceUsage {
  int registers = 0;
  int spill_stores = 0, spill_loads = 0;
  int stack = 0;
  int static_shared = 0;
  int barriers = 0;
  bool operator==(const ResourceUsage&) const = default;
};

/// A compiled kernel. It does not depend on the machine that built it: two builds of one key have the same bytes.
struct Binary {
  std::string entry;             // extern "C" name
  std::string arch;              // "sm_90a"
  std::vector<std::byte> cubin;  // ELF
  std::string ptx;               // of the same compilation
  ResourceUsage usage;
  std::vector<std::string> warnings;  // spills, local memory, serialised wgmma: ptxas' words
  std::string compiler;               // "NVRTC 13.0 build <id>"
  double compile_ms = 0;
  bool operator==(const Binary&) const = default;
};

/// Where a binary was when a caller asked for it.
enum class CacheSource {
  kNone,      // nowhere yet
  kMemory,    // of this process
  kDisk,      // the cache directory
  kLayer,     // a read-only directory, or a layer of the cache's options
  kCompiled,  // compiled now
};
std::string_view to_string(CacheSource source);

}  // namespace kernelwright
