#!/usr/bin/env python3
"""Times cold compiles by NVRTC, in user seconds, and splits them into front end, optimiser (NVVM) and ptxas.

    for c in configs/problems/*.json; do
      kernelwright source $c --arch sm_90a > sources/$(basename $c .json).cu; done
    bench/compile_phases.py sources                         # all sources of a folder
    bench/compile_phases.py sources --beside former=FOLDER  # and those of the same names that another commit wrote

A process loads NVRTC once and compiles each source in turn, the folders by turns. User seconds are those of
getrusage(): other processes take elapsed time, but few user seconds. NVRTC's --time says which share of a compile each
phase has. Prints CSV: medians, and the least of all seconds.
"""
import argparse
import ctypes
import pathlib
import re
import resource
import statistics
import tempfile

PHASES = ("front_end", "nvvm", "ptxas")


class Nvrtc:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def seconds(self, text, options):
        """User seconds of one compile: in all, and of each phase."""
        program = ctypes.c_void_p()
        if self.library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) != 0:
            raise SystemExit("nvrtcCreateProgram failed")
        with tempfile.NamedTemporaryFile() as times:
            options = [*options, f"--time={times.name}"]
            words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            result = self.library.nvrtcCompileProgram(program, len(options), words)
            used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
            if result != 0:
                raise SystemExit(f"NVRTC rejects a source: result {result}")
            lines = pathlib.Path(times.name).read_text().splitlines()
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        elapsed = [float(line.split(",")[2]) for line in lines if line.startswith("kernel.cu")]
        if len(elapsed) != len(PHASES):
            raise SystemExit(f"--time names {len(elapsed)} phases, not {len(PHASES)}")
        return (used, *(used * phase / sum(elapsed) for phase in elapsed))


def source(path):
    text = path.read_text()
    options = re.search(r"^// options: (.*)$", text, re.MULTILINE)
    if not options:
        raise SystemExit(f"{path}: has no line of options; write it by `kernelwright source`")
    return text, options.group(1).split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nvrtc", default="libnvrtc.so.13")
    arguments = parser.parse_args()

    nvrtc = Nvrtc(arguments.nvrtc)
    nvrtc.seconds("__global__ void k() {}", ["--gpu-architecture=sm_90a"])  # loads what NVRTC loads late
    folders = {"now": arguments.sources}
    folders.update((name, pathlib.Path(folder)) for name, folder in (text.split("=", 1) for text in arguments.beside))
    print("kernel,build,median,least," + ",".join(PHASES), flush=True)
    for path in sorted(arguments.sources.glob("*.cu")):
        builds = {build: folder / path.name for build, folder in folders.items() if (folder / path.name).exists()}
        samples = {build: [] for build in builds}
        for _ in range(arguments.repeats):
            for build, file in builds.items():
                samples[build].append(nvrtc.seconds(*source(file)))
        for build, rows in samples.items():
            all_of, *phases = ([row[i] for row in rows] for i in range(1 + len(PHASES)))
            medians = [statistics.median(phase) for phase in phases]
            print(",".join([path.stem, build] + [f"{value:.3f}" for value in
                                                 (statistics.median(all_of), min(all_of), *medians)]), flush=True)


if __name__ == "__main__":
    main()
