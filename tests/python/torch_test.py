#!/usr/bin/env python3
"""Handles and operators with tensors of torch: on the GPU if there is one, and the operators on the emulator.

Run by hand, with Python or pytest, where torch is installed: it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name
the module and the library, unless the package is installed.
"""
import gc
import sys
import tracemalloc
import unittest

import torch

import kernelwright
import kernelwright.torch
from kernelwright import ConfigError

OPS = torch.ops.kernelwright
FAST = kernelwright.fast_calls()["fast"]
HAS_GPU = torch.cuda.is_available()


class Cases:
    """What holds on either device. A subclass has `device`, `backend` and `compiled`, the options of torch.compile."""

    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine(cls.backend)
        heads = {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2}}
        dtype = {"dtype": {"q": "f16", "kv": "f16", "out": "f16"}}
        cls.causal = cls.engine.prepare({"problem": {**heads, **dtype, "mask": {"kind": "causal"}, "lse": True}})
        cls.split = cls.engine.prepare({"problem": {**heads, **dtype, "max_q_len": 1}, "schedule": {"splits": 2}})
        cls.gemm = cls.engine.prepare({"kind": "gemm", "problem": {"n": 64, "k": 128, "dtype": {"a": "f16", "b": "f16", "d": "f16"}}})
        cls.quantize = cls.engine.prepare_quantize("f16", "mxfp8")

    @classmethod
    def tearDownClass(cls):
        torch._dynamo.reset()
        cls.engine.close()

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.random).half().to(self.device)

    def setUp(self):
        self.random = torch.Generator().manual_seed(5)
        self.q, self.k, self.v = self.randn(2, 3, 4, 64), self.randn(2, 9, 2, 64), self.randn(2, 9, 2, 64)
        self.handle = kernelwright.torch.handle(self.causal)

    def reference(self, q, k, v, diagonal):
        mask = torch.ones(q.shape[1], k.shape[1], dtype=bool, device=q.device).tril(diagonal)
        q, k, v = (tensor.transpose(1, 2).float() for tensor in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, attn_mask=mask).transpose(1, 2)

    def assert_near(self, found, wanted):
        # f16: the probabilities and the output are rounded by 2^-11 of the largest value each.
        self.assertLessEqual((found.float() - wanted).abs().max().item(), 3 * 2**-11 * self.v.abs().max().item())

    def test_the_operators_are_right(self):
        out, (again, lse) = OPS.attention(self.handle, self.q, self.k, self.v), OPS.attention.with_lse(self.handle, self.q, self.k, self.v)
        self.assert_near(out, self.reference(self.q, self.k, self.v, 6))
        self.assertTrue(torch.equal(out, again))
        scores = torch.einsum("bqhd,bkhd->bhqk", self.q.float(), self.k.float().repeat_interleave(2, 2)) / 8
        scores.masked_fill_(~torch.ones(3, 9, dtype=bool, device=self.device).tril(6), -torch.inf)
        self.assertLessEqual((lse - scores.logsumexp(-1)).abs().max().item(), 1e-3)
        a, b = self.randn(5, 128), self.randn(64, 128)
        d = OPS.gemm(kernelwright.torch.handle(self.gemm), a, b)
        wanted = a.double() @ b.double().t()
        self.assertLessEqual(((d - wanted).abs() / (1 + wanted.abs())).max().item(), 2**-9)
        elements, scales = OPS.quantize(kernelwright.torch.handle(self.quantize), torch.ones(2, 64, dtype=torch.float16, device=self.device))
        self.assertTrue(torch.equal(elements, torch.full((2, 64), 0x78, dtype=torch.uint8, device=self.device)))
        self.assertEqual(scales[:2].tolist(), [119, 119])

    def test_a_batch_takes_views(self):
        """Heads lie side by side in the tensors of a and d, as around a decode over latents."""
        handle = kernelwright.torch.handle(self.engine.prepare({"kind": "gemm", "problem": {
            "n": 64, "k": 128, "dtype": {"a": "f16", "b": "f16", "d": "f16"}, "groups": {"kind": "batch", "count": 4}}}))
        a, b = self.randn(5, 4, 192)[:, :, :128].transpose(0, 1), self.randn(4, 96, 128)[:, 32:]
        d, wanted = OPS.gemm(handle, a, b), a.double() @ b.double().transpose(1, 2)
        self.assertLessEqual(((d - wanted).abs() / (1 + wanted.abs())).max().item(), 2**-9)
        wide = torch.zeros(5, 4, 96, dtype=torch.float16, device=self.device)
        OPS.gemm.out(handle, a, b, out=wide[:, :, :64].transpose(0, 1))
        self.assertTrue(torch.equal(wide[:, :, :64].transpose(0, 1), d))
        self.assertEqual(wide[:, :, 64:].abs().sum().item(), 0)
        torch.library.opcheck(OPS.gemm.default, (handle, a, b))

    def test_strides_are_read_exactly(self):
        want = OPS.attention(self.handle, self.q, self.k, self.v)
        q, k, v = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (self.q, self.k, self.v))
        wide = torch.zeros(2, 3, 8, 64, dtype=torch.float16, device=self.device)
        out, lse = wide[:, :, 2:6], torch.empty(2, 4, 3, device=self.device)
        OPS.attention.out(self.handle, q, k, v, out=out, lse=lse)
        self.assertTrue(torch.equal(out, want))
        self.assertEqual((wide[:, :, :2].abs().sum() + wide[:, :, 6:].abs().sum()).item(), 0)

    def test_all_arguments_of_a_call_are_there(self):
        """torch chooses the overload that has them."""
        length = torch.tensor([9, 4], dtype=torch.int32, device=self.device)
        want = self.reference(self.q[1:], self.k[1:, :4], self.v[1:, :4], 1)
        for more in ({}, {"softcap": None, "sm_budget": 1}):
            found = OPS.attention(self.handle, self.q, self.k, self.v, kv_lengths=length, **more)
            self.assert_near(found[1:], want)
            out, lse = torch.empty_like(self.q), torch.empty(2, 4, 3, device=self.device)
            OPS.attention(self.handle, self.q, self.k, self.v, out=out, lse=lse, kv_lengths=length, **more)
            self.assertTrue(torch.equal(out, found))

    def test_left_padding(self):
        """Rows of the padding see no key, so they are zeros. What k and v hold there does not matter."""
        problem = {"dtype": {"q": "f16", "kv": "f16", "out": "f16"}, "head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2},
                   "mask": {"kind": "causal"}, "kv_starts": True}
        handle = kernelwright.torch.handle(self.engine.prepare({"problem": problem}))
        q, starts = self.randn(2, 9, 4, 64), torch.tensor([0, 5], dtype=torch.int32, device=self.device)
        k, v = self.k.clone(), self.v.clone()
        k[1, :5] = v[1, :5] = torch.nan
        out = OPS.attention(handle, q, k, v, kv_starts=starts)
        self.assert_near(out[:1], self.reference(q[:1], self.k[:1], self.v[:1], 0))
        self.assert_near(out[1:, 5:], self.reference(q[1:, 5:], self.k[1:, 5:], self.v[1:, 5:], 0))
        self.assertEqual(out[1, :5].abs().sum().item(), 0)

    def test_opcheck(self):
        out, lse = torch.empty_like(self.q), torch.empty(2, 4, 3, device=self.device)
        strided = self.q.transpose(1, 2).contiguous().transpose(1, 2)
        for op, arguments, named in ((OPS.attention.default, (self.q, self.k, self.v), {}),
                                     (OPS.attention.full, (strided, self.k, self.v), {"scale": 0.5, "sm_budget": 1}),
                                     (OPS.attention.with_lse, (self.q, self.k, self.v), {}),
                                     (OPS.attention.out, (self.q, self.k, self.v), dict(out=out, lse=lse))):
            torch.library.opcheck(op, (self.handle, *arguments), named)
        number, a, b = kernelwright.torch.handle(self.gemm), self.randn(5, 128), self.randn(64, 128)
        torch.library.opcheck(OPS.gemm.default, (number, a, b))
        torch.library.opcheck(OPS.gemm.out, (number, a, b), dict(out=self.randn(5, 64)))
        number = kernelwright.torch.handle(self.quantize)
        torch.library.opcheck(OPS.quantize.default, (number, a))
        sizes = self.quantize.scale_bytes(5, 128)
        made = [torch.zeros(size, dtype=torch.uint8, device=self.device) for size in ((5, 128), (sizes,))]
        torch.library.opcheck(OPS.quantize.out, (number, a), dict(elements=made[0], scales=made[1]))

    def test_shapes_of_scales_are_those_of_the_library(self):
        for to in ("mxfp8", "mxfp4", "nvfp4"):
            kernel = self.engine.prepare_quantize("f16", to)
            for rows, k in ((1, 32), (127, 64), (128, 96), (129, 128), (300, 160), (0, 64)):
                self.assertEqual(kernelwright.torch._scale_bytes(to, rows, k), kernel.scale_bytes(rows, k), (to, rows, k))

    def test_compiled_code_has_the_eager_bits(self):
        handle, split = self.handle, kernelwright.torch.handle(self.split)

        def step(q, k, v):
            out = torch.empty_like(q)
            OPS.attention.out(handle, q, k, v, out=out, lse=torch.empty(q.shape[0], q.shape[2], q.shape[1], device=q.device))
            last = OPS.attention(split, out[:, -1:], k, v)
            return OPS.attention(handle, q.transpose(1, 2).contiguous().transpose(1, 2), k, v), out, last
        with torch.no_grad():
            compiled = torch.compile(step, fullgraph=True, **self.compiled)
            for rows in (2, 2, 3):
                given = self.randn(rows, 3, 4, 64), self.randn(rows, 9, 2, 64), self.randn(rows, 9, 2, 64)
                for found, wanted in zip([tensor.clone() for tensor in compiled(*given)], step(*given)):
                    self.assertTrue(torch.equal(found, wanted))
            dynamic = torch.compile(lambda number, q, k, v: OPS.attention(number, q, k, v), fullgraph=True, dynamic=True)
            for number in (handle, kernelwright.torch.handle(self.causal)):
                self.assertTrue(torch.equal(dynamic(number, self.q, self.k, self.v), OPS.attention(number, self.q, self.k, self.v)))

    def test_gradients_are_refused_with_the_remedy(self):
        q = self.q.clone().requires_grad_()
        words = r"q: requires grad, and kernelwright computes no gradients; call it under torch.no_grad\(\)"
        with self.assertRaisesRegex(ConfigError, words):
            OPS.attention(self.handle, q, self.k, self.v)
        with self.assertRaisesRegex(ConfigError, words):
            OPS.attention.out(self.handle, q, self.k, self.v, out=torch.empty_like(self.q))
        with self.assertRaisesRegex(Exception, words):
            torch.compile(lambda q: OPS.attention(self.handle, q, self.k, self.v), fullgraph=True)(q)
        want = OPS.attention(self.handle, self.q, self.k, self.v)
        with torch.no_grad():
            self.assertTrue(torch.equal(OPS.attention(self.handle, q, self.k, self.v), want))
        with torch.inference_mode():
            self.assertTrue(torch.equal(OPS.attention(self.handle, self.q, self.k, self.v), want))

    def test_errors_are_those_of_a_call(self):
        for words, call in (("q: is f32, and the problem has f16", lambda: OPS.attention(self.handle, self.q.float(), self.k, self.v)),
                            ("v: makes kv_len 8, and it is 9", lambda: OPS.attention(self.handle, self.q, self.k, self.v[:, :8])),
                            ("handle: 99999 is not that of an attention kernel", lambda: OPS.attention(99999, self.q, self.k, self.v)),
                            ("is not that of a GEMM kernel", lambda: OPS.gemm(self.handle, self.q, self.k)),
                            ("/problem/lse: is false", lambda: OPS.attention.with_lse(
                                kernelwright.torch.handle(self.split), self.q[:, :1], self.k, self.v))):
            with self.assertRaisesRegex(ConfigError, words):
                call()
        kernel = self.engine.prepare_quantize("f32", "mxfp8")
        number = kernelwright.torch.handle(kernel)
        self.assertEqual(kernelwright.torch.handle(kernel), number)
        kernelwright.torch.release(number)
        with self.assertRaisesRegex(ConfigError, f"handle: {number} is not"):
            OPS.quantize(number, self.q)


    def test_handles_are_made_of_problems(self):
        """So that code in a cache of torch.compile never meets a kernel of other shapes."""
        numbers = {kernelwright.torch.handle(kernel) for kernel in (self.causal, self.split, self.gemm, self.quantize)}
        self.assertEqual(len(numbers), 4)
        twin, other = (self.engine.prepare({"kind": "gemm", "problem": {"n": 64, "k": k, "dtype": {"a": "f16", "b": "f16", "d": "f16"}}})
                       for k in (128, 256))
        number = kernelwright.torch.handle(self.gemm)
        self.assertEqual(kernelwright.torch.handle(twin), number + 1)
        self.assertGreater(abs(kernelwright.torch.handle(other) - number), 2)
        for kernel in (twin, other):
            kernelwright.torch.release(kernelwright.torch.handle(kernel))


