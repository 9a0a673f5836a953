/// When asynchronous operations complete.
#pragma once

#include <cstdint>

namespace kernelwright::emulator {

enum class Completion : std::uint8_t {
  kEager,   // at issue
  kLazy,    // once no warp of the cluster can go on
  kRandom,  // at some step between the two, by the seed
};

}  // namespace kernelwright::emulator
