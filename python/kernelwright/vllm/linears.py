"""Linear layers of vLLM by GEMMs of Kernelwright: 16-bit ones, once a model is loaded, and fp8 ones, which vLLM chooses among its
own as it makes them. The layers of gates and ups of a 16-bit model also make the product of both, so that its activations have no
kernel.
"""
from __future__ import annotations

import contextlib

import torch
from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import Fp8BlockScaledMMLinearKernel
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import FP8ScaledMMLinearKernel
from vllm.model_executor.layers.activation import GeluAndMul, SiluAndMul
from vllm.model_executor.layers.linear import LinearBase, MergedColumnParallelLinear, UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.utils import replace_parameter

from .._attention import DTYPES, OPS
from .._errors import ConfigError, KernelwrightError
from .._product import FP8, GROUP, GemmProblem, RowsProblem, interleave, quantised, rows_of
from . import warn_once
from .attention import here, is_invariant, leaving, served
from .chains import feeds, held_twice

try:
    from vllm.model_executor.layers.fusion.quant_activation import QuantizedActivation, as_quantized_activation
except ImportError:  # vLLM 0.22 and 0.23, where each fp8 layer quantises its own tokens
    QuantizedActivation = None

    def as_quantized_activation(x, key):
        return None


def device_of(tensor):
    """What Served.handle() takes."""
    return tensor.device.type, tensor.device.index or 0


# ---- layers of 16 bits

class Product:
    """The product of rows with a layer's weight, as the methods below have it."""

    def __init__(self, layer, gates=""):
        weight, bias = layer.weight, getattr(layer, "bias", None)
        if weight.dim() != 2 or weight.dtype not in DTYPES or not weight.is_contiguous():
            raise ConfigError(f"its weight is {weight.dtype} {list(weight.shape)}; ours is a contiguous matrix of float16 or bfloat16")
        if bias is not None and bias.dtype != weight.dtype:
            raise ConfigError(f"its bias is {bias.dtype}, and its weight {weight.dtype}")
        n, k = weight.shape
        self.problem = problem = GemmProblem(n, k, DTYPES[weight.dtype], gates=gates, batch_invariant=is_invariant())
        self.k, self.columns = k, n // 2 if gates else n
        self.plain = served.handle(*device_of(weight), problem)
        # A layer whose sums ranks share gives its bias on one of them alone.
        self.biased = 0 if bias is None else served.handle(*device_of(weight), problem._replace(bias=True))
        self.numbers = self.plain, self.biased

    def __call__(self, x, weight, bias):
        rows = rows_of(x, self.k)
        out = OPS.gemm(self.plain, rows, weight) if bias is None else OPS.gemm(self.biased, rows, weight, bias=bias)
        return out.view(*x.shape[:-1], self.columns)


class KernelwrightLinearMethod(UnquantizedLinearMethod):
    """In place of vLLM's own in a layer that is loaded. Weights stay where they are and as they are."""

    def __init__(self, layer):
        super().__init__()
        self.product = Product(layer)

    def apply(self, layer, x, bias=None):
        return self.product(x, layer.weight, bias)


class KernelwrightEmbeddingMethod(UnquantizedEmbeddingMethod):
    """The same for the layer that makes logits."""

    def __init__(self, layer):
        super().__init__()
        self.product = Product(layer)

    def apply(self, layer, x, bias=None):
        return self.product(x, layer.weight, bias)


class KernelwrightGatesMethod(UnquantizedLinearMethod):
    """For a layer of gates and ups: its result is what the activation behind it would make, which takes its place as it is. The
    weight's rows are interleaved."""

    def __init__(self, layer, epilogue):
        super().__init__()
        self.product = Product(layer, epilogue)

    def process_weights_after_loading(self, layer):
        """Also called by vLLM when it reloads all weights of the layer."""
        interleave(layer.weight.data)
        layer.weight.weight_loader = refuse_to_load

    def apply(self, layer, x, bias=None):
        return self.product(x, layer.weight, bias)


def refuse_to_load(*_, **__):
    raise RuntimeError("kernelwright has interleaved this weight, so it cannot be loaded in place; load the model anew, or leave "
                       '"gates" out of KERNELWRIGHT_VLLM')


