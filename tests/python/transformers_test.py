#!/usr/bin/env python3
"""kernelwright.transformers with tiny models of random weights, against the same models in fp32: on the GPU if there is one,
else on the emulator.

Run by hand, with Python or pytest, where torch and transformers are installed: it is no part of CI. PYTHONPATH and
KERNELWRIGHT_LIBRARY name the module and the library, unless the package is installed.

A model's bf16 logits differ from fp32's in any case. The gate is that they differ by at most 1.1 times what torch's own
attention in bf16 differs by, at each layer too. Tokens are given, not generated: the next token of a model with random
weights follows from rounding.
"""
import copy
import os
import subprocess
import sys
import unittest
import warnings

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, CompileConfig, StaticCache

import kernelwright
import kernelwright.transformers as ours
from kernelwright import ConfigError, _attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The emulator looks for missing synchronisation too. Without KERNELWRIGHT_TEST_ARCH it is an H100.
EMULATED = dict(backend="emulator", emulator_arch=os.environ.get("KERNELWRIGHT_TEST_ARCH", "sm_90a"), hazards=True)
ENGINE = kernelwright.Engine(**EMULATED if DEVICE == "cpu" else {"backend": "cuda"})
GATE = 1.1
TOKENS, PROMPT, WINDOW, PADDING = 24, 16, 6, 7

# Scores of standard deviation 1 or so, so that a wrong mask changes the logits by far more than rounding does.
COMMON = dict(vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=64, max_position_embeddings=256, initializer_range=0.1, pad_token_id=0,
              eos_token_id=None, bos_token_id=None)
KINDS = ["sliding_attention", "full_attention"]
MODELS = {
    "llama": {}, "qwen3": {}, "mistral": dict(sliding_window=WINDOW),
    "gemma2": dict(sliding_window=WINDOW, attn_logit_softcapping=2.0, query_pre_attn_scalar=64, layer_types=KINDS),
    "gemma3_text": dict(sliding_window=WINDOW, query_pre_attn_scalar=64, layer_types=KINDS),
    "gpt_oss": dict(sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=4, layer_types=KINDS),
    "phi3": dict(num_attention_heads=2, num_key_value_heads=2), "phi": dict(num_attention_heads=2, num_key_value_heads=2),
}
SINKS_OR_SOFTCAP = ("gemma2", "gpt_oss")  # torch's sdpa has neither, so eager attention is what ours is compared with


def made(kind, implementation, dtype, **more):
    """A model of one kind. All of a kind have the same weights up to rounding."""
    config = AutoConfig.for_model(kind, **COMMON | MODELS[kind] | more)
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model = copy.deepcopy(model).to(device=DEVICE, dtype=dtype)
    model.set_attn_implementation(implementation)
    return model


def tokens(rows=2, count=TOKENS):
    return torch.randint(1, 128, (rows, count), generator=torch.Generator().manual_seed(3)).to(DEVICE)


def left_padding():
    mask = torch.ones(2, TOKENS, dtype=torch.long, device=DEVICE)
    mask[0, :PADDING] = 0
    return mask


def all_at_once(model, ids, mask=None, **more):
    """Hidden states of each layer, and the logits, of all tokens."""
    found = model(ids, attention_mask=mask, output_hidden_states=True, use_cache=False, **more)
    return [*found.hidden_states, found.logits]


def step_by_step(cache):
    """A function like all_at_once() with a cache: the prompt, then three tokens, then one at a time."""
    def run(model, ids, mask=None):
        made, cuts, parts = cache(model), [0, PROMPT, PROMPT + 3, *range(PROMPT + 4, TOKENS + 1)], []
        for begin, end in zip(cuts, cuts[1:]):
            found = model(ids[:, begin:end], attention_mask=None if mask is None else mask[:, :end], past_key_values=made,
                          use_cache=True, output_hidden_states=True)
            parts.append([*found.hidden_states, found.logits])
        return [torch.cat(part, 1) for part in zip(*parts)]
    return run



def dynamic(model):
    return transformers.DynamicCache(config=model.config)


