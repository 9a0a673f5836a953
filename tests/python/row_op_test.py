#!/usr/bin/env python3
"""kernelwright.RowOpKernel on the emulator, against the same steps in plain Python.

Needs no NumPy. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import math
import pathlib
import random
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from kernelwright import ConfigError
from on_the_emulator import EmulatorTest

ROWS, WIDTH = 3, 256


def config(**more):
    return {"kind": "row_op", "problem": {"dtype": {"in": "f16", "out": "f16"}, "width": WIDTH, "input": "add",
                                          "norm": {"kind": "rms"}} | more}


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return config()

    def setUp(self):
        draw = random.Random(1)

        def halves(count):
            return list(struct.unpack(f"{count}e", struct.pack(f"{count}e", *(draw.gauss(0, 1) for _ in range(count)))))
        self.values = {"x": halves(ROWS * WIDTH), "residual": halves(ROWS * WIDTH), "weight": halves(WIDTH)}
        self.x, self.residual = (self.array(self.values[name], "f16", "e", ROWS, WIDTH) for name in ("x", "residual"))
        self.weight = self.array(self.values["weight"], "f16", "e", WIDTH)

    def check(self, out, residual_out):
        found, sums = self.read(out), self.read(residual_out)
        for row in range(ROWS):
            part = slice(row * WIDTH, (row + 1) * WIDTH)
            wanted = [struct.unpack("e", struct.pack("e", a + b))[0]
                      for a, b in zip(self.values["x"][part], self.values["residual"][part])]
            self.assertEqual(list(sums[part]), wanted)
            inverse = 1 / math.sqrt(sum(value * value for value in wanted) / WIDTH + 1e-6)
            for have, value, weight in zip(found[part], wanted, self.values["weight"]):
                self.assertAlmostEqual(have, value * inverse * weight, delta=abs(value * inverse * weight) * 2**-10 + 1e-5)
        self.assertEqual(self.engine.take_hazards(), [])

    def test_launches_and_calls_agree_with_plain_python(self):
        out = self.engine.empty((ROWS, WIDTH), "f16")
        self.kernel.launch(x=self.x, residual=self.residual, residual_out=self.residual, weight=self.weight, out=out)
        self.check(out, self.residual)
        for way, fast in self.ways():
            self.setUp()
            before = self.kernel._counts()
            out, sums = self.kernel(way(self.x), way(self.residual), weight=way(self.weight))
            self.assertEqual(self.kernel._counts()[0] - before[0], int(fast))
            self.assertEqual((tuple(out.shape), out.dtype), ((ROWS, WIDTH), "f16"))
            self.check(out, sums)
            residual = way(self.residual)
            results = self.kernel(way(self.x), residual, residual_out=residual, out=out, weight=way(self.weight))
            self.assertIs(results[0], out)
            self.check(out, self.residual)

    def test_scales_are_returned(self):
        for layout, shape in (("columns", (2, ROWS)), ("rows", (ROWS, 2))):
            kernel = self.engine.prepare(config(dtype={"in": "f16", "out": "e4m3"}, input="gate_up", width=WIDTH, norm={},
                                                scales={"kind": "per_block", "layout": layout}))
            gates = self.array([8.0] * WIDTH * 2 * ROWS, "f16", "e", ROWS, 2 * WIDTH)
            for way, fast in self.ways():
                before = kernel._counts()
                out, scale = kernel(way(gates))
                self.assertEqual((kernel._counts()[0] - before[0], tuple(scale.shape), out.dtype), (int(fast), shape, "e4m3"))
                self.assertEqual(set(getattr(out, "owner", out).read()), {0x7e})  # 448
                for value in self.read(scale, "f"):
                    self.assertAlmostEqual(value, 64 / (1 + math.exp(-8)) / 448, places=6)

    def test_a_sum_and_scales_are_three_results(self):
        kernel = self.engine.prepare(config(dtype={"in": "f16", "out": "e4m3"}, scales={"kind": "per_token"}))
        for way, fast in self.ways():
            before = kernel._counts()
            out, sums, scale = kernel(way(self.x), way(self.residual), weight=way(self.weight))
            self.assertEqual((kernel._counts()[0] - before[0], tuple(scale.shape)), (int(fast), (ROWS,)))
            self.assertEqual((out.dtype, sums.dtype, scale.dtype), ("e4m3", "f16", "f32"))

    def test_two_parts_of_an_attention_are_merged(self):
        heads, none = 4, -math.inf
        kernel = self.engine.prepare({"kind": "row_op", "problem": {"dtype": {"in": "f16", "out": "f16"}, "width": WIDTH,
                                                                    "input": "merge", "heads": heads}})
        draw = random.Random(2)
        lses = [[draw.uniform(-3, 3) for _ in range(heads * ROWS)] for _ in range(2)]
        lses[0][1] = lses[1][5] = lses[0][7] = lses[1][7] = none  # a part without keys, and a row that saw none
        lse, residual_lse = (self.array(values, "f32", "f", ROWS, heads) for values in lses)
        for way, fast in self.ways():
            before = kernel._counts()
            out, found_lse = kernel(way(self.x), way(self.residual), lse=way(lse), residual_lse=way(residual_lse))
            self.assertEqual((kernel._counts()[0] - before[0], tuple(found_lse.shape)), (int(fast), (ROWS, heads)))
            found, total = self.read(out), self.read(found_lse, "f")
            for at, (a, b) in enumerate(zip(*lses)):
                row, head = divmod(at, heads)
                both = none if a == b == none else max(a, b) + math.log(sum(math.exp(each - max(a, b)) for each in (a, b)))
                self.assertTrue(total[at] == both or abs(total[at] - both) < 1e-5, f"{total[at]} where {both} is right")
                for i in range(row * WIDTH + head * WIDTH // heads, row * WIDTH + (head + 1) * WIDTH // heads):
                    parts = [0 if each == none else math.exp(each - both) * self.values[name][i]
                             for each, name in ((a, "x"), (b, "residual"))]
                    self.assertAlmostEqual(found[i], sum(parts), delta=2**-10 * sum(map(abs, parts)) + 1e-6)
        self.assertEqual(self.engine.take_hazards(), [])
        with self.assertRaisesRegex(ConfigError, r"lse: has shape \[4, 3\], and the problem's is \[3, 4\]"):
            kernel(self.x, self.residual, lse=self.array(lses[0], "f32", "f", heads, ROWS), residual_lse=residual_lse)
        with self.assertRaisesRegex(ConfigError, "/lse_out: overlaps lse"):
            kernel(self.x, self.residual, lse=lse, residual_lse=residual_lse, lse_out=lse)
        with self.assertRaisesRegex(ConfigError, "lse: is given, and the problem's input is add"):
            self.kernel(self.x, self.residual, weight=self.weight, lse=lse)

    def test_block_scaled_rows_have_atoms(self):
        kernel = self.engine.prepare(config(dtype={"in": "f16", "out": "mxfp4"}, input="plain", norm={}, scales={"kind": "per_block"}))
        ones = self.array([1.0] * ROWS * WIDTH, "f16", "e", ROWS, WIDTH)
        out, scale = kernel(ones)
        self.assertEqual((tuple(out.shape), tuple(scale.shape)), ((ROWS, WIDTH // 2), (1024,)))
        self.assertEqual(set(out.read()), {0x66})  # 4, of 6 at most
        self.assertEqual((scale.read().count(125), scale.read().count(0)), (ROWS * 8, 1024 - ROWS * 8))
        with self.assertRaisesRegex(ConfigError, "scale: has 512 bytes, .* has 1024 at least"):
            kernel(ones, out=out, scale=self.engine.empty((512,), "u8"))

    def test_a_bound_launch_is_launched_again(self):
        out = self.engine.empty((ROWS, WIDTH), "f16")
        sums = self.engine.empty((ROWS, WIDTH), "f16")
        launch = self.kernel.bind(x=self.x, residual=self.residual, residual_out=sums, weight=self.weight, out=out)
        for _ in range(2):
            out.write(bytes(2 * ROWS * WIDTH))
            launch()
            self.check(out, sums)

    def test_says_which_tensor_does_not_fit(self):
        good = dict(x=self.x, residual=self.residual, residual_out=self.residual, weight=self.weight,
                    out=self.engine.empty((ROWS, WIDTH), "f16"))
        for name, wrong, words in (
                ("x", self.engine.empty((ROWS, 128), "f16"), r"x: has shape \[3, 128\], and the problem's is \[rows, 256\]"),
                ("residual", self.engine.empty((2, WIDTH), "f16"), r"residual: has shape \[2, 256\], and the problem's is \[3, 256\]"),
                ("out", self.engine.empty((ROWS, WIDTH), "bf16"), "out: is bf16, and the problem has f16"),
                ("weight", self.engine.empty((8,), "f16"), r"weight: has shape \[8\]"),
                ("scale", self.engine.empty((ROWS,), "f32"), "scale: is given, and the problem has no scales"),
                ("out", self.residual, "/tensors/out: overlaps residual, which is still read while rows are written"),
                ("tensor_scale", 0.0, "tensor_scale: 0.0 does not divide"),
                ("eps", -1.0, "/tensors/eps: -1 is no finite number from 0 on")):
            with self.subTest(name), self.assertRaisesRegex(ConfigError, words):
                self.kernel.launch(**(good | {name: wrong}))
        with self.assertRaisesRegex(TypeError, "residual: is missing"):
            self.kernel(self.x, weight=self.weight)


if __name__ == "__main__":
    unittest.main()
