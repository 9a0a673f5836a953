"""Kernelwright inside vLLM: its attention behind vLLM's backend "CUSTOM".

    vllm serve MODEL --attention-backend CUSTOM

The package names register() as a plug-in of vLLM, so nothing is imported by hand. docs/servers.md says what is taken over,
what is left to vLLM, and how to see that. `import kernelwright` does not import this module, and so neither torch nor vLLM.
"""
from __future__ import annotations

import logging
import os

logger = logging.getLogger("vllm.kernelwright")  # vLLM formats and shows what lies below its own name

BACKEND = "kernelwright.vllm.attention.KernelwrightBackend"
OF_VLLM = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"  # serves where ours cannot
VERSIONS = ("0.22", "0.23", "0.24")

__all__ = ["register"]


def register() -> None:
    """What vLLM calls in each of its processes, maybe more than once. It never raises: vLLM then starts with its own kernels,
    and a log line says why.

    KERNELWRIGHT_VLLM in the environment: "off" does nothing; "prefer" makes vLLM choose this attention wherever it takes the
    model, without a flag, and its own elsewhere; unset, `--attention-backend CUSTOM` chooses it.
    """
    wish = os.environ.get("KERNELWRIGHT_VLLM", "")
    if wish == "off":
        return
    if wish not in ("", "prefer"):
        logger.warning('kernelwright: KERNELWRIGHT_VLLM is "%s"; it is "off", "prefer" or unset', wish)
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    except Exception as error:  # a vLLM of another era, or a broken one
        logger.warning("kernelwright is left out: this vLLM has no registry of attention backends (%s)", error)
        return
    reason = _why_not()
    register_backend(AttentionBackendEnum.CUSTOM, OF_VLLM if reason else BACKEND)
    if reason:
        logger.warning("kernelwright is left out, and the backend CUSTOM is vLLM's FlashAttention: %s", reason)
    elif wish == "prefer":
        _prefer(AttentionBackendEnum.CUSTOM)


def _why_not():
    """Why kernels cannot serve this vLLM here; None if they can. It touches no GPU: vLLM may fork afterwards."""
    import vllm

    version = ".".join(vllm.__version__.split(".")[:2])
    if version not in VERSIONS:
        return f"vLLM {vllm.__version__} is not one of {', '.join(VERSIONS)}; another release of kernelwright may know it"
    try:
        from .. import _library

        _library.load(None)
    except Exception as error:
        return f"its library cannot be loaded: {error}"
    return None


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
        return order if use_mla else [backend, *(other for other in order if other is not backend)]
    priorities.of_kernelwright = True
    cuda._get_backend_priorities = priorities
