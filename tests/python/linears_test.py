#!/usr/bin/env python3
"""kernelwright.transformers.accelerate(): on the GPU if there is one, else on the emulator.

Run by hand, with Python or pytest, where torch and transformers are installed: it is no part of CI. PYTHONPATH and
KERNELWRIGHT_LIBRARY name the module and the library, unless the package is installed.
"""
import copy
import unittest

import torch
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import FP8Linear, replace_with_fp8_linear

import kernelwright
import kernelwright.transformers as ours
from kernelwright import _linears
from kernelwright._groups import _triton, quantize_groups

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ENGINE = kernelwright.Engine("cuda" if DEVICE == "cuda" else "emulator", **({} if DEVICE == "cuda" else {"emulator_arch": "sm_90a"}))


def relative(found, want):
    return ((found.double() - want.double()).norm() / want.double().norm()).item()


def fp8_layer(n, k, **more):
    """(an FP8Linear on DEVICE, what its weight stands for in fp32)."""
    layer = FP8Linear(k, n, (128, 128), **more)
    weight = torch.randn(n, k) * torch.rand(n, 1).exp()
    blocks = [-(-size // 128) for size in (n, k)]
    padded = torch.zeros(blocks[0] * 128, blocks[1] * 128)
    padded[:n, :k] = weight
    scales = padded.view(blocks[0], 128, blocks[1], 128).abs().amax((1, 3)) / 448
    each = scales.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
    layer.weight.data = (weight / each).to(torch.float8_e4m3fn)
    layer.weight_scale_inv.data = scales
    if layer.bias is not None:
        layer.bias.data = torch.randn(n).bfloat16()
    return layer.to(DEVICE), (layer.weight.float().cpu() * each).to(DEVICE)


def tiny(kind="llama", **more):
    config = AutoConfig.for_model(kind, vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=2, head_dim=64, initializer_range=0.1, pad_token_id=0,
                                  **more)
    torch.manual_seed(5)
    return AutoModelForCausalLM.from_config(config).eval().to(DEVICE)


class Linears(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.enterContext(torch.no_grad())

    def accelerate(self, model, **more):
        return ours.accelerate(model, engine=ENGINE, force=True, **more)

    def test_groups_of_activations(self):
        x = torch.randn(5, 384, device=DEVICE).bfloat16() * torch.rand(5, 1, device=DEVICE).exp().bfloat16()
        x[2, 128:256] = 0
        elements, scales = quantize_groups(x)
        self.assertEqual((elements.dtype, scales.shape, scales.stride(0) % 4), (torch.float8_e4m3fn, (3, 5), 0))
        back = elements.float().view(5, 3, 128) * scales.t()[..., None]
        # e4m3 has three bits of mantissa: half a step is 1/16 of a value at most, and 2^-10 of a scale for small ones.
        error = (back.view(5, 384) - x.float()).abs()
        bound = x.float().abs() / 16 + scales.t().repeat_interleave(128, 1) * 2**-10
        self.assertTrue((error <= bound).all())
        self.assertEqual(elements[2, 128:256].float().abs().max().item(), 0)

    @unittest.skipUnless(DEVICE == "cuda" and _triton(), "there is no GPU, or no Triton")
    def test_one_launch_has_the_bits_of_torch(self):
        for m, k in ((1, 128), (7, 4096), (300, 2304)):
            x = torch.randn(m, 2 * k, device=DEVICE).bfloat16()[:, :k]
            for found, want in zip(_triton()(x), quantize_groups(x.cpu())):
                self.assertTrue(torch.equal(found.cpu().float(), want.float()))

    def test_fp8_layers(self):
        for n, k, bias in ((384, 256, False), (200, 256, True), (128, 640, False)):
            layer, weight = fp8_layer(n, k, has_bias=bias)
            model = torch.nn.Sequential(layer)
            report = self.accelerate(model)
            self.assertEqual(len(report.swapped), 1, report)
            for rows in (1, 3, 18):
                x = torch.randn(2, rows, k, device=DEVICE).bfloat16()
                want = x.float() @ weight.t() + (layer.bias.float() if bias else 0)
                elements, scales = quantize_groups(x.view(-1, k))
                each = scales.t().repeat_interleave(128, 1)
                exact = (elements.float() * each @ weight.t()).view(want.shape) + (layer.bias.float() if bias else 0)
                found = model(x)
                self.assertEqual((found.shape, found.dtype), (want.shape, torch.bfloat16))
                self.assertLess(relative(found, exact), 0.003)  # the result's rounding to bf16
                self.assertLess(relative(found, want), 0.04)  # that of e4m3 on top

    def test_a_model_of_fp8(self):
        """Its layers as FineGrainedFP8Config makes them."""
        truth = tiny(tie_word_embeddings=False).bfloat16().float()
        model = copy.deepcopy(truth).bfloat16()
        replace_with_fp8_linear(model, ["lm_head"], FineGrainedFP8Config())
        layers = [name for name, module in model.named_modules() if isinstance(module, FP8Linear)]
        self.assertEqual(len(layers), 14)
        for name in layers:  # what each weight stands for goes into the model of fp32
            module, exact = model.get_submodule(name), truth.get_submodule(name)
            layer, weight = fp8_layer(*exact.weight.shape)
            module.weight, module.weight_scale_inv = layer.weight, layer.weight_scale_inv
            norm = exact.weight.norm() / weight.norm()
            module.weight_scale_inv.data *= norm
            exact.weight.data.copy_(weight * norm)
        report, ids = self.accelerate(model), torch.arange(40, device=DEVICE).view(2, 20) + 1
        self.assertEqual(len(report.swapped), 15, report)
        self.assertIn("fp8 of 128 x 128 blocks", str(report))
        self.assertLess(relative(model(ids).logits, truth(ids).logits), 0.1)

    def test_scales_of_eight_bits(self):
        layer, _ = fp8_layer(256, 256, scale_fmt="ue8m0")
        layer.weight_scale_inv.data = torch.tensor([[0.5, 2.0], [1.0, 0.25]], device=DEVICE).to(torch.float8_e8m0fnu)
        each = layer.weight_scale_inv.float().repeat_interleave(128, 0).repeat_interleave(128, 1)
        model, x = torch.nn.Sequential(layer), torch.randn(4, 256, device=DEVICE).bfloat16()
        self.accelerate(model)
        self.assertLess(relative(model(x), x.float() @ (layer.weight.float() * each).t()), 0.04)

    def test_a_model_of_16_bits(self):
        ids = torch.arange(40, device=DEVICE).view(2, 20) + 1
        for kind, more in (("llama", {}), ("qwen2", {}), ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 4})):
            with self.subTest(kind):
                truth = tiny(kind, **more)
                model = copy.deepcopy(truth).bfloat16()
                want, plain = truth(ids).logits, model(ids).logits
                saved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
                report = self.accelerate(model)
                self.assertLessEqual(relative(model(ids).logits, want), 1.1 * relative(plain, want))
                layers = sum(isinstance(module, torch.nn.Linear) for module in model.modules())
                self.assertEqual(len(report.swapped), layers, report)
                self.assertEqual([row["name"] for row in report.left if "Experts" in row["reason"]],
                                 [f"model.layers.{i}.mlp.experts" for i in range(2)] if kind == "gpt_oss" else [])
                self.assertEqual(saved.keys(), model.state_dict().keys())
                report.undo()
                self.assertTrue(torch.equal(model(ids).logits, plain))

    def test_a_copy_of_a_model_has_its_own_weights(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False)).bfloat16().to(DEVICE)
        self.accelerate(model)
        other, x = copy.deepcopy(model), torch.ones(2, 64, device=DEVICE).bfloat16()
        other[0].weight.zero_()
        self.assertEqual(other(x).abs().max().item(), 0)
        self.assertGreater(model(x).abs().max().item(), 0)

    def test_gradients_take_the_layers_own_forward(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32)).bfloat16().to(DEVICE)
        self.accelerate(model)
        with torch.enable_grad():
            model(torch.ones(2, 64, device=DEVICE).bfloat16()).sum().backward()
        self.assertEqual(model[0].weight.grad.float().mean().item(), 2)

    def test_compiled_code_has_the_eager_bits(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), fp8_layer(128, 128)[0]).to(DEVICE)
        model[0].to(torch.bfloat16)
        self.accelerate(model)
        for layer in model:
            x = torch.randn(5, layer.in_features, device=DEVICE).bfloat16()
            want = layer(x)
            self.assertTrue(torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), want))
        torch._dynamo.reset()

    def test_what_is_left_and_why(self):
        model = torch.nn.ModuleDict({
            "f32": torch.nn.Linear(64, 32), "narrow": torch.nn.Linear(30, 8).bfloat16(),
            "tensor": FP8Linear(256, 128), "static": FP8Linear(256, 128, (128, 128), activation_scheme="static"),
            "columns": FP8Linear(200, 128, (128, 128)), "meta": torch.nn.Linear(64, 32, device="meta"),
            "own": type("Own", (torch.nn.Linear,), {})(64, 32), "hooked": torch.nn.Linear(64, 32).bfloat16()})
        model["hooked"].forward = lambda x: x
        for name, module in model.items():
            module.to("meta" if name == "meta" else DEVICE)
        report = self.accelerate(model)
        self.assertEqual(report.swapped, [])
        reasons = {row["name"]: row["reason"] for row in report.left}
        for name, words in (("f32", "its weight is torch.float32"), ("narrow", "30 leaves rows of a"), ("tensor", "blocks of None"),
                            ("static", 'activation_scheme is "static"'), ("columns", "its 200 columns are no multiple of 128"),
                            ("meta", "no contiguous tensor"), ("own", "is a Own, whose forward is its own"),
                            ("hooked", "its forward is replaced already")):
            self.assertIn(words, reasons[name])
            self.assertIn(words, str(report))
        if DEVICE == "cpu":
            plain = torch.nn.Sequential(torch.nn.Linear(64, 32)).bfloat16()
            self.assertIn("nothing is measured", ours.accelerate(plain, engine=ENGINE).left[0]["reason"])

    def test_the_faster_one_serves_each_number_of_rows(self):
        times = {1: (3.0, 5.0), 16: (9.0, 6.0), 256: (7.0, 7.0)}
        race = _linears._Race(tuple(times))
        race.run = lambda *_: times
        model, report = torch.nn.Sequential(torch.nn.Linear(64, 32)).bfloat16().to(DEVICE), ours.Report()
        if DEVICE == "cuda":
            _linears._swap(report, race, "0", model[0], False)
            held = model[0]._kernelwright
        else:
            held = _linears._Linear(_linears._problem(model[0])[0], None, {m: a <= _linears.SLACK * b for m, (a, b) in times.items()})
        self.assertEqual([held.serves(m) for m in (0, 1, 2, 16, 17, 256, 9000)], [False, True, False, False, True, True, True])

    @unittest.skipUnless(DEVICE == "cuda", "nothing is measured without a GPU")
    def test_measured(self):
        model = tiny().bfloat16()
        report = ours.accelerate(model, engine=ENGINE, rows=(1, 64))
        self.assertEqual(len(report.swapped) + len(report.left), 15)
        for row in report.swapped:
            self.assertEqual(sorted(row["microseconds"]), [1, 64])
            self.assertTrue(any(mine <= _linears.SLACK * own for mine, own in row["microseconds"].values()), row)


if __name__ == "__main__":
    unittest.main(verbosity=2)
