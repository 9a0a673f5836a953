#!/usr/bin/env python3
"""What bench/serve.py tells of steps and of compiles, with a scheduler, ranks and a Triton that are made up. Needs neither vLLM nor a
GPU."""
import csv
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import serve
import serve_bursts
import serve_models
import serve_watch


class Scheduler:
    """Two steps may be under way, as with vLLM's scheduling ahead."""

    def __init__(self):
        self.waiting, self.requests = [], {"a": 1, "b": 1, "c": 1}

    def schedule(self, tokens):
        return types.SimpleNamespace(num_scheduled_tokens=tokens)

    def update_from_output(self, output, result):
        return result


class StepsOfAScheduler(unittest.TestCase):
    def setUp(self):
        self.now, self.scheduler = 0.0, Scheduler()
        self.steps = serve_watch.Steps(lambda: self.now)

    def at(self, now):
        self.now = now
        return self.scheduler

    def test_a_step_lasts_from_the_result_ahead_to_its_own(self):
        with self.steps.watch(self.scheduler):
            first = self.at(1.0).schedule({"a": 512, "b": 1})
            second = self.at(1.25).schedule({"a": 1, "b": 1})
            self.assertEqual(self.at(1.5).update_from_output(first, "result"), "result")
            self.scheduler.waiting = ["c", "d"]
            self.at(1.625).update_from_output(second, None)
            third = self.at(9.0).schedule({"c": 1})  # behind a time without requests
            self.at(9.25).update_from_output(third, None)
            self.at(9.5).update_from_output(self.at(9.5).schedule({}), None)  # nothing ran
            last = self.at(9.5).schedule({"cancelled": 1})
            self.at(11.0).update_from_output(last, None)
        self.assertEqual([(step["at_s"], step["ms"]) for step in self.steps.found], [(1.0, 500.0), (1.5, 125.0), (9.0, 250.0)])
        self.assertEqual([(step["tokens"], step["prompt_tokens"], step["running"], step["waiting"]) for step in self.steps.found],
                         [(513, 512, 2, 0), (2, 0, 2, 2), (1, 0, 1, 2)])
        self.assertEqual(set(vars(self.scheduler)), {"waiting", "requests"}, "its own methods are back")

    def test_rows_have_quantiles_and_the_slowest(self):
        with self.steps.watch(self.scheduler):
            for number in range(1, 101):
                output = self.at(10.0 * number).schedule({"a": 2 if number > 90 else 1})
                self.at(10.0 * number + number / 1000).update_from_output(output, None)
        rows = self.steps.rows()
        self.assertEqual([(row["what"], row["steps"], row["ms"]) for row in rows[:8]],
                         [("prompts p50", 10, 95.0), ("prompts p90", 10, 99.0), ("prompts p99", 10, 100.0), ("prompts p100", 10, 100.0),
                          ("decodes p50", 90, 45.0), ("decodes p90", 90, 81.0), ("decodes p99", 90, 90.0), ("decodes p100", 90, 90.0)])
        self.assertEqual([row["ms"] for row in rows[8:]], [float(ms) for ms in range(100, 80, -1)])
        of_arm = [{"arm": "vllm", "start": 0, "rate": 8.0, "ttft_p50_ms": 1, "steps": rows}]
        told = serve.steps_of(of_arm)
        self.assertEqual(of_arm, [{"arm": "vllm", "start": 0, "rate": 8.0, "ttft_p50_ms": 1}])
        with tempfile.TemporaryDirectory() as folder:
            serve_watch.write_steps(folder + "/steps.csv", told)
            with open(folder + "/steps.csv", newline="") as file:
                found = list(csv.DictReader(file))
        self.assertEqual(len(found), 28)
        self.assertEqual((found[8]["arm"], found[8]["rate"], found[8]["what"], found[8]["tokens"]), ("vllm", "8.0", "slowest", "2"))


