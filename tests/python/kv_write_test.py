#!/usr/bin/env python3
"""kernelwright.KvWriteKernel on the emulator, against the same steps in plain Python; and rope_table().

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
from on_the_emulator import EmulatorTest

HEAD, PAGE = 64, 4


def config(**more):
    return {"kind": "kv_write", "problem": {"dtype": {"in": "f16", "q": "f16", "kv": "f16"}, "head_dim": {"qk": HEAD, "v": HEAD},
                                            "heads": {"q": 2, "kv": 1}, "kv_layout": {"kind": "paged", "page_size": PAGE},
                                            "rope": {"style": "neox", "width": HEAD}, **more}}


def turned(head, position):
    half = HEAD // 2
    angles = [position * 10000 ** (-2 * i / HEAD) for i in range(half)]
    low = [head[i] * math.cos(a) - head[i + half] * math.sin(a) for i, a in enumerate(angles)]
    return low + [head[i + half] * math.cos(a) + head[i] * math.sin(a) for i, a in enumerate(angles)]


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return config()

    def setUp(self):
        draw = random.Random(1)
        normal = [[draw.gauss(0, 1) for _ in range(3 * heads * HEAD)] for heads in (2, 1, 1)]
        self.values = [list(struct.unpack(f"{len(v)}e", struct.pack(f"{len(v)}e", *v))) for v in normal]
        self.q, self.k, self.v = (self.array(values, "f16", "e", 3, heads, HEAD) for values, heads in zip(self.values, (2, 1, 1)))
        self.cache = [self.array([7.0] * 5 * PAGE * HEAD, "f16", "e", 5, PAGE, 1, HEAD) for _ in range(2)]
        table = kernelwright.rope_table(HEAD, 32)
        self.table = self.engine.empty((32, HEAD), "f32")
        self.table.write(table.tobytes())
        self.given = dict(k_cache=self.cache[0], v_cache=self.cache[1], cos_sin=self.table,
                          positions=self.array([3, 9, 31], "i64", "q", 3), slot_mapping=self.array([17, -1, 2], "i64", "q", 3))

    def check(self, q_out):
        q, k, v = self.values
        found = self.read(q_out) if q_out else ()
        for token, position in enumerate((3, 9, 31) if q_out else ()):
            for head in range(2):
                first = (token * 2 + head) * HEAD
                for have, want in zip(found[first:first + HEAD], turned(q[first:first + HEAD], position)):
                    self.assertAlmostEqual(have, want, delta=abs(want) * 2**-10 + 1e-5)
        keys, values = map(self.read, self.cache)
        for token, slot, position in ((0, 17, 3), (2, 2, 31)):
            for have, want in zip(keys[slot * HEAD:][:HEAD], turned(k[token * HEAD:][:HEAD], position)):
                self.assertAlmostEqual(have, want, delta=abs(want) * 2**-10 + 1e-5)
            self.assertEqual(list(values[slot * HEAD:][:HEAD]), v[token * HEAD:][:HEAD])
        for array in (keys, values):
            self.assertEqual([array[slot * HEAD] for slot in range(5 * PAGE) if slot not in (17, 2)], [7.0] * (5 * PAGE - 2))
        self.assertEqual(self.engine.take_hazards(), [])

    def test_launches_and_calls_agree_with_plain_python(self):
        q_out = self.engine.empty((3, 2, HEAD), "f16")
        self.kernel.launch(q=self.q, k=self.k, v=self.v, q_out=q_out, **self.given)
        self.check(q_out)
        self.setUp()
        self.assertIs(self.kernel(self.q, self.k, self.v, q_out=q_out, **self.given), q_out)
        self.check(q_out)

    def test_the_extension_takes_calls_and_allocates_the_queries(self):
        ways = self.ways()
        for way, fast in ways:
            self.setUp()
            q, k, v = map(way, (self.q, self.k, self.v))
            given = {name: way(array) for name, array in self.given.items()}
            keys, values, before = given.pop("k_cache"), given.pop("v_cache"), self.kernel._counts()
            q_out = self.kernel(q, k, v, keys, values, **given)
            self.assertEqual(self.kernel._counts()[0] - before[0], int(fast))
            self.assertEqual((tuple(q_out.shape), q_out.dtype), ((3, 2, HEAD), "f16"))
            self.check(getattr(q_out, "owner", q_out))
            slots, positions = self.array([17, -1], "i64", "q", 2), self.array([3, 9], "i32", "i", 2)
            shorter = given | {"slot_mapping": way(slots), "positions": way(positions)}
            before, part = self.kernel._counts(), self.kernel(q, k, v, keys, values, **shorter)  # q, k and v have more rows
            self.assertEqual((tuple(part.shape), self.kernel._counts()[0] - before[0]), ((2, 2, HEAD), int(fast)))
            self.assertEqual(self.read(getattr(part, "owner", part)), self.read(getattr(q_out, "owner", q_out))[:2 * 2 * HEAD])

    def test_keys_alone_are_written_by_a_call_without_queries(self):
        kernel = self.engine.prepare(config(q_out=False))
        for way, fast in self.ways():
            self.setUp()
            given = {name: way(array) for name, array in self.given.items()}
            before = kernel._counts()
            self.assertIsNone(kernel(way(self.k), way(self.v), given.pop("k_cache"), given.pop("v_cache"), **given))
            self.assertEqual(kernel._counts()[0] - before[0], int(fast))
            self.check(None)
        with self.assertRaisesRegex(TypeError, "takes 4 arguments by position .*k, v, k_cache, v_cache"):
            kernel(self.q, self.k, self.v, *self.cache, **given)

    def test_values_in_columns(self):
        """[pages, heads, head_dim, keys], keys of each 16 in the order of an operand of the tensor cores."""
        kernel = self.engine.prepare(config(dtype={"in": "f16", "q": "f16", "kv": "e4m3"}, v_layout="columns",
                                            kv_layout={"kind": "paged", "page_size": 16}))
        order = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
        for way, fast in self.ways():
            keys, values = self.engine.empty((2, 16, 1, HEAD), "u8"), self.engine.empty((2, 1, HEAD, 16), "u8")
            for cache in (keys, values):
                cache.write(bytes([0xee]) * (2 * 16 * HEAD))
            v = self.array([0.5 * (i % 3) for i in range(3 * HEAD)], "f16", "e", 3, 1, HEAD)
            given = {name: way(self.given[name]) for name in ("cos_sin", "positions")}
            slots = self.array([17, 8, 31], "i64", "q", 3)
            before = kernel._counts()
            kernel(way(self.q), way(self.k), way(v), way(keys), way(values), q_out=way(self.q), slot_mapping=way(slots), **given)
            self.assertEqual(kernel._counts()[0] - before[0], int(fast))
            codes, found = (0x00, 0x30, 0x38), values.read()
            for token, slot in enumerate((17, 8, 31)):
                for element in range(HEAD):
                    at = (slot // 16 * HEAD + element) * 16 + order.index(slot % 16)
                    self.assertEqual(found[at], codes[(token * HEAD + element) % 3], (token, element))
            self.assertEqual(found.count(0xee), (2 * 16 - 3) * HEAD)
        with self.assertRaisesRegex(ConfigError, r"v_cache: has shape \[2, 16, 1, 64\], and the problem's is \[num_pages, 1, 64, 16\]"):
            kernel(self.q, self.k, v, keys, keys, q_out=self.q, slot_mapping=slots, **given)

    def test_attention_reads_columns(self):
        """A sequence of one key has that key's value as its output."""
        layout = {"kv_layout": {"kind": "paged", "page_size": 16}, "v_layout": "columns"}
        with kernelwright.Engine("emulator", emulator_arch="sm_90a", hazards=True) as engine:
            attention = engine.prepare({"problem": {"dtype": {"q": "f16", "kv": "e4m3", "out": "f16"}, "max_q_len": 1,
                                                    "head_dim": {"qk": HEAD, "v": HEAD}, "heads": {"q": 1, "kv": 1}, **layout}})
            q, o, k, v = (engine.empty(shape, dtype) for shape, dtype in (
                ((1, 1, 1, HEAD), "f16"), ((1, 1, 1, HEAD), "f16"), ((2, 16, 1, HEAD), "e4m3"), ((2, 1, HEAD, 16), "e4m3")))
            table, lengths = engine.empty((1, 1), "i32"), engine.empty((1,), "i32")
            nan, codes = 0x7f, (0x00, 0x30, 0x38)
            column = [[codes[element % 3]] + [nan] * 15 for element in range(HEAD)]
            k.write(bytes([nan] * 16 * HEAD + [0x38] * HEAD + [nan] * 15 * HEAD))
            v.write(bytes([nan] * 16 * HEAD + sum(column, [])))
            q.write(struct.pack(f"{HEAD}e", *[1.0] * HEAD))
            table.write(struct.pack("i", 1))
            lengths.write(struct.pack("i", 1))
            given = dict(page_table=table, kv_lengths=lengths, kv_len=16)
            for way, fast in self.ways():
                o.write(bytes(2 * HEAD))
                before = attention._counts()
                attention(way(q), way(k), way(v), out=way(o), **{name: given[name] if name == "kv_len" else way(given[name])
                                                                 for name in given})
                self.assertEqual(attention._counts()[0] - before[0], int(fast))
                self.assertEqual(self.read(o), tuple((0, 0.5, 1)[element % 3] for element in range(HEAD)))
            self.assertEqual(engine.take_hazards(), [])
            with self.assertRaisesRegex(ConfigError, r"v: has shape \[2, 16, 1, 64\], and the problem's is \[num_pages, 1, 64, 16\]"):
                attention.launch(q=q, k=k, v=k, o=o, **given)

    def test_records_by_strides(self):
        """656 bytes a token: 512 e4m3, 4 scales of 128 elements each, and 128 bytes that another launch writes."""
        kernel = self.engine.prepare({"kind": "kv_write", "problem": {
            "dtype": {"in": "f16", "kv": "e4m3"}, "head_dim": {"qk": 128, "v": 128}, "heads": {"q": 4, "kv": 4}, "q_out": False,
            "v_out": False, "kv_layout": {"kind": "paged", "page_size": PAGE}, "scales": {"k": "per_token"}}})
        cache = self.engine.empty((2 * PAGE * 656,), "u8")
        cache.write(bytes([0xee]) * (2 * PAGE * 656))
        k = self.array([float(1 + token * 4 + group) for token in range(3) for group in range(4) for _ in range(128)], "f16", "e", 3, 4, 128)
        keys = Lent(cache.address, (2, PAGE, 4, 128), (PAGE * 656, 656, 128, 1), "e4m3")
        scales = Lent(cache.address + 512, (2, PAGE, 4), (PAGE * 164, 164, 1), "f32")
        self.assertIsNone(kernel(k, keys, k_scale=scales, slot_mapping=self.array([5, -1, 2], "i64", "q", 3)))
        found = cache.read()
        for slot in range(2 * PAGE):
            record, token = found[656 * slot:656 * (slot + 1)], {5: 0, 2: 2}.get(slot)
            if token is None:
                self.assertEqual(record, bytes([0xee]) * 656)
                continue
            self.assertEqual((record[:512], record[528:]), (bytes([0x7e]) * 512, bytes([0xee]) * 128))  # 448
            for group, scale in enumerate(struct.unpack("4f", record[512:528])):
                self.assertAlmostEqual(scale * 448, 1 + token * 4 + group, places=5)
        self.assertEqual(self.engine.take_hazards(), [])

    def test_a_bound_launch_is_launched_again(self):
        q_out = self.engine.empty((3, 2, HEAD), "f16")
        launch = self.kernel.bind(q=self.q, k=self.k, v=self.v, q_out=q_out, **self.given)
        for _ in range(2):
            for cache in self.cache:
                cache.write(struct.pack("e", 7.0) * (5 * PAGE * HEAD))
            launch()
            self.check(q_out)

    def test_says_which_tensor_does_not_fit(self):
        good = dict(q=self.q, k=self.k, v=self.v, q_out=self.q, **self.given)
        for name, wrong, words in (
                ("slot_mapping", self.array([1, 2, 3], "i32", "i", 3), "slot_mapping: is i32, and the problem has i64"),
                ("k_cache", self.engine.empty((5, 8, 1, HEAD), "f16"), r"k_cache: has shape \[5, 8, 1, 64\], and the problem's is \[num_pages, 4, 1, 64\]"),
                ("v_cache", self.engine.empty((6, PAGE, 1, HEAD), "f16"), "v_cache: makes num_pages 6, and it is 5"),
                ("q", self.engine.empty((2, 2, HEAD), "f16"), "q: has 2 rows for 3 tokens"),
                ("cos_sin", self.engine.empty((32, 32), "f32"), "cos_sin: has shape"),
                ("k_scale", self.engine.empty((1,), "f32"), "k_scale: is given, and the problem has no such scales"),
                ("eps", -1.0, "/tensors/eps: -1 is no finite number from 0 on")):
            with self.subTest(name), self.assertRaisesRegex(ConfigError, words):
                self.kernel.launch(**(good | {name: wrong}))


