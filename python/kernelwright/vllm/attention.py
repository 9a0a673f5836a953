"""Attention of vLLM by kernels of Kernelwright. A step's prompts and decodes are one launch: queries lie one sequence behind the
other, keys and values in pages, and all lengths are read on the device. New keys and values are written by a kernel of kind
kv_write.

A layer has three kernels: attention for steps with one query a sequence and for others, and for both the write. Where results
are to be batch-invariant, one kernel of attention serves all steps. Kernels are prepared once vLLM has made the cache, before it
captures graphs, and the engine is sealed. Layers alike share them.
"""
from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

import torch
from vllm import envs
from vllm.config import get_current_vllm_config_or_none, get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadata,
                                       AttentionMetadataBuilder, AttentionType)

from .._attention import DTYPES, Problem
from .._errors import KernelwrightError
from .._served import Served, Sinks, graph_steps, paged_attention, paged_write, takes_head
from .caches import CACHE, stride_order
from .warmup import seal_behind_warm_up

logger = logging.getLogger("vllm.kernelwright")

PAGE_SIZES = (256, 128, 64, 32, 16)  # keys; vLLM cuts a larger block into pages of one of these
FP8 = {"fp8": "e4m3", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2"}  # vLLM's words for a cache's dtype
FP8_TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


served = Served(logger, "vLLM", lambda: seal_behind_warm_up(served))
leaving = ContextVar("leaving", default=False)  # whether layers that vLLM makes are its own


def here():
    """The device on which vLLM makes a model: what Served.handle() takes."""
    if not torch.accelerator.is_available():
        return "cpu", 0
    return torch.accelerator.current_accelerator().type, torch.accelerator.current_device_index()


def why_no_kernel(kind, index):
    """Why not even a small kernel can be compiled and loaded there, as with an NVRTC that is too old; None if one can."""
    try:
        served.find(kind, index, paged_write("bf16", 1, 64, 64, PAGE_SIZES[-1]))
    except KernelwrightError as error:
        return str(error)
    return None


def prepare(problems, device):
    """Has kernels for all problems of a model's attention before vLLM captures graphs, or says why not and what to change."""
    try:
        served.prepare(device.type, device.index or 0, list(dict.fromkeys(problems)))
    except KernelwrightError as error:
        raise type(error)(f"kernelwright cannot serve the attention of this model: {error}. Choose another --attention-backend, or leave "
                          '"prefer" and "all" out of KERNELWRIGHT_VLLM') from error


def is_invariant():
    """Whether results are to be batch-invariant."""
    return bool(getattr(envs, "VLLM_BATCH_INVARIANT", False))


class KernelwrightBackend(AttentionBackend):
    """What vLLM asks before it chooses. Its name is that of vLLM's place for backends from outside."""

    supported_dtypes: ClassVar[list[torch.dtype]] = list(DTYPES)
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16", *FP8]
    forward_includes_kv_cache_update: bool = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[KernelwrightImpl]:
        return KernelwrightImpl

    @staticmethod
    def get_builder_cls() -> type[KernelwrightMetadataBuilder]:
        return KernelwrightMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int]:
        return sorted(PAGE_SIZES)

    @staticmethod
    def get_kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int,
                           cache_dtype_str: str = "auto") -> tuple[int, ...]:
        return CACHE.shape(num_blocks, block_size, num_kv_heads, head_size)

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        return stride_order(include_num_layers_dimension)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return takes_head(head_size)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return hasattr(envs, "VLLM_BATCH_INVARIANT")  # else is_invariant() would not know

    @classmethod
    def supports_compute_capability(cls, capability) -> bool:
        return capability.major >= 8

    @classmethod
    def validate_configuration(cls, *given, **named) -> list[str]:
        """vLLM's own checks, and what it does not ask for. Where nobody chose this backend by name, vLLM goes on without a
        word; the log has it."""
        reasons = super().validate_configuration(*given, **named)
        reasons += reasons_of_config(named.get("dtype"), named.get("kv_cache_dtype"))
        if reasons:
            logger.info("kernelwright leaves this attention to others: %s", "; ".join(reasons))
        return reasons


