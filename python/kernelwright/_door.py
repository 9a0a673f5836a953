"""Calls of handles: kernel(q, k, v, out=o). The extension _fast takes a call that the rules of _rules.py allow. Any other
call goes through _slow() here, with the checks and the words of bind() and launch(). Without the extension every call
does, with the same results."""
import ctypes
import importlib.machinery
import importlib.util
import inspect
import os
import pathlib
import sys
import sysconfig
import threading

from . import _frameworks as frameworks
from . import _library, _rules
from ._errors import ConfigError, KernelwrightError
from ._tensors import read, stream_address

FILE = "_fast.abi3.so"


def extension_files():
    """Where the extension may lie: beside this file, or beside the library or its build folder."""
    yield pathlib.Path(__file__).resolve().parent / FILE
    try:
        library = pathlib.Path(_library.find()).resolve().parent
    except KernelwrightError:
        return
    yield library / FILE
    yield library.parent / "python" / "fast" / FILE


def load_extension():
    """The module _fast, or None; and why."""
    if os.environ.get("KERNELWRIGHT_FAST") == "0":
        return None, "KERNELWRIGHT_FAST is 0"
    if sys.version_info < (3, 10):
        return None, "this Python is older than 3.10"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "this Python is free-threaded, and the extension is for Pythons with a GIL"
    tried = list(dict.fromkeys(extension_files()))
    for path in filter(pathlib.Path.is_file, tried):
        name = __package__ + "._fast"
        try:
            spec = importlib.util.spec_from_loader(name, importlib.machinery.ExtensionFileLoader(name, str(path)))
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module, str(path)
        except ImportError as error:  # another ABI
            return None, f"{path} cannot be loaded: {error}"
    return None, f"{FILE} is in none of {', '.join(str(path.parent) for path in tried)}"


class PythonDoor:
    """What _fast.Door is without the extension."""

    def __call__(self, *positional, **named):
        return self._slow(*positional, **named)

    def _counts(self):
        return 0, 0


_fast, WHY = load_extension()


def fast_calls():
    """A dict: whether the extension takes calls of handles ("fast"), and its file or the reason ("why"). Without it a call
    costs what launch() costs, about 100 us on the host of an H100, and its results are the same. Once kernelwright.torch is
    imported, "operators" tells whether torch's operators are in C++ ("stable"), and why."""
    stable = sys.modules.get(__package__ + "._stable")
    return {"fast": _fast is not None, "why": WHY} | ({"operators": stable.served()} if stable else {})


class Workspaces:
    """The workspaces of an engine's calls: one for each device and stream, which only grows. A workspace is never freed,
    because a captured graph may use it."""

    def __init__(self, engine):
        self._engine, self._lock = engine, threading.Lock()
        self._held, self._spares, self._kept = {}, {}, []
        # A server captures by torch.cuda.graph(), which gives a capture memory, and captures steps far smaller than its largest. So
        # its captures allocate what they need, and no spare as large as the largest step's is kept.
        self.of_server = False

    def get(self, like, device, stream, needed):
        """(address, bytes) of `needed` bytes or more, from the framework of `like`. While the stream captures, a spare one of the
        device is taken over, if it is large enough. Else a server's captures allocate, and others are refused."""
        with self._lock:
            address, size = self._held.get((device, stream), (0, 0))
            if size >= needed:
                self._keep_spare(like, device, stream, size)
                return address, size
            if frameworks.is_capturing(stream):
                spare, spare_bytes = self._spares.get(device, (0, 0))
                if spare_bytes < needed and self.of_server:
                    self._held[device, stream] = self._new(like, device, needed, captured=True)
                    return self._held[device, stream]
                if spare_bytes < needed:
                    raise ConfigError(f"workspace: the launch needs {needed} bytes, and none is allocated while the stream "
                                      "captures; make the same call before the capture, or give workspace")
                del self._spares[device]
                self._held[device, stream] = spare, spare_bytes
                return spare, spare_bytes
            address, size = self._held[device, stream] = self._new(like, device, max(needed, size * 3 // 2))
            self._keep_spare(like, device, stream, size)
            return address, size

    def reserve(self, like, device, size):
        """Keeps a spare one of `size` bytes, so that the next stream that captures finds all that its launches need."""
        with self._lock:
            if self._spares.get(device, (0, 0))[1] < size:
                self._spares[device] = self._new(like, device, size)

    def _keep_spare(self, like, device, stream, size):
        """One that is as large as the stream's own, for the stream of a graph: what ran once can then be captured."""
        if self.of_server or self._spares.get(device, (0, 0))[1] >= size:
            return
        if frameworks.torch_of(like) and not frameworks.is_capturing(stream):
            self._spares[device] = self._new(like, device, size)

    def _new(self, like, device, size, captured=False):
        size = (size + 255) // 256 * 256
        own = frameworks.torch_of(like) is None
        allocate = frameworks.of_capture if captured else frameworks.lasting
        memory = self._memory(device, size) if own else allocate("workspace", like, size)
        self._kept.append(memory)
        return (memory[0] if own else memory.data_ptr()), size

    def _memory(self, device, size):
        address = ctypes.c_uint64()
        self._engine._lib.device_allocate(self._engine._live(), device, size, ctypes.byref(address))
        return address.value, size


def _is_tensor(value):
    return any(hasattr(value, name) for name in ("__dlpack__", "_kernelwright_view", "__cuda_array_interface__"))


def arguments_of(function, positional, result):
    """The arguments of a call: those of bind() or launch(), the positional ones first, with `out` for the result."""
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "stream", *positional)]
    return (*positional, *("out" if name == result else name for name in names), "stream")


