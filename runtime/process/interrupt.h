/// When work of our threads has to end before it is done: its owner goes, or the whole process does.
///
/// exit() runs the exit handlers of every library and destroys its statics while other threads go on. A compile that is
/// inside NVRTC then, or a load inside the driver, would run on what is gone; and the host's event sink may be among
/// the first to go. So we run ahead of theirs: nothing new begins, NVRTC gives up what it is at, and exit() waits for
/// our threads to come home. What our own threads read in between is never destroyed.
///
/// An exit handler is ahead of those that were registered before it. That is not enough while NVRTC is being opened,
/// when its statics are half made, nor in its first compiles, which make some more. The thread that loads the library,
/// and each that uses it, therefore has a thread_local object of ours: exit() destroys those of its own thread before
/// it runs any handler.
#pragma once

#include <atomic>

#include "kernelwright/generator/error.h"

namespace kernelwright {

/// Work was stopped because its owner or the process ends. Nothing is wrong with what it was to make.
class InterruptedError : public Error {
 public:
  using Error::Error;
};

/// While one lives, `stop` ends the work of this thread when it turns true. It must outlive the scope.
class InterruptScope {
 public:
  explicit InterruptScope(const std::atomic<bool>* stop) noexcept;
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  /// Of this thread's innermost scope; null without one.
  static const std::atomic<bool>* current() noexcept;

 private:
  const std::atomic<bool>* outer_;
};

/// exit() has begun.
bool process_is_ending() noexcept;
/// This thread's work has to end: the process does, or its scope's `stop` is set.
bool interrupted() noexcept;
/// Throws InterruptedError if interrupted(): "attention_sm90: the process is exiting, and nothing is compiled any
/// more".
void refuse_if_interrupted(const std::string& what);

/// While one lives, exit() waits for this thread, for twenty seconds at most. A thread of ours holds one whenever it
/// may be in another library or in the host's sink; after it has taken one it asks interrupted().
class ExitHold {
 public:
  ExitHold() noexcept;
  ~ExitHold();
  ExitHold(const ExitHold&) = delete;
  ExitHold& operator=(const ExitHold&) = delete;
};

/// Makes exit() wait for ExitHolds before it runs any exit handler, if it is this thread that calls it.
void hold_exit_of_this_thread() noexcept;

/// Makes exit() of any thread wait for ExitHolds before it runs any exit handler that was registered until now: to be
/// called once a library is open, and again when that may have registered more. Cheap; it does nothing after some
/// thousand calls.
void hold_exit_ahead_of_handlers() noexcept;

}  // namespace kernelwright
