#!/usr/bin/env python3
"""Kernelwright inside vLLM against vLLM's own kernels, with random weights: output tokens a second, or the latency of requests
that arrive one by one.

    python3 bench/serve.py --model llama-3-8b --starts 2 --output serve.csv
    python3 bench/serve.py --model llama-3-8b --arm kernelwright --profile kernels.csv --rounds 1
    python3 bench/serve.py --model llama-3-8b --rounds 0 --online 8,16 --requests 1000 --cancel 0.1 --output latency.csv

Each arm is a process of its own with the same settings; starts alternate, so that a clock that moves moves both arms. Prompts are
fresh in each round and prefix caching is off. A round generates `--tokens` for all prompts at once, and one token for as many
other prompts: the second is the prefill, the difference the decode. With several lengths in `--input`, each has its rounds.

With `--online`, requests arrive behind the rounds at random at each of the rates, with half to one and a half times the first
`--input` and `--tokens`. TTFT is the time from a request's arrival to its first token, TPOT the mean time between the tokens
behind it. A share `--cancel` of the clients leaves after a part of its tokens.

With `--gpus`, the model lies on several GPUs by tensor parallelism. Our arm fails if a rank compiled a kernel while it served, or
if ranks have different kernels. Needs GPUs and vLLM. Exit status: 0, 1 if an arm failed.
"""
import argparse
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

BACKENDS = {"vllm": None, "kernelwright": "CUSTOM"}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "torch_dtype": "bfloat16", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
         "max_position_embeddings": 8192}
QWEN3 = LLAMA | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                 "vocab_size": 151936, "head_dim": 128, "attention_bias": False}
WEIGHTS = {"bf16": {}, "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
           "fp8-blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}
YARN = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}
MODELS = {
    "llama-3-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
                           "num_hidden_layers": 32, "vocab_size": 128256, "rope_theta": 500000.0},
    "qwen3-8b": QWEN3 | {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8,
                         "num_hidden_layers": 36},
    "qwen3-30b-a3b": QWEN3 | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
                              "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
                              "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "num_attention_heads": 32,
                              "num_key_value_heads": 4, "num_hidden_layers": 48},
    "gemma-3-12b": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 3840,
                    "intermediate_size": 15360, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 48,
                    "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
                    "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window": 1024, "query_pre_attn_scalar": 256,
                    "sliding_window_pattern": 6, "hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16",
                    "bos_token_id": 2, "eos_token_id": 1, "tie_word_embeddings": True},
    # Weights of experts are mxfp4, which are left to vLLM.
    "gpt-oss-20b": LLAMA | {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880,
                            "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
                            "num_hidden_layers": 24, "num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4,
                            "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12, "vocab_size": 201088,
                            "attention_bias": True, "swiglu_limit": 7.0, "rope_theta": 150000,
                            "rope_scaling": YARN | {"factor": 32.0, "truncate": False}, "max_position_embeddings": 131072,
                            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
                                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}},
    # Four of 61 layers, one of them dense, so that one GPU holds them.
    "deepseek-v3-cut": LLAMA | {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
                                "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
                                "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
                                "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
                                "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "moe_layer_freq": 1,
                                "num_hidden_layers": 4, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
                                "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                                "vocab_size": 129280, "rms_norm_eps": 1e-6, "rope_theta": 10000, "attention_bias": False,
                                "rope_scaling": YARN | {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
                                "max_position_embeddings": 163840},
}
SETTINGS = ("model", "weights", "kv", "take", "gpus", "prompts", "tokens", "blocks")  # of both arms, as options have them
ONLINE_SETTINGS = ("requests", "cancel")
MEASURED = ("output_tokens_s", "decode_tokens_s", "prefill_s")
LATENCIES = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms")
COLUMNS = (*SETTINGS, "arm", "start", "start_up_s", "input", "round", "total_s", *MEASURED)
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
    parser.add_argument("--starts", type=int, default=1, help="processes of each arm")
    parser.add_argument("--eager", action="store_true", help="no graphs and no torch.compile")
    parser.add_argument("--arm", choices=BACKENDS, help="this arm alone, in this process")
    parser.add_argument("--profile", metavar="FILE.csv", help="with --arm: time of each kernel in one round more")
    parser.add_argument("--output", metavar="FILE.csv")
    return parser.parse_args()


