"""What is timed: our kernels, PyTorch's backends, FlashAttention-3 from a shared object, a copy, a read-only stream.

Calling an arm queues its work on the current stream and returns the output. An arm's rate counts its `work`.
"""
import copy as copy_module
import ctypes
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kernelwright

from .reference import Truth

BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
COPIED_BYTES = 2 << 30


class Case:
    """A row's tensors, random normal. k and v are [batch, kv_len, kv_heads, head_dim], or pages of one pool in random order."""

    def __init__(self, row, device="cuda"):
        self.row, self.device = row, device

        def normal(*shape):
            return torch.randn(*shape, device=device, dtype=torch.bfloat16)

        self.q_lens = row.q_lens()
        tokens = sum(self.q_lens)
        self.q = normal(tokens, row.heads, row.head_dim)
        if row.q_dtype == "e4m3":
            self.q = self.q.to(torch.float8_e4m3fn)
        # One allocation for K and V, so that a stream over the same bytes reads one range.
        if row.page:
            pages = row.batch * row.kv_len // row.page
            self.kv = normal(2, pages, row.page, row.kv_heads, row.head_dim)
            self.page_table = torch.randperm(pages, device=device).to(torch.int32).view(row.batch, -1)
        else:
            self.kv = normal(2, row.batch, row.kv_len, row.kv_heads, row.head_dim)
            self.page_table = None
        # Of fp8: the elements, and what each is to be multiplied by.
        self.k_scale = self.v_scale = None
        if row.kv_dtype == "e4m3":
            self.k_scale, self.v_scale = (torch.full((1,), scale, device=device) for scale in (0.5, 0.25))
            for part, scale in zip(self.kv, (self.k_scale, self.v_scale)):
                part.div_(scale)
            self.kv = self.kv.to(torch.float8_e4m3fn)
        self.k, self.v = self.kv[0], self.kv[1]
        self.kv_lengths = torch.full((row.batch,), row.kv_len, device=device, dtype=torch.int32) if row.page else None
        self.sinks = torch.randn(row.heads, device=device) if row.sinks else None

    def padded_q(self):
        return self.q.view(self.row.batch, self.row.q_len, self.row.heads, self.row.head_dim)

    def sequences(self):
        """q [n, H, D], k and v [S, Hk, D] of each sequence."""
        begin = 0
        for i, n in enumerate(self.q_lens):
            k, v = self.k, self.v
            if self.page_table is not None:
                k, v = (x[self.page_table[i].long()].flatten(0, 1) for x in (k, v))
            else:
                k, v = k[i], v[i]
            if self.k_scale is not None:
                k, v = k.float() * self.k_scale, v.float() * self.v_scale
            yield self.q[begin:begin + n], k, v
            begin += n

    def flat(self, out):
        return out.reshape(-1, self.row.heads, self.row.head_dim)


class Arm:
    def __init__(self, name, call, work, keep=()):
        self.name, self.call, self.work, self.keep = name, call, work, keep


def config(row, schedule, part="all"):
    return {"name": "peer", "problem": row.problem(part), "schedule": schedule}


def _bound(kernel, tensors):
    """The Launch of `tensors`, with the workspace that it needs."""
    need = kernel.workspace_bytes(**tensors)
    if need:
        tensors["workspace"] = torch.empty(need, dtype=torch.uint8, device=tensors["q"].device)
    return kernel.bind(**tensors)


def ours(name, kernel, case):
    row, out = case.row, torch.full_like(case.q, math.nan, dtype=torch.bfloat16)
    if row.chunks:
        offsets = [0]
        for n in case.q_lens:
            offsets.append(offsets[-1] + n)
        tensors = dict(q=case.q, o=out, q_len=max(case.q_lens),
                       q_offsets=torch.tensor(offsets, dtype=torch.int32, device=case.device))
    else:
        tensors = dict(q=case.padded_q(), o=out.view_as(case.padded_q()))
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
        tensors |= dict(k_scale=case.k_scale, v_scale=case.v_scale)
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
    """Our kernel for bf16 queries, keys and values, which are those of the row."""
    row = dataclasses.replace(case.row, kv_dtype="bf16", q_dtype="bf16")
    plain = copy_module.copy(case)
    plain.row, plain.k_scale, plain.v_scale, plain.q = row, None, None, case.q.to(torch.bfloat16)
    plain.k, plain.v = ((part.float() * scale).to(torch.bfloat16)
                        for part, scale in ((case.k, case.k_scale), (case.v, case.v_scale)))
    arm = ours("bf16", engine.prepare(config(row, "auto")), plain)
    arm.keep += (plain,)
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


def fa3(path, case):
    """FlashAttention-3's forward behind fa3_fwd(q, k, v, o, lse, B, Sq, Sk, H, Hk, D, causal, fp8, scale, semaphore,
    SMs, stream), which returns 0 on success."""
    lib = ctypes.CDLL(path)
    lib.fa3_fwd.argtypes = ([ctypes.c_void_p] * 5 + [ctypes.c_int] * 8
                            + [ctypes.c_float, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p])
    row, q = case.row, case.padded_q()
    out, lse = torch.empty_like(q), torch.empty(row.batch, row.heads, row.q_len, dtype=torch.float32, device=case.device)
    semaphore = torch.zeros(4, dtype=torch.int32, device=case.device)
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def call():
        status = lib.fa3_fwd(q.data_ptr(), case.k.data_ptr(), case.v.data_ptr(), out.data_ptr(), lse.data_ptr(), row.batch,
                             row.q_len, row.kv_len, row.heads, row.kv_heads, row.head_dim, int(row.causal), 0,
                             1 / math.sqrt(row.head_dim), semaphore.data_ptr(), sms, torch.cuda.current_stream().cuda_stream)
        if status != 0:
            raise RuntimeError(f"fa3_fwd says {status}")
        return out

    return Arm("fa3", call, row.work()[0], (lib, lse, semaphore))


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
            "read_stream": lambda: read_stream(case), "fa3": lambda: fa3(fa3_path, case)}
    return made[name]() if name in made else sdpa(name, case)


def shaped(row, out):
    """An output as [tokens, heads, head_dim]."""
    return out.reshape(-1, row.heads, row.head_dim)


COMPARED = ("cudnn", "fa2", "fa3", "separate", "bf16")  # peers whose output is attention
__all__ = ["Arm", "BACKENDS", "COMPARED", "Case", "Truth", "config", "kernelwright", "ours", "peer", "shaped"]
