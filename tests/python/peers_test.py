#!/usr/bin/env python3
"""What bench/compare_peers.py does before and after it has a GPU: rows, orders, statistics, anchors, schedules, report."""
import contextlib
import csv
import io
import json
import math
import pathlib
import random
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
from peers import anchors, report, rows, stats  # noqa: E402

try:
    import torch
    from peers import inputs, row_ops
except ImportError:
    torch = None

BY_NAME = {row.name: row for row in rows.ROWS}


class Statistics(unittest.TestCase):
    def test_every_round_runs_every_arm_once_and_the_next_one_in_reverse(self):
        for count in (1, 2, 3, 5):
            arms = [f"arm{i}" for i in range(count)]
            for number in range(4 * count):
                self.assertEqual(sorted(stats.order(arms, number)), arms)
                if number % 2:
                    self.assertEqual(stats.order(arms, number), stats.order(arms, number - 1)[::-1])
            firsts = [stats.order(arms, number)[0] for number in range(2 * count)]
            self.assertEqual({arm: firsts.count(arm) for arm in arms}, dict.fromkeys(arms, 2))

    def test_the_interval_is_that_of_the_binomial(self):
        # n and the rank of the lower limit, of the tables of confidence intervals of the median at 95 %.
        for n, rank in ((6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (50, 18)):
            values = list(range(1, n + 1))
            random.Random(n).shuffle(values)
            self.assertEqual(stats.median_interval(values), ((n + 1) / 2, rank, n + 1 - rank), n)
        self.assertEqual(stats.median_interval([3, 1, 2]), (2, 1, 3))
        self.assertEqual(stats.median_interval([5]), (5, 5, 5))

    def test_the_interval_covers_the_median_as_often_as_it_says(self):
        draw = random.Random(1)
        covered = 0
        for _ in range(2000):
            _, low, high = stats.median_interval([draw.expovariate(1) for _ in range(15)])
            covered += low <= 0.6931 <= high
        self.assertGreater(covered / 2000, 0.95)

    def test_a_ratio_pairs_rounds_and_counts_each_arm_s_work(self):
        self.assertEqual(stats.rate_ratio([1.0, 2.0, 4.0], [2.0, 4.0, 8.0])[0], 2.0)  # whatever the clock did
        self.assertEqual(stats.rate_ratio([1.0] * 6, [4.0] * 6, ours_work=1, peer_work=8), (0.5, 0.5, 0.5))


class Rows(unittest.TestCase):
    def test_names_are_unique_and_sets_are_known(self):
        self.assertEqual(len(BY_NAME), len(rows.ROWS))
        self.assertLessEqual({row.set for row in rows.ROWS}, set(rows.SETS))
        self.assertFalse(any(row.smoke for row in rows.selected(["all"], re.compile(""))))
        self.assertEqual([row.name for row in rows.selected(["prefill"], re.compile("^d256"))], ["d256-dense-8k", "d256-causal-8k"])

    def test_prefill_rows_have_16k_tokens_and_2048_columns_unless_they_group_heads(self):
        for row in rows.selected(["prefill"], re.compile("^d")):
            self.assertEqual((row.batch * row.q_len, row.heads * row.head_dim, row.kv_heads), (16384, 2048, row.heads), row.name)

    def test_work_counts_what_the_recorded_rows_count(self):
        # 4 B H S S D halved for causal, over the recorded time.
        amount, unit, per = BY_NAME["d128-causal-8k"].work()
        self.assertEqual(unit, "TFLOP/s")
        self.assertAlmostEqual(amount / 0.9218 / per, 596.4, delta=0.1)
        amount, unit, per = BY_NAME["decode-b16-8k"].work()
        self.assertEqual(unit, "GB/s of KV")
        self.assertAlmostEqual(amount / 0.1867 / per, 2876, delta=1)
        wide, narrow = BY_NAME["fp8-d192-128-dense-8k"], BY_NAME["fp8-d128-dense-8k"]  # heads of values are as wide
        self.assertEqual(wide.work()[0] / narrow.work()[0], (192 + 128) / (128 + 128))
        self.assertEqual((wide.heads, wide.problem()["head_dim"]), (16, {"qk": 192, "v": 128}))
        self.assertEqual(BY_NAME["window-gpt-oss-8k"].work()[0], 2 * 8192 * 64 * (2 * 64 + 2 * 8))

    def test_work_of_a_gemm(self):
        amount, unit, per = BY_NAME["gemm-bf16-8192x8192x8192"].work()
        self.assertEqual(unit, "TFLOP/s")
        self.assertAlmostEqual(amount / 1.3780 / per, 797.9, delta=0.1)
        row = BY_NAME["gemm-decode-block-64x7168x4096"]
        self.assertEqual(row.work()[:2], ((64 + 7168) * 4096, "GB/s of AB"))
        self.assertEqual(row.problem(), {"n": 7168, "k": 4096, "dtype": {"a": "e4m3", "b": "e4m3", "d": "bf16"}, "scales": "per_block"})

    def test_a_mixed_row_is_chunks_and_decodes_of_one_cache(self):
        row = BY_NAME["mixed-4x512-60x1-4k"]
        self.assertEqual((row.q_lens(), row.kv_len), ([512] * 4 + [1] * 60, 4096))
        self.assertEqual([row.problem(part)["q_layout"] for part in ("all", "chunks", "decodes")], ["ragged", "ragged", "padded"])
        self.assertEqual(row.problem("decodes")["max_q_len"], 1)

    def test_peers_that_cannot_do_a_row_say_so(self):
        asked = ["cudnn", "fa3"]
        self.assertEqual(dict(rows.peers_of(BY_NAME["d64-causal-4k"], asked)), {"cudnn": None, "fa3": None})
        paged = dict(rows.peers_of(BY_NAME["paged16-b16-8k"], asked))
        self.assertEqual(paged, {"cudnn": "takes no page table", "fa3": "takes no page table", "read_stream": None})
        self.assertIn("split keys", dict(rows.peers_of(BY_NAME["decode-b1-8k"], asked))["fa3"])
        self.assertEqual(dict(rows.peers_of(BY_NAME["window-gpt-oss-8k"], []))["copy"], None)
        for row in rows.ROWS:  # a target that no arm can meet would never be judged
            peers = {}
            for form in (rows.FUNCTION, rows.WHEEL):
                peers |= {peer: why for peer, why in rows.peers_of(row, ["cudnn", "fa2", "fa3"], form) if peers.get(peer, why) == why}
            for peer, _ in row.targets:
                stands = [anchor for anchor in peers if peer in anchors.THROUGH.get(anchor, [])]
                self.assertTrue(stands or peers[peer] is None, f"{row.name} {peer}")

    def test_rows_of_fp8_have_peers_of_their_own(self):
        def peers(name, form=rows.FUNCTION):
            return dict(rows.peers_of(BY_NAME[name], ["cudnn", "fa2", "fa3"], form))

        self.assertEqual(peers("fp8-d128-dense-8k"), {"cudnn": None, "fa2": "takes no fp8 keys under e4m3 queries", "fa3": None, "bf16": None})
        self.assertEqual(peers("fp8-kv-d128-dense-8k")["cudnn"], "takes no fp8 keys under bf16 queries")
        self.assertEqual(peers("fp8-d128-dense-8k-per-head")["cudnn"], "takes no scales of heads")
        for name in ("fp8-d128-dense-8k-per-head", "fp8-kv-b16-8k", "fp8-d192-128-dense-8k", "window-gpt-oss-8k", "decode-b1-8k"):
            self.assertTrue(peers(name)["fa3"], name)
            self.assertIsNone(peers(name, rows.WHEEL)["fa3"], name)
        self.assertEqual(peers("d32-dense-4k", rows.WHEEL)["fa3"], "this build has no head_dim 32")

    def test_steps_over_rows_count_what_they_read_and_write(self):
        elements = 8192 * 7168
        for form, each in (("add-norm", 8), ("add-norm-block", 7 + 4 / 128), ("quantize-block", 3 + 4 / 128)):
            row = BY_NAME[f"row-op-{form}-8192x7168"]
            self.assertEqual(row.work(), (elements * each, "GB/s", 1e6), form)
            self.assertEqual(row.peers(), ["flashinfer", "copy"] if form == "add-norm" else ["copy"])
            self.assertEqual(row.targets, (("copy", 0.90),))
        silu = BY_NAME["row-op-silu-128x14336"]
        self.assertEqual((silu.work()[0], silu.targets), (128 * 14336 * 6, ()))

    def test_flashinfer_takes_prompts_and_pages(self):
        def refusal(name):
            return dict(rows.peers_of(BY_NAME[name], ["flashinfer"]))["flashinfer"]

        for name in ("fp8-kv-b16-8k", "fp8-kv-d128-dense-8k", "fp8-d128-causal-8k", "paged16-b16-8k", "d128-causal-8k"):
            self.assertIsNone(refusal(name), name)
        self.assertEqual(refusal("decode-b1-8k"), "decodes over pages alone")
        self.assertEqual(refusal("fp8-d128-dense-8k-per-head"), "this arm has no scales of heads")
        for name in ("mixed-4x512-60x1-4k", "window-gpt-oss-8k"):
            self.assertEqual(refusal(name), "this arm has neither mixed batches nor windows with sinks")

    def test_a_library_of_fa3_is_known_by_the_names_that_it_holds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "fa3.so")
            for held, form in ((b"\x7fELF\0fa3_fwd\0", rows.FUNCTION), (b"\x7fELF\0PyInit__vllm_fa3_C\0", rows.WHEEL)):
                path.write_bytes(held)
                self.assertEqual(rows.fa3_form(path), form)
            path.write_bytes(b"\x7fELF\0flash_fwd\0")
            with self.assertRaisesRegex(ValueError, r"fa3.so has neither fa3_fwd\(\) nor the operators _vllm_fa3_C of vLLM's wheel$"):
                rows.fa3_form(path)


