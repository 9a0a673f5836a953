#!/usr/bin/env python3
"""What a call costs the host, in one process: handles of kernelwright from Python in every way that there is, and beside
them a launch of Triton, torch's own attention and torch's own product, and the driver's launch alone. The functions of
FlashAttention, a layer of transformers and linear layers are there too, on handles that they find themselves.

    bench/python/calls.py [--json FILE] [--rounds 200] [--core N]

Each candidate queues CALLS calls of a small problem in a round, and the device is waited for between rounds, so that no
call waits for a full queue. The rounds of all candidates take turns. A row is the median of a candidate's rounds, with
the 10th and 90th percentile, in microseconds a call. Every candidate's result is checked first. Needs a GPU and torch.
"""
import argparse
import copy
import json
import os
import statistics
import sys
import time

import torch

import kernelwright
import kernelwright.torch

CALLS = 100
Q_HEADS, KV_HEADS, HEAD, KEYS = 32, 8, 128, 256


def attention_candidates(engine):
    """Decode of one token. (name, call, the result to check or None)."""
    problem = {"head_dim": {"qk": HEAD, "v": HEAD}, "heads": {"q": Q_HEADS, "kv": KV_HEADS}, "mask": {"kind": "causal"}}
    kernel = engine.prepare({"problem": problem})
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, n, h, HEAD, device="cuda", dtype=torch.bfloat16)
               for n, h in ((1, Q_HEADS), (KEYS, KV_HEADS), (KEYS, KV_HEADS)))
    out = torch.empty_like(q)
    need = kernel.workspace_bytes(q=q, k=k, v=v, o=out)
    workspace = torch.empty(max(need, 16), dtype=torch.uint8, device="cuda")
    raw = torch.cuda.current_stream().cuda_stream
    bound = kernel.bind(q=q, k=k, v=v, o=out, workspace=workspace)
    handle, ops = kernelwright.torch.handle(kernel), torch.ops.kernelwright
    op, op_out = ops.attention.default, ops.attention.out
    heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]

    def sdpa():
        return torch.nn.functional.scaled_dot_product_attention(*heads_first, enable_gqa=True)
    reference = torch.nn.functional.scaled_dot_product_attention(*(t.float() for t in heads_first), enable_gqa=True)
    reference = reference.transpose(1, 2)

    def graph_of(call, times):
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                call()
        return graph.replay
    one, twenty = graph_of(lambda: op_out(handle, q, k, v, out=out), 1), graph_of(lambda: op_out(handle, q, k, v, out=out), 20)
    rows = [("Kernel.launch(), with its workspace", lambda: kernel.launch(q=q, k=k, v=v, o=out, workspace=workspace, stream=raw), out, 1),
            ("Launch, bound before", lambda: bound(raw), out, 1),
            ("kernel(q, k, v, out=)", lambda: kernel(q, k, v, out=out), out, 1),
            ("kernel(q, k, v)", lambda: kernel(q, k, v), None, 1),
            ("the reading alone, no launch", lambda: kernel._build(q, k, v, out=out) if kernel._counts()[0] else None, False, 1),
            ("op attention.out", lambda: op_out(handle, q, k, v, out=out), out, 1),
            ("op attention", lambda: op(handle, q, k, v), None, 1),
            ("graph of one op, a replay", one, out, 1),
            ("graph of 20 ops, an op", twenty, out, 20),
            ("torch sdpa (grouped heads)", lambda: sdpa().transpose(1, 2), None, 1), *layer_candidates(engine, q, k, v)]
    with torch.no_grad():
        for name, call, result, _ in rows:
            if result is False:
                continue
            out.zero_()
            found = call()
            torch.cuda.synchronize()
            error = ((out if result is out else found).float() - reference).abs().max().item()
            assert error < 0.01, f"{name}: differs from fp32 by {error}"
    return rows, kernel


def layer_candidates(engine, q, k, v):
    """What callers of FlashAttention and layers of transformers call."""
    from kernelwright import flash_attn
    flash_attn.use_engine(engine)
    rows = [("flash_attn_func(q, k, v)", lambda: flash_attn.flash_attn_func(q, k, v, causal=True), None, 1)]
    try:
        import kernelwright.transformers
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
    except ImportError as error:
        print(f"transformers is left out: {error}", file=sys.stderr)
        return rows

    class Layer:
        is_causal, num_key_value_groups = True, Q_HEADS // KV_HEADS
    given = [tensor.transpose(1, 2) for tensor in (q, k, v)]

    def layer_of(function):
        return lambda: function(Layer, *given, None, scaling=HEAD ** -0.5)[0]
    return rows + [("a layer of transformers", layer_of(kernelwright.transformers.attention), None, 1),
                   ("a layer of transformers, sdpa", layer_of(sdpa_attention_forward), None, 1)]


def linear_candidates(engine):
    """Layers of one token in turn, each with a weight of its own, as in a model. (name, call, None, layers a call)."""
    try:
        from kernelwright.transformers import accelerate
    except ImportError as error:
        print(f"linear layers are left out: {error}", file=sys.stderr)
        return []
    width, count = 512, 8
    plain = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(count)).to("cuda", torch.bfloat16)
    swapped = copy.deepcopy(plain)
    accelerate(swapped, engine=engine, force=True)
    x = torch.randn(1, 1, width, device="cuda", dtype=torch.bfloat16)

    def all_of(layers):
        layers = list(layers)
        return lambda: [layer(x) for layer in layers]
    for mine, own in zip(swapped, plain):
        assert (mine(x) - own(x)).abs().max().item() < 0.05
    return [("a linear layer", all_of(plain), None, count), ("a linear layer, accelerated", all_of(swapped), None, count)]


