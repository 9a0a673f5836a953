"""Writing the cache: what is timed, and the reference. Arms: ours, one launch; FlashInfer's kernels, one or two; a copy of as
many bytes.

A row's tokens are one sequence's, at random positions of the cache's pages. FlashInfer takes a batch index and a position of
each token, made ahead of the call as a server makes them once for all layers, and so do our rows without a rotation.
"""
import math

import torch

from .arm import Arm, Cannot
from .arms import kernelwright
from .inputs import scale_of, values
from .reference import ByParts

COMPARED = ("flashinfer", "former")
BF16_ROUNDING, E4M3_ROUNDING = 2.0**-8, 2.0**-4  # half a step, of the value
E4M3_LEAST = 2.0**-10  # half of the smallest step
F32_ERROR = 2.0**-20  # of the sum of magnitudes


class Case:
    """A row's new queries, keys and values, random normal, its pages in random order, and the slot of each token."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device
        self.q, self.k, self.v = (torch.randn(row.tokens, heads, row.head_dim, device=device, dtype=torch.bfloat16)
                                  for heads in (row.heads, row.kv_heads, row.kv_heads))
        self.pages = math.ceil(row.positions / row.page)
        self.table = torch.randperm(self.pages, device=device).to(torch.int32)
        self.places = torch.randperm(row.positions, device=device)[:row.tokens].sort().values
        self.slots = self.table.long()[self.places // row.page] * row.page + self.places % row.page
        angles = self.places_table()
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], -1).float()
        self.scales = {}
        if row.dtype == "e4m3":
            # FlashInfer has one factor for keys and values. Twice the largest magnitude: a rotation may add two elements.
            largest = torch.cat([self.k.flatten(), self.v.flatten()]).view(1, -1)
            self.scales = {"q": 2 * scale_of(self.q, 1, False), "kv": 2 * scale_of(largest[:, None], 1, False)}

    def places_table(self):
        row = self.row
        steps = 500000.0 ** (-2 * torch.arange(row.head_dim // 2, device=self.device, dtype=torch.float64) / row.head_dim)
        return torch.arange(row.positions, device=self.device, dtype=torch.float64)[:, None] * steps

    def caches(self):
        """Keys and values [pages, page, heads, head_dim], poisoned."""
        row = self.row
        shape = (self.pages, row.page, row.kv_heads, row.head_dim)
        dtype = torch.float8_e4m3fn if row.dtype == "e4m3" else torch.bfloat16
        return [torch.full(shape, math.nan, device=self.device, dtype=torch.bfloat16).to(dtype) for _ in range(2)]

    def written(self, cache):
        """The rows of the tokens, as values."""
        rows = cache.flatten(0, 1)[self.slots]
        return values(rows, self.scales["kv"]) if self.scales else rows.float()


class Truth(ByParts):
    """fp64 rotations, and what rounding adds: half a step of the format."""

    def __init__(self, case):
        self.case = case
        cos, sin = (x[case.places][:, None] for x in (case.places_table().cos(), case.places_table().sin()))
        self.wanted = {}
        for name, x in (("q", case.q), ("k", case.k), ("v", case.v)):
            low, high = x.double().chunk(2, -1)
            turned = torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
            self.wanted[name] = turned if case.row.rope and name != "v" else x.double()

    def compared(self, out):
        """(elements, what they are, the bound) of queries, keys and values."""
        q, keys, vals = out
        case = self.case
        parts = [("k", case.written(keys)), ("v", case.written(vals))]
        if case.row.rope:
            parts.append(("q", values(q, case.scales["q"]) if case.scales else q.float()))
        for name, have in parts:
            want = self.wanted[name]
            bound = want.abs() * BF16_ROUNDING
            if case.scales:
                least = case.scales["q" if name == "q" else "kv"].double() * E4M3_LEAST
                bound = torch.maximum(want.abs() * E4M3_ROUNDING, least)
            yield tuple(x.flatten() for x in (have.double(), want, bound * (1 + 2.0**-9) + 8 * F32_ERROR))


def config(row, schedule):
    return {"kind": "kv_write", "name": "peer", "problem": row.problem(), "schedule": schedule}


def prepare(engine, row, schedule):
    return engine.prepare(config(row, schedule), background=True)


def ours(name, kernel, case):
    row, (keys, vals) = case.row, case.caches()
    tensors = dict(k=case.k, v=case.v, k_cache=keys, v_cache=vals, positions=case.places)
    q_out = None
    if row.rope:
        q_out = torch.empty_like(case.q, dtype=keys.dtype)
        tensors |= dict(q=case.q, q_out=q_out, cos_sin=case.cos_sin, slot_mapping=case.slots)
    else:
        tensors |= dict(batch_indices=torch.zeros(row.tokens, dtype=torch.int32, device=case.device),
                        page_table=case.table.view(1, -1))
    for operand, scale in (("q", "q"), ("k", "kv"), ("v", "kv")):
        if case.scales:
            tensors[operand + "_scale"] = case.scales[scale]
    launch = kernel.bind(**tensors)

    def call():
        launch(torch.cuda.current_stream())
        return q_out, keys, vals

    return Arm(name, call, row.work()[0], (launch,))


def flashinfer(case):
    try:
        from flashinfer import page, rope
    except ImportError as error:
        raise Cannot(f"{error}; it comes with PyPI's flashinfer-python") from error
    row, (keys, vals) = case.row, case.caches()

    def whole(*numbers):
        return torch.tensor(numbers, dtype=torch.int32, device=case.device)

    batch, places = torch.zeros(row.tokens, dtype=torch.int32, device=case.device), case.places.int()
    pages, bounds, last = case.table, whole(0, case.pages), whole((row.positions - 1) % row.page + 1)
    if row.dtype == "e4m3":
        q_out = torch.empty_like(case.q, dtype=keys.dtype)
        q_empty, k_empty = (x[..., :0].contiguous() for x in (case.q, case.k))
        q_none = q_out[..., :0].contiguous()
        factors = {f"quant_scale_{name}": 1 / scale.item() for name, scale in case.scales.items()}

        def call():
            rope.rope_quantize_fp8_append_paged_kv_cache(
                case.q, case.k, q_empty, k_empty, case.v, case.cos_sin, places, (keys, vals), pages, bounds, batch, places,
                page_size=row.page, q_rope_out=q_out, q_nope_out=q_none, **factors)
            return q_out, keys, vals
    else:
        q, k = case.q.clone(), case.k.clone()  # turned in place, as servers do

        def call():
            if row.rope:
                rope.apply_rope_with_cos_sin_cache_inplace(places, q.flatten(1), k.flatten(1), row.head_dim, case.cos_sin)
            page.append_paged_kv_cache(k, case.v, batch, places, (keys, vals), pages, bounds, last)
            return q, keys, vals

    return Arm("flashinfer", call, row.work()[0])


def copy(case):
    """torch's copy of as many bytes as the row reads and writes."""
    moved = case.row.work()[0] // 2 // 16 * 16
    source, target = (torch.empty(moved, dtype=torch.int8, device=case.device) for _ in range(2))
    source.random_(-128, 127)
    return Arm("copy", lambda: target.copy_(source), 2 * moved, (source, target))


def peer(name, case, engine, fa3_path):
    return {"flashinfer": flashinfer, "copy": copy}[name](case)


def shaped(row, arm, out):
    return out


__all__ = ["COMPARED", "Case", "Truth", "config", "kernelwright", "ours", "peer", "prepare", "shaped"]
