/// Threads of the library's own, whose stack suffices whatever the caller's has. std::thread takes its stack from the
/// process' limits, and a server's threads may have 64 KB.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace kernelwright {

/// One thread. Meets what std::thread is used for here; its destructor joins.
class OwnThread {
 public:
  /// Twice what threads have by default, which has been enough for NVRTC. Only what is touched takes memory.
  static constexpr std::size_t kStackBytes = std::size_t{16} << 20;

  OwnThread() = default;
  /// `work` must not throw. Throws std::system_error if no thread can be started.
  explicit OwnThread(std::function<void()> work, std::size_t stack_bytes = kStackBytes);
  OwnThread(OwnThread&& other) noexcept : thread_(std::exchange(other.thread_, std::nullopt)) {}
  OwnThread& operator=(OwnThread&& other) noexcept;
  ~OwnThread() { join(); }
  /// Nothing if it was joined or detached.
  void join();
  void detach();

 private:
  std::optional<pthread_t> thread_;
};

/// Bytes between here and the end of this thread's stack; the first call of a thread asks the system.
std::size_t stack_left();

namespace detail {
/// False, and `work` was not run, if no thread can be started and `may_refuse`.
bool run_on_own_thread(const std::function<void()>& work, bool may_refuse);
}  // namespace detail

/// The result of work(), run on a thread of its own if this one has less than `stack_bytes` of stack left. What it
/// throws is thrown here. Where no thread can be started, `least_bytes` will do; with less it throws std::system_error.
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
