#!/usr/bin/env python3
"""kernelwright.ranks: fake engines in random orders, a fake torch.distributed, and processes with engines of their own on
the emulator. ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY."""
import hashlib
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import kernelwright
from kernelwright import ConfigError, MissingError, NotReadyError
from kernelwright.ranks import DivergenceError, Ranks, TorchGather


def digest(name):
    return hashlib.sha256(name.encode()).digest()


class FakeEngine:
    """Kernels that become ready when the test says so, and serve once they are promoted."""

    def __init__(self, kernels):
        self.pending, self.ready, self.serving = set(kernels), set(), set()

    def finish(self, kernel, as_digest=None):
        if kernel in self.pending:
            self.pending.remove(kernel)
            self.ready.add(as_digest or digest(kernel))

    def fail(self, kernel):
        self.pending.discard(kernel)

    def counters(self):
        return {"pending": len(self.pending)}

    def ready_digests(self):
        return sorted(self.ready)

    def promote(self, expected):
        if not set(expected) <= self.ready:
            raise NotReadyError("not ready here")
        count = len(set(expected) - self.serving)
        self.serving |= set(expected)
        return count

    def plan_digest(self):
        return hashlib.sha256(b"".join(sorted(self.serving))).digest()


class Network:
    """All-gathers among threads. Each rank's n-th call belongs to the n-th gather."""

    def __init__(self, ranks):
        self.ranks, self.gathers, self.changed = ranks, [], threading.Condition()

    def of(self, rank):
        calls = iter(range(1 << 30))

        def gather(message):
            at = next(calls)
            with self.changed:
                while len(self.gathers) <= at:
                    self.gathers.append({})
                self.gathers[at][rank] = message
                self.changed.notify_all()
            return types.SimpleNamespace(wait=lambda: self.wait(at))
        return gather

    def wait(self, at):
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.gathers[at]) == self.ranks, timeout=20):
                raise AssertionError("a rank never came")
            return [self.gathers[at][rank] for rank in range(self.ranks)]


def lockstep(engines, **options):
    network = Network(len(engines))
    return [Ranks(engine, network.of(rank), **options) for rank, engine in enumerate(engines)]


class RanksTest(unittest.TestCase):
    def test_promotes_two_steps_after_all_ranks_are_ready(self):
        engines = [FakeEngine("ab") for _ in range(2)]
        ranks = lockstep(engines)
        for engine in engines:
            engine.finish("a")
        engines[0].finish("b")
        counts = [[rank.step() for rank in ranks] for _ in range(3)]
        self.assertEqual(counts, [[0, 0], [0, 0], [1, 1]])
        self.assertFalse(ranks[0].settled)
        engines[1].finish("b")
        counts = [[rank.step() for rank in ranks] for _ in range(3)]
        self.assertEqual(counts, [[0, 0], [0, 0], [1, 1]])
        self.assertTrue(ranks[0].settled and ranks[1].settled)
        self.assertEqual(ranks[0].left_behind, [])

    def test_names_what_is_left_behind(self):
        engines = [FakeEngine("ab") for _ in range(2)]
        ranks = lockstep(engines)
        engines[0].finish("a"), engines[1].finish("a", digest("a by another compiler"))
        engines[0].finish("b"), engines[1].fail("b")
        for _ in range(3):
            self.assertEqual([rank.step() for rank in ranks], [0, 0])
        self.assertTrue(ranks[1].settled)
        self.assertEqual(ranks[1].left_behind, sorted(map(digest, ["a", "b", "a by another compiler"])))

    def test_more_kernels_than_a_gather_carries(self):
        names = [f"kernel {i}" for i in range(11)]
        engines = [FakeEngine(names) for _ in range(2)]
        ranks = lockstep(engines, most_digests=4, every=2)
        for engine in engines:
            for name in names:
                engine.finish(name)
        for _ in range(12):
            for rank in ranks:
                rank.step()
        self.assertEqual(engines[0].serving, set(map(digest, names)))
        self.assertTrue(ranks[0].settled)

    def test_never_diverges_in_random_orders(self):
        for seed in range(40):
            rng, names = random.Random(seed), [f"kernel {i}" for i in range(5)]
            engines = [FakeEngine(names) for _ in range(4)]
            network, plans, errors = Network(4), [[] for _ in range(4)], []
            slow = rng.randrange(4), rng.choice(names)
            at = [{name: 30 if (rank, name) == slow else rng.randrange(20) for name in names} for rank in range(4)]
            fails = rng.random() < 0.25
            every = rng.choice([1, 1, 3])

            def run(rank):
                try:
                    engine, own = engines[rank], Ranks(engines[rank], network.of(rank), every=every)
                    for step in range(40):
                        for name in names:
                            if at[rank][name] == step:
                                engine.fail(name) if fails and (rank, name) == slow else engine.finish(name)
                        own.step()
                        plans[rank].append(engine.plan_digest())
                    own.require_agreement()
                except BaseException as error:  # of a thread, for the test
                    errors.append(error)
            threads = [threading.Thread(target=run, args=(rank,)) for rank in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [], seed)
            for rank in range(1, 4):
                self.assertEqual(plans[rank], plans[0], seed)
            self.assertEqual(len(engines[0].serving), 4 if fails else 5, seed)

    def test_refuses_to_capture_what_differs(self):
        engines = [FakeEngine("a") for _ in range(3)]
        for engine in engines:
            engine.finish("a")
        engines[2].promote([digest("a")])  # by itself
        ranks = lockstep(engines)
        said = []

        def ask(rank):
            try:
                rank.require_agreement()
            except DivergenceError as error:
                said.append(str(error))
        threads = [threading.Thread(target=ask, args=(rank,)) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(said), 3)
        self.assertIn("capture no graph: other kernels than on rank 0 serve, or another step runs, on rank 2;", said[0])

    def test_refuses_ranks_at_different_steps(self):
        sent = []
        echo = lambda message: types.SimpleNamespace(wait=lambda: [message, sent[0]])
        other = Ranks(FakeEngine("a"), lambda message: sent.append(message))
        other._step = 7
        other.step()
        rank = Ranks(FakeEngine("a"), echo)
        rank.step(), rank.step()
        with self.assertRaisesRegex(DivergenceError, "rank 1 was at step 7 and this rank at step 0: call step"):
            rank.step()

    def test_refuses_other_sizes_of_messages(self):
        rank = Ranks(FakeEngine("a"), lambda message: types.SimpleNamespace(wait=lambda: [message, message + b"more"]))
        rank.step(), rank.step()
        with self.assertRaisesRegex(DivergenceError, "rank 1 sent .* most_digests must be equal"):
            rank.step()
        with self.assertRaisesRegex(ConfigError, "every: 0 is no whole number from 1 on"):
            Ranks(FakeEngine("a"), None, every=0)


