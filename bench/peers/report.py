"""The output of a run: the CSV, a table for the waiting person, and the schedules that the person gave."""
import contextlib
import csv
import dataclasses
import json
import re
import statistics
import sys

FIELDS = ("row", "arm", "peer", "status", "ours_ms", "peer_ms", "ours_rate", "peer_rate", "unit", "ratio", "low", "high", "target",
          "met", "rounds", "ours_error", "peer_error", "ours_rmse", "peer_rmse", "sm_mhz_first", "sm_mhz_last", "note")


@dataclasses.dataclass
class Schedule:
    name: str
    schedule: object  # "auto" or an object
    rows: str = ""  # a regular expression

    def takes(self, row):
        return re.search(self.rows, row) is not None


def name_of(schedule):
    """A short name that distinguishes schedules: their fields."""
    if not isinstance(schedule, dict):
        return str(schedule)
    return " ".join(f"{key}={json.dumps(value).strip(chr(34))}" for key, value in schedule.items()) or "auto"


def read_schedules(given, path):
    """The arms that --schedule and --schedules ask for; "auto" without these options. Makes names unique."""
    texts = [(f"--schedule {i + 1}", text) for i, text in enumerate(given)]
    if path:
        with open(path, encoding="utf-8") as file:
            texts += [(f"{path}:{i + 1}", line) for i, line in enumerate(file) if line.strip() and not line.startswith("#")]
    arms = []
    for where, text in texts or [("", '"auto"')]:
        try:
            value = json.loads(text)
            wrapped = isinstance(value, dict) and "schedule" in value
            schedule = value["schedule"] if wrapped else value
            arm = Schedule(value.get("name", name_of(schedule)) if wrapped else name_of(schedule), schedule,
                           value.get("rows", "") if wrapped else "")
            re.compile(arm.rows)
        except (json.JSONDecodeError, re.error) as error:
            raise SystemExit(f"{where}: {error}") from error
        same = sum(other.name == arm.name or other.name.startswith(arm.name + " #") for other in arms)
        arm.name += f" #{same + 1}" if same else ""
        arms.append(arm)
    return arms


@dataclasses.dataclass
class Timed:
    """An arm's times. error: its largest error over the bound; rmse: relative, against the tensors before quantisation.
    None if there is no output to compare. An anchor has no times."""

    name: str
    times: list
    work: float
    error: object
    rmse: object = None

    @property
    def ms(self):
        return statistics.median(self.times) if self.times else None


def number(value, places):
    return "" if value is None else f"{value:.{places}f}"


def digits(value):
    return "" if value is None else f"{value:.3g}"


def rmse_words(timed):
    return "" if timed.rmse is None else f", RMSE {digits(timed.rmse)}"


class Report:
    def __init__(self, file):
        self.file, self.writer = file, csv.DictWriter(file, FIELDS, lineterminator="\n")
        self.lines, self.wrong, self.shown = [], False, None

    def header(self, *lines):
        for line in lines:
            self.file.write(f"# {line}\n")
            print(line, file=sys.stderr)
        self.writer.writeheader()
        self.file.flush()

    def write(self, **fields):
        line = {name: fields.get(name, "") for name in FIELDS}
        self.lines.append(line)
        self.writer.writerow(line)
        self.file.flush()

    def say(self, row, text):
        if row != self.shown:
            print(row, file=sys.stderr)
            self.shown = row
        print(f"  {text}", file=sys.stderr, flush=True)

    def failure(self, row, arm, peer, status, note, error=None):
        """status: "cannot" (a peer's limit), "failed" (an exception), "wrong" (a wrong output), "hangs"."""
        self.wrong |= status == "wrong" and not peer
        note = " ".join(note.split())
        self.write(row=row.name, arm=arm, peer=peer, status=status, note=note[:600],
                   **{"peer_error" if peer else "ours_error": number(error, 3)})
        self.say(row.name, f"{arm or peer}: {status}: {note[:300]}")

    def result(self, row, mine, theirs, ratio, clocks, note=""):
        """Our arm against one peer. theirs and ratio are None if the row has no peer left."""
        _, unit, per = row.work()
        rate = mine.work / mine.ms / per
        target = dict(row.targets).get(theirs.name) if theirs else None
        met = None if target is None or ratio is None else ratio[0] >= target
        fields = dict(row=row.name, arm=mine.name, status="ok", ours_ms=number(mine.ms, 4), ours_rate=number(rate, 1), unit=unit,
                      rounds=len(mine.times), ours_error=number(mine.error, 3), ours_rmse=digits(mine.rmse), sm_mhz_first=clocks[0],
                      sm_mhz_last=clocks[1], note=note)
        words = f"{mine.name}: {mine.ms:.4f} ms, {rate:.1f} {unit}{rmse_words(mine)}"
        if theirs:
            fields |= dict(peer=theirs.name, peer_error=number(theirs.error, 3), peer_rmse=digits(theirs.rmse), ratio=number(ratio[0], 4),
                           low=number(ratio[1], 4), high=number(ratio[2], 4), target=number(target, 3),
                           met={None: "", True: "yes", False: "no"}[met], status="ok" if theirs.times else "anchor")
            words += f", {ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}] of {theirs.name}"
            if theirs.times:
                peer_rate = theirs.work / theirs.ms / per
                fields |= dict(peer_ms=number(theirs.ms, 4), peer_rate=number(peer_rate, 1))
                words += f" at {peer_rate:.1f}{rmse_words(theirs)}"
        if target is not None:
            words += f", target {target:.3f} {'met' if met else 'missed'}"
        self.write(**fields)
        self.say(row.name, f"{words}, {clocks[0]}-{clocks[1]} MHz")

    def summary(self):
        """Prints the best arm of each row against each target on standard error. Returns how many targets are missed.
        """
        best = {}
        for line in self.lines:
            if line["target"]:
                key = line["row"], line["peer"]
                if key not in best or float(line["ratio"]) > float(best[key]["ratio"]):
                    best[key] = line
        missed = [key for key, line in best.items() if line["met"] == "no"]
        if best:
            wide = max(len(row) for row, _ in best)
            print(f"\n{'row':{wide}}  {'peer':11}  ratio  target      rate  best arm", file=sys.stderr)
            for (row, peer), line in best.items():
                mark = " " if line["met"] == "yes" else "✗"
                print(f"{row:{wide}}  {peer:11}  {float(line['ratio']):5.3f}  {float(line['target']):5.3f} {mark}  "
                      f"{float(line['ours_rate']):8.1f}  {line['arm']}", file=sys.stderr)
            print(f"{len(best) - len(missed)} of {len(best)} targets met", file=sys.stderr)
        return len(missed)


def complain(text, status):
    print(f"compare_peers.py: {text}", file=sys.stderr)
    return status


@contextlib.contextmanager
def standard_output():
    yield sys.stdout


def plot(lines, path):
    try:
        from plot_peers import draw
    except ImportError as error:
        print(f"no plot: {error}; bench/plot_peers.py makes it from the CSV where matplotlib is", file=sys.stderr)
        return
    draw(lines, path)