def serve_linears(model):
    """Gives each 16-bit linear layer of a loaded model a method of ours. Returns ({name: layer}, {name: reason of those that
    are left to vLLM})."""
    begun, taken, left, seen = {}, {}, {}, set()
    for name, layer in model.named_modules(remove_duplicate=False):
        method = getattr(layer, "quant_method", None)
        makes_logits = name.rpartition(".")[2] == "lm_head" and type(method) is UnquantizedEmbeddingMethod
        if not makes_logits and not (isinstance(layer, LinearBase) and type(method) is UnquantizedLinearMethod) or id(layer) in seen:
            continue
        seen.add(id(layer))
        try:
            method = (KernelwrightEmbeddingMethod if makes_logits else KernelwrightLinearMethod)(layer)
            begun[name] = method.product.numbers, (layer, method)
        except KernelwrightError as error:
            left[name] = str(error)
    for name, (layer, method) in served.ready(begun, left):
        layer.quant_method, taken[name] = method, layer
    return taken, left


# ---- activations behind gates and ups

def activation_of(activation):
    """Our word for an activation of vLLM's that multiplies gates and ups; "" if there is none."""
    if type(activation) is SiluAndMul:
        return "silu"
    if type(activation) is GeluAndMul:
        return {"tanh": "gelu_tanh", "none": "gelu"}.get(activation.approximate, "")
    return ""


def fuse_gates(model, layers):
    """Lets layers of gates and ups among `layers` (serve_linears()) also compute the activation behind them. Returns their
    names."""
    begun, fused = {}, []
    ours, shared = {id(layer) for layer in layers.values()}, held_twice(model)
    for name, module in model.named_modules():
        layer, activation = getattr(module, "gate_up_proj", None), getattr(module, "act_fn", None)
        word = activation_of(activation)
        if not word or not isinstance(layer, MergedColumnParallelLinear) or id(layer) not in ours:
            continue
        sizes = layer.output_partition_sizes
        if id(layer) in shared or id(layer.weight) in shared:
            continue
        if layer.bias is not None or layer.gather_output or len(sizes) != 2 or sizes[0] != sizes[1] or sizes[0] % 8:
            continue
        if not feeds(type(module).forward, "gate_up_proj", "act_fn"):
            continue
        with contextlib.suppress(KernelwrightError):  # its own method serves on
            method = KernelwrightGatesMethod(layer, f"{word}(gate) * up")
            begun[f"{name}.gate_up_proj".lstrip(".")] = method.product.numbers, (module, layer, method)
    for name, (module, layer, method) in served.ready(begun, {}):
        method.process_weights_after_loading(layer)  # first, because it may find no memory
        layer.quant_method, module.act_fn = method, torch.nn.Identity()
        fused.append(name)
    return fused


# ---- layers of fp8

def fp8_layers(model):
    """The layers of a model whose fp8 kernel is ours, as vLLM chose it: {name: layer}."""
    ours = KernelwrightFp8LinearKernel, KernelwrightFp8BlockLinearKernel
    return {name: layer for name, layer in model.named_modules()
            if isinstance(getattr(getattr(layer, "quant_method", None), "fp8_linear", None), ours)}


def quantiser_of(layer):
    """The Quantiser of an fp8 layer; None if its kernel is not ours, or vLLM quantises its tokens."""
    found = getattr(getattr(getattr(layer, "quant_method", None), "fp8_linear", None), "quantiser", None)
    return found if isinstance(found, Quantiser) else None


def quantise_gates(model):
    """Lets activations whose result goes into an fp8 layer of ours alone make that layer's tokens. Returns the names of those
    layers, and {name: reason of activations that are left to vLLM}."""
    begun, taken, left = {}, [], {}
    for name, module in model.named_modules() if QuantizedActivation else ():
        layer, activation, behind = (getattr(module, each, None) for each in ("gate_up_proj", "act_fn", "down_proj"))
        word = activation_of(activation)
        quantiser = quantiser_of(behind)
        if not word or quantiser is None or not isinstance(layer, MergedColumnParallelLinear):
            continue
        sizes = layer.output_partition_sizes
        if layer.gather_output or list(sizes) != [quantiser.problem.width] * 2 or not getattr(behind, "input_is_parallel", False):
            continue
        forward = type(module).forward
        if not (feeds(forward, "gate_up_proj", "act_fn") and feeds(forward, "act_fn", "down_proj")):
            continue
        of_gates = f"{name}.act_fn".lstrip(".")
        try:
            gates = Gates(quantiser, word, device_of(behind.weight))
            begun[of_gates] = (gates.number,), (module, gates, f"{name}.down_proj".lstrip("."))
        except KernelwrightError as error:
            left[of_gates] = str(error)
    for _, (module, gates, layer_behind) in served.ready(begun, left):
        module.act_fn = gates
        taken.append(layer_behind)
    return taken, left


