#!/usr/bin/env python3
"""kernelwright.tune_fleet: a fake Ray whose actors die when the test says so; and, with KERNELWRIGHT_RAY=1, the real one by
bench/tune_on_ray.py. ctest sets PYTHONPATH and KERNELWRIGHT_COMMAND."""
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import kernelwright
from kernelwright import tune_fleet
from kernelwright.tune_fleet import AGAIN, FIRST, Fleet, State, unit_key

UNITS = [{"config": "/plan.json", "problem": name, "rows": {"least": least, "most": 2 * least}}
         for name in ("qkv", "down") for least in (1, 16, 64)]


class FakeRayError(Exception):
    pass


class Handle:
    """Of an actor."""


class Method:
    def __init__(self, remote):
        self.remote = remote


class FakeRay:
    """Runs a call when it is waited for, in a random order. `dies` decides whether an actor dies in a call."""

    def __init__(self, gpus, seed=0, dies=lambda call: False):
        self.gpus, self.random, self.dies = gpus, random.Random(seed), dies
        self.pending, self.ended, self.alive, self.made = {}, {}, set(), 0
        self.races = collections.Counter()

    def cluster_resources(self):
        return {"GPU": self.gpus}

    def remote(self, what):
        ray = self

        class Options:
            def options(self, **_):
                return self

            def remote(self, *arguments):
                return ray.actor(what, arguments) if isinstance(what, type) else ray.call(None, what, arguments)

        return Options()

    def actor(self, kind, _arguments):
        self.made += 1
        name = f"actor {self.made}"
        self.alive.add(name)
        about = {"gpu": "H100", "id": f"gpu {self.made % self.gpus}"}
        handle = Handle()
        handle.hello = Method(lambda *arguments: self.call(name, lambda: about, arguments))
        handle.race = Method(lambda *arguments: self.call(name, fake_race, arguments))
        handle.kill = lambda: self.alive.discard(name)
        return handle

    def call(self, actor, function, arguments):
        reference = object()
        self.pending[reference] = (actor, function, arguments)
        return reference

    def wait(self, references, num_returns, timeout):
        del num_returns, timeout
        reference = self.random.choice([one for one in references if one in self.pending])
        actor, function, arguments = self.pending.pop(reference)
        if function is fake_race:
            self.races[unit_key(arguments[0]), "again" if arguments[2] else "first"] += 1
        if actor and (actor not in self.alive or (function is fake_race and self.dies(self.races))):
            self.alive.discard(actor)
            self.ended[reference] = FakeRayError("the actor died")
        else:
            try:
                self.ended[reference] = function(*arguments)
            except Exception as error:
                self.ended[reference] = error
        return [reference], []

    def get(self, reference):
        value = self.ended.pop(reference)
        if isinstance(value, Exception):
            raise value
        return value

    def kill(self, actor):
        actor.kill()


def fake_race(unit, folder, rows_to_confirm, options):
    """Units of qkv win, and those of down do not. The rows of a unit are always the same."""
    del folder, options
    won = unit["problem"] == "qkv"
    name = f"sm_90a/{unit['problem']}-m{unit['rows']['most']}.json"
    return {"result": {"decision": "row" if won else "model"}, "code": 0, "log": "",
            "rows": {name: f"row of {unit_key(unit)}, {'twice' if rows_to_confirm else 'once'}"} if won else {}}


class FakeFleetTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        compiles = mock.patch.object(tune_fleet, "compile_unit", lambda *_: {"code": 0})
        compiles.start()
        self.addCleanup(compiles.stop)

    def fleet(self, ray, name="state", **more):
        return Fleet(ray, UNITS, State(pathlib.Path(self.folder.name, name)), patience_s=0.01, **more)

    def rows(self, name="state"):
        return sorted(State(pathlib.Path(self.folder.name, name)).rows())

    def serial_rows(self):
        return sorted((f"sm_90a/qkv-m{unit['rows']['most']}.json", f"row of {unit_key(unit)}, twice")
                      for unit in UNITS if unit["problem"] == "qkv")

    def test_every_winner_is_raced_twice_on_two_gpus(self):
        ray = FakeRay(gpus=2)
        fleet = self.fleet(ray)
        self.assertTrue(fleet.run())
        self.assertEqual(self.rows(), self.serial_rows())
        for unit in UNITS:
            first, again = (fleet.state.read(unit, "H100", race) for race in (FIRST, AGAIN))
            if unit["problem"] == "qkv":
                self.assertNotEqual(first["on"], again["on"])
            else:
                self.assertIsNone(again)

    def test_killed_actors_lose_no_unit_and_change_no_row(self):
        for seed in range(60):
            ray = FakeRay(gpus=3, seed=seed)
            # At most two deaths of one race: a third would be a failure of the unit.
            deaths = collections.Counter()

            def dies(races, deaths=deaths, random_=random.Random(seed)):
                race = max(races, key=lambda key: (races[key], key))
                if deaths[race] >= 1 or random_.random() < 0.5:
                    return False
                deaths[race] += 1
                return True

            ray.dies = dies
            name = f"state {seed}"
            with self.subTest(seed=seed):
                fleet = self.fleet(ray, name)
                done = fleet.run()
                if done:
                    self.assertEqual(self.rows(name), self.serial_rows())
                else:  # the same race died three times: the failure is told, and the others' rows are there
                    self.assertTrue(fleet.failed)
                    self.assertTrue(all(job.attempts == tune_fleet.MOST_ATTEMPTS for job in fleet.failed))
                    self.assertTrue(set(self.rows(name)) <= set(self.serial_rows()))

    def test_a_race_that_always_dies_is_run_three_times_and_told(self):
        ray = FakeRay(gpus=2, dies=lambda races: True)
        fleet = self.fleet(ray)
        self.assertFalse(fleet.run())
        self.assertEqual(len(fleet.failed), len(UNITS))
        self.assertEqual(set(ray.races.values()), {3})

    def test_a_second_driver_races_only_what_is_left(self):
        class Killed(BaseException):
            pass

        class KilledDriver(FakeRay):
            def wait(self, references, num_returns, timeout):
                if sum(self.races.values()) == 4:
                    raise Killed
                return super().wait(references, num_returns, timeout)

        with self.assertRaises(Killed):
            self.fleet(KilledDriver(gpus=2)).run()
        state = State(pathlib.Path(self.folder.name, "state"))
        done = sum(state.read(unit, "H100", race) is not None for unit in UNITS for race in (FIRST, AGAIN))
        self.assertGreater(done, 0)
        ray = FakeRay(gpus=2, seed=5)
        self.assertTrue(self.fleet(ray).run())
        self.assertEqual(self.rows(), self.serial_rows())
        self.assertEqual(sum(ray.races.values()), len(UNITS) + 3 - done)

    def test_one_gpu_confirms_nothing_and_says_so(self):
        fleet = self.fleet(FakeRay(gpus=1))
        self.assertFalse(fleet.run())
        self.assertEqual({unit_key(job.unit) for job in fleet.unconfirmed}, {unit_key(unit) for unit in UNITS if unit["problem"] == "qkv"})
        self.assertEqual(self.rows(), [])

    def test_without_a_gpu_it_ends(self):
        self.assertFalse(self.fleet(FakeRay(gpus=0)).run())

    def test_actors_that_never_start_end_it_and_say_why(self):
        class NoActor(FakeRay):
            def get(self, reference):
                value = super().get(reference)
                if isinstance(value, dict) and "gpu" in value:
                    raise FakeRayError("the actor died in its creation\n  File tune_fleet.py\nModuleNotFoundError: kernelwright\n")
                return value

        said = []
        self.assertFalse(self.fleet(NoActor(gpus=2), say=said.append).run())
        self.assertIn("an actor did not start: FakeRayError: the actor died in its creation: ModuleNotFoundError: kernelwright", said)


