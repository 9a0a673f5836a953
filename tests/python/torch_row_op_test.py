#!/usr/bin/env python3
"""row_op with tensors of torch: the operators on either device.

Run by hand like torch_test.py.
"""
import unittest

import torch

import kernelwright
import kernelwright.torch
from kernelwright import ConfigError

OPS = torch.ops.kernelwright
HAS_GPU = torch.cuda.is_available()


class RowOpCases:
    """Steps over rows, on either device."""

    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine(cls.backend)

        def prepare(out, **more):
            return kernelwright.torch.handle(cls.engine.prepare({"kind": "row_op", "problem": {
                "dtype": {"in": "f16", "out": out}, "width": 256, **more}}))
        rms = {"norm": {"kind": "rms"}}
        cls.norm, cls.gates = prepare("f16", **rms), prepare("f16", input="gate_up")
        cls.add = prepare("f16", input="add", **rms)
        cls.merge = prepare("f16", input="merge", heads=2)
        cls.quantised = prepare("e4m3", scales={"kind": "per_token"}, **rms)
        cls.added = prepare("e4m3", input="add", scales={"kind": "per_block"}, **rms)
        cls.operand, cls.tensor = prepare("mxfp8", scales={"kind": "per_block"}), prepare("e4m3", scales={"kind": "per_tensor"})

    @classmethod
    def tearDownClass(cls):
        torch._dynamo.reset()
        cls.engine.close()

    def setUp(self):
        random = torch.Generator().manual_seed(5)
        self.x, self.residual, self.weight, self.both = (
            torch.randn(*shape, generator=random).half().to(self.device) for shape in ((4, 256), (4, 256), (256,), (4, 512)))

    def normed(self, x):
        x = x.double()
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight.double()

    def assert_rounded(self, found, wanted, unit=2**-11):
        self.assertLessEqual(((found.double() - wanted).abs() / (wanted.abs() + 2**-9)).max().item(), 1.01 * unit)

    def test_each_overload_is_right(self):
        self.assert_rounded(OPS.row_op(self.norm, self.x, weight=self.weight), self.normed(self.x))
        gate, up = self.both.double().split(256, -1)
        self.assert_rounded(OPS.row_op(self.gates, self.both), torch.nn.functional.silu(gate) * up)
        total = self.x + self.residual
        out, found = OPS.row_op.add(self.add, self.x, self.residual, weight=self.weight)
        self.assertTrue(torch.equal(found, total))
        self.assert_rounded(out, self.normed(total))
        lses = [torch.randn(4, 2, device=self.device) for _ in range(2)]
        lses[0][2, 1] = -torch.inf
        out, found = OPS.row_op.merge(self.merge, self.x, self.residual, lse=lses[0], residual_lse=lses[1])
        both = torch.logaddexp(lses[0].double(), lses[1].double())
        weights = [(lse.double() - both).exp()[..., None] for lse in lses]
        merged = sum(weight * rows.double().view(4, 2, 128) for weight, rows in zip(weights, (self.x, self.residual)))
        self.assertLess((found.double() - both).abs().max().item(), 1e-5)
        self.assertLess((out.double().view(4, 2, 128) - merged).abs().max().item(), 2**-9)
        out, scale = OPS.row_op.scaled(self.quantised, self.x, weight=self.weight)
        self.assert_rounded(out.double() * scale[:, None], self.normed(self.x), 2**-3)
        out, found, scale = OPS.row_op.add_scaled(self.added, self.x, self.residual, weight=self.weight)
        self.assertEqual((out.dtype, tuple(scale.shape)), (torch.float8_e4m3fn, (2, 4)))
        self.assert_rounded(out.double() * scale.t().repeat_interleave(128, 1), self.normed(total), 2**-3)
        out, scale = OPS.row_op.scaled(self.operand, self.x)
        self.assertEqual((out.dtype, scale.dtype, tuple(scale.shape)), (torch.uint8, torch.uint8, (1024,)))
        given = torch.tensor([0.25], device=self.device)
        self.assert_rounded(OPS.row_op(self.tensor, self.x, scale=given).double() / 4, self.x.double(), 2**-3)

    def test_what_is_given_is_written(self):
        total, out, sums = self.x + self.residual, torch.empty_like(self.x), torch.empty_like(self.x)
        OPS.row_op(self.norm, self.x, out=out, weight=self.weight)
        self.assert_rounded(out, self.normed(self.x))
        OPS.row_op.add_out(self.add, self.x, self.residual, residual_out=sums, out=out, weight=self.weight)
        self.assertTrue(torch.equal(sums, total))
        OPS.row_op.in_place(self.add, self.x, self.residual, out=out, weight=self.weight)
        self.assertTrue(torch.equal(self.residual, total))
        self.assert_rounded(out, self.normed(total))

    def test_opcheck(self):
        weight, out = {"weight": self.weight}, torch.empty_like(self.x)
        torch.library.opcheck(OPS.row_op.default, (self.norm, self.x), weight)
        torch.library.opcheck(OPS.row_op.add, (self.add, self.x, self.residual), weight)
        torch.library.opcheck(OPS.row_op.scaled, (self.operand, self.x))  # opcheck cannot compare tensors of fp8
        torch.library.opcheck(OPS.row_op.out, (self.norm, self.x), {"out": out, **weight})
        torch.library.opcheck(OPS.row_op.add_out, (self.add, self.x, self.residual),
                              {"residual_out": torch.empty_like(out), "out": out, **weight})
        torch.library.opcheck(OPS.row_op.in_place, (self.add, self.x, self.residual), {"out": out, **weight})

    def test_compiled_code_has_the_same_bits(self):
        add, gates = self.add, self.gates

        def step(x, residual, both, weight):
            out, total = OPS.row_op.add(add, x * 1, residual, weight=weight)
            return out, total, OPS.row_op(gates, both)
        compiled = torch.compile(step, fullgraph=True, **self.compiled)
        for rows in (4, 4, 3):
            given = self.x[:rows], self.residual[:rows], self.both[:rows], self.weight
            for one, other in zip(compiled(*given), step(*given)):
                self.assertTrue(torch.equal(one, other))

    def test_errors_name_the_overload_that_returns_all(self):
        with self.assertRaisesRegex(ConfigError, "row_op: returns out, and the problem writes out, scale; call row_op.scaled"):
            OPS.row_op(self.quantised, self.x, weight=self.weight)
        with self.assertRaisesRegex(ConfigError, "weight: has shape"):
            OPS.row_op(self.norm, self.x, weight=self.weight[:8])
        with self.assertRaisesRegex(ConfigError, "is not that of a kernel of steps over rows"):
            OPS.row_op(99999, self.x)
        with self.assertRaisesRegex(ConfigError, r"x: requires grad.*torch.no_grad\(\)"):
            OPS.row_op(self.norm, self.x.clone().requires_grad_(), weight=self.weight)


class RowOpOnTheEmulator(RowOpCases, unittest.TestCase):
    device, backend, compiled = "cpu", "emulator", {}


@unittest.skipUnless(HAS_GPU, "there is no GPU")
class RowOpOnTheGpu(RowOpCases, unittest.TestCase):
    device, backend, compiled = "cuda", "cuda", {}


if __name__ == "__main__":
    unittest.main(verbosity=2)
