#!/usr/bin/env python3
"""Attention behind vLLM's own classes: on the GPU if there is one, else on the emulator. Run by hand where vLLM's Python files and
torch are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the library, unless the package
is installed.

Sequences get their keys by do_kv_cache_update(), pages in random order, and attend in steps of prompts and decodes together. The
reference is fp64, over what the cache holds.
"""
import contextlib
import math
import os
import types
import unittest
import unittest.mock

import torch
import vllm
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType, CommonAttentionMetadata

import kernelwright
import kernelwright.vllm
from kernelwright.vllm import attention, caches, latent
from kernelwright.vllm.attention import KernelwrightBackend, KernelwrightImpl, KernelwrightMetadataBuilder

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


def reference(q, k, v, scale, window=None, softcap=0.0, sinks=None, slopes=None):
    """q [queries, heads, head_dim] are the last of the sequence's tokens, k and v [keys, kv_heads, head_dim]."""
    n, m = len(q), len(k)
    q, k, v = (tensor.double().cpu() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    at, keys = torch.arange(m - n, m)[:, None], torch.arange(m)
    if slopes is not None:
        scores = scores + torch.tensor(slopes, dtype=torch.float64)[:, None, None] * (keys - at)
    seen = keys <= at
    if window:
        seen = seen & (keys > at - window)
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().cpu()[:, None, None].expand(-1, n, 1)], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :m], v)


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


