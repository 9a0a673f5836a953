#!/usr/bin/env python3
"""The plug-in of vLLM on machines that lack something, and where a kernel cannot be made: vLLM goes on with its own, or says why it
cannot start. Run by hand where vLLM's Python files and torch are installed; it is no part of CI. It needs no GPU: the emulator
serves, and a compiler that is not there stands for all faults of a compile.

Tests of layers are skipped where vLLM is not one whose layers are served.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import torch
import vllm
import vllm_experts_test as of_experts
import vllm_layers_test as of_layers
import vllm_modules
import vllm_registration_test as of_registration
import vllm_steps as of_attention
from torch.utils._python_dispatch import TorchDispatchMode

import kernelwright
import kernelwright.vllm
from kernelwright.vllm import attention, warmup
from kernelwright.vllm.attention import KernelwrightImpl

NOWHERE = "/nowhere/libnvrtc.so.13"
HAS_LAYERS = ".".join(vllm.__version__.split(".")[:2]) in kernelwright.vllm.MODEL_VERSIONS


def engine(cache=None, compiles=False):
    """One that emulates. It cannot compile unless it is asked to, and then has the kernels of the folder `cache` alone."""
    where = {"cache_directory": cache} if cache else {"memory_only_cache": True}
    return kernelwright.Engine("emulator", **where, **({} if compiles else {"nvrtc_path": NOWHERE}))


def setUpModule():
    if HAS_LAYERS:
        of_layers.setUpModule()
        from kernelwright.vllm import experts

        of_experts.experts = experts


class MemoryFor(TorchDispatchMode):
    """A device that has memory for so many new tensors."""

    NEW = ("empty", "cat", "stack", "clone", "_to_copy")

    def __init__(self, tensors):
        super().__init__()
        self.tensors = tensors

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.__name__.startswith(self.NEW):
            if not self.tensors:
                raise torch.OutOfMemoryError("CUDA out of memory")
            self.tensors -= 1
        return function(*args, **(kwargs or {}))


class Served(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.enterContext(torch.no_grad())
        self.served = attention.served
        self.addCleanup(self.served.failed.clear)
        self.use(engine())

    def use(self, given):
        self.served.use(given)
        for module in (of_attention, of_experts, of_layers, vllm_modules):
            self.enterContext(unittest.mock.patch.object(module, "DEVICE", "cpu"))
        self.enterContext(unittest.mock.patch("kernelwright.vllm.attention.here", lambda: ("cpu", 0)))
        return given


class Attention(Served):
    def test_it_fails_ahead_of_the_first_step_and_says_what_would_do(self):
        layer = of_attention.layer_of(KernelwrightImpl(4, 64, 0.125, 2), torch.bfloat16)
        with self.assertRaisesRegex(kernelwright.MissingError,
                                    "cannot serve the attention of this model: .*/nowhere.*Choose another --attention-backend, or leave"):
            of_attention.builder_of({"layer": layer})

    def test_latent_attention_does_so_too(self):
        from kernelwright.vllm import latent

        impl = latent.KernelwrightLatentImpl.__new__(latent.KernelwrightLatentImpl)
        impl.num_heads, impl.kv_cache_dtype, impl.most_queries, impl.invariant = 4, "auto", 1, False
        with self.assertRaisesRegex(kernelwright.MissingError, "cannot serve the attention of this model: .*/nowhere"):
            latent.prepare([types.SimpleNamespace(impl=impl)], torch.bfloat16, 64, 1, torch.device("cpu"))

    def test_prefer_asks_whether_a_small_kernel_can_be_made(self):
        self.assertIn("/nowhere", attention.why_no_kernel("cpu", 0))
        self.use(engine(compiles=True))
        self.assertIsNone(attention.why_no_kernel("cpu", 0))


class WarmUp(Served):
    """The engine is sealed behind vLLM's warm-up, whichever parts are ours."""

    def setUp(self):
        super().setUp()
        self.calls = calls = []

        class Worker:
            def compile_or_warm_up_model(self):
                calls.append(attention.served.engine("cpu").sealed)
                return "times"
        self.worker = Worker
        self.enterContext(unittest.mock.patch.dict(sys.modules, {warmup.WORKER: types.SimpleNamespace(Worker=Worker)}))

    def test_the_first_kernel_brings_it(self):
        given = self.use(engine(compiles=True))
        problem = attention.paged_write("bf16", 1, 64, 64, 16)
        for _ in range(2):
            self.served.handle("cpu", 0, problem)
        self.assertEqual(self.worker().compile_or_warm_up_model(), "times")
        self.assertEqual(self.calls, [False], "once, and sealed behind it")
        self.assertTrue(given.sealed)
        before = given.counters()["sealed_misses"]
        with self.assertRaises(kernelwright.NotReadyError):
            given.prepare(attention.paged_write("bf16", 3, 64, 64, 16).config())
        self.assertEqual(given.counters()["sealed_misses"], before + 1)

    def test_a_kernel_that_has_failed_ends_the_start(self):
        given = self.use(engine())
        number = self.served.handle("cpu", 0, attention.paged_write("bf16", 5, 64, 64, 16))
        with self.assertRaisesRegex(kernelwright.MissingError, "a kernel has failed that the first requests would need: .*/nowhere"):
            self.worker().compile_or_warm_up_model()
        self.assertFalse(given.sealed)
        with self.assertRaises(kernelwright.MissingError):
            self.served.wait(number)
        self.worker().compile_or_warm_up_model()  # the layer is vLLM's now
        self.assertTrue(given.sealed)

    def test_other_workers_are_left_alone(self):
        with unittest.mock.patch.dict(sys.modules):
            del sys.modules[warmup.WORKER]
            self.served.handle("cpu", 0, attention.paged_write("bf16", 1, 64, 64, 16))
        self.assertFalse(hasattr(self.worker.compile_or_warm_up_model, "of_kernelwright"))


