#include "fast/fill.h"
#include "fast/operators.h"

namespace kernelwright::fast {
namespace {

constexpr int kInvalidArgument = 1;  // KERNELWRIGHT_INVALID_ARGUMENT

/// What a call finds while it reads its operands.
struct Reading {
  Framework framework;       // of the first tensor
  PyObject* like = nullptr;  // the first tensor
  dlpack::Device device{};
  bool may_record = false;
};

bool is_absent(PyObject* value) { return !value || value == Py_None; }
bool is_integer(PyObject* value) { return PyLong_CheckExact(value) != 0; }

bool int64_of(PyObject* value, std::int64_t& number) {
  if (!is_integer(value)) return false;
  int overflow = 0;
  number = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

bool int32_of(PyObject* value, std::int32_t& number) {
  if (value == Py_True || value == Py_False) {
    number = value == Py_True;
    return true;
  }
  std::int64_t wide;
  if (!int64_of(value, wide) || wide != static_cast<std::int32_t>(wide)) return false;
  number = static_cast<std::int32_t>(wide);
  return true;
}

bool address_of(PyObject* value, std::uint64_t& address) {
  address = PyLong_AsUnsignedLongLong(value);
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

/// The values of a call from Python, for fill().
class PythonValues {
 public:
  PythonValues(const State& state, const Given& given, Reading& reading)
      : state_(state), given_(given), reading_(reading) {}

  bool absent(int argument) const { return is_absent(given_.values[argument]); }
  bool to_int64(int argument, std::int64_t& number) const { return int64_of(given_.values[argument], number); }
  bool to_int32(int argument, std::int32_t& number) const { return int32_of(given_.values[argument], number); }
  bool to_real(int argument, double& real) const {
    PyObject* value = given_.values[argument];
    if (!PyFloat_CheckExact(value) && !is_integer(value)) return false;
    real = PyFloat_AsDouble(value);
    if (real != -1.0 || !PyErr_Occurred()) return true;
    PyErr_Clear();
    return false;
  }
  bool to_window(int argument, std::int32_t (&window)[2]) const {
    PyObject* value = given_.values[argument];
    if (!(PyTuple_CheckExact(value) || PyList_CheckExact(value)) || PySequence_Size(value) != 2) return false;
    for (int side = 0; side < 2; ++side) {
      const Owned bound(PySequence_GetItem(value, side));
      if (!bound || !int32_of(bound.get(), window[side])) return false;
    }
    return true;
  }
  /// A tensor, or an address with the number beside it.
  bool write_operand(int index, Launch& launch);

 private:
  const State& state_;
  const Given& given_;
  Reading& reading_;
};

bool PythonValues::write_operand(int index, Launch& launch) {
  const Operand& operand = state_.rules.operands[index];
  PyObject* value = given_.values[operand.argument];
  if (is_integer(value)) {
    std::uint64_t address;
    std::int64_t beside = 0;
    PyObject* number = operand.beside < 0 ? nullptr : given_.values[operand.beside];
    if (!address_of(value, address)) return false;
    if (operand.beside >= 0 && (is_absent(number) || !int64_of(number, beside) || beside < 0 || beside > 0x7fffffff))
      return false;
    write_address(state_.rules, index, address, beside, launch);
    return true;
  }
  const Framework framework = framework_of(value);  // a copy: an attribute of a tensor may run any code
  if (!framework.api) return false;
  if (!reading_.like) {
    reading_.framework = framework;
    reading_.like = value;
    reading_.may_record = records_gradients(framework);
  } else if (framework.api != reading_.framework.api) {
    return false;  // which framework's stream would it be?
  }
  if (reading_.may_record && requires_grad(framework, value)) return false;
  dlpack::Tensor tensor{};
  if (framework.api->borrow(value, &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  if (reading_.like == value) reading_.device = tensor.device;
  return write_tensor(state_.rules, index, tensor, launch);
}

bool fill(const State& state, const Given& given, Reading& reading, Launch& launch) {
  PythonValues values(state, given, reading);
  return fill(state, values, launch);
}

/// The results: those that are given, and new ones for the others.
struct Results {
  PyObject* objects[kMostResults] = {};
  int count = 0;

  Results() = default;
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  ~Results() {
    for (int i = 0; i < count; ++i) Py_XDECREF(objects[i]);
  }
  /// None, one object, or a tuple of several.
  PyObject* pack() const {
    if (count == 1) {
      Py_INCREF(objects[0]);
      return objects[0];
    }
    if (count == 0) return Py_BuildValue("");
    PyObject* const all = PyTuple_New(count);
    for (int i = 0; all && i < count; ++i) {
      Py_INCREF(objects[i]);
      PyTuple_SetItem(all, i, objects[i]);
    }
    return all;
  }
};

bool collect_results(const State& state, const Given& given, const Reading& reading, Launch& launch, Results& results) {
  results.count = state.num_results;
  for (int i = 0; i < state.num_results; ++i) {
    const Operand& operand = state.rules.operands[state.results[i]];
    PyObject* value = given.values[operand.argument];
    if (!is_absent(value)) {
      Py_INCREF(value);
      results.objects[i] = value;
      continue;
    }
    std::int64_t shape[kMostDims];
    if (!operand.allocated || !reading.like || !shape_of(state.rules, operand, launch, shape)) return false;
    const dlpack::DataType dtype{operand.dtypes[0].code, operand.dtypes[0].bits, 1};
    results.objects[i] = allocate(reading.framework, reading.device, dtype, shape, operand.num_dims);
    dlpack::Tensor tensor{};
    if (!results.objects[i] || reading.framework.api->borrow(results.objects[i], &tensor) != 0) {
      PyErr_Clear();  // the slow path allocates once more, and its error is the framework's own
      return false;
    }
    if (!write_tensor(state.rules, state.results[i], tensor, launch)) return false;
  }
  return true;
}

bool find_stream(State& state, PyObject* self, const Given& given, const Reading& reading, void*& stream) {
  PyObject* value = state.stream_argument < 0 ? nullptr : given.values[state.stream_argument];
  stream = nullptr;
  if (is_absent(value)) {
    if (!reading.like) return true;
    if (reading.framework.api->current_stream(state.rules.device_types[0], state.rules.device_id, &stream) == 0)
      return true;
    PyErr_Clear();
    return false;
  }
  const Owned read(is_integer(value) ? nullptr : PyObject_CallMethod(self, "_stream_address", "O", value));
  if (!is_integer(value) && (!read || read.get() == Py_None)) {
    PyErr_Clear();  // the slow path raises it again
    return read.get() == Py_None;
  }
  std::uint64_t address;
  if (!address_of(read ? read.get() : value, address)) return false;
  stream = reinterpret_cast<void*>(address);
  return true;
}

/// Gives the launch a workspace of its stream. Python's _workspace() makes and keeps the memory, and refuses to while
/// the stream captures.
Outcome give_workspace(State& state, PyObject* self, const Reading& reading, void* stream, Launch& launch) {
  const Operand& operand = state.rules.operands[state.workspace];
  std::uint64_t needed = 0;
  if (!needed_workspace(state, state.asked, launch, needed)) return Outcome::kMiss;
  if (!needed) return Outcome::kDone;
  Workspace* found = nullptr;
  for (int i = 0; i < state.num_workspaces; ++i)
    if (state.workspaces[i].stream == stream) found = &state.workspaces[i];
  if (!found || found->bytes < needed) {
    if (!reading.like) return Outcome::kMiss;
    const Owned made(PyObject_CallMethod(self, "_workspace", "OKK", reading.like,
                                         static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(stream)),
                                         static_cast<unsigned long long>(needed)));
    unsigned long long address, bytes;
    if (!made || !PyArg_ParseTuple(made.get(), "KK", &address, &bytes)) return Outcome::kError;
    const Locked locked;  // an operator may look for its workspace meanwhile
    if (!found) found = &state.workspaces[state.num_workspaces % kMostWorkspaces];
    if (found == &state.workspaces[state.num_workspaces]) ++state.num_workspaces;
    *found = {stream, address, bytes};
  }
  put(launch, operand.address_at, found->address);
  put(launch, operand.place_at, found->bytes);
  return Outcome::kDone;
}

/// Launches without the GIL: a launch may wait for a compile whose events another thread tells in Python.
int launch_unlocked(const State& state, const Launch& launch, void* stream) {
  PyThreadState* thread = PyEval_SaveThread();
  const int status = state.launch(state.kernel, launch.bytes, stream);
  PyEval_RestoreThread(thread);
  return status;
}

}  // namespace

bool needed_workspace(const State& state, Asked& asked, const Launch& launch, std::uint64_t& bytes) {
  bool same = asked.known;
  for (int i = 0; same && i < state.rules.num_sizes; ++i)
    same = asked.sizes[i] == (launch.known[i] ? launch.sizes[i] : -1);
  if (!same) {
    if (state.workspace_bytes(state.kernel, launch.bytes, &asked.bytes) != 0) return false;
    for (int i = 0; i < state.rules.num_sizes; ++i) asked.sizes[i] = launch.known[i] ? launch.sizes[i] : -1;
    asked.known = true;
  }
  bytes = asked.bytes;
  return true;
}

Outcome call(State& state, PyObject* self, const Given& given, PyObject** result) {
  Reading reading;
  Launch launch;
  Results results;
  void* stream;
  if (!*state.engine_lives || !fill(state, given, reading, launch) ||
      !collect_results(state, given, reading, launch, results) || !find_stream(state, self, given, reading, stream))
    return Outcome::kMiss;
  const bool own_workspace = state.workspace >= 0 && state.workspace_bytes &&
                             is_absent(given.values[state.rules.operands[state.workspace].argument]);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (own_workspace)
      if (const Outcome given_one = give_workspace(state, self, reading, stream, launch); given_one != Outcome::kDone)
        return given_one;
    const int status = launch_unlocked(state, launch, stream);
    if (status == 0) {
      *result = results.pack();
      return *result ? Outcome::kDone : Outcome::kError;
    }
    // A kernel that took over from its fallback since may need more than the sizes needed before: ask once more.
    const bool may_need_more = own_workspace && status == kInvalidArgument && attempt == 0;
    if (!may_need_more) {
      Owned(PyObject_CallMethod(self, "_raise", "i", status));
      return Outcome::kError;
    }
    state.asked.known = false;
  }
  return Outcome::kMiss;
}

PyObject* build(State& state, const Given& given) {
  Reading reading;
  Launch launch;
  if (!fill(state, given, reading, launch)) return Py_BuildValue("");
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(launch.bytes), state.rules.struct_bytes);
}

}  // namespace kernelwright::fast