class Contract(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("cuda" if HAS_GPU else "emulator", hazards=not HAS_GPU)
        attention.served.use(cls.engine)

    def setUp(self):
        torch.manual_seed(7)

    def check(self, sequences, dtype=torch.bfloat16, tolerance=2.0**-7, heads_first=False, page=PAGE, padding=3, **features):
        """tolerance: of the largest value; bf16 rounds probabilities and results by 2^-9 each."""
        features.setdefault("kv_cache_dtype", "auto")
        scale = HEAD_DIM ** -0.5
        impl = KernelwrightImpl(HEADS, HEAD_DIM, scale, KV_HEADS, **features)
        layer = layer_of(impl, dtype)
        builder = builder_of({"layer": layer}, page)
        step = Step(layer, dtype, sequences, heads_first, padding, page)
        out, again = step.run(builder), step.run(builder)
        self.assertTrue(torch.equal(out, again))
        at = 0
        for i, (_, new) in enumerate(sequences):
            k, v = step.stored(i)
            want = reference(step.queries[at:at + new], k, v, scale, features.get("sliding_window"),
                             features.get("logits_soft_cap") or 0.0, features.get("sinks"), features.get("alibi_slopes"))
            off = (out[at:at + new].double().cpu() - want).abs().max().item()
            self.assertLessEqual(off, tolerance * v.abs().max().item(), f"sequence {i}")
            at += new
        self.assertEqual(out[at:].abs().sum().item(), 0, "rows of padding are zeros")
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])
        return step

    def test_caches_lie_as_vllms_own_do(self):
        """Other parts of vLLM, which move caches or share blocks between layers, have these shapes in mind."""
        from vllm.v1.attention.backends import flash_attn

        for layout in ("NHD", "HND"):
            with unittest.mock.patch.object(caches, "get_kv_cache_layout", lambda layout=layout: layout), \
                    unittest.mock.patch.object(flash_attn, "get_kv_cache_layout", lambda layout=layout: layout):
                for name, given in (("get_kv_cache_shape", (3, 32, 5, 64)), ("get_kv_cache_stride_order", ()),
                                    ("get_kv_cache_stride_order", (True,))):
                    own, ours = (getattr(backend, name)(*given) for backend in (flash_attn.FlashAttentionBackend, KernelwrightBackend))
                    if ERA > (0, 22):  # whose own keys and values are outermost
                        self.assertEqual(ours, own, (layout, name))
        for layout in ("NHD", "HND"):
            cache = cache_of(torch.bfloat16, layout, layers=3)[1]
            keys, values = caches.CACHE.parts(cache)
            for part in (keys, values):
                self.assertEqual(part.shape, (PAGES, PAGE, KV_HEADS, HEAD_DIM))
                self.assertEqual((part.stride(3), part.stride(1) > part.stride(2)), (1, layout == "NHD"))
                self.assertEqual(max(part.stride()), part.stride(0))
            keys.fill_(1), values.fill_(2)
            self.assertEqual(cache.float().mean().item(), 1.5)

    def test_steps(self):
        for name, sequences in STEPS.items():
            with self.subTest(name):
                self.check(sequences)

    def test_f16_with_heads_first_and_pages_of_32(self):
        self.check(STEPS["mixed"], torch.float16, 2.0**-9, heads_first=True)
        self.check(STEPS["mixed"], torch.float16, 2.0**-9, page=32)

    def test_features(self):
        sinks = torch.randn(HEADS, dtype=torch.bfloat16, device=DEVICE)
        for features in ({"sliding_window": 9}, {"logits_soft_cap": 2.0}, {"sinks": sinks}, {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]}):
            for name in ("mixed", "decode"):
                with self.subTest(name, **features):
                    self.check(STEPS[name], **features)

    def test_fp8_caches(self):
        for word in ("fp8", "fp8_e5m2"):
            for name in ("mixed", "decode"):
                with self.subTest(word, step=name):
                    step = self.check(STEPS[name], kv_cache_dtype=word)
                    # What is stored, times the scale, is the key within a rounding of the format.
                    k, _ = step.stored(1)
                    bound = {"fp8": 2.0**-4, "fp8_e5m2": 2.0**-3}[word]
                    self.assertLessEqual(((k - step.keys[1].cpu().float()).abs() / (step.keys[1].cpu().float().abs() + 0.02)).max().item(), bound)

    def rows_of(self, layer, builder, tokens, cut, others=()):
        """The outputs of a sequence whose queries, keys and values are `tokens`. cut: queries of each of its steps, in which `others`
        (as in STEPS) run ahead of it."""
        found, ahead = [], 0
        for new in cut:
            step = Step(layer, torch.bfloat16, (*others, (ahead, new)))
            step.keys[-1], step.values[-1] = (of[:ahead + new] for of in tokens[1:])
            step.write(0, [each for each, _ in step.sequences])
            step.queries[step.tokens - new:step.tokens] = tokens[0][ahead:ahead + new]
            found.append(step.run(builder)[step.tokens - new:step.tokens])
            ahead += new
        return torch.cat(found)

    def test_batch_invariant_results(self):
        """A query has the same bits alone and beside others, in a whole prompt, in chunks of it and in steps of its own."""
        size = 150
        tokens = [torch.randn(size, heads, HEAD_DIM).to(torch.bfloat16).to(DEVICE) for heads in (HEADS, KV_HEADS, KV_HEADS)]
        tokens[0] *= 8  # maxima of tiles lie far apart
        cuts = (149, 1), (70, 1, 1, 78), (1, 64, 85)
        others = ((37, 1), (200, 60), (0, 5))
        for features in ({}, {"sliding_window": 40}, {"kv_cache_dtype": "fp8"}):
            for invariant in (True, False):
                with self.subTest(invariant=invariant, **features), \
                        unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": str(int(invariant))}):
                    layer = layer_of(KernelwrightImpl(HEADS, HEAD_DIM, HEAD_DIM ** -0.5, KV_HEADS, **features), torch.bfloat16)
                    self.assertEqual(len(layer.impl.problems("bf16", PAGE)), 2 if invariant else 3)
                    builder = builder_of({"layer": layer})
                    whole = self.rows_of(layer, builder, tokens, (size,))
                    same = [torch.equal(self.rows_of(layer, builder, tokens, cut, others[::order]), whole)
                            for cut, order in zip(((size,), *cuts), (1, -1, 1, -1))]
                    same.append(torch.equal(self.rows_of(layer, builder, tokens, cuts[0]), whole))
                    self.assertEqual(all(same), invariant, same)
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def test_the_engine_is_sealed_and_layers_alike_share_kernels(self):
        layers = {str(i): layer_of(KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS), torch.bfloat16) for i in range(3)}
        builder_of(layers)
        before = self.engine.counters()
        self.assertTrue(self.engine.sealed)
        step = Step(layers["2"], torch.bfloat16, STEPS["mixed"])
        step.run(builder_of(layers))
        after = self.engine.counters()
        self.assertEqual({name: after[name] for name in ("compiles", "sealed_misses")},
                         {name: before[name] for name in ("compiles", "sealed_misses")})

    def test_kernels_that_compile_for_long_are_named(self):
        problem = attention.paged_attention("f16", HEADS, KV_HEADS, 48, 48, PAGE, True)
        with unittest.mock.patch("kernelwright._served.PATIENCE_MS", 1), self.assertLogs("vllm.kernelwright", "WARNING") as log:
            attention.served.prepare(torch.device(DEVICE).type, 0, [problem])
        self.assertRegex(log.output[0], "still compiling after .* s: attention")

    def test_memory_is_measured_without_a_cache(self):
        impl = KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS)
        out = torch.full((3, HEADS, HEAD_DIM), math.nan, device=DEVICE)
        self.assertEqual(impl.forward(None, out, out, out, None, None, out).abs().sum().item(), 0)

    def test_what_is_refused_says_why(self):
        def reasons(**changes):
            given = dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=None, use_mla=False, has_sink=True,
                         use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False,
                         device_capability=DeviceCapability(9, 0), attn_type=AttentionType.DECODER)
            return KernelwrightBackend.validate_configuration(**given | changes)
        self.assertEqual(reasons(), [])
        self.assertEqual(reasons(head_size=512), ["head_size not supported"])
        self.assertEqual(reasons(dtype=torch.float32), ["dtype not supported"])
        self.assertEqual(reasons(block_size=24), ["block_size not supported"])
        self.assertEqual(reasons(use_mla=True), ["MLA not supported"])
        self.assertEqual(reasons(device_capability=DeviceCapability(7, 5)), ["compute capability not supported"])
        self.assertEqual(reasons(attn_type=AttentionType.ENCODER_ONLY), ["attention type AttentionType.ENCODER_ONLY not supported"])
        self.assertEqual(reasons(use_batch_invariant=True), [])
        self.assertEqual(reasons(kv_cache_dtype="float16"), ["a cache of float16 beside torch.bfloat16 is not supported"])
        self.assertEqual(reasons(kv_cache_dtype="bfloat16"), [])
        for field, value, words in (("decode_context_parallel_size", 2, "decode context parallelism is not supported"),
                                    ("enable_dbo", True, "dual batch overlap is not supported"),
                                    ("rswa_window", 128, "a window that leaves the prompt in sight (R-SWA) is not supported")):
            fields = types.SimpleNamespace(**{"decode_context_parallel_size": 1, "enable_dbo": False, "rswa_window": None, field: value})
            with unittest.mock.patch.object(attention, "get_current_vllm_config_or_none",
                                            lambda fields=fields: types.SimpleNamespace(parallel_config=fields, model_config=fields)):
                self.assertEqual(reasons(), [words])
        if ERA >= (0, 26):
            self.assertEqual(reasons(has_sliding_window=True), [])
            self.assertEqual(reasons(use_pcp=True), ["PCP not supported"])
        with self.assertRaisesRegex(NotImplementedError, "no softcap beside ALiBi"):
            KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS, alibi_slopes=[1.0] * HEADS, logits_soft_cap=30.0)
        with self.assertRaisesRegex(NotImplementedError, "serves decoders"):
            KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS, attn_type=AttentionType.ENCODER)
        with self.assertRaisesRegex(NotImplementedError, "causal steps alone"):
            KernelwrightMetadataBuilder.build(None, 0, types.SimpleNamespace(causal=False))

    def test_graphs_hold_steps_with_equally_many_queries(self):
        """A launch computes at most max_query_len queries of a sequence, and vLLM captures mixed steps with a smaller bound."""
        self.assertEqual(KernelwrightMetadataBuilder.get_cudagraph_support(None, None), AttentionCGSupport.UNIFORM_BATCH)

    def test_rows_of_padding_take_no_workspace_of_a_decode(self):
        step = self.check(STEPS["decode"], padding=200)
        self.assertEqual(len(step.queries), 203)

    def test_new_sinks_are_read_where_the_old_ones_lay(self):
        impl = KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS, sinks=torch.zeros(HEADS, dtype=torch.bfloat16, device=DEVICE))
        layer = layer_of(impl, torch.bfloat16)
        builder = builder_of({"layer": layer})
        step = Step(layer, torch.bfloat16, STEPS["decode"])
        before, held = step.run(builder), impl._named["sinks"]
        impl.sinks.fill_(3)
        after = step.run(builder)
        self.assertIs(impl._named["sinks"], held)
        self.assertFalse(torch.equal(before, after))
        impl.sinks.fill_(0)
        impl.process_weights_after_loading(torch.bfloat16)  # as a captured graph would read it
        self.assertEqual(held.abs().sum().item(), 0)

    def test_sinks_change_in_and_out_of_inference_mode(self):
        """vLLM runs steps in inference mode, and may load weights again outside of it, or in it."""
        for born in (False, True):
            with self.subTest(weights_in_inference_mode=born):
                with torch.inference_mode(born):
                    sinks = torch.zeros(HEADS, dtype=torch.bfloat16, device=DEVICE)
                impl = KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS, sinks=sinks)
                layer = layer_of(impl, torch.bfloat16)
                with torch.inference_mode():
                    step, builder = Step(layer, torch.bfloat16, STEPS["decode"]), builder_of({"layer": layer})
                    step.run(builder)
                held = impl._named["sinks"]
                for inside in (born, True):
                    with torch.inference_mode(inside):
                        sinks.fill_(2 + inside)
                        impl.process_weights_after_loading(torch.bfloat16)
                    self.assertEqual(held.tolist(), [2.0 + inside] * HEADS)

    def test_graphs_have_the_workspace_of_the_longest_sequences(self):
        """vLLM runs a step of one key a sequence ahead of a capture, and captures for max_model_len keys."""
        for fp8, more in (("", {}), ("e4m3", {"sinks": True}), ("", {"alibi": True})):
            problem = attention.paged_attention("bf16", HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM, PAGE, True, fp8=fp8, **more)
            attention.served.prepare(torch.device(DEVICE).type, 0, [problem])
            near = torch.empty(0, device=DEVICE)
            engine = attention.served.engine(near.device.type)
            kernel = engine.prepare(problem.config())
            wanted = []
            for sequences in (1, 4):
                q = engine.empty((sequences, HEADS, HEAD_DIM), "bf16")
                keys = engine.empty((2, PAGE, KV_HEADS, HEAD_DIM), fp8 or "bf16")
                vectors = {name: engine.empty((size,), dtype) for name, size, dtype in
                           (("sinks", HEADS, "f32"), ("alibi_slopes", HEADS, "f32"), ("k_scale", 1, "f32"), ("v_scale", 1, "f32"))
                           if name in more or (fp8 and "scale" in name) or name[:5] in more}
                wanted.append(kernel.workspace_bytes(
                    q=q, k=keys, v=keys, o=q, q_offsets=engine.empty((sequences + 1,), "i32"), q_len=1, kv_len=MOST_KEYS,
                    kv_lengths=engine.empty((sequences,), "i32"),
                    page_table=engine.empty((sequences, MOST_KEYS // PAGE), "i32"), **vectors))
            self.assertGreater(max(wanted), 0)
            self.assertEqual(attention.served.reserve(near, [problem], ((1, 1), (4, 1)), MOST_KEYS), max(wanted))
            self.assertEqual(attention.served.reserve(near, [problem], ((1, 1), (4, 1)), 1), 0)
        self.assertEqual(attention.graph_steps((1, 2, 8), 4, 1), [(1, 1), (2, 1), (4, 1)])
        self.assertEqual(attention.graph_steps((3, 12), 4, 3), [(1, 3), (3, 1), (4, 1), (4, 3)])

    def test_graphs_of_every_number_of_drafted_tokens(self):
        def steps(**drafts):
            return attention.steps_of_graphs(types.SimpleNamespace(
                speculative_config=types.SimpleNamespace(**drafts) if drafts else None, scheduler_config=types.SimpleNamespace(max_num_seqs=4),
                compilation_config=types.SimpleNamespace(cudagraph_capture_sizes=[12])))
        self.assertEqual(steps(), [(4, 1)])
        self.assertEqual(steps(num_speculative_tokens=3), [(3, 4), (4, 1)])
        self.assertEqual(steps(num_speculative_tokens=3, num_speculative_tokens_per_batch_size=[(1, 2, 3), (3, 4, 1)]),
                         [(3, 4), (4, 1), (4, 2)])

    @unittest.skipUnless(HAS_GPU, "needs a GPU: graphs")
    def test_a_capture_of_long_sequences_follows_a_step_of_short_ones(self):
        layer = layer_of(KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS), torch.bfloat16)
        for known in (attention.served.engine("cuda")._workspaces._spares, attention.served.engine("cuda")._workspaces._held):
            known.clear()
        builder_of({"layer": layer})
        step = Step(layer, torch.bfloat16, ((MOST_KEYS - 1, 1),))
        out = torch.full_like(step.queries, math.nan)
        offsets = torch.arange(2, dtype=torch.int32, device=DEVICE)
        lengths = torch.ones(1, dtype=torch.int32, device=DEVICE)
        for keys in (1, MOST_KEYS):
            metadata = attention.KernelwrightMetadata(1, 1, keys, offsets, lengths, step.table.to(DEVICE), None)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph) if keys > 1 else contextlib.nullcontext():
                layer.impl.forward(layer, step.queries, None, None, step.cache, metadata, out)
        step.write([MOST_KEYS - 1], [MOST_KEYS])
        lengths.fill_(MOST_KEYS)
        graph.replay()
        want = reference(step.queries[:1], *step.stored(0), 0.125)
        self.assertLessEqual((out[:1].double().cpu() - want).abs().max().item(), 2.0**-7 * step.values[0].abs().max().item())

    @unittest.skipUnless(HAS_GPU, "a CUDA graph needs a GPU")
    def test_a_graph_is_replayed_with_other_lengths(self):
        layer = layer_of(KernelwrightImpl(HEADS, HEAD_DIM, 0.125, KV_HEADS), torch.bfloat16)
        builder = builder_of({"layer": layer})
        step = Step(layer, torch.bfloat16, ((79, 1), (79, 1), (79, 1)))
        offsets = torch.arange(4, dtype=torch.int32, device=DEVICE)
        lengths = torch.full((3,), 80, dtype=torch.int32, device=DEVICE)
        step.write([79] * 3, [80] * 3)
        out = torch.full_like(step.queries, math.nan)
        metadata = attention.KernelwrightMetadata(3, 1, 80, offsets, lengths, step.table.to(DEVICE), None)
        layer.impl.forward(layer, step.queries, None, None, step.cache, metadata, out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layer.impl.forward(layer, step.queries, None, None, step.cache, metadata, out)
        for given in ((80, 80, 80), (1, 33, 64)):
            lengths.copy_(torch.tensor(given))
            graph.replay()
            for i, keys in enumerate(given):
                k, v = (tokens[:keys] for tokens in step.stored(i))
                want = reference(step.queries[i:i + 1], k, v, 0.125)
                self.assertLessEqual((out[i:i + 1].double().cpu() - want).abs().max().item(), 2.0**-7 * v.abs().max().item())


class Latents(unittest.TestCase):
    """Decodes over latents and writes of their cache: forward_mqa() and do_kv_cache_update() of the class that vLLM builds. Whole
    steps are in vllm_latents_test.py."""

    HEADS, LENGTHS = 3, (37, 1, 90, 64)

    @classmethod
    def setUpClass(cls):
        from kernelwright.vllm import latent

        cls.latent = latent
        cls.engine = kernelwright.Engine("cuda" if HAS_GPU else "emulator", hazards=not HAS_GPU)
        attention.served.use(cls.engine)

    def setUp(self):
        torch.manual_seed(11)

    def impl_of(self, kv_cache_dtype="auto", **changes):
        given = dict(num_heads=self.HEADS, head_size=576, scale=192**-0.5, num_kv_heads=1, alibi_slopes=None, sliding_window=None,
                     kv_cache_dtype=kv_cache_dtype, logits_soft_cap=None, attn_type=AttentionType.DECODER,
                     kv_sharing_target_layer_name=None, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
                     qk_head_dim=192, v_head_dim=128, kv_b_proj=None)
        with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device=DEVICE))):
            return self.latent.KernelwrightLatentImpl(**given | changes)

    def check(self, queries=1, dtype=torch.bfloat16, kv_cache_dtype="auto", page=16, tolerance=2.0**-7):
        impl = self.impl_of(kv_cache_dtype)
        self.latent.prepare([types.SimpleNamespace(impl=impl)], dtype, page, queries, torch.device(DEVICE))
        scale = torch.tensor(0.02, device=DEVICE)
        pages = sum(-(-length // page) for length in self.LENGTHS) + 3
        fp8 = kv_cache_dtype != "auto"
        stored = (torch.randn(pages, page, 576) / (scale.item() if fp8 else 1)).to(torch.float8_e4m3fn if fp8 else dtype)
        values = stored.double() * (scale.item() if fp8 else 1)
        order = torch.randperm(pages)
        table = torch.zeros(len(self.LENGTHS) + 1, -(-max(self.LENGTHS) // page) + 1, dtype=torch.int32)
        for i, length in enumerate(self.LENGTHS):
            for j in range(-(-length // page)):
                table[i, j], order = order[0], order[1:]
        cache = (stored.view(torch.uint8) if fp8 else stored).to(DEVICE)
        lengths = torch.tensor([*self.LENGTHS, 0], dtype=torch.int32)  # vLLM fills a graph's batch with sequences of no keys
        tokens = queries * len(lengths)
        q = torch.randn(tokens, self.HEADS, 576).to(dtype)
        metadata = types.SimpleNamespace(num_decodes=len(lengths), max_seq_len=4096, decode=types.SimpleNamespace(
            block_table=table.to(DEVICE), seq_lens=lengths.to(DEVICE)))
        layer = types.SimpleNamespace(_k_scale=scale)
        parts = q[..., :512].to(DEVICE), q[..., 512:].to(DEVICE)
        out, lse = impl.forward_mqa(parts, cache, metadata, layer)
        again, _ = impl.forward_mqa(q.to(DEVICE), cache, metadata, layer)
        self.assertIsNone(lse)
        self.assertTrue(torch.equal(out[:queries * len(self.LENGTHS)], again[:queries * len(self.LENGTHS)]))
        for i, length in enumerate(self.LENGTHS):
            keys = values[table[i, torch.arange(length) // page].long(), torch.arange(length) % page][:, None]
            rows = slice(i * queries, (i + 1) * queries)
            seen = min(queries, length)  # queries ahead of the first key see none
            want = reference(q[rows][queries - seen:], keys, keys[..., :512], 192**-0.5)
            off = (out[rows][queries - seen:].double().cpu() - want).abs().max().item()
            self.assertLessEqual(off, tolerance * keys.abs().max().item(), f"sequence {i}")
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def test_decodes(self):
        self.check()
        self.check(dtype=torch.float16, tolerance=2.0**-9, page=64)

    def test_drafted_tokens(self):
        self.check(queries=3)

    def test_an_fp8_cache_of_one_scale(self):
        self.check(kv_cache_dtype="fp8")

    def test_new_keys_are_written_to_their_slots(self):
        page, pages, scale = 16, 5, torch.tensor(0.02, device=DEVICE)
        for kv_cache_dtype in ("auto", "fp8"):
            for tokens, padding in ((5, 2), (1, 0), (40, 0)):
                with self.subTest(kv_cache_dtype, tokens=tokens):
                    impl = self.impl_of(kv_cache_dtype)
                    fp8 = kv_cache_dtype == "fp8"
                    latents = torch.randn(tokens + padding, 512).to(torch.bfloat16).to(DEVICE)
                    rotary = torch.randn(tokens + padding, 2112).to(torch.bfloat16).to(DEVICE)[:, None, 2048:]  # part of a product
                    cache = torch.randint(0, 100, (2, pages, page, 576), dtype=torch.uint8, device=DEVICE)
                    cache = (cache if fp8 else cache.to(torch.bfloat16))[1]
                    kept, slots = cache.clone(), torch.randperm(page * pages)[:tokens]
                    given = torch.cat([slots, torch.full((padding,), -1)]).to(DEVICE)
                    impl.do_kv_cache_update(latents, rotary, cache, given[None], kv_cache_dtype, scale)
                    kept, found = (each.view(torch.float8_e4m3fn if fp8 else torch.bfloat16).reshape(-1, 576).cpu().double()
                                   for each in (kept, cache))
                    want = torch.cat([latents, rotary.squeeze(1)], -1)[:tokens].cpu().double()
                    others = torch.ones(page * pages, dtype=torch.bool)
                    others[slots] = False
                    self.assertTrue(torch.equal(kept[others], found[others]))
                    if fp8:
                        off = (found[slots] * 0.02 - want).abs() - 2.0**-4 * want.abs() - 2.0**-10 * 0.02
                        self.assertLessEqual(off.max().item(), 1e-6)
                    else:
                        self.assertTrue(torch.equal(found[slots], want))
                    longer = torch.randn(tokens + 3, 512).to(torch.bfloat16).to(DEVICE)  # tokens of a graph, without slots for all
                    impl.do_kv_cache_update(longer, torch.zeros(tokens + 3, 1, 64, dtype=torch.bfloat16, device=DEVICE), cache,
                                            given[:tokens], kv_cache_dtype, scale)
                    self.assertEqual(cache.reshape(-1, 576)[slots, 512:].float().abs().max().item(), 0)
        impl.do_kv_cache_update(latents, rotary, torch.empty(0), given, "auto", scale)
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def test_batch_invariant_results(self):
        """Drafted tokens have the bits that each has in a step of its own, beside whatever other sequences."""
        page, keys, drafted = 64, 1600, 3
        for kv_cache_dtype, invariances in (("auto", (True, False)), ("fp8", (True,))):  # of "auto", CTAs share keys
            for invariant in invariances:
                with self.subTest(kv_cache_dtype, invariant=invariant), \
                        unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": str(int(invariant))}):
                    impl = self.impl_of(kv_cache_dtype)
                    self.latent.prepare([types.SimpleNamespace(impl=impl)], torch.bfloat16, page, drafted, torch.device(DEVICE))
                    cache = torch.randn(60, page, 576, device=DEVICE).to(torch.float8_e4m3fn if kv_cache_dtype == "fp8" else torch.bfloat16)
                    cache = cache.view(torch.uint8) if kv_cache_dtype == "fp8" else cache
                    table = torch.randperm(60)[:50].reshape(2, 25).to(torch.int32).to(DEVICE)
                    q = torch.randn(drafted, self.HEADS, 576, device=DEVICE).to(torch.bfloat16)

                    def decode(q, *lengths, impl=impl, table=table, cache=cache):
                        """The rows of the last sequence."""
                        step = types.SimpleNamespace(block_table=table[2 - len(lengths):].contiguous(),
                                                     seq_lens=torch.tensor(lengths, dtype=torch.int32, device=DEVICE))
                        starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=DEVICE) * len(q)
                        metadata = types.SimpleNamespace(num_decodes=len(lengths), max_seq_len=keys, decode=step, query_start_loc=starts,
                                                         max_query_len=len(q))
                        out, _ = impl.forward_mqa(torch.cat([q] * len(lengths)), cache, metadata,
                                                  types.SimpleNamespace(_k_scale=torch.tensor(0.02, device=DEVICE)))
                        return out[-len(q):]
                    whole = decode(q, keys)
                    alone = [decode(q[i:i + 1], *others, keys - 2 + i) for i in range(drafted) for others in ((), (200,))]
                    same = [torch.equal(decode(q, 150, keys), whole), *(torch.equal(row, whole[i // 2:i // 2 + 1])
                                                                        for i, row in enumerate(alone))]
                    self.assertEqual(all(same), invariant, same)
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def test_graphs_have_the_workspace_of_the_longest_sequences(self):
        near = torch.empty(0, device=DEVICE)
        for kv_dtype in ("", "e4m3"):
            for queries in (1, 3):
                problem = latent.LatentProblem("bf16", self.HEADS, 64, queries, kv_dtype)
                attention.served.prepare(near.device.type, 0, [problem])
                long, short = (attention.served.reserve(near, [problem], ((1, 1), (1, queries)), keys) for keys in (4096, 1))
                self.assertGreater(long, short)

    def test_nothing_compiles_behind_the_preparation(self):
        self.check()
        def counted():
            found = self.engine.counters()
            return [found[name] for name in ("compiles", "sealed_misses")]
        before = counted()
        self.check()
        self.assertTrue(self.engine.sealed)
        self.assertEqual(counted(), before)

    def test_what_is_refused_says_why(self):
        def reasons(**changes):
            given = dict(head_size=576, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=64, use_mla=True, has_sink=False,
                         use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False,
                         device_capability=DeviceCapability(9, 0), attn_type=AttentionType.DECODER)
            return self.latent.KernelwrightLatentBackend.validate_configuration(**given | changes)
        self.assertEqual(reasons(), [])
        self.assertEqual(reasons(kv_cache_dtype="fp8"), [])
        self.assertEqual(reasons(head_size=320), ["head_size not supported"])
        self.assertEqual(reasons(use_sparse=True), ["sparse not supported"])
        self.assertEqual(reasons(kv_cache_dtype="fp8_e5m2"), ["kv_cache_dtype not supported"])
        self.assertEqual(reasons(use_batch_invariant=True), [])
        if ERA >= (0, 26):
            self.assertEqual(reasons(has_sliding_window=True), ["sliding window not supported"])
            self.assertEqual(reasons(use_pcp=True), ["PCP not supported"])
        with self.assertRaisesRegex(NotImplementedError, "latents of 512 and 64, and the model's are 256 and 64"):
            self.impl_of(kv_lora_rank=256)
        with self.assertRaisesRegex(NotImplementedError, "no ALiBi, window or softcap"):
            self.impl_of(logits_soft_cap=30.0)


if __name__ == "__main__":
    print("vLLM", vllm.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
