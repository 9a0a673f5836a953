#!/usr/bin/env python3
"""Kernelwright inside vLLM against vLLM's own kernels, with random weights: output tokens a second, or the latency of requests
that arrive one by one.

    python3 bench/serve.py --model llama-3-8b --starts 2 --output serve.csv
    python3 bench/serve.py --model llama-3-8b --arm kernelwright --profile kernels.csv --rounds 1
    python3 bench/serve.py --model llama-3-8b --rounds 0 --online 8,16 --requests 1000 --cancel 0.1 --output latency.csv
    python3 bench/serve.py --model llama-3-8b --rounds 0 --online 48 --steps steps.csv --output latency.csv

Each arm is a process of its own with the same settings; starts alternate, so that a clock that moves moves both arms. Prompts are
fresh in each round and prefix caching is off. A round generates `--tokens` for all prompts at once, and one token for as many
other prompts: the second is the prefill, the difference the decode. With several lengths in `--input`, each has its rounds.

With `--online`, requests arrive behind the rounds at random at each of the rates, with half to one and a half times the first
`--input` and `--tokens`. TTFT is the time from a request's arrival to its first token, TPOT the mean time between the tokens
behind it. A share `--cancel` of the clients leaves after a part of its tokens. `--steps` tells what a bad latency was spent on: the
slowest steps of each rate, and quantiles of steps with and without prompts. `--profile-online` has the time of each kernel while
the last quarter of the last rate's requests arrive, in a run of its own. Both tables of kernels have the arm in their name.

With `--together GIB`, both arms start at the same time, side by side on the GPU, each with a cache of so many GiB. Once both have
started, they measure in turn: a round of one, the same round of the other. That takes half the time, but start-up times are longer
than those of one arm alone.

same_first_tokens is the share of prompts whose first token is that of vLLM's own arm. Weights have a size that makes each layer count,
so that a wrong one shows. Rounding changes some tokens, and so does a router's choice. Models with tied embeddings and models on several
GPUs have no such column. On several GPUs weights are vLLM's dummies, of which nearly all are 0 in fp8.

sealed_misses counts kernels of ours that were missing while a row was measured, and jit_compiles those that Triton compiled then,
on all ranks. vLLM's own monitor of such compiles can only warn. With `--gpus`, the model lies on several GPUs by tensor parallelism.
Our arm fails if either count is not zero, or if ranks have different kernels. vLLM's own arm only counts. Needs GPUs and vLLM. Exit
status: 0, 1 if an arm failed.
"""
import argparse
import concurrent.futures
import csv
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from serve_models import MODELS, WEIGHTS, comparable, fill
from serve_watch import Profile, Steps, Turns, percentile, write_steps

BACKENDS = {"vllm": None, "kernelwright": "CUSTOM"}
SETTINGS = ("model", "weights", "kv", "take", "gpus", "prompts", "tokens", "blocks", "together")  # of both arms, as options have them
ONLINE_SETTINGS = ("requests", "cancel")
MEASURED = ("output_tokens_s", "decode_tokens_s", "prefill_s")
LATENCIES = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms")
COMPILES = ("sealed_misses", "jit_compiles")
COLUMNS = (*SETTINGS, "arm", "start", "start_up_s", "input", "round", "total_s", *MEASURED, *COMPILES, "same_first_tokens")
ONLINE_COLUMNS = ("rate", *ONLINE_SETTINGS, *LATENCIES, "cancelled", "preemptions", "gpu_growth_mb", "host_growth_mb")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama-3-8b")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--weights", choices=WEIGHTS, default="bf16")
    parser.add_argument("--take", default="", metavar="PARTS",
                        help="what our arm also takes over: linears, gates, norms, experts, products, with commas between (docs/servers.md)")
    parser.add_argument("--kv", default="auto", help="dtype of the cache: auto, fp8")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--gpus", type=int, default=1, help="by tensor parallelism")
    parser.add_argument("--input", default="512", metavar="LENGTHS", help="tokens of a prompt, with commas between")
    parser.add_argument("--tokens", type=int, default=128, help="tokens generated for a prompt")
    parser.add_argument("--rounds", type=int, default=4, help="of each length, behind one that warms up; 0: none")
    parser.add_argument("--online", default="", metavar="RATES", help="requests a second, with commas between, behind the rounds")
    parser.add_argument("--requests", type=int, default=320, help="with --online: of each rate")
    parser.add_argument("--cancel", type=float, default=0.0, help="with --online: the share of requests that are cancelled")
    parser.add_argument("--blocks", type=int, default=0, help="of the cache, so that few make vLLM preempt requests; 0: as many as fit")
    parser.add_argument("--together", type=int, default=0, metavar="GIB",
                        help="both arms start at the same time and measure in turn; GiB of the cache of each. 0: one behind the other")
    parser.add_argument("--starts", type=int, default=1, help="processes of each arm")
    parser.add_argument("--eager", action="store_true", help="no graphs and no torch.compile")
    parser.add_argument("--arm", choices=BACKENDS, help="this arm alone, in this process")
    parser.add_argument("--turns", default="", metavar="FILE", help="with --together: the file to lock, for others who take turns")
    parser.add_argument("--profile", metavar="FILE.csv", help="time of each kernel in one round more")
    parser.add_argument("--steps", metavar="FILE.csv", help="with --online: the slowest steps, and quantiles of all")
    parser.add_argument("--profile-online", metavar="FILE.csv", help="with --online: time of each kernel in one run more")
    parser.add_argument("--output", metavar="FILE.csv")
    return parser.parse_args()


