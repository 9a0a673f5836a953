#include "fast/operators.h"

#include <cstring>
#include <utility>

#include "fast/fill.h"

namespace kernelwright::fast {

pthread_mutex_t Locked::mutex_ = PTHREAD_MUTEX_INITIALIZER;
stable::Functions g_torch;

namespace {

using stable::Handle;
using stable::Value;

constexpr int kMostOperators = 128, kMostTorchDtypes = 64, kBuckets = 256;
static_assert(kMostArguments <= 64, "the arguments of a call fit into one word");

dlpack::DataType g_dtypes[kMostTorchDtypes];  // by torch's number; no bits: unknown

/// A tensor's device as torch and DLPack call it, and what that device has of its own.
struct Backend {
  int torch_type, dlpack_type;
  stable::CurrentStream current_stream;  // null: the default stream
  stable::Empty empty;
};

enum class Type : char { kTensor = 't', kInteger = 'i', kFloat = 'f', kOther = 'o' };

constexpr int kAttention = 0;  // kind of handle, in the order of _kernels in torch.py

/// An operator: its schema, of which the first argument is the handle's number.
struct Operator {
  Backend backend;
  int kind;  // of handle
  int num_arguments, num_returned;
  struct {
    Type type;
    bool optional;
    int place;  // among the arguments of a call
  } arguments[kMostArguments];
  char name[64], overload[32];  // of the operator in Python
};
Operator g_operators[kMostOperators];
int g_num_operators = 0;

/// A handle. The table and each call in flight hold it.
struct Held {
  Held* next;
  std::int64_t number;
  int kind, holders;
  PyObject* door;
  State* state;  // of the door
  Asked asked;   // under the lock
};
Held* g_held[kBuckets];  // under the lock, by the lowest bits of the number

Held** place_of(std::int64_t number) {
  Held** at = &g_held[static_cast<std::uint64_t>(number) % kBuckets];
  while (*at && (*at)->number != number) at = &(*at)->next;
  return at;
}

/// Lets go of a handle without the GIL.
void let_go(Held* held) {
  if (__atomic_sub_fetch(&held->holders, 1, __ATOMIC_ACQ_REL) != 0) return;
  const PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF(held->door);
  PyMem_Free(held);
  PyGILState_Release(gil);
}

/// The arguments of a call from torch, for fill().
class TorchValues {
 public:
  TorchValues(const Operator& op, const State& state, const Value* stack) : op_(op), state_(state) {
    check_gradients_ = g_torch.grad_mode_is_enabled();
    for (int i = 0; i < op.num_arguments; ++i) {
      const auto& argument = op.arguments[i];
      Value value = stack[i + 1];
      if (argument.optional) {
        if (!value) continue;
        value = *reinterpret_cast<const Value*>(value);
      }
      given_ |= std::uint64_t{1} << argument.place;
      types_[argument.place] = argument.type;
      values_[argument.place] = value;
    }
  }

  bool absent(int argument) const { return !(given_ >> argument & 1); }
  bool to_int64(int argument, std::int64_t& number) const {
    number = static_cast<std::int64_t>(values_[argument]);
    return types_[argument] == Type::kInteger;
  }
  bool to_int32(int argument, std::int32_t& number) const {
    number = static_cast<std::int32_t>(values_[argument]);
    return types_[argument] == Type::kInteger && number == static_cast<std::int64_t>(values_[argument]);
  }
  bool to_real(int argument, double& real) const {
    __builtin_memcpy(&real, &values_[argument], sizeof real);
    return types_[argument] == Type::kFloat;
  }
  bool to_window(int, std::int32_t (&)[2]) const { return false; }  // a list, which Python reads
  bool write_operand(int index, Launch& launch) {
    const int argument = state_.rules.operands[index].argument;
    if (types_[argument] != Type::kTensor) return false;
    const auto handle = reinterpret_cast<Handle>(values_[argument]);
    if (check_gradients_) {  // a handle is the address of an at::Tensor, which is the address of its TensorImpl
      const void* implementation = *reinterpret_cast<void* const*>(handle);
      if (!g_torch.requires_grad || g_torch.requires_grad(implementation)) return false;
    }
    return write_handle(index, handle, launch);
  }
  bool write_handle(int index, Handle handle, Launch& launch) const;

