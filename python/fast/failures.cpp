/// How an error of Python passes through torch's dispatcher. The stable ABI carries no errors of Python, and would log
/// an exception of C++. So Python keeps its error here, and the operator in C++ throws std::runtime_error with the
/// words. torch makes a RuntimeError of it. A Raising object stands where Python calls torch's operator, and raises the
/// kept error in place of a RuntimeError with its words. Other callers get the RuntimeError.
#include <cstring>

#include "fast/operators.h"

namespace kernelwright::fast {
namespace {

thread_local PyObject *t_error, *t_words;  // the last kept error of the thread, and its words as bytes
thread_local const char* t_text;           // of t_words
thread_local bool t_failed;
PyObject* g_op;  // "_op"

PyObject* keep_error(PyObject*, PyObject* arguments) {
  PyObject *error, *words;
  if (!PyArg_ParseTuple(arguments, "OS", &error, &words)) return nullptr;
  if (!PyExceptionInstance_Check(error)) return PyErr_Format(PyExc_TypeError, "keep_error: takes an exception");
  Py_INCREF(error);
  Py_INCREF(words);
  const Owned old_error(t_error), old_words(t_words);
  t_error = error, t_words = words, t_text = PyBytes_AsString(words), t_failed = true;
  return Py_BuildValue("");
}

struct Raising {
  PyObject_HEAD PyObject* call;
};

PyObject* new_raising(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* inner;
  if (!PyArg_ParseTuple(arguments, "O", &inner)) return nullptr;
  const auto allocate_object = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = allocate_object(type, 0);
  if (!self) return nullptr;
  Py_INCREF(inner);
  reinterpret_cast<Raising*>(self)->call = inner;
  return self;
}

void free_raising(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<Raising*>(self)->call);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

/// Puts the kept error in the place of the one that is set, if that has its words.
void raise_kept() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned text(value && PyErr_GivenExceptionMatches(type, PyExc_RuntimeError) ? PyObject_Str(value) : nullptr);
  const char* words = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  if (!words || std::strcmp(words, t_text) != 0) {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return;
  }
  const Owned old_type(type), old_value(value), old_traceback(traceback), kept_words(t_words);
  PyObject* kept = t_error;
  t_error = t_words = nullptr, t_text = nullptr;
  auto* kept_type = reinterpret_cast<PyObject*>(Py_TYPE(kept));
  Py_INCREF(kept_type);
  PyErr_Restore(kept_type, kept, PyException_GetTraceback(kept));
}

PyObject* call_raising(PyObject* self, PyObject* positional, PyObject* named) {
  PyObject* result = PyObject_Call(reinterpret_cast<Raising*>(self)->call, positional, named);
  if (!result && t_error) raise_kept();
  return result;
}

// In all else the object is torch's.
PyObject* attribute_of(PyObject* self, PyObject* name) {
  return PyObject_GetAttr(reinterpret_cast<Raising*>(self)->call, name);
}
int set_attribute(PyObject* self, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(reinterpret_cast<Raising*>(self)->call, name, value);
}
Py_hash_t hash_of(PyObject* self) { return PyObject_Hash(reinterpret_cast<Raising*>(self)->call); }

/// A call of an object whose class is an overload_type().
PyObject* call_overload(PyObject* self, PyObject* positional, PyObject* named) {
  const Owned call(PyObject_GetAttr(self, g_op));
  PyObject* result = call ? PyObject_Call(call.get(), positional, named) : nullptr;
  if (!result && t_error) raise_kept();
  return result;
}

template <class Function>
void* slot_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

PyObject* overload_type(PyObject*, PyObject* base) {
  if (!g_op) g_op = PyUnicode_InternFromString("_op");
  const Owned bases(PyTuple_Pack(1, base));
  PyType_Slot slots[] = {{Py_tp_call, slot_of(call_overload)}, {0, nullptr}};
  PyType_Spec spec = {"kernelwright._fast.Overload", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  return g_op && bases ? PyType_FromSpecWithBases(&spec, bases.get()) : nullptr;
}

}  // namespace

bool has_failed() { return t_failed; }
void forget_failure() { t_failed = false; }

void throw_failure() {
  void* exception = g_torch.allocate_exception(stable::kRuntimeErrorBytes);
  g_torch.construct_runtime_error(exception,
                                  t_failed ? t_text : "kernelwright: torch cannot call the operator in Python");
  t_failed = false;
  g_torch.throw_exception(exception, g_torch.runtime_error_type, g_torch.destroy_runtime_error);
  __builtin_unreachable();
}

PyMethodDef g_failure_methods[] = {
    {"keep_error", keep_error, METH_VARARGS, "keep_error(error, words): the call of an operator in C++ raises it."},
    {"overload_type", overload_type, METH_O, "overload_type(OpOverload): a class of the same objects, called in C."},
    {nullptr, nullptr, 0, nullptr}};

PyObject* new_raising_type() {
  PyType_Slot slots[] = {{Py_tp_new, slot_of(new_raising)},
                         {Py_tp_dealloc, slot_of(free_raising)},
                         {Py_tp_call, slot_of(call_raising)},
                         {Py_tp_getattro, slot_of(attribute_of)},
                         {Py_tp_setattro, slot_of(set_attribute)},
                         {Py_tp_hash, slot_of(hash_of)},
                         {0, nullptr}};
  PyType_Spec spec = {"kernelwright._fast.Raising", sizeof(Raising), 0, Py_TPFLAGS_DEFAULT, slots};
  return PyType_FromSpec(&spec);
}

}  // namespace kernelwright::fast
