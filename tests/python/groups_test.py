#!/usr/bin/env python3
"""GEMMs of groups from Python, on the emulator, against sums in plain Python.

Needs no NumPy. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import pathlib
import random
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from kernelwright import ConfigError
from kernelwright._tensors import read
from lent import Lent
from on_the_emulator import FAST, EmulatorTest

GROUPS, ROWS, N, K, SOURCES = 3, 10, 16, 32, 4
STARTS = [1, 4, 4, 9]


def config(**groups):
    return {"kind": "gemm", "problem": {"n": N, "k": K, "dtype": {"a": "f16", "b": "f16", "c": "f16", "d": "f16"}, "epilogue": "acc + bias",
                                        "groups": {"kind": "rows", "count": GROUPS, "bounds": "starts"} | groups}}


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return config()

    def setUp(self):
        draw = random.Random(1)

        def whole(count):
            return [float(draw.randint(-4, 4)) for _ in range(count)]
        self.values = {"a": whole(ROWS * K), "b": whole(GROUPS * N * K), "bias": whole(GROUPS * N), "sources": whole(SOURCES * K)}
        self.a = self.array(self.values["a"], "f16", "e", ROWS, K)
        self.sources = self.array(self.values["sources"], "f16", "e", SOURCES, K)
        self.b = self.array(self.values["b"], "f16", "e", GROUPS, N, K)
        self.bias = self.array(self.values["bias"], "f16", "e", GROUPS, N)
        self.d = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N)
        self.starts = self.array(STARTS, "i32", "i", GROUPS + 1)
        self.status = self.array([0], "i32", "i", 1)

    def check(self, d, rows_of_groups, source=lambda row: row, values="a"):
        found, a = self.read(d), self.values[values]
        group_of = {row: group for group, rows in enumerate(rows_of_groups) for row in rows}
        for row in range(ROWS):
            for column in range(N):
                want = 7.0
                if row in group_of:
                    group, at = group_of[row], source(row)
                    b = self.values["b"][(group * N + column) * K:][:K]
                    left = a[at * K:][:K] if at >= 0 else [0.0] * K
                    want = sum(x * y for x, y in zip(left, b)) + self.values["bias"][group * N + column]
                self.assertEqual(found[row * N + column], want, f"row {row}, column {column}")
        self.assertEqual(self.engine.take_hazards(), [])

    def rows(self):
        return [range(first, end) for first, end in zip(STARTS, STARTS[1:])]

    def test_bind(self):
        self.kernel.launch(a=self.a, b=self.b, d=self.d, bias=self.bias, bounds=self.starts, status=self.status)
        self.check(self.d, self.rows())
        self.assertEqual(self.read(self.status, "i"), (0,))

    def test_a_call_takes_tensors(self):
        for take, _ in self.ways():
            d = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N)
            given = {name: take(getattr(self, name)) for name in ("a", "b", "bias", "starts")}
            self.kernel(given["a"], given["b"], bias=given["bias"], bounds=given["starts"], out=take(d))
            self.check(d, self.rows())

    def test_bad_bounds_set_the_status(self):
        bad = self.array([0, 5, 4, 9], "i32", "i", GROUPS + 1)
        self.kernel.launch(a=self.a, b=self.b, d=self.d, bias=self.bias, bounds=bad, status=self.status)
        self.check(self.d, [])
        self.assertEqual(self.read(self.status, "i"), (1,))

    def test_masked_rows_have_three_dimensions(self):
        kernel = self.engine.prepare(config(kind="masked", bounds="counts", count=2))
        counts = self.array([3, 4], "i32", "i", 2)

        def split(array, count, *shape):
            return Lent(array.address, (count, *shape), None, "f16", owner=array)
        kernel.launch(a=split(self.a, 2, ROWS // 2, K), b=split(self.b, 2, N, K), bias=split(self.bias, 2, N),
                      d=split(self.d, 2, ROWS // 2, N), bounds=counts)
        self.check(self.d, [range(0, 3), range(5, 9)])
        shape, _ = kernel._results()["out"](read("a", split(self.a, 2, ROWS // 2, K)), {})
        self.assertEqual(tuple(shape), (2, ROWS // 2, N))

    def test_a_row_of_each_group_may_lie_anywhere(self):
        kernel = self.engine.prepare(config(kind="masked", bounds="counts", count=2))
        counts = self.array([1, 1], "i32", "i", 2)
        a = Lent(self.a.address, (2, 1, K), (5 * K, K, 1), "f16", owner=self.a)
        d = Lent(self.d.address, (2, 1, N), (5 * N, N, 1), "f16", owner=self.d)
        b = Lent(self.b.address, (2, N, K), None, "f16", owner=self.b)
        kernel.launch(a=a, b=b, bias=Lent(self.bias.address, (2, N), None, "f16", owner=self.bias), d=d, bounds=counts)
        self.check(self.d, [range(0, 1), range(5, 6)])

    def test_a_batch_may_lie_side_by_side(self):
        kernel = self.engine.prepare(config(kind="batch", count=2))
        rows = ROWS // 2
        b, bias = (Lent(array.address, shape, None, "f16", owner=array)
                   for array, shape in ((self.b, (2, N, K)), (self.bias, (2, N))))
        for side_by_side in (False, True):
            # Row r of group g is the row 2 r + g of both tensors, or rows g + r.
            def split(array, columns):
                strides = (columns, 2 * columns, 1) if side_by_side else (rows * columns, columns, 1)
                return Lent(array.address, (2, rows, columns), strides, "f16", owner=array)
            groups = [range(g, ROWS, 2) if side_by_side else range(g * rows, (g + 1) * rows) for g in range(2)]
            d = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N)
            kernel.launch(a=split(self.a, K), b=b, bias=bias, d=split(d, N))
            self.check(d, groups)
            d = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N)
            kernel(split(self.a, K), b, bias=bias, out=split(d, N))
            self.check(d, groups)
        self.assertEqual(kernel._counts()[0], 2 * FAST)
        shape, _ = kernel._results()["out"](read("a", split(self.a, K)), {})
        self.assertEqual(tuple(shape), (2, rows, N))

    def test_slices_of_k_make_a_matrix_each(self):
        problem = {"n": N, "k": 4, "layout": "tn", "dtype": {"a": "f16", "b": "f16", "d": "f32"}, "groups": {"kind": "k", "count": GROUPS}}
        kernel = self.engine.prepare({"kind": "gemm", "problem": problem})
        a = self.a  # [ROWS, K]: of each group K rows of d
        b = Lent(self.b.address, (ROWS, N), None, "f16", owner=self.b)
        d = self.array([7.0] * (GROUPS * K * N), "f32", "f", GROUPS, K, N)
        kernel.launch(a=a, b=b, d=d, bounds=self.starts, status=self.status)
        self.assertEqual(self.read(self.status, "i"), (0,))
        found = self.read(d, "f")
        for group, (first, end) in enumerate(zip(STARTS, STARTS[1:])):
            for row in range(K):
                for column in range(N):
                    want = sum(self.values["a"][t * K + row] * self.values["b"][t * N + column] for t in range(first, end))
                    self.assertEqual(found[(group * K + row) * N + column], want, f"group {group}, row {row}, column {column}")
        self.assertEqual(self.engine.take_hazards(), [])
        shape, dtype = kernel._results()["out"](read("a", a), {})
        self.assertEqual((tuple(shape), dtype), ((GROUPS, K, N), "f32"))
        for more, message in (
                (dict(b=Lent(self.b.address, (ROWS - 1, N), None, "f16", owner=self.b)), "b: has shape .9, 16., and the problem's is .10, 16."),
                (dict(d=self.d), "d: is f16, and the problem has f32"),
                (dict(bounds=None), "/bounds: is null"),
                (dict(source_rows=4), "a: has shape .10, 32., and the problem's is .4, 32.")):
            with self.assertRaisesRegex(ConfigError, message):
                kernel.launch(**(dict(a=a, b=b, d=d, bounds=self.starts) | more))

    def test_batches_that_do_not_fit_are_refused_by_name(self):
        kernel = self.engine.prepare(config(kind="batch", count=2))

        def lent(array, *shape, strides=None):
            return Lent(array.address, shape, strides, "f16", owner=array)
        rows = ROWS // 2
        fits = dict(a=lent(self.a, 2, rows, K), b=lent(self.b, 2, N, K), d=lent(self.d, 2, rows, N), bias=lent(self.bias, 2, N))
        for more, message in (
                (dict(bounds=self.starts), "bounds: is given, and the problem has no groups with bounds"),
                (dict(status=self.status), "status: is given, and the problem has no groups with bounds"),
                (dict(a=lent(self.a, rows, 2, K)), "a: has shape .5, 2, 32., and the problem has 2 groups"),
                (dict(b=lent(self.b, 2, K, N)), "b: has shape"),
                (dict(a=lent(self.a, 2, rows, K, strides=(0, K, 1))), "a: its matrices have stride 0"),
                (dict(a=lent(self.a, 2, rows, K, strides=(rows * K, 0, 1))), "a: its rows have stride 0"),
                (dict(a=lent(self.a, 2, rows, K, strides=(1, 2 * K, 2))), "a: its last dimension has stride 2"),
                (dict(a=lent(self.a, 2, rows, K, strides=(rows * K + 1, K, 1))), "/a_batch_stride: 161 elements"),
                (dict(d=lent(self.d, 2, rows, N, strides=(N, N, 1))), "/d_batch_stride: 16 brings rows")):
            with self.assertRaisesRegex(ConfigError, message):
                kernel.launch(**fits | more)

    def test_gather(self):
        kernel = self.engine.prepare(config(gather=True))
        sources = [3, 0, -1, 2, 2, 1, 3, 9, 0, 1]
        gather = self.array(sources, "i32", "i", ROWS)
        kernel.launch(a=self.sources, b=self.b, d=self.d, bias=self.bias, bounds=self.starts, gather=gather)
        self.check(self.d, self.rows(), lambda row: sources[row] if sources[row] < SOURCES else -1, "sources")
        shape, _ = kernel._results()["out"](read("a", self.sources), {"gather": gather})
        self.assertEqual(tuple(shape), (ROWS, N))

    def test_scatter(self):
        kernel = self.engine.prepare(config(scatter=True))
        places = [0, 11, -1, 3, 2, 9, 5, 7, 1, 0]
        scatter, results = self.array(places, "i32", "i", ROWS), 12
        given = dict(bias=self.bias, bounds=self.starts, scatter=scatter)

        def check(d):
            rows, found = [7.0] * (ROWS * N), self.read(d)
            for row in range(1, 9):  # those of groups
                if places[row] >= 0:
                    rows[row * N:(row + 1) * N] = found[places[row] * N:(places[row] + 1) * N]
            self.check(self.array(rows, "f16", "e", ROWS, N), [[row for row in rows if places[row] >= 0] for rows in self.rows()])
            written = {places[row] for row in range(1, 9)}
            for row in set(range(results)) - written:
                self.assertEqual(found[row * N:(row + 1) * N], (7.0,) * N, f"row {row} of d")

        def sevens():
            return self.array([7.0] * (results * N), "f16", "e", results, N)
        d = sevens()
        kernel.launch(a=self.a, b=self.b, d=d, status=self.status, **given)
        check(d)
        self.assertEqual(self.read(self.status, "i"), (0,))
        d = sevens()
        self.assertIs(kernel(self.a, self.b, out=d, **given), d)
        check(d)
        past = self.array([0, 11, -1, 3, 12, 9, 5, 7, 1, 0], "i32", "i", ROWS)
        kernel.launch(a=self.a, b=self.b, d=d, status=self.status, **given | {"scatter": past})
        self.assertEqual(self.read(self.status, "i"), (1,))
        shape, _ = kernel._results()["out"](read("a", self.a), {"result_rows": results})
        self.assertEqual(tuple(shape), (results, N))
        for more, message in ((dict(scatter=None), "/scatter: is null"),
                              (dict(scatter=self.starts), "a: has shape .10, 32., and the problem's is .4, 32."),
                              (dict(result_rows=13), "d: has shape .12, 16., and the problem's is .13, 16."),
                              (dict(d=d.address), "result_rows: None are no number of rows of d")):
            with self.assertRaisesRegex(ConfigError, message):
                kernel.launch(**(dict(a=self.a, b=self.b, d=d) | given | more))

    def test_pointers(self):
        kernel = self.engine.prepare(config(pointers=True))
        given = dict(a=self.a, bias=self.bias, bounds=self.starts, status=self.status)
        for gap in (0, 8):
            def spread(group, gap=gap):
                values = self.values["b"][group * N * K:(group + 1) * N * K]
                rows = [row for at in range(0, N * K, K) for row in values[at:at + K] + [float("nan")] * gap]
                return self.array(rows, "f16", "e", N, K + gap)
            kept = [spread(0), None, spread(2)]  # group 1 has no rows
            b = self.array([array.address if array else 0 for array in kept], "i64", "q", GROUPS)
            stride = {"b_stride": K + gap} if gap else {}
            d = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N)
            kernel.launch(b=b, d=d, **given, **stride)
            self.check(d, self.rows())
            d = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N)
            kernel(self.a, b, bias=self.bias, bounds=self.starts, out=d, **stride)
            self.check(d, self.rows())
            self.assertEqual(self.read(self.status, "i"), (0,))
        null = self.array([0] * GROUPS, "i64", "q", GROUPS)
        kernel.launch(b=null, d=self.d, **given)
        self.check(self.d, [])
        self.assertEqual(self.read(self.status, "i"), (1,))
        for more, message in ((dict(b=self.b), "b: is f16, and the problem has i64"),
                              (dict(b=self.array([0] * 2, "i64", "q", 2)), "b: has shape .2. and strides .1.; it is .3., contiguous"),
                              (dict(b_stride=K - 1), "/b_stride"),
                              (dict(b_stride=-8), "b_stride: -8 are no elements")):
            with self.assertRaisesRegex(ConfigError, message):
                kernel.launch(**(dict(b=b, d=self.d) | given | more))

    def test_rows_that_are_gathered_and_scattered(self):
        kernel = self.engine.prepare(config(gather=True, scatter=True))
        sources, places = [3, 0, -1, 2, 2, 1, 3, 1, 0, 1], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
        gather, scatter = (self.array(indices, "i32", "i", ROWS) for indices in (sources, places))
        kernel.launch(a=self.sources, b=self.b, d=self.d, bias=self.bias, bounds=self.starts, gather=gather, scatter=scatter)
        found = self.read(self.d)
        rows = [value for row in range(ROWS) for value in found[places[row] * N:(places[row] + 1) * N]]
        self.check(self.array(rows, "f16", "e", ROWS, N), self.rows(), lambda row: sources[row], "sources")

    def test_what_does_not_fit_is_refused_by_name(self):
        fits = dict(a=self.a, b=self.b, d=self.d, bias=self.bias, bounds=self.starts)
        dense = self.engine.prepare({"kind": "gemm", "problem": {"n": N, "k": K, "dtype": {"a": "f16", "b": "f16", "d": "f16"}}})
        for kernel, more, message in (
                (self.kernel, dict(bounds=None), "/bounds: is null"),
                (self.kernel, dict(bounds=self.array([0] * 3, "i32", "i", 3)), "bounds: has shape"),
                (self.kernel, dict(bounds=self.a), "bounds: is f16"),
                (self.kernel, dict(status=self.starts), "status: has shape"),
                (self.kernel, dict(b=self.array([0.0] * N * K, "f16", "e", N, K)), "b: has shape"),
                (self.kernel, dict(bias=self.array([0.0] * N, "f16", "e", N)), "bias: has shape"),
                (self.kernel, dict(gather=self.starts), "gather: is given"),
                (self.kernel, dict(source_rows=3), "source_rows: is given"),
                (self.kernel, dict(scatter=self.starts), "scatter: is given, and the problem has no groups that scatter"),
                (self.kernel, dict(result_rows=3), "result_rows: is given"),
                (self.kernel, dict(b_stride=K), "b_stride: is given, and the problem has no groups with pointers"),
                (self.kernel, dict(expected_m=-1), "/expected_m"),
                (dense, dict(b=self.array([0.0] * N * K, "f16", "e", N, K), bias=None), "bounds: is given")):
            with self.assertRaisesRegex(ConfigError, message):
                kernel.launch(**fits | more)


if __name__ == "__main__":
    unittest.main()
