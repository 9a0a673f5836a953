#!/usr/bin/env python3
"""Models of transformers with kernelwright's attention, against torch's own, in one process: how far their numbers are from
fp32, and what a generated token takes.

    bench/python/models.py accuracy [--json FILE] [--model NAME ...]   # two layers of full width
    bench/python/models.py decode [--json FILE] [--accelerate]         # 32 layers of Llama-3-8B's shape
    bench/python/models.py generate [--json FILE]                      # the same through generate(), which compiles
    bench/python/models.py accuracy --tiny                             # each without a GPU: the emulator, tiny models

Weights are random, and so tokens are given, not generated, where numbers are compared. A row of `accuracy` has, for each
layer and the logits, the relative rms of ours and of torch's bf16 attention against eager attention in fp32, and their
ratio, whose gate is 1.1. `decode` and `generate` run rounds in which the arms take turns. Their figures are medians over
rounds of the median time from one token to the next, in microseconds, with the host's work in it. `decode` calls the model,
and `generate` calls generate(), which compiles the steps of a static cache. Needs torch and transformers.
"""
import argparse
import copy
import json
import statistics
import sys
import time

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

import kernelwright
import kernelwright.transformers

GATE = 1.1
LLAMA = dict(model_type="llama", hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
             vocab_size=128256, rope_theta=500000.0)
# Windows of models whose own is longer than the prompt are made shorter, so that they hide keys.
WINDOW = 200
MODELS = {
    "llama3-8b": LLAMA,
    "qwen3-8b": dict(model_type="qwen3", hidden_size=4096, intermediate_size=12288, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=128, vocab_size=151936),
    "mistral-7b": dict(model_type="mistral", hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                       num_key_value_heads=8, vocab_size=32000, sliding_window=WINDOW),
    "gemma2-9b": dict(model_type="gemma2", hidden_size=3584, intermediate_size=14336, num_attention_heads=16, num_key_value_heads=8,
                      head_dim=256, vocab_size=256000, query_pre_attn_scalar=256, attn_logit_softcapping=50.0,
                      sliding_window=WINDOW),
    "gemma3-27b": dict(model_type="gemma3_text", hidden_size=5376, intermediate_size=21504, num_attention_heads=32,
                       num_key_value_heads=16, head_dim=128, vocab_size=262208, query_pre_attn_scalar=168, sliding_window=WINDOW),
    "gpt-oss-20b": dict(model_type="gpt_oss", hidden_size=2880, intermediate_size=2880, num_attention_heads=64,
                        num_key_value_heads=8, head_dim=64, vocab_size=201088, num_local_experts=4, num_experts_per_tok=4,
                        sliding_window=128),  # a token takes all experts, since rounding would flip its choice of a few
    "phi3-mini": dict(model_type="phi3", hidden_size=3072, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=32,
                      vocab_size=32064, sliding_window=None),
}
TINY = dict(hidden_size=128, intermediate_size=256, num_attention_heads=2, num_key_value_heads=1, head_dim=64, vocab_size=128)
LAYER_TYPES = ["sliding_attention", "full_attention"]
BY_EAGER = ("gemma2", "gpt_oss")  # torch's sdpa has neither softcap nor sinks


class Run:
    """What both commands need: sizes, the device and the engine."""

    def __init__(self, given):
        self.tiny, self.device = given.tiny, "cpu" if given.tiny else "cuda"
        self.prompt, self.batch = (20, 2) if given.tiny else (777, 2)
        if given.tiny:
            kernelwright.transformers.register(kernelwright.Engine("emulator", emulator_arch="sm_90a"))
        else:
            kernelwright.transformers.register()

    def config(self, fields, layers):
        fields = dict(fields, num_hidden_layers=layers, pad_token_id=0, bos_token_id=None, eos_token_id=None)
        if self.tiny:
            fields |= TINY | ({"sliding_window": 7} if fields.get("sliding_window") else {})
        if fields["model_type"] in ("gemma2", "gemma3_text", "gpt_oss"):
            fields["layer_types"] = (LAYER_TYPES * layers)[:layers]
        # Scores then have a standard deviation near 1, so that masks matter to the logits.
        return AutoConfig.for_model(**fields, initializer_range=1.1 * fields["hidden_size"] ** -0.5)

    def model(self, config, implementation, dtype):
        torch.manual_seed(7)
        with torch.device(self.device):
            return AutoModelForCausalLM.from_config(config, attn_implementation=implementation, dtype=dtype).eval()

    def told(self):
        return {"gpu": "none" if self.tiny else torch.cuda.get_device_name(), "torch": torch.__version__,
                "transformers": transformers.__version__, "python": sys.version.split()[0], "kernelwright": kernelwright.version(),
                "fast_calls": kernelwright.fast_calls()["fast"], "prompt": self.prompt, "batch": self.batch}


