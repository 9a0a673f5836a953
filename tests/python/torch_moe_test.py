#!/usr/bin/env python3
"""route, moe_combine and whole layers with tensors of torch: the operators on either device, graphs on the GPU.

Run by hand like torch_test.py.
"""
import unittest

import torch

import kernelwright
import kernelwright.torch
from kernelwright import ConfigError

OPS = torch.ops.kernelwright
HAS_GPU = torch.cuda.is_available()


class MoeCases:
    """The choice of experts, and the sum over their rows, on either device."""

    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine(cls.backend)

        def prepare(kind, **problem):
            return kernelwright.torch.handle(cls.engine.prepare({"kind": kind, "problem": problem}))
        cls.sorts, cls.chooses = (prepare("route", experts=16, top_k=2, renormalize=True, sort=sort) for sort in (True, False))
        cls.sorts_given = prepare("route", experts=16, top_k=2, score="given")
        sums = {"dtype": {"in": "f16", "out": "f16"}, "width": 64, "top_k": 2}
        cls.sums, cls.plain = prepare("moe_combine", residual=True, **sums), prepare("moe_combine", weighted=False, **sums)

    @classmethod
    def tearDownClass(cls):
        torch._dynamo.reset()
        cls.engine.close()

    def setUp(self):
        random = torch.Generator().manual_seed(5)
        self.logits = torch.randn(20, 16, generator=random).to(self.device)
        self.hidden = torch.randn(20, 64, generator=random).half().to(self.device)

    def check_choice(self, ids, weights):
        probabilities, right = self.logits.softmax(-1).topk(2)
        self.assertTrue(torch.equal(ids.long(), right))
        torch.testing.assert_close(weights, probabilities / probabilities.sum(-1, keepdim=True), rtol=1e-5, atol=1e-6)

    def right_sum(self, rows, positions, weights):
        return (rows.double()[positions.long()] * weights.double()[..., None]).sum(1)

    def test_a_layer_of_experts(self):
        """Four launches: the choice, gates and ups of rows that the kernel gathers, their products, and the sums."""
        hidden, wide, experts = 64, 32, 16
        random = torch.Generator().manual_seed(6)

        def drawn(*shape):
            return (torch.randn(*shape, generator=random) / 4).half().to(self.device)
        gate, up, down = drawn(experts, wide, hidden), drawn(experts, wide, hidden), drawn(experts, hidden, wide)
        interleaved = torch.stack([gate.view(experts, -1, 8, hidden), up.view(experts, -1, 8, hidden)], 2).reshape(experts, -1, hidden)

        def gemm(n, k, **problem):
            halves = {name: "f16" for name in "abcd"}
            groups = {"kind": "rows", "count": experts, "bounds": "starts", "gather": "epilogue" in problem}
            return kernelwright.torch.handle(self.engine.prepare({"kind": "gemm", "problem": {
                "n": n, "k": k, "dtype": halves, "groups": groups, **problem}}))
        first, second = gemm(2 * wide, hidden, epilogue="silu(gate) * up"), gemm(hidden, wide)

        def layer(x, logits):
            ids, weights, starts, source_rows, positions = OPS.route.sorted(self.sorts, logits)
            rows = OPS.gemm(first, x, interleaved, bounds=starts, gather=source_rows)
            rows = OPS.gemm(second, rows, down, bounds=starts)
            return OPS.moe_combine(self.sums, rows, positions, weights, residual=x)
        problem = {"dtype": "f16", "hidden": hidden, "intermediate": wide, "residual": True}
        whole, given = (kernelwright.torch.handle(self.engine.prepare({"kind": "moe", "problem": {
            **problem, "route": {"experts": experts, "top_k": 2, **route}}})) for route in ({"renormalize": True}, {"score": "given"}))

        def one_call(x, logits):
            return OPS.moe(whole, x * 1, logits, interleaved, down, residual=x)
        found = layer(self.hidden, self.logits)
        weights, ids = self.logits.double().softmax(-1).topk(2)
        weights /= weights.sum(-1, keepdim=True)
        x, right = self.hidden.double(), self.hidden.double()
        for slot in range(2):
            gates, ups = (torch.einsum("th,twh->tw", x, matrix.double()[ids[:, slot]]) for matrix in (gate, up))
            products = torch.einsum("tw,thw->th", torch.nn.functional.silu(gates) * ups, down.double()[ids[:, slot]])
            right = right + weights[:, slot:slot + 1] * products
        torch.testing.assert_close(found.double(), right, rtol=2**-8, atol=2**-8)
        self.assertTrue(torch.equal(torch.compile(layer, **self.compiled)(self.hidden, self.logits), found))
        self.assertTrue(torch.equal(one_call(self.hidden, self.logits), found))
        compiled = torch.compile(one_call, fullgraph=True, **self.compiled)
        for tokens in (20, 7, 1):
            self.assertTrue(torch.equal(compiled(self.hidden[:tokens], self.logits[:tokens]),
                                        one_call(self.hidden[:tokens], self.logits[:tokens])))
        self.check_forms_of_the_one_call(whole, given, interleaved, down, found)

    def test_rows_are_scattered_and_weights_are_apart(self):
        """With top_k 1 no sum is left, and rows may go to their tokens at once."""
        hidden, wide, experts, tokens = 64, 32, 4, 20
        starts = torch.tensor([0, 9, 9, 12, tokens], dtype=torch.int32, device=self.device)
        random = torch.Generator().manual_seed(7)
        x = (torch.randn(tokens, wide, generator=random) / 4).half().to(self.device)
        weights = (torch.randn(experts, hidden, wide, generator=random) / 4).half().to(self.device)
        places = torch.randperm(tokens, generator=random).to(torch.int32).to(self.device)

        def gemm(**groups):
            return kernelwright.torch.handle(self.engine.prepare({"kind": "gemm", "problem": {
                "n": hidden, "k": wide, "dtype": {name: "f16" for name in "abcd"},
                "groups": {"kind": "rows", "count": experts, "bounds": "starts", **groups}}}))
        right = torch.zeros(tokens + 2, hidden, dtype=torch.float16, device=self.device)
        right[places.long()] = OPS.gemm(gemm(), x, weights, bounds=starts)
        scattered = gemm(scatter=True)

        def run(x, scatter):
            return OPS.gemm(scattered, x, weights, bounds=starts, scatter=scatter, result_rows=tokens)
        found = run(x, places)
        self.assertTrue(torch.equal(found, right[:tokens]))
        self.assertTrue(torch.equal(torch.compile(run, fullgraph=True, **self.compiled)(x, places), found))
        out = torch.zeros_like(right)
        OPS.gemm.out(scattered, x, weights, out=out, bounds=starts, scatter=places)
        self.assertTrue(torch.equal(out, right))
        with self.assertRaisesRegex(ConfigError, "result_rows: is missing"):
            OPS.gemm(scattered, x, weights, bounds=starts, scatter=places)
        apart = [weights[expert].clone() for expert in range(experts)]
        addresses = torch.tensor([matrix.data_ptr() for matrix in apart], dtype=torch.int64, device=self.device)
        by_pointers = gemm(pointers=True, scatter=True)
        out.zero_()
        if self.device == "cpu":
            with self.assertRaisesRegex(ConfigError, "b: has addresses, and on the emulator they are of its own memory"):
                OPS.gemm.out(by_pointers, x, addresses, out=out, bounds=starts, scatter=places)
            return
        OPS.gemm.out(by_pointers, x, addresses, out=out, bounds=starts, scatter=places)
        self.assertTrue(torch.equal(out, right))

    def check_forms_of_the_one_call(self, whole, given, gate_up, down, right):
        x = self.hidden
        out, ids, weights = torch.empty_like(x), *(torch.empty(20, 2, dtype=dtype, device=self.device)
                                                   for dtype in (torch.int32, torch.float32))
        OPS.moe.out(whole, x, self.logits, gate_up, down, out=out, ids=ids, weights=weights, residual=x)
        self.assertTrue(torch.equal(out, right))
        self.check_choice(ids, weights)
        self.assertTrue(torch.equal(OPS.moe.given(given, x, ids, weights, gate_up, down, residual=x), right))
        OPS.moe.given_out(given, x, ids, weights, gate_up, down, out=out.zero_(), residual=x)
        self.assertTrue(torch.equal(out, right))
        torch.library.opcheck(OPS.moe.default, (whole, x, self.logits, gate_up, down), {"residual": x})
        torch.library.opcheck(OPS.moe.given, (given, x, ids, weights, gate_up, down), {"residual": x})
        with self.assertRaisesRegex(ConfigError, "moe: the problem's experts are given; call moe.given"):
            OPS.moe(given, x, self.logits, gate_up, down, residual=x)
        with self.assertRaisesRegex(ConfigError, "moe.given: the problem's experts are chosen by logits; call moe"):
            OPS.moe.given(whole, x, ids, weights, gate_up, down, residual=x)
        with self.assertRaisesRegex(ConfigError, "down: has shape"):
            OPS.moe(whole, x, self.logits, gate_up, down[:8], residual=x)

    def test_each_overload_is_right(self):
        ids, weights = OPS.route(self.chooses, self.logits)
        self.check_choice(ids, weights)
        ids, weights, starts, source_rows, positions = OPS.route.sorted(self.sorts, self.logits)
        self.check_choice(ids, weights)
        order = ids.flatten().long().argsort(stable=True)
        self.assertTrue(torch.equal(source_rows.long(), order // 2))
        self.assertTrue(torch.equal(positions.flatten().long(), order.argsort()))
        self.assertEqual(starts.tolist(), [int((ids < expert).sum()) for expert in range(17)])
        rows = self.hidden[source_rows.long()] * 2
        found = OPS.moe_combine(self.sums, rows, positions, weights, residual=self.hidden)
        torch.testing.assert_close(found.double(), self.right_sum(rows, positions, weights) + self.hidden.double(), rtol=2**-10, atol=1e-3)
        found = OPS.moe_combine.unweighted(self.plain, rows, positions)
        torch.testing.assert_close(found.double(), self.right_sum(rows, positions, torch.ones_like(weights)), rtol=2**-10, atol=1e-3)

    def test_given_experts_are_sorted_alone(self):
        ids, _, *made = OPS.route.sorted(self.sorts, self.logits)
        for found in (OPS.route.given(self.sorts_given, ids),
                      torch.compile(lambda ids: OPS.route.given(self.sorts_given, ids), **self.compiled)(ids)):
            for one, other in zip(found, made):
                self.assertTrue(torch.equal(one, other))
        torch.library.opcheck(OPS.route.given, (self.sorts_given, ids))
        with self.assertRaisesRegex(ConfigError, "call route.given"):
            OPS.route.sorted(self.sorts_given, self.logits)

    def test_what_is_given_is_written(self):
        made = OPS.route.sorted(self.sorts, self.logits)
        given = [torch.zeros_like(tensor) for tensor in made]
        names = ("ids", "weights", "starts", "source_rows", "positions")
        sorted_weights = torch.zeros(40, device=self.device)
        OPS.route.out(self.sorts, self.logits, sorted_weights=sorted_weights, **dict(zip(names, given)))
        for one, other in zip(made, given):
            self.assertTrue(torch.equal(one, other))
        self.assertTrue(torch.equal(sorted_weights[made[4].flatten().long()], made[1].flatten()))
        rows, out = self.hidden[made[3].long()], torch.empty_like(self.hidden)
        OPS.moe_combine.out(self.sums, rows, made[4], made[1], out=out, residual=self.hidden)
        self.assertTrue(torch.equal(out, OPS.moe_combine(self.sums, rows, made[4], made[1], residual=self.hidden)))
        OPS.moe_combine.unweighted_out(self.plain, rows, made[4], out=out)
        self.assertTrue(torch.equal(out, OPS.moe_combine.unweighted(self.plain, rows, made[4])))

    def test_opcheck(self):
        made = OPS.route.sorted(self.sorts, self.logits)
        rows, out = self.hidden[made[3].long()], torch.empty_like(self.hidden)
        torch.library.opcheck(OPS.route.default, (self.chooses, self.logits))
        torch.library.opcheck(OPS.route.sorted, (self.sorts, self.logits))
        torch.library.opcheck(OPS.route.out, (self.chooses, self.logits), {"ids": made[0].clone(), "weights": made[1].clone()})
        residual = {"residual": self.hidden}
        torch.library.opcheck(OPS.moe_combine.default, (self.sums, rows, made[4], made[1]), residual)
        torch.library.opcheck(OPS.moe_combine.out, (self.sums, rows, made[4], made[1]), {"out": out, **residual})
        torch.library.opcheck(OPS.moe_combine.unweighted, (self.plain, rows, made[4]))
        torch.library.opcheck(OPS.moe_combine.unweighted_out, (self.plain, rows, made[4]), {"out": out})

    def test_compiled_code_has_the_same_bits(self):
        sorts, sums = self.sorts, self.sums

        def step(logits, hidden):
            _, weights, _, source_rows, positions = OPS.route.sorted(sorts, logits * 1)
            return OPS.moe_combine(sums, hidden[source_rows.long()] * 2, positions, weights, residual=hidden)
        compiled = torch.compile(step, fullgraph=True, **self.compiled)
        for tokens in (20, 20, 7):
            given = self.logits[:tokens], self.hidden[:tokens]
            self.assertTrue(torch.equal(compiled(*given), step(*given)))

    def test_errors_name_the_overload(self):
        with self.assertRaisesRegex(ConfigError, "route: returns ids, weights, and the problem writes ids, .*; call route.sorted"):
            OPS.route(self.sorts, self.logits)
        _, weights, _, source_rows, positions = OPS.route.sorted(self.sorts, self.logits)
        rows = self.hidden[source_rows.long()]
        with self.assertRaisesRegex(ConfigError, "moe_combine: the problem has no weights; call moe_combine.unweighted"):
            OPS.moe_combine(self.plain, rows, positions, weights)
        with self.assertRaisesRegex(ConfigError, "moe_combine.unweighted_out: the problem has weights; call moe_combine.out"):
            OPS.moe_combine.unweighted_out(self.sums, rows, positions, out=self.hidden.clone(), residual=self.hidden)
        with self.assertRaisesRegex(ConfigError, "logits: has shape"):
            OPS.route(self.chooses, self.logits[:, :8])
        with self.assertRaisesRegex(ConfigError, "is not that of a kernel that chooses experts"):
            OPS.route(self.sums, self.logits)


class MoeOnTheEmulator(MoeCases, unittest.TestCase):
    device, backend, compiled = "cpu", "emulator", {}


@unittest.skipUnless(HAS_GPU, "there is no GPU")
class MoeOnTheGpu(MoeCases, unittest.TestCase):
    device, backend, compiled = "cuda", "cuda", {}

    def test_a_graph_of_a_whole_layer_replays_with_other_tokens(self):
        layer = kernelwright.torch.handle(self.engine.prepare({"kind": "moe", "problem": {
            "dtype": "f16", "hidden": 64, "intermediate": 32, "route": {"experts": 16, "top_k": 2, "renormalize": True}}}))
        gate_up, down = (torch.randn(16, 64, k, device="cuda").half() / 8 for k in (64, 32))

        def step():
            return OPS.moe(layer, self.hidden, self.logits, gate_up, down)
        step()  # before the capture: allocates the workspace, and the spare one
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step()
        for _ in range(2):
            self.logits.copy_(self.logits.flip(1))
            self.hidden.mul_(-0.5)
            graph.replay()
            self.assertTrue(torch.equal(found, step()))

    def test_a_graph_replays_with_other_tokens(self):
        def step():
            _, weights, _, source_rows, positions = OPS.route.sorted(self.sorts, self.logits)
            return OPS.moe_combine(self.sums, self.hidden[source_rows.long()] * 2, positions, weights, residual=self.hidden)
        step()  # before the capture: allocates the workspace, and the spare one
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step()
        for _ in range(2):
            self.logits.copy_(self.logits.flip(0))
            self.hidden.mul_(-2)
            graph.replay()
            self.assertTrue(torch.equal(found, step()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
