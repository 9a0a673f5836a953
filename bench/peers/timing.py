"""Arms as CUDA graphs, interleaved rounds, the SM clock, and a time limit for kernels that hang."""
import ctypes
import subprocess
import time

import torch

from .stats import order


class Hang(Exception):
    """A kernel did not finish in time. The device cannot be used after that."""


def wait(seconds):
    """Waits until the work queued on the current stream is done; raises Hang after `seconds`. It spins, because
    rounds are short."""
    done = torch.cuda.Event()
    done.record()
    end = time.monotonic() + seconds
    while not done.query():
        if time.monotonic() > end:
            raise Hang(f"not done after {seconds:g} s")


class Graph:
    """One arm as a graph: flush the L2, event, the call, event. Without `flush` the L2 is as the call before left it."""

    def __init__(self, call, flush, hang_seconds):
        # The graph holds only addresses. The call owns the memory (a workspace, for example). Capturing the next graph
        # returns memory without an owner to the driver.
        self.call, self.hang_seconds = call, hang_seconds
        self.start, self.end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call()
            wait(hang_seconds)
        self.graph = torch.cuda.CUDAGraph()
        # thread_local: calls by the engine's own threads do not break the capture.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            if flush is not None:
                flush.zero_()
            self.start.record()
            self.out = call()
            self.end.record()

    def run(self):
        """Milliseconds of the call."""
        self.graph.replay()
        wait(self.hang_seconds)
        return self.start.elapsed_time(self.end)


def measure(graphs, seconds, clock, min_rounds=7, max_rounds=300):
    """Times of each arm of `graphs`, {name: Graph}, round by round: {name: [ms]}. Rounds continue for `seconds`, but
    there are at least min_rounds. Also returns the SM clock in MHz during the first and the last round."""
    for _ in range(2):
        for graph in graphs.values():
            graph.run()
    first_clock = busy_clock(graphs, clock)
    times = {name: [] for name in graphs}
    begin, number = time.monotonic(), 0
    while number < min_rounds or (number < max_rounds and time.monotonic() - begin < seconds):
        for name in order(list(graphs), number):
            times[name].append(graphs[name].run())
        number += 1
    return times, (first_clock, busy_clock(graphs, clock))


def measure_sustained(graphs, seconds, clock, rounds=4):
    """As measure(). Each arm runs `seconds` at a time without a pause, so that the power limit sets the clock. A round's
    time is the mean of its calls. The clock is that of the first and the last arm at the end of their last calls."""
    times, clocks = {name: [] for name in graphs}, []
    for number in range(rounds):
        for name in order(list(graphs), number):
            graph = graphs[name]
            calls = max(1, round(1000 * seconds / max(graph.run(), 1e-3)))
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin = time.monotonic()
            start.record()
            for _ in range(calls):
                graph.graph.replay()
            end.record()
            time.sleep(max(0.0, begin + 0.9 * seconds - time.monotonic()))
            clocks.append(clock())
            wait(graph.hang_seconds + 2 * seconds)
            times[name].append(start.elapsed_time(end) / calls)
    return times, (clocks[0], clocks[-1])


def busy_clock(graphs, clock):
    for graph in graphs.values():
        graph.graph.replay()
    mhz = clock()
    torch.cuda.synchronize()
    return mhz


class SmClock:
    """The SM clock of the current device in MHz, by NVML, else by nvidia-smi (slow), else "?"."""

    SM = 1  # NVML_CLOCK_SM

    def __init__(self):
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        domain, bus, device = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
        self.bus_id = None if bus is None else f"{domain or 0:08x}:{bus:02x}:{device:02x}.0"
        self.device = None
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() == 0:
                found = (self.nvml.nvmlDeviceGetHandleByPciBusId_v2(self.bus_id.encode(), ctypes.byref(handle)) if self.bus_id
                         else self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)))
                self.device = handle if found == 0 else None
        except OSError:
            pass

    def __call__(self):
        if self.device is not None:
            mhz = ctypes.c_uint()
            if self.nvml.nvmlDeviceGetClockInfo(self.device, self.SM, ctypes.byref(mhz)) == 0:
                return str(mhz.value)
        try:
            asked = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
            asked += ["-i", self.bus_id] if self.bus_id else []
            return subprocess.run(asked, capture_output=True, text=True, timeout=10).stdout.strip().splitlines()[0]
        except (OSError, IndexError, subprocess.TimeoutExpired):
            return "?"
