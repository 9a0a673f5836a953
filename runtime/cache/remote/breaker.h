/// Keeps callers from a server that fails. After three failures in a row no call goes out for 10 s. One call then tries
/// it. Each further failure doubles the time, up to five minutes. Each time is longer or shorter by up to a fifth, so
/// that many hosts do not come back at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>

#include "kernelwright/runtime/cache/remote/transport.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {

class Breaker {
 public:
  using Time = RemoteClock::time_point;
  explicit Breaker(std::uint64_t seed) : random_(seed) {}

  /// Whether a call may go out. One that went out must be followed by succeeded(), failed() or refused().
  bool admits(Time now);
  /// Each returns whether that changed the state: from closed to open, or from open to closed.
  bool succeeded();
  bool failed(Time now);
  /// The server does not accept the credentials: no call goes out for five minutes.
  bool refused(Time now);
  /// How long no call goes out; 0 if one may.
  std::chrono::milliseconds left(Time now) const;

 private:
  bool open_for(std::chrono::milliseconds span, Time now);  // with `mutex_` held

  mutable ForkSafeMutex mutex_;
  std::minstd_rand random_;
  int failures_ = 0;  // in a row
  bool open_ = false;
  Time silent_until_{};  // no call goes out before it; while one tries the server, the time at which the next may
  std::chrono::milliseconds next_{};
};

}  // namespace kernelwright
