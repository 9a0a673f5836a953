"""Layers of experts, from the router's logits to the sum of each token's rows. Arms: ours; vLLM's fused_experts, with the
tables of its wheel for this GPU and with those for the H200; triton_kernels of the same wheel; PyTorch's grouped product; a
read-only stream over the weights of the experts that have tokens.

Every arm starts from 16-bit tokens and f32 logits, and makes 16-bit sums. So the choice of experts, the sort, quantisation,
gates and weights are timed in every arm. Weights are laid out beforehand as each arm wants them.
"""
import json
import math
import pathlib

import torch

from .arms import Arm, kernelwright
from .arm import Cannot
from .gemm import interleaved
from .reference import relative_rmse

COMPARED = ("vllm", "vllm_h200", "torch_grouped", "former")
BLOCK = 128


class Case:
    """A row's tokens x [tokens, hidden], logits, and weights gate, up [experts, width, hidden] and down."""

    def __init__(self, row, inputs="normal", device="cuda"):
        self.row, self.device = row, device
        self.x = torch.randn(row.tokens, row.hidden, device=device).to(torch.bfloat16)
        self.logits = torch.randn(row.tokens, row.experts, device=device)
        if row.skew == "zipf":
            self.logits -= torch.arange(1, row.experts + 1, device=device).log()
        if row.skew == "one":
            self.logits[:, :row.top_k] += 1e3
        self.bias = torch.randn(row.experts, device=device) / 100 if row.grouped else None
        self.gate, self.gate_scale = self.weights(row.width, row.hidden)
        self.up, self.up_scale = self.weights(row.width, row.hidden)
        self.down, self.down_scale = self.weights(row.hidden, row.width)

    def weights(self, n, k):
        """[experts, n, k], and for fp8 the scales [experts, n / 128, k / 128]."""
        parts = [self.quantised(torch.randn(n, k, device=self.device) / math.sqrt(k), (BLOCK, BLOCK))
                 for _ in range(self.row.experts)]
        return (None if part[0] is None else torch.stack(part) for part in zip(*parts))

    def quantised(self, values, block):
        if self.row.dtype == "bf16":
            return values.to(torch.bfloat16), None
        (rows, k), (high, wide) = values.shape, block
        blocks = values.view(rows // high, high, k // wide, wide)
        scale = blocks.abs().amax((1, 3)) / 448
        return (blocks / scale[:, None, :, None]).view(rows, k).to(torch.float8_e4m3fn), scale

    def full(self, elements, scale, block):
        elements = elements.float()
        if scale is None:
            return elements
        return elements * scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)

    def active(self):
        """How many experts have tokens."""
        return len(self.choice()[0].unique())

    def choice(self):
        """ids and weights [tokens, top_k] of fp64 arithmetic."""
        row, scores = self.row, self.logits.double()
        if not row.grouped:
            weights, ids = scores.softmax(-1).topk(row.top_k)
            return ids, weights / weights.sum(-1, keepdim=True)
        scores = scores.sigmoid()
        biased = (scores + self.bias).view(len(scores), row.grouped[0], -1)
        best = biased.topk(2).values.sum(-1).topk(row.grouped[1]).indices
        out = torch.ones(biased.shape[:2], dtype=torch.bool, device=self.device).scatter(1, best, False)
        ids = biased.masked_fill(out[..., None], -math.inf).flatten(1).topk(row.top_k).indices
        weights = scores.gather(1, ids)
        return ids, weights / weights.sum(-1, keepdim=True) * row.factor