 private:
  const Operator& op_;
  const State& state_;
  std::uint64_t given_ = 0;
  bool check_gradients_;
  Type types_[kMostArguments];  // of those that are given
  Value values_[kMostArguments];
};

bool TorchValues::write_handle(int index, Handle handle, Launch& launch) const {
  dlpack::Tensor tensor{};
  std::int64_t dim;
  std::int32_t dtype, device_type;
  if (g_torch.device_type(handle, &device_type) || device_type != op_.backend.torch_type ||
      g_torch.device_index(handle, &tensor.device.id) || g_torch.dtype(handle, &dtype) || dtype < 0 ||
      dtype >= kMostTorchDtypes || g_torch.dim(handle, &dim) || g_torch.sizes(handle, &tensor.shape) ||
      g_torch.strides(handle, &tensor.strides) || g_torch.data_ptr(handle, &tensor.data))
    return false;
  if (tensor.device.id < 0) tensor.device.id = 0;  // the host has no number
  tensor.device.type = op_.backend.dlpack_type;
  tensor.dtype = g_dtypes[dtype];
  tensor.ndim = static_cast<std::int32_t>(dim);
  return write_tensor(state_.rules, index, tensor, launch);
}

/// The results that the call allocates. They are deleted, but for those that take() takes.
class NewResults {
 public:
  NewResults() = default;
  NewResults(const NewResults&) = delete;
  NewResults& operator=(const NewResults&) = delete;
  ~NewResults() {
    for (const Handle handle : handles_)
      if (handle) g_torch.delete_tensor(handle);
  }
  bool allocate(const Operator& op, const State& state, const TorchValues& values, Launch& launch);
  Handle take(int i) {
    const Handle handle = handles_[i];
    handles_[i] = nullptr;
    return handle;
  }

