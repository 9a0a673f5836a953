#!/usr/bin/env python3
"""A whole layer of experts on the emulator, in one call and in four as docs/moe.md has them, against sums in plain Python.

Needs no NumPy. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kernelwright
from on_the_emulator import EmulatorTest

TOKENS, EXPERTS, TOP_K, HIDDEN, WIDE = 9, 4, 2, 32, 16
HALVES = {name: "f16" for name in "abcd"}
GROUPS = {"kind": "rows", "count": EXPERTS, "bounds": "starts"}
LAYER = {"dtype": "f16", "hidden": HIDDEN, "intermediate": WIDE, "residual": True,
         "route": {"experts": EXPERTS, "top_k": TOP_K, "renormalize": True}}
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
        cls.layer = prepare("moe", **LAYER)
        cls.layer_given = prepare("moe", **LAYER | {"route": {"experts": EXPERTS, "top_k": TOP_K, "score": "given"}})

    def draw(self, seed=1, tokens=TOKENS):
        """Tensors of a layer, and what it gives: a list of (right value, size of the sums) for each token and column."""
        draw = random.Random(seed)

        def eighths(count):  # which f16 holds
            return [draw.randint(-8, 8) / 8 for _ in range(count)]
        x = [eighths(HIDDEN) for _ in range(tokens)]
        logits = [draw.sample(range(-8, 8), EXPERTS) for _ in range(tokens)]
        gate, up = ([[eighths(HIDDEN) for _ in range(WIDE)] for _ in range(EXPERTS)] for _ in range(2))
        down = [[eighths(WIDE) for _ in range(HIDDEN)] for _ in range(EXPERTS)]
        runs = [(expert, matrix, run) for expert in range(EXPERTS) for run in range(0, WIDE, 8) for matrix in (gate, up)]
        interleaved = [value for expert, matrix, run in runs for row in matrix[expert][run:run + 8] for value in row]

        def halves(values, *shape):
            return self.array(values, "f16", "e", *shape)
        tensors = {
            "x": halves([value for row in x for value in row], tokens, HIDDEN),
            "logits": self.array([float(logit) for row in logits for logit in row], "f32", "f", tokens, EXPERTS),
            "gate_up": halves(interleaved, EXPERTS, 2 * WIDE, HIDDEN),
            "down": halves([value for matrix in down for row in matrix for value in row], EXPERTS, HIDDEN, WIDE)}
        return tensors, [self.right(x[token], logits[token], gate, up, down) for token in range(tokens)]

    @staticmethod
    def right(x, logits, gate, up, down):
        """Of one token, whose row is the residual too."""
        chosen = sorted(range(EXPERTS), key=lambda expert: -logits[expert])[:TOP_K]
        shares = [math.exp(logits[expert]) for expert in chosen]
        inner = [[g / (1 + math.exp(-g)) * dot(x, u) for g, u in
                  ((dot(x, row), other) for row, other in zip(gate[expert], up[expert]))] for expert in chosen]
        found = []
        for column in range(HIDDEN):
            products = [dot(values, down[expert][column]) for values, expert in zip(inner, chosen)]
            size = sum(dot(map(abs, values), map(abs, down[expert][column])) for values, expert in zip(inner, chosen))
            found.append((x[column] + dot(shares, products) / sum(shares), size))
        return found

    def check(self, found, right):
        self.assertEqual(len(found), len(right) * HIDDEN)
        for token, row in enumerate(right):
            for column, (value, size) in enumerate(row):
                self.assertAlmostEqual(found[token * HIDDEN + column], value, delta=RELATIVE * size + ABSOLUTE,
                                       msg=f"token {token}, column {column}")
        self.assertEqual(self.engine.take_hazards(), [])

    def four_calls(self, x, logits, gate_up, down):
        ids, weights, starts, source_rows, positions = self.kernel(logits)
        rows = self.first(x, gate_up, bounds=starts, gather=source_rows)
        self.assertEqual(tuple(rows.shape), (x.shape[0] * TOP_K, WIDE))
        rows = self.second(rows, down, bounds=starts)
        return self.combine(rows, positions, weights, residual=x)

    def test_the_layer_in_four_calls(self):
        tensors, right = self.draw()
        self.check(self.read(self.four_calls(**tensors)), right)

    def test_the_layer_in_one_call(self):
        tensors, right = self.draw(seed=2)
        bits = self.four_calls(**tensors).read()
        for way, is_fast in self.ways():
            given = {name: way(tensor) for name, tensor in tensors.items()}
            before = self.layer._counts()
            found = self.layer(*given.values(), residual=given["x"])
            self.assertEqual(self.layer._counts()[0] - before[0], is_fast)
            self.check(self.read(found), right)
            self.assertEqual(getattr(found, "owner", found).read(), bits)

    def test_no_tokens_are_no_launch(self):
        for way, _ in self.ways():
            tensors, _ = self.draw(tokens=0)
            given = {name: way(tensor) for name, tensor in tensors.items()}
            self.assertEqual(tuple(self.layer(*given.values(), residual=given["x"]).shape), (0, HIDDEN))

    def test_given_experts_are_taken(self):
        tensors, right = self.draw(seed=3)
        ids, weights, *_ = self.kernel(tensors["logits"])
        for way, _ in self.ways():
            x, of_ids, of_weights, gate_up, down = map(way, (tensors["x"], ids, weights, tensors["gate_up"], tensors["down"]))
            out = way(self.engine.empty((TOKENS, HIDDEN), "f16"))
            self.layer_given(x, of_ids, of_weights, gate_up, down, residual=x, out=out)
            self.check(self.read(out), right)

    def test_bound_launches_write_the_choice_and_replay_with_other_tokens(self):
        tensors, right = self.draw(seed=4)
        out, ids = self.engine.empty((TOKENS, HIDDEN), "f16"), self.engine.empty((TOKENS, TOP_K), "i32")
        weights = self.engine.empty((TOKENS, TOP_K), "f32")
        workspace = self.engine.empty((self.layer.workspace_bytes(TOKENS),), "u8")
        launch = self.layer.bind(**tensors, residual=tensors["x"], out=out, ids=ids, weights=weights, workspace=workspace)
        self.assertEqual(launch.needed_workspace_bytes(), workspace.bytes)
        launch()
        self.check(self.read(out), right)
        want = self.kernel(tensors["logits"])
        self.assertEqual((ids.read(), weights.read()), (want[0].read(), want[1].read()))
        others, _ = self.draw(seed=5)
        for name in ("x", "logits"):
            tensors[name].write(others[name].read())
        launch()
        self.assertEqual(out.read(), self.four_calls(**tensors).read())

    def test_errors_name_the_tensor(self):
        tensors, _ = self.draw(seed=6)
        out = self.engine.empty((TOKENS, HIDDEN), "f16")

        def refused(words, **changed):
            with self.assertRaisesRegex(kernelwright.ConfigError, words):
                self.layer.bind(**{**tensors, "residual": tensors["x"], "out": out, **changed})()
        refused(r"gate_up: has shape \[4, 16, 32\]", gate_up=self.engine.empty((EXPERTS, WIDE, HIDDEN), "f16"))
        refused("down: is f32, and the problem has f16", down=self.engine.empty((EXPERTS, HIDDEN, WIDE), "f32"))
        refused("down_bias: is given, and the problem has none", down_bias=out)
        refused("workspace: 16 bytes are given and [0-9]+ are needed for 9 tokens", workspace=self.engine.empty((16,), "u8"))
        refused("residual: is null", residual=None)
        with self.assertRaisesRegex(kernelwright.ConfigError, "/problem/intermediate: 12 is not in"):
            self.engine.prepare({"kind": "moe", "problem": {"hidden": 32, "intermediate": 12, "route": {"experts": 4, "top_k": 2}}})
        with self.assertRaisesRegex(kernelwright.ConfigError, "/schedule: has no meaning for a layer"):
            self.engine.prepare({"kind": "moe", "problem": LAYER, "schedule": "auto"})


if __name__ == "__main__":
    unittest.main()