class Calls(_fast.Door if _fast else PythonDoor):
    """A handle that can be called. A subclass has POSITIONAL, RESULT (the name that bind() has for `out`), and the methods
    that the others below have."""

    POSITIONAL, RESULT = (), None
    names = ()

    @classmethod
    def _names(cls, function):
        if not cls.names:
            cls.names = arguments_of(function, cls.POSITIONAL, cls.RESULT)
        return cls.names

    def _may_lack(self):
        """Those of POSITIONAL that a call may leave out."""
        return ()

    def _open_door(self):
        if _fast:
            described = self._described()
            if described[1][2]:  # an older library may lack the function
                self._open(described)

    def _function(self, name):
        return getattr(self.engine._lib.dll, "kernelwright_" + name, None)

    _stream_address = staticmethod(stream_address)

    def _workspace(self, like, stream, needed):
        return self.engine._workspaces.get(like, self.device, stream, needed)

    def _raise(self, status):
        self.engine._lib.raise_status(status)

    def _slow(self, *positional, stream=None, **given):
        """A call with today's checks. Where a result or a workspace is not given, it is allocated first."""
        if len(positional) > len(self.POSITIONAL):
            raise TypeError(f"a call takes {len(self.POSITIONAL)} arguments by position ({', '.join(self.POSITIONAL)}), and "
                            f"{len(positional)} are given")
        for name, value in zip(self.POSITIONAL, positional):
            if name in given:
                raise TypeError(f"{name}: is given by position and by name")
            given[name] = value
        if missing := [name for name in self.POSITIONAL if name not in given and name not in self._may_lack()]:
            raise TypeError(f"{missing[0]}: is missing; a call takes {', '.join(self.POSITIONAL)} first")
        self.engine._live()
        first = given[self.POSITIONAL[0]]
        like = next((value for value in given.values() if _is_tensor(value)), first)
        for name, find in self._results().items():
            if given.get(name) is None:
                if isinstance(first, int):
                    raise ConfigError(f"{name}: is missing; beside an address it cannot be allocated, so give it")
                given[name] = frameworks.empty(name, like, *find(read(self.POSITIONAL[0], first), given))
        results = tuple(given[name] for name in self._results())
        if stream is None:
            stream = frameworks.current_stream(like, self.device)
        if self.RESULT:
            given[self.RESULT] = given.pop("out")
        self._queue(given, like, stream)
        return results[0] if len(results) == 1 else results or None

    def _queue(self, given, like, stream):
        launch = self.bind(**given)
        if given.get("workspace") is None:
            try:
                needed = launch.needed_workspace_bytes()
            except ConfigError:
                needed = 0  # the launch says what is wrong
            if needed:
                held = self._workspace(like, stream_address(stream) or 0, needed)
                launch._arguments.workspace, launch._arguments.workspace_bytes = held
        launch(stream)


