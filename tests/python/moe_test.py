#!/usr/bin/env python3
"""kernelwright.RouteKernel and MoeCombineKernel on the emulator, against the same steps in plain Python.

Needs no NumPy. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import math
import pathlib
import random
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kernelwright
from kernelwright import ConfigError
from lent import Lent

FAST = kernelwright.fast_calls()["fast"]

TOKENS, EXPERTS, TOP_K, WIDTH = 40, 32, 2, 64  # so many tokens that a second kernel sorts, in a workspace


class OnTheEmulator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("emulator", hazards=True)
        try:
            cls.route = cls.prepare("route", experts=EXPERTS, top_k=TOP_K, order="top_k_first")
        except kernelwright.MissingError as error:
            raise unittest.SkipTest(f"no NVRTC: {error}")
        cls.combine = cls.prepare("moe_combine", dtype={"in": "f16", "out": "f32"}, width=WIDTH, top_k=TOP_K, residual=True)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    @classmethod
    def prepare(cls, kind, **problem):
        return cls.engine.prepare({"kind": kind, "problem": problem})

    def array(self, values, dtype, *shape):
        array = self.engine.empty(shape, dtype)
        array.write(struct.pack(f"{len(values)}{ {'f32': 'f', 'f16': 'e', 'i32': 'i'}[dtype]}", *values))
        return array

    def read(self, array):
        own = getattr(array, "owner", None) or array
        data, letter = own.read(), {"f32": "f", "f16": "e", "i32": "i"}[own.dtype]
        return list(struct.unpack(f"{len(data) // struct.calcsize(letter)}{letter}", data))

    def lent(self, array):
        """The array as a framework's tensor, which the extension takes."""
        return Lent(array.address, array.shape, None, array.dtype, owner=array)

    def ways(self):
        """How a call takes tensors, and whether the extension takes the call."""
        Lent.on_allocate = staticmethod(lambda shape, dtype: self.lent(self.engine.empty(shape, dtype)))
        return [(self.lent, True)] * FAST + [(lambda array: array, False)]

    def setUp(self):
        draw = random.Random(1)
        self.logits = [draw.gauss(0, 1) for _ in range(TOKENS * EXPERTS)]
        self.given_logits = self.array(self.logits, "f32", TOKENS, EXPERTS)
        rows = [draw.gauss(0, 1) for _ in range(TOKENS * TOP_K * WIDTH)]
        self.rows = self.array(rows, "f16", TOKENS * TOP_K, WIDTH)
        self.residual = self.array(rows[:TOKENS * WIDTH], "f16", TOKENS, WIDTH)
        order = list(range(TOKENS * TOP_K))
        draw.shuffle(order)
        self.positions = self.array(order, "i32", TOKENS, TOP_K)
        self.weights = self.array([draw.random() for _ in order], "f32", TOKENS, TOP_K)

    def chosen(self):
        """The experts of each token, and their weights."""
        ids, weights = [], []
        for token in range(TOKENS):
            row = self.read(self.given_logits)[token * EXPERTS:(token + 1) * EXPERTS]
            best = sorted(range(EXPERTS), key=lambda expert: (-row[expert], expert))[:TOP_K]
            parts = [math.exp(row[expert]) for expert in best]
            ids += best
            weights += [part / sum(parts) for part in parts]
        return ids, weights

    def check_route(self, ids, weights, starts, source_rows, positions):
        right_ids, right_weights = self.chosen()
        self.assertEqual(self.read(ids), right_ids)
        for have, want in zip(self.read(weights), right_weights):
            self.assertAlmostEqual(have, want, places=5)
        order = sorted(range(TOKENS * TOP_K), key=lambda pair: right_ids[pair])  # stable
        self.assertEqual(self.read(source_rows), [pair // TOP_K for pair in order])
        self.assertEqual(self.read(positions), [order.index(pair) for pair in range(TOKENS * TOP_K)])
        self.assertEqual(self.read(starts), [sum(expert < local for expert in right_ids) for local in range(EXPERTS + 1)])
        self.assertEqual(self.engine.take_hazards(), [])

    def check_sums(self, out):
        rows, residual, weights = self.read(self.rows), self.read(self.residual), self.read(self.weights)
        positions, found = self.read(self.positions), self.read(out)
        for token in range(TOKENS):
            for i in range(WIDTH):
                parts = [weights[token * TOP_K + slot] * rows[positions[token * TOP_K + slot] * WIDTH + i] for slot in range(TOP_K)]
                self.assertAlmostEqual(found[token * WIDTH + i], sum(parts) + residual[token * WIDTH + i], delta=1e-5)
        self.assertEqual(self.engine.take_hazards(), [])

    def routed_arrays(self):
        pairs, empty = (TOKENS, TOP_K), self.engine.empty
        return dict(ids=empty(pairs, "i32"), weights=empty(pairs, "f32"), starts=empty((EXPERTS + 1,), "i32"),
                    source_rows=empty((TOKENS * TOP_K,), "i32"), positions=empty(pairs, "i32"))

    def test_given_experts_are_sorted_alone(self):
        ids, weights = self.chosen()
        given = self.prepare("route", experts=EXPERTS, top_k=TOP_K, score="given")
        for made, fast in self.ways():
            of = made(self.array(ids, "i32", TOKENS, TOP_K))
            weigh = made(self.array(weights, "f32", TOKENS, TOP_K))
            sorted_weights = self.engine.empty((TOKENS * TOP_K,), "f32")
            calls = [lambda: given(ids=of), lambda: given(ids=of, weights=weigh, sorted_weights=made(sorted_weights))]
            for call in calls + [lambda: given(of)] * (not fast):
                starts, source_rows, positions = call()
                order = sorted(range(TOKENS * TOP_K), key=lambda pair: ids[pair])
                self.assertEqual(self.read(source_rows), [pair // TOP_K for pair in order])
                self.assertEqual(self.read(positions), [order.index(pair) for pair in range(TOKENS * TOP_K)])
                self.assertEqual(self.read(starts), [sum(expert < local for expert in ids) for local in range(EXPERTS + 1)])
            for have, pair in zip(self.read(sorted_weights), order):
                self.assertAlmostEqual(have, weights[pair], places=6)
        with self.assertRaisesRegex(ConfigError, "logits: is given, and so are the experts"):
            given(of, logits=self.given_logits)
        self.assertEqual(self.engine.take_hazards(), [])

    def test_routing_agrees_with_plain_python(self):
        arrays = self.routed_arrays()
        launch = self.route.bind(logits=self.given_logits, **arrays)
        self.assertGreater(launch.needed_workspace_bytes(), 0)
        workspace = self.engine.empty((launch.needed_workspace_bytes(),), "u8")
        self.route.launch(logits=self.given_logits, workspace=workspace, **arrays)
        self.check_route(**arrays)
        for way, fast in self.ways():
            before = self.route._counts()
            found = self.route(way(self.given_logits))
            self.assertEqual(self.route._counts()[0] - before[0], int(fast))
            self.assertEqual([tuple(array.shape) for array in found], [(TOKENS, TOP_K), (TOKENS, TOP_K), (EXPERTS + 1,),
                                                                       (TOKENS * TOP_K,), (TOKENS, TOP_K)])
            self.check_route(*found)
            ids, sorted_weights = self.engine.empty((TOKENS, TOP_K), "i32"), self.engine.empty((TOKENS * TOP_K,), "f32")
            given = way(ids)
            found = self.route(way(self.given_logits), ids=given, sorted_weights=way(sorted_weights), factor=2.0)
            self.assertIs(found[0], given)
            weights, positions = self.read(found[1]), self.read(found[4])
            self.assertAlmostEqual(sum(weights), 2 * TOKENS, places=3)
            moved = self.read(sorted_weights)
            self.assertEqual([moved[position] for position in positions], weights)

    def test_a_choice_without_a_sort_has_two_results(self):
        kernel = self.prepare("route", experts=EXPERTS, top_k=TOP_K, order="top_k_first", sort=False)
        for way, fast in self.ways():
            before = kernel._counts()
            ids, weights = kernel(way(self.given_logits))
            self.assertEqual(kernel._counts()[0] - before[0], int(fast))
            self.assertEqual(self.read(ids), self.chosen()[0])
        with self.assertRaisesRegex(ConfigError, "positions: is given, and the problem does not sort"):
            kernel(self.given_logits, positions=ids)

    def test_bias_and_local_experts(self):
        kernel = self.prepare("route", experts=4, top_k=1, bias=True, local_experts=2, alignment=4)
        logits, bias = self.array([5, 4, 3, 2] * 3, "f32", 3, 4), self.array([0, 0, 0, 9], "f32", 4)
        local = self.array([-1, -1, 0, 1], "i32", 4)
        ids, _, starts, source_rows, positions = kernel(logits, bias=bias, local_ids=local)
        self.assertEqual((self.read(ids), self.read(starts), self.read(positions)), ([3, 3, 3], [0, 0, 4], [0, 1, 2]))
        self.assertEqual((source_rows.shape, self.read(source_rows)[:4]), ((3 + 2 * 3,), [0, 1, 2, -1]))
        with self.assertRaisesRegex(ConfigError, "bias: is given, and the problem has none"):
            self.route(self.given_logits, bias=bias)

    def test_sums_agree_with_plain_python(self):
        out = self.engine.empty((TOKENS, WIDTH), "f32")
        self.combine.launch(rows=self.rows, positions=self.positions, weights=self.weights, residual=self.residual, out=out)
        self.check_sums(out)
        for way, fast in self.ways():
            before = self.combine._counts()
            out = self.combine(way(self.rows), way(self.positions), way(self.weights), residual=way(self.residual))
            self.assertEqual(self.combine._counts()[0] - before[0], int(fast))
            self.assertEqual((tuple(out.shape), out.dtype), ((TOKENS, WIDTH), "f32"))
            self.check_sums(out)

    def test_sums_without_weights_and_in_place(self):
        kernel = self.prepare("moe_combine", dtype={"in": "f16", "out": "f16"}, width=8, top_k=2, weighted=False, residual=True)
        rows, positions = self.array([1.0] * 8 + [2.0] * 8, "f16", 2, 8), self.array([0, 1, 1, -1], "i32", 2, 2)
        for way, fast in self.ways():
            residual = self.array([10.0] * 8 + [20.0] * 8, "f16", 2, 8)
            before, given = kernel._counts(), way(residual)
            self.assertIs(kernel(way(rows), way(positions), residual=given, out=given), given)
            self.assertEqual(kernel._counts()[0] - before[0], int(fast))
            self.assertEqual(self.read(residual), [13.0] * 8 + [22.0] * 8)
        with self.assertRaisesRegex(TypeError, "a call takes 2 arguments by position"):
            kernel(rows, positions, self.weights, residual=residual)

    def test_routing_and_sums_work_together(self):
        ids, weights, _, source_rows, positions = self.route(self.given_logits)
        hidden = self.read(self.residual)
        made = [value for token in self.read(source_rows) for value in hidden[token * WIDTH:(token + 1) * WIDTH]]
        rows = self.array(made, "f16", TOKENS * TOP_K, WIDTH)  # experts that change nothing
        out = self.combine(rows, positions, weights, residual=self.residual)
        for have, value in zip(self.read(out), hidden):
            self.assertAlmostEqual(have, 2 * value, delta=abs(value) * 1e-5 + 1e-6)  # weights of a token have the sum 1

    def test_a_bound_launch_takes_new_data(self):
        out = self.engine.empty((TOKENS, WIDTH), "f32")
        launch = self.combine.bind(rows=self.rows, positions=self.positions, weights=self.weights, residual=self.residual, out=out)
        launch()
        self.check_sums(out)
        self.positions.write(struct.pack(f"{TOKENS * TOP_K}i", *reversed(self.read(self.positions))))
        self.weights.write(struct.pack(f"{TOKENS * TOP_K}f", *(0.5 for _ in range(TOKENS * TOP_K))))
        launch()
        self.check_sums(out)
        arrays = self.routed_arrays()
        workspace = self.engine.empty((1 << 16,), "u8")
        launch = self.route.bind(logits=self.given_logits, workspace=workspace, **arrays)
        for _ in range(2):
            launch()
            self.check_route(**arrays)
            self.given_logits.write(struct.pack(f"{TOKENS * EXPERTS}f", *reversed(self.logits)))

    def test_says_which_tensor_does_not_fit(self):
        empty = self.engine.empty
        good = dict(logits=self.given_logits, **self.routed_arrays())
        for name, wrong, words in (
                ("logits", empty((TOKENS, 8), "f32"), r"logits: has shape \[40, 8\], and the problem's is \[tokens, 32\]"),
                ("logits", empty((TOKENS, EXPERTS), "f16"), "logits: is f16, and the problem has f32"),
                ("ids", empty((TOKENS, 3), "i32"), r"ids: has shape \[40, 3\] .* it is \[40, 2\], contiguous"),
                ("source_rows", empty((TOKENS,), "i32"), r"source_rows: has shape \[40\] .* it is \[80\]"),
                ("workspace", None, "/tensors/workspace: 0 bytes are given and .* are needed"),
                ("ids", good["positions"], "/tensors/ids: overlaps positions"),
                ("factor", -1.0, "/tensors/factor: -1 is no finite number from 0 on")):
            with self.subTest(name), self.assertRaisesRegex(ConfigError, words):
                self.route.launch(**(good | {name: wrong}))
        good = dict(rows=self.rows, positions=self.positions, weights=self.weights, residual=self.residual,
                    out=empty((TOKENS, WIDTH), "f32"))
        for name, wrong, words in (
                ("rows", empty((9, 8), "f16"), r"rows: has shape \[9, 8\], and the problem's is \[num_rows, 64\]"),
                ("weights", empty((TOKENS, TOP_K), "i32"), "weights: is i32, and the problem has f32"),
                ("positions", empty((TOKENS, 3), "i32"), r"positions: has shape \[40, 3\] .* it is \[40, 2\]"),
                ("out", empty((TOKENS - 1, WIDTH), "f32"), r"out: has shape \[39, 64\], and the problem's is \[40, 64\]"),
                ("residual", None, "/tensors/residual: is null"),
                ("num_rows", 7, r"rows: has shape \[80, 64\], and the problem's is \[7, 64\]")):
            with self.subTest(name), self.assertRaisesRegex(ConfigError, words):
                self.combine.launch(**(good | {name: wrong}))
        with self.assertRaisesRegex(TypeError, "weights: is missing"):
            self.combine(self.rows, self.positions)


if __name__ == "__main__":
    unittest.main()
