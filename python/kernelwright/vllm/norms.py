"""RMSNorms of vLLM by a kernel of Kernelwright, ahead of others among vLLM's implementations of its operators rms_norm and
fused_add_rms_norm. Where the layer behind a norm takes e4m3, the norm makes that layer's tokens.
"""
import contextlib
from typing import NamedTuple

import torch
import vllm.kernels  # noqa: F401, vLLM's own implementations come first
from vllm import ir
from vllm.model_executor.layers.layernorm import RMSNorm

from .._attention import DTYPES, OPS
from .._errors import ConfigError, KernelwrightError
from .._product import RowsProblem, quantised, rows_of
from .attention import served
from .chains import begins_with, passes_through
from .linears import QuantizedActivation, device_of, quantiser_of

PROVIDER = "kernelwright"


class Handles(NamedTuple):
    plain: int
    adding: int


# By width and dtype. Filled as models are loaded, because a model that vLLM compiled in an earlier process asks for no norm:
# its code has the handles.
_handles: dict[tuple[int, torch.dtype], Handles] = {}


def takes_rows(x, weight, variance_size):
    """Whether ours takes x [rows, width]. What torch.compile traces is asked the same."""
    if variance_size is not None or weight is None or weight.dtype != x.dtype or x.dim() != 2:
        return False
    fixed = x.shape[1], *x.stride(), x.storage_offset()
    if any(not isinstance(number, int) for number in fixed):  # a symbol
        return False
    width, row, column, offset = fixed
    return column == 1 and row >= width and row % 8 == 0 and offset % 8 == 0 and (width, x.dtype) in _handles


def takes(x, weight, epsilon, variance_size=None):
    return takes_rows(x, weight, variance_size)


def takes_both(x, x_residual, weight, epsilon, variance_size=None):
    return x.dtype == x_residual.dtype and takes_rows(x, weight, variance_size) and takes_rows(x_residual, weight, variance_size)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float, variance_size: int | None = None) -> torch.Tensor:
    return OPS.row_op(_handles[x.shape[1], x.dtype].plain, x, weight=weight, eps=epsilon)


def fused_add_rms_norm(x: torch.Tensor, x_residual: torch.Tensor, weight: torch.Tensor | None, epsilon: float,
                       variance_size: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    return OPS.row_op.add(_handles[x.shape[1], x.dtype].adding, x, x_residual, weight=weight, eps=epsilon)


def register():
    """Makes ours two of vLLM's implementations, which a priority may name."""
    for operator, implementation, check in ((ir.ops.rms_norm, rms_norm, takes), (ir.ops.fused_add_rms_norm, fused_add_rms_norm, takes_both)):
        if PROVIDER not in operator.impls:
            operator.register_impl(PROVIDER, supports_args=check)(implementation)


def put_first():
    """Puts ours ahead where vLLM's platform says which implementation it tries first. A priority that a user gives stays ahead
    of both."""
    from vllm.platforms import cuda

    register()
    given = cuda.CudaPlatformBase.get_default_ir_op_priority.__func__
    if getattr(given, "of_kernelwright", False):
        return

    def priority(cls, vllm_config):
        order = given(cls, vllm_config)
        for providers in (order.rms_norm, order.fused_add_rms_norm):
            if PROVIDER not in providers:
                providers.insert(0, PROVIDER)
        return order
    priority.of_kernelwright = True
    cuda.CudaPlatformBase.get_default_ir_op_priority = classmethod(priority)


def refuse(norm):
    """Raises ConfigError with the reason if ours does not compute what a norm of vLLM's does."""
    if norm.weight.dtype not in DTYPES or not norm.has_weight or norm.variance_size_override is not None:
        raise ConfigError(f"its weight is {norm.weight.dtype if norm.has_weight else 'missing'}, or its mean is of a part of the row")


def both(norm, problem):
    """The Handles of the problem without a sum and with one."""
    return Handles(*(served.handle(*device_of(norm.weight), problem._replace(input=each)) for each in ("plain", "add")))


def serve_norms(model):
    """Prepares kernels for the RMSNorms of a loaded model. Returns their names, and {name: reason of those that are left to
    vLLM}."""
    taken, left = [], {}
    for name, norm in model.named_modules():
        if type(norm) is not RMSNorm:
            continue
        weight = norm.weight
        key = norm.hidden_size, weight.dtype
        try:
            refuse(norm)
            if getattr(model.get_submodule(name.rpartition(".")[0]), "head_dim", None) == norm.hidden_size:
                raise ConfigError("it normalises heads, which lie apart")
            if key not in _handles:
                handles = both(norm, RowsProblem(norm.hidden_size, DTYPES[weight.dtype], "none", norm=True))
                served.wait(*handles)
                _handles[key] = handles
            taken.append(name)
        except KernelwrightError as error:
            left[name] = str(error)
    return taken, left


# The norm, the block behind it, and the layer of the block that has to take the norm's result alone.
CHAINS = (("input_layernorm", "self_attn", "qkv_proj"), ("post_attention_layernorm", "mlp", "gate_up_proj"))


def quantise_norms(model):
    """Lets norms whose result goes into an fp8 layer of ours alone make that layer's tokens. Returns their names."""
    begun = {}
    for name, layer in model.named_modules() if QuantizedActivation else ():
        for of_norm, of_block, first in CHAINS:
            norm, block = getattr(layer, of_norm, None), getattr(layer, of_block, None)
            quantiser = quantiser_of(getattr(block, first, None))
            if type(norm) is not RMSNorm or quantiser is None or norm.hidden_size != quantiser.problem.width:
                continue
            argument = passes_through(type(layer).forward, of_norm, of_block)
            if argument is None or not begins_with(type(block).forward, first, argument):
                continue
            with contextlib.suppress(KernelwrightError):  # the norm and the layer each have a kernel of their own
                refuse(norm)
                handles = both(norm, quantiser.problem._replace(norm=True))
                begun[f"{name}.{of_norm}".lstrip(".")] = handles, (norm, making_tokens(norm, quantiser, handles))
    taken = []
    for name, (norm, forward) in served.ready(begun, {}):
        norm._forward_method = forward
        taken.append(name)
    return taken


def making_tokens(norm, quantiser, handles):
    """What RMSNorm.forward() calls."""
    problem, key, width = quantiser.problem, quantiser.key, norm.hidden_size

    def forward(x, residual=None):
        """x and residual [..., width]: the tokens, and the sum if there is a residual."""
        rows, of_norm = rows_of(x, width), {"weight": norm.weight, "eps": norm.variance_epsilon}
        if residual is None:
            elements, scale = quantised(handles.plain, rows, width, problem.scales, **of_norm)
            return QuantizedActivation(elements, scale, x.dtype, x.shape, key)
        total = torch.empty_like(rows)
        elements, scale = quantised(handles.adding, rows, width, problem.scales, rows_of(residual, width), total, **of_norm)
        return QuantizedActivation(elements, scale, x.dtype, x.shape, key), total.view(x.shape)
    return forward