class RequestsOnline(unittest.TestCase):
    """serve.Online, with a model of vLLM's engine."""

    GIVEN = types.SimpleNamespace(rate=48.0, requests=100, cancel=0.2, input=64, tokens=16)

    def row(self, number=0, token=10e-6, **more):
        return serve_bursts.latencies(types.SimpleNamespace(**vars(self.GIVEN) | more), lambda tokens, requests: 2e-3 + token * tokens, number)

    def test_latencies_are_those_of_the_steps(self):
        row = self.row(rate=1.0, token=0.0, cancel=0.0)  # each request is alone, and each step takes 2 ms
        self.assertEqual([row["tpot_p50_ms"], row["tpot_p99_ms"], row["cancelled"], row["preemptions"]], [2.0, 2.0, 0, 0])
        self.assertTrue(2.0 <= row["ttft_p50_ms"] <= 3.1, row)  # the loop looks for arrivals each millisecond
        self.assertTrue(all(step["ms"] == 2.0 for step in row["steps"]), row)
        self.assertGreater(self.row()["cancelled"], 5)

    def test_both_arms_get_the_same_requests_and_a_rate_that_comes_again_has_others(self):
        self.assertEqual(self.row(), self.row())
        self.assertNotEqual(self.row()["ttft_p99_ms"], self.row(1)["ttft_p99_ms"])

    def test_longer_steps_have_longer_latencies(self):
        short, long = self.row(), self.row(token=100e-6)
        for name in serve.LATENCIES:
            self.assertLess(short[name], long[name], name)


class TurnsOfArms(unittest.TestCase):
    def test_nobody_measures_before_all_have_started_and_then_they_take_turns(self):
        done = []
        with tempfile.NamedTemporaryFile() as file:
            turns = {name: serve_watch.Turns(file.name) for name in ("a", "b", "ends early")}

            def arm(name, starts_for):
                time.sleep(starts_for)
                done.append(name + " has started")
                for _ in range(3):
                    with turns[name]:
                        done.append(name)
                        time.sleep(0.01)
                        done.append(name)
            arms = [threading.Thread(target=arm, args=given) for given in (("a", 0.0), ("b", 0.3))]
            for each in arms:
                each.start()
            time.sleep(0.6)
            self.assertEqual(done, ["a has started", "b has started"], "one of three still starts")
            turns["ends early"].end()
            for each in arms:
                each.join(10)
        for each in ("a", "b"):
            turns[each].end()
        self.assertIn("".join(done[2:]), ("aabb" * 3, "bbaa" * 3))


class Weights(unittest.TestCase):
    def test_tied_embeddings_and_other_processes_are_not_compared(self):
        def comparable(model="qwen3-8b", weights="bf16", gpus=1):
            return serve_models.comparable(types.SimpleNamespace(model=model, weights=weights, gpus=gpus))
        self.assertTrue(comparable())
        self.assertTrue(comparable("deepseek-v3-cut", "fp8-blocks") and comparable("gpt-oss-20b"))
        self.assertFalse(comparable("gemma-3-12b") or comparable(gpus=2))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_rows_of_weights_have_a_norm_of_one(self):
        import torch

        def parameter(*shape, dtype):
            return torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)
        scales = {"weight_scale_inv": parameter(2, 2, dtype=torch.float32), "w2_weight_scale": parameter(3, 5, dtype=torch.uint8)}
        weights = {"weight": parameter(200, 256, dtype=torch.float8_e4m3fn), "w2_weight": parameter(3, 64, 80, dtype=torch.uint8),
                   "bias": parameter(64, dtype=torch.float32), "k_scale": parameter(dtype=torch.float32)}
        layer, plain = torch.nn.Module(), torch.nn.Linear(512, 100, dtype=torch.bfloat16)
        for name, each in (scales | weights).items():
            layer.register_parameter(name, each)
        loader = types.SimpleNamespace(weight_utils=types.SimpleNamespace(initialize_dummy_weights=lambda *_: None))
        with unittest.mock.patch.dict(sys.modules, {name: loader for name in ("vllm", "vllm.model_executor", "vllm.model_executor.model_loader")}):
            serve_models.fill(torch.nn.ModuleList([layer, plain]))
        stored = layer.w2_weight.int()
        e2m1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
        fp4 = torch.stack([e2m1[stored & 15], e2m1[stored >> 4]], -1).flatten(-2) * 2.0 ** (layer.w2_weight_scale[0, 0].item() - 127)
        for rows in (layer.weight.float() * layer.weight_scale_inv[0, 0], fp4, plain.weight.float()):
            norm = rows.norm(dim=-1).mean().item()
            self.assertTrue(0.7 < norm < 1.4, norm)  # exponents of 2 are off by half a step at most
        self.assertTrue((layer.weight_scale_inv == layer.weight_scale_inv[0, 0]).all() and (layer.bias == 0).all() and layer.k_scale == -1)
        self.assertFalse(torch.equal(layer.w2_weight[0], layer.w2_weight[1]))

    def test_rows_of_ours_get_the_share_of_equal_first_tokens(self):
        def rows():
            return [{"arm": arm, "start": 0, "input": 512, "round": number, "first_tokens": [1, 2, 3, 4 + (number == 2 and arm == "vllm")]}
                    for arm in serve.BACKENDS for number in (1, 2)] + [{"arm": "kernelwright", "start": 0, "input": 512, "rate": 8.0}]
        compared, others = rows(), rows()
        serve.compare(compared, True)
        serve.compare(others, False)
        self.assertEqual([row.get("same_first_tokens") for row in compared], [None, None, 1.0, 0.75, None])
        self.assertFalse(any("first_tokens" in row for row in compared) or any("same_first_tokens" in row for row in others))


