#!/usr/bin/env python3
"""Models that vLLM loads while layers are to be ours, and what of them stays vLLM's: on the GPU if there is one, else on the emulator.
Run by hand where vLLM's Python files and torch are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module
and the library, unless the package is installed.
"""
import contextlib
import importlib
import types
import unittest
import unittest.mock

import torch
import vllm
import vllm_layers_test as of_layers

from vllm_modules import BF16, DEVICE, HAS_GPU, Layers, made, randn

ALL = ["linears", "gates", "norms", "experts", "products"]


def setUpModule():
    global attention, linears, model
    of_layers.setUpModule()
    from kernelwright.vllm import attention, linears, model


class Loads(Layers):
    def setUp(self):
        super().setUp()
        from vllm.model_executor.models.llama import LlamaMLP

        self.mlp = made(lambda: LlamaMLP(64, 96, "silu"), BF16)
        self.weight = self.mlp.gate_up_proj.weight.clone()
        given = model.TensorizerLoader.save_model, model.ShardedStateLoader.save_model
        patch = unittest.mock.patch.object
        for module, owner in model.LOADERS_OF_THEIR_OWN:
            with contextlib.suppress(ImportError):
                loader = getattr(importlib.import_module(module), owner)
                self.enterContext(patch(loader, "load_model", loader.load_model))
        self.enterContext(patch(model.TensorizerLoader, "save_model", given[0]))
        self.enterContext(patch(model.ShardedStateLoader, "save_model", given[1]))
        self.enterContext(patch(model.BaseModelLoader, "load_model", lambda *_: self.mlp))
        self.enterContext(patch(model, "WRITERS", ()))
        self.addCleanup(attention.served.failed.discard, 0)

    def config(self, elastic=False):
        return types.SimpleNamespace(lora_config=None, device_config=types.SimpleNamespace(device=DEVICE),
                                     model_config=types.SimpleNamespace(dtype=BF16),
                                     parallel_config=types.SimpleNamespace(enable_elastic_ep=elastic, tensor_parallel_size=1))

    def is_vllms(self):
        """Whether the weights lie as vLLM has them, behind its own activation."""
        kept = torch.equal(self.mlp.gate_up_proj.weight, self.weight)
        self.assertEqual(type(self.mlp.act_fn) is torch.nn.Identity, not kept)
        return kept

    def load(self, parts, elastic):
        """What the log says beside how many layers are served."""
        model.serve_loaded_models(parts)
        with self.assertLogs("vllm.kernelwright", "INFO") as log:
            self.assertIs(model.BaseModelLoader.load_model(None, self.config(elastic), None), self.mlp)
        return [line for line in log.output if "kernelwright serves" not in line]

    def test_ranks_send_each_other_what_they_can_read(self):
        """By elastic expert parallelism. The rows of 16-bit layers stay where they are, so these are ours."""
        x = randn(3, 64)
        want = self.mlp(x)
        line, = self.load(ALL, elastic=True)
        self.assertIn("kernelwright leaves gates, experts, products to vLLM: with elastic expert parallelism", line)
        self.assertTrue(self.is_vllms())
        self.assertIs(type(self.mlp.gate_up_proj.quant_method), linears.KernelwrightLinearMethod)
        self.near(self.mlp(x), want.double(), 2.0**-6)

    def test_other_models_are_ours(self):
        self.assertEqual(self.load(ALL, elastic=False), [])
        self.assertFalse(self.is_vllms())

    def test_nothing_is_said_of_parts_that_nobody_asked_for(self):
        self.assertEqual(self.load(["linears", "norms"], elastic=True), [])

    def test_a_loader_with_steps_of_its_own(self):
        """vLLM's TensorizerLoader does not call BaseModelLoader.load_model()."""
        from vllm.model_executor.model_loader import tensorizer_loader

        whole = (-1, -1)
        fp8, asked = of_layers.Fp8().config(whole, True, whole), []

        def initialize_model(**_):
            asked.append(linears.KernelwrightFp8LinearKernel.can_implement(fp8)[0])
            return self.mlp
        loader = model.TensorizerLoader.__new__(model.TensorizerLoader)
        loader.tensorizer_config, self.mlp.load_weights = unittest.mock.Mock(), unittest.mock.Mock()
        patch = unittest.mock.patch.object
        with patch(tensorizer_loader, "is_vllm_tensorized", lambda _: False), patch(loader, "_get_weights_iterator", list), \
                patch(tensorizer_loader, "initialize_model", initialize_model):
            loader.load_model(vllm_config=self.config(), model_config=self.config().model_config)
            self.assertNotIn(0, attention.served.failed)
            model.serve_loaded_models(["linears", "gates"])
            model.leave_what_it_loads(model.TensorizerLoader.__module__, "TensorizerLoader", ["norms"])  # which it is told already
            with self.assertLogs("vllm.kernelwright", "INFO") as log:
                found = loader.load_model(vllm_config=self.config(), model_config=self.config().model_config)
        self.assertIs(found, self.mlp)
        self.assertEqual(len(log.output), 1, log.output)
        self.assertIn("WARNING:vllm.kernelwright:kernelwright leaves linears, gates to vLLM: its TensorizerLoader makes", log.output[0])
        self.assertTrue(self.is_vllms())
        self.assertNotIsInstance(self.mlp.gate_up_proj.quant_method, linears.KernelwrightLinearMethod)
        self.assertIn(0, attention.served.failed, "what vLLM has compiled and kept may have layers of ours")
        self.assertEqual(asked, [True, False], "its fp8 layers are vLLM's")
        self.assertTrue(linears.KernelwrightFp8LinearKernel.can_implement(fp8)[0])

    def test_a_loader_that_hands_over(self):
        """vLLM's ModelExpressModelLoader hands over to a package's loader, which has steps of its own, or calls vLLM's."""
        try:
            from vllm.model_executor.model_loader.modelexpress_loader import ModelExpressModelLoader
        except ImportError:
            self.skipTest(f"vLLM {vllm.__version__} has no such loader")
        ways = ("steps of its own", lambda **_: self.mlp), \
            ("vLLM's steps", lambda vllm_config, model_config, prefix: model.BaseModelLoader.load_model(None, vllm_config, model_config))
        model.serve_loaded_models(["linears", "gates"])
        for way, load_model in ways:
            with self.subTest(way=way):
                loader = ModelExpressModelLoader.__new__(ModelExpressModelLoader)
                loader._loader = types.SimpleNamespace(load_model=load_model)
                with self.assertLogs("vllm.kernelwright", "INFO") as log:
                    loader.load_model(vllm_config=self.config(), model_config=self.config().model_config)
                self.assertEqual(len(log.output), 1, log.output)
                self.assertIn("kernelwright leaves linears, gates to vLLM: its ModelExpressModelLoader makes", log.output[0])
                self.assertTrue(self.is_vllms())
                self.assertIn(0, attention.served.failed, "what vLLM has compiled and kept may have layers of ours")


if __name__ == "__main__":
    print("vLLM", vllm.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
