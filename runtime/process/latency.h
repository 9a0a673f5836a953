/// How long a step takes, as a histogram: buckets that double, counted with relaxed atomics, read at any time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace kernelwright {

/// A histogram at one moment. Bucket i counts steps that took at most bounds_s[i] seconds, and more than the bound
/// before. The last bucket counts the rest.
struct LatencySnapshot {
  static constexpr std::size_t kBounds = 22;
  std::array<double, kBounds> bounds_s{};
  std::array<std::uint64_t, kBounds + 1> buckets{};
  std::uint64_t count = 0;  // the sum of the buckets
  double sum_s = 0;
};

/// Safe from any number of threads; add() costs two atomic additions and no lock.
class LatencyHistogram {
 public:
  using Clock = std::chrono::steady_clock;

  /// The first bucket ends at `first_ns`, each further one at twice the bound before it.
  explicit constexpr LatencyHistogram(std::uint64_t first_ns) : first_ns_(first_ns) {}
  LatencyHistogram(const LatencyHistogram&) = delete;
  LatencyHistogram& operator=(const LatencyHistogram&) = delete;

  void add(Clock::duration spent) noexcept;
  LatencySnapshot snapshot() const;

 private:
  const std::uint64_t first_ns_;
  std::array<std::atomic<std::uint64_t>, LatencySnapshot::kBounds + 1> buckets_{};
  std::atomic<std::uint64_t> sum_ns_{0};
};

/// First bounds. For steps that compile, load or wait it is 62.5 us, so the last bound is 131 s. For launches it is 125
/// ns, so the last bound is 262 ms.
inline constexpr std::uint64_t kFirstStepNs = 62'500, kFirstLaunchNs = 125;

/// True for about one in `every` calls on each thread, at random intervals. A fixed interval would meet the same kernel
/// of a model in every round. 0: never.
bool sampled(std::uint32_t every) noexcept;

}  // namespace kernelwright
