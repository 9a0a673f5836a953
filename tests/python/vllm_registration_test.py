#!/usr/bin/env python3
"""What the plug-in registers in vLLM, each time in a process of its own, because vLLM keeps what is registered. Run by hand where
vLLM's Python files and torch are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the library,
unless the package is installed. vllm_faults_test.py has what is missing on a machine.
"""
import logging
import os
import subprocess
import sys
import unittest
import unittest.mock

import torch
import vllm

import kernelwright
import kernelwright.vllm
from kernelwright import _served

HAS_GPU = torch.cuda.is_available()
LOGGER = logging.getLogger("vllm.kernelwright")
REGISTERED = ("import importlib, sys, types\n"
              "for name in ('vllm._C_stable_libtorch', 'vllm._C'):\n"  # the platform of CUDA imports one, and has no use for it here
              "    try: importlib.import_module(name)\n"
              "    except ImportError: sys.modules[name] = types.ModuleType(name)\n"
              "import kernelwright.vllm as plugin; plugin.register(); plugin.register()\n")


class OfAttention(unittest.TestCase):
    def run_in_vllm(self, code, **environment):
        done = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout.splitlines()[-1], done.stdout + done.stderr

    PATH = ("import kernelwright.vllm as plugin; plugin.register(); plugin.register(); "
            "from vllm.v1.attention.backends.registry import AttentionBackendEnum as B; "
            "print(B.CUSTOM.get_path() if B.CUSTOM.is_overridden() else None)")

    def test_the_backend_has_vllms_place_for_others(self):
        self.assertEqual(self.run_in_vllm(self.PATH)[0], kernelwright.vllm.BACKEND)
        self.assertEqual(self.run_in_vllm(self.PATH, KERNELWRIGHT_VLLM="off")[0], "None")

    def test_without_the_library_or_for_another_vllm_flashattention_serves(self):
        found, log = self.run_in_vllm(self.PATH, KERNELWRIGHT_LIBRARY="/nowhere/lib.so")
        self.assertEqual(found, kernelwright.vllm.OF_VLLM)
        self.assertIn("/nowhere/lib.so", log)
        found, log = self.run_in_vllm("import vllm; vllm.__version__ = '0.99.1'; " + self.PATH)
        self.assertEqual(found, kernelwright.vllm.OF_VLLM)
        self.assertIn("vLLM 0.99.1 is not one of", log)

    LATENT = (REGISTERED +
              "import torch; "
              "from vllm.platforms import cuda, interface; from vllm.v1.attention.selector import AttentionSelectorConfig as C; "
              "from vllm.v1.attention.backends.registry import AttentionBackendEnum as B\n"
              "class Platform(cuda.CudaPlatformBase):\n"
              "    get_device_capability = classmethod(lambda cls, device_id=0: interface.DeviceCapability(9, 0))\n"
              "    get_valid_backends = classmethod(lambda cls, **given: ([], {}))\n"
              "def prompts(backend=None, rope=64):\n"  # the class for a model's prompts
              "    from vllm.config import AttentionConfig, DeviceConfig, VllmConfig, set_current_vllm_config\n"
              "    from vllm.v1.attention.backends.mla.prefill import selector\n"
              "    import kernelwright.vllm.prompts, vllm.platforms\n"
              "    sizes = types.SimpleNamespace(qk_nope_head_dim=128, qk_rope_head_dim=rope, v_head_dim=128)\n"
              "    config = types.SimpleNamespace(attention_config=AttentionConfig(backend=backend), model_config=types.SimpleNamespace(\n"
              "        dtype=torch.bfloat16, hf_text_config=sizes))\n"
              "    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device='cpu'), attention_config=config.attention_config)):\n"
              "        vllm.platforms._current_platform = Platform()\n"
              "        selector._auto_select_mla_prefill_backend.cache_clear()\n"
              "        try: return selector.get_mla_prefill_backend(config).__name__\n"
              "        except ValueError as error: return 'vLLM: ' + str(error)[:400]\n"
              "def ask(backend, **config):\n"
              "    try: return Platform.get_attn_backend_cls(backend, C(576, torch.bfloat16, 'auto', 64, use_mla=True, **config))\n"
              "    except ValueError as error: return 'vLLM: ' + str(error)[:300]\n")

    def test_models_with_latents_have_a_backend_behind_the_same_name(self):
        ask = "print(ask(B.CUSTOM), ask(None), ask(B.CUSTOM, use_sparse=True), sep=' | ')"
        found = self.run_in_vllm(self.LATENT + ask)[0].split(" | ")
        self.assertEqual(found[0], kernelwright.vllm.LATENT_BACKEND)
        self.assertIn("No valid attention backend", found[1], "vLLM chooses among its own")
        self.assertIn("sparse not supported", found[2])
        found = self.run_in_vllm(self.LATENT + ask, KERNELWRIGHT_VLLM="prefer")[0].split(" | ")
        self.assertEqual(found[:2], [kernelwright.vllm.LATENT_BACKEND] * 2)
        found, log = self.run_in_vllm(self.LATENT + ask, KERNELWRIGHT_LIBRARY="/nowhere/lib.so")
        self.assertIn("No valid attention backend", found.split(" | ")[0], "vLLM chooses where the library is missing")
        self.assertIn("leaves latent attention to vLLM: its library cannot be loaded", log)

    def test_prompts_over_latents_are_ours_where_attention_is(self):
        """Without a GPU vLLM has no FlashAttention, so it says what it tried."""
        ask = ("print(prompts(B.CUSTOM), prompts(B.CUSTOM, rope=24), prompts(), sep=' | '); "
               "from vllm.v1.attention.backends.mla.prefill import MLAPrefillBackendEnum as P; "
               "print(P.CUSTOM.get_path() if hasattr(P, 'CUSTOM') else None)")  # vLLM 0.22 has no such name
        named = not vllm.__version__.startswith("0.22")
        path, log = self.run_in_vllm(self.LATENT + ask)
        self.assertEqual(path, kernelwright.vllm.PREFILL_BACKEND if named else "None")
        asked, odd, others = next(line for line in log.splitlines() if " | " in line and "KernelwrightPrefillBackend" in line).split(" | ")
        self.assertEqual(asked, "KernelwrightPrefillBackend")
        self.assertRegex(odd, "CUSTOM: .(Model|model) does not have (supported|DeepSeek R1) MLA dimensions|^FlashAttn")
        self.assertNotIn("CUSTOM", others)
        self.assertNotIn("Kernelwright", others)
        self.assertEqual(self.run_in_vllm(self.LATENT + "print(prompts())", KERNELWRIGHT_VLLM="prefer")[0], "KernelwrightPrefillBackend")
        path, _ = self.run_in_vllm(self.LATENT + ask.replace("print(prompts(B.CUSTOM)", "print(prompts()"), KERNELWRIGHT_LIBRARY="/nowhere/lib.so")
        self.assertEqual(path, kernelwright.vllm.PREFILL_OF_VLLM if named else "None")

    @unittest.skipUnless(HAS_GPU, "vLLM's platform for CUDA needs a GPU")
    def test_prefer_puts_it_first(self):
        code = self.PATH.replace("print(", "from vllm.platforms import cuda; c = __import__('vllm').platforms.interface.DeviceCapability(9, 0); "
                                 "print([b.name for b in cuda._get_backend_priorities(False, c)][0], "
                                 "'CUSTOM' in [b.name for b in cuda._get_backend_priorities(True, c)]); (")
        self.assertEqual(self.run_in_vllm(code, KERNELWRIGHT_VLLM="prefer")[0], "CUSTOM False")


