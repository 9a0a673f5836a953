"""Steps over rows between GEMMs: what is timed, and the reference. Arms: ours, one launch; FlashInfer's kernels, where it has
one for the row; a copy of as many bytes.

FlashInfer adds in place, as servers call it. Ours writes the sum beside the residual, so that all calls compute the same.
"""
import math

import torch

from .arm import Arm, Cannot
from .arms import kernelwright
from .kv_writes import copy
from .reference import ByParts

COMPARED = ("former",)
BF16_ROUNDING, E4M3_ROUNDING = 2.0**-8, 2.0**-4  # half a step, of the value
E4M3_LARGEST, E4M3_LEAST = 448.0, 2.0**-10  # half of the smallest step, times the scale
F32_ERROR = 2.0**-18  # of a value: its own steps, and the mean of a row's squares
EPS = 1e-6


class Case:
    """A row's tensors, random normal."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device
        draw = lambda *shape: torch.randn(*shape, device=device, dtype=torch.bfloat16)  # noqa: E731
        self.x = draw(row.rows, row.read_width())
        self.residual = draw(row.rows, row.width) if row.adds else None
        self.weight = draw(row.width) if row.adds else None


class Truth(ByParts):
    """fp64 steps, and what rounding adds: half a step of the format."""

    def __init__(self, case):
        row, x = case.row, case.x.double()
        if row.gates:
            gate, up = x.chunk(2, 1)
            silu, gelu = torch.nn.functional.silu, torch.nn.functional.gelu
            self.out = (silu(gate) if row.gates == "silu" else gelu(gate, approximate="tanh")) * up
        elif row.adds:
            self.sum = x + case.residual.double()
            rounded = self.sum.to(torch.bfloat16).double()
            self.out = rounded / (rounded.square().mean(1, keepdim=True) + EPS).sqrt() * case.weight.double()
        else:
            self.out = x
        self.case = case

    def compared(self, out):
        """(elements, what they are, the bound) of the result and of the sum."""
        values, total = out
        row, want = self.case.row, self.out
        bound = want.abs() * BF16_ROUNDING
        if row.quantized:
            groups = want.view(row.rows, -1, row.group_width())
            scales = groups.abs().amax(2, keepdim=True) / E4M3_LARGEST
            bound = torch.maximum(groups.abs() * E4M3_ROUNDING, scales * E4M3_LEAST).view_as(want)
        yield values.double(), want, bound * (1 + 2.0**-7) + want.abs() * F32_ERROR + 1e-9
        if row.adds:
            yield total.double(), self.sum, self.sum.abs() * BF16_ROUNDING * (1 + 2.0**-9) + 1e-9


def config(row, schedule):
    return {"kind": "row_op", "name": "peer", "problem": row.problem(), "schedule": schedule}


def prepare(engine, row, schedule):
    return engine.prepare(config(row, schedule), background=True)


def result(case):
    """Elements and scales, poisoned; scales None where there are none."""
    row, device = case.row, case.device
    if not row.quantized:
        return torch.full((row.rows, row.width), math.nan, device=device, dtype=torch.bfloat16), None
    out = torch.full((row.rows, row.width), 0x7f, device=device, dtype=torch.uint8).view(torch.float8_e4m3fn)
    if row.quantized == "token":
        return out, torch.full((row.rows,), math.nan, device=device)
    padded = torch.full((row.width // row.group_width(), -(-row.rows // 4) * 4), math.nan, device=device)
    return out, padded[:, :row.rows]


def ours(name, kernel, case):
    row = case.row
    out, scale = result(case)
    total = torch.full_like(case.residual, math.nan) if row.adds else None
    tensors = dict(x=case.x, out=out, residual=case.residual, residual_out=total, weight=case.weight, scale=scale)
    launch = kernel.bind(**{name: tensor for name, tensor in tensors.items() if tensor is not None})

    def call():
        launch(torch.cuda.current_stream())
        return out, scale, total

    return Arm(name, call, row.work()[0], (launch,))


def flashinfer(case):
    try:
        from flashinfer import activation, norm
    except ImportError as error:
        raise Cannot(f"{error}; it comes with PyPI's flashinfer-python") from error
    row = case.row
    if row.adds:
        x, residual = case.x.clone(), case.residual.clone()
        return Arm("flashinfer", lambda: norm.fused_add_rmsnorm(x, residual, case.weight, EPS), row.work()[0], (x, residual))
    out = torch.empty(row.rows, row.width, device=case.device, dtype=torch.bfloat16)
    function = activation.silu_and_mul if row.gates == "silu" else activation.gelu_tanh_and_mul
    return Arm("flashinfer", lambda: function(case.x, out), row.work()[0], (out,))


def peer(name, case, engine, fa3_path):
    return {"flashinfer": flashinfer, "copy": copy}[name](case)


def shaped(row, arm, out):
    """Values, elements times their scales, and the sum with the residual."""
    elements, scale, total = out
    values = elements.float()
    if row.quantized:
        of_groups = scale[:, None] if row.quantized == "token" else scale.t()
        values = (values.view(row.rows, -1, row.group_width()) * of_groups[:, :, None]).view(row.rows, -1)
    return values, total


__all__ = ["COMPARED", "Case", "Truth", "config", "kernelwright", "ours", "peer", "prepare", "shaped"]