class TorchGatherTest(unittest.TestCase):
    def test_gathers_by_torch_distributed(self):
        class Tensor(bytearray):
            def tolist(self):
                return list(self)

        def all_gather(received, sent, group, async_op):
            self.assertTrue(async_op)
            self.assertEqual(group, "a group of gloo")

            def wait():
                for rank, tensor in enumerate(received):
                    tensor[:] = sent[:-1] + bytes([rank])
            return types.SimpleNamespace(wait=wait)
        distributed = types.SimpleNamespace(new_group=lambda backend: f"a group of {backend}",
                                            get_world_size=lambda group: 3, all_gather=all_gather)
        torch = types.SimpleNamespace(distributed=distributed, uint8=None, empty_like=lambda tensor: Tensor(len(tensor)),
                                      frombuffer=lambda data, dtype: Tensor(data))
        with mock.patch.dict(sys.modules, {"torch": torch}):
            self.assertEqual(TorchGather()(b"message?").wait(), [b"message\0", b"message\1", b"message\2"])


CONFIG = {"problem": {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 1, "kv": 1}}, "schedule": {"rescale": "always"}}


def rank_process(rank, cache, pipes, results):
    """A rank with an engine and a cache directory of its own. The message of the other rank comes through a pipe."""
    sent, received = [], []

    def wait(at):
        while len(received) <= at:  # the messages of earlier gathers come first
            received.append(pipes[rank].recv())
        return [sent[at], received[at]][::1 if rank == 0 else -1]

    def gather(message):
        sent.append(message)
        pipes[rank].send(message)
        at = len(sent) - 1
        return types.SimpleNamespace(wait=lambda: wait(at))
    with kernelwright.Engine(backend="emulator", cache_directory=cache, fallback_first=True) as engine:
        kernel = engine.prepare(CONFIG, on_miss="fallback", background=True)
        ranks, plans = Ranks(engine, gather), []
        while not kernel.serves_fallback:  # as a first launch would wait
            time.sleep(0.01)
        while not ranks.settled:
            ranks.step()
            plans.append(engine.plan_digest())
            engine.wait_until_ready(20)
        ranks.require_agreement()
        results.put((rank, plans, kernel.serves_fallback, engine.ready_digests(), engine.counters()["compiles"]))


class ProcessesTest(unittest.TestCase):
    def test_two_processes_agree_though_one_has_the_kernel_cached(self):
        with tempfile.TemporaryDirectory() as folder:
            caches = [os.path.join(folder, name) for name in ("warm", "cold")]
            try:
                with kernelwright.Engine(backend="emulator", cache_directory=caches[0]) as engine:
                    engine.prepare(CONFIG)
                    self.assertEqual(engine.promote(engine.ready_digests()), 0)
                    with self.assertRaisesRegex(NotReadyError, "1 of them are not ready here, so none is promoted"):
                        engine.promote([digest("another")])
                    with self.assertRaisesRegex(ConfigError, "is no digest"):
                        engine.promote(["00"])
            except MissingError as error:
                self.skipTest(str(error))
            spawn = multiprocessing.get_context("spawn")
            pipes, results = spawn.Pipe(), spawn.Queue()
            processes = [spawn.Process(target=rank_process, args=(rank, caches[rank], pipes, results)) for rank in range(2)]
            for process in processes:
                process.start()
            (_, plans, fallback, ready, _), (_, others, other_fallback, other_ready, compiles) = sorted(
                results.get(timeout=60) for _ in processes)
            for process in processes:
                process.join()
            self.assertEqual(plans, others)
            self.assertEqual(ready, other_ready, "two builds of this kernel are the same bytes")
            self.assertEqual([fallback, other_fallback], [False, False])
            self.assertNotEqual(plans[0], plans[-1])
            self.assertEqual(compiles, 2)


if __name__ == "__main__":
    unittest.main()
