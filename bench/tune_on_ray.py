#!/usr/bin/env python3
"""Tunes units over the GPUs of this machine with the real Ray, while an actor, a node and the driver are killed; and races
kernels against themselves.

    bench/tune_on_ray.py kills [--emulators] [--budget TIME] [--candidates N] [--csv FILE]
    bench/tune_on_ray.py copies [--emulators] [--units N] [--budget TIME] [--csv FILE]

`kills` makes a Ray cluster on this machine, whose nodes are raylets with one GPU each. kernelwright.tune_fleet tunes units
there. A node is killed while it races, and comes back. The driver is killed once a race has ended. An actor is killed while
it races for a second driver. Then one process without Ray tunes the same units, the first races on one GPU and the second
races on another. Every unit must have an outcome on both sides, and their gains must agree.

`copies` is an A/A test: each unit races the model's choice against copies of itself, and a unit that wins is raced again on
the other GPU. What is written is an error. At most one unit in 50 may write a row.

--emulators takes emulators for GPUs. Their times are this machine's processor's, so they prove the driver alone. The script
needs Ray for `kills`, and the command: $KERNELWRIGHT_COMMAND, or build/cli/kernelwright. Exit status: 0 as it should be, 1 not.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))  # of actors
os.environ.setdefault("KERNELWRIGHT_COMMAND", str(ROOT / "build" / "cli" / "kernelwright"))

from kernelwright import tune_fleet  # noqa: E402

COPIES = 3  # that race the model's choice: as many as the last round of a race has finalists
LEAST_GAIN = 0.01  # of a row: what a race tells from noise
AGREE = 2 * LEAST_GAIN  # two races of one unit may each be off by that much
AGAIN = "it is run again"  # what a driver says of a race that was lost
LIMIT_S = 120  # for anything that is waited for


def gemm(name, n, k, rows, schedule="auto"):
    return {"version": 1, "kind": "gemm", "name": name, "problem": {"n": n, "k": k}, "schedule": schedule,
            "shapes": [{"name": f"m{m}", "m": m} for m in rows] + [{"name": "check", "m": 33, "check": True}]}


def attention(name, heads, kv_heads, batch, q_len, kv_len, head_dim=128, schedule="auto"):
    return {"version": 1, "kind": "attention", "name": name, "schedule": schedule,
            "problem": {"head_dim": {"qk": head_dim, "v": head_dim}, "heads": {"q": heads, "kv": kv_heads},
                        "mask": {"kind": "causal"}, **({"max_q_len": 1} if q_len == 1 else {})},
            "shapes": [{"name": "timed", "batch": batch, "q_len": q_len, "kv_len": kv_len},
                       {"name": "check", "batch": 1, "q_len": min(q_len, 70), "kv_len": 131, "check": True}]}


def units_to_tune(emulators):
    """Configs of a few units. Those of GPUs have layers of Llama-3-8B, and kernels of the portable families, whose model
    has most to gain there."""
    if emulators:
        return [attention(f"decode{heads}", heads, heads, 1, 1, 300, 64) for heads in (1, 2, 4)]
    portable = {"family": "portable"}
    return [gemm("qkv", 6144, 4096, [16, 384]), gemm("down", 4096, 14336, [16]), gemm("portable", 4096, 4096, [256], portable),
            attention("decode", 32, 8, 16, 1, 4096), attention("portable-decode", 32, 8, 16, 1, 4096, schedule=portable),
            attention("prefill", 32, 8, 1, 2048, 2048), attention("portable-prefill", 32, 8, 1, 1024, 1024, schedule=portable)]


def units_to_repeat(count, emulators):
    """At least `count` units for copies, of four ranges of rows and of six lengths."""
    if emulators:
        return [attention(f"decode{heads}", heads, heads, 1, 1, 64, 64) for heads in range(1, count + 1)]
    gemms = [gemm(f"n{n}-k{k}", n, k, [16, 64, 256, 1024]) for n in (1024, 2048, 4096, 6144) for k in (1024, 4096)]
    decodes = [attention(f"decode-h{heads}-{kv_len}", heads, heads // 4, 16, 1, kv_len)
               for heads in (8, 16, 32) for kv_len in (512, 1024, 2048, 4096)]
    prefills = [attention(f"prefill-h{heads}-{length}", heads, heads // 4, 1, length, length)
                for heads in (8, 32) for length in (256, 1024, 2048)]
    return gemms + decodes + prefills


def run(words, **more):
    """The command's output. Ends the program if the command fails."""
    done = subprocess.run([os.environ["KERNELWRIGHT_COMMAND"], *map(str, words)], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr[-2000:] or done.stdout[-2000:]}")
    return done.stdout


def write_units(folder, configs, most=None):
    """A list of the configs' units, of which `most` are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for config in configs:
        files.append(folder / f"{config['name']}.json")
        files[-1].write_text(json.dumps(config))
    listed = json.loads(run(["tune", *files, "--list-units"]))
    listed["units"] = listed["units"][:most]
    path = folder / "units.json"
    path.write_text(json.dumps(listed))
    return path, listed["units"]


def on_gpu(number):
    return {**os.environ, "CUDA_VISIBLE_DEVICES": str(number)}


def rows_in(folder):
    """Rows by their names."""
    return {path.stem: json.loads(path.read_text()) for path in pathlib.Path(folder).rglob("*.json")}


def gain_of(row):
    """The speedup of a row over the model's choice; 1 where there is none."""
    return row["provenance"]["speedup"] if row else 1.0


