"""Layers of experts in transformers: what experts_implementation="kernelwright" calls."""
from __future__ import annotations

import types
from typing import NamedTuple

import torch
from transformers.integrations import finegrained_fp8
from transformers.integrations.moe import grouped_mm_experts_forward

from ._attention import DTYPES, OPS, handle_of_problem, kernels
from ._errors import ConfigError
from ._product import FP8, GROUP, quantised

ALPHA, LIMIT = 1.702, 7.0  # of gpt-oss, if its module does not say others
_gates = {}  # by class of layers, class of activation and numbers: what _told_gates() found


class Gates(NamedTuple):
    """How a layer makes products of gates and ups: a row_op of `activation`, or a clamped one, whose rows have gates and
    ups `pairs` apart (docs/row-op.md)."""

    activation: str
    pairs: int
    clamped: bool = False
    alpha: float = ALPHA
    limit: float = LIMIT

    def problem(self):
        if self.clamped:
            return {"clamped": True, "alpha": self.alpha, "limit": self.limit}
        return {"activation": self.activation}

    def __call__(self, rows):
        """The same in PyTorch."""
        gate, up = (rows[..., 0::2], rows[..., 1::2]) if self.pairs == 1 else rows.chunk(2, -1)
        if self.clamped:
            gate = gate.clamp(max=self.limit)
            return (up.clamp(-self.limit, self.limit) + 1) * gate * torch.sigmoid(self.alpha * gate)
        functional = torch.nn.functional
        activated = {"none": lambda x: x, "relu": functional.relu, "silu": functional.silu, "gelu": functional.gelu,
                     "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}
        return activated[self.activation](gate) * up


class ExpertsProblem(NamedTuple):
    """All that tells two kernels of layers of experts apart. `part`: route, first, gates, second or combine, and with fp8
    tokens, which quantises."""

    part: str
    experts: int
    top_k: int
    hidden: int
    width: int
    dtype: str
    biased: bool
    transposed: bool  # weights are [experts, in, out]
    fp8: bool  # weights are e4m3 with scales of blocks, and rows are quantised
    gates: Gates

    def config(self):
        """What Engine.prepare() takes."""
        if self.part == "route":
            return {"kind": "route", "problem": {"score": "given", "experts": self.experts, "top_k": self.top_k}}
        if self.part == "combine":
            dtype = {"in": self.dtype, "out": self.dtype}
            return {"kind": "moe_combine", "problem": {"dtype": dtype, "width": self.hidden, "top_k": self.top_k}}
        if self.part in ("gates", "tokens"):
            problem = {"dtype": {"in": self.dtype, "out": "e4m3" if self.fp8 else self.dtype}}
            problem |= {"scales": {"kind": "per_block", "layout": "columns"}} if self.fp8 else {}
            if self.part == "tokens":
                return {"kind": "row_op", "problem": {**problem, "width": self.hidden}}
            gates = {"pairs": self.gates.pairs, **self.gates.problem()}
            return {"kind": "row_op", "problem": {**problem, "width": self.width, "input": "gate_up", "gate": gates}}
        first = self.part == "first"
        problem = {"n": 2 * self.width if first else self.hidden, "k": self.hidden if first else self.width,
                   "dtype": dict.fromkeys("abcd", self.dtype), "layout": "nn" if self.transposed else "nt",
                   "groups": {"kind": "rows", "count": self.experts, "bounds": "starts", "gather": first}}
        if self.biased:
            problem["epilogue"] = "acc + bias"
        if self.fp8:
            problem["dtype"] |= {"a": "e4m3", "b": "e4m3"}
            problem["scales"] = "per_block"
        return {"kind": "gemm", "problem": problem}


PARTS = "route", "first", "gates", "second", "combine"


NUMBERS = "alpha", "limit", "swiglu_alpha", "swiglu_limit"  # of clamped gates, in layers of 16 bits and of fp8


@torch.compiler.assume_constant_result
def _told_gates(layer, activation, *numbers):
    """The fields of the Gates of a class of layers, as text; what is wrong, behind a "!". `activation`: the class of its
    act_fn; `numbers`: its NUMBERS. A probe of the layer's own function finds them: small numbers, and some past any limit.
    torch.compile calls this while it traces."""
    key = layer, activation, numbers
    if key not in _gates:
        _gates[key] = _probed(layer, activation, dict(zip(NUMBERS, numbers)))
    return _gates[key]


def _probed(layer, activation, numbers):
    gate, up = torch.linspace(-9, 9, 56, dtype=torch.float64), torch.linspace(-8, 8, 56, dtype=torch.float64)
    far = torch.tensor([20.0, -20.0, 300.0, -300.0, 1e4, -1e4, 3e5, -3e5], dtype=torch.float64)
    gate, up = torch.cat([gate, far]), torch.cat([up[torch.arange(56) * 37 % 56], far[torch.arange(8) * 3 % 8]])
    probe = torch.cat([gate, up])[torch.arange(128) * 49 % 128].view(2, 64)
    try:
        right = layer._apply_gate(types.SimpleNamespace(act_fn=activation and activation(), **numbers), probe)
    except (RuntimeError, TypeError, AttributeError) as error:
        return f"!its gates refuse a probe: {error}"
    tried = [Gates(name, pairs) for name in ("silu", "gelu_tanh", "gelu", "relu", "none") for pairs in (0, 1)]
    for alpha, limit in ((numbers["alpha"], numbers["limit"]), (numbers["swiglu_alpha"], numbers["swiglu_limit"])):
        found = [float(value) if isinstance(value, (int, float)) else usual for value, usual in ((alpha, ALPHA), (limit, LIMIT))]
        tried += [Gates("none", pairs, True, *found) for pairs in (0, 1)]
    for gates in tried:
        if right.shape == (2, 32) and torch.allclose(gates(probe), right, rtol=1e-6, atol=1e-6):
            return " ".join(map(str, (gates.activation, gates.pairs, int(gates.clamped), gates.alpha, gates.limit)))
    return "!its product of gates and ups is none that a kernel has"


def _gates_of(module):
    """The Gates of a layer. Raises ConfigError."""
    activation = getattr(module, "act_fn", None)
    told = _told_gates(type(module), None if activation is None else type(activation),
                       *(getattr(module, name, None) for name in NUMBERS))
    if told.startswith("!"):
        raise ConfigError(told[1:])
    name, pairs, clamped, alpha, limit = told.split(" ")
    return Gates(name, int(pairs), clamped == "1", float(alpha), float(limit))


def _problem(module, x, ids):
    """The ExpertsProblem of a call, without a part. Raises ConfigError with the reason if there is none."""
    if not module.has_gate:
        raise ConfigError("it has no gates")
    weights = module.gate_up_proj, module.down_proj
    for weight in weights:
        if type(weight) is not torch.nn.Parameter or not weight.is_contiguous():
            raise ConfigError("its weights are no contiguous tensors")
    fp8 = weights[0].dtype == weights[1].dtype == FP8
    if x.dtype not in DTYPES or not fp8 and (weights[0].dtype != x.dtype or weights[1].dtype != x.dtype):
        raise ConfigError(f"tokens are {x.dtype}, and weights {weights[0].dtype} and {weights[1].dtype}; ours are float16, "
                          "bfloat16 or float8_e4m3fn")
    transposed = bool(getattr(module, "is_transposed", False))
    experts, width, hidden = weights[1].shape if transposed else (weights[1].shape[i] for i in (0, 2, 1))
    blocks = fp8 and tuple(module.block_size or ()) == (GROUP, GROUP) and hidden % GROUP == width % GROUP == 0
    if fp8 and not (blocks and module.activation_scheme == "dynamic"):
        raise ConfigError(f'fp8 weights have blocks of {module.block_size}, activation_scheme "{module.activation_scheme}" and sizes '
                          f'{hidden} and {width}; ours have blocks of [{GROUP}, {GROUP}], "dynamic" and multiples of {GROUP}')
    return ExpertsProblem("", experts, ids.shape[-1], hidden, width, DTYPES[x.dtype], bool(module.has_bias), transposed, fp8,
                          _gates_of(module))


def _handles(device, problem):
    """{part: its kernel's handle}. Raises ConfigError if no kernel takes one."""
    fields = problem[1:-1]
    parts = (*PARTS, "tokens") if problem.fp8 else PARTS
    return {part: handle_of_problem(device.type, device.index or 0, _made, part, *fields, *problem.gates) for part in parts}


def _made(*fields):
    """An ExpertsProblem of plain fields, which torch.compile passes on as constants."""
    count = len(ExpertsProblem._fields) - 1
    return ExpertsProblem(*fields[:count], Gates(*fields[count:]))


def _left(module, *arguments):
    """transformers' own."""
    if not isinstance(module, finegrained_fp8.FP8Experts):
        return grouped_mm_experts_forward(module, *arguments)
    if module.activation_scheme == "dynamic" and module.down_proj.dtype == FP8:
        return finegrained_fp8.fp8_grouped_mm_experts_forward(module, *arguments)
    return type(module).forward.__wrapped__(module, *arguments)  # eager


def experts(module, hidden_states, top_k_index, top_k_weights):
    """The function that register() gives to transformers: [tokens, hidden]. Experts past the last one, as ranks of expert
    parallelism have them, add nothing. Calls that need gradients, and layers that no kernel takes, are left to
    transformers' grouped_mm."""
    wanted = torch.is_grad_enabled() and (hidden_states.requires_grad or top_k_weights.requires_grad or
                                          any(parameter.requires_grad for parameter in module.parameters(recurse=False)))
    if wanted:
        return _left(module, hidden_states, top_k_index, top_k_weights)
    try:
        problem = _problem(module, hidden_states, top_k_index)
        handles = _handles(hidden_states.device, problem)
    except ConfigError as error:
        from .transformers import warn_once
        warn_once(f"kernelwright leaves these experts to transformers: {error}")
        return _left(module, hidden_states, top_k_index, top_k_weights)
    # No gradient is wanted, and torch lends no tensor that asks for one.
    gate_up, down = module.gate_up_proj.detach(), module.down_proj.detach()
    biases = (module.gate_up_proj_bias.detach(), module.down_proj_bias.detach()) if problem.biased else (None, None)
    starts, source_rows, positions = OPS.route.given(handles["route"], top_k_index.to(torch.int32).contiguous())
    x = hidden_states if hidden_states.stride(-1) == 1 else hidden_states.contiguous()
    first, second = {"bias": biases[0]}, {"bias": biases[1]}
    if problem.fp8:
        x, first["scale_a"] = quantised(handles["tokens"], x, problem.hidden)
        first["scale_b"], second["scale_b"] = (scales.detach().float() for scales in (module.gate_up_proj_scale_inv,
                                                                                     module.down_proj_scale_inv))
    rows = OPS.gemm(handles["first"], x, gate_up, bounds=starts, gather=source_rows, **first)
    if problem.fp8:
        rows, second["scale_a"] = quantised(handles["gates"], rows, problem.width)
    else:
        rows = OPS.row_op(handles["gates"], rows)
    rows = OPS.gemm(handles["second"], rows, down, bounds=starts, **second)
    return OPS.moe_combine(handles["combine"], rows, positions, top_k_weights.float().contiguous())
