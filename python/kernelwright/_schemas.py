"""The schemas of torch's operators, made of the arguments of bind() and launch()."""
import inspect
from ctypes import c_float, c_uint64

from . import _structs as structs
from ._handles import (GemmKernel, Kernel, KvWriteKernel, MoeCombineKernel, MoeKernel, QuantizeKernel, RouteKernel,
                       RowOpKernel)


def _arguments(function, struct, without):
    """The named arguments of an operator: tensors, then numbers, each with its type and default."""
    kinds, tensors, numbers = dict(struct._fields_), [], []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ("self", "stream", "workspace_bytes", "page_table_stride", "position_bytes", *without):
            continue
        if kinds.get(name) is c_uint64:
            tensors.append(f"Tensor? {name}=None")
        elif name == "window":
            numbers.append("int[]? window=None")
        elif parameter.default is False:
            numbers.append(f"bool {name}=False")
        elif kinds.get(name) is c_float:
            numbers.append(f"float? {name}=None" if parameter.default is None else f"float {name}={parameter.default}")
        else:
            numbers.append(f"SymInt? {name}=None" if parameter.default is None else f"SymInt {name}={parameter.default}")
    return tensors + numbers


# The dispatcher takes about 60 ns for each argument that an operator has. So the first overloads have these alone; those
# named "full" have all, and torch.ops.kernelwright.attention(...) chooses by what it is given.
COMMON = ("q_offsets", "kv_offsets", "kv_lengths", "kv_starts", "page_table", "sinks", "q_len", "kv_len", "scale")

# Scales of tokens are written; a schema cannot tell them from those that are only read.
MUTATED = {f"Tensor? {name}_scale=None": f"Tensor({letter}!)? {name}_scale=None" for name, letter in zip("qkv", "def")}


# What route.out writes: all but the first two if the problem sorts.
ROUTED = ("Tensor(a!) ids", "Tensor(b!) weights", "Tensor(c!)? starts=None", "Tensor(d!)? source_rows=None",
          "Tensor(e!)? positions=None", "Tensor(f!)? sorted_weights=None")


