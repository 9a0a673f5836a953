#!/usr/bin/env python3
"""SGLang's own model runner, with models of two layers whose attention is ours: on the GPU if there is one, else small ones on the
emulator. Run by hand where sglang_test.py is run; it is no part of CI.

SGLang chooses the backend by --attention-backend, loads the model, makes its pools, schedules batches, allocates slots, and computes
logits. Steps are prompts, a chunk of a prompt behind cached keys, and decodes. The reference is the same runner in float32 with
SGLang's backend "torch_native" and the same weights. That one does not take prompts of latent keys (MLA), so these have a plain
attention that is here. A model passes if its logits are as near to float32 as those of that backend in bfloat16, within a tenth.

Without a GPU, SGLang's kernels in Triton that allocate slots and list those of chunks are replaced by SGLang's own loop and by torch.
So is its operator that merges chunks. What it imports from vLLM for rotations is nothing here: it computes those in torch.
"""
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock
from array import array

import sglang_batches as shared
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import serve

if not shared.HAS_GPU:
    for name in ("vllm", "vllm._custom_ops"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm._custom_ops"].rotary_embedding = None
import sglang
from sglang.benchmark import one_batch
from sglang.srt.distributed import parallel_state
from sglang.srt.eplb.expert_location import set_global_expert_location_metadata
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache import allocation
from sglang.srt.mem_cache.allocator import paged
from sglang.srt.model_executor import forward_batch_deepseek_mha_mixin as of_chunks
from sglang.srt.model_executor import forward_batch_info
from sglang.srt.models.deepseek_common.attention_forward_methods import forward_mha
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs, ServerArgs, set_global_server_args_for_scheduler

import kernelwright
import kernelwright.sglang
from kernelwright.sglang import attention, latent

WORDS = 512
SMALL = {} if shared.HAS_GPU else {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 2,
                                   "head_dim": 64}
# Of each prompt: tokens of its first step, and of the second, behind them.
PROMPTS, DECODES = ((21, 9), (5, 40), (40, 1)), 3


class Plain:
    """In place of a kernel in Triton: kernel[grid](...) calls a function."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return self.function


def alloc_extend(prefix_lens, seq_lens, last_loc, free_pages, out, _, page):
    paged.alloc_extend_naive(prefix_lens, seq_lens, last_loc, free_pages, out, page, "cpu")


def alloc_decode(seq_lens, last_loc, free_pages, out, _, page):
    begins = seq_lens % page == 1 % page
    out.copy_(last_loc + 1)
    out[begins] = free_pages[:int(begins.sum())] * page


def chunk_indices(req_to_token, rows, starts, lengths, offsets, out, _):
    for row, start, length, offset in zip(rows.tolist(), starts.tolist(), lengths.tolist(), offsets.tolist()):
        out[offset:offset + length] = req_to_token[row, start:start + length]


def merge_state(output, lse, other, other_lse, merged, merged_lse):
    """SGLang's operator, which needs a GPU. LSEs are [tokens, heads]."""
    torch.logaddexp(lse, other_lse, out=merged_lse)
    weights = [torch.exp(each - merged_lse).unsqueeze(-1) for each in (lse, other_lse)]
    merged.copy_(output * weights[0] + other * weights[1])


class PlainLatents(AttentionBackend):
    """Attention of models with latent keys in fp64, as SGLang calls it: absorbed over the cache, or of keys and values of all heads."""

    def __init__(self, runner):
        super().__init__()
        self.token_to_kv_pool, self.req_to_token_pool = runner.token_to_kv_pool, runner.req_to_token_pool

    def init_forward_metadata(self, forward_batch):
        pass

    def slots_of(self, row, count):
        return self.req_to_token_pool.req_to_token[row, :count].long()

    def attend(self, q, k, v, layer, batch, save_kv_cache=True, **_):
        absorbed = layer.tp_k_head_num == 1
        if absorbed and save_kv_cache:
            self.token_to_kv_pool.set_kv_buffer(layer, batch.out_cache_loc, k, v)
        rows, found, at = q.view(-1, layer.tp_q_head_num, layer.head_dim), [], 0
        counts = [1] * batch.batch_size if batch.forward_mode.is_decode() else batch.extend_seq_lens_cpu
        for i, new in enumerate(counts):
            keys, values = k[at:at + new], v[at:at + new]
            if absorbed:
                keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)[self.slots_of(batch.req_pool_indices[i], batch.seq_lens[i])]
                values = keys[..., :layer.v_head_dim]
            found.append(shared.reference(rows[at:at + new], keys, values, layer.scaling))
            at += new
        return torch.cat(found).flatten(1).to(q)

    forward_decode = forward_extend = attend


def setUpModule():
    global engine
    patch = unittest.mock.patch.object
    if not shared.HAS_GPU:
        for replaced in (patch(paged, "alloc_extend_kernel", Plain(alloc_extend)), patch(paged, "alloc_decode_kernel", Plain(alloc_decode)),
                         patch(of_chunks, "create_chunked_prefix_cache_kv_indices", Plain(chunk_indices)),
                         patch(allocation, "support_triton", lambda _: False), patch(forward_batch_info, "support_triton", lambda _: False)):
            replaced.start()
            unittest.addModuleCleanup(replaced.stop)
    kernelwright.sglang.register()
    register_attention_backend("plain")(PlainLatents)
    engine = kernelwright.Engine("cuda" if shared.HAS_GPU else "emulator", hazards=not shared.HAS_GPU)
    attention.served.use(engine)


