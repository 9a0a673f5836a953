"""Handles as operators of PyTorch: torch.ops.kernelwright.attention, gemm, quantize, kv_write, row_op, route, moe_combine, moe.

    import kernelwright, kernelwright.torch
    handle = kernelwright.torch.handle(kernel)             # an int, which torch.compile takes as a constant
    o = torch.ops.kernelwright.attention(handle, q, k, v)  # or attention.out(handle, q, k, v, out=o)

Shapes, dtypes and errors are those of a handle's call (docs/embedding.md, "Fast calls"). The operators have no backward:
a tensor that requires grad is refused, unless gradients are off (torch.no_grad()). Tensors of the CPU are for kernels of
the emulator. They are copied, so that an operator can be tried and checked without a GPU.

Where torch has the stable C ABI of 2.10, the implementations for CUDA are in C++ (_stable.py). Those below then take what
the C++ ones miss.

`import kernelwright` does not import this module, and so not torch.
"""
import ctypes
import hashlib
import inspect
import threading

import torch

from . import _stable
from ._errors import ConfigError
from ._frameworks import TORCH_DTYPES
from ._handles import (GemmKernel, Kernel, KvWriteKernel, MoeCombineKernel, MoeKernel, QuantizeKernel, RouteKernel,
                       RowOpKernel)
from ._schemas import SCHEMAS
from ._tensors import View

