#!/usr/bin/env python3
"""Attention with scales of tokens and of pages on the emulator, against attention in plain Python.

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
HEAD, PAGE, Q_HEADS, KV_HEADS = 64, 16, 4, 2
LENGTHS = 19, 7
TABLE = ((3, 1), (0, 2))
NAN, NO_SCALE = 0x7f, math.nan
ROWS = {"padded": (2, 20), "ragged": (26,), "paged": (4, PAGE)}  # the dimensions of k ahead of heads
COLUMN_ORDER = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 0x7f == NAN:
        return math.nan
    size = math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9)
    return -size if code & 0x80 else size


VALUES = [e4m3(code) for code in range(256)]


def places(kind):
    """The rows of the cache that have the keys of each sequence."""
    if kind == "paged":
        return [[TABLE[b][key // PAGE] * PAGE + key % PAGE for key in range(length)] for b, length in enumerate(LENGTHS)]
    first = (0, ROWS["padded"][1]) if kind == "padded" else (0, LENGTHS[0])
    return [[begin + key for key in range(length)] for begin, length in zip(first, LENGTHS)]


def attention(q, keys, values):
    """Of one head: the outputs of queries q [n][HEAD] over keys and values [s][HEAD]."""
    outputs = []
    for query in q:
        scores = [sum(a * b for a, b in zip(query, key)) / math.sqrt(HEAD) for key in keys]
        weights = [math.exp(score - max(scores)) for score in scores]
        outputs.append([sum(w * value[d] for w, value in zip(weights, values)) / sum(weights) for d in range(HEAD)])
    return outputs


class Cache:
    """Codes and scales, which are NaN wherever no sequence has a key."""

    def __init__(self, kind, per, seed=5):
        draw = random.Random(seed)
        self.kind, self.per, self.places = kind, per, places(kind)
        count = math.prod(ROWS[kind])
        used = {row for rows in self.places for row in rows}

        def codes():
            return [[[draw.choice((0, 0x80)) | draw.randint(0x20, 0x44) if row in used else NAN for _ in range(HEAD)]
                     for _ in range(KV_HEADS)] for row in range(count)]
        self.k, self.v = codes(), codes()
        blocks = used if per == "per_token" else {row // PAGE for row in used}
        self.shape = (*ROWS[kind], KV_HEADS) if per == "per_token" else (ROWS[kind][0], KV_HEADS)
        self.k_scale, self.v_scale = ([[math.ldexp(draw.uniform(1, 2), draw.randint(*range_)) if block in blocks else NO_SCALE
                                        for _ in range(KV_HEADS)] for block in range(math.prod(self.shape[:-1]))]
                                      for range_ in ((-3, 0), (-2, 2)))

    def scale(self, scales, row, head):
        return scales[row if self.per == "per_token" else row // PAGE][head]

    def expected(self, q):
        """q [batch][n][Q_HEADS][HEAD]; the outputs in the same order, flat."""
        found = []
        for rows, queries in zip(self.places, q):
            heads = []
            for head in range(Q_HEADS):
                of = head // (Q_HEADS // KV_HEADS)
                keys, values = ([[VALUES[code] * self.scale(scales, row, of) for code in codes[row][of]] for row in rows]
                                for codes, scales in ((self.k, self.k_scale), (self.v, self.v_scale)))
                heads.append(attention([query[head] for query in queries], keys, values))
            found += [x for i in range(len(queries)) for head in heads for x in head[i]]
        return found


def flat(values):
    return [x for value in values for x in flat(value)] if isinstance(values, list) else [values]


class OnTheEmulator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("emulator", emulator_arch="sm_90a", hazards=True)
        try:
            cls.paged = cls.engine.prepare(cls.config("paged", "per_token", max_q_len=1))
        except kernelwright.MissingError as error:
            raise unittest.SkipTest(f"no kernel can be compiled here: {error}") from error

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    @staticmethod
    def config(kind, per, q="f16", **more):
        return {"problem": {"dtype": {"q": q, "kv": "e4m3", "out": "f16"}, "head_dim": {"qk": HEAD, "v": HEAD},
                            "heads": {"q": Q_HEADS, "kv": KV_HEADS}, "scales": per,
                            "kv_layout": {"kind": kind} | ({"page_size": PAGE} if kind == "paged" else {}), **more}}

    def lent(self, shape, dtype, values, letter):
        """A tensor that the extension takes, if it is here, and Python too."""
        array = self.engine.empty(shape, dtype)
        array.write(struct.pack(f"{len(values)}{letter}", *values))
        return Lent(array.address, shape, None, dtype, owner=array)

    def spread(self, shape, values, order, gap):
        """The values as a tensor whose dimensions lie in memory in that order, outermost first, with gaps of NaN."""
        strides, step = [0] * len(shape), gap
        for dim in reversed(order):
            strides[dim] = step
            step = step * shape[dim] + gap
        memory = [NO_SCALE] * step
        for i, value in enumerate(values):
            at = 0
            for extent, stride in zip(reversed(shape), reversed(strides)):
                at, i = at + i % extent * stride, i // extent
            memory[at] = value
        whole = self.lent((step,), "f32", memory, "f")
        return Lent(whole.address, shape, strides, "f32", owner=whole.owner)

    def queries(self, n, dtype):
        draw = random.Random(9)
        if dtype == "e4m3":
            codes = [draw.choice((0, 0x80)) | draw.randint(0x20, 0x40) for _ in range(2 * n * Q_HEADS * HEAD)]
            values, q = [VALUES[code] for code in codes], self.lent((2, n, Q_HEADS, HEAD), "e4m3", codes, "B")
        else:
            packed = struct.pack(f"{2 * n * Q_HEADS * HEAD}e", *(draw.gauss(0, 1) for _ in range(2 * n * Q_HEADS * HEAD)))
            values = list(struct.unpack(f"{len(packed) // 2}e", packed))
            q = self.lent((2, n, Q_HEADS, HEAD), "f16", values, "e")
        heads = [values[i:i + HEAD] for i in range(0, len(values), HEAD)]
        tokens = [heads[i:i + Q_HEADS] for i in range(0, len(heads), Q_HEADS)]
        return q, [tokens[:n], tokens[n:]]

    def operands(self, cache, columns=False):
        kind, k = cache.kind, flat(cache.k)
        given = {"k": self.lent((*ROWS[kind], KV_HEADS, HEAD), "e4m3", k, "B"),
                 "k_scale": self.lent(cache.shape, "f32", flat(cache.k_scale), "f"),
                 "v_scale": self.lent(cache.shape, "f32", flat(cache.v_scale), "f")}
        if columns:
            pages = [cache.v[page * PAGE + key][head][d] for page in range(ROWS[kind][0]) for head in range(KV_HEADS)
                     for d in range(HEAD) for key in COLUMN_ORDER]
            given["v"] = self.lent((ROWS[kind][0], KV_HEADS, HEAD, PAGE), "e4m3", pages, "B")
        else:
            given["v"] = self.lent((*ROWS[kind], KV_HEADS, HEAD), "e4m3", flat(cache.v), "B")
        if kind == "ragged":
            return given | {"kv_offsets": self.lent((3,), "i32", [0, LENGTHS[0], sum(LENGTHS)], "i"), "kv_len": max(LENGTHS)}
        if kind == "paged":
            given |= {"page_table": self.lent((2, 2), "i32", sum(TABLE, ()), "i"), "kv_len": max(LENGTHS)}
        return given | {"kv_lengths": self.lent((2,), "i32", LENGTHS, "i")}

    def output(self, kernel, q, given):
        """The bytes of a call, which the extension takes if it is here, and which launch() repeats."""
        found = []
        for way in (kernel, lambda out, **named: kernel.launch(o=out, **named)):
            out, before = self.lent(q.shape, "f16", [math.nan] * math.prod(q.shape), "e"), kernel._counts()[0]
            way(q=q, out=out, **given)
            self.assertEqual(kernel._counts()[0] - before, int(FAST and way is kernel))
            found.append(out.owner.read())
        self.assertEqual(*found)
        self.assertEqual(self.engine.take_hazards(), [])
        return found[0]

    def close(self, found, expected, bound):
        values = struct.unpack(f"{len(expected)}e", found)
        largest = max(map(abs, expected))
        for have, want in zip(values, expected):
            self.assertLessEqual(abs(have - want), bound * largest)  # no NaN either

    def check(self, kernel, cache, n, columns=False):
        q, values = self.queries(n, "f16")
        given = self.operands(cache, columns)
        found = self.output(kernel, q, given)
        self.close(found, cache.expected(values), 2**-9)
        return q, given, found

    def strided(self, cache):
        """Scales with heads ahead of tokens, and with gaps."""
        dims = len(cache.shape)
        order = [*range(dims - 2), dims - 1, dims - 2]
        return {"k_scale": self.spread(cache.shape, flat(cache.k_scale), order, 1),
                "v_scale": self.spread(cache.shape, flat(cache.v_scale), range(dims), 3)}

    def test_scales_by_layout_contiguous_and_strided(self):
        for kind, per, n in (("padded", "per_token", 2), ("ragged", "per_token", 2), ("paged", "per_token", 1),
                             ("paged", "per_page", 1)):
            with self.subTest(kind=kind, per=per):
                more = ({"max_q_len": 1} if n == 1 else {}) | ({"kv_offsets": True} if kind == "ragged" else {})
                kernel = self.engine.prepare(self.config(kind, per, **more))
                cache = Cache(kind, per)
                q, given, found = self.check(kernel, cache, n)
                self.assertEqual(self.output(kernel, q, given | self.strided(cache)), found)

    def test_values_in_columns_have_scales_as_keys_have(self):
        kernel = self.engine.prepare(self.config("paged", "per_token", max_q_len=1, v_layout="columns"))
        self.check(kernel, Cache("paged", "per_token"), 1, columns=True)

    def test_scales_of_queries(self):
        kernel = self.engine.prepare(self.config("padded", "per_token", "e4m3", max_q_len=1))
        cache = Cache("padded", "per_token")
        q, values = self.queries(1, "e4m3")
        scales = [0.25 * (1 + i % 5) for i in range(2 * Q_HEADS)]
        given = self.operands(cache) | {"q_scale": self.lent((2, 1, Q_HEADS), "f32", scales, "f")}
        scaled = [[[[x * scales[b * Q_HEADS + head] for x in values[b][0][head]] for head in range(Q_HEADS)]] for b in range(2)]
        self.close(self.output(kernel, q, given), cache.expected(scaled), 2**-4)  # probabilities of 8 bits
        for scale, words in (
                (self.lent((1, 2, Q_HEADS), "f32", scales, "f"), r"q_scale: has shape \[1, 2, 4\], and the problem's is \[2, 1, 4\]"),
                (self.spread((2, 1, Q_HEADS), scales, range(3), 2), r"q_scale: has strides \[12, 10, 2\]; give a contiguous one"),
                (None, "/tensors/q_scale: is null, and the problem has")):
            self.refused(kernel, words, q=q, **given | {"q_scale": scale})

    def refused(self, kernel, words, **given):
        out = self.lent(given["q"].shape, "f16", [0.0] * math.prod(given["q"].shape), "e")
        with self.assertRaisesRegex(ConfigError, words) as launched:
            kernel.launch(o=out, **given)
        with self.assertRaises(ConfigError) as called:
            kernel(out=out, **given)
        self.assertEqual(str(called.exception), str(launched.exception))

    def test_wrong_scales_are_refused_by_name(self):
        ones = [1.0] * 256
        wrong = [(shape, "f32", rf"has shape \[{', '.join(map(str, shape))}\], and the problem's is \[4, 16, 2\]")
                 for shape in ((1,), (2,), (64, 2), (4, 8, 2), (3, 16, 2), (4, 16, 2, 1))]
        wrong += [((4, 16, 2), "f16", "is f16, and the problem has f32")]
        q, _ = self.queries(1, "f16")
        cache = Cache("paged", "per_token")
        given = self.operands(cache)
        for name in ("k_scale", "v_scale"):
            for shape, dtype, words in wrong:
                scale = self.lent(shape, dtype, ones[:math.prod(shape)], "f" if dtype == "f32" else "e")
                self.refused(self.paged, f"{name}: {words}", q=q, **given | {name: scale})
            one = Lent(given[name].address, cache.shape, (0, 0, 0), "f32", owner=given[name].owner)
            self.refused(self.paged, f"{name}: every stride is 0", q=q, **given | {name: one})
            self.refused(self.paged, f"/tensors/{name}: is null", q=q, **given | {name: None})
        self.refused(self.paged, "/tensors/q_scale: is given, and the problem does not have", q=q,
                     **given | {"q_scale": self.lent((2, 1, Q_HEADS), "f32", ones[:8], "f")})
        pages = self.engine.prepare(self.config("paged", "per_page", max_q_len=1))
        for name in ("k_scale", "v_scale"):
            self.refused(pages, rf"{name}: has shape \[4, 16, 2\], and the problem's is \[4, 2\]", q=q,
                         **given | {each: given[each] if each == name else self.lent((4, 2), "f32", ones[:8], "f")
                                    for each in ("k_scale", "v_scale")})
        with self.assertRaisesRegex(ConfigError, '"per_page" belongs to paged keys'):
            self.engine.prepare(self.config("padded", "per_page"))

    def test_attention_reads_what_kv_write_has_quantised(self):
        write = self.engine.prepare({"kind": "kv_write", "problem": {
            "dtype": {"in": "f16", "kv": "e4m3"}, "head_dim": {"qk": HEAD, "v": HEAD}, "heads": {"q": Q_HEADS, "kv": KV_HEADS},
            "q_out": False, "kv_layout": {"kind": "paged", "page_size": PAGE}, "scales": {"k": "per_token", "v": "per_token"}}})
        cache, draw, tokens = Cache("paged", "per_token"), random.Random(11), sum(LENGTHS)
        slots = [row for rows in cache.places for row in rows]
        new = []
        for size in (1, 5):
            packed = struct.pack(f"{tokens * KV_HEADS * HEAD}e", *(draw.gauss(0, size) for _ in range(tokens * KV_HEADS * HEAD)))
            new.append(self.lent((tokens, KV_HEADS, HEAD), "f16", struct.unpack(f"{len(packed) // 2}e", packed), "e"))
        q, values = self.queries(1, "f16")
        given, found = self.operands(cache), []
        for scales in ({name: given[name] for name in ("k_scale", "v_scale")}, self.strided(cache)):
            write(*new, given["k"], given["v"], slot_mapping=self.lent((tokens,), "i64", slots, "q"), **scales)
            found.append(self.output(self.paged, q, given | scales))
        self.assertEqual(*found)
        for codes, scales, stored, scale, tensor in ((cache.k, cache.k_scale, "k", "k_scale", new[0]),
                                                     (cache.v, cache.v_scale, "v", "v_scale", new[1])):
            read, factors = given[stored].owner.read(), struct.unpack("128f", given[scale].owner.read())
            elements = struct.unpack(f"{tokens * KV_HEADS * HEAD}e", tensor.owner.read())
            for token, row in enumerate(slots):
                for head in range(KV_HEADS):
                    at = (token * KV_HEADS + head) * HEAD
                    vector, where = elements[at:at + HEAD], row * KV_HEADS + head
                    codes[row][head], scales[row][head] = read[where * HEAD:][:HEAD], factors[where]
                    largest = max(map(abs, vector))
                    self.assertAlmostEqual(factors[where] * 448, largest, delta=largest * 2**-20)
                    for code, element in zip(codes[row][head], vector):
                        self.assertLessEqual(abs(VALUES[code] * factors[where] - element), largest / 448 * 16.01)
        self.close(found[0], cache.expected(values), 2**-9)


if __name__ == "__main__":
    unittest.main()
