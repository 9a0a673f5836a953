"""Engine, Kernel and Array: the handles of runtime/c/c_api.h as Python objects. docs/embedding.md describes the life
of a kernel."""
import atexit
import ctypes
import json
import math
import os
import operator
import weakref
from ctypes import byref, c_char_p, c_int32, c_uint64, c_void_p

from . import _library as lib
from . import _structs as structs
from ._arguments import Arguments, Problem, tensors_and_numbers
from ._door import AttentionCalls, Calls, GemmCalls, KvWriteCalls, QuantizeCalls, RowOpCalls, Workspaces
from ._errors import ConfigError, KernelwrightError
from ._gemm import GemmProblem
from ._kv_write import KvWriteProblem
from ._quantize import check_sizes, quantize_arguments
from ._row_op import RowOpProblem
from ._tensors import ARRAY_BYTES, View, stream_address

ON_MISS = {"block": structs.ON_MISS_BLOCK, "fallback": structs.ON_MISS_FALLBACK, "error": structs.ON_MISS_ERROR}
STATES = {structs.PENDING: "pending", structs.READY: "ready", structs.FAILED: "failed"}
LEVELS = ("debug", "info", "warning", "error")
LATENCIES = ("prepare", "compile", "load", "launch")


def _encoded(text):
    return None if text is None else os.fsencode(text)


def _config_text(config):
    """The text of a config that is given as a dict, as JSON or as a path. A dict may omit
    version, kind and name."""
    if isinstance(config, dict):
        return json.dumps({"version": 1, "kind": "attention", "name": "python", **config})
    if isinstance(config, (bytes, bytearray)):
        return bytes(config).decode()
    if isinstance(config, str) and config.lstrip().startswith("{"):
        return config
    if isinstance(config, (str, os.PathLike)):
        with open(config, encoding="utf-8") as file:
            return _with_headers(file.read(), os.path.dirname(os.fspath(config)))
    raise ConfigError(f"config: a {type(config).__name__} is none; give a dict, JSON text or the path of a config file")


_MOST_HEADER_BYTES = 65536


def _header(folder, name, field):
    path = os.path.join(folder, name)
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # opening anything but a file may block for ever
            raise ConfigError(f'{field}: "{name}": is no regular file; a header is a text')
        with open(path, encoding="utf-8", newline="") as file:
            if os.fstat(file.fileno()).st_size > _MOST_HEADER_BYTES:
                raise ConfigError(f'{field}: "{name}": a header has at most {_MOST_HEADER_BYTES} bytes')
            return file.read()
    except OSError as error:
        raise ConfigError(f'{field}: "{name}": cannot be read: {error.strerror}') from error
    except ValueError as error:  # of the name, or of the text
        raise ConfigError(f'{field}: "{name}": {error}') from error