def _by_tokens(problem, count):
    """The results of a problem whose shapes follow from a number of rows or tokens: count(first tensor, arguments)."""
    def of(shape_of):
        return lambda first, given: shape_of(count(first, given))
    return {name: of(shape_of) for name, shape_of in problem.results().items()}


class AttentionCalls:
    POSITIONAL, RESULT = ("q", "k", "v"), "o"

    def _may_lack(self):
        return ("v",) if self._problem.latent else ()

    def _described(self):
        rules = _rules.attention_rules(self._problem, self._names(self.bind))
        return rules.described(self, self._function("launch"), self._function("workspace_bytes"), results=self._results())

    def _results(self):
        problem = self._problem
        found = {"out": lambda q, _: ((*q.shape[:-1], problem.head_dims["o"]), problem.dtypes["o"])}
        if problem.lse:
            found["lse"] = lambda q, _: (self._lse_shape(q.shape), "f32")
        return found

    def _lse_shape(self, shape):
        if self._problem.ragged_q or len(shape) != 4:
            return tuple(shape[:-1])
        return shape[0], shape[2], shape[1]


class GemmCalls:
    POSITIONAL, RESULT = ("a", "b"), "d"

    def _described(self):
        rules = _rules.gemm_rules(self._problem, self._names(self.bind))
        return rules.described(self, self._function("launch_gemm"), self._function("gemm_workspace_bytes"),
                               results=self._problem.results())

    def _results(self):
        problem, rows = self._problem, 1 if self._problem.layout[0] == "t" else 0

        def find(a, given):
            shape = a.shape
            if problem.scatters:
                return (given.get("result_rows") or 0, problem.d_columns), problem.dtypes["d"]
            if problem.gathers and given.get("gather") is not None:
                shape = read("gather", given["gather"]).shape or (given.get("m") or 0,)
            elif problem.slices and len(shape) == 2:
                return (problem.count, shape[1], problem.d_columns), problem.dtypes["d"]
            elif problem.even and len(shape) == 3:
                return (*shape[:2], problem.d_columns), problem.dtypes["d"]
            elif len(shape) != 2:
                return (0, problem.d_columns), problem.dtypes["d"]
            return (shape[rows], problem.d_columns), problem.dtypes["d"]

        def find_scales(a, given):
            shape, rows_of_d = find(a, given)[0], 1
            for extent in shape[:-1]:
                rows_of_d *= extent
            return problem.scale_d_shape(rows_of_d), "u8" if "d" in problem.formats else "f32"
        return {"out": find, "scale_d": find_scales} if problem.quantizes else {"out": find}


class KvWriteCalls:
    POSITIONAL, RESULT = ("q", "k", "v", "k_cache", "v_cache"), None
    FORMS = (POSITIONAL, POSITIONAL[1:], ("q", "k", "k_cache"), ("k", "k_cache"))  # without queries, values, both

    def _open_door(self):
        self.POSITIONAL = self.FORMS[(not self._problem.q_out) + 2 * (not self._problem.v_out)]
        super()._open_door()

    def _described(self):
        self.names = arguments_of(self.bind, self.POSITIONAL, None)
        rules = _rules.kv_write_rules(self._problem, self.names, len(self.POSITIONAL))
        return rules.described(self, self._function("launch_kv_write"), results=self._results())

    def _results(self):
        problem = self._problem

        def find(q, given):
            rows = problem.tokens_of(given, q.shape[0] if q.shape else 0)
            return (rows, problem.heads["q_out"], problem.head_dims["q_out"]), problem.dtypes["q_out"]
        return {"q_out": find} if problem.q_out else {}

    def _queue(self, given, like, stream):
        self.launch(**given, stream=stream)


