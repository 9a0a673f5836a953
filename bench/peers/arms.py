"""What is timed: our kernels, PyTorch's backends, a copy, a read-only stream. fa3.py, cudnn_fp8.py, flashinfer_arm.py and
hadamard.py have more.

Calling an arm queues its work on the current stream and returns the output. An arm's rate counts its `work`.
"""
import copy as copy_module
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kernelwright

from . import cudnn_fp8, fa3, flashinfer_arm
from .arm import Arm
from .inputs import draw, quantise, scale_of, values
from .reference import Truth

BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
COPIED_BYTES = 2 << 30


class Case:
    """A row's tensors, random (inputs.py). k and v are [batch, kv_len, kv_heads, head_dim], or pages of one pool in random
    order. Elements of e4m3 have scales, [1] or [kv_heads]: q_scale, k_scale, v_scale. `given` is the case before them."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device
        self.q_lens = row.q_lens()
        self.q = draw(inputs, (sum(self.q_lens), row.heads, row.head_dim), device)
        self.page_table = self.kv_lengths = self.q_scale = self.k_scale = self.v_scale = None
        self.kv, self.k, self.v = self.cache(torch.bfloat16)
        for part in (self.k, self.v):
            part.copy_(draw(inputs, part.shape, device))
        if row.page:
            self.page_table = torch.randperm(len(self.k), device=device).to(torch.int32).view(row.batch, -1)
            self.kv_lengths = torch.full((row.batch,), row.kv_len, device=device, dtype=torch.int32)
        self.sinks = torch.randn(row.heads, device=device) if row.sinks else None
        self.given = self
        if row.kv_dtype == "e4m3":
            self.given = given = copy_module.copy(self)
            given.row, given.given = dataclasses.replace(row, kv_dtype="bf16", q_dtype="bf16"), given
            self.quantise_keys()
        if row.q_dtype == "e4m3":
            self.quantise_queries()

    def cache(self, dtype):
        """All elements of k and v, and the two. One allocation, so that a stream over the same bytes reads one range."""
        row = self.row
        rows = (row.batch * row.kv_len // row.page, row.page) if row.page else (row.batch, row.kv_len)
        shapes = [(*rows, row.kv_heads, dim) for dim in (row.head_dim, row.v_head_dim)]
        sizes = [math.prod(shape) for shape in shapes]
        flat = torch.empty(sum(sizes), dtype=dtype, device=self.device)
        return flat, *(part.view(shape) for part, shape in zip(flat.split(sizes), shapes))

    def quantise_keys(self):
        k, v, per_head = self.k, self.v, self.row.scales == "per_head"
        self.kv, self.k, self.v = self.cache(torch.float8_e4m3fn)
        self.k_scale, self.v_scale = (scale_of(x, self.row.kv_heads, per_head) for x in (k, v))
        for target, x, scale in ((self.k, k, self.k_scale), (self.v, v, self.v_scale)):
            target.copy_(quantise(x, scale))

    def quantise_queries(self):
        self.q_scale = scale_of(self.q, self.row.kv_heads, self.row.scales == "per_head")
        self.q = quantise(self.q, self.q_scale)

    def padded_q(self):
        return self.q.view(self.row.batch, self.row.q_len, self.row.heads, self.row.head_dim)

    def sequences(self):
        """q [n, H, D], k and v [S, Hk, D] of each sequence."""
        begin = 0
        all_q = self.q if self.q_scale is None else values(self.q, self.q_scale)
        for i, n in enumerate(self.q_lens):
            k, v = self.k, self.v
            if self.page_table is not None:
                k, v = (x[self.page_table[i].long()].flatten(0, 1) for x in (k, v))
            else:
                k, v = k[i], v[i]
            if self.k_scale is not None:
                k, v = values(k, self.k_scale), values(v, self.v_scale)
            yield all_q[begin:begin + n], k, v
            begin += n


def config(row, schedule, part="all"):
    return {"name": "peer", "problem": row.problem(part), "schedule": schedule}


def prepare(engine, row, schedule):
    return engine.prepare(config(row, schedule), background=True)


def _bound(kernel, tensors):
    """The Launch of `tensors`, with the workspace that it needs."""
    need = kernel.workspace_bytes(**tensors)
    if need:
        tensors["workspace"] = torch.empty(need, dtype=torch.uint8, device=tensors["q"].device)
    return kernel.bind(**tensors)


def ours(name, kernel, case):
    row = case.row
    out = torch.full((*case.q.shape[:2], row.v_head_dim), math.nan, dtype=torch.bfloat16, device=case.device)
    if row.chunks:
        offsets = [0]
        for n in case.q_lens:
            offsets.append(offsets[-1] + n)
        tensors = dict(q=case.q, o=out, q_len=max(case.q_lens),
                       q_offsets=torch.tensor(offsets, dtype=torch.int32, device=case.device))
    else:
        tensors = dict(q=case.padded_q(), o=out.view(*case.padded_q().shape[:3], row.v_head_dim))
    launch = _bound(kernel, tensors | _keys(case, 0, row.batch))

    def call():
        launch(torch.cuda.current_stream())
        return out

    return Arm(name, call, row.work()[0], (launch,))


def _keys(case, first, last):
    """The K/V arguments of sequences first to last."""
    if case.page_table is None:
        tensors = dict(k=case.k, v=case.v)
    else:
        tensors = dict(k=case.k, v=case.v, page_table=case.page_table[first:last], kv_lengths=case.kv_lengths[first:last],
                       kv_len=case.row.kv_len)
    if case.k_scale is not None:
        # A score has one factor for its query and its key.
        k_scale = case.k_scale if case.q_scale is None else case.q_scale * case.k_scale
        tensors |= dict(k_scale=k_scale, v_scale=case.v_scale)
    return tensors | ({} if case.sinks is None else {"sinks": case.sinks})


def separate(engine, case):
    """A mixed row as two of our launches, one after the other: the chunks, then the decodes."""
    row, out = case.row, torch.full_like(case.q, math.nan)
    tokens = row.chunks * row.chunk_len
    offsets = torch.arange(0, tokens + 1, row.chunk_len, dtype=torch.int32, device=case.device)
    chunks = _bound(engine.prepare(config(row, "auto", "chunks")),
                    dict(q=case.q[:tokens], o=out[:tokens], q_offsets=offsets, q_len=row.chunk_len) | _keys(case, 0, row.chunks))
    decodes = _bound(engine.prepare(config(row, "auto", "decodes")),
                     dict(q=case.q[tokens:].unsqueeze(1), o=out[tokens:].unsqueeze(1)) | _keys(case, row.chunks, row.batch))

    def call():
        for launch in (chunks, decodes):
            launch(torch.cuda.current_stream())
        return out

    return Arm("separate", call, row.work()[0], (chunks, decodes))


def bf16(engine, case):
    """Our kernel for bf16 queries, keys and values: those of the row ahead of quantisation."""
    arm = ours("bf16", engine.prepare(config(case.given.row, "auto")), case.given)
    arm.case = case.given
    return arm


def sdpa(peer, case):
    row = case.row
    # [batch, heads, len, d] views of [batch, len, heads, d] tensors, the layout of a server.
    q, k, v = (x.transpose(1, 2) for x in (case.padded_q(), case.k, case.v))

    def call():
        with sdpa_kernel(BACKENDS[peer]):
            # One query at the end of its keys: its causal mask hides no key.
            out = F.scaled_dot_product_attention(q, k, v, is_causal=row.causal and row.q_len > 1,
                                                 enable_gqa=row.heads != row.kv_heads)
        return out.transpose(1, 2)

    return Arm(peer, call, row.work()[0])


def copy(case):
    """A large device copy, with reads and writes counted: bandwidth without start or end effects."""
    source, target = (torch.empty(COPIED_BYTES, dtype=torch.int8, device=case.device) for _ in range(2))
    source.random_(-128, 127)
    return Arm("copy", lambda: target.copy_(source), 2 * COPIED_BYTES, (source, target))


def read_stream(case):
    """A kernel that only reads, over the same bytes as the row's K and V."""
    from read_stream import ReadStream
    stream = ReadStream()
    data = case.kv.flatten()

    def call():
        stream(data.data_ptr(), data.numel() * data.element_size(), torch.cuda.current_stream().cuda_stream)

    return Arm("read_stream", call, data.numel() * data.element_size(), (stream, data))


def peer(name, case, engine, fa3_path):
    made = {"separate": lambda: separate(engine, case), "bf16": lambda: bf16(engine, case), "copy": lambda: copy(case),
            "read_stream": lambda: read_stream(case), "fa3": lambda: fa3.arm(fa3_path, case),
            "flashinfer": lambda: flashinfer_arm.arm(case)}
    if name == "cudnn" and case.row.q_dtype == "e4m3":
        return cudnn_fp8.arm(case)
    return made[name]() if name in made else sdpa(name, case)


def shaped(row, arm, out):
    """The values of an output, [tokens, heads, elements of a value head]."""
    out = out.reshape(-1, row.heads, row.v_head_dim)
    return out if arm.scale is None else values(out, arm.scale)


COMPARED = ("cudnn", "fa2", "fa3", "flashinfer", "separate", "bf16")  # peers whose output is attention
__all__ = ["BACKENDS", "COMPARED", "Case", "Truth", "config", "kernelwright", "ours", "peer", "prepare", "shaped"]
