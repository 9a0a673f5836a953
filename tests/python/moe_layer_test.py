#!/usr/bin/env python3
"""A whole layer of experts on the emulator, as docs/moe.md has it, against sums in plain Python.

Needs no NumPy. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from on_the_emulator import EmulatorTest

TOKENS, EXPERTS, TOP_K, HIDDEN, WIDE = 9, 4, 2, 32, 16
HALVES = {name: "f16" for name in "abcd"}
GROUPS = {"kind": "rows", "count": EXPERTS, "bounds": "starts"}
# The inner rows and the rows of experts are rounded to f16, and so is the result.
RELATIVE, ABSOLUTE = 2.0**-9, 2.0**-9


def dot(x, y):
    return sum(a * b for a, b in zip(x, y))


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return {"kind": "route", "problem": {"experts": EXPERTS, "top_k": TOP_K, "renormalize": True, "sort": True}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()

        def prepare(kind, **problem):
            return cls.engine.prepare({"kind": kind, "problem": problem})
        cls.first = prepare("gemm", n=2 * WIDE, k=HIDDEN, dtype=HALVES, epilogue="silu(gate) * up", groups=GROUPS | {"gather": True})
        cls.second = prepare("gemm", n=HIDDEN, k=WIDE, dtype=HALVES, groups=GROUPS)
        cls.combine = prepare("moe_combine", dtype={"in": "f16", "out": "f16"}, width=HIDDEN, top_k=TOP_K, residual=True)

    def test_the_layer(self):
        draw = random.Random(1)

        def eighths(count):  # which f16 holds
            return [draw.randint(-8, 8) / 8 for _ in range(count)]
        x = [eighths(HIDDEN) for _ in range(TOKENS)]
        logits = [draw.sample(range(-8, 8), EXPERTS) for _ in range(TOKENS)]
        gate, up = ([[eighths(HIDDEN) for _ in range(WIDE)] for _ in range(EXPERTS)] for _ in range(2))
        down = [[eighths(WIDE) for _ in range(HIDDEN)] for _ in range(EXPERTS)]
        runs = [(expert, matrix, run) for expert in range(EXPERTS) for run in range(0, WIDE, 8) for matrix in (gate, up)]
        interleaved = [value for expert, matrix, run in runs for row in matrix[expert][run:run + 8] for value in row]

        def halves(values, *shape):
            return self.array(values, "f16", "e", *shape)
        of_x = halves([value for row in x for value in row], TOKENS, HIDDEN)
        of_logits = self.array([float(logit) for row in logits for logit in row], "f32", "f", TOKENS, EXPERTS)
        of_gates = halves(interleaved, EXPERTS, 2 * WIDE, HIDDEN)
        of_down = halves([value for matrix in down for row in matrix for value in row], EXPERTS, HIDDEN, WIDE)

        ids, weights, starts, source_rows, positions = self.kernel(of_logits)
        rows = self.first(of_x, of_gates, bounds=starts, gather=source_rows)
        self.assertEqual(tuple(rows.shape), (TOKENS * TOP_K, WIDE))
        rows = self.second(rows, of_down, bounds=starts)
        found = self.read(self.combine(rows, positions, weights, residual=of_x))

        for token in range(TOKENS):
            chosen = sorted(range(EXPERTS), key=lambda expert: -logits[token][expert])[:TOP_K]
            shares = [math.exp(logits[token][expert]) for expert in chosen]
            inner = [[g / (1 + math.exp(-g)) * dot(x[token], u) for g, u in
                      ((dot(x[token], row), other) for row, other in zip(gate[expert], up[expert]))] for expert in chosen]
            for column in range(HIDDEN):
                products = [dot(values, down[expert][column]) for values, expert in zip(inner, chosen)]
                size = sum(dot(map(abs, values), map(abs, down[expert][column])) for values, expert in zip(inner, chosen))
                right = x[token][column] + dot(shares, products) / sum(shares)
                self.assertAlmostEqual(found[token * HIDDEN + column], right, delta=RELATIVE * size + ABSOLUTE,
                                       msg=f"token {token}, column {column}")
        self.assertEqual(self.engine.take_hazards(), [])


if __name__ == "__main__":
    unittest.main()
