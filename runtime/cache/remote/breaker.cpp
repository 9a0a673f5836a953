#include "kernelwright/runtime/cache/remote/breaker.h"

#include <algorithm>
#include <utility>

namespace kernelwright {
namespace {

constexpr int kFailuresToOpen = 3;
constexpr std::chrono::milliseconds kFirstSpan{10'000}, kLongestSpan{300'000};
constexpr std::chrono::milliseconds kTrialSpan{2'000};  // longer than any operation takes

}  // namespace

bool Breaker::admits(Time now) {
  std::lock_guard hold(mutex_);
  if (!open_) return true;
  if (now < silent_until_) return false;
  silent_until_ = now + kTrialSpan;  // the caller is the one that tries
  return true;
}

bool Breaker::succeeded() {
  std::lock_guard hold(mutex_);
  failures_ = 0;
  next_ = kFirstSpan;
  return std::exchange(open_, false);
}

bool Breaker::failed(Time now) {
  std::lock_guard hold(mutex_);
  if (!open_ && ++failures_ < kFailuresToOpen) return false;
  if (open_ && now + kTrialSpan < silent_until_) return false;  // a call from before it opened
  const std::chrono::milliseconds span = std::clamp(next_, kFirstSpan, kLongestSpan);
  next_ = span * 2;
  return open_for(span, now);
}

bool Breaker::refused(Time now) {
  std::lock_guard hold(mutex_);
  next_ = kLongestSpan;
  return open_for(kLongestSpan, now);
}

bool Breaker::open_for(std::chrono::milliseconds span, Time now) {
  std::uniform_real_distribution<double> jitter(0.8, 1.2);
  const auto milliseconds = static_cast<std::int64_t>(static_cast<double>(span.count()) * jitter(random_));
  silent_until_ = now + std::chrono::milliseconds(milliseconds);
  return !std::exchange(open_, true);
}

std::chrono::milliseconds Breaker::left(Time now) const {
  std::lock_guard hold(mutex_);
  if (!open_ || now >= silent_until_) return std::chrono::milliseconds(0);
  return std::chrono::ceil<std::chrono::milliseconds>(silent_until_ - now);
}

}  // namespace kernelwright
