/// The frameworks whose tensors come in: for each type of tensor its table of C functions, looked up once.
#pragma once

#include "fast/dlpack.h"
#include "fast/python.h"

namespace kernelwright::fast {

struct Framework {
  PyTypeObject* type = nullptr;
  const dlpack::ExchangeApi* api = nullptr;  // null: the type has none that serves
  bool may_require_grad = false;
  PyObject* grad_enabled = nullptr;  // torch.is_grad_enabled, or null
};

/// The framework of `object`. The entry lives until the next call. Never fails: a type without a table has a null api.
const Framework& framework_of(PyObject* object);

/// Whether gradients are recorded now: False only if the framework says so.
bool records_gradients(const Framework& framework);
/// Whether the tensor asks for a gradient.
bool requires_grad(const Framework& framework, PyObject* object);

/// A new tensor, or null with an error.
PyObject* allocate(const Framework& framework, const dlpack::Device& device, const dlpack::DataType& dtype,
                   std::int64_t* shape, int rank);

}  // namespace kernelwright::fast