def of_config(config):
    """The GemmProblem of a configuration of vLLM's. Raises ConfigError with the reason if there is none."""
    rows, weight = config.activation_quant_key, config.weight_quant_key
    if rows.dtype != FP8 or weight.dtype != FP8 or config.out_dtype not in DTYPES:
        raise ConfigError(f"takes e4m3 and makes float16 or bfloat16, not {rows.dtype}, {weight.dtype} and {config.out_dtype}")
    of_rows, of_weight = rows.scale.group_shape, weight.scale.group_shape
    if of_rows == (1, GROUP) and of_weight == (GROUP, GROUP) and not rows.scale.static:
        scales = "per_block"
    elif of_weight.is_per_tensor() and of_rows.is_per_tensor():
        scales = "per_tensor"
    elif (of_weight.is_per_tensor() or of_weight in ((1, -1), (-1, 1))) and (of_rows.is_per_tensor() or of_rows.is_per_token()):
        scales = "per_token"
    else:
        raise ConfigError(f"has no scales of {tuple(of_rows)} and {tuple(of_weight)}")
    if is_invariant() and scales != "per_block":
        raise ConfigError("vLLM multiplies by such weights in its own way where results are to be batch-invariant")
    n, k = config.weight_shape
    return GemmProblem(n, k, DTYPES[config.out_dtype], scales, batch_invariant=is_invariant())


def rows_problem(config):
    """The RowsProblem that quantises tokens for a layer; None if that is left to vLLM: static scales, or one for all tokens."""
    rows = config.activation_quant_key.scale
    if rows.static or rows.group_shape.is_per_tensor():
        return None
    return RowsProblem(config.weight_shape[1], DTYPES[config.input_dtype], "per_token" if rows.group_shape.is_per_token() else "per_block")


def implements(config, blocks):
    """What vLLM's can_implement() returns. Kernels that serve are ready then: once a layer is made, vLLM has no other for it."""
    if leaving.get():
        return False, "the whole model is vLLM's"
    try:
        problem = of_config(config)
        if (problem.scales == "per_block") != blocks:
            return False, "has other scales"
        served.wait(*[served.handle(*here(), each) for each in filter(None, (problem, rows_problem(config)))])
    except (ConfigError, KeyError) as error:
        return False, str(error)
    except KernelwrightError as error:
        warn_once("kernelwright leaves fp8 layers of %d x %d to vLLM: %s", *config.weight_shape, str(error))
        return False, str(error)
    return True, None


def supports(compute_capability):
    """What vLLM's is_supported() returns."""
    if compute_capability is not None and compute_capability < 89:
        return False, "needs compute capability 8.9"
    return True, None


class Quantiser:
    """Makes e4m3 tokens and their scales for a layer."""

    def __init__(self, config, device):
        self.problem, self.key = rows_problem(config), config.activation_quant_key
        self.number = served.handle(*device, self.problem)

    def __call__(self, x):
        """x [..., k], or what a Gates made for the layer: elements [rows, k], their scales, and the shape of x."""
        if (made := as_quantized_activation(x, self.key)) is not None:
            return made.data, made.scale, made.orig_shape
        return *quantised(self.number, rows_of(x, self.problem.width), self.problem.width, self.problem.scales), x.shape


class Gates(torch.nn.Module):
    """In place of the activation behind gates and ups, where the layer behind that takes e4m3: the product of both as that layer
    quantises its tokens."""

    def __init__(self, quantiser, word, device):
        super().__init__()
        problem = quantiser.problem._replace(input="gate_up", activation=word)
        self.width, self.scales, self.key = problem.width, problem.scales, quantiser.key
        self.number = served.handle(*device, problem)

    def forward(self, x):
        elements, scale = quantised(self.number, rows_of(x, 2 * self.width), self.width, self.scales)
        return QuantizedActivation(elements, scale, x.dtype, torch.Size((*x.shape[:-1], self.width)), self.key)


