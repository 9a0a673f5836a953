"""Latent attention: keys of 576 elements, whose first 512 are the values. Arms: ours; ours with bf16 keys, where the row's
have 8 bits; FlashMLA from vLLM's wheel, with its plan of the batch made beforehand; a read-only stream over the same keys.
FlashMLA reads records in its sparse kernel alone: there it gets the places of all keys, and 64 or 128 heads."""
import dataclasses
import math

import torch

from .arm import Arm, Cannot
from .arms import kernelwright
from .reference import relative_rmse

COMPARED = ("flashmla", "former", "bf16")
library = None  # vLLM's _flashmla_C.abi3.so, where vLLM itself is not installed


class Case:
    """q [batch, q_len, heads, 576], and pages of one pool in random order, [pages, page, 1, 576]."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device
        self.q = torch.randn(row.batch, row.q_len, row.heads, row.QK, device=device).to(torch.bfloat16)
        lengths = row.lengths()
        counts = [-(-length // row.page) for length in lengths]
        pages = sum(counts)
        self.keys = torch.empty(pages, row.page, 1, row.QK, dtype=torch.bfloat16, device=device)
        bytes_of_key = None if row.keys == "bf16" else row.key_bytes()
        self.codes = bytes_of_key and torch.empty(pages, row.page, 1, bytes_of_key, dtype=torch.uint8, device=device)
        self.scale = torch.full((1,), 2.0**-4, device=device) if row.keys == "e4m3" else None
        for first in range(0, pages, 4096):
            drawn = torch.randn(self.keys[first:first + 4096].shape, device=device)
            if bytes_of_key:
                drawn = self.quantise(drawn, self.codes[first:first + 4096])
            self.keys[first:first + 4096].copy_(drawn)
        self.page_table = torch.zeros(row.batch, max(counts), device=device, dtype=torch.int32)
        for table, drawn in zip(self.page_table, torch.randperm(pages, device=device).to(torch.int32).split(counts)):
            table[:len(drawn)] = drawn
        self.kv_lengths = torch.tensor(lengths, device=device, dtype=torch.int32)

    def quantise(self, drawn, codes):
        """Writes the codes of the keys, and returns what the codes say, as the kernels read it."""
        row = self.row
        if row.keys == "e4m3":
            coded = (drawn / self.scale).clamp(-448, 448).to(torch.float8_e4m3fn)
            codes.copy_(coded.view(torch.uint8))
            return coded.float() * self.scale
        blocks = drawn[..., :row.V].unflatten(-1, (-1, 128))
        scales = blocks.abs().amax(-1, keepdim=True) / 448
        coded = (blocks / scales).to(torch.float8_e4m3fn)
        rest = drawn[..., row.V:].to(torch.bfloat16)
        parts = coded.flatten(-2), scales.squeeze(-1).contiguous(), rest.contiguous()
        codes.copy_(torch.cat([part.view(torch.uint8) for part in parts], -1))
        return torch.cat([(coded.float() * scales).flatten(-2), rest.float()], -1)


class Truth:
    """In f32. The bound: probabilities and the output are rounded to bf16."""

    def __init__(self, case):
        torch.backends.cuda.matmul.allow_tf32 = False
        row = case.row
        outs, bounds = [], []
        for q, table, length in zip(case.q, case.page_table, row.lengths()):
            keys = case.keys[table[:-(-length // row.page)].long()].reshape(-1, row.QK)[:length].float()
            scores = q.float() @ keys.t() / math.sqrt(row.QK)  # [q_len, heads, keys]
            places = torch.arange(length, device=case.device)
            last = length - row.q_len + torch.arange(row.q_len, device=case.device)
            scores = scores.masked_fill(places > last[:, None, None], -math.inf)
            weights = scores.softmax(-1)
            values = keys[:, :row.V]
            outs.append(weights @ values)
            bounds.append(outs[-1].abs() * 2.0**-8 + (weights.square() @ values.square()).sqrt() * 2.0**-5 + 1e-6)
        self.out, self.bound = torch.stack(outs), torch.stack(bounds)

    def error(self, out):
        off = ((out.float() - self.out).abs() / self.bound).max().item()
        return off if off == off else float("inf")

    def rmse(self, out):
        return relative_rmse(out, self.out)


def prepare(engine, row, schedule):
    return engine.prepare({"name": "peer", "problem": row.problem(), "schedule": schedule}, background=True)


def ours(name, kernel, case):
    if case.codes is None:
        return reading(name, kernel, case, k=case.keys)
    codes = case.codes if case.scale is None else case.codes.view(torch.float8_e4m3fn)
    return reading(name, kernel, case, k=codes, **({} if case.scale is None else {"k_scale": case.scale}))


def bf16_keys(engine, case):
    """Ours, as a server that keeps keys in bf16 would plan it."""
    kernel = engine.prepare({"name": "bf16", "problem": dataclasses.replace(case.row, keys="bf16").problem(), "schedule": "auto"})
    return reading("bf16", kernel, case, k=case.keys)


def reading(name, kernel, case, **keys):
    row = case.row
    out = torch.full((*case.q.shape[:3], row.V), math.nan, dtype=torch.bfloat16, device=case.device)
    tensors = dict(q=case.q, o=out, page_table=case.page_table, kv_lengths=case.kv_lengths, **keys)
    if need := kernel.workspace_bytes(**tensors):
        tensors["workspace"] = torch.empty(need, dtype=torch.uint8, device=case.device)
    launch = kernel.bind(**tensors)

    def call():
        launch(torch.cuda.current_stream())
        return out

    return Arm(name, call, row.work()[0], (launch,))


def flashmla(case):
    row = case.row
    try:
        if library:
            torch.ops.load_library(library)
        else:
            import vllm._flashmla_C  # noqa: F401
    except (ImportError, OSError) as error:
        raise Cannot(f"{error}") from None
    if case.codes is not None:
        return sparse_flashmla(case)
    decode = torch.ops._flashmla_C.dense_decode_fwd
    given = case.q, case.keys, row.V, case.kv_lengths, case.page_table, row.QK**-0.5, True
    _, _, plan, parts = decode(*given, None, None, None)
    return Arm("flashmla", lambda: decode(*given, plan, parts, None)[0], row.work()[0], (plan, parts))


def sparse_flashmla(case):
    row = case.row
    heads = -(-row.heads // 64) * 64
    q = torch.nn.functional.pad(case.q, (0, 0, 0, heads - row.heads))
    topk = -(-row.kv_len // 64) * 64
    keys = torch.arange(topk, device=case.device)
    pages = case.page_table[:, (keys // row.page).clamp(max=case.page_table.shape[1] - 1)]
    places = (pages * row.page + keys % row.page)[:, None].repeat(1, row.q_len, 1)
    last = case.kv_lengths[:, None] - row.q_len + torch.arange(row.q_len, device=case.device)
    places = torch.where(keys > last[..., None], -1, places).to(torch.int32)
    decode = torch.ops._flashmla_C.sparse_decode_fwd
    given = q, case.codes, places, None, None

    def call(plan, parts):
        return decode(*given, plan, parts, None, None, None, row.V, row.QK**-0.5, None)
    _, _, plan, parts = call(None, None)
    return Arm("flashmla", lambda: call(plan, parts)[0][:, :, :row.heads], row.work()[0], (plan, parts, q, places))


def read_stream(case):
    """A kernel that only reads the keys."""
    from read_stream import ReadStream
    stream = ReadStream()
    data = case.keys if case.codes is None else case.codes
    work = data.numel() * data.element_size()
    amount = work if case.row.work()[1].startswith("GB/s") else case.row.work()[0]
    return Arm("read_stream", lambda: stream(data.data_ptr(), work, torch.cuda.current_stream().cuda_stream), amount, (stream,))


def peer(name, case, engine, fa3_path):
    if name == "bf16":
        return bf16_keys(engine, case)
    return {"flashmla": flashmla, "read_stream": read_stream}[name](case)


def shaped(row, arm, out):
    return out.reshape(row.batch, row.q_len, row.heads, row.V)


__all__ = ["COMPARED", "Case", "Truth", "kernelwright", "ours", "peer", "prepare", "shaped"]
