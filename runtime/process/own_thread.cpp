#include "kernelwright/runtime/process/own_thread.h"

#include <cstdint>
#include <memory>
#include <system_error>

namespace kernelwright {
namespace {

void* run(void* given) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(given));
  (*work)();
  return nullptr;
}

/// This thread's stack; empty if the system does not report it.
struct Stack {
  std::uintptr_t begin = 0, end = 0;
};

Stack stack_of_this_thread() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* lowest = nullptr;
  std::size_t bytes = 0;
  pthread_attr_getstack(&attributes, &lowest, &bytes);
  pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<std::uintptr_t>(lowest);
  return {begin, begin + bytes};
}

}  // namespace

OwnThread::OwnThread(std::function<void()> work, std::size_t stack_bytes) {
  auto given = std::make_unique<std::function<void()>>(std::move(work));
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error == 0) {
    pthread_t thread;
    error = pthread_attr_setstacksize(&attributes, stack_bytes);
    if (error == 0) error = pthread_create(&thread, &attributes, run, given.get());
    pthread_attr_destroy(&attributes);
    if (error == 0) thread_ = thread;
  }
  if (error != 0) throw std::system_error(error, std::generic_category(), "a thread could not be started");
  given.release();
}

OwnThread& OwnThread::operator=(OwnThread&& other) noexcept {
  if (this != &other) {
    join();
    thread_ = std::exchange(other.thread_, std::nullopt);
  }
  return *this;
}

void OwnThread::join() {
  if (const auto thread = std::exchange(thread_, std::nullopt)) pthread_join(*thread, nullptr);
}

void OwnThread::detach() {
  if (const auto thread = std::exchange(thread_, std::nullopt)) pthread_detach(*thread);
}

std::size_t stack_left() {
  thread_local const Stack stack = stack_of_this_thread();
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  // Outside these bounds the code runs on a fiber's stack of unknown size. Assume a small one.
  return here > stack.begin && here < stack.end ? here - stack.begin : 0;
}

bool detail::run_on_own_thread(const std::function<void()>& work, bool may_refuse) {
  try {
    OwnThread(work).join();
    return true;
  } catch (const std::system_error&) {
    if (!may_refuse) throw;
    return false;
  }
}

}  // namespace kernelwright
