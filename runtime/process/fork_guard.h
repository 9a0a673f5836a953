/// What a fork does to our locks. A child of fork() has one thread; a mutex that another thread held would stay locked
/// for ever. So every mutex of the cache is taken before a fork, and released in parent and child: both see whole
/// structures. These mutexes are held for moments only (never while compiling or waiting), and never two at a time.
/// posix_spawn and vfork run no handlers and need none, because every descriptor of ours closes on exec.
#pragma once

#include <functional>
#include <mutex>

namespace kernelwright {

/// How many forks lie between this process and the one that started the library: 0 in the first. Threads and compilers
/// of an earlier generation do not exist here; NVRTC must not be used in a child if it was busy in the parent.
int fork_generation();

/// A mutex that is free, with its data whole, in a forked child. Meets BasicLockable.
class ForkSafeMutex {
 public:
  /// `in_child` runs in a forked child while the mutex is held: it drops the data of the parent's other threads.
  explicit ForkSafeMutex(std::function<void()> in_child = {});
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend struct ForkRegistry;
  std::mutex mutex_;
  std::function<void()> in_child_;
};

}  // namespace kernelwright
