/// printf of kernels.
#pragma once

#include <cstdint>
#include <string>

namespace kernelwright::emulator {

struct Warp;

struct Printed {
  std::string text;
  int arguments = 0;  // those that the format takes: what printf returns on a GPU; -1 without a format
};

/// The text of a call of vprintf by one lane: `format` and `arguments` are generic addresses. Arguments follow each
/// other in memory, each at a multiple of its size (CUDA C++ Programming Guide, "Formatted Output").
/// Throws Fault for an address that the lane cannot read.
Printed print_for_lane(Warp& warp, int lane, std::uint64_t format, std::uint64_t arguments);

inline constexpr std::size_t kLongestText = 4096;

/// The text at a generic address, up to its zero byte, or up to `limit` bytes.
std::string text_at(Warp& warp, int lane, std::uint64_t address, std::size_t limit = kLongestText);

}  // namespace kernelwright::emulator
