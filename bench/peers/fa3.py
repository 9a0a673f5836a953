"""FlashAttention-3 from a shared object, in two forms (rows.fa3_form): a plain function fa3_fwd(), or the operators of
vLLM's wheel, vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so.
"""
import copy
import ctypes
import dataclasses
import itertools
import math

import torch

from . import rows
from .arm import Arm

PAGE = 64  # of a cache that lies without pages: the wheel splits the keys of pages alone


def arm(path, case):
    return (wheel if rows.fa3_form(path) == rows.WHEEL else function)(path, case)


def function(path, case):
    """fa3_fwd(q, k, v, o, lse, B, Sq, Sk, H, Hk, D, causal, fp8, scale, semaphore, SMs, stream), which returns 0 on
    success. It has no scales: those of q and k join the softmax's, and that of v is the output's."""
    lib = ctypes.CDLL(path)
    lib.fa3_fwd.argtypes = ([ctypes.c_void_p] * 5 + [ctypes.c_int] * 8
                            + [ctypes.c_float, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p])
    row, q = case.row, case.padded_q()
    fp8 = row.q_dtype == "e4m3"
    scale = 1 / math.sqrt(row.head_dim) * ((case.q_scale * case.k_scale).item() if fp8 else 1)
    out, lse = torch.empty_like(q, dtype=torch.bfloat16), torch.empty(row.batch, row.heads, row.q_len, device=case.device)
    semaphore = torch.zeros(4, dtype=torch.int32, device=case.device)
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def call():
        status = lib.fa3_fwd(q.data_ptr(), case.k.data_ptr(), case.v.data_ptr(), out.data_ptr(), lse.data_ptr(), row.batch,
                             row.q_len, row.kv_len, row.heads, row.kv_heads, row.head_dim, int(row.causal), int(fp8), scale,
                             semaphore.data_ptr(), sms, torch.cuda.current_stream().cuda_stream)
        if status != 0:
            raise RuntimeError(f"fa3_fwd says {status}")
        return out

    return Arm("fa3", call, row.work()[0], (lib, lse, semaphore), scale=case.v_scale)


def with_fp8_queries(case):
    """The case with queries of e4m3: the wheel takes no others over e4m3 keys."""
    narrow = copy.copy(case)
    narrow.row = dataclasses.replace(case.row, q_dtype="e4m3")
    narrow.quantise_queries()
    return narrow


def offsets(lengths, device):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


def wheel(path, case):
    """torch.ops._vllm_fa3_C.fwd: ragged queries, over pages in a decode or where the row has them."""
    torch.ops.load_library(path)
    own = with_fp8_queries(case) if case.row.kv_dtype == "e4m3" and case.row.q_dtype == "bf16" else None
    case = own or case
    row, k, v, table, used, k_offsets, plan = case.row, case.k, case.v, case.page_table, case.kv_lengths, None, None
    q_offsets, q_len = offsets(case.q_lens, case.device), max(case.q_lens)
    window = (row.window, 0) if row.window >= 0 else (-1, -1)
    causal = row.window >= 0 or (row.causal and not row.is_decode)
    sinks = None if case.sinks is None else case.sinks.to(torch.bfloat16)
    scales = [None if scale is None else scale.expand(row.batch, row.kv_heads).contiguous()
              for scale in (case.q_scale, case.k_scale, case.v_scale)]
    if row.is_decode and table is None:
        k, v = (x.reshape(-1, PAGE, row.kv_heads, x.shape[-1]) for x in (k, v))
        used = torch.full((row.batch,), row.kv_len, dtype=torch.int32, device=case.device)
        table = torch.arange(len(k), dtype=torch.int32, device=case.device).view(row.batch, -1)
    if table is None:
        k, v, k_offsets = k.flatten(0, 1), v.flatten(0, 1), offsets([row.kv_len] * row.batch, case.device)
    else:  # once for all layers, ahead of the launch, as a server does
        plan = torch.ops._vllm_fa3_C.get_scheduler_metadata(
            row.batch, q_len, row.kv_len, row.heads, row.kv_heads, row.head_dim, row.v_head_dim, case.q.dtype, used, q_offsets,
            None, None, None, None, k.shape[1], 0, causal, *window, False, 0, None, 0)

    def call():
        return torch.ops._vllm_fa3_C.fwd(
            case.q, k, v, None, None, None, None, q_offsets, k_offsets, None, None, used, q_len, row.kv_len, table, None, None,
            None, None, None, *scales, 1 / math.sqrt(row.head_dim), causal, *window, 0.0, True, plan, 0, None, 0, sinks, 1, 0,
            None)[0]

    return Arm("fa3", call, row.work()[0], (), case=own)
