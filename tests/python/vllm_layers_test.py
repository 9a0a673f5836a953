#!/usr/bin/env python3
"""Linear layers, activations and norms behind vLLM's own classes: on the GPU if there is one, else on the emulator. Run by hand where
vLLM's Python files and torch are installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the library,
unless the package is installed.

The reference is fp64, over the weights and tokens as they are stored. What a test compares was computed by vLLM's own modules, whose
methods are ours.
"""
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

import torch
import vllm

from vllm_modules import BF16, DEVICE, F16, FP8, HAS_GPU, HAS_TOKENS, Layers, begin, made, randn


def setUpModule():
    global engine, linears, model, norms
    from kernelwright.vllm import linears, model, norms

    engine = begin()


class Linears(Layers):
    def test_layers_with_and_without_a_bias(self):
        from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, ReplicatedLinear, RowParallelLinear

        for dtype, rounding in ((BF16, 2.0**-8), (F16, 2.0**-10)):
            for make in (lambda: ColumnParallelLinear(64, 48, bias=True), lambda: RowParallelLinear(64, 48, bias=False),
                         lambda: QKVParallelLinear(64, 16, 4, 2, bias=True), lambda: ReplicatedLinear(64, 24, bias=True)):
                layer = made(make, dtype)
                with self.subTest(type(layer).__name__, dtype=dtype):
                    taken, left = linears.serve_linears(torch.nn.ModuleList([layer]))
                    self.assertEqual((list(taken), left), (["0"], {}))
                    for rows in (1, 5):
                        x = randn(rows, 64, dtype=dtype)
                        want = x.double() @ layer.weight.double().t() + (0 if layer.bias is None else layer.bias.double())
                        self.near(layer(x)[0], want, rounding)
                        self.assertTrue(torch.equal(layer(x)[0], layer(x)[0]))

    def test_the_layer_that_makes_logits(self):
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

        head = made(lambda: ParallelLMHead(100, 64), BF16)
        embedding = made(lambda: VocabParallelEmbedding(100, 64), BF16)
        whole = torch.nn.ModuleDict({"lm_head": head, "embed_tokens": embedding})
        self.assertEqual(list(linears.serve_linears(whole)[0]), ["lm_head"])
        x = randn(3, 64)
        self.near(head.quant_method.apply(head, x), x.double() @ head.weight.double().t(), 2.0**-8)
        ids = torch.tensor([3, 99], device=DEVICE)
        self.assertTrue(torch.equal(head.quant_method.embedding(head, ids), head.weight[ids]))

    def test_rows_that_lie_apart_and_more_dimensions(self):
        from vllm.model_executor.layers.linear import ReplicatedLinear

        layer = made(lambda: ReplicatedLinear(64, 24, bias=False), BF16)
        linears.serve_linears(torch.nn.ModuleList([layer]))
        wide = randn(6, 201)
        for x in (wide[:, :64], wide[:, 1:65], wide[:, ::2][:, :64], randn(2, 3, 64), randn(64, 6).t(), randn(0, 64)):
            found = layer(x)[0]
            self.assertEqual(found.shape, (*x.shape[:-1], 24))
            if x.numel():
                self.near(found, x.double() @ layer.weight.double().t(), 2.0**-8)

    def test_what_is_left_to_vllm(self):
        from vllm.model_executor.layers.linear import ReplicatedLinear

        plain, odd = made(lambda: ReplicatedLinear(64, 24, bias=False), torch.float32), made(lambda: ReplicatedLinear(63, 24, bias=False), BF16)
        taken, left = linears.serve_linears(torch.nn.ModuleDict({"f32": plain, "odd": odd}))
        self.assertEqual(list(taken), [])
        self.assertIn("float32", left["f32"])
        self.assertIn("/problem/k", left["odd"])
        x = torch.randn(2, 64, device=DEVICE)
        self.near(plain(x)[0], x.double() @ plain.weight.double().t(), 2.0**-20)

    def test_compiled_and_eager_have_the_same_bits(self):
        from vllm.model_executor.models.llama import LlamaMLP

        mlp = made(lambda: LlamaMLP(64, 96, "silu"), BF16)
        model.take_over(mlp, ("linears", "gates"))
        self.assertEqual(type(mlp.act_fn), torch.nn.Identity)
        compiled = torch.compile(mlp, fullgraph=True, dynamic=True, backend="inductor" if HAS_GPU else "eager")
        with torch.inference_mode():
            for rows in (2, 7, 33):
                x = randn(rows, 64)
                self.assertTrue(torch.equal(compiled(x), mlp(x)))


