"""Tunes a list of units on every GPU of a Ray cluster. Ray hands out units; each race runs on one GPU, because pairs of times
of two GPUs say nothing.

    pip install 'kernelwright[ray]'
    kernelwright tune plan.json --list-units > units.json
    python -m kernelwright.tune_fleet --units units.json --state /shared/tuning --output configs/tuned

A CPU task compiles a unit's schedules into the cache. An actor that holds one GPU then runs `kernelwright tune --units` as a
child process. A winner is raced again on another GPU of the same name, and its row is written only if it wins there too. What
is done stands in --state, so a driver that was killed goes on where it was. A unit whose actor or node dies goes to another
actor, twice at most; with --state and the cache on a disk that all nodes share, it resumes from its log.

Exit status: 0 every unit is done; 1 some failed, or have a winner that no second GPU of the name could confirm; 2 the input was
wrong; 3 the machine lacks something.
"""
import argparse
import collections
import ctypes
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from ._command import find_command
from ._errors import KernelwrightError, MissingError

MOST_ATTEMPTS = 3  # a first one, and two more
FAKE_GPU = "kernelwright_fake_gpu"  # Ray's name for an emulator that stands for a GPU
SECONDS_WITHOUT_GPUS = 60  # after which a fleet without any actor gives up
FIRST, AGAIN = "first", "second"  # the two races of a unit


def _die_with_parent():
    """In the child: a killed actor must not leave a race that holds the GPU."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run_command(words, timeout_s=None):
    """Runs the command, and returns its JSON and its exit code. The error's text stands in for JSON that is missing."""
    done = subprocess.run([str(find_command()), *map(str, words)], capture_output=True, text=True, timeout=timeout_s,
                          preexec_fn=_die_with_parent, check=False)
    try:
        return json.loads(done.stdout), done.returncode
    except ValueError:
        return {"error": done.stderr.strip()[-2000:]}, done.returncode


def seconds_of(text):
    """"120s", "5m", "1h" or a number of seconds, as the command takes them."""
    number, factor = (text[:-1], {"s": 1, "m": 60, "h": 3600}[text[-1]]) if text[-1:] in ("s", "m", "h") else (text, 1)
    return float(number) * factor


def unit_key(unit):
    """A name for the unit's folder: its problem, its rows, and digits of its config's path."""
    rows = unit.get("rows")
    digits = hashlib.sha256(json.dumps(unit, sort_keys=True).encode()).hexdigest()[:8]
    return "-".join([unit["problem"], *([f"m{rows['most']}"] if rows else []), digits])


def compile_unit(unit, folder, options):
    """Compiles the unit's schedules into the cache."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / f"compile-{os.getpid()}.json"
    listed.write_text(json.dumps({"version": 1, "units": [unit]}))
    try:
        result, code = run_command(["tune", "--units", listed, "--compile-only", "--json", *options])
    finally:
        listed.unlink()
    return {"result": result, "code": code}


class Racer:
    """One GPU. Ray makes it an actor with num_gpus=1, which sees that GPU alone."""

    def __init__(self, device, identity=None, timeout_s=None):
        self.device, self.identity, self.timeout_s = device, identity, timeout_s

    def hello(self):
        """The name of the GPU, and what tells it from others."""
        if self.device == "emulator":
            return {"gpu": "emulator", "id": self.identity or f"{os.uname().nodename}-{os.getpid()}"}
        about, code = run_command(["doctor", "--json"])
        devices = about.get("devices") or []
        if code or not devices:
            raise MissingError(f"an actor sees no GPU: {json.dumps(about)[:400]}")
        # Ray gives an actor its GPU by this variable: an index of the node, or a UUID.
        return {"gpu": devices[0]["name"], "id": f"{os.uname().nodename}:{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}"}

    def race(self, unit, folder, rows_to_confirm, options):
        """Races the unit in `folder`, which may hold the log of an attempt that was killed. Returns the rows as text."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        listed, rows = folder / "unit.json", folder / "rows"
        listed.write_text(json.dumps({"version": 1, "units": [unit]}))
        words = ["tune", "--units", listed, "--device", self.device, "--log", folder / "log.jsonl", "--output", rows, "--resume",
                 "--json", *options]
        if rows_to_confirm:
            for name, text in rows_to_confirm.items():
                path = folder / "to-confirm" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            words += ["--confirm", folder / "to-confirm"]
        result, code = run_command(words, self.timeout_s)  # a kernel that hangs costs its actor
        log = folder / "log.jsonl"
        return {"result": result, "code": code, "log": log.read_text() if log.exists() else "",
                "rows": {str(path.relative_to(rows)): path.read_text() for path in sorted(rows.rglob("*.json"))}}


