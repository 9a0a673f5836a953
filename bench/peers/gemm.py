"""GEMM: what is timed, and the reference. Arms: ours; PyTorch's cuBLAS and cuBLASLt; DeepGEMM; a read-only stream
over the weights.

Calling an arm queues its work on the current stream and returns d. An arm's rate counts its `work`.
"""
import copy
import dataclasses
import math

import torch

from .arm import Cannot
from .arms import Arm, kernelwright
from .reference import relative_rmse

TORCH = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
COMPARED = ("cublas", "cublaslt", "deepgemm", "row_op")  # peers whose output is the row's product
BF16_ROUNDING = 2.0**-8
E4M3_ROUNDING, E4M3_LEAST_ROUNDING = 2.0**-4, 2.0**-10  # the latter of elements below 2^-6, times their scale
# Hopper's tensor cores keep about 14 bits of a sum of fp8 products: each of k / 32 steps may lose 2^-13 of the largest.
FP8_STEP = 2.0**-13
BLOCK = 128


class Case:
    """A row's operands, random normal: a [m, k], b [n, k]."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device
        self.a, self.scale_a = self.operand(row.m, (1, BLOCK))
        self.b, self.scale_b = self.operand(row.n, (BLOCK, BLOCK))

    def operand(self, rows, block):
        """Elements, and their scales: None, [1], or one for each block."""
        high, wide = block if self.row.scales == "per_block" else (1, 1)
        values = torch.randn(-(-rows // high) * high, self.row.k, device=self.device)
        if self.row.scales == "none":
            return values.to(TORCH[self.row.dtype]), None
        if self.row.scales == "per_tensor":
            scale = values.abs().max() / 448
            return (values / scale).to(torch.float8_e4m3fn), scale.reshape(1)
        blocks = values.view(len(values) // high, high, self.row.k // wide, wide)
        scale = blocks.abs().amax((1, 3)) / 448
        blocks /= scale[:, None, :, None]
        return values[:rows].to(torch.float8_e4m3fn), scale

    def full(self, values, scale, block):
        """The operand's values, f32: the elements times their scales."""
        values = values.float()
        if scale is None:
            return values
        if scale.numel() == 1:
            return values * scale
        return values * scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:len(values)]

    def a_full(self):
        return self.full(self.a, self.scale_a, (1, BLOCK))

    def b_full(self):
        return self.full(self.b, self.scale_b, (BLOCK, BLOCK))


class Truth:
    """fp32 products (without TF32), and a bound on the error of an output: the rounding to bf16, and for fp8 what the
    tensor cores drop from sums inside them."""

    def __init__(self, case):
        torch.backends.cuda.matmul.allow_tf32 = False
        a, b = case.a_full(), case.b_full()
        self.out = a @ b.t()
        size = a.abs() @ b.abs().t()
        steps = 0 if case.row.scales == "none" else (4 if case.row.scales == "per_block" else case.row.k / 32)
        off = size.mul_(2.0**-20 + FP8_STEP * math.sqrt(steps))  # of a sum
        if case.row.gates:
            (gate, up), (off_gate, off_up) = self.out.chunk(2, 1), off.chunk(2, 1)
            silu = torch.nn.functional.silu(gate)
            # silu's slope is at most 1.1, and its own error that of the hardware's exp2.
            off = up.abs() * (1.1 * off_gate + 2.0**-20 * silu.abs()) + silu.abs() * off_up + 1.1 * off_gate * off_up
            self.out = silu * up
        self.bound = self.out.abs().mul_(BF16_ROUNDING).add_(off).add_(1e-6)
        if case.row.quantized:
            groups = self.out.view(len(self.out), -1, BLOCK).abs()
            scales = (groups.amax(2, keepdim=True) / 448).clamp_(min=1e-30)
            self.bound += groups.mul_(E4M3_ROUNDING).add_(scales * (2 * E4M3_LEAST_ROUNDING)).view_as(self.out)

    def rmse(self, out):
        """The root of the mean square of an output's error, over that of the reference."""
        return relative_rmse(out, self.out)

    def error(self, out):
        """The largest error of an output over its bound; infinite if an output is not finite. Above 1 is wrong."""
        worst = 0.0
        for begin in range(0, len(self.out), 4096):
            some = slice(begin, begin + 4096)
            off = (out[some].float() - self.out[some]).abs_().div_(self.bound[some]).max().item()
            worst = max(worst, off if off == off else float("inf"))
        return worst


def config(row, schedule):
    return {"kind": "gemm", "name": "peer", "problem": row.problem(), "schedule": schedule}


def prepare(engine, row, schedule):
    return engine.prepare(config(row, schedule), background=True)


def interleaved(gate, up):
    """8 rows of gates, the 8 rows of ups that belong to them, and so on. gate and up are [..., n, k]."""
    parts = [matrix.view(torch.uint8).unflatten(-2, (-1, 8)) for matrix in (gate, up)]
    return torch.stack(parts, -3).flatten(-4, -2).view(gate.dtype)


def plain(engine, case):
    """Our kernel of the same operands, which stores bf16: the row's values, or of a row that does not quantise the gates
    and ups."""
    case = copy.copy(case)
    case.row = dataclasses.replace(case.row, **({"quantized": False} if case.row.quantized else {"gates": False}))
    return ours("plain", engine.prepare(config(case.row, "auto")), case)