@unittest.skipIf(torch is None, "needs torch")
class Inputs(unittest.TestCase):
    """What a row's tensors are, and how an output is judged: on the CPU."""

    def test_outliers_are_one_in_a_thousand_and_ten_times_as_large(self):
        torch.manual_seed(1)
        x = inputs.draw("paper", (1 << 20, 1, 1), "cpu").float()
        self.assertAlmostEqual(x.square().mean().item(), 1 + 0.001 * 100, delta=0.02)
        # P(|N(0, 1 + 100)| > 6) is 0.55; N(0, 1) alone never gets there.
        self.assertAlmostEqual((x.abs() > 6).float().mean().item(), 0.00055, delta=0.0001)

    def test_scales_are_of_the_tensor_or_of_a_group_of_heads(self):
        x = torch.ones(5, 4, 16) * torch.tensor([1.0, 2.0, 4.0, 3.0])[:, None]
        self.assertEqual(inputs.scale_of(x, 2, False).mul(448).tolist(), [4])
        scale = inputs.scale_of(x, 2, True)
        self.assertEqual(scale.mul(448).tolist(), [2, 4])
        found = inputs.quantise(x, scale)
        self.assertEqual(found[0, :, 0].tolist(), [224, 448, 448, 320])  # 336 lies between 320 and 352: the tie goes to even
        self.assertEqual(inputs.values(found, scale)[0, :3, 0].tolist(), [1, 2, 4])

    def test_an_error_is_against_the_tensors_before_quantisation(self):
        from peers import reference
        exact = torch.randn(5000, 2, 8)
        self.assertEqual(reference.relative_rmse(exact, exact), 0)
        self.assertAlmostEqual(reference.relative_rmse(exact * 1.25, exact), 0.25, places=5)
        off = exact.clone()
        off[4500] = float("nan")
        self.assertTrue(math.isnan(reference.relative_rmse(off, exact)))

    def test_sums_of_fp8_stay_within_the_bound_of_what_cores_cut(self):
        from peers import reference
        torch.manual_seed(2)
        q, k = torch.randn(1, 16, 128), torch.randn(1, 128, 24)
        for x in q, k:
            x[torch.rand_like(x) < 0.02] *= 30  # outliers
        q, k = q.bfloat16().double(), k.to(torch.float8_e4m3fn).double()
        scale = 2.0 ** (7 - q.abs().amax(-1, keepdim=True).log2().floor())
        high = (q * scale).to(torch.float8_e4m3fn).double()
        low = (q * scale - high).to(torch.float8_e4m3fn).double()
        for terms, exact, share in ([high], high / scale, 1), ([low, high], q, 1 + reference.LOW_TERMS):
            with self.subTest(terms=len(terms)):
                sums = torch.zeros(16, 1, 24, dtype=torch.float64)
                for term in terms:
                    for begin in range(0, 128, 32):
                        addends = torch.cat([term[0, :, begin:begin + 32, None] * k[0, begin:begin + 32], sums], 1)
                        step = 2.0 ** (addends.abs().amax(1, keepdim=True).log2().floor() - 13)
                        sums = (addends / step).trunc().mul(step).sum(1, keepdim=True)
                off = (sums[:, 0] / scale[0] - (exact @ k)[0]).abs()
                self.assertGreater(off.max().item(), 0.05)
                self.assertLess((off / reference.cut_by_cores(exact, k)[0]).max().item(), share * reference.CORE_ERROR)