def _with_headers(text, folder):
    """The config with the texts of the headers that it names by files of its folder, because the library gets no
    files."""
    if '"source"' not in text:
        return text

    def without_doubles(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        config = json.loads(text, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError):
        return text  # the library reports what is wrong with it

    def read(policy, field):
        if not isinstance(policy, dict):
            return
        operands = policy.get("operands")
        for i, operand in enumerate(operands if isinstance(operands, list) else ()):
            read(operand, f"{field}/operands/{i}")
        name = policy.get("file")
        if policy.get("kind") == "source" and name and isinstance(name, str) and not policy.get("text"):
            policy["text"] = _header(folder, name, f"{field}/file")

    problem = config.get("problem") if isinstance(config, dict) else None
    if isinstance(problem, dict):
        read(problem.get("mask"), "/problem/mask")
        read(problem.get("score_mod"), "/problem/score_mod")
    return json.dumps(config)


class Engine:
    """Prepares and owns kernels. Any number of threads may call its methods, except close(), which must come last.

    backend: "cuda", "emulator" or "auto" (cuda if there is a GPU). The options are those of
    kernelwright_engine_options.
    on_event is called with a dict per event, on the thread on which the event happens. It must not call back into the
    engine. event_level is the lowest level that on_event receives: debug, info, warning or error.
    About one launch in launch_sampling is timed for latencies(); none if it is 0.
    """

    _leaving = False  # the interpreter's exit has begun

    def __init__(self, backend="auto", *, library=None, cache_directory=None, read_only_layers=(), max_cache_bytes=0,
                 nvrtc_path=None, memory_only_cache=False, compile_threads=0, on_event=None, emulator_arch=None,
                 completion=None, seed=0, hazards=False, emulator_threads=0,
                 tuned_dir=None, event_level="debug", launch_sampling=0, check_data=False,
                 lock_timeout_ms=0, bundles=()):
        if event_level not in LEVELS:
            raise ConfigError(f'event_level: "{event_level}" is not one of {", ".join(LEVELS)}')
        self._lib = lib.load(library)
        options = structs.EngineOptions(
            backend=_encoded(backend), cache_directory=_encoded(cache_directory), max_cache_bytes=max_cache_bytes,
            nvrtc_path=_encoded(nvrtc_path), memory_only_cache=memory_only_cache, compile_threads=compile_threads,
            emulator_arch=_encoded(emulator_arch), completion=_encoded(completion), seed=seed, hazards=hazards,
            emulator_threads=emulator_threads, tuned_dir=_encoded(tuned_dir), event_level=LEVELS.index(event_level),
            launch_sampling=launch_sampling, check_data=check_data, lock_timeout_ms=lock_timeout_ms)
        if read_only_layers:
            layers = (c_char_p * len(read_only_layers))(*map(_encoded, read_only_layers))
            options.read_only_layers, options.num_read_only_layers = layers, len(layers)
        if bundles:
            files = (c_char_p * len(bundles))(*map(_encoded, bundles))
            options.bundles, options.num_bundles = files, len(files)
        if on_event is not None:
            def tell(event, _):
                told = event.contents
                on_event({name: getattr(told, name).decode(errors="replace") for name in ("kind", "key", "name", "detail")}
                         | {"milliseconds": told.milliseconds, "level": LEVELS[told.level]})
            options.event_callback = structs.EventCallback(tell)
        handle = c_void_p()
        self._lib.engine_create(byref(options), byref(handle))
        self._handle = handle
        self._callback = options.event_callback  # the library calls it until the engine is freed
        self._lives, self._workspaces = c_int32(1), Workspaces(self)  # calls of handles look at the first
        self._close = weakref.finalize(self, _destroy, self._lib, handle, self._lives, options.event_callback)
        # At the interpreter's end, other threads may still be in calls of this engine, so it is stopped and not freed.
        self._close.atexit = False
        _engines.add(self)

    def close(self):
        """Frees the engine and its kernels. The kernels must not be running and must not be used again."""
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _live(self):
        if not self._close.alive:
            raise ConfigError("engine: is closed")
        return self._handle

    def prepare(self, config, *, device=0, on_miss="block", background=False, allow_when_sealed=False):
        """The Kernel for a config; for a config of kind "gemm" the GemmKernel, of kind "kv_write" the KvWriteKernel, and of
        kind "row_op" the RowOpKernel. config: a dict, JSON text or the path of a config file (docs/config.md)."""
        text = _config_text(config)
        options = _prepare_options(device, on_miss, background, allow_when_sealed)
        handle, data = c_void_p(), text.encode()
        self._lib.prepare_json(self._live(), data, len(data), byref(options), byref(handle))
        config = json.loads(text)
        kinds = {"gemm": GemmKernel, "kv_write": KvWriteKernel, "row_op": RowOpKernel}
        return kinds.get(config["kind"], Kernel)(self, handle, config["problem"], device)

    def prepare_quantize(self, from_dtype, to, *, device=0, on_miss="block", background=False, allow_when_sealed=False):
        """The QuantizeKernel from f16, bf16 or f32 to mxfp8, mxfp4 or nvfp4. Its elements and scales have the layout
        of a GEMM's operand."""
        options = _prepare_options(device, on_miss, background, allow_when_sealed)
        handle = c_void_p()
        self._lib.prepare_quantize(self._live(), from_dtype.encode(), to.encode(), byref(options), byref(handle))
        return QuantizeKernel(self, handle, (from_dtype, to), device)

    def seal(self):
        """From here on nothing compiles: using a kernel that was not prepared raises NotReadyError."""
        self._lib.engine_seal(self._live())

    def stop(self):
        """Ends preparing for good. Once it returns, no thread of the engine calls on_event. Ready kernels can still
        be launched; the others have failed. Python calls this when it exits."""
        self._lib.engine_stop(self._live())

    def wait_until_ready(self, timeout_ms=-1):
        """Whether every prepared kernel is ready; False if one has failed or the time is over."""
        ready = c_int32()
        self._lib.engine_wait_until_ready(self._live(), timeout_ms, byref(ready))
        return bool(ready.value)

    @property
    def ready(self):
        """Whether every prepared kernel is ready now: as wait_until_ready(), without waiting."""
        ready = c_int32()
        self._lib.engine_is_ready(self._live(), byref(ready))
        return bool(ready.value)

    @property
    def sealed(self):
        """Whether seal() was called."""
        sealed = c_int32()
        self._lib.engine_is_sealed(self._live(), byref(sealed))
        return bool(sealed.value)

    def promote(self):
        """Replaces fallbacks by the kernels that are ready, and returns how many were replaced."""
        count = c_int32()
        self._lib.engine_promote(self._live(), byref(count))
        return count.value

    def counters(self):
        counters = structs.Counters()
        self._lib.engine_counters(self._live(), byref(counters))
        return {name: getattr(counters, name) for name, _ in structs.Counters._fields_ if name != "struct_size"}

    def kernels(self):
        """Every binary of every prepared kernel, as a dict with the fields of kernelwright_kernel_row."""
        rows = []

        def take(row, _):
            told = row.contents
            rows.append({name: value.decode(errors="replace") if isinstance(value, bytes) else value
                         for name, value in ((name, getattr(told, name)) for name, _ in structs.KernelRow._fields_)
                         if name != "struct_size"}
                        | {"state": STATES[told.state], "fallback": bool(told.fallback), "serving": bool(told.serving)})
        self._lib.engine_list_kernels(self._live(), structs.KernelRowCallback(take), None, None)
        return rows

    def latencies(self):
        """Histograms of the steps prepare, compile, load and launch. Each is a dict of count, sum_seconds,
        bounds_seconds and buckets. Bucket i counts steps that took at most bounds_seconds[i] and more than the bound
        before it. The last bucket counts the rest."""
        told = {}
        for step, name in enumerate(LATENCIES):
            latency = structs.Latency()
            self._lib.engine_latency(self._live(), step, byref(latency))
            told[name] = {"count": latency.count, "sum_seconds": latency.sum_seconds,
                          "bounds_seconds": list(latency.bounds_seconds), "buckets": list(latency.buckets)}
        return told

    def metrics(self):
        """Counters, latencies, sealed and ready as Prometheus text (exposition format 0.0.4)."""
        texts = []
        self._lib.engine_metrics(
            self._live(), structs.TextCallback(lambda text, length, _: texts.append(ctypes.string_at(text, length))), None)
        return texts[0].decode(errors="replace")

    def take_hazards(self):
        """What the emulator found wrong since the last call, a dict per report; empty on a GPU or without
        hazards=True."""
        found = []

        def take(hazard, _):
            told = hazard.contents
            found.append({name: getattr(told, name).decode(errors="replace")
                          for name in ("kind", "rule", "grade", "section", "kernel", "what", "where", "mend", "text")} | {"count": told.count})
        self._lib.engine_take_hazards(self._live(), structs.HazardCallback(take), None, None)
        return found

    def device_name(self, device=0):
        name = c_char_p()
        self._lib.device_name(self._live(), device, byref(name))
        return name.value.decode()

    def is_emulated(self, device=0):
        return self.device_name(device).startswith("emulated ")

    def empty(self, shape, dtype, *, device=0):
        """An uninitialised Array in the device's memory. dtype: f16, bf16, f32, e4m3, e5m2, i32, i64 or u8."""
        return Array(self, tuple(shape), dtype, device)

    def from_numpy(self, values, dtype=None, *, device=0):
        """An Array with `values`, a NumPy array; float32 values are rounded for bf16."""
        import numpy
        names = {numpy.dtype(numpy.float16): "f16", numpy.dtype(numpy.float32): "f32", numpy.dtype(numpy.int32): "i32",
                 numpy.dtype(numpy.uint8): "u8"}
        dtype = dtype or names.get(values.dtype)
        if dtype == "bf16":
            bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            data = numpy.where(numpy.isnan(values), 0x7FFF, rounded).astype(numpy.uint16)
        else:
            types = {name: kind for kind, name in names.items()}
            if dtype not in types:
                raise ConfigError(f"dtype: {dtype or values.dtype} is none that from_numpy() writes; it writes bf16 and "
                                  f"{', '.join(types)}")
            data = numpy.ascontiguousarray(values, types[dtype])
        array = self.empty(values.shape, dtype, device=device)
        array.write(data.tobytes())
        return array


def _prepare_options(device, on_miss, background, allow_when_sealed):
    if on_miss not in ON_MISS:
        raise ConfigError(f'on_miss: "{on_miss}" is not one of {", ".join(ON_MISS)}')
    return structs.PrepareOptions(device=device, on_miss=ON_MISS[on_miss], background=background,
                                  allow_when_sealed=allow_when_sealed)


def _destroy(library, handle, lives, _callback):
    lives.value = 0
    library.dll.kernelwright_engine_destroy(handle)


_engines = weakref.WeakSet()


@atexit.register
def _stop_engines():
    """Once this has run, no thread of an engine calls on_event: such a thread would use an interpreter that has
    ended."""
    Engine._leaving = True
    for engine in list(_engines):
        if engine._close.alive:
            try:
                engine.stop()
            except KernelwrightError:  # an older library, or a child of os.fork(), which has no such threads
                pass


MOST_BYTES = 1 << 56  # kMostBytes of generator/checked.h


class Array:
    """Contiguous device memory of an engine: the emulator computes on it, and it is enough for scripts on a GPU."""

    def __init__(self, engine, shape, dtype, device):
        if dtype not in ARRAY_BYTES:
            raise ConfigError(f'dtype: "{dtype}" is not one of {", ".join(ARRAY_BYTES)}')
        if any(not hasattr(extent, "__index__") or extent < 0 for extent in shape):
            raise ConfigError(f"shape: {list(shape)} has an extent that is no whole number from 0 on")
        shape = tuple(map(operator.index, shape))
        self.engine, self.shape, self.dtype, self.device = engine, shape, dtype, device
        self.bytes = math.prod(shape) * ARRAY_BYTES[dtype]
        if self.bytes > MOST_BYTES:
            raise ConfigError(f"shape: {list(shape)} takes {self.bytes} bytes of {dtype}, and no memory has more than {MOST_BYTES}")
        address = c_uint64()
        engine._lib.device_allocate(engine._live(), device, self.bytes, byref(address))
        self.address = address.value

    def _kernelwright_view(self):
        return View(self.address, self.shape, None, self.dtype, "engine", self.device)

    def write(self, data):
        """Fills the array with `data`: exactly as many bytes as the array has."""
        data = bytes(data)
        if len(data) != self.bytes:
            raise ConfigError(f"data: has {len(data)} bytes, and the array {self.bytes}")
        self.engine._lib.device_write(self.engine._live(), self.device, self.address, data, self.bytes)

    def read(self):
        """The array's bytes, once the default stream is done."""
        buffer = ctypes.create_string_buffer(self.bytes)
        self.engine._lib.device_read(self.engine._live(), self.device, buffer, self.address, self.bytes)
        return buffer.raw

    def numpy(self):
        """A NumPy copy; bf16 is returned as float32."""
        import numpy
        if self.dtype == "bf16":
            bits = numpy.frombuffer(self.read(), numpy.uint16).astype(numpy.uint32) << 16
            return bits.view(numpy.float32).reshape(self.shape)
        types = {"f16": numpy.float16, "f32": numpy.float32, "i32": numpy.int32}
        return numpy.frombuffer(self.read(), types.get(self.dtype, numpy.uint8)).reshape(self.shape).copy()

    def __del__(self):
        # A closed engine has freed its memory already; the end of the process frees it too.
        if getattr(self, "address", 0) and self.engine._close.alive and not self.engine._leaving:
            self.engine._lib.device_free(self.engine._handle, self.device, self.address)


class _Handle(Calls):
    """A kernel of an engine; it keeps the engine alive. Engine.prepare() makes it."""

    def __init__(self, engine, handle, problem, device):
        self.engine, self.device, self._handle = engine, device, handle
        self._problem = problem
        self._own_memory = engine.is_emulated(device)
        self._open_door()

    def wait(self):
        """Waits until the kernel is ready. If it has failed, raises the reason."""
        self.engine._live()
        self.engine._lib.kernel_wait(self._handle)

    def info(self):
        """A dict: state, serves_fallback, device, registers, spill_bytes, static_shared_bytes, cubin_bytes, key."""
        self.engine._live()
        info = structs.KernelInfo()
        self.engine._lib.kernel_get_info(self._handle, byref(info))
        told = {name: getattr(info, name) for name, _ in structs.KernelInfo._fields_ if name != "struct_size"}
        return told | {"state": STATES[told["state"]], "serves_fallback": bool(told["serves_fallback"]),
                       "key": told["key"].decode()}

    @property
    def state(self):
        return self.info()["state"]

    @property
    def serves_fallback(self):
        return self.info()["serves_fallback"]

    @property
    def key(self):
        return self.info()["key"]


class Kernel(AttentionCalls, _Handle):
    """The kernel of an attention problem.

    kernel(q, k, v, out=o, ...) queues the attention on the framework's current stream, or on `stream`. It takes the
    arguments of bind(), with `out` for o, and returns out; if the problem has an LSE, (out, lse). A result that is not
    given is allocated by the framework, and so is a workspace. Read docs/embedding.md, "Fast calls".
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, Problem(problem), device)

    def bind(self, *, q, k, v, o, lse=None, q_offsets=None, kv_offsets=None, kv_lengths=None, page_table=None, sinks=None,
             k_scale=None, v_scale=None, alibi_slopes=None, workspace=None, batch=None, q_len=None, kv_len=None, q_tokens=None,
             kv_tokens=None, page_table_stride=None, workspace_bytes=None, scale=None, softcap=None, window=None,
             sm_budget=0, pdl=False, q_rope=None, k_rope=None, q_scale=None, num_pages=None, zero_padding=False,
             mask=None, bias=None, kv_starts=None):
        """A Launch of these tensors: read and checked once, launched any number of times.

        Tensors are objects with __dlpack__ or __cuda_array_interface__, Arrays, or device addresses.

        Shapes, as in runtime/attention/kernel.h: q, o [batch, q_len, q_heads, head_dim], ragged [tokens, q_heads,
        head_dim]; k, v [batch, kv_len, kv_heads, head_dim], ragged [tokens, ...], paged [pages, page_size, ...].

        Sizes that shapes do not tell must be given: q_len (the longest) for ragged queries, and kv_len (the longest,
        or a bound) for ragged keys. Beside addresses, all sizes must be given. These include kv_tokens, the rows of
        ragged k and v, unless k and v share the offsets of q. They also include num_pages, the pages of k and v:
        entries of page_table past it are not followed.

        sm_budget limits the SMs that a persistent kernel takes; 0: all. pdl, programmatic dependent launch, lets the
        kernel start while the kernel ahead of it in the stream ends. q_rope and k_rope are a head's rotary part, if
        the problem has one. zero_padding sets rows of ragged o that belong to no sequence to zero; otherwise they are not
        written.

        Scales are f32: what is stored, times its scale, is the value. k_scale and v_scale are both [1] (per_tensor),
        [kv_heads] (per_head), [pages, kv_heads] (per_page) or k without its last dimension (per_token: [batch, kv_len,
        kv_heads], ragged [tokens, kv_heads], paged [pages, page_size, kv_heads]). Those of pages and tokens may have any
        strides. q_scale goes with per_token and e4m3 queries, and is q without its last dimension, contiguous.

        kv_starts (i32 [batch]), if the problem has "kv_starts", is the first key of each sequence: left padding. Keys
        before it do not exist for any query.

        mask (u8 or bool) and bias, if the problem has them, are [batch or 1, q_heads or 1, q_len or 1, kv_len], keys
        contiguous. A dimension of one, or a broadcast one, means one element for all.
        """
        tensors, numbers = tensors_and_numbers(structs.AttentionTensors, locals())
        built = Arguments(self._problem, self.device, self._own_memory).build(tensors, numbers)
        return Launch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the attention of the tensors, given as for bind(), on `stream`: an address, an object with
        __cuda_stream__ or cuda_stream (torch) or ptr (CuPy), or None, the default stream. Allowed while the stream
        captures."""
        self.bind(**tensors)(stream)

    def workspace_bytes(self, **tensors):
        """Bytes of workspace that a launch of these tensors needs; only their sizes matter."""
        return self.bind(**tensors).needed_workspace_bytes()


class GemmKernel(GemmCalls, _Handle):
    """The kernels of a GEMM, for any number of rows. info() describes the kernel for many rows.

    kernel(a, b, out=d, ...) queues the product as a Kernel's call does. It takes the arguments of bind(), with `out` for
    d, and returns out.
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, GemmProblem(problem), device)

    def bind(self, *, a, b, d, c=None, bias=None, scale_a=None, scale_b=None, m=None, alpha=None, beta=None,
             workspace=None, workspace_bytes=None, sm_budget=0, pdl=False, constant_b=False):
        """A GemmLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): a [m, k] or [k, m] as the layout says, b [n, k] or [k, n], c and d [m,
        n], bias [n], rows contiguous. Scales are f32: per_tensor [1], per_token [m] and [n], per_block [k / 128, m]
        and [n / 128, k / 128]. Block-scaled operands and their atoms of scales are given as addresses. workspace:
        workspace_bytes() bytes of any dtype.

        m is needed only beside addresses; alpha and beta are 1 unless given. With pdl, constant_b says that no
        earlier kernel that may still run writes b. The first tiles of b are then loaded before that kernel has ended.
        """
        tensors, numbers = tensors_and_numbers(structs.GemmTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return GemmLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the product of the tensors, given as for bind(), on `stream`, as Kernel.launch() does."""
        self.bind(**tensors)(stream)

    def workspace_bytes(self, **tensors):
        """Bytes of workspace that a launch of these tensors needs: 0, except for kernels whose parts of k take turns.
        """
        return self.bind(**tensors).needed_workspace_bytes()


