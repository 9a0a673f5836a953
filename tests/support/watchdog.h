/// Ends the process if something that it watches does not end: a kernel that hangs leaves a thread nothing to wait
/// with.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace kernelwright::test {

/// A thread that, once something has been watched for longer than `limit`, says what it was on standard error and ends
/// the process with kExitCode, at once and without cleaning up. Used from one thread.
class Watchdog {
 public:
  static constexpr int kExitCode = 3;
  using Text = std::function<std::string()>;

  explicit Watchdog(std::chrono::milliseconds limit) : limit_(limit), thread_([this] { run(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Runs `work`. `what` says for people what it is; it is called on the watchdog's thread, where time is over.
  template <class Work>
  auto watch(Text what, Work&& work) {
    struct Disarm {
      Watchdog& watchdog;
      ~Disarm() { watchdog.arm({}); }
    };
    arm(std::move(what));
    const Disarm disarm{*this};
    return work();
  }

 private:
  void arm(Text what) {
    {
      const std::lock_guard lock(mutex_);
      what_ = std::move(what);
      since_ = std::chrono::steady_clock::now();
    }
    changed_.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      if (!what_) {
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, since_ + limit_),
                 what_ && std::chrono::steady_clock::now() - since_ > limit_) {
        std::fprintf(stderr, "watchdog: no end after %lld ms of %s\n", static_cast<long long>(limit_.count()),
                     what_().c_str());
        std::fflush(stderr);
        std::_Exit(kExitCode);
      }
    }
  }

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Text what_;
  std::chrono::steady_clock::time_point since_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace kernelwright::test