def gemm_candidates(engine):
    n, k, m = 256, 512, 16
    kernel = engine.prepare({"kind": "gemm", "problem": {"n": n, "k": k}})
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    handle, op_out = kernelwright.torch.handle(kernel), torch.ops.kernelwright.gemm.out
    workspace = torch.empty(max(kernel.workspace_bytes(a=a, b=b, d=d), 16), dtype=torch.uint8, device="cuda")
    raw, across, reference = torch.cuda.current_stream().cuda_stream, b.t(), a.float() @ b.float().t()
    rows = [("GemmKernel.launch(), with its workspace", lambda: kernel.launch(a=a, b=b, d=d, workspace=workspace, stream=raw), d, 1),
            ("kernel(a, b, out=)", lambda: kernel(a, b, out=d), d, 1),
            ("op gemm.out", lambda: op_out(handle, a, b, out=d), d, 1),
            ("torch.mm(out=)", lambda: torch.mm(a, across, out=d), d, 1)]
    for name, call, _, _ in rows:
        d.zero_()
        call()
        error = ((d.float() - reference).abs() / (1 + reference.abs())).max().item()
        assert error < 0.02, f"{name}: differs from fp32 by {error}"
    return rows, kernel


def other_candidates():
    x, y = torch.ones(4096, device="cuda"), torch.ones(4096, device="cuda")
    z = torch.empty_like(x)
    rows = [("torch.add(out=)", lambda: torch.add(x, y, out=z), z, 1)]
    try:
        import triton
        from triton_launch import launch_of
        rows.append((f"Triton {triton.__version__}, 4 tensors", launch_of(x, y, z), z, 1))
    except Exception as error:  # no Triton, or no C compiler for its launcher
        print(f"Triton is left out: {error}", file=sys.stderr)
    for name, call, _, _ in rows:
        z.zero_()
        call()
        assert torch.equal(z, x + y), name
    try:
        from driver_launch import LAUNCHES, bursts
        rows.append(("the driver's launch alone, from C", bursts(), None, LAUNCHES))
    except Exception as error:  # no C compiler
        print(f"the driver's launch is left out: {error}", file=sys.stderr)
    return rows


def measured(rows, rounds):
    """Microseconds a call of each candidate: (median, 10th percentile, 90th percentile)."""
    times = {name: [] for name, *_ in rows}
    for turn in range(rounds + 20):
        for name, call, _, per_call in rows:
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            spent = time.perf_counter_ns() - begin
            if turn >= 20:
                times[name].append(spent / 1000 / CALLS / per_call)
    cuts = {name: statistics.quantiles(spent, n=10) for name, spent in times.items()}
    return {name: (statistics.median(spent), cuts[name][0], cuts[name][-1]) for name, spent in times.items()}


def allocations(kernel, call):
    """What 1000 calls allocate: of the GPU, blocks of Python that stay, and the most bytes of Python at a time."""
    import gc
    import tracemalloc
    for _ in range(100):  # which also fills the interpreter's free lists
        call()
    torch.cuda.synchronize()
    gpu, fast = torch.cuda.memory_stats()["allocation.all.allocated"], kernel._counts()
    turns = []
    for _ in range(5):  # what each call leaves is left in every turn
        gc.collect()
        for _ in range(100):  # the interpreter's free lists, which that has emptied, fill up
            call()
        before = sys.getallocatedblocks()
        for _ in range(1000):
            call()
        turns.append(sys.getallocatedblocks() - before)
    blocks = min(turns)
    gpu = torch.cuda.memory_stats()["allocation.all.allocated"] - gpu
    tracemalloc.start()
    call()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(100):
        call()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return {"gpu": gpu, "python_blocks_that_stay": blocks, "python_bytes_at_most": peak,
            "fast_calls": kernel._counts()[0] - fast[0], "slow_calls": kernel._counts()[1] - fast[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the rows there")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--core", type=int, help="the core to stay on; the last one of those allowed otherwise")
    given = parser.parse_args()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores) if given.core is None else given.core})
    print(kernelwright.fast_calls())
    told = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "python": sys.version.split()[0],
            "kernelwright": kernelwright.version(), "fast_calls": kernelwright.fast_calls()["fast"], "calls_a_round": CALLS,
            "rounds": given.rounds}
    engine = kernelwright.Engine("cuda")
    attention, kernel = attention_candidates(engine)
    gemm, gemm_kernel = gemm_candidates(engine)
    calls = {name: call for name, call, *_ in attention + gemm}
    with torch.no_grad():
        told["allocations"] = {name: allocations(of, calls[name]) for name, of in
                               (("kernel(q, k, v, out=)", kernel), ("op attention.out", kernel), ("kernel(a, b, out=)", gemm_kernel))}
        rows = measured(attention + gemm + linear_candidates(engine) + other_candidates(), given.rounds)
    rows["kernel(q, k, v, out=), gradients on"] = measured([row for row in attention if row[0] == "kernel(q, k, v, out=)"],
                                                          given.rounds)["kernel(q, k, v, out=)"]
    told["microseconds"] = {name: {"median": round(m, 3), "p10": round(low, 3), "p90": round(high, 3)}
                            for name, (m, low, high) in rows.items()}
    for name, (median, low, high) in rows.items():
        print(f"{name:42}{median:9.2f} us   [{low:.2f}, {high:.2f}]")
    print(json.dumps(told["allocations"], indent=1))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)


if __name__ == "__main__":
    main()