class RowOpCalls:
    POSITIONAL, RESULT = ("x",), None
    FORMS = (POSITIONAL, ("x", "residual"))  # of one order of arguments, which the operators of torch count on

    def _open_door(self):
        self.POSITIONAL = self.FORMS[self._problem.adds or self._problem.merges]
        super()._open_door()

    def _described(self):
        self.names = arguments_of(self.bind, self.POSITIONAL, None)
        rules = _rules.row_op_rules(self._problem, self.names, len(self.POSITIONAL))
        return rules.described(self, self._function("launch_row_op"), results=tuple(self._problem.results()))

    def _results(self):
        return _by_tokens(self._problem, lambda x, _: x.shape[0] if x.shape else 0)

    def _queue(self, given, like, stream):
        self.launch(**given, stream=stream)


class RouteCalls:
    POSITIONAL, RESULT = ("logits",), None

    def _open_door(self):
        # The order of names stays that of all kernels of the class, because the operators of torch count on it. So the
        # extension takes no ids by position.
        self.names = arguments_of(self.bind, RouteCalls.POSITIONAL, None)
        if self._problem.given:
            self.POSITIONAL = ("ids",)
        super()._open_door()

    def _described(self):
        rules = _rules.route_rules(self._problem, self.names, 0 if self._problem.given else len(self.POSITIONAL))
        return rules.described(self, self._function("launch_route"), self._function("route_workspace_bytes"),
                               results=tuple(self._problem.results()))

    def _results(self):
        return _by_tokens(self._problem, lambda first, _: first.shape[0] if first.shape else 0)


class MoeCalls:
    POSITIONAL, RESULT = ("x", "logits", "gate_up", "down"), None
    FORMS = (POSITIONAL, ("x", "ids", "weights", "gate_up", "down"))

    def _open_door(self):
        self.names = arguments_of(self.bind, MoeCalls.POSITIONAL, None)  # one order, as RouteCalls has it
        self.POSITIONAL = self.FORMS[self._problem.given]
        super()._open_door()

    def _described(self):
        rules = _rules.moe_rules(self._problem, self.names, 0 if self._problem.given else len(self.POSITIONAL))
        return rules.described(self, self._function("launch_moe"), self._function("moe_workspace_bytes"))

    def _results(self):
        return _by_tokens(self._problem, lambda x, _: x.shape[0] if x.shape else 0)


class MoeCombineCalls:
    POSITIONAL, RESULT = ("rows", "positions", "weights"), None
    FORMS = (POSITIONAL, ("rows", "positions"))  # of one order of arguments, which the operators of torch count on

    def _open_door(self):
        self.POSITIONAL = self.FORMS[not self._problem.weighted]
        super()._open_door()

    def _described(self):
        self.names = arguments_of(self.bind, self.POSITIONAL, None)
        rules = _rules.moe_combine_rules(self._problem, self.names, len(self.POSITIONAL))
        return rules.described(self, self._function("launch_moe_combine"), results=("out",))

    def _results(self):
        def tokens(_, given):
            shape, tokens = read("positions", given["positions"]).shape, given.get("tokens")
            if shape is None and tokens is None:
                raise ConfigError("tokens: is missing; addresses do not tell it")
            return shape[0] if shape else tokens or 0
        return _by_tokens(self._problem, tokens)

    def _queue(self, given, like, stream):
        self.launch(**given, stream=stream)


class QuantizeCalls:
    POSITIONAL, RESULT = ("x",), None

    def _described(self):
        rules = _rules.quantize_rules(*self._problem, self._names(self.launch))
        return rules.described(self, self._function("launch_quantize"), scale_bytes=self._function("quantize_scale_bytes"),
                               scale_format=self._problem[1], results=("elements", "scales"))

    def _results(self):
        def sizes(x):
            return x.shape if len(x.shape) == 2 else (0, 0)
        part = 1 if self._problem[1] == "mxfp8" else 2
        return {"elements": lambda x, _: ((sizes(x)[0], sizes(x)[1] // part), "u8"),
                "scales": lambda x, _: ((self.scale_bytes(*sizes(x)),), "u8")}

    def _queue(self, given, like, stream):
        self.launch(**given, stream=stream)
