"""The operators of torch in C++ (python/fast/operators.cpp), by torch's stable C ABI. The functions of that ABI are looked
up in the process, so that nothing of torch is needed to build the extension. Where one is missing, the operators stay in
Python with the same results."""
import ctypes
import functools
from ctypes import c_bool, c_int32, c_void_p
from typing import NamedTuple

import torch

from . import _door
from ._frameworks import TORCH_DTYPES
from ._rules import CODES
from ._tensors import CUDA

# struct Functions of python/fast/stable.h, in its order. The last are those of the C++ runtime that torch runs on.
FUNCTIONS = (*("aoti_torch_" + name for name in (
    "get_data_ptr", "get_dim", "get_sizes", "get_strides", "get_dtype", "get_device_type", "get_device_index",
    "delete_tensor_object", "grad_mode_is_enabled")), "torch_call_dispatcher", "_ZNK3c1010TensorImpl13requires_gradEv",
    "_ZdlPv", "__cxa_allocate_exception", "__cxa_throw", "_ZNSt13runtime_errorC1EPKc", "_ZNSt13runtime_errorD1Ev",
    "_ZTISt13runtime_error")
REQUIRES_GRAD = FUNCTIONS.index("_ZNK3c1010TensorImpl13requires_gradEv")
VERSION = 2 << 56 | 10 << 48  # kVersion of stable.h


class Backend(NamedTuple):
    """What the operators of one device use: torch's dispatch key, its number and DLPack's number of the device's type, and
    the addresses of functions that tell the current stream (0: the default stream) and allocate."""
    key: str
    device_type: int
    dlpack_type: int
    current_stream: int
    empty: int


def _library():
    """torch's libraries, and the C++ runtime below them."""
    return ctypes.CDLL(torch._C.__file__)


def address(name):
    """The address of a function of torch. Raises AttributeError if there is none."""
    return ctypes.cast(getattr(_library(), name), c_void_p).value


def cuda():
    return Backend("CUDA", _library().aoti_torch_device_type_cuda(), CUDA, address("aoti_torch_get_current_cuda_stream"),
                   address("aoti_torch_empty_strided"))


def _tells_gradients(function):
    """Whether the function, which is no part of the stable ABI, does what operators.cpp takes it for."""
    try:
        asked, library = ctypes.CFUNCTYPE(c_bool, c_void_p)(function), _library()
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)
        found = []
        for tensor in (torch.empty(1), torch.empty(1, requires_grad=True)):
            (capsule,) = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
            handle = c_void_p(pointer_of(capsule, None))
            found.append(asked(c_void_p.from_address(handle.value)))
            library.aoti_torch_delete_tensor_object(handle)
        return found == [False, True]
    except (AttributeError, ValueError):
        return False


def _load():
    """The extension with torch's functions, or None; and why."""
    fast = _door._fast
    if not fast:
        return None, _door.WHY
    try:
        addresses = [0 if i == REQUIRES_GRAD else address(name) for i, name in enumerate(FUNCTIONS)]
        _ = cuda(), address("torch_library_impl")
    except (AttributeError, OSError) as error:
        return None, f"torch {torch.__version__} lacks a part of the stable ABI of 2.10 with CUDA: {error}"
    try:
        told = address(FUNCTIONS[REQUIRES_GRAD])
        addresses[REQUIRES_GRAD] = told if _tells_gradients(told) else 0
    except AttributeError:
        pass  # calls with gradients on are Python's
    library = _library()
    dtypes = tuple((getattr(library, "aoti_torch_dtype_" + attribute)(), *CODES[name])
                   for name, attribute in TORCH_DTYPES.items() if name in CODES)
    fast.torch_functions(tuple(addresses), dtypes)
    return fast, _door.WHY


_fast, WHY = _load()
_libraries = {}  # torch's handles of registrations, which live as long as the process


def _registrations(namespace, key):
    if (namespace, key) not in _libraries:
        made = c_void_p()
        if _library().aoti_torch_library_init_impl(namespace.encode(), key.encode(), b"kernelwright", c_int32(0), ctypes.byref(made)):
            raise RuntimeError(f"torch refuses to register operators of {namespace} for {key}")
        _libraries[namespace, key] = made
    return _libraries[namespace, key]


def _described(argument, names):
    """An argument of a schema for new_operator(): a letter for the type, whether it is optional, and its place in a call."""
    words = str(argument.type)
    optional = words.startswith("Optional[")
    kind = words[len("Optional["):-1] if optional else words
    letter = {"Tensor": "t", "int": "i", "bool": "i", "float": "f"}.get(kind, "o")
    return letter, optional, names.index(argument.name)


def implement(overload, in_python, kind, names, backend):
    """Registers the C++ implementation of an operator. overload, in_python: OpOverloads of one schema, of which the second
    takes what the first misses; kind: that of its handles, a number; names: the arguments of a handle's call."""
    schema = overload._schema
    described = tuple(_described(argument, names) for argument in schema.arguments[1:])
    miss = in_python._schema
    function = _fast.new_operator(kind, tuple(backend[1:]), miss.name, miss.overload_name, described, len(schema.returns))
    namespace, name = schema.name.split("::")
    name = f"{name}.{schema.overload_name}" if schema.overload_name else name
    if _library().torch_library_impl(_registrations(namespace, backend.key), name.encode(), c_void_p(function), ctypes.c_uint64(VERSION)):
        raise RuntimeError(f"torch refuses the implementation of {schema.name}")


def keeping_errors(run, returned):
    """A Python implementation for in_python. Its errors pass through failures.cpp. returned: how many tensors."""
    def run_and_keep(*arguments, **named):
        try:
            return run(*arguments, **named)
        except BaseException as error:
            _fast.keep_error(error, str(error).encode())
            nothing = tuple(torch.empty(0) for _ in range(returned))  # the schema asks for tensors; nobody reads them
            return nothing if returned > 1 else nothing[0] if returned else None
    return run_and_keep


@functools.cache
def _overload_type():
    return _fast.overload_type(torch._ops.OpOverload)


def raise_kept_errors(packet):
    """Calls of torch.ops.X.Y and its overloads raise the errors that keeping_errors() kept, and not RuntimeErrors with
    their words, which calls from C++ get. An overload's class also saves the frame of OpOverload.__call__(), which is in
    Python."""
    for overload in packet.overloads():
        op = getattr(packet, overload)
        try:
            op.__class__ = _overload_type()
        except TypeError:  # this Python has another layout for it
            op._op = _fast.Raising(op._op)
    packet._op = _fast.Raising(packet._op)
    torch.jit._builtins._register_builtin(packet._op, packet._qualified_op_name)


def hold(number, kind, kernel):
    if _fast:
        _fast.hold(number, kind, kernel)


def drop(number):
    if _fast:
        _fast.drop(number)


def served():
    """Who implements the operators, for kernelwright.fast_calls()."""
    return {"stable": _fast is not None, "why": WHY}
