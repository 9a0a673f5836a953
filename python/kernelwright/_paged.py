"""Attention for transformers' continuous batching: tokens of many requests in one row, keys and values in pages.

A layer without a window writes its keys to the pages by a kernel of kind kv_write, and attends to the pages where they lie.
A layer with a window has a ring of keys, which new keys may overwrite: transformers gathers it, and a kernel attends to the
gathered keys. Prompts that begin a request attend to their own keys.
"""
import weakref

import torch

from ._append import WriteProblem, append
from ._attention import attend, contiguous_heads, dtype_of, problem_of, refuse_gradients
from ._errors import ConfigError

_tables = weakref.WeakKeyDictionary()  # of a cache: {group of layers: (page table, keys of each request)} of this step


def paged_attention(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, softcap=None, s_aux=None,
                    cache=None, cu_seq_lens_q=None, cu_seq_lens_k=None, max_seqlen_q=None, max_seqlen_k=None, read_index=None,
                    write_index=None, block_table=None, **unused):
    """The attention function of "paged|kernelwright": (out [1, tokens, q_heads, head_dim], None).

    query, key and value are [1, heads, tokens, head_dim]. The arguments from `cache` on are those that continuous batching
    gives to every layer. What no kernel takes is refused: paged attention has no mask that torch's could serve with.
    """
    if cache is None:
        raise ConfigError('cache: is missing; "paged|kernelwright" is for generate_batch(), and "kernelwright" for a plain forward')
    if dropout:
        raise ConfigError(f"dropout: is {dropout}, and kernelwright has none; call model.eval()")
    refuse_gradients(query=query, key=key, value=value)
    windowed = cache.sliding_windows[module.layer_idx] > 1
    if isinstance(cu_seq_lens_k, dict):
        kind = "sliding_attention" if windowed else "full_attention"
        cu_seq_lens_k, max_seqlen_k = cu_seq_lens_k[kind], max_seqlen_k[kind]
    head_dim, width = query.shape[-1], value.shape[-1]
    if width < head_dim:  # pages have the size of a key's head
        value = torch.nn.functional.pad(value, [0, head_dim - width])
    window = cache.sliding_windows[module.layer_idx] - 1 if windowed else -1
    shape = dict(left=window, right=0, softcap=float(softcap or 0), sinks=s_aux is not None, ragged=True,
                 one_query=max_seqlen_q == 1)
    # Tokens behind the last request are padding: their rows are zeros, so that no NaN comes of them.
    named = dict(scale=module.scaling if scaling is None else scaling, q_offsets=cu_seq_lens_q.to(torch.int32),
                 q_len=int(max_seqlen_q), kv_len=int(max_seqlen_k), zero_padding=True,
                 sinks=None if s_aux is None else s_aux.detach().float())
    q = contiguous_heads(query.transpose(1, 2)[0])
    if windowed:
        k, v = cache.update(key, value, module.layer_idx, read_index, write_index)
    else:
        k, v = (contiguous_heads(tensor.transpose(1, 2)[0]) for tensor in (key, value))
        group, place = cache.layer_index_to_group_indices[module.layer_idx]
        pages = _write(cache, group, place, k, v, write_index[group])
        if read_index[group].numel() > 0:
            k, v = pages
            shape |= dict(kv_kind="paged", page_size=cache.block_size)
            named["page_table"], named["kv_lengths"] = _pages(cache, group, place, read_index[group], cu_seq_lens_k, max_seqlen_k)
            named["kv_len"] = named["page_table"].shape[1] * cache.block_size
    if "page_table" not in named:
        shape |= dict(kv_kind="ragged", kv_offsets=True)
        named["kv_offsets"] = cu_seq_lens_k.to(torch.int32)
    out = attend(problem_of(q, k, v, **shape), q, contiguous_heads(k), contiguous_heads(v), **named)
    return out[None, ..., :width], None


def _write(cache, group, place, k, v, slots):
    """Writes keys and values to the pages of a layer, and returns these."""
    pages = [whole.view(-1, cache.block_size, *whole.shape[1:]) for whole in (cache.key_cache[place], cache.value_cache[place])]
    problem = WriteProblem(dtype_of(k), dtype_of(pages[0]), 0, k.shape[1], k.shape[2], v.shape[2], "paged", cache.block_size,
                           index="slots")
    append(problem, None, k, v, *pages, slot_mapping=slots)
    return pages


def _pages(cache, group, place, reads, offsets, longest):
    """The page table of a group of layers, and the number of keys of each request. `reads` has the slots of all keys, in
    order; those of a page lie one behind the other. The first layer of a group makes both for the group's other layers."""
    compiling, tables = torch.compiler.is_compiling(), None
    if not compiling:
        tables = _tables.setdefault(cache, {})
        if place > 0 and group in tables:
            return tables[group]
    size = cache.block_size
    firsts = offsets[:-1, None].long() + torch.arange(0, max(int(longest), 1), size, device=reads.device)
    table = (reads[firsts.clamp(max=reads.numel() - 1)] // size).to(torch.int32)
    made = table, offsets.diff().to(torch.int32)
    if not compiling:
        tables[group] = made
    return made
