#!/usr/bin/env python3
"""Times what a GEMM's epilogue makes beside a 16-bit d, on a GPU: block-scaled results, amax, squares, rstd.

    bench/gemm_outputs.py build/cli/kernelwright                 # a row for each epilogue, problem and shape
    bench/gemm_outputs.py build/cli/kernelwright --write FOLDER  # the configs alone

Every config runs against the reference first, and then all are timed by `kernelwright bench`. Beside them stand the same
GEMM with a 16-bit d and a row_op that quantises such a d, which is what the epilogue saves.
"""
import sys

import timed_configs

SHARERS = {"e4m3": 128, "mxfp8": 32, "mxfp4": 32, "nvfp4": 16}  # columns of a scale
MEASURES = {"squares": "squares = sum(x * x, over=n)", "amax": "amax = amax(x)",
            "both": "squares = sum(x * x, over=n); amax = amax(x)"}
# Columns of d and k: an output projection with its residual, and a gated first layer.
PROBLEMS = {"residual": (4096, 4096, "acc + c"), "gates": (7168, 4096, "silu(gate) * up")}
SHAPES = [{"name": "decode", "m": 64}, {"name": "prefill", "m": 4096}, {"name": "check", "m": 77, "check": True}]


def epilogues(value):
    """The text of each epilogue, and the dtype of d."""
    yield "plain", value, "bf16"
    for to, columns in SHARERS.items():
        yield to, f"x = {value}; d = quantize(x, {to}, per=token_group({columns}), scale=s)", to
    for name, outputs in MEASURES.items():
        yield name, f"x = {value}; d = x; {outputs}", "bf16"
    yield "rstd", value.replace("acc", "rstd * acc") if "acc" in value else "silu(rstd * gate) * (rstd * up)", "bf16"


def configs():
    for problem, (columns, k, value) in PROBLEMS.items():
        n = columns * 2 if "gate" in value else columns
        for name, text, d in epilogues(value):
            yield f"gemm-{problem}-{name}", {"kind": "gemm", "problem": {
                "n": n, "k": k, "dtype": {"a": "bf16", "b": "bf16", "d": d}, "epilogue": text}, "shapes": SHAPES}
        shapes = [{"name": shape["name"], "rows": shape["m"], "check": shape.get("check", False)} for shape in SHAPES]
        for to in SHARERS:
            yield f"row-op-{problem}-{to}", {"kind": "row_op", "problem": {
                "dtype": {"in": "bf16", "out": to}, "width": columns, "scales": {"kind": "per_block"}}, "shapes": shapes}


if __name__ == "__main__":
    sys.exit(timed_configs.main(__doc__, configs()))