def static(model):
    return StaticCache(config=model.config, max_cache_len=TOKENS + 9)


def errors(found, truth, seen=None):
    """The relative rms of each layer's error."""
    def rms(x):
        x = x.double() if seen is None else x.double()[seen]
        return x.square().mean().sqrt().item()
    return [rms(a.float() - b.float()) / rms(b) for a, b in zip(found, truth)]


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ours.register(ENGINE)

    def setUp(self):
        self.enterContext(torch.no_grad())
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("error")  # what torch would serve is a failure here
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        self.addCleanup(lambda: self.assertEqual(ENGINE.take_hazards(), []))

    def compared(self, kind, run, mask=None, seen=None, truth_run=None, **more):
        """Errors of ours and of torch's, for each layer."""
        ids, plain = tokens(), "eager" if kind in SINKS_OR_SOFTCAP else "sdpa"
        truth = (truth_run or all_at_once)(made(kind, "eager", torch.float32), ids, mask, **more)
        found = {name: run(made(kind, name, torch.bfloat16), ids, mask, **more) for name in ("kernelwright", plain)}
        return errors(found["kernelwright"], truth, seen), errors(found[plain], truth, seen)

    def assert_gate(self, kind, run, mask=None, **more):
        seen = None if mask is None else mask.bool()
        for layer, (mine, other) in enumerate(zip(*self.compared(kind, run, mask, seen, **more))):
            self.assertLessEqual(mine, GATE * other, f"{kind}, layer {layer}")


class Models(Case):
    def test_all_tokens_at_once(self):
        for kind in MODELS:
            with self.subTest(kind):
                self.assert_gate(kind, all_at_once)

    def test_left_padding(self):
        for kind in MODELS:
            with self.subTest(kind):
                self.assert_gate(kind, all_at_once, left_padding())

    def test_steps_with_a_cache(self):
        for kind in MODELS:
            for cache in (dynamic, static):
                for mask in (None, left_padding()):
                    with self.subTest(kind, cache=cache.__name__, padded=mask is not None):
                        self.assert_gate(kind, step_by_step(cache), mask)

    def test_packed_sequences(self):
        """Offsets that the caller gives, and positions that begin anew."""
        cuts = [0, 5, 6, 17, TOKENS]
        positions = torch.cat([torch.arange(b - a) for a, b in zip(cuts, cuts[1:])])[None].to(DEVICE)
        offsets = torch.tensor(cuts, dtype=torch.int32, device=DEVICE)
        packing = dict(cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, max_length_q=11, max_length_k=11)
        for kind in ("llama", "mistral", "gemma2", "gpt_oss"):
            truth = made(kind, "eager", torch.float32)
            ids = tokens(1)
            want = torch.cat([truth(ids[:, a:b]).logits for a, b in zip(cuts, cuts[1:])], 1)
            plain = made(kind, "eager", torch.bfloat16)
            other = torch.cat([plain(ids[:, a:b]).logits for a, b in zip(cuts, cuts[1:])], 1)
            for more in (packing, {}) if kind != "gpt_oss" else (packing,):  # which makes its masks without positions
                with self.subTest(kind, offsets=bool(more)):
                    model = made(kind, "kernelwright", torch.bfloat16)
                    found = model(ids, position_ids=positions, use_cache=False, **more).logits
                    self.assertLessEqual(errors([found], [want])[0], GATE * errors([other], [want])[0])

    def test_rows_of_a_batch_are_packed_apart(self):
        positions = torch.stack([torch.cat([torch.arange(9), torch.arange(TOKENS - 9)]), torch.arange(TOKENS)]).to(DEVICE)
        mine, other = self.compared("llama", all_at_once, position_ids=positions)
        self.assertLessEqual(mine[-1], GATE * other[-1])

    def test_right_padding_of_a_prompt(self):
        mask = torch.ones(2, TOKENS, dtype=torch.long, device=DEVICE)
        mask[:, -3:], mask[1, 5:] = 0, 0
        for kind in ("llama", "gemma3_text"):
            with self.subTest(kind):
                self.assert_gate(kind, all_at_once, mask)


