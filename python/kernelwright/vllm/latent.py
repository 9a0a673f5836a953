"""Attention over latents (MLA) of vLLM by kernels of Kernelwright: the decodes of DeepSeek-V2 and V3, R1, Kimi-K2 and GLM-5, and
the writes of the cache. Prompts are those of prompts.py, and the products around a decode those of products.py.

A decode is one launch: queries are absorbed, each has the latent's 512 elements and 64 that carry the rotation, and values are the
first 512 of the keys. All lengths are read on the device, so graphs may be replayed with others. On Hopper CTAs share the keys of
all sequences evenly, because a server's batch has long and short ones (docs/attention/latent.md).

Where results are to be batch-invariant, one kernel serves every step, prompts too: vLLM is told that sequences of any length are
decodes. So a token has the same bits in a prompt, in a chunk of it and in a step of its own.
"""
from __future__ import annotations

import logging
from typing import ClassVar

import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention.mla_attention import (MLAAttention, MLACommonBackend, MLACommonImpl, MLACommonMetadata,
                                                                MLACommonMetadataBuilder, QueryLenSupport)
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType

from .._attention import DTYPES
from .._latent import LATENT, PARTS, ROTARY, LatentProblem, latent_write, parts_of, shares_keys
from .attention import FP8_TYPES, PAGE_SIZES, is_invariant, page_size_of, reasons_of_config, reserve, served
from .attention import prepare as prepare_all
from .prompts import KernelwrightPrefillBackend, KeyParts

logger = logging.getLogger("vllm.kernelwright")

FP8 = {"fp8": "e4m3", "fp8_e4m3": "e4m3"}  # vLLM's words for a cache of one scale
ANY_LENGTH = 2**31 - 1  # more queries than a sequence has


class KernelwrightLatentBackend(MLACommonBackend):
    """What vLLM asks before it chooses. Its name is that of vLLM's place for backends from outside."""

    supported_dtypes: ClassVar[list[torch.dtype]] = list(DTYPES)
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16", *FP8]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[KernelwrightLatentImpl]:
        return KernelwrightLatentImpl

    @staticmethod
    def get_builder_cls() -> type[KernelwrightLatentMetadataBuilder]:
        return KernelwrightLatentMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int]:
        return sorted(PAGE_SIZES)

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return [LATENT + ROTARY]

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_compute_capability(cls, capability) -> bool:
        return capability.major >= 8

    @classmethod
    def validate_configuration(cls, *given, **named) -> list[str]:
        reasons = super().validate_configuration(*given, **named)
        reasons += reasons_of_config(named.get("dtype"), named.get("kv_cache_dtype"))
        if reasons:
            logger.info("kernelwright leaves this latent attention to others: %s", "; ".join(reasons))
        return reasons


class KernelwrightLatentMetadataBuilder(MLACommonMetadataBuilder[MLACommonMetadata]):
    """vLLM's own, which also prepares the kernels. No schedule is computed."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    query_len_support: ClassVar[QueryLenSupport] = QueryLenSupport.UNIFORM  # drafted tokens are decoded with their sequence's

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, MLACommonMetadata)
        layers = get_layers_from_vllm_config(vllm_config, MLAAttention, layer_names).values()
        problems = prepare(layers, vllm_config.model_config.dtype, page_size_of(kv_cache_spec.block_size), self.reorder_batch_threshold,
                           device)
        reserve(problems, vllm_config, device)
        if is_invariant():
            self.query_len_support, self.reorder_batch_threshold = QueryLenSupport.VARLEN, ANY_LENGTH


def prepare(layers, dtype, page_size, most_queries, device):
    """The kernels of the layers: for decodes of one query and of `most_queries`, for writes, and for prompts where those are ours.
    Returns the decodes' problems."""
    decodes, others = [], []
    for layer in layers:
        impl, prompts = layer.impl, getattr(layer, "prefill_backend", None)
        if not isinstance(impl, KernelwrightLatentImpl):
            continue
        impl.most_queries = most_queries
        decodes += [impl.problem(DTYPES[dtype], page_size, queries, device) for queries in (1, most_queries)]
        others.append(impl.write_problem(DTYPES[dtype], page_size))
        impl.keeps_parts = isinstance(prompts, KernelwrightPrefillBackend) and not impl.invariant
        if impl.keeps_parts:
            others += prompts.problems(DTYPES[dtype])
    decodes = list(dict.fromkeys(decodes))
    prepare_all([*decodes, *others], device)
    return decodes


