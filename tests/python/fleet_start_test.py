#!/usr/bin/env python3
"""bench/fleet_start.py: sixteen ranks, so that the simulation keeps running, and keeps counting right. ctest sets
KERNELWRIGHT_FLEET_BENCH to the program of the ranks."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "bench" / "fleet_start.py"
HOSTS, RANKS, KERNELS, ENTRY_BYTES = 4, 4, 5, 50_000


class Started:
    """Scenarios that run meanwhile."""

    def __init__(self, *arguments):
        self.workload = tempfile.NamedTemporaryFile("w", suffix=".csv")
        print("kernel,entry_bytes,compile_ms", *[f"gemm_sm90,{ENTRY_BYTES},50"] * KERNELS, sep="\n", file=self.workload, flush=True)
        words = [sys.executable, SCRIPT, "--program", os.environ["KERNELWRIGHT_FLEET_BENCH"], "--workload", self.workload.name,
                 "--hosts", str(HOSTS), "--ranks", str(RANKS), "--spread", "0", "--limit", "60", "--json", *arguments]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def rows(self):
        """What each scenario gave, by name."""
        output, errors = self.process.communicate()
        self.workload.close()
        assert self.process.returncode == 0, output + errors
        return {row["scenario"]: row for row in map(json.loads, output.splitlines())}


@unittest.skipUnless(shutil.which("redis-server") and shutil.which("openssl"), "redis-server and openssl are needed")
class FleetStartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.killed = Started("holder-killed", "--threads", "1")  # takes some seconds, nearly all of them asleep
        cls.others = Started("alone", "cold", "warm", "gone").rows()

    def test_counts_compiles_requests_and_bytes(self):
        found = self.others
        for row in found.values():
            self.assertEqual((row["ranks"], row["not_ready"], row["rejected"]), (HOSTS * RANKS, 0, 0), row)
            self.assertGreater(row["p50_s"], 0)
            self.assertLessEqual(row["p50_s"], row["max_s"])
        # A host compiles a kernel once. With a shared cache the fleet does.
        self.assertEqual(found["alone"]["compiles"], HOSTS * KERNELS)
        self.assertGreaterEqual(found["alone"]["p50_s"], 0.05)
        cold, warm = found["cold"], found["warm"]
        if cold["failures"] == 0:  # a busy machine may let an operation run out of time
            self.assertEqual((cold["compiles"], cold["hits"]), (KERNELS, (HOSTS - 1) * KERNELS))
        self.assertAlmostEqual(cold["compile_s"], cold["compiles"] * 0.05, places=2)
        # A host that reads asks once for each kernel, and gets each entry whole.
        if warm["failures"] == 0:
            self.assertEqual((warm["compiles"], warm["hits"]), (0, HOSTS * KERNELS))
            self.assertEqual(warm["by_command"]["get"], HOSTS * KERNELS)
            self.assertNotIn("set", warm["by_command"])
            self.assertGreater(warm["mb_from_server"], HOSTS * KERNELS * ENTRY_BYTES / 1e6 - 0.1)
            self.assertLess(warm["mb_from_server"], HOSTS * KERNELS * (ENTRY_BYTES + 1000) / 1e6 + 0.1)

    def test_a_server_that_is_not_there_costs_each_host_its_compiles(self):
        gone = self.others["gone"]
        self.assertEqual((gone["compiles"], gone["hits"]), (HOSTS * KERNELS, 0))
        self.assertGreater(gone["failures"], 0)

    def test_the_lease_of_a_killed_host_is_waited_for(self):
        killed = self.killed.rows()["holder-killed"]
        self.assertEqual((killed["lost_hosts"], killed["not_ready"]), (1, 0))
        self.assertGreater(killed["compiles"], KERNELS)
        self.assertGreaterEqual(killed["max_s"], 3)  # a lease that is not renewed ends 4 s after its last renewal


if __name__ == "__main__":
    unittest.main()