class QuantizeKernel(QuantizeCalls, _Handle):
    """Quantises rows of floats to a block-scaled format.

    kernel(x, elements=e, scales=s, ...) queues the work as a Kernel's call does. It takes the arguments of launch(), and
    returns (elements, scales). Those that it allocates are of dtype u8: [rows, k], or [rows, k / 2] for formats of four
    bits, and [scale_bytes(rows, k)].
    """

    def scale_bytes(self, rows, k):
        """Bytes of the scales of [rows, k] elements, in whole atoms."""
        check_sizes(rows, k)
        count = c_uint64()
        self.engine._lib.quantize_scale_bytes(self._problem[1].encode(), rows, k, byref(count))
        return count.value

    def launch(self, *, x, elements, scales, rows=None, k=None, tensor_scale=1.0, pdl=False, stream=None):
        """Queues elements, scales = quantised x / tensor_scale on `stream`, as Kernel.launch() does.

        Tensors are given as for Kernel.bind(): x [rows, k], k a multiple of 32 and rows contiguous. elements and
        scales are contiguous, of dtype u8 or any known dtype of 8 bits. elements have rows * k bytes (mxfp8) or half
        as many; scales have scale_bytes(rows, k) bytes. rows and k are needed if x is an address.
        """
        self.engine._live()
        if not tensor_scale > 0:
            raise ConfigError(f"tensor_scale: {tensor_scale} does not divide; give a number above 0")
        built = quantize_arguments(self, dict(x=x, elements=elements, scales=scales), rows, k)
        built.tensor_scale, built.pdl = tensor_scale, pdl
        self.engine._lib.launch_quantize(self._handle, byref(built), stream_address(stream))


