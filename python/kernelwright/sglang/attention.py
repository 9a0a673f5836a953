"""Attention of SGLang by kernels of Kernelwright. A step's prompts and decodes are one launch: queries lie one sequence behind the
other, keys and values in pages, and all lengths are read on the device. New keys and values are written by a kernel of kind
kv_write.

A layer has three kernels: attention for steps with one query a sequence and for others, and the write. They are prepared once
SGLang has loaded the model and made the cache, before it captures graphs, and the engine is sealed. Layers alike share them.
"""
from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from .._append import FP8
from .._attention import DTYPES
from .._latent import LATENT, ROTARY
from .._served import LARGEST_HEAD, Served, Sinks, paged_attention, paged_write, takes_head

logger = logging.getLogger("kernelwright.sglang")

SINKS = ("sinks", "attention_sink_bias")  # where models of SGLang keep what they give a layer as its sinks
CHAINS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")  # ways to draft whose tokens follow one another if topk is 1
LAYOUTS = ("nhd", "hnd")

served = Served(logger, "SGLang")


# ---- what is served

def attention_layers(model):
    """{layer: whether its model gives it sinks} of all attention layers."""
    found = {}
    for module in model.modules():
        has_sinks = any(getattr(module, name, None) is not None for name in SINKS)
        for child in module.children():
            if isinstance(child, RadixAttention):
                found[child] = has_sinks
    return found


def reasons_of(runner):
    """Why a model runner of SGLang's is not served: a list, which is empty if it is."""
    arguments, config = runner.server_args, runner.model_config
    refused = {
        "encoders are not served": config.is_encoder_decoder,
        "attention in chunks is not served": config.is_local_attention_model,
        "the model that drafts tokens is not served": runner.is_draft_worker,
        "context parallelism is not served": runner.ps.attn_cp_size > 1 or arguments.dcp_size > 1,
        # They would share a workspace.
        "two batches at a time are not served": arguments.enable_pdmux or arguments.enable_two_batch_overlap,
        "diffusion of text is not served": arguments.dllm_algorithm is not None,
        "a cache in host memory (HiSparse) is not served": arguments.enable_hisparse,
        "windows that keep the prompt are not served": runner.prefill_aware_swa,
        "graphs of whole prompts are not served": arguments.cuda_graph_config.prefill.backend == "full",
        "trees of drafted tokens are not served": arguments.speculative_algorithm is not None and (
            arguments.speculative_algorithm.upper() not in CHAINS or (arguments.speculative_eagle_topk or 0) > 1),
    }
    reasons = [reason for reason, holds in refused.items() if holds]
    if reasons:  # such a model may have other layers and caches than those that are read below
        return reasons
    place = runner.req_to_token_pool.req_to_token.device
    if place.type == "cuda" and torch.cuda.get_device_capability(place)[0] < 8:
        reasons.append("compute capability 8.0 is the least")
    if runner.dtype not in DTYPES:
        reasons.append(f"the model is {runner.dtype}, and kernels take torch.float16 and torch.bfloat16")
    return reasons + reasons_of_cache(runner) + reasons_of_layers(attention_layers(runner.model), runner.use_mla_backend)


def reasons_of_cache(runner):
    pool = runner.token_to_kv_pool
    if runner.kv_cache_dtype != runner.dtype and runner.kv_cache_dtype not in FP8:
        return [f"a cache of {runner.kv_cache_dtype} beside {runner.dtype} is not served"]
    if runner.use_mla_backend:  # another class is that of sparse attention, or of 4 bits
        return [] if type(pool) is MLATokenToKVPool else [f"a cache of {type(pool).__name__} is not served"]
    for part in (pool.full_kv_pool, pool.swa_kv_pool) if type(pool) is SWAKVPool else (pool,):
        if type(part) is not MHATokenToKVPool or getattr(part, "is_quantized_kv_cache", False) or part.kv_cache_layout not in LAYOUTS:
            return [f"a cache of {type(part).__name__} is not served"]
    if type(pool) is SWAKVPool and pool.full_to_swa_index_mapping is None:
        return ["a cache of windows without a mapping is not served"]
    return []


def absorbs(layer):
    """Whether a layer's queries are absorbed: its keys are latents."""
    return layer.head_dim == LATENT + ROTARY and layer.v_head_dim == LATENT and layer.tp_k_head_num == 1


