"""The functions of FlashAttention that people know, on kernels of Kernelwright.

    from kernelwright.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

Arguments have the names, the order and the meaning of flash-attn 2; docs/transformers.md lists what differs. There is no
backward and no dropout: both are refused. `import kernelwright` does not import this module, and so not torch.
"""
from __future__ import annotations

import math
from typing import Any

import torch

from ._append import FP8, WriteProblem, append, cache_dtype, rope_rows, rotated
from ._attention import attend, contiguous_heads, dtype_of, kernels, problem_of, refuse_gradients
from ._errors import ConfigError

FP8_WORDS = tuple(FP8.values())
SMALLEST_PAGE, LARGEST_PAGE = 16, 256  # of sequences that a page table names

use_engine = kernels.use


def _features(q, causal, window_size, softcap, alibi_slopes, dropout_p, s_aux):
    """The fields of a Problem, and the tensors, that all functions have."""
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


def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor | None = None,
                            v: torch.Tensor | None = None, rotary_cos: torch.Tensor | None = None,
                            rotary_sin: torch.Tensor | None = None, cache_seqlens: int | torch.Tensor | None = None,
                            cache_batch_idx: torch.Tensor | None = None, cache_leftpad: torch.Tensor | None = None,
                            block_table: torch.Tensor | None = None, softmax_scale: float | None = None,
                            causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: torch.Tensor | None = None, num_splits: int = 0,
                            return_softmax_lse: bool = False, *, s_aux: torch.Tensor | None = None,
                            k_descale: torch.Tensor | None = None, v_descale: torch.Tensor | None = None) -> Any:
    """Attention of q [batch, q_len, q_heads, head_dim] with a cache. k and v [batch, new, kv_heads, head_dim], if given, are
    first appended to it, behind the cache_seqlens keys that each sequence has.

    k_cache and v_cache are [sequences, keys, kv_heads, head_dim], of which row i has sequence i, or cache_batch_idx[i]. With
    block_table [batch, pages] they are pages [pages, page_size, kv_heads, head_dim] of any size. cache_seqlens (int, or
    [batch]) counts the keys ahead of k; None is all keys of the cache. cache_leftpad [batch] is the first key of each.

    rotary_cos and rotary_sin [positions, pairs] turn k at its place in the cache, and q too: from cache_seqlens on if the
    attention is causal or has a window, else all of q at cache_seqlens. A key behind the cache's end is not written.

    A cache of torch.float8_e4m3fn or float8_e5m2 has k_descale and v_descale, f32 [1] or [kv_heads]: what is stored times
    that is the value. num_splits changes nothing here: the planner chooses.

    Returns out, or (out, lse [batch, q_heads, q_len]). k_cache and v_cache are changed in place.
    """
    refuse_gradients(q=q, k_cache=k_cache, v_cache=v_cache, **({} if k is None or v is None else {"k": k, "v": v}))
    fields, named = _features(q, causal, window_size, softcap, alibi_slopes, 0, s_aux)
    cache = _Cache(q, k_cache, v_cache, cache_batch_idx, block_table)
    fields |= cache.scales(k_descale, v_descale)
    _check_append(q, k, v, rotary_cos, rotary_sin, cache_seqlens, cache.keys)
    new = 0 if k is None else k.shape[1]
    lengths = cache.lengths(cache_seqlens, new)
    q = contiguous_heads(q)
    if k is not None:
        in_order = causal or fields["left"] >= 0 or fields["right"] >= 0
        table = None if rotary_cos is None else rope_rows(rotary_cos, rotary_sin)
        q = cache.append(q, contiguous_heads(k), contiguous_heads(v), lengths, table, rotary_interleaved, in_order)
    if lengths is not None:
        named["kv_lengths"] = lengths + new if new else lengths
    if cache_leftpad is not None:
        named["kv_starts"] = _per_row("cache_leftpad", cache_leftpad, q)
    k_keys, v_keys, more, page_table = cache.as_attention_reads()
    problem = problem_of(q, k_keys, v_keys, **fields, **more, lse=bool(return_softmax_lse), one_query=q.shape[1] == 1,
                         starts=cache_leftpad is not None)
    return attend(problem, q, k_keys, v_keys, scale=softmax_scale, page_table=page_table, **cache.descales, **named)


def _per_row(name, given, q):
    if given.shape != q.shape[:1]:
        raise ConfigError(f"{name}: has shape {list(given.shape)}; it is [{q.shape[0]}], one for each row of q")
    return given.to(device=q.device, dtype=torch.int32).contiguous()


def _check_append(q, k, v, cos, sin, lengths, keys):
    """What belongs together, and what fits the cache by numbers of the host."""
    if (k is None) != (v is None):
        raise ConfigError(f"{'k' if k is None else 'v'}: is missing; keys and values are appended together")
    if (cos is None) != (sin is None):
        raise ConfigError(f"rotary_{'cos' if cos is None else 'sin'}: is missing; a rotation has both")
    if cos is not None and k is None:
        raise ConfigError("rotary_cos: turns q and k where k is appended; give k and v, or turn q ahead of the call")
    if cos is not None and len(cos) < keys:
        raise ConfigError(f"rotary_cos: has {len(cos)} positions, and a sequence of the cache has {keys} keys")
    if k is None:
        return
    if lengths is None:
        raise ConfigError("cache_seqlens: is missing; it says where k and v are appended")
    if k.dim() != 4 or len(k) != len(q):
        raise ConfigError(f"k: has shape {list(k.shape)}; it is [{len(q)}, new, kv_heads, head_dim], with q's rows")
    if isinstance(lengths, int) and lengths + k.shape[1] > keys:
        raise ConfigError(f"cache_seqlens: {lengths} keys and {k.shape[1]} new ones do not fit a sequence of {keys}")