class KernelwrightFp8LinearKernel(FP8ScaledMMLinearKernel):
    """Scales of tensors, or of tokens and channels. vLLM quantises the tokens where one scale is of all."""

    @classmethod
    def is_supported(cls, compute_capability=None):
        return supports(compute_capability)

    @classmethod
    def can_implement(cls, c):
        return implements(c, blocks=False)

    def __init__(self, c, layer_param_names):
        super().__init__(c, layer_param_names)
        self.problem = of_config(c)
        self.plain, self.biased = served.handle(*here(), self.problem), 0
        self.quantiser = Quantiser(c, here()) if rows_problem(c) else None

    def process_weights_after_loading(self, layer):
        scale = getattr(layer, self.layer_param_names[1])
        many = self.problem.n if self.problem.scales == "per_token" else 1
        replace_parameter(layer, self.layer_param_names[1], scale.detach().float().reshape(-1).expand(many).contiguous())
        if getattr(layer, "bias", None) is not None:
            with contextlib.suppress(KernelwrightError):  # else the bias is added behind the product
                number = served.handle(*here(), self.problem._replace(bias=True))
                served.wait(number)
                self.biased = number
        if self._get_layer_params(layer)[3] is not None:
            self.quantiser = None  # an upper bound of scales, which ours have not

    def apply_weights(self, layer, x, bias=None):
        if self.quantiser is None:
            return super().apply_weights(layer, x, bias)
        weight, of_weight = self._get_layer_params(layer)[:2]
        elements, scale, shape = self.quantiser(x)
        return self.apply_scaled_mm(A=elements, B=weight, out_dtype=self.config.out_dtype, As=scale[:, None], Bs=of_weight, bias=bias,
                                    output_shape=[*shape[:-1], self.problem.n])

    def apply_scaled_mm(self, *, A, B, out_dtype, As, Bs, bias, output_shape):  # noqa: N803, vLLM's names
        """A [rows, k], B [k, n] of a matrix [n, k]."""
        of_rows = As.reshape(-1)
        if self.problem.scales == "per_token" and As.dim() < 2:
            of_rows = of_rows.expand(A.shape[0]).contiguous()
        fused = {"bias": bias} if self.biased and bias is not None else {}
        made = OPS.gemm(self.biased if fused else self.plain, A, B.t(), scale_a=of_rows, scale_b=Bs, **fused).view(*output_shape)
        return made if bias is None or fused else made + bias


class KernelwrightFp8BlockLinearKernel(Fp8BlockScaledMMLinearKernel):
    """Scales of 128 x 128 elements of weights, and of 128 of a token. A kernel of ours quantises the tokens, because the product
    reads their scales in columns."""

    apply_input_quant = False

    @classmethod
    def is_supported(cls, compute_capability=None):
        return supports(compute_capability)

    @classmethod
    def can_implement(cls, config):
        return implements(config, blocks=True)

    def __init__(self, config):
        super().__init__(config)
        self.problem = of_config(config)
        self.product = served.handle(*here(), self.problem)
        self.quantiser = Quantiser(config, here())

    def process_weights_after_loading(self, layer):
        super().process_weights_after_loading(layer)
        name, scale = self.scale_of(layer)
        replace_parameter(layer, name, scale.detach().float().contiguous())  # ue8m0 are powers of two, which f32 has

    def scale_of(self, layer):
        """The name and the values of the weight's scales."""
        params = self._get_layer_params(layer)
        name = params.WEIGHT_SCALE if params.weight_scale_inv is None else params.WEIGHT_SCALE_INV
        return name, getattr(layer, name)

    def apply_weights(self, layer, x, bias=None, **_):
        elements, scale, shape = self.quantiser(x)
        made = self.apply_block_scaled_mm(elements, layer.weight, scale, self.scale_of(layer)[1])
        return (made if bias is None else made + bias).view(*shape[:-1], self.problem.n)

    def apply_block_scaled_mm(self, A, B, As, Bs):  # noqa: N803, vLLM's names
        """A [rows, k] and B [n, k] of e4m3, As [k / 128, rows], Bs [n / 128, k / 128]."""
        return OPS.gemm(self.product, A, B, scale_a=As, scale_b=Bs)


def serve_fp8():
    """Puts ours ahead of vLLM's own in the order in which it tries them. `--linear-backend` and VLLM_DISABLED_KERNELS choose
    among all as before."""
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.warmup import deep_gemm_warmup
    from vllm.platforms import PlatformEnum

    for kernels, ours in ((linear._POSSIBLE_FP8_KERNELS, KernelwrightFp8LinearKernel),
                          (linear._POSSIBLE_FP8_BLOCK_KERNELS, KernelwrightFp8BlockLinearKernel)):
        tried = kernels[PlatformEnum.CUDA]
        if ours not in tried:
            tried.insert(0, ours)
    given = deep_gemm_warmup._fp8_linear_may_use_deep_gemm
    if getattr(given, "of_kernelwright", False):
        return

    def may_use_deep_gemm(module):
        """Layers that ours serves need no kernels of DeepGEMM, which it would compile for each number of rows."""
        fp8_linear = getattr(getattr(module, "quant_method", None), "fp8_linear", None)
        return not isinstance(fp8_linear, KernelwrightFp8BlockLinearKernel) and given(module)
    may_use_deep_gemm.of_kernelwright = True
    deep_gemm_warmup._fp8_linear_may_use_deep_gemm = may_use_deep_gemm
