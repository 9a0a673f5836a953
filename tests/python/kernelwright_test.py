#!/usr/bin/env python3
"""python/kernelwright on the emulator, against attention in plain Python; and its structs against runtime/c/c_api.h.

Needs no NumPy: the one test of it is skipped without. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import ctypes
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import kernelwright
from kernelwright import ConfigError, _library, _structs, _tensors

HEADER = pathlib.Path(__file__).parents[2] / "runtime" / "c" / "c_api.h"
HEAD = 64


def problem(heads=2, kv_heads=1, **more):
    return {"dtype": {"q": "f16", "kv": "f16", "out": "f16"}, "head_dim": {"qk": HEAD, "v": HEAD},
            "heads": {"q": heads, "kv": kv_heads}, **more}


def rounded(values):
    return list(struct.unpack(f"{len(values)}e", struct.pack(f"{len(values)}e", *values)))


def normal(count, seed):
    draw = random.Random(seed)
    return rounded([draw.gauss(0, 1) for _ in range(count)])


def attention(q, k, v, causal):
    """q [n][heads][HEAD], k and v [s][kv_heads][HEAD] as nested lists: o like q, and the LSE [heads][n]."""
    n, s, heads, group = len(q), len(k), len(q[0]), len(q[0]) // len(k[0])
    out, lse = [[None] * heads for _ in q], [[None] * n for _ in range(heads)]
    for i in range(n):
        for h in range(heads):
            seen = range(s - n + i + 1 if causal else s)
            scores = [sum(a * b for a, b in zip(q[i][h], k[j][h // group])) / math.sqrt(HEAD) for j in seen]
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            total = sum(weights)
            out[i][h] = [sum(w * v[j][h // group][d] for w, j in zip(weights, seen)) / total for d in range(HEAD)]
            lse[h][i] = top + math.log(total)
    return out, lse


def nested(values, *shape):
    if len(shape) == 1:
        return values
    step = len(values) // shape[0]
    return [nested(values[i * step:(i + 1) * step], *shape[1:]) for i in range(shape[0])]


def flat(values):
    return [x for value in values for x in flat(value)] if isinstance(values, list) else [values]


class OnTheEmulator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.events = []
        cls.engine = kernelwright.Engine("emulator", hazards=True, on_event=cls.events.append)
        try:
            cls.kernel = cls.engine.prepare({"problem": problem(mask={"kind": "causal"}, lse=True)})
        except kernelwright.MissingError as error:
            raise unittest.SkipTest(f"no kernel can be compiled here: {error}") from error

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def array(self, shape, values, code="e", dtype="f16"):
        array = self.engine.empty(shape, dtype)
        array.write(struct.pack(f"{len(values)}{code}", *values))
        return array

    def values(self, array, code="e"):
        data = array.read()
        return list(struct.unpack(f"{len(data) // struct.calcsize(code)}{code}", data))

    def assert_near(self, found, wanted, sizes, what):
        # f16: the probabilities and the output are rounded by 2^-11 of the value each, and as much again for the rest.
        self.assertEqual(len(found), len(wanted))
        for i, (a, b) in enumerate(zip(found, wanted)):
            self.assertLessEqual(abs(a - b), 3 * 2**-11 * sizes, f"{what} {i}: {a} for {b}")  # a NaN is not less

    def operands(self, q_len=5, kv_len=9, heads=2, kv_heads=1):
        q, k, v = normal(q_len * heads * HEAD, 1), normal(kv_len * kv_heads * HEAD, 2), normal(kv_len * kv_heads * HEAD, 3)
        want, lse = attention(nested(q, q_len, heads, HEAD), nested(k, kv_len, kv_heads, HEAD), nested(v, kv_len, kv_heads, HEAD),
                              causal=True)
        tensors = dict(q=self.array((1, q_len, heads, HEAD), q), k=self.array((1, kv_len, kv_heads, HEAD), k),
                       v=self.array((1, kv_len, kv_heads, HEAD), v),
                       o=self.array((1, q_len, heads, HEAD), [math.nan] * (q_len * heads * HEAD)),
                       lse=self.array((1, heads, q_len), [math.nan] * (heads * q_len), "f", "f32"))
        return tensors, flat(want), flat(lse), max(map(abs, v))

    def test_matches_attention_in_plain_python(self):
        tensors, want, lse, size = self.operands()
        self.kernel.launch(**tensors)
        self.assert_near(self.values(tensors["o"]), want, size, "o")
        self.assert_near(self.values(tensors["lse"], "f"), lse, 1, "lse")
        self.assertEqual(self.engine.take_hazards(), [])

    def test_reads_strides_from_the_tensor(self):
        tensors, want, _, size = self.operands()
        q = self.values(tensors["q"])
        wide = [math.nan] * (5 * 3 * HEAD)  # three heads a token in memory, of which the first two are queries
        for token in range(5):
            wide[token * 3 * HEAD:token * 3 * HEAD + 2 * HEAD] = q[token * 2 * HEAD:(token + 1) * 2 * HEAD]
        memory = self.array((1, 5, 3, HEAD), wide)

        class FirstTwoHeads:
            @staticmethod
            def _kernelwright_view():
                return _tensors.View(memory.address, (1, 5, 2, HEAD), (5 * 3 * HEAD, 3 * HEAD, HEAD, 1), "f16", "engine", 0)
        self.kernel.launch(**tensors | {"q": FirstTwoHeads})
        self.assert_near(self.values(tensors["o"]), want, size, "o")

    def test_masks_and_biases_are_tensors_or_sources(self):
        tensors, want, _, size = self.operands()
        every = {"batch": False, "heads": False}
        kernel = self.engine.prepare({"problem": problem(lse=True, mask={"kind": "tensor", "tensor": every},
                                                         score_mod={"kind": "tensor", "dtype": "f32"})})
        causal = [int(key <= query + 4) for query in range(5) for key in range(9)]
        mask = self.array((1, 1, 5, 9), causal, "B", "u8")
        bias = self.array((1, 2, 5, 9), [3.] * 90, "f", "f32")  # the same for all keys of a row: no weight changes
        kernel.launch(**tensors, mask=mask, bias=bias)
        self.assert_near(self.values(tensors["o"]), want, size, "o")
        for given, words in (({"mask": self.array((1, 2, 5, 9), [1] * 90, "B", "u8")}, r"mask: has shape \[1, 2, 5, 9\], and the "
                              r"problem's is \[1, 1, 5, 9\]"), ({"mask": bias}, "mask: is f32, and the problem has u8 or bool"),
                             ({"mask": None}, "/tensors/mask: is null, and the problem has mask")):
            with self.assertRaisesRegex(ConfigError, words):
                kernel.launch(**tensors | {"mask": mask, "bias": bias} | given)
        with self.assertRaisesRegex(ConfigError, "mask: is given, and the problem's mask is not a tensor"):
            self.kernel.launch(**tensors, mask=mask)

        header = "struct Causal {\n  bool visible(const kernelwright::Place& p) const { return p.key <= p.diagonal(); }\n};\n"
        source = {"kind": "source", "type": "Causal", "text": header}
        self.engine.prepare({"problem": problem(lse=True, mask=source)}).launch(**tensors)
        self.assert_near(self.values(tensors["o"]), want, size, "o")
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "c.json")
            config.write_text(json.dumps({"version": 1, "kind": "attention", "name": "c", "problem": problem(
                lse=True, mask={"kind": "source", "type": "Causal", "file": "causal.cuh"})}))
            header_file = pathlib.Path(folder, "causal.cuh")
            with self.assertRaisesRegex(ConfigError, '/problem/mask/file: "causal.cuh": cannot be read'):
                self.engine.prepare(config)
            os.mkfifo(header_file)
            with self.assertRaisesRegex(ConfigError, '/problem/mask/file: "causal.cuh": is no regular file'):
                self.engine.prepare(config)
            header_file.unlink()
            for content, words in ((b"// caf\xe9\n", "/problem/mask/file: .*utf-8"), (b" " * 65537, "at most 65536 bytes")):
                header_file.write_bytes(content)
                with self.assertRaisesRegex(ConfigError, words):
                    self.engine.prepare(config)
            text = config.read_text()
            for wrong in (text.replace('"lse": true', '"lse": true, "lse": true'), text.replace('"causal.cuh"', "5"),
                          text.replace('"mask": {', '"mask": {"operands": 5, '), "[" * 100000 + '"source"'):
                config.write_text(wrong)
                with self.assertRaises(ConfigError):
                    self.engine.prepare(config)
            config.write_text(text)
            header_file.write_text(header)
            self.engine.prepare(config).launch(**tensors)
        self.assertEqual(self.engine.take_hazards(), [])

    def test_takes_plain_addresses_with_their_sizes(self):
        tensors, want, _, size = self.operands()
        self.kernel.launch(**{name: array.address for name, array in tensors.items()}, batch=1, q_len=5, kv_len=9)
        self.assert_near(self.values(tensors["o"]), want, size, "o")

    def test_pages_and_split_keys_with_a_workspace(self):
        page, kv_len, order = 8, 19, [4, 1, 3]
        kernel = self.engine.prepare({"problem": problem(kv_layout={"kind": "paged", "page_size": page}, max_q_len=1),
                                      "schedule": {"splits": 2}})
        q, k, v = normal(2 * HEAD, 4), normal(kv_len * HEAD, 5), normal(kv_len * HEAD, 6)
        pools = []
        for keys in (k, v):
            pool = [math.nan] * (6 * page * HEAD)
            for i in range(kv_len):
                at = (order[i // page] * page + i % page) * HEAD
                pool[at:at + HEAD] = keys[i * HEAD:(i + 1) * HEAD]
            pools.append(self.array((6, page, 1, HEAD), pool))
        tensors = dict(q=self.array((1, 1, 2, HEAD), q), k=pools[0], v=pools[1],
                       o=self.array((1, 1, 2, HEAD), [math.nan] * (2 * HEAD)),
                       page_table=self.array((1, 3), order, "i", "i32"), kv_lengths=self.array((1,), [kv_len], "i", "i32"))
        need = kernel.workspace_bytes(**tensors)
        self.assertGreater(need, 0)
        with self.assertRaisesRegex(ConfigError, "/tensors/workspace"):
            kernel.launch(**tensors)
        kernel.launch(**tensors, workspace=self.engine.empty((need,), "u8"))
        want, _ = attention(nested(q, 1, 2, HEAD), nested(k, kv_len, 1, HEAD), nested(v, kv_len, 1, HEAD), causal=False)
        self.assert_near(self.values(tensors["o"]), flat(want), max(map(abs, v)), "o")

        # Pages come with the shape of k: one past them is a page of zeros, and a length past kv_len is kv_len.
        tensors.update(page_table=self.array((1, 3), [4, 6, 3], "i", "i32"), kv_lengths=self.array((1,), [25], "i", "i32"))
        kernel.launch(**tensors, kv_len=kv_len, workspace=self.engine.empty((need,), "u8"))
        k[page * HEAD:2 * page * HEAD] = v[page * HEAD:2 * page * HEAD] = [0.0] * (page * HEAD)
        want, _ = attention(nested(q, 1, 2, HEAD), nested(k, kv_len, 1, HEAD), nested(v, kv_len, 1, HEAD), causal=False)
        self.assert_near(self.values(tensors["o"]), flat(want), max(map(abs, v)), "o")
        with self.assertRaisesRegex(ConfigError, "num_pages"):
            kernel.bind(**tensors, num_pages=7)
        with self.assertRaisesRegex(ConfigError, "/tensors/scale: nan is not finite"):
            kernel.launch(**tensors, scale=math.nan, workspace=self.engine.empty((need,), "u8"))

    def test_left_padding_hides_the_first_keys(self):
        kv_len, start = 19, 7
        kernel = self.engine.prepare({"problem": problem(kv_starts=True, max_q_len=1)})
        q, k, v = normal(2 * HEAD, 4), normal(kv_len * HEAD, 5), normal(kv_len * HEAD, 6)
        hole = [math.nan] * (start * HEAD)
        tensors = dict(q=self.array((1, 1, 2, HEAD), q), k=self.array((1, kv_len, 1, HEAD), hole + k[start * HEAD:]),
                       v=self.array((1, kv_len, 1, HEAD), hole + v[start * HEAD:]),
                       o=self.array((1, 1, 2, HEAD), [math.nan] * (2 * HEAD)))
        kernel.launch(**tensors, kv_starts=self.array((1,), [start], "i", "i32"),
                      workspace=self.engine.empty((1 << 20,), "u8"))
        seen = kv_len - start
        want, _ = attention(nested(q, 1, 2, HEAD), nested(k[start * HEAD:], seen, 1, HEAD),
                            nested(v[start * HEAD:], seen, 1, HEAD), causal=False)
        self.assert_near(self.values(tensors["o"]), flat(want), max(map(abs, v)), "o")

    def test_a_gemm_adds_parts_of_k_in_a_workspace(self):
        engine = kernelwright.Engine("emulator", hazards=True, emulator_arch="sm_100a")
        rows, n, k = 5, 24, 136
        kernel = engine.prepare({"kind": "gemm", "problem": {"n": n, "k": k, "dtype": {"a": "f16", "b": "f16", "d": "f32"}},
                                 "schedule": {"family": "blackwell", "block_n": 16, "split_k": 2}})
        draw = random.Random(9)
        a, b = ([float(draw.randint(-4, 4)) for _ in range(count * k)] for count in (rows, n))

        def array(shape, values, code, dtype):
            made = engine.empty(shape, dtype)
            made.write(struct.pack(f"{len(values)}{code}", *values))
            return made
        tensors = dict(a=array((rows, k), a, "e", "f16"), b=array((n, k), b, "e", "f16"),
                       d=array((rows, n), [math.nan] * (rows * n), "f", "f32"))
        need = kernel.workspace_bytes(**tensors)
        self.assertGreater(need, rows * n * 4)
        with self.assertRaisesRegex(ConfigError, "/tensors/workspace: 0 bytes are given"):
            kernel.launch(**tensors)
        workspace = engine.empty((need,), "u8")
        with self.assertRaisesRegex(ConfigError, "workspace_bytes: is missing beside a workspace that is an address"):
            kernel.launch(**tensors, workspace=workspace.address)
        addresses = {name: tensor.address for name, tensor in tensors.items()}
        for rows_given in (2**31, 2**32 + 5, -1):  # the last but one would be 5 rows to a struct of 32 bits
            with self.assertRaisesRegex(ConfigError, f"m: {rows_given} rows are more than 31 bits hold, or negative"):
                kernel.launch(**addresses, m=rows_given)
        kernel.launch(**tensors, workspace=workspace)
        want = [sum(x * y for x, y in zip(a[i * k:(i + 1) * k], b[j * k:(j + 1) * k])) for i in range(rows) for j in range(n)]
        self.assertEqual(self.values(tensors["d"], "f"), want)
        self.assertEqual(engine.take_hazards(), [])
        engine.close()

    def test_quantises_rows(self):
        kernel = self.engine.prepare_quantize("f32", "mxfp8")
        rows, k = 2, 64
        x = self.engine.empty((rows, k), "f32")
        x.write(struct.pack(f"{rows * k}f", *[1.0] * k, *[0.0] * k))
        elements, scales = (self.engine.empty((count,), "u8") for count in (rows * k, kernel.scale_bytes(rows, k)))
        self.assertEqual(scales.bytes, 512)
        kernel.launch(x=x, elements=elements, scales=scales)
        # 1 is 256 times 2^-8, whose byte is 127 - 8, and 256 is e4m3's 0x78; a row of zeros has scale byte 0.
        self.assertEqual(elements.read(), b"\x78" * k + b"\0" * k)
        want = bytearray(512)
        want[0:2] = bytes([119, 119])  # row 0: two scales of 32 elements, of the four in a row of the atom
        self.assertEqual(scales.read(), bytes(want))
        kernel.launch(x=x.address, elements=elements.address, scales=scales.address, rows=rows, k=k, tensor_scale=2.0)
        self.assertEqual(scales.read()[:2], bytes([118, 118]))
        self.assertEqual(kernel.info()["state"], "ready")
        class Expanded:  # a row that stands for two
            def _kernelwright_view(self):
                return _tensors.View(x.address, (2, 64), (0, 1), "bf16", "engine", 0)
        expanded = Expanded()
        for words, tensors in (("x: is f32, and the kernel reads bf16", dict(x=x)), ("k: is missing", dict(x=x.address, rows=2)),
                               ("elements: has 128 bytes", dict(x=self.engine.empty((4, 64), "bf16"))),
                               ("rows: -1 is more than 31 bits hold, or negative", dict(x=x.address, rows=-1, k=64)),
                               ("tensor_scale: 0.0 does not divide", dict(x=x, tensor_scale=0.0)),
                               ("x: its rows have stride 0", dict(x=expanded))):
            with self.assertRaisesRegex(ConfigError, words):
                self.engine.prepare_quantize("bf16", "mxfp8").launch(**{"elements": elements, "scales": scales} | tensors)
        with self.assertRaisesRegex(ConfigError, "/tensors/k: "):
            kernel.launch(x=x.address, elements=elements.address, scales=scales.address, rows=1, k=33)
        with self.assertRaisesRegex(ConfigError, "k: 4294967360 is more than 31 bits hold"):
            kernel.scale_bytes(rows, 2**32 + 64)
        with self.assertRaisesRegex(ConfigError, '/to: "fp4" is not one of'):
            self.engine.prepare_quantize("f32", "fp4")

    def test_a_launch_is_bound_once_and_runs_again(self):
        tensors, want, _, size = self.operands()
        launch = self.kernel.bind(**tensors)
        for _ in range(2):
            tensors["o"].write(b"\xff\x7f" * (5 * 2 * HEAD))
            launch()
            self.assert_near(self.values(tensors["o"]), want, size, "o")

    def test_a_budget_of_sms_changes_no_bit(self):
        tensors, *_ = self.operands()
        self.kernel.launch(**tensors)
        whole = tensors["o"].read()
        tensors["o"].write(b"\xff\x7f" * (5 * 2 * HEAD))
        self.kernel.launch(**tensors, sm_budget=1)
        self.assertEqual(tensors["o"].read(), whole)
        with self.assertRaisesRegex(ConfigError, "/tensors/sm_budget: -1 is negative"):
            self.kernel.launch(**tensors, sm_budget=-1)

    def test_a_launch_that_may_start_early_changes_no_bit(self):
        tensors, *_ = self.operands()
        self.kernel.launch(**tensors)
        whole = tensors["o"].read()
        for pdl in (True, False):
            tensors["o"].write(b"\xff\x7f" * (5 * 2 * HEAD))
            self.kernel.launch(**tensors, pdl=pdl)
            self.assertEqual(tensors["o"].read(), whole)

    def test_says_which_tensor_does_not_fit_and_what_would(self):
        tensors, *_ = self.operands()
        empty = self.engine.empty

        class OfAGpu:
            __cuda_array_interface__ = {"data": (4096, False), "shape": (1, 5, 2, HEAD), "typestr": "<f2", "version": 3}
        for change, message in [
                ({"q": empty((1, 5, 2, HEAD), "bf16")}, "q: is bf16, and the problem has f16"),
                ({"q": empty((1, 5, 3, HEAD), "f16")}, r"q: has shape \[1, 5, 3, 64\], and the problem's is \[batch, q_len, 2, 64\]"),
                ({"v": empty((1, 8, 1, HEAD), "f16")}, "v: makes kv_len 8, and it is 9 by the arguments before it"),
                ({"k": empty((2, 9, 1, HEAD), "f16")}, "k: makes batch 2, and it is 1"),
                ({"lse": empty((1, 5, 2), "f32")}, r"lse: has shape \[1, 5, 2\], and the problem's is \[1, 2, 5\]"),
                ({"q": OfAGpu()}, "q: lies in cuda; give an Array of the engine"),
                ({"q": "a string"}, "q: a str is no tensor here"),
                ({"kv_lengths": empty((2,), "i32")}, "kv_lengths: makes batch 2"),
                ({"kv_lengths": empty((1, 1), "i32")}, r"kv_lengths: has shape \[1, 1\]"),
                ({"kv_starts": empty((2,), "i32")}, "kv_starts: makes batch 2"),
                ({"kv_starts": empty((1,), "i32")}, "/kv_starts: is given, and the problem does not have"),
                ({"sinks": empty((2,), "f32")}, "/sinks: is given, and the problem does not have"),
                ({"batch": 3}, "q: makes batch 1, and it is 3"),
                ({name: array.address for name, array in tensors.items()}, "batch: is missing")]:
            with self.subTest(message), self.assertRaisesRegex(ConfigError, message):
                self.kernel.launch(**tensors | change)
        with self.assertRaisesRegex(ConfigError, "stream: a str is no stream"):
            self.kernel.launch(**tensors, stream="default")

    def test_scales_of_another_granularity_are_refused(self):
        problem = {"dtype": {"q": "f16", "kv": "e4m3", "out": "f16"}, "head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2},
                   "q_layout": "padded", "kv_layout": {"kind": "padded"}}
        empty = self.engine.empty
        given = {"q": empty((1, 5, 4, 64), "f16"), "o": empty((1, 5, 4, 64), "f16")}
        given |= {name: empty((1, 9, 2, 64), "e4m3") for name in ("k", "v")}
        for scales, right in (("per_tensor", 1), ("per_head", 2)):
            kernel = self.engine.prepare({"kind": "attention", "problem": problem | {"scales": scales}}, background=True)
            wrong = 3 - right
            for name, other in (("k_scale", "v_scale"), ("v_scale", "k_scale")):
                with self.assertRaises(ConfigError) as caught:
                    kernel.bind(**given, **{name: empty((wrong,), "f32"), other: empty((right,), "f32")})
                self.assertEqual(str(caught.exception),
                                 f"{name}: has shape [{wrong}] and strides [1]; it is [{right}], contiguous")
            kernel.bind(**given, k_scale=empty((right,), "f32"), v_scale=empty((right,), "f32"))
            kernel.wait()

    def test_shapes_that_no_memory_has_are_named(self):
        for shape in ((-1, 3), (3, -1), (2, 1.5)):
            with self.assertRaisesRegex(ConfigError, rf"shape: \[{shape[0]}, {shape[1]}\] has an extent that is no whole number"):
                self.engine.empty(shape, "f32")
        with self.assertRaisesRegex(ConfigError, r"shape: \[4294967296, 1073741825\] takes 18446744090889420800 bytes of f32"):
            self.engine.empty((1 << 32, (1 << 30) + 1), "f32")  # 2^34 bytes, modulo 2^64
        self.assertEqual(self.engine.empty((0, 3), "f32").bytes, 0)
        tensors, *_ = self.operands()
        for name, number in (("q_len", (1 << 32) + 5), ("batch", -(1 << 31) - 1), ("q_tokens", 1 << 63), ("sm_budget", 1 << 31)):
            given = {operand: tensors[operand].address for operand in tensors} | dict(batch=1, q_len=5, kv_len=9)
            with self.assertRaisesRegex(ConfigError, f"{name}: {number} is outside"):
                self.kernel.launch(**given | {name: number}) if name != "q_tokens" else _structs.AttentionTensors(q_tokens=number)

    def test_statuses_are_exceptions_with_the_library_s_words(self):
        with self.assertRaisesRegex(ConfigError, "/problem/head_dim/qk") as caught:
            self.engine.prepare({"problem": problem() | {"head_dim": {"qk": 63, "v": HEAD}}})
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaisesRegex(ConfigError, "maks"):
            self.engine.prepare({"problem": problem(maks={})})
        with self.assertRaisesRegex(ConfigError, 'on_miss: "later" is not one of block, fallback, error'):
            self.engine.prepare({"problem": problem()}, on_miss="later")
        sealed = kernelwright.Engine("emulator", memory_only_cache=True)
        sealed.seal()
        with self.assertRaises(kernelwright.NotReadyError):
            sealed.prepare({"problem": problem()})
        sealed.close()
        with self.assertRaisesRegex(ConfigError, "engine: is closed"):
            sealed.prepare({"problem": problem()})

    def test_the_kernel_tells_its_state_and_the_engine_its_events(self):
        self.kernel.wait()
        self.assertEqual((self.kernel.state, self.kernel.serves_fallback), ("ready", False))
        self.assertRegex(self.kernel.key, "^[0-9a-f]{64}$")
        self.assertGreater(self.engine.counters()["ready"], 0)
        self.assertTrue(self.engine.wait_until_ready())
        self.assertTrue({event["kind"] for event in self.events} & {"compile", "cache hit", "disk hit", "cache miss"}, self.events)

    def test_certificates_of_a_remote_cache_reach_it(self):
        for name in ("remote_ca", "remote_certificate", "remote_certificate_key"):
            told = []
            with kernelwright.Engine("emulator", remote="https://me:sesame@127.0.0.1:1/kernels", on_event=told.append,
                                     memory_only_cache=True, **{name: pathlib.Path("/nonexistent/file.pem")}):
                pass
            details = [event["detail"] for event in told if event["kind"] == "cache degraded"]
            self.assertIn("/nonexistent/file.pem", "".join(details), name)
            self.assertNotIn("sesame", "".join(details))

    def test_operators_are_told_of_kernels_latencies_and_metrics(self):
        told = []
        with kernelwright.Engine("emulator", event_level="info", launch_sampling=1, on_event=told.append) as engine:
            self.assertTrue(engine.ready)
            self.assertFalse(engine.sealed)
            kernel = engine.prepare({"problem": problem()})
            engine.seal()
            self.assertTrue(engine.ready and engine.sealed)
            row, = engine.kernels()
            self.assertEqual((row["kind"], row["state"], row["key"], row["error"], row["serving"], row["fallback"]),
                             ("attention", "ready", kernel.key, "", True, False))
            self.assertEqual(row["registers"], kernel.info()["registers"])
            self.assertIn(row["source"], ("disk", "compiled"))
            self.assertIn(row["family"], ("portable", "hopper"))
            prepared = engine.latencies()["prepare"]
            self.assertEqual((prepared["count"], sum(prepared["buckets"])), (1, 1))
            self.assertEqual(len(prepared["buckets"]), len(prepared["bounds_seconds"]) + 1)
            self.assertIn('kernelwright_kernels{state="ready"} 1\n', engine.metrics())
            self.assertIn("\nkernelwright_sealed 1\n", engine.metrics())
        self.assertTrue(all(event["level"] in ("info", "warning", "error") for event in told), told)
        with self.assertRaisesRegex(ConfigError, 'event_level: "loud" is not one of debug, info, warning, error'):
            kernelwright.Engine("emulator", event_level="loud")

    def test_configs_come_as_dicts_text_and_paths(self):
        path = HEADER.parents[2] / "configs" / "problems" / "causal-d64.json"
        keys = {self.engine.prepare(config).key for config in (path, str(path), path.read_text())}
        self.assertEqual(len(keys), 1)

    def test_numpy_arrays_go_in_and_out(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        wanted = {"bf16": numpy.array([1 / 3, -2.5, math.inf, math.nan]), "f16": numpy.array([1.5], numpy.float16),
                  "i32": numpy.array([[7, -1]], numpy.int32)}
        for dtype, values in wanted.items():
            found = self.engine.from_numpy(values, dtype).numpy()
            self.assertEqual(found.shape, values.shape)
            numpy.testing.assert_allclose(found, values, rtol=2**-8)
        view = _tensors.read("q", numpy.zeros((4, 6), numpy.float16)[:, ::2])
        self.assertEqual((view.shape, view.strides, view.dtype, view.where), ((4, 3), (6, 2), "f16", "host"))
        tensors, *_ = self.operands()
        with self.assertRaisesRegex(ConfigError, "q: lies in memory of the host; give an Array of the engine"):
            self.kernel.launch(**tensors | {"q": numpy.zeros((1, 5, 2, HEAD), numpy.float16)})


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", _tensors._DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Exporter:
    """What a framework with DLPack looks like from outside."""

    def __init__(self, shape, strides, code, bits, device=(2, 1), offset=0):
        self.sizes = (ctypes.c_int64 * len(shape))(*shape)
        self.steps = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self.device, self.asked = device, None
        self.managed = Managed(tensor=_tensors._DLTensor(
            data=0x1000, device_type=device[0], device_id=device[1], ndim=len(shape), code=code, bits=bits, lanes=1,
            shape=self.sizes, strides=self.steps, byte_offset=offset))

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.asked = stream
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), b"dltensor", None)


class Tensors(unittest.TestCase):
    def test_dlpack_gives_address_shape_strides_dtype_and_device(self):
        given = Exporter((2, 3), (8, 1), 4, 16, offset=32)
        view = _tensors.read("q", given)
        self.assertEqual((view.address, view.shape, view.strides, view.dtype, view.where, view.device),
                         (0x1020, (2, 3), (8, 1), "bf16", "cuda", 1))
        self.assertEqual(given.asked, -1)  # the producer must not wait: a capture may be under way
        self.assertEqual(_tensors.read("q", Exporter((2, 3), None, 2, 16)).strides, (3, 1))
        self.assertEqual(_tensors.read("q", Exporter((1,), None, 5, 64)).dtype, "DLPack type (code 5, 64 bits, 1 lanes)")

    def test_a_producer_that_refuses_is_named(self):
        class Refuses(Exporter):
            def __dlpack__(self, stream=None):
                raise BufferError("it requires grad")
        with self.assertRaisesRegex(ConfigError, "k: its __dlpack__ refuses: it requires grad"):
            _tensors.read("k", Refuses((1,), None, 2, 16))

    def test_the_cuda_array_interface_counts_strides_in_bytes(self):
        class Given:
            __cuda_array_interface__ = {"data": (256, True), "shape": (4, 8), "typestr": "<f4", "strides": (64, 4), "version": 3}
        view = _tensors.read("sinks", Given())
        self.assertEqual((view.address, view.strides, view.dtype, view.where), (256, (16, 1), "f32", "cuda"))

    def test_streams_are_addresses_or_know_theirs(self):
        def having(**attributes):
            return type("Stream", (), attributes)()
        for stream, wanted in ((None, None), (7, 7), (having(cuda_stream=8), 8), (having(ptr=9), 9),
                               (having(__cuda_stream__=lambda self: (0, 10)), 10)):
            self.assertEqual(_tensors.stream_address(stream), wanted)


class TheLibrary(unittest.TestCase):
    def test_structs_are_those_of_the_header(self):
        text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
        bodies = dict((name, body) for body, name in re.findall(r"typedef struct \w+ \{([^}]*)\} kernelwright_(\w+);", text))
        ours = {name: getattr(_structs, "".join(map(str.capitalize, name.split("_")))) for name in bodies}
        self.assertLessEqual({"engine_options", "strides", "attention_tensors", "gemm_tensors", "quantize_tensors",
                              "kv_write_tensors", "row_op_tensors", "route_tensors", "moe_combine_tensors",
                              "rope"}, set(ours))
        types = {"size_t": ctypes.c_size_t, "double": ctypes.c_double, "uint64_t": ctypes.c_uint64, "int32_t": ctypes.c_int32,
                 "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "float": ctypes.c_float,
                 "const char*": ctypes.c_char_p, "void*": ctypes.c_void_p, "kernelwright_strides": _structs.Strides,
                 "kernelwright_event_callback": _structs.EventCallback,
                 "const kernelwright_kv_write_tensors*": ctypes.POINTER(_structs.KvWriteTensors),
                 "const char* const*": ctypes.POINTER(ctypes.c_char_p), "const double*": ctypes.POINTER(ctypes.c_double)}
        for name, struct_type in ours.items():
            fields = []
            for declaration in filter(None, (part.strip() for part in bodies[name].split(";"))):
                kind, names, count = re.fullmatch(r"(.*?[\s*])(\w+(?:,\s*\w+)*)(?:\[(.*)\])?", declaration, re.S).groups()
                of = types[" ".join(kind.split())]
                if count:
                    of *= eval(count, {"KERNELWRIGHT_LATENCY_BOUNDS": _structs.LATENCY_BOUNDS})
                fields += [(field.strip(), of) for field in names.split(",")]
            self.assertEqual(fields, list(struct_type._fields_), f"kernelwright_{name}")

    def test_structs_refuse_fields_that_they_lack(self):
        with self.assertRaisesRegex(AttributeError, "AttentionTensors has no field sm_budgets"):
            _structs.AttentionTensors(q=1).sm_budgets = 3
        with self.assertRaisesRegex(AttributeError, "Strides has no field tokens"):
            _structs.Strides(tokens=3)
        strides = _structs.Strides(1, head=3)
        self.assertEqual((strides.batch, strides.token, strides.head), (1, 0, 3))

    def test_functions_are_in_the_header(self):
        declared = set(re.findall(r"kernelwright_(\w+)\(", HEADER.read_text()))
        self.assertLessEqual(set(_library.FUNCTIONS), declared)

    def run_python(self, code, **environment):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, **environment}, check=False)

    def test_importing_loads_no_framework_and_no_library(self):
        done = self.run_python("import sys, kernelwright; print([m for m in ('numpy', 'torch') if m in sys.modules])",
                               KERNELWRIGHT_LIBRARY="/nowhere")
        self.assertEqual(done.stdout.strip(), "[]", done.stderr)

    def test_says_where_it_looked(self):
        done = self.run_python("import kernelwright; kernelwright.version()", KERNELWRIGHT_LIBRARY="/nowhere/lib.so")
        self.assertIn("MissingError: KERNELWRIGHT_LIBRARY is /nowhere/lib.so, and there is no /nowhere/lib.so", done.stderr)
        done = self.run_python("from kernelwright import _library; _library.candidates = lambda: iter([])\n"
                               "import kernelwright; kernelwright.version()", KERNELWRIGHT_LIBRARY="")
        self.assertIn("build the target kernelwright_c, or set KERNELWRIGHT_LIBRARY", done.stderr)

    def test_kernel_origin_names_a_compiler_or_what_is_missing(self):
        empty = {"KERNELWRIGHT_NVRTC": "/nowhere", "KERNELWRIGHT_CACHE_DIR": "/nowhere/cache", "KERNELWRIGHT_REMOTE": "",
                 "KERNELWRIGHT_BUNDLES": ""}
        with unittest.mock.patch.dict(os.environ, empty), self.assertRaisesRegex(kernelwright.MissingError, "/nowhere cannot be opened"):
            kernelwright.kernel_origin()
        with unittest.mock.patch.dict(os.environ, empty | {"KERNELWRIGHT_REMOTE": "redis://127.0.0.1:1"}):
            self.assertIn("redis://127.0.0.1:1", kernelwright.kernel_origin())
        with unittest.mock.patch.dict(os.environ, empty | {"KERNELWRIGHT_NVRTC": kernelwright.load().path}):  # a whole library
            self.assertEqual(kernelwright.kernel_origin(), f"NVRTC {kernelwright.load().path}")

    def test_version_is_three_numbers(self):
        self.assertRegex(kernelwright.version(), r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
