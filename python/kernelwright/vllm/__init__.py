"""Kernelwright inside vLLM: its attention behind vLLM's backend "CUSTOM".

    vllm serve MODEL --attention-backend CUSTOM

The package names register() as a plug-in of vLLM, so nothing is imported by hand. docs/servers.md says what is taken over,
what is left to vLLM, and how to see that. `import kernelwright` does not import this module, and so neither torch nor vLLM.
"""
from __future__ import annotations

import functools
import logging
import os

logger = logging.getLogger("vllm.kernelwright")  # vLLM formats and shows what lies below its own name

BACKEND = "kernelwright.vllm.attention.KernelwrightBackend"
LATENT_BACKEND = "kernelwright.vllm.latent.KernelwrightLatentBackend"  # of models with latent keys (MLA)
PREFILL_BACKEND = "kernelwright.vllm.prompts.KernelwrightPrefillBackend"  # of the prompts of such models
PREFILL_OF_VLLM = "vllm.v1.attention.backends.mla.prefill.flash_attn.FlashAttnPrefillBackend"
OF_VLLM = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"  # serves where ours cannot
VERSIONS = LATENT_VERSIONS = MODEL_VERSIONS = ("0.22", "0.23", "0.24", "0.25", "0.26")
LAYERS = ("linears", "gates", "norms", "experts", "products")  # parts of a model beside its attention
WORDS = ("prefer", *LAYERS, "all", "off")

__all__ = ["register"]


def register() -> None:
    """What vLLM calls in each of its processes, maybe more than once. It never raises: vLLM then starts with its own kernels,
    and a log line says why.

    KERNELWRIGHT_VLLM in the environment has words with commas between: "prefer" makes vLLM choose this attention wherever it
    takes the model, without a flag, and its own elsewhere; "linears", "gates", "norms", "experts" and "products" let ours serve
    these layers of a model; "all" is all of them; "off" does nothing. Unset, `--attention-backend CUSTOM` chooses our attention.
    """
    wishes = [word.strip() for word in os.environ.get("KERNELWRIGHT_VLLM", "").split(",") if word.strip()]
    if "off" in wishes:
        return
    for wish in wishes:
        if wish not in WORDS:
            logger.warning('kernelwright: KERNELWRIGHT_VLLM has "%s"; it is unset, or words of %s', wish, ", ".join(WORDS))
    prefers = "prefer" in wishes or "all" in wishes
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    except Exception as error:  # a vLLM of another era, or a broken one
        logger.warning("kernelwright is left out: this vLLM has no registry of attention backends (%s)", error)
        return
    reason = _why_not(VERSIONS)
    of_latents = reason or _why_not(LATENT_VERSIONS)
    _serve_latents(AttentionBackendEnum.CUSTOM, of_latents, prefers)
    _serve_prompts(AttentionBackendEnum.CUSTOM, of_latents, prefers)
    register_backend(AttentionBackendEnum.CUSTOM, OF_VLLM if reason else BACKEND)
    parts = [part for part in LAYERS if part in wishes or "all" in wishes]
    if reason:
        warn_once("kernelwright is left out, and the backend CUSTOM is vLLM's FlashAttention: %s", reason)
        return
    if prefers:
        _prefer(AttentionBackendEnum.CUSTOM)
    if parts:
        _serve_layers(parts, _why_not(MODEL_VERSIONS))


@functools.lru_cache(maxsize=None)
def warn_once(text, *words):
    """vLLM asks again for each layer, and calls register() more than once."""
    logger.warning(text, *words)


def _why_not(versions):
    """Why kernels cannot serve this vLLM here; None if they can. It opens no GPU and no compiler: vLLM may fork afterwards."""
    import vllm

    version = ".".join(vllm.__version__.split(".")[:2])
    if version not in versions:
        return f"vLLM {vllm.__version__} is not one of {', '.join(versions)}; another release of kernelwright may know it"
    try:
        from .. import _library

        _library.load(None)
    except Exception as error:
        return f"its library cannot be loaded: {error}"
    try:
        _library.kernel_origin()
    except Exception as error:
        return str(error)
    return None


def _why_no_kernel():
    """Why this process can compile and load no kernel, as with an NVRTC that is too old. None if it can, where kernels come ready
    made, and where no GPU is in use yet: vLLM may fork."""
    import torch

    return _try_a_kernel() if torch.cuda.is_initialized() else None


@functools.lru_cache(maxsize=None)
def _try_a_kernel():
    try:
        from .. import _library

        if not _library.kernel_origin().startswith(_library.COMPILER):
            return None
        from .attention import here, why_no_kernel

        reason = why_no_kernel(*here())
    except Exception as error:
        reason = str(error)
    if reason:
        logger.warning("kernelwright leaves attention to vLLM: %s", reason)
    return reason


