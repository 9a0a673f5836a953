"""Configs that a script makes: each runs against its reference on a GPU, and then all are timed."""
import argparse
import json
import pathlib
import subprocess
import tempfile


def main(doc, configs, timed=("decode", "prefill"), checked=("check",)):
    """`configs`: pairs of a name and a config, with shapes of the names in `timed` and in `checked`. Returns an exit
    status."""
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    parser.add_argument("command", help="the kernelwright command")
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER", help="write the configs, and time nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.write or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, config in configs:
            paths.append(folder / f"{name}.json")
            paths[-1].write_text(json.dumps({"version": 1, "name": name, "schedule": "auto"} | config, indent=2) + "\n")
        if given.write:
            return 0
        for verb, shapes in (("run", checked), ("bench", timed)):
            step = [verb, *(word for name in shapes for word in ("--shape", name))]
            done = subprocess.run([given.command, step[0], *map(str, paths), *step[1:], "--device", "cuda"])
            if done.returncode != 0:
                return done.returncode
    return 0