def rms(found, truth, seen):
    found, truth = (tensor.float()[seen] for tensor in (found, truth))
    return ((found - truth).square().mean().sqrt() / truth.square().mean().sqrt()).item()


def at_once(model, ids, mask, **more):
    found = model(ids, attention_mask=mask, use_cache=False, output_hidden_states=True, **more)
    return [*found.hidden_states[1:], found.logits]


def with_static_cache(model, ids, mask):
    """The same, token by token at the end, with a static cache that is longer than the tokens."""
    tokens = ids.shape[1]
    cache, parts, cuts = StaticCache(config=model.config, max_cache_len=tokens + 50), [], [0, *range(tokens - 8, tokens + 1)]
    for begin, end in zip(cuts, cuts[1:]):
        found = model(ids[:, begin:end], attention_mask=mask[:, :end], past_key_values=cache, output_hidden_states=True)
        parts.append([*found.hidden_states[1:], found.logits])
    return [torch.cat(part, 1) for part in zip(*parts)]


def cases(run, config, ids):
    """{name: (mask, what runs ours, what runs the others)}."""
    whole = torch.ones_like(ids)
    padded = whole.clone()
    padded[0, :run.prompt // 3] = 0
    tokens = ids[:1]
    cuts = [0, run.prompt // 5, run.prompt // 2, run.prompt // 2 + 1, run.prompt]
    offsets = torch.tensor(cuts, dtype=torch.int32, device=ids.device)
    longest = max(b - a for a, b in zip(cuts, cuts[1:]))
    places = torch.cat([torch.arange(b - a) for a, b in zip(cuts, cuts[1:])])[None].to(ids.device)

    def packed(model, _, mask):
        return at_once(model, tokens, None, position_ids=places, cu_seq_lens_q=offsets, cu_seq_lens_k=offsets,
                       max_length_q=longest, max_length_k=longest)

    def apart(model, _, mask):
        parts = [at_once(model, tokens[:, a:b], None) for a, b in zip(cuts, cuts[1:])]
        return [torch.cat(part, 1) for part in zip(*parts)]
    return {"batch": (whole, at_once, at_once), "left padded": (padded, at_once, at_once),
            "static cache": (whole, with_static_cache, at_once), "static cache, left padded": (padded, with_static_cache, at_once),
            "packed": (whole[:1], packed, apart)}


def accuracy(run, given):
    rows = []
    for name in given.model or MODELS:
        config = run.config(MODELS[name], 2)
        plain = "eager" if config.model_type in BY_EAGER else "sdpa"
        truth = run.model(config, "eager", torch.float32)
        model = copy.deepcopy(truth).to(torch.bfloat16)
        ids = torch.randint(1, config.vocab_size, (run.batch, run.prompt), device=run.device)
        for case, (mask, ours_runs, others_run) in cases(run, config, ids).items():
            want = [tensor.cpu() for tensor in others_run(truth, ids, mask)]
            seen, errors = mask.bool().cpu(), {}
            for implementation in ("kernelwright", plain):
                model.set_attn_implementation(implementation)
                found = (ours_runs if implementation == "kernelwright" else others_run)(model, ids, mask)
                errors[implementation] = [rms(a.cpu(), b, seen) for a, b in zip(found, want)]
            ratios = [mine / other for mine, other in zip(errors["kernelwright"], errors[plain])]
            rows.append({"model": name, "case": case, "against": plain, "kernelwright": errors["kernelwright"],
                         "torch": errors[plain], "ratio": ratios, "passed": max(ratios) <= GATE})
            print(f"{name:14}{case:28}{plain:8}logits {errors['kernelwright'][-1]:.4f} for {errors[plain][-1]:.4f}   worst ratio "
                  f"{max(ratios):.3f}   {'ok' if rows[-1]['passed'] else 'ABOVE THE GATE'}")
        del truth, model
    return {"gate": GATE, "problems": kernelwright.transformers.problems(), "rows": rows}


def generated(run, model, ids, mask, cache, steps):
    """Seconds for each step behind the prompt."""
    def wait():
        if not run.tiny:
            torch.cuda.synchronize()
    found = model(ids, attention_mask=mask, past_key_values=cache, logits_to_keep=1)
    token, times = found.logits[:, -1:].argmax(-1), []
    for _ in range(steps):
        mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], 1)
        wait()
        begin = time.perf_counter()
        found = model(token, attention_mask=mask, past_key_values=cache, position_ids=mask.sum(-1, keepdim=True) - 1)
        token = found.logits[:, -1:].argmax(-1)
        wait()
        times.append(time.perf_counter() - begin)
    return times


