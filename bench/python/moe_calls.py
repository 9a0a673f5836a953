#!/usr/bin/env python3
"""A layer of experts in one call: what its kernels take to compile from an empty cache, what a call costs the host, and
what it costs the GPU.

    bench/python/moe_calls.py [--json FILE]

Host time is the median of rounds of calls that nothing waits for, through torch's operator. GPU time is that of a captured
graph of ten calls, with the weights of one layer: no L2 is flushed. Needs a GPU and torch.
"""
import argparse
import json
import statistics
import tempfile
import time

import torch

import kernelwright
import kernelwright.torch

CALLS, ROUNDS = 50, 30
# name, problem, the tokens of calls
LAYERS = [
    ("Qwen3-30B-A3B, bf16", {"hidden": 2048, "intermediate": 768,
                             "route": {"experts": 128, "top_k": 8, "renormalize": True}}, (1, 128, 4096, 32768)),
    ("DeepSeek-V3, fp8, 1 of 8 ranks", {"hidden": 7168, "intermediate": 256, "scales": "per_block",
                                        "route": {"experts": 256, "top_k": 8, "score": "sigmoid", "bias": True, "n_group": 8,
                                                  "topk_group": 4, "renormalize": True, "factor": 2.5}}, (1, 128, 4096)),
]


def tensors_of(problem, tokens):
    experts, hidden, wide = problem["route"]["experts"], problem["hidden"], problem["intermediate"]
    fp8 = "scales" in problem
    torch.manual_seed(1)

    def drawn(*shape):
        made = torch.empty(shape, device="cuda", dtype=torch.float8_e4m3fn if fp8 else torch.bfloat16)
        for part in made:
            part.copy_(torch.randn(part.shape, device="cuda") / 8)
        return made
    named = {}
    if fp8:
        named["gate_up_scale"] = torch.rand(experts, 2 * -(-wide // 128), hidden // 128, device="cuda") / 16
        named["down_scale"] = torch.rand(experts, hidden // 128, -(-wide // 128), device="cuda") / 16
    if problem["route"].get("bias"):
        named["bias"] = torch.zeros(experts, device="cuda")
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    logits = torch.randn(tokens, experts, device="cuda", dtype=torch.float32)
    return (x, logits, drawn(experts, 2 * wide, hidden), drawn(experts, hidden, wide)), named


def host_us(call):
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - began) / CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(rounds)


def gpu_us(call):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            call()
    times = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 100)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, kernelwright {kernelwright.__version__}")
    rows = []
    for name, problem, sizes in LAYERS:
        with tempfile.TemporaryDirectory() as cache:
            engine = kernelwright.Engine("cuda", cache_directory=cache)
            began = time.perf_counter()
            kernel = engine.prepare({"kind": "moe", "problem": problem})
            kernel.wait()
            cold = time.perf_counter() - began
            layer = kernelwright.torch.handle(kernel)
            rows.append({"layer": name, "cold_s": round(cold, 2)})
            print(f"{name}: cold {cold:.2f} s")
            for tokens in sizes:
                given, named = tensors_of(problem, tokens)

                def call():
                    return torch.ops.kernelwright.moe(layer, *given, **named)
                if not torch.isfinite(call().float()).all():
                    raise SystemExit(f"{name}, {tokens} tokens: the result is not finite")
                host, gpu = host_us(call), gpu_us(call)
                rows.append({"layer": name, "tokens": tokens, "host_us": round(host, 1), "gpu_us": round(gpu, 1)})
                print(f"  {tokens:6} tokens: host {host:.1f} us, GPU {gpu:.1f} us")
            engine.close()
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
