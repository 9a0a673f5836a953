"""fp8 linear layers of SGLang with scales of 128 x 128 elements of weights and of 128 of a token, by a GEMM of Kernelwright. Another
kernel of ours quantises the tokens, because the product reads their scales in columns.

SGLang's runners are functions, and it chooses one for the whole model by --fp8-gemm-backend. Like its own, ours hands a layer that
it does not take to Triton's.
"""
from __future__ import annotations

import logging

import torch
from sglang.srt.layers.quantization import fp8_utils

from .._attention import DTYPES, OPS
from .._errors import ConfigError
from .._product import GROUP, GemmProblem, RowsProblem, quantised, rows_of
from . import BACKEND
from .attention import served

logger = logging.getLogger("kernelwright.sglang")

BLOCK = [GROUP, GROUP]


@torch.compiler.assume_constant_result
def handles(kind, index, n, k, dtype, bias):
    """(the product's handle, the quantiser's) of a layer; (0, 0) if no kernel takes it, and then the log says why. torch.compile calls
    this while it traces."""
    key = kind, n, k, dtype, bias
    if key not in _refused:
        try:
            return (served.handle(kind, index, GemmProblem(n, k, dtype, "per_block", bias=bias)),
                    served.handle(kind, index, RowsProblem(k, dtype)))
        except ConfigError as error:
            logger.info("kernelwright leaves fp8 layers of %d x %d to Triton: %s", n, k, error)
            _refused.add(key)
    return 0, 0


_refused = set()


def kernelwright_w8a8_block_fp8_linear(input, weight, block_size, weight_scale, input_scale=None, bias=None):
    """input [..., k] of 16 bits, weight [n, k] of e4m3, weight_scale [n / 128, k / 128] of f32. Returns [..., n]."""
    (n, k), of = weight.shape, input.device
    product = quantiser = 0
    if list(block_size) == BLOCK and input_scale is None and input.dtype in DTYPES and weight_scale.dtype == torch.float32 and (
            bias is None or bias.dtype == input.dtype):
        product, quantiser = handles(of.type, of.index or 0, n, k, DTYPES[input.dtype], bias is not None)
    if not product:
        return fp8_utils.triton_w8a8_block_fp8_linear(input, weight, block_size, weight_scale, input_scale, bias)
    elements, scale = quantised(quantiser, rows_of(input, k), k)
    named = {"scale_a": scale, "scale_b": weight_scale} | ({} if bias is None else {"bias": bias})
    return OPS.gemm(product, elements, weight, **named).view(*input.shape[:-1], n)


def prepare(model):
    """Lets the kernels of a loaded model's layers begin to compile. Returns the number of layers. Those of compressed-tensors are not
    among them, and begin when they run."""
    from sglang.srt.layers.quantization.fp8 import Fp8LinearMethod

    count = 0
    for layer in model.modules():
        method = getattr(layer, "quant_method", None)
        if isinstance(method, Fp8LinearMethod) and method.weight_block_size == BLOCK and (
                method.w8a8_block_fp8_linear is kernelwright_w8a8_block_fp8_linear):
            (n, k), device = layer.weight.shape, layer.weight.device
            dtype = DTYPES.get(getattr(layer, "orig_dtype", None))
            if dtype and handles(device.type, device.index or 0, n, k, dtype, getattr(layer, "bias", None) is not None)[0]:
                count += 1
    return count


def serve_fp8(why_not):
    """Lets --fp8-gemm-backend name ours. SGLang has a list of names and an enum of the same names, and no way to add to the second;
    so the enum learns another value, and the function that chooses by it another answer. why_not(): reasons to let SGLang choose
    instead."""
    kinds = fp8_utils.Fp8GemmRunnerBackend
    given = fp8_utils._dispatch_explicit_backend
    if getattr(given, "of_kernelwright", False):
        return
    ours = object.__new__(kinds)
    ours._name_, ours._value_ = BACKEND.upper(), BACKEND

    def missing(_, value):
        return ours if value == BACKEND else None

    def dispatch(backend):
        if backend is not ours:
            return given(backend)
        reasons = why_not()
        if not reasons and torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 9):
            reasons = ["compute capability 8.9 is the least for fp8"]
        if not reasons:
            return kernelwright_w8a8_block_fp8_linear
        logger.warning("kernelwright leaves fp8 layers to SGLang's choice: %s", "; ".join(reasons))
        return fp8_utils._dispatch_auto_backend()
    dispatch.of_kernelwright = True
    kinds._missing_ = classmethod(missing)
    fp8_utils._dispatch_explicit_backend = dispatch
