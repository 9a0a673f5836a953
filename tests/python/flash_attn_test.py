#!/usr/bin/env python3
"""kernelwright.flash_attn against attention in fp64: on the GPU if there is one, else on the emulator.

Run by hand, with Python or pytest, where torch is installed: it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name
the module and the library, unless the package is installed.
"""
import unittest

import torch

import kernelwright
from kernelwright import ConfigError
from kernelwright import flash_attn as ours
from kernelwright.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ENGINE = kernelwright.Engine("cuda" if DEVICE == "cuda" else "emulator", **({} if DEVICE == "cuda" else {"emulator_arch": "sm_90a", "hazards": True}))
FEATURES = ({}, {"causal": True}, {"causal": True, "window_size": (5, -1)}, {"window_size": (4, 3)}, {"window_size": (-1, 2)},
            {"causal": True, "softcap": 2.0}, {"causal": True, "alibi_slopes": [0.9, 0.1, 0.4, 0.2]},
            {"causal": True, "s_aux": [1.0, -2.0, 0.5, 3.0]}, {"softmax_scale": 0.4, "deterministic": True})
SIZES = ((7, 19), (1, 19), (19, 19), (19, 7))  # queries and keys


def tensors_of(features):
    return {name: torch.tensor(value, device=DEVICE) if isinstance(value, list) else value for name, value in features.items()}


