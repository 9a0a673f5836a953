/// The arithmetic of cp.reduce.async.bulk(.tensor): destination[i] = destination[i] op source[i].
#pragma once

#include <cstddef>
#include <string_view>

namespace kernelwright::emulator {

/// destination[i] = destination[i] op source[i] for `bytes` bytes.
using ReduceBytes = void (*)(std::byte* destination, const std::byte* source, std::size_t bytes);

/// The function for "add", "min", "max", "inc", "dec", "and", "or", "xor" on "u32", "s64", "b32", "f16", …; null if the
/// operation has no such type. Each element is updated atomically, so clusters on other threads may reduce into the
/// same array.
ReduceBytes bulk_reduction(std::string_view operation, std::string_view type);

}  // namespace kernelwright::emulator
