"""Kernelwright in transformers: its attention and its experts by the name "kernelwright", and its GEMMs in linear layers.

    import kernelwright.transformers
    kernelwright.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="kernelwright", dtype="bfloat16", device_map="cuda")
    print(kernelwright.transformers.accelerate(model))  # linear layers; says what it left and why

docs/transformers.md has what is served, and how. `import kernelwright` does not import this module, and so neither torch
nor transformers.
"""
from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakIdKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from ._attention import DTYPES, attend, contiguous_heads, kernels, problem_of, refuse_gradients, why_not
from ._errors import ConfigError
from ._linears import Report, accelerate
from ._masks import bounds, is_bounds, packed_offsets, padding_mask
from ._paged import paged_attention

try:
    from transformers.integrations.finegrained_fp8 import FP8ExpertsInterface
    from transformers.integrations.moe import ExpertsInterface

    from ._experts import experts
except ImportError:  # transformers before 5
    ExpertsInterface = None

if TYPE_CHECKING:
    from . import Engine

__all__ = ["NAME", "Report", "accelerate", "attention", "padding_mask", "problems", "register"]
NAME = "kernelwright"
_warned, _sinks = set(), WeakIdKeyDictionary()


def register(engine: Engine | None = None, name: str = NAME) -> None:
    """Makes attn_implementation="kernelwright" and experts_implementation="kernelwright" known to transformers, and
    "paged|kernelwright" for generate_batch(). It may be called again.

    engine: the Engine that serves. The one for GPUs is made when it is first needed. Tensors of the CPU need one that
    emulates, which takes seconds for what a GPU does in microseconds.
    """
    if "flash" in name or "/" in name or "|" in name:
        raise ConfigError(f'name: transformers takes "{name}" for a kernel of its own; leave out "flash", "/" and "|"')
    if engine is not None:
        kernels.use(engine)
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, padding_mask)
    AttentionInterface.register(f"paged|{name}", paged_attention)  # which needs no masks
    if ExpertsInterface is not None:
        ExpertsInterface.register(name, experts)
        FP8ExpertsInterface.register(name, experts)


def problems() -> list[dict[str, Any]]:
    """The problems of all kernels so far, as Engine.prepare() takes them: a model needs a handful."""
    return [problem.config() for problem in kernels.problems()]


def warn_once(text):
    if text not in _warned and not torch.compiler.is_compiling():
        _warned.add(text)
        warnings.warn(text, stacklevel=4)


