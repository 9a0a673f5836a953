"""What the plug-ins of servers share: the kernels of a process, the problems of attention over a server's pages, and sinks that
graphs read."""
import time

import torch

from . import fast_calls
from . import torch as operators
from ._append import WriteProblem
from ._attention import OPS, Kernels, Problem
from ._errors import ConfigError, KernelwrightError, NotReadyError

LARGEST_HEAD = 256
NOWHERE = 256  # the address of operands of which only the sizes matter
PATIENCE_MS = 30_000  # between two words about kernels that still compile


class Served(Kernels):
    """The kernels of this process's layers. The engine is sealed behind the first preparation, so that a kernel that was not
    prepared shows in its counters and in the log."""

    def __init__(self, logger, server, begins=lambda: None):
        """logger: the one whose lines the server shows. server: its name, for the log. begins: is called ahead of the first
        kernel."""
        super().__init__()
        self._logger, self._server, self._begins = logger, server, begins
        self._handles = {}  # of layers that torch's operators call
        self._kernel_of, self.failed = {}, set()  # of a handle; handles of layers that the server keeps
        self._slow = True  # until warn_of_slow_calls() has been called

    def warn_of_slow_calls(self):
        """Says once why calls are slow, if they are: a step without a graph has hundreds of them."""
        calls = fast_calls() if self._slow else {}
        self._slow = False
        for call in (calls, calls.get("operators", {})):
            if call and not call.get("fast", call.get("stable")):
                self._logger.warning("kernelwright: each call costs the host about 0.1 ms: %s", call["why"])
                return

    def _engine(self, kind):
        engine = super()._engine(kind)
        engine._workspaces.of_server = True
        return engine

    def prepare(self, kind, index, problems):
        """Compiles or loads the kernels of all problems side by side. Raises KernelwrightError with the reason of each problem
        that has no kernel: ConfigError if none takes it, or what its compile or its load has said."""
        start = time.monotonic()
        self._begins()
        if kind == "cuda":
            self.warn_of_slow_calls()
        with self._lock:
            engine = self._engine(kind)
            self._logger.info("kernelwright: preparing %d attention kernels on %s", len(problems), engine.device_name(index))
            for problem in problems:
                engine.prepare(problem.config(), device=index, background=True, allow_when_sealed=True)
        while not engine.wait_until_ready(PATIENCE_MS):
            pending = [row["kernel"] for row in engine.kernels() if row["state"] not in ("ready", "failed")]
            if not pending:
                break  # one has failed, and find() has the reason
            self._logger.warning("kernelwright: still compiling after %.0f s: %s", time.monotonic() - start, ", ".join(pending))
        errors = []
        for problem in problems:
            try:
                self.find(kind, index, problem)
            except KernelwrightError as error:
                errors.append(error)
        if errors:
            raise type(errors[0])("; ".join(dict.fromkeys(map(str, errors))))
        engine.seal()
        self._logger.info("kernelwright: %d attention kernels are ready after %.1f s", len(problems), time.monotonic() - start)

    def reserve(self, like, problems, steps, keys):
        """Allocates the workspace for steps that the server captures as graphs, and returns its bytes. Ahead of a capture servers
        run a step of shorter sequences, whose parts need less, and while a stream captures nothing is allocated.

        like: a tensor of the device. problems: of attention, all prepared. steps: (sequences, queries of each) of each graph.
        keys: the most of a sequence."""
        kind, index, needed = like.device.type, like.device.index or 0, 0
        engine = self.engine(kind)
        for problem in problems:
            config = problem.config()
            kernel, most = engine.prepare(config, device=index), config["problem"].get("max_q_len", 0)
            for sequences, queries in steps:
                if not most or queries <= most:
                    needed = max(needed, kernel.workspace_bytes(**step_of(config["problem"], sequences, queries, keys)))
        if kind == "cuda":
            engine._workspaces.reserve(like, index, needed)
        return needed

    def handle(self, kind, index, problem):
        """The handle of the problem's kernel, which compiles behind. A launch waits for it. Raises ConfigError if no kernel takes
        the problem. wait() says whether it has become ready."""
        self._begins()
        if kind == "cuda":
            self.warn_of_slow_calls()
        with self._lock:
            engine = self._engine(kind)
            key = engine, index, problem
            if key not in self._handles:
                kernel = engine.prepare(problem.config(), device=index, background=True, allow_when_sealed=True)
                number = self._handles[key] = operators.handle(kernel)
                self._kernel_of[number] = kernel
            return self._handles[key]

    def wait(self, *numbers):
        """Waits until the kernels of handles are ready; 0 is no handle. Raises KernelwrightError with the reason if one has failed.
        The layer is the server's then, and must launch none of them."""
        numbers = [number for number in numbers if number]
        try:
            for number in numbers:
                self._kernel_of[number].wait()
        except KernelwrightError:
            self.failed.update(numbers)
            raise

    def ready(self, begun, left):
        """(name, layer) of those whose kernels become ready. begun: {name: (handles, layer)}, all of which compile side by side.
        left: gets {name: reason} of the others."""
        for name, (numbers, layer) in begun.items():
            try:
                self.wait(*numbers)
            except KernelwrightError as error:
                left[name] = str(error)
                continue
            yield name, layer

    def seal(self):
        """Behind the server's warm-up, ahead of its first request: nothing compiles from here on. Raises KernelwrightError if the
        kernel of a layer that is ours has failed, because a step would meet that."""
        with self._lock:
            engines = list(self._engines.values())
            numbers = {number for (engine, *_), number in self._handles.items() if engine in engines} - self.failed
        for number in numbers:
            self._kernel_of[number].wait()
        for engine in engines:
            engine.seal()

    def _prepare(self, kind, index, problem):
        engine = self._engine(kind)
        try:
            kernel = engine.prepare(problem.config(), device=index)
        except NotReadyError:
            self._logger.warning("kernelwright compiles while %s serves, which it should not: %s", self._server, problem.config())
            kernel = engine.prepare(problem.config(), device=index, allow_when_sealed=True)
        except ConfigError as error:
            return str(error)
        return kernel if kind == "cuda" else by_operator(kernel), None


