#!/usr/bin/env python3
"""Kernelwright's attention against what PyTorch would pick instead, on the GPU at hand, both arms in one process.

Every arm is a CUDA graph that flushes the L2 and runs the kernel between two events. Rounds interleave the arms in alternating
order; a row gives each arm's median and the median of the paired ratios with its 95 % interval (by order statistics), so that
a clock that moves moves both arms. Data is random normal, never zeros. Outputs are compared before anything is timed.

    python3 bench/compare_peers.py --library build/runtime/libkernelwright_c.so --peers fa2 > bench/results/DATE-GPU-fa2.csv
"""
import argparse
import ctypes
import json
import math
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PEERS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


class Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "token", "head")]


class Tensors(ctypes.Structure):
    """kernelwright_attention_tensors of runtime/c_api.h."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(n, ctypes.c_uint64) for n in ("q k v o lse q_offsets kv_offsets kv_lengths page_table sinks k_scale v_scale "
                                          "workspace workspace_bytes").split()]
        + [(n, ctypes.c_int32) for n in ("batch", "q_len", "kv_len", "page_table_stride")]
        + [("q_tokens", ctypes.c_int64)]
        + [(n, Strides) for n in ("q_strides", "k_strides", "v_strides", "o_strides")]
        + [("overrides", ctypes.c_uint32), ("scale", ctypes.c_float), ("softcap", ctypes.c_float),
           ("window_left", ctypes.c_int32), ("window_right", ctypes.c_int32)])


class Kernelwright:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.kernelwright_last_error.restype = ctypes.c_char_p
        self.engine = ctypes.c_void_p()
        self.check(self.lib.kernelwright_engine_create(None, ctypes.byref(self.engine)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.kernelwright_last_error().decode())

    def prepare(self, case, schedule):
        problem = {
            "dtype": {"q": "bf16", "kv": "bf16", "out": "bf16"}, "head_dim": {"qk": case["d"], "v": case["d"]},
            "heads": {"q": case["h"], "kv": case["hk"]}, "mask": {"kind": "causal" if case["causal"] else "none"}}
        if case["q_len"] == 1:
            problem["max_q_len"] = 1
        text = json.dumps({"version": 1, "kind": "attention", "name": "peer", "problem": problem, "schedule": schedule}).encode()
        kernel = ctypes.c_void_p()
        self.check(self.lib.kernelwright_prepare_json(self.engine, text, ctypes.c_size_t(len(text)), None, ctypes.byref(kernel)))
        return kernel

    def arm(self, case, q, k, v, schedule):
        kernel = self.prepare(case, schedule)
        o = torch.full_like(q, math.nan)
        t = Tensors(struct_size=ctypes.sizeof(Tensors), q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(),
                    batch=case["b"], q_len=case["q_len"], kv_len=case["kv_len"])
        need = ctypes.c_uint64()
        self.check(self.lib.kernelwright_workspace_bytes(kernel, ctypes.byref(t), ctypes.byref(need)))
        workspace = torch.empty(max(1, need.value), dtype=torch.uint8, device="cuda")
        t.workspace, t.workspace_bytes = workspace.data_ptr(), need.value

        def call():
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.check(self.lib.kernelwright_launch(kernel, ctypes.byref(t), stream))
            return o

        call.keep = (workspace, o)
        return call


def torch_arm(case, q, k, v, backend):
    # [batch, heads, len, d] views of [batch, len, heads, d] tensors: what a server has.
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def call():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(qt, kt, vt, is_causal=case["causal"], enable_gqa=case["h"] != case["hk"]).transpose(1, 2)

    return call


class Timed:
    """One arm as a graph: flush, event, call, event."""

    def __init__(self, call, flush):
        self.start, self.end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            flush.zero_()
            self.start.record()
            self.out = call()
            self.end.record()

    def run(self):
        self.graph.replay()
        torch.cuda.synchronize()
        return self.start.elapsed_time(self.end)


def median_interval(values):
    """Median and its 95 % interval from order statistics (normal approximation of the binomial)."""
    ordered, n = sorted(values), len(values)
    half = 0.98 * math.sqrt(n)
    low, high = max(0, int(n / 2 - half)), min(n - 1, int(math.ceil(n / 2 + half)) - 1)
    return statistics.median(ordered), ordered[low], ordered[high]


def sm_clock():
    out = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"], capture_output=True, text=True)
    return out.stdout.strip().splitlines()[0] if out.returncode == 0 and out.stdout.strip() else "?"


def cases():
    for d, h in ((64, 32), (128, 16)):
        for s in (512, 1024, 2048, 4096, 8192, 16384):
            for causal in (False, True):
                yield dict(b=max(1, 16384 // s), q_len=s, kv_len=s, h=h, hk=h, d=d, causal=causal)
    for b, s, h in ((1, 8192, 32), (16, 8192, 32), (64, 4096, 32), (128, 2048, 64), (1, 131072, 32)):
        yield dict(b=b, q_len=1, kv_len=s, h=h, hk=8, d=128, causal=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libkernelwright_c.so")
    parser.add_argument("--peers", default="fa2,cudnn")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--schedule", default='"auto"', help="JSON of the schedule")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    args = parser.parse_args()
    torch.manual_seed(0)
    ours, flush = Kernelwright(args.library), torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    properties = torch.cuda.get_device_properties(0)
    print(f"# {properties.name}, torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
          f"rounds {args.rounds}, schedule {args.schedule}")
    print("case,peer,ours_ms,peer_ms,ours_rate,unit,speed_vs_peer,low,high,max_difference,sm_mhz")
    worst = math.inf
    for case in cases():
        decode = case["q_len"] == 1
        name = (f"decode_B{case['b']}_S{case['kv_len']}_H{case['h']}_Hk{case['hk']}_D{case['d']}" if decode else
                f"prefill_B{case['b']}_H{case['h']}_S{case['q_len']}_D{case['d']}_{'causal' if case['causal'] else 'full'}")
        if args.only not in name:
            continue
        make = lambda n, heads: torch.randn(case["b"], n, heads, case["d"], device="cuda", dtype=torch.bfloat16)
        q, k, v = make(case["q_len"], case["h"]), make(case["kv_len"], case["hk"]), make(case["kv_len"], case["hk"])
        our_call = ours.arm(case, q, k, v, json.loads(args.schedule))
        our_arm = Timed(our_call, flush)
        work = (2 * 2 * case["b"] * case["kv_len"] * case["hk"] * case["d"] if decode else
                4 * case["b"] * case["h"] * case["q_len"] * case["kv_len"] * case["d"] / (2 if case["causal"] else 1))
        unit, per = ("GB/s of KV", 1e6) if decode else ("TFLOP/s", 1e9)
        for peer in args.peers.split(","):
            peer_call = torch_arm(case, q, k, v, PEERS[peer])
            difference = (our_call().float() - peer_call().float()).abs().max().item()
            assert difference < 0.05, f"{name}: differs from {peer} by {difference}"
            peer_arm = Timed(peer_call, flush)
            for arm in (our_arm, peer_arm) * 3:
                arm.run()
            mine, theirs = [], []
            for i in range(args.rounds):
                for arm, times in ((our_arm, mine), (peer_arm, theirs))[::1 if i % 2 else -1]:
                    times.append(arm.run())
            ratio, low, high = median_interval([t / m for m, t in zip(mine, theirs)])
            worst = min(worst, ratio)
            print(f"{name},{peer},{statistics.median(mine):.4f},{statistics.median(theirs):.4f},"
                  f"{work / statistics.median(mine) / per:.1f},{unit},{ratio:.3f},{low:.3f},{high:.3f},{difference:.4f},{sm_clock()}", flush=True)
            del peer_arm
        del our_arm, our_call, q, k, v
        torch.cuda.empty_cache()
    print(f"# slowest row: {worst:.3f} of its peer's speed")


if __name__ == "__main__":
    sys.exit(main())
