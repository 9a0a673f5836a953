#!/usr/bin/env python3
"""Runs every attention config on the GPU and on the emulator, with the same PTX and the same inputs, and compares the
outputs.

    bench/compare_devices.py KERNELWRIGHT CONFIG_DIR TABLE.csv

Each shipped config runs at its shapes marked "check", and once more with f16 and bf16 exchanged, which gives further
kernels. The table has a row per shape: how many outputs are the same number, and the largest difference. The
difference is given as a number and in units of the last place of the output's type at that value's size (bf16 8 bits,
f16 11 bits).
Exit status 1 if a run fails or a difference exceeds LIMIT_ULP.
"""
import csv, json, math, pathlib, subprocess, sys, tempfile
import numpy as np

# The tensor core rounds sums in another way than the emulator's fma chains, and ex2.approx differs by up to two places.
# So the last place of an output may differ. The LSE is f32: its last places hold the rounding of the whole sum.
LIMIT_ULP = {"o": 1.0, "lse": 16.0}
BITS = {"bf16": 8, "f16": 11, "f32": 24, "e4m3": 4, "e5m2": 3}


def exchanged(config):
    names = {"bf16": "f16", "f16": "bf16"}
    dtype = config["problem"]["dtype"]
    if not any(value in names for value in dtype.values()):
        return None
    config["problem"]["dtype"] = {key: names.get(value, value) for key, value in dtype.items()}
    config["name"] += "-exchanged"
    return config


def outputs(program, device, path, shape, folder):
    folder.mkdir(parents=True)
    command = [program, "run", str(path), "--device", device, "--shape", shape, "--seed", "5", "--outputs", str(folder)]
    command += ["--arch", "sm_90a"] if device == "emulator" else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return None, (done.stderr or done.stdout).strip().splitlines()[-1:]
    return {file.name: np.load(file) for file in folder.rglob("*.npy")}, ""


def compare(gpu, cpu, bits):
    finite = np.isfinite(gpu) & np.isfinite(cpu)
    same = (gpu == cpu) | (np.isnan(gpu) & np.isnan(cpu))
    difference = np.where(finite, np.abs(gpu.astype(np.float64) - cpu.astype(np.float64)), np.where(same, 0, np.inf))
    # A row's outputs are sums of values of one size, so places are counted at the size of the row's largest output.
    size = np.max(np.abs(np.where(finite, gpu, 0)), axis=-1, keepdims=True) if gpu.ndim > 1 else np.abs(gpu)
    place = np.exp2(np.floor(np.log2(np.maximum(size, 1e-30))) - (bits - 1))
    return same.mean() if same.size else 1.0, float(difference.max(initial=0)), float((difference / place).max(initial=0))


def main(program, configs, table):
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        files = []
        for path in sorted(pathlib.Path(configs).glob("*.json")):
            config = json.loads(path.read_text())
            if config["kind"] != "attention":
                continue
            files.append((path, config))
            other = exchanged(json.loads(path.read_text()))
            if other:
                copy = scratch / (other["name"] + ".json")
                copy.write_text(json.dumps(other))
                files.append((copy, other))
        for number, (path, config) in enumerate(files):
            for shape in [s["name"] for s in config["shapes"] if s.get("check")]:
                got = {}
                for device in ("cuda", "emulator"):
                    got[device], why = outputs(program, device, path, shape, scratch / f"{number}-{shape}-{device}")
                    if got[device] is None:
                        print(f"{config['name']} {shape} on {device}: {why}", file=sys.stderr)
                        break
                if None in got.values():
                    failed += 1
                    continue
                for name, gpu in sorted(got["cuda"].items()):
                    bits = BITS[config["problem"]["dtype"]["out"]] if name == "o.npy" else 24
                    same, worst, ulp = compare(gpu, got["emulator"][name], bits)
                    failed += ulp > LIMIT_ULP[name[:-4]]
                    rows.append([config["name"], shape, name[:-4], gpu.size, f"{same:.5f}", f"{worst:.3e}", f"{ulp:.2f}"])
    with open(table, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["config", "shape", "output", "values", "same", "max_difference", "max_ulp"])
        writer.writerows(rows)
    print(f"{len({row[0] for row in rows})} configs, {len(rows)} outputs, {failed} failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