@unittest.skipUnless(HAS_LAYERS, "this vLLM's layers are not served")
class Layers(Served):
    def setUp(self):
        super().setUp()
        from vllm.model_executor.layers.activation import SiluAndMul
        from vllm.model_executor.models.llama import LlamaMLP

        self.linears, self.activation = of_layers.linears, SiluAndMul
        self.enterContext(unittest.mock.patch.object(self.linears, "here", lambda: ("cpu", 0)))
        self.mlp = lambda: of_layers.made(lambda: LlamaMLP(64, 96, "silu"), torch.bfloat16)

    def test_linears_gates_and_norms_stay_vllms(self):
        from vllm.model_executor.layers.layernorm import RMSNorm
        from vllm.model_executor.layers.linear import UnquantizedLinearMethod

        model = torch.nn.ModuleDict({"mlp": self.mlp(), "norm": of_layers.made(lambda: RMSNorm(192), torch.bfloat16)})
        before = model["mlp"].gate_up_proj.weight.clone()
        with self.assertLogs("vllm.kernelwright", "INFO") as log:
            of_layers.model.take_over(model, ("linears", "gates", "norms"))
        for layer in (model["mlp"].gate_up_proj, model["mlp"].down_proj):
            self.assertIs(type(layer.quant_method), UnquantizedLinearMethod)
        self.assertIs(type(model["mlp"].act_fn), self.activation)
        self.assertTrue(torch.equal(model["mlp"].gate_up_proj.weight, before))
        self.assertNotIn((192, torch.bfloat16), of_layers.norms._handles)
        text = "\n".join(log.output)
        self.assertIn("serves 0 linear layers", text)
        self.assertIn("serves 0 norms", text)
        self.assertRegex(text, "leaves 3 layers to vLLM, mlp.gate_up_proj ...: .*/nowhere")
        self.served.seal()

    def test_one_kernel_that_fails_costs_its_layer_alone(self):
        with tempfile.TemporaryDirectory() as cache:
            problem = self.linears.GemmProblem(64, 96, "bf16")  # of down_proj
            engine(cache, compiles=True).prepare(problem.config())
            self.use(engine(cache))
            mlp = self.mlp()
            taken, left = self.linears.serve_linears(mlp)
        self.assertEqual((list(taken), list(left)), (["down_proj"], ["gate_up_proj"]))
        self.assertIs(type(mlp.down_proj.quant_method), self.linears.KernelwrightLinearMethod)
        self.assertEqual(len(self.served.failed), 1)
        self.served.seal()
        x = torch.randn(3, 96).to(torch.bfloat16)
        self.assertEqual(mlp.down_proj(x)[0].shape, (3, 64))

    def config(self, n):
        return of_layers.Fp8.config(of_layers.Fp8(), (1, -1), False, (-1, 1), n=n)

    def test_vllm_chooses_another_kernel_for_fp8_layers(self):
        from vllm.model_executor.kernels import linear
        from vllm.platforms import current_platform

        ours = self.linears.KernelwrightFp8LinearKernel
        theirs = types.SimpleNamespace(__name__="Theirs", is_supported=lambda capability: (True, None), can_implement=lambda config: (True, None))
        with self.assertLogs("vllm.kernelwright", "WARNING") as log:
            for _ in range(2):  # layers
                self.assertIs(linear.choose_scaled_mm_linear_kernel(self.config(48), {current_platform._enum: [ours, theirs]}), theirs)
        self.assertEqual(len(log.output), 1)
        self.assertRegex(log.output[0], "leaves fp8 layers of 48 x 256 to vLLM: .*/nowhere")
        self.served.seal()

    def test_a_bias_of_an_fp8_layer_is_added_where_its_kernel_fails(self):
        config = self.config(80)
        with tempfile.TemporaryDirectory() as cache:
            whole = engine(cache, compiles=True)
            for problem in (self.linears.of_config(config), self.linears.rows_problem(config)):
                whole.prepare(problem.config())
            self.use(engine(cache))
            kernel = self.linears.KernelwrightFp8LinearKernel(config, ["weight", "weight_scale", "input_scale", "input_scale_ub"])
            layer = torch.nn.Module()
            layer.weight = torch.nn.Parameter(torch.randn(80, 256).clamp(-3, 3).to(torch.float8_e4m3fn).t(), requires_grad=False)
            layer.weight_scale = torch.nn.Parameter(torch.rand(80, 1) * 0.02 + 0.01, requires_grad=False)
            layer.input_scale, layer.bias = None, torch.randn(80).to(torch.bfloat16)
            kernel.process_weights_after_loading(layer)
        self.assertEqual(kernel.biased, 0)
        self.served.seal()
        x = torch.randn(5, 256).to(torch.bfloat16)
        plain = kernel.apply_weights(layer, x)
        self.assertTrue(torch.equal(kernel.apply_weights(layer, x, layer.bias), plain + layer.bias))

    def test_experts_and_products_stay_vllms(self):
        from kernelwright.vllm import products

        layer, _ = of_experts.Experts().layer()
        before, method = layer.w13_weight.clone(), layer.quant_method
        taken, left = of_experts.experts.serve_experts(torch.nn.ModuleDict({"experts": layer}))
        self.assertEqual(taken, {})
        self.assertIn("/nowhere", left["experts"])
        self.assertIs(layer.quant_method, method)
        self.assertTrue(torch.equal(layer.w13_weight, before), "rows are not interleaved")
        absorbing, expanding = (torch.randn(4, 64, 128).to(torch.bfloat16) for _ in range(2))
        layer = types.SimpleNamespace(impl=None, W_UK_T=absorbing, W_UV=expanding)
        with self.assertRaisesRegex(kernelwright.MissingError, "/nowhere"):
            products.take(layer)
        self.assertIs(layer.W_UK_T, absorbing)
        self.served.seal()

    def test_gates_are_fused_whole_or_not_at_all(self):
        """Whichever of the tensors that it allocates finds no memory."""
        self.use(engine(compiles=True))
        x, fused, tensors = torch.randn(3, 64).to(torch.bfloat16), False, 0
        while not fused:
            mlp = self.mlp()
            before, want = mlp.gate_up_proj.weight.clone(), mlp(x)
            with MemoryFor(tensors), contextlib.suppress(torch.OutOfMemoryError):
                of_layers.model.take_over(mlp, ("linears", "gates"))
            fused, tensors = isinstance(mlp.act_fn, torch.nn.Identity), tensors + 1
            self.assertEqual(fused, isinstance(mlp.gate_up_proj.quant_method, self.linears.KernelwrightGatesMethod))
            self.assertEqual(fused, not torch.equal(mlp.gate_up_proj.weight, before))
            self.assertLessEqual((mlp(x) - want).abs().max().item(), 2.0**-5 * want.abs().max().item())
        self.assertGreater(tensors, 1, "nothing was allocated")

    def test_experts_are_taken_whole_or_not_at_all(self):
        self.use(engine(compiles=True))
        for fp8 in (False, True):
            ours, tensors = False, 0
            while not ours:
                layer, _ = of_experts.Experts().layer(fp8=fp8)
                before = layer.w13_weight.view(torch.uint8).clone()
                with MemoryFor(tensors), contextlib.suppress(torch.OutOfMemoryError):
                    of_layers.model.take_over(torch.nn.ModuleDict({"experts": layer}), ("experts",))
                ours, tensors = isinstance(layer.quant_method, of_experts.experts.KernelwrightMoEMethod), tensors + 1
                self.assertEqual(ours, not torch.equal(layer.w13_weight.view(torch.uint8), before), f"{tensors - 1} tensors")
            self.assertGreater(tensors, 1, "nothing was allocated")

    def test_weights_that_layers_share_are_not_interleaved(self):
        """For one of them they would be interleaved again."""
        self.use(engine(compiles=True))
        x = torch.randn(3, 64).to(torch.bfloat16)
        for shares in ("the layer", "its weight"):
            one, other = self.mlp(), self.mlp()
            if shares == "the layer":
                other.gate_up_proj = one.gate_up_proj
            else:
                other.gate_up_proj.weight = one.gate_up_proj.weight
            want = one(x), other(x)
            of_layers.model.take_over(torch.nn.ModuleDict({"one": one, "other": other}), ("linears", "gates"))
            for mlp, result in zip((one, other), want):
                self.assertLessEqual((mlp(x) - result).abs().max().item(), 2.0**-5 * result.abs().max().item(), shares)
        layers = [of_experts.Experts().layer()[0] for _ in range(2)]
        layers[1].w13_weight = layers[0].w13_weight
        before = layers[0].w13_weight.clone()
        taken, left = of_experts.experts.serve_experts(torch.nn.ModuleList(layers))
        self.assertEqual((taken, set(left.values())), ({}, {"another layer has the same weights"}))
        self.assertTrue(torch.equal(layers[0].w13_weight, before))

    def test_a_compiled_model_is_kept_for_the_layers_that_it_has(self):
        from vllm import envs

        with unittest.mock.patch.dict(envs.environment_variables):
            kernelwright.vllm._serve_layers(["experts"], None)
            self.assertEqual(envs.compile_factors()["KERNELWRIGHT_VLLM"], f"{kernelwright.__version__} experts")
            self.served.failed.update({7, 5})
            self.assertEqual(envs.compile_factors()["KERNELWRIGHT_VLLM"], f"{kernelwright.__version__} experts 5 7")

    def test_a_model_that_is_taken_in_part_meets_no_compiled_one(self):
        from vllm import envs

        self.use(engine(compiles=True))
        of_model, mlp = of_layers.model, self.mlp()
        for loader in (of_model.ShardedStateLoader, of_model.TensorizerLoader):
            self.enterContext(unittest.mock.patch.object(loader, "save_model", loader.save_model))
        self.enterContext(unittest.mock.patch.object(of_model.TensorizerLoader, "load_model", of_model.TensorizerLoader.load_model))
        self.enterContext(unittest.mock.patch.object(of_model.BaseModelLoader, "load_model", lambda *_: mlp))
        self.enterContext(unittest.mock.patch.dict(envs.environment_variables))
        kernelwright.vllm._serve_layers(["linears", "gates"], None)
        before = envs.compile_factors()["KERNELWRIGHT_VLLM"]
        with MemoryFor(0), self.assertLogs("vllm.kernelwright", "WARNING") as log:
            parallel = types.SimpleNamespace(enable_elastic_ep=False)
            of_model.BaseModelLoader.load_model(None, types.SimpleNamespace(lora_config=None, parallel_config=parallel), None)
        self.assertRegex(log.output[0], "kernelwright leaves layers of this model to vLLM: CUDA out of memory")
        self.assertNotEqual(envs.compile_factors()["KERNELWRIGHT_VLLM"], before)
        self.served.seal()


