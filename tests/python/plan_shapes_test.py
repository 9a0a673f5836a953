#!/usr/bin/env python3
"""kernelwright.plan() against transformers' own modules, made on the meta device: the shapes of every linear layer, and the
attention problem that each layer's call makes.

Run by hand, with Python or pytest, where torch and transformers are installed: it is no part of CI. PYTHONPATH,
KERNELWRIGHT_LIBRARY and KERNELWRIGHT_COMMAND name the module, the library and the command, unless the package is
installed.
"""
import inspect
import json
import pathlib
import re
import unittest

import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

import kernelwright
from kernelwright import transformers as ours

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "models"
MODELS = ("llama3-8b", "llama3-70b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "gpt-oss-120b",
          "gemma3-27b")
NO_LAYER = -1  # of modules that no layer holds: the language model's head


def layers_of(text):
    """The layers of "0-4, 6-10" or "1-23 by 2"."""
    found = []
    for part in (text or "").split(", "):
        if part:
            first, last, step = re.fullmatch(r"(\d+)(?:-(\d+))?(?: by (\d+))?", part).groups()
            found += range(int(first), int(last or first) + 1, int(step or 1))
    return found or [NO_LAYER]


def plain(problem):
    """A problem without the fields that have their defaults."""
    mask = problem.get("mask", {"kind": "none"})
    if mask.get("window", {}).get("right") == 0:
        mask = {**mask, "window": {"left": mask["window"]["left"]}}
    return {name: value for name, value in problem.items() if name not in ("dtype", "kv_layout")} | {"mask": mask}


def made(config):
    """The model of a config.json on the meta device, which has shapes and no values."""
    config = {name: value for name, value in config.get("text_config", config).items() if name != "quantization_config"}
    config = AutoConfig.for_model(**config)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def planned_gemms(plan):
    """{(module, layer): {(n, k, whether a bias is added)}} of a plan, without experts."""
    found = {}
    for problem in plan["problems"]:
        if problem["kind"] == "gemm" and "groups" not in problem["problem"]:
            of = problem["problem"]
            for served in problem["serves"]:
                for layer in layers_of(served.get("layers")):
                    found.setdefault((served["layer"], layer), set()).add((of["n"], of["k"], "bias" in of.get("epilogue", "")))
    return found


def gemms(model):
    """The same of a model: linear layers, and routers, whose weight is a parameter of their own."""
    found = {}
    for name, module in model.named_modules():
        weight = vars(module).get("_parameters", {}).get("weight")
        if weight is None or weight.dim() != 2 or isinstance(module, torch.nn.Embedding):
            continue
        layer = re.search(r"\.layers\.(\d+)\.", name)
        leaf = name.rpartition(".")[2]
        key = leaf, int(layer[1]) if layer else NO_LAYER
        found.setdefault(key, set()).add((*weight.shape, getattr(module, "bias", None) is not None))
    return found


def problems(model):
    """{(layer, one query): problem} that the calls of kernelwright's attention function make."""
    found, at = {}, []

    def record(module, query, key, value, attention_mask, scaling=None, sliding_window=None, softcap=None, is_causal=None,
               s_aux=None, **_):
        layer = ours._Layer(is_causal if is_causal is not None else module.is_causal, sliding_window, softcap, s_aux, scaling)
        problem, reason = layer.problem(query, key, value, None, None, None)
        assert reason is None, reason
        found[at[0], query.shape[2] == 1] = plain(problem.config()["problem"])
        return value.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None
    AttentionInterface.register("record", record)
    model.set_attn_implementation("record")
    body = model.model
    for index, layer in enumerate(body.layers):
        for tokens in (4, 1):
            x = torch.empty(1, tokens, model.config.hidden_size, dtype=torch.bfloat16, device="meta")
            places = torch.empty(1, tokens, dtype=torch.int64, device="meta")
            kinds = {"layer_type": model.config.layer_types[index]} if "layer_type" in inspect.signature(
                body.rotary_emb.forward).parameters else {}
            at[:] = [index]
            layer.self_attn(hidden_states=x, position_embeddings=body.rotary_emb(x, places, **kinds), attention_mask=None,
                            position_ids=places)
    return found