class _Cache:
    """The cache of one call: rows of q have sequences of it, or pages of a table."""

    def __init__(self, q, k_cache, v_cache, rows, table):
        self.q, self.caches, self.descales = q, (k_cache, v_cache), {}
        if q.dim() != 4 or k_cache.dim() != 4:
            raise ConfigError(f"q, k_cache: have {q.dim()} and {k_cache.dim()} dimensions; both have 4")
        if rows is not None and table is not None:
            raise ConfigError("cache_batch_idx: does not go with block_table, whose rows are those of q")
        self.rows = None if rows is None else _per_row("cache_batch_idx", rows, q)
        self.table = None if table is None else table.to(torch.int32)
        self.keys = k_cache.shape[1] * (1 if table is None else table.shape[-1])
        if rows is None and table is None and len(k_cache) < len(q):
            raise ConfigError(f"k_cache: has {len(k_cache)} sequences for {len(q)} rows of q")
        self.q_dtype = dtype_of(q)
        self.dtype = cache_dtype("k_cache", k_cache, q.dtype)

    def scales(self, k_descale, v_descale):
        """The fields of a Problem of the cache's dtype."""
        given = [scale for scale in (k_descale, v_descale) if scale is not None]
        if not given:
            return {"kv_dtype": self.dtype} if self.dtype in FP8_WORDS else {}
        heads = self.caches[0].shape[2]
        if len(given) == 1 or any(scale.shape != given[0].shape or scale.shape not in ((1,), (heads,)) for scale in given):
            raise ConfigError(f"k_descale, v_descale: are both of shape [1] or [{heads}], one for each key/value head")
        if self.dtype not in FP8_WORDS:
            raise ConfigError(f"k_descale: is given, and k_cache is {self.caches[0].dtype}, which has no scales")
        self.descales = {"k_scale": k_descale.float().contiguous(), "v_scale": v_descale.float().contiguous()}
        return {"kv_dtype": self.dtype, "scales": "per_tensor" if len(k_descale) == 1 else "per_head"}

    def lengths(self, given, new):
        """The keys of each row ahead of new ones: i32 [batch], or None for all."""
        if given is None:
            return None
        if isinstance(given, int):
            return torch.full((len(self.q),), given, dtype=torch.int32, device=self.q.device)
        return _per_row("cache_seqlens", given, self.q)

    def append(self, q, k, v, lengths, table, interleaved, in_order):
        """Appends k and v. Returns the queries, turned if there is a table."""
        (batch, n), new, device = q.shape[:2], k.shape[1], q.device
        positions = lengths[:, None] + torch.arange(new, dtype=torch.int32, device=device)
        fuses = table is not None and n == new and (in_order or n == 1)
        rows = torch.arange(batch, dtype=torch.int32, device=device) if self.rows is None else self.rows
        problem = WriteProblem(
            self.q_dtype, self.dtype, q.shape[2] if fuses else 0, k.shape[2], k.shape[3], v.shape[3],
            *(("padded", 0) if self.table is None else ("paged", self.caches[0].shape[1])),
            *(("none", 0) if table is None else ("gptj" if interleaved else "neox", table.shape[1])),
            scales=("per_tensor" if len(self.descales["k_scale"]) == 1 else "per_head") if self.descales else "none")
        turned = append(problem, q.reshape(-1, *q.shape[2:]), k.reshape(-1, *k.shape[2:]), v.reshape(-1, *v.shape[2:]),
                        *self.caches, cos_sin=table, positions=positions.flatten(), page_table=self.table,
                        batch_indices=rows[:, None].expand(-1, new).reshape(-1), **self.descales)
        if fuses or table is None:
            return turned.view(q.shape)
        places = lengths[:, None] + torch.arange(n, device=device) * int(in_order)
        return rotated(q, table, places, interleaved)

    def as_attention_reads(self):
        """(keys, values, fields of a Problem, page table)."""
        k_cache, v_cache = self.caches
        if self.table is not None:
            return k_cache, v_cache, {"kv_kind": "paged", "page_size": k_cache.shape[1]}, self.table
        if self.rows is None:
            return k_cache[:len(self.q)], v_cache[:len(self.q)], {}, None
        # Sequences are runs of pages, so that a table may name them in any order.
        page = math.gcd(k_cache.shape[1], LARGEST_PAGE)
        dense = all(len(cache) == 1 or cache.stride(0) == cache.shape[1] * cache.stride(1) for cache in self.caches)
        if page < SMALLEST_PAGE or not dense:
            page = k_cache.shape[1]
        parts = k_cache.shape[1] // page
        table = self.rows[:, None] * parts + torch.arange(parts, dtype=torch.int32, device=self.rows.device)
        pages = (cache.unflatten(1, (parts, page)).flatten(0, 1) if parts > 1 else cache for cache in self.caches)
        return *pages, {"kv_kind": "paged", "page_size": page}, table
