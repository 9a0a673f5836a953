#!/usr/bin/env python3
"""What the plug-in of SGLang registers, and what it leaves to SGLang's own backends, with the reason. No kernel runs. Run by hand
where sglang_test.py is run; it is no part of CI.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

from sglang_batches import HEADS, KV_HEADS, Model, arguments_of, layer_of, runner_of  # ahead of SGLang
import torch
import sglang
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.model_executor.forward_batch_info import ForwardMode

import kernelwright
import kernelwright.sglang
from kernelwright.sglang import attention


class Refusals(unittest.TestCase):
    def reasons(self, layers=None, kv_dtype=None, arguments=None, **changes):
        runner = runner_of(layers or [layer_of()], torch.bfloat16, kv_dtype, arguments=arguments_of(**arguments or {}))
        for name, value in changes.items():
            setattr(runner, name, value)
        return attention.reasons_of(runner)

    def test_what_is_refused_says_why(self):
        self.assertEqual(self.reasons(), [])
        self.assertEqual(self.reasons(use_mla_backend=True), ["a cache of MHATokenToKVPool is not served"])
        self.assertEqual(self.reasons(ps=types.SimpleNamespace(attn_cp_size=2)), ["context parallelism is not served"])
        self.assertEqual(self.reasons(dtype=torch.float32, kv_cache_dtype=torch.float32),
                         ["the model is torch.float32, and kernels take torch.float16 and torch.bfloat16"])
        self.assertEqual(self.reasons(kv_cache_dtype=torch.float16), ["a cache of torch.float16 beside torch.bfloat16 is not served"])
        self.assertEqual(self.reasons(token_to_kv_pool=types.SimpleNamespace()), ["a cache of SimpleNamespace is not served"])
        for argument, words in (({"dcp_size": 2}, "context parallelism is not served"),
                                ({"enable_pdmux": True}, "two batches at a time are not served"),
                                ({"enable_two_batch_overlap": True}, "two batches at a time are not served"),
                                ({"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 4}, "trees of drafted tokens are not served"),
                                ({"speculative_algorithm": "NGRAM"}, "trees of drafted tokens are not served")):
            self.assertEqual(self.reasons(arguments=argument), [words])
        self.assertEqual(self.reasons(arguments={"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}), [])
        layer = RadixAttention(HEADS, 512, 1.0, KV_HEADS, 0)
        self.assertEqual(self.reasons([layer]), ["heads of 512 and 512 elements are not served; they have 16 to 256, in multiples of 8"])
        self.assertEqual(self.reasons([layer_of(attn_type=AttentionType.ENCODER_ONLY)]),
                         ["attention of encoders, and among tokens of images, is not served"])
        self.assertEqual(self.reasons([layer_of(logit_cap=1.0), layer_of(use_irope=True)]),
                         ["scores that depend on positions are not served"])
        self.assertEqual(self.reasons(model=Model([])), ["the model has no attention layers"])

    def made(self, **changes):
        """Which of SGLang's own serves, and what the log says."""
        runner = runner_of([layer_of()], torch.bfloat16)
        for name, value in changes.items():
            setattr(runner, name, value)
        kernelwright.sglang.register()
        stubs = {name: lambda _, name=name: name for name in ("fa3", "triton")}
        with unittest.mock.patch.dict(ATTENTION_BACKENDS, stubs), self.assertLogs("kernelwright.sglang", "WARNING") as log:
            return ATTENTION_BACKENDS["kernelwright"](runner), log.output[0]

    def test_sglangs_own_serves_what_is_refused(self):
        found, log = self.made(ps=types.SimpleNamespace(attn_cp_size=2))
        self.assertEqual(found, "fa3")
        self.assertIn("leaves attention to SGLang's fa3: context parallelism is not served", log)
        self.assertEqual(self.made(use_mla_backend=True)[0], "triton")
        needs_pages = arguments_of(dcp_size=2, _get_default_attn_backend=lambda *_: "trtllm_mha")
        self.assertEqual(self.made(server_args=needs_pages)[0], "triton")

    def test_sglangs_own_serves_where_no_kernel_takes_a_layer(self):
        with unittest.mock.patch.object(attention.served, "prepare", side_effect=kernelwright.ConfigError("no such kernel")):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("no such kernel", log)

    def test_sglangs_own_serves_for_another_version_or_without_the_library(self):
        with unittest.mock.patch.object(sglang, "__version__", "0.9.9"):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("SGLang 0.9.9 is not one of 0.5.16, 0.5.17", log)
        with unittest.mock.patch("kernelwright._library.load", side_effect=OSError("no such file")):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("its library cannot be loaded: no such file", log)

    def test_sglangs_own_serves_without_a_compiler_and_without_kernels(self):
        with tempfile.TemporaryDirectory() as empty, \
                unittest.mock.patch.dict(os.environ, KERNELWRIGHT_NVRTC="/nowhere/libnvrtc.so", KERNELWRIGHT_CACHE_DIR=empty):
            found, log = self.made()
        self.assertEqual(found, "fa3")
        self.assertIn("leaves attention to SGLang's fa3", log)
        self.assertIn("/nowhere/libnvrtc.so", log)

    def test_what_a_batch_alone_tells_raises(self):
        backend = attention.KernelwrightAttnBackend.__new__(attention.KernelwrightAttnBackend)
        prompts = types.SimpleNamespace(forward_mode=ForwardMode.EXTEND, spec_info=None)
        with self.assertRaisesRegex(NotImplementedError, "graphs of decodes alone"):
            backend.init_forward_metadata_out_graph(prompts, in_capture=True)
        with self.assertRaisesRegex(NotImplementedError, "drafts none"):
            backend.init_forward_metadata_out_graph(types.SimpleNamespace(forward_mode=ForwardMode.DECODE, spec_info=object()))
        with self.assertRaisesRegex(NotImplementedError, 'takes no "score_mod"'):
            backend.forward_extend(None, None, None, None, None, score_mod=abs)


