"""Kernelwright inside SGLang: its attention, and its fp8 linear layers with scales of blocks, behind the name "kernelwright".

    python -m sglang.launch_server --model-path MODEL --attention-backend kernelwright --page-size 64 --fp8-gemm-backend kernelwright

The package names register() as a plug-in of SGLang, so nothing is imported by hand. docs/servers.md says what is taken over,
what is left to SGLang, and how to see that. `import kernelwright` does not import this module, and so neither torch nor SGLang.
"""
from __future__ import annotations

import logging
import os
import sys

logger = logging.getLogger("kernelwright.sglang")

BACKEND = "kernelwright"
VERSIONS = ("0.5.16", "0.5.17")
WORDS = ("off",)
FP8_UTILS = "sglang.srt.layers.quantization.fp8_utils"
OF_SGLANG = ("fa3", "flashinfer", "triton", "torch_native")  # those of SGLang's own that take any size of pages

__all__ = ["register"]


def register() -> None:
    """What SGLang calls once in each of its processes, before it reads its arguments. It never raises: SGLang then starts with
    its own kernels, and a log line says why.

    KERNELWRIGHT_SGLANG=off in the environment does nothing, so that SGLang does not know the backend.
    """
    word = os.environ.get("KERNELWRIGHT_SGLANG", "").strip()
    if word == "off":
        return
    if word:
        logger.warning('kernelwright: KERNELWRIGHT_SGLANG is "%s"; it is unset, or %s', word, ", ".join(WORDS))
    try:
        from sglang.srt.layers.attention.attention_registry import register_attention_backend
        from sglang.srt import server_args
    except Exception as error:  # an SGLang of another era, or a broken one
        logger.warning("kernelwright is left out: this SGLang has no registry of attention backends (%s)", error)
        return
    register_attention_backend(BACKEND)(create)
    if BACKEND not in server_args.ATTENTION_BACKEND_CHOICES:
        server_args.add_attention_backend_choices([BACKEND])
    try:
        if BACKEND not in server_args.CHUNKED_PREFIX_CACHE_SUPPORTED_ATTENTION_BACKENDS:
            server_args.add_chunked_prefix_cache_attention_backend(BACKEND)
    except Exception as error:
        logger.info("kernelwright: prompts behind cached latents come absorbed (%s)", error)
    try:
        if BACKEND not in server_args.FP8_GEMM_RUNNER_BACKEND_CHOICES:
            server_args.add_fp8_gemm_runner_backend_choices([BACKEND])
        if FP8_UTILS in sys.modules:  # only processes that make models have it, and it looks for a GPU
            from . import linears

            linears.serve_fp8(_why_not)
    except Exception as error:
        logger.warning("kernelwright leaves fp8 layers to SGLang, which has not what it needs (%s)", error)


def create(runner):
    """The attention backend of a model runner of SGLang's: ours, or one of SGLang's own if ours cannot serve it. Then the log says
    why."""
    reasons = _why_not()
    if not reasons:
        from .._errors import KernelwrightError
        from .attention import KernelwrightAttnBackend, reasons_of

        reasons = reasons_of(runner)
        if not reasons:
            try:
                _begin_linears(runner.model)
                if runner.use_mla_backend:
                    from .latent import KernelwrightLatentAttnBackend

                    return KernelwrightLatentAttnBackend(runner)
                return KernelwrightAttnBackend(runner)
            except KernelwrightError as error:
                reasons = [str(error)]
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    name = _of_sglang(runner)
    logger.warning("kernelwright leaves attention to SGLang's %s: %s", name, "; ".join(reasons))
    return ATTENTION_BACKENDS[name](runner)


def _begin_linears(model):
    """Lets kernels of fp8 layers compile beside those of attention."""
    linears = sys.modules.get(f"{__name__}.linears")
    count = linears.prepare(model) if linears else 0
    if count:
        logger.info("kernelwright serves %d fp8 linear layers", count)


def _why_not():
    """Why kernels cannot serve this SGLang here: a list, which is empty if they can."""
    import sglang

    if sglang.__version__.partition(".post")[0] not in VERSIONS:
        return [f"SGLang {sglang.__version__} is not one of {', '.join(VERSIONS)}; another release of kernelwright may know it"]
    try:
        from .. import _library

        _library.load(None)
    except Exception as error:
        return [f"its library cannot be loaded: {error}"]
    try:
        _library.kernel_origin()  # a compiler, or kernels that need none
    except Exception as error:
        return [str(error)]
    return []


def _of_sglang(runner):
    """What SGLang would choose itself. SGLang has fitted nothing else to its choice, as it does where a user names it, so one that
    needs that gives way to Triton's."""
    import torch

    if runner.use_mla_backend:
        return "triton"
    name = runner.server_args._get_default_attn_backend(False, runner.model_config)
    if name not in OF_SGLANG or (name == "fa3" and runner.kv_cache_dtype == torch.float8_e5m2):
        return "triton"
    return name
