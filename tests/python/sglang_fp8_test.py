#!/usr/bin/env python3
"""Linear layers of fp8 behind SGLang's own method: on the GPU if there is one, else on the emulator. Run by hand where
sglang_test.py is run; it is no part of CI.
"""
import types
import unittest
import unittest.mock

from sglang_batches import DEVICE, HAS_GPU  # ahead of SGLang
import torch
import sglang
from sglang.srt.layers.quantization import fp8, fp8_utils

import kernelwright
import kernelwright.sglang
from kernelwright.sglang import attention


class Fp8(unittest.TestCase):
    """SGLang's own method of a layer calls the runner that SGLang's own choice returns."""

    N, K = 200, 256

    @classmethod
    def setUpClass(cls):
        cls.engine = kernelwright.Engine("cuda" if HAS_GPU else "emulator", hazards=not HAS_GPU)
        attention.served.use(cls.engine)
        kernelwright.sglang.register()
        from kernelwright.sglang import linears

        cls.linears = linears

    def setUp(self):
        torch.manual_seed(5)
        arguments = types.SimpleNamespace(fp8_gemm_runner_backend="kernelwright", quantization=None)
        fp8_utils.initialize_fp8_gemm_config(arguments)
        self.addCleanup(setattr, fp8_utils, "FP8_GEMM_RUNNER_BACKEND", None)

    def layer(self, dtype):
        layer = torch.nn.Module()
        weight, scale = torch.randn(self.N, self.K).clamp(-3, 3).to(torch.float8_e4m3fn), torch.rand(2, 2) * 0.02 + 0.01
        layer.weight = torch.nn.Parameter(weight.to(DEVICE), requires_grad=False)
        layer.weight_scale_inv = torch.nn.Parameter(scale.to(DEVICE), requires_grad=False)
        layer.orig_dtype, layer.quant_method = dtype, fp8.Fp8LinearMethod(fp8.Fp8Config(
            is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128]))
        return layer, weight.double(), scale.repeat_interleave(128, 0)[:self.N].double()

    @staticmethod
    def lost(elements, weight):
        """What Hopper's tensor cores may lose of the sums over each 128 of k. An instruction adds 32 products to the sum so far. It
        truncates each of these 33 at 2^-13 of the largest, and their sum at 2^-13 of itself."""
        products = (elements[:, None] * weight).unflatten(-1, (-1, 4, 32))
        after = products.sum(-1).cumsum(-1)
        before = torch.cat([torch.zeros_like(after[..., :1]), after[..., :-1]], -1)
        largest = torch.maximum(products.abs().amax(-1), before.abs())
        return 2.0**-13 * (33 * largest + after.abs()).sum(-1)

    def test_scales_of_blocks(self):
        for dtype, rounding in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
            layer, weight, scale = self.layer(dtype)
            wide = weight * scale.repeat_interleave(128, 1)
            self.assertIs(layer.quant_method.w8a8_block_fp8_linear, self.linears.kernelwright_w8a8_block_fp8_linear)
            self.assertEqual(self.linears.prepare(layer), 1)
            quantiser = self.linears.handles(DEVICE, 0, self.N, self.K, attention.DTYPES[dtype], False)[1]
            for shape in ((1,), (5,), (2, 3)):
                for bias in (None, torch.randn(self.N).to(dtype).to(DEVICE)):
                    with self.subTest(dtype=dtype, shape=shape, bias=bias is not None):
                        x = torch.randn(*shape, self.K).to(dtype).to(DEVICE)
                        rows = x.view(-1, self.K)
                        elements, of_x = self.linears.quantised(quantiser, rows, self.K)
                        stored = elements.double().cpu() * of_x.double().cpu().t().repeat_interleave(128, 1)
                        off = (stored - rows.double().cpu()).abs()  # a rounding of e4m3, and of what its smallest numbers are
                        self.assertLessEqual((off - 2.0**-4 * rows.double().cpu().abs() - 2.0**-9).max().item(), 0)
                        want = stored @ wide.t() + (0 if bias is None else bias.double().cpu())
                        found, again = (layer.quant_method.apply(layer, x, bias) for _ in range(2))
                        self.assertEqual((found.shape, found.dtype), ((*shape, self.N), dtype))
                        self.assertTrue(torch.equal(found, again))
                        lost = (self.lost(elements.double().cpu(), weight) * of_x.double().cpu().t()[:, None] * scale).sum(-1)
                        bound = rounding * want.abs() + lost + 2.0**-20  # a rounding of the result, and sums in f32
                        off = (found.view(-1, self.N).double().cpu() - want).abs()
                        self.assertLessEqual((off - bound).max().item(), 0, f"off by {off.max().item()}")
        if not HAS_GPU:
            self.assertEqual(self.engine.take_hazards(), [])

    def test_compiled_and_eager_have_the_same_bits(self):
        layer = self.layer(torch.bfloat16)[0]
        x = torch.randn(5, self.K).to(torch.bfloat16).to(DEVICE)

        def run(x):
            return layer.quant_method.apply(layer, x) * 2
        with torch.no_grad():
            self.assertTrue(torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(x), run(x)))

    def test_no_rows(self):
        layer = self.layer(torch.bfloat16)[0]
        found = layer.quant_method.apply(layer, torch.zeros(0, self.K, dtype=torch.bfloat16, device=DEVICE))
        self.assertEqual(found.shape, (0, self.N))

    def test_layers_with_other_scales_are_not_prepared(self):
        layer = self.layer(torch.bfloat16)[0]
        layer.quant_method = fp8.Fp8LinearMethod(fp8.Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic"))
        self.assertEqual(self.linears.prepare(layer), 0)

    def test_a_layer_that_is_not_taken_is_tritons(self):
        layer = self.layer(torch.bfloat16)[0]
        x = torch.zeros(2, self.K, dtype=torch.bfloat16, device=DEVICE)
        for given in ({"input": x.float()}, {"block_size": [64, 64]}, {"input_scale": x},
                      {"weight_scale": layer.weight_scale_inv.data.to(torch.int32)}, {"bias": torch.zeros(self.N, device=DEVICE)}):
            named = dict(input=x, weight=layer.weight, block_size=[128, 128], weight_scale=layer.weight_scale_inv) | given
            with unittest.mock.patch.object(fp8_utils, "triton_w8a8_block_fp8_linear", return_value="Triton's") as triton:
                self.assertEqual(self.linears.kernelwright_w8a8_block_fp8_linear(**named), "Triton's")
            triton.assert_called_once()
        odd = torch.zeros(self.N, 100, device=DEVICE).to(torch.float8_e4m3fn)
        with unittest.mock.patch.object(fp8_utils, "triton_w8a8_block_fp8_linear", return_value="Triton's"), \
                self.assertLogs("kernelwright.sglang", "INFO") as log:
            found = self.linears.kernelwright_w8a8_block_fp8_linear(x[:, :100], odd, [128, 128], torch.ones(2, 1, device=DEVICE))
        self.assertEqual(found, "Triton's")
        self.assertIn("leaves fp8 layers of 200 x 100 to Triton", log.output[0])

    def test_other_names_are_as_before(self):
        kinds = fp8_utils.Fp8GemmRunnerBackend
        self.assertIs(kinds("triton"), kinds.TRITON)
        self.assertIs(fp8_utils._dispatch_explicit_backend(kinds.TRITON), fp8_utils.triton_w8a8_block_fp8_linear)
        with self.assertRaisesRegex(ValueError, "'other' is not a valid"):
            kinds("other")
        ours = kinds("kernelwright")
        self.assertFalse(any(getattr(ours, name)() for name in dir(kinds) if name.startswith("is_")))

    def test_without_the_library_sglang_chooses(self):
        with unittest.mock.patch("kernelwright._library.load", side_effect=OSError("no such file")), \
                self.assertLogs("kernelwright.sglang", "WARNING") as log:
            self.assertIs(fp8_utils.dispatch_w8a8_block_fp8_linear(), fp8_utils._dispatch_auto_backend())
        self.assertIn("leaves fp8 layers to SGLang's choice: its library cannot be loaded", log.output[0])


if __name__ == "__main__":
    print("SGLang", sglang.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