class Gates(Layers):
    ACTIVATIONS = {"silu(gate) * up": torch.nn.functional.silu,
                   "gelu_tanh(gate) * up": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}

    def check(self, mlp, epilogue, width):
        gate, up = mlp.gate_up_proj.weight.double().chunk(2)
        down = mlp.down_proj.weight.double()
        model.take_over(mlp, ("linears", "gates"))
        self.assertEqual(type(mlp.act_fn), torch.nn.Identity)
        x = randn(5, width)
        inner = self.ACTIVATIONS[epilogue](x.double() @ gate.t()) * (x.double() @ up.t())
        self.near(mlp.gate_up_proj(x)[0], inner, 2.0**-8)
        # Inner rows are rounded to bf16: each moves a sum by 2^-9 of its term.
        self.near(mlp(x), inner @ down.t(), 2.0**-8, terms=2.0**7 * (inner.abs() @ down.abs().t()).max().item())

    def test_silu(self):
        from vllm.model_executor.models.llama import LlamaMLP
        from vllm.model_executor.models.qwen2 import Qwen2MLP

        self.check(made(lambda: LlamaMLP(64, 96, "silu"), BF16), "silu(gate) * up", 64)
        self.check(made(lambda: Qwen2MLP(64, 40, "silu"), BF16), "silu(gate) * up", 64)

    def test_gelu(self):
        from vllm.model_executor.models.gemma3 import Gemma3MLP

        self.check(made(lambda: Gemma3MLP(64, 96, "gelu_pytorch_tanh"), BF16), "gelu_tanh(gate) * up", 64)

    def test_weights_are_reloaded_whole_or_not_at_all(self):
        from vllm.model_executor.models.llama import LlamaMLP

        mlp = made(lambda: LlamaMLP(64, 96, "silu"), BF16)
        model.take_over(mlp, ("linears", "gates"))
        layer = mlp.gate_up_proj
        with self.assertRaisesRegex(RuntimeError, "has interleaved this weight"):
            layer.weight.weight_loader(layer.weight, torch.zeros(96, 64), 0)
        new = randn(192, 64)
        layer.weight.data.copy_(new)
        layer.quant_method.process_weights_after_loading(layer)  # as vLLM calls it behind a reload
        x = randn(3, 64)
        gate, up = (x.double() @ half.double().t() for half in new.chunk(2))
        self.near(layer(x)[0], torch.nn.functional.silu(gate) * up, 2.0**-8)

    def test_interleaved_weights_are_not_saved(self):
        from safetensors.torch import load_file
        from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
        from vllm.model_executor.models.llama import LlamaMLP

        mlp = made(lambda: LlamaMLP(64, 96, "silu"), BF16)
        self.enterContext(unittest.mock.patch.object(ShardedStateLoader, "save_model", ShardedStateLoader.save_model))
        with tempfile.TemporaryDirectory() as folder:
            model.refuse_to_save_what_is_interleaved(ShardedStateLoader)
            model.take_over(mlp, ("linears",))
            ShardedStateLoader.save_model(mlp, folder)
            (file,) = pathlib.Path(folder).iterdir()
            self.assertTrue(torch.equal(load_file(file)["gate_up_proj.weight"], mlp.gate_up_proj.weight.cpu()))
            file.unlink()
            linears.fuse_gates(mlp, {"gate_up_proj": mlp.gate_up_proj})
            with self.assertRaisesRegex(RuntimeError, "has interleaved 1 weights, gate_up_proj.weight ..., so the model cannot be saved"):
                ShardedStateLoader.save_model(model=mlp, path=folder)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_weights_are_not_written_over_interleaved_ones(self):
        """As they come; in a checkpoint's format vLLM loads them anew."""
        from vllm.model_executor.models.llama import LlamaMLP

        class Runner:
            def __init__(self, model):
                self.model, self.model_runner, self.written = model, self, []

            def get_model(self):
                return self.model

            def reload_weights(self, weights=None, path=None, is_checkpoint_format=True):
                self.written.append(is_checkpoint_format)

            def receive_weights(self, update):
                self.written.append(update)

        mlp = made(lambda: LlamaMLP(64, 96, "silu"), BF16)
        runner = Runner(mlp)
        with unittest.mock.patch.dict(sys.modules, {"runners": types.SimpleNamespace(Runner=Runner)}):
            for _ in range(2):  # the second finds the method refusing already
                model.refuse_to_write_what_is_interleaved("runners", "Runner", "reload_weights", Runner.get_model, False)
                model.refuse_to_write_what_is_interleaved("runners", "Runner", "receive_weights", Runner.get_model, True)
            model.refuse_to_write_what_is_interleaved("runners", "Runner", "no_such_method", Runner.get_model, True)
        model.refuse_to_write_what_is_interleaved("no.such.module", "Runner", "reload_weights", Runner.get_model, True)
        runner.reload_weights(is_checkpoint_format=False)
        runner.receive_weights("sparse")
        model.take_over(mlp, ("linears", "gates"))
        runner.reload_weights()
        for write in (lambda: runner.reload_weights(None, None, False), lambda: runner.receive_weights("sparse")):
            with self.assertRaisesRegex(RuntimeError, "has interleaved 1 weights, gate_up_proj.weight ..., so others cannot be written"):
                write()
        self.assertEqual(runner.written, [False, "sparse", True])

    def test_lora_keeps_the_activation(self):
        from vllm.model_executor.models.llama import LlamaMLP

        mlp = made(lambda: LlamaMLP(64, 96, "silu"), BF16)
        model.take_over(mlp, ("linears", "gates"), has_lora=True)
        self.assertNotEqual(type(mlp.act_fn), torch.nn.Identity)
        self.assertIs(type(mlp.gate_up_proj.quant_method), linears.KernelwrightLinearMethod)


