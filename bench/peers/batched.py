"""Batches of GEMMs: what is timed, and the reference. Arms: ours; torch.bmm, which calls cuBLAS; a read-only stream.

A row is a product around a decode over latents. Heads lie side by side, so a and d are views of wider tensors
[tokens, heads, width], and b is a view of kv_b_proj's weight, unless the row has a copy of it. Every arm takes the views,
as servers give them.
"""
import math

import torch

from .arms import Arm, kernelwright
from .gemm import BF16_ROUNDING, config, prepare
from .reference import ByParts

COMPARED = ("torch_bmm", "former")


class Case:
    """A row's operands, random normal: a [heads, tokens, k], b [heads, n, k] or, with layout nn, [heads, k, n]."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device

        def normal(*shape):
            return torch.randn(*shape, device=device, dtype=torch.bfloat16)
        self.a = normal(row.tokens, row.heads, row.a_width)[:, :, :row.k].transpose(0, 1)
        b = (row.k, row.n) if row.layout == "nn" else (row.n, row.k)
        self.b = normal(row.heads, row.b_rows, b[1])[:, row.b_rows - b[0]:]

    def b_of_columns(self):
        """[heads, k, n], a view."""
        return self.b if self.row.layout == "nn" else self.b.transpose(1, 2)

    def result(self):
        """d [heads, tokens, n], poisoned."""
        row = self.row
        wide = torch.full((row.tokens, row.heads, row.d_width), math.nan, device=self.device, dtype=torch.bfloat16)
        return wide[:, :, :row.n].transpose(0, 1)


class Truth(ByParts):
    """fp32 products of each head (without TF32), and the bound of gemm.Truth."""

    def __init__(self, case):
        torch.backends.cuda.matmul.allow_tf32 = False
        self.case = case

    def compared(self, out):
        """(rows of an output, what they are, the bound) of each head."""
        for have, a, b in zip(out, self.case.a, self.case.b_of_columns()):
            a, b = a.float(), b.float()
            want, size = a @ b, a.abs() @ b.abs()
            yield have.float(), want, want.abs() * BF16_ROUNDING + size * 2.0**-20 + 1e-6


def ours(name, kernel, case):
    out = case.result()
    launch = kernel.bind(a=case.a, b=case.b, d=out)

    def call():
        launch(torch.cuda.current_stream())
        return out
    return Arm(name, call, case.row.work()[0], (launch,))


def torch_bmm(case):
    out, b = case.result(), case.b_of_columns()
    return Arm("torch_bmm", lambda: torch.bmm(case.a, b, out=out), case.row.work()[0], (out,))


def read_stream(case):
    """A kernel that only reads, over as many bytes as all three operands."""
    from read_stream import ReadStream
    stream = ReadStream()
    data = torch.empty(case.row.work()[0] // 16 * 16, device=case.device, dtype=torch.uint8)
    return Arm("read_stream", lambda: stream(data.data_ptr(), data.numel(), torch.cuda.current_stream().cuda_stream),
               data.numel(), (stream, data))


def peer(name, case, engine, fa3_path):
    return {"torch_bmm": torch_bmm, "read_stream": read_stream}[name](case)


def shaped(row, arm, out):
    return out


__all__ = ["COMPARED", "Case", "Truth", "config", "kernelwright", "ours", "peer", "prepare", "shaped"]
