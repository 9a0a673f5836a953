"""A case whose queries and keys our kv_write has transformed: a Hadamard matrix with random signs, then e4m3 with
scales. Scores stay as they were, and outliers are spread ahead of quantisation."""
import copy

import torch

from .arm import Cannot
from .inputs import scale_of


def transformed(engine, case):
    row, given = case.row, case.given
    if row.q_dtype != "e4m3" or row.page or row.q_len != row.kv_len or row.chunks:
        raise Cannot("the transform is for e4m3 queries beside as many keys, without pages")
    problem = {"head_dim": {"qk": row.head_dim, "v": row.v_head_dim}, "heads": {"q": row.heads, "kv": row.kv_heads},
               "kv_layout": {"kind": "ragged"}, "hadamard": True, "hadamard_signs": True}
    tokens = len(given.q)
    k, v = (x.flatten(0, 1) for x in (given.k, given.v))
    slots = torch.arange(tokens, device=case.device)

    def write(dtype, q_out, k_cache, v_cache, **scales):
        kernel = engine.prepare({"kind": "kv_write", "name": "peer", "problem": problem | {
            "dtype": {"in": "bf16", "q": dtype, "kv": dtype},
            "scales": dict.fromkeys(("q", "k", "v"), row.scales if scales else "none")}})
        kernel.launch(q=given.q, k=k, v=v, q_out=q_out, k_cache=k_cache.flatten(0, 1), v_cache=v_cache.flatten(0, 1),
                      slot_mapping=slots, stream=torch.cuda.current_stream(), **scales)

    # First in bf16, for the largest magnitudes, of which the scales are made.
    plain_q = torch.empty_like(given.q)
    _, plain_k, plain_v = given.cache(torch.bfloat16)
    write("bf16", plain_q, plain_k, plain_v)
    own, per_head = copy.copy(case), row.scales == "per_head"
    own.q = torch.empty_like(case.q)
    own.kv, own.k, own.v = case.cache(torch.float8_e4m3fn)
    own.q_scale, own.k_scale = (scale_of(x, row.kv_heads, per_head) for x in (plain_q, plain_k))
    q_scale = own.q_scale.repeat_interleave(row.heads // row.kv_heads) if per_head else own.q_scale
    write("e4m3", own.q, own.k, own.v, q_scale=q_scale, k_scale=own.k_scale, v_scale=own.v_scale)
    return own