def decode(run, given):
    config = run.config(LLAMA, 2 if run.tiny else 32)
    model, steps, rounds = run.model(config, "sdpa", torch.bfloat16), 64 if not run.tiny else 4, given.rounds
    ids = torch.randint(1, config.vocab_size, (run.batch, run.prompt), device=run.device)
    whole = torch.ones_like(ids)
    padded = whole.clone()
    padded[0, :run.prompt // 3] = 0
    report, arms = None, [("sdpa", False), ("kernelwright", False)] + [("kernelwright", True)] * given.accelerate
    if given.accelerate:
        report = kernelwright.transformers.accelerate(model, force=run.tiny)
        print(report)
        swapped = {module: vars(module)["forward"] for module in report._modules}
    found = {}
    for case, mask in (("batch", whole), ("left padded", padded)):
        for make in (DynamicCache, StaticCache):
            for turn in range(rounds + 1):  # the first round warms up
                for implementation, linears in arms:
                    model.set_attn_implementation(implementation)
                    if report:
                        for module, forward in swapped.items():
                            vars(module).pop("forward", None)
                            if linears:
                                module.forward = forward
                    cache = make(config=config) if make is DynamicCache else make(config=config, max_cache_len=run.prompt + steps)
                    times = generated(run, model, ids, mask, cache, steps)
                    if turn:
                        key = case, make.__name__, implementation + (", accelerated" if linears else "")
                        found.setdefault(key, []).append(statistics.median(times))
    return {"layers": config.num_hidden_layers, "steps": steps, "rounds": rounds, "problems": kernelwright.transformers.problems(),
            "accelerate": str(report) if report else None, "rows": rows_of(found)}


class Clock(transformers.StoppingCriteria):
    """Notes the time behind each token of generate(), and stops nothing."""

    def __init__(self, tiny):
        self.tiny, self.times = tiny, []

    def __call__(self, ids, scores, **unused):
        if not self.tiny:
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)

    def steps(self):
        return [b - a for a, b in zip(self.times, self.times[1:])]


def generate(run, given):
    config = run.config(LLAMA, 2 if run.tiny else 32)
    model, steps = run.model(config, "sdpa", torch.bfloat16), 64 if not run.tiny else 4
    ids = torch.randint(1, config.vocab_size, (run.batch, run.prompt), device=run.device)
    whole, found = torch.ones_like(ids), {}
    padded = whole.clone()
    padded[0, :run.prompt // 3] = 0
    for case, mask in (("batch", whole), ("left padded", padded)):
        for cache in ("dynamic", "static"):
            for turn in range(given.rounds + 2):  # the first rounds compile, capture and warm up
                for implementation in ("sdpa", "kernelwright"):
                    model.set_attn_implementation(implementation)
                    clock = Clock(run.tiny)
                    model.generate(ids, attention_mask=mask, max_new_tokens=steps, min_new_tokens=steps, do_sample=False,
                                   cache_implementation=cache, stopping_criteria=[clock])
                    if turn > 1:
                        found.setdefault((case, cache, implementation), []).append(statistics.median(clock.steps()))
    return {"layers": config.num_hidden_layers, "steps": steps, "rounds": given.rounds,
            "problems": kernelwright.transformers.problems(), "rows": rows_of(found)}


def rows_of(found):
    """Rows of {(case, cache, arm): seconds a step of each round}, printed too."""
    rows = []
    for (case, cache, arm), times in found.items():
        median, own = statistics.median(times) * 1e6, statistics.median(found[case, cache, "sdpa"]) * 1e6
        rows.append({"case": case, "cache": cache, "arm": arm, "us_a_step": round(median, 1), "least": round(min(times) * 1e6, 1),
                     "most": round(max(times) * 1e6, 1), "of_sdpa": round(median / own, 4)})
        print(f"{case:14}{cache:14}{arm:28}{median:10.1f} us a step   {median / own:.3f} of sdpa's")
    return rows


COMMANDS = {"accuracy": accuracy, "decode": decode, "generate": generate}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--json", help="write the rows there")
    parser.add_argument("--model", action="append", choices=MODELS, help="accuracy: this model alone; may be repeated")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count, of decode and generate")
    parser.add_argument("--accelerate", action="store_true", help="decode: one more arm, with our GEMMs where they are not slower")
    parser.add_argument("--tiny", action="store_true", help="tiny models on the emulator, which tries the script itself")
    given = parser.parse_args()
    run = Run(given)
    with torch.no_grad():
        told = {"command": given.command, **run.told(), **COMMANDS[given.command](run, given)}
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)


if __name__ == "__main__":
    main()