class Opposites(Case):
    """What a wrong mask does is seen by the gate."""

    def assert_fails(self, kind, run, mask=None):
        mine, other = self.compared(kind, run, mask, None if mask is None else mask.bool())
        self.assertGreater(mine[-1], 3 * GATE * other[-1])

    def swapped(self, name, function):
        held = getattr(ours, name)
        setattr(ours, name, function)
        self.addCleanup(setattr, ours, name, held)

    def test_without_starts_the_padded_case_fails(self):
        held = ours.attend
        self.swapped("attend", lambda problem, *tensors, kv_starts=None, **named: held(problem, *tensors, **named))
        self.assert_fails("llama", all_at_once, left_padding())
        self.assert_fails("llama", step_by_step(dynamic), left_padding())

    def test_without_lengths_the_static_case_fails(self):
        held = ours.attend
        self.swapped("attend", lambda problem, *tensors, kv_lengths=None, **named: held(problem, *tensors, **named))
        self.assert_fails("llama", step_by_step(static))

    def test_without_window_softcap_or_sinks_models_fail(self):
        for kind, field in (("mistral", "sliding_window"), ("gemma2", "softcap"), ("gpt_oss", "s_aux")):
            with self.subTest(kind):
                held = ours.attention
                transformers.AttentionInterface.register(
                    "kernelwright", lambda *tensors, without=field, **named: held(*tensors, **named | {without: None}))
                self.addCleanup(ours.register)
                mine, other = self.compared(kind, all_at_once)
                self.assertGreater(mine[-1], 1.5 * GATE * other[-1])


class Generation(Case):
    def generate(self, model, mask, **more):
        return model.generate(tokens(), attention_mask=mask, max_new_tokens=20, min_new_tokens=20, do_sample=False,
                              disable_compile=True, **more)

    def test_a_generation_needs_a_kernel_for_the_prompt_and_one_for_steps(self):
        for kind, layers in (("llama", 1), ("gemma2", 2), ("gpt_oss", 2)):
            for cache in ({}, {"cache_implementation": "static"}):
                with self.subTest(kind, **cache):
                    engine = kernelwright.Engine(**EMULATED if DEVICE == "cpu" else {"backend": "cuda"})
                    ours.register(engine)
                    self.addCleanup(ours.register, ENGINE)
                    model = made(kind, "kernelwright", torch.bfloat16)
                    self.generate(model, left_padding(), **cache)
                    self.assertEqual(len(ours.problems()), 2 * layers, ours.problems())
                    prepared = engine.latencies()["prepare"]["count"]
                    self.generate(model, left_padding().roll(1, 0), **cache)
                    self.assertEqual(engine.latencies()["prepare"]["count"], prepared)

    def test_problems_are_those_that_prepare_takes(self):
        self.generate(made("gpt_oss", "kernelwright", torch.bfloat16), left_padding())
        for config in ours.problems():
            ENGINE.prepare(config)

    def test_static_and_dynamic_caches_generate_the_same(self):
        model = made("gemma3_text", "kernelwright", torch.bfloat16)
        self.assertTrue(torch.equal(self.generate(model, left_padding()),
                                    self.generate(model, left_padding(), cache_implementation="static")))


class Compiled(Case):
    def test_a_step_compiles_as_one_graph_and_has_the_eager_bits(self):
        model, ids = made("gemma2", "kernelwright", torch.bfloat16), tokens()
        cache, mask = static(model), left_padding()
        model(ids[:, :PROMPT], attention_mask=mask[:, :PROMPT], past_key_values=cache)

        def step(model, ids, masks, cache):
            return model(ids, attention_mask=masks, past_key_values=cache, position_ids=torch.full_like(ids, PROMPT)).logits
        masks = transformers.masking_utils.create_masks_for_generate(
            model.config, torch.empty(2, 1, 0, dtype=torch.bfloat16, device=DEVICE), mask[:, :PROMPT + 1], cache)
        want = step(model, ids[:, PROMPT:PROMPT + 1], masks, copy.deepcopy(cache))
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(model, ids[:, PROMPT:PROMPT + 1], masks, cache), want))
        torch._dynamo.reset()


    def test_generate_compiles_its_steps_and_has_the_eager_tokens(self):
        given = dict(attention_mask=left_padding(), max_new_tokens=8, min_new_tokens=8, do_sample=False,
                     cache_implementation="static")
        how = CompileConfig(backend="aot_eager", mode=None, fullgraph=True)
        how._compile_all_devices = True
        for kind in ("llama", "mistral", "gemma3_text"):
            with self.subTest(kind), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch.compile
                model = made(kind, "kernelwright", torch.bfloat16)
                want = model.generate(tokens(), disable_compile=True, **given)
                ours._warned.clear()
                self.assertTrue(torch.equal(model.generate(tokens(), compile_config=how, **given), want))
                self.assertEqual(ours._warned, set())
        torch._dynamo.reset()


