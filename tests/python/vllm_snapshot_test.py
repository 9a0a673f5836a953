#!/usr/bin/env python3
"""python/kernelwright/vllm against what it relies on in each vLLM that it serves: tests/golden/vllm. Needs neither vLLM nor torch.

Where a vLLM has moved, this test names the method. KERNELWRIGHT_VLLM_TREES, "0.24.0=FOLDER ...", names folders with a vLLM's
Python files: then the snapshots are also compared with these.
"""
import ast
import importlib.util
import json
import os
import pathlib
import sys
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "vllm"
PLUGIN = ROOT / "python" / "kernelwright" / "vllm"
BACKEND = "vllm/v1/attention/backend.py"


def module_of(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script():
    sys.path.insert(0, str(ROOT / "scripts"))
    return module_of(ROOT / "scripts" / "snapshot_vllm.py")


def snapshots(folder):
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def parsed(file):
    return ast.parse((PLUGIN / file).read_text(encoding="utf-8"))


def constant(name):
    """Of the plug-in's __init__.py."""
    return next(ast.literal_eval(node.value) for node in parsed("__init__.py").body
                if isinstance(node, ast.Assign) and name in (target.id for target in node.targets))


SNAPSHOTS, LATENTS, LAYERS = snapshots(GOLDEN), snapshots(GOLDEN / "latents"), snapshots(GOLDEN / "layers")
OURS = {node.name: node for file in ("attention.py", "latent.py", "prompts.py", "linears.py", "experts.py") for node in parsed(file).body
        if isinstance(node, ast.ClassDef)}
BASES = {"KernelwrightBackend": "AttentionBackend", "KernelwrightMetadataBuilder": "AttentionMetadataBuilder",
         "KernelwrightImpl": "AttentionImpl"}
# do_kv_cache_update() is called by its name, and no class has it. The rest is of the class above AttentionImpl.
ELSEWHERE = {"do_kv_cache_update", "process_weights_after_loading"}

# Ours does without them before.
LATER = {"MLADimensions": "0.24", "MLACommonBaseImpl": "0.26", "register_mla_prefill_backend": "0.23", "QuantizedActivation": "0.24",
         "as_quantized_activation": "0.24", "RoutedExperts": "0.24"}
LATER_METHODS = {"clone": "0.25", "supports_sliding_window": "0.26"}  # which nothing calls before


class Snapshots(unittest.TestCase):
    def test_every_version_has_one(self):
        for versions, found in (("VERSIONS", SNAPSHOTS), ("LATENT_VERSIONS", LATENTS), ("MODEL_VERSIONS", LAYERS)):
            self.assertEqual(sorted(constant(versions)), sorted(version.rpartition(".")[0] for version in found))

    @unittest.skipIf(sys.version_info < (3, 11), "this Python reads no TOML")
    def test_the_wheel_names_the_plug_in(self):
        import tomllib
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        self.assertEqual(project["entry-points"]["vllm.general_plugins"], {"kernelwright": "kernelwright.vllm:register"})

    def test_all_names_are_there(self):
        for version, files in (*SNAPSHOTS.items(), *LATENTS.items(), *LAYERS.items()):
            for file, names in files.items():
                for name, found in names.items():
                    if version >= LATER.get(name, ""):
                        self.assertIsNotNone(found, f"vLLM {version} has no {name} in {file}")

    def test_methods_take_what_vllm_gives(self):
        checked = 0
        for version, files in SNAPSHOTS.items():
            for ours, theirs in BASES.items():
                methods = files[BACKEND][theirs]["methods"]
                for node in OURS[ours].body:
                    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") and node.name != "__init__":
                        continue
                    if node.args.vararg or node.name in ELSEWHERE or node.name in ("problems",):
                        continue
                    if version < LATER_METHODS.get(node.name, ""):
                        continue
                    with self.subTest(version=version, method=f"{theirs}.{node.name}"):
                        self.assertIn(node.name, methods)
                        found, wanted = script().parameters(node), methods[node.name]
                        self.assertEqual(found[:len(wanted)], wanted)
                        added = len(found) - len(wanted)  # vLLM does not give these to all layers
                        self.assertLessEqual(added, len(node.args.defaults))
                    checked += 1
        self.assertGreater(checked, 30)

    def test_methods_of_latents_take_what_vllm_gives(self):
        mla, prefill = script().MLA, script().PREFILL
        bases = {"KernelwrightLatentBackend": ((mla, "MLACommonBackend"), (BACKEND, "AttentionBackend")),
                 "KernelwrightLatentMetadataBuilder": ((mla, "MLACommonMetadataBuilder"),),
                 "KernelwrightLatentImpl": ((mla, "MLACommonImpl"), (mla, "MLACommonBaseImpl"), (BACKEND, "MLAAttentionImpl")),
                 "KernelwrightPrefillBackend": ((prefill + "base.py", "MLAPrefillBackend"),)}
        own, checked = ("problem", "problems", "write_problem"), 0  # no method of vLLM's
        overridden = ("__init__", "_concat_k_nope_k_pe")
        for version, files in LATENTS.items():
            for ours, theirs in bases.items():
                methods = {name: of for file, base in reversed(theirs) if files[file][base] for name, of in files[file][base]["methods"].items()}
                for node in OURS[ours].body:
                    if not isinstance(node, ast.FunctionDef) or node.name in own or node.args.vararg:
                        continue
                    if version < LATER_METHODS.get(node.name, ""):
                        continue
                    if node.name.startswith("_") and node.name not in overridden:
                        continue
                    with self.subTest(version=version, method=f"{ours}.{node.name}"):
                        self.assertIn(node.name, methods)
                        found, wanted = script().parameters(node), methods[node.name]
                        added = len(found) - len(wanted)  # an earlier vLLM does not give these
                        self.assertEqual(found[:len(wanted)], wanted[:len(found)])
                        self.assertLessEqual(added, len(node.args.defaults))
                    checked += 1
            for name, wanted in (("MLACommonMetadata", {"num_decodes", "max_seq_len", "max_query_len", "query_start_loc", "decode"}),
                                 ("MLACommonDecodeMetadata", {"block_table", "seq_lens"}),
                                 ("MLACommonPrefillMetadata", {"query_start_loc", "max_query_len", "chunked_context"}),
                                 ("QueryLenSupport", {"UNIFORM", "VARLEN"}),
                                 ("MLACommonMetadataBuilder", {"query_len_support", "reorder_batch_threshold"})):
                self.assertLessEqual(wanted, set(files[mla][name]["fields"]), name)
            if version >= LATER["register_mla_prefill_backend"]:
                self.assertIn("CUSTOM", files[prefill + "registry.py"]["MLAPrefillBackendEnum"]["fields"])
            self.assertEqual(files[prefill + "selector.py"]["_get_mla_prefill_backend_priorities"], ["device_capability"])
            chosen = files["vllm/platforms/cuda.py"]["CudaPlatformBase"]["methods"]["get_attn_backend_cls"]
            self.assertEqual(chosen[:3], ["cls", "selected_backend", "attn_selector_config"])
        self.assertGreater(checked, 16)

    def test_methods_of_layers_take_what_vllm_gives(self):
        names = script()
        layers, scaled = names.LAYERS, names.KERNELS + "scaled_mm/"
        linear, experts = (layers + "linear.py", "UnquantizedLinearMethod"), layers + "fused_moe/"
        block = scaled + "BlockScaledMMLinearKernel.py"
        bases = {"KernelwrightLinearMethod": linear, "KernelwrightGatesMethod": linear,
                 "KernelwrightEmbeddingMethod": (layers + "vocab_parallel_embedding.py", "UnquantizedEmbeddingMethod"),
                 "KernelwrightFp8LinearKernel": (scaled + "ScaledMMLinearKernel.py", "FP8ScaledMMLinearKernel", "ScaledMMLinearKernel"),
                 "KernelwrightFp8BlockLinearKernel": (block, "Fp8BlockScaledMMLinearKernel"),
                 "KernelwrightMoEMethod": (experts + "fused_moe_method_base.py", "FusedMoEMethodBase")}
        elsewhere = {"is_supported", "process_weights_after_loading", "scale_of"}  # of a class above, in another file, or of none
        checked = 0
        for version, files in LAYERS.items():
            for ours, (file, *theirs) in bases.items():
                methods = {name: of for base in reversed(theirs) for name, of in files[file][base]["methods"].items()}
                for node in OURS[ours].body:
                    if not isinstance(node, ast.FunctionDef) or node.name.startswith("__") or node.name in elsewhere - set(methods):
                        continue
                    with self.subTest(version=version, method=f"{ours}.{node.name}"):
                        self.assertIn(node.name, methods)
                        wanted = [name for name in methods[node.name] if name != "extra_weight_attrs"]
                        self.assertEqual(names.parameters(node), wanted)
                    checked += 1
            self.assertEqual(files["vllm/model_executor/model_loader/base_loader.py"]["BaseModelLoader"]["methods"]["load_model"][:3],
                             ["self", "vllm_config", "model_config"])
            for file, loader in (("sharded_state_loader.py", "ShardedStateLoader"), ("tensorizer_loader.py", "TensorizerLoader")):
                self.assertEqual(files[f"vllm/model_executor/model_loader/{file}"][f"{loader}.save_model"][0], "model", version)
            runner = files["vllm/v1/worker/gpu_model_runner.py"]
            self.assertIn("is_checkpoint_format", runner["GPUModelRunner.reload_weights"], version)
            self.assertEqual(runner["GPUModelRunner.get_model"], ["self"])
            self.assertEqual(files["vllm/v1/worker/gpu_worker.py"]["Worker.start_weight_update"],
                             ["self"] + ["is_checkpoint_format"] * (version < "0.25"))
            self.assertEqual(files["vllm/model_executor/warmup/deep_gemm_warmup.py"]["_fp8_linear_may_use_deep_gemm"], ["module"])
            ours = {node.name: node for node in parsed("norms.py").body if isinstance(node, ast.FunctionDef)}
            for norm in ("rms_norm", "fused_add_rms_norm"):
                self.assertEqual(names.parameters(ours[norm]), files["vllm/ir/ops/layernorm.py"][norm])
            self.assertEqual(files["vllm/platforms/cuda.py"]["CudaPlatformBase"]["methods"]["get_default_ir_op_priority"],
                             ["cls", "vllm_config"])
            if version >= LATER["QuantizedActivation"]:
                self.assertEqual(files[layers + "fusion/quant_activation.py"]["QuantizedActivation"]["fields"],
                                 ["data", "scale", "orig_dtype", "orig_shape", "quant_key"])
            routed = files[experts + "routed_experts.py"]["RoutedExperts"] or files[experts + "layer.py"]["FusedMoE"]
            self.assertEqual(len(routed["methods"]["_replace_quant_method"]), 2)
            for enum, wanted in (("oracle/fp8.py", "Fp8MoeBackend"), ("oracle/unquantized.py", "UnquantizedMoeBackend")):
                self.assertIn("TRITON", files[experts + enum][wanted]["fields"])
            self.assertEqual(files[names.MLA]["MLAAttention.process_weights_after_loading"], ["self", "act_dtype"])
            for name in ("W_UK_T", "W_UV"):  # Matrices take part in no other call
                for call in files[names.MLA][f"MLAAttention@{name}"]:
                    self.assertRegex(call, rf"^torch\.bmm\(\w+, self\.{name}, out=.+\)$", version)
        self.assertGreater(checked, 12)

    def test_the_worker_warms_up_in_the_method_behind_which_engines_are_sealed(self):
        hook = next(node for node in ast.walk(parsed("warmup.py")) if isinstance(node, ast.FunctionDef) and node.name == "compile_or_warm_up_model")
        file = next(ast.literal_eval(node.value) for node in parsed("warmup.py").body if isinstance(node, ast.Assign)).replace(".", "/") + ".py"
        for version, files in SNAPSHOTS.items():
            self.assertEqual(files[file]["Worker.compile_or_warm_up_model"], script().parameters(hook), version)

    def test_caches_have_the_shapes_of_vllms_own(self):
        """caches.py beside FlashAttentionBackend."""
        utils = "vllm.v1.attention.backends.utils"
        modules = {name: types.ModuleType(name) for name in ("vllm", utils)}
        modules["vllm"].__version__, modules[utils].get_kv_cache_layout = "0.26.0", None
        with unittest.mock.patch.dict(sys.modules, modules):
            caches = module_of(PLUGIN / "caches.py")
        sizes = {"num_blocks": 7, "num_kv_heads": 3, "block_size": 16, "head_size": 64}
        for version, files in SNAPSHOTS.items():
            own, of_vllm = caches.era(version), files["vllm/v1/attention/backends/flash_attn.py"]
            if version < "0.23":  # whose own keys and values are outermost
                self.assertEqual(own.shape(7, 16, 3, 64), (7, 2, 16, 3, 64))
                continue
            shape, = of_vllm["FlashAttentionBackend.get_kv_cache_shape()"]
            self.assertEqual(own.shape(7, 16, 3, 64), eval(shape, {}, sizes), version)  # noqa: S307
            _, *layered = of_vllm["FlashAttentionBackend.get_kv_cache_stride_order()"]
            self.assertEqual([str(own.LAYERED[layout]) for layout in ("NHD", "HND")], layered, version)

    def test_a_steps_fields_are_there(self):
        text = (PLUGIN / "attention.py").read_text(encoding="utf-8")
        used = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name) and node.value.id in ("common", "step")}
        self.assertIn("seq_lens", used)
        for version, files in SNAPSHOTS.items():
            self.assertLessEqual(used, set(files[BACKEND]["CommonAttentionMetadata"]["fields"]), version)

    def test_snapshots_are_those_of_the_trees(self):
        trees = os.environ.get("KERNELWRIGHT_VLLM_TREES", "").split()
        if not trees:
            self.skipTest("KERNELWRIGHT_VLLM_TREES names no tree")
        for tree in trees:
            version, _, folder = tree.partition("=")
            self.assertEqual(script().snapshot(folder), SNAPSHOTS[version], version)
            for found, part in ((LATENTS, "--latents"), (LAYERS, "--layers")):
                if version in found:
                    self.assertEqual(script().snapshot(folder, script().PARTS[part]), found[version], version)