class CompilesOfRanks(unittest.TestCase):
    def setUp(self):
        self.misses, self.names = [0, 0], [[], []]

    def of_ranks(self, function):
        if function is serve.kernels_of_rank:
            return [(count, ["key"]) for count in self.misses]
        self.assertIs(function, serve.compiled_by_triton)
        return [list(names) for names in self.names]

    def serve(self, arm):
        compiles = serve.Compiles(arm, self.of_ranks)
        self.names[0].append("of_warm_up")
        compiles.begin()
        quiet = compiles.row()
        compiles.begin()
        self.misses[1] += 2
        self.names[0] += ["rope", "rope"]
        self.names[1].append("topk")
        return quiet, compiles.row(), compiles.faults

    def test_ours_fails_where_triton_compiles_behind_the_warm_up(self):
        quiet, row, faults = self.serve("kernelwright")
        self.assertEqual((quiet, row), ({"sealed_misses": 0, "jit_compiles": 0}, {"sealed_misses": 2, "jit_compiles": 3}))
        self.assertEqual(faults, ["Triton compiled rope, topk while requests were served"])
        self.assertEqual(serve.faults_of_ranks(self.of_ranks(serve.kernels_of_rank)),
                         ["2 kernels were missing after the engine of rank 1 was sealed"])
        self.assertEqual(serve.faults_of_ranks([(0, [])]), ["vLLM has served with its own kernels alone; its log says why"])
        self.assertEqual(serve.faults_of_ranks([(0, ["a"]), (0, ["b"])]), ["rank 1 and rank 0 have different kernels: ['a', 'b']"])

    def test_vllms_own_arm_only_counts(self):
        _, row, faults = self.serve("vllm")
        self.assertEqual((row, faults), ({"sealed_misses": 0, "jit_compiles": 3}, []))

    def test_the_monitor_of_vllm_counts_instead_of_warning(self):
        def modules(monitor, hook=None):
            self.knobs = types.SimpleNamespace(runtime=types.SimpleNamespace(jit_post_compile_hook=hook))
            triton = types.SimpleNamespace(knobs=self.knobs)
            return unittest.mock.patch.dict(sys.modules, {"triton": triton, "vllm": types.ModuleType("vllm"), "vllm.triton_utils":
                                                          types.SimpleNamespace(jit_monitor=monitor)})
        monitor, warned = types.SimpleNamespace(_log_jit_compile=lambda name, told: self.fail("warned")), []
        with modules(monitor):
            serve.watch_triton(None)
            monitor._log_jit_compile("rope", {"key": 1})
            self.assertEqual(serve.compiled_by_triton(None), ["rope"])
        with modules(types.SimpleNamespace(), lambda **told: warned.append(told["fn"].name)):  # before vLLM 0.24
            serve.watch_triton(None)
            self.knobs.runtime.jit_post_compile_hook(fn=types.SimpleNamespace(name="topk"), key=1)
            self.assertEqual((serve.compiled_by_triton(None), warned), (["topk"], ["topk"]))


