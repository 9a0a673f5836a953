#!/usr/bin/env python3
"""The operators of torch in C++, without a GPU: the implementations of CUDA are registered for the CPU in a namespace of the
test, and take the emulator's memory as tensors of the CPU. What they miss, the Python implementation takes with copies.

Run by hand like torch_test.py. Needs torch 2.10 or newer with CUDA's libraries, but no GPU.
"""
import ctypes
import gc
import pathlib
import resource
import sys
import threading
import traceback
import unittest
import unittest.mock
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch
from lent import EXTENSION, Lent

import kernelwright
import kernelwright.torch
from kernelwright import ConfigError, _stable
from kernelwright._handles import GemmKernel, Kernel
from kernelwright._frameworks import TORCH_DTYPES

NAMES = {getattr(torch, attribute): name for name, attribute in TORCH_DTYPES.items()}
HEADS = {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2}, "dtype": {"q": "f16", "kv": "f16", "out": "f16"}}
FAST = _stable.served()["stable"]
RESIDENT = pathlib.Path("/proc/self/statm")
kept = []  # arrays of the engine whose memory is lent to tensors


def tensor_of(array, shape, dtype):
    """A tensor of the CPU on an Array's memory."""
    kept.append(array)
    return torch.frombuffer((ctypes.c_char * array.bytes).from_address(array.address), dtype=dtype).view(shape)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, *2 * [ctypes.POINTER(ctypes.c_int64)], *3 * [ctypes.c_int32],
                  ctypes.POINTER(ctypes.c_void_p))
def empty(dim, sizes, strides, dtype, device_type, device, out):
    """aoti_torch_empty_strided() in the engine's memory."""
    shape, steps = sizes[:dim], strides[:dim]
    library = _stable._library()
    item = {library.aoti_torch_dtype_uint8(): 1, library.aoti_torch_dtype_float32(): 4, library.aoti_torch_dtype_int32(): 4}.get(dtype, 2)
    array = empty.engine.empty((item * (1 + sum((n - 1) * step for n, step in zip(shape, steps))),), "u8")
    array.write(b"\xff" * array.bytes)  # poison: NaN
    kept.append(array)
    blob = _stable._library().aoti_torch_create_tensor_from_blob
    return blob(ctypes.c_void_p(array.address), ctypes.c_int64(dim), sizes, strides, ctypes.c_int64(0), dtype, device_type, device, out)


def define(namespace):
    library = torch.library.Library(namespace, "DEF")
    backend = _stable.Backend("CPU", _stable._library().aoti_torch_device_type_cpu(), EXTENSION, 0,
                              ctypes.cast(empty, ctypes.c_void_p).value)
    for name, schema in kernelwright.torch.SCHEMAS.items():
        library.define(schema, tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag))
        kind = kernelwright.torch.KINDS[name.partition(".")[0]]
        in_python = kernelwright.torch._on_cpu(name, kind)
        if name in kernelwright.torch.IN_PYTHON:
            library.impl(name, in_python, "CPU")
        else:
            kernelwright.torch._in_c(library, namespace, name, kind, in_python, backend)
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{namespace}::{name}", kernelwright.torch._fake(name, kind), lib=library)
    for operator in kernelwright.torch.KINDS:
        _stable.raise_kept_errors(getattr(getattr(torch.ops, namespace), operator))
    return library


if FAST:
    library = define("kernelwright_test")
OPS = torch.ops.kernelwright_test


