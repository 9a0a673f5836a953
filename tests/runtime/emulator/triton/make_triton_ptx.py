#!/usr/bin/env python3
"""Compiles the kernels of triton_kernels.py for three architectures, and describes their launches.

    python make_triton_ptx.py            writes ptx/*.ptx and ptx/launches.json beside this file
    python make_triton_ptx.py --check    says which of the committed files this machine's Triton makes otherwise

It needs Triton, which compiles without a GPU. The tests read the files alone.
"""
import argparse
import json
import os
import pathlib
import re
import sys

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
os.environ["TRITON_ALWAYS_COMPILE"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_kernels

FOLDER = pathlib.Path(__file__).resolve().parent / "ptx"
ARCHITECTURES = (80, 90, 100)
SWIZZLES = ("none", "32B", "64B", "128B")


def random(shape, dtype, seed, low=-1, high=1):
    return {"random": shape, "dtype": dtype, "seed": seed, "low": low, "high": high}


def output(shape, dtype, kind="bits"):
    return {"zeros": shape, "dtype": dtype, "output": kind}


class Case:
    """A kernel with its constants, buffers, arguments and grid. An argument is a buffer's name, a number, or a tensor:
    a buffer's name with its extents, outermost first."""

    def __init__(self, name, kernel, types, constants, buffers, arguments, grid, numbers, architectures=ARCHITECTURES,
                 reference=None, **options):
        self.name, self.kernel, self.types, self.constants = name, getattr(triton_kernels, kernel), types, constants
        self.buffers, self.arguments, self.grid, self.numbers = buffers, arguments, grid, numbers
        self.architectures, self.reference, self.options = architectures, reference or kernel, options

    def compile(self, architecture):
        names = [name for name in self.kernel.arg_names if name not in self.constants]
        signature = dict(zip(names, self.types, strict=True)) | {name: "constexpr" for name in self.constants}
        # As Triton's own launcher does, of pointers and of integers that are multiples of 16.
        aligned = [at for at, (kind, value) in enumerate(zip(self.types, self.arguments, strict=True))
                   if kind.startswith("*") or kind == "i32" and value % 16 == 0]
        source = ASTSource(fn=self.kernel, signature=signature, constexprs=self.constants,
                           attrs={(at,): [["tt.divisibility", 16]] for at in aligned})
        return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=self.options)


