"""The GEMM of a linear layer, and the quantising of its rows: what kernelwright.transformers and the plug-ins of
servers share."""
from typing import NamedTuple

import torch

from ._attention import OPS
from ._groups import GROUP

FP8 = torch.float8_e4m3fn


class GemmProblem(NamedTuple):
    """All that tells two kernels of linear layers apart. The number of rows changes from call to call."""

    n: int
    k: int
    dtype: str  # of the result, and of the operands unless they have scales
    scales: str = "none"  # others: the operands are e4m3
    bias: bool = False
    gates: str = ""  # the epilogue of a layer that makes products of gates and ups, whose weights are interleaved by 8
    batch_invariant: bool = False  # a row's bits depend on no other row
    layout: str = "nt"
    heads: int = 0  # each of which has rows and a matrix of its own; 0: there is one matrix

    @property
    def fp8(self):
        return self.scales != "none"

    def config(self):
        """What Engine.prepare() takes."""
        operand = "e4m3" if self.fp8 else self.dtype
        problem = {"n": self.n, "k": self.k, "dtype": {"a": operand, "b": operand, "c": self.dtype, "d": self.dtype}}
        if self.fp8:
            problem["scales"] = self.scales
        if self.gates or self.bias:
            problem["epilogue"] = self.gates or "acc + bias"
        if self.batch_invariant:
            problem["batch_invariant"] = True
        if self.layout != "nt":
            problem["layout"] = self.layout
        if self.heads:
            problem["groups"] = {"kind": "batch", "count": self.heads}
        return {"kind": "gemm", "problem": problem}


class RowsProblem(NamedTuple):
    """Steps over rows of `width` columns; results are e4m3 if they have scales."""

    width: int
    dtype: str  # of the rows, and of results without scales
    scales: str = "per_block"  # in columns, of 128 elements; "per_token"; "none"
    input: str = "plain"  # "add", "gate_up"
    activation: str = ""  # of gates
    norm: bool = False  # RMSNorm with weights

    def config(self):
        """What Engine.prepare() takes."""
        problem = {"dtype": {"in": self.dtype, "out": self.dtype if self.scales == "none" else "e4m3"}, "width": self.width}
        problem |= {"input": self.input} if self.input != "plain" else {}
        problem |= {"gate": {"activation": self.activation}} if self.activation else {}
        problem |= {"norm": {"kind": "rms"}} if self.norm else {}
        if self.scales != "none":
            problem["scales"] = {"kind": self.scales} | ({"layout": "columns"} if self.scales == "per_block" else {})
        return {"kind": "row_op", "problem": problem}


def rows_of(x, k):
    """x [..., k] as rows that a kernel reads. Rows of a wider tensor may begin at any address, so they are copied."""
    rows = x.reshape(-1, k)
    return rows if rows.stride(0) == k and rows.stride(1) == 1 else rows.clone(memory_format=torch.contiguous_format)


def quantised(number, rows, width, scales="per_block", residual=None, total=None, **named):
    """A row_op that quantises: (elements, their scales, as a GEMM takes them). `number`: its handle; residual: what it adds to the
    rows; total: where the sum goes; named: what else it takes."""
    count = rows.shape[0]
    elements = rows.new_empty((count, width), dtype=FP8)
    if scales == "per_token":
        scale = rows.new_empty((count,), dtype=torch.float32)
    else:
        # Strides, and no slice of a wider tensor: a graph that was traced with a multiple of 4 rows would have no slice, and
        # vLLM drops the guard that says so.
        scale = rows.new_empty_strided((width // GROUP, count), ((count + 3) // 4 * 4, 1), dtype=torch.float32)
    if residual is None:
        OPS.row_op.out(number, rows, out=elements, scale=scale, **named)
    else:
        OPS.row_op.add_out(number, rows, residual, residual_out=total, out=elements, scale=scale, **named)
    return elements, scale


def interleave(gate_up):
    """Rows [..., 2 n, k] of gates and behind them ups, contiguous, in runs of 8 that take turns, as epilogues with gates read them.
    They are written in place, one matrix after the other. All that can fail comes ahead of the first write, so that a failure, as
    for lack of memory, leaves every row where it is."""
    matrices = gate_up.view(-1, *gate_up.shape[-2:])
    runs = matrices.view(len(matrices), 2, -1, 8, gate_up.shape[-1])
    pairs = matrices.view(len(matrices), -1, 2, 8, gate_up.shape[-1])
    spare = torch.empty_like(runs[0])
    for given, made in zip(runs, pairs):
        made.copy_(spare.copy_(given).transpose(0, 1))