_DTYPES = {name: getattr(torch, attribute) for name, attribute in TORCH_DTYPES.items()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_kernels = {kind: {} for kind in (Kernel, GemmKernel, QuantizeKernel, KvWriteKernel, RowOpKernel, RouteKernel,
                                  MoeCombineKernel, MoeKernel)}  # by handle
_handles, _lock = {}, threading.Lock()


def handle(kernel):
    """The number by which the operators know a kernel that Engine.prepare() or prepare_quantize() made, until release().

    The number is made of the kernel's problem, because caches of torch.compile keep code with the number in it, and a
    later process must not run that code with a kernel of other shapes. A second kernel of one problem gets the next number.
    """
    if type(kernel) not in _kernels:
        raise ConfigError(f"kernel: a {type(kernel).__name__} is none; give what Engine.prepare() or prepare_quantize() returns")
    with _lock:
        found = _handles.get(id(kernel))
        if found is None:
            problem = vars(kernel._problem) if hasattr(kernel._problem, "__dict__") else kernel._problem
            told = repr((type(kernel).__name__, problem, kernel.device, kernel._own_memory, SCHEMAS))
            found = int.from_bytes(hashlib.sha256(told.encode()).digest()[:7], "big")
            while any(found in kernels for kernels in _kernels.values()):
                found += 1
            _handles[id(kernel)] = found
            _kernels[type(kernel)][found] = kernel
            _stable.hold(found, tuple(_kernels).index(type(kernel)), kernel)
        return found


def release(number):
    """Forgets a handle. Compiled code and graphs that have it must not run any more."""
    with _lock:
        _stable.drop(number)
        for kernels in _kernels.values():
            if kernel := kernels.pop(number, None):
                del _handles[id(kernel)]


def kernel_of(number, kind):
    """The kernel of that type with that handle."""
    kernel = _kernels[kind].get(number)
    if kernel is None:
        wanted = {Kernel: "an attention kernel", GemmKernel: "a GEMM kernel", QuantizeKernel: "a quantising kernel",
                  KvWriteKernel: "a kernel that writes a cache", RowOpKernel: "a kernel of steps over rows",
                  RouteKernel: "a kernel that chooses experts", MoeCombineKernel: "a kernel that adds up rows of experts",
                  MoeKernel: "a layer of experts"}[kind]
        raise ConfigError(f"handle: {number} is not that of {wanted}; kernelwright.torch.handle(kernel) gives one")
    return kernel


KINDS = {"attention": Kernel, "gemm": GemmKernel, "quantize": QuantizeKernel, "kv_write": KvWriteKernel, "row_op": RowOpKernel,
         "route": RouteKernel, "moe_combine": MoeCombineKernel, "moe": MoeKernel}


NOTHING = ("out", "out_full", "add_out", "unweighted_out", "given_out", "in_place", "keys")  # overloads that return nothing


# ---- what the operators do

def _refuse_gradients(kernel, tensors, named):
    """There is no backward, so a gradient would be lost silently."""
    if not torch.is_grad_enabled():
        return
    for name, value in (*zip(kernel.POSITIONAL, tensors), *named.items()):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise ConfigError(f"{name}: requires grad, and kernelwright computes no gradients; call it under torch.no_grad(), or "
                              f"give {name}.detach()")


def _call(kernel, tensors, named):
    if getattr(kernel._problem, "given", False):  # the extension takes given experts by name alone
        tensors, named = (), dict(zip(kernel.POSITIONAL, tensors)) | named
    try:
        return kernel(*tensors, **named)
    except ConfigError:
        _refuse_gradients(kernel, tensors, named)  # its words have the remedy
        if not any(isinstance(value, torch.Tensor) and value.requires_grad for value in (*tensors, *named.values())):
            raise
    # Gradients are off, but torch lends no tensor that asks for one. Compiled code gives parameters as they are.
    def lent(value):
        return value.detach() if isinstance(value, torch.Tensor) else value
    return kernel(*map(lent, tensors), **{name: lent(value) for name, value in named.items()})


# What the overloads of operators with several forms return; the first form is that of a problem with fewest results.
RETURNED = {"gemm": {"gemm": ("out",), "gemm.scaled": ("out", "scale_d")},
            "row_op": {"row_op": ("out",), "row_op.scaled": ("out", "scale"), "row_op.add": ("out", "residual_out"),
                       "row_op.add_scaled": ("out", "residual_out", "scale"), "row_op.merge": ("out", "lse_out"),
                       "row_op.merge_scaled": ("out", "lse_out", "scale")},
            "route": {"route": ("ids", "weights"), "route.given": ("starts", "source_rows", "positions"),
                      "route.sorted": ("ids", "weights", "starts", "source_rows", "positions")}}


WRITTEN_OF_CACHE = ("k_cache", "v_cache", "q_scale", "k_scale", "v_scale")
OF_CACHE = frozenset(inspect.signature(KvWriteKernel.bind).parameters) - {"self", "q", "k", "v", "q_out", "tokens", "pdl"}


def _with_cache(name, kernel, tensors, named):
    """The arguments of a handle's call, from those of gemm.kv_write: what is the cache's becomes one argument."""
    if name != "gemm.kv_write":
        return tensors, named
    if not kernel._problem.kv_write:
        raise ConfigError("gemm.kv_write: the problem has no kv_write; call gemm")
    cache = {key: named[key] for key in OF_CACHE & named.keys() if named[key] is not None}
    cache |= dict(zip(("k_cache", "v_cache"), tensors[2:]))
    return tensors[:2], {key: value for key, value in named.items() if key not in OF_CACHE} | {"kv_write": cache}


def _check_overload(name, kernel):
    """An overload returns all that the problem writes, and takes what it reads."""
    of, _, overload = name.partition(".")
    if of == "moe_combine" and kernel._problem.weighted == overload.startswith("unweighted"):
        right = ("moe_combine", "moe_combine.out") if kernel._problem.weighted else ("moe_combine.unweighted", "moe_combine.unweighted_out")
        raise ConfigError(f"{name}: the problem has {'' if kernel._problem.weighted else 'no '}weights; call {right[overload in NOTHING]}")
    if of == "moe" and kernel._problem.given != overload.startswith("given"):
        right = ("moe", "moe.out", "moe.given", "moe.given_out")[2 * kernel._problem.given + (overload in NOTHING)]
        raise ConfigError(f"{name}: the problem's experts are {'given' if kernel._problem.given else 'chosen by logits'}; call {right}")
    forms = RETURNED.get(of, {})
    if name == "gemm" and kernel._problem.kv_write:
        raise ConfigError("gemm: the problem writes a cache; call gemm.kv_write")
    if name in forms and forms[name] != (written := tuple(kernel._problem.results())):
        right = next(key for key, results in forms.items() if results == written)
        raise ConfigError(f"{name}: returns {', '.join(forms[name])}, and the problem writes {', '.join(written)}; call {right}")


def _returned(name, kernel, result):
    """What the operator returns of a call's result."""
    if name.partition(".")[2] in NOTHING:
        return None
    if name == "attention.with_lse" and not isinstance(result, tuple):
        raise ConfigError("/problem/lse: is false, and attention.with_lse returns the LSE; set it, or use attention")
    return result[0] if name in ("attention", "attention.full") and isinstance(result, tuple) else result


# The result that is one of the first tensors, and which.
IN_PLACE = {"kv_write.in_place": ("q_out", 0), "row_op.in_place": ("residual_out", 1)}


def _on_cuda(name, kind):
    """Without the operators in C++ the way of every step of a model, so little is done here. With them the way of what
    they miss."""
    kernels = _kernels[kind]

    def run_out(number, *tensors, **named):
        try:
            kernels[number](*tensors, **named)
        except (ConfigError, KeyError, TypeError):
            _check_overload(name, kernel_of(number, kind))
            _call(kernel_of(number, kind), tensors, named)

    def run(number, *tensors, **named):
        kernel = kernel_of(number, kind)
        _check_overload(name, kernel)
        return _returned(name, kernel, _call(kernel, *_with_cache(name, kernel, tensors, named)))

    def run_given_out(number, *tensors, **named):
        kernel = kernel_of(number, kind)
        _check_overload(name, kernel)
        _call(kernel, tensors, named)

    def run_in_place(number, *tensors, **named):
        _call(kernel_of(number, kind), tensors, named | {IN_PLACE[name][0]: tensors[IN_PLACE[name][1]]})
    if name in IN_PLACE:
        return run_in_place
    if name.endswith(".given_out"):
        return run_given_out
    return run_out if name.partition(".")[2] in NOTHING else run


class _Copy:
    """A tensor of the CPU, copied into the emulator's memory with its strides."""

    def __init__(self, engine, device, tensor):
        steps = zip(tensor.shape, tensor.stride())
        self.elements = 1 + sum((extent - 1) * stride for extent, stride in steps) if tensor.numel() else 0
        self.tensor, self.array = tensor, engine.empty((self.elements * tensor.element_size(),), "u8", device=device)
        self.array.write(ctypes.string_at(tensor.data_ptr(), self.array.bytes) if self.elements else b"")

    def _kernelwright_view(self):
        tensor, array = self.tensor, self.array
        name = _NAMES.get(tensor.dtype, str(tensor.dtype))
        return View(array.address, tuple(tensor.shape), tuple(tensor.stride()), name, "engine", array.device)

    def write_back(self):
        """Elements alone: what lies between them may belong to another tensor of the call."""
        if self.elements:
            found = torch.frombuffer(bytearray(self.array.read()), dtype=torch.uint8).view(self.tensor.dtype)
            self.tensor.copy_(found.as_strided(self.tensor.shape, self.tensor.stride()))


RESULTS = {"attention": ("out", "lse"), "quantize": ("elements", "scales"),
           "kv_write": ("q_out", "k_cache", "v_cache", "q_scale", "k_scale", "v_scale")}  # others are their problem's


def _on_cpu(name, kind):
    of, _, overload = name.partition(".")

    def run(number, *tensors, **named):
        kernel = kernel_of(number, kind)
        results = RESULTS.get(of) or tuple(kernel._problem.results())
        _check_overload(name, kernel)
        _refuse_gradients(kernel, tensors, named)
        if not kernel._own_memory:
            return _call(kernel, tensors, named)  # which says where the tensors must lie
        if of == "gemm" and kernel._problem.pointers:
            raise ConfigError("b: has addresses, and on the emulator they are of its own memory, to which tensors are copied; use bind()")
        tensors, named = _with_cache(name, kernel, tensors, named)
        named = dict(zip(kernel.POSITIONAL, tensors)) | named
        if name in IN_PLACE:
            named[IN_PLACE[name][0]] = tensors[IN_PLACE[name][1]]
        elif overload not in NOTHING:
            made = _shaped(name, kernel, tensors, named)
            named |= dict(zip(results, made if isinstance(made, tuple) else (made,)))
            if name in ("attention", "attention.full") and kernel._problem.lse:
                named["lse"] = torch.empty(kernel._lse_shape(tensors[0].shape), dtype=torch.float32)

        made, copies = {}, {}
        for key, value in named.items():
            if isinstance(value, torch.Tensor):
                value = made.setdefault(id(value), _Copy(kernel.engine, kernel.device, value))
            copies[key] = value
        if "kv_write" in named:
            copies["kv_write"] = {key: _Copy(kernel.engine, kernel.device, value) if isinstance(value, torch.Tensor) else value
                                  for key, value in named["kv_write"].items()}
        _call(kernel, (), dict(copies))
        for key, value in copies.get("kv_write", {}).items():
            if key in WRITTEN_OF_CACHE and isinstance(value, _Copy):
                value.write_back()
        for result in (*results, "sorted_weights", *(("ids", "weights") if name == "moe.out" else ())):
            if isinstance(copies.get(result), _Copy):
                copies[result].write_back()
        found = tuple(named[result] for result in results if named.get(result) is not None)
        return _returned(name, kernel, found[0] if of == "kv_write" or len(results) == 1 else found)
    return run


def _shaped(name, kernel, tensors, named):
    """The results as uninitialised tensors: shapes and dtypes alone, which may be symbolic."""
    first = tensors[0]
    if name.startswith("attention"):
        problem = kernel._problem
        out = first.new_empty((*first.shape[:-1], problem.head_dims["o"]), dtype=_DTYPES[problem.dtypes["o"]])
        if name != "attention.with_lse":
            return out
        _returned(name, kernel, out if not problem.lse else (out, out))
        return out, first.new_empty(kernel._lse_shape(first.shape), dtype=torch.float32)
    if name.startswith("gemm"):
        problem = kernel._problem
        _check_overload(name, kernel)
        if problem.scatters:
            if named.get("result_rows") is None:
                raise ConfigError("result_rows: is missing; nothing else tells the rows of a result that scatter makes")
            rows = (named["result_rows"],)
        elif problem.gathers:
            rows = (named["gather"].shape[0],)  # a row of d for each
        elif problem.slices:
            rows = (problem.count, first.shape[1])
        elif problem.even and first.dim() == 3:
            rows = first.shape[:2]
        else:
            rows = (first.shape[1 if problem.layout[0] == "t" else 0],)
        out = first.new_empty((*rows, problem.d_columns), dtype=_DTYPES[problem.dtypes["d"]])
        if not problem.quantizes:
            return out
        count = rows[0] if len(rows) == 1 else rows[0] * rows[1]
        return out, first.new_empty(problem.scale_d_shape(count), dtype=torch.uint8 if "d" in problem.formats else torch.float32)
    if name == "kv_write":
        problem = kernel._problem
        rows = problem.tokens_of(named, first.shape[0])
        return first.new_empty((rows, problem.heads["q_out"], problem.head_dims["q_out"]), dtype=_DTYPES[problem.dtypes["q_out"]])
    if name.startswith(("row_op", "route", "moe")):
        _check_overload(name, kernel)
        rows = tensors[1 if name.startswith("moe_combine") else 0].shape[0]
        made = (find(rows) for find in kernel._problem.results().values())
        made = tuple(first.new_empty(shape, dtype=_DTYPES[dtype]) for shape, dtype in made)
        return made if len(made) > 1 else made[0]
    rows, k = first.shape
    to = kernel._problem[1]
    return (first.new_empty((rows, k if to == "mxfp8" else k // 2), dtype=torch.uint8),
            first.new_empty((_scale_bytes(to, rows, k),), dtype=torch.uint8))


def _scale_bytes(to, rows, k):
    """QuantizeKernel.scale_bytes() for sizes that may be symbolic: whole atoms of 128 rows and 4 scales."""
    block = 16 if to == "nvfp4" else 32
    return (rows + 127) // 128 * ((k // block + 3) // 4) * 512


def _fake(name, kind):
    def run(number, *tensors, **named):
        kernel = kernel_of(number, kind)
        _refuse_gradients(kernel, tensors, named)
        return None if name.partition(".")[2] in NOTHING else _shaped(name, kernel, tensors, named)
    return run


def _name_in_python(name):
    """The operator in Python that takes what the C++ one of that name misses."""
    operator, _, overload = name.partition(".")
    return f"_{operator}_in_python" + (f".{overload}" if overload else "")


def _overload(namespace, name):
    operator, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload or "default")


def _in_c(library, namespace, name, kind, run, backend):
    """Registers the C++ implementation for the backend's device, and `run` for what that misses."""
    hidden = _name_in_python(name)
    library.define(SCHEMAS[name].replace(name, hidden, 1))
    overload, in_python = _overload(namespace, name), _overload(namespace, hidden)
    library.impl(hidden, _stable.keeping_errors(run, len(overload._schema.returns)), backend.key)
    library.impl(hidden, torch.library.fallthrough_kernel, "Autograd")
    names = kind._names(kind.launch if kind is QuantizeKernel else kind.bind)
    _stable.implement(overload, in_python, tuple(_kernels).index(kind), names, backend)


IN_PYTHON = ("gemm.kv_write",)  # overloads that C++ does not implement: their arguments are no names of a handle's call


def _define():
    library = torch.library.Library("kernelwright", "DEF")
    tags = (torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag)
    for name, schema in SCHEMAS.items():
        library.define(schema, tags=tags)
    for name in SCHEMAS:
        kind = KINDS[name.partition(".")[0]]
        if _stable.served()["stable"] and name not in IN_PYTHON:
            _in_c(library, "kernelwright", name, kind, _on_cuda(name, kind), _stable.cuda())
        else:
            library.impl(name, _on_cuda(name, kind), "CUDA")
        library.impl(name, _on_cpu(name, kind), "CPU")
        # The implementations see whether gradients are on, so nothing needs to run before them.
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"kernelwright::{name}", _fake(name, kind), lib=library)
    if _stable.served()["stable"]:
        for operator in KINDS:
            _stable.raise_kept_errors(getattr(torch.ops.kernelwright, operator))
    return library


_library = _define()  # the operators live as long as it
