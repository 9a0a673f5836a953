"""Latent attention: keys of 576 elements, whose first 512 are the values. Arms: ours; FlashMLA from vLLM's wheel, with its
plan of the batch made beforehand; a read-only stream over the same keys."""
import math

import torch

from .arm import Arm, Cannot
from .arms import kernelwright
from .reference import relative_rmse

COMPARED = ("flashmla", "former")
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
        for part in self.keys.split(4096):
            part.copy_(torch.randn(part.shape, device=device))
        self.page_table = torch.zeros(row.batch, max(counts), device=device, dtype=torch.int32)
        for table, drawn in zip(self.page_table, torch.randperm(pages, device=device).to(torch.int32).split(counts)):
            table[:len(drawn)] = drawn
        self.kv_lengths = torch.tensor(lengths, device=device, dtype=torch.int32)


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
    row = case.row
    out = torch.full((*case.q.shape[:3], row.V), math.nan, dtype=torch.bfloat16, device=case.device)
    tensors = dict(q=case.q, k=case.keys, v=case.keys, o=out, page_table=case.page_table, kv_lengths=case.kv_lengths)
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
    decode = torch.ops._flashmla_C.dense_decode_fwd
    given = case.q, case.keys, row.V, case.kv_lengths, case.page_table, row.QK**-0.5, True
    _, _, plan, parts = decode(*given, None, None, None)
    return Arm("flashmla", lambda: decode(*given, plan, parts, None)[0], row.work()[0], (plan, parts))


def read_stream(case):
    """A kernel that only reads the keys."""
    from read_stream import ReadStream
    stream = ReadStream()
    data = case.keys
    work = data.numel() * data.element_size()
    amount = work if case.row.work()[1].startswith("GB/s") else case.row.work()[0]
    return Arm("read_stream", lambda: stream(data.data_ptr(), work, torch.cuda.current_stream().cuda_stream), amount, (stream,))


def peer(name, case, engine, fa3_path):
    return {"flashmla": flashmla, "read_stream": read_stream}[name](case)


def shaped(row, arm, out):
    return out.reshape(row.batch, row.q_len, row.heads, row.V)


__all__ = ["COMPARED", "Case", "Truth", "kernelwright", "ours", "peer", "prepare", "shaped"]