def _schemas():
    """The schema of each operator by its name and overload."""
    attention = _arguments(Kernel.bind, structs.AttentionTensors, ("q", "k", "v", "o", "lse", "workspace"))
    common = [argument for argument in attention if argument.partition("=")[0].split()[-1] in COMMON]
    gemm = _arguments(GemmKernel.bind, structs.GemmTensors, ("a", "b", "d", "workspace", "scale_d", "amax", "squares", "kv_write"))
    # torch.compile cannot return a tensor beside an optional one that is written: gemm.out alone says that status is.
    gemm_out = ["Tensor(s!)? status=None" if argument.startswith("Tensor? status") else argument for argument in gemm]
    gemm_out = ["Tensor(b!)? scale_d=None", "Tensor(m!)? amax=None", "Tensor(q!)? squares=None", *gemm_out]
    quantize = _arguments(QuantizeKernel.launch, structs.QuantizeTensors, ("x", "elements", "scales", "rows", "k"))
    write = [MUTATED.get(argument, argument) for argument in _arguments(KvWriteKernel.bind, structs.KvWriteTensors, (
        "q", "k", "v", "q_out", "k_cache", "v_cache", "num_pages", "batch", "kv_len", "kv_tokens", "cos_sin_rows"))]
    # Of a GEMM that writes a cache: what kv_write has beside rows, behind what the GEMM has.
    of_cache = [argument for argument in write if argument.partition("=")[0].split()[-1] not in ("tokens", "pdl")]
    rows_of = _arguments(RowOpKernel.bind, structs.RowOpTensors, (
        "x", "residual", "out", "residual_out", "scale", "rows", "lse", "residual_lse", "lse_out"))
    lses = ["Tensor lse", "Tensor residual_lse"]
    given, made = ["Tensor? scale=None", *rows_of], ["Tensor(a!) out", "Tensor(b!)? scale=None", *rows_of]
    route = _arguments(RouteKernel.bind, structs.RouteTensors, (
        "logits", "ids", "weights", "starts", "source_rows", "positions", "sorted_weights", "workspace", "tokens"))
    combine = _arguments(MoeCombineKernel.bind, structs.MoeCombineTensors, (
        "rows", "positions", "weights", "out", "num_rows", "tokens"))
    layer = _arguments(MoeKernel.bind, structs.MoeTensors, (
        "x", "logits", "ids", "weights", "gate_up", "down", "out", "workspace", "tokens"))
    cache = "Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache"
    heads = {"attention": "Tensor q, Tensor k, Tensor v", "gemm": "Tensor a, Tensor b",
             "gemm.kv_write": "Tensor a, Tensor b, Tensor(a!) k_cache, Tensor(b!) v_cache", "quantize": "Tensor x",
             "kv_write": f"Tensor q, {cache}", "kv_write.in_place": f"Tensor(c!) q, {cache}", "kv_write.keys": cache,
             "row_op": "Tensor x", "row_op.add": "Tensor x, Tensor residual", "row_op.add_scaled": "Tensor x, Tensor residual",
             "row_op.add_out": "Tensor x, Tensor residual", "row_op.in_place": "Tensor x, Tensor(c!) residual",
             **dict.fromkeys(("row_op.merge", "row_op.merge_scaled"), "Tensor x, Tensor residual"),
             "route": "Tensor logits", "route.given": "Tensor ids", "moe_combine": "Tensor rows, Tensor positions, Tensor weights",
             "moe_combine.unweighted": "Tensor rows, Tensor positions", "moe_combine.unweighted_out": "Tensor rows, Tensor positions",
             "moe": "Tensor x, Tensor logits, Tensor gate_up, Tensor down",
             **dict.fromkeys(("moe.given", "moe.given_out"), "Tensor x, Tensor ids, Tensor weights, Tensor gate_up, Tensor down")}
    out, lse, work = "Tensor(a!) out", "Tensor(b!)? lse=None", "Tensor(z!)? workspace=None"
    rows = (("attention", common, "Tensor"), ("attention.full", attention, "Tensor"),
            ("attention.with_lse", attention, "(Tensor, Tensor)"), ("attention.out", [out, lse, *common], "()"),
            ("attention.out_full", [out, lse, work, *attention], "()"), ("gemm", gemm, "Tensor"),
            ("gemm.scaled", gemm, "(Tensor, Tensor)"), ("gemm.out", [out, work, *gemm_out], "()"),
            ("gemm.kv_write", [*of_cache, *gemm], "Tensor"), ("quantize", quantize, "(Tensor, Tensor)"),
            ("quantize.out", ["Tensor(a!) elements", "Tensor(b!) scales", *quantize], "()"), ("kv_write", write, "Tensor"),
            ("kv_write.out", ["Tensor(c!) q_out", *write], "()"), ("kv_write.in_place", write, "()"),
            ("kv_write.keys", write, "()"), ("row_op", given, "Tensor"), ("row_op.scaled", rows_of, "(Tensor, Tensor)"),
            ("row_op.add", given, "(Tensor, Tensor)"), ("row_op.add_scaled", rows_of, "(Tensor, Tensor, Tensor)"),
            ("row_op.merge", [*lses, *given], "(Tensor, Tensor)"),
            ("row_op.merge_scaled", [*lses, *rows_of], "(Tensor, Tensor, Tensor)"),
            ("row_op.out", made, "()"), ("row_op.add_out", ["Tensor(c!) residual_out", *made], "()"),
            ("row_op.in_place", made, "()"), ("route", route, "(Tensor, Tensor)"),
            ("route.sorted", route, "(Tensor, Tensor, Tensor, Tensor, Tensor)"),
            ("route.given", route, "(Tensor, Tensor, Tensor)"), ("route.out", [*ROUTED, work, *route], "()"), ("moe_combine", combine, "Tensor"), ("moe_combine.out", [out, *combine], "()"),
            ("moe_combine.unweighted", combine, "Tensor"), ("moe_combine.unweighted_out", [out, *combine], "()"),
            ("moe", layer, "Tensor"), ("moe.given", layer, "Tensor"),
            ("moe.out", [out, "Tensor(b!)? ids=None", "Tensor(c!)? weights=None", work, *layer], "()"),
            ("moe.given_out", [out, work, *layer], "()"))
    return {name: f"{name}(int handle, {heads.get(name, heads[name.partition('.')[0]])}, *, {', '.join(named)}) -> {returned}"
            for name, named, returned in rows}


SCHEMAS = _schemas()
