#!/usr/bin/env python3
"""Whole steps over latent keys (MLA) behind vLLM's own layer and metadata: prompts, chunks of a cached context, decodes, and the
products around a decode. On the GPU if there is one, else on the emulator. Run by hand where vLLM's Python files and torch are
installed; it is no part of CI. PYTHONPATH and KERNELWRIGHT_LIBRARY name the module and the library, unless the package is installed.

The reference is fp64, over the latents that the cache holds and those of new tokens. Without a GPU, operators of vLLM's are
replaced by torch: the one that gathers a context, the one that merges two results, and the one that hides empty chunks.
"""
import contextlib
import json
import math
import os
import pathlib
import socket
import sys
import tempfile
import types
import unittest
import unittest.mock

import torch
import vllm
from vllm.config import CacheConfig, DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.platforms.interface import DeviceCapability

import kernelwright

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import serve

STAYS = tuple(int(part) for part in vllm.__version__.split(".")[:2]) >= (0, 26)  # a layer's matrices lie where they lay, behind a reload
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
BF16, F16 = torch.bfloat16, torch.float16
HEADS, NOPE, ROPE, V, LATENT, PAGE, PAGES = 3, 128, 64, 128, 512, 16, 64
SCALE, KEY_SCALE = (NOPE + ROPE) ** -0.5, 0.02
# Of each sequence: keys in the cache ahead of the step, new tokens. vLLM orders them so: decodes, prompts behind a context, others.
STEPS = {"new prompts": ((0, 21), (0, 5)), "contexts": ((70, 9), (5, 40), (0, 17)), "mixed": ((37, 1), (1, 1), (50, 12), (0, 7)),
         "decodes": ((37, 1), (1, 1), (63, 1))}
CHUNK = 64  # tokens that vLLM expands of contexts at a time


def setUpModule():
    global attention, latent, model, products, prompts, mla, engine, CONFIG
    from vllm.model_executor.layers.attention import mla_attention as mla

    from kernelwright.vllm import attention, latent, model, products, prompts

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "tcp://127.0.0.1:%d" % free.getsockname()[1]
    CONFIG = set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device=DEVICE)))
    CONFIG.__enter__()
    init_distributed_environment(1, 0, address, 0, backend="nccl" if HAS_GPU else "gloo")
    initialize_model_parallel(1)
    engine = kernelwright.Engine("cuda" if HAS_GPU else "emulator", hazards=not HAS_GPU)
    attention.served.use(engine)