def _sinks_of(logits):
    """The logits in f32. A parameter is cast once, and again after it has changed."""
    if torch.compiler.is_compiling() or not isinstance(logits, torch.nn.Parameter) or logits.is_inference():
        return logits.detach().float()
    version, found = _sinks.get(logits, (None, None))
    if version != (logits._version, logits.data_ptr()):
        found = logits.detach().float().contiguous()
        _sinks[logits] = (logits._version, logits.data_ptr()), found
    return found


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, softcap=None,
              is_causal=None, s_aux=None, cu_seq_lens_q=None, cu_seq_lens_k=None, max_length_q=None, max_length_k=None,
              position_bias=None, **unused):
    """The attention function that register() gives to transformers: (out [batch, q_len, q_heads, head_dim], None).

    query, key and value are [batch, heads, tokens, head_dim], attention_mask is a result of padding_mask() or any mask
    [batch, 1, queries, keys]. Dropout and gradients are refused. What no kernel takes, torch's attention serves, with one
    warning for each reason.
    """
    if dropout:
        raise ConfigError(f"dropout: is {dropout}, and kernelwright has none; call model.eval(), or set the config's "
                          "attention_dropout to 0")
    refuse_gradients(query=query, key=key, value=value)
    if unused.get("output_attentions"):
        warn_once("kernelwright gives no attention weights; output_attentions needs attn_implementation=\"eager\"")
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    step, problem, packing = None, None, None
    if cu_seq_lens_q is None and position_bias is None and not torch.compiler.is_compiling() and (
            attention_mask is None or is_bounds(attention_mask)):
        # Most calls differ from one before them in lengths alone. Finding the problem anew would cost them microseconds.
        rows = query.shape
        step = (query.dtype, query.device, rows[1], rows[3], rows[2] == 1, key.shape[1], value.shape[3], attention_mask is None,
                causal, sliding_window, softcap, s_aux is None)
        problem = kernels.steps.get(step)
    if problem is None:
        layer = _Layer(causal, sliding_window, softcap, s_aux, scaling)
        packing = _packing(query, key, attention_mask, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
        query, key, value = _autocast(query, key, value)
        problem, reason = layer.problem(query, key, value, attention_mask, packing, position_bias)
        reason = reason or why_not(query.device, problem)
        if reason is not None:
            warn_once(f"kernelwright leaves this attention to torch: {reason}")
            return layer.by_torch(module, query, key, value, attention_mask, packing, position_bias), None
        if step and query.dtype == step[0]:
            kernels.steps[step] = problem
    q, k, v = (contiguous_heads(tensor.transpose(1, 2)) for tensor in (query, key, value))
    sinks = None if s_aux is None else _sinks_of(s_aux)
    if packing:
        flat = (tensor.reshape(-1, *tensor.shape[2:]) for tensor in (q, k, v))
        out = attend(problem, *flat, scale=scaling, sinks=sinks, **packing.arguments())
        return out.view(*q.shape[:2], *out.shape[1:]), None
    if attention_mask is None:
        return attend(problem, q, k, v, scale=scaling, sinks=sinks), None
    starts, lengths = bounds(attention_mask, k.shape[1])
    return attend(problem, q, k, v, scale=scaling, sinks=sinks, kv_starts=starts, kv_lengths=lengths), None


def _autocast(*tensors):
    """Layers that a trainer keeps in float32 give float32 tensors under torch.autocast(); they are cast back."""
    device = tensors[0].device.type
    if tensors[0].dtype == torch.float32 and torch.is_autocast_enabled(device):
        return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)
    return tensors


class _Packing:
    """Sequences that lie one behind the other in the rows of a batch."""

    def __init__(self, q_offsets, kv_offsets, q_len, kv_len):
        self.same = kv_offsets is q_offsets
        self.q_offsets = q_offsets.to(torch.int32)
        self.kv_offsets = self.q_offsets if self.same else kv_offsets.to(torch.int32)
        self.q_len, self.kv_len = q_len, kv_len

    def arguments(self):
        return {"q_offsets": self.q_offsets, "kv_offsets": self.kv_offsets, "q_len": self.q_len, "kv_len": self.kv_len}

    def allowed(self, q_tokens, kv_tokens, causal, window):
        """What a query sees: bool [1, 1, q_tokens, kv_tokens]."""
        at = [torch.arange(tokens, device=self.q_offsets.device) for tokens in (q_tokens, kv_tokens)]
        sequences = [torch.searchsorted(offsets, places, right=True) - 1
                     for offsets, places in zip((self.q_offsets, self.kv_offsets), at)]
        ends = [offsets[1:].long()[sequences[0].clamp(0, len(offsets) - 2)] for offsets in (self.q_offsets, self.kv_offsets)]
        diagonal = at[0] - ends[0] + ends[1]
        return (sequences[0][:, None] == sequences[1]) & _visible(diagonal[:, None], at[1], causal, window)


def _packing(query, key, mask, cu_q, cu_k, max_q, max_k):
    """The _Packing of a call, or None. Lengths that are tensors are bounded by the tokens while torch.compile traces."""
    q_tokens, kv_tokens = (tensor.shape[0] * tensor.shape[2] for tensor in (query, key))
    if mask is not None and mask.dtype == torch.int32 and mask.dim() == 2:
        offsets, longest = packed_offsets(mask)
        return _Packing(offsets, offsets, longest, longest)
    if cu_q is None or mask is not None:
        return None

    def longest(given, tokens):
        if given is None or (isinstance(given, torch.Tensor) and torch.compiler.is_compiling()):
            return tokens
        return int(given)
    q_len = longest(max_q, q_tokens)
    return _Packing(cu_q, cu_q if cu_k is None else cu_k, q_len, q_len if max_k is max_q else longest(max_k, kv_tokens))


