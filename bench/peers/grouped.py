"""Grouped GEMM: what is timed, and the reference. Arms: ours; PyTorch's grouped product; DeepGEMM, where it is installed; a
read-only stream over the weights of the groups that have rows.

The rows of groups are drawn once for all arms, as bounds on the device. DeepGEMM wants groups to begin at multiples of its
tile: there, `aligned` rows begin at multiples of 128 for every arm. Others begin anywhere, and DeepGEMM cannot take them.
"""
import math

import torch

from .arms import Arm, kernelwright
from .arm import Cannot
from .gemm import BF16_ROUNDING, BLOCK, FP8_STEP, prepare
from .reference import ByParts

COMPARED = ("torch_grouped", "deepgemm", "former")
ALIGNMENT = 128


def counts_of(row):
    """Rows of each group, as kernelwright's shapes draw them; seeded."""
    if row.skew == "even":
        return [row.rows // row.groups] * row.groups
    if row.skew == "one":
        return [row.rows] + [0] * (row.groups - 1)
    shares = torch.ones(row.groups) if row.skew == "uniform" else 1.0 / torch.arange(1, row.groups + 1)
    drawn = torch.multinomial(shares, row.rows, replacement=True, generator=torch.Generator().manual_seed(7))
    return torch.bincount(drawn, minlength=row.groups).tolist()


class Case:
    """A row's operands, random normal: a [m, k] or [groups, capacity, k], b [groups, n, k]."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device
        self.counts = counts_of(row)
        if row.kind_of_groups == "masked":
            self.firsts = [g * row.capacity for g in range(row.groups)]
            self.m, self.bounds = row.groups * row.capacity, self.counts
        else:
            step = ALIGNMENT if row.aligned else 1
            self.firsts, at = [], 0
            for count in self.counts:
                self.firsts.append(at)
                at += -(-count // step) * step
            self.m = at
            self.bounds = self.firsts + [at]  # where groups are aligned, the rows between them are computed too
        self.a, self.scale_a = self.operand((self.m, row.k), (1, BLOCK))
        parts = [self.operand((row.n, row.k), (BLOCK, BLOCK)) for _ in range(row.groups)]
        self.b = torch.stack([elements for elements, _ in parts])
        self.scale_b = torch.stack([scale for _, scale in parts]) if parts[0][1] is not None else None

    def operand(self, shape, block):
        values = torch.randn(*shape, device=self.device)
        if self.row.dtype == "bf16":
            return values.to(torch.bfloat16), None
        (rows, k), (high, wide) = shape, block
        blocks = values.view(rows // high, high, k // wide, wide)
        scale = blocks.abs().amax((1, 3)) / 448
        blocks /= scale[:, None, :, None]
        return values.to(torch.float8_e4m3fn), scale

    def groups(self):
        """(group, its rows of a and d), for those that have some."""
        for group, (first, count) in enumerate(zip(self.firsts, self.counts)):
            if count:
                yield group, slice(first, first + count)

    def full(self, group, some):
        """f32 operands of a group."""
        a, b = self.a[some].float(), self.b[group].float()
        if self.scale_a is not None:
            a = a * self.scale_a[some].repeat_interleave(BLOCK, 1)
            b = b * self.scale_b[group].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return a, b


class Truth(ByParts):
    """fp32 products of each group (without TF32), and the bound of gemm.Truth."""

    def __init__(self, case):
        torch.backends.cuda.matmul.allow_tf32 = False
        self.case = case

    def compared(self, out):
        """(rows of an output, what they are, the bound) of each group, some rows of it."""
        for group, some in self.case.groups():
            some = slice(some.start, min(some.stop, some.start + 1024))
            a, b = self.case.full(group, some)
            want, size = a @ b.t(), a.abs() @ b.abs().t()
            steps = 0 if self.case.row.dtype == "bf16" else 4
            yield out[some].float(), want, want.abs() * BF16_ROUNDING + size * (2.0**-20 + FP8_STEP * math.sqrt(steps)) + 1e-6


def ours(name, kernel, case):
    row = case.row
    out = torch.full((case.m, row.n), math.nan, device=case.device, dtype=torch.bfloat16)
    bounds = torch.tensor(case.bounds, device=case.device, dtype=torch.int32)
    rows_each = -(-row.rows // max(1, sum(1 for count in case.counts if count)))
    tensors = dict(a=case.a, b=case.b, d=out, bounds=bounds, expected_m=rows_each)
    if case.scale_a is not None:
        scale = case.scale_a.t()  # [k / 128, rows]
        if row.kind_of_groups == "masked":
            scale = scale.reshape(row.k // BLOCK, row.groups, row.capacity).transpose(0, 1)
        else:
            padded = torch.zeros(row.k // BLOCK, -(-case.m // 4) * 4, device=case.device)
            padded[:, :case.m] = scale
            scale = padded[:, :case.m]
        tensors |= dict(scale_a=scale if row.kind_of_groups != "masked" else scale.contiguous(), scale_b=case.scale_b)
    launch = kernel.bind(**tensors)

    def call():
        launch(torch.cuda.current_stream())
        return out

    return Arm(name, call, row.work(case.counts)[0], (launch, bounds))


def torch_grouped(case):
    row = case.row
    if row.dtype != "bf16" or row.kind_of_groups == "masked":
        raise Cannot("PyTorch's grouped product takes bf16 rows that follow each other")
    ends = torch.tensor(case.bounds[1:], device=case.device, dtype=torch.int32)
    b = case.b.transpose(1, 2)
    return Arm("torch_grouped", lambda: torch._grouped_mm(case.a, b, offs=ends), row.work(case.counts)[0], (ends,))


def deepgemm(case):
    row = case.row
    try:
        import deep_gemm as dg
    except ImportError as error:
        raise Cannot(f"{error}") from None
    if row.kind_of_groups == "rows" and not row.aligned:
        raise Cannot("DeepGEMM's groups begin at multiples of 128 rows")
    shape = (case.m, row.n) if row.kind_of_groups == "rows" else (row.groups, row.capacity, row.n)
    out = torch.empty(*shape, device=case.device, dtype=torch.bfloat16)
    fp8 = row.dtype != "bf16"
    a, b = case.a.view(*shape[:-1], row.k), case.b
    if fp8:
        scale = case.scale_a.view(*shape[:-1], row.k // BLOCK).contiguous()
        a, b = (a, dg.get_mn_major_tma_aligned_tensor(scale)), (b, case.scale_b.contiguous())
    if row.kind_of_groups == "rows":
        ids = torch.full((case.m,), -1, device=case.device, dtype=torch.int32)
        for group, some in case.groups():
            ids[some] = group
        product = dg.m_grouped_fp8_gemm_nt_contiguous if fp8 else dg.m_grouped_bf16_gemm_nt_contiguous
        extra = (ids,)
    else:
        extra = torch.tensor(case.counts, device=case.device, dtype=torch.int32), max(1, row.rows // row.groups)
        product = dg.m_grouped_fp8_gemm_nt_masked if fp8 else dg.m_grouped_bf16_gemm_nt_masked

    def call():
        product(a, b, out, *extra)
        return out.view(case.m, row.n)

    return Arm("deepgemm", call, row.work(case.counts)[0], (a, b, extra))


def read_stream(case):
    """A kernel that only reads, over as many bytes as the weights of the groups that have rows."""
    from read_stream import ReadStream
    stream = ReadStream()
    active = sum(1 for count in case.counts if count)
    data = case.b[:active].reshape(-1).view(torch.uint8)
    return Arm("read_stream", lambda: stream(data.data_ptr(), data.numel(), torch.cuda.current_stream().cuda_stream),
               data.numel(), (stream, data))


def peer(name, case, engine, fa3_path):
    return {"torch_grouped": torch_grouped, "deepgemm": deepgemm, "read_stream": read_stream}[name](case)


def shaped(row, arm, out):
    return out


__all__ = ["COMPARED", "Case", "Truth", "kernelwright", "ours", "peer", "prepare", "shaped"]
