#!/usr/bin/env python3
"""experts_implementation="kernelwright" of transformers, against fp64: on the GPU if there is one, else on the emulator.

Run by hand like transformers_test.py. The gate is that each layer of experts differs from fp64 by at most 1.1 times what
transformers' grouped_mm differs by in the same dtype.
"""
import copy
import os
import sys
import unittest
import warnings

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations import finegrained_fp8
from transformers.integrations.moe import grouped_mm_experts_forward, use_experts_implementation

import kernelwright
import kernelwright.transformers as ours
from kernelwright import _experts
from kernelwright._groups import quantize_groups

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EMULATED = dict(backend="emulator", emulator_arch=os.environ.get("KERNELWRIGHT_TEST_ARCH", "sm_90a"), hazards=True)
ENGINE = kernelwright.Engine(**EMULATED if DEVICE == "cpu" else {"backend": "cuda"})
GATE, TOKENS = 1.1, 40
COMMON = dict(vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=64, max_position_embeddings=256, initializer_range=0.1, pad_token_id=0,
              eos_token_id=None, bos_token_id=None)
MODELS = {
    "qwen3_moe": dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True),
    "mixtral": dict(num_local_experts=8, num_experts_per_tok=2, hidden_act="gelu_pytorch_tanh"),
    "gpt_oss": dict(num_local_experts=4, num_experts_per_tok=4),  # all: no choice that rounding could change
}


def made(kind, implementation="eager", dtype=torch.bfloat16):
    config = AutoConfig.for_model(kind, **COMMON | MODELS[kind])
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2 and "experts" in name:  # from_config leaves some as they were allocated
            torch.nn.init.normal_(parameter, std=0.1)
    model = copy.deepcopy(model).to(device=DEVICE, dtype=dtype)
    model.set_experts_implementation(implementation)
    return model


def experts_of(model):
    return [module for module in model.modules() if hasattr(module, "gate_up_proj") and module.gate_up_proj.dim() == 3]