def gather(src_cache, dst, block_table, cu_seq_lens, token_to_seq, num_tokens, kv_cache_dtype, scale, seq_starts):
    """vLLM's operator, which needs a GPU."""
    sequences = token_to_seq[:num_tokens].long()
    keys = torch.arange(num_tokens) - cu_seq_lens[sequences] + seq_starts[sequences]
    found = src_cache[block_table[sequences, keys // PAGE].long(), keys % PAGE].to(dst.dtype)
    dst[:num_tokens] = found * scale if kv_cache_dtype != "auto" else found


def merge(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None, prefill_tokens_with_context=None):
    """The same. LSEs are [heads, tokens] without gaps, as vLLM's kernel reads them."""
    assert all(lse.is_contiguous() and lse.shape == output.shape[1::-1] for lse in (prefix_lse, suffix_lse))
    top = torch.maximum(prefix_lse, suffix_lse)
    weights = [torch.exp(lse - top).double().t().unsqueeze(-1) for lse in (prefix_lse, suffix_lse)]
    merged = (prefix_output * weights[0] + suffix_output * weights[1]) / (weights[0] + weights[1])
    count = len(output) if prefill_tokens_with_context is None else prefill_tokens_with_context
    output.copy_(torch.cat([merged[:count].to(output.dtype), suffix_output[count:]]))
    if output_lse is not None:
        output_lse.copy_(top + torch.log(torch.exp(prefix_lse - top) + torch.exp(suffix_lse - top)))


def mask(lse, output, query_start_loc, context_start_loc):
    """vLLM 0.26's operator, which hides the rows of sequences that have no keys in a chunk. Ours are so already."""
    empty = torch.repeat_interleave(context_start_loc.diff() == 0, query_start_loc.diff())
    assert empty.any() and (lse[:, empty] == -math.inf).all() and not output[empty].any()


@contextlib.contextmanager
def without_a_gpu():
    """What of vLLM's step takes part without one, too."""
    if HAS_GPU:
        yield
        return
    made = torch.empty, torch.zeros
    with unittest.mock.patch.object(mla.ops, "gather_and_maybe_dequant_cache", gather), \
            unittest.mock.patch.object(mla, "merge_attn_states", merge), \
            unittest.mock.patch.object(mla, "mask_empty_context", mask, create=True), \
            unittest.mock.patch.object(torch, "empty", lambda *size, pin_memory=False, **more: made[0](*size, **more)), \
            unittest.mock.patch.object(torch, "zeros", lambda *size, pin_memory=False, **more: made[1](*size, **more)):
        yield


class Layer:
    """A layer of vLLM's with weights, its cache, and the builder of its metadata."""

    def __init__(self, dtype=BF16, cache_dtype="auto", heads=HEADS, backend=None, linear=None):
        from vllm.model_executor.layers.linear import ColumnParallelLinear

        self.dtype, self.heads, self.fp8 = dtype, heads, cache_dtype != "auto"
        config = VllmConfig(device_config=DeviceConfig(device=DEVICE), cache_config=CacheConfig(block_size=PAGE, cache_dtype=cache_dtype))
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with set_current_vllm_config(config), torch.device(DEVICE), \
                    unittest.mock.patch.object(mla, "get_mla_prefill_backend", lambda _: backend or prompts.KernelwrightPrefillBackend):
                linear = ColumnParallelLinear(LATENT, heads * (NOPE + V), bias=False, prefix="kv_b_proj")
                linear.weight.data.copy_(torch.randn(linear.weight.shape) * LATENT**-0.5)
                self.layer = mla.MLAAttention(heads, SCALE, NOPE, ROPE, V, None, LATENT, linear, config.cache_config, prefix="layer",
                                              attn_backend=latent.KernelwrightLatentBackend)
                self.layer.process_weights_after_loading(dtype)
        finally:
            torch.set_default_dtype(default)
        self.weight = linear.weight.double().cpu().view(heads, NOPE + V, LATENT)
        self.layer._k_scale.fill_(KEY_SCALE)
        model = types.SimpleNamespace(
            dtype=dtype, max_model_len=PAGE * PAGES, get_num_attention_heads=lambda _: heads, get_head_size=lambda: LATENT + ROPE,
            hf_text_config=types.SimpleNamespace(kv_lora_rank=LATENT, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=V))
        self.config = types.SimpleNamespace(
            model_config=model, parallel_config=config.parallel_config, cache_config=config.cache_config, speculative_config=None,
            attention_config=config.attention_config, scheduler_config=types.SimpleNamespace(max_num_seqs=4),
            compilation_config=types.SimpleNamespace(static_forward_context={"layer": self.layer}, cudagraph_capture_sizes=[1, 4]))
        spec = types.SimpleNamespace(block_size=PAGE)
        with without_a_gpu():
            self.builder = latent.KernelwrightLatentMetadataBuilder(spec, ["layer"], self.config, torch.device(DEVICE))
        self.builder.chunked_prefill_workspace_size = CHUNK
        stored = torch.float8_e4m3fn if self.fp8 else dtype
        self.cache = torch.full((PAGES, PAGE, LATENT + ROPE), math.nan, device=DEVICE).to(stored)
        self.cache = self.cache.view(torch.uint8) if self.fp8 else self.cache

    def values(self, slots):
        """Of the cache, as its dtype holds them."""
        rows = self.cache.view(-1, LATENT + ROPE).cpu()
        return rows.view(torch.float8_e4m3fn)[slots].double() * KEY_SCALE if self.fp8 else rows[slots].double()

    def step(self, sequences, tables, tokens):
        """The output of new tokens. tokens: (q, latents, rotary) of each sequence, of all its keys; tables: of pages."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        ends = [ahead + new for ahead, new in sequences]
        q, latents, rotary = (torch.cat([each[i][end - new:end] for each, end, (_, new) in zip(tokens, ends, sequences)]).to(DEVICE)
                              for i in range(3))
        slots = torch.cat([slots_of(table, end)[ahead:] for table, end, (ahead, _) in zip(tables, ends, sequences)]).to(DEVICE)
        self.layer.impl.do_kv_cache_update(latents, rotary, self.cache, slots, self.layer.kv_cache_dtype, self.layer._k_scale)
        starts = torch.tensor([0, *(new for _, new in sequences)]).cumsum(0).to(torch.int32)
        lengths = torch.tensor(ends, dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts.to(DEVICE), query_start_loc_cpu=starts, seq_lens=lengths.to(DEVICE), num_reqs=len(ends),
            num_actual_tokens=len(q), max_query_len=max(new for _, new in sequences), max_seq_len=max(ends),
            block_table_tensor=torch.stack(list(tables)).to(DEVICE), slot_mapping=slots, causal=True, seq_lens_cpu_upper_bound=lengths)
        with without_a_gpu(), torch.inference_mode():
            metadata = self.builder.build(0, common)
            padded = torch.cat([q, q[-1:]])  # a row of padding, as graphs have it
            out = torch.full((len(padded), self.heads * V), math.nan, dtype=self.dtype, device=DEVICE)
            self.layer.forward_impl(padded, torch.cat([latents, latents[-1:]]), torch.cat([rotary, rotary[-1:]]), self.cache, metadata, out)
        return out[:-1].view(-1, self.heads, V), metadata


def slots_of(table, keys):
    at = torch.arange(keys)
    return table[at // PAGE].long() * PAGE + at % PAGE


def tokens_of(keys, dtype, heads=HEADS):
    """The queries, latents and rotary parts of a sequence, as projections leave them: rotary parts lie in wider rows."""
    wide = torch.randn(keys, LATENT + ROPE).to(dtype)
    return torch.randn(keys, heads, NOPE + ROPE).to(dtype), wide[:, :LATENT].contiguous(), wide[:, None, LATENT:]


def reference(layer, q, keys):
    """q [queries, heads, NOPE + ROPE] of the last tokens of a sequence, keys [keys, LATENT + ROPE], in fp64."""
    expanded = torch.einsum("kl,hpl->khp", keys[:, :LATENT], layer.weight)
    whole = torch.cat([expanded[..., :NOPE], keys[:, None, LATENT:].expand(-1, layer.heads, -1)], -1)
    scores = torch.einsum("qhd,khd->hqk", q.double(), whole) * SCALE
    hidden = torch.arange(len(keys)) > torch.arange(len(keys) - len(q), len(keys))[:, None]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), expanded[..., NOPE:])


class OverLatents(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(23)

    def tearDown(self):
        if not HAS_GPU:
            self.assertEqual(engine.take_hazards(), [])

    def drawn(self, layer, sequences, order=None):
        """(tables, tokens) of sequences whose keys ahead of the step are in the cache. order: of the pages that they take."""
        order = torch.randperm(PAGES).to(torch.int32) if order is None else order
        tables = torch.zeros(len(sequences), 10, dtype=torch.int32)
        tokens = [tokens_of(ahead + new, layer.dtype, layer.heads) for ahead, new in sequences]
        for table, (ahead, new), (_, latents, rotary) in zip(tables, sequences, tokens):
            count = -(-(ahead + new) // PAGE)
            table[:count], order = order[:count], order[count:]
            if ahead:
                layer.layer.impl.do_kv_cache_update(latents[:ahead].to(DEVICE), rotary[:ahead].to(DEVICE), layer.cache,
                                                    slots_of(table, ahead).to(DEVICE), layer.layer.kv_cache_dtype, layer.layer._k_scale)
        return tables, tokens

    def check(self, layer, sequences, tolerance=2.0**-6):
        """tolerance: of the largest value. Expanded keys, probabilities, results and merged ones are rounded by 2^-9 each."""
        tables, tokens = self.drawn(layer, sequences)
        out, metadata = layer.step(sequences, tables, tokens)
        at, decodes = 0, metadata.num_decodes
        for i, (ahead, new) in enumerate(sequences):
            keys = layer.values(slots_of(tables[i], ahead + new))
            if i >= decodes:  # new tokens of a prompt see each other as they are, not as a cache of fp8 holds them
                keys[ahead:] = torch.cat([tokens[i][1], tokens[i][2].squeeze(1)], -1)[ahead:].double()
            want = reference(layer, tokens[i][0][ahead:], keys)
            off = (out[at:at + new].double().cpu() - want).abs().max().item()
            self.assertLessEqual(off, tolerance * want.abs().max().item(), f"sequence {i}")
            at += new
        return metadata


class Steps(OverLatents):
    def test_prompts_and_decodes(self):
        layer = Layer()
        self.assertIs(type(layer.layer.prefill_backend), prompts.KernelwrightPrefillBackend)
        self.assertTrue(layer.layer.impl.keeps_parts)
        before = engine.counters()["compiles"]
        for name, sequences in STEPS.items():
            with self.subTest(name):
                metadata = self.check(layer, sequences)
                context = metadata.prefill and metadata.prefill.chunked_context
                self.assertEqual(len(context.seq_tot) if context else 0, {"contexts": 3, "mixed": 1}.get(name, 0))
        self.assertEqual(engine.counters()["compiles"], before)
        self.assertTrue(engine.sealed)

    def test_f16_and_a_cache_of_fp8(self):
        self.check(Layer(F16), STEPS["mixed"], 2.0**-9)
        self.check(Layer(cache_dtype="fp8"), STEPS["contexts"])

    def test_whole_keys_of_another_decode_backend(self):
        layer = Layer()
        layer.layer.impl.keeps_parts = False
        self.check(layer, STEPS["contexts"])

    def test_prompts_of_heads_of_other_sizes(self):
        lengths, keys = (21, 5), (16, 0)
        starts, of_keys = (torch.tensor([0, *counts]).cumsum(0).to(torch.int32).to(DEVICE) for counts in (lengths, keys))
        for nope, rope, width in prompts.SIZES:
            with self.subTest(nope=nope, rope=rope, v=width):
                scale = (nope + rope) ** -0.5
                config = types.SimpleNamespace(model_config=types.SimpleNamespace(dtype=BF16))
                backend = prompts.KernelwrightPrefillBackend(2, scale, LATENT, nope, rope, width, config)
                backend.prepare_metadata(types.SimpleNamespace(query_start_loc=starts, max_query_len=21, chunked_context=types.SimpleNamespace(
                    cu_seq_lens=of_keys[None], max_seq_lens=[16])))

                def drawn(count, size):
                    return torch.randn(count, 2, size).to(BF16).to(DEVICE)
                q, k, v = (drawn(sum(lengths), size) for size in (nope + rope, nope + rope, width))
                more_k, more_v = drawn(sum(keys), nope + rope), drawn(sum(keys), width)
                with self.assertRaisesRegex(NotImplementedError, "does not quantise"):
                    backend.run_prefill_new_tokens(q, k, v, False, output_scale=starts)
                attention.served.prepare(torch.device(DEVICE).type, 0, backend.problems("bf16"))
                whole, lse = backend.run_prefill_new_tokens(q, k, v, True)
                self.assertTrue(torch.equal(whole, backend.run_prefill_new_tokens(q, k, v, False, out=torch.empty_like(whole))))
                out, out_lse = backend.run_prefill_context_chunk(0, q, more_k, more_v)
                for rows, found, of_found, some_k, some_v, causal in (
                        (slice(0, 21), whole, lse, k[:21], v[:21], True), (slice(21, 26), whole, lse, k[21:], v[21:], True),
                        (slice(0, 21), out, out_lse, more_k, more_v, False)):
                    scores = torch.einsum("qhd,khd->hqk", q[rows].double().cpu(), some_k.double().cpu()) * scale
                    hidden = torch.ones(scores.shape[1:]).triu(1).bool() & causal
                    scores = scores.masked_fill(hidden, -math.inf)
                    want = torch.einsum("hqk,khd->qhd", scores.softmax(-1), some_v.double().cpu())
                    self.assertLessEqual((found[rows].double().cpu() - want).abs().max().item(), 2.0**-7 * some_v.abs().max().item())
                    self.assertLessEqual((of_found[:, rows].double().cpu() - scores.logsumexp(-1)).abs().max().item(), 2.0**-10)
                self.assertEqual((out[21:].abs().sum().item(), set(out_lse[:, 21:].flatten().tolist())), (0, {-math.inf}))

    def rows_of(self, layer, tokens, cut, others=()):
        """The outputs of a sequence. cut: new tokens of each of its steps, beside which other sequences run."""
        found, ahead = [], 0
        order = torch.randperm(PAGES).to(torch.int32)
        table, order = order[:10], order[10:]
        for new in cut:
            tables, beside = self.drawn(layer, others, order)
            sequences = [*others, (ahead, new)]
            places = sorted(range(len(sequences)), key=lambda i: sequences[i][1] > 1)  # as vLLM orders them
            sequences = [sequences[i] for i in places]
            drawn = [([*beside, tokens][i], [*tables, table][i]) for i in places]
            out, _ = layer.step(sequences, [each for _, each in drawn], [each for each, _ in drawn])
            at = sum(count for _, count in sequences[:places.index(len(others))])
            found.append(out[at:at + new])
            ahead += new
        return torch.cat(found)

    def test_batch_invariant_results(self):
        """A token has the same bits in a whole prompt, in chunks of it and in steps of its own, beside other sequences or alone. The
        products around the attention are vLLM's, so they are computed exactly here."""
        self.enterContext(unittest.mock.patch.object(
            torch, "bmm", lambda a, b, *, out: out.copy_(torch.einsum("nij,njk->nik", a.double(), b.double()))))
        size = 150
        tokens = tokens_of(size, BF16)
        tokens[0].mul_(8)  # maxima of tiles lie far apart
        for cache_dtype, invariances in (("auto", (True, False)), ("fp8", (True,))):
            for invariant in invariances:
                with self.subTest(cache_dtype, invariant=invariant), \
                        unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": str(int(invariant))}):
                    layer = Layer(cache_dtype=cache_dtype)
                    self.assertEqual(layer.layer.impl.keeps_parts, not invariant)
                    whole = self.rows_of(layer, tokens, (size,))
                    same = [torch.equal(self.rows_of(layer, tokens, cut, others), whole)
                            for cut in ((149, 1), (70, 1, 1, 78), (1, 64, 85)) for others in ((), ((37, 1), (0, 20)))]
                    self.assertEqual(all(same), invariant, same)

    def test_rows_of_padding(self):
        """vLLM fills a graph's batch with sequences of no keys, whose rows have no slot."""
        for invariant in (False, True):
            with self.subTest(invariant=invariant), unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": str(int(invariant))}):
                layer = Layer()
                sequences = STEPS["decodes"]
                tables, tokens = self.drawn(layer, sequences)
                want, _ = layer.step(sequences, tables, tokens)
                q = torch.cat([each[0][-1:] for each in tokens] + [torch.randn(2, HEADS, NOPE + ROPE).to(BF16)]).to(DEVICE)
                starts = torch.tensor([0, 1, 2, 3, 3, 3] if invariant else range(6), dtype=torch.int32).to(DEVICE)
                decode = types.SimpleNamespace(block_table=torch.cat([tables, tables[:2] * 0]).to(DEVICE),
                                               seq_lens=torch.tensor([38, 2, 64, 0, 0], dtype=torch.int32, device=DEVICE))
                metadata = types.SimpleNamespace(
                    num_actual_tokens=5, num_decodes=5, num_prefills=0, num_decode_tokens=5, max_seq_len=64, max_query_len=1, prefill=None,
                    query_start_loc=starts, decode=decode)
                out = torch.full((5, HEADS * V), math.nan, dtype=BF16, device=DEVICE)
                with torch.inference_mode():
                    layer.layer.forward_impl(q, q, q, layer.cache, metadata, out)
                self.assertLessEqual((out[:3].view(3, HEADS, V) - want).abs().max().item(), 2.0**-7 * want.abs().max().item())
                self.assertEqual(out[3:].abs().sum().item(), 0)

    def test_invariant_steps(self):
        with unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
            layer = Layer()
            for sequences in (*STEPS.values(), ((9, 4), (0, 1))):
                metadata = self.check(layer, sequences)
                self.assertEqual((metadata.num_decodes, metadata.num_prefills), (len(sequences), 0))


class Products(OverLatents):
    """Those around a decode."""

    def near(self, found, want):
        self.assertLessEqual(((found.double().cpu() - want).abs() - 2.0**-8 * want.abs()).max().item(), 2.0**-16)

    def taken(self, **named):
        layer = Layer(**named)
        model.take_over(torch.nn.ModuleDict({"attention": layer.layer}), ("products",))
        for name in products.NAMES:
            self.assertIs(type(getattr(layer.layer, name)), products.Matrices)
        return layer

    def test_steps(self):
        for named in ({}, {"dtype": F16, "cache_dtype": "fp8"}):
            layer = self.taken(**named)
            for name in ("mixed", "decodes"):
                with self.subTest(name, **named), unittest.mock.patch.object(torch, "cat", unittest.mock.Mock(wraps=torch.cat)) as cat:
                    self.check(layer, STEPS[name])
                    self.assertIsNone(layer.layer.impl.absorbed)
                    joined = [[part.shape[-1] for part in call.args[0]] for call in cat.call_args_list]
            self.assertNotIn([LATENT, ROPE], joined, "the decode copies no latents")

    def test_each_product(self):
        layer = self.taken()
        queries = torch.randn(5, HEADS, NOPE + ROPE).to(BF16).to(DEVICE)
        x = queries[..., :NOPE].transpose(0, 1)
        out = x.new_empty(HEADS, 5, LATENT)
        self.assertIs(torch.bmm(x, layer.layer.W_UK_T, out=out), out)
        self.near(out, torch.einsum("nbp,npl->nbl", x.double().cpu(), layer.weight[:, :NOPE]))
        self.assertEqual(out.stride(), (LATENT + ROPE, HEADS * (LATENT + ROPE), 1))
        again = Layer()
        again.layer.impl = None  # another decode backend gets what vLLM allocated
        products.take(again.layer)
        out = x.new_empty(HEADS, 5, LATENT)
        torch.bmm(x, again.layer.W_UK_T, out=out)
        self.near(out, torch.einsum("nbp,npl->nbl", x.double().cpu(), again.weight[:, :NOPE]))
        self.assertTrue(out.is_contiguous())
        latents = torch.randn(5, HEADS, LATENT).to(BF16).to(DEVICE)
        out = torch.empty(5, HEADS * V, dtype=BF16, device=DEVICE)
        again.layer._v_up_proj(latents, out)
        self.near(out.view(5, HEADS, V), torch.einsum("bnl,nvl->bnv", latents.double().cpu(), again.weight[:, NOPE:]))

    def test_weights_that_are_loaded_again(self):
        layer = self.taken()
        layer.layer.kv_b_proj.weight.data.mul_(-2)  # in place
        layer.weight *= -2
        self.check(layer, STEPS["decodes"])
        layer.layer.kv_b_proj.weight = torch.nn.Parameter(layer.layer.kv_b_proj.weight.data.flip(0), requires_grad=False)
        lay = layer.layer.W_UK_T.given.data_ptr()
        layer.layer.process_weights_after_loading(BF16)
        if STAYS:
            self.assertEqual(layer.layer.W_UK_T.given.data_ptr(), lay, "a graph reads it there")
        layer.weight = layer.layer.kv_b_proj.weight.double().cpu().view(HEADS, NOPE + V, LATENT)
        self.assertIs(type(layer.layer.W_UK_T), products.Matrices)
        self.check(layer, STEPS["decodes"])

    def test_what_is_left_to_vllm(self):
        layer = Layer().layer
        given = layer.W_UK_T
        whole = torch.nn.ModuleDict({"attention": layer})
        with unittest.mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
            self.assertRegex(products.serve_products(whole)[1]["attention"], "in its own way where results are to be batch-invariant")
        def put(matrices):
            del layer.W_UK_T  # which is a parameter from vLLM 0.26 on
            layer.W_UK_T = matrices
        put(given.float())
        self.assertRegex(products.serve_products(whole)[1]["attention"], "its matrices are torch.float32")
        put(torch.as_strided(given, given.shape, (NOPE * LATENT * 2, LATENT * 2, 2)))
        self.assertRegex(products.serve_products(whole)[1]["attention"], "have contiguous rows or columns")
        del layer.W_UK_T
        self.assertRegex(products.serve_products(whole)[1]["attention"], "has no W_UK_T and W_UV")
        layer.W_UK_T = given
        with unittest.mock.patch.object(products, "MLAAttention", mla.MLAAttention.__mro__[1]):  # the layer's class is one below
            self.assertRegex(products.serve_products(whole)[1]["attention"], "vLLM's MLAAttention, which has products of its own")
        self.assertEqual(products.serve_products(whole), (["attention"], {}))
        with self.assertRaisesRegex(TypeError, "take part in torch.bmm.x, matrices, out=out. alone"):
            torch.matmul(torch.empty(HEADS, 1, NOPE), layer.W_UK_T)


class Models(OverLatents):
    """A DeepSeek-V3 of vLLM's with two dense layers. It gets its tokens in the steps of a server: prompts, a chunk behind a context
    beside decodes, and decodes. Linear layers and products are ours, too. The reference is the same model in float32, with a plain attention of torch over whole sequences."""

    SIZES = {} if HAS_GPU else {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 4,
                                "q_lora_rank": 128}
    # New tokens of each of three sequences.
    STEPS = ((21, 40, 70), (1, 1, 9), (1, 1, 1))

    def make(self, dtype):
        from vllm.config import CompilationConfig, ModelConfig
        from vllm.model_executor.model_loader.utils import initialize_model

        folder = self.enterContext(tempfile.TemporaryDirectory())
        given = serve.MODELS["deepseek-v3-cut"] | self.SIZES | {"num_hidden_layers": 2, "first_k_dense_replace": 2, "vocab_size": 512}
        with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
            json.dump(given, file)
        config = VllmConfig(model_config=ModelConfig(model=folder, skip_tokenizer_init=True, max_model_len=PAGE * PAGES, dtype=dtype),
                            device_config=DeviceConfig(device=DEVICE), cache_config=CacheConfig(block_size=PAGE),
                            compilation_config=CompilationConfig(mode=0, custom_ops=["none"]))
        default, patch = torch.get_default_dtype(), unittest.mock.patch.object
        prefill = prompts.KernelwrightPrefillBackend if dtype == BF16 else lambda **_: None
        with set_current_vllm_config(config), torch.device(DEVICE), patch(mla, "get_mla_prefill_backend", lambda _: prefill), \
                patch(mla, "get_attn_backend", lambda *_, **__: latent.KernelwrightLatentBackend):
            torch.set_default_dtype(dtype)
            try:
                made = initialize_model(vllm_config=config)
            finally:
                torch.set_default_dtype(default)
        return made, config, {name: module for name, module in config.compilation_config.static_forward_context.items()
                              if isinstance(module, mla.MLAAttention)}

    def fill(self, made, reference):
        theirs = dict(reference.named_parameters())
        for name, parameter in made.named_parameters():
            values = torch.randn(parameter.shape) * (0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5)
            parameter.data.copy_(values + (1.0 if "norm" in name else 0.0))
            theirs[name].data.copy_(parameter.data.float())

    def logits(self, made, config, ids, positions, metadata=None, slots=None):
        from vllm import ir
        from vllm.forward_context import set_forward_context

        with torch.no_grad(), set_current_vllm_config(config), set_forward_context(metadata, config, slot_mapping=slots), \
                torch.device(DEVICE), ir.ops.rms_norm.set_priority(["native"]), ir.ops.fused_add_rms_norm.set_priority(["native"]):
            return made.compute_logits(made(ids.to(DEVICE), positions.to(DEVICE))).double().cpu()

    @staticmethod
    def plain(layer, q, kv_c_normed, k_pe, output_shape=None):
        """MLAAttention.forward() over one sequence."""
        kv = layer.kv_b_proj(kv_c_normed)[0].view(len(q), layer.num_heads, -1)
        k = torch.cat([kv[..., :NOPE], k_pe.view(len(q), 1, ROPE).expand(-1, layer.num_heads, -1)], -1)
        q, k, v = (each.transpose(0, 1).float() for each in (q.view(len(q), layer.num_heads, -1), k, kv[..., NOPE:]))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=layer.scale)
        return out.transpose(0, 1).flatten(1).to(kv.dtype)

    def plainly(self, made, config, layers, sequences):
        """Logits of whole sequences."""
        for layer in layers.values():
            layer.forward = types.MethodType(self.plain, layer)
        found = [self.logits(made, config, ids, torch.arange(len(ids))) for ids in sequences]
        for layer in layers.values():
            del layer.forward
        return found

    def in_steps(self, made, config, layers, sequences):
        """The same with our attention, in steps."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        builder = latent.KernelwrightLatentMetadataBuilder(types.SimpleNamespace(block_size=PAGE), list(layers), config,
                                                           torch.device(DEVICE))
        builder.chunked_prefill_workspace_size = CHUNK
        for layer in layers.values():
            layer.kv_cache = torch.full((PAGES, PAGE, LATENT + ROPE), math.nan, dtype=BF16, device=DEVICE)
        tables = torch.randperm(PAGES)[:30].view(3, 10).to(torch.int32)
        found, ahead = [[] for _ in sequences], [0] * len(sequences)
        for new in self.STEPS:
            ends = [a + n for a, n in zip(ahead, new)]
            starts, lengths = torch.tensor([0, *new]).cumsum(0).to(torch.int32), torch.tensor(ends, dtype=torch.int32)
            slots = torch.cat([slots_of(table, end)[a:] for table, end, a in zip(tables, ends, ahead)]).to(DEVICE)
            common = CommonAttentionMetadata(
                query_start_loc=starts.to(DEVICE), query_start_loc_cpu=starts, seq_lens=lengths.to(DEVICE), num_reqs=len(ends),
                num_actual_tokens=sum(new), max_query_len=max(new), max_seq_len=max(ends), block_table_tensor=tables.to(DEVICE),
                slot_mapping=slots, causal=True, seq_lens_cpu_upper_bound=lengths)
            metadata = builder.build(0, common)
            self.assertEqual((metadata.num_decodes, metadata.num_prefills), {21: (0, 3), 1: (3 - (new[2] > 1), int(new[2] > 1))}[new[0]])
            logits = self.logits(made, config, torch.cat([ids[a:b] for ids, a, b in zip(sequences, ahead, ends)]),
                                 torch.cat([torch.arange(a, b) for a, b in zip(ahead, ends)]), dict.fromkeys(layers, metadata),
                                 dict.fromkeys(layers, slots))
            for rows, part in zip(found, logits.split(list(new))):
                rows.append(part)
            ahead = ends
        return [torch.cat(rows) for rows in found]

    def test_deepseek(self):
        made, config, layers = self.make(BF16)
        reference, *of_reference = self.make(torch.float32)
        self.fill(made, reference)
        sequences = [torch.arange(sum(new)) * step % 512 for new, step in zip(zip(*self.STEPS), (37, 101, 5))]
        want = torch.cat(self.plainly(reference, *of_reference, sequences))
        own = (torch.cat(self.plainly(made, config, layers, sequences)) - want).norm() / want.norm()
        for layer in layers.values():
            layer.process_weights_after_loading(BF16)
        with self.assertLogs("vllm.kernelwright", "INFO") as log:
            model.take_over(made, ("linears", "products"))
        self.assertIn("serves the products of 2 layers over latent keys", " ".join(log.output))
        with without_a_gpu():
            found = self.in_steps(made, config, layers, sequences)
        self.assertLess((torch.cat(found) - want).norm() / want.norm(), 1.1 * own)


if __name__ == "__main__":
    print("vLLM", vllm.__version__, "on", torch.cuda.get_device_name() if HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
