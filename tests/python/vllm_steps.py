"""What tests of attention behind vLLM's own classes share: a layer, the builder of its metadata, steps over its cache, and a reference.

Sequences get their keys by do_kv_cache_update(), pages in random order, and attend in steps of prompts and decodes together. The
reference is fp64, over what the cache holds.
"""
import math
import types
import unittest.mock

import torch
import vllm
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import CommonAttentionMetadata

from attention_reference import reference  # noqa: F401, tests read it here
from kernelwright.vllm import attention, caches
from kernelwright.vllm.attention import KernelwrightBackend, KernelwrightMetadataBuilder

ERA = tuple(int(part) for part in vllm.__version__.split(".")[:2])
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
HEADS, KV_HEADS, HEAD_DIM, PAGE, PAGES = 4, 2, 64, 16, 64
MOST_KEYS = PAGE * PAGES
# Of each sequence: keys in the cache ahead of the step, new tokens.
STEPS = {"mixed": ((37, 1), (0, 21), (16, 5), (63, 1)), "decode": ((37, 1), (1, 1), (64, 1)), "prompts": ((0, 33), (0, 1), (0, 16))}


def layer_of(impl, dtype):
    """A layer of vLLM as far as its attention is concerned."""
    layer = Attention.__new__(Attention)
    torch.nn.Module.__init__(layer)
    layer.impl, layer.dtype = impl, dtype
    layer.register_buffer("_k_scale", torch.tensor(0.02, dtype=torch.float32, device=DEVICE))
    layer.register_buffer("_v_scale", torch.tensor(0.03, dtype=torch.float32, device=DEVICE))
    return layer


def builder_of(layers, block_size=PAGE):
    config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(decode_context_parallel_size=1),
                                   compilation_config=types.SimpleNamespace(static_forward_context=layers,
                                                                            cudagraph_capture_sizes=[1, 2, 4]),
                                   scheduler_config=types.SimpleNamespace(max_num_seqs=4), speculative_config=None,
                                   model_config=types.SimpleNamespace(max_model_len=MOST_KEYS, dtype=torch.bfloat16))
    return KernelwrightMetadataBuilder(types.SimpleNamespace(block_size=block_size), list(layers), config, torch.device(DEVICE))


def cache_of(stored, layout="NHD", page=PAGE, heads=KV_HEADS, layers=None):
    """A layer's cache as vLLM's model runner makes it: in memory in the order that the backend names. layers: all caches together."""
    shape = KernelwrightBackend.get_kv_cache_shape(PAGES, page, heads, HEAD_DIM)
    with unittest.mock.patch.object(caches, "get_kv_cache_layout", lambda: layout):
        order = KernelwrightBackend.get_kv_cache_stride_order(include_num_layers_dimension=layers is not None)
    shape = shape if layers is None else (layers, *shape)
    return torch.zeros([shape[i] for i in order], dtype=stored, device=DEVICE).permute([order.index(i) for i in range(len(order))])


class Step:
    """One step of a layer: what vLLM's model runner would give it."""

    def __init__(self, layer, dtype, sequences, heads_first=False, padding=3, page=PAGE):
        self.layer, self.sequences, self.dtype = layer, sequences, dtype
        impl = layer.impl
        fp8 = impl.kv_cache_dtype in attention.FP8
        self.cache = cache_of(torch.uint8 if fp8 else dtype, "HND" if heads_first else "NHD", page)
        self.cache.fill_(0x7F if fp8 else math.nan)  # what no token wrote must not matter
        self.width = max(5, max(-(-sum(each) // page) for each in sequences))
        order, self.table = torch.randperm(PAGES), torch.zeros(len(sequences), self.width, dtype=torch.int32)
        for i, (ahead, new) in enumerate(sequences):
            for j in range(-(-(ahead + new) // page)):
                self.table[i, j], order = order[0], order[1:]
        self.keys, self.values = ([self.randn(ahead + new, KV_HEADS) for ahead, new in sequences] for _ in range(2))
        self.queries = torch.cat([self.randn(new, HEADS) for _, new in sequences] + [self.randn(padding, HEADS)])
        self.page = page
        self.write(0, [ahead for ahead, _ in sequences])
        self.tokens = sum(new for _, new in sequences)

    def randn(self, rows, heads):
        return torch.randn(rows, heads, HEAD_DIM).to(self.dtype).to(DEVICE)

    def slots(self, first, last):
        return torch.cat([self.table[i, torch.arange(a, b) // self.page].long() * self.page + torch.arange(a, b) % self.page
                          for i, (a, b) in enumerate(zip(first, last))])

    def write(self, first, last, padding=0):
        first = [first] * len(last) if isinstance(first, int) else first
        new = [torch.cat([tokens[a:b] for tokens, a, b in zip(of, first, last)] + [self.randn(padding, KV_HEADS)])
               for of in (self.keys, self.values)]
        slots = torch.cat([self.slots(first, last), torch.full((padding,), -1)]).to(DEVICE)
        if len(slots):
            self.layer.impl.do_kv_cache_update(self.layer, *new, self.cache, slots)
        return slots

    def run(self, builder, padded_sequences=2):
        """The step's output of all rows, those of padding included."""
        ahead, last = [a for a, _ in self.sequences], [a + n for a, n in self.sequences]
        slots = self.write(ahead, last, padding=len(self.queries) - self.tokens)
        offsets = torch.tensor([0, *torch.tensor([n for _, n in self.sequences]).cumsum(0)] + [self.tokens] * padded_sequences)
        lengths = torch.tensor(last + [0] * padded_sequences)
        table = torch.cat([self.table, torch.zeros(padded_sequences, self.width, dtype=torch.int32)])
        starts = offsets.to(torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts.to(DEVICE), query_start_loc_cpu=starts, seq_lens=lengths.to(torch.int32).to(DEVICE),
            num_reqs=len(lengths), num_actual_tokens=self.tokens, max_query_len=max(n for _, n in self.sequences),
            max_seq_len=self.width * self.page + 3, block_table_tensor=table.to(DEVICE), slot_mapping=slots, causal=True)
        out = torch.full_like(self.queries, math.nan)
        self.layer.impl.forward(self.layer, self.queries, None, None, self.cache, builder.build(0, common), out)
        return out

    def stored(self, i):
        """Keys and values of sequence i, as the cache holds them."""
        keys, values = self.layer.impl._pages(self.cache)
        slots = self.slots([0], [sum(self.sequences[i])]) if i == 0 else self.table[i, torch.arange(sum(self.sequences[i])) // self.page].long() \
            * self.page + torch.arange(sum(self.sequences[i])) % self.page
        found = [pages.cpu().float()[slots // self.page, slots % self.page] for pages in (keys, values)]
        if self.layer.impl.kv_cache_dtype in attention.FP8:
            found = [found[0] * self.layer._k_scale.cpu(), found[1] * self.layer._v_scale.cpu()]
        return found
