#!/usr/bin/env python3
"""Times GEMMs of groups on a GPU: rows scattered, and weights by pointers, beside the same rows and weights in order.

    bench/groups_places.py build/cli/kernelwright                 # a row for each problem, shape and way
    bench/groups_places.py build/cli/kernelwright --write FOLDER  # the configs alone

Every config runs against the reference first, and then all are timed by `kernelwright bench`.
"""
import sys

import timed_configs

WAYS = {"in_order": {}, "scatter": {"scatter": True}, "gather": {"gather": True}, "pointers": {"pointers": True},
        "gather_scatter": {"gather": True, "scatter": True}, "gather_pointers": {"gather": True, "pointers": True}}
E4M3 = {"dtype": {"a": "e4m3", "b": "e4m3", "d": "bf16"}, "scales": "per_block"}
# Up and down projections of 32 experts, and of 8 in fp8: the host draws all weights. Shapes: rows that decode and prefill
# have.
PROBLEMS = {"bf16_up": (32, {"n": 1536, "k": 2048}), "bf16_down": (32, {"n": 2048, "k": 768}),
            "fp8_up": (8, {"n": 4096, "k": 7168} | E4M3), "fp8_down": (8, {"n": 7168, "k": 2048} | E4M3)}


def configs():
    for name, (count, problem) in PROBLEMS.items():
        for way, places in WAYS.items():
            groups = {"kind": "rows", "count": count, "bounds": "starts"} | places
            shapes = [{"name": "decode", "m": 1024, "skew": "uniform"}, {"name": "prefill", "m": 16384, "skew": "uniform"},
                      {"name": "check", "m": 300, "rows": 270, "skew": "zipf", "active": 6, "check": True}]
            yield f"{name}-{way}", {"version": 1, "kind": "gemm", "name": f"{name}-{way}".replace("_", "-"),
                                    "problem": problem | {"groups": groups}, "schedule": "auto", "shapes": shapes}


if __name__ == "__main__":
    sys.exit(timed_configs.main(__doc__, configs()))
