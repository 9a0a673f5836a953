#!/usr/bin/env python3
"""Calls of handles on the emulator: the extension and Python have the same results and the same words. What the extension takes is
compared with Python's checks in fast_rules_test.py.

Needs no framework: tests/python/lent.py makes tensors with DLPack's C exchange table. Tests of the extension are skipped
where it is not built. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import ctypes
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kernelwright
from kernelwright import ConfigError, _door
from kernelwright._handles import GemmKernel
from lent import Lent, table, tables
from no_kernels import NoKernels

FAST = kernelwright.fast_calls()["fast"]
HEAD = 64


def lent_by(engine):
    """Makes Lent in the engine's memory, from values or uninitialised."""
    def make(shape, dtype="f16", values=None, code="e"):
        array = engine.empty(shape, dtype)
        if values is not None:
            array.write(struct.pack(f"{len(values)}{code}", *values))
        return Lent(array.address, shape, None, dtype, owner=array)
    return make


class OnTheEmulator(unittest.TestCase):
    """The same calls with tensors that the extension takes (Lent), and with those that Python takes (Array)."""

    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("emulator", hazards=True)
        cls.problem = {"dtype": {"q": "f16", "kv": "f16", "out": "f16"}, "head_dim": {"qk": HEAD, "v": HEAD},
                       "heads": {"q": 2, "kv": 1}, "lse": True}
        try:
            cls.kernel = cls.engine.prepare({"problem": cls.problem})
        except kernelwright.MissingError as error:
            raise unittest.SkipTest(f"no kernel can be compiled here: {error}") from error
        cls.lent = staticmethod(lent_by(cls.engine))
        Lent.on_allocate = staticmethod(cls.lent)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def operands(self, q_len=5, kv_len=9):
        draw = random.Random(3)
        return [self.lent(shape, values=[draw.gauss(0, 1) for _ in range(math.prod(shape))])
                for shape in ((1, q_len, 2, HEAD), (1, kv_len, 1, HEAD), (1, kv_len, 1, HEAD))]

    def ways(self, *lent):
        """The tensors as Lent, where the extension is here, and as Arrays. Without it no Lent can be allocated."""
        return [lent] * FAST + [tuple(tensor.owner for tensor in lent)]

    def called(self, kernel, *given, **named):
        """The result of a call, and whether the extension took it."""
        before = kernel._counts()
        result = kernel(*given, **named)
        after = kernel._counts()
        return result, after[0] > before[0]

    def test_both_ways_have_the_bits_of_launch(self):
        q, k, v = self.operands()
        want, want_lse = self.engine.empty(q.shape, "f16"), self.engine.empty((1, 2, 5), "f32")
        self.kernel.launch(q=q.owner, k=k.owner, v=v.owner, o=want, lse=want_lse)
        for tensors in self.ways(q, k, v):
            (out, lse), fast = self.called(self.kernel, *tensors)
            self.assertEqual(fast, FAST and tensors[0] is q)
            self.assertIs(type(out), type(tensors[0]))
            for found, wanted in ((out, want), (lse, want_lse)):
                self.assertEqual(getattr(found, "owner", found).read(), wanted.read())
        out, lse = self.lent(q.shape), self.lent((1, 2, 5), "f32")
        result, fast = self.called(self.kernel, q, k=k, v=v, out=out, lse=lse, stream=None)
        self.assertEqual((result, fast), ((out, lse), FAST))
        self.assertEqual((out.owner.read(), lse.owner.read()), (want.read(), want_lse.read()))
        addresses = {name: tensor.address for name, tensor in dict(q=q, k=k, v=v, lse=lse).items()}
        result, fast = self.called(self.kernel, **addresses, out=out.address, batch=1, q_len=5, kv_len=9, stream=0)
        self.assertEqual((result, fast), ((out.address, lse.address), FAST))
        self.assertEqual(self.engine.take_hazards(), [])

    def test_a_call_that_is_wrong_has_the_words_of_launch(self):
        q, k, v = self.operands()
        out, lse = self.lent(q.shape), self.lent((1, 2, 5), "f32")
        good = dict(q=q, k=k, v=v, out=out, lse=lse)
        wrong = [{"q": self.lent(q.shape, "bf16")}, {"q": self.lent((1, 5, 3, HEAD))}, {"v": self.lent((1, 8, 1, HEAD))},
                 {"k": self.lent((2, 9, 1, HEAD))}, {"lse": self.lent((1, 5, 2), "f32")}, {"q": "a string"},
                 {"kv_lengths": self.lent((2,), "i32")}, {"kv_starts": self.lent((1,), "i32")}, {"sinks": self.lent((2,), "f32")},
                 {"batch": 3}, {"scale": math.nan}, {"sm_budget": -1}, {"sm_budget": 1 << 31},
                 {"q": Lent(q.address, q.shape, None, "f16", (2, 0))}, {"out": Lent(out.address + 2, out.shape)}, {"q": None}, {"window": (1, 2)}, {"stream": "default"}]
        for change in wrong:
            given = good | change
            with self.subTest(change), self.assertRaises(ConfigError) as called:
                self.kernel(**given)
            given["o"] = given.pop("out")
            with self.assertRaises(ConfigError) as launched:
                self.kernel.launch(**given)
            self.assertEqual(str(called.exception), str(launched.exception))
        for arguments, named, words in (((q, k), {}, "v: is missing"), ((q, k, v, v), {}, "takes 3 arguments by position"),
                                        ((q, k, v), {"q": q}, "q: is given by position and by name"),
                                        ((q, k, v), {"sink": q, "out": out, "lse": lse}, "unexpected keyword argument 'sink'")):
            with self.assertRaisesRegex(TypeError, words):
                self.kernel(*arguments, **named)
        with self.assertRaisesRegex(ConfigError, "out: is missing; beside an address it cannot be allocated"):
            self.kernel(q.address, k, v)

    def test_a_call_has_the_first_keys_of_its_sequences(self):
        kernel = self.engine.prepare({"problem": self.problem | {"lse": False, "kv_starts": True}})
        q, k, v = self.operands()
        starts = self.lent((1,), "i32", [4], "i")
        want, whole = self.engine.empty(q.shape, "f16"), self.engine.empty(q.shape, "f16")
        kernel.launch(q=q.owner, k=k.owner, v=v.owner, o=want, kv_starts=starts.owner)
        kernel.launch(q=q.owner, k=k.owner, v=v.owner, o=whole)
        self.assertNotEqual(want.read(), whole.read())
        for *tensors, first in self.ways(q, k, v, starts):
            out, fast = self.called(kernel, *tensors, kv_starts=first)
            self.assertEqual(fast, FAST and first is starts)
            self.assertEqual(getattr(out, "owner", out).read(), want.read())
        with self.assertRaisesRegex(ConfigError, "kv_starts: makes batch 2"):
            kernel(q, k, v, out=self.lent(q.shape), kv_starts=self.lent((2,), "i32", [4, 4], "i"))
        self.assertEqual(self.engine.take_hazards(), [])

    def test_a_workspace_is_allocated_once_and_only_grows(self):
        kernel = self.engine.prepare({"problem": self.problem | {"lse": False, "max_q_len": 1}, "schedule": {"splits": 2}})
        q, k, v = self.operands(1, 19)
        need = kernel.workspace_bytes(q=q, k=k, v=v, o=q)
        self.assertGreater(need, 0)
        want = self.engine.empty(q.shape, "f16")
        kernel.launch(q=q, k=k, v=v, o=want, workspace=self.engine.empty((need,), "u8"))
        held = self.engine._workspaces._held
        held.clear()
        for tensors in 2 * self.ways(q, k, v):
            out = kernel(*tensors)
            self.assertEqual(getattr(out, "owner", out).read(), want.read())
            (key, (address, size)), = held.items()
            self.assertEqual((key, size), ((0, 0), (need + 255) // 256 * 256))
        q, k, v = (self.lent((2, *tensor.shape[1:]), values=[0.5] * 2 * math.prod(tensor.shape)) for tensor in (q, k, v))
        out = self.lent(q.shape)
        kernel(q, k, v, out=out)
        self.assertEqual(out.owner.read(), struct.pack("e", 0.5) * math.prod(q.shape))
        self.assertGreater(held[0, 0][1], size)
        given = self.lent((4 * need,), "u8")
        again = self.lent(q.shape)
        self.assertEqual(kernel(q, k, v, out=again, workspace=given).owner.read(), out.owner.read())

    def workspaces(self):
        """Those of an engine, by a torch that has no GPU: its stream 9 captures. And the allocations: (by a capture?, bytes)."""
        made = []

        class Memory:
            def __init__(self, captured, size):
                self.size = size
                made.append((captured, size))

            def data_ptr(self):
                return 4096 * self.size
        fake = types.SimpleNamespace(torch_of=lambda _like: True, is_capturing=lambda stream: stream == 9,
                                     lasting=lambda _name, _like, size: Memory(False, size),
                                     of_capture=lambda _name, _like, size: Memory(True, size))
        patch = unittest.mock.patch.object(_door, "frameworks", fake)
        patch.start()
        self.addCleanup(patch.stop)
        return _door.Workspaces(None), made

    def test_captures_of_a_server_allocate_what_they_need(self):
        spaces, made = self.workspaces()
        spaces.of_server = True
        spaces.get(None, 0, 1, 1 << 20)  # the largest step, which no graph has
        self.assertEqual(made, [(False, 1 << 20)])  # and no spare one
        first = spaces.get(None, 0, 9, 512)
        self.assertEqual(first[1], 512)
        self.assertEqual(spaces.get(None, 0, 9, 500), first)
        self.assertEqual(spaces.get(None, 0, 9, 1024)[1], 1024)
        self.assertEqual(made[1:], [(True, 512), (True, 1024)])
        self.assertEqual(len(spaces._kept), 3)  # a graph may use the smaller one
        spaces.reserve(None, 1, 2048)
        self.assertEqual(spaces.get(None, 1, 9, 512)[1], 2048)  # what is reserved is taken over
        self.assertEqual(made[3:], [(False, 2048)])

    def test_a_capture_takes_the_spare_workspace_or_is_refused(self):
        spaces, _ = self.workspaces()
        with self.assertRaisesRegex(ConfigError, "workspace: the launch needs 512 bytes, and none is allocated while the stream"):
            spaces.get(None, 0, 9, 512)
        first = spaces.get(None, 0, 1, 512)
        self.assertEqual(spaces.get(None, 0, 1, 500), first)
        self.assertEqual(len(spaces._kept), 2)  # that of the stream, and the spare
        self.assertEqual(spaces.get(None, 0, 9, 512)[1], 512)
        self.assertEqual(len(spaces._kept), 2)
        with self.assertRaisesRegex(ConfigError, "workspace: the launch needs 1024 bytes"):
            spaces.get(None, 0, 9, 1024)
        self.assertEqual(spaces.get(None, 0, 1, 513)[1], 768)
        # What ran once can be captured, also where the stream's own was large enough already.
        self.assertEqual(spaces.get(None, 0, 1, 767)[1], 768)
        self.assertEqual(spaces.get(None, 0, 9, 767)[1], 768)
        self.assertEqual(spaces.get(None, 0, 1, 768)[1], 768)
        self.assertEqual(spaces.get(None, 0, 9, 768)[1], 768)
        # What is reserved can be captured without a call ahead.
        spaces.reserve(None, 0, 2048)
        held = len(spaces._kept)
        spaces.reserve(None, 0, 1024)
        self.assertEqual(spaces.get(None, 0, 9, 2000)[1], 2048)
        self.assertEqual(len(spaces._kept), held)

    def test_only_a_stream_that_captures_is_taken_for_one(self):
        """(the driver's status, the state that it tells, whether that is a capture)."""
        class Driver:
            def cuStreamIsCapturing(self, _stream, state):  # noqa: N802, the driver's name
                state._obj.value = Driver.state
                return Driver.status
        real, _door.frameworks.ctypes.CDLL = _door.frameworks.ctypes.CDLL, lambda _: Driver()
        self.addCleanup(setattr, _door.frameworks.ctypes, "CDLL", real)
        for Driver.status, Driver.state, want in ((0, 0, False), (0, 1, True), (0, 2, True), (906, 0, True), (901, 0, True),
                                                  (3, 0, False), (201, 0, False), (400, 0, False)):
            self.assertIs(_door.frameworks.is_capturing(0), want, (Driver.status, Driver.state))

    def test_errors_of_the_library_and_a_closed_engine(self):
        engine = kernelwright.Engine("emulator")
        kernel = engine.prepare({"problem": self.problem | {"lse": False}})
        q, k, v = self.operands()
        lent = lent_by(engine)
        q, k, v = (lent(tensor.shape, values=[1.0] * math.prod(tensor.shape)) for tensor in (q, k, v))
        out = lent(q.shape)
        kernel(q, k, v, out=out)
        engine.close()
        with self.assertRaisesRegex(ConfigError, "engine: is closed"):
            kernel(q, k, v, out=out)

    def test_gemm_and_quantise(self):
        kernel = self.engine.prepare({"kind": "gemm", "problem": {"n": 32, "k": 64, "dtype": {"a": "f16", "b": "f16", "d": "f32"},
                                                                    "epilogue": "alpha * acc"}})
        a, b = self.lent((3, 64), values=[1.0] * 192), self.lent((32, 64), values=[0.5] * 2048)
        for tensors in self.ways(a, b):
            d, fast = self.called(kernel, *tensors, alpha=2.0)
            self.assertEqual(fast, FAST and tensors[0] is a)
            self.assertEqual(getattr(d, "owner", d).read(), struct.pack("f", 64.0) * 96)
        out = self.lent((3, 32), "f32")
        self.assertIs(kernel(a, b, out=out), out)
        with self.assertRaisesRegex(ConfigError, r"b: has shape \[3, 64\], and the problem's is \[32, 64\]"):
            kernel(a, a, out=out)

        for to, bits in (("mxfp8", 8), ("mxfp4", 4)):
            kernel = self.engine.prepare_quantize("f16", to)
            want = self.engine.empty((3, 8 * bits), "u8"), self.engine.empty((kernel.scale_bytes(3, 64),), "u8")
            kernel.launch(x=a.owner, elements=want[0], scales=want[1], tensor_scale=0.5)
            for (x,) in self.ways(a):
                found, fast = self.called(kernel, x, tensor_scale=0.5)
                self.assertEqual(fast, FAST and x is a)
                for tensor, wanted in zip(found, want):
                    self.assertEqual((tensor.shape, tensor.dtype), (wanted.shape, "u8"))
                    self.assertEqual(getattr(tensor, "owner", tensor).read(), wanted.read())
            for change in ({"tensor_scale": 0.0}, {"elements": self.lent((3, 2), "u8")}, {"x": self.lent((3, 64), "bf16")},
                           {"rows": 4}):
                given = dict(x=a, elements=want[0], scales=want[1]) | change
                with self.assertRaises(ConfigError) as called:
                    kernel(**given)
                with self.assertRaises(ConfigError) as launched:
                    kernel.launch(**given)
                self.assertEqual(str(called.exception), str(launched.exception))

    @unittest.skipUnless(FAST, "the extension is not here")
    def test_a_call_leaves_nothing_allocated(self):
        q, k, v = self.operands()
        out, lse = self.lent(q.shape), self.lent((1, 2, 5), "f32")
        for _ in range(3):
            self.kernel(q, k, v, out=out, lse=lse)
        before, fast = sys.getallocatedblocks(), self.kernel._counts()[0]
        for _ in range(50):
            self.kernel(q, k, v, out=out, lse=lse)
        self.assertEqual(self.kernel._counts()[0], fast + 50)
        self.assertLess(sys.getallocatedblocks() - before, 25)  # less than one in two calls


@unittest.skipUnless(FAST, "the extension is not here")
class Frameworks(unittest.TestCase):
    """What a type of tensors may have or lack."""

    def kernel(self):
        return GemmKernel(NoKernels(), ctypes.c_void_p(), {"n": 8, "k": 8, "dtype": {"a": "f16", "b": "f16", "d": "f16"}}, 0)

    def built(self, kind):
        kernel, tensor = self.kernel(), kind(4096, (8, 8))
        return kernel._build(tensor, Lent(4096, (8, 8)), out=Lent(4096, (8, 8))) is not None

    def test_tables_of_other_versions_and_without_functions_are_left_alone(self):
        def kind(**attributes):
            return type("Other", (Lent,), attributes)
        self.assertTrue(self.built(Lent))
        self.assertTrue(self.built(kind()))
        for api in (table(major=2), table(borrow=None), 5, None):
            self.assertFalse(self.built(kind(__dlpack_c_exchange_api__=api)))
        other = kind(__dlpack_c_exchange_api__=table())  # two frameworks in a call: whose stream would it be?
        self.assertFalse(self.built(other))

    def test_an_older_table_behind_a_newer_one_serves(self):
        newer = table(major=2, previous=ctypes.addressof(tables[0]))
        self.assertTrue(self.built(type("Newer", (Lent,), {"__dlpack_c_exchange_api__": newer})))

    def test_a_tensor_that_requires_grad_is_left_to_python(self):
        for value, taken in ((False, True), (True, False), (None, False)):
            self.assertEqual(self.built(type("Graded", (Lent,), {"requires_grad": value})), taken)

    def test_many_types_come_and_go(self):
        for i in range(30):
            self.assertTrue(self.built(type(f"Type{i}", (Lent,), {})))
        self.assertTrue(self.built(Lent))


class WithoutTheExtension(unittest.TestCase):
    def test_ctypes_serves(self):
        if os.environ.get("KERNELWRIGHT_FAST") == "0":
            self.assertEqual(kernelwright.fast_calls(), {"fast": False, "why": "KERNELWRIGHT_FAST is 0"})
            return
        done = subprocess.run([sys.executable, "-B", __file__, "OnTheEmulator", "WithoutTheExtension"], capture_output=True,
                              text=True, env={**os.environ, "KERNELWRIGHT_FAST": "0"}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