class ScalesOnTheEmulator(EmulatorTest):
    """Scales of a wrong shape are refused by name, on the way of the extension and on Python's."""

    @classmethod
    def config(cls):
        return cls.of("per_token")

    @staticmethod
    def of(kind):
        return {"kind": "kv_write", "problem": {
            "dtype": {"in": "f16", "q": "e4m3", "kv": "e4m3"}, "head_dim": {"qk": HEAD, "v": HEAD}, "heads": {"q": 4, "kv": 2},
            "kv_layout": {"kind": "paged", "page_size": PAGE}, "scales": dict.fromkeys("qkv", kind)}}

    SHAPES = {"per_tensor": dict.fromkeys(("q_scale", "k_scale", "v_scale"), (1,)),
              "per_head": {"q_scale": (4,), "k_scale": (2,), "v_scale": (2,)},
              "per_token": {"q_scale": (3, 4), "k_scale": (5, PAGE, 2), "v_scale": (5, PAGE, 2)}}

    def wrong(self, kind, shape):
        yield shape + (1,)
        yield shape[:-1] + (shape[-1] + 1,)
        if len(shape) > 1:
            yield (shape[0] + 1, *shape[1:])
            yield shape[1:]
        elif kind == "per_head":
            yield (1,)

    def test_of_a_wrong_shape_are_refused_by_name(self):
        for kind, shapes in self.SHAPES.items():
            kernel = self.engine.prepare(self.of(kind))
            tensors = {name: self.engine.empty((3, heads, HEAD), dtype) for name, heads, dtype in (
                ("q", 4, "f16"), ("k", 2, "f16"), ("v", 2, "f16"), ("q_out", 4, "e4m3"))}
            tensors |= {name: self.engine.empty((5, PAGE, 2, HEAD), "e4m3") for name in ("k_cache", "v_cache")}
            tensors["slot_mapping"] = self.array([17, -1, 2], "i64", "q", 3)
            for name, shape in shapes.items():
                tensors[name] = self.array([1.0] * math.prod(shape), "f32", "f", *shape)
            for way, _ in self.ways():
                good = {name: way(tensor) for name, tensor in tensors.items()}
                kernel(**good)
                for name, shape in shapes.items():
                    for wrong in self.wrong(kind, shape):
                        given = {each: way(tensor) for each, tensor in tensors.items()}
                        given[name] = way(self.array([1.0] * math.prod(wrong), "f32", "f", *wrong))
                        words = rf"^{name}: has shape \[{', '.join(map(str, wrong))}\].*; it is "
                        with self.subTest(kind=kind, name=name, wrong=wrong):
                            with self.assertRaisesRegex(ConfigError, words):
                                kernel(**given)
                        given = tensors | {name: self.array([1.0] * math.prod(wrong), "f32", "f", *wrong)}
                        with self.subTest("launch", kind=kind, name=name, wrong=wrong):
                            with self.assertRaisesRegex(ConfigError, words):
                                kernel.launch(**given)
        self.assertEqual(self.engine.take_hazards(), [])

    def test_of_another_dtype_or_left_out_are_refused_by_name(self):
        kernel = self.engine.prepare(self.of("per_head"))
        tensors = {name: self.engine.empty((3, heads, HEAD), dtype) for name, heads, dtype in (
            ("q", 4, "f16"), ("k", 2, "f16"), ("v", 2, "f16"), ("q_out", 4, "e4m3"))}
        tensors |= {name: self.engine.empty((5, PAGE, 2, HEAD), "e4m3") for name in ("k_cache", "v_cache")}
        tensors["slot_mapping"] = self.array([17, -1, 2], "i64", "q", 3)
        tensors |= {name: self.array([1.0] * shape[0], "f32", "f", *shape) for name, shape in self.SHAPES["per_head"].items()}
        with self.assertRaisesRegex(ConfigError, "k_scale: is f16, and the problem has f32"):
            kernel.launch(**(tensors | {"k_scale": self.engine.empty((2,), "f16")}))
        with self.assertRaisesRegex(ConfigError, "/tensors/v_scale: "):
            kernel.launch(**(tensors | {"v_scale": None}))