class Fp8(Layers):
    """Kernels that vLLM chooses for fp8 layers, called as its Fp8LinearMethod calls them."""

    N, K = 48, 256

    def config(self, of_rows, static, of_weight, dtype=BF16, n=N):
        from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import FP8ScaledMMLinearLayerConfig
        from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape, QuantKey, ScaleDesc

        rows = QuantKey(FP8, ScaleDesc(torch.float32, static, GroupShape(*of_rows)))
        weight = QuantKey(FP8, ScaleDesc(torch.float32, True, GroupShape(*of_weight)))
        return FP8ScaledMMLinearLayerConfig(weight_quant_key=weight, activation_quant_key=rows, weight_shape=(n, self.K),
                                            input_dtype=dtype, out_dtype=dtype)

    def test_scales_of_tensors_tokens_and_channels(self):
        whole, token, channel = (-1, -1), (1, -1), (-1, 1)
        for of_rows, static, of_weight in ((whole, True, whole), (whole, False, whole), (token, False, whole), (token, False, channel),
                                           (whole, True, channel)):
            for biased in (False, True):
                with self.subTest(rows=of_rows, static=static, weight=of_weight, bias=biased):
                    config = self.config(of_rows, static, of_weight)
                    kernel_class = linears.KernelwrightFp8LinearKernel
                    self.assertEqual(kernel_class.can_implement(config), (True, None))
                    self.assertFalse(linears.KernelwrightFp8BlockLinearKernel.can_implement(config)[0])
                    kernel = kernel_class(config, ["weight", "weight_scale", "input_scale", "input_scale_ub"])
                    weight = torch.randn(self.N, self.K).clamp(-3, 3).to(FP8)
                    scale = torch.rand(self.N, 1) * 0.02 + 0.01 if of_weight == channel else torch.tensor([0.02])
                    x = randn(5, self.K)
                    layer = torch.nn.Module()
                    layer.weight = torch.nn.Parameter(weight.to(DEVICE).t(), requires_grad=False)
                    layer.weight_scale = torch.nn.Parameter(scale.to(DEVICE), requires_grad=False)
                    given = torch.tensor(4.0 / 448)
                    layer.input_scale = torch.nn.Parameter(given.to(DEVICE), requires_grad=False) if static else None
                    bias = randn(self.N) if biased else None
                    layer.bias = bias
                    kernel.process_weights_after_loading(layer)
                    found = kernel.apply_weights(layer, x, bias)
                    # Tokens as vLLM's own quantiser leaves them.
                    stored, of_x = kernel.quant_fp8(x, layer.input_scale, None)
                    want = (stored.double().cpu() * of_x.double().cpu().reshape(-1, 1)) @ (weight.double() * scale.double()).t()
                    want = want if bias is None else want + bias.double().cpu()
                    self.near(found, want, 2.0**-8, terms=16.0)

    def test_scales_of_blocks(self):
        for dtype in (BF16, F16):
            config = self.config((1, 128), False, (128, 128), dtype, n=200)
            kernel_class = linears.KernelwrightFp8BlockLinearKernel
            self.assertEqual(kernel_class.can_implement(config), (True, None))
            self.assertFalse(linears.KernelwrightFp8LinearKernel.can_implement(config)[0])
            kernel = kernel_class(config)
            weight, scale = torch.randn(200, self.K).clamp(-3, 3).to(FP8), torch.rand(2, 2) * 0.02 + 0.01
            layer = torch.nn.Module()
            layer.weight = torch.nn.Parameter(weight.to(DEVICE), requires_grad=False)
            layer.weight_scale_inv = torch.nn.Parameter(scale.to(DEVICE), requires_grad=False)
            kernel.process_weights_after_loading(layer)
            wide = scale.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1).double()
            for rows in (1, 5, 6):
                x = randn(rows, self.K, dtype=dtype)
                elements, of_x = linears.quantised(kernel.quantiser.number, x, self.K)
                stored = elements.double().cpu() * of_x.double().cpu().t().repeat_interleave(128, 1)
                off = (stored - x.double().cpu()).abs()
                self.assertLessEqual((off - 2.0**-4 * x.double().cpu().abs() - 2.0**-9).max().item(), 0)
                self.near(kernel.apply_weights(layer, x), stored @ (weight.double() * wide).t(), 2.0**-8, terms=16.0)

    def fp8(self, block, make):
        """What `make` makes with a quantisation of vLLM's: fp8 weights as its loader leaves them, served by ours; and the values
        of its linear layers in fp64, by their names."""
        from vllm.model_executor.kernels import linear
        from vllm.model_executor.layers.linear import LinearBase
        from vllm.model_executor.layers.quantization import fp8
        from vllm.platforms import current_platform

        given = fp8.Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic",
                              weight_block_size=[128, 128] if block else None)
        config = types.SimpleNamespace(model_config=types.SimpleNamespace(dtype=BF16))
        kernels = linear._POSSIBLE_FP8_BLOCK_KERNELS if block else linear._POSSIBLE_FP8_KERNELS
        ours = linears.KernelwrightFp8BlockLinearKernel if block else linears.KernelwrightFp8LinearKernel
        patch = unittest.mock.patch
        with patch.object(fp8, "get_current_vllm_config", lambda: config), patch.object(fp8, "cutlass_fp8_supported", lambda: True), \
                patch.dict(kernels, {current_platform._enum: [ours]}):
            module = made(lambda: make(given), BF16)
        values = {}
        for name, layer in module.named_modules():
            if not isinstance(layer, LinearBase):
                continue
            layer.weight.data.copy_((torch.randn(layer.weight.shape) * 3).to(FP8))
            scales = layer.weight_scale_inv if block else layer.weight_scale
            scales.data.copy_(torch.rand(scales.shape) * 0.01 + 0.005)
            scale = scales.data.double().cpu()
            if block:
                scale = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            else:
                scales.data.fill_(scales.data[0])  # parts of a layer have one scale, so that vLLM need not quantise them again
                scale = scale[:1]
            values[name] = layer.weight.data.double().cpu() * scale
            with patch.object(fp8, "process_fp8_weight_tensor_strategy", lambda weight, scale, widths, rows: (weight, scale[:1], rows)):
                layer.quant_method.process_weights_after_loading(layer)
        return module, values

    def mlp(self, block):
        from vllm.model_executor.models.llama import LlamaMLP

        mlp, values = self.fp8(block, lambda given: LlamaMLP(256, 384, "silu", quant_config=given))
        return mlp, (values["gate_up_proj"], values["down_proj"])

    def near_e4m3(self, stored, exact):
        """Half of 2^-3 of a value, or of the smallest step: 2^-9 of 1/448 of the largest that shares its scale."""
        off = (stored - exact).abs() - 2.0**-4 * exact.abs() - 2.0**-18 * exact.abs().amax(1, keepdim=True)
        self.assertLessEqual(off.max().item(), 1e-6 * exact.abs().max().item())

    @unittest.skipUnless(HAS_TOKENS, "each layer quantises its own tokens")
    def test_activations_make_the_tokens_of_the_layer_behind(self):
        for block in (False, True):
            with self.subTest(block=block):
                mlp, (gate_up, down) = self.mlp(block)
                with self.assertLogs("vllm.kernelwright", "INFO") as log:
                    model.take_over(mlp, ("linears", "gates"))
                self.assertIn("2 linear layers of fp8, 1 of them", " ".join(log.output))
                self.assertIsInstance(mlp.act_fn, linears.Gates)
                for shape in ((5, 256), (1, 256), (0, 256), (2, 3, 256)):
                    x = randn(*shape)
                    with torch.inference_mode():
                        found = mlp(x)
                        self.assertEqual(found.shape, shape)
                        if not x.numel():
                            continue
                        sums = mlp.gate_up_proj(x)[0]
                        tokens = mlp.act_fn(sums)
                    self.assertEqual(tokens.orig_shape, (*shape[:-1], 384))
                    stored, of_tokens, _ = mlp.gate_up_proj.quant_method.fp8_linear.quantiser(x)
                    stored = self.values(stored, of_tokens)
                    self.near(sums.reshape(-1, 768), stored @ gate_up.t(), 2.0**-8, self.terms(stored, gate_up))
                    gate, up = sums.double().cpu().reshape(-1, 768).chunk(2, -1)
                    stored = self.values(tokens.data, tokens.scale)
                    self.near_e4m3(stored, torch.nn.functional.silu(gate) * up)
                    self.near(found.reshape(-1, 256), stored @ down.t(), 2.0**-8, self.terms(stored, down))

    @staticmethod
    def terms(rows, weight):
        """For near(): Hopper's tensor cores cut e4m3 products at 2^-13 of the largest sum."""
        return 8 * (rows.abs() @ weight.abs().t()).max().item()

    @staticmethod
    def values(elements, scale):
        """Tokens of e4m3 in fp64. scale: of tokens, or in columns of 128 elements."""
        scale = scale.double().cpu()
        return elements.double().cpu() * (scale.t().repeat_interleave(128, 1) if scale.dim() == 2 else scale[:, None])

    def decoder(self, block):
        """A layer of vLLM's Llama without its attention: queries pass."""
        from vllm.model_executor.layers.layernorm import RMSNorm
        from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear
        from vllm.model_executor.models.llama import LlamaAttention, LlamaDecoderLayer, LlamaMLP

        class Attention(torch.nn.Module):
            forward = LlamaAttention.forward

            def __init__(self, given):
                super().__init__()
                self.q_size, self.kv_size = 256, 128
                self.qkv_proj = QKVParallelLinear(256, 64, 4, 2, bias=False, quant_config=given)
                self.o_proj = RowParallelLinear(256, 256, bias=False, quant_config=given)
                self.rotary_emb, self.attn = lambda positions, q, k: (q, k), lambda q, k, v: q.contiguous()

        class Decoder(torch.nn.Module):
            forward = LlamaDecoderLayer.forward

            def __init__(self, given):
                super().__init__()
                self.self_attn, self.mlp = Attention(given), LlamaMLP(256, 384, "silu", quant_config=given)
                self.input_layernorm, self.post_attention_layernorm = RMSNorm(256, eps=1e-5), RMSNorm(256, eps=1e-5)
        return self.fp8(block, Decoder)[0]

    @unittest.skipUnless(HAS_TOKENS, "each layer quantises its own tokens")
    def test_norms_make_the_tokens_of_the_layer_behind(self):
        norms.register()
        for block in (False, True):
            with self.subTest(block=block):
                layer = self.decoder(block)
                with self.assertLogs("vllm.kernelwright", "INFO") as log:
                    model.take_over(layer, ("linears", "gates", "norms"))
                self.assertIn("serves 2 norms, 2 of them make the tokens", " ".join(log.output))
                for rows in (5, 1):
                    x, residual = randn(rows, 256), randn(rows, 256)
                    for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                        tokens, (both, total) = norm(x), norm(x, residual)
                        self.assertEqual((tokens.orig_shape, tokens.orig_dtype), (x.shape, BF16))
                        self.assertTrue(torch.equal(total, (x.float() + residual.float()).to(BF16)))
                        for made_tokens, want in ((tokens, Norms.want(x, norm.weight)), (both, Norms.want(x, norm.weight, residual))):
                            self.near_e4m3(self.values(made_tokens.data, made_tokens.scale), want.cpu())
                torch._dynamo.reset()
                compiled = torch.compile(layer, fullgraph=True, options={"guard_filter_fn": torch.compiler.skip_all_guards_unsafe})
                with torch.inference_mode():
                    for rows in (8, 2, 5):
                        x, residual = randn(rows, 256), randn(rows, 256)
                        torch._dynamo.mark_dynamic(x, 0), torch._dynamo.mark_dynamic(residual, 0)
                        found, want = compiled(None, x, residual), layer(None, x, residual)
                        self.assertTrue(all(torch.equal(one, other) for one, other in zip(found, want)))
                        self.assertEqual(found[0].shape, x.shape)

    def test_batch_invariant_results(self):
        """Norms, linear layers of 16 bits and of fp8 with scales of blocks, gates and tokens: a row has the same bits whatever the
        other rows are, and however many."""
        from vllm.model_executor.models.llama import LlamaMLP

        norms.register()
        for invariant in (True, False):
            with unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": str(int(invariant))}):
                mlp, layer = made(lambda: LlamaMLP(256, 4096, "silu"), BF16), self.decoder(block=True)
                # Halves of k that nearly cancel: another order of sums shows in bf16.
                mlp.down_proj.weight[:, 2048:] = -mlp.down_proj.weight[:, :2048]
                for part, factor in enumerate((1, 1 + 2.0**-7)):
                    rows = mlp.gate_up_proj.weight[part * 4096:(part + 1) * 4096]
                    rows[2048:] = rows[:2048] * factor
                for module in (mlp, layer):
                    model.take_over(module, ("linears", "gates", "norms"))
            for product in (mlp.down_proj.quant_method.product, layer.mlp.down_proj.quant_method.fp8_linear):
                self.assertEqual(product.problem.batch_invariant, invariant)
            x, residual = randn(70, 256), randn(70, 256)
            with torch.inference_mode():
                whole = mlp(x), *layer(None, x, residual)
                for rows in (slice(0, 1), slice(3, 19), slice(69, 70), slice(5, 69)):
                    found = mlp(x[rows]), *layer(None, x[rows], residual[rows])
                    same = [torch.equal(one, of_all[rows]) for one, of_all in zip(found, whole)]
                    if invariant:
                        self.assertEqual(same, [True] * 3, rows)

    def test_norms_that_others_read_make_no_tokens(self):
        layer = self.decoder(False)
        model.take_over(layer, ("linears", "gates", "norms"), has_lora=True)
        self.assertEqual(layer.input_layernorm(randn(2, 256)).dtype, BF16)

        class Twice(type(layer)):
            def forward(self, positions, hidden_states, residual):
                hidden_states, residual = self.input_layernorm(hidden_states, residual)
                kept = self.self_attn(positions=positions, hidden_states=hidden_states)
                return kept + hidden_states, residual
        layer.__class__ = Twice
        model.take_over(layer, ("linears", "norms"))
        self.assertEqual(layer.input_layernorm(randn(2, 256)).dtype, BF16)

    def test_lora_and_other_activations_keep_theirs(self):
        mlp, _ = self.mlp(False)
        model.take_over(mlp, ("linears", "gates"), has_lora=True)
        self.assertNotIsInstance(mlp.act_fn, linears.Gates)
        mlp.act_fn = torch.nn.Identity()
        model.take_over(mlp, ("linears", "gates"))
        self.assertIsInstance(mlp.act_fn, torch.nn.Identity)

    def test_a_compiled_model_without_guards_serves_any_rows(self):
        """As vLLM compiles: once, and no guard tells it of what it assumed of the first rows, such as a multiple of 4."""
        for block in (False, True):
            mlp, _ = self.mlp(block)
            model.take_over(mlp, ("linears", "gates"))
            torch._dynamo.reset()  # without guards, the first graph would serve the second model
            compiled = torch.compile(lambda x, mlp=mlp: mlp(x * 2), fullgraph=True, backend="inductor",
                                     options={"guard_filter_fn": torch.compiler.skip_all_guards_unsafe})
            with torch.inference_mode():
                for rows in (8, 2, 5, 1, 33):
                    x = randn(rows, 256)
                    torch._dynamo.mark_dynamic(x, 0)
                    self.assertTrue(torch.equal(compiled(x), mlp(x * 2)))

    def test_what_is_refused_says_why(self):
        can = linears.KernelwrightFp8LinearKernel.can_implement
        self.assertIn("float32", can(self.config((-1, -1), True, (-1, -1), torch.float32))[1])
        self.assertIn("no scales of", can(self.config((1, 64), False, (64, 64)))[1])
        with unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
            self.assertIn("in its own way where results are to be batch-invariant", can(self.config((1, -1), False, (-1, -1)))[1])
        self.assertEqual(linears.KernelwrightFp8LinearKernel.is_supported(80), (False, "needs compute capability 8.9"))
        self.assertEqual(linears.KernelwrightFp8LinearKernel.is_supported(90), (True, None))


