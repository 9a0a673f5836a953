#!/usr/bin/env python3
"""Decodes over latent keys (MLA) and writes of their cache, by the class that vLLM builds: on the GPU if there is one, else on the
emulator. Whole steps are in vllm_latents_test.py. Run by hand where vllm_test.py is run; it is no part of CI.

The reference is fp64, over what the cache holds.
"""
import os
import types
import unittest
import unittest.mock

import torch
import vllm
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionType
from vllm_steps import DEVICE, ERA, HAS_GPU, reference

import kernelwright
from kernelwright.vllm import attention, latent


class Latents(unittest.TestCase):
    """forward_mqa() and do_kv_cache_update() of the class that vLLM builds."""

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