class Arms(unittest.TestCase):
    """main(), with arms that are made up."""

    ROW = {"arm": "kernelwright", "input": 512, "start_up_s": 1.0, "rate": 8.0, "sealed_misses": 0, "jit_compiles": 1,
           **dict.fromkeys(serve.LATENCIES, 2.0), "steps": [{"what": "slowest", "ms": 3.0, "tokens": 5}]}

    def main(self, *words):
        with unittest.mock.patch.object(sys, "argv", ["serve.py", *words]), unittest.mock.patch("builtins.print") as said:
            code = serve.main()
        return code, [call.args[0] for call in said.call_args_list if call.args]

    def test_an_arm_tells_its_rows_although_it_has_failed(self):
        with unittest.mock.patch.object(serve, "serve", lambda given: ([dict(self.ROW)], ["Triton compiled rope"])):
            code, lines = self.main("--arm", "kernelwright", "--steps", "-")
            self.assertEqual((code, json.loads(lines[0]), lines[1]), (1, self.ROW, "kernelwright: Triton compiled rope"))
            with tempfile.TemporaryDirectory() as folder:
                code, lines = self.main("--arm", "kernelwright", "--steps", folder + "/steps.csv")
                self.assertNotIn("steps", json.loads(lines[0]))
                self.assertIn("slowest", pathlib.Path(folder, "steps.csv").read_text())

    def test_both_arms_go_to_two_tables(self):
        def run(words, **_):
            self.assertIn("--steps=-", words)
            arm = words[words.index("--arm") + 1]
            return subprocess.CompletedProcess(words, arm == "kernelwright", json.dumps(self.ROW | {"arm": arm}))
        with unittest.mock.patch.object(subprocess, "run", run), tempfile.TemporaryDirectory() as folder:
            code, _ = self.main("--rounds", "0", "--online", "8", "--steps", folder + "/steps.csv", "--output", folder + "/rows.csv")
            rows, steps = (list(csv.DictReader(pathlib.Path(folder, f"{name}.csv").read_text().splitlines())) for name in ("rows", "steps"))
        self.assertEqual(code, 1, "one arm has failed")
        self.assertEqual([(row["arm"], row["jit_compiles"], row["sealed_misses"]) for row in rows], [("vllm", "1", "0"), ("kernelwright", "1", "0")])
        self.assertEqual([(row["arm"], row["rate"], row["tokens"], row["ms"]) for row in steps],
                         [("vllm", "8.0", "5", "3.0"), ("kernelwright", "8.0", "5", "3.0")])

    def test_arms_that_start_together_share_a_file_and_have_tables_of_their_own(self):
        both, seen = threading.Barrier(2, timeout=10), []

        def run(words, **_):
            both.wait()  # one behind the other, this would never end
            seen.append([word for word in words if word.startswith(("--turns=", "--together=", "--profile-online="))])
            return subprocess.CompletedProcess(words, 0, json.dumps(self.ROW | {"arm": words[words.index("--arm") + 1]}))
        with unittest.mock.patch.object(subprocess, "run", run), tempfile.TemporaryDirectory() as folder:
            code, _ = self.main("--rounds", "0", "--online", "8", "--steps", folder + "/steps.csv", "--output", folder + "/rows.csv",
                                "--together", "24", "--profile-online", "kernels.csv")
            rows = list(csv.DictReader(pathlib.Path(folder, "rows.csv").read_text().splitlines()))
        self.assertEqual((code, [row["together"] for row in rows]), (0, ["24", "24"]))
        self.assertEqual({row["arm"] for row in rows}, {"vllm", "kernelwright"})
        self.assertEqual((len(seen[0]), seen[0]), (3, seen[1]))
        self.assertEqual(seen[0][::2], ["--together=24", "--profile-online=kernels.csv"])
        self.assertGreater(len(seen[0][1]), len("--turns="))
        self.assertEqual(serve.of_arm_alone("a.b/kernels.csv", "vllm"), "a.b/kernels-vllm.csv")


if __name__ == "__main__":
    unittest.main(verbosity=2)