def reasons_of_config(dtype, kv_cache_dtype):
    """Why a model that vLLM's checks let through is not served."""
    reasons = []
    if kv_cache_dtype in ("float16", "bfloat16") and getattr(torch, kv_cache_dtype) != dtype:
        reasons.append(f"a cache of {kv_cache_dtype} beside {dtype} is not supported")
    config = get_current_vllm_config_or_none()
    if config is not None:
        if config.parallel_config.decode_context_parallel_size > 1:
            reasons.append("decode context parallelism is not supported")
        if getattr(config.parallel_config, "enable_dbo", False):
            reasons.append("dual batch overlap is not supported")  # two steps at a time would share a workspace
        if getattr(getattr(config, "model_config", None), "rswa_window", None) is not None:
            reasons.append("a window that leaves the prompt in sight (R-SWA) is not supported")
    return reasons


@dataclass
class KernelwrightMetadata(AttentionMetadata):
    """A step's sequences, as vLLM has them on the device. The two bounds are for grids and workspaces alone."""

    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor  # i32 [sequences + 1]
    seq_lens: torch.Tensor  # i32 [sequences]: keys, the new ones included
    block_table: torch.Tensor  # i32 [sequences, pages]
    slot_mapping: torch.Tensor  # i64 [tokens]; -1: is not written