def quantised_after(engine, case):
    """The same, and then a launch that quantises what it stored."""
    values, row = plain(engine, case), case.row
    kernel = engine.prepare({"kind": "row_op", "problem": {
        "dtype": {"in": "bf16", "out": "e4m3"}, "width": row.columns, "scales": {"kind": "per_block", "layout": "columns"}}})
    out, scales = result(row, case.device)
    launch = kernel.bind(x=values.call(), out=out, scale=scales)

    def call():
        values.call()
        launch(torch.cuda.current_stream())
        return out, scales
    return Arm("row_op", call, row.work()[0], (values, launch))


def result(row, device):
    """d; of a row that quantises, with its scales."""
    if not row.quantized:
        return torch.full((row.m, row.columns), math.nan, device=device, dtype=torch.bfloat16), None
    out = torch.full((row.m, row.columns), 0x7f, device=device, dtype=torch.uint8).view(torch.float8_e4m3fn)
    padded = torch.full((row.columns // BLOCK, -(-row.m // 4) * 4), math.nan, device=device)
    return out, padded[:, :row.m]


def ours(name, kernel, case):
    row, b = case.row, case.b
    if row.gates:
        b = interleaved(*b.chunk(2))
    out, scales = result(row, case.device)
    tensors = dict(a=case.a, b=b, d=out) | ({"scale_d": scales} if row.quantized else {})
    if row.scales == "per_block":
        padded = torch.zeros(row.k // BLOCK, -(-row.m // 4) * 4, device=case.device)
        padded[:, :row.m] = case.scale_a.t()
        tensors |= dict(scale_a=padded[:, :row.m], scale_b=case.scale_b)
    elif row.scales != "none":
        tensors |= dict(scale_a=case.scale_a, scale_b=case.scale_b)
    launch = kernel.bind(**tensors)

    def call():
        launch(torch.cuda.current_stream())
        return (out, scales) if row.quantized else out

    return Arm(name, call, row.work()[0], (launch,))


def library(name, case):
    """PyTorch's product, computed by the library of that name."""
    row, b = case.row, case.b.t()

    if row.scales == "none":
        def call():
            torch.backends.cuda.preferred_blas_library(name)
            return torch.mm(case.a, b)
    else:
        scale_a, scale_b = case.scale_a, case.scale_b
        if row.scales == "per_block":  # scale_a column by column; scale_b row by row, transposed
            scale_a, scale_b = scale_a.t().contiguous().t(), scale_b.t()

        def call():
            return torch._scaled_mm(case.a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=row.fast)
    return Arm(name, call, row.work()[0])


def tensor_scales(case):
    """cuBLASLt on the same elements, with one scale per tensor and fast accumulation. It is no peer of block scales,
    but the anchor through which DeepGEMM's recorded rates are compared."""
    one = torch.ones(1, device=case.device)

    def call():
        return torch._scaled_mm(case.a, case.b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return Arm("cublaslt_tensor", call, case.row.work()[0])


def bf16(case):
    """cuBLAS on the same number of bf16 elements: the anchor of block scales for few rows."""
    a, b = (torch.randn(x.shape, device=case.device, dtype=torch.bfloat16) for x in (case.a, case.b))
    return Arm("cublas_bf16", lambda: torch.mm(a, b.t()), case.row.work()[0], (a, b))


def deepgemm(case):
    try:
        import deep_gemm as dg
    except ImportError as error:
        raise Cannot(f"{error}") from None
    row = case.row
    out = torch.full((row.m, row.n), math.nan, device=case.device, dtype=torch.bfloat16)
    a = case.a, dg.get_mn_major_tma_aligned_tensor(case.scale_a.contiguous())
    b = case.b, case.scale_b.contiguous()

    def call():
        dg.fp8_gemm_nt(a, b, out)
        return out
    return Arm("deepgemm", call, row.work()[0], (a, b))


def read_stream(case):
    """A kernel that only reads, over the same bytes as both operands."""
    from read_stream import ReadStream
    stream = ReadStream()
    data = torch.cat([case.a.flatten().view(torch.uint8), case.b.flatten().view(torch.uint8)])

    def call():
        stream(data.data_ptr(), data.numel(), torch.cuda.current_stream().cuda_stream)
    return Arm("read_stream", call, data.numel(), (stream, data))


def peer(name, case, engine, fa3_path):
    if name in ("plain", "row_op"):
        return (plain if name == "plain" else quantised_after)(engine, case)
    made = {"read_stream": read_stream, "deepgemm": deepgemm, "cublaslt_tensor": tensor_scales, "cublas_bf16": bf16}
    return made[name](case) if name in made else library(name, case)


def shaped(row, arm, out):
    """Values: of a quantised result, elements times their scales."""
    if not isinstance(out, tuple):
        return out
    elements, scales = out
    return (elements.float().view(row.m, -1, BLOCK) * scales.t()[:, :, None]).view(row.m, -1)


__all__ = ["COMPARED", "Case", "Truth", "config", "interleaved", "kernelwright", "ours", "peer", "prepare", "shaped"]
