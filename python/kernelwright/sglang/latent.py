"""Attention over latent keys (MLA) of SGLang by kernels of Kernelwright: DeepSeek-V2 and V3, Kimi-K2.

SGLang gives such a model two layers of attention each. Decodes, drafted tokens and prompts behind few cached keys come absorbed: their
keys are rows of the cache. They are one launch, and so is the write of new keys.

Other prompts come with keys and values of all heads, which SGLang expands; it has then written their latents itself. New tokens are
a causal launch. Behind many cached keys SGLang expands these in chunks, each of which is a launch without a mask, and merges the
results by their LSE.
"""
from __future__ import annotations

import torch
from sglang.srt.models.deepseek_common import attention_backend_handler as handlers

from .._attention import DTYPES, Problem
from .._latent import LATENT, PARTS, ROTARY, LatentProblem, latent_write, parts_of, shares_keys
from . import BACKEND
from .attention import KernelwrightAttnBackend, absorbs, refuse


class KernelwrightLatentAttnBackend(KernelwrightAttnBackend):
    """What SGLang asks for attention of a model with latent keys."""

    def __init__(self, runner):
        super().__init__(runner)
        # SGLang asks by the backend's name in which form a step comes. A name that it does not know is Triton's, which has no chunks.
        handlers.AttentionBackendRegistry.register(BACKEND, form_of)

    def _problems(self, layer, has_sinks):
        if not absorbs(layer):
            return [self._prompt(layer, True), self._prompt(layer, False)]
        return [self._over_latents(layer, True), self._over_latents(layer, False), self._write(layer)]

    def _over_latents(self, layer, one_query):
        return LatentProblem(DTYPES[self.dtype], layer.tp_q_head_num, self.page_size, int(one_query), self.kv_dtype,
                             shares_keys=one_query and shares_keys(self.device, self.kv_dtype, self.page_size))

    def _prompt(self, layer, causal):
        return Problem(DTYPES[self.dtype], layer.tp_q_head_num, layer.tp_k_head_num, layer.head_dim, layer.v_head_dim,
                       right=0 if causal else -1, lse=True, ragged=True, kv_kind="ragged", kv_offsets=True)

    def _write(self, layer):
        return latent_write(DTYPES[self.dtype], self.page_size, self.kv_dtype)

    def _scale(self):
        """Of a cache of fp8: SGLang's latents have none, so it is 1."""
        if not self.kv_dtype:
            return {}
        if not self._scales:
            self._scales = {"k_scale": torch.ones(1, dtype=torch.float32, device=self.device)}
        return self._scales

    def _attend(self, q, k, v, layer, batch, save_kv_cache, sinks=None, **others):
        """q [tokens, heads * head_dim]. Absorbed, k is [tokens, 1, 576], or None where the keys are in the cache; else k and v are
        [tokens, heads, ..]."""
        refuse(others | {"sinks": sinks})
        step = self.forward_metadata
        if not absorbs(layer):
            return self._attend_prompt(q, k, v, layer, batch, step, save_kv_cache)
        rows = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        keys = rows.view(-1, self.page_size, 1, LATENT + ROTARY)
        if k is not None and save_kv_cache:
            parts = parts_of(k.to(self.dtype).view(-1, LATENT + ROTARY))
            written = self._scale() and {name: self._scale()["k_scale"] for name in ("k_scale", "v_scale")}
            self._kernel(self._write, layer)(*parts, *parts_of(keys.squeeze(2)), slot_mapping=self._slots_of(batch, step.slots), **written)
        query, out, result = self._rows_of(q, layer, batch, step)
        named = dict(scale=float(layer.scaling), kv_lengths=step.lengths, page_table=step.table, kv_len=step.kv_len, **self._scale())
        if step.q_len == 1:
            self._kernel(self._over_latents, layer, True)(query.unsqueeze(1), keys, keys, out=out.unsqueeze(1), **named)
        else:
            self._kernel(self._over_latents, layer, False)(query, keys, keys, out=out, q_offsets=step.q_offsets, q_len=step.q_len,
                                                           zero_padding=True, **named)
        return result

    def _attend_prompt(self, q, k, v, layer, batch, step, save_kv_cache):
        if k is None or v is None or save_kv_cache:
            raise NotImplementedError("kernelwright's backend takes keys of all heads where SGLang has written their latents alone")
        query, out, result = self._rows_of(q, layer, batch, step)
        lse, chunk = query.new_empty(query.shape[:2], dtype=torch.float32), batch.prefix_chunk_idx
        keys = {"kv_offsets": step.q_offsets, "kv_len": step.q_len} if not batch.attn_attend_prefix_cache else {
            "kv_offsets": batch.prefix_chunk_cu_seq_lens[chunk], "kv_len": batch.prefix_chunk_max_seq_lens[chunk]}
        kernel = self._kernel(self._prompt, layer, not batch.attn_attend_prefix_cache)
        kernel(query, k.to(self.dtype), v.to(self.dtype), out=out, lse=lse, scale=float(layer.scaling), q_offsets=step.q_offsets,
               q_len=step.q_len, zero_padding=True, **keys)
        return (out, lse) if batch.mha_return_lse else result


def form_of(attn, forward_batch):
    """The form in which a layer of SGLang's gives a step to our backend."""
    return handlers._handle_attention_backend(attn, forward_batch, BACKEND)
