/// Objects that each thread has for itself.
#pragma once

namespace kernelwright {

/// This thread's T, made at its first use. It lies on the heap: a thread_local object of its size would come out of the
/// stack of every thread of the program, ours or not. It goes with the thread; code that runs later still, as the
/// handlers of exit() do after the main thread's objects are gone, gets a new one, which is left to the process.
template <class T>
T& per_thread() {
  struct Owner {
    T** made;
    ~Owner() {
      delete *made;
      *made = nullptr;
    }
  };
  static thread_local T* made = nullptr;
  if (!made) [[unlikely]] {
    made = new T;
    static thread_local const Owner owner{&made};
  }
  return *made;
}

}  // namespace kernelwright