class KvWriteKernel(KvWriteCalls, _Handle):
    """Writes new keys and values to a cache, and rotates the queries on the way.

    kernel(q, k, v, k_cache, v_cache, slot_mapping=..., ...) queues the work as a Kernel's call does. It takes the arguments
    of bind(), and returns q_out. Without queries it is kernel(k, v, k_cache, v_cache, ...), and returns None.
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, KvWriteProblem(problem), device)

    def bind(self, *, k, k_cache, v=None, v_cache=None, q=None, q_out=None, q_weight=None, k_weight=None, cos_sin=None, positions=None,
             slot_mapping=None, batch_indices=None, page_table=None, q_scale=None, k_scale=None, v_scale=None, tokens=None,
             num_pages=None, batch=None, kv_len=None, kv_tokens=None, page_table_stride=None, cos_sin_rows=None,
             position_bytes=None, eps=None, pdl=False):
        """A KvWriteLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): q, k, v and q_out [tokens, heads, head_dim] or [tokens, heads *
        head_dim], rows as far apart as their strides say. k_cache and v_cache are paged [pages, page_size, heads,
        head_dim], padded [batch, kv_len, ...] or ragged [rows, ...] with any strides of whole heads. slot_mapping is
        i64 [tokens], positions i32 or i64 [tokens] or [3, tokens], batch_indices i32 [tokens], page_table i32 [batch,
        pages], and cos_sin f32 [rows, width]: rope_table() makes it. Scales are f32 (docs/kv-write.md). Beside
        addresses, sizes must be given. tokens may be less than k has rows.
        """
        tensors, numbers = tensors_and_numbers(structs.KvWriteTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return KvWriteLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the writing of a cache, with tensors given as for bind(), on `stream`, as Kernel.launch() does."""
        self.engine._live()
        self.bind(**tensors)(stream)