def serve(given):
    """One arm: its rows, as dicts."""
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
    start = time.perf_counter()
    backend = BACKENDS[given.arm]
    lengths = [int(length) for length in given.input.split(",")]
    longest = max(*lengths, lengths[0] * 3 // 2 if given.online else 0) + given.tokens * (3 if given.online else 2) // 2 + 16
    llm = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=longest,
              gpu_memory_utilization=0.85, disable_log_stats=True, enforce_eager=given.eager, enable_prefix_caching=False,
              tensor_parallel_size=given.gpus,
              kv_cache_dtype=given.kv, num_gpu_blocks_override=given.blocks or None,
              **({"attention_backend": backend} if backend else {}))
    start_up = time.perf_counter() - start
    if given.arm == "kernelwright":
        import kernelwright
        calls = kernelwright.fast_calls()
        if not (calls["fast"] and calls["operators"]["stable"]):
            raise RuntimeError(f"calls go through Python, which costs the host 0.1 ms each: {calls}")
    source = random.Random(0)

    def seconds(length, tokens):
        prompts = [{"prompt_token_ids": [source.randrange(10, 100000) for _ in range(length)]} for _ in range(given.prompts)]
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0.0, detokenize=False)
        begin = time.perf_counter()
        results = llm.generate(prompts, how, use_tqdm=False)
        took = time.perf_counter() - begin
        if any(len(result.outputs[0].token_ids) != tokens for result in results):
            raise RuntimeError("an answer has another number of tokens than was asked for")
        return took
    rows, of_arm = [], {"arm": given.arm, "start_up_s": round(start_up, 1)}
    for length in lengths if given.rounds else ():
        for number in range(given.rounds + 1):
            total, prefill = seconds(length, given.tokens), seconds(length, 1)
            if number:  # the first warms up
                rows.append(of_arm | {"input": length, "round": number, "total_s": round(total, 4), "prefill_s": round(prefill, 4),
                                      "output_tokens_s": round(given.prompts * given.tokens / total),
                                      "decode_tokens_s": round(given.prompts * (given.tokens - 1) / (total - prefill))})
    if given.online:
        Online(llm.llm_engine, given, lengths[0], 16, 0).run()  # warms up
        for rate in map(float, given.online.split(",")):
            rows.append(of_arm | {"input": lengths[0]} | Online(llm.llm_engine, given, lengths[0], given.requests, rate).run())
    if given.profile:
        profile(given.profile, lambda: seconds(lengths[0], given.tokens))
    if given.arm == "kernelwright":
        check_ranks(llm.collective_rpc(kernels_of_rank))
    return rows


def kernels_of_rank(_):
    """What a process of the model has: how many kernels it missed once its engine was sealed, and those that are ready."""
    from kernelwright.vllm.attention import served
    engine = served.engine("cuda")
    return engine.counters()["sealed_misses"], sorted(row["key"] for row in engine.kernels() if row["state"] == "ready")


def check_ranks(found):
    """Raises RuntimeError if a rank missed a kernel, or if ranks have different ones."""
    for rank, (misses, names) in enumerate(found):
        if misses:
            raise RuntimeError(f"{misses} kernels were missing after the engine of rank {rank} was sealed")
        if names != found[0][1]:
            raise RuntimeError(f"rank {rank} and rank 0 have different kernels: {sorted(set(names) ^ set(found[0][1]))}")


class Request:
    def __init__(self, source, given, length, arrival):
        self.arrival, self.first, self.last, self.count, self.cancelled = arrival, 0.0, 0.0, 0, False
        self.tokens = source.randint(given.tokens // 2, given.tokens * 3 // 2)
        self.prompt = [source.randrange(10, 100000) for _ in range(source.randint(length // 2, length * 3 // 2))]
        self.patience = source.randint(1, self.tokens) if source.random() < given.cancel else self.tokens + 1


class Online:
    """Requests to one engine at a rate; 0: all at once. Two arms get the same requests."""

    def __init__(self, engine, given, length, count, rate):
        self.engine, self.rate, self.cancel = engine, rate, given.cancel
        source, at, self.requests = random.Random(count), 0.0, []
        for _ in range(count):
            at += source.expovariate(rate) if rate else 0.0
            self.requests.append(Request(source, given, length, at))

    def run(self):
        """A row: latencies, and by how much memory grew."""
        from vllm import SamplingParams
        scheduler = self.engine.engine_core.engine_core.scheduler
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


def percentile(values, share):
    """The smallest value that `share` percent of the values do not pass."""
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def memory():
    """Bytes in use: of the GPU, and of this process."""
    import torch
    free, total = torch.cuda.mem_get_info()
    with open("/proc/self/statm", encoding="ascii") as file:
        return total - free, int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def profile(path, run):
    """Time of each kernel in a round."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler
    with profiler(activities=[ProfilerActivity.CUDA]) as found:
        run()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("kernel", "launches", "total_ms", "mean_us"))
        for row in rows:
            if row.self_device_time_total > 0:
                writer.writerow((row.key[:160], row.count, round(row.self_device_time_total / 1e3, 3),
                                 round(row.self_device_time_total / row.count, 2)))


def child(given, arm):
    """The rows of one arm from a process of its own, and whether it ended well."""
    words = [sys.executable, os.path.abspath(__file__), "--arm", arm]
    for name in (*SETTINGS, *ONLINE_SETTINGS, "input", "online", "rounds"):
        words.append(f"--{name}={getattr(given, name)}")
    words += (["--layers", str(given.layers)] if given.layers else []) + (["--eager"] if given.eager else [])
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines], done.returncode == 0 and bool(lines)


def main():
    given = arguments()
    if given.arm:
        for row in serve(given):
            print(json.dumps(row), flush=True)
        return 0
    if not (given.rounds or given.online):
        sys.exit("without rounds and without --online nothing is measured")
    rows, fine = [], True
    settings = {name: getattr(given, name) for name in SETTINGS}
    for start in range(given.starts):
        for arm in list(BACKENDS)[::-1 if start % 2 else 1]:
            found, well = child(given, arm)
            fine = fine and well
            rows += [settings | {"start": start} | row for row in found]
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