def reasons_of_layers(layers, latents=False):
    reasons = [] if layers else ["the model has no attention layers"]
    for layer in layers:
        if layer.attn_type != AttentionType.DECODER or layer.is_cross_attention:
            reasons.append("attention of encoders, and among tokens of images, is not served")
        if latents and absorbs(layer):
            if layer.logit_cap or layer.sliding_window_size > 0:
                reasons.append("windows and caps of scores over latents are not served")
        elif not (takes_head(layer.head_dim) and takes_head(layer.v_head_dim)):
            reasons.append(f"heads of {layer.head_dim} and {layer.v_head_dim} elements are not served; they have 16 to {LARGEST_HEAD}, "
                           "in multiples of 8")
        if layer.use_irope or layer.xai_temperature_len > 0 or layer.pos_encoding_mode != "NONE":
            reasons.append("scores that depend on positions are not served")
        if layer.logit_cap and layer.logit_capping_method != "tanh":
            reasons.append(f"a cap of scores by {layer.logit_capping_method} is not served")
    return list(dict.fromkeys(reasons))


# ---- a step

def refuse(others):
    """Raises an error that names what else SGLang has given a layer, if it has."""
    for name, value in others.items():
        if value is not None:
            raise NotImplementedError(f'kernelwright\'s backend takes no "{name}"; choose another --attention-backend')


@dataclass
class Step:
    """A step's sequences on the device. The two bounds are for grids and workspaces alone."""

    q_len: int
    kv_len: int
    q_offsets: torch.Tensor  # i32 [sequences + 1]
    lengths: torch.Tensor  # i32 [sequences]: keys, the new ones included
    table: torch.Tensor  # i32 [sequences, pages]
    slots: torch.Tensor | None = None  # i64 [tokens], -1: is not written; None: SGLang's own
    window_table: torch.Tensor | None = None  # the same of layers with windows, whose cache is another one
    window_slots: torch.Tensor | None = None  # i64 [tokens]