class RowOpKernel(RowOpCalls, _Handle):
    """Takes steps over rows between GEMMs: sum with a residual or gated product, norm, quantisation.

    kernel(x, weight=w, ...) queues the work as a Kernel's call does; with input "add" it is kernel(x, residual, ...). It
    takes the arguments of bind(), and returns out, then residual_out and scale if the problem writes them. A result that
    is not given is allocated.
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, RowOpProblem(problem), device)

    def bind(self, *, x, residual=None, out, residual_out=None, weight=None, scale=None, rows=None, eps=None, gate_alpha=None,
             gate_limit=None, tensor_scale=None, pdl=False, constant_weight=False):
        """A RowOpLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): x [rows, width], with input "gate_up" [rows, 2 width]; residual,
        residual_out and out [rows, width]; weight [width]. Rows are contiguous, and as far apart as strides say.
        residual_out may be residual. out may be x, if dtypes and strides agree.

        scale is f32: per_tensor [1], which is read; per_token [rows]; per_block [width / 128, rows] or, with layout
        "rows", [rows, width / 128]. Of mxfp8, mxfp4 and nvfp4, out is u8 [rows, bytes of a row], and scale has whole
        atoms of bytes. A GEMM takes scale as its scale_a or atoms.

        rows is needed only beside addresses. eps, and gate_alpha and gate_limit of clamped gates, are the problem's unless
        given. With mxfp8, mxfp4 and nvfp4, value / tensor_scale is quantised. With pdl, constant_weight says that no
        earlier kernel that may still run writes the weights. They are then loaded before that kernel has ended.
        """
        tensors, numbers = tensors_and_numbers(structs.RowOpTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return RowOpLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the steps over rows, with tensors given as for bind(), on `stream`, as Kernel.launch() does."""
        self.engine._live()
        self.bind(**tensors)(stream)


