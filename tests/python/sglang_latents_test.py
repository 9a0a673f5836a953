#!/usr/bin/env python3
"""Attention over latent keys (MLA) behind SGLang's own layers, batches and pool, as sglang_test.py has that of other models: on the GPU
if there is one, else on the emulator. Run by hand where sglang_test.py is run; it is no part of CI.
"""
import math
import types
import unittest
import unittest.mock

import sglang_batches as shared  # ahead of SGLang, for which it has what this machine lacks
import torch
import sglang
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context

import kernelwright
import kernelwright.sglang
from kernelwright.sglang import attention, latent

HEADS, LATENT, ROPE, V, SCALE = shared.HEADS, 512, 64, 128, 192**-0.5
MODES = {"decode": ForwardMode.DECODE, "verified": ForwardMode.TARGET_VERIFY, "mixed": ForwardMode.MIXED, "prompts": ForwardMode.EXTEND}


class Batch(shared.Batch):
    """Sequences whose keys are latents."""

    def pools(self):
        return (types.SimpleNamespace(k_buffer=self.runner.token_to_kv_pool.kv_buffer, v_buffer=()),)

    def randn(self, rows, heads):
        return torch.randn(rows, heads if heads == HEADS else 1, LATENT + ROPE).to(self.runner.dtype).to(shared.DEVICE)

    def run(self, layer, batch, first, last, **more):
        k = torch.cat([tokens[a:b] for tokens, a, b in zip(self.keys, first, last)])
        queries = self.queries if len(self.queries) == len(k) else self.randn(len(k), HEADS)
        with forward_context(ForwardContext(attn_backend=self.backend)):
            return layer(queries.view(len(k), -1), k, k[..., :LATENT], batch, **more).view(-1, HEADS, LATENT)


