"""Appending to a cache of torch's tensors, with one kernel for each distinct problem: what kernelwright.flash_attn and
kernelwright.transformers share beside _attention.py."""
from typing import NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ._attention import DTYPES, OPS, handle_of_problem, kernels
from ._errors import ConfigError

FP8 = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_tables = WeakIdKeyDictionary()  # of cosines


class WriteProblem(NamedTuple):
    """All that tells two kernels that write a cache apart. A token's place is its sequence and its position."""

    dtype: str
    kv_dtype: str
    q_heads: int  # 0: queries are not written
    kv_heads: int
    qk_dim: int
    v_dim: int
    kv_kind: str = "padded"
    page_size: int = 0
    style: str = "none"
    width: int = 0
    scales: str = "none"
    index: str = "positions"

    def config(self):
        """What Engine.prepare() takes."""
        problem = {"dtype": {"in": self.dtype, "q": self.dtype, "kv": self.kv_dtype}, "index": self.index,
                   "head_dim": {"qk": self.qk_dim, "v": self.v_dim}, "kv_layout": {"kind": self.kv_kind},
                   "heads": {"q": self.q_heads or self.kv_heads, "kv": self.kv_heads}}
        if self.page_size:
            problem["kv_layout"]["page_size"] = self.page_size
        if not self.q_heads:
            problem["q_out"] = False
        if self.style != "none":
            problem["rope"] = {"style": self.style, "width": self.width}
        if self.scales != "none":
            problem["scales"] = {"k": self.scales, "v": self.scales}
        return {"kind": "kv_write", "problem": problem}


def append(problem, q, k, v, k_cache, v_cache, **named):
    """Writes k and v to the caches. Returns the rotated queries, or q as it is if the problem has none."""
    named = {name: value for name, value in named.items() if value is not None}
    device, tensors = k.device, (k, v, k_cache, v_cache)
    if torch.compiler.is_compiling() or device.type != "cuda":
        number = handle_of_problem(device.type, device.index or 0, WriteProblem, *problem)
        if problem.q_heads:
            return OPS.kv_write(number, q, *tensors, **named)
        OPS.kv_write.keys(number, *tensors, **named)
        return q
    kernel = kernels.find("cuda", device.index or 0, problem)[0]
    return kernel(q, *tensors, **named) if problem.q_heads else (kernel(*tensors, **named), q)[1]


def rope_rows(cos, sin):
    """The table [rows, 2 * pairs] of a kernel from cosines and sines [rows, pairs] of any dtype. It is made once for two
    tensors, and again after they have changed."""
    if cos.dim() != 2 or cos.shape != sin.shape:
        raise ConfigError(f"rotary_cos, rotary_sin: have shapes {list(cos.shape)} and {list(sin.shape)}; both are [positions, pairs]")
    if torch.compiler.is_compiling() or cos.is_inference() or sin.is_inference():
        return torch.cat([cos, sin], -1).float()
    versions = id(sin), cos._version, sin._version, cos.data_ptr(), sin.data_ptr()
    known, table = _tables.get(cos, (None, None))
    if known != versions:
        table = torch.cat([cos, sin], -1).float()
        _tables[cos] = versions, table
    return table


def rotated(x, table, positions, interleaved):
    """x [..., heads, head_dim] turned by the rows of `table` at `positions`, for queries that no kernel writes. All steps
    are in f32, as in the kernel."""
    width = table.shape[1]
    cos, sin = table[positions.long().clamp(0, len(table) - 1)].unsqueeze(-2).chunk(2, -1)
    head, rest = x[..., :width].float(), x[..., width:]
    low, high = (head[..., ::2], head[..., 1::2]) if interleaved else head.chunk(2, -1)
    turned = low * cos - high * sin, high * cos + low * sin
    head = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return torch.cat([head.to(x.dtype), rest], -1)


def cache_dtype(name, cache, dtype):
    """The word for a cache's elements beside queries of `dtype`."""
    if cache.dtype == dtype:
        return DTYPES[dtype]
    if cache.dtype not in FP8:
        raise ConfigError(f"{name}: is {cache.dtype}; it is {dtype}, as q is, torch.float8_e4m3fn or torch.float8_e5m2")
    return FP8[cache.dtype]