@unittest.skipUnless(FAST, _stable.served()["why"])
class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = empty.engine = kernelwright.Engine("emulator", hazards=True)
        cls.causal = cls.engine.prepare({"problem": {**HEADS, "mask": {"kind": "causal"}, "lse": True}})
        cls.plain = cls.engine.prepare({"problem": HEADS})
        cls.gemm = cls.engine.prepare({"kind": "gemm", "problem": {"n": 64, "k": 128, "epilogue": "alpha * acc",
                                                                   "dtype": {"a": "f16", "b": "f16", "d": "f16"}}})
        cls.quantize = cls.engine.prepare_quantize("f16", "mxfp8")

    @classmethod
    def tearDownClass(cls):
        torch._dynamo.reset()
        cls.engine.close()

    def setUp(self):
        self.random = torch.Generator().manual_seed(5)
        self.q, self.k, self.v = self.randn(2, 3, 4, 64), self.randn(2, 9, 2, 64), self.randn(2, 9, 2, 64)
        self.out, self.lse = self.new(2, 3, 4, 64), self.new(2, 4, 3, dtype=torch.float32)
        self.handle = kernelwright.torch.handle(self.causal)
        # A call of the handle, which a miss on the GPU is: it allocates the workspaces that the operators then have.
        Lent.on_allocate = staticmethod(lambda shape, dtype: self.lent(self.new(*shape, dtype=torch.uint8)))
        for kernel in (self.causal, self.plain):
            lse = {"lse": self.lent(self.new(2, 4, 3, dtype=torch.float32))} if kernel is self.causal else {}
            kernel(*map(self.lent, (self.q, self.k, self.v)), out=self.lent(self.new(2, 3, 4, 64)), **lse)

    def tearDown(self):
        self.assertEqual(self.engine.take_hazards(), [])

    def new(self, *shape, dtype=torch.float16):
        """Poisoned, in the engine's memory."""
        array = self.engine.empty((max(torch.Size(shape).numel() * dtype.itemsize, 1),), "u8")
        array.write(b"\xff" * array.bytes)
        return tensor_of(array, shape, dtype)

    def randn(self, *shape):
        return self.new(*shape).copy_(torch.randn(*shape, generator=self.random).half())

    def strided(self, tensor):
        """The same values with other strides, in the engine's memory."""
        wide = self.new(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
        return wide[..., :tensor.shape[-1]].copy_(tensor)

    def lent(self, value):
        """The argument of an operator as one of a handle's call."""
        if not isinstance(value, torch.Tensor):
            return value
        return Lent(value.data_ptr(), value.shape, value.stride(), NAMES.get(value.dtype, "f64"), owner=value)

    def counted(self, kernel, call, *arguments, **named):
        """The result, and how many calls C++ took, and Python."""
        before = kernel._counts()
        result = call(*arguments, **named)
        after = kernel._counts()
        return result, (after[0] - before[0], after[1] - before[1])

    def by_c(self, kernel, call, *arguments, **named):
        result, counts = self.counted(kernel, call, *arguments, **named)
        self.assertEqual(counts, (1, 0))
        return result

    def test_results_have_the_bits_of_python(self):
        python, length = torch.ops.kernelwright, self.new(2, dtype=torch.int32).copy_(torch.tensor([9, 4]))
        q, k = self.strided(self.q), self.strided(self.k)
        for tensors, named in (((self.q, self.k, self.v), {}), ((q, k, self.v), {}),
                               ((self.q, self.k, self.v), {"kv_lengths": length, "scale": 0.5})):
            want, want_lse = python.attention.with_lse(self.handle, *tensors, **named)
            found = self.by_c(self.causal, OPS.attention.default, self.handle, *tensors, **named)
            self.assertTrue(torch.equal(found, want))
            found, lse = self.by_c(self.causal, OPS.attention.with_lse, self.handle, *tensors, **named, sm_budget=1)
            self.assertTrue(torch.equal(found, want) and torch.equal(lse, want_lse))
            for op, more in ((OPS.attention.out, {}), (OPS.attention.out_full, {"sm_budget": 1}), (OPS.attention, {"sm_budget": 0})):
                out, lse = self.strided(torch.full_like(self.q, torch.nan)), self.new(2, 4, 3, dtype=torch.float32)
                self.assertIsNone(self.by_c(self.causal, op, self.handle, *tensors, out=out, lse=lse, **named, **more))
                self.assertTrue(torch.equal(out, want) and torch.equal(lse, want_lse))
        handle = kernelwright.torch.handle(self.plain)
        found = self.by_c(self.plain, OPS.attention, handle, self.q, self.k, self.v)
        self.assertTrue(torch.equal(found, python.attention(handle, self.q, self.k, self.v)))

    def test_gemm_and_quantize_have_the_bits_of_python(self):
        python, handle, a, b = torch.ops.kernelwright, kernelwright.torch.handle(self.gemm), self.randn(5, 128), self.randn(64, 128)
        for named in ({}, {"alpha": -0.25}):
            want = python.gemm(handle, a, b, **named)
            self.assertTrue(torch.equal(self.by_c(self.gemm, OPS.gemm.default, handle, a, b, **named), want))
            d = self.new(5, 64)
            self.by_c(self.gemm, OPS.gemm.out, handle, self.strided(a), b, out=d, **named)
            self.assertTrue(torch.equal(d, want))
        handle = kernelwright.torch.handle(self.quantize)
        for named in ({}, {"tensor_scale": 0.5}):
            want = python.quantize(handle, a, **named)
            found = self.by_c(self.quantize, OPS.quantize.default, handle, a, **named)
            made = [self.new(*tensor.shape, dtype=torch.uint8) for tensor in want]
            self.by_c(self.quantize, OPS.quantize.out, handle, a, elements=made[0], scales=made[1], **named)
            for tensors in (found, made):
                self.assertTrue(all(map(torch.equal, tensors, want)))

    def test_routing_and_sums_of_experts_have_the_bits_of_python(self):
        python = torch.ops.kernelwright
        route = self.engine.prepare({"kind": "route", "problem": {"dtype": "f16", "experts": 16, "top_k": 2}})
        sums = self.engine.prepare({"kind": "moe_combine", "problem": {
            "dtype": {"in": "f16", "out": "f16"}, "width": 64, "top_k": 2, "residual": True}})
        routes, adds = map(kernelwright.torch.handle, (route, sums))
        logits, hidden = self.randn(12, 16), self.randn(12, 64)
        want = python.route.sorted(routes, logits)
        found = self.by_c(route, OPS.route.sorted, routes, logits)
        self.assertEqual([tensor.dtype for tensor in found], [torch.int32, torch.float32] + [torch.int32] * 3)
        made = [self.new(*tensor.shape, dtype=tensor.dtype) for tensor in want]
        self.by_c(route, OPS.route.out, routes, logits, **dict(zip(("ids", "weights", "starts", "source_rows", "positions"), made)))
        for tensors in (found, made):
            self.assertTrue(all(map(torch.equal, tensors, want)))
        rows = self.randn(24, 64)
        total = python.moe_combine(adds, rows, want[4], want[1], residual=hidden)
        self.assertTrue(torch.equal(self.by_c(sums, OPS.moe_combine.default, adds, rows, found[4], found[1], residual=hidden), total))
        out = self.new(12, 64)
        self.by_c(sums, OPS.moe_combine.out, adds, self.strided(rows), found[4], found[1], out=out, residual=hidden)
        self.assertTrue(torch.equal(out, total))

    def test_layers_of_experts_have_the_bits_of_python(self):
        python, route = torch.ops.kernelwright, {"experts": 4, "top_k": 2}
        problem = {"dtype": "f16", "hidden": 64, "intermediate": 16, "residual": True}
        chosen, given = (self.engine.prepare({"kind": "moe", "problem": {**problem, "route": route | more}})
                         for more in ({"renormalize": True}, {"score": "given"}))
        chooses, takes = map(kernelwright.torch.handle, (chosen, given))
        x, gate_up, down = self.randn(5, 64), self.randn(4, 32, 64), self.randn(4, 64, 16)
        logits = self.new(5, 4, dtype=torch.float32).copy_(self.randn(5, 4))
        want = python.moe(chooses, x, logits, gate_up, down, residual=x)
        # As in setUp(): calls of the handles allocate their workspaces.
        ids, weights = self.new(5, 2, dtype=torch.int32).zero_(), self.new(5, 2, dtype=torch.float32).zero_()
        for kernel, first in ((chosen, (x, logits)), (given, (x, ids, weights))):
            named = dict(zip(kernel.POSITIONAL, (*first, gate_up, down)), residual=x, out=self.new(5, 64))
            kernel(**{name: self.lent(value) for name, value in named.items()})
        self.assertTrue(torch.equal(self.by_c(chosen, OPS.moe.default, chooses, self.strided(x), logits, gate_up, down, residual=x), want))
        out = self.new(5, 64)
        self.by_c(chosen, OPS.moe.out, chooses, x, logits, gate_up, down, out=out, residual=x)
        self.assertTrue(torch.equal(out, want))
        python.moe.out(chooses, x, logits, gate_up, down, out=out, ids=ids, weights=weights, residual=x)
        self.assertTrue(torch.equal(self.by_c(given, OPS.moe.given, takes, x, ids, weights, gate_up, down, residual=x), want))
        self.by_c(given, OPS.moe.given_out, takes, x, ids, weights, gate_up, down, out=out.zero_(), residual=x)
        self.assertTrue(torch.equal(out, want))

    def test_a_workspace_comes_from_the_handle_or_from_python(self):
        split = self.engine.prepare({"problem": {**HEADS, "max_q_len": 1}, "schedule": {"splits": 2}})
        handle, q, out = kernelwright.torch.handle(split), self.q[:, :1], self.new(2, 1, 4, 64)
        want = torch.ops.kernelwright.attention(handle, q, self.k, self.v)
        result, counts = self.counted(split, OPS.attention.out, handle, q, self.k, self.v, out=out)
        self.assertEqual(counts[0], 0)  # there is no workspace yet
        self.assertTrue(torch.equal(out, want))
        split(*map(self.lent, (q, self.k, self.v)), out=self.lent(self.new(2, 1, 4, 64)))
        out.fill_(torch.nan)
        for _ in range(2):
            self.by_c(split, OPS.attention.out, handle, q, self.k, self.v, out=out)
            self.assertTrue(torch.equal(out, want))
        given = self.new(split.workspace_bytes(**dict(zip("qkv", map(self.lent, (q, self.k, self.v)))), o=self.lent(out)), dtype=torch.uint8)
        more = [self.randn(5, *tensor.shape[1:]) for tensor in (q, self.k, self.v)]
        wide, want_wide = self.new(5, 1, 4, 64), torch.ops.kernelwright.attention(handle, *more)
        result, counts = self.counted(split, OPS.attention.out, handle, *more, out=wide)
        self.assertEqual(counts[0], 0)  # five sequences need more than there is
        self.assertTrue(torch.equal(wide, want_wide))
        split(*map(self.lent, more), out=self.lent(wide))
        for tensors, result, wanted in ((more, wide, want_wide), ((q, self.k, self.v), out, want)):
            result.fill_(torch.nan)
            self.by_c(split, OPS.attention.out, handle, *tensors, out=result)
            self.assertTrue(torch.equal(result, wanted))
        out.fill_(torch.nan)
        self.by_c(split, OPS.attention.out_full, handle, q, self.k, self.v, out=out, workspace=given)
        self.assertTrue(torch.equal(out, want))
        self.assertNotEqual(given.to(torch.int).unique().tolist(), [255])  # it was written

    def test_errors_are_those_of_a_call_and_the_tensors_stay_as_they_are(self):
        good = dict(q=self.q, k=self.k, v=self.v, out=self.out, lse=self.lse)
        wrong = [{"q": self.new(2, 3, 4, 64, dtype=torch.bfloat16)}, {"q": self.new(2, 3, 3, 64)}, {"v": self.new(2, 8, 2, 64)},
                 {"k": self.new(1, 9, 2, 64)}, {"lse": self.new(2, 3, 4, dtype=torch.float32)}, {"kv_lengths": self.new(3, dtype=torch.int32)},
                 {"kv_starts": self.new(2, dtype=torch.int32)}, {"sinks": self.new(4, dtype=torch.float32)}, {"q_len": 4},
                 {"kv_lengths": self.new(2, dtype=torch.int64)}, {"scale": float("nan")}, {"sm_budget": -1}, {"sm_budget": 1 << 31},
                 {"window": [1, 2]}, {"window": [1]}, {"k": self.k[..., ::2]}]
        for change in wrong:
            given = good | change
            tensors = [given.pop(name) for name in "qkv"]
            op = OPS.attention.out_full if set(given) & {"sm_budget", "window"} else OPS.attention.out
            python = torch.ops.kernelwright.attention
            with self.subTest(change), self.assertRaises(Exception) as wanted:
                getattr(python, op._overloadname)(self.handle, *tensors, **given)
            before = [tensor._use_count() for tensor in tensors]
            with self.subTest(change), self.assertRaises(type(wanted.exception)) as called:
                op(self.handle, *tensors, **given)
            self.assertIs(type(called.exception), type(wanted.exception))
            self.assertEqual(str(called.exception), str(wanted.exception))
            with self.subTest(change), self.assertRaises(RuntimeError) as from_c:  # as a caller in C++ sees it
                op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), self.handle, *tensors, **given)
            self.assertEqual(str(from_c.exception), str(wanted.exception))
            del wanted, called, from_c
            gc.collect()
            _stable._fast.keep_error(KeyError(), b"")  # the last error of a caller in C++ is kept until the next
            self.assertEqual([tensor._use_count() for tensor in tensors], before)
        self.assertTrue(self.out.isnan().all())
        for name, arguments, words in (("attention", (99999, self.q, self.k, self.v), "handle: 99999 is not that of an attention kernel"),
                                       ("gemm", (self.handle, self.q, self.k), "is not that of a GEMM kernel"),
                                       ("attention", (kernelwright.torch.handle(self.gemm), self.randn(5, 128), self.randn(64, 128), self.new(5, 64)),
                                        "is not that of an attention kernel"),
                                       ("attention.with_lse", (kernelwright.torch.handle(self.plain), self.q, self.k, self.v), "/problem/lse: is false")):
            with self.assertRaisesRegex(ConfigError, words):
                kernelwright.torch._overload("kernelwright_test", name)(*arguments)

    def test_overloads_are_torchs_own_and_raise_in_either_way(self):
        with unittest.mock.patch.object(_stable, "_overload_type", lambda: int):
            kept.append(define("kernelwright_wrapped"))
        wrapped = torch.ops.kernelwright_wrapped
        self.assertIs(type(wrapped.attention.out), torch._ops.OpOverload)
        for op in (OPS.attention.out, wrapped.attention.out):
            self.assertIsInstance(op, torch._ops.OpOverload)
            self.assertEqual({op: 1}[op], 1)
            self.assertEqual(op.__name__, "attention.out")
            try:
                op(self.handle, self.q, self.k, self.v[:, :8], out=self.out, lse=self.lse)
                self.fail("v is too short")
            except ConfigError as error:
                self.assertEqual(str(error), "v: makes kv_len 8, and it is 9 by the arguments before it")
                raised_in = [pathlib.Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]
            self.assertIn("_arguments.py", raised_in)
            self.by_c(self.causal, op, self.handle, self.q, self.k, self.v, out=self.out, lse=self.lse)

    def test_a_call_after_an_error_is_taken_and_torchs_own_errors_stay(self):
        with self.assertRaises(ConfigError):
            OPS.attention.out(self.handle, self.q, self.k, self.v[:, :8], out=self.out)
        self.by_c(self.causal, OPS.attention.out, self.handle, self.q, self.k, self.v, out=self.out, lse=self.lse)
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "missing value for argument 'v'"):
                OPS.attention.out(self.handle, self.q, self.k, out=self.out)
            with self.assertRaises(RuntimeError):  # a caller in C++ leaves its error behind
                OPS.attention.out.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), self.handle, self.q, self.k,
                                             self.v[:, :8], out=self.out)

    def test_gradients_are_refused_with_the_remedy(self):
        want = OPS.attention(self.handle, self.q, self.k, self.v)
        words = r"q: requires grad, and kernelwright computes no gradients; call it under torch.no_grad\(\)"
        q = self.q.detach().requires_grad_()
        for op, named in ((OPS.attention, {}), (OPS.attention.out, {"out": self.out, "lse": self.lse})):
            with self.assertRaisesRegex(ConfigError, words):
                op(self.handle, q, self.k, self.v, **named)
        with self.assertRaisesRegex(ConfigError, "v: requires grad"):  # what a module computed of its parameters
            OPS.attention.out(self.handle, self.q, self.k, self.v.detach().requires_grad_() * 1, out=self.out, lse=self.lse)
        self.assertTrue(self.out.isnan().all())
        for guard in (torch.no_grad, torch.inference_mode):
            with guard():
                self.assertTrue(torch.equal(self.by_c(self.causal, OPS.attention, self.handle, q, self.k, self.v), want))

    def test_without_the_function_that_tells_gradients_python_serves_where_they_are_on(self):
        self.assertTrue(_stable._tells_gradients(_stable.address(_stable.FUNCTIONS[_stable.REQUIRES_GRAD])))
        for answer in (False, True):
            other = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda _implementation, answer=answer: answer)
            self.assertFalse(_stable._tells_gradients(ctypes.cast(other, ctypes.c_void_p).value))
        with unittest.mock.patch.object(_stable, "_tells_gradients", lambda _function: False):
            _stable._load()
        self.addCleanup(_stable._load)
        want, counts = self.counted(self.causal, OPS.attention, self.handle, self.q, self.k, self.v)
        self.assertEqual(counts[0], 0)
        with torch.no_grad():
            self.assertTrue(torch.equal(self.by_c(self.causal, OPS.attention, self.handle, self.q, self.k, self.v), want))

    def test_an_older_torch_leaves_the_operators_in_python(self):
        with unittest.mock.patch.object(_stable, "address", side_effect=AttributeError("torch_library_impl: undefined symbol")):
            fast, why = _stable._load()
        self.assertIsNone(fast)
        self.assertRegex(why, r"^torch [0-9.+a-z]+ lacks a part of the stable ABI of 2.10 with CUDA: torch_library_impl: undefined")
        self.assertEqual(kernelwright.fast_calls()["operators"], {"stable": True, "why": kernelwright.fast_calls()["why"]})

    def test_compiled_code_has_the_eager_bits(self):
        handle, a, b = kernelwright.torch.handle(self.gemm), self.randn(5, 128), self.randn(64, 128)
        d, want = self.new(5, 64), OPS.gemm(handle, a, b)

        def step(a, b, d):
            OPS.gemm.out(handle, a, b, out=d)
            return OPS.gemm(handle, a, b)
        with torch.no_grad():
            compiled = torch.compile(step, fullgraph=True)
            for _ in range(2):
                d.fill_(torch.nan)
                found, counts = self.counted(self.gemm, compiled, a, b, d)
                self.assertTrue(torch.equal(found, want) and torch.equal(d, want))
            self.assertEqual(counts, (2, 0))

    def test_opcheck(self):
        """It clones its arguments into the host's memory: the launch fails there, and Python takes the calls."""
        handle, a, b = kernelwright.torch.handle(self.gemm), self.randn(5, 128), self.randn(64, 128)
        torch.library.opcheck(OPS.gemm.default, (handle, a, b))
        torch.library.opcheck(OPS.gemm.out, (handle, a, b), dict(out=torch.zeros(5, 64).half()))
        self.assertEqual({hazard["kind"] for hazard in self.engine.take_hazards()}, {"out of bounds"})

    def test_a_released_handle_is_freed_and_refused(self):
        kernel = self.engine.prepare({"kind": "gemm", "problem": {"n": 64, "k": 128, "dtype": {"a": "f16", "b": "f16", "d": "f16"}}})
        handle, a, b, alive = kernelwright.torch.handle(kernel), self.randn(5, 128), self.randn(64, 128), weakref.ref(kernel)
        self.by_c(kernel, OPS.gemm, handle, a, b)
        del kernel
        gc.collect()
        OPS.gemm(handle, a, b)
        kernelwright.torch.release(handle)
        kernelwright.torch.release(handle)
        gc.collect()
        self.assertIsNone(alive())
        with self.assertRaisesRegex(ConfigError, f"handle: {handle} is not that of a GEMM kernel"):
            OPS.gemm(handle, a, b)

    def test_threads_call_while_others_release(self):
        a, b, failures = self.randn(5, 128), self.randn(64, 128), []
        want = OPS.gemm(kernelwright.torch.handle(self.gemm), a, b)

        def work():
            for _ in range(20):
                kernel = self.engine.prepare({"kind": "gemm", "problem": {"n": 64, "k": 128, "epilogue": "alpha * acc",
                                                                          "dtype": {"a": "f16", "b": "f16", "d": "f16"}}})
                handle = kernelwright.torch.handle(kernel)
                if not torch.equal(OPS.gemm(handle, a, b), want):
                    failures.append(handle)
                kernelwright.torch.release(handle)
        threads = [threading.Thread(target=work) for _ in range(4)]
        list(map(threading.Thread.start, threads))
        list(map(threading.Thread.join, threads))
        self.assertEqual(failures, [])


