#!/usr/bin/env python3
"""Logits of vLLM's own models of two layers whose layers are ours: of full width on the GPU if there is one, else small ones on the
emulator. Run by hand where vllm_layers_test.py is run; it is no part of CI.

The reference is the same model of vLLM's in float32, with the same weights. Attention is a plain one of torch in all of them, since
vllm_test.py has ours. A model passes if its logits are as near to float32 as those of vLLM's own layers, within a tenth.
"""
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

import torch
import vllm_layers_test as layers
from vllm import ir
from vllm.config import CompilationConfig, DeviceConfig, ModelConfig, VllmConfig, set_current_vllm_config

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import serve

BF16, F32, FP8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
TOKENS, WORDS = 33, 512
SMALL = {} if layers.HAS_GPU else {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 2,
                                   "head_dim": 64}
PARTS = ("linears", "gates", "norms", "experts")
MAKING = (2, 4) if layers.HAS_TOKENS else (0, 0)  # activations and norms that make the tokens of an fp8 layer


def setUpModule():
    global attention_of_ours
    from kernelwright.vllm import attention as attention_of_ours

    layers.setUpModule()


def attention(self, query, key, value, *_, **__):
    """Attention.forward() over one sequence."""
    q, k, v = (each.reshape(each.shape[0], -1, self.head_size).transpose(0, 1).float() for each in (query, key, value))
    k, v = (each.repeat_interleave(q.shape[0] // k.shape[0], 0) for each in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(query.shape).to(query.dtype)


class Models(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(23)
        self.enterContext(torch.no_grad())
        layers.norms.register()

    def make(self, name, dtype, **more):
        """A model of vLLM's and its configuration. Parameters are what memory had."""
        from vllm.model_executor.layers.attention import Attention, attention as of_attention
        from vllm.model_executor.model_loader.utils import initialize_model

        folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
            json.dump(serve.MODELS[name] | SMALL | {"num_hidden_layers": 2, "vocab_size": WORDS} | more, file)
        config = VllmConfig(model_config=ModelConfig(model=folder, skip_tokenizer_init=True, max_model_len=128, dtype=dtype),
                            device_config=DeviceConfig(device=layers.DEVICE),
                            compilation_config=CompilationConfig(mode=0, custom_ops=["none"]))
        default = torch.get_default_dtype()
        backend = unittest.mock.patch.object(of_attention, "get_attn_backend", lambda *_, **__: attention_of_ours.KernelwrightBackend)
        with set_current_vllm_config(config), backend, torch.device(layers.DEVICE):
            torch.set_default_dtype(dtype)
            try:
                model = initialize_model(vllm_config=config)
            finally:
                torch.set_default_dtype(default)
        for module in model.modules():
            if isinstance(module, Attention):
                module.forward = types.MethodType(attention, module)
        return model, config

    def logits(self, model, config, providers=("native",)):
        from vllm.forward_context import set_forward_context

        ids = (torch.arange(TOKENS) * 37 % WORDS).to(layers.DEVICE)
        with set_current_vllm_config(config), set_forward_context(None, config), torch.device(layers.DEVICE), \
                ir.ops.rms_norm.set_priority(list(providers)), ir.ops.fused_add_rms_norm.set_priority(list(providers)):
            return model.compute_logits(model(ids, torch.arange(TOKENS))).double().cpu()

    def fill(self, model, reference):
        """Random weights, which both have."""
        theirs = dict(reference.named_parameters())
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape) * (0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5)
            parameter.data.copy_(values + (1.0 if "norm" in name else 0.0))
            theirs[name].data.copy_(parameter.data.float())

    def off(self, found, want):
        return ((found - want).norm() / want.norm()).item()

    def ours(self, model, config):
        return self.logits(model, config, (layers.norms.PROVIDER, "native"))

    def check(self, name, norms):
        model, config = self.make(name, BF16)
        reference, of_reference = self.make(name, F32)
        self.fill(model, reference)
        want = self.logits(reference, of_reference)
        own = self.off(self.logits(model, config), want)
        self.assertGreater(own, 0)
        self.check_taken(model, config, want, 1.1 * own, "serves 9 linear layers of 16 bits, 2 of them", f"serves {norms} norms")

    def check_taken(self, model, config, want, bound, *words):
        """Takes the model over, with these words in the log. Its logits are nearer than `bound`, and repeat to the bit."""
        with self.assertLogs("vllm.kernelwright", "INFO") as log:
            layers.model.take_over(model, PARTS)
        for word in words:
            self.assertIn(word, " ".join(log.output))
        found = self.ours(model, config)
        self.assertLess(self.off(found, want), bound)
        self.assertTrue(torch.equal(found, self.ours(model, config)))
        if not layers.HAS_GPU:
            self.assertEqual(layers.engine.take_hazards(), [])

    def test_llama(self):
        self.check("llama-3-8b", norms=5)

    def test_qwen3(self):
        self.check("qwen3-8b", norms=5)

    def test_gemma3(self):
        self.check("gemma-3-12b", norms=0)

    def check_fp8(self, weights):
        """Beside float32 with the values that fp8 weights have. The gate is what the layers have without norms and activations
        that quantise."""
        from vllm.model_executor.kernels import linear
        from vllm.model_executor.layers.linear import LinearBase
        from vllm.model_executor.layers.quantization import fp8
        from vllm.platforms import current_platform

        patch, blocks = unittest.mock.patch, weights == "fp8-blocks"
        kernels = linear._POSSIBLE_FP8_BLOCK_KERNELS if blocks else linear._POSSIBLE_FP8_KERNELS
        ours = layers.linears.KernelwrightFp8BlockLinearKernel if blocks else layers.linears.KernelwrightFp8LinearKernel
        given = serve.WEIGHTS[weights] | {"is_checkpoint_fp8_serialized": True}
        with patch.object(fp8, "cutlass_fp8_supported", lambda: True), patch.dict(kernels, {current_platform._enum: [ours]}):
            model, config = self.make("llama-3-8b", BF16, quantization_config=given)
        reference, of_reference = self.make("llama-3-8b", F32)
        theirs = dict(reference.named_modules())
        for name, layer in model.named_modules():
            if not isinstance(layer, LinearBase):
                if isinstance(getattr(layer, "weight", None), torch.nn.Parameter):
                    layer.weight.data.copy_(torch.randn(layer.weight.shape) * (0.2 if layer.weight.dim() == 1 else 0.06) + ("norm" in name))
                    theirs[name].weight.data.copy_(layer.weight.data.float())
                continue
            values = torch.randn(layer.weight.shape) * layer.weight.shape[-1] ** -0.5
            scales = layer.weight_scale_inv if blocks else layer.weight_scale
            scales.data.copy_(torch.rand(scales.shape) * 2.0**-10 + 2.0**-10) if blocks else scales.data.fill_(2.0**-10)
            wide = scales.data.cpu()
            wide = wide.repeat_interleave(128, 0).repeat_interleave(128, 1) if blocks else wide[0]
            layer.weight.data.copy_((values / wide).to(FP8))
            theirs[name].weight.data.copy_(layer.weight.data.float().cpu() * wide)
            with patch.object(fp8, "process_fp8_weight_tensor_strategy", lambda weight, scale, widths, rows: (weight, scale[:1], rows)):
                layer.quant_method.process_weights_after_loading(layer)
        want = self.logits(reference, of_reference)
        layers.model.take_over(model, ("linears",))
        apart = self.off(self.logits(model, config), want)
        self.assertLess(apart, 0.1)
        self.check_taken(model, config, want, 1.1 * apart, "serves 8 linear layers of fp8, %d of them" % MAKING[0],
                         "serves 5 norms, %d of them make the tokens" % MAKING[1])

    def test_a_wrong_attention_changes_first_tokens_with_the_weights_of_our_bench(self):
        model, config = self.make("llama-3-8b", F32)
        serve.fill(model)
        right = self.logits(model, config).argmax(-1)
        for module in model.modules():
            if type(module).__name__ == "Attention":
                module.forward = lambda query, *_, **__: torch.zeros_like(query)
        wrong = self.logits(model, config).argmax(-1)
        self.assertLess((wrong == right).double().mean().item(), 0.2)
        self.assertGreater(len(set(right.tolist())), TOKENS // 2, "each prompt has its own")

    def test_llama_with_fp8_weights(self):
        self.check_fp8("fp8")

    def test_llama_with_fp8_weights_of_blocks(self):
        self.check_fp8("fp8-blocks")


if __name__ == "__main__":
    unittest.main(verbosity=2)