class Chains(unittest.TestCase):
    """chains.py reads who gets what a layer makes."""

    def setUp(self):
        self.chains = module_of(PLUGIN / "chains.py")
        self.chains.function_of = lambda function: function  # given as ast has it

    def ask(self, question, lines, *arguments, head="def forward(self, x):"):
        text = head + "\n" + "".join(f"    {line}\n" for line in lines)
        return getattr(self.chains, question)(ast.parse(text).body[0], *arguments)

    def test_source_is_read(self):
        chains = module_of(PLUGIN / "chains.py")
        self.assertEqual(chains.function_of(self.ask).name, "ask")
        self.assertIsNone(chains.function_of(len))
        self.assertIsNone(chains.function_of(eval("lambda: 0")))  # noqa: S307

    def test_feeds(self):
        def fused(lines, first="gate_up_proj", second="act_fn"):
            return self.ask("feeds", lines, first, second)
        up, act, down = "y, _ = self.gate_up_proj(x)", "x = self.act_fn(y)", "x, _ = self.down_proj(x)"
        self.assertTrue(fused([up, act, down, "return x"]))
        self.assertTrue(fused([up, "y = self.act_fn(y)", "z, _ = self.down_proj(y)", "return z"]))
        self.assertFalse(fused([up, act, down, "return x + y"]), "the sums are used again")
        self.assertFalse(fused([up, "y = y * 2", act, down, "return x"]), "something is between")
        self.assertFalse(fused([up, "x = self.act_fn(y, 3)", down, "return x"]))
        self.assertFalse(fused([up, "x = self.act_fn(y, scale=3)", down, "return x"]))
        self.assertFalse(fused([up, "x = self.act_fn(x)", down, "return x"]), "another tensor is activated")
        self.assertFalse(fused([up, act, "z, _ = self.gate_up_proj(x)", "return z"]), "the layer is called twice")
        self.assertFalse(fused(["y = self.gate_up_proj(x)[0]", act, "return x"]))
        self.assertFalse(fused([up, "return self.act_fn(y)"]))
        self.assertTrue(fused([up, act, down, "return x"], "act_fn", "down_proj"))
        self.assertTrue(fused([up, act, "y, _ = self.down_proj(x)", "return y"], "act_fn", "down_proj"))
        self.assertFalse(fused([up, act, "y, _ = self.down_proj(x)", "return x + y"], "act_fn", "down_proj"))
        self.assertFalse(fused([up, act, "x = x * 2", down, "return x"], "act_fn", "down_proj"))

    def test_passes_through(self):
        def place(lines):
            return self.ask("passes_through", lines, "norm", "block", head="def forward(self, at, h, r):")
        norm, block = "h, r = self.norm(h, r)", "h = self.block(at, h)"
        self.assertEqual(place([norm, block, "return h, r"]), 1)
        self.assertEqual(place([norm, "h = self.block(positions=at, hidden=h)", "return h, r"]), "hidden")
        self.assertEqual(place(["if r is None:", "    r = h", "    h = self.norm(h)", "else:", f"    {norm}", block, "return h, r"]), 1)
        self.assertIsNone(place([norm, "out = self.block(at, h)", "return out + h"]), "the block's input is read again")
        self.assertIsNone(place([norm, "r = h", block, "return h, r"]), "something is between")
        self.assertIsNone(place([norm, "h = self.block(at, h + 1)", "return h"]))
        self.assertIsNone(place([norm, "h = self.block(h, h)", "return h"]))
        self.assertIsNone(place([norm, "h = self.block(at, *h)", "return h"]))
        self.assertIsNone(place([norm, block, "h, r = self.norm(h, r)", "return h"]), "the norm is called twice")
        self.assertIsNone(place([norm, block, block, "return h"]), "the block is called twice")
        self.assertIsNone(place(["if r is None:", "    h = self.norm(h)", "else:", "    g, r = self.norm(h, r)", block, "return h"]))
        self.assertIsNone(place(["if r is None:", "    h = self.norm(h)", block, "return h"]), "maybe it is not called")

    def test_begins_with(self):
        def begins(lines, argument):
            return self.ask("begins_with", lines, "proj", argument, head="def forward(self, at, h):")
        first = "qkv, _ = self.proj(h)"
        self.assertTrue(begins([first, "return qkv"], "h"))
        self.assertTrue(begins([first, "return qkv"], 1))
        self.assertTrue(begins(['"""Words."""', first, "return qkv"], "h"))
        self.assertTrue(begins(["h, _ = self.proj(h)", "return h * 2"], "h"))
        self.assertFalse(begins([first, "return qkv"], "at"))
        self.assertFalse(begins([first, "return qkv"], "x"))
        self.assertFalse(begins([first, "return qkv"], 2))
        self.assertFalse(begins([first, "return qkv + h"], "h"))
        self.assertFalse(begins(["n = h.shape[0]", first, "return qkv"], "h"))
        self.assertFalse(begins([first, "return self.proj(qkv)"], "h"))
        self.assertFalse(begins(["qkv, _ = self.proj(h, at)", "return qkv"], "h"))
        self.assertFalse(begins(["qkv = self.proj(h)[0]", "return qkv"], "h"))


if __name__ == "__main__":
    unittest.main()
