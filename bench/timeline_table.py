#!/usr/bin/env python3
"""The measured rows for the timeline (generator/attention/predicted.h), as one table with configs. Some rows
fit the timeline's constants; the others check them.

    python3 bench/timeline_table.py | build/bench/kernelwright_timeline_bench --spell | grep peers.csv > tests/generator/attention/predicted_h100.tsv
    python3 bench/timeline_table.py | build/bench/kernelwright_timeline_bench

A line has tabs between its fields: fit or held-out, file, row, arm, milliseconds, MHz, config. The rule was fixed
before anything was fitted. The shapes of bench/peers/rows.py alternate in their order: the first is to fit, the
second is held out, and so on. A shape takes all of its arms along. Arms with clusters are left out: the timeline has
no model of them.
"""
import csv
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
from peers import rows  # noqa: E402

RESULTS = FOLDER / "results"
FILES = ["attention/2026-11-21-h100-peers.csv", "attention/steps/hopper-multicast-and-queue.csv"]
# Measured before the queue existed, with the planner's schedule of that time. Only arms whose schedules say enough are
# kept, and only without masks, because causal items came in another order then.
OLDER = {"attention/2026-11-21-h100-query-slots.csv": ["two", "twoq3", "twoq4", "twoq1", "threeq3", "two80q3", "two64q3", "gqapack-two"],
         "attention/2026-11-21-h100-decode-arms.csv": ["tma", "tma8w", "tma8w2", "tma4w128", "tma4s3", "tma4s2", "tma-sp16", "tma-sp33",
                                             "tma8-sp16", "tma-comb"]}


def read(path):
    """(arms' schedules, rows with a time)."""
    arms, lines = {}, []
    for line in path.read_text().splitlines():
        if line.startswith("# arm "):
            name, schedule = line[6:].split(": ", 1)
            arms[name] = json.loads(schedule)
        elif not line.startswith("#"):
            lines.append(line)
    return arms, [row for row in csv.DictReader(lines) if row["status"] == "ok"]


def config(row, schedule):
    shape = {"name": "measured", "batch": row.batch, "q_len": max(row.q_lens()), "kv_len": row.kv_len}
    if row.chunks:
        shape["q_lens"] = row.q_lens()
    return {"version": 1, "kind": "attention", "name": row.name, "problem": row.problem(),
            "schedule": dict({"arch": "sm_90a"}, **schedule), "shapes": [shape]}


def main():
    shapes = [row for row in rows.ROWS if not row.smoke]
    sets = {row.name: ("fit", "held-out")[i % 2] for i, row in enumerate(shapes)}
    by_name = {row.name: row for row in shapes}
    seen = set()
    for name in [*FILES, *OLDER]:
        arms, measured = read(RESULTS / name)
        for entry in measured:
            row, schedule = by_name[entry["row"]], dict(arms.get(entry["arm"], {}))
            if "cluster" in schedule or (name, entry["row"], entry["arm"]) in seen:
                continue
            if name in OLDER:
                if entry["arm"] not in OLDER[name] or row.causal:
                    continue
                if not row.is_decode:
                    schedule.setdefault("scheduler", "longest_first" if row.causal else "persistent")
                    schedule.setdefault("q_stages", 2)
            seen.add((name, entry["row"], entry["arm"]))
            print(sets[row.name], pathlib.Path(name).name, row.name, entry["arm"], entry["ours_ms"], entry["sm_mhz_last"],
                  json.dumps(config(row, schedule)), sep="\t")


if __name__ == "__main__":
    main()
