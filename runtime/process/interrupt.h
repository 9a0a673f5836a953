/// When our threads have to end their work early, because its owner or the whole process ends.
///
/// exit() runs the exit handlers of every library and destroys its statics while other threads go on. A compile inside
/// NVRTC, or a load inside the driver, would then use destroyed data. The host's event sink may be among the first to
/// go. So our handler runs before theirs: nothing new begins, NVRTC gives up, and exit() waits for our threads to
/// return. Data that our own threads read meanwhile is never destroyed.
///
/// An exit handler runs before those that were registered earlier. That is not enough while NVRTC is being opened, when
/// its statics are half made. It is not enough in its first compiles either, which make some more. So the thread that
/// loads the library, and each thread that uses it, has a thread_local object of ours. exit() destroys those of its own
/// thread before it runs any handler.
#pragma once

#include <atomic>

#include "kernelwright/generator/error.h"

namespace kernelwright {

/// Work was stopped because its owner or the process ends. The result itself has no fault.
class InterruptedError : public Error {
 public:
  using Error::Error;
};

/// While a scope lives, `stop` ends the work of this thread when it turns true. `stop` must outlive the scope.
class InterruptScope {
 public:
  explicit InterruptScope(const std::atomic<bool>* stop) noexcept;
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  /// The `stop` of this thread's innermost scope; null without one.
  static const std::atomic<bool>* current() noexcept;

 private:
  const std::atomic<bool>* outer_;
};

/// Whether exit() has begun.
bool process_is_ending() noexcept;
/// Whether this thread's work has to end: the process ends, or its scope's `stop` is set.
bool interrupted() noexcept;
/// Throws InterruptedError if interrupted(): "attention_sm90: the process is exiting, and nothing is compiled any
/// more".
void refuse_if_interrupted(const std::string& what);

/// While one lives, exit() waits for this thread, for at most twenty seconds. A thread of ours holds one whenever it
/// may be in another library or in the host's sink. After taking one, the thread checks interrupted().
class ExitHold {
 public:
  ExitHold() noexcept;
  ~ExitHold();
  ExitHold(const ExitHold&) = delete;
  ExitHold& operator=(const ExitHold&) = delete;
};

/// If this thread calls exit(), exit() waits for ExitHolds before it runs any exit handler.
void hold_exit_of_this_thread() noexcept;

/// Makes exit() of any thread wait for ExitHolds before it runs any exit handler that is registered so far. Call it
/// once a library is open, and again when the library may have registered more. Cheap; it does nothing after some
/// thousand calls.
void hold_exit_ahead_of_handlers() noexcept;

}  // namespace kernelwright
