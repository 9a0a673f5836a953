#!/usr/bin/env python3
"""A picture of compare_peers.py's CSV: for each row and peer the best arm's ratio with its interval, and the target.

    python3 bench/plot_peers.py results.csv results.png
"""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

COLOURS = {"cudnn": "#3b6ea5", "fa2": "#7f9f7f", "fa3": "#c8763a", "read_stream": "#6b5b95", "separate": "#8a8a3a", "copy": "#5b8a8a"}


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        texts = list(file)
    about = [text[1:].strip() for text in texts if text.startswith("#")]
    return list(csv.DictReader(text for text in texts if not text.startswith("#"))), about


def best_lines(lines):
    """The best arm of each row and peer, in the order of the file."""
    best = {}
    for line in lines:
        if not line["ratio"]:
            continue
        key = line["row"], line["peer"]
        if key not in best or float(line["ratio"]) > float(best[key]["ratio"]):
            best[key] = line
    return list(best.values())


def draw(lines, path, about=()):
    best = best_lines(lines)
    if not best:
        raise SystemExit("plot_peers.py: no line of the CSV has a ratio")
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.27 * len(best)), layout="constrained")
    seen = set()
    for y, line in enumerate(best):
        ratio, low, high = (float(line[name]) for name in ("ratio", "low", "high"))
        anchored = line["status"] == "anchor"
        name = line["peer"] + (" (recorded, through cudnn)" if anchored else "")
        axes.barh(y, ratio, color=COLOURS.get(line["peer"], "#999999"), alpha=0.55 if anchored else 0.9,
                  xerr=[[ratio - low], [high - ratio]], error_kw={"elinewidth": 1}, label=None if name in seen else name)
        seen.add(name)
        beyond = max(high, float(line["target"] or 0))  # the words keep clear of the target's mark
        axes.text(beyond + 0.015, y, f"{ratio:.3f}   {float(line['ours_rate']):.0f} {line['unit']}", va="center", fontsize=7)
        if line["target"]:
            axes.plot([float(line["target"])] * 2, [y - 0.4, y + 0.4], color="black", linewidth=1.5)
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(best)), [line["row"] for line in best], fontsize=8)
    axes.set_ylim(len(best) - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * max(float(line[name] or 0) for line in best for name in ("high", "target")))
    axes.set_xlabel("our rate / the peer's; black: the target")
    axes.legend(loc="lower right", fontsize=7)
    if about:
        axes.set_title(about[0], fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    draw(*[read(sys.argv[1])[0], sys.argv[2], read(sys.argv[1])[1]])