def serve(given):
    """One arm: its rows, as dicts, and why it has failed nevertheless."""
    turns = Turns(given.turns)
    config = dict(MODELS[given.model])
    if given.layers:
        config["num_hidden_layers"] = given.layers
    if WEIGHTS[given.weights]:
        config["quantization_config"] = WEIGHTS[given.weights]
    os.environ["KERNELWRIGHT_VLLM"] = given.take if given.arm == "kernelwright" else ""
    told = json.dumps(config)
    # vLLM keeps compiled models by the model's path, so a second start finds those of the first.
    folder = os.path.join(tempfile.gettempdir(), f"kernelwright-serve-{os.getuid()}-{hashlib.sha256(told.encode()).hexdigest()[:16]}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        file.write(told)
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # so that the counters of kernels can be read here
    from vllm import LLM, SamplingParams
    if given.gpus == 1:
        from vllm.model_executor.model_loader import dummy_loader
        dummy_loader.initialize_dummy_weights = fill
    start = time.perf_counter()
    backend = BACKENDS[given.arm]
    lengths = [int(length) for length in given.input.split(",")]
    longest = max(*lengths, lengths[0] * 3 // 2 if given.online else 0) + given.tokens * (3 if given.online else 2) // 2 + 16
    llm = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=longest,
              disable_log_stats=True, enforce_eager=given.eager, enable_prefix_caching=False,
              tensor_parallel_size=given.gpus,
              kv_cache_dtype=given.kv, num_gpu_blocks_override=given.blocks or None,
              **({"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": given.together << 30} if given.together
                 else {"gpu_memory_utilization": 0.85}),
              **({"attention_backend": backend} if backend else {}))
    start_up = time.perf_counter() - start
    if given.arm == "kernelwright":
        import kernelwright
        calls = kernelwright.fast_calls()
        if not (calls["fast"] and calls["operators"]["stable"]):
            raise RuntimeError(f"calls go through Python, which costs the host 0.1 ms each: {calls}")
    source = random.Random(0)

    def seconds(length, tokens):
        """Of a round, and its first tokens."""
        prompts = [{"prompt_token_ids": [source.randrange(10, 100000) for _ in range(length)]} for _ in range(given.prompts)]
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0.0, detokenize=False)
        begin = time.perf_counter()
        results = llm.generate(prompts, how, use_tqdm=False)
        took = time.perf_counter() - begin
        if any(len(result.outputs[0].token_ids) != tokens for result in results):
            raise RuntimeError("an answer has another number of tokens than was asked for")
        return took, [result.outputs[0].token_ids[0] for result in results]
    rows, of_arm = [], {"arm": given.arm, "start_up_s": round(start_up, 1)}

    def add(row):
        rows.append(of_arm | row | compiles.row())
        told = {name: value for name, value in rows[-1].items() if not isinstance(value, list)}
        print(json.dumps(told), file=sys.stderr, flush=True)  # for whoever waits, or ends this run
    llm.collective_rpc(watch_triton)
    compiles = Compiles(given.arm, llm.collective_rpc)
    for length in lengths if given.rounds else ():
        for number in range(given.rounds + 1):
            with turns:
                compiles.begin()
                (total, first), (prefill, _) = seconds(length, given.tokens), seconds(length, 1)
            if number:  # the first warms up
                add({"input": length, "round": number, "total_s": round(total, 4), "prefill_s": round(prefill, 4),
                     "output_tokens_s": round(given.prompts * given.tokens / total), "first_tokens": first,
                     "decode_tokens_s": round(given.prompts * (given.tokens - 1) / (total - prefill))})
    if given.online:
        with turns:
            Online(llm.llm_engine, given, lengths[0], 16, 0).run()  # warms up
        rates = list(map(float, given.online.split(",")))
        for number, rate in enumerate(rates):
            number = rates[:number].count(rate)
            with turns:
                compiles.begin()
                add({"input": lengths[0]} | Online(llm.llm_engine, given, lengths[0], given.requests, rate, number).run())
        if given.profile_online:
            with turns:
                Online(llm.llm_engine, given, lengths[0], given.requests, rate, number, Profile()).run(
                    of_arm_alone(given.profile_online, given.arm))
    if given.profile:
        with turns:
            of_round = Profile()
            of_round.start()
            seconds(lengths[0], given.tokens)
            of_round.write(of_arm_alone(given.profile, given.arm))
    return rows, compiles.faults + (faults_of_ranks(llm.collective_rpc(kernels_of_rank)) if given.arm == "kernelwright" else [])


