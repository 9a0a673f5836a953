#!/usr/bin/env python3
"""Attention behind SGLang's own classes: on the GPU if there is one, else on the emulator. Run by hand where SGLang's Python files,
torch and what SGLang imports are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the
library, unless the package is installed.

sglang_batches.py has the batches and their reference, and says what is SGLang's own and what is made up.
"""
import os
import unittest
import unittest.mock

from sglang_batches import (DEVICE, HAS_GPU, HEAD_DIM, HEADS, KV_HEADS, PAGE, SLOTS, STEPS, Batch, layer_of, reference,
                            runner_of)  # ahead of SGLang
import torch
import sglang
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph import set_tc_piecewise_forward_context

import kernelwright
import kernelwright.sglang
from kernelwright.sglang import attention

FP8_BOUND = {torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}  # of a key: a rounding of the format


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


if __name__ == "__main__":
    print("SGLang", sglang.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