class OnTheEmulator(Cases, unittest.TestCase):
    device, backend, compiled = "cpu", "emulator", {}

    def test_tensors_of_the_cpu_are_refused_by_calls(self):
        with self.assertRaisesRegex(ConfigError, "q: lies in memory of the host"):
            self.causal(self.q, self.k, self.v)


@unittest.skipUnless(HAS_GPU, "there is no GPU")
class OnTheGpu(Cases, unittest.TestCase):
    device, backend, compiled = "cuda", "cuda", {"mode": "reduce-overhead"}

    def test_a_call_has_the_bits_of_launch_and_op(self):
        want, lse = torch.empty_like(self.q), torch.empty(2, 4, 3, device="cuda")
        self.causal.launch(q=self.q, k=self.k, v=self.v, o=want, lse=lse, stream=torch.cuda.current_stream())
        out, found = self.causal(self.q, self.k, self.v)
        self.assertTrue(torch.equal(out, want) and torch.equal(found, lse))
        self.assertTrue(torch.equal(OPS.attention(self.handle, self.q, self.k, self.v), want))
        self.assertEqual((out.dtype, out.device), (want.dtype, want.device))
        a, b = self.randn(5, 128), torch.nn.Parameter(self.randn(64, 128))
        with torch.no_grad():
            d = self.gemm(a, b)
            self.assertTrue(torch.equal(d, OPS.gemm(kernelwright.torch.handle(self.gemm), a, b)))
        with self.assertRaisesRegex(ConfigError, "b: its __dlpack__ refuses: Can't export tensors that require gradient"):
            self.gemm(a, b)

    @unittest.skipUnless(FAST, "the extension is not here")
    def test_the_extension_takes_what_torch_gives(self):
        length = torch.tensor([9, 4], dtype=torch.int32, device="cuda")
        transposed = self.q.transpose(1, 2).contiguous().transpose(1, 2)
        a, b = self.randn(5, 128), self.randn(64, 128)
        for kernel, given, named in ((self.causal, (self.q, self.k, self.v), {}), (self.causal, (transposed, self.k, self.v), {}),
                                     (self.causal, (self.q, self.k, self.v), {"kv_lengths": length, "scale": 0.5}),
                                     (self.split, (self.q[:, :1], self.k, self.v), {}), (self.gemm, (a, b), {}),
                                     (self.quantize, (a,), {}),
                                     (self.causal, (self.q, self.k, self.v), {"stream": torch.cuda.current_stream()})):
            before = kernel._counts()
            kernel(*given, **named)
            after = kernel._counts()
            self.assertEqual((after[0] - before[0], after[1] - before[1]), (1, 0), (kernel, named))

    def test_wrong_calls_have_the_words_of_launch(self):
        out, lse = torch.empty_like(self.q), torch.empty(2, 4, 3, device="cuda")
        good = dict(q=self.q, k=self.k, v=self.v, out=out, lse=lse)
        for change in ({"q": self.q.bfloat16()}, {"k": self.k[:1]}, {"q": self.q.cpu()}, {"v": self.v[..., :32]},
                       {"lse": lse.half()}, {"q": self.q[..., ::2]}, {"sm_budget": -1}):
            with self.assertRaises(ConfigError) as called:
                self.causal(**good | change)
            given = good | change
            given["o"] = given.pop("out")
            with self.assertRaises(ConfigError) as launched:
                self.causal.launch(**given)
            self.assertEqual(str(called.exception), str(launched.exception))

    def test_the_stream_is_the_current_one(self):
        want = self.causal(self.q, self.k, self.v)[0]
        torch.cuda.synchronize()
        side, out, lse = torch.cuda.Stream(), torch.zeros_like(self.q), torch.empty(2, 4, 3, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
            self.causal(self.q, self.k, self.v, out=out, lse=lse)
        self.assertEqual(out.abs().sum().item(), 0)  # on the default stream: the call waits behind the sleep
        side.synchronize()
        self.assertTrue(torch.equal(out, want))

    def test_a_graph_replays_calls_and_operators(self):
        q, k, v = self.q[:, :1].clone(), self.k, self.v
        by_call, by_op, split = torch.empty_like(q), torch.empty_like(q), kernelwright.torch.handle(self.split)

        def step():
            self.split(q, k, v, out=by_call)
            OPS.attention.out(split, q, k, v, out=by_op)
            return OPS.attention(split, q, k, v)
        step()  # before the capture: compiles nothing later, and allocates the workspace and the spare one
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            functional = step()
        for seed in range(3):
            q.copy_(self.randn(2, 1, 4, 64))
            k.copy_(self.randn(2, 9, 2, 64))
            graph.replay()
            want = self.split(q, k, v)
            for found in (by_call, by_op, functional):
                self.assertTrue(torch.equal(found, want))
            self.assertLess((want.float() - self.reference(q, k, v, 9)).abs().max().item(), 3 * 2**-11 * v.abs().max().item())

    def test_no_workspace_is_allocated_in_a_capture(self):
        engine = kernelwright.Engine("cuda")
        kernel = engine.prepare({"problem": {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2}, "max_q_len": 1,
                                             "dtype": {"q": "f16", "kv": "f16", "out": "f16"}}, "schedule": {"splits": 2}})
        kernel.wait()
        q, out = self.q[:, :1].clone(), torch.empty(2, 1, 4, 64, dtype=torch.float16, device="cuda")
        with self.assertRaisesRegex(ConfigError, "workspace: the launch needs .* while the stream captures"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                kernel(q, self.k, self.v, out=out)
        torch.cuda.synchronize()
        workspace = torch.empty(kernel.workspace_bytes(q=q, k=self.k, v=self.v, o=out), dtype=torch.uint8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel(q, self.k, self.v, out=out, workspace=workspace)
        graph.replay()
        self.assertTrue(torch.equal(out, kernel(q, self.k, self.v)))
        torch.cuda.synchronize()
        engine.close()

    @unittest.skipUnless(FAST, "the extension is not here")
    def test_the_second_call_allocates_nothing(self):
        out, lse = torch.empty_like(self.q), torch.empty(2, 4, 3, device="cuda")
        one, at_once = torch.empty(2, 1, 4, 64, dtype=torch.float16, device="cuda"), self.q[:, :1]
        a, b, d = self.randn(5, 128), self.randn(64, 128), self.randn(5, 64)
        split = kernelwright.torch.handle(self.split)
        for call in (lambda: self.causal(self.q, self.k, self.v, out=out, lse=lse), lambda: self.split(at_once, self.k, self.v, out=one),
                     lambda: self.gemm(a, b, out=d), lambda: OPS.attention.out(split, at_once, self.k, self.v, out=one)):
            call()
            gpu = torch.cuda.memory_stats()["allocation.all.allocated"]
            blocks = []
            for _ in range(5):  # what each call leaves is left in every turn
                gc.collect()
                for _ in range(100):  # the interpreter's free lists, which that has emptied, fill up
                    call()
                before = sys.getallocatedblocks()
                for _ in range(100):
                    call()
                blocks.append(sys.getallocatedblocks() - before)
            self.assertEqual(torch.cuda.memory_stats()["allocation.all.allocated"], gpu)
            self.assertLess(min(blocks), 50)  # less than one in two calls
            tracemalloc.start()
            call()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            call()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertLess(peak - before, 1000)  # a tuple of results, and what torch's dispatcher gives to Python


if __name__ == "__main__":
    unittest.main(verbosity=2)
