/// The arithmetic of cp.reduce.async.bulk(.tensor): destination[i] = destination[i] op source[i].
#pragma once

#include <string_view>

#include "kernelwright/runtime/emulator/machine/tensor_map.h"

namespace kernelwright::emulator {

/// The function for "add", "min", "max", "inc", "dec", "and", "or", "xor" on "u32", "s64", "b32", "f16", …; null if the
/// operation has no such type. Each element is updated atomically, so clusters on other threads may reduce into the
/// same array.
ReduceBytes bulk_reduction(std::string_view operation, std::string_view type);

}  // namespace kernelwright::emulator
