/// Ends the process if something that it watches does not end: a kernel that hangs gives a waiting thread no way to
/// continue.
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

/// A thread that watches work. Once some work takes longer than `limit`, it names the work on standard error and ends
/// the process with kExitCode, at once and without cleaning up. One thread uses it.
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

  /// Runs `work`. `what` describes the work for people; the watchdog's thread calls it when the time is over.
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
  std::thread thread_;  // declared last, because it uses all of the above
};

}  // namespace kernelwright::test
