"""The products around a decode over latent keys (MLA) by batched GEMMs: of queries with W_UK of their head, and of a decode's result
with W_UV. Weights stay where they are and as they are.

vLLM's layer multiplies by torch.bmm(), with a matrix of each head that it keeps as an attribute. An object with torch's protocol
__torch_function__ takes the attribute's place, so torch gives it the product.
"""
from __future__ import annotations

import torch
from vllm.model_executor.layers.attention.mla_attention import MLAAttention

from .._attention import DTYPES, OPS
from .._errors import ConfigError, KernelwrightError
from .._product import GemmProblem
from .attention import is_invariant, served
from .latent import LATENT, ROTARY, KernelwrightLatentImpl
from .linears import device_of

NAMES = "W_UK_T", "W_UV"  # of vLLM's attributes


class Matrices:
    """A layer's matrices [heads, k, n], as the second operand of torch.bmm(x, matrices, out=out)."""

    def __init__(self, given, impl=None):
        """given: a tensor of any strides whose rows or columns are contiguous. impl: of our decode, if the product makes its queries."""
        self.given, self.shape, self._impl = given, given.shape, impl
        heads, k, n = given.shape
        if given.dtype not in DTYPES or 1 not in given.stride()[1:]:
            raise ConfigError(f"its matrices are {given.dtype} with strides {list(given.stride())}; ours are float16 or bfloat16, and have "
                              "contiguous rows or columns")
        layout = "nn" if given.stride(2) == 1 else "nt"
        self._b = given if layout == "nn" else given.transpose(1, 2)
        self.number = served.handle(*device_of(given), GemmProblem(n, k, DTYPES[given.dtype], layout=layout, heads=heads))

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is not torch.bmm or len(args) != 2 or not isinstance(args[1], cls) or set(kwargs or ()) != {"out"}:
            raise TypeError(f"kernelwright's products take part in torch.bmm(x, matrices, out=out) alone, not in {function}")
        return args[1].multiply(args[0], kwargs["out"])

    def multiply(self, x, out):
        """x [heads, tokens, k] and out [heads, tokens, n] of any strides. Beside our decode `out` becomes a part of its queries, so that
        the decode copies no latents."""
        if self._impl is not None:
            queries = x.new_empty(x.shape[1], x.shape[0], LATENT + ROTARY)
            out.set_(queries[..., :LATENT].transpose(0, 1))
            self._impl.absorbed = queries
        OPS.gemm.out(self.number, x, self._b, out=out)
        return out


def take(layer):
    """Gives the layer both products. Raises KernelwrightError with the reason, and changes nothing, if they stay vLLM's."""
    if is_invariant():
        raise ConfigError("vLLM multiplies by matrices of heads in its own way where results are to be batch-invariant")
    if not all(isinstance(getattr(layer, name, None), torch.Tensor) for name in NAMES):
        raise ConfigError(f"it has no {' and '.join(NAMES)}")
    impl = layer.impl if isinstance(layer.impl, KernelwrightLatentImpl) else None
    made = Matrices(layer.W_UK_T, impl), Matrices(layer.W_UV)
    served.wait(*[matrices.number for matrices in made])
    for name, matrices in zip(NAMES, made):
        delattr(layer, name)  # from vLLM 0.26 on it is a parameter, whose place takes nothing else
        setattr(layer, name, matrices)


def serve_products(model):
    """Takes over the products of a loaded model. Returns the names of the layers, and {name: reason of those that are left to
    vLLM}."""
    taken, left = [], {}
    for name, layer in model.named_modules():
        if not isinstance(layer, MLAAttention):
            continue
        try:
            if type(layer) is not MLAAttention:
                raise ConfigError(f"its attention is vLLM's {type(layer).__name__}, which has products of its own")
            take(layer)
        except KernelwrightError as error:
            left[name] = str(error)
            continue
        taken.append(name)
        layer.process_weights_after_loading = taking_again(layer, layer.process_weights_after_loading)
    return taken, left


def taking_again(layer, given):
    """vLLM's method, which makes the matrices anew behind a reload, and ours behind it. From vLLM 0.26 on the method writes new
    values to where the old ones lie, as graphs need it."""
    def process_weights_after_loading(act_dtype):
        for name in NAMES:
            if isinstance(matrices := getattr(layer, name, None), Matrices):
                setattr(layer, name, matrices.given)
        given(act_dtype)
        take(layer)
    return process_weights_after_loading