 private:
  Handle handles_[kMostResults] = {};
};

int torch_dtype_of(const Operand& operand) {
  for (int i = 0; i < kMostTorchDtypes; ++i)
    if (g_dtypes[i].bits && g_dtypes[i].code == operand.dtypes[0].code && g_dtypes[i].bits == operand.dtypes[0].bits)
      return i;
  return -1;
}

bool NewResults::allocate(const Operator& op, const State& state, const TorchValues& values, Launch& launch) {
  if (op.num_returned > state.num_results) return false;
  // Attention alone may return a part of its results. Python says which operator returns all.
  if (op.num_returned && op.num_returned < state.num_results && op.kind != kAttention) return false;
  for (int i = 0; i < state.num_results; ++i) {
    const Operand& operand = state.rules.operands[state.results[i]];
    if (!values.absent(operand.argument)) continue;
    std::int64_t shape[kMostDims], strides[kMostDims], dense = 1;
    const int dtype = torch_dtype_of(operand);
    if (!op.num_returned || !operand.allocated || dtype < 0 || !shape_of(state.rules, operand, launch, shape))
      return false;
    for (int d = operand.num_dims; d-- > 0; dense *= shape[d] > 1 ? shape[d] : 1) strides[d] = dense;
    if (op.backend.empty(operand.num_dims, shape, strides, dtype, op.backend.torch_type, state.rules.device_id,
                         &handles_[i]) ||
        !values.write_handle(state.results[i], handles_[i], launch))
      return false;
  }
  return true;
}

/// Gives the launch the workspace of its stream. False: there is none yet, and Python allocates it.
bool give_workspace(const State& state, Held& held, void* stream, Launch& launch) {
  Asked asked;
  Workspace workspaces[kMostWorkspaces];
  int count;
  {
    const Locked locked;
    asked = held.asked;
    count = state.num_workspaces;
    for (int i = 0; i < count; ++i) workspaces[i] = state.workspaces[i];
  }
  std::uint64_t needed = 0;
  if (!needed_workspace(state, asked, launch, needed)) return false;
  {
    const Locked locked;
    held.asked = asked;
  }
  if (!needed) return true;
  const Operand& operand = state.rules.operands[state.workspace];
  for (int i = 0; i < count; ++i)
    if (workspaces[i].stream == stream && workspaces[i].bytes >= needed) {
      put(launch, operand.address_at, workspaces[i].address);
      put(launch, operand.place_at, workspaces[i].bytes);
      return true;
    }
  return false;
}

/// Launches. False: a miss. Then Python calls again, and says what is wrong.
bool try_launch(const Operator& op, State& state, Held& held, const Value* stack, NewResults& results) {
  TorchValues values(op, state, stack);
  Launch launch;
  void* stream = nullptr;
  if (!*state.engine_lives || !fill(state, values, launch) || !results.allocate(op, state, values, launch) ||
      (op.backend.current_stream && op.backend.current_stream(state.rules.device_id, &stream) != 0))
    return false;
  const bool own_workspace =
      state.workspace >= 0 && state.workspace_bytes && values.absent(state.rules.operands[state.workspace].argument);
  if (own_workspace && !give_workspace(state, held, stream, launch)) return false;
  if (state.launch(state.kernel, launch.bytes, stream) != 0) {
    const Locked locked;
    held.asked.known = false;  // a kernel that took over from its fallback may need more
    return false;
  }
  __atomic_fetch_add(&state.fast_calls, 1, __ATOMIC_RELAXED);
  return true;
}

void free_arguments(const Operator& op, Value* stack) {
  for (int i = 0; i < op.num_arguments; ++i) {
    const auto& argument = op.arguments[i];
    Value value = stack[i + 1];
    if (argument.optional) {
      if (!value) continue;
      auto* boxed = reinterpret_cast<Value*>(value);
      value = *boxed;
      g_torch.free_value(boxed);
    }
    if (argument.type == Type::kTensor) g_torch.delete_tensor(reinterpret_cast<Handle>(value));
  }
}

/// The fast path. True: the arguments are given back, and the results are on the stack.
bool run_fast(const Operator& op, Value* stack) {
  Held* held;
  {
    const Locked locked;
    held = *place_of(static_cast<std::int64_t>(stack[0]));
    if (!held || held->kind != op.kind) return false;
    __atomic_add_fetch(&held->holders, 1, __ATOMIC_RELAXED);
  }
  NewResults results;
  const bool done = try_launch(op, *held->state, *held, stack, results);
  let_go(held);
  if (!done) return false;
  free_arguments(op, stack);
  for (int i = 0; i < op.num_returned; ++i) stack[i] = reinterpret_cast<Value>(results.take(i));
  return true;
}

/// An operator as torch calls it. Nothing of this frame needs to be destroyed when it throws.
void run(const Operator& op, Value* stack) {
  if (run_fast(op, stack)) return;
  forget_failure();
  const bool called = g_torch.call_dispatcher(op.name, op.overload, stack, stable::kVersion) == 0;
  if (called && !has_failed()) return;
  for (int i = 0; called && i < op.num_returned; ++i) g_torch.delete_tensor(reinterpret_cast<Handle>(stack[i]));
  throw_failure();
}

/// torch gives a kernel no pointer of its own, so each operator has its function.
template <int kPlace>
void run_at(Value* stack, std::uint64_t, std::uint64_t) {
  run(g_operators[kPlace], stack);
}
template <int... kPlaces>
stable::Boxed boxed_at(int place, std::integer_sequence<int, kPlaces...>) {
  constexpr stable::Boxed kAll[] = {run_at<kPlaces>...};
  return kAll[place];
}

bool read_arguments(PyObject* arguments, Operator& op) {
  op.num_arguments = static_cast<int>(PyTuple_Size(arguments));
  if (op.num_arguments > kMostArguments) PyErr_SetString(PyExc_ValueError, "new_operator: too many arguments");
  for (int i = 0; i < op.num_arguments && !PyErr_Occurred(); ++i) {
    int type, optional, place;
    if (!PyArg_ParseTuple(PyTuple_GetItem(arguments, i), "Cpi", &type, &optional, &place)) return false;
    if (place < 0 || place >= kMostArguments) PyErr_SetString(PyExc_ValueError, "new_operator: no such place");
    op.arguments[i] = {static_cast<Type>(type), optional != 0, place};
  }
  return !PyErr_Occurred();
}

PyObject* new_operator(PyObject*, PyObject* given) {
  const char *name, *overload;
  unsigned long long stream, empty;
  PyObject* arguments;
  Operator op{};
  if (!PyArg_ParseTuple(given, "i(iiKK)ssO!i", &op.kind, &op.backend.torch_type, &op.backend.dlpack_type, &stream,
                        &empty, &name, &overload, &PyTuple_Type, &arguments, &op.num_returned) ||
      !read_arguments(arguments, op))
    return nullptr;
  if (g_num_operators == kMostOperators || std::strlen(name) >= sizeof op.name ||
      std::strlen(overload) >= sizeof op.overload || op.num_returned > kMostResults)
    return PyErr_Format(PyExc_ValueError, "new_operator: there is no place for %s", name);
  std::strcpy(op.name, name);
  std::strcpy(op.overload, overload);
  op.backend.current_stream = reinterpret_cast<stable::CurrentStream>(static_cast<std::uintptr_t>(stream));
  op.backend.empty = reinterpret_cast<stable::Empty>(static_cast<std::uintptr_t>(empty));
  g_operators[g_num_operators] = op;
  const stable::Boxed boxed = boxed_at(g_num_operators++, std::make_integer_sequence<int, kMostOperators>());
  return PyLong_FromUnsignedLongLong(reinterpret_cast<std::uintptr_t>(reinterpret_cast<void*>(boxed)));
}

PyObject* torch_functions(PyObject*, PyObject* given) {
  PyObject *addresses, *dtypes;
  constexpr int kCount = sizeof(stable::Functions) / sizeof(void*);
  if (!PyArg_ParseTuple(given, "O!O!", &PyTuple_Type, &addresses, &PyTuple_Type, &dtypes)) return nullptr;
  if (PyTuple_Size(addresses) != kCount) return PyErr_Format(PyExc_ValueError, "torch_functions: takes %d", kCount);
  void* functions[kCount];
  for (int i = 0; i < kCount; ++i) functions[i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
  for (Py_ssize_t i = 0; i < PyTuple_Size(dtypes); ++i) {
    int number, code, bits;
    if (!PyArg_ParseTuple(PyTuple_GetItem(dtypes, i), "iii", &number, &code, &bits)) return nullptr;
    if (number >= 0 && number < kMostTorchDtypes)
      g_dtypes[number] = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
  }
  if (PyErr_Occurred()) return nullptr;
  std::memcpy(&g_torch, functions, sizeof g_torch);
  return Py_BuildValue("");
}

PyObject* hold(PyObject*, PyObject* given) {
  long long number;
  int kind;
  PyObject* door;
  if (!PyArg_ParseTuple(given, "LiO", &number, &kind, &door)) return nullptr;
  State* state = state_of(door);
  if (!state) return Py_BuildValue("");  // without rules every call is Python's
  auto* held = static_cast<Held*>(PyMem_Calloc(1, sizeof(Held)));
  if (!held) return PyErr_NoMemory();
  Py_INCREF(door);
  held->number = number, held->kind = kind, held->holders = 1, held->door = door, held->state = state;
  const Locked locked;
  *place_of(number) = held;
  return Py_BuildValue("");
}

PyObject* drop(PyObject*, PyObject* given) {
  const long long number = PyLong_AsLongLong(given);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  Held* held;
  {
    const Locked locked;
    Held** at = place_of(number);
    held = *at;
    if (held) *at = held->next;
  }
  if (held) let_go(held);
  return Py_BuildValue("");
}

}  // namespace

PyMethodDef g_operator_methods[] = {
    {"torch_functions", torch_functions, METH_VARARGS, "torch_functions(addresses, dtypes): see _stable.py."},
    {"new_operator", new_operator, METH_VARARGS,
     "new_operator(kind, (torch's device type, DLPack's, current stream, empty), name, overload, arguments, returned): "
     "the address of an operator for torch's stable ABI. name and overload: the operator in Python."},
    {"hold", hold, METH_VARARGS, "hold(number, kind, handle): the operators of that kind know the handle."},
    {"drop", drop, METH_O, "drop(number): they do not know it any more."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace kernelwright::fast
