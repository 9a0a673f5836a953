"""Prompts of models with latent keys (MLA) by our attention, in vLLM's place for prefill backends from outside. The latents of a
prompt's keys are expanded to keys and values of all heads, which stays a linear layer of the model.

New tokens are one causal launch. vLLM expands a cached context chunk by chunk: each chunk is a launch without a mask, and vLLM
merges the results by their LSE. Both launches read the rotary part of keys apart from the rest, so that nothing is copied beside
a decode backend that leaves the parts where they lie (latent.py). Others give whole keys, which are read in two parts as well.
"""
from __future__ import annotations

import copy
from typing import ClassVar, NamedTuple

import torch
from vllm.v1.attention.backends.mla.prefill import base
from vllm.v1.attention.backends.mla.prefill.base import MLAPrefillBackend

from .._attention import DTYPES, Problem
from .attention import here, is_invariant, served

SIZES = (128, 64, 128), (192, 64, 256), (64, 32, 64)  # of heads of models, which the kernels of every architecture take


class KeyParts(NamedTuple):
    """The two parts of keys where they lie: [tokens, heads, nope], and [tokens, heads, rope], which heads may share."""

    nope: torch.Tensor
    rope: torch.Tensor


class KernelwrightPrefillBackend(MLAPrefillBackend):
    """What vLLM makes for each layer. Layers alike share kernels, which compile while weights load."""

    supported_dtypes: ClassVar[list[torch.dtype]] = list(DTYPES)
    requires_r1_mla_dimensions: ClassVar[bool] = True  # vLLM 0.22 and 0.23 ask for the first of the sizes alone
    supported_mla_dimensions: ClassVar[list] = [
        base.MLADimensions(qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=v) for nope, rope, v in SIZES
    ] if hasattr(base, "MLADimensions") else []

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @classmethod
    def supports_compute_capability(cls, device_capability) -> bool:
        return device_capability.major >= 8

    def __init__(self, num_heads, scale, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, vllm_config):
        super().__init__(num_heads, scale, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, vllm_config)
        model = vllm_config.model_config
        self._invariant, self._kernels = is_invariant(), {}
        for problem in self.problems(DTYPES[torch.get_default_dtype() if model is None else model.dtype]):
            served.handle(*here(), problem)

    def clone(self):
        """From vLLM 0.25 on each builder of metadata has one, because a step's metadata is kept here."""
        return copy.copy(self)

    def problems(self, dtype):
        """Those of both of its kernels: the one for new tokens first, then the one for chunks of a context."""
        return [self._problem(dtype, causal) for causal in (True, False)]

    def _problem(self, dtype, causal):
        size = self.qk_nope_head_dim + self.qk_rope_head_dim
        return Problem(dtype, self.num_heads, self.num_heads, size, self.v_head_dim, right=0 if causal else -1, lse=True, ragged=True,
                       kv_kind="ragged", kv_offsets=True, rope=self.qk_rope_head_dim, batch_invariant=self._invariant)

    def _kernel(self, tensor, causal):
        key = tensor.device, tensor.dtype, causal
        found = self._kernels.get(key)
        if found is None:
            device, problem = tensor.device, self._problem(DTYPES[tensor.dtype], causal)
            found = self._kernels[key] = served.find(device.type, device.index or 0, problem)[0]
        return found

    def run_prefill_new_tokens(self, q, k, v, return_softmax_lse, out=None, output_scale=None):
        """q [tokens, heads, nope + rope], k the same or KeyParts, v [tokens, heads, v]. Returns [tokens, heads, v], with the LSE
        [heads, tokens] if it is asked for."""
        if output_scale is not None:
            raise NotImplementedError("kernelwright's prefill backend does not quantise its result")
        step = self._prefill_metadata
        out, lse = self._attend(True, q, k, v, step.query_start_loc, step.max_query_len, out)
        return (out, of_heads(lse)) if return_softmax_lse else out

    def run_prefill_context_chunk(self, chunk_idx, q, k, v):
        """The same over keys of a chunk of each sequence's context. A token whose sequence has none has the LSE -inf."""
        context = self._prefill_metadata.chunked_context
        out, lse = self._attend(False, q, k, v, context.cu_seq_lens[chunk_idx], context.max_seq_lens[chunk_idx], None)
        return out, of_heads(lse)

    def _attend(self, causal, q, k, v, kv_offsets, kv_len, out):
        step, (tokens, heads, _), nope = self._prefill_metadata, q.shape, self.qk_nope_head_dim
        k, k_rope = k if isinstance(k, KeyParts) else (k[..., :nope], k[..., nope:])
        out = q.new_empty(tokens, heads, self.v_head_dim) if out is None else out
        lse = q.new_empty(tokens, heads, dtype=torch.float32)
        self._kernel(q, causal)(q[..., :nope], k, v, out=out, lse=lse, q_rope=q[..., nope:], k_rope=k_rope, scale=self.scale,
                                q_offsets=step.query_start_loc, kv_offsets=kv_offsets, q_len=step.max_query_len, kv_len=kv_len)
        return out, lse


def of_heads(lse):
    """An LSE [tokens, heads] as vLLM merges it: [heads, tokens], without gaps."""
    return lse.t().contiguous()
