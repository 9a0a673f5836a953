"""Peers that the machine lacks, through one that it has: ours / FA3 = (ours / cuDNN of this run) / (FA3 / cuDNN as recorded).
"""
import csv
import pathlib

# What the peer on the left stands in for.
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
    """`ratio`, a (median, low, high) against the anchor in this run, as one against `peer`; None if no rate is recorded."""
    rates = recorded.get(row, {})
    if anchor not in rates or peer not in rates:
        return None
    return tuple(value * rates[anchor] / rates[peer] for value in ratio)
