#!/usr/bin/env python3
"""GEMMs of gates and ups from Python, on the emulator, against sums in plain Python.

Needs no NumPy. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from kernelwright import ConfigError
from on_the_emulator import EmulatorTest

ROWS, N, K = 5, 32, 16
COLUMNS = N // 2


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return {"kind": "gemm", "problem": {"n": N, "k": K, "dtype": {"a": "f16", "b": "f16", "c": "f16", "d": "f32"},
                                            "epilogue": "relu(gate + bias) * (up + bias)"}}

    def setUp(self):
        draw = random.Random(1)
        self.a, self.b, self.bias = ([float(draw.randint(-4, 4)) for _ in range(count)] for count in (ROWS * K, N * K, N))
        self.given = {"a": self.array(self.a, "f16", "e", ROWS, K), "b": self.array(self.b, "f16", "e", N, K),
                      "bias": self.array(self.bias, "f16", "e", N)}

    def sum(self, row, column):
        return sum(x * y for x, y in zip(self.a[row * K:][:K], self.b[column * K:][:K])) + self.bias[column]

    def check(self, d):
        found = self.read(d, "f")
        self.assertEqual(len(found), ROWS * COLUMNS)
        for i, value in enumerate(found):
            row, column = divmod(i, COLUMNS)
            gate = column // 8 * 16 + column % 8
            self.assertEqual(value, max(self.sum(row, gate), 0) * self.sum(row, gate + 8), f"row {row}, column {column}")
        self.assertEqual(self.engine.take_hazards(), [])

    def test_launch(self):
        d = self.array([7.0] * (ROWS * COLUMNS), "f32", "f", ROWS, COLUMNS)
        self.kernel.launch(**self.given, d=d)
        self.check(d)

    def test_a_call_allocates_half_the_columns(self):
        for take, _ in self.ways():
            given = {name: take(array) for name, array in self.given.items()}
            d = self.kernel(given["a"], given["b"], bias=given["bias"])
            self.assertEqual(tuple(d.shape), (ROWS, COLUMNS))
            self.check(d)

    def test_a_result_of_all_columns_is_refused(self):
        d = self.array([7.0] * (ROWS * N), "f32", "f", ROWS, N)
        with self.assertRaisesRegex(ConfigError, "d"):
            self.kernel.launch(**self.given, d=d)
        for take, _ in self.ways():
            with self.assertRaises(ConfigError):
                self.kernel(take(self.given["a"]), take(self.given["b"]), bias=take(self.given["bias"]), out=take(d))


if __name__ == "__main__":
    unittest.main()
