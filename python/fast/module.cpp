/// The module kernelwright._fast: the type Door, from which the handles of kernelwright/_handles.py derive.
#include "fast/door.h"
#include "fast/operators.h"

namespace kernelwright::fast {
namespace {

using VectorCall = PyObject* (*)(PyObject*, PyObject* const*, std::size_t, PyObject*);
// Headers of 3.12 are the first that show these to the limited API. The interpreters have had them since 3.9.
constexpr unsigned long kHasVectorCall = 1UL << 11;
constexpr std::size_t kArgumentsOffset = std::size_t{1} << (8 * sizeof(std::size_t) - 1);

struct Door {
  PyObject_HEAD VectorCall vectorcall;
  State* state;  // null until _open() is called
};

/// The place of an argument's name, or -1. A call's names are interned, so a first pass compares addresses.
int place_of(const State& state, PyObject* name) {
  for (int i = 0; i < state.num_arguments; ++i)
    if (state.names[i] == name) return i;
  for (int i = 0; i < state.num_arguments; ++i)
    if (PyUnicode_Compare(state.names[i], name) == 0) return i;
  return -1;
}

bool place(const State& state, PyObject* name, PyObject* value, Given& given) {
  const int at = place_of(state, name);
  if (at < 0 || given.values[at]) return false;
  given.values[at] = value;
  return true;
}

bool read_vector(const State& state, PyObject* const* arguments, Py_ssize_t positional, PyObject* names, Given& given) {
  if (positional > state.num_positional) return false;
  for (Py_ssize_t i = 0; i < positional; ++i) given.values[i] = arguments[i];
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i)
    if (!place(state, PyTuple_GetItem(names, i), arguments[positional + i], given)) return false;
  return true;
}

bool read_dict(const State& state, PyObject* positional, PyObject* named, Given& given) {
  const Py_ssize_t count = PyTuple_Size(positional);
  if (count > state.num_positional) return false;
  for (Py_ssize_t i = 0; i < count; ++i) given.values[i] = PyTuple_GetItem(positional, i);
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (named && PyDict_Next(named, &position, &name, &value))
    if (!place(state, name, value, given)) return false;
  return true;
}

/// The Python path, with the arguments as they came.
PyObject* call_slow(Door* door, PyObject* positional, PyObject* named) {
  if (door->state) ++door->state->slow_calls;
  const Owned slow(PyObject_GetAttrString(reinterpret_cast<PyObject*>(door), "_slow"));
  return slow ? PyObject_Call(slow.get(), positional, named) : nullptr;
}

/// The fast path; null and *missed: it does not take the call.
PyObject* call_fast(Door* door, const Given& given, bool* missed) {
  PyObject* result = nullptr;
  const Outcome outcome = call(*door->state, reinterpret_cast<PyObject*>(door), given, &result);
  *missed = outcome == Outcome::kMiss;
  if (outcome == Outcome::kDone) __atomic_fetch_add(&door->state->fast_calls, 1, __ATOMIC_RELAXED);
  return result;
}

PyObject* call_with_vector(PyObject* self, PyObject* const* arguments, std::size_t flagged, PyObject* names) {
  Door* door = reinterpret_cast<Door*>(self);
  const auto positional = static_cast<Py_ssize_t>(flagged & ~kArgumentsOffset);
  Given given{};
  bool missed = true;
  if (door->state && read_vector(*door->state, arguments, positional, names, given)) {
    PyObject* result = call_fast(door, given, &missed);
    if (!missed) return result;
  }
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  const Owned tuple(PyTuple_New(positional)), dict(PyDict_New());
  if (!tuple || !dict) return nullptr;
  for (Py_ssize_t i = 0; i < positional; ++i) {
    Py_INCREF(arguments[i]);
    PyTuple_SetItem(tuple.get(), i, arguments[i]);
  }
  for (Py_ssize_t i = 0; i < named; ++i)
    if (PyDict_SetItem(dict.get(), PyTuple_GetItem(names, i), arguments[positional + i]) < 0) return nullptr;
  return call_slow(door, tuple.get(), dict.get());
}

/// How Python before 3.12 calls an object of a class that derives from Door.
PyObject* call_with_dict(PyObject* self, PyObject* positional, PyObject* named) {
  Door* door = reinterpret_cast<Door*>(self);
  Given given{};
  bool missed = true;
  if (door->state && read_dict(*door->state, positional, named, given)) {
    PyObject* result = call_fast(door, given, &missed);
    if (!missed) return result;
  }
  return call_slow(door, positional, named);
}

PyObject* new_door(PyTypeObject* type, PyObject*, PyObject*) {
  const auto allocate_object = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = allocate_object(type, 0);
  if (!self) return nullptr;
  Door* door = reinterpret_cast<Door*>(self);
  door->vectorcall = call_with_vector;
  door->state = nullptr;
  return self;
}

void free_door(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  free_state(reinterpret_cast<Door*>(self)->state);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyObject* open_door(PyObject* self, PyObject* described) {
  Door* door = reinterpret_cast<Door*>(self);
  if (door->state) return PyErr_Format(PyExc_ValueError, "_open: the handle has its rules, and may be in use");
  auto* state = static_cast<State*>(PyMem_Calloc(1, sizeof(State)));
  if (!state) return PyErr_NoMemory();
  if (!PyTuple_Check(described) || !read_state(described, *state)) {
    free_state(state);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "_open: takes a tuple");
    return nullptr;
  }
  door->state = state;
  return Py_BuildValue("");
}

PyObject* build_struct(PyObject* self, PyObject* positional, PyObject* named) {
  const Door* door = reinterpret_cast<Door*>(self);
  Given given{};
  if (!door->state || !read_dict(*door->state, positional, named, given)) return Py_BuildValue("");
  return build(*door->state, given);
}

PyObject* counts(PyObject* self, PyObject*) {
  const State* state = reinterpret_cast<Door*>(self)->state;
  return state ? Py_BuildValue("(KK)", state->fast_calls, state->slow_calls) : Py_BuildValue("(ii)", 0, 0);
}

template <class Function>
void* slot_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

PyMethodDef g_methods[] = {
    {"_open", open_door, METH_O, "Takes the rules that kernelwright/_rules.py makes."},
    {"_build", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(build_struct)), METH_VARARGS | METH_KEYWORDS,
     "The C struct of a call as bytes, or None if the call is Python's to check."},
    {"_counts", counts, METH_NOARGS, "How many calls the fast path took, and how many Python took."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef g_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Door, vectorcall), READONLY, nullptr},
                           {nullptr, 0, 0, 0, nullptr}};

