#!/usr/bin/env python3
"""Latent attention on the emulator, against sums in plain Python: calls without v, and with v that is k.

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
from lent import Lent
from on_the_emulator import EmulatorTest

QK, V, HEADS, PAGE = 576, 512, 3, 16
LENGTHS, PAGES = (37, 5), 5
SCALE = 192**-0.5
# Probabilities and the output are rounded to f16.
RELATIVE, ABSOLUTE = 2.0**-10, 2.0**-9


def eighths(draw, count):  # which f16 holds
    return [draw.randint(-8, 8) / 8 for _ in range(count)]


def e4m3(code):
    """The value of a code."""
    exponent, fraction = code >> 3 & 15, code & 7
    return (-1 if code & 128 else 1) * ((fraction / 8 + 1) * 2.0 ** (exponent - 7) if exponent else fraction * 2.0**-9)


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return {"problem": {"dtype": {"q": "f16", "kv": "f16", "out": "f16"}, "head_dim": {"qk": QK, "v": V},
                            "heads": {"q": HEADS, "kv": 1}, "kv_layout": {"kind": "paged", "page_size": PAGE},
                            "v_layout": "key_prefix", "mask": {"kind": "causal"}, "max_q_len": 1}}

    def setUp(self):
        draw = random.Random(1)

        self.queries = [[eighths(draw, QK) for _ in range(HEADS)] for _ in LENGTHS]
        self.k = self.make_keys(draw)
        self.table = [[4, 0, 2], [1, -1, -1]]  # no sequence has page 3
        self.q = self.array([x for rows in self.queries for row in rows for x in row], "f16", "e", len(LENGTHS), 1, HEADS, QK)
        self.tables = {"page_table": self.array(sum(self.table, []), "i32", "i", len(LENGTHS), 3),
                       "kv_lengths": self.array(LENGTHS, "i32", "i", len(LENGTHS))}

    def make_keys(self, draw):
        """Sets self.keys, the elements of each key, and returns the tensor that holds them."""
        self.keys = [eighths(draw, QK) for _ in range(PAGES * PAGE)]
        return self.array([x for row in self.keys for x in row], "f16", "e", PAGES, PAGE, 1, QK)

    def check(self, out):
        found = self.read(out)
        for sequence, length in enumerate(LENGTHS):
            keys = [self.keys[self.table[sequence][key // PAGE] * PAGE + key % PAGE] for key in range(length)]
            for head, query in enumerate(self.queries[sequence]):
                scores = [SCALE * sum(a * b for a, b in zip(query, key)) for key in keys]
                weights = [math.exp(score - max(scores)) for score in scores]
                for column in range(V):
                    right = sum(weight * key[column] for weight, key in zip(weights, keys)) / sum(weights)
                    self.assertAlmostEqual(found[(sequence * HEADS + head) * V + column], right,
                                           delta=RELATIVE * abs(right) + ABSOLUTE, msg=f"{sequence}, {head}, {column}")
        self.assertEqual(self.engine.take_hazards(), [])

    def test_values_are_left_out_or_are_the_keys(self):
        for lend, _ in self.ways():
            tables = {name: lend(table) for name, table in self.tables.items()}
            k = lend(self.k)
            self.check(self.kernel(lend(self.q), k, scale=SCALE, **tables))
            self.check(self.kernel(lend(self.q), k, k, scale=SCALE, **tables))

    def test_other_values_are_refused(self):
        other = self.engine.empty(self.k.shape, self.k.dtype)
        with self.assertRaisesRegex(kernelwright.ConfigError, "/tensors/v: is not k"):
            self.kernel(self.q, self.k, other, scale=SCALE, **self.tables)
        with self.assertRaisesRegex(kernelwright.ConfigError, "v: has shape"):
            self.kernel(self.q, self.k, self.engine.empty((PAGES, PAGE, 1, V), self.k.dtype), scale=SCALE, **self.tables)

    def test_bind_takes_no_values(self):
        out = self.engine.empty((len(LENGTHS), 1, HEADS, V), "f16")
        self.kernel.bind(q=self.q, k=self.k, o=out, scale=SCALE, **self.tables)(None)
        self.check(out)


class Records(OnTheEmulator):
    """Keys as bytes: 512 codes of e4m3, 4 scales, 64 elements of f16."""

    @classmethod
    def config(cls):
        config = super().config()
        config["problem"]["dtype"]["kv"], config["problem"]["scales"] = "e4m3", "per_block"
        config["schedule"] = {"family": "portable"}  # which compiles faster
        return config

    def make_keys(self, draw):
        self.keys, records = [], []
        for _ in range(PAGES * PAGE):
            codes = [draw.randrange(0x40) | draw.choice((0, 128)) for _ in range(V)]
            scales, rest = [draw.choice((0.25, 0.5, 2)) for _ in range(V // 128)], eighths(draw, QK - V)
            self.keys.append([e4m3(code) * scales[i // 128] for i, code in enumerate(codes)] + rest)
            records += [*codes, *struct.pack("4f", *scales), *struct.pack(f"{QK - V}e", *rest)]
        return self.array(records, "u8", "B", PAGES, PAGE, 1, V + 16 + 2 * (QK - V))

    def test_records_of_another_size_or_with_scales_are_refused(self):
        with self.assertRaisesRegex(kernelwright.ConfigError, r"k: has shape .*the problem's is \[pages, 16, 1, 656\]"):
            self.kernel(self.q, self.engine.empty((PAGES, PAGE, 1, QK), "u8"), scale=SCALE, **self.tables)
        with self.assertRaisesRegex(kernelwright.ConfigError, "k: is f16, and the problem has u8"):
            self.kernel(self.q, self.engine.empty((PAGES, PAGE, 1, 656), "f16"), scale=SCALE, **self.tables)
        with self.assertRaisesRegex(kernelwright.ConfigError, "k_scale: is given.*scales beside its records"):
            self.kernel(self.q, self.k, k_scale=self.array([1.0], "f32", "f", 1), scale=SCALE, **self.tables)


    def test_attention_reads_what_kv_write_has_written(self):
        """A token's latents and its rotated part are a launch each, into records that lie in pages of the cache."""
        paged = {"kv_layout": {"kind": "paged", "page_size": PAGE}, "q_out": False, "v_out": False}
        latents = self.engine.prepare({"kind": "kv_write", "problem": {
            "dtype": {"in": "f16", "q": "f16", "kv": "e4m3"}, "head_dim": {"qk": 128, "v": 128}, "heads": {"q": 4, "kv": 4},
            "scales": {"k": "per_token"}, **paged}})
        rotated = self.engine.prepare({"kind": "kv_write", "problem": {
            "dtype": {"in": "f16", "q": "f16", "kv": "f16"}, "head_dim": {"qk": 64, "v": 64}, "heads": {"q": 1, "kv": 1}, **paged}})
        draw, size, tokens = random.Random(2), V + 16 + 2 * (QK - V), sum(LENGTHS)
        new = [eighths(draw, QK) for _ in range(tokens)]
        slots = [self.table[sequence][key // PAGE] * PAGE + key % PAGE for sequence, length in enumerate(LENGTHS) for key in range(length)]
        slots = self.array(slots, "i64", "q", tokens)
        cache = self.array([0xff] * (PAGES * PAGE * size), "u8", "B", PAGES, PAGE, 1, size)  # NaN, where no token is

        def part(offset, width, heads, dtype):
            strides = (PAGE * size // width, size // width, 128 if heads > 1 else 64, 1)
            return Lent(cache.address + offset, (PAGES, PAGE, heads, strides[2]), strides, dtype, owner=cache)
        scales = Lent(cache.address + V, (PAGES, PAGE, 4), (PAGE * size // 4, size // 4, 1), "f32", owner=cache)
        k = self.array([x for row in new for x in row[:V]], "f16", "e", tokens, 4, 128)
        latents.launch(k=k, k_cache=part(0, 1, 4, "e4m3"), k_scale=scales, slot_mapping=slots)
        k = self.array([x for row in new for x in row[V:]], "f16", "e", tokens, 1, 64)
        rotated.launch(k=k, k_cache=part(V + 16, 2, 1, "f16"), slot_mapping=slots)
        # The keys that the records hold, in order of slots: within half a step of what was written.
        stored, self.keys = cache.read(), [None] * (PAGES * PAGE)
        for slot, row in zip(self.read(slots, "q"), new):
            record = stored[slot * size:(slot + 1) * size]
            factors = struct.unpack("4f", record[V:V + 16])
            self.keys[slot] = [e4m3(code) * factors[i // 128] for i, code in enumerate(record[:V])] + row[V:]
            self.assertEqual(struct.unpack(f"{QK - V}e", record[V + 16:]), tuple(row[V:]))
            for i, (found, right) in enumerate(zip(self.keys[slot], row[:V])):
                self.assertLessEqual(abs(found - right), max(abs(right) * 2.0**-4, factors[i // 128] * 2.0**-10))
        self.check(self.kernel(self.q, cache, scale=SCALE, **self.tables))


class OneScale(OnTheEmulator):
    """Keys of e4m3 with a scale for all, which is that of values too."""

    @classmethod
    def config(cls):
        config = super().config()
        config["problem"]["dtype"]["kv"], config["problem"]["scales"] = "e4m3", "per_tensor"
        config["schedule"] = {"family": "portable"}
        return config

    def make_keys(self, draw):
        codes = [[draw.randrange(0x40) | draw.choice((0, 128)) for _ in range(QK)] for _ in range(PAGES * PAGE)]
        self.keys = [[0.5 * e4m3(code) for code in row] for row in codes]
        self.tables_scale = self.array([0.5], "f32", "f", 1)
        return self.array([code for row in codes for code in row], "e4m3", "B", PAGES, PAGE, 1, QK)

    def setUp(self):
        super().setUp()
        self.tables["k_scale"] = self.tables_scale

    def test_the_scale_of_values_is_that_of_keys(self):
        with self.assertRaisesRegex(kernelwright.ConfigError, "/tensors/v_scale: is not k_scale"):
            self.kernel(self.q, self.k, v_scale=self.array([1.0], "f32", "f", 1), scale=SCALE, **self.tables)


if __name__ == "__main__":
    unittest.main()
