#!/usr/bin/env python3
"""How far a burst alone moves TTFT: the requests of bench/serve.py, served by a model of vLLM whose steps are a little faster or
slower.

    python3 bench/serve_bursts.py --rate 48 --requests 400

A step costs a part of its own, a part for each token and a part for each request. It takes what has arrived, up to 16384 tokens, and
the next one is scheduled while it runs. Each row is one speed. Needs neither vLLM nor a GPU.
"""
import argparse
import csv
import sys
import types

import serve

MOST_TOKENS = 16384
# Seconds, from rows of Llama-3-8B on an H200: decodes of 64 take 6.2 ms, prompts of 64 x 512 tokens 0.73 s.
STEP, TOKEN, REQUEST = 5.0e-3, 20.5e-6, 15e-6
SPEEDS = (0.94, 0.96, 0.98, 0.99, 1.0, 1.01, 1.02, 1.04, 1.06)


class Scheduler:
    def __init__(self):
        self.waiting, self.requests = [], {}  # of a request: tokens of its prompt that are left, tokens to generate, scheduled, arrived

    def _preempt_request(self, *_):
        raise NotImplementedError("the cache of this model has room for all")

    def schedule(self):
        tokens, room = {}, MOST_TOKENS
        for name, request in self.requests.items():  # in the order of arrival, so decodes are first
            count = min(request.prompt or int(request.scheduled < request.wanted), room)
            if count:
                tokens[name] = count
                room -= count
                request.prompt -= min(request.prompt, count)
                request.scheduled += not request.prompt
        self.waiting = [name for name in self.waiting if name not in tokens]
        return types.SimpleNamespace(num_scheduled_tokens=tokens, done=[name for name in tokens if not self.requests[name].prompt])

    def update_from_output(self, output, _):
        """What serve.py takes of each request that has a new token."""
        for name in output.done:
            if name in self.requests:
                request = self.requests[name]
                request.arrived += 1
                finished = request.arrived == request.wanted
                if finished:
                    del self.requests[name]
                yield types.SimpleNamespace(request_id=name, finished=finished,
                                            outputs=[types.SimpleNamespace(token_ids=range(request.arrived))])


class Engine:
    """What serve.Online asks of vLLM's, with a clock that stands still between its steps."""

    def __init__(self, cost):
        self.scheduler, self.cost, self.now, self.busy_until, self.queue = Scheduler(), cost, 0.0, 0.0, []
        self.engine_core = types.SimpleNamespace(engine_core=types.SimpleNamespace(scheduler=self.scheduler))

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 1e-6)

    def add_request(self, name, prompt, how):
        self.scheduler.waiting.append(name)
        self.scheduler.requests[name] = types.SimpleNamespace(prompt=len(prompt["prompt_token_ids"]), wanted=how.max_tokens, scheduled=0,
                                                              arrived=0)

    def abort_request(self, names):
        for name in names:
            self.scheduler.requests.pop(name, None)

    def has_unfinished_requests(self):
        return bool(self.scheduler.requests)

    def step(self):
        output = self.scheduler.schedule()
        if output.num_scheduled_tokens:
            tokens = output.num_scheduled_tokens.values()
            self.busy_until = max(self.busy_until, self.now) + self.cost(sum(tokens), len(tokens))
            self.queue.append((self.busy_until, output))
            if len(self.queue) < 2:
                return []
        at, output = self.queue.pop(0)
        self.now = max(self.now, at)
        return list(self.scheduler.update_from_output(output, None))


def latencies(given, cost, number=0):
    """The row of serve.Online, whose steps cost(tokens, requests) seconds."""
    engine = Engine(cost)
    vllm = types.SimpleNamespace(SamplingParams=lambda **named: types.SimpleNamespace(**named))
    with_vllm, given_time, given_memory = sys.modules.get("vllm"), serve.time, serve.memory
    sys.modules["vllm"], serve.time, serve.memory = vllm, engine, lambda: (0, 0)
    try:
        return serve.Online(engine, given, given.input, given.requests, given.rate, number).run(clock=engine.perf_counter)
    finally:
        serve.time, serve.memory = given_time, given_memory
        sys.modules.pop("vllm") if with_vllm is None else sys.modules.update(vllm=with_vllm)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind, default in (("rate", float, 48.0), ("requests", int, 400), ("cancel", float, 0.1), ("input", int, 512),
                                ("tokens", int, 128), ("numbers", int, 1)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    given = parser.parse_args()
    writer = csv.writer(sys.stdout)
    writer.writerow(("number", "speed", *serve.LATENCIES, "longest_step_tokens", "longest_step_ms"))
    for number in range(given.numbers):
        for speed in SPEEDS:
            row = latencies(given, lambda tokens, requests: speed * (STEP + TOKEN * tokens + REQUEST * requests), number)
            longest = next(step for step in row["steps"] if step["what"] == "slowest")
            writer.writerow((number, speed, *(row[name] for name in serve.LATENCIES), longest["tokens"], longest["ms"]))


if __name__ == "__main__":
    main()
