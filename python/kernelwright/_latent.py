"""Attention over latents (MLA) as servers have it: the problems of its kernels, and the parts in which a key is written.

A kernel of kind kv_write has keys and values of one number of heads, and heads of up to 256 elements. So a new key is written as
four heads of each: its latent as keys, and what carries the rotation as values. Strides put them into one row of the cache.
"""
from typing import NamedTuple

import torch

from ._served import paged_write

LATENT, ROTARY = 512, 64  # elements of a key
PARTS = 4  # heads in which it is written
HOPPER, HOPPERS_PAGES = 9, 8  # keys of a page, or a multiple


class LatentProblem(NamedTuple):
    """All that tells two kernels apart."""

    dtype: str
    heads: int
    page_size: int
    queries: int = 1  # of a sequence at most; 0: sequences have any number of them, and lie one behind the other
    kv_dtype: str = ""  # "": that of the queries
    shares_keys: bool = False  # CTAs share the keys of all sequences
    batch_invariant: bool = False  # a query's bits depend on no other query

    def config(self):
        """What Engine.prepare() takes."""
        problem = {"dtype": {"q": self.dtype, "kv": self.kv_dtype or self.dtype, "out": self.dtype},
                   "head_dim": {"qk": LATENT + ROTARY, "v": LATENT}, "heads": {"q": self.heads, "kv": 1},
                   "kv_layout": {"kind": "paged", "page_size": self.page_size}, "v_layout": "key_prefix",
                   "mask": {"kind": "causal"}}
        problem |= {"max_q_len": self.queries} if self.queries else {"q_layout": "ragged"}
        if self.kv_dtype:
            problem["scales"] = "per_tensor"
        if self.batch_invariant:
            problem["batch_invariant"] = True
        return {"problem": problem, "schedule": {"scheduler": "balanced"} if self.shares_keys else "auto"}


def shares_keys(device, kv_dtype, page_size):
    """Whether CTAs of a decode share the keys of all sequences: those of 16 bits on Hopper. The emulator is one."""
    hopper = device.type != "cuda" or torch.cuda.get_device_capability(device)[0] == HOPPER
    return hopper and not kv_dtype and page_size % HOPPERS_PAGES == 0


def latent_write(dtype, page_size, fp8=""):
    """The WriteProblem of new keys."""
    return paged_write(dtype, PARTS, LATENT // PARTS, ROTARY // PARTS, page_size, fp8)


def parts_of(keys):
    """Keys [..., 576] as what is written: latents [..., 4, 128] and rotary parts [..., 4, 16]."""
    return [part.unflatten(-1, (PARTS, -1)) for part in keys.split((LATENT, ROTARY), -1)]