class Norms(Layers):
    def setUp(self):
        super().setUp()
        from vllm import ir

        norms.register()
        for operator in (ir.ops.rms_norm, ir.ops.fused_add_rms_norm):
            self.enterContext(operator.set_priority([norms.PROVIDER, "native"]))
        self.ir = ir

    def norm(self, width, dtype=BF16, **more):
        from vllm.model_executor.layers.layernorm import RMSNorm

        norm = made(lambda: RMSNorm(width, eps=1e-5, **more), dtype)
        self.assertEqual(norms.serve_norms(torch.nn.ModuleList([norm])), (["0"], {}))
        return norm

    @staticmethod
    def want(x, weight, residual=None):
        """In fp64. A sum is rounded to the type of the rows before it is normalised, as vLLM's own kernels do."""
        rows = x.double() if residual is None else (x.float() + residual.float()).to(x.dtype).double()
        return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-5) * weight.double()

    def test_norms_with_and_without_a_residual(self):
        for dtype, rounding in ((BF16, 2.0**-8), (F16, 2.0**-10)):
            for width in (64, 4096):
                norm = self.norm(width, dtype)
                for rows in (1, 7, 0):
                    with self.subTest(dtype=dtype, width=width, rows=rows):
                        x, residual = randn(rows, width, dtype=dtype), randn(rows, width, dtype=dtype)
                        kept = x.clone(), residual.clone()
                        found, (both, total) = norm(x), norm(x, residual)
                        self.assertTrue(torch.equal(total, (kept[0].float() + kept[1].float()).to(dtype)))
                        if rows:
                            self.near(found, self.want(kept[0], norm.weight), rounding)
                            self.near(both, self.want(kept[0], norm.weight, kept[1]), rounding)

    def test_rows_of_a_wider_tensor(self):
        norm, wide = self.norm(64), randn(5, 200)
        self.assertEqual(self.ir.ops.rms_norm.dispatch(wide[:, 8:72], norm.weight, 1e-5).provider, norms.PROVIDER)
        self.near(norm(wide[:, 8:72]), self.want(wide[:, 8:72], norm.weight), 2.0**-8)

    def test_what_is_left_to_vllm(self):
        from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm

        norm, x = self.norm(64), randn(3, 64)
        given = self.ir.ops.rms_norm.dispatch
        wide = randn(3, 2, 64)
        for why, arguments in {"other widths": (randn(3, 72), norm.weight), "heads": (wide, norm.weight),
                               "an odd place": (randn(3, 200)[:, 1:65], norm.weight), "no weight": (x, None),
                               "a weight of another type": (x, norm.weight.float()), "columns": (randn(64, 3).t(), norm.weight)}.items():
            self.assertEqual(given(*arguments, 1e-5, None).provider, "native", why)
        self.assertEqual(given(x, norm.weight, 1e-5, 32).provider, "native")
        self.assertEqual(given(x, norm.weight, 1e-5).provider, norms.PROVIDER)
        taken, left = norms.serve_norms(torch.nn.ModuleDict({
            "gemma": made(lambda: GemmaRMSNorm(64), BF16), "part": made(lambda: RMSNorm(64, var_hidden_size=32), BF16),
            "bare": made(lambda: RMSNorm(64, has_weight=False), BF16), "wide": made(lambda: RMSNorm(32776), BF16),
            "f32": made(lambda: RMSNorm(64), torch.float32)}))
        self.assertEqual(taken, [])
        self.assertEqual(sorted(left), ["bare", "f32", "part", "wide"])
        self.assertIn("/problem/width", left["wide"])

    def test_compiled_and_eager_have_the_same_bits(self):
        """The operators are lowered as vLLM's pass does it, with the shapes that torch.compile traces."""
        norm = self.norm(128)
        seen = []

        def lowered(graph, _):
            for node in graph.graph.nodes:
                for operator in (self.ir.ops.rms_norm, self.ir.ops.fused_add_rms_norm):
                    if node.target in (operator.torch_op, getattr(getattr(operator, "maybe_inplace", None), "torch_op", None)):
                        values = [each.meta["example_value"] if isinstance(each, torch.fx.Node) else each for each in node.args]
                        seen.append(operator.dispatch(*values).provider)
            return graph.forward

        def two(x, residual):
            y = norm(x)
            return norm(y, residual)
        compiled = torch.compile(two, fullgraph=True, backend=lowered)
        with torch.inference_mode():
            for rows in (8, 3, 17):
                x, residual = randn(rows, 128), randn(rows, 128)
                torch._dynamo.mark_dynamic(x, 0), torch._dynamo.mark_dynamic(residual, 0)
                want = two(x.clone(), residual.clone())
                for found, of_eager in zip(compiled(x, residual), want):
                    self.assertTrue(torch.equal(found, of_eager))
        self.assertEqual(set(seen), {norms.PROVIDER})
        self.assertGreaterEqual(len(seen), 2)


if __name__ == "__main__":
    print("vLLM", vllm.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