def decision_of(result):
    """"row", "pinned", "model", "slowed" or "none". A unit that the log had settled has its outcome there."""
    return result.get("decision") or result.get("outcome") or "none"


class State:
    """What is done, on disk: a folder for each unit and GPU name, and in it a file for each race that ended."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

    def place(self, unit, gpu):
        return self.folder / gpu.replace(" ", "-").replace("/", "-") / unit_key(unit)

    def read(self, unit, gpu, race):
        path = self.place(unit, gpu) / f"{race}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, unit, gpu, race, value):
        """Whole or not at all: the driver may be killed at any moment."""
        path = self.place(unit, gpu) / f"{race}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(value))
        os.replace(fresh, path)

    def rows(self):
        """The rows of all units that are done: those that won twice, and those that pin the model's choice."""
        for path in sorted(self.folder.glob(f"*/*/{AGAIN}.json")):
            yield from json.loads(path.read_text())["rows"].items()
        for path in sorted(self.folder.glob(f"*/*/{FIRST}.json")):
            ended = json.loads(path.read_text())
            if decision_of(ended["result"]) == "pinned":
                yield from ended["rows"].items()


def words_of(error):
    """The first line of Ray's error, which says what died, and the last one, which says why."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return f"{type(error).__name__}: {': '.join(lines[:1] + lines[1:][-1:])}"


class Job:
    """One race that is to be run: of a unit, on a GPU of that name."""

    def __init__(self, unit, gpu, race, rows=None, not_on=None):
        self.unit, self.gpu, self.race, self.rows, self.not_on = unit, gpu, race, rows, not_on
        self.attempts, self.errors = 0, []

    def __str__(self):
        return f"{unit_key(self.unit)} on {self.gpu}, {self.race} race"


class Fleet:
    """Deals jobs to actors. `ray` is the module, so that a test can bring its own."""

    def __init__(self, ray, units, state, *, options=(), compile_options=(), fake=False, timeout_s=None,
                 say=lambda text: None, clock=time.monotonic, patience_s=SECONDS_WITHOUT_GPUS):
        self.ray, self.units, self.state, self.fake, self.say = ray, units, state, fake, say
        self.options, self.compile_options, self.timeout_s = list(options), list(compile_options), timeout_s
        self.clock, self.patience_s = clock, patience_s
        self.racers = {}  # actor -> what hello() said; None until it has
        self.calls = {}  # reference -> ("hello", actor), ("compile", unit key) or ("race", actor, job)
        self.waiting = collections.deque()
        self.compiled, self.seen_gpus = set(), set()
        self.failed, self.unconfirmed = [], []

    # --- what runs ---

    def _wanted(self):
        """How many actors the cluster has room for."""
        return int(self.ray.cluster_resources().get(FAKE_GPU if self.fake else "GPU", 0))

    def _add_racers(self):
        for number in range(len(self.racers), self._wanted()):
            placed = {"num_gpus": 0, "resources": {FAKE_GPU: 1}} if self.fake else {"num_gpus": 1}
            actor = self.ray.remote(Racer).options(num_cpus=0, max_restarts=0, max_concurrency=1, **placed).remote(
                "emulator" if self.fake else "cuda", f"fake-{number}-{time.monotonic_ns()}" if self.fake else None, self.timeout_s)
            self.racers[actor] = None
            self.calls[actor.hello.remote()] = ("hello", actor)

    def _start_compiles(self):
        task = self.ray.remote(compile_unit).options(num_cpus=1, max_retries=1)
        for unit in self.units:
            self.calls[task.remote(unit, str(self.state.folder / "compile"), self.compile_options)] = ("compile", unit_key(unit))

    def _gpu_appeared(self, gpu):
        """Each unit is tuned for each name of GPU. What an earlier driver has done is not done again."""
        if gpu in self.seen_gpus:
            return
        self.seen_gpus.add(gpu)
        for unit in self.units:
            first = self.state.read(unit, gpu, FIRST)
            if first is None:
                self.waiting.append(Job(unit, gpu, FIRST))
            elif self.state.read(unit, gpu, AGAIN) is None:
                self._first_ended(unit, gpu, first)

    def _first_ended(self, unit, gpu, ended):
        if decision_of(ended["result"]) == "row":
            self.waiting.append(Job(unit, gpu, AGAIN, ended["rows"], ended["on"]))

    def _idle(self):
        busy = {call[1] for call in self.calls.values() if call[0] in ("hello", "race")}
        return [actor for actor, about in self.racers.items() if about and actor not in busy]

    def _deal(self):
        for actor in self._idle():
            about = self.racers[actor]
            job = next((job for job in self.waiting if job.gpu == about["gpu"] and job.not_on != about["id"]
                        and unit_key(job.unit) in self.compiled), None)
            if job is None:
                continue
            self.waiting.remove(job)
            job.attempts += 1
            folder = self.state.place(job.unit, job.gpu) / job.race
            self.calls[actor.race.remote(job.unit, str(folder), job.rows, self.options)] = ("race", actor, job)

    # --- what ended ---

    def _lose(self, actor):
        self.racers.pop(actor, None)
        try:
            self.ray.kill(actor)  # of one that lives on without its node's word: its GPU must be free
        except Exception:  # it is dead already
            pass

    def _again_or_failed(self, job, error):
        job.errors.append(error)
        if job.attempts < MOST_ATTEMPTS:
            self.say(f"{job}: {error}; it is run again")
            self.waiting.append(job)
        else:
            self.say(f"{job}: {error}; it was run {job.attempts} times")
            self.failed.append(job)

    def _race_ended(self, actor, job, ended):
        if ended["code"] or "error" in ended["result"]:
            error = ended["result"].get("error") or f"exit code {ended['code']}"
            return self._again_or_failed(job, error)
        if decision_of(ended["result"]) in ("slowed", "none"):
            return self._again_or_failed(job, f"the race decided nothing: {decision_of(ended['result'])}")
        ended["on"] = self.racers[actor]["id"]
        self.state.write(job.unit, job.gpu, job.race, ended)
        self.say(f"{job}: {decision_of(ended['result'])}")
        if job.race == FIRST:
            self._first_ended(job.unit, job.gpu, ended)

    def _ended(self, reference):
        """Returns whether the fleet got on: an actor that does not start is no progress."""
        kind, who, *rest = self.calls.pop(reference)
        try:
            value = self.ray.get(reference)
        except Exception as error:  # Ray's: the actor or its node died, or the method raised
            words = words_of(error)
            if kind == "compile":
                self.say(f"{who}: not compiled beforehand, so its race compiles: {words}")
                self.compiled.add(who)
            else:
                self._lose(who)
                if kind == "race":
                    self._again_or_failed(rest[0], words)
                else:
                    self.say(f"an actor did not start: {words}")
            return kind != "hello"
        if kind == "compile":
            self.compiled.add(who)
        elif kind == "hello":
            self.racers[who] = value
            self.say(f"{value['gpu']} ({value['id']}) takes part")
            self._gpu_appeared(value["gpu"])
        else:
            self._race_ended(who, rest[0], value)
        return True

    def _give_up_on(self):
        """Jobs that no actor here can ever run: a second race where the name has one GPU."""
        ids = collections.defaultdict(set)
        for about in self.racers.values():
            if about:
                ids[about["gpu"]].add(about["id"])
        return [job for job in self.waiting if job.race == AGAIN and not ids[job.gpu] - {job.not_on}]

    def _in_flight(self, *kinds):
        return any(call[0] in kinds for call in self.calls.values())

    def run(self):
        """Until every unit is done or has failed. Returns whether all are done."""
        self._start_compiles()
        idle_since = None
        while True:
            self._add_racers()
            self._deal()
            if self.seen_gpus and not self.waiting and not self._in_flight("race", "hello"):
                break
            got_on = False
            if self.calls:
                done, _ = self.ray.wait(list(self.calls), num_returns=1, timeout=1.0)
                for reference in done:
                    got_on = self._ended(reference) or got_on
            if got_on or self._in_flight("race", "compile"):
                idle_since = None
                continue
            # Nothing runs: actors do not start, or wait for a node that is gone, or may not take the jobs that are left.
            idle_since = self.clock() if idle_since is None else idle_since
            if self.clock() - idle_since >= self.patience_s:
                break
            time.sleep(min(0.5, self.patience_s / 10))
        self.unconfirmed = self._give_up_on()
        self.failed += [job for job in self.waiting if job not in self.unconfirmed]
        for actor in list(self.racers):
            self._lose(actor)
        return bool(self.seen_gpus) and not self.failed and not self.unconfirmed


def write_rows(state, output, more=()):
    """Merges the rows of the state, and those that lie in `output`, into `output`."""
    fresh = state.folder / "merge"
    for number, (name, text) in enumerate(state.rows()):
        path = fresh / str(number) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folders = sorted(path for path in fresh.glob("*")) if fresh.exists() else []
    folders += [pathlib.Path(output)] if pathlib.Path(output).is_dir() else []
    if not folders:
        return {"read": 0, "written": 0}
    words = [word for folder in folders for word in ("--merge", folder)]
    result, code = run_command(["tune", *words, "--output", output, "--json", *more])
    if code:
        raise KernelwrightError(result.get("error", "the rows were not merged"))
    return result


def parse_arguments(words):
    parser = argparse.ArgumentParser(prog="kernelwright.tune_fleet", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", required=True, metavar="FILE", help="what tune --list-units wrote")
    parser.add_argument("--state", required=True, metavar="DIR", help="what is done; best on a disk that all nodes share")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for the rows")
    parser.add_argument("--budget", default="120s", help="of each race")
    parser.add_argument("--candidates", type=int, help="schedules to race; else as many as the kind has")
    parser.add_argument("--arch", action="append", default=[], help="what to compile for: sm_90a")
    parser.add_argument("--cache-dir", metavar="DIR", help="the cache; best on a disk that all nodes share")
    parser.add_argument("--address", help="of the Ray cluster: auto, or host:port; else this machine alone")
    parser.add_argument("--fake-gpus", type=int, default=0, metavar="N", help="emulators instead of GPUs, which try the driver")
    return parser.parse_args(words)


def main(words=None, ray=None):
    args = parse_arguments(words)
    try:
        units = json.loads(pathlib.Path(args.units).read_text())["units"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{args.units}: is no list of units: {error}; tune --list-units writes one", file=sys.stderr)
        return 2
    base = pathlib.Path(args.units).resolve().parent
    units = [{**unit, "config": str(base / unit["config"])} for unit in units]
    try:
        timeout_s = 4 * seconds_of(args.budget) + 600  # a race keeps its budget within a fifth; setting up comes on top
    except ValueError:
        print(f"--budget: {args.budget} is no time; 120s, 5m or 1h would do", file=sys.stderr)
        return 2
    if ray is None:
        try:
            import ray
        except ImportError:
            print("Ray is not installed; pip install 'kernelwright[ray]' would do", file=sys.stderr)
            return 3
    shared = ["--cache-dir", args.cache_dir] if args.cache_dir else []
    counted = ["--candidates", str(args.candidates)] if args.candidates else []
    compiled_for = [word for arch in args.arch for word in ("--arch", arch)]
    if not ray.is_initialized():
        local = {} if args.address else {"resources": {FAKE_GPU: args.fake_gpus}} if args.fake_gpus else {}
        ray.init(address=args.address, log_to_driver=False, include_dashboard=False, **local)
    state = State(args.state)
    fleet = Fleet(ray, units, state, options=["--budget", args.budget, *counted, *shared],
                  compile_options=[*counted, *shared, *compiled_for], fake=args.fake_gpus > 0, timeout_s=timeout_s,
                  say=lambda text: print(text, file=sys.stderr, flush=True))
    done = fleet.run()
    merged = write_rows(state, args.output, shared)
    for job in fleet.failed:
        print(f"{job}: failed: {job.errors[-1] if job.errors else 'no such GPU is there'}", file=sys.stderr)
    for job in fleet.unconfirmed:
        print(f"{job}: no second {job.gpu} is there, so its row is not written", file=sys.stderr)
    if not fleet.seen_gpus:
        print("no actor of the Ray cluster has a GPU; --fake-gpus N tries the driver on emulators", file=sys.stderr)
        return 3
    print(f"{merged['written']} rows in {args.output}")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