class KernelwrightMetadataBuilder(AttentionMetadataBuilder[KernelwrightMetadata]):
    """A step costs the host a few references: no schedule is computed, and nothing is copied."""

    # Lengths are read on the device, and workspaces do not move. But a launch computes at most max_query_len queries of a
    # sequence, and vLLM captures mixed steps with a smaller bound than some of those that it replays.
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH
    supports_update_block_table: bool = True

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._page_size = page_size_of(kv_cache_spec.block_size)
        layers = get_layers_from_vllm_config(vllm_config, Attention, layer_names)
        problems = [problem for layer in layers.values() if isinstance(layer.impl, KernelwrightImpl)
                    for problem in layer.impl.problems(DTYPES[layer.dtype], self._page_size)]
        prepare(problems, device)
        reserve([problem for problem in problems if isinstance(problem, Problem)], vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("kernelwright's backend serves causal steps alone; choose another --attention-backend")
        return self._metadata(common, common.block_table_tensor, common.slot_mapping)

    def update_block_table(self, metadata, blk_table, slot_mapping):
        return self._metadata(metadata, blk_table, slot_mapping)

    def _metadata(self, step, table, slots):
        # With drafted tokens the bound may pass what a sequence can have, and then the table.
        keys = min(step.max_seq_len, table.shape[1] * self._page_size)
        return KernelwrightMetadata(step.num_actual_tokens, step.max_query_len, keys, step.query_start_loc, step.seq_lens, table,
                                    slots)


def reserve(problems, vllm_config, device):
    """Allocates the workspace of the decodes that vLLM captures: for the longest sequences, behind a step of one key each."""
    served.reserve(torch.empty(0, device=device), list(dict.fromkeys(problems)), steps_of_graphs(vllm_config),
                   vllm_config.model_config.max_model_len)


def steps_of_graphs(vllm_config):
    """(sequences, queries of each) of the decodes that vLLM captures. From vLLM 0.25 on it may draft fewer tokens in larger batches,
    and captures for each number of them."""
    drafts, sizes = vllm_config.speculative_config, vllm_config.compilation_config.cudagraph_capture_sizes or ()
    drafted = {getattr(drafts, "num_speculative_tokens", None) or 0}
    drafted |= {count for _, _, count in getattr(drafts, "num_speculative_tokens_per_batch_size", None) or ()}
    return sorted({step for count in drafted for step in graph_steps(sizes, vllm_config.scheduler_config.max_num_seqs, 1 + count)})


def page_size_of(block_size):
    """The pages into which vLLM cuts a block."""
    return next((size for size in PAGE_SIZES if block_size % size == 0), block_size)


class KernelwrightImpl(AttentionImpl[KernelwrightMetadata]):
    """The attention of a layer."""

    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                 kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, sinks=None):
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"kernelwright's backend serves decoders, not attention of type {attn_type}")
        if alibi_slopes is not None and logits_soft_cap:
            raise NotImplementedError("kernelwright's backend has no softcap beside ALiBi; choose another --attention-backend")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.sliding_window = sliding_window
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.softcap = float(logits_soft_cap or 0)
        self.alibi_slopes, self.sinks = alibi_slopes, sinks
        self.invariant = is_invariant()
        self._kernels, self._cache, self._named, self._sinks = {}, (None, None, None), None, None

    def problems(self, dtype, page_size):
        """Those of all of its kernels."""
        steps = (False,) if self.invariant else (True, False)
        return [self._attention(dtype, page_size, one_query) for one_query in steps] + [self._write(dtype, page_size)]

    def _attention(self, dtype, page_size, one_query):
        return paged_attention(dtype, self.num_heads, self.num_kv_heads, self.head_size, self.head_size, page_size, one_query,
                               self.sliding_window - 1 if self.sliding_window else -1, FP8.get(self.kv_cache_dtype, ""),
                               softcap=self.softcap, sinks=self.sinks is not None, alibi=self.alibi_slopes is not None,
                               batch_invariant=self.invariant)

    def _write(self, dtype, page_size):
        return paged_write(dtype, self.num_kv_heads, self.head_size, self.head_size, page_size, FP8.get(self.kv_cache_dtype, ""))

    def _kernel(self, tensor, make, *key):
        """The kernel of a problem, which is found once."""
        key = make, tensor.device, tensor.dtype, key
        found = self._kernels.get(key)
        if found is None:
            device = tensor.device
            found = served.find(device.type, device.index or 0, make(DTYPES[tensor.dtype], *key[3]))[0]
            self._kernels[key] = found
        return found

    def _pages(self, kv_cache):
        """Keys and values [pages, page_size, heads, head_dim] of the layer's cache, which stays where it is."""
        known, keys, values = self._cache
        if known is not kv_cache:
            keys, values = CACHE.parts(kv_cache)
            if self.kv_cache_dtype in FP8:
                keys, values = (pages.view(FP8_TYPES[FP8[self.kv_cache_dtype]]) for pages in (keys, values))
            self._cache = kv_cache, keys, values
        return keys, values

    def _scales(self, layer):
        """The scales of a cache of fp8, which vLLM keeps on the device."""
        if self.kv_cache_dtype not in FP8:
            return {}
        return {"k_scale": layer._k_scale.view(1), "v_scale": layer._v_scale.view(1)}

    def _of_layer(self, layer, device):
        """What each launch of attention has from the layer. Graphs keep these addresses, so they never change."""
        if self._named is None:
            self._named = self._scales(layer)
            if self.sinks is not None:
                self._sinks = Sinks(self.sinks, device)
                self._named["sinks"] = self._sinks.current()
            if self.alibi_slopes is not None:
                self._named["alibi_slopes"] = torch.tensor(self.alibi_slopes, dtype=torch.float32, device=device)
        if self._sinks is not None:
            self._sinks.current()
        return self._named

    def process_weights_after_loading(self, act_dtype):
        if self._sinks is not None:
            self._sinks.refresh()

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        """query and output [tokens, heads, head_dim]; rows behind the last sequence are padding, and become zeros. New keys
        and values are in the cache already."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("kernelwright's backend does not quantise its result")
        if attn_metadata is None:  # vLLM measures its memory
            return output.fill_(0)
        keys, values = self._pages(kv_cache)
        # Invariant results come from one kernel: it gives a query the same bits in a prompt, in a chunk of it, and alone.
        one_query = attn_metadata.max_query_len == 1 and not self.invariant
        rows, result = attn_metadata.num_actual_tokens, output
        if one_query and rows < len(query):  # parts of keys take memory for each row
            output[rows:].zero_()
            query, output = query[:rows], output[:rows]
        kernel = self._kernel(query, self._attention, keys.shape[1], one_query)
        kernel(query, keys, values, out=output, scale=self.scale, q_offsets=attn_metadata.query_start_loc,
               kv_lengths=attn_metadata.seq_lens, page_table=attn_metadata.block_table, q_len=attn_metadata.max_query_len,
               kv_len=attn_metadata.max_seq_len, zero_padding=True, **self._of_layer(layer, query.device))
        return result

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        """Writes key and value [tokens, heads, head_dim] to the slots; those without one are padding."""
        keys, values = self._pages(kv_cache)
        kernel = self._kernel(key, self._write, keys.shape[1])
        kernel(key, value, keys, values, slot_mapping=slot_mapping, **self._scales(layer))
