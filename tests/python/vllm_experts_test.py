#!/usr/bin/env python3
"""Layers of experts behind vLLM's own classes: on the GPU if there is one, else on the emulator. Run by hand where vLLM's Python
files and torch are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the library, unless the
package is installed.

The reference is fp64, over the weights and tokens as they are stored.
"""
import contextlib
import os
import types
import unittest
import unittest.mock

import torch
import vllm
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config

from vllm_modules import BF16, DEVICE, F16, FP8, HAS_GPU, Layers, begin, made, randn


def setUpModule():
    global engine, experts, model
    from kernelwright.vllm import experts, model

    engine = begin()


class Experts(Layers):
    EXPERTS, TOP_K, HIDDEN, WIDTH = 6, 2, 128, 128

    def layer(self, dtype=BF16, fp8=False, **changes):
        """RoutedExperts as they are when they are loaded, and their weights in fp64."""
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation
        from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
        from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend

        layer = experts.RoutedExperts.__new__(experts.RoutedExperts)
        torch.nn.Module.__init__(layer)
        layer.runner = unittest.mock.Mock()  # which gets the method, too, where it is the layer's
        parallel = types.SimpleNamespace(dp_size=1, use_ep=False, enable_eplb=False)
        layer.moe_config = types.SimpleNamespace(moe_parallel_config=parallel, has_bias=False, in_dtype=dtype)
        layer.rocm_aiter_fmoe_enabled, layer._expert_map = False, None
        layer.activation, layer.top_k, layer.apply_router_weight_on_input = MoEActivation.SILU, self.TOP_K, False
        layer.swiglu_limit = layer.swiglu_alpha = layer.swiglu_beta = None
        shapes = (self.EXPERTS, 2 * self.WIDTH, self.HIDDEN), (self.EXPERTS, self.HIDDEN, self.WIDTH)
        weights = []
        for name, shape in zip(("w13", "w2"), shapes):
            values = torch.randn(shape) * shape[-1] ** -0.5
            stored = (values * 64).to(FP8) if fp8 else values.to(dtype)
            setattr(layer, f"{name}_weight", torch.nn.Parameter(stored.to(DEVICE), requires_grad=False))
            if fp8:
                scale = torch.rand(shape[0], shape[1] // 128, shape[2] // 128) / 128 + 1 / 128
                setattr(layer, f"{name}_weight_scale_inv", torch.nn.Parameter(scale.to(DEVICE), requires_grad=False))
                wide = scale.repeat_interleave(128, 1).repeat_interleave(128, 2)
            weights.append(stored.double() * (wide.double() if fp8 else 1))
        from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
        from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod
        kind = Fp8MoEMethod if fp8 else UnquantizedFusedMoEMethod
        method = kind.__new__(kind)
        torch.nn.Module.__init__(method) if isinstance(method, torch.nn.Module) else None
        method.moe, method.moe_kernel = layer.moe_config, types.SimpleNamespace(is_monolithic=False)
        if fp8:
            method.fp8_backend, method.block_quant = Fp8MoeBackend.DEEPGEMM, True
        else:
            method.unquantized_backend = UnquantizedMoeBackend.TRITON
        layer.quant_method = method
        for name, value in changes.items():
            setattr(layer, name, value)
        return layer, weights

    def forward(self, layer, x, shares, ids):
        """As vLLM's runner calls it behind its router."""
        return layer.quant_method.apply(layer=layer, x=x, topk_weights=shares, topk_ids=ids, shared_experts=None, shared_experts_input=None)

    def check(self, dtype, fp8, rounding):
        layer, (gate_up, down) = self.layer(dtype, fp8)
        taken, left = experts.serve_experts(torch.nn.ModuleDict({"experts": layer}))
        self.assertEqual((list(taken), left), (["experts"], {}))
        self.assertFalse(layer.quant_method.is_monolithic)
        for tokens in (1, 9):
            x = randn(tokens, self.HIDDEN, dtype=dtype)
            shares, ids = torch.rand(tokens, self.EXPERTS).softmax(-1).topk(self.TOP_K)
            found = self.forward(layer, x, shares.to(DEVICE), ids.to(DEVICE).to(torch.int32))
            want, size = torch.zeros(tokens, self.HIDDEN, dtype=torch.float64), 0.0
            for token in range(tokens):
                for share, expert in zip(shares[token].double(), ids[token]):
                    gate, up = (x[token].double().cpu() @ gate_up[expert].t()).chunk(2)
                    inner = torch.nn.functional.silu(gate) * up
                    want[token] += share * (down[expert] @ inner)
                    size = max(size, (share * (down[expert].abs() @ inner.abs())).max().item())
            off = (found.double().cpu() - want).abs().max().item()
            self.assertLessEqual(off, rounding * size)
            self.assertTrue(torch.equal(found, self.forward(layer, x, shares.to(DEVICE), ids.to(DEVICE))), "ids of 64 bits too")
            if not HAS_GPU:
                self.assertEqual(engine.take_hazards(), [])

    def test_behind_vllms_router(self):
        """A whole layer of vLLM's, from logits of the router to the sum with its shared experts. Without a GPU torch makes the
        router's choice, and vLLM tells of no backend of its own."""
        from vllm import _custom_ops
        from vllm.forward_context import set_forward_context
        from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as of_vllm
        from vllm.model_executor.layers.fused_moe.layer import FusedMoE

        def choose(weights, ids, _, logits, renormalize, *__):
            found, chosen = logits.float().softmax(-1).topk(self.TOP_K)
            weights.copy_(found / found.sum(-1, keepdim=True) if renormalize else found), ids.copy_(chosen)
        kernels = types.SimpleNamespace(is_monolithic=lambda *_: False)
        backend = of_vllm.UnquantizedMoeBackend.TRITON, kernels
        config, patch = VllmConfig(device_config=DeviceConfig(device=DEVICE)), unittest.mock.patch.object
        shared = torch.nn.Linear(self.HIDDEN, self.HIDDEN, bias=False)
        with set_current_vllm_config(config), patch(of_vllm, "select_unquantized_moe_backend", lambda *_, **__: backend):
            layer = made(lambda: FusedMoE(num_experts=self.EXPERTS, top_k=self.TOP_K, hidden_size=self.HIDDEN, renormalize=True,
                                          intermediate_size=self.WIDTH, shared_experts=shared, prefix="experts"), BF16)
            shared.to(BF16).to(DEVICE)
            routed = next(part for part in layer.modules() if isinstance(part, experts.RoutedExperts))
            gate_up, down = routed.w13_weight.double().cpu(), routed.w2_weight.double().cpu()
            taken, left = experts.serve_experts(torch.nn.ModuleDict({"mlp": layer}))
            self.assertEqual((len(taken), left), (1, {}))
            x, logits = randn(9, self.HIDDEN), randn(9, self.EXPERTS)
            with set_forward_context(None, config, num_tokens=len(x)), \
                    contextlib.nullcontext() if HAS_GPU else patch(_custom_ops, "topk_softmax", choose):
                found = layer(x.clone(), logits)
        want = shared(x).double().cpu()
        shares, ids = logits.float().cpu().softmax(-1).topk(self.TOP_K)
        for row, share, chosen, token in zip(want, shares.double() / shares.sum(-1, keepdim=True), ids, x.double().cpu()):
            for part, expert in zip(share, chosen):
                gate, up = (token @ gate_up[expert].t()).chunk(2)
                row += part * (down[expert] @ (torch.nn.functional.silu(gate) * up))
        self.assertLessEqual((found.double().cpu() - want).abs().max().item(), 2.0**-6 * want.abs().max().item())
        if not HAS_GPU:
            self.assertEqual(engine.take_hazards(), [])

    def test_16_bits(self):
        # Inner rows, rows of experts and results are rounded.
        self.check(BF16, False, 2.0**-7)
        self.check(F16, False, 2.0**-9)

    def test_fp8(self):
        # Tokens and inner rows are rounded to e4m3: by 2^-4 at most, in sums of 128 elements whose errors have both signs.
        self.check(BF16, True, 2.0**-4)

    def test_lora_keeps_experts_vllms(self):
        layer, _ = self.layer()
        before, method = layer.w13_weight.clone(), layer.quant_method
        with self.assertLogs("vllm.kernelwright", "INFO") as log:
            model.take_over(torch.nn.ModuleDict({"experts": layer}), ("experts",), has_lora=True)
        self.assertIs(layer.quant_method, method)
        self.assertTrue(torch.equal(layer.w13_weight, before))
        self.assertIn("LoRA", log.output[-1])

    def test_what_is_left_to_vllm(self):
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation
        from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend

        def reason(change=lambda layer: None, **changes):
            layer, _ = self.layer(**changes)
            before = layer.w13_weight.clone()
            change(layer)
            method = layer.quant_method
            taken, left = experts.serve_experts(torch.nn.ModuleDict({"experts": layer}))
            self.assertEqual(list(taken), [])
            self.assertIs(layer.quant_method, method)
            self.assertTrue(torch.equal(layer.w13_weight, before), "weights are as they were")
            return left["experts"]
        self.assertIn("several ranks", reason(_expert_map=torch.zeros(6, dtype=torch.int32)))
        self.assertIn("its activation is swigluoai", reason(activation=MoEActivation.SWIGLUOAI))
        self.assertIn("with limits", reason(swiglu_limit=7.0))
        self.assertIn("weights on a layer's input", reason(apply_router_weight_on_input=True))
        self.assertIn("FlashInfer CUTLASS", reason(
            lambda layer: setattr(layer.quant_method, "unquantized_backend", UnquantizedMoeBackend.FLASHINFER_CUTLASS)))

    def test_batch_invariant_results(self):
        """A token has the same bits whatever the others are, and however many: no product cuts k into parts, and a token's rows are
        added up in the order of its slots."""
        for fp8 in (False, True):
            with unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
                layer, _ = self.layer(BF16, fp8)
                whole = torch.nn.ModuleDict({"experts": layer})
                self.assertTrue(experts.problem_of(layer, layer.quant_method).batch_invariant)
                with self.assertLogs("vllm.kernelwright", "INFO") as log:
                    model.take_over(whole, ("experts",))
            self.assertIn("serves 1 layers of experts", " ".join(log.output))
            tokens = 300
            x = randn(tokens, self.HIDDEN)
            shares, ids = (each.to(DEVICE) for each in torch.rand(tokens, self.EXPERTS).softmax(-1).topk(self.TOP_K))
            every = self.forward(layer, x, shares, ids)
            for rows in (slice(0, 1), slice(7, 12), slice(100, 170), torch.randperm(tokens)[:150].to(DEVICE)):
                self.assertTrue(torch.equal(self.forward(layer, x[rows], shares[rows], ids[rows]), every[rows]), (fp8, rows))


if __name__ == "__main__":
    print("vLLM", vllm.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
