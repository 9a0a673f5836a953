/// Puts the functions that an entry calls before the entry's own instructions.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// Local memory that a thread has for the frames of functions, if calls may recurse or go through addresses. A GPU's
/// limit is cudaLimitStackSize, which a program sets.
inline constexpr std::uint64_t kRecursionStackBytes = std::uint64_t{32} << 10;

/// Functions that the emulator brings: vprintf, malloc, free, __assertfail.
bool is_built_in(std::string_view function);

/// A copy of `entry` with the functions that it may call, callees first: lanes within a function stand at lower places
/// than its caller's. The scheduler runs the lowest first, so lanes come together again behind a call. A call through
/// an address may go to every function that could be read. Null if the entry calls no function of the module.
/// Throws PtxError for a function that could not be read, or is defined elsewhere.
std::unique_ptr<const Entry> link_functions(const Module& module, const Entry& entry);

}  // namespace kernelwright::emulator
