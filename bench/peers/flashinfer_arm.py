"""FlashInfer's attention over e4m3 keys and values, through its Python module: PyPI's flashinfer-python. It compiles its
kernels on the machine, with nvcc, at their first use.

Factors of keys join the softmax's, and that of values is the output's (Arm.scale), so that no call multiplies by them.
"""
import math

import torch

from .arm import Arm, Cannot
from .fa3 import offsets

WORKSPACE_BYTES = 512 << 20
TENSOR_CORE_GROUP = 4  # query heads of a KV head from which FlashInfer advises its tensor core decode


def arm(case):
    try:
        from flashinfer import decode, prefill
    except ImportError as error:
        raise Cannot(f"{error}; it comes with PyPI's flashinfer-python") from error
    row = case.row
    if row.v_head_dim != row.head_dim:
        raise Cannot("takes e4m3 keys and values of one head_dim")
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=case.device)
    scale = 1 / math.sqrt(row.head_dim)
    for factor in (case.q_scale, case.k_scale):
        if factor is not None:
            scale *= factor.item()
    dtypes = dict(q_data_type=case.q.dtype, kv_data_type=case.k.dtype, o_data_type=torch.bfloat16, sm_scale=scale)
    out = torch.full((*case.q.shape[:2], row.v_head_dim), math.nan, dtype=torch.bfloat16, device=case.device)
    if row.is_decode:
        wrapper = decode.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=row.heads // row.kv_heads >= TENSOR_CORE_GROUP)
        pages = row.kv_len // row.page
        wrapper.plan(offsets([pages] * row.batch, case.device), case.page_table.flatten(),
                     torch.full((row.batch,), row.page, dtype=torch.int32, device=case.device),
                     row.heads, row.kv_heads, row.head_dim, row.page, **dtypes)
        keys = (case.k, case.v),
    else:
        wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
        wrapper.plan(offsets(case.q_lens, case.device), offsets([row.kv_len] * row.batch, case.device),
                     row.heads, row.kv_heads, row.head_dim, causal=row.causal, **dtypes)
        keys = case.k.flatten(0, 1), case.v.flatten(0, 1)

    # Under fp8 queries its kernel for Hopper wants factors of q, k and v, by position.
    factors = (1.0, 1.0, 1.0) if row.q_dtype == "e4m3" else ()

    def call():
        return wrapper.run(case.q, *keys, *factors, out=out)

    return Arm("flashinfer", call, row.work()[0], (wrapper, workspace), scale=case.v_scale)
