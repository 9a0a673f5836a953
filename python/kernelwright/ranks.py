"""Ranks of one model that promote the same kernels at the same step. docs/fleet.md has the protocol.

    from kernelwright.ranks import Ranks, TorchGather

    ranks = Ranks(engine, TorchGather())  # on every rank, once its kernels are being prepared
    ranks.step()                          # on every rank, before the launches of each step
    ranks.require_agreement()             # on every rank, before a graph is captured

`import kernelwright` does not import this module, and this module imports torch in TorchGather alone.
"""
import collections
import struct

from ._engine import DIGEST_BYTES
from ._errors import ConfigError, KernelwrightError

_DELAY = 2  # steps from a gather to the promotion that it leads to
_HEAD = struct.Struct("<QII")  # step, kernels that are being prepared, digests
_PLAN = b"kernelwright plan"


class DivergenceError(KernelwrightError):
    """Ranks run different kernels, or are at different steps."""


class Ranks:
    """One rank's part in the protocol.

    gather: called with bytes, begins an all-gather of them and returns an object with wait(), which returns the
    messages of all ranks, in the order of the ranks. All messages of one call have the same length.
    every: a gather begins at one step in so many.
    most_digests: a gather carries at most so many kernels that are not promoted yet. The others follow.

    One thread calls a rank's methods, and every rank calls them in the same order.
    """

    def __init__(self, engine, gather, *, every=1, most_digests=64):
        for name, value in (("every", every), ("most_digests", most_digests)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name}: {value!r} is no whole number from 1 on")
        self.engine, self._gather, self._every, self._most = engine, gather, every, most_digests
        self._step, self._sent = 0, collections.deque()
        self._agreed = set()  # the same on all ranks: it follows from the gathers alone
        self.settled = False
        self.left_behind = []

    def step(self):
        """Promotes what all ranks had two steps ago, and tells the others what is ready now. Returns how many kernels
        were promoted here. It waits only for a gather of two steps ago."""
        promoted = 0
        if self._sent and self._sent[0][0] + _DELAY == self._step:
            promoted = self._promote(*self._sent.popleft())
        if self._step % self._every == 0:
            self._sent.append((self._step, self._gather(self._message())))
        self._step += 1
        return promoted

    def require_agreement(self):
        """Raises DivergenceError unless all ranks are at the same step and run the same plan. Waits for all ranks."""
        messages = self._gather(struct.pack("<Q", self._step) + _PLAN + self.engine.plan_digest()).wait()
        differing = [rank for rank, message in enumerate(messages) if message != messages[0]]
        if differing:
            raise DivergenceError("capture no graph: other kernels than on rank 0 serve, or another step runs, on rank "
                                  f"{_listed(differing)}; call step() on every rank until all have settled")

    def _message(self):
        # Compiles are counted first: a kernel that becomes ready in between is then in the message, or still pending.
        pending = self.engine.counters()["pending"]
        ready = [digest for digest in self.engine.ready_digests() if digest not in self._agreed][:self._most]
        return _HEAD.pack(self._step, pending, len(ready)) + b"".join(ready).ljust(self._most * DIGEST_BYTES, b"\0")

    def _promote(self, step, gathering):
        offers, pending = [], 0
        for rank, message in enumerate(gathering.wait()):
            if len(message) != _HEAD.size + self._most * DIGEST_BYTES:
                raise DivergenceError(f"rank {rank} sent {len(message)} bytes: most_digests must be equal on all ranks, "
                                      "and every rank calls step() and require_agreement() in the same order")
            their_step, their_pending, count = _HEAD.unpack_from(message)
            if their_step != step:
                raise DivergenceError(f"rank {rank} was at step {their_step} and this rank at step {step}: call step() "
                                      "once in each step on every rank")
            pending += their_pending
            offers.append({message[at:at + DIGEST_BYTES] for at in range(_HEAD.size, _HEAD.size + count * DIGEST_BYTES, DIGEST_BYTES)})
        agreed = set.intersection(*offers) - self._agreed
        promoted = self.engine.promote(sorted(agreed)) if agreed else 0
        self._agreed |= agreed
        left = set.union(*offers) - self._agreed
        # An offer that is full may leave out what comes next.
        self.settled = pending == 0 and all(len(offer) < self._most for offer in offers)
        self.left_behind = sorted(left) if self.settled else []
        return promoted


class TorchGather:
    """An all-gather by torch.distributed, on the host. Without a group, it makes one of Gloo, for which every rank of the
    default group must call it."""

    def __init__(self, group=None):
        import torch
        self._torch = torch
        self.group = torch.distributed.new_group(backend="gloo") if group is None else group

    def __call__(self, message):
        torch = self._torch
        sent = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        received = [torch.empty_like(sent) for _ in range(torch.distributed.get_world_size(self.group))]
        work = torch.distributed.all_gather(received, sent, group=self.group, async_op=True)
        return _Gathering(work, sent, received)


class _Gathering:
    def __init__(self, work, sent, received):
        self._work, self._sent, self._received = work, sent, received  # the tensors live until the work is done

    def wait(self):
        self._work.wait()
        return [bytes(tensor.tolist()) for tensor in self._received]


def _listed(numbers):
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown} and {len(numbers) - 8} more" if len(numbers) > 8 else shown