def stripped(ptx):
    """Without comments and empty lines: line information is off already."""
    lines = (line.split("//")[0].rstrip() for line in ptx.splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def launch_of(case, kernel, ptx):
    """The case as JSON. The parameters that the PTX declares say the sizes of numbers."""
    entry = re.search(r"\.entry (\w+)", ptx).group(1)
    declared = re.findall(r"\.param (?:\.align \d+ )?\.([a-z]\d+) .*?_param_\d+(\[128\])?", ptx.split(".reqntid")[0])
    maps = list(getattr(kernel.metadata, "tensordesc_meta", None) or [])
    arguments, buffers = [], dict(case.buffers)

    def add(value):
        kind, is_map = declared[len(arguments)]
        if isinstance(value, str):
            arguments.append({"buffer": value})
        elif value is None or is_map:
            arguments.append(value)
        else:
            arguments.append({{"u": "i", "b": "i", "s": "i", "f": "f"}[kind[0]] + kind[1:]: value})

    for value in case.arguments:
        if not isinstance(value, tuple):
            add(value)
            continue
        name, (rows, columns) = value
        if maps:
            about = maps.pop(0)
            add({"tensor_map": {"buffer": name, "dtype": buffers[name]["dtype"], "dims": [columns, rows],
                                "strides": [columns * about["elem_size"]], "box": about["block_size"][::-1],
                                "swizzle": SWIZZLES[about["swizzle"]]}})
            extra = [rows, columns, columns, 1]
        else:
            add(name)
            extra = [rows, columns, columns, 1, 0, 0, rows, columns, columns, 1]
        for number in extra:
            add(number)
    scratch = kernel.metadata.global_scratch_size
    if scratch:
        buffers["scratch"] = {"zeros": [scratch * case.grid[0] * (case.grid + [1])[1]], "dtype": "u8"}
    add("scratch" if scratch else None)
    add(None)  # for profiles
    assert len(arguments) == len(declared), (case.name, len(arguments), declared)
    threads = int(re.search(r"\.reqntid (\d+)", ptx).group(1))
    launch = {"entry": entry, "grid": case.grid, "block": [threads], "shared": kernel.metadata.shared,
              "arguments": arguments}
    if case.options.get("launch_pdl"):
        launch["pdl"] = True
    return {"reference": case.reference, "numbers": case.numbers, "buffers": buffers, "launches": [launch]}


F16, F32, I32 = "*fp16", "*fp32", "i32"


def elementwise_cases():
    count, grid = 1000, [4]
    pair = {"left": random([count], "f32", 1), "right": random([count], "f32", 2), "total": output([count], "f32")}
    add = dict(types=[F32, F32, F32, I32], constants={"BLOCK": 256}, buffers=pair, grid=grid, numbers={"n": count},
               arguments=["left", "right", "total", count])
    yield Case("add", "add_vectors", **add)
    yield Case("add_dependent", "add_dependent", architectures=(90, 100), reference="add_vectors", launch_pdl=True,
               **add)
    yield Case("arc_sine", "arc_sine", [F32, F32, I32], {"BLOCK": 256},
               {"values": random([count], "f32", 3), "results": output([count], "f32")}, ["values", "results", count],
               grid, {"n": count})
    yield Case("dropout", "drop_and_scale", [F32, F32, I32, "fp32", I32], {"BLOCK": 256},
               {"values": random([count], "f32", 4, 1, 2), "kept": output([count], "f32")},
               ["values", "kept", count, 0.25, 1234567], grid, {"n": count, "rate": 0.25, "seed": 1234567})
    rows, columns, stride = 7, 200, 208
    yield Case("softmax", "softmax_rows", [F32, F32, I32, I32, I32], {"BLOCK": 256, "STAGES": 2},
               {"scores": random([rows, stride], "f32", 5, -4, 4), "weights": output([rows, stride], "f32")},
               ["scores", "weights", rows, columns, stride], [3], {"rows": rows, "columns": columns, "stride": stride})


def normalize_cases():
    rows, columns = 6, 200
    row = {"x": random([rows, columns], "f16", 6, -2, 3), "weight": random([columns], "f32", 7)}
    numbers = {"rows": rows, "columns": columns, "epsilon": 1e-5}
    yield Case("normalize", "normalize", [F16, F32, F32, F16, F32, F32, I32, "fp32"], {"BLOCK": 256},
               row | {"bias": random([columns], "f32", 8), "y": output([rows, columns], "f16"),
                      "means": output([rows], "f32"), "deviations": output([rows], "f32")},
               ["x", "weight", "bias", "y", "means", "deviations", columns, 1e-5], [rows], numbers)
    groups = 2
    yield Case("normalize_backward", "normalize_backward", [F16, F16, F32, F32, F16, F32, F32, F32, "*i32", I32],
               {"GROUPS": groups, "BLOCK": 256},
               row | {"dx": output([rows, columns], "f16"), "dy": random([rows, columns], "f16", 9),
                      "part_weight": output([groups, columns], "f32", "close"),
                      "part_bias": output([groups, columns], "f32", "close"), "means": random([rows], "f32", 10),
                      "deviations": random([rows], "f32", 11, 0.5, 1.5), "locks": output([2 * groups], "i32")},
               ["dx", "dy", "part_weight", "part_bias", "x", "weight", "means", "deviations", "locks", columns], [rows],
               numbers | {"groups": groups})
    parts, columns = 20, 100
    yield Case("sum_groups", "sum_groups", [F32, F32, I32, I32], {"BLOCK": 64, "ROWS": 16},
               {"parts": random([parts, columns], "f32", 12), "total": output([columns], "f32")},
               ["parts", "total", parts, columns], [2], {"groups": parts, "columns": columns})


def matmul_cases():
    m, n, k = 100, 72, 160
    numbers = {"m": m, "n": n, "k": k}
    operands = {"a": random([m, k], "f16", 13), "b": random([k, n], "f16", 14), "c": output([m, n], "f16")}
    for stages in (3, 4):
        yield Case(f"matmul_{stages}_stages", "matmul", [F16] * 3 + [I32] * 6,
                   {"BM": 64, "BN": 64, "BK": 32, "GROUP": 2, "STAGES": stages}, operands,
                   ["a", "b", "c", m, n, k, k, n, n], [4], numbers)
    yield Case("matmul_split", "matmul_split", [F16, F16, F32] + [I32] * 3, {"BM": 64, "BN": 64, "BK": 32, "SPLIT": 2},
               {"a": random([64, 256], "f16", 15), "b": random([n, 256], "f16", 16),
                "c": output([64, n], "f32", "close")}, ["a", "b", "c", 64, n, 256], [1, 2, 2],
               {"m": 64, "n": n, "k": 256})
    k = 256
    operands = {"a": random([m, k], "f16", 17), "b": random([n, k], "f16", 18), "c": output([m, n], "f16")}
    # For sm_90 Triton 3.9.0 specialises warps for this block alone.
    for name, block_m, specialize, architectures in (("matmul_tensors", 64, False, ARCHITECTURES),
                                                     ("matmul_specialized", 64, True, (90,)),
                                                     ("matmul_specialized", 128, True, (100,))):
        types = [f"tensordesc<fp16[{rows},64]>" for rows in (block_m, 64, block_m)] + [I32] * 3
        yield Case(name, "matmul_tensors", types,
                   {"BM": block_m, "BN": 64, "BK": 64, "GROUP": 2, "STAGES": 3, "SPECIALIZE": specialize}, operands,
                   [("a", (m, k)), ("b", (n, k)), ("c", (m, n)), m, n, k], [1 if specialize else 2],
                   {"m": m, "n": n, "k": k}, architectures)


def attention_cases():
    heads, length, depth = 2, 100, 32
    numbers = {"heads": heads, "length": length, "depth": depth, "scale": 0.25}
    tensors = {name: random([heads * length, depth], "f16", 19 + at) for at, name in enumerate("qkv")}
    results = {"o": output([heads * length, depth], "f16"), "lse": output([heads * length], "f32")}
    yield Case("attention", "attend", [F16] * 4 + [F32, I32, "fp32"], {"BM": 64, "BN": 32, "D": depth, "STAGES": 3},
               tensors | results, ["q", "k", "v", "o", "lse", length, 0.25], [2, heads], numbers)
    length = 128
    numbers = numbers | {"length": length}
    tensors = {name: random([heads * length, depth], "f16", 22 + at) for at, name in enumerate("qkv")}
    gradients = {"do": random([heads * length, depth], "f16", 25), "lse": random([heads * length], "f32", 26, 4, 6),
                 "delta": random([heads * length], "f32", 27), "dq": output([heads * length, depth], "f32", "close"),
                 "dk": output([heads * length, depth], "f16"), "dv": output([heads * length, depth], "f16")}
    names = ["q", "k", "v", "do", "lse", "delta", "dq", "dk", "dv"]
    yield Case("attention_backward", "attend_backward", [F16] * 4 + [F32] * 3 + [F16] * 2 + [I32, "fp32"],
               {"BM": 32, "BN": 64, "D": depth, "STAGES": 2}, tensors | gradients, names + [length, 0.25], [2, heads],
               numbers)
    for name, block_m, length, specialize, architectures in (
            ("attention_tensors", 64, 128, False, ARCHITECTURES), ("attention_specialized", 128, 256, True, (100,))):
        tensors = {name: random([length, 64], "f16", 28 + at) for at, name in enumerate("qkv")}
        results = {"o": output([length, 64], "f16"), "lse": output([length], "f32")}
        types = [f"tensordesc<fp16[{rows},64]>" for rows in (block_m, 64, 64, block_m)] + [F32, I32, "fp32"]
        yield Case(name, "attend_tensors", types,
                   {"BM": block_m, "BN": 64, "D": 64, "STAGES": 3, "SPECIALIZE": specialize}, tensors | results,
                   [(tensor, (length, 64)) for tensor in "qkvo"] + ["lse", length, 0.125], [length // block_m, 1],
                   {"heads": 1, "length": length, "depth": 64, "scale": 0.125}, architectures, reference="attend")


def grouped_cases():
    for name, sizes, block_k in (("grouped_matmul", [[70, 72, 64], [33, 64, 96], [64, 40, 32]], 32),
                                 ("grouped_matmul_tensors", [[70, 72, 64], [33, 64, 320], [64, 40, 128]], 64)):
        lists = {"lefts": [], "rights": [], "results": []}
        buffers = {"sizes": {"values": [extent for size in sizes for extent in size], "dtype": "i32"}}
        for at, (m, n, k) in enumerate(sizes):
            buffers[f"a{at}"] = random([m, k], "f16", 40 + at)
            buffers[f"b{at}"] = random([k, n], "f16", 50 + at)
            buffers[f"c{at}"] = output([m, n], "f16")
            for kind, letter in zip(lists, "abc"):
                lists[kind].append(f"{letter}{at}")
        buffers |= {kind: {"addresses": names} for kind, names in lists.items()}
        yield Case(name, name, ["*i64"] * 3 + ["*i32", I32], {"BM": 64, "BN": 64, "BK": block_k}, buffers,
                   [*lists, "sizes", len(sizes)], [2], {"groups": len(sizes)})


def scaled_cases():
    m, n, k = 128, 64, 256
    for name, kind, dtype, pack, architectures in (("e4m3", "*fp8e4nv", "e4m3", 1, (90, 100)),
                                                   ("e2m1", "*u8", "u8", 2, ARCHITECTURES)):
        low, high = (-4, 4) if pack == 1 else (0, 255)
        buffers = {"a": random([m, k // pack], dtype, 60, low, high), "b": random([n, k // pack], dtype, 61, low, high),
                   "scales_a": random([m, k // 32], "u8", 62, 122, 130),
                   "scales_b": random([n, k // 32], "u8", 63, 122, 130), "c": output([m, n], "f32")}
        yield Case(f"matmul_scaled_{name}", "matmul_scaled", [kind, kind, "*u8", "*u8", F32, I32, I32],
                   {"BM": 128, "BN": 64, "BK": 128, "FORMAT": name, "STAGES": 2}, buffers,
                   ["a", "b", "scales_a", "scales_b", "c", n, k], [1, 1], {"m": m, "n": n, "k": k}, architectures)


def make():
    """The files' texts by name."""
    files, cases = {}, []
    for kind in (elementwise_cases, normalize_cases, matmul_cases, attention_cases, grouped_cases, scaled_cases):
        for case in kind():
            for architecture in case.architectures:
                kernel = case.compile(architecture)
                name = f"{case.name}_sm{architecture}"
                ptx = stripped(kernel.asm["ptx"])
                files[f"{name}.ptx"] = ptx
                cases.append({"name": name, "ptx": f"{name}.ptx"} | launch_of(case, kernel, ptx))
    lines = ",\n".join(json.dumps(case) for case in cases)
    files["launches.json"] = f'{{"triton": "{triton.__version__}", "cases": [\n{lines}\n]}}\n'
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    check = parser.parse_args().check
    files = make()
    if check:
        different = [name for name, text in files.items()
                     if not (FOLDER / name).is_file() or (FOLDER / name).read_text() != text]
        stale = [path.name for path in FOLDER.iterdir() if path.suffix in (".ptx", ".json") and path.name not in files]
        for name in different + stale:
            print(f"{name}: Triton {triton.__version__} makes {'no such file' if name in stale else 'another text'}")
        return 1 if different or stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.ptx"):
        path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text)
    print(f"{len(files) - 1} kernels, {sum(map(len, files.values()))} bytes, Triton {triton.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