class PlanShapes(unittest.TestCase):
    def test_are_those_of_transformers(self):
        for name in MODELS:
            with self.subTest(name), torch.no_grad():
                config = json.loads((GOLDEN / f"{name}.config.json").read_text())
                model, plan = made(config), kernelwright.plan(config, server="hf", name=name)
                self.assertEqual(planned_gemms(plan), gemms(model))
                self.assert_attention(plan, problems(model))
                self.assert_experts(plan, model)
                self.assert_cache_writes(plan, model)

    def assert_attention(self, plan, found):
        """A window that no sequence exceeds is none in a plan, and none of these models has one. Batches without padding have
        no kv_starts."""
        planned = {}
        for problem in plan["problems"]:
            if problem["kind"] == "attention" and not problem["problem"].get("kv_starts"):
                for served in problem["serves"]:
                    for layer in layers_of(served["layers"]):
                        planned[layer, served["layer"].endswith("decode")] = plain(problem["problem"])
        self.assertEqual(planned, found)

    def assert_cache_writes(self, plan, model):
        """The norm of queries and keys, and the elements of a head that turn, of each layer whose cache a plan writes."""
        planned, found, places = {}, {}, torch.empty(1, 4, dtype=torch.int64, device="meta")
        for problem in plan["problems"]:
            if problem["kind"] == "kv_write" and problem["problem"].get("v_out", True):  # else parts of latent keys
                norm, of = problem["problem"].get("qk_norm", {}), problem["problem"]
                for served in problem["serves"]:
                    for layer in layers_of(served["layers"]):
                        planned[layer] = (norm.get("kind", "none"), norm.get("weight_offset", 0), norm.get("eps", 1e-6),
                                          of["rope"]["width"], of["heads"]["kv"], of["head_dim"]["qk"])
        if not planned:
            latents = any(problem["name"].endswith("latent-write") for problem in plan["problems"])
            self.assertTrue(latents or "cache write" in [row["layer"] for row in plan["missing"]])
            return
        x = torch.empty(1, 4, model.config.hidden_size, dtype=torch.bfloat16, device="meta")
        rotary = model.model.rotary_emb
        typed = "layer_type" in inspect.signature(rotary.forward).parameters
        for index, layer in enumerate(model.model.layers):
            attention = layer.self_attn
            cos, _ = rotary(x, places, **({"layer_type": model.config.layer_types[index]} if typed else {}))
            norm = getattr(attention, "k_norm", None)
            told = ("none", 0, 1e-6) if norm is None else (
                "rms", int(type(norm).__name__.startswith("Gemma")), getattr(norm, "variance_epsilon", getattr(norm, "eps", None)))
            if norm is not None:
                self.assertEqual(norm.weight.shape, (attention.head_dim,))
            heads = attention.k_proj.out_features // attention.head_dim
            # gpt-oss' cosines have each pair once.
            width = 2 * cos.shape[-1] if model.config.model_type == "gpt_oss" else cos.shape[-1]
            found[index] = (*told, width, heads, attention.head_dim)
        self.assertEqual(planned, found)

    def assert_experts(self, plan, model):
        told = [row for row in plan["missing"] if row["layer"] == "experts"]  # mxfp4
        gemms = [row for row in plan["problems"] if "groups" in row["problem"]]
        found = {}
        for name, parameter in model.named_parameters():
            if parameter.dim() == 3:
                layer = int(re.search(r"\.layers\.(\d+)\.", name)[1])
                found.setdefault(layer, set()).add((parameter.shape[0], tuple(sorted(parameter.shape[1:]))))
        planned = {}
        for row in told:
            count, *sizes = map(int, re.fullmatch(r"(\d+) of w13 \[(\d+), (\d+)\] and w2 \[(\d+), (\d+)\]", row["shape"]).groups())
            for layer in layers_of(row["layers"]):
                planned[layer] = {(count, tuple(sorted(sizes[:2]))), (count, tuple(sorted(sizes[2:])))}
        for row in gemms:
            problem = row["problem"]
            for layer in layers_of(row["serves"][0]["layers"]):
                planned.setdefault(layer, set()).add((problem["groups"]["count"], tuple(sorted((problem["n"], problem["k"])))))
        self.assertEqual(planned, found)

    def test_a_plan_of_another_model_fails(self):
        config = json.loads((GOLDEN / "llama3-8b.config.json").read_text())
        plan = kernelwright.plan(config | {"intermediate_size": 14208}, server="hf")
        self.assertNotEqual(planned_gemms(plan), gemms(made(config)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
