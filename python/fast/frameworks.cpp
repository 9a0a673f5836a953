#include "fast/frameworks.h"

namespace kernelwright::fast {
namespace {

// Few types come in: Tensor, Parameter. A ninth takes the place of the first, and is looked up again later.
constexpr int kMostTypes = 8;
Framework g_types[kMostTypes];
int g_next_type = 0;
PyObject* g_requires_grad = nullptr;  // "requires_grad"

/// The attribute, or null without an error.
PyObject* attribute(PyObject* object, const char* name) {
  PyObject* found = PyObject_GetAttrString(object, name);
  if (!found) PyErr_Clear();
  return found;
}

/// torch.is_grad_enabled, if the type is torch's tensor or derived from it. torch is loaded then, and not loaded by us.
PyObject* torch_grad_enabled(PyObject* type) {
  PyObject* modules = PyImport_GetModuleDict();  // borrowed
  PyObject* torch = modules ? PyDict_GetItemString(modules, "torch") : nullptr;
  if (!torch) return nullptr;
  const Owned tensor(attribute(torch, "Tensor"));
  if (!tensor || PyObject_IsSubclass(type, tensor.get()) != 1) {
    PyErr_Clear();
    return nullptr;
  }
  return attribute(torch, "is_grad_enabled");
}

const dlpack::ExchangeApi* table_of(PyObject* type) {
  const Owned capsule(attribute(type, "__dlpack_c_exchange_api__"));
  if (!capsule || !PyCapsule_IsValid(capsule.get(), dlpack::kCapsuleName)) return nullptr;
  const auto* api = static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.get(), dlpack::kCapsuleName));
  while (api && api->version.major != dlpack::kMajorVersion) api = api->previous;
  return api && api->borrow && api->current_stream ? api : nullptr;
}

void set_error(void*, const char*, const char* message) { PyErr_SetString(PyExc_RuntimeError, message); }

}  // namespace

const Framework& framework_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  for (const Framework& known : g_types)
    if (known.type == type) return known;
  Framework& entry = g_types[g_next_type];
  g_next_type = (g_next_type + 1) % kMostTypes;
  Py_XDECREF(reinterpret_cast<PyObject*>(entry.type));
  Py_XDECREF(entry.grad_enabled);
  entry = Framework{};
  auto* as_object = reinterpret_cast<PyObject*>(type);
  Py_INCREF(as_object);  // an address of a type that has gone might become another type's
  entry.type = type;
  entry.api = table_of(as_object);
  if (!g_requires_grad) g_requires_grad = PyUnicode_InternFromString("requires_grad");
  if (entry.api && g_requires_grad) {
    entry.may_require_grad = Owned(attribute(as_object, "requires_grad")).get() != nullptr;
    entry.grad_enabled = torch_grad_enabled(as_object);
  }
  return entry;
}

bool records_gradients(const Framework& framework) {
  if (!framework.may_require_grad) return false;
  if (!framework.grad_enabled) return true;
  const Owned enabled(PyObject_CallObject(framework.grad_enabled, nullptr));
  if (!enabled) PyErr_Clear();
  return enabled.get() != Py_False;
}

bool requires_grad(const Framework& framework, PyObject* object) {
  if (!framework.may_require_grad) return false;
  const Owned asked(PyObject_GetAttr(object, g_requires_grad));
  if (!asked) PyErr_Clear();
  return asked.get() != Py_False;
}

PyObject* allocate(const Framework& framework, const dlpack::Device& device, const dlpack::DataType& dtype,
                   std::int64_t* shape, int rank) {
  dlpack::Tensor prototype{nullptr, device, rank, dtype, shape, nullptr, 0};
  dlpack::ManagedTensor* made = nullptr;
  void* object = nullptr;
  if (framework.api->allocate(&prototype, &made, nullptr, set_error) != 0 || !made ||
      framework.api->object_of(made, &object) != 0) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the framework's allocator failed");
    return nullptr;
  }
  return static_cast<PyObject*>(object);
}

}  // namespace kernelwright::fast
