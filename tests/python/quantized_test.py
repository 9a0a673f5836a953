#!/usr/bin/env python3
"""GEMMs with a quantised result from Python, on the emulator, against sums in plain Python.

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
from on_the_emulator import EmulatorTest

ROWS, N, K = 8, 256, 32
LARGEST = 448.0
ONE_KERNEL = {"family": "portable", "block_m": 16}  # of a plan's


def e4m3(byte):
    """The value of a byte."""
    sign, exponent, mantissa = -1.0 if byte & 128 else 1.0, byte >> 3 & 15, byte & 7
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0**(exponent - 10))


def config(epilogue="relu(acc + bias)", **more):
    text = f"x = {epilogue}; d = quantize(x, e4m3, per=token_group(128), scale=s)"
    return {"kind": "gemm", "schedule": ONE_KERNEL,
            "problem": {"n": N, "k": K, "dtype": {"a": "f16", "b": "f16", "c": "f16", "d": "e4m3"}, "epilogue": text} | more}


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return config()

    def setUp(self):
        draw = random.Random(1)
        self.a, self.b, self.bias = ([float(draw.randint(-4, 4)) for _ in range(count)] for count in (ROWS * K, N * K, N))
        self.a[3 * K:4 * K] = [0.0] * K
        self.given = {"a": self.array(self.a, "f16", "e", ROWS, K), "b": self.array(self.b, "f16", "e", N, K),
                      "bias": self.array(self.bias, "f16", "e", N)}

    def value(self, row, column):
        return max(0.0, sum(x * y for x, y in zip(self.a[row * K:][:K], self.b[column * K:][:K])) + self.bias[column])

    def check(self, d, scales):
        codes, scales = self.read(d, "B"), self.read(scales, "f")
        self.assertEqual((len(codes), len(scales)), (ROWS * N, ROWS * N // 128))
        for row in range(ROWS):
            for block in range(N // 128):
                values = [self.value(row, block * 128 + i) for i in range(128)]
                scale = scales[block * ROWS + row]
                right, = struct.unpack("f", struct.pack("f", max(values) / LARGEST))
                self.assertAlmostEqual(scale / right, 1, delta=2**-23)
                for i, value in enumerate(values):
                    code = e4m3(codes[row * N + block * 128 + i])
                    self.assertLessEqual(abs(code * scale - value), max(value / 16, scale * 2**-10) * 1.001, f"row {row}, column {i}")
        self.assertEqual(self.engine.take_hazards(), [])

    def test_launch(self):
        d = self.array([7] * (ROWS * N), "e4m3", "B", ROWS, N)
        scales = self.array([7.0] * (ROWS * 2), "f32", "f", 2, ROWS)
        self.kernel.launch(**self.given, d=d, scale_d=scales)
        self.check(d, scales)

    def test_a_call_allocates_both_results(self):
        for take, _ in self.ways():
            given = {name: take(array) for name, array in self.given.items()}
            d, scales = self.kernel(given["a"], given["b"], bias=given["bias"])
            self.assertEqual((tuple(d.shape), tuple(scales.shape)), ((ROWS, N), (2, ROWS)))
            self.check(d, scales)

    def test_shapes_are_refused(self):
        d = self.array([7] * (ROWS * N), "e4m3", "B", ROWS, N)
        scales = self.array([7.0] * (ROWS * 2), "f32", "f", ROWS, 2)
        with self.assertRaisesRegex(ConfigError, "scale_d: has shape"):
            self.kernel.launch(**self.given, d=d, scale_d=scales)
        with self.assertRaisesRegex(ConfigError, "/tensors/scale_d: is null"):
            self.kernel.launch(**self.given, d=d)
        plain = self.engine.prepare(config() | {"problem": config()["problem"] | {"epilogue": "relu(acc + bias)"}})
        with self.assertRaisesRegex(ConfigError, "scale_d: is given, and the epilogue does not quantise"):
            plain.launch(**self.given, d=d, scale_d=scales)

    def test_feeds_the_next_gemm(self):
        """Of masked groups: a call's results are the next call's operands as they are."""
        groups = {"groups": {"kind": "masked", "count": 2, "bounds": "counts"}}
        first = self.engine.prepare(config("acc", **groups))
        second = self.engine.prepare({"kind": "gemm", "schedule": ONE_KERNEL, "problem": {
            "n": 16, "k": N, "dtype": {"a": "e4m3", "b": "e4m3", "d": "f32"}, "scales": "per_block", **groups}})
        a = self.array(self.a, "f16", "e", 2, ROWS // 2, K)
        b = self.array(self.b + self.b, "f16", "e", 2, N, K)
        counts = self.array([3, 4], "i32", "i", 2)
        d, scales = first(a, b, bounds=counts)
        self.assertEqual((tuple(d.shape), tuple(scales.shape)), ((2, 4, N), (2, 2, 4)))
        ones = self.array([0x38] * (2 * 16 * N), "e4m3", "B", 2, 16, N)
        of_ones = self.array([1.0] * 4, "f32", "f", 2, 1, 2)
        sums = self.read(second(d, ones, scale_a=scales, scale_b=of_ones, bounds=counts), "f")
        codes, factors = self.read(d, "B"), self.read(scales, "f")
        for row in (0, 1, 2, 4, 5, 6, 7):
            group, within = divmod(row, 4)
            want = sum(e4m3(codes[row * N + j]) * factors[(group * 2 + j // 128) * 4 + within] for j in range(N))
            self.assertAlmostEqual(sums[row * 16], want, delta=abs(want) * 1e-3 + 1e-2)
        self.assertEqual(self.engine.take_hazards(), [])


class BlocksOnTheEmulator(EmulatorTest):
    """A result in mxfp8."""

    @classmethod
    def config(cls):
        return cls.config_of("")

    @staticmethod
    def config_of(options):
        text = f"x = relu(acc + bias); d = quantize(x, mxfp8, per=token_group(32), round=up, scale=s{options})"
        made = config()
        made["problem"] |= {"dtype": {"a": "f16", "b": "f16", "c": "f16", "d": "mxfp8"}, "epilogue": text}
        return made

    setUp, value = OnTheEmulator.setUp, OnTheEmulator.value

    def check(self, d, scales, place, tensor_scale=1.0):
        codes, scales = self.read(d, "B"), self.read(scales, "B")
        for row in range(ROWS):
            for block in range(N // 32):
                values = [self.value(row, block * 32 + i) / tensor_scale for i in range(32)]
                byte = scales[place(row, block)]
                exponent = math.ceil(math.log2(max(values) / LARGEST)) if max(values) > 0 else -127
                self.assertEqual(byte, exponent + 127, f"row {row}, block {block}")
                for i, value in enumerate(values):
                    code = e4m3(codes[row * N + block * 32 + i])
                    self.assertLessEqual(abs(code - value * 2.0**-exponent), max(value * 2.0**-exponent / 16, 2**-10), f"row {row}, {i}")
        self.assertEqual(self.engine.take_hazards(), [])

    @staticmethod
    def in_atoms(row, block):
        return block // 4 * 512 + row * 16 + block % 4

    def test_a_call_allocates_elements_and_atoms(self):
        d, scales = self.kernel(self.given["a"], self.given["b"], bias=self.given["bias"], tensor_scale=4.0)
        self.assertEqual((tuple(d.shape), tuple(scales.shape)), ((ROWS, N), (N // 128 * 512,)))
        self.check(d, scales, self.in_atoms, 4.0)

    def test_rows_of_scales(self):
        kernel = self.engine.prepare(self.config_of(", layout=rows"))
        d, scales = self.array([7] * (ROWS * N), "u8", "B", ROWS, N), self.array([7] * (ROWS * N // 32), "u8", "B", ROWS, N // 32)
        kernel.launch(**self.given, d=d, scale_d=scales)
        self.check(d, scales, lambda row, block: row * (N // 32) + block)
        with self.assertRaisesRegex(ConfigError, "scale_d: has shape"):
            kernel.launch(**self.given, d=d, scale_d=self.array([7] * (ROWS * N // 32), "u8", "B", ROWS * 2, N // 64))

    def test_what_does_not_fit_is_refused(self):
        d, scales = self.array([7] * (ROWS * N), "u8", "B", ROWS, N), self.array([7] * 512, "u8", "B", 512)
        with self.assertRaisesRegex(ConfigError, "scale_d: has 512 bytes, shape .*; it is contiguous and has 1024 at least"):
            self.kernel.launch(**self.given, d=d, scale_d=scales)
        scales = self.array([7] * 1024, "u8", "B", 1024)
        with self.assertRaisesRegex(ConfigError, "/tensors/tensor_scale: -1 does not divide"):
            self.kernel.launch(**self.given, d=d, scale_d=scales, tensor_scale=-1.0)
        with self.assertRaisesRegex(ConfigError, "d: has shape"):
            self.kernel.launch(**self.given, d=self.array([7] * (ROWS * N), "u8", "B", N, ROWS), scale_d=scales)

    def test_feeds_the_next_gemm(self):
        """On Blackwell, whose GEMM reads elements and atoms as they are."""
        self.engine = kernelwright.Engine("emulator", emulator_arch="sm_100a", hazards=True)  # in place of the class's
        self.addCleanup(self.engine.close)
        self.setUp()
        first = self.engine.prepare(self.config_of(""))
        second = self.engine.prepare({"kind": "gemm", "schedule": {"block_n": 16}, "problem": {
            "n": 16, "k": N, "dtype": {"a": "mxfp8", "b": "mxfp8", "d": "f32"}, "scales": "per_block"}})
        a, b, bias = self.given.values()
        d, scales = first(a, b, bias=bias)
        ones, of_ones = self.array([0x38] * (16 * N), "u8", "B", 16, N), self.array([127] * 1024, "u8", "B", 1024)
        sums = self.read(second(d, ones, scale_a=scales, scale_b=of_ones), "f")
        self.assertEqual(self.engine.take_hazards(), [])
        with self.assertRaisesRegex(ConfigError, "scale_a: has 512 bytes"):
            second(d, ones, scale_a=self.array([0] * 512, "u8", "B", 512), scale_b=of_ones)
        for row in range(ROWS):
            want = sum(self.value(row, j) for j in range(N))
            self.assertAlmostEqual(sums[row * 16], want, delta=want / 16 + 1e-2)


    def test_groups_feed_the_next_gemm(self):
        """On Blackwell: each group's scales begin a row of atoms, which the second GEMM reads, or gathers as they lie in a matrix."""
        self.engine = kernelwright.Engine("emulator", emulator_arch="sm_100a", hazards=True)  # in place of the class's
        self.addCleanup(self.engine.close)
        self.setUp()
        groups = {"groups": {"kind": "rows", "count": 2, "bounds": "starts"}}
        made = self.config_of("")
        first = self.engine.prepare({"kind": "gemm", "problem": made["problem"] | groups})
        mxfp8 = {"n": 16, "k": N, "dtype": {"a": "mxfp8", "b": "mxfp8", "d": "f32"}, "scales": "per_block"}
        second = self.engine.prepare({"kind": "gemm", "schedule": {"block_n": 16}, "problem": mxfp8 | groups})
        a, starts = self.given["a"], self.array([0, 3, 7], "i32", "i", 3)
        b, bias = self.array(self.b + self.b, "f16", "e", 2, N, K), self.array(self.bias + self.bias, "f16", "e", 2, N)
        d, scales = first(a, b, bias=bias, bounds=starts)
        self.assertEqual((tuple(d.shape), tuple(scales.shape)), ((ROWS, N), (2 * N // 128 * 512,)))
        ones, of_ones = self.array([0x38] * (2 * 16 * N), "u8", "B", 2, 16, N), self.array([127] * 2048, "u8", "B", 2048)
        sums = self.read(second(d, ones, scale_a=scales, scale_b=of_ones, bounds=starts), "f")
        for row in range(7):
            want = sum(self.value(row, j) for j in range(N))
            self.assertAlmostEqual(sums[row * 16], want, delta=want / 16 + 1e-2)
        with self.assertRaisesRegex(ConfigError, "scale_a: has 1024 bytes"):
            second(d, ones, scale_a=self.array([0] * 1024, "u8", "B", 1024), scale_b=of_ones, bounds=starts)
        gathers = self.engine.prepare({"kind": "gemm", "schedule": {"block_n": 64, "swap_ab": False},
                                       "problem": mxfp8 | {"groups": groups["groups"] | {"gather": True}}})
        dense = self.engine.prepare(made)
        d, scales = dense(a, self.given["b"], bias=self.given["bias"])
        order = [5, 0, -1, 7, 7, 2, 1, 3]
        sums = self.read(gathers(d, ones, scale_a=scales, scale_b=of_ones, bounds=starts, gather=self.array(order, "i32", "i", 8)), "f")
        for row, source in enumerate(order[:7]):
            want = sum(self.value(source, j) for j in range(N)) if source >= 0 else 0
            self.assertAlmostEqual(sums[row * 16], want, delta=want / 16 + 1e-2)
        self.assertEqual(self.engine.take_hazards(), [])


class StatisticsOnTheEmulator(EmulatorTest):
    """Outputs beside d, and the RMS norm of the next GEMM's rows."""

    @classmethod
    def config(cls):
        return cls.config_of("x = relu(acc + bias); d = x; squares = sum(x * x, over=n); amax = amax(x)", n=N)

    @staticmethod
    def config_of(epilogue, n, k=K):
        return {"kind": "gemm", "schedule": ONE_KERNEL, "problem": {
            "n": n, "k": k, "dtype": {"a": "f16", "b": "f16", "c": "f16", "d": "f16"}, "epilogue": epilogue}}

    setUp, value = OnTheEmulator.setUp, OnTheEmulator.value

    def test_squares_norm_the_next_gemm(self):
        d = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N)
        squares, amax = self.array([7.0] * (2 * ROWS), "f32", "f", 2, ROWS), self.array([0.0], "f32", "f", 1)
        self.kernel.launch(**self.given, d=d, squares=squares, amax=amax)
        values = [[self.value(row, column) for column in range(N)] for row in range(ROWS)]
        self.assertEqual(self.read(amax, "f")[0], max(map(max, values)))
        sums = self.read(squares, "f")
        for row in range(ROWS):
            for group in range(2):
                want = sum(value * value for value in values[row][group * 128:][:128])
                self.assertAlmostEqual(sums[group * ROWS + row], want, delta=want * 1e-5)
        second = self.engine.prepare(self.config_of("rstd * acc", 8, N))
        ones = self.array([1.0] * (8 * N), "f16", "e", 8, N)
        out = self.read(second(d, ones, squares_a=squares, rms_eps=0.5))
        for row in range(ROWS):
            want = sum(values[row]) / math.sqrt(sum(value * value for value in values[row]) / N + 0.5)
            self.assertAlmostEqual(out[row * 8], want, delta=want * 2e-3)
        self.assertEqual(self.engine.take_hazards(), [])

    def test_what_does_not_fit_is_refused(self):
        d, amax = self.array([7.0] * (ROWS * N), "f16", "e", ROWS, N), self.array([0.0], "f32", "f", 1)
        with self.assertRaisesRegex(ConfigError, "/tensors/squares: is null, and the epilogue has squares"):
            self.kernel.launch(**self.given, d=d, amax=amax)
        with self.assertRaisesRegex(ConfigError, "squares: has shape"):
            self.kernel.launch(**self.given, d=d, amax=amax, squares=self.array([7.0] * 16, "f32", "f", 4, 4))
        with self.assertRaisesRegex(ConfigError, "squares_a: is given, and the epilogue has no rstd"):
            self.kernel.launch(**self.given, d=d, amax=amax, squares_a=amax)


if __name__ == "__main__":
    unittest.main()
