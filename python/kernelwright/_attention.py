"""Attention of torch's tensors with one kernel for each distinct problem: what kernelwright.transformers and
kernelwright.flash_attn share."""
import threading
from typing import NamedTuple

import torch

from . import torch as operators
from ._engine import Engine
from ._errors import ConfigError

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}
OPS = torch.ops.kernelwright


class Problem(NamedTuple):
    """All that tells two kernels apart. Numbers of sequences, lengths, starts, offsets, the scale and the number of keys
    are not here: they change from call to call, and the kernel reads them when it runs. So the steps of a generation
    have two problems for each kind of layer: the prompt's, and that of one query a sequence."""

    dtype: str
    q_heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    left: int = -1  # keys left of the diagonal that a query sees; -1: all
    right: int = -1
    one_query: bool = False  # each sequence has one query at most
    softcap: float = 0.0
    sinks: bool = False
    alibi: bool = False
    lse: bool = False
    starts: bool = False  # a launch gives the first key of each sequence
    ragged: bool = False  # queries lie one sequence behind the other
    kv_kind: str = "padded"
    page_size: int = 0
    kv_offsets: bool = False
    kv_dtype: str = ""  # "": that of the queries
    scales: str = "none"  # of fp8 keys and values
    batch_invariant: bool = False  # a query's bits depend on no other query
    rope: int = 0  # elements of a head's rotary part, which a launch gives apart

    def config(self):
        """What Engine.prepare() takes."""
        problem = {"dtype": dict.fromkeys(("q", "kv", "out"), self.dtype), "head_dim": {"qk": self.qk_dim, "v": self.v_dim},
                   "heads": {"q": self.q_heads, "kv": self.kv_heads}, "kv_layout": {"kind": self.kv_kind}}
        if self.kv_dtype:
            problem["dtype"]["kv"] = self.kv_dtype
        if self.scales != "none":
            problem["scales"] = self.scales
        if self.left < 0 and self.right <= 0:
            problem["mask"] = {"kind": "causal" if self.right == 0 else "none"}
        else:
            problem["mask"] = {"kind": "sliding_window", "window": {"left": self.left, "right": self.right}}
        if self.page_size:
            problem["kv_layout"]["page_size"] = self.page_size
        if self.rope:
            problem["rope"] = {"width": self.rope, "dtype": self.dtype}
        if self.softcap:
            problem["score_mod"] = {"kind": "softcap", "cap": self.softcap}
        if self.alibi:
            problem["score_mod"] = {"kind": "alibi"}
        if self.one_query:
            problem["max_q_len"] = 1
        if self.ragged:
            problem["q_layout"] = "ragged"
        # A field that is false is left out, so that the config of a plain problem is that of docs/config.md.
        flags = {"sinks": self.sinks, "lse": self.lse, "kv_starts": self.starts, "kv_offsets": self.kv_offsets,
                 "batch_invariant": self.batch_invariant}
        return {"problem": problem | {name: True for name, value in flags.items() if value}}


def dtype_of(q):
    """The word for the dtype of queries."""
    if q.dtype not in DTYPES:
        raise ConfigError(f"q: is {q.dtype}; kernels take torch.float16 and torch.bfloat16, so cast it")
    return DTYPES[q.dtype]


def problem_of(q, k, v, **more):
    """The Problem of tensors [..., heads, head_dim]."""
    return Problem(dtype_of(q), q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], **more)


class Kernels:
    """The engines, one for GPUs and one that emulates, and their kernels. Any number of threads may ask."""

    def __init__(self):
        self._lock = threading.Lock()
        self._engines, self.found = {}, {}  # found is another dict once an engine has changed
        self.steps = {}  # of a layer's call, as far as it tells problems apart: the problem, for which a kernel is there

    def use(self, engine):
        """From here on `engine` serves: tensors of the CPU if it emulates, else those of GPUs."""
        kind = "cpu" if engine.is_emulated() else "cuda"
        with self._lock:
            self._engines[kind] = engine
            self.found = {key: found for key, found in self.found.items() if key[0] != kind}
            self.steps = {}

    def engine(self, kind):
        """The engine for tensors of a device of that type. The one for GPUs is made when it is first needed."""
        with self._lock:
            return self._engine(kind)

    def _engine(self, kind):
        if kind == "cuda" and kind not in self._engines:
            self._engines[kind] = Engine("cuda")
        if kind not in self._engines:
            raise ConfigError(f'the tensor lies on a device of type "{kind}"; move it to a GPU, or give an engine that emulates: '
                              'Engine("emulator")')
        return self._engines[kind]

    def find(self, kind, index, problem):
        """(kernel, its handle). Raises ConfigError, each time, if no kernel takes the problem."""
        key = kind, index, problem
        found = self.found.get(key)
        if found is None:
            with self._lock:
                found = self.found.get(key) or self._prepare(kind, index, problem)
                self.found[key] = found
        if isinstance(found, str):
            raise ConfigError(found)
        return found

    def _prepare(self, kind, index, problem):
        engine = self._engine(kind)
        try:
            kernel = engine.prepare(problem.config(), device=index)
        except ConfigError as error:
            return str(error)
        return kernel, operators.handle(kernel)

    def problems(self):
        """The problems that were asked for so far, in that order."""
        return [problem for _, _, problem in self.found]


kernels = Kernels()


@torch.compiler.assume_constant_result
def handle_of(kind, index, *problem):
    """The handle of a problem's kernel; 0 if no kernel takes it. torch.compile calls this while it traces."""
    try:
        return kernels.find(kind, index, Problem(*problem))[1]
    except ConfigError:
        return 0


@torch.compiler.assume_constant_result
def handle_of_problem(kind, index, problem, *fields):
    """The same for a problem of another type. Raises ConfigError if no kernel takes it."""
    return kernels.find(kind, index, problem(*fields))[1]


def why_not(device, problem):
    """Why no kernel takes the problem; None if one does."""
    if torch.compiler.is_compiling():
        return None if handle_of(device.type, device.index or 0, *problem) else "no kernel takes it"
    try:
        kernels.find(device.type, device.index or 0, problem)
    except ConfigError as error:
        return str(error)
    return None


def refuse_gradients(**tensors):
    """There is no backward, so a gradient would be lost silently."""
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if tensor.requires_grad:
                raise ConfigError(f"{name}: requires grad, and kernelwright computes no gradients; call it under "
                                  f"torch.no_grad(), or give {name}.detach()")


def attend(problem, q, k, v, **named):
    """The attention of a problem: out, or (out, lse) if the problem has an LSE. `named`: what a call takes beside q, k and
    v; an argument that is None is left out."""
    named = {name: value for name, value in named.items() if value is not None}
    if torch.compiler.is_compiling() or q.device.type != "cuda":
        number = handle_of(q.device.type, q.device.index or 0, *problem)
        if not number:
            kernels.find(q.device.type, q.device.index or 0, problem)  # raises the reason
        if not problem.lse:
            return OPS.attention(number, q, k, v, **named)
        return OPS.attention.with_lse(number, q, k, v, **named)
    return kernels.find("cuda", q.device.index or 0, problem)[0](q, k, v, **named)


def contiguous_heads(tensor):
    """The tensor with elements of a head side by side, as kernels read them."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