class Latents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("cuda" if shared.HAS_GPU else "emulator", hazards=not shared.HAS_GPU)
        attention.served.use(cls.engine)
        kernelwright.sglang.register()

    def setUp(self):
        torch.manual_seed(31)

    def tearDown(self):
        if not shared.HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def made(self, dtype=torch.bfloat16, kv_dtype=None, page=shared.PAGE, **changes):
        """The two layers of a model's layer, a runner, and its backend."""
        layers = RadixAttention(HEADS, LATENT + ROPE, SCALE, 1, 0, v_head_dim=LATENT), RadixAttention(HEADS, 192, SCALE, HEADS, 0, v_head_dim=V)
        pool = MLATokenToKVPool(shared.SLOTS, page, kv_dtype or dtype, LATENT, ROPE, 1, shared.DEVICE, False)
        runner = shared.runner_of(layers, dtype, kv_dtype, page, use_mla_backend=True, token_to_kv_pool=pool, **changes)
        return *layers, runner, ATTENTION_BACKENDS["kernelwright"](runner)

    def compare(self, batch, layer, out, last, new, tolerance):
        at = 0
        for i, (count, queries) in enumerate(zip(last, new)):
            k, v = batch.stored(layer, i, count)
            want = shared.reference(batch.queries[at:at + queries], k, v, SCALE)
            off = (out[at:at + queries].double().cpu() - want).abs().max().item()
            self.assertLessEqual(off, tolerance * v.abs().max().item(), f"sequence {i}")
            at += queries

    def check(self, name, tolerance=2.0**-7, **named):
        layer, _, runner, backend = self.made(**named)
        self.assertIs(type(backend), latent.KernelwrightLatentAttnBackend)
        sequences = shared.STEPS[name]
        batch = Batch(runner, backend, sequences)
        batch.prefill(layer)
        first, last = [ahead for ahead, _ in sequences], [ahead + new for ahead, new in sequences]
        given = batch.forward_batch(MODES[name], first, last)
        backend.init_forward_metadata(given)
        out, again = batch.run(layer, given, first, last), batch.run(layer, given, first, last)
        self.assertTrue(torch.equal(out, again))
        self.compare(batch, layer, out, last, [new for _, new in sequences], tolerance)
        unsaved = batch.run(layer, given, first, last, save_kv_cache=False)
        self.assertTrue(torch.equal(out, unsaved), "the keys are in the cache already")
        return batch

    def test_steps(self):
        for name in MODES:
            with self.subTest(name):
                self.check(name)

    def test_f16_and_other_pages(self):
        self.check("mixed", 2.0**-9, dtype=torch.float16, page=64)
        self.check("decode", 2.0**-9, dtype=torch.float16, page=1)

    def test_a_cache_of_fp8(self):
        for name in ("mixed", "decode"):
            batch = self.check(name, kv_dtype=torch.float8_e4m3fn)
            layer = next(iter(attention.attention_layers(batch.runner.model)))
            k, want = batch.stored(layer, 1, 1)[0], batch.keys[1][:1].cpu().float()
            self.assertLessEqual(((k - want).abs() - 2.0**-4 * want.abs()).max().item(), 2.0**-10)

    def test_prompts_of_all_heads(self):
        """SGLang writes their latents itself, and gives keys behind which they lie in chunks."""
        _, layer, runner, backend = self.made()
        lengths, chunks = (21, 1, 40), ((16, 0, 5), (7, 0, 0))
        batch = shared.Batch.forward_batch(Batch(runner, backend, [(0, each) for each in lengths]), ForwardMode.EXTEND, [0] * 3, lengths)
        backend.init_forward_metadata(batch)

        def drawn(counts, width):
            return torch.randn(sum(counts), HEADS, 2 * width).to(torch.bfloat16).to(shared.DEVICE)[..., width:]  # a part of a product
        q = drawn(lengths, 192).contiguous()

        def attend(counts, **more):
            k, v = drawn(counts, 192).contiguous(), drawn(counts, V)
            with forward_context(ForwardContext(attn_backend=backend)):
                return k, v, layer(q.view(len(q), -1), k, v, batch, **more)
        k, v, out = attend(lengths, save_kv_cache=False)
        for part in zip(*(each.split(list(lengths)) for each in (q, k, v, out.view(-1, HEADS, V)))):
            want = shared.reference(*part[:3], SCALE)
            self.assertLessEqual((part[3].double().cpu() - want).abs().max().item(), 2.0**-7 * part[2].abs().max().item())
        with self.assertRaisesRegex(NotImplementedError, "where SGLang has written their latents alone"):
            attend(lengths)
        batch.mha_return_lse = True
        batch.set_attn_attend_prefix_cache(True)
        counts = torch.tensor(chunks, dtype=torch.int32)
        batch.prefix_chunk_cu_seq_lens = torch.nn.functional.pad(counts.cumsum(1), (1, 0)).to(torch.int32).to(shared.DEVICE)
        batch.prefix_chunk_max_seq_lens = counts.max(1).values.tolist()
        for i, keys in enumerate(chunks):
            batch.set_prefix_chunk_idx(i)
            k, v, (out, lse) = attend(keys, save_kv_cache=False)
            self.assertEqual((out.shape, lse.shape), ((len(q), HEADS, V), (len(q), HEADS)))
            parts = zip(*(each.split(list(cut)) for each, cut in ((q, lengths), (k, keys), (v, keys), (out, lengths), (lse, lengths))))
            for count, (rows, some_keys, values, found, found_lse) in zip(keys, parts):
                if not count:
                    self.assertEqual((found.abs().sum().item(), set(found_lse.flatten().tolist())), (0, {-math.inf}))
                    continue
                scores = torch.einsum("qhd,khd->qhk", rows.double().cpu(), some_keys.double().cpu()) * SCALE
                want = torch.einsum("qhk,khd->qhd", scores.softmax(-1), values.double().cpu())
                self.assertLessEqual((found.double().cpu() - want).abs().max().item(), 2.0**-7 * values.abs().max().item())
                self.assertLessEqual((found_lse.double().cpu() - scores.logsumexp(-1)).abs().max().item(), 2.0**-10)

    def test_a_step_that_a_graph_holds(self):
        """SGLang captures once, and brings new lengths to the same place ahead of each replay."""
        for mode, new in ((ForwardMode.DECODE, 1), (ForwardMode.TARGET_VERIFY, 3)):
            with self.subTest(mode.name):
                layer, _, runner, backend = self.made()
                batch = Batch(runner, backend, ((40, new), (55, new), (64, new)))
                batch.prefill(layer)
                backend.init_cuda_graph_state(4, 4 * new)
                rows, fill = 4, backend.get_cuda_graph_seq_len_fill_value()  # the last of them fills the graph's batch

                def zeros(count):
                    return torch.zeros(count, dtype=torch.int64, device=shared.DEVICE)
                held = ForwardBatch(forward_mode=mode, batch_size=rows, input_ids=zeros(rows * new), req_pool_indices=zeros(rows),
                                    seq_lens=zeros(rows) + fill, seq_lens_sum=rows * fill, out_cache_loc=zeros(rows * new),
                                    positions=zeros(rows * new))
                runner.req_to_token_pool.req_to_token[0] = 0
                q, k = batch.randn(rows * new, HEADS), batch.randn(rows * new, 1)

                def step(layer=layer, backend=backend, q=q, k=k, held=held):
                    with forward_context(ForwardContext(attn_backend=backend)):
                        return layer(q.view(len(q), -1), k, k[..., :LATENT], held)
                backend.init_forward_metadata_out_graph(held, in_capture=True)
                backend.init_forward_metadata_in_graph(held)
                out, graph = step(), None
                if shared.HAS_GPU:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        out = step()
                first, last = [ahead for ahead, _ in batch.sequences], [ahead + new for ahead, _ in batch.sequences]
                for moved, values in ((held.req_pool_indices, batch.indices), (held.seq_lens, torch.tensor(first if new > 1 else last)),
                                      (held.out_cache_loc, torch.cat([of[a:b] for of, a, b in zip(batch.slots, first, last)]))):
                    moved[:len(values)] = values.to(moved)
                q[:len(batch.queries)] = batch.queries
                k[:3 * new] = torch.cat([of[a:b] for of, a, b in zip(batch.keys, first, last)])
                backend.init_forward_metadata_out_graph(held)
                backend.init_forward_metadata_in_graph(held)
                if graph is None:
                    out = step()
                else:
                    graph.replay()
                self.compare(batch, layer, out.view(-1, HEADS, LATENT), last, [new] * 3, 2.0**-7)

    def test_nothing_compiles_behind_the_preparation(self):
        self.check("mixed")
        before = [self.engine.counters()[name] for name in ("compiles", "sealed_misses")]
        self.assertTrue(self.engine.sealed)
        self.check("decode")
        self.check("verified")
        self.assertEqual([self.engine.counters()[name] for name in ("compiles", "sealed_misses")], before)

    def test_what_is_refused_says_why(self):
        layer, prompt, runner, _ = self.made()
        self.assertEqual(attention.reasons_of(runner), [])

        class Sparse(MLATokenToKVPool):
            """As that of DeepSeek-V3.2 is another class."""
        runner.token_to_kv_pool.__class__ = Sparse
        self.assertEqual(attention.reasons_of(runner), ["a cache of Sparse is not served"])
        runner.token_to_kv_pool.__class__ = MLATokenToKVPool
        layer.logit_cap = 30.0
        self.assertEqual(attention.reasons_of(runner), ["windows and caps of scores over latents are not served"])
        layer.logit_cap, layer.head_dim, layer.v_head_dim = 0.0, 320, 256
        self.assertEqual(attention.reasons_of(runner), ["heads of 320 and 256 elements are not served; they have 16 to 256, in multiples of 8"])
        layer.head_dim, layer.v_head_dim = LATENT + ROPE, LATENT
        stubs = unittest.mock.patch.dict(ATTENTION_BACKENDS, {"triton": lambda _: "triton"})
        with stubs, self.assertLogs("kernelwright.sglang", "WARNING") as log:
            self.assertEqual(self.made(kv_dtype=torch.float8_e5m2)[-1], "triton")
        self.assertIn("/problem/dtype/kv", log.output[0])


if __name__ == "__main__":
    print("SGLang", sglang.__version__, "on", torch.cuda.get_device_name() if shared.HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
