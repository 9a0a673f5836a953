/// The library's own threads, whose stack is large enough whatever stack the caller has. std::thread takes its stack
/// size from the process' limits, and a server's threads may have 64 KB.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace kernelwright {

/// One thread, with the part of std::thread's interface that the library uses. Its destructor joins.
class OwnThread {
 public:
  /// Twice the default of threads, which has been enough for NVRTC. Only pages that are touched take memory.
  static constexpr std::size_t kStackBytes = std::size_t{16} << 20;

  OwnThread() = default;
  /// `work` must not throw. Throws std::system_error if no thread can be started.
  explicit OwnThread(std::function<void()> work, std::size_t stack_bytes = kStackBytes);
  OwnThread(OwnThread&& other) noexcept : thread_(std::exchange(other.thread_, std::nullopt)) {}
  OwnThread& operator=(OwnThread&& other) noexcept;
  ~OwnThread() { join(); }
  /// Does nothing if the thread was joined or detached.
  void join();
  void detach();

 private:
  std::optional<pthread_t> thread_;
};

/// Bytes between here and the end of this thread's stack. A thread's first call asks the system.
std::size_t stack_left();

namespace detail {
/// Runs `work` on an own thread. Returns false, without running `work`, if no thread can be started and `may_refuse`.
bool run_on_own_thread(const std::function<void()>& work, bool may_refuse);
}  // namespace detail

/// The result of work(). If this thread has less than `stack_bytes` of stack left, work() runs on a thread of its own.
/// Exceptions of work() reach the caller. Where no thread can be started, work() runs here if `least_bytes` are left;
/// else this throws std::system_error.
template <class Work>
std::invoke_result_t<Work&> with_stack(std::size_t stack_bytes, std::size_t least_bytes, Work&& work) {
  const std::size_t left = stack_left();
  if (left >= stack_bytes) [[likely]]
    return work();
  using Result = std::invoke_result_t<Work&>;
  std::exception_ptr thrown;
  if constexpr (std::is_void_v<Result>) {
    const auto run = [&] {
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
    };
    if (!detail::run_on_own_thread(run, left >= least_bytes)) return work();
    if (thrown) std::rethrow_exception(thrown);
  } else {
    std::optional<Result> result;
    const auto run = [&] {
      try {
        result.emplace(work());
      } catch (...) {
        thrown = std::current_exception();
      }
    };
    if (!detail::run_on_own_thread(run, left >= least_bytes)) return work();
    if (thrown) std::rethrow_exception(thrown);
    return std::move(*result);
  }
}

}  // namespace kernelwright
