#include "kernelwright/runtime/process/interrupt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unwind.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace kernelwright {
namespace {

// In a compile, NVRTC asks some sixty times whether to go on. The longest gap that was seen was 0.4 s.
constexpr auto kLongestWait = std::chrono::seconds(20);
constexpr int kMostHandlers = 4096;  // 32 bytes each

thread_local const std::atomic<bool>* stop_of_scope = nullptr;
thread_local int own_holds = 0;

std::atomic<bool> ending{false};
std::atomic<bool> waited{false};
std::atomic<int> holds{0};
std::atomic<int> handlers{0};

void await_our_threads() {
  ending = true;
  if (waited.exchange(true)) return;  // the first handler to run has done all the work
  const auto give_up = std::chrono::steady_clock::now() + kLongestWait;
  // A sink may have called exit(), on a thread of ours: that thread does not wait for itself.
  while (holds > own_holds && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Whether exit() is among this thread's callers.
bool is_in_exit() noexcept {
  bool found = false;
  const auto look = [](_Unwind_Context* context, void* into) {
    Dl_info info;
    // exit() does not return, so its call may be the last instruction of its function: the next address belongs to
    // another function.
    const auto call = reinterpret_cast<void*>(_Unwind_GetIP(context) - 1);
    if (dladdr(call, &info) == 0 || !info.dli_sname || std::strcmp(info.dli_sname, "exit") != 0) return _URC_NO_REASON;
    *static_cast<bool*>(into) = true;
    return _URC_END_OF_STACK;
  };
  _Unwind_Backtrace(look, &found);
  return found;
}

/// Destroyed when its thread ends, normally or by exit().
struct EndOfThread {
  int of_this_thread = 0;
  ~EndOfThread() {
    if (is_in_exit()) await_our_threads();
  }
};

}  // namespace

InterruptScope::InterruptScope(const std::atomic<bool>* stop) noexcept : outer_(stop_of_scope) { stop_of_scope = stop; }
InterruptScope::~InterruptScope() { stop_of_scope = outer_; }
const std::atomic<bool>* InterruptScope::current() noexcept { return stop_of_scope; }

bool process_is_ending() noexcept { return ending; }

bool interrupted() noexcept { return ending || (stop_of_scope && *stop_of_scope); }

void refuse_if_interrupted(const std::string& what) {
  if (ending) throw InterruptedError(what + ": the process is exiting, and nothing is compiled or loaded any more");
  if (interrupted())
    throw InterruptedError(what + ": the engine was stopped, and nothing is compiled or loaded any more");
}

ExitHold::ExitHold() noexcept {
  ++own_holds;
  ++holds;
}

ExitHold::~ExitHold() {
  --own_holds;
  --holds;
}

void hold_exit_of_this_thread() noexcept {
  static thread_local EndOfThread end;
  end.of_this_thread = 1;
}

namespace {

/// The thread that loads the library is mostly main's. That thread ends the process, and may never call us.
[[gnu::constructor]] void on_load() {
  hold_exit_of_this_thread();
  pthread_atfork(nullptr, nullptr, [] { holds = own_holds; });  // a forked child has this thread alone
}

}  // namespace

void hold_exit_ahead_of_handlers() noexcept {
  if (!ending && handlers.fetch_add(1, std::memory_order_relaxed) < kMostHandlers) std::atexit(await_our_threads);
}

}  // namespace kernelwright
