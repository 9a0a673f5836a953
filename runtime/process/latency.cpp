#include "kernelwright/runtime/process/latency.h"

#include <algorithm>

namespace kernelwright {

void LatencyHistogram::add(Clock::duration spent) noexcept {
  const auto given = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  const std::uint64_t ns = given > 0 ? static_cast<std::uint64_t>(given) : 0;
  std::size_t bucket = 0;
  for (std::uint64_t bound = first_ns_; bucket < LatencySnapshot::kBounds && ns > bound; bound *= 2) ++bucket;
  buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
}

LatencySnapshot LatencyHistogram::snapshot() const {
  LatencySnapshot now;
  double bound = static_cast<double>(first_ns_) * 1e-9;
  for (double& each : now.bounds_s) {
    each = bound;
    bound *= 2;
  }
  now.sum_s = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
  for (std::size_t i = 0; i < now.buckets.size(); ++i) {
    now.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    now.count += now.buckets[i];  // not a counter of its own, which could differ from the buckets
  }
  return now;
}

bool sampled(std::uint32_t every) noexcept {
  thread_local std::uint64_t state = 0x9e3779b97f4a7c15u;  // xorshift64
  if (every == 0) return false;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % every == 0;
}

}  // namespace kernelwright
