#!/usr/bin/env python3
"""transformers' continuous batching with "paged|kernelwright" and tiny models of random weights: on the GPU if there is one,
else on the emulator.

Run by hand, with Python or pytest, where torch and transformers are installed: it is no part of CI. PYTHONPATH and
KERNELWRIGHT_LIBRARY name the module and the library, unless the package is installed.

Each call of the attention function is compared with fp64, over the keys that the step's indices name. The tokens must be
those of a model in fp32, as far as rounding decides: a token's fp32 logit may lie below the largest by twice the gate of
what torch's own attention in bf16 differs by.
"""
import copy
import os
import unittest

import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching.cache import PagedAttentionMemoryHandler
from transformers.utils.import_utils import is_flash_attn_2_available, is_flash_attn_3_available

import kernelwright
import kernelwright.transformers as ours
from kernelwright import ConfigError
from kernelwright._paged import paged_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EMULATED = dict(backend="emulator", emulator_arch=os.environ.get("KERNELWRIGHT_TEST_ARCH", "sm_90a"), hazards=True)
ENGINE = kernelwright.Engine(**EMULATED if DEVICE == "cpu" else {"backend": "cuda"})
GATE, WINDOW, PAGE, NEW_TOKENS = 1.1, 24, 256, 4
REQUESTS = int(os.environ.get("KERNELWRIGHT_TEST_REQUESTS", 100 if DEVICE == "cuda" else 6))
LENGTHS = (3, 40, 1, 300, 17, 280)  # of prompts, in turns; those of more than a page share their first 256 tokens
COMMON = dict(vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=64, max_position_embeddings=1024, initializer_range=0.1, pad_token_id=0,
              eos_token_id=None, bos_token_id=None)
KINDS = ["sliding_attention", "full_attention"]
MODELS = {
    "llama": {}, "qwen3": {}, "mistral": dict(sliding_window=WINDOW),
    "gemma2": dict(sliding_window=WINDOW, attn_logit_softcapping=2.0, query_pre_attn_scalar=64, layer_types=KINDS),
    "gemma3_text": dict(sliding_window=WINDOW, query_pre_attn_scalar=64, layer_types=KINDS),
    "gpt_oss": dict(sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=4, layer_types=KINDS),
}


def made(kind, implementation, dtype):
    config = AutoConfig.for_model(kind, **COMMON | MODELS[kind])
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model = copy.deepcopy(model).to(device=DEVICE, dtype=dtype)
    model.set_attn_implementation(implementation)
    return model


def prompts(count):
    random = torch.Generator().manual_seed(5)
    shared = torch.randint(1, 128, (PAGE,), generator=random).tolist()
    drawn = [torch.randint(1, 128, (LENGTHS[i % len(LENGTHS)],), generator=random).tolist() for i in range(count)]
    return [shared + prompt[PAGE:] if len(prompt) > PAGE else prompt for prompt in drawn]