class Registration(unittest.TestCase):
    """SGLang's own loader and parser, in processes of their own, because SGLang keeps what is registered."""

    CODE = ("import sys, types\n"
            "for name in ('IPython', 'IPython.display'): sys.modules.setdefault(name, types.ModuleType(name))\n"
            "sys.modules['IPython.display'].HTML = sys.modules['IPython.display'].display = None\n"
            "from sglang.srt.plugins import load_plugins; load_plugins(); load_plugins()\n"
            "import argparse; from sglang.srt.server_args import ATTENTION_BACKEND_CHOICES, ServerArgs\n"
            "parser = argparse.ArgumentParser(); ServerArgs.add_cli_args(parser)\n"
            "print(ATTENTION_BACKEND_CHOICES.count('kernelwright'))\n"
            "found = parser.parse_args(['--model-path', 'm', '--attention-backend', 'kernelwright', '--fp8-gemm-backend', 'kernelwright'])\n"
            "print(found.attention_backend, found.fp8_gemm_runner_backend)")

    def run_in_sglang(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            installed = pathlib.Path(folder, "kernelwright-1.0.dist-info")
            installed.mkdir()
            (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kernelwright\nVersion: 1.0\n")
            (installed / "entry_points.txt").write_text("[sglang.srt.plugins]\nkernelwright = kernelwright.sglang:register\n")
            path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
            return subprocess.run([sys.executable, "-c", self.CODE], env=os.environ | {"PYTHONPATH": path} | environment,
                                  capture_output=True, text=True)

    def test_the_command_takes_the_names(self):
        done = self.run_in_sglang()
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertEqual(done.stdout.splitlines()[-2:], ["1", "kernelwright kernelwright"])

    def test_off(self):
        for environment in ({"KERNELWRIGHT_SGLANG": "off"}, {"SGLANG_PLUGINS": "another"}):
            done = self.run_in_sglang(**environment)
            self.assertEqual(done.stdout.splitlines()[-1], "0")
            self.assertIn("invalid choice: 'kernelwright'", done.stderr)


if __name__ == "__main__":
    print("SGLang", sglang.__version__)
    unittest.main(verbosity=2)
