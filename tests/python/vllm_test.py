#!/usr/bin/env python3
"""Attention behind vLLM's own classes: on the GPU if there is one, else on the emulator. Run by hand where vLLM's Python files and
torch are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the library, unless the package
is installed.

The steps and their reference are in vllm_steps.py.
"""
import contextlib
import math
import os
import types
import unittest
import unittest.mock

import torch
import vllm
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType
from vllm_steps import (DEVICE, ERA, HAS_GPU, HEAD_DIM, HEADS, KV_HEADS, MOST_KEYS, PAGE, PAGES, STEPS, Step, builder_of, cache_of,
                        layer_of, reference)

import kernelwright
import kernelwright.vllm
from kernelwright.vllm import attention, caches
from kernelwright.vllm.attention import KernelwrightBackend, KernelwrightImpl, KernelwrightMetadataBuilder


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
            want = reference(step.queries[at:at + new], k, v, scale, (features.get("sliding_window") or 0) - 1,
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


if __name__ == "__main__":
    print("vLLM", vllm.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
