"""How keys and values lie in a cache of vLLM's, a class for each era of it. Kernels read and write both where they lie, by their
strides. vLLM 0.26 has one shape for the caches of all backends, and parts of it that move caches between hosts take no other.
"""
from __future__ import annotations

import vllm
from vllm.v1.attention.backends.utils import get_kv_cache_layout


class Apart:
    """vLLM 0.22 to 0.25: [blocks, 2, tokens, heads, head_dim]. A block has all of its keys ahead of its values."""

    ORDERS = {"NHD": (0, 1, 2, 3, 4), "HND": (0, 1, 3, 2, 4)}
    LAYERED = {"NHD": (1, 0, 2, 3, 4, 5), "HND": (1, 4, 0, 2, 3, 5)}  # of all layers together: blocks are outermost

    @staticmethod
    def shape(blocks, tokens, heads, size):
        return blocks, 2, tokens, heads, size

    @staticmethod
    def parts(cache):
        """Keys and values [blocks, tokens, heads, head_dim]."""
        return cache.unbind(1)


class SideBySide:
    """vLLM 0.26: [blocks, heads, tokens, 2 * head_dim]. The value of a token and head lies behind its key."""

    ORDERS = {"NHD": (0, 2, 1, 3), "HND": (0, 1, 2, 3)}
    LAYERED = {"NHD": (1, 0, 3, 2, 4), "HND": (1, 2, 0, 3, 4)}

    @staticmethod
    def shape(blocks, tokens, heads, size):
        return blocks, heads, tokens, 2 * size

    @staticmethod
    def parts(cache):
        """Keys and values [blocks, tokens, heads, head_dim]."""
        return cache.transpose(1, 2).chunk(2, -1)


def era(version):
    """The class for a version of vLLM."""
    return Apart if tuple(int(part) for part in version.split(".")[:2]) < (0, 26) else SideBySide


CACHE = era(vllm.__version__)


def stride_order(of_all_layers):
    """The order of the dimensions in memory: tokens before heads, or heads before tokens, as vLLM is told."""
    return (CACHE.LAYERED if of_all_layers else CACHE.ORDERS)[get_kv_cache_layout()]