def by_operator(kernel):
    """Calls like the kernel's with tensors of the CPU, which an engine that emulates copies to its memory and back."""
    number = operators.handle(kernel)

    def call(*tensors, out=None, **named):
        if out is None:
            OPS.kv_write.keys(number, *tensors, **named)
        else:
            OPS.attention(number, *tensors, out=out, **named)  # the overload that has them all
    return call


def takes_head(size):
    """Whether kernels take heads of so many elements."""
    return size % 8 == 0 and 16 <= size <= LARGEST_HEAD


def paged_attention(dtype, q_heads, kv_heads, qk_dim, v_dim, page_size, one_query, window_left=-1, fp8="", **more):
    """The Problem of queries that lie one sequence behind the other, over keys in pages. window_left: keys left of its own that
    a query sees; -1: all. fp8: the dtype of keys with a scale of all; "": that of the queries."""
    return Problem(dtype, q_heads, kv_heads, qk_dim, v_dim, left=window_left, right=0, one_query=one_query, ragged=True,
                   kv_kind="paged", page_size=page_size, kv_dtype=fp8, scales="per_tensor" if fp8 else "none", **more)


def paged_write(dtype, kv_heads, qk_dim, v_dim, page_size, fp8=""):
    """The WriteProblem of new keys and values, each to the slot that a step names."""
    return WriteProblem(dtype, fp8 or dtype, 0, kv_heads, qk_dim, v_dim, "paged", page_size,
                        scales="per_tensor" if fp8 else "none", index="slots")


def step_of(problem, sequences, queries, keys):
    """The arguments of a launch over pages, as far as its sizes go. problem: as in the config."""
    ragged, pages = problem.get("q_layout") == "ragged", -(-keys // problem["kv_layout"]["page_size"])
    names = ["q", "k", "v", "o", "kv_lengths", "page_table"] + ragged * ["q_offsets"]
    names += [name for name, has in (("sinks", problem.get("sinks")), ("k_scale", "scales" in problem),
                                     ("v_scale", "scales" in problem and problem.get("v_layout") != "key_prefix"),
                                     ("alibi_slopes", problem.get("score_mod", {}).get("kind") == "alibi")) if has]
    return dict.fromkeys(names, NOWHERE) | {
        "batch": sequences, "q_len": queries, "kv_len": keys, "num_pages": sequences * pages, "page_table_stride": pages,
        "q_tokens": sequences * queries if ragged else None}


def graph_steps(sizes, most_sequences, queries):
    """(sequences, queries of each) of the decodes that a server captures. sizes: tokens of its graphs."""
    return sorted({(min(-(-size // each), most_sequences), each) for each in {1, queries} for size in sizes})


class Sinks:
    """A layer's sinks in f32, at one address for as long as the layer lives, because graphs keep it."""

    def __init__(self, given, device):
        """given: the model's tensor [heads], which may be written later."""
        self.given, self._version = given, None
        plain = given.dtype == torch.float32 and given.is_contiguous()
        with torch.inference_mode(False):  # else no later call outside of that mode could write them
            self._held = given if plain else torch.empty(len(given), dtype=torch.float32, device=device)

    def current(self):
        """The tensor that a launch reads, as new as what the model has."""
        if self._version is None or self._version != self._version_of_given():
            self.refresh()
        return self._held

    def refresh(self):
        """Brings new weights to where launches and graphs read them."""
        if self._held.data_ptr() != self.given.data_ptr():
            with torch.no_grad():
                self._held.copy_(self.given)
        self._version = self._version_of_given()

    def _version_of_given(self):
        """Changes with each write to them; weights that were made in inference mode do not count theirs."""
        return 0 if self.given.is_inference() else self.given._version
