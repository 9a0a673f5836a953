#!/usr/bin/env python3
"""Latent attention on the emulator, against sums in plain Python: calls without v, and with v that is k.

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

QK, V, HEADS, PAGE = 576, 512, 3, 16
LENGTHS, PAGES = (37, 5), 5
SCALE = 192**-0.5
# Probabilities and the output are rounded to f16.
RELATIVE, ABSOLUTE = 2.0**-10, 2.0**-9


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls):
        return {"problem": {"dtype": {"q": "f16", "kv": "f16", "out": "f16"}, "head_dim": {"qk": QK, "v": V},
                            "heads": {"q": HEADS, "kv": 1}, "kv_layout": {"kind": "paged", "page_size": PAGE},
                            "v_layout": "key_prefix", "mask": {"kind": "causal"}, "max_q_len": 1}}

    def setUp(self):
        draw = random.Random(1)

        def eighths(count):  # which f16 holds
            return [draw.randint(-8, 8) / 8 for _ in range(count)]
        self.queries = [[eighths(QK) for _ in range(HEADS)] for _ in LENGTHS]
        self.keys = [eighths(QK) for _ in range(PAGES * PAGE)]
        self.table = [[4, 0, 2], [1, -1, -1]]  # no sequence has page 3
        self.q = self.array([x for rows in self.queries for row in rows for x in row], "f16", "e", len(LENGTHS), 1, HEADS, QK)
        self.k = self.array([x for row in self.keys for x in row], "f16", "e", PAGES, PAGE, 1, QK)
        self.tables = {"page_table": self.array(sum(self.table, []), "i32", "i", len(LENGTHS), 3),
                       "kv_lengths": self.array(LENGTHS, "i32", "i", len(LENGTHS))}

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
        other = self.engine.empty((PAGES, PAGE, 1, QK), "f16")
        with self.assertRaisesRegex(kernelwright.ConfigError, "/tensors/v: is not k"):
            self.kernel(self.q, self.k, other, scale=SCALE, **self.tables)
        with self.assertRaisesRegex(kernelwright.ConfigError, "v: has shape"):
            self.kernel(self.q, self.k, self.engine.empty((PAGES, PAGE, 1, V), "f16"), scale=SCALE, **self.tables)

    def test_bind_takes_no_values(self):
        out = self.engine.empty((len(LENGTHS), 1, HEADS, V), "f16")
        self.kernel.bind(q=self.q, k=self.k, o=out, scale=SCALE, **self.tables)(None)
        self.check(out)


if __name__ == "__main__":
    unittest.main()
