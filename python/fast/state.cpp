/// A handle's state from the tuples of kernelwright/_rules.py, which has the meaning of each number.
#include "fast/door.h"

namespace kernelwright::fast {
namespace {

using Address = unsigned long long;

template <class F>
F function_at(Address address) {
  return reinterpret_cast<F>(static_cast<std::uintptr_t>(address));
}

/// Calls read(item, place) for each item of a tuple of at most `most`. The number of items; -1: with an error.
template <class Read>
int each(PyObject* tuple, int most, const char* what, Read&& read) {
  const Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : most + 1;
  if (count > most) {
    PyErr_Format(PyExc_ValueError, "%s: no tuple of %d items at most", what, most);
    return -1;
  }
  for (int i = 0; i < count; ++i)
    if (!read(PyTuple_GetItem(tuple, i), i)) return -1;
  return static_cast<int>(count);
}

bool read_operand(PyObject* item, Operand& operand) {
  int layout, required, settles, allocated;
  PyObject *dtypes, *dims;
  if (!PyArg_ParseTuple(item, "iIIIiipppOO", &operand.argument, &operand.address_at, &operand.place_at,
                        &operand.groups_at, &layout, &operand.beside, &required, &settles, &allocated, &dtypes, &dims))
    return false;
  operand.layout = static_cast<Layout>(layout);
  operand.required = required, operand.settles = settles, operand.allocated = allocated;
  operand.num_dtypes = each(dtypes, kMostDtypes, "dtypes", [&](PyObject* dtype, int i) {
    int code, bits;
    if (!PyArg_ParseTuple(dtype, "ii", &code, &bits)) return false;
    operand.dtypes[i] = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits)};
    return true;
  });
  operand.num_dims = each(dims, kMostDims, "dims", [&](PyObject* dim, int i) {
    int kind;
    long long value;
    if (!PyArg_ParseTuple(dim, "iiL", &kind, &operand.dims[i].size, &value)) return false;
    operand.dims[i].kind = static_cast<DimKind>(kind);
    operand.dims[i].value = value;
    return true;
  });
  return operand.num_dtypes >= 0 && operand.num_dims >= 0;
}

bool read_numbers(PyObject* sizes, PyObject* numbers, Rules& rules) {
  rules.num_sizes = each(sizes, kMostSizes, "sizes", [&](PyObject* item, int i) {
    int required;
    Size& size = rules.sizes[i];
    if (!PyArg_ParseTuple(item, "iIip", &size.argument, &size.at, &size.bytes, &required)) return false;
    size.required = required;
    return true;
  });
  rules.num_numbers = each(numbers, kMostArguments, "numbers", [&](PyObject* item, int i) {
    int kind;
    Number& number = rules.numbers[i];
    if (!PyArg_ParseTuple(item, "iiII", &number.argument, &kind, &number.at, &number.bit)) return false;
    number.kind = static_cast<NumberKind>(kind);
    return true;
  });
  return rules.num_sizes >= 0 && rules.num_numbers >= 0;
}

bool read_names(PyObject* names, PyObject* without_rule, PyObject* results, State& state) {
  state.num_arguments = each(names, kMostArguments, "names", [&](PyObject* name, int i) {
    Py_INCREF(name);
    state.names[i] = name;
    PyUnicode_InternInPlace(&state.names[i]);
    state.has_rule[i] = true;
    return true;
  });
  const int unruled = each(without_rule, kMostArguments, "without_rule", [&](PyObject* item, int) {
    state.has_rule[PyLong_AsLong(item) & (kMostArguments - 1)] = false;
    return !PyErr_Occurred();
  });
  state.num_results = each(results, kMostResults, "results", [&](PyObject* item, int i) {
    state.results[i] = static_cast<int>(PyLong_AsLong(item));
    return !PyErr_Occurred();
  });
  return state.num_arguments >= 0 && unruled >= 0 && state.num_results >= 0;
}

}  // namespace

bool read_state(PyObject* described, State& state) {
  Rules& rules = state.rules;
  Address kernel, lives, launch, workspace_bytes, scale_bytes;
  const char* scale_format;
  PyObject *names, *without_rule, *results, *operands, *sizes, *numbers;
  if (!PyArg_ParseTuple(described, "(II)(KKKKKs)(iii)(OOO)(iii)OOO(iii)(ii)", &rules.struct_bytes, &rules.overrides_at,
                        &kernel, &lives, &launch, &workspace_bytes, &scale_bytes, &scale_format, &rules.device_types[0],
                        &rules.device_types[1], &rules.device_id, &names, &without_rule, &results,
                        &state.num_positional, &state.stream_argument, &state.workspace, &operands, &sizes, &numbers,
                        &rules.paged_size, &rules.page_table, &rules.page_tokens, &rules.rows_size, &rules.k_size))
    return false;
  if (rules.struct_bytes > kMostStructBytes) {
    PyErr_Format(PyExc_ValueError, "struct_bytes: %u is more than %d", rules.struct_bytes, kMostStructBytes);
    return false;
  }
  state.kernel = function_at<void*>(kernel);
  state.engine_lives = function_at<const std::int32_t*>(lives);
  state.launch = function_at<decltype(state.launch)>(launch);
  state.workspace_bytes = function_at<decltype(state.workspace_bytes)>(workspace_bytes);
  rules.scale_bytes = function_at<decltype(rules.scale_bytes)>(scale_bytes);
  for (std::size_t i = 0; i + 1 < sizeof rules.scale_format && scale_format[i]; ++i)
    rules.scale_format[i] = scale_format[i];
  rules.num_operands = each(operands, kMostOperands, "operands",
                            [&](PyObject* item, int i) { return read_operand(item, rules.operands[i]); });
  return rules.num_operands >= 0 && read_numbers(sizes, numbers, rules) &&
         read_names(names, without_rule, results, state);
}

void free_state(State* state) {
  if (!state) return;
  for (PyObject* name : state->names) Py_XDECREF(name);
  PyMem_Free(state);
}

}  // namespace kernelwright::fast
