#!/usr/bin/env python3
"""Times GEMMs that write a cache beside the GEMM and the kv_write that they save, on a GPU.

    bench/gemm_kv_write.py build/cli/kernelwright                 # a row for each kernel and shape
    bench/gemm_kv_write.py build/cli/kernelwright --write FOLDER  # the configs alone

Shapes are those of Llama 3 8B: k 4096, 32 heads of queries and 8 of keys and values, 128 elements each. Every config
runs against the reference first, and then all are timed by `kernelwright bench`. The time to compare with that of
qkv-*-fused is the sum of qkv-*-gemm and qkv-*-kv-write.
"""
import sys

import timed_configs

HEADS, HEAD_DIM, K = {"q": 32, "kv": 8}, 128, 4096
ROWS = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHAPES = [(f"m{m}", m, False) for m in ROWS] + [("check-few", 5, True), ("check", 77, True), ("check-many", 600, True)]
# dtype of the operands, that of the cache, and what else the cache has.
KINDS = {"bf16": ("bf16", "bf16", {}), "fp8-cache": ("bf16", "e4m3", {"scales": {"k": "per_head", "v": "per_head"}}),
         "fp8": ("e4m3", "e4m3", {"scales": {"k": "per_head", "v": "per_head"}}),
         "norm": ("bf16", "bf16", {"qk_norm": {"kind": "rms"}})}


def configs():
    for name, (operands, cache, more) in KINDS.items():
        written = {"dtype": {"in": "bf16", "q": "bf16", "kv": cache}, "head_dim": {"qk": HEAD_DIM, "v": HEAD_DIM}, "heads": HEADS,
                   "kv_layout": {"kind": "paged", "page_size": 16}, "rope": {"style": "neox", "width": HEAD_DIM}} | more
        problem = {"n": (HEADS["q"] + 2 * HEADS["kv"]) * HEAD_DIM, "k": K, "dtype": {"a": operands, "b": operands, "d": "bf16"}}
        if operands == "e4m3":
            problem["scales"] = "per_token"
        rows = [{"name": name, "m": m, "check": check} for name, m, check in SHAPES]
        tokens = [{"name": name, "tokens": m, "check": check} for name, m, check in SHAPES]
        yield f"qkv-{name}-fused", {"kind": "gemm", "problem": problem | {"kv_write": written}, "shapes": rows}
        yield f"qkv-{name}-gemm", {"kind": "gemm", "problem": problem, "shapes": rows}
        yield f"qkv-{name}-kv-write", {"kind": "kv_write", "problem": written, "shapes": tokens}


if __name__ == "__main__":
    sys.exit(timed_configs.main(__doc__, configs(), [name for name, _, check in SHAPES if not check],
                                [name for name, _, check in SHAPES if check]))