class KernelwrightAttnBackend(AttentionBackend):
    """What SGLang asks for attention, one object for all layers. Decodes, and drafted tokens that are verified, may lie in CUDA
    graphs: lengths and pages are brought to the same place ahead of each replay."""

    needs_cpu_seq_lens = False

    def __init__(self, runner):
        """runner: one without reasons_of(). Raises ConfigError if no kernel takes a layer after all."""
        super().__init__()
        self.token_to_kv_pool, self.req_to_token_pool = runner.token_to_kv_pool, runner.req_to_token_pool
        self.page_size, self.max_context_len = runner.page_size, runner.model_config.context_len
        self.dtype, self.kv_dtype = runner.dtype, "" if runner.kv_cache_dtype == runner.dtype else FP8[runner.kv_cache_dtype]
        self.windows = self.token_to_kv_pool if isinstance(self.token_to_kv_pool, SWAKVPool) else None
        slots = runner.req_to_token_pool.req_to_token
        self.first_slots = slots[:, ::self.page_size]  # of each sequence's pages
        self.device = slots.device
        self.forward_metadata = None
        self._graphs, self._buffers = {}, None
        self._kernels, self._sinks, self._scales = {}, {}, {}
        if self.page_size < 16:
            logger.warning("kernelwright: keys come a page at a time, so pages of %d tokens take many copies; --page-size 64 takes few",
                           self.page_size)
        layers = attention_layers(runner.model)
        problems = [problem for layer, has_sinks in layers.items() for problem in self._problems(layer, has_sinks)]
        served.prepare(self.device.type, self.device.index or 0, list(dict.fromkeys(problems)))

    # ---- kernels

    def _problems(self, layer, has_sinks):
        """Those of all of a layer's kernels."""
        return [self._attention(layer, one_query, has_sinks) for one_query in (True, False)] + [self._write(layer)]

    def _attention(self, layer, one_query, has_sinks):
        return paged_attention(DTYPES[self.dtype], layer.tp_q_head_num, layer.tp_k_head_num, layer.head_dim, layer.v_head_dim,
                               self.page_size, one_query, max(layer.sliding_window_size, -1), self.kv_dtype,
                               softcap=float(layer.logit_cap or 0), sinks=has_sinks)

    def _write(self, layer):
        return paged_write(DTYPES[self.dtype], layer.tp_k_head_num, layer.head_dim, layer.v_head_dim, self.page_size, self.kv_dtype)

    def _kernel(self, make, layer, *more):
        """The kernel of a layer's problem, which is found once."""
        key = make.__name__, layer.layer_id, more
        found = self._kernels.get(key)
        if found is None:
            found = served.find(self.device.type, self.device.index or 0, make(layer, *more))[0]
            self._kernels[key] = found
        return found

    def _scales_of(self, layer):
        """The scales of a cache of fp8: the layer's tensors, or its numbers, or 1. Graphs keep their addresses."""
        if not self.kv_dtype:
            return {}
        known = self._scales.get(layer.layer_id)
        if known is None or known[0] is not layer.k_scale or known[1] is not layer.v_scale:
            named = {name: torch.as_tensor(1.0 if given is None else given, dtype=torch.float32, device=self.device).detach().view(1)
                     for name, given in (("k_scale", layer.k_scale), ("v_scale", layer.v_scale))}
            known = self._scales[layer.layer_id] = layer.k_scale, layer.v_scale, named
        return known[2]

    def _sinks_of(self, layer, given):
        if given is None:
            return {}
        known = self._sinks.get(layer.layer_id)
        if known is None or known.given is not given:
            known = self._sinks[layer.layer_id] = Sinks(given, self.device)
        return {"sinks": known.current()}

    # ---- steps

    def _fill(self, step, batch, lengths, added=0):
        """Brings lengths and pages of a batch to the tensors of a step. added: new tokens that SGLang has not counted yet."""
        rows = len(step.lengths)
        torch.add(lengths[:rows], added, out=step.lengths)
        first = self.first_slots[:, :step.table.shape[1]].index_select(0, batch.req_pool_indices[:rows])
        torch.div(first, self.page_size, rounding_mode="floor", out=step.table)
        if self.windows is not None:
            # Keys that no window sees any more have no slot.
            first = self.windows.translate_loc_from_full_to_swa(first).clamp_(min=0).div_(self.page_size, rounding_mode="floor")
            step.window_table.copy_(first)
        slots = batch.out_cache_loc
        if slots is not None and step.slots is not None:
            # Rows that fill a graph's batch have slots of page 0, which is nobody's.
            slots = step.slots[:len(slots)].copy_(slots.masked_fill(slots < self.page_size, -1))
        if slots is not None and self.windows is not None:
            step.window_slots[:len(slots)].copy_(self.windows.translate_loc_from_full_to_swa(slots))
        return step

    def _new(self, sequences, q_len, kv_len, q_offsets, tokens):
        """A step whose tensors are not filled. kv_len: a bound, which may pass what SGLang has slots for."""
        pages = min(-(-kv_len // self.page_size), self.first_slots.shape[1])

        def made(*shape, dtype=torch.int32):
            return torch.empty(shape, dtype=dtype, device=self.device)
        step = Step(q_len, min(kv_len, pages * self.page_size), q_offsets, made(sequences), made(sequences, pages))
        if self.windows is not None:
            step.window_table, step.window_slots = made(sequences, pages), made(tokens, dtype=torch.int64)
        return step

    def init_forward_metadata(self, forward_batch):
        """A step that no graph holds."""
        batch, mode = forward_batch, forward_batch.forward_mode
        rows, tokens = batch.batch_size, len(batch.input_ids)
        keys = self.max_context_len if batch.seq_lens_cpu is None else int(batch.seq_lens_cpu[:rows].max()) if rows else 0
        added = 0
        if mode.is_decode_or_idle():
            self._refuse_drafts(batch)
            q_len, starts = 1, self._equal_offsets(rows, 1)
        elif mode.is_target_verify():
            self._refuse_drafts(batch)
            q_len = added = tokens // max(rows, 1)
            starts = self._equal_offsets(rows, q_len)
        else:
            starts = torch.zeros(rows + 1, dtype=torch.int32, device=self.device)
            torch.cumsum(batch.extend_seq_lens[:rows], 0, dtype=torch.int32, out=starts[1:])
            q_len = max(batch.extend_seq_lens_cpu, default=1) if batch.extend_seq_lens_cpu is not None else tokens
        self.forward_metadata = self._fill(self._new(rows, q_len, max(keys + added, 1), starts, tokens), batch, batch.seq_lens, added)

    def _equal_offsets(self, rows, queries):
        return torch.arange(0, rows * queries + 1, queries or 1, dtype=torch.int32, device=self.device)[:rows + 1]

    @staticmethod
    def _refuse_drafts(batch):
        """What a model runner does not tell ahead."""
        drafts = batch.spec_info
        if drafts is not None and (batch.forward_mode.is_decode() or getattr(drafts, "ragged_verify_layout", None) is not None):
            raise NotImplementedError("kernelwright's backend verifies equally many drafted tokens of each sequence, and drafts none; "
                                      "choose another --attention-backend")

    # ---- graphs

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        """Makes what the graphs of all batches read. max_num_tokens: of a step."""
        step = self._new(max_bs, 0, self.max_context_len + max_num_tokens // max(max_bs, 1), None, max_num_tokens)
        step.slots = torch.empty(max_num_tokens, dtype=torch.int64, device=self.device)
        self._buffers, self._graphs = step, {}

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        """A step that a graph holds. It is filled ahead of the replay, because SGLang may write the tables of slots again once the
        replay has begun."""
        batch, mode = forward_batch, forward_batch.forward_mode
        if not (mode.is_decode_or_idle() or mode.is_target_verify()):
            raise NotImplementedError("kernelwright's backend has graphs of decodes alone, and lets prompts run between graphs")
        self._refuse_drafts(batch)
        rows, key = batch.batch_size, (mode.is_target_verify(), batch.batch_size)
        if in_capture:
            tokens = len(batch.positions) if mode.is_target_verify() else rows
            self._graphs[key] = self._of_graph(rows, tokens // rows)
        step = self._graphs[key]
        self.forward_metadata = self._fill(step, batch, batch.seq_lens, step.q_len if mode.is_target_verify() else 0)

    def _of_graph(self, rows, queries):
        """The first rows of what all graphs read. The keys of a launch are bounded by the longest context."""
        of = self._buffers
        step = Step(queries, of.kv_len, self._equal_offsets(rows, queries), of.lengths[:rows], of.table[:rows], of.slots[:rows * queries])
        if self.windows is not None:
            step.window_table, step.window_slots = of.window_table[:rows], of.window_slots[:rows * queries]
        return step

    def get_cuda_graph_seq_len_fill_value(self):
        """The keys of a sequence that fills a graph's batch, which are those of slot 0."""
        return 1

    def update_verify_buffers_to_fill_after_draft(self, spec_info, cuda_graph_bs):
        """Nothing of a step depends on the tokens that were drafted."""

    # ---- layers

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def _attend(self, q, k, v, layer, batch, save_kv_cache, sinks=None, **others):
        """q [tokens, heads * head_dim], k and v [tokens, heads, head_dim] or None. Returns [tokens, heads * head_dim]; rows behind
        the last sequence are padding, and become zeros."""
        refuse(others)
        step, in_window = self.forward_metadata, self.windows is not None and self.windows.layers_mapping[layer.layer_id][1]
        keys, values = (self._pages(cache) for cache in self.token_to_kv_pool.get_kv_buffer(layer.layer_id))
        if k is not None and save_kv_cache:
            slots = self._slots_of(batch, step.window_slots if in_window else step.slots)
            k, v = k.to(self.dtype).view(-1, *keys.shape[2:]), v.to(self.dtype).view(-1, *values.shape[2:])
            self._kernel(self._write, layer)(k, v, keys, values, slot_mapping=slots, **self._scales_of(layer))
        query, out, result = self._rows_of(q, layer, batch, step)
        one_query = step.q_len == 1
        self._kernel(self._attention, layer, one_query, sinks is not None)(
            query, keys, values, out=out, scale=float(layer.scaling), q_offsets=step.q_offsets, kv_lengths=step.lengths,
            page_table=step.window_table if in_window else step.table, q_len=step.q_len, kv_len=step.kv_len, zero_padding=True,
            **self._scales_of(layer), **self._sinks_of(layer, sinks))
        return result

    @staticmethod
    def _slots_of(batch, slots):
        """i64 slots of the new tokens. Where SGLang gives fewer tokens than the step has, they are its first."""
        return (batch.out_cache_loc if slots is None else slots[:len(batch.out_cache_loc)]).long()

    def _rows_of(self, q, layer, batch, step):
        """Queries and results [tokens, heads, ..], and the results as SGLang wants them. Of a step of one query a sequence, rows of
        padding are zeros already."""
        query = q.to(self.dtype).view(-1, layer.tp_q_head_num, layer.head_dim)
        given = getattr(batch, "_attn_output", None)  # SGLang's, in graphs of parts of a prompt
        result = q.new_empty(len(query), layer.tp_q_head_num * layer.v_head_dim, dtype=self.dtype) if given is None else given
        out, rows = result.view(-1, layer.tp_q_head_num, layer.v_head_dim), len(step.lengths)
        if step.q_len == 1 and rows < len(query):  # parts of keys take memory for each row
            out[rows:].zero_()
            query, out = query[:rows], out[:rows]
        return query, out, result

    def _pages(self, cache):
        """Keys or values [pages, page_size, heads, head_dim] of a layer's cache, which stay where they are."""
        return cache.view(-1, self.page_size, *cache.shape[1:]) if cache.dim() == 3 else cache.transpose(1, 2)