def _visible(diagonal, keys, causal, window):
    """Whether a query sees a key by causality and window alone."""
    seen = (keys <= diagonal) if causal else torch.ones_like(keys <= diagonal)
    if window:
        seen = seen & (keys > diagonal - window)
        if not causal:
            seen = seen & (keys < diagonal + window)
    return seen


class _Layer:
    """What a layer's attention is beside its tensors."""

    def __init__(self, causal, window, softcap, sinks, scale):
        self.causal, self.window, self.softcap, self.sinks, self.scale = causal, window, softcap, sinks, scale

    def problem(self, query, key, value, mask, packing, position_bias):
        """(its Problem, None), or (None, why no kernel takes it)."""
        if position_bias is not None:
            return None, "it has a position_bias"
        if mask is not None and mask.dim() != 2 and not is_bounds(mask):
            return None, f"the mask has {mask.dim()} dimensions; kernels take padding, windows and packed sequences"
        if query.dtype not in DTYPES:
            return None, f"tensors are {query.dtype}; kernels take torch.float16 and torch.bfloat16"
        left = self.window - 1 if self.window else -1
        shape = dict(left=left, right=0 if self.causal else left, softcap=float(self.softcap or 0), sinks=self.sinks is not None)
        if packing:
            shape |= dict(ragged=True, kv_kind="ragged", kv_offsets=not packing.same, one_query=packing.q_len == 1)
        else:
            shape |= dict(starts=mask is not None, one_query=query.shape[2] == 1)
        return problem_of(*(tensor.transpose(1, 2) for tensor in (query, key, value)), **shape), None

    def _allowed(self, query, key, mask, packing):
        """What a query sees, as a mask [batch, 1, queries, keys] or None for all keys."""
        if mask is not None and mask.dim() == 4 and not is_bounds(mask):
            return mask
        q_len, kv_len = query.shape[2], key.shape[2]
        if packing:
            every = packing.allowed(query.shape[0] * q_len, key.shape[0] * kv_len, self.causal, self.window)
            rows = every.view(query.shape[0], q_len, key.shape[0], kv_len)
            return torch.stack([rows[i, :, i] for i in range(query.shape[0])])[:, None]
        keys = torch.arange(kv_len, device=key.device)
        first, end = (torch.tensor([0], device=key.device), torch.tensor([kv_len], device=key.device))
        if mask is not None:
            first, last = bounds(mask, kv_len)
            end = end if last is None else last
        first, end = first[:, None, None], end[:, None, None]
        diagonal = torch.arange(q_len, device=key.device)[:, None] + end - q_len
        return (_visible(diagonal, keys, self.causal, self.window) & (keys >= first) & (keys < end))[:, None]

    def by_torch(self, module, query, key, value, mask, packing, position_bias):
        """The same by torch. scaled_dot_product_attention() has neither a softcap nor sinks."""
        allowed = self._allowed(query, key, mask, packing)
        if not self.softcap and self.sinks is None:
            return sdpa_attention_forward(module, query, key, value, allowed, scaling=self.scale, is_causal=False,
                                          position_bias=position_bias)[0]
        groups = query.shape[1] // key.shape[1]
        scores = query.float() @ repeat_kv(key, groups).float().transpose(2, 3) * (self.scale or query.shape[-1] ** -0.5)
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if position_bias is not None:
            scores = scores + position_bias
        if allowed.dtype == torch.bool:
            scores = scores.masked_fill(~allowed, torch.finfo(torch.float32).min)
        else:
            scores = scores + allowed
        sinks = query.new_full((query.shape[1],), -torch.inf) if self.sinks is None else self.sinks
        scores = torch.cat([scores, sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
        weights = scores.softmax(-1)[..., :-1].to(value.dtype)
        return (weights @ repeat_kv(value, groups)).transpose(1, 2).contiguous()