PyObject* g_door_type;

PyModuleDef g_module = {PyModuleDef_HEAD_INIT,
                        "_fast",
                        "Calls of handles without Python code.",
                        -1,
                        nullptr,
                        nullptr,
                        nullptr,
                        nullptr,
                        nullptr};

}  // namespace

State* state_of(PyObject* door) {
  const bool is_door = g_door_type && PyObject_IsInstance(door, g_door_type) == 1;
  return is_door ? reinterpret_cast<Door*>(door)->state : nullptr;
}

}  // namespace kernelwright::fast

PyMODINIT_FUNC PyInit__fast() {
  using namespace kernelwright::fast;
  PyType_Slot slots[] = {
      {Py_tp_new, slot_of(new_door)}, {Py_tp_dealloc, slot_of(free_door)}, {Py_tp_call, slot_of(call_with_dict)},
      {Py_tp_methods, g_methods},     {Py_tp_members, g_members},          {0, nullptr}};
  PyType_Spec spec = {"kernelwright._fast.Door", sizeof(Door), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | kHasVectorCall, slots};
  const Owned type(PyType_FromSpec(&spec)), raising(new_raising_type());
  Owned module(PyModule_Create(&g_module));
  if (!type || !raising || !module || PyObject_SetAttrString(module.get(), "Door", type.get()) < 0 ||
      PyObject_SetAttrString(module.get(), "Raising", raising.get()) < 0 ||
      PyModule_AddFunctions(module.get(), g_operator_methods) < 0 ||
      PyModule_AddFunctions(module.get(), g_failure_methods) < 0)
    return nullptr;
  Py_INCREF(type.get());
  g_door_type = type.get();
  return module.release();
}