class CommandTest(unittest.TestCase):
    def test_wrong_input_and_missing_ray(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("sys.stderr"):
            base = ["--state", folder + "/state", "--output", folder + "/rows", "--units"]
            self.assertEqual(tune_fleet.main([*base, folder + "/none.json"], ray=object()), 2)
            pathlib.Path(folder, "units.json").write_text('{"version": 1, "units": []}')
            self.assertEqual(tune_fleet.main([*base, folder + "/units.json", "--budget", "soon"], ray=object()), 2)
            with mock.patch.dict(sys.modules, {"ray": None}):
                self.assertEqual(tune_fleet.main([*base, folder + "/units.json"]), 3)


class RacerTest(unittest.TestCase):
    def test_a_racer_is_named_by_its_gpu_and_told_from_others(self):
        doctor = {"driver": "13.0", "devices": [{"name": "NVIDIA H100 80GB HBM3"}]}
        with mock.patch.object(tune_fleet, "run_command", return_value=(doctor, 0)):
            about = []
            for visible in ("0", "1"):
                with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": visible}):
                    about.append(tune_fleet.Racer("cuda").hello())
        self.assertEqual({one["gpu"] for one in about}, {"NVIDIA H100 80GB HBM3"})
        self.assertNotEqual(about[0]["id"], about[1]["id"])
        with mock.patch.object(tune_fleet, "run_command", return_value=({"driver": None, "devices": []}, 0)):
            self.assertRaises(kernelwright.MissingError, tune_fleet.Racer("cuda").hello)

    def test_budgets_are_read_as_the_command_reads_them(self):
        self.assertEqual([tune_fleet.seconds_of(text) for text in ("90", "120s", "1.5m", "2h")], [90, 120, 90, 7200])

    def test_a_child_dies_with_its_parent(self):
        parent = subprocess.Popen([sys.executable, "-c", "import subprocess, sys\nfrom kernelwright import tune_fleet\n"
                                   "child = subprocess.Popen(['sleep', '60'], preexec_fn=tune_fleet._die_with_parent)\n"
                                   "print(child.pid, flush=True)\nchild.wait()"], stdout=subprocess.PIPE, text=True)
        child = int(parent.stdout.readline())
        parent.kill()
        parent.communicate()
        end = time.monotonic() + 5
        stat = pathlib.Path(f"/proc/{child}/stat")
        while stat.exists() and stat.read_text().split()[2] != "Z":
            self.assertLess(time.monotonic(), end, "the child lives on")
            time.sleep(0.02)


@unittest.skipUnless(os.environ.get("KERNELWRIGHT_RAY"), "KERNELWRIGHT_RAY is not set")
class RealRayTest(unittest.TestCase):
    """On emulators; with KERNELWRIGHT_RAY=gpu on the two GPUs of this machine."""

    def run_script(self, *words):
        emulators = [] if os.environ["KERNELWRIGHT_RAY"] == "gpu" else ["--emulators"]
        script = pathlib.Path(__file__).parents[2] / "bench" / "tune_on_ray.py"
        done = subprocess.run([sys.executable, script, *words, *emulators], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_killed_node_driver_and_actor_lose_no_row(self):
        said = self.run_script("kills", "--candidates", "3")
        for killed in ("a node was killed", "the driver was killed", "an actor was killed"):
            self.assertIn(killed, said)


if __name__ == "__main__":
    unittest.main()