def kernels_of_rank(_):
    """What a process of the model has: how many kernels it missed once its engine was sealed, and those that are ready."""
    from kernelwright.vllm.attention import served
    engine = served.engine("cuda")
    return engine.counters()["sealed_misses"], sorted(row["key"] for row in engine.kernels() if row["state"] == "ready")


def faults_of_ranks(found):
    """Which ranks missed a kernel, be it ahead of the first row, and which have other kernels than rank 0, or none."""
    faults = [] if found[0][1] else ["vLLM has served with its own kernels alone; its log says why"]
    faults += [f"{misses} kernels were missing after the engine of rank {rank} was sealed" for rank, (misses, _) in enumerate(found) if misses]
    return faults + [f"rank {rank} and rank 0 have different kernels: {sorted(set(names) ^ set(found[0][1]))}"
                     for rank, (_, names) in enumerate(found) if names != found[0][1]]


def watch_triton(_):
    """Lets a process of the model note the names of kernels that Triton compiles, in place of vLLM's monitor, which warns of each
    name once."""
    from vllm.triton_utils import jit_monitor
    names = jit_monitor.kernelwright_names = []
    if hasattr(jit_monitor, "_log_jit_compile"):
        jit_monitor._log_jit_compile = lambda name, _: names.append(name)
        return
    from triton import knobs
    given = knobs.runtime.jit_post_compile_hook  # a vLLM before 0.24 warns in the hook itself

    def noted(**told):
        names.append(getattr(told.get("fn"), "name", "<unknown>"))
        return given(**told) if given else None
    knobs.runtime.jit_post_compile_hook = noted


def compiled_by_triton(_):
    from vllm.triton_utils import jit_monitor
    return list(jit_monitor.kernelwright_names)


class Compiles:
    """What was compiled from begin() to row(), by all ranks together."""

    def __init__(self, arm, of_ranks):
        """of_ranks: calls a function in each process of the model."""
        self.arm, self.of_ranks, self.faults, self.before = arm, of_ranks, [], None

    def found(self):
        misses = sum(misses for misses, _ in self.of_ranks(kernels_of_rank)) if self.arm == "kernelwright" else 0
        return misses, self.of_ranks(compiled_by_triton)

    def begin(self):
        self.before = self.found()

    def row(self):
        (misses, names), (misses_before, names_before) = self.found(), self.before
        new = [name for now, then in zip(names, names_before) for name in now[len(then):]]
        if new and self.arm == "kernelwright":
            self.faults.append(f"Triton compiled {', '.join(sorted(set(new)))} while requests were served")
        return dict(zip(COMPILES, (misses - misses_before, len(new))))