class ProductOnTheEmulator(EmulatorTest):
    """A GEMM that writes the cache has the bits of a GEMM and the kernel above behind it."""

    DEPTH = 32

    @classmethod
    def config(cls):
        return config()

    def setUp(self):
        OnTheEmulator.setUp(self)
        draw = random.Random(2)
        self.a = self.array([draw.gauss(0, 1) for _ in range(3 * self.DEPTH)], "f16", "e", 3, self.DEPTH)
        self.b = self.array([draw.gauss(0, 1) for _ in range(4 * HEAD * self.DEPTH)], "f16", "e", 4 * HEAD, self.DEPTH)

    @classmethod
    def gemm(cls, **more):
        return cls.engine.prepare({"kind": "gemm", "schedule": {"family": "portable", "block_m": 16, "block_n": 64}, "problem": {
            "n": 4 * HEAD, "k": cls.DEPTH, "dtype": {"a": "f16", "b": "f16", "d": "f16"}, **more}})

    def test_launches_and_calls_have_the_bits_of_the_chain(self):
        rows = self.engine.empty((3, 4 * HEAD), "f16")
        self.gemm().launch(a=self.a, b=self.b, d=rows)
        values = self.read(rows)
        q, k, v = (self.array([x for t in range(3) for x in values[t * 4 * HEAD:][first * HEAD:end * HEAD]], "f16", "e", 3,
                              end - first, HEAD) for first, end in ((0, 2), (2, 3), (3, 4)))
        wanted = self.engine.empty((3, 2, HEAD), "f16")
        self.kernel.launch(q=q, k=k, v=v, q_out=wanted, **self.given)
        caches = [array.read() for array in self.cache]
        fused = self.gemm(kv_write=config()["problem"])
        for way in ("launch", "call"):
            for array in self.cache:
                array.write(struct.pack("e", 7.0) * (5 * PAGE * HEAD))
            d = self.engine.empty((3, 2 * HEAD), "f16")
            if way == "launch":
                fused.launch(a=self.a, b=self.b, d=d, kv_write=self.given)
            else:
                self.assertIs(fused(self.a, self.b, out=d, kv_write=self.given), d)
            self.assertEqual(d.read(), wanted.read())
            self.assertEqual([array.read() for array in self.cache], caches)
        found = fused(self.a, self.b, kv_write=self.given)
        self.assertEqual(found.read(), wanted.read())
        self.assertEqual(self.engine.take_hazards(), [])

    def test_what_does_not_fit_is_refused(self):
        fused, plain, d = self.gemm(kv_write=config()["problem"]), self.gemm(), self.engine.empty((3, 2 * HEAD), "f16")
        with self.assertRaisesRegex(ConfigError, "/tensors/kv_write: is null, and the problem writes a cache"):
            fused.launch(a=self.a, b=self.b, d=d)
        with self.assertRaisesRegex(ConfigError, "kv_write: has q, which is no argument of a cache that a GEMM writes"):
            fused.launch(a=self.a, b=self.b, d=d, kv_write=self.given | {"q": self.q})
        with self.assertRaisesRegex(ConfigError, "kv_write: is of type list; it takes a dict"):
            fused.launch(a=self.a, b=self.b, d=d, kv_write=[self.cache])
        with self.assertRaisesRegex(ConfigError, "k_cache: has shape"):
            fused.launch(a=self.a, b=self.b, d=d, kv_write=self.given | {"k_cache": self.q})
        with self.assertRaisesRegex(ConfigError, "d: has shape"):
            fused.launch(a=self.a, b=self.b, d=self.engine.empty((3, 4 * HEAD), "f16"), kv_write=self.given)
        with self.assertRaisesRegex(ConfigError, "kv_write: is given, and the problem has no kv_write"):
            plain.launch(a=self.a, b=self.b, d=self.engine.empty((3, 4 * HEAD), "f16"), kv_write=self.given)


class RopeTable(unittest.TestCase):
    def test_has_the_formulas_of_the_library(self):
        table = kernelwright.rope_table(4, 2, first=3, theta=100.0)
        self.assertEqual(table.shape, (2, 4))
        for have, want in zip(table.tolist()[0], (math.cos(3), math.cos(0.3), math.sin(3), math.sin(0.3))):
            self.assertAlmostEqual(have, want, places=6)
        yarn = kernelwright.rope_table(64, 1, scaling="yarn", theta=1.5e5, factor=32.0, original_positions=4096, truncate=False)
        self.assertAlmostEqual(yarn[0, 0], 0.1 * math.log(32) + 1, places=6)
        self.assertAlmostEqual(kernelwright.rope_table(4, 2, scaling="longrope", factors=[1.0, 5.0], original_positions=4096)[1, 3],
                               math.sin(0.01 / 5), places=7)

    def test_names_what_does_not_fit(self):
        with self.assertRaisesRegex(ConfigError, "/width: 7 is no even number"):
            kernelwright.rope_table(7, 1)
        with self.assertRaisesRegex(ConfigError, '/rope/scaling: "linear" is not one of default'):
            kernelwright.rope_table(8, 1, scaling="linear")


if __name__ == "__main__":
    unittest.main()
