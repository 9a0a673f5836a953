"""What tests behind SGLang's own classes share: a model runner, batches of sequences in its pools, a layer, and a reference.

SGLang's own are the pools of slots and of keys, the layers, the batches and the registry. Only the model runner is made up,
because it would load a model. IPython, which SGLang imports and nothing here needs, is replaced if it is missing. SGLang registers
its operator of attention for GPUs alone; without one it is registered for the CPU. So a test imports this module ahead of SGLang.

Sequences get their slots a page at a time, pages in random order. The reference is fp64, over what the cache holds.
"""
import importlib.util
import math
import sys
import types

import torch

if importlib.util.find_spec("IPython") is None:
    for name in ("IPython", "IPython.display"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["IPython.display"].HTML = sys.modules["IPython.display"].display = None

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
library_impl = torch.library.Library.impl


def for_this_machine(library, name, function, key="", **more):
    return library_impl(library, name, function, "CPU" if name == "unified_attention_with_output" and not HAS_GPU else key, **more)


torch.library.Library.impl = for_this_machine
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context

from attention_reference import reference  # noqa: F401, tests read it here
from kernelwright.sglang import attention

torch.library.Library.impl = library_impl
HEADS, KV_HEADS, HEAD_DIM, PAGE, SLOTS, CONTEXT = 4, 2, 64, 16, 24 * 16, 80
# Of each sequence: keys in the cache ahead of the step, new tokens.
STEPS = {"mixed": ((37, 1), (0, 21), (16, 5), (63, 1)), "decode": ((37, 1), (1, 1), (64, 1)), "prompts": ((0, 33), (0, 1), (0, 16)),
         "verified": ((37, 3), (1, 3), (60, 3))}


class Model(torch.nn.Module):
    """Layers of attention, each in a module that may have sinks, as in a model of SGLang's."""

    def __init__(self, layers, sinks=None):
        super().__init__()
        for i, layer in enumerate(layers):
            parent = torch.nn.Module()
            parent.attn, parent.sinks = layer, sinks
            self.add_module(str(i), parent)


def arguments_of(**changes):
    return types.SimpleNamespace(**dict(
        dcp_size=1, enable_pdmux=False, enable_two_batch_overlap=False, dllm_algorithm=None, enable_hisparse=False,
        speculative_algorithm=None, speculative_eagle_topk=None,
        cuda_graph_config=types.SimpleNamespace(prefill=types.SimpleNamespace(backend="breakable")),
        _get_default_attn_backend=lambda use_mla_backend, model_config: "fa3") | changes)


def runner_of(layers, dtype, kv_dtype=None, page=PAGE, sinks=None, windows=False, arguments=None, **changes):
    """A model runner as far as its attention is concerned, with pools of SGLang's."""
    kv_dtype = kv_dtype or dtype
    sizes = dict(page_size=page, dtype=kv_dtype, head_num=KV_HEADS, head_dim=HEAD_DIM, device=DEVICE)
    if windows:  # layer 0 sees all keys, layer 1 a window, whose cache is another one
        pool = SWAKVPool(SLOTS, SLOTS, swa_attention_layer_ids=[1], full_attention_layer_ids=[0], **sizes)
        # The allocator of SGLang's keeps this mapping. Here each page of one cache is another page of the other.
        pages = torch.randperm(SLOTS // page) + 1
        moved = (pages[:, None] * page + torch.arange(page)).flatten()
        pool.register_mapping(torch.cat([torch.zeros(page, dtype=torch.int64), moved, torch.tensor([-1])]).to(DEVICE))
    else:
        pool = MHATokenToKVPool(SLOTS, layer_num=len(layers), enable_memory_saver=False, **sizes)
    return types.SimpleNamespace(**dict(
        model=Model(layers, sinks), dtype=dtype, kv_cache_dtype=kv_dtype, page_size=page, token_to_kv_pool=pool, use_mla_backend=False,
        req_to_token_pool=ReqToTokenPool(8, CONTEXT, DEVICE, False), is_draft_worker=False, prefill_aware_swa=False,
        ps=types.SimpleNamespace(attn_cp_size=1), server_args=arguments or arguments_of(),
        model_config=types.SimpleNamespace(context_len=CONTEXT, is_encoder_decoder=False, is_local_attention_model=False)) | changes)


class Batch:
    """Sequences in a runner's pools, and steps of them: what SGLang's scheduler would give."""

    def __init__(self, runner, backend, sequences):
        self.runner, self.backend, self.sequences = runner, backend, sequences
        for part in self.pools():
            for buffer in (*part.k_buffer, *part.v_buffer):
                buffer.fill_(0x7F if buffer.dtype == torch.uint8 else math.nan)  # what no token wrote must not matter
        page = runner.page_size
        order = torch.randperm(SLOTS // page) + 1  # page 0 is SGLang's padding
        rows, self.order = runner.req_to_token_pool.req_to_token, iter(order.tolist())
        rows.fill_(SLOTS)  # stale, and a slot that is there
        self.indices = torch.randperm(7)[:len(sequences)] + 1
        self.slots = []
        for row, (ahead, new) in zip(self.indices, sequences):
            pages = torch.tensor([next(self.order) for _ in range(-(-(ahead + new) // page))])
            slots = (pages[:, None] * page + torch.arange(page)).flatten()[:ahead + new]
            rows[row, :len(slots)] = slots.to(rows)
            self.slots.append(slots)
        self.keys, self.values = ([self.randn(ahead + new, KV_HEADS) for ahead, new in sequences] for _ in range(2))
        self.queries = self.randn(sum(new for _, new in sequences), HEADS)

    def pools(self):
        pool = self.runner.token_to_kv_pool
        return (pool.full_kv_pool, pool.swa_kv_pool) if isinstance(pool, SWAKVPool) else (pool,)

    def randn(self, rows, heads):
        return torch.randn(rows, heads, HEAD_DIM).to(self.runner.dtype).to(DEVICE)

    def forward_batch(self, mode, first, last, **changes):
        """A batch whose new tokens are those from `first` to `last` of each sequence."""
        new = [b - a for a, b in zip(first, last)]
        lengths = first if mode == ForwardMode.TARGET_VERIFY else last
        slots = torch.cat([of[a:b] for of, a, b in zip(self.slots, first, last)]).to(DEVICE)
        extend = {} if mode in (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY) else dict(
            extend_seq_lens=torch.tensor(new, dtype=torch.int32, device=DEVICE), extend_seq_lens_cpu=new,
            extend_prefix_lens_cpu=list(first))
        return ForwardBatch(**dict(
            forward_mode=mode, batch_size=len(new), input_ids=torch.zeros(sum(new), dtype=torch.int64, device=DEVICE),
            req_pool_indices=self.indices.to(DEVICE), seq_lens=torch.tensor(lengths, device=DEVICE), out_cache_loc=slots,
            seq_lens_sum=sum(lengths), positions=torch.cat([torch.arange(a, b) for a, b in zip(first, last)]).to(DEVICE)) | extend | changes)

    def run(self, layer, batch, first, last, **more):
        """The output of a layer of SGLang's for those tokens: [tokens, heads, head_dim]."""
        k, v = (torch.cat([tokens[a:b] for tokens, a, b in zip(of, first, last)]) for of in (self.keys, self.values))
        queries = self.queries if len(self.queries) == len(k) else self.randn(len(k), HEADS)
        batch._attn_output = torch.full_like(queries.view(len(k), -1), math.nan)  # where SGLang's graphs of parts of prompts want it
        with forward_context(ForwardContext(attn_backend=self.backend)):
            out = layer(queries.view(len(k), -1), k.view(len(k), -1), v.view(len(k), -1), batch, **more)
        return out.view(-1, HEADS, HEAD_DIM)

    def prefill(self, layer, **more):
        """Brings the keys ahead of the step to the cache."""
        first, last = [0] * len(self.sequences), [ahead for ahead, _ in self.sequences]
        if sum(last):
            batch = self.forward_batch(ForwardMode.EXTEND, first, last)
            self.backend.init_forward_metadata(batch)
            self.run(layer, batch, first, last, **more)

    def stored(self, layer, i, count):
        """The first keys and values of sequence i, as the cache holds them."""
        pool, slots = self.runner.token_to_kv_pool, self.slots[i][:count]
        if isinstance(pool, SWAKVPool) and pool.layers_mapping[layer.layer_id][1]:
            slots = pool.full_to_swa_index_mapping.cpu()[slots]
        found = [buffer.cpu().float()[slots] for buffer in pool.get_kv_buffer(layer.layer_id)]
        scales = (layer.k_scale, layer.v_scale) if self.runner.kv_cache_dtype in attention.FP8 else (None, None)
        return [tokens if scale is None else tokens * scale.cpu() for tokens, scale in zip(found, scales)]


def layer_of(layer_id=0, scales=None, **features):
    layer = RadixAttention(HEADS, HEAD_DIM, HEAD_DIM**-0.5, KV_HEADS, layer_id, **features)
    if scales:
        layer.k_scale, layer.v_scale = (torch.nn.Parameter(torch.tensor(scale, device=DEVICE), requires_grad=False) for scale in scales)
    return layer