class Registration(unittest.TestCase):
    """register(), in processes of its own."""

    CODE = ("import kernelwright.vllm as plugin; plugin.register(); plugin.register()\n"
            "from vllm.v1.attention.backends.registry import AttentionBackendEnum as B; print(B.CUSTOM.get_path())")
    # vLLM's platform for CUDA imports these, and has no use for them here.
    CUDA = ("import importlib, sys, types\n"
            "for name in ('vllm._C_stable_libtorch', 'vllm._C'):\n"
            "    try: importlib.import_module(name)\n"
            "    except ImportError: sys.modules[name] = types.ModuleType(name)\n")

    def register(self, code=CODE, **environment):
        """The backend's class, and the log's warnings of the plug-in."""
        with tempfile.TemporaryDirectory() as empty:
            given = {name: value for name, value in os.environ.items() if name not in ("KERNELWRIGHT_BUNDLES", "KERNELWRIGHT_REMOTE")}
            done = subprocess.run([sys.executable, "-c", self.CUDA + code], capture_output=True, text=True,
                                  env=given | {"KERNELWRIGHT_CACHE_DIR": empty, "CUDA_VISIBLE_DEVICES": ""} | environment)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        lines = (done.stdout + done.stderr).splitlines()
        return done.stdout.splitlines()[-1], [line for line in lines if "WARNING" in line and "kernelwright" in line]

    def test_without_a_compiler_and_kernels_one_line_says_so(self):
        for words in ("", "all"):
            with self.subTest(words):
                path, lines = self.register(KERNELWRIGHT_VLLM=words, KERNELWRIGHT_NVRTC="/nowhere")
                self.assertEqual(path, kernelwright.vllm.OF_VLLM)
                self.assertEqual(len(lines), 1, lines)
                self.assertRegex(lines[0], "left out, and the backend CUSTOM is vLLM's FlashAttention: no kernel can be compiled or found: "
                                           "/nowhere cannot be opened")

    def test_kernels_that_are_at_hand_serve_without_a_compiler(self):
        with tempfile.TemporaryDirectory() as cache:
            engine(cache, compiles=True).prepare(attention.paged_write("bf16", 1, 64, 64, 16).config())
            for there in ({"KERNELWRIGHT_CACHE_DIR": cache}, {"KERNELWRIGHT_REMOTE": "redis://127.0.0.1:1"}):
                path, lines = self.register(KERNELWRIGHT_NVRTC="/nowhere", **there)
                self.assertEqual((path, lines), (kernelwright.vllm.BACKEND, []))

    def test_prefer_leaves_attention_to_vllm_where_nothing_compiles(self):
        """A library that is whole and is no NVRTC shows only once it is opened, which a process with a GPU does."""
        ask = ("\nimport kernelwright, torch\nfrom kernelwright.vllm import attention\nfrom vllm.platforms import cuda, interface\n"
               "torch.cuda.is_initialized, attention.here = lambda: True, lambda: ('cpu', 0)\n"
               "attention.served.use(kernelwright.Engine('emulator', memory_only_cache=True))\n"
               "for _ in range(2): found = cuda._get_backend_priorities(False, interface.DeviceCapability(9, 0))\n"
               "print('CUSTOM' in [backend.name for backend in found])")
        found, lines = self.register(self.CODE + ask, KERNELWRIGHT_VLLM="prefer", KERNELWRIGHT_NVRTC=kernelwright.load().path)
        self.assertEqual((found, len(lines)), ("False", 1), lines)
        self.assertRegex(lines[0], "kernelwright leaves attention to vLLM: .* is not an NVRTC that we can use")
        self.assertEqual(self.register(self.CODE + ask, KERNELWRIGHT_VLLM="prefer"), ("True", []))

    def test_prefer_leaves_latent_attention_to_vllm_where_nothing_compiles(self):
        ask = of_registration.OfAttention.LATENT + "torch.cuda.is_initialized = lambda: True\nprint(ask(None))"
        found, lines = self.register(ask, KERNELWRIGHT_VLLM="prefer", KERNELWRIGHT_NVRTC="/nowhere")
        self.assertIn("No valid attention backend", found, "vLLM chooses among its own")
        self.assertEqual(len(lines), 1, lines)

    def test_without_the_library_one_line_says_so(self):
        path, lines = self.register(KERNELWRIGHT_VLLM="all", KERNELWRIGHT_LIBRARY="/nowhere/lib.so")
        self.assertEqual(path, kernelwright.vllm.OF_VLLM)
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("its library cannot be loaded: KERNELWRIGHT_LIBRARY is /nowhere/lib.so", lines[0])

    def test_without_a_gpu_nothing_is_opened_and_nothing_raised(self):
        """vLLM registers in processes that fork afterwards, and in some that never have a GPU."""
        maps = "libraries = lambda: {line.split()[-1] for line in open('/proc/self/maps') if 'nvrtc' in line}\n"
        code = f"import vllm, torch\n{maps}before = libraries()\n{self.CODE}\n"  # torch may have one of its own
        code += "assert not torch.cuda.is_available() and not torch.cuda.is_initialized()\nprint(libraries() == before, B.CUSTOM.get_path())"
        path, lines = self.register(code, KERNELWRIGHT_VLLM="all" if HAS_LAYERS else "prefer")
        self.assertEqual((path, lines), (f"True {kernelwright.vllm.BACKEND}", []))


if __name__ == "__main__":
    print("vLLM", vllm.__version__)
    unittest.main(verbosity=2)
