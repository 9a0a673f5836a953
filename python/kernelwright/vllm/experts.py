"""Layers of experts of vLLM by one call of Kernelwright: vLLM's router chooses, and ours does all that is behind it."""
from __future__ import annotations

from typing import NamedTuple

import torch
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod

from .._attention import DTYPES, OPS
from .._errors import ConfigError, KernelwrightError
from .._product import FP8, GROUP, interleave, rows_of
from .attention import is_invariant, served
from .chains import held_twice
from .linears import device_of, refuse_to_load

try:
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
except ImportError:  # vLLM 0.22 and 0.23, whose layer has the router, too
    from vllm.model_executor.layers.fused_moe.layer import FusedMoE as RoutedExperts

GATES = {MoEActivation.SILU: "silu(gate) * up", MoEActivation.GELU: "gelu(gate) * up", MoEActivation.GELU_TANH: "gelu_tanh(gate) * up"}
AS_LOADED = (UnquantizedMoeBackend.TRITON, Fp8MoeBackend.TRITON, Fp8MoeBackend.DEEPGEMM)  # backends whose weights lie as a model has them


class LayerProblem(NamedTuple):
    """All that tells two kernels of layers of experts apart."""

    experts: int
    top_k: int
    hidden: int
    width: int
    dtype: str
    gates: str
    fp8: bool
    batch_invariant: bool = False  # a token's bits depend on no other token

    def config(self):
        """What Engine.prepare() takes."""
        problem = {"dtype": self.dtype, "hidden": self.hidden, "intermediate": self.width, "gates": self.gates,
                   "route": {"experts": self.experts, "top_k": self.top_k, "score": "given"}}
        problem |= {"scales": "per_block"} if self.fp8 else {}
        return {"kind": "moe", "problem": problem | ({"batch_invariant": True} if self.batch_invariant else {})}


def problem_of(layer, method):
    """The LayerProblem of RoutedExperts that are loaded. Raises ConfigError with the reason if there is none."""
    backend = getattr(method, "unquantized_backend", None) or getattr(method, "fp8_backend", None)
    if backend not in AS_LOADED:
        raise ConfigError(f"its weights lie as {backend.value if backend else 'another backend'} has them; --moe-backend triton leaves "
                          "them as they are")
    parallel = layer.moe_config.moe_parallel_config
    if layer.expert_map is not None or parallel.dp_size > 1 or parallel.use_ep or parallel.enable_eplb:
        raise ConfigError("experts of several ranks are not served")
    limits = [getattr(layer, name, None) for name in ("swiglu_limit", "swiglu_alpha", "swiglu_beta")]  # vLLM 0.22 has the first alone
    if layer.activation not in GATES or any(number is not None for number in limits):
        raise ConfigError(f"its activation is {layer.activation.value}, with limits maybe; ours are "
                          f"{', '.join(activation.value for activation in GATES)}")
    if layer.moe_config.has_bias or layer.apply_router_weight_on_input:
        raise ConfigError("biases, and weights on a layer's input, are not served")
    gate_up, down = layer.w13_weight, layer.w2_weight
    experts, hidden, width = down.shape
    dtype, fp8 = layer.moe_config.in_dtype, gate_up.dtype == FP8
    if gate_up.dtype != down.dtype or dtype not in DTYPES or gate_up.dtype not in (FP8, dtype):
        raise ConfigError(f"its tokens are {dtype}, and its weights {gate_up.dtype} and {down.dtype}")
    if gate_up.shape != (experts, 2 * width, hidden) or not (gate_up.is_contiguous() and down.is_contiguous()):
        raise ConfigError(f"its weights are {list(gate_up.shape)} and {list(down.shape)}, or not contiguous")
    if fp8:
        shapes = ((experts, 2 * -(-width // GROUP), hidden // GROUP), (experts, hidden // GROUP, width // GROUP))
        if width % GROUP or hidden % GROUP:
            raise ConfigError(f"its sizes {hidden} and {width} are no multiples of {GROUP}")
        for scale, shape in zip(scales_of(layer), shapes):
            if scale is None or scale.dtype != torch.float32 or tuple(scale.shape) != shape or not scale.is_contiguous():
                raise ConfigError("its scales are none of blocks of 128 x 128 in float32")
    return LayerProblem(experts, layer.top_k, hidden, width, DTYPES[dtype], GATES[layer.activation], fp8, is_invariant())


def scales_of(layer):
    return [getattr(layer, f"{name}_weight_scale_inv", None) for name in ("w13", "w2")]


class KernelwrightMoEMethod(FusedMoEMethodBase, torch.nn.Module):
    """In place of vLLM's own in RoutedExperts that are loaded, where some of vLLM's are modules. Rows of gates and ups are
    interleaved. Shared experts, sums over ranks and scaling stay with vLLM's runner, which asks `moe_kernel`; there is none."""

    def __init__(self, layer, given):
        super().__init__(given.moe)
        self.given, self.problem = given, problem_of(layer, given)
        self.number = served.handle(*device_of(layer.w2_weight), self.problem)

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype, **extra_weight_attrs):
        raise NotImplementedError("the layer is loaded already")

    def get_fused_moe_quant_config(self, layer):
        return self.given.get_fused_moe_quant_config(layer)

    @property
    def topk_indices_dtype(self):
        return torch.int32

    def process_weights_after_loading(self, layer):
        """Also called by vLLM when it reloads all weights of the layer."""
        interleave(layer.w13_weight.data)
        layer.w13_weight.weight_loader = refuse_to_load

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
        scales = dict(zip(("gate_up_scale", "down_scale"), scales_of(layer))) if self.problem.fp8 else {}
        return OPS.moe.given(self.number, rows_of(x, self.problem.hidden), topk_ids.to(torch.int32).contiguous(),
                             topk_weights.float().contiguous(), layer.w13_weight, layer.w2_weight, **scales)


def serve_experts(model, has_lora=False):
    """Gives each layer of experts of a loaded model a method of ours. Returns ({name: layer}, {name: reason of those that are left
    to vLLM})."""
    begun, taken, left, shared = {}, {}, {}, held_twice(model)
    for name, layer in model.named_modules():
        if not isinstance(layer, RoutedExperts) or isinstance(layer.quant_method, KernelwrightMoEMethod):
            continue
        given = layer.quant_method
        try:
            if type(given) not in (UnquantizedFusedMoEMethod, Fp8MoEMethod) or given.is_monolithic:
                raise ConfigError(f"its method is vLLM's {type(given).__name__}")
            if has_lora:  # vLLM's layer of it runs a kernel of vLLM's in the method's place
                raise ConfigError("LoRA adds to what is between its products")
            if id(layer.w13_weight) in shared:
                raise ConfigError("another layer has the same weights")
            ours = KernelwrightMoEMethod(layer, given)
            begun[name] = (ours.number,), (layer, ours)
        except KernelwrightError as error:
            left[name] = str(error)
    for name, (layer, ours) in served.ready(begun, left):
        ours.process_weights_after_loading(layer)
        layer._replace_quant_method(ours)
        taken[name] = layer
    return taken, left