class Request:
    def __init__(self, source, given, length, arrival):
        self.arrival, self.first, self.last, self.count, self.cancelled = arrival, 0.0, 0.0, 0, False
        self.tokens = source.randint(given.tokens // 2, given.tokens * 3 // 2)
        self.prompt = [source.randrange(10, 100000) for _ in range(source.randint(length // 2, length * 3 // 2))]
        self.patience = source.randint(1, self.tokens) if source.random() < given.cancel else self.tokens + 1


class Online:
    """Requests to one engine at a rate; 0: all at once. Two arms get the same requests. number: how often the rate came
    before, so that it has other requests when it comes again. profile: of the last quarter of them."""

    def __init__(self, engine, given, length, count, rate, number=0, profile=None):
        self.engine, self.rate, self.cancel, self.profile = engine, rate, given.cancel, profile
        source, at, self.requests = random.Random(count + 1_000_003 * number), 0.0, []
        for _ in range(count):
            at += source.expovariate(rate) if rate else 0.0
            self.requests.append(Request(source, given, length, at))

    def run(self, profile_path=None, clock=time.perf_counter):
        """A row: latencies, by how much memory grew, and the steps."""
        scheduler = self.engine.engine_core.engine_core.scheduler
        with Steps(clock).watch(scheduler) as steps:
            row = self.serve(scheduler)
        if profile_path:
            self.profile.write(profile_path)
        return row | {"steps": steps.rows()}

    def serve(self, scheduler):
        from vllm import SamplingParams
        preempt, preemptions = scheduler._preempt_request, []
        scheduler._preempt_request = lambda *given: (preemptions.append(1), preempt(*given))[1]
        before, begin, sent = memory(), time.perf_counter(), 0
        while sent < len(self.requests) or self.engine.has_unfinished_requests():
            now = time.perf_counter() - begin
            while sent < len(self.requests) and self.requests[sent].arrival <= now:
                request = self.requests[sent]
                how = SamplingParams(max_tokens=request.tokens, ignore_eos=True, temperature=0.0, detokenize=False)
                self.engine.add_request(str(sent), {"prompt_token_ids": request.prompt}, how)
                sent += 1
                if self.profile and sent == len(self.requests) * 3 // 4 + 1:
                    self.profile.start()
            if not self.engine.has_unfinished_requests():
                time.sleep(min(1e-3, max(0.0, self.requests[sent].arrival - now)))
                continue
            for result in self.engine.step():
                self.take(result, time.perf_counter() - begin)
        took = time.perf_counter() - begin
        scheduler._preempt_request = preempt
        served = [request for request in self.requests if not request.cancelled]
        if any(request.count != request.tokens for request in served):
            raise RuntimeError("an answer has another number of tokens than was asked for")
        waits = [1e3 * (request.first - request.arrival) for request in served]
        gaps = [1e3 * (request.last - request.first) / (request.count - 1) for request in served if request.count > 1]
        growth = [after - then for after, then in zip(memory(), before)]
        return {"rate": self.rate, "requests": len(self.requests), "cancel": self.cancel} | {
            name: round(percentile(values, share), 2) for name, values, share in zip(LATENCIES, (waits, waits, gaps, gaps), (50, 99) * 2)
        } | {"output_tokens_s": round(sum(request.count for request in self.requests) / took),
             "cancelled": len(self.requests) - len(served), "preemptions": len(preemptions),
             "gpu_growth_mb": round(growth[0] / 2**20, 1), "host_growth_mb": round(growth[1] / 2**20, 1)}

    def take(self, result, now):
        request = self.requests[int(result.request_id)]
        count = len(result.outputs[0].token_ids)
        if request.cancelled or count == request.count:
            return
        request.first = request.first or now
        request.last, request.count = now, count
        if count >= request.patience and not result.finished:
            request.cancelled = True
            self.engine.abort_request([result.request_id])


def memory():
    """Bytes in use: of the GPU, and of this process."""
    import torch
    free, total = torch.cuda.mem_get_info()
    with open("/proc/self/statm", encoding="ascii") as file:
        return total - free, int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def steps_of(rows):
    """Takes the steps out of the rows of --online: rows of their own."""
    return [{name: row.get(name, "") for name in ("arm", "start", "rate")} | step for row in rows for step in row.pop("steps", ())]


def compare(rows, tells):
    """Takes the first tokens out of the rows of rounds. tells: our arm's rows get the share that vLLM's own arm has, too."""
    found = {(row["arm"], row["start"], row["input"], row["round"]): row.pop("first_tokens") for row in rows if "first_tokens" in row}
    for row in rows:
        ours, own = (found.get((arm, row["start"], row["input"], row.get("round"))) for arm in ("kernelwright", "vllm"))
        if tells and row["arm"] == "kernelwright" and ours and own:
            row["same_first_tokens"] = round(sum(map(int.__eq__, ours, own)) / len(own), 3)


def of_arm_alone(path, arm):
    stem, end = os.path.splitext(path)
    return f"{stem}-{arm}{end}"


def child(given, arm, turns=""):
    """The rows of one arm from a process of its own, and whether it ended well."""
    words = [sys.executable, os.path.abspath(__file__), "--arm", arm]
    for name in (*SETTINGS, *ONLINE_SETTINGS, "input", "online", "rounds"):
        words.append(f"--{name}={getattr(given, name)}")
    words += ["--steps=-"] if given.steps else []
    words += [f"--turns={turns}"] * bool(turns)
    words += [f"--{name}={path}" for name, path in (("profile", given.profile), ("profile-online", given.profile_online)) if path]
    words += (["--layers", str(given.layers)] if given.layers else []) + (["--eager"] if given.eager else [])
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    for line in lines:
        if not line.startswith("{"):
            print(f"{arm}: {line}", file=sys.stderr)  # of vLLM's log
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return rows, done.returncode == 0 and bool(rows)


def main():
    given = arguments()
    if given.arm:
        rows, faults = serve(given)
        if given.steps != "-":  # else our parent writes the steps
            steps = steps_of(rows)
            if given.steps:
                write_steps(given.steps, steps)
        for row in rows:
            print(json.dumps(row), flush=True)
        for fault in faults:
            print(f"{given.arm}: {fault}", file=sys.stderr)
        return 1 if faults else 0
    if not (given.rounds or given.online):
        sys.exit("without rounds and without --online nothing is measured")
    rows, fine = [], True
    settings = {name: getattr(given, name) for name in SETTINGS}
    for start in range(given.starts):
        arms = list(BACKENDS)[::-1 if start % 2 else 1]
        with concurrent.futures.ThreadPoolExecutor(len(arms) if given.together else 1) as pool, tempfile.NamedTemporaryFile() as file:
            turns = given.together and (given.turns or file.name)
            for found, well in pool.map(lambda arm: child(given, arm, turns), arms):
                fine = fine and well
                rows += [settings | {"start": start} | row for row in found]
    compare(rows, comparable(given))
    steps = steps_of(rows)
    if given.steps:
        write_steps(given.steps, steps)
    with open(given.output, "w", newline="") if given.output else sys.stdout as file:
        writer = csv.DictWriter(file, (*COLUMNS, *(ONLINE_COLUMNS if given.online else ())))
        writer.writeheader()
        writer.writerows(rows)
    for length, rate in dict.fromkeys((row["input"], row.get("rate")) for row in rows):
        of_case = [row for row in rows if (row["input"], row.get("rate")) == (length, rate)]
        for name in (*(MEASURED if rate is None else LATENCIES), "start_up_s"):
            medians = {arm: statistics.median([row[name] for row in of_case if row["arm"] == arm] or [0]) for arm in BACKENDS}
            print(f"{name} of {length} tokens{'' if rate is None else f' at {rate:g} requests a second'}: {medians['vllm']} by vLLM, "
                  f"{medians['kernelwright']} by kernelwright", file=sys.stderr)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