class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ours.register(ENGINE)

    def setUp(self):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(TOKENS, 128, generator=generator).to(DEVICE)
        self.scores = torch.randn(TOKENS, 4, generator=generator).softmax(-1).to(DEVICE)
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, True)

    def call(self, module, dtype, experts):
        """(ours, transformers', fp64)."""
        weights, ids = self.scores.topk(2)
        ids = (ids * 2 + torch.arange(TOKENS, device=DEVICE)[:, None] % 2).clamp(max=experts - 1)
        ids[:, 1] = (ids[:, 0] + 1 + ids[:, 1] % (experts - 1)) % experts  # another one
        x, weights = self.x.to(dtype), weights.to(dtype)
        exact = copy.deepcopy(module).double()
        right = type(exact).forward.__wrapped__(exact, x.double(), ids, weights.double())
        return _experts.experts(module, x, ids, weights), grouped_mm_experts_forward(module, x, ids, weights), right

    def check(self, kind, dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a layer that is left to transformers
            module = experts_of(made(kind, dtype=dtype))[0]
            found, theirs, right = self.call(module, dtype, module.num_experts)
        off, their_off = ((out.double() - right).norm() / right.norm() for out in (found, theirs))
        self.assertLessEqual(off, GATE * their_off)
        self.assertLess(off, 0.02)
        self.assertEqual(ENGINE.take_hazards() if DEVICE == "cpu" else [], [])

    def test_each_layer_is_right(self):
        for kind in MODELS:
            for dtype in (torch.bfloat16, torch.float16):
                with self.subTest(kind=kind, dtype=dtype):
                    self.check(kind, dtype)

    def test_fp8_experts_are_right(self):
        """Against fp64 of the same elements, with rows quantised in PyTorch as ours are."""
        sizes = dict(moe_intermediate_size=128, hidden_size=256)
        config = AutoConfig.for_model("qwen3_moe", **COMMON | MODELS["qwen3_moe"] | sizes)
        config._experts_implementation = "kernelwright"
        cls = use_experts_implementation(type("Fp8", (finegrained_fp8.FP8Experts,), {}),
                                         experts_interface=finegrained_fp8.ALL_FP8_EXPERTS_FUNCTIONS)
        module = cls(config, block_size=(128, 128)).to(DEVICE)
        generator = torch.Generator().manual_seed(6)
        parts = [(getattr(module, name), getattr(module, name + "_scale_inv")) for name in ("gate_up_proj", "down_proj")]
        for weight, scales in parts:
            weight.data.copy_((torch.randn(weight.shape, generator=generator) * 60).to(torch.float8_e4m3fn))
            scales.data.copy_(torch.rand(scales.shape, generator=generator) * 1e-3 + 1e-3)

        def full(weight, scales):
            return weight.double() * scales.double().repeat_interleave(128, -2).repeat_interleave(128, -1)

        def quantised(rows):
            elements, scales = quantize_groups(rows)
            return elements.double() * scales.t().double().repeat_interleave(128, 1)
        x = torch.randn(TOKENS, 256, generator=generator).to(DEVICE).bfloat16()
        weights, ids = torch.randn(TOKENS, 8, generator=generator).softmax(-1).topk(2)
        weights, ids = weights.to(DEVICE), ids.to(DEVICE)
        found = module(x, ids, weights).double()
        gate_up, down = (full(*part) for part in parts)
        right, rows = torch.zeros_like(found), quantised(x)
        for slot in range(2):
            gate, up = torch.einsum("th,twh->tw", rows, gate_up[ids[:, slot]]).bfloat16().double().chunk(2, -1)
            inner = quantised((torch.nn.functional.silu(gate) * up).float())
            right += torch.einsum("tw,thw->th", inner, down[ids[:, slot]]) * weights[:, slot:slot + 1].double()
        self.assertLess((found - right).norm() / right.norm(), 0.01)
        self.assertEqual(ENGINE.take_hazards() if DEVICE == "cpu" else [], [])

    def test_experts_of_other_ranks_add_nothing(self):
        module = experts_of(made("qwen3_moe"))[0]
        ids = torch.tensor([[0, 8], [8, 8], [7, 3]], device=DEVICE)  # 8 experts: 8 is the number of none
        weights = torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.25, 0.75]], device=DEVICE, dtype=torch.bfloat16)
        x = self.x[:3].bfloat16()
        found = _experts.experts(module, x, ids, weights)
        torch.testing.assert_close(found, grouped_mm_experts_forward(module, x, ids, weights), rtol=2**-6, atol=2**-6)
        self.assertEqual(found[1].abs().max().item(), 0)

    def test_a_model_calls_it_in_each_layer(self):
        for kind in MODELS:
            with self.subTest(kind=kind):
                ids = torch.randint(1, 128, (2, 12), generator=torch.Generator().manual_seed(3)).to(DEVICE)
                right = made(kind, "grouped_mm")(ids).logits.float()
                model = made(kind, "kernelwright")
                calls = []
                for module in experts_of(model):
                    module.register_forward_hook(lambda *_: calls.append(1))
                found = model(ids).logits.float()
                self.assertEqual(len(calls), 2)
                # A router of the second layer may choose another expert where two scores are close.
                self.assertLess((found - right).norm() / right.norm(), 0.1)

    def test_torch_compile_takes_it(self):
        _experts._gates.clear()  # the first call of a layer may be a compiled one
        module = experts_of(made("qwen3_moe"))[0]
        weights, ids = self.scores.topk(2)
        arguments = self.x.bfloat16(), ids, weights.bfloat16()
        compiled = torch.compile(lambda *tensors: _experts.experts(module, *tensors), fullgraph=True, dynamic=False,
                                 **{} if DEVICE == "cuda" else {"backend": "aot_eager"})
        self.assertTrue(torch.equal(compiled(*arguments), _experts.experts(module, *arguments)))

    def test_what_no_kernel_takes_is_left_with_a_warning(self):
        module = experts_of(made("qwen3_moe", dtype=torch.float32))[0]
        weights, ids = self.scores.topk(2)
        with self.assertWarnsRegex(UserWarning, "leaves these experts to transformers: tokens are torch.float32"):
            found = _experts.experts(module, self.x, ids, weights)
        self.assertTrue(torch.equal(found, grouped_mm_experts_forward(module, self.x, ids, weights)))

    def test_gates_with_other_limits_are_left(self):
        """silu with gates and ups clamped at 10, as DeepSeek-V4 has it."""
        class Clamped(type(experts_of(made("qwen3_moe"))[0])):
            def _apply_gate(self, rows):
                gate, up = rows.chunk(2, -1)
                return torch.nn.functional.silu(gate.clamp(max=10)) * up.clamp(-10, 10)
        module = experts_of(made("qwen3_moe"))[0]
        module.__class__ = Clamped
        with self.assertRaisesRegex(kernelwright.ConfigError, "its product of gates and ups is none that a kernel has"):
            _experts._gates_of(module)

    def test_gradients_are_left_to_transformers(self):
        torch.set_grad_enabled(True)
        module = experts_of(made("qwen3_moe"))[0]
        weights, ids = self.scores.topk(2)
        _experts.experts(module, self.x.bfloat16(), ids, weights.bfloat16()).sum().backward()
        self.assertIsNotNone(module.down_proj.grad)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv)
