#!/usr/bin/env python3
"""kernelwright.flash_attn against attention in fp32: on the GPU if there is one, else on the emulator.

Run by hand, with Python or pytest, where torch is installed: it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name
the module and the library, unless the package is installed.
"""
import unittest

import torch

import kernelwright
from kernelwright import ConfigError
from kernelwright import flash_attn as ours
from kernelwright.flash_attn import flash_attn_func, flash_attn_varlen_func

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ENGINE = kernelwright.Engine("cuda" if DEVICE == "cuda" else "emulator", **({} if DEVICE == "cuda" else {"emulator_arch": "sm_90a"}))
FEATURES = ({}, {"causal": True}, {"causal": True, "window_size": (5, -1)}, {"window_size": (4, 3)}, {"window_size": (-1, 2)},
            {"causal": True, "softcap": 2.0}, {"causal": True, "alibi_slopes": [0.9, 0.1, 0.4, 0.2]},
            {"causal": True, "s_aux": [1.0, -2.0, 0.5, 3.0]}, {"softmax_scale": 0.4, "deterministic": True})
SIZES = ((7, 19), (1, 19), (19, 19), (19, 7))  # queries and keys


def tensors_of(features):
    return {name: torch.tensor(value, device=DEVICE) if isinstance(value, list) else value for name, value in features.items()}


def reference(q, k, v, causal=False, window_size=(-1, -1), softcap=0, alibi_slopes=None, s_aux=None, softmax_scale=None, **_):
    """(out, lse) of one sequence [tokens, heads, head_dim] in fp32."""
    q, k, v = (tensor.transpose(0, 1).float() for tensor in (q, k, v))
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


class FlashAttn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ours.use_engine(ENGINE)

    def setUp(self):
        self.random = torch.Generator().manual_seed(5)

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.random).to(device=DEVICE, dtype=torch.bfloat16)

    def operands(self, *sizes):
        n, s = sizes[-2:]
        return self.randn(*sizes[:-2], n, 4, 64), self.randn(*sizes[:-2], s, 2, 64), self.randn(*sizes[:-2], s, 2, 64)

    def assert_near(self, found, wanted, size):
        # bf16: the probabilities and the output are rounded by 2^-9 of the largest value each.
        self.assertLessEqual((found.float() - wanted).abs().max().item(), 3 * 2**-9 * size)

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
                        torch.testing.assert_close(lse[i], want_lse, rtol=0, atol=1e-4)

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
                        torch.testing.assert_close(lse, torch.cat(want_lse, 1), rtol=0, atol=1e-4)

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
