"""The functions of FlashAttention that people know, on kernels of Kernelwright.

    from kernelwright.flash_attn import flash_attn_func, flash_attn_varlen_func

Arguments have the names, the order and the meaning of flash-attn 2; docs/transformers.md lists what differs. There is no
backward and no dropout: both are refused. `import kernelwright` does not import this module, and so not torch.
"""
from __future__ import annotations

from typing import Any

import torch

from ._attention import attend, contiguous_heads, kernels, problem_of, refuse_gradients
from ._errors import ConfigError

use_engine = kernels.use


def _features(q, causal, window_size, softcap, alibi_slopes, dropout_p, s_aux):
    """The fields of a Problem, and the tensors, that both functions have."""
    if dropout_p:
        raise ConfigError(f"dropout_p: is {dropout_p}, and kernelwright has no dropout; give 0")
    left, right = (-1 if side is None or side < 0 else side for side in window_size)
    named = {}
    if alibi_slopes is not None:
        if not causal:
            raise ConfigError("alibi_slopes: go with causal=True alone; kernelwright's biases grow right of the diagonal")
        if softcap:
            raise ConfigError("alibi_slopes: do not go with a softcap; leave one of them out")
        if alibi_slopes.dim() != 1:
            raise ConfigError(f"alibi_slopes: has shape {list(alibi_slopes.shape)}; it is [{q.shape[-2]}], one for each head")
        named["alibi_slopes"] = alibi_slopes.to(torch.float32).contiguous()
    if s_aux is not None:
        named["sinks"] = s_aux.detach().to(torch.float32).contiguous()
    return dict(left=left, right=0 if causal else right, softcap=float(softcap or 0), alibi=alibi_slopes is not None,
                sinks=s_aux is not None), named


def _offsets(name, given):
    if given.dim() != 1:
        raise ConfigError(f"{name}: has shape {list(given.shape)}; it is [batch + 1]")
    return given.to(torch.int32)


def _returned(result, probabilities, lse, transpose):
    """What the caller asked for. flash-attn's third result, the dropped probabilities, is a debugging aid: None here."""
    if not (probabilities or lse):
        return result
    out, found = result[0], result[1].t() if transpose else result[1]
    return (out, found, None) if probabilities else (out, found)


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
                    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
                    softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False, *, return_lse: bool = False, s_aux: torch.Tensor | None = None) -> Any:
    """Attention of q [batch, q_len, q_heads, head_dim] with k and v [batch, kv_len, kv_heads, head_dim].

    Masks are aligned to the bottom right: the last query's diagonal key is the last key. window_size is (left, right) in
    keys beside the diagonal; -1 is unbounded. s_aux are sinks: a logit for each query head, which joins each softmax.

    Returns out; with return_lse (out, lse [batch, q_heads, q_len]), and with return_attn_probs (out, lse, None). Kernels
    repeat their bits in any case, so deterministic changes nothing.
    """
    refuse_gradients(q=q, k=k, v=v)
    fields, named = _features(q, causal, window_size, softcap, alibi_slopes, dropout_p, s_aux)
    wants_lse = bool(return_lse or return_attn_probs)
    q, k, v = contiguous_heads(q), contiguous_heads(k), contiguous_heads(v)
    problem = problem_of(q, k, v, **fields, one_query=q.shape[1] == 1, lse=wants_lse)
    return _returned(attend(problem, q, k, v, scale=softmax_scale, **named), return_attn_probs, return_lse, False)


def flash_attn_varlen_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor,
                           cu_seqlens_k: torch.Tensor, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                           softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                           alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: torch.Tensor | None = None, *,
                           return_lse: bool = False, s_aux: torch.Tensor | None = None) -> Any:
    """The same for sequences that lie one behind the other: q [q_tokens, q_heads, head_dim], k and v [kv_tokens, kv_heads,
    head_dim]. Sequence i has the rows cu_seqlens[i] to cu_seqlens[i + 1].

    With block_table [batch, pages], k and v are pages [pages, page_size, kv_heads, head_dim] of a cache, and cu_seqlens_k
    only counts the keys of each sequence. max_seqlen_q and max_seqlen_k are bounds: a looser one costs time alone. The
    LSE is [q_heads, q_tokens].
    """
    refuse_gradients(q=q, k=k, v=v)
    fields, named = _features(q, causal, window_size, softcap, alibi_slopes, dropout_p, s_aux)
    wants_lse, same = bool(return_lse or return_attn_probs), cu_seqlens_k is cu_seqlens_q
    q, k, v = contiguous_heads(q), contiguous_heads(k), contiguous_heads(v)
    named["q_offsets"] = _offsets("cu_seqlens_q", cu_seqlens_q)
    kv_offsets = named["q_offsets"] if same else _offsets("cu_seqlens_k", cu_seqlens_k)
    if block_table is not None:
        fields |= dict(kv_kind="paged", page_size=k.shape[1])
        named |= dict(page_table=block_table.to(torch.int32), kv_lengths=kv_offsets.diff())
    else:
        fields |= dict(kv_kind="ragged", kv_offsets=not same)
        named["kv_offsets"] = kv_offsets
    problem = problem_of(q, k, v, **fields, ragged=True, lse=wants_lse, one_query=int(max_seqlen_q) == 1)
    result = attend(problem, q, k, v, scale=softmax_scale, q_len=int(max_seqlen_q), kv_len=int(max_seqlen_k), **named)
    return _returned(result, return_attn_probs, return_lse, True)