class Truth:
    """fp32 arithmetic (without TF32) on the case's elements, with the choice of fp64. The bound: products between the two
    GEMMs are rounded to the row's type, and so are the rows of experts and the sum."""

    def __init__(self, case):
        torch.backends.cuda.matmul.allow_tf32 = False
        row, weight = case.row, (BLOCK, BLOCK)
        x = case.x.float()
        if row.dtype != "bf16":
            x = case.full(*case.quantised(x, (1, BLOCK)), (1, BLOCK))
        self.out, size = (torch.zeros(row.tokens, row.hidden, device=case.device) for _ in range(2))
        ids, weights = case.choice()
        for expert in range(row.experts):
            tokens, slots = (ids == expert).nonzero(as_tuple=True)
            if not len(tokens):
                continue
            gate, up, down = (case.full(elements[expert], None if scale is None else scale[expert], weight) for elements, scale in (
                (case.gate, case.gate_scale), (case.up, case.up_scale), (case.down, case.down_scale)))
            inner = torch.nn.functional.silu(x[tokens] @ gate.t()) * (x[tokens] @ up.t())
            factor = weights[tokens, slots].float()[:, None]
            self.out.index_add_(0, tokens, inner @ down.t() * factor)
            size.index_add_(0, tokens, inner.abs() @ down.abs().t() * factor.abs())
        step = 2.0**-8 if row.dtype == "bf16" else 2.0**-4  # bf16 and e4m3: half of their last bit
        self.bound = self.out.abs() * 2.0**-8 + size * (step + 2.0**-8) + 1e-6

    def error(self, out):
        off = ((out.float() - self.out).abs() / self.bound).max().item()
        return off if off == off else float("inf")

    def rmse(self, out):
        return relative_rmse(out, self.out)


# ---- ours

def problems(row):
    """The config of each kernel of the layer, by name."""
    fp8 = row.dtype != "bf16"
    dtype = {"a": row.dtype, "b": row.dtype, "d": "bf16"}
    rows = {"kind": "rows", "count": row.experts, "bounds": "starts"}
    common = {"dtype": dtype, "scales": "per_block" if fp8 else "none"}
    score = {"score": "sigmoid", "bias": True, "n_group": row.grouped[0], "topk_group": row.grouped[1],
             "factor": row.factor} if row.grouped else {}
    quantise = {"dtype": {"in": "bf16", "out": row.dtype}, "scales": {"kind": "per_block", "layout": "columns"}}
    kinds = {
        "route": ("route", {"experts": row.experts, "top_k": row.top_k, "renormalize": True, "sort": True, **score}),
        "first": ("gemm", {"n": 2 * row.width, "k": row.hidden, "epilogue": "silu(gate) * up", "groups": {**rows, "gather": True}, **common}),
        "second": ("gemm", {"n": row.hidden, "k": row.width, "groups": rows, **common}),
        "combine": ("moe_combine", {"width": row.hidden, "top_k": row.top_k}),
    }
    if fp8:
        kinds |= {name: ("row_op", {"width": width, **quantise}) for name, width in (("tokens", row.hidden), ("inner", row.width))}
    return {name: {"kind": kind, "name": f"layer-{name}", "problem": problem} for name, (kind, problem) in kinds.items()}


class Kernels:
    """The kernels of a layer, as if they were one."""

    def __init__(self, engine, row, schedule):
        self.of = {name: engine.prepare({**config, "schedule": schedule}, background=True) for name, config in problems(row).items()}

    def wait(self):
        for kernel in self.of.values():
            kernel.wait()

    def info(self):
        infos = [kernel.info() for kernel in self.of.values()]
        return {key: max(info[key] for info in infos) for key in ("registers", "spill_bytes")}


def prepare(engine, row, schedule):
    return Kernels(engine, row, schedule)