class KernelwrightLatentImpl(MLACommonImpl[MLACommonMetadata]):
    """The attention of a layer."""

    can_return_lse_for_decode: bool = False
    supports_pcp: bool = False  # ranks that share the tokens of a prompt; from vLLM 0.26 on its own class says that it does

    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype, logits_soft_cap,
                 attn_type, kv_sharing_target_layer_name, **mla_args):
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype, logits_soft_cap,
                         attn_type, kv_sharing_target_layer_name, **mla_args)
        if alibi_slopes or sliding_window or logits_soft_cap:
            raise NotImplementedError("kernelwright's latent backend has no ALiBi, window or softcap; choose another "
                                      "--attention-backend")
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"kernelwright's latent backend serves decoders, not attention of type {attn_type}")
        if self.kv_lora_rank != LATENT or self.qk_rope_head_dim != ROTARY:
            raise NotImplementedError(f"kernelwright's latent backend has latents of {LATENT} and {ROTARY}, and the model's are "
                                      f"{self.kv_lora_rank} and {self.qk_rope_head_dim}; choose another --attention-backend")
        self.supports_quant_query_input = False  # queries stay in 16 bits beside keys of 8
        self.most_queries, self.invariant = 1, is_invariant()
        self.keeps_parts = False  # whether prompts are ours, which read both parts of keys where they lie
        self.absorbed = None  # the queries of the decode that follows, if products.py has made their latents in place
        self._kernels, self._pages = {}, (None, None, None)

    def problem(self, dtype, page_size, queries, device):
        """That of a decode of `queries` queries a sequence. CTAs share keys of 16 bits on Hopper; the emulator is one. Invariant
        results come from one kernel, whose CTAs share no keys: a share follows the batch."""
        kv_dtype = FP8.get(self.kv_cache_dtype, "")
        most = 0 if self.invariant else 1 if queries == 1 else self.most_queries
        return LatentProblem(dtype, self.num_heads, page_size, most, kv_dtype,
                             shares_keys=shares_keys(device, kv_dtype, page_size) and not self.invariant, batch_invariant=self.invariant)

    def write_problem(self, dtype, page_size):
        return latent_write(dtype, page_size, FP8.get(self.kv_cache_dtype, ""))

    def _kernel(self, tensor, page_size, queries):
        """The kernel of decodes of so many queries a sequence; 0: that of writes."""
        key = tensor.device, tensor.dtype, page_size, min(queries, 2)
        found = self._kernels.get(key)
        if found is None:
            device, dtype = tensor.device, DTYPES[tensor.dtype]
            problem = self.problem(dtype, page_size, queries, device) if queries else self.write_problem(dtype, page_size)
            found = self._kernels[key] = served.find(device.type, device.index or 0, problem)[0]
        return found

    def _views(self, kv_cache):
        """Of the layer's cache, which stays where it is: keys [pages, page_size, 1, 576], and the two parts of them that are
        written."""
        known, keys, parts = self._pages
        if known is not kv_cache:
            keys = kv_cache.unsqueeze(2)
            if self.kv_cache_dtype in FP8:
                keys = keys.view(FP8_TYPES[FP8[self.kv_cache_dtype]])
            parts = parts_of(keys.squeeze(2))
            self._pages = kv_cache, keys, parts
        return keys, parts

    def do_kv_cache_update(self, kv_c_normed, k_pe, kv_cache, slot_mapping, kv_cache_dtype, k_scale):
        """Writes kv_c_normed [tokens, 512] and k_pe [tokens, 1, 64] to the slots; tokens without one are padding."""
        if kv_cache.numel() == 0:
            return
        slots = slot_mapping.flatten()
        tokens = [part.reshape(len(part), PARTS, -1)[:len(slots)] for part in (kv_c_normed, k_pe)]
        scales = {"k_scale": k_scale.view(1), "v_scale": k_scale.view(1)} if self.kv_cache_dtype in FP8 else {}
        _, parts = self._views(kv_cache)
        self._kernel(kv_c_normed, parts[0].shape[1], 0)(*tokens, *parts, slot_mapping=slots, **scales)

    def _concat_k_nope_k_pe(self, k_nope, k_pe):
        """k_nope [tokens, heads, nope] and k_pe [tokens, 1, rope], as the prefill backend of the layer takes them."""
        if self.keeps_parts:
            return KeyParts(k_nope, k_pe.expand(-1, self.num_heads, -1))
        return super()._concat_k_nope_k_pe(k_nope, k_pe)

    def _queries(self, latents, rotary):
        """Both parts side by side."""
        made, self.absorbed = self.absorbed, None
        if made is None or made.data_ptr() != latents.data_ptr() or made.shape[:2] != latents.shape[:2]:
            return torch.cat((latents, rotary), dim=-1)
        made[..., LATENT:] = rotary
        return made

    def forward_mqa(self, q, kv_c_and_k_pe_cache, attn_metadata, layer):
        """q, or its two parts [tokens, heads, 512] and [tokens, heads, 64]: equally many tokens of each sequence, or any numbers
        where results are to be invariant. Returns [tokens, heads, 512], and no LSE."""
        if isinstance(q, tuple):
            q = self._queries(*q)
        keys, _ = self._views(kv_c_and_k_pe_cache)
        step, (tokens, heads, width) = attn_metadata.decode, q.shape
        named = {"k_scale": layer._k_scale.view(1)} if self.kv_cache_dtype in FP8 else {}
        if self.invariant:  # rows behind the last sequence are padding
            named |= {"q_offsets": attn_metadata.query_start_loc, "q_len": attn_metadata.max_query_len, "zero_padding": True}
        else:
            q = q.view(attn_metadata.num_decodes, tokens // attn_metadata.num_decodes, heads, width)
        out = q.new_empty(*q.shape[:-1], LATENT)
        self._kernel(q, keys.shape[1], 1 if self.invariant else q.shape[1])(
            q, keys, keys, out=out, scale=self.scale, page_table=step.block_table, kv_lengths=step.seq_lens,
            kv_len=min(attn_metadata.max_seq_len, step.block_table.shape[1] * keys.shape[1]), **named)
        return out.view(tokens, heads, LATENT), None
