"""What bench/serve.py looks at while requests are served: the steps that its scheduler makes, and the time of kernels. It holds up
no step, and waits for no GPU. Turns is for two arms on one GPU.
"""
import contextlib
import csv
import fcntl
import time

SLOWEST = 20
STEP_COLUMNS = ("arm", "start", "rate", "what", "steps", "at_s", "tokens", "prompt_tokens", "running", "waiting", "ms")
SHARES = (50, 90, 99, 100)


class Steps:
    """The steps of a scheduler of vLLM's from watch() on: how many tokens and requests each had, and its milliseconds.

    A step begins when the result of the step ahead of it arrives, or when it is scheduled, if that is later: vLLM schedules a step
    while another one runs. It ends when its own result arrives. Where all of its requests were cancelled, nobody asks for that before
    the next request, so the step has no time."""

    def __init__(self, clock=time.perf_counter):
        self.clock, self.found = clock, []

    @contextlib.contextmanager
    def watch(self, scheduler):
        schedule, update = scheduler.schedule, scheduler.update_from_output
        begin = last = self.clock()
        began = {}

        def scheduled(*given, **named):
            output = schedule(*given, **named)
            began[id(output)] = self.clock()
            return output

        def updated(output, *given, **named):
            nonlocal last
            waited_for = any(name in scheduler.requests for name in output.num_scheduled_tokens)
            result = update(output, *given, **named)
            now, tokens = self.clock(), output.num_scheduled_tokens.values()
            start = max(last, began.pop(id(output), last))
            if waited_for:
                self.found.append({"at_s": round(start - begin, 4), "tokens": sum(tokens), "prompt_tokens": sum(n for n in tokens if n > 1),
                                   "running": len(tokens), "waiting": len(scheduler.waiting), "ms": round(1e3 * (now - start), 3)})
            last = now
            return result
        scheduler.schedule, scheduler.update_from_output = scheduled, updated
        try:
            yield self
        finally:
            del scheduler.schedule, scheduler.update_from_output  # those of its class are behind them

    def rows(self):
        """Quantiles of steps with and without tokens of prompts, then the slowest steps. 100 is the maximum."""
        rows = []
        for what in ("prompts", "decodes"):
            of_kind = [step for step in self.found if bool(step["prompt_tokens"]) == (what == "prompts")]
            rows += [{"what": f"{what} p{share}", "steps": len(of_kind), "ms": percentile([step["ms"] for step in of_kind], share)}
                     for share in SHARES if of_kind]
        return rows + [{"what": "slowest"} | step for step in sorted(self.found, key=lambda step: -step["ms"])[:SLOWEST]]


def percentile(values, share):
    """The smallest value that `share` percent of the values do not pass."""
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def write_steps(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, STEP_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


class Profile:
    """The time of each kernel from start() to write()."""

    def __init__(self):
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]):
            pass  # the first one takes seconds, which requests would wait for
        self._profiler = profile(activities=[ProfilerActivity.CUDA])

    def start(self):
        self._profiler.start()

    def write(self, path):
        self._profiler.stop()
        rows = sorted(self._profiler.key_averages(), key=lambda row: -row.self_device_time_total)
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("kernel", "launches", "total_ms", "mean_us"))
            for row in rows:
                if row.self_device_time_total > 0:
                    writer.writerow((row.key[:160], row.count, round(row.self_device_time_total / 1e3, 3),
                                     round(row.self_device_time_total / row.count, 2)))


class Turns:
    """`with turns:` is left to one process at a time, and to none before all of them have started or ended. Each makes a Turns ahead
    of its start, all with the same file."""

    def __init__(self, path):
        """path: "" for a process that has nobody beside it."""
        self._file = open(path, "a") if path else None
        self._lock(fcntl.LOCK_SH)  # who has started waits for all who hold this

    def _lock(self, how):
        if self._file:
            fcntl.flock(self._file, how)

    def __enter__(self):
        self._lock(fcntl.LOCK_UN)
        self._lock(fcntl.LOCK_EX)

    def __exit__(self, *_):
        self._lock(fcntl.LOCK_UN)
        if self._file:
            time.sleep(0.1)  # whoever waits goes first

    def end(self):
        """As if the process had ended."""
        self._file.close()
