"""Peers that the machine lacks, compared through a peer that it has: ours / FA3 = (ours / cuDNN of this run) / (FA3 /
cuDNN as recorded).
"""
import csv
import pathlib

# The peer on the left stands in for the peers on the right.
THROUGH = {"cudnn": ["fa3"], "cublas": ["deepgemm"], "cublaslt_tensor": ["deepgemm"], "cublas_bf16": ["deepgemm"]}

RECORDED = pathlib.Path(__file__).parent / "2026-11-20-h100-anchors.csv"


def read(path=RECORDED):
    """{row: {peer: recorded rate}}."""
    recorded = {}
    with open(path, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(text for text in file if not text.startswith("#")):
            recorded.setdefault(line["row"], {})[line["peer"]] = float(line["rate"])
    return recorded


def through(recorded, row, ratio, anchor, peer):
    """Converts `ratio`, a (median, low, high) against the anchor in this run, to a ratio against `peer`. None if no
    rate is recorded."""
    rates = recorded.get(row, {})
    if anchor not in rates or peer not in rates:
        return None
    return tuple(value * rates[anchor] / rates[peer] for value in ratio)
