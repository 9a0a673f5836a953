/// Objects that each thread has for itself.
#pragma once

namespace kernelwright {

/// This thread's T, made at its first use. The object lies on the heap: a thread_local object of its size would come
/// out of the stack of every thread of the program. It is destroyed with the thread. Code that runs later still gets a
/// new object, which is never destroyed: an example is a handler of exit() that runs after the main thread's objects
/// are gone.
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
