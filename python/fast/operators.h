/// Operators of torch in C++: torch calls one with a handle's number and tensors, and the handle's state launches, with
/// no object of Python and without the GIL. What the rules do not take goes to the operator of the same schema that
/// Python implements, and so to the words of its checks.
#pragma once

#include <pthread.h>

#include "fast/python.h"
#include "fast/stable.h"

namespace kernelwright::fast {

/// Holds the lock of the handles' table and of the workspaces of their states. Who holds the lock neither takes the GIL
/// nor calls the library, which may wait for Python.
class Locked {
 public:
  Locked() { pthread_mutex_lock(&mutex_); }
  ~Locked() { pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  static pthread_mutex_t mutex_;
};

/// torch's functions, once torch_functions() has run.
extern stable::Functions g_torch;

/// Whether Python has kept an error on this thread since the last call: what the operator in Python raised.
bool has_failed();
/// Forgets whether there is one. The error itself stays until call_of()'s object raises it.
void forget_failure();
/// Throws std::runtime_error with the kept error's words through torch to its caller. The caller owns nothing.
[[noreturn]] void throw_failure();

/// The functions of the module that concern operators, up to a null.
extern PyMethodDef g_operator_methods[];
extern PyMethodDef g_failure_methods[];
/// The type of the callables that stand before torch's (operators of torch raise RuntimeError alone). Null: with an
/// error.
PyObject* new_raising_type();

}  // namespace kernelwright::fast
