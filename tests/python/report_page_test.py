"""The page of `kernelwright report` in a browser without network: it draws its charts, and its console stays empty."""
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COMMAND = os.environ["KERNELWRIGHT_COMMAND"]
RESULTS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "results"
CSV_FILE = RESULTS / "gemm" / "2026-11-28-h100-batched-arms.csv"  # its fastest arm is ahead more often than auto
SKIPPED = 77
LOG = """\
{"config":"mlp","device":"d","arch":"sm_90a","rows":{"least":1,"most":16},"schedule":{"block_n":64},"is_model":true,\
"verdict":"measured","round":0,"mean_us":%s,"times":[{"shape":"m8","us":%s,"samples":8}],"registers":90,"spill_bytes":0,\
"ctas_per_sm":2,"predicted_us":9,"clock_mhz":1755,"date":"2026-11-21T12:00:00Z","key":"%s"}
"""
OUTCOME = """\
{"outcome":"row","config":"mlp","device":"d","arch":"sm_90a","rows":{"least":1,"most":16},"best_over_model":{"median":1.25,\
"low":1.2,"high":1.3,"pairs":40},"model":"a","best":"b","shapes":[{"shape":"m8","operations":1e9,"bytes":1e6,\
"compute_us":1,"memory_us":0.3}],"clock_mhz":{"least":1700,"median":1755,"most":1980},"gpu_id":"","limits":[],"seconds":3,"compiler":"c",\
"driver":"13.0","kernelwright":"0.1.0","times_mean_something":true,"date":"2026-11-21T12:00:00Z"}
"""


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def rendered(folder, arguments):
    """The page's elements after its script ran, and what the console said."""
    page = folder / "page.html"
    subprocess.run([COMMAND, "report", *map(str, arguments), "--output", page], check=True, stdout=subprocess.DEVNULL)
    shown = subprocess.run([browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
                            "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=2000",
                            "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout, [line for line in shown.stderr.splitlines() if "CONSOLE" in line]


def main():
    if not browser():
        print("no Chromium here")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        log = folder / "run.jsonl"
        model, best = LOG % (10, 10, "a"), (LOG % (8, 8, "b")).replace('"block_n":64', '"block_n":96').replace(":true,\"verdict", ":false,\"verdict")
        log.write_text(model + best + OUTCOME)
        elements, console = rendered(folder, [log])
        assert not console, console
        for title in ("Speed of the best schedule", "The race, round by round", "Registers and occupancy",
                      "Predicted against measured", "Roofline", "Clocks"):
            assert title in elements, title
        assert len(re.findall("<svg", elements)) == 6, elements
        assert "1.250 (1.200 .. 1.300)" in elements
        with CSV_FILE.open() as lines:
            rows = [row for row in csv.DictReader(line for line in lines if not line.startswith("#")) if row["arm"] == "auto" and row["status"] == "ok"]
        ahead = sum(float(row["low"]) > 1 for row in rows)
        elements, console = rendered(folder, [CSV_FILE])
        assert not console, console
        assert f"ahead, beyond noise, in {ahead} of {len(rows)} comparisons of arm auto." in elements
        elements, console = rendered(folder, ["--compare", CSV_FILE, CSV_FILE])
        assert not console, console
        assert "Speed against the peers" in elements and "Speed of B over A" in elements
        assert len(re.findall("<svg", elements)) == 5
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