@unittest.skipIf(torch is None, "needs torch")
class Steps(unittest.TestCase):
    def test_a_reference_takes_its_own_rounding_and_nothing_more(self):
        for row in rows.ROWS:
            if row.kind != "row_op" or row.rows != 1:
                continue
            torch.manual_seed(0)
            case = row_ops.Case(row, device="cpu")
            truth = row_ops.Truth(case)
            total = truth.sum.to(torch.bfloat16) if row.adds else None
            if row.quantized:
                groups = truth.out.float().view(row.rows, -1, row.group_width())
                scales = groups.abs().amax(2) / row_ops.E4M3_LARGEST
                elements = (groups / scales[:, :, None]).view(row.rows, -1).to(torch.float8_e4m3fn)
                out = elements, scales.flatten() if row.quantized == "token" else scales.t(), total
            else:
                out = truth.out.to(torch.bfloat16), None, total
            values, total = row_ops.shaped(row, None, out)
            self.assertLessEqual(truth.error((values, total)), 1, row.name)
            values[0, values[0].abs().argmax()] *= 1.2
            self.assertGreater(truth.error((values, total)), 1, row.name)
            if row.adds:
                self.assertGreater(truth.error((truth.out, total + 1)), 1, row.name)


class Anchors(unittest.TestCase):
    def test_every_target_against_a_peer_that_may_be_absent_has_its_recorded_rows(self):
        recorded = anchors.read()
        for row in rows.ROWS:
            for peer, _ in row.targets:
                stands = [anchor for anchor, absent in anchors.THROUGH.items() if peer in absent]
                live = getattr(row, "kv_dtype", "") == "e4m3" or row.kind == "grouped"  # beside the peer itself
                if stands and not live:
                    self.assertTrue([anchor for anchor in stands if anchors.through(recorded, row.name, (1, 1, 1), anchor, peer)],
                                    row.name)

    def test_a_ratio_goes_through_the_anchor(self):
        recorded = {"row": {"cudnn": 600.0, "fa3": 750.0}}
        self.assertEqual(anchors.through(recorded, "row", (1.25, 1.0, 1.5), "cudnn", "fa3"), (1.0, 0.8, 1.2))
        self.assertIsNone(anchors.through(recorded, "another", (1, 1, 1), "cudnn", "fa3"))
        self.assertIsNone(anchors.through({"row": {"cudnn": 600.0}}, "row", (1, 1, 1), "cudnn", "fa3"))


