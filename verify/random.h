/// Seeded random numbers that are the same on every machine and for every number of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace kernelwright {

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through splitmix64 from a seed and a stream number.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) {
    std::uint64_t state = seed ^ (stream * 0x9e3779b97f4a7c15u + 0xd1b54a32d192ed03u);
    for (std::uint64_t& word : state_) {
      state += 0x9e3779b97f4a7c15u;
      std::uint64_t mixed = state;
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
      word = mixed ^ (mixed >> 31);
    }
  }
  std::uint64_t next() {
    const std::uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0], shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// In [0, bound); `bound` > 0. The bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  /// Two independent values of the standard normal distribution (Box and Muller).
  void normal_pair(float& first, float& second) {
    const float radius = std::sqrt(-2 * std::log(static_cast<float>((next() >> 40) + 1) * 0x1p-24f));
    const float angle = 2 * std::numbers::pi_v<float> * static_cast<float>(next() >> 40) * 0x1p-24f;
    first = radius * std::cos(angle);
    second = radius * std::sin(angle);
  }

 private:
  static std::uint64_t rotate(std::uint64_t word, int by) { return (word << by) | (word >> (64 - by)); }
  std::uint64_t state_[4];
};

}  // namespace kernelwright