def _prefer(backend):
    """Puts the backend first in the order in which vLLM tries its own for models without latent keys."""
    try:
        from vllm.platforms import cuda

        given = cuda._get_backend_priorities
    except Exception as error:
        logger.warning("kernelwright: KERNELWRIGHT_VLLM=prefer has no effect here (%s); --attention-backend CUSTOM has", error)
        return
    if getattr(given, "of_kernelwright", False):
        return

    def priorities(use_mla, *more, **named):
        order = given(use_mla, *more, **named)
        return order if use_mla or _why_no_kernel() else [backend, *(other for other in order if other is not backend)]
    priorities.of_kernelwright = True
    cuda._get_backend_priorities = priorities


def _serve_layers(parts, reason):
    """Lets ours serve layers of the models that vLLM will load. reason: why vLLM's own serve them; None if ours do."""
    if "gates" in parts and "linears" not in parts:
        logger.warning('kernelwright: "gates" in KERNELWRIGHT_VLLM needs "linears" as well')
    try:
        if reason is None:
            from vllm import envs

            from .. import __version__
            from . import linears, model
            from .attention import served
            # vLLM keeps compiled models by its environment. One with our operators in it serves nobody else, nor this model
            # where a kernel has failed and a layer is vLLM's.
            envs.environment_variables["KERNELWRIGHT_VLLM"] = lambda: " ".join([__version__, *parts, *map(str, sorted(served.failed))])
            if "linears" in parts:
                linears.serve_fp8()
            if "norms" in parts:
                from . import norms

                norms.put_first()
            model.serve_loaded_models(parts)
    except Exception as error:
        reason = f"this vLLM has not what it needs ({error})"
    if reason:
        logger.warning("kernelwright leaves %s to vLLM: %s", ", ".join(parts), reason)


def _serve_latents(backend, reason, prefers):
    """Gives models with latent keys a backend of their own behind the same name. vLLM asks its platform for the class of a name, so
    the platform's answer is what changes. reason: why vLLM's own serve them; None if ours do."""
    try:
        from vllm.platforms import cuda

        given = cuda.CudaPlatformBase.get_attn_backend_cls.__func__
    except Exception as error:
        logger.info("kernelwright leaves latent attention to vLLM, whose platform is not CUDA here (%s)", error)
        return
    if getattr(given, "of_kernelwright", False):
        return

    def chosen(cls, selected_backend, attn_selector_config, *more, **named):
        asked = selected_backend is backend
        if not attn_selector_config.use_mla or not (asked or (prefers and selected_backend is None and (reason or not _why_no_kernel()))):
            return given(cls, selected_backend, attn_selector_config, *more, **named)
        reasons = [reason] if reason else _latent_reasons(cls.get_device_capability(), attn_selector_config)
        if not reasons:
            return LATENT_BACKEND
        if asked and not reason:  # as for any backend that a user names
            raise ValueError(f"Selected backend {backend} is not valid for this configuration. Reason: {reasons}")
        if asked:
            logger.warning("kernelwright leaves latent attention to vLLM: %s", reason)
        return given(cls, None, attn_selector_config, *more, **named)
    chosen.of_kernelwright = True
    cuda.CudaPlatformBase.get_attn_backend_cls = classmethod(chosen)


def _serve_prompts(backend, reason, prefers):
    """Gives vLLM our backend for prompts over latent keys, under its name CUSTOM for one from outside, and puts it first where a
    model's attention is ours. reason: why vLLM's own serves them; None if ours does."""
    try:
        from vllm.config import get_current_vllm_config_or_none
        from vllm.v1.attention.backends.mla.prefill import registry, selector

        given = selector._get_mla_prefill_backend_priorities
        ours = getattr(registry.MLAPrefillBackendEnum, "CUSTOM", Prompts)  # vLLM 0.22 has no such name
        if ours is not Prompts:
            registry.register_mla_prefill_backend(ours, PREFILL_OF_VLLM if reason else PREFILL_BACKEND)
    except Exception as error:
        logger.info("kernelwright leaves prompts over latent keys to vLLM, which has no registry of backends for them (%s)", error)
        return
    if reason or getattr(given, "of_kernelwright", False):
        return

    def priorities(device_capability):
        config = get_current_vllm_config_or_none()
        first = (config is not None and config.attention_config.backend is backend) or (prefers and not _why_no_kernel())
        if hasattr(getattr(getattr(config, "model_config", None), "hf_text_config", None), "index_topk"):
            first = False  # sparse attention has no such prompts
        return [*first * [ours], *given(device_capability)]
    priorities.of_kernelwright = True
    selector._get_mla_prefill_backend_priorities = priorities


class Prompts:
    """What vLLM asks of a member of its registry."""

    name = "CUSTOM"

    @staticmethod
    def get_class():
        from .prompts import KernelwrightPrefillBackend

        return KernelwrightPrefillBackend


def _latent_reasons(capability, config):
    from .latent import KernelwrightLatentBackend

    return KernelwrightLatentBackend.validate_configuration(device_capability=capability, **config._asdict())