class Models(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(29)

    def make(self, name, backend, dtype, **more):
        """A runner of SGLang's, as its benchmark of one batch makes it. Weights are random."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
            json.dump(serve.MODELS[name] | SMALL | {"num_hidden_layers": 2, "vocab_size": WORDS} | more.pop("config", {}), file)
        arguments = ServerArgs(**dict(
            model_path=folder, device=shared.DEVICE, dtype=dtype, load_format="dummy", attention_backend=backend, page_size=shared.PAGE,
            skip_tokenizer_init=True, max_total_tokens=2048, max_running_requests=8, context_length=256, disable_cuda_graph=True,
            disable_radix_cache=True, mem_fraction_static=0.5) | more)
        set_global_server_args_for_scheduler(arguments)
        parallel_state.destroy_model_parallel()  # those of the runner before
        parallel_state.destroy_distributed_environment()
        set_global_expert_location_metadata(None, allow_overwrite=True)
        with unittest.mock.patch.object(one_batch, "get_tokenizer", lambda *_, **__: None):
            return one_batch.load_model(arguments, PortArgs.init_new(arguments), 0, 0)[0]

    def fill(self, runner, weights):
        for name, parameter in runner.torch_runner.model.named_parameters():
            if name not in weights:
                values = torch.randn(parameter.shape) * (0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5)
                weights[name] = (values + (1.0 if "norm" in name else 0.0)).to(torch.bfloat16)
            parameter.data.copy_(weights[name])
        if hasattr(runner.torch_runner.model, "post_load_weights"):  # which makes the matrices that absorb queries
            runner.torch_runner.model.post_load_weights()

    def logits(self, runner):
        """Of the last token of each prompt in each step, whatever the runner would sample."""
        pool, requests, found = runner.torch_runner.req_to_token_pool, [], []
        words = [[(i + 3) * 37 * (j + 1) % WORDS for j in range(sum(cut))] for i, cut in enumerate(PROMPTS)]
        for i, (first, _) in enumerate(PROMPTS):
            request = Req(rid=str(i), origin_input_text="", origin_input_ids=array("q", words[i][:first]),
                          sampling_params=SamplingParams(temperature=0, max_new_tokens=DECODES + 1))
            request.full_untruncated_fill_ids, request.logprob_start_len = request.origin_input_ids, -1
            request.set_extend_range(0, first)
            requests.append(request)
        found.append(runner.extend(requests)[1])
        for request, all_words, (first, _) in zip(requests, words, PROMPTS):
            request.full_untruncated_fill_ids.extend(all_words[first:])
            request.prefix_indices = pool.req_to_token[request.req_pool_idx, :first].to(request.prefix_indices.dtype)
            request.set_extend_range(first, len(all_words))
        _, made, batch = runner.extend(requests)
        found.append(made)
        for i in range(DECODES):
            found.append(runner.decode(torch.tensor([i + 1, i + 7, i + 99], device=shared.DEVICE), batch)[1])
        return torch.cat(found).double().cpu()

    def check(self, name, plain="torch_native", ours=attention.KernelwrightAttnBackend, **more):
        weights, found = {}, {}
        for backend, dtype in ((plain, "float32"), (plain, "bfloat16"), ("kernelwright", "bfloat16")):
            runner = self.make(name, backend, dtype, **dict(more))
            self.fill(runner, weights)
            before = engine.counters()
            found[backend, dtype] = self.logits(runner)
        self.assertIs(type(runner.torch_runner.attn_backend), ours)
        self.assertTrue(engine.sealed)
        counted = "compiles", "sealed_misses"
        self.assertEqual([engine.counters()[each] for each in counted], [before[each] for each in counted])
        want, *others = found.values()
        own, off = ((each - want).norm() / want.norm() for each in others)
        self.assertGreater(own, 0)
        self.assertLess(off, 1.1 * own)
        if not shared.HAS_GPU:
            self.assertEqual(engine.take_hazards(), [])

    def test_llama(self):
        self.check("llama-3-8b")

    def test_qwen3(self):
        self.check("qwen3-8b")

    @unittest.skipIf(sglang.__version__.startswith("0.5.16"), "SGLang 0.5.16 calls all of Gemma3 bidirectional, and ours refuses it")
    def test_gemma3(self):
        self.check("gemma-3-12b")

    def test_deepseek(self):
        small = {} if shared.HAS_GPU else {"num_key_value_heads": 4, "q_lora_rank": 128}
        dense = {"config": {"first_k_dense_replace": 2} | small}
        self.check("deepseek-v3-cut", "plain", latent.KernelwrightLatentAttnBackend, **dense)
        merges = unittest.mock.Mock(side_effect=merge_state)
        given = () if shared.HAS_GPU else (unittest.mock.patch.object(forward_mha, "merge_state_v2", merges, create=True),)
        for patch in (*given, unittest.mock.patch.dict(os.environ, {"SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD": "0",
                                                                    "SGLANG_MAX_KV_CHUNK_CAPACITY": "48"})):
            self.enterContext(patch)
        self.check("deepseek-v3-cut", "plain", latent.KernelwrightLatentAttnBackend, **dense)
        # Of each of two layers: 40 keys of a sequence in chunks of 48 / 3 tokens.
        self.assertEqual(merges.call_count, 0 if shared.HAS_GPU else 2 * 3)


if __name__ == "__main__":
    print("SGLang", sglang.__version__, "on", torch.cuda.get_device_name() if shared.HAS_GPU else "the emulator")
    unittest.main(verbosity=2)