def reference(q, k, v, scale, window, softcap, sinks):
    """Attention of one request's queries [n, heads, head_dim] with its keys, in fp64."""
    q, k, v = (tensor.double().transpose(0, 1) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(len(q) // len(k), 0) for tensor in (k, v))
    scores = q @ k.transpose(1, 2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    n, s = scores.shape[1:]
    behind = (torch.arange(n, device=q.device)[:, None] + s - n) - torch.arange(s, device=q.device)
    scores = scores.masked_fill((behind < 0) | ((behind >= window) if window > 1 else behind < 0), -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, n, 1)], -1)
    return (scores.softmax(-1)[..., :s] @ v).transpose(0, 1)


class Checked:
    """paged_attention(), each result of which is compared with fp64."""

    def __init__(self, test):
        self.test, self.steps = test, {"one by one": 0, "mixed": 0, "prompts": 0}

    def __call__(self, module, query, key, value, mask, **named):
        cache, layer = named["cache"], module.layer_idx
        group, place = cache.layer_index_to_group_indices[layer]
        reads, slots, window = named["read_index"][group], named["write_index"][group], cache.sliding_windows[layer]
        keys, values = cache.key_cache[place], cache.value_cache[place]
        new = [tensor.transpose(1, 2)[0] for tensor in (key, value)]
        all_keys = [whole[reads].clone() for whole in (keys, values)]  # ahead of the call: a ring's keys are overwritten
        before = [whole.clone() for whole in (keys, values)]
        out, _ = paged_attention(module, query, key, value, mask, **named)
        for whole, old, own in zip((keys, values), before, new):
            kept = slots < cache.write_trash_index
            self.test.assertTrue(torch.equal(whole[slots[kept]], own[kept]), "what was written")
            old[slots] = whole[slots]
            bits = [tensor.view(torch.int16) for tensor in (old, whole)]  # pages begin with any bits, NaNs among them
            self.test.assertTrue(torch.equal(*bits), "other slots were written")
        if reads.numel() == 0:
            all_keys = new
        elif window > 1:
            for gathered, own in zip(all_keys, new):
                gathered[reads == cache.sentinel_index] = own
        else:
            all_keys = [whole[reads] for whole in (keys, values)]
        self.steps["prompts" if reads.numel() == 0 else "one by one" if named["max_seqlen_q"] == 1 else "mixed"] += 1
        ends = named["cu_seq_lens_k"]
        ends = (ends["sliding_attention" if window > 1 else "full_attention"] if isinstance(ends, dict) else ends).tolist()
        cuts = named["cu_seq_lens_q"].tolist()
        for i in range(len(cuts) - 1):
            rows, of = slice(cuts[i], cuts[i + 1]), slice(ends[i], ends[i + 1])
            wanted = reference(query[0].transpose(0, 1)[rows], *(both[of] for both in all_keys), named.get("scaling"), window,
                               named.get("softcap"), named.get("s_aux"))
            # bf16: the probabilities and the output are rounded by 2^-9 of the largest value each.
            self.test.assertLessEqual((out[0, rows].double() - wanted).abs().max().item(),
                                      3 * 2**-9 * value.abs().max().item(), (layer, i, cuts, ends))
        return out, None


class ContinuousBatching(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ours.register(ENGINE)
        if DEVICE == "cpu":  # which has no memory, as transformers counts
            PagedAttentionMemoryHandler.get_available_memory = lambda self: 1 << 30

    @classmethod
    def tearDownClass(cls):
        hazards = ENGINE.take_hazards() if DEVICE == "cpu" else []
        assert hazards == [], hazards

    def generate(self, model, given, tokens_at_once):
        generation = GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0)
        batching = ContinuousBatchingConfig(num_blocks=4 * REQUESTS, max_batch_tokens=tokens_at_once, use_cuda_graph=False)
        found = model.generate_batch(given, generation_config=generation, continuous_batching_config=batching, progress_bar=False)
        self.assertEqual(len(found), len(given))
        for output in found.values():
            self.assertIsNone(output.error)
        ordered = [found[name] for name in sorted(found, key=lambda name: int(name.rpartition("_")[2]))]
        return [output.generated_tokens for output in ordered]

    def test_generates_what_rounding_allows(self):
        for kind in MODELS:
            with self.subTest(kind), torch.no_grad():
                given, checked = prompts(REQUESTS), Checked(self)
                AttentionInterface.register("paged|checked", checked)
                AttentionInterface.register("checked", checked)
                model = made(kind, "paged|checked", torch.bfloat16)
                exact, plain = made(kind, "eager", torch.float32), made(kind, "eager", torch.bfloat16)
                # Few tokens at once: prompts come in parts, beside requests that have begun.
                for prompt, made_tokens in zip(given, self.generate(model, given, 160)):
                    self.assertEqual(len(made_tokens), NEW_TOKENS)
                    ids = torch.tensor([[*prompt, *made_tokens]], device=DEVICE)
                    right, rounded = (each(ids).logits[0, len(prompt) - 1:-1].float() for each in (exact, plain))
                    allowed = 2 * GATE * (rounded - right).abs().max().item()
                    chosen = right.gather(1, ids[0, len(prompt):, None])[:, 0]
                    self.assertLessEqual((right.max(-1).values - chosen).max().item(), allowed)
                for what, count in checked.steps.items():
                    self.assertGreater(count, 0, what)

    @unittest.skipIf(is_flash_attn_3_available(kernels_fallback_ok=True) or is_flash_attn_2_available(kernels_fallback_ok=True),
                     "transformers would take flash attention")
    def test_a_model_switches_by_itself(self):
        """generate_batch() puts "paged|" ahead of a model's own attention where no flash attention is installed."""
        with torch.no_grad():
            given = prompts(3)
            want = self.generate(made("llama", "paged|kernelwright", torch.bfloat16), given, 512)
            self.assertEqual(self.generate(made("llama", "kernelwright", torch.bfloat16), given, 512), want)

    def test_a_step_makes_one_page_table_for_a_group(self):
        problems = len(ours.problems())
        with torch.no_grad():
            self.generate(made("llama", "paged|kernelwright", torch.bfloat16), prompts(2), 512)
        told = [problem["problem"].get("kv_layout", {}).get("kind") for problem in ours.problems()[problems:]]
        self.assertLessEqual(len(told), 3, "one writer, one kernel for prompts, one for steps")

    def test_refusals(self):
        model = made("llama", "paged|kernelwright", torch.bfloat16)
        with torch.no_grad(), self.assertRaisesRegex(ConfigError, 'cache: is missing; "paged|kernelwright" is for generate_batch'):
            model(torch.tensor([[1, 2, 3]], device=DEVICE))


if __name__ == "__main__":
    unittest.main(verbosity=2)