def reference(q, k, v, causal=False, window_size=(-1, -1), softcap=0, alibi_slopes=None, s_aux=None, softmax_scale=None, **_):
    """(out, lse) of one sequence [tokens, heads, head_dim] in fp64."""
    q, k, v = (tensor.transpose(0, 1).double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(len(q) // len(k), 0) for tensor in (k, v))
    scores = q @ k.transpose(1, 2) * (softmax_scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    n, s = scores.shape[1:]
    distance = torch.arange(s, device=q.device) - (torch.arange(n, device=q.device)[:, None] + s - n)
    if alibi_slopes is not None:
        scores = scores + alibi_slopes[:, None, None] * distance
    left, right = window_size[0], 0 if causal else window_size[1]
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    hidden = hidden | (distance < -left) if left >= 0 else hidden
    hidden = hidden | (distance > right) if right >= 0 else hidden
    scores = scores.masked_fill(hidden, -torch.inf)
    if s_aux is not None:
        scores = torch.cat([scores, s_aux[:, None, None].expand(-1, n, 1)], -1)
    weights = scores.softmax(-1).nan_to_num(0)[..., :s]  # a row that sees no key
    return (weights @ v).transpose(0, 1), scores.logsumexp(-1)


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ours.use_engine(ENGINE)

    @classmethod
    def tearDownClass(cls):
        hazards = ENGINE.take_hazards() if DEVICE == "cpu" else []
        assert hazards == [], hazards

    def setUp(self):
        self.random = torch.Generator().manual_seed(5)

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.random).to(device=DEVICE, dtype=torch.bfloat16)

    def operands(self, *sizes):
        n, s = sizes[-2:]
        return self.randn(*sizes[:-2], n, 4, 64), self.randn(*sizes[:-2], s, 2, 64), self.randn(*sizes[:-2], s, 2, 64)

    def assert_near(self, found, wanted, size):
        # bf16: the probabilities and the output are rounded by 2^-9 of the largest value each.
        self.assertLessEqual((found.double() - wanted).abs().max().item(), 3 * 2**-9 * size)


class FlashAttn(Cases):
    def test_batches(self):
        for features in FEATURES:
            for n, s in SIZES:
                with self.subTest(**features, n=n, s=s):
                    (q, k, v), given = self.operands(2, n, s), tensors_of(features)
                    out, lse = flash_attn_func(q, k, v, return_lse=True, **given)
                    self.assertEqual((out.shape, lse.shape, lse.dtype), (q.shape, (2, 4, n), torch.float32))
                    for i in range(2):
                        want, want_lse = reference(q[i], k[i], v[i], **given)
                        self.assert_near(out[i], want, v.abs().max().item())
                        torch.testing.assert_close(lse[i].double(), want_lse, rtol=0, atol=1e-4)

    def test_sequences_one_behind_the_other(self):
        for features in FEATURES:
            for lengths in (((7, 19), (3, 5), (1, 8)), ((6, 6), (9, 9))):
                with self.subTest(**features, lengths=lengths):
                    given = tensors_of(features)
                    parts = [self.operands(*pair) for pair in lengths]
                    q, k, v = (torch.cat(tensors) for tensors in zip(*parts))
                    ends = torch.tensor([(0, 0), *lengths], device=DEVICE).cumsum(0).to(torch.int32)
                    offsets = ends[:, 0].contiguous(), ends[:, 1].contiguous()
                    for pair in (offsets, offsets[:1] * 2) if lengths[0][0] == lengths[0][1] else (offsets,):
                        out, lse, nothing = flash_attn_varlen_func(q, k, v, *pair, 9, 19, return_attn_probs=True, **given)
                        self.assertIsNone(nothing)
                        want, want_lse = zip(*(reference(*part, **given) for part in parts))
                        self.assert_near(out, torch.cat(want), v.abs().max().item())
                        torch.testing.assert_close(lse.double(), torch.cat(want_lse, 1), rtol=0, atol=1e-4)

    def test_pages(self):
        lengths, page = ((2, 37), (1, 16)), 16
        parts = [self.operands(*pair) for pair in lengths]
        pages, table = [self.randn(2, page, 2, 64) for _ in range(8)], torch.zeros(2, 3, dtype=torch.int64, device=DEVICE)
        for row, (_, k, v) in enumerate(parts):
            for at in range(0, len(k), page):
                table[row, at // page] = number = 7 - (3 * row + at // page)
                for side, keys in enumerate((k, v)):
                    pages[number][side, :len(keys[at:at + page])] = keys[at:at + page]
        k, v = torch.stack(pages).unbind(1)
        offsets = [torch.tensor([0, a, a + b], device=DEVICE) for a, b in zip(*lengths)]
        out = flash_attn_varlen_func(torch.cat([part[0] for part in parts]), k.contiguous(), v.contiguous(), *offsets, 2, 37,
                                     causal=True, block_table=table)
        self.assert_near(out, torch.cat([reference(*part, causal=True)[0] for part in parts]), v.abs().max().item())

    def test_refusals(self):
        q, k, v = self.operands(1, 3, 9)
        slopes = torch.ones(4, device=DEVICE)
        for words, named in (("dropout_p: is 0.5", {"dropout_p": 0.5}), ("go with causal=True alone", {"alibi_slopes": slopes}),
                             ("do not go with a softcap", {"alibi_slopes": slopes, "causal": True, "softcap": 1.0}),
                             (r"it is \[4\], one for each head", {"alibi_slopes": slopes[None], "causal": True})):
            with self.assertRaisesRegex(ConfigError, words):
                flash_attn_func(q, k, v, **named)
        with self.assertRaisesRegex(ConfigError, r"k: requires grad.*torch.no_grad\(\)"):
            flash_attn_func(q, k.clone().requires_grad_(), v)
        with self.assertRaisesRegex(ConfigError, "q: is torch.float32; kernels take torch.float16 and torch.bfloat16"):
            flash_attn_func(q.float(), k, v)
        with self.assertRaisesRegex(ConfigError, "/problem/head_dim/qk: 3 "):
            flash_attn_func(q[..., :3].contiguous(), k[..., :3].contiguous(), v[..., :3].contiguous())


class WithKvCache(Cases):
    """flash_attn_with_kvcache: what is appended, what is not touched, and the attention of the cache as it then is."""

    KEYS, PAGE, LENGTHS = 48, 16, (5, 30, 0)

    def setUp(self):
        super().setUp()
        angles = torch.arange(self.KEYS).double()[:, None] * 100.0 ** (-torch.arange(16) / 16)
        self.cos, self.sin = angles.cos().float().to(DEVICE), angles.sin().float().to(DEVICE)
        self.lengths = torch.tensor(self.LENGTHS, dtype=torch.int32, device=DEVICE)

    def turned(self, x, positions, interleaved):
        """x [tokens, heads, head_dim] in fp64: 32 of its elements are turned."""
        cos, sin = (table.double()[positions][:, None] for table in (self.cos, self.sin))
        head, rest = x[..., :32].double(), x[..., 32:].double()
        low, high = (head[..., ::2], head[..., 1::2]) if interleaved else head.split(16, -1)
        turned = low * cos - high * sin, high * cos + low * sin
        return torch.cat([torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1), rest], -1)

    def cache(self, kind, dtype=torch.bfloat16):
        """(keys, values, the arguments that say how they lie, a function for the rows of sequence i in either). Keys and
        values lie side by side in one buffer."""
        if kind == "paged":
            table = torch.tensor([[7, 2, 4], [0, 8, 1], [3, 6, 5]], device=DEVICE)
            both = self.randn(9, self.PAGE, 2, 128).to(dtype)
            return *both.split(64, -1), {"block_table": table}, lambda cache, i: cache[table[i]].flatten(0, 1)
        both = self.randn(5, self.KEYS, 2, 128).to(dtype)
        rows = torch.tensor([3, 0, 2] if kind == "rows" else [0, 1, 2], device=DEVICE)
        named = {"cache_batch_idx": rows} if kind == "rows" else {}
        return *both.split(64, -1), named, lambda cache, i: cache[rows[i]]

    def check(self, kind, q, new, named, rotary=None, **features):
        keys, values, where, of = self.cache(kind)
        k, v = self.randn(3, new, 2, 64), self.randn(3, new, 2, 64)
        before = [[of(cache, i).clone() for i in range(3)] for cache in (keys, values)]
        whole = [cache.clone() for cache in (keys, values)]
        turn = {} if rotary is None else dict(rotary_cos=self.cos, rotary_sin=self.sin, rotary_interleaved=rotary)
        given = tensors_of(features)
        out, lse = flash_attn_with_kvcache(q, keys, values, k, v, cache_seqlens=self.lengths, return_softmax_lse=True, **where,
                                           **turn, **named, **given)
        in_order = features.get("causal") or features.get("window_size", (-1, -1)) != (-1, -1)
        for i, length in enumerate(self.LENGTHS):
            end, places = length + new, torch.arange(length, length + new, device=DEVICE)
            wanted = self.turned(k[i], places, rotary) if rotary is not None else k[i].double()
            found = of(keys, i)[length:end]
            self.assertLessEqual(((found.double() - wanted).abs() - 2**-21).div(wanted.abs()).max().item(), 1.01 * 2**-8)
            self.assertTrue(torch.equal(of(values, i)[length:end], v[i]))
            for cache, old in zip((keys, values), before):
                self.assertTrue(torch.equal(of(cache, i)[:length], old[i][:length]))
                self.assertTrue(torch.equal(of(cache, i)[end:], old[i][end:]))
            query = q[i]
            if rotary is not None:
                places = length + torch.arange(q.shape[1], device=DEVICE) * int(bool(in_order))
                query = self.turned(query, places, rotary).bfloat16()
            first = named.get("cache_leftpad", [0, 0, 0])[i]
            want, want_lse = reference(query, of(keys, i)[first:end], of(values, i)[first:end], **given)
            self.assert_near(out[i], want, values.abs().max().item())
            torch.testing.assert_close(lse[i].double(), want_lse, rtol=0, atol=5e-3 if rotary is not None else 1e-4)
        changed = sum((cache != old).any(-1).any(-1).sum().item() for cache, old in zip((keys, values), whole))
        self.assertEqual(changed, 2 * 3 * new)  # no other row of the cache

    def test_appends_and_attends(self):
        for kind in ("padded", "rows", "paged"):
            for n, new, rotary, features in ((1, 1, True, {"causal": True}), (3, 3, False, {"causal": True}), (3, 3, None, {}),
                                             (3, 3, True, {}), (2, 4, False, {"causal": True, "window_size": (6, -1)}),
                                             (1, 1, False, {}), (4, 4, True, {"window_size": (4, 2), "softcap": 3.0})):
                with self.subTest(kind, n=n, new=new, rotary=rotary, **features):
                    self.check(kind, self.randn(3, n, 4, 64), new, {}, rotary, **features)

    def test_left_padding_and_sinks(self):
        for kind in ("padded", "paged"):
            for features in ({"causal": True}, {"causal": True, "s_aux": [1.0, -2.0, 0.5, 3.0]}):
                with self.subTest(kind, **features):
                    left = torch.tensor([2, 29, 0], device=DEVICE)
                    self.check(kind, self.randn(3, 1, 4, 64), 1, {"cache_leftpad": left}, True, **features)

    def test_without_new_keys_the_cache_stays(self):
        for kind in ("padded", "rows", "paged"):
            keys, values, where, of = self.cache(kind)
            old, q = keys.clone(), self.randn(3, 2, 4, 64)
            for lengths in (None, 20, self.lengths + 1):
                with self.subTest(kind, lengths=lengths):
                    out = flash_attn_with_kvcache(q, keys, values, cache_seqlens=lengths, causal=True, num_splits=1, **where)
                    ends = [self.KEYS if lengths is None else int(lengths) if isinstance(lengths, int) else int(lengths[i]) for i in range(3)]
                    for i, end in enumerate(ends):
                        want = reference(q[i], of(keys, i)[:end], of(values, i)[:end], causal=True)[0]
                        self.assert_near(out[i], want, values.abs().max().item())
            self.assertTrue(torch.equal(keys, old))

    def test_a_length_of_the_host_appends_at_one_place(self):
        keys, values, _, _ = self.cache("padded")
        q, k, v = self.randn(3, 1, 4, 64), self.randn(3, 1, 2, 64), self.randn(3, 1, 2, 64)
        flash_attn_with_kvcache(q, keys, values, k, v, cache_seqlens=47, causal=True)
        self.assertTrue(torch.equal(keys[:3, 47], k[:, 0]) and torch.equal(values[:3, 47], v[:, 0]))

    def test_a_key_behind_the_end_is_not_written(self):
        for kind in ("padded", "paged"):
            keys, values, where, of = self.cache(kind)
            old, k, v = keys.clone(), self.randn(3, 2, 2, 64), self.randn(3, 2, 2, 64)
            full = torch.full_like(self.lengths, self.KEYS - 1)
            flash_attn_with_kvcache(self.randn(3, 2, 4, 64), keys, values, k, v, cache_seqlens=full, causal=True, **where)
            for i in range(3):
                self.assertTrue(torch.equal(of(keys, i)[-1], k[i, 0]))
            self.assertEqual((keys != old).any(-1).any(-1).sum().item(), 3)
            if DEVICE == "cpu":  # the emulator says what a GPU reads silently
                told = {hazard["what"] for hazard in ENGINE.take_hazards()}
                read = {f"kv_lengths[{i}] is 49, above kv_len 48; it is read as 48" for i in range(3)}
                written = {f"positions[{i}] is 48, and a sequence of the cache has 48 keys; the token is not written"
                           for i in (1, 3, 5)}
                self.assertEqual(told, read | written)

    def test_fp8_caches_with_scales(self):
        for dtype, count in ((torch.float8_e4m3fn, 1), (torch.float8_e5m2, 2), (torch.float8_e4m3fn, 2)):
            with self.subTest(dtype, count=count):
                keys, values, where, of = self.cache("paged", dtype)
                q, k, v = self.randn(3, 1, 4, 64), self.randn(3, 1, 2, 64), self.randn(3, 1, 2, 64)
                scale = torch.tensor([0.25, 0.75][:count], device=DEVICE)
                out = flash_attn_with_kvcache(q, keys, values, k, v, cache_seqlens=self.lengths, causal=True, k_descale=scale,
                                              v_descale=2 * scale, **where)
                for i, length in enumerate(self.LENGTHS):
                    stored = [(new[i, 0].float() / factor[:, None]).to(dtype) for new, factor in ((k, scale), (v, 2 * scale))]
                    for cache, wanted in zip((keys, values), stored):
                        # The kernel multiplies by the reciprocal, so ties may differ by a step.
                        near = (of(cache, i)[length].float() - wanted.float()).abs() <= 2**-2 * wanted.float().abs() + 2**-9
                        self.assertTrue(near.all())
                    full = [of(cache, i)[:length + 1].double() * factor[:, None].double()
                            for cache, factor in ((keys, scale), (values, 2 * scale))]
                    self.assert_near(out[i], reference(q[i], *full, causal=True)[0], full[1].abs().max().item())

    def test_refuses_by_name(self):
        keys, values, where, _ = self.cache("paged")
        padded, padded_values, rows, _ = self.cache("rows")
        q, k, v = self.randn(3, 1, 4, 64), self.randn(3, 1, 2, 64), self.randn(3, 1, 2, 64)
        turn = dict(rotary_cos=self.cos, rotary_sin=self.sin)
        good = dict(k=k, v=v, cache_seqlens=self.lengths, causal=True, **where)
        for words, change in (("v: is missing; keys and values are appended", {"v": None}),
                              ("k: is missing; keys and values are appended", {"k": None}),
                              ("rotary_cos: turns q and k", dict(k=None, v=None, **turn)),
                              ("rotary_sin: is missing", {"rotary_cos": self.cos}),
                              ("rotary_cos: has 47 positions, and a sequence of the cache has 48", {
                                  "rotary_cos": self.cos[:47], "rotary_sin": self.sin[:47]}),
                              ("rotary_cos, rotary_sin: have shapes", turn | {"rotary_sin": self.sin[:, :8]}),
                              ("cache_seqlens: is missing", {"cache_seqlens": None}),
                              (r"cache_seqlens: has shape \[2\]; it is \[3\]", {"cache_seqlens": self.lengths[:2]}),
                              ("cache_seqlens: 48 keys and 1 new ones do not fit a sequence of 48", {"cache_seqlens": 48}),
                              ("cache_batch_idx: does not go with block_table", rows),
                              (r"cache_leftpad: has shape \[1\]", {"cache_leftpad": self.lengths[:1]}),
                              (r"k: has shape \[2, 1, 2, 64\]; it is \[3, new", {"k": k[:2]}),
                              ("k_descale: is given, and k_cache is torch.bfloat16", {"k_descale": self.cos[0, :1], "v_descale": self.cos[0, :1]}),
                              (r"k_descale, v_descale: are both of shape \[1\] or \[2\]", {"k_descale": self.cos[0, :3], "v_descale": self.cos[0, :3]}),
                              ("alibi_slopes: go with causal=True alone", {"alibi_slopes": self.cos[0, :4], "causal": False})):
            with self.subTest(words), self.assertRaisesRegex(ConfigError, words):
                flash_attn_with_kvcache(q, keys, values, **(good | change))
        for words, given in (("q: is torch.float32; kernels take", (q.float(), keys, values)),
                             ("k_cache: is torch.float32; it is torch.bfloat16", (q, keys.float(), values.float())),
                             ("k_cache: has 5 sequences for 6 rows of q", (torch.cat([q, q]), padded, padded_values)),
                             ("q, k_cache: have 3 and 4 dimensions", (q[0], keys, values)),
                             (r"k_cache: requires grad.*torch.no_grad\(\)", (q, keys.float().requires_grad_().bfloat16(), values))):
            with self.subTest(words), self.assertRaisesRegex(ConfigError, words):
                flash_attn_with_kvcache(*given)

    def test_compiled_code_appends_too(self):
        def step(q, k, v, keys, values, lengths, table):
            return flash_attn_with_kvcache(q, keys, values, k, v, self.cos, self.sin, lengths, block_table=table, causal=True)
        compiled = torch.compile(step, fullgraph=True)
        keys, values, where, _ = self.cache("paged")
        mine = keys.contiguous(), values.contiguous()
        theirs = [cache.clone() for cache in mine]
        given = self.randn(3, 1, 4, 64), self.randn(3, 1, 2, 64), self.randn(3, 1, 2, 64)
        with torch.no_grad():
            for lengths in (self.lengths, self.lengths + 1):
                found = compiled(*given, *mine, lengths, where["block_table"])
                wanted = step(*given, *theirs, lengths, where["block_table"])
                for one, other in zip((found, *mine), (wanted, *theirs)):
                    self.assertTrue(torch.equal(one, other))


if __name__ == "__main__":
    unittest.main(verbosity=2)
