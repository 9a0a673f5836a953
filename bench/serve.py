#!/usr/bin/env python3
"""Kernelwright inside vLLM against vLLM's own kernels: output tokens a second, offline, with random weights.

    python3 bench/serve.py --model llama-3-8b --starts 2 --output serve.csv
    python3 bench/serve.py --model llama-3-8b --arm kernelwright --profile kernels.csv --rounds 1

Each arm is a process of its own with the same settings; starts alternate, so that a clock that moves moves both arms. Prompts are
fresh in each round and prefix caching is off. A round generates `--tokens` for all prompts at once, and one token for as many
other prompts: the second is the prefill, the difference the decode. Needs a GPU and vLLM. Exit status: 0, 1 if an arm failed.
"""
import argparse
import csv
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
}
SETTINGS = ("model", "weights", "kv", "take", "prompts", "input", "tokens")  # of both arms, as options have them
COLUMNS = (*SETTINGS, "arm", "start", "start_up_s", "round", "total_s", "prefill_s", "output_tokens_s", "decode_tokens_s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama-3-8b")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--weights", choices=WEIGHTS, default="bf16")
    parser.add_argument("--take", default="", metavar="PARTS",
                        help="what our arm also takes over: linears, gates, experts, with commas between (docs/servers.md)")
    parser.add_argument("--kv", default="auto", help="dtype of the cache: auto, fp8")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--input", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=128, help="tokens generated for a prompt")
    parser.add_argument("--rounds", type=int, default=4, help="behind one that warms up")
    parser.add_argument("--starts", type=int, default=1, help="processes of each arm")
    parser.add_argument("--eager", action="store_true", help="no graphs and no torch.compile")
    parser.add_argument("--arm", choices=BACKENDS, help="this arm alone, in this process")
    parser.add_argument("--profile", metavar="FILE.csv", help="with --arm: time of each kernel in one round more")
    parser.add_argument("--output", metavar="FILE.csv")
    return parser.parse_args()


def serve(given):
    """One arm: its rows, as dicts."""
    folder = tempfile.mkdtemp(prefix="kernelwright-serve-")
    config = dict(MODELS[given.model])
    if given.layers:
        config["num_hidden_layers"] = given.layers
    if WEIGHTS[given.weights]:
        config["quantization_config"] = WEIGHTS[given.weights]
    os.environ["KERNELWRIGHT_VLLM"] = given.take if given.arm == "kernelwright" else ""
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # so that the counters of kernels can be read here
    from vllm import LLM, SamplingParams
    start = time.perf_counter()
    backend = BACKENDS[given.arm]
    llm = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=given.input + given.tokens + 16,
              gpu_memory_utilization=0.85, disable_log_stats=True, enforce_eager=given.eager, enable_prefix_caching=False,
              kv_cache_dtype=given.kv, **({"attention_backend": backend} if backend else {}))
    start_up = time.perf_counter() - start
    source = random.Random(0)

    def seconds(tokens):
        prompts = [{"prompt_token_ids": [source.randrange(10, 100000) for _ in range(given.input)]} for _ in range(given.prompts)]
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0.0, detokenize=False)
        begin = time.perf_counter()
        results = llm.generate(prompts, how, use_tqdm=False)
        took = time.perf_counter() - begin
        if any(len(result.outputs[0].token_ids) != tokens for result in results):
            raise RuntimeError("an answer has another number of tokens than was asked for")
        return took
    rows = []
    for number in range(given.rounds + 1):
        total, prefill = seconds(given.tokens), seconds(1)
        rows.append({"arm": given.arm, "start_up_s": round(start_up, 1), "round": number, "total_s": round(total, 4),
                     "prefill_s": round(prefill, 4), "output_tokens_s": round(given.prompts * given.tokens / total),
                     "decode_tokens_s": round(given.prompts * (given.tokens - 1) / (total - prefill))})
    if given.profile:
        profile(given.profile, lambda: seconds(given.tokens))
    if given.arm == "kernelwright":
        from kernelwright.vllm.attention import served
        counters = served.engine("cuda").counters()
        if counters["sealed_misses"]:
            raise RuntimeError(f"{counters['sealed_misses']} kernels were missing after the engine was sealed")
    return rows[1:]


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
    for name in (*SETTINGS, "rounds"):
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
    rows, fine = [], True
    for start in range(given.starts):
        for arm in list(BACKENDS)[::-1 if start % 2 else 1]:
            found, well = child(given, arm)
            fine = fine and well
            rows += [{name: getattr(given, name) for name in SETTINGS} | {"start": start} | row for row in found]
    with open(given.output, "w", newline="") if given.output else sys.stdout as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    for name in ("output_tokens_s", "decode_tokens_s", "prefill_s", "start_up_s"):
        medians = {arm: statistics.median([row[name] for row in rows if row["arm"] == arm] or [0]) for arm in BACKENDS}
        print(f"{name}: {medians['vllm']} by vLLM, {medians['kernelwright']} by kernelwright", file=sys.stderr)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
