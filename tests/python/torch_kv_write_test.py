#!/usr/bin/env python3
"""kv_write with tensors of torch: the operators on either device, calls and graphs on the GPU.

Run by hand like torch_test.py.
"""
import unittest

import torch

import kernelwright
import kernelwright.torch
from kernelwright import ConfigError

OPS = torch.ops.kernelwright
FAST = kernelwright.fast_calls()["fast"]
HAS_GPU = torch.cuda.is_available()


class KvWriteCases:
    """The operators that write a cache. A subclass has `device`, `backend` and `compiled`, the options of torch.compile."""

    WIDTH, PAGE = 64, 4

    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine(cls.backend)
        problem = {"dtype": {"in": "f16", "q": "f16", "kv": "f16"}, "head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2},
                   "kv_layout": {"kind": "paged", "page_size": cls.PAGE}, "rope": {"style": "neox", "width": cls.WIDTH}}
        fp8 = {"dtype": {"in": "f16", "q": "f16", "kv": "e4m3"}, "scales": {"k": "per_token", "v": "per_token"}}
        cls.kernel, cls.keys, cls.fp8 = (cls.engine.prepare({"kind": "kv_write", "problem": problem | more})
                                         for more in ({}, {"q_out": False}, fp8))

    @classmethod
    def tearDownClass(cls):
        torch._dynamo.reset()
        cls.engine.close()

    def setUp(self):
        self.random = torch.Generator().manual_seed(7)
        table = torch.tensor(kernelwright.rope_table(self.WIDTH, 32).tolist(), device=self.device)
        self.q, self.k, self.v = (torch.randn(3, heads, 64, generator=self.random).half().to(self.device) for heads in (4, 2, 2))
        self.given = dict(cos_sin=table, positions=torch.tensor([3, 9, 31], device=self.device),
                          slot_mapping=torch.tensor([17, -1, 2], device=self.device))
        self.handle = kernelwright.torch.handle(self.kernel)

    def caches(self, dtype=torch.float16):
        """Keys and values side by side in one buffer, as vLLM has them."""
        return torch.full((5, self.PAGE, 2, 128), 7.0, device=self.device).to(dtype).split(64, -1)

    def turned(self, x):
        cos, sin = self.given["cos_sin"][self.given["positions"]].double()[:, None].split(32, -1)
        low, high = x.double().split(32, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def assert_written(self, keys, values, q_out):
        wanted = self.turned(self.k)
        for token, slot in ((0, 17), (2, 2)):
            self.assert_rounded(keys[slot // 4, slot % 4], wanted[token])
            self.assertTrue(torch.equal(values[slot // 4, slot % 4], self.v[token]))
        untouched = torch.ones(20, dtype=bool, device=self.device)
        untouched[[17, 2]] = False
        for cache in (keys, values):
            self.assertTrue((cache.reshape(20, -1)[untouched] == 7).all())
        if q_out is not None:
            self.assert_rounded(q_out, self.turned(self.q))

    def assert_rounded(self, found, wanted):
        """Half of the last bit of f16, and what f32 adds."""
        self.assertLessEqual(((found.double() - wanted).abs() / (wanted.abs() + 2**-14)).max().item(), 1.01 * 2**-11)

    def test_each_overload_writes_the_cache(self):
        q_out, rotated = torch.empty_like(self.q), self.q.clone()
        for call in (lambda *caches: OPS.kv_write(self.handle, self.q, self.k, self.v, *caches, **self.given),
                     lambda *caches: OPS.kv_write(self.handle, self.q, self.k, self.v, *caches, q_out=q_out, **self.given) or q_out,
                     lambda *caches: OPS.kv_write.in_place(self.handle, rotated, self.k, self.v, *caches, **self.given) or rotated,
                     lambda *caches: OPS.kv_write(kernelwright.torch.handle(self.keys), self.k, self.v, *caches, **self.given)):
            keys, values = self.caches()
            self.assert_written(keys, values, call(keys, values))

    def product(self):
        """A GEMM that writes the cache, its operands, and the rows that it makes, queries first."""
        written = {"dtype": {"in": "f16", "q": "f16", "kv": "f16"}, "head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2},
                   "kv_layout": {"kind": "paged", "page_size": self.PAGE}, "rope": {"style": "neox", "width": self.WIDTH}}
        problem = {"n": 512, "k": 64, "dtype": {"a": "f16", "b": "f16", "d": "f16"}}
        fused, plain = (kernelwright.torch.handle(self.engine.prepare({"kind": "gemm", "problem": problem | more}))
                        for more in ({"kv_write": written}, {}))
        a, b = (torch.randn(rows, 64, generator=self.random).half().to(self.device) for rows in (3, 512))
        return fused, a, b, OPS.gemm(plain, a, b)

    def test_a_product_writes_the_cache(self):
        fused, a, b, rows = self.product()
        keys, values = self.caches()
        again = [cache.clone() for cache in self.caches()]
        wanted = OPS.kv_write(self.handle, rows[:, :256], rows[:, 256:384], rows[:, 384:], *again, **self.given)
        found = OPS.gemm.kv_write(fused, a, b, keys, values, **self.given)
        for one, other in zip((found, keys, values), (wanted.reshape(3, 256), *again)):
            self.assertTrue(torch.equal(one, other))
        with self.assertRaisesRegex(ConfigError, "gemm: the problem writes a cache; call gemm.kv_write"):
            OPS.gemm(fused, a, b)
        with self.assertRaisesRegex(ConfigError, "slot_mapping: is i32, and the problem has i64"):
            OPS.gemm.kv_write(fused, a, b, keys, values, **(self.given | {"slot_mapping": self.given["slot_mapping"].int()}))
        keys, values = (cache.contiguous() for cache in self.caches())
        torch.library.opcheck(OPS.gemm.kv_write, (fused, a, b, keys, values), self.given)

    def test_scales_of_tokens_are_written(self):
        keys, values = self.caches(torch.float8_e4m3fn)
        scales = [torch.zeros(5, self.PAGE, 2, device=self.device) for _ in range(2)]
        number = kernelwright.torch.handle(self.fp8)
        OPS.kv_write(number, self.q, self.k, self.v, keys, values, k_scale=scales[0], v_scale=scales[1], **self.given)
        for cache, scale, wanted in ((keys, scales[0], self.turned(self.k)[2]), (values, scales[1], self.v[2])):
            torch.testing.assert_close(scale[0, 2].double() * 448, wanted.double().abs().amax(-1), rtol=1e-6, atol=0)
            found = cache[0, 2].double() * scale[0, 2, :, None]
            self.assertLessEqual((found - wanted).abs().max().item(), wanted.abs().max().item() * 2**-4)
            self.assertEqual(scale.count_nonzero().item(), 4)

    def test_opcheck(self):
        keys, values = (cache.contiguous() for cache in self.caches())
        arguments = self.handle, self.q, self.k, self.v, keys, values
        torch.library.opcheck(OPS.kv_write.default, arguments, self.given)
        torch.library.opcheck(OPS.kv_write.out, arguments, {"q_out": torch.empty_like(self.q), **self.given})
        torch.library.opcheck(OPS.kv_write.in_place, arguments, self.given)
        torch.library.opcheck(OPS.kv_write.keys, (kernelwright.torch.handle(self.keys), self.k, self.v, keys, values), self.given)
        eighth = [cache.contiguous() for cache in self.caches(torch.uint8)]  # opcheck cannot compare tensors of fp8
        scales = {name: torch.zeros(5, self.PAGE, 2, device=self.device) for name in ("k_scale", "v_scale")}
        torch.library.opcheck(OPS.kv_write.default, (kernelwright.torch.handle(self.fp8), self.q, self.k, self.v, *eighth),
                              scales | self.given)

    def test_compiled_code_writes_the_same_cache(self):
        handle = self.handle

        def step(q, k, v, keys, values):
            rotated = OPS.kv_write(handle, q * 1, k, v, keys, values, **self.given)
            again = q.clone()
            OPS.kv_write.in_place(handle, again, k, v, keys, values, **self.given)
            return rotated, again, keys.sum()
        compiled = torch.compile(step, fullgraph=True, **self.compiled)
        for _ in range(2):
            for given in ((self.q, self.k, self.v), (self.q[:, :, :].neg(), self.k.neg(), self.v.neg())):
                mine, theirs = ([cache.contiguous() for cache in self.caches()] for _ in range(2))
                found = [tensor.clone() for tensor in compiled(*given, *mine)]
                for one, other in zip((*found, *mine), (*step(*given, *theirs), *theirs)):
                    self.assertTrue(torch.equal(one, other))

    def test_errors_are_those_of_a_call(self):
        keys, values = self.caches()
        for words, named in (("cos_sin: is f16, and the problem has f32", {"cos_sin": self.given["cos_sin"].half()}),
                             ("slot_mapping: is i32, and the problem has i64", {"slot_mapping": self.given["slot_mapping"].int()}),
                             ("positions: has shape", {"positions": self.given["positions"][:2]}),
                             ("k_scale: is given, and the problem has no such scales", {"k_scale": torch.ones(1, device=self.device)})):
            with self.assertRaisesRegex(ConfigError, words):
                OPS.kv_write(self.handle, self.q, self.k, self.v, keys, values, **(self.given | named))
        with self.assertRaisesRegex(ConfigError, "is not that of a kernel that writes a cache"):
            OPS.kv_write(99999, self.q, self.k, self.v, keys, values, **self.given)
        with self.assertRaisesRegex(ConfigError, r"k: requires grad.*torch.no_grad\(\)"):
            OPS.kv_write(self.handle, self.q, self.k.clone().requires_grad_(), self.v, keys, values, **self.given)


class KvWriteOnTheEmulator(KvWriteCases, unittest.TestCase):
    device, backend, compiled = "cpu", "emulator", {}


@unittest.skipUnless(HAS_GPU, "there is no GPU")
class KvWriteOnTheGpu(KvWriteCases, unittest.TestCase):
    device, backend, compiled = "cuda", "cuda", {}

    @unittest.skipUnless(FAST, "the extension is not here")
    def test_the_extension_takes_what_torch_gives(self):
        keys, values = self.caches()
        for named in ({}, {"q_out": self.q}, {"eps": 1e-5}, {"positions": self.given["positions"].int()}):
            before = self.kernel._counts()
            self.kernel(self.q, self.k, self.v, keys, values, **(self.given | named))
            self.assertEqual(self.kernel._counts(), (before[0] + 1, before[1]), named)

    def test_a_graph_replays_with_other_slots(self):
        keys, values = self.caches()
        q_out = torch.empty_like(self.q)
        self.kernel(self.q, self.k, self.v, keys, values, q_out=q_out, **self.given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.kernel(self.q, self.k, self.v, keys, values, q_out=q_out, **self.given)
        keys.fill_(7), values.fill_(7), self.q.mul_(-1), self.k.mul_(-1)
        graph.replay()
        self.assert_written(keys, values, q_out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
