#!/usr/bin/env python3
"""Attention and fp8 linear layers behind SGLang's own classes: on the GPU if there is one, else on the emulator. Run by hand where SGLang's Python files,
torch and what SGLang imports are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the
library, unless the package is installed.

SGLang's own are the pools of slots and of keys, the layers, the batches and the registry. Only the model runner is made up,
because it would load a model. IPython, which SGLang imports and nothing here needs, is replaced if it is missing. SGLang registers
its operator of attention for GPUs alone; without one it is registered for the CPU. Sequences get their slots a page at a time, pages
in random order. The reference is fp64, over what the cache holds.
"""
import importlib.util
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

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
import sglang
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.quantization import fp8, fp8_utils
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph import set_tc_piecewise_forward_context

import kernelwright
import kernelwright.sglang
from kernelwright.sglang import attention

torch.library.Library.impl = library_impl
HEADS, KV_HEADS, HEAD_DIM, PAGE, SLOTS, CONTEXT = 4, 2, 64, 16, 24 * 16, 80
FP8_BOUND = {torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}  # of a key: a rounding of the format
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


def reference(q, k, v, scale, window=-1, softcap=0.0, sinks=None):
    """q [queries, heads, head_dim] are the last of the sequence's tokens, k and v [keys, kv_heads, head_dim]. window: keys left of
    its own that a query sees."""
    n, m = len(q), len(k)
    q, k, v = (tensor.double().cpu() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    at, keys = torch.arange(m - n, m)[:, None], torch.arange(m)
    seen = keys <= at
    if window >= 0:
        seen = seen & (keys >= at - window)
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().cpu()[:, None, None].expand(-1, n, 1)], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :m], v)


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