class OfLayers(unittest.TestCase):
    CODE = (REGISTERED +
            "from vllm import envs; from vllm.model_executor.kernels import linear; from vllm.platforms import PlatformEnum\n"
            "from vllm.model_executor.model_loader.base_loader import BaseModelLoader\n"
            "print([k.__name__ for k in linear._POSSIBLE_FP8_KERNELS[PlatformEnum.CUDA]][0], "
            "[k.__name__ for k in linear._POSSIBLE_FP8_BLOCK_KERNELS[PlatformEnum.CUDA]][:2], "
            "getattr(BaseModelLoader.load_model, 'of_kernelwright', False), "
            "envs.compile_factors().get('KERNELWRIGHT_VLLM'), sep=' | ')\n"
            "from types import SimpleNamespace as S; from vllm.platforms.cuda import CudaPlatformBase\n"
            "order = CudaPlatformBase.get_default_ir_op_priority(S(compilation_config=S(backend='inductor', mode=3)))\n"
            "print(order.rms_norm, order.fused_add_rms_norm, sep=' | ')")

    def run_in_vllm(self, **environment):
        done = subprocess.run([sys.executable, "-c", self.CODE], env=os.environ | environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        found, self.norms = (line.split(" | ") for line in done.stdout.splitlines()[-2:])
        return found, done.stdout + done.stderr

    def test_layers_are_taken_where_they_are_asked_for(self):
        found, _ = self.run_in_vllm(KERNELWRIGHT_VLLM="linears,gates")
        self.assertEqual(found[0], "KernelwrightFp8LinearKernel")
        self.assertEqual(found[1], "['KernelwrightFp8BlockLinearKernel', 'FlashInferFp8DeepGEMMDynamicBlockScaledKernel']")
        self.assertEqual(found[2:], ["True", f"{kernelwright.__version__} linears gates"])
        self.assertEqual(self.norms, ["['native']", "['native']"])
        found, _ = self.run_in_vllm(KERNELWRIGHT_VLLM="")
        self.assertEqual(found[2:], ["False", "None"])
        for invariant in ("0", "1"):
            self.run_in_vllm(KERNELWRIGHT_VLLM="norms", VLLM_BATCH_INVARIANT=invariant)
            self.assertEqual(self.norms, ["['kernelwright', 'native']"] * 2)
        found, log = self.run_in_vllm(KERNELWRIGHT_VLLM="experts,nothing")
        self.assertEqual(found[2:], ["True", f"{kernelwright.__version__} experts"])
        self.assertNotIn("Kernelwright", found[0])
        self.assertIn('KERNELWRIGHT_VLLM has "nothing"', log)

    def test_the_log_tells_of_slow_calls_and_why(self):
        fast, in_python = {"stable": True, "why": "/operators.so"}, {"stable": False, "why": "an old torch"}
        for calls, word in (({"fast": False, "why": "no extension", "operators": in_python}, "no extension"),
                            ({"fast": True, "why": "/fast.so", "operators": in_python}, "an old torch")):
            served = _served.Served(LOGGER, "vLLM")
            with unittest.mock.patch.object(_served, "fast_calls", lambda calls=calls: calls), \
                    self.assertLogs("vllm.kernelwright", "WARNING") as log:
                served.warn_of_slow_calls()
                served.warn_of_slow_calls()
            self.assertEqual(len(log.output), 1)
            self.assertIn(word, log.output[0])
        with unittest.mock.patch.object(_served, "fast_calls", lambda: {"fast": True, "why": "", "operators": fast}), \
                self.assertNoLogs("vllm.kernelwright", "WARNING"):
            _served.Served(LOGGER, "vLLM").warn_of_slow_calls()

    def test_without_the_library_vllm_serves(self):
        found, log = self.run_in_vllm(KERNELWRIGHT_VLLM="all", KERNELWRIGHT_LIBRARY="/nowhere/lib.so")
        self.assertEqual(found[2:], ["False", "None"])
        self.assertIn("kernelwright is left out", log)


if __name__ == "__main__":
    print("vLLM", vllm.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