class Refusals(Case):
    def test_gradients_and_dropout_are_refused_with_the_remedy(self):
        model = made("llama", "kernelwright", torch.bfloat16, attention_dropout=0.1)
        with torch.enable_grad(), self.assertRaisesRegex(ConfigError, r"query: requires grad.*torch.no_grad\(\)"):
            model(tokens())
        with self.assertRaisesRegex(ConfigError, r"dropout: is 0.1, and kernelwright has none; call model.eval\(\)"):
            model.train()(tokens())

    def test_tensors_of_the_cpu_need_an_engine_that_emulates(self):
        with self.assertRaisesRegex(ConfigError, r'lies on a device of type "cpu"; move it to a GPU, or give .*Engine\("emulator"\)'):
            _attention.Kernels().engine("cpu")

    def test_names_that_transformers_takes_for_its_own(self):
        with self.assertRaisesRegex(ConfigError, 'leave out "flash"'):
            ours.register(name="kernelwright_flash")

    def test_what_no_kernel_takes_is_served_by_torch_with_one_warning(self):
        ours._warned.clear()
        mask = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool, device=DEVICE).tril().expand(2, -1, -1, -1).clone()
        mask[:, :, 9, 3] = False
        holes = left_padding()
        holes[1, 9] = 0
        for kind in ("llama", "gemma2"):
            for given, more, words in ((mask, {}, "the mask has 4 dimensions"), (holes, {}, "the mask has 4 dimensions"),
                                       (left_padding(), {"head_dim": 36}, "36 ")):
                if given.dim() == 2 or kind == "llama":  # eager attention of gemma2 takes no mask of bools
                    with self.subTest(kind, words=words), warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        model = made(kind, "kernelwright", torch.bfloat16, **more)
                        other = made(kind, "eager", torch.bfloat16, **more)
                        truth = made(kind, "eager", torch.float32, **more)
                        seen = given.bool() if given.dim() == 2 else None
                        shown = given if given.dim() == 2 else torch.where(given, 0., -1e30)
                        want = truth(tokens(), attention_mask=shown).logits
                        found = errors([model(tokens(), attention_mask=given).logits], [want], seen)
                        plain = errors([other(tokens(), attention_mask=shown.bfloat16() if seen is None else shown).logits],
                                       [want], seen)
                        self.assertLessEqual(found[0], GATE * plain[0])
                        told = [str(each.message) for each in caught if "leaves this attention" in str(each.message)]
                        self.assertTrue(all(words in each for each in told))
                        self.assertEqual(len(set(told)), len(told))
        self.assertEqual(len(ours._warned), 2, ours._warned)

    def test_float32_is_left_to_torch(self):
        ours._warned.clear()
        model, truth = made("llama", "kernelwright", torch.float32), made("llama", "eager", torch.float32)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = model(tokens(), attention_mask=left_padding()).logits
        self.assertIn("tensors are torch.float32", str(caught[0].message))
        seen = left_padding().bool()
        self.assertLess(errors([found], [truth(tokens(), attention_mask=left_padding()).logits], seen)[0], 1e-4)


class Imports(unittest.TestCase):
    def test_kernelwright_imports_neither_torch_nor_transformers(self):
        code = "import sys, kernelwright; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
