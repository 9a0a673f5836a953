#!/usr/bin/env python3
"""Kernelwright's attention and GEMM against what people would use instead, on the GPU at hand, all arms in one process.

Every arm is a CUDA graph that flushes the L2 and runs the kernel between two events. Rounds interleave the arms in alternating
order; a row of the CSV gives the median of the paired ratios with its 95 % interval, so that a clock that moves moves both
arms. Data is random normal; --inputs paper adds outliers. Every output is compared with an fp32 reference before anything is
timed: error is its largest error over a bound for its own inputs, rmse that against the inputs before quantisation.

    python3 bench/compare_peers.py --set all --anchors --output results.csv
    python3 bench/compare_peers.py --set prefill --filter 'd128-causal-8k' --schedules candidates.jsonl
    python3 bench/compare_peers.py --set smoke --seconds-per-row 0.2
    python3 bench/compare_peers.py --set fp8-prefill --inputs paper --hadamard --fa3 _vllm_fa3_C.abi3.so

A line of --schedules is a schedule, or {"name": ..., "rows": REGEX, "schedule": ...} for one that has a name and, maybe, is for
some rows alone. Exit status: 0, 1 if an output was wrong (with --strict: or a target missed), 3 if the machine lacks what is
needed, 4 if a kernel hung or broke the device: the rows before it are written.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import shlex
import sys
import time

FORMER = "former"
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "python")]
from kernelwright import MissingError  # noqa: E402
from peers import anchors, report, rows, stats  # noqa: E402
from peers.arm import Cannot  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="all", help=f"of {', '.join(rows.SETS)}; several with commas")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only rows whose name matches")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--schedule", action="append", default=[], metavar="JSON", help="of our arm; several are several arms")
    parser.add_argument("--schedules", metavar="FILE.jsonl", help="more of them, one a line")
    parser.add_argument("--peers", default="cudnn", help="of cudnn, fa2, flashinfer; rows with peers of their own have those too")
    parser.add_argument("--fa3", metavar="PATH",
                        help="FlashAttention-3: a shared object with fa3_fwd, or vLLM's _vllm_fa3_C.abi3.so")
    parser.add_argument("--flashmla", metavar="PATH", help="vLLM's _flashmla_C.abi3.so, where vLLM is not installed")
    parser.add_argument("--inputs", choices=("normal", "paper"), default="normal",
                        help="of attention: N(0, 1); or that with N(0, 100) added to one element in a thousand")
    parser.add_argument("--seed", type=int, default=0, help="of the data")
    parser.add_argument("--hadamard", action="store_true",
                        help="our arms also after kv_write's Hadamard transform with random signs, where q is fp8")
    parser.add_argument("--former", metavar="FOLDER", help="an earlier build of ours, as a peer named former: python/kernelwright and "
                        "lib/libkernelwright_c.so in FOLDER; alone with --peers ''")
    parser.add_argument("--anchors", action="store_true", help="add ours/FA3 through cuDNN, from the recorded rows")
    parser.add_argument("--seconds-per-row", type=float, default=1.5, help="of timing; setting up comes on top")
    parser.add_argument("--sustained", type=float, default=0.0, metavar="SECONDS",
                        help="each arm runs SECONDS at a time without a pause, four times, at the power limit; the L2 is not flushed")
    parser.add_argument("--hang-seconds", type=float, default=10, help="a kernel that takes longer is given up, and the run with it")
    parser.add_argument("--library", help="libkernelwright_c.so; else as the Python module finds it")
    parser.add_argument("--output", metavar="FILE.csv", help="instead of standard output")
    parser.add_argument("--json", metavar="FILE.json", help="the lines of the CSV too")
    parser.add_argument("--plot", metavar="FILE.png", help="a picture of the ratios, if matplotlib is installed")
    parser.add_argument("--strict", action="store_true", help="a missed target is exit status 1")
    args = parser.parse_args()
    args.sets = args.set.split(",")
    unknown = [name for name in args.sets if name not in rows.SETS]
    if unknown:
        parser.error(f"--set: {', '.join(unknown)} is not one of {', '.join(rows.SETS)}")
    args.peers = [name for name in args.peers.split(",") if name]
    if [name for name in args.peers if name not in ("cudnn", "fa2", "flashinfer")]:
        parser.error("--peers takes cudnn, fa2 and flashinfer; fa3 comes with --fa3 PATH")
    args.peers += ["fa3"] if args.fa3 else []
    try:
        args.fa3_form = rows.fa3_form(args.fa3) if args.fa3 else rows.FUNCTION
    except (OSError, ValueError) as error:
        parser.error(str(error))
    args.arms = report.read_schedules(args.schedule, args.schedules)
    return args


def former_module(folder):
    """The Python module of another build, beside this one: it has its own structs, for its own library."""
    package = pathlib.Path(folder, "python", "kernelwright")
    spec = importlib.util.spec_from_file_location("kernelwright_former", package / "__init__.py",
                                                  submodule_search_locations=[str(package)])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def prepare_all(engine, chosen, arms, arms_of):
    """{(row name, arm name): Kernel, or the error that refused it}. Compiles on all cores, before anything is timed."""
    begin = time.monotonic()
    kernels = {}
    for row in chosen:
        for arm in arms:
            if not arm.takes(row.name):
                continue
            try:
                kernels[row.name, arm.name] = arms_of(row).prepare(engine, row, arm.schedule)
            except RuntimeError as error:  # KernelwrightError of either build
                kernels[row.name, arm.name] = error
    for key, kernel in kernels.items():
        try:
            if not isinstance(kernel, Exception):
                kernel.wait()
        except RuntimeError as error:
            kernels[key] = error
    print(f"{len(kernels)} kernels in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    return kernels


class Run:
    """One run: what all rows share, and the report to which they write."""

    def __init__(self, args, out):
        import torch
        from peers import arms, batched, gemm, grouped, kv_writes, latent, layers, row_ops, timing
        latent.library = args.flashmla
        self.args, self.out, self.torch, self.arms, self.timing = args, out, torch, arms, timing
        self.kinds = {"attention": arms, "gemm": gemm, "grouped": grouped, "batched": batched, "layers": layers, "latent": latent,
                      "kv_write": kv_writes, "row_op": row_ops}
        torch.manual_seed(args.seed)
        self.engine = arms.kernelwright.Engine("cuda", library=args.library)
        self.former_engine, self.former_kernels = None, {}
        if args.former:
            library = str(pathlib.Path(args.former, "lib", "libkernelwright_c.so"))
            self.former_engine = former_module(args.former).Engine("cuda", library=library)
        self.flush = None if args.sustained else torch.empty(256 << 20, dtype=torch.int8, device="cuda")
        self.clock = timing.SmClock()
        self.recorded = anchors.read() if args.anchors else {}
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        out.header(f"{properties.name}, torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN "
                   f"{torch.backends.cudnn.version()}, kernelwright {arms.kernelwright.version(args.library)}",
                   f"compare_peers.py {shlex.join(sys.argv[1:])}",
                   *(f"arm {arm.name}: {json.dumps(arm.schedule)}" for arm in args.arms))

    def arms_of(self, row):
        return self.kinds[row.kind]

    def row(self, row, kernels):
        arms = self.arms_of(row)
        case = arms.Case(row, self.args.inputs)
        truth = arms.Truth(case)
        graphs, made, infos = {}, {}, {}
        for arm in self.args.arms:
            kernel = kernels.get((row.name, arm.name))
            if kernel is not None:
                self.add(row, arm.name, "", lambda: self.our_arm(arms, arm.name, kernel, case), truth, graphs, made)
                infos[arm.name] = kernel
                if self.args.hadamard and getattr(row, "q_dtype", "") == "e4m3":
                    name = f"{arm.name} hadamard"
                    self.add(row, name, "", lambda: self.transformed(arms, name, kernel, case), truth, graphs, made)
                    infos[name] = kernel
        ours = list(graphs)
        if not ours:
            return
        if (row.name, FORMER) in self.former_kernels:
            kernel = self.former_kernels[row.name, FORMER]
            self.add(row, "", FORMER, lambda: self.our_arm(arms, FORMER, kernel, case), truth, graphs, made)
        alone = self.args.former and not self.args.peers
        for peer, refuses in () if alone else rows.peers_of(row, self.args.peers, self.args.fa3_form):
            if refuses:
                self.out.failure(row, "", peer, "cannot", refuses)
            else:
                self.add(row, "", peer, lambda: arms.peer(peer, case, self.engine, self.args.fa3), truth, graphs, made)
        if self.args.sustained:
            times, clocks = self.timing.measure_sustained(graphs, self.args.sustained, self.clock)
        else:
            times, clocks = self.timing.measure(graphs, self.args.seconds_per_row, self.clock)
        peers = [name for name in graphs if name not in ours]
        for name in ours:
            mine = report.Timed(name, times[name], *made[name])
            info = infos[name].info()
            note = f"{info['registers']} registers, {info['spill_bytes']} spill bytes"
            for peer in peers or [""]:
                theirs = report.Timed(peer, times[peer], *made[peer]) if peer else None
                ratio = stats.rate_ratio(mine.times, theirs.times, mine.work, theirs.work) if peer else None
                self.out.result(row, mine, theirs, ratio, clocks, note)
                for absent in anchors.THROUGH.get(peer, []):
                    through = anchors.through(self.recorded, row.name, ratio, peer, absent)
                    if through and absent not in peers:
                        self.out.result(row, mine, report.Timed(absent, [], 0, None), through, clocks,
                                        f"through {peer}, as recorded; {note}")

    def our_arm(self, arms, name, kernel, case):
        if isinstance(kernel, Exception):
            raise kernel
        return arms.ours(name, kernel, case)

    def transformed(self, arms, name, kernel, case):
        """Our arm with queries and keys that kv_write has transformed, which is not timed."""
        from peers import hadamard
        own = hadamard.transformed(self.engine, case)
        arm = self.our_arm(arms, name, kernel, own)
        arm.case = own
        return arm

    def add(self, row, arm_name, peer, make, truth, graphs, made):
        """Makes an arm, compares its output, and captures it. An error in one arm becomes a row of the report, unless
        it has broken the device."""
        try:
            arm = make()
            out = arm.call()
            self.timing.wait(self.args.hang_seconds)
            error = rmse = None
            kind = self.arms_of(row)
            if out is not None and (not peer or peer == FORMER or peer in kind.COMPARED):
                out = kind.shaped(row, arm, out)
                error, rmse = (kind.Truth(arm.case) if arm.case else truth).error(out), truth.rmse(out)
                if not error <= 1:
                    return self.out.failure(row, arm_name, peer, "wrong", f"off by {error:.3g} of its bound, RMSE {rmse:.3g}", error)
            graphs[arm_name or peer] = self.timing.Graph(arm.call, self.flush, self.args.hang_seconds)
            made[arm_name or peer] = (arm.work, error, rmse)
        except Cannot as cannot:
            self.out.failure(row, arm_name, peer, "cannot", str(cannot))
        except self.timing.Hang as hang:
            self.out.failure(row, arm_name, peer, "hangs", str(hang))
            raise
        except Exception as error:  # noqa: BLE001: a peer may raise anything
            self.out.failure(row, arm_name, peer, "failed", f"{type(error).__name__}: {error}")
            self.torch.cuda.synchronize()  # raises if the device is broken


def main():
    args = parse_arguments()
    chosen = list(rows.selected(args.sets, re.compile(args.filter)))
    if args.list or not chosen:
        for row in chosen:
            print(row.name, json.dumps(row.problem()))
        return 0 if chosen else report.complain(f"no row of {args.set} matches {args.filter!r}; --list names them", 2)
    try:
        import torch
        if not torch.cuda.is_available():
            return report.complain("torch sees no GPU", 3)
    except ImportError as error:
        return report.complain(f"{error}; it needs torch", 3)
    with (open(args.output, "w", newline="", encoding="utf-8") if args.output else report.standard_output()) as file:
        out = report.Report(file)
        try:
            run = Run(args, out)
        except MissingError as error:
            return report.complain(error, 3)
        kernels = prepare_all(run.engine, chosen, args.arms, run.arms_of)
        if run.former_engine:
            run.former_kernels = prepare_all(run.former_engine, chosen, [report.Schedule(FORMER, "auto", "")], run.arms_of)
        broken = None
        for row in chosen:
            try:
                run.row(row, kernels)
            except Exception as error:  # noqa: BLE001: an error that passed through add() has broken the device
                broken = f"{row.name}: {type(error).__name__}: {error}"
                break
            torch.cuda.empty_cache()
        missed = out.summary()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"command": sys.argv[1:], "rows": out.lines}, file, indent=1)
    if args.plot:
        report.plot(out.lines, args.plot)
    if broken:
        report.complain(broken, 4)
        sys.stderr.flush()
        os._exit(4)  # a hung kernel would block an orderly exit too
    return 1 if out.wrong or (args.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
