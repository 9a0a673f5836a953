/// Where an entry's shared variables lie. Each entry has its own layout, the same that ptxas makes: variables of other
/// entries take no place in it.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// Shared memory begins here, as on sm_90: the first kilobyte belongs to the system, so address 0 is never valid.
inline constexpr std::uint32_t kSharedBase = 1024;
/// %reserved_smem_offset_1. A kernel that reads this register may use the memory from here to kSharedBase.
inline constexpr std::uint32_t kReservedSharedBegin = 512;

struct SharedLayout {
  /// Bytes of static shared memory. The launch's dynamic shared memory begins after them.
  std::uint64_t static_bytes = 0;
  /// The first byte of the first dynamic variable that the entry names; static_bytes if it names none.
  std::uint64_t dynamic_begin = 0;
  /// Offsets by name, for every variable that the entry declares or names.
  std::map<std::string_view, std::uint64_t> offsets;
};

/// The layout of ptxas 13.0, found by compiling small modules and reading the addresses and sizes in the cubins:
///   1. The static variables that an instruction of the entry names, reachable or not: first those declared in the
///      entry's body, then the module's, each in the order of declaration.
///   2. A dynamic variable begins after those, aligned to the largest alignment of the module's dynamic variables that
///      are declared up to it, and to at least 16.
///   3. Variables of the body that no instruction names come last. Variables of the module that the entry does not name
///      take no place.
///   4. If the module has a dynamic variable, named or not, the end is rounded up to the largest alignment of all
///      dynamic variables, and to at least 16.
/// Throws PtxError if the variables need more than kMaxSharedBytes.
SharedLayout lay_out_shared(const Module& module, const Entry& entry);

}  // namespace kernelwright::emulator
