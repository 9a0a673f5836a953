/// The values for the `in` lines of a conformance file.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/emulator/conformance/conformance.h"

namespace kernelwright::test {

/// "special 256 stride 16, random 32 seed 1 -1 1": codes of `type`, in order. Throws std::runtime_error.
std::vector<std::uint64_t> make_inputs(const ElementType& type, std::string_view segments);

/// The values of `special`: zeros, the ends of the range, subnormal numbers, infinities, NaN, ties.
const std::vector<std::uint64_t>& special_codes(const ElementType& type);

}  // namespace kernelwright::test
