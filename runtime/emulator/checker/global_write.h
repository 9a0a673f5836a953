/// The last write of 4 bytes of global memory, as the checker remembers it.
#pragma once

#include <cstdint>

namespace kernelwright::emulator {

struct GlobalWrite {
  std::uint32_t cluster = 0, time = 0, op = 0;
  std::uint16_t agent = 0;  // the warp, as its cluster counts them
  std::uint8_t lane = 0;
  std::uint8_t bytes : 4 = 0;  // which bytes of the word, one bit each; 0: nothing is recorded
  std::uint8_t strong : 1 = 0;
};
static_assert(sizeof(GlobalWrite) == 16);

}  // namespace kernelwright::emulator