class Reports(unittest.TestCase):
    def schedules(self, given, lines=None):
        with tempfile.TemporaryDirectory() as folder:
            path = None
            if lines is not None:
                path = pathlib.Path(folder) / "some.jsonl"
                path.write_text("\n".join(lines))
            return report.read_schedules(given, path)

    def test_schedules_have_names_and_may_be_for_some_rows(self):
        arms = self.schedules(['{"block_m": 128, "overlap": "both"}'],
                              ["# a comment", "", '"auto"', '{"name": "wide", "rows": "^d64", "schedule": {"block_n": 176}}', '"auto"'])
        self.assertEqual([arm.name for arm in arms], ["block_m=128 overlap=both", "auto", "wide", "auto #2"])
        self.assertEqual((arms[2].takes("d64-causal-4k"), arms[2].takes("d128-causal-8k")), (True, False))
        self.assertEqual([arm.schedule for arm in self.schedules([])], ["auto"])
        with self.assertRaisesRegex(SystemExit, r"some.jsonl:1: "):
            self.schedules([], ["{"])

    def test_the_csv_has_every_arm_and_the_summary_the_best_of_them(self):
        row, file, said = BY_NAME["d128-dense-8k"], io.StringIO(), io.StringIO()
        peer = report.Timed("cudnn", [1.6755] * 6, row.work()[0], 0.4, 0.024)
        with contextlib.redirect_stderr(said):
            out = report.Report(file)
            out.header("a machine")
            for name, ms in (("slow", 2.0), ("fast", 1.5)):
                mine = report.Timed(name, [ms] * 6, row.work()[0], 0.3, 0.00178)
                out.result(row, mine, peer, stats.rate_ratio(mine.times, peer.times, mine.work, peer.work), ("1755", "1740"))
            out.failure(row, "broken", "", "failed", "CompileError: no\nregisters, left")
            missed = out.summary()
        lines = list(csv.DictReader(text for text in file.getvalue().splitlines() if not text.startswith("#")))
        self.assertEqual([(line["arm"], line["status"], line["met"]) for line in lines],
                         [("slow", "ok", "no"), ("fast", "ok", "yes"), ("broken", "failed", "")])
        self.assertEqual((lines[1]["ratio"], lines[1]["peer_rate"], lines[1]["sm_mhz_first"]), ("1.1170", "656.2", "1755"))
        self.assertEqual((lines[1]["ours_rmse"], lines[1]["peer_rmse"], lines[2]["ours_rmse"]), ("0.00178", "0.024", ""))
        self.assertEqual(said.getvalue().count("RMSE 0.00178, 1.117 [1.117, 1.117] of cudnn at 656.2, RMSE 0.024"), 1)
        self.assertEqual(lines[2]["note"], "CompileError: no registers, left")
        self.assertEqual((missed, out.wrong), (0, False))
        self.assertIn("1 of 1 targets met", said.getvalue())
        with contextlib.redirect_stderr(said):
            out.failure(row, "off", "", "wrong", "off by 7")
        self.assertTrue(out.wrong)

    def test_a_config_of_a_row_is_json(self):
        for row in rows.ROWS:
            self.assertEqual(json.loads(json.dumps(row.problem())), row.problem())


if __name__ == "__main__":
    unittest.main(verbosity=2)
