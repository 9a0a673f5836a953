#!/usr/bin/env python3
"""Prefill behind a cached context on the emulator, against sums in plain Python: rotary parts that all heads share, as views
of what projections leave, and a context in chunks whose results are merged by their LSE (docs/attention/latent.md).

Needs no NumPy. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from lent import Lent
from on_the_emulator import FAST, EmulatorTest

HEADS, NOPE, ROPE, V, LATENT = 2, 16, 16, 16, 24
NEW, CONTEXT, CHUNK = (5, 3, 1), (37, 0, 20), 16  # tokens of each sequence; keys of a chunk
SCALE = 0.3
# Probabilities, outputs of parts and elements are f16.
RELATIVE, ABSOLUTE = 2.0**-9, 2.0**-9


def merge(states):
    """The (output, LSE) of a row over all keys, from those over disjoint parts of them. -inf is the LSE of no key."""
    top = max(lse for _, lse in states)
    if top == -math.inf:
        return states[0]
    weights = [math.exp(lse - top) for _, lse in states]
    rows = zip(*(out for out, _ in states))
    return [sum(map(float.__mul__, weights, row)) / sum(weights) for row in rows], top + math.log(sum(weights))


class OnTheEmulator(EmulatorTest):
    @classmethod
    def config(cls, mask="causal"):
        return {"problem": {"dtype": {"q": "f16", "kv": "f16", "out": "f16"}, "head_dim": {"qk": NOPE + ROPE, "v": V},
                            "rope": {"width": ROPE, "dtype": "f16"}, "heads": {"q": HEADS, "kv": HEADS}, "q_layout": "ragged",
                            "kv_layout": {"kind": "ragged"}, "kv_offsets": True, "mask": {"kind": mask}, "lse": True},
                "schedule": {"family": "hopper", "block_n": 48}}

    def setUp(self):
        self.ways()  # results are allocated as tensors of the engine
        draw = random.Random(1)

        def eighths(*shape):  # which f16 holds
            return [eighths(*shape[1:]) for _ in range(shape[0])] if shape else draw.randint(-8, 8) / 8
        self.queries = [eighths(count, HEADS, NOPE + ROPE) for count in NEW]
        # Of each key of a sequence, its context first: a row of keys and values, and a row of the cache.
        self.rows = [eighths(c + n, HEADS, NOPE + V) for c, n in zip(CONTEXT, NEW)]
        self.cache = [eighths(c + n, LATENT + ROPE) for c, n in zip(CONTEXT, NEW)]

    def views(self, rows, *parts):
        """Of an array [tokens][heads][..] that holds `rows`, of all sequences: the elements of each head in (first, count)."""
        def flat(values):
            return [x for value in values for x in flat(value)] if isinstance(values, list) else [values]
        tokens, width = sum(map(len, rows)), sum(count for _, count in parts)
        array = self.array(flat(rows), "f16", "e", max(tokens, 1), HEADS, width)
        return [Lent(array.address + 2 * first, (tokens, HEADS, count), (HEADS * width, width, 1), "f16", owner=array)
                for first, count in parts]

    def offsets(self, counts):
        return self.lent(self.array([sum(counts[:i]) for i in range(len(counts) + 1)], "i32", "i", len(counts) + 1))

    def attend(self, kernel, ranges):
        """A row's (output, LSE) for each new token and head, over the keys [first, last) of each sequence."""
        counts = [last - first for first, last in ranges]
        q, q_rope = self.views(self.queries, (0, NOPE), (NOPE, ROPE))
        k, v = self.views([rows[first:last] for rows, (first, last) in zip(self.rows, ranges)], (0, NOPE), (NOPE, V))
        cache = [x for rows, (first, last) in zip(self.cache, ranges) for row in rows[first:last] for x in row]
        array = self.array(cache, "f16", "e", max(sum(counts), 1), LATENT + ROPE)
        k_rope = Lent(array.address + 2 * LATENT, (sum(counts), HEADS, ROPE), (LATENT + ROPE, 0, 1), "f16", owner=array)
        before = kernel._counts()[0]
        out, lse = kernel(q, k, v, q_offsets=self.offsets(NEW), kv_offsets=self.offsets(counts), q_len=max(NEW),
                          kv_len=max(counts), q_rope=q_rope, k_rope=k_rope, scale=SCALE)
        self.assertEqual(kernel._counts()[0] - before, FAST, "the extension takes head strides of 0")
        out, lse = self.read(out), self.read(lse, "f")
        return [(list(out[i * V:(i + 1) * V]), lse[i]) for i in range(sum(NEW) * HEADS)]

    def expected(self):
        """The same over all keys that a token sees."""
        for queries, rows, cache, context in zip(self.queries, self.rows, self.cache, CONTEXT):
            for at, heads in enumerate(queries):
                for head, query in enumerate(heads):
                    keys = [rows[key][head][:NOPE] + cache[key][LATENT:] for key in range(context + at + 1)]
                    scores = [SCALE * sum(map(float.__mul__, query, key)) for key in keys]
                    weights = [math.exp(score) for score in scores]
                    yield [sum(weight * row[head][NOPE + d] for weight, row in zip(weights, rows)) / sum(weights)
                           for d in range(V)], math.log(sum(weights))

    def test_chunks_of_a_context_are_merged_by_their_lse(self):
        parts = [self.attend(self.kernel, [(context, context + new) for context, new in zip(CONTEXT, NEW)])]
        over_context = self.engine.prepare(self.config("none"))
        for first in range(0, max(CONTEXT), CHUNK):
            ranges = [(min(first, context), min(first + CHUNK, context)) for context in CONTEXT]
            parts.append(self.attend(over_context, ranges))
        self.assertEqual([lse for _, lse in parts[-1]][NEW[0] * HEADS:], [-math.inf] * ((NEW[1] + NEW[2]) * HEADS))
        for row, (states, (right, right_lse)) in enumerate(zip(zip(*parts), self.expected(), strict=True)):
            out, lse = merge(states)
            self.assertAlmostEqual(lse, right_lse, delta=1e-3, msg=f"row {row}")
            for found, value in zip(out, right, strict=True):
                self.assertAlmostEqual(found, value, delta=RELATIVE * abs(value) + ABSOLUTE, msg=f"row {row}")
        self.check_merged_by_a_kernel(parts)
        self.assertEqual(self.engine.take_hazards(), [])

    def check_merged_by_a_kernel(self, parts):
        """row_op merges one chunk after the other."""
        kernel = self.engine.prepare({"kind": "row_op", "problem": {"dtype": {"in": "f16", "out": "f16"}, "width": HEADS * V,
                                                                    "input": "merge", "heads": HEADS}})
        tokens = sum(NEW)
        state = None
        for part in parts:
            out = self.array([x for row, _ in part for x in row], "f16", "e", tokens, HEADS * V)
            lse = self.array([lse for _, lse in part], "f32", "f", tokens, HEADS)
            state = kernel(*(self.lent(each) for each in (state[0], out)), lse=self.lent(state[1]),
                           residual_lse=self.lent(lse)) if state else (out, lse)
        found, found_lse = self.read(state[0]), self.read(state[1], "f")
        for row, (right, right_lse) in enumerate(self.expected()):
            self.assertAlmostEqual(found_lse[row], right_lse, delta=1e-3, msg=f"row {row}")
            for have, value in zip(found[row * V:(row + 1) * V], right, strict=True):
                self.assertAlmostEqual(have, value, delta=2 * RELATIVE * abs(value) + ABSOLUTE, msg=f"row {row}")


if __name__ == "__main__":
    unittest.main()
