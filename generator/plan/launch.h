/// The launch of any one kernel, and the divisions that its arithmetic needs.
#pragma once

#include <cstdint>

namespace kernelwright {

struct LaunchPlan {
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block = 128;
  std::uint32_t cluster = 1;  // CTAs of a cluster, along x; the grid is whole clusters
  std::uint32_t shared_bytes = 0;
};

/// Quotients rounded down and up, of numbers from 0 to 2^52; b > 0. A launch divides two dozen times. A 64-bit division
/// costs up to 90 cycles on servers of 2019; a division of doubles costs 14. The result is exact: a quotient is at
/// least 1/b away from the next whole number, more than rounding changes.
inline std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<double>(a) / static_cast<double>(b));
}
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return floor_div(a + b - 1, b); }

}  // namespace kernelwright