class Launch:
    """A kernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __init__(self, kernel, tensors, arguments):
        self.kernel, self.tensors, self._arguments = kernel, tensors, arguments

    def __call__(self, stream=None):
        self.kernel.engine._live()
        self.kernel.engine._lib.launch(self.kernel._handle, byref(self._arguments), stream_address(stream))

    def needed_workspace_bytes(self):
        self.kernel.engine._live()
        count = c_uint64()
        self.kernel.engine._lib.workspace_bytes(self.kernel._handle, byref(self._arguments), byref(count))
        return count.value


class KvWriteLaunch:
    """A KvWriteKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __init__(self, kernel, tensors, arguments):
        self.kernel, self.tensors, self._arguments = kernel, tensors, arguments

    def __call__(self, stream=None):
        self.kernel.engine._live()
        self.kernel.engine._lib.launch_kv_write(self.kernel._handle, byref(self._arguments), stream_address(stream))


class RowOpLaunch:
    """A RowOpKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __init__(self, kernel, tensors, arguments):
        self.kernel, self.tensors, self._arguments = kernel, tensors, arguments

    def __call__(self, stream=None):
        self.kernel.engine._live()
        self.kernel.engine._lib.launch_row_op(self.kernel._handle, byref(self._arguments), stream_address(stream))


class GemmLaunch:
    """A GemmKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __init__(self, kernel, tensors, arguments):
        self.kernel, self.tensors, self._arguments = kernel, tensors, arguments

    def __call__(self, stream=None):
        self.kernel.engine._live()
        self.kernel.engine._lib.launch_gemm(self.kernel._handle, byref(self._arguments), stream_address(stream))

    def needed_workspace_bytes(self):
        self.kernel.engine._live()
        count = c_uint64()
        self.kernel.engine._lib.gemm_workspace_bytes(self.kernel._handle, byref(self._arguments), byref(count))
        return count.value