@unittest.skipUnless(FAST, _stable.served()["why"])
class ManyCalls(unittest.TestCase):
    """With a launch that does nothing: pthread_equal() of the handle and the struct is 0."""

    def kernel_of(self, kind, problem):
        nothing = ctypes.CDLL(None).pthread_equal
        with unittest.mock.patch.object(kind, "_function", lambda _self, name: None if "bytes" in name else nothing):
            return kind(Operators.no_engine, ctypes.c_void_p(), problem, 0)

    @classmethod
    def setUpClass(cls):
        from no_kernels import NoKernels
        Operators.no_engine = NoKernels()

    def test_nothing_leaks(self):
        gemm = self.kernel_of(GemmKernel, {"n": 64, "k": 128, "dtype": {"a": "f16", "b": "f16", "d": "f16"}})
        attention = self.kernel_of(Kernel, HEADS)
        a, b, d = torch.zeros(5, 128).half(), torch.zeros(64, 128).half(), torch.zeros(5, 64).half()
        q, k, v = torch.zeros(2, 1, 4, 64).half(), torch.zeros(2, 9, 2, 64).half(), torch.zeros(2, 9, 2, 64).half()
        length, graded = torch.zeros(2, dtype=torch.int32), v.clone().requires_grad_()
        handle, of_gemm, op, gemm_out = *map(kernelwright.torch.handle, (attention, gemm)), OPS.attention.out, OPS.gemm.out

        def miss():
            for refused, named in ((op, {"out": q}), (OPS.attention.default, {})):
                try:
                    refused(handle, q, k, graded, **named, kv_lengths=length, scale=1.0)
                except ConfigError:
                    continue
                self.fail("it requires grad")
        for call, calls in ((lambda: op(handle, q, k, v, out=q, kv_lengths=length, scale=1.0, kv_len=9), 100_000),
                            (lambda: gemm_out(of_gemm, a, b, out=d), 100_000), (miss, 30_000)):
            for _ in range(2000):
                call()
            gc.collect()
            blocks, pages = sys.getallocatedblocks(), int(RESIDENT.read_text().split()[1])
            counts = [tensor._use_count() for tensor in (a, b, d, q, k, v, length, graded)]
            for _ in range(calls):
                call()
            gc.collect()
            self.assertLess(sys.getallocatedblocks() - blocks, 100)
            # Less than half of what one box of an optional argument, 32 bytes, would be if each call lost it.
            self.assertLess((int(RESIDENT.read_text().split()[1]) - pages) * resource.getpagesize(), 16 * calls)
            self.assertEqual([tensor._use_count() for tensor in (a, b, d, q, k, v, length, graded)], counts)
        for number in (handle, of_gemm):
            kernelwright.torch.release(number)


if __name__ == "__main__":
    unittest.main(verbosity=2)
