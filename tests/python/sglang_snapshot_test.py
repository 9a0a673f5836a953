#!/usr/bin/env python3
"""python/kernelwright/sglang against what it relies on in each SGLang that it serves: tests/golden/sglang. Needs neither SGLang nor
torch.

Where an SGLang has moved, this test names the method or the member. KERNELWRIGHT_SGLANG_TREES, "0.5.17=FOLDER ...", names folders
with an SGLang's Python files: then the snapshots are also compared with these.
"""
import ast
import json
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "sglang"
PLUGIN = ROOT / "python" / "kernelwright" / "sglang"

sys.path.insert(0, str(ROOT / "scripts"))
import snapshot_sglang as names
from server_snapshots import parameters

SNAPSHOTS = {path.stem: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.json"))}
PARSED = {file: ast.parse((PLUGIN / file).read_text(encoding="utf-8")) for file in ("__init__.py", "attention.py", "latent.py",
                                                                                          "linears.py")}
# What our code calls an object: the file and the class of SGLang's that it is.
OBJECTS = {"runner": (names.RUNNER, "ModelRunner"), "arguments": (names.ARGUMENTS, "ServerArgs"), "batch": (names.BATCH, "ForwardBatch"),
           "layer": (names.LAYER, "RadixAttention"), "config": (names.CONFIG, "ModelConfig"), "mode": (names.BATCH, "ForwardMode")}


CHUNKS = "ForwardBatchDeepSeekMHAMixin"  # a class above ForwardBatch


def constant(name):
    """Of the plug-in's __init__.py."""
    return next(ast.literal_eval(node.value) for node in PARSED["__init__.py"].body
                if isinstance(node, ast.Assign) and name in (target.id for target in node.targets))


class Snapshots(unittest.TestCase):
    def test_every_version_has_one(self):
        self.assertEqual(sorted(constant("VERSIONS")), sorted(SNAPSHOTS))

    @unittest.skipIf(sys.version_info < (3, 11), "this Python reads no TOML")
    def test_the_wheel_names_the_plug_in(self):
        import tomllib
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        self.assertEqual(project["entry-points"]["sglang.srt.plugins"], {"kernelwright": "kernelwright.sglang:register"})

    def test_all_names_are_there(self):
        for version, files in SNAPSHOTS.items():
            self.assertEqual({file: sorted(found) for file, found in files.items()},
                             {file: sorted(found) for file, found in names.NAMES.items()})
            for file, found in files.items():
                for name, what in found.items():
                    self.assertIsNotNone(what, f"SGLang {version} has no {name} in {file}")

    def test_methods_take_what_sglang_gives(self):
        ours = next(node for node in PARSED["attention.py"].body if isinstance(node, ast.ClassDef) and node.name == "KernelwrightAttnBackend")
        checked = 0
        for version, files in SNAPSHOTS.items():
            theirs = files[names.BACKEND]["AttentionBackend"]
            for node in ours.body:
                if isinstance(node, ast.Assign):
                    self.assertIn(node.targets[0].id, theirs["fields"], version)
                if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                    continue
                with self.subTest(version=version, method=node.name):
                    self.assertIn(node.name, theirs["methods"])
                    self.assertEqual(parameters(node), theirs["methods"][node.name])
                checked += 1
            self.assertEqual(files[names.HANDLERS]["_handle_attention_backend"], ["attn", "forward_batch", "backend_name"])
            self.assertEqual(files[names.HANDLERS]["AttentionBackendRegistry.register"], ["cls", "backend_name", "handler_func"])
            self.assertEqual(files[names.ARGUMENTS]["ServerArgs._get_default_attn_backend"], ["self", "use_mla_backend", "model_config"])
        self.assertGreater(checked, 12)

    def test_the_runner_of_fp8_layers_takes_what_sglang_gives(self):
        ours = next(node for node in PARSED["linears.py"].body if isinstance(node, ast.FunctionDef) and node.name.endswith("_linear"))
        for version, files in SNAPSHOTS.items():
            self.assertEqual(parameters(ours), files[names.FP8]["triton_w8a8_block_fp8_linear"], version)
            self.assertEqual(files[names.FP8]["_dispatch_explicit_backend"], ["backend"], version)
            self.assertEqual(files[names.FP8]["_dispatch_auto_backend"], [], version)
            self.assertEqual(files[names.FP8]["initialize_fp8_gemm_config"], ["server_args"], version)

    def test_members_that_are_read_are_in_the_snapshots(self):
        read = {(node.value.id, node.attr) for tree in PARSED.values() for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OBJECTS
                and not (tree is PARSED["linears.py"] and node.value.id == "layer")}  # there it is a linear layer
        self.assertGreater(len(read), 40)
        for name, member in read:
            file, of = OBJECTS[name]
            if name == "batch" and f"{CHUNKS}.{member}" in names.NAMES[names.CHUNKS]:
                continue
            self.assertIn(f"{of}.{member}", names.NAMES[file], f"scripts/snapshot_sglang.py lacks {of}.{member}")

    def test_snapshots_are_those_of_the_trees(self):
        trees = os.environ.get("KERNELWRIGHT_SGLANG_TREES", "").split()
        if not trees:
            self.skipTest("KERNELWRIGHT_SGLANG_TREES names no tree")
        for tree in trees:
            version, _, folder = tree.partition("=")
            self.assertEqual(names.snapshot(folder), SNAPSHOTS[version], version)


if __name__ == "__main__":
    unittest.main()