def columns(scale_rows, tokens, device):
    """Scales in columns, [k / 128, tokens], whose rows are a multiple of 4 apart."""
    return torch.empty(scale_rows, -(-tokens // 4) * 4, device=device)[:, :tokens]


def ours(name, kernels, case):
    row, device = case.row, case.device
    pairs = row.tokens * row.top_k
    expected = max(1, -(-pairs // min(row.experts, pairs)))

    def empty(*shape, dtype=torch.bfloat16):
        return torch.empty(*shape, dtype=dtype, device=device)

    def bound(kernel, needs_workspace=False, **tensors):
        if needs_workspace and (need := kernels.of[kernel].bind(**tensors).needed_workspace_bytes()):
            tensors["workspace"] = empty(need, dtype=torch.uint8)
        return kernels.of[kernel].bind(**tensors, pdl=True)
    ids, source, positions = (empty(*shape, dtype=torch.int32) for shape in ((row.tokens, row.top_k), (pairs,), (row.tokens, row.top_k)))
    starts, weights = empty(row.experts + 1, dtype=torch.int32), empty(row.tokens, row.top_k, dtype=torch.float32)
    inner, rows, out = empty(pairs, row.width), empty(pairs, row.hidden), torch.full_like(case.x, math.nan)
    launches = [bound("route", True, logits=case.logits, ids=ids, weights=weights, starts=starts, source_rows=source, positions=positions,
                      **({} if case.bias is None else {"bias": case.bias}))]
    first = dict(a=case.x, b=interleaved(case.gate, case.up), d=inner, bounds=starts, gather=source, expected_m=expected)
    second = dict(a=inner, b=case.down, d=rows, bounds=starts, expected_m=expected)
    if row.dtype != "bf16":
        first["a"], second["a"] = torch.empty_like(case.x, dtype=torch.float8_e4m3fn), torch.empty_like(inner, dtype=torch.float8_e4m3fn)
        first["scale_a"], second["scale_a"] = (columns(k // BLOCK, count, device) for k, count in ((row.hidden, row.tokens), (row.width, pairs)))
        first["scale_b"], second["scale_b"] = torch.cat([case.gate_scale, case.up_scale], 1), case.down_scale
        launches.append(bound("tokens", x=case.x, out=first["a"], scale=first["scale_a"]))
    launches.append(bound("first", **first))
    if row.dtype != "bf16":
        launches.append(bound("inner", x=inner, out=second["a"], scale=second["scale_a"]))
    launches.append(bound("second", **second))
    launches.append(bound("combine", rows=rows, positions=positions, weights=weights, out=out))

    def call():
        stream = torch.cuda.current_stream()
        for launch in launches:
            launch(stream)
        return out

    return Arm(name, call, row.work(case)[0], (launches,))


# ---- peers

def from_h200(row):
    """The schedule that vLLM's table for the H200 has for the row's tokens, or None."""
    import vllm.model_executor.layers.fused_moe as fused_moe
    kind = "" if row.dtype == "bf16" else f",dtype=fp8_w8a8,block_shape=[{BLOCK},{BLOCK}]"
    file = pathlib.Path(fused_moe.__file__).parent / "configs" / f"E={row.experts},N={row.width},device_name=NVIDIA_H200{kind}.json"
    if not file.exists():
        return None
    table = {int(tokens): found for tokens, found in json.loads(file.read_text()).items() if tokens.isdigit()}
    return table[min(table, key=lambda tokens: abs(tokens - row.tokens))]


def vllm(case, h200):
    row = case.row
    try:
        from vllm import _custom_ops as ops
        from vllm.model_executor.layers.fused_moe import fused_experts, override_config
        from vllm.model_executor.layers.fused_moe.config import fp8_w8a8_moe_quant_config
        from vllm.model_executor.layers.fused_moe.router.fused_topk_router import fused_topk
    except ImportError as error:
        raise Cannot(f"{error}") from None
    schedule = from_h200(row) if h200 else None
    if h200 and schedule is None:
        raise Cannot("vLLM's wheel has no table of this shape for the H200")
    gate_up, quantised = torch.cat([case.gate.view(torch.uint8), case.up.view(torch.uint8)], 1).view(case.gate.dtype), None
    if row.dtype != "bf16":
        quantised = fp8_w8a8_moe_quant_config(w1_scale=torch.cat([case.gate_scale, case.up_scale], 1), w2_scale=case.down_scale,
                                              block_shape=[BLOCK, BLOCK])

    def product(weights, ids):
        return fused_experts(case.x, gate_up, case.down, weights, ids, quant_config=quantised)

    def call():
        if row.grouped:
            weights, ids = ops.grouped_topk(case.logits, *row.grouped, row.top_k, True, row.factor, case.bias, 1)
        else:
            weights, ids, *_ = fused_topk(case.x, case.logits, row.top_k, True)
        if schedule is None:
            return product(weights, ids)
        with override_config(schedule):
            return product(weights, ids)

    return Arm("vllm", call, row.work(case)[0], (gate_up, quantised))


def triton_kernels(case):
    """It gates as gpt-oss does, which is not the row's function. So its output is not compared."""
    row = case.row
    if row.dtype != "bf16" or row.grouped:
        raise Cannot("triton_kernels takes bf16 here, and softmax over the chosen experts")
    try:
        import vllm.utils.import_utils as imports
        imports.has_triton_kernels()  # puts vLLM's copy where `import triton_kernels` finds it
        from triton_kernels.matmul_ogs import FnSpecs, FusedActivation, matmul_ogs
        from triton_kernels.routing import routing
        from triton_kernels.swiglu import swiglu_fn
    except ImportError as error:
        raise Cannot(f"{error}") from None
    count, width, hidden = case.gate.shape
    gate_up = torch.stack([case.gate, case.up], 2).view(count, 2 * width, hidden).transpose(1, 2)
    down = case.down.transpose(1, 2)
    gated = FusedActivation(FnSpecs("swiglu", swiglu_fn, ("alpha", "limit")), (1.0, 1e30), 2)

    def call():
        data, gather, scatter = routing(case.logits, row.top_k)
        inner = matmul_ogs(case.x, gate_up, None, data, gather_indx=gather, fused_activation=gated)
        return matmul_ogs(inner, down, None, data, scatter_indx=scatter, gammas=data.gate_scal)

    return Arm("triton_kernels", call, row.work(case)[0], (gate_up, down))


def torch_grouped(case):
    row = case.row
    if row.dtype != "bf16":
        raise Cannot("PyTorch's grouped product has no scales of blocks")
    gate_up, down = torch.cat([case.gate, case.up], 1).transpose(1, 2), case.down.transpose(1, 2)

    def layer(x, logits):
        weights, ids = logits.softmax(-1).topk(row.top_k)
        weights = weights / weights.sum(-1, keepdim=True)
        order = ids.flatten().argsort(stable=True)
        ends = torch.zeros(row.experts, dtype=torch.int32, device=x.device).scatter_add_(
            0, ids.flatten(), torch.ones(ids.numel(), dtype=torch.int32, device=x.device)).cumsum(0, dtype=torch.int32)
        gate, up = torch._grouped_mm(x[order // row.top_k], gate_up, offs=ends).chunk(2, -1)
        rows = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down, offs=ends)
        places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
        return (rows[places].view(len(x), row.top_k, -1) * weights[..., None]).sum(1).to(x.dtype)
    compiled = torch.compile(layer)
    return Arm("torch_grouped", lambda: compiled(case.x, case.logits), row.work(case)[0], (gate_up, down))


def read_stream(case):
    """A kernel that only reads, over as many bytes as the weights of the experts that have tokens."""
    from read_stream import ReadStream
    stream = ReadStream()
    data = torch.randint(0, 255, (case.row.weight_bytes(case.active()),), dtype=torch.uint8, device=case.device)
    return Arm("read_stream", lambda: stream(data.data_ptr(), data.numel(), torch.cuda.current_stream().cuda_stream),
               data.numel(), (stream, data))


def peer(name, case, engine, fa3_path):
    return {"vllm": lambda: vllm(case, False), "vllm_h200": lambda: vllm(case, True), "triton_kernels": lambda: triton_kernels(case),
            "torch_grouped": lambda: torch_grouped(case), "read_stream": lambda: read_stream(case)}[name]()


def shaped(row, arm, out):
    return out


__all__ = ["COMPARED", "Case", "Truth", "kernelwright", "ours", "peer", "prepare", "shaped"]
