#!/usr/bin/env python3
"""kernelwright.plan(), against the golden plans. ctest sets PYTHONPATH and KERNELWRIGHT_COMMAND."""
import json
import os
import pathlib
import unittest
from unittest import mock

import kernelwright
from kernelwright import ConfigError, MissingError, _command

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "models"


def golden(name):
    return json.loads((GOLDEN / name).read_text())


class PlanTest(unittest.TestCase):
    def test_is_the_golden_plan(self):
        plan = kernelwright.plan(GOLDEN / "llama3-8b.config.json", tp=2, name="llama3-8b")
        self.assertEqual(plan["problems"][0]["from"][0], "heads.q: num_attention_heads 32 / tp 2 = 16")
        bare = {**plan, "problems": [{k: v for k, v in each.items() if k != "from"} for each in plan["problems"]]}
        self.assertEqual(bare, golden("llama3-8b.tp2.json"))

    def test_takes_a_dict_and_an_object_of_transformers(self):
        config = golden("gpt-oss-20b.config.json")

        class Configuration:
            def to_json_string(self, use_diff=True):
                return "{}" if use_diff else json.dumps(config)

        self.assertEqual(kernelwright.plan(config, name="x"), kernelwright.plan(Configuration(), name="x"))

    def test_configs_are_what_prepare_takes(self):
        configs = kernelwright.plan(GOLDEN / "llama3-8b.config.json", name="m", server="hf").configs()
        self.assertEqual(list(configs["m-tp1-q"]), ["version", "kind", "name", "problem"])
        self.assertEqual(configs["m-tp1-q"]["problem"], {"n": 4096, "k": 4096})

    def test_options_reach_the_command(self):
        plan = kernelwright.plan(GOLDEN / "llama3-8b.config.json", kv="e4m3", kv_scales="per_token", max_seqs=8,
                                 max_tokens=64, page_size=64, archs=["sm_90a", "sm_100a"])
        self.assertEqual(plan["serving"], {"server": "vllm", "tp": 1, "ep": 1, "kv": "e4m3", "kv_scales": "per_token",
                                           "page_size": 64, "max_seqs": 8, "max_tokens": 64,
                                           "archs": ["sm_90a", "sm_100a"]})

    def test_refuses_with_the_field(self):
        with self.assertRaisesRegex(ConfigError, r"^config\.json: /num_attention_heads: .* among tp 3; tp 2 is accepted$"):
            kernelwright.plan(golden("llama3-8b.config.json"), tp=3)

    def test_says_that_the_command_is_missing(self):
        with mock.patch.dict(os.environ, {"KERNELWRIGHT_COMMAND": "/nowhere"}):
            with self.assertRaisesRegex(MissingError, "KERNELWRIGHT_COMMAND is /nowhere, which is no program"):
                kernelwright.plan({})
        with mock.patch.dict(os.environ, {"KERNELWRIGHT_COMMAND": ""}), mock.patch.object(_command, "commands", lambda: []):
            with self.assertRaisesRegex(MissingError, "build the target kernelwright_cli, or set KERNELWRIGHT_COMMAND"):
                kernelwright.plan({})


if __name__ == "__main__":
    unittest.main(verbosity=2)