def until(condition, what):
    """Polls. Ends the program if it takes longer than LIMIT_S."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what} did not come within {LIMIT_S} s")
        time.sleep(0.05)


def processes(title):
    """Those of actors and tasks, by the titles that Ray gives them."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if title in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:  # it has ended
            pass
    return found


class Nodes:
    """Ray on this machine: the head has one GPU, and another node has the other."""

    def __init__(self, emulators):
        from ray.cluster_utils import Cluster
        self.emulators = emulators
        # A killed raylet says no farewell. The head misses it after 1.5 s instead of 15 s.
        quick = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
        self.cluster = Cluster(initialize_head=True, head_node_args={**self.arguments(0), "_system_config": quick})
        self.address = self.cluster.address
        self.begin()

    def arguments(self, gpu):
        cores = max(1, (os.cpu_count() or 2) // 4)
        if self.emulators:
            return {"num_cpus": cores, "resources": {tune_fleet.FAKE_GPU: 1}}
        return {"num_cpus": cores, "num_gpus": 1, "env_vars": {"CUDA_VISIBLE_DEVICES": str(gpu)}}

    def begin(self):
        self.other = self.cluster.add_node(**self.arguments(1))

    def kill(self):
        """SIGKILL to all processes of the other node."""
        self.cluster.remove_node(self.other, allow_graceful=False)

    def end(self):
        self.cluster.shutdown()


class Driver:
    """A process of kernelwright.tune_fleet, whose words go to a file."""

    def __init__(self, words, log):
        self.log = log
        with open(log, "w") as file:
            self.process = subprocess.Popen([sys.executable, "-m", "kernelwright.tune_fleet", *map(str, words)], stdout=file, stderr=file)

    def said(self):
        return self.log.read_text()


def tune_with_kills(folder, units, options, emulators, say):
    """Rows of a fleet that loses a node, its driver and an actor."""
    nodes = Nodes(emulators)
    state = folder / "state"
    words = ["--units", units, "--state", state, "--output", folder / "rows", "--address", nodes.address, *options,
             *(["--fake-gpus", 2] if emulators else [])]
    ended = lambda: list(state.glob("*/*/first.json"))
    racing = lambda: [path for path in state.glob("*/*/*/unit.json") if not path.parent.with_suffix(".json").exists()]
    first = Driver(words, folder / "driver-1.log")
    until(lambda: len(racing()) == 2, "a race on each GPU")
    nodes.kill()
    say("a node was killed while it raced")
    until(lambda: AGAIN in first.said(), "the news that the node's race is lost")
    nodes.begin()
    say("the node is back")
    until(ended, "the end of a race")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    if (folder / "rows").exists():
        sys.exit("the driver ended before it was killed")
    say(f"the driver was killed; {len(ended())} races had ended")
    until(lambda: not processes("ray::Racer"), "the end of the killed driver's actors")
    second = Driver(words, folder / "driver-2.log")
    until(lambda: processes("ray::Racer.race"), "a race of the second driver")
    time.sleep(0.5)  # the race's child has begun
    os.kill(processes("ray::Racer.race")[0], signal.SIGKILL)  # its child dies with it
    say("an actor was killed while it raced")
    code = second.process.wait(timeout=2 * LIMIT_S)
    nodes.end()
    if code != 0:
        sys.exit(f"the second driver ended with {code}: {second.said()}")
    if AGAIN not in second.said():
        sys.exit("no race was run again after the actor's death")
    for driver in (first, second):
        for line in driver.said().splitlines():
            if AGAIN in line:
                say(f"  {line.split(': ')[0]}: {AGAIN}")
    return rows_in(folder / "rows"), len(ended())


def tune_serially(folder, units, options, emulators):
    """Rows of one process after another, without Ray."""
    device = "emulator" if emulators else "cuda"
    for number, (race, more) in enumerate((("once", []), ("twice", ["--confirm", folder / "once"]))):
        run(["tune", "--units", units, "--device", device, "--log", folder / f"{race}.jsonl", "--output", folder / race, *options, *more],
            env=os.environ if emulators else on_gpu(number))
    return rows_in(folder / "twice") if (folder / "twice").exists() else {}


def kills(options, folder, say):
    units, listed = write_units(folder / "configs", units_to_tune(options.emulators))
    races = ["--budget", options.budget or ("6s" if options.emulators else "4s"), "--candidates", str(options.candidates),
             "--cache-dir", folder / "cache"]
    say(f"{len(listed)} units")
    fleet, ended = tune_with_kills(folder, units, races, options.emulators, say)
    say(f"the fleet has {len(fleet)} rows; now one process")
    serial = tune_serially(folder, units, races, options.emulators)
    table = [{"unit": name, "serial_gain": f"{gain_of(serial.get(name)):.4f}", "fleet_gain": f"{gain_of(fleet.get(name)):.4f}",
              "serial_row": name in serial, "fleet_row": name in fleet,
              "same_schedule": name in serial and name in fleet and serial[name]["schedule"] == fleet[name]["schedule"]}
             for name in sorted({*serial, *fleet})]
    wrong = []
    if ended != len(listed):
        wrong.append(f"{ended} of {len(listed)} units have an outcome")
    if not table:
        wrong.append("no unit had a winner, so nothing was compared")
    for row in table:
        # An emulator's times are this processor's: two runs agree on the schedule of a clear winner, and on no time.
        agrees = row["same_schedule"] if options.emulators else \
            abs(math.log(float(row["fleet_gain"]) / float(row["serial_gain"]))) <= AGREE
        if not agrees:
            wrong.append(f"{row['unit']}: {row}")
    return table, wrong


def copies(options, folder, say):
    device = "emulator" if options.emulators else "cuda"
    units, listed = write_units(folder / "configs", units_to_repeat(options.units, options.emulators), options.units)
    if len(listed) < options.units:
        sys.exit(f"there are {len(listed)} units; at most {len(listed)} would do")
    gpus = 1 if options.emulators else 2
    shards = 1 if options.emulators else 16
    begin = time.monotonic()
    shared = ["tune", "--units", units, "--copies", COPIES, "--cache-dir", folder / "cache", "--budget", options.budget or "1s"]
    compiles = [subprocess.Popen(list(map(str, [os.environ["KERNELWRIGHT_COMMAND"], *shared, "--compile-only", "--shard", f"{i}/{shards}"])),
                                 stdout=subprocess.DEVNULL) for i in range(shards)]
    if any(process.wait() for process in compiles):
        sys.exit("the units were not compiled")
    say(f"compiled in {time.monotonic() - begin:.0f} s")
    outcomes = []
    for race, turn in (("first", 0), ("second", 1)):
        running = []
        for gpu in range(gpus):
            confirm = ["--confirm", folder / f"first-{gpu}"] if turn else []
            words = [os.environ["KERNELWRIGHT_COMMAND"], *shared, "--json", "--device", device, "--shard", f"{gpu}/{gpus}",
                     "--log", folder / f"{race}-{gpu}.jsonl", "--output", folder / f"{race}-{gpu}", *confirm]
            (folder / f"{race}-{gpu}").mkdir()
            running.append(subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                            env=on_gpu((gpu + turn) % gpus) if not options.emulators else None))
        for process in running:
            output, errors = process.communicate()
            if process.returncode != 0:
                sys.exit(errors[-2000:])
            if turn == 0:
                result = json.loads(output)
                outcomes += result.get("configs", [result])
        say(f"the {race} races have ended after {time.monotonic() - begin:.0f} s")
    # A row without a gain keeps out the row of a neighbour: it has the model's choice, and is no error.
    won, confirmed = ([name for gpu in range(gpus) for name, row in rows_in(folder / f"{race}-{gpu}").items() if gain_of(row) > 1]
                      for race in ("first", "second"))
    table = [{"unit": one["config"], "rows": (one.get("rows") or {}).get("most", ""), "decision": one["decision"],
              **{name: f"{one['best_over_model'][name]:.4f}" for name in ("median", "low", "high")}} for one in outcomes]
    slowed = sum(row["decision"] in ("none", "slowed") for row in table)
    say(f"{len(table)} units raced {COPIES} copies: {len(won)} won once, {len(confirmed)} on both GPUs; {slowed} decided nothing")
    wrong = []
    if len(table) != options.units or slowed:
        wrong.append(f"{len(table) - slowed} of {options.units} units were decided")
    if len(won) * 50 > options.units:
        wrong.append(f"{len(won)} of {options.units} equal kernels won a race: {' '.join(won)}")
    if len(confirmed) * 50 > options.units:
        wrong.append(f"{len(confirmed)} of {options.units} equal kernels had a row: {' '.join(confirmed)}")
    return table, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kills", "copies"])
    parser.add_argument("--emulators", action="store_true", help="instead of GPUs")
    parser.add_argument("--units", type=int, default=50, help="of copies")
    parser.add_argument("--budget", help="of each race, as tune takes it")
    parser.add_argument("--candidates", type=int, default=8, help="of kills, as tune takes it")
    parser.add_argument("--csv", help="file for the table")
    parser.add_argument("--folder", help="for everything that the runs write, and kept; else a temporary one")
    options = parser.parse_args()
    folder = pathlib.Path(options.folder or tempfile.mkdtemp(prefix="kernelwright-ray-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    begin = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begin:6.1f} s  {text}", flush=True)

    try:
        table, wrong = {"kills": kills, "copies": copies}[options.what](options, folder, say)
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)
    for file in [sys.stdout, *([open(options.csv, "w", newline="")] if options.csv else [])]:
        if table:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
    for text in wrong:
        print(f"wrong: {text}", file=sys.stderr)
    say("done" if not wrong else "not as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