class Contract(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("cuda" if HAS_GPU else "emulator", hazards=not HAS_GPU)
        attention.served.use(cls.engine)
        kernelwright.sglang.register()

    def setUp(self):
        torch.manual_seed(7)

    def tearDown(self):
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def compare(self, batch, layer, out, last, new, tolerance, sinks=None):
        """tolerance: of the largest value; bf16 rounds probabilities and results by 2^-9 each."""
        at = 0
        for i, (count, queries) in enumerate(zip(last, new)):
            k, v = batch.stored(layer, i, count)
            want = reference(batch.queries[at:at + queries], k, v, layer.scaling, layer.sliding_window_size, layer.logit_cap, sinks)
            off = (out[at:at + queries].double().cpu() - want).abs().max().item()
            self.assertLessEqual(off, tolerance * v.abs().max().item(), f"sequence {i}")
            at += queries

    def check(self, name, dtype=torch.bfloat16, tolerance=2.0**-7, kv_dtype=None, page=PAGE, sinks=None, layer_id=0, windows=False,
              scales=None, mode=None, **features):
        sequences = STEPS[name]
        layers = [layer_of(i, scales, **(features if i == layer_id else {})) for i in range(2 if windows else 1)]
        layer = layers[layer_id]
        runner = runner_of(layers, dtype, kv_dtype, page, sinks, windows)
        backend = ATTENTION_BACKENDS["kernelwright"](runner)
        self.assertIsInstance(backend, attention.KernelwrightAttnBackend)
        batch = Batch(runner, backend, sequences)
        more = {} if sinks is None else {"sinks": sinks}
        batch.prefill(layer, **more)
        first, last = [ahead for ahead, _ in sequences], [ahead + new for ahead, new in sequences]
        mode = mode or {"decode": ForwardMode.DECODE, "verified": ForwardMode.TARGET_VERIFY, "mixed": ForwardMode.MIXED}.get(
            name, ForwardMode.EXTEND)
        given = batch.forward_batch(mode, first, last)
        backend.init_forward_metadata(given)
        out, again = batch.run(layer, given, first, last, **more), batch.run(layer, given, first, last, **more)
        self.assertTrue(torch.equal(out, again))
        self.compare(batch, layer, out, last, [new for _, new in sequences], tolerance, sinks)
        return batch

    def test_steps(self):
        for name in STEPS:
            with self.subTest(name):
                self.check(name)

    def test_f16_and_other_pages(self):
        self.check("mixed", torch.float16, 2.0**-9, page=32)
        self.check("mixed", torch.float16, 2.0**-9, page=1)

    def test_heads_ahead_of_tokens_in_a_page(self):
        with unittest.mock.patch.dict(os.environ, {"SGLANG_USE_HND_KVCACHE": "1"}):
            runner = runner_of([layer_of()], torch.bfloat16)
        pool = runner.token_to_kv_pool
        self.assertEqual(pool.k_buffer[0].shape, (SLOTS // PAGE + 1, KV_HEADS, PAGE, HEAD_DIM))
        backend = ATTENTION_BACKENDS["kernelwright"](runner)
        batch = Batch(runner, backend, STEPS["decode"])
        layer = next(iter(attention.attention_layers(runner.model)))
        batch.prefill(layer)
        first, last = [ahead for ahead, _ in STEPS["decode"]], [ahead + 1 for ahead, _ in STEPS["decode"]]
        given = batch.forward_batch(ForwardMode.DECODE, first, last)
        backend.init_forward_metadata(given)
        out = batch.run(layer, given, first, last)
        for i, count in enumerate(last):
            slots = batch.slots[i][:count]
            k, v = (buffer[0].cpu().float()[slots // PAGE, :, slots % PAGE] for buffer in (pool.k_buffer, pool.v_buffer))
            want = reference(batch.queries[i:i + 1], k, v, layer.scaling)
            self.assertLessEqual((out[i:i + 1].double().cpu() - want).abs().max().item(), 2.0**-7 * v.abs().max().item())

    def test_features(self):
        sinks = torch.randn(HEADS, dtype=torch.bfloat16, device=DEVICE)
        for features in ({"sliding_window_size": 8}, {"logit_cap": 2.0}, {"sinks": sinks}):
            for name in ("mixed", "decode"):
                with self.subTest(name, **features):
                    self.check(name, **features)

    def test_fp8_caches(self):
        for kv_dtype, bound in FP8_BOUND.items():
            for name in ("mixed", "decode"):
                with self.subTest(str(kv_dtype), step=name):
                    batch = self.check(name, kv_dtype=kv_dtype, scales=(0.02, 0.03))
                    layer = next(iter(attention.attention_layers(batch.runner.model)))
                    k, want = batch.stored(layer, 1, 1)[0], batch.keys[1][:1].cpu().float()
                    self.assertLessEqual(((k - want).abs() / (want.abs() + 0.02)).max().item(), bound)

    def test_an_fp8_cache_without_scales(self):
        batch = self.check("decode", kv_dtype=torch.float8_e4m3fn)
        layer = next(iter(attention.attention_layers(batch.runner.model)))
        self.assertEqual(batch.backend._scales_of(layer)["k_scale"].tolist(), [1.0])
        layer.k_scale = 0.5  # a file of scales makes them numbers
        self.assertEqual(batch.backend._scales_of(layer)["k_scale"].tolist(), [0.5])

    def test_windows_with_a_cache_of_their_own(self):
        for name in ("mixed", "decode"):
            self.check(name, windows=True, layer_id=1, sliding_window_size=8)
            self.check(name, windows=True, layer_id=0)

    def test_keys_that_no_window_sees_have_no_slot(self):
        layers = [layer_of(0), layer_of(1, sliding_window_size=8)]
        runner = runner_of(layers, torch.bfloat16, windows=True)
        backend = ATTENTION_BACKENDS["kernelwright"](runner)
        batch = Batch(runner, backend, STEPS["decode"])
        batch.prefill(layers[1])
        first, last = [ahead for ahead, _ in STEPS["decode"]], [ahead + 1 for ahead, _ in STEPS["decode"]]
        kept = [batch.stored(layers[1], i, count) for i, count in enumerate(last)]
        mapping = runner.token_to_kv_pool.full_to_swa_index_mapping
        mapping[batch.slots[2][:32].to(DEVICE)] = 0  # as SGLang does when it frees them
        given = batch.forward_batch(ForwardMode.DECODE, first, last)
        backend.init_forward_metadata(given)
        out = batch.run(layers[1], given, first, last)
        k, v = kept[2]
        k[-1], v[-1] = batch.keys[2][-1].cpu(), batch.values[2][-1].cpu()
        want = reference(batch.queries[2:3], k, v, layers[1].scaling, 8)
        self.assertLessEqual((out[2:3].double().cpu() - want).abs().max().item(), 2.0**-7 * v.abs().max().item())

    def test_a_step_that_a_graph_holds(self):
        """SGLang captures once, and brings new lengths to the same place ahead of each replay."""
        for mode, new in ((ForwardMode.DECODE, 1), (ForwardMode.TARGET_VERIFY, 3)):
            for windows in (False, True):
                with self.subTest(mode.name, windows=windows):
                    self.graph(mode, new, windows)

    def graph(self, mode, new, windows):
        layers = [layer_of(0)] + [layer_of(1, sliding_window_size=8)] * windows
        layer = layers[-1]
        runner = runner_of(layers, torch.bfloat16, windows=windows)
        backend = ATTENTION_BACKENDS["kernelwright"](runner)
        batch = Batch(runner, backend, ((40, new), (55, new), (64, new)))
        batch.prefill(layer)
        backend.init_cuda_graph_state(4, 4 * new)
        fill = backend.get_cuda_graph_seq_len_fill_value()
        rows = 4  # the last of them fills the graph's batch
        held = ForwardBatch(
            forward_mode=mode, batch_size=rows, input_ids=torch.zeros(rows * new, dtype=torch.int64, device=DEVICE),
            req_pool_indices=torch.zeros(rows, dtype=torch.int64, device=DEVICE),
            seq_lens=torch.full((rows,), fill, dtype=torch.int64, device=DEVICE), seq_lens_sum=rows * fill,
            out_cache_loc=torch.zeros(rows * new, dtype=torch.int64, device=DEVICE),
            positions=torch.zeros(rows * new, dtype=torch.int64, device=DEVICE))
        runner.req_to_token_pool.req_to_token[0] = 0
        q, k, v = (batch.randn(rows * new, heads).view(rows * new, -1) for heads in (HEADS, KV_HEADS, KV_HEADS))

        def step():
            with forward_context(ForwardContext(attn_backend=backend)):
                return layer(q, k, v, held)
        backend.init_forward_metadata_out_graph(held, in_capture=True)
        backend.init_forward_metadata_in_graph(held)
        captured, out, graph = backend.forward_metadata, step(), None
        if HAS_GPU:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = step()
        addresses = [tensor.data_ptr() for tensor in vars(captured).values() if isinstance(tensor, torch.Tensor)]
        for ahead in ((40, 55, 64), (3, 17, 30)):
            count = [a + new for a in ahead]
            lengths = ahead if mode == ForwardMode.TARGET_VERIFY else count
            held.req_pool_indices[:3], held.seq_lens[:3] = batch.indices.to(DEVICE), torch.tensor(lengths, device=DEVICE)
            held.out_cache_loc[:3 * new] = torch.cat([of[a:a + new] for of, a in zip(batch.slots, ahead)]).to(DEVICE)
            backend.init_forward_metadata_out_graph(held)
            self.assertIs(backend.forward_metadata, captured)
            self.assertEqual(addresses, [tensor.data_ptr() for tensor in vars(captured).values() if isinstance(tensor, torch.Tensor)])
            if graph:
                graph.replay()
            else:
                out = step()
            batch.queries = q.view(-1, HEADS, HEAD_DIM)
            self.compare(batch, layer, out.view(-1, HEADS, HEAD_DIM), count, [new] * 3, 2.0**-7)

    def test_a_prompt_between_graphs_of_its_parts(self):
        """SGLang runs attention between such graphs, whose rows behind the prompt's are padding."""
        layer = layer_of()
        runner = runner_of([layer], torch.bfloat16)
        backend = ATTENTION_BACKENDS["kernelwright"](runner)
        batch = Batch(runner, backend, STEPS["prompts"])
        first, last = [0] * 3, [new for _, new in STEPS["prompts"]]
        tokens, bucket = sum(last), 64
        given = batch.forward_batch(ForwardMode.EXTEND, first, last)
        backend.init_forward_metadata(given)
        given.num_token_non_padded_cpu = tokens
        given.out_cache_loc = torch.cat([given.out_cache_loc, torch.zeros(bucket - tokens, dtype=torch.int64, device=DEVICE)])
        q, k, v = (torch.cat([torch.cat(rows) if isinstance(rows, list) else rows, batch.randn(bucket - tokens, heads)]).view(bucket, -1)
                   for rows, heads in ((batch.queries, HEADS), (batch.keys, KV_HEADS), (batch.values, KV_HEADS)))
        with forward_context(ForwardContext(attn_backend=backend)), \
                set_tc_piecewise_forward_context(given, [layer], None, [], [], num_tokens=bucket, raw_num_tokens=tokens):
            out = layer(q, k, v, given).view(bucket, HEADS, HEAD_DIM)
        self.compare(batch, layer, out, last, last, 2.0**-7)
        self.assertEqual(out[tokens:].abs().sum().item(), 0)

    def test_the_engine_is_sealed_and_layers_alike_share_kernels(self):
        self.check("mixed")
        def counted():
            found = self.engine.counters()
            return [found[name] for name in ("compiles", "sealed_misses")]
        before = counted()
        runner = runner_of([layer_of(i) for i in range(3)], torch.bfloat16)
        backend = ATTENTION_BACKENDS["kernelwright"](runner)
        self.assertTrue(self.engine.sealed)
        batch = Batch(runner, backend, STEPS["mixed"])
        for layer in attention.attention_layers(runner.model):
            batch.prefill(layer)
        self.assertEqual(counted(), before)

    def test_a_shared_layer_reads_and_does_not_write(self):
        """Layers may share the keys of another one, and some models write keys themselves."""
        batch = self.check("decode")
        layer = next(iter(attention.attention_layers(batch.runner.model)))
        before = [buffer.clone() for part in batch.pools() for buffer in (*part.k_buffer, *part.v_buffer)]
        first, last = [ahead for ahead, _ in STEPS["decode"]], [ahead + 1 for ahead, _ in STEPS["decode"]]
        given = batch.forward_batch(ForwardMode.DECODE, first, last)
        with forward_context(ForwardContext(attn_backend=batch.backend)):
            out = layer(batch.queries.view(3, -1), None, None, given, save_kv_cache=False)
        self.compare(batch, layer, out.view(-1, HEADS, HEAD_DIM), last, [1] * 3, 2.0**-7)
        for old, part in zip(before, [buffer for part in batch.pools() for buffer in (*part.k_buffer, *part.v_buffer)]):
            self.assertTrue(torch.equal(old.view(torch.uint8), part.view(torch.uint8)))

    def test_prompts_of_sglang_and_decodes_of_ours(self):
        """--decode-attention-backend kernelwright: SGLang's own backend of torch computes prompts and writes their keys."""
        layer = layer_of()
        runner = runner_of([layer], torch.bfloat16)
        runner.device, runner.is_draft_worker = DEVICE, False
        runner.server_args.speculative_attention_mode = "prefill"
        backend = HybridAttnBackend(runner, prefill_backend=TorchNativeAttnBackend(runner),
                                    decode_backend=ATTENTION_BACKENDS["kernelwright"](runner))
        batch = Batch(runner, backend, STEPS["decode"])
        first, last = [ahead for ahead, _ in STEPS["decode"]], [ahead + 1 for ahead, _ in STEPS["decode"]]
        for part in batch.pools():
            for buffer in (*part.k_buffer, *part.v_buffer):
                buffer.zero_()  # the backend of torch reads what no token wrote
        given = batch.forward_batch(ForwardMode.EXTEND, [0] * 3, first, extend_prefix_lens=torch.zeros(3, dtype=torch.int32, device=DEVICE))
        backend.init_forward_metadata(given)
        batch.run(layer, given, [0] * 3, first)
        given = batch.forward_batch(ForwardMode.DECODE, first, last)
        backend.init_forward_metadata(given)
        self.compare(batch, layer, batch.run(layer, given, first, last), last, [1] * 3, 2.0**-7)

    def test_keys_that_sglang_wrote(self):
        for kv_dtype, scales in ((torch.bfloat16, None), (torch.float8_e4m3fn, (0.02, 0.03)), (torch.float8_e5m2, (0.02, 0.03))):
            with self.subTest(str(kv_dtype)):
                layer = layer_of(scales=scales)
                runner = runner_of([layer], torch.bfloat16, kv_dtype)
                backend = ATTENTION_BACKENDS["kernelwright"](runner)
                batch = Batch(runner, backend, STEPS["decode"])
                first, last = [ahead for ahead, _ in STEPS["decode"]], [ahead + 1 for ahead, _ in STEPS["decode"]]
                runner.token_to_kv_pool.set_kv_buffer(layer, torch.cat(batch.slots).to(DEVICE), torch.cat(batch.keys),
                                                      torch.cat(batch.values), layer.k_scale, layer.v_scale)
                given = batch.forward_batch(ForwardMode.DECODE, first, last)
                backend.init_forward_metadata(given)
                out = batch.run(layer, given, first, last, save_kv_cache=False)
                self.compare(batch, layer, out, last, [1] * 3, 2.0**-7)

    def test_new_sinks_are_read_where_the_old_ones_lay(self):
        sinks = torch.zeros(HEADS, dtype=torch.bfloat16, device=DEVICE)
        batch = self.check("decode", sinks=sinks)
        held = batch.backend._sinks[0].current()
        sinks.fill_(3)
        self.assertIs(batch.backend._sinks_of(layer_of(), sinks)["sinks"], held)
        self.assertEqual(held.tolist(), [3.0] * HEADS)


class Fp8(unittest.TestCase):
    """SGLang's own method of a layer calls the runner that SGLang's own choice returns."""

    N, K = 200, 256

    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("cuda" if HAS_GPU else "emulator", hazards=not HAS_GPU)
        attention.served.use(cls.engine)
        kernelwright.sglang.register()
        from kernelwright.sglang import linears

        cls.linears = linears

    def setUp(self):
        torch.manual_seed(5)
        arguments = types.SimpleNamespace(fp8_gemm_runner_backend="kernelwright", quantization=None)
        fp8_utils.initialize_fp8_gemm_config(arguments)
        self.addCleanup(setattr, fp8_utils, "FP8_GEMM_RUNNER_BACKEND", None)

    def layer(self, dtype):
        layer = torch.nn.Module()
        weight, scale = torch.randn(self.N, self.K).clamp(-3, 3).to(torch.float8_e4m3fn), torch.rand(2, 2) * 0.02 + 0.01
        layer.weight = torch.nn.Parameter(weight.to(DEVICE), requires_grad=False)
        layer.weight_scale_inv = torch.nn.Parameter(scale.to(DEVICE), requires_grad=False)
        layer.orig_dtype, layer.quant_method = dtype, fp8.Fp8LinearMethod(fp8.Fp8Config(
            is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128]))
        return layer, weight.double(), scale.repeat_interleave(128, 0)[:self.N].double()

    @staticmethod
    def lost(elements, weight):
        """What Hopper's tensor cores may lose of the sums over each 128 of k. An instruction adds 32 products to the sum so far. It
        truncates each of these 33 at 2^-13 of the largest, and their sum at 2^-13 of itself."""
        products = (elements[:, None] * weight).unflatten(-1, (-1, 4, 32))
        after = products.sum(-1).cumsum(-1)
        before = torch.cat([torch.zeros_like(after[..., :1]), after[..., :-1]], -1)
        largest = torch.maximum(products.abs().amax(-1), before.abs())
        return 2.0**-13 * (33 * largest + after.abs()).sum(-1)

    def test_scales_of_blocks(self):
        for dtype, rounding in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
            layer, weight, scale = self.layer(dtype)
            wide = weight * scale.repeat_interleave(128, 1)
            self.assertIs(layer.quant_method.w8a8_block_fp8_linear, self.linears.kernelwright_w8a8_block_fp8_linear)
            self.assertEqual(self.linears.prepare(layer), 1)
            quantiser = self.linears.handles(DEVICE, 0, self.N, self.K, attention.DTYPES[dtype], False)[1]
            for shape in ((1,), (5,), (2, 3)):
                for bias in (None, torch.randn(self.N).to(dtype).to(DEVICE)):
                    with self.subTest(dtype=dtype, shape=shape, bias=bias is not None):
                        x = torch.randn(*shape, self.K).to(dtype).to(DEVICE)
                        rows = x.view(-1, self.K)
                        elements, of_x = self.linears.quantised(quantiser, rows, self.K)
                        stored = elements.double().cpu() * of_x.double().cpu().t().repeat_interleave(128, 1)
                        off = (stored - rows.double().cpu()).abs()  # a rounding of e4m3, and of what its smallest numbers are
                        self.assertLessEqual((off - 2.0**-4 * rows.double().cpu().abs() - 2.0**-9).max().item(), 0)
                        want = stored @ wide.t() + (0 if bias is None else bias.double().cpu())
                        found, again = (layer.quant_method.apply(layer, x, bias) for _ in range(2))
                        self.assertEqual((found.shape, found.dtype), ((*shape, self.N), dtype))
                        self.assertTrue(torch.equal(found, again))
                        lost = (self.lost(elements.double().cpu(), weight) * of_x.double().cpu().t()[:, None] * scale).sum(-1)
                        bound = rounding * want.abs() + lost + 2.0**-20  # a rounding of the result, and sums in f32
                        off = (found.view(-1, self.N).double().cpu() - want).abs()
                        self.assertLessEqual((off - bound).max().item(), 0, f"off by {off.max().item()}")
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def test_compiled_and_eager_have_the_same_bits(self):
        layer = self.layer(torch.bfloat16)[0]
        x = torch.randn(5, self.K).to(torch.bfloat16).to(DEVICE)

        def run(x):
            return layer.quant_method.apply(layer, x) * 2
        with torch.no_grad():
            self.assertTrue(torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(x), run(x)))

    def test_no_rows(self):
        layer = self.layer(torch.bfloat16)[0]
        found = layer.quant_method.apply(layer, torch.zeros(0, self.K, dtype=torch.bfloat16, device=DEVICE))
        self.assertEqual(found.shape, (0, self.N))

    def test_layers_with_other_scales_are_not_prepared(self):
        layer = self.layer(torch.bfloat16)[0]
        layer.quant_method = fp8.Fp8LinearMethod(fp8.Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic"))
        self.assertEqual(self.linears.prepare(layer), 0)

    def test_a_layer_that_is_not_taken_is_tritons(self):
        layer = self.layer(torch.bfloat16)[0]
        x = torch.zeros(2, self.K, dtype=torch.bfloat16, device=DEVICE)
        for given in ({"input": x.float()}, {"block_size": [64, 64]}, {"input_scale": x},
                      {"weight_scale": layer.weight_scale_inv.data.to(torch.int32)}, {"bias": torch.zeros(self.N, device=DEVICE)}):
            named = dict(input=x, weight=layer.weight, block_size=[128, 128], weight_scale=layer.weight_scale_inv) | given
            with unittest.mock.patch.object(fp8_utils, "triton_w8a8_block_fp8_linear", return_value="Triton's") as triton:
                self.assertEqual(self.linears.kernelwright_w8a8_block_fp8_linear(**named), "Triton's")
            triton.assert_called_once()
        odd = torch.zeros(self.N, 100, device=DEVICE).to(torch.float8_e4m3fn)
        with unittest.mock.patch.object(fp8_utils, "triton_w8a8_block_fp8_linear", return_value="Triton's"), \
                self.assertLogs("kernelwright.sglang", "INFO") as log:
            found = self.linears.kernelwright_w8a8_block_fp8_linear(x[:, :100], odd, [128, 128], torch.ones(2, 1, device=DEVICE))
        self.assertEqual(found, "Triton's")
        self.assertIn("leaves fp8 layers of 200 x 100 to Triton", log.output[0])

    def test_other_names_are_as_before(self):
        kinds = fp8_utils.Fp8GemmRunnerBackend
        self.assertIs(kinds("triton"), kinds.TRITON)
        self.assertIs(fp8_utils._dispatch_explicit_backend(kinds.TRITON), fp8_utils.triton_w8a8_block_fp8_linear)
        with self.assertRaisesRegex(ValueError, "'other' is not a valid"):
            kinds("other")
        ours = kinds("kernelwright")
        self.assertFalse(any(getattr(ours, name)() for name in dir(kinds) if name.startswith("is_")))

    def test_without_the_library_sglang_chooses(self):
        with unittest.mock.patch("kernelwright._library.load", side_effect=OSError("no such file")), \
                self.assertLogs("kernelwright.sglang", "WARNING") as log:
            self.assertIs(fp8_utils.dispatch_w8a8_block_fp8_linear(), fp8_utils._dispatch_auto_backend())
        self.assertIn("leaves fp8 layers to SGLang's choice: its library cannot be loaded", log.output[0])


class Refusals(unittest.TestCase):
    def reasons(self, layers=None, kv_dtype=None, arguments=None, **changes):
        runner = runner_of(layers or [layer_of()], torch.bfloat16, kv_dtype, arguments=arguments_of(**arguments or {}))
        for name, value in changes.items():
            setattr(runner, name, value)
        return attention.reasons_of(runner)

    def test_what_is_refused_says_why(self):
        self.assertEqual(self.reasons(), [])
        self.assertEqual(self.reasons(use_mla_backend=True), ["a cache of MHATokenToKVPool is not served"])
        self.assertEqual(self.reasons(ps=types.SimpleNamespace(attn_cp_size=2)), ["context parallelism is not served"])
        self.assertEqual(self.reasons(dtype=torch.float32, kv_cache_dtype=torch.float32),
                         ["the model is torch.float32, and kernels take torch.float16 and torch.bfloat16"])
        self.assertEqual(self.reasons(kv_cache_dtype=torch.float16), ["a cache of torch.float16 beside torch.bfloat16 is not served"])
        self.assertEqual(self.reasons(token_to_kv_pool=types.SimpleNamespace()), ["a cache of SimpleNamespace is not served"])
        for argument, words in (({"dcp_size": 2}, "context parallelism is not served"),
                                ({"enable_pdmux": True}, "two batches at a time are not served"),
                                ({"enable_two_batch_overlap": True}, "two batches at a time are not served"),
                                ({"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 4}, "trees of drafted tokens are not served"),
                                ({"speculative_algorithm": "NGRAM"}, "trees of drafted tokens are not served")):
            self.assertEqual(self.reasons(arguments=argument), [words])
        self.assertEqual(self.reasons(arguments={"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}), [])
        layer = RadixAttention(HEADS, 512, 1.0, KV_HEADS, 0)
        self.assertEqual(self.reasons([layer]), ["heads of 512 and 512 elements are not served; they have 16 to 256, in multiples of 8"])
        self.assertEqual(self.reasons([layer_of(attn_type=AttentionType.ENCODER_ONLY)]),
                         ["attention of encoders, and among tokens of images, is not served"])
        self.assertEqual(self.reasons([layer_of(logit_cap=1.0), layer_of(use_irope=True)]),
                         ["scores that depend on positions are not served"])
        self.assertEqual(self.reasons(model=Model([])), ["the model has no attention layers"])

    def made(self, **changes):
        """Which of SGLang's own serves, and what the log says."""
        runner = runner_of([layer_of()], torch.bfloat16)
        for name, value in changes.items():
            setattr(runner, name, value)
        kernelwright.sglang.register()
        stubs = {name: lambda _, name=name: name for name in ("fa3", "triton")}
        with unittest.mock.patch.dict(ATTENTION_BACKENDS, stubs), self.assertLogs("kernelwright.sglang", "WARNING") as log:
            return ATTENTION_BACKENDS["kernelwright"](runner), log.output[0]

    def test_sglangs_own_serves_what_is_refused(self):
        found, log = self.made(ps=types.SimpleNamespace(attn_cp_size=2))
        self.assertEqual(found, "fa3")
        self.assertIn("leaves attention to SGLang's fa3: context parallelism is not served", log)
        self.assertEqual(self.made(use_mla_backend=True)[0], "triton")
        needs_pages = arguments_of(dcp_size=2, _get_default_attn_backend=lambda *_: "trtllm_mha")
        self.assertEqual(self.made(server_args=needs_pages)[0], "triton")

    def test_sglangs_own_serves_where_no_kernel_takes_a_layer(self):
        with unittest.mock.patch.object(attention.served, "prepare", side_effect=kernelwright.ConfigError("no such kernel")):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("no such kernel", log)

    def test_sglangs_own_serves_for_another_version_or_without_the_library(self):
        with unittest.mock.patch.object(sglang, "__version__", "0.9.9"):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("SGLang 0.9.9 is not one of 0.5.16, 0.5.17", log)
        with unittest.mock.patch("kernelwright._library.load", side_effect=OSError("no such file")):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("its library cannot be loaded: no such file", log)

    def test_sglangs_own_serves_without_a_compiler_and_without_kernels(self):
        with tempfile.TemporaryDirectory() as empty, \
                unittest.mock.patch.dict(os.environ, KERNELWRIGHT_NVRTC="/nowhere/libnvrtc.so", KERNELWRIGHT_CACHE_DIR=empty):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("leaves attention to SGLang's fa3", log)
        self.assertIn("/nowhere/libnvrtc.so", log)

    def test_what_a_batch_alone_tells_raises(self):
        backend = attention.KernelwrightAttnBackend.__new__(attention.KernelwrightAttnBackend)
        prompts = types.SimpleNamespace(forward_mode=ForwardMode.EXTEND, spec_info=None)
        with self.assertRaisesRegex(NotImplementedError, "graphs of decodes alone"):
            backend.init_forward_metadata_out_graph(prompts, in_capture=True)
        with self.assertRaisesRegex(NotImplementedError, "drafts none"):
            backend.init_forward_metadata_out_graph(types.SimpleNamespace(forward_mode=ForwardMode.DECODE, spec_info=object()))
        with self.assertRaisesRegex(NotImplementedError, 'takes no "score_mod"'):
            backend.forward_extend(None, None, None, None, None, score_mod=abs)


class Registration(unittest.TestCase):
    """SGLang's own loader and parser, in processes of their own, because SGLang keeps what is registered."""

    CODE = ("import sys, types\n"
            "for name in ('IPython', 'IPython.display'): sys.modules.setdefault(name, types.ModuleType(name))\n"
            "sys.modules['IPython.display'].HTML = sys.modules['IPython.display'].display = None\n"
            "from sglang.srt.plugins import load_plugins; load_plugins(); load_plugins()\n"
            "import argparse; from sglang.srt.server_args import ATTENTION_BACKEND_CHOICES, ServerArgs\n"
            "parser = argparse.ArgumentParser(); ServerArgs.add_cli_args(parser)\n"
            "print(ATTENTION_BACKEND_CHOICES.count('kernelwright'))\n"
            "found = parser.parse_args(['--model-path', 'm', '--attention-backend', 'kernelwright', '--fp8-gemm-backend', 'kernelwright'])\n"
            "print(found.attention_backend, found.fp8_gemm_runner_backend)")

    def run_in_sglang(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            installed = pathlib.Path(folder, "kernelwright-1.0.dist-info")
            installed.mkdir()
            (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kernelwright\nVersion: 1.0\n")
            (installed / "entry_points.txt").write_text("[sglang.srt.plugins]\nkernelwright = kernelwright.sglang:register\n")
            path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
            return subprocess.run([sys.executable, "-c", self.CODE], env=os.environ | {"PYTHONPATH": path} | environment,
                                  capture_output=True, text=True)

    def test_the_command_takes_the_names(self):
        done = self.run_in_sglang()
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertEqual(done.stdout.splitlines()[-2:], ["1", "kernelwright kernelwright"])

    def test_off(self):
        for environment in ({"KERNELWRIGHT_SGLANG": "off"}, {"SGLANG_PLUGINS": "another"}):
            done = self.run_in_sglang(**environment)
            self.assertEqual(done.stdout.splitlines()[-1], "0")
            self.assertIn("invalid choice: 'kernelwright'", done.stderr)


if __name__ == "__main__":
    print("SGLang", sglang.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
