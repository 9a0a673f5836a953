"""Engine and Array: an engine of runtime/c/c_api.h as a Python object, and memory of its devices. docs/embedding.md
describes the life of a kernel."""
import atexit
import ctypes
import json
import math
import os
import operator
import threading
import weakref
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint64, c_void_p

from . import _library as lib
from . import _structs as structs
from ._door import Workspaces
from ._errors import ConfigError, KernelwrightError
from ._handles import STATES, GemmKernel, Kernel, KvWriteKernel, MoeCombineKernel, MoeKernel, QuantizeKernel, RouteKernel, RowOpKernel
from ._tensors import ARRAY_BYTES, View

ON_MISS = {"block": structs.ON_MISS_BLOCK, "fallback": structs.ON_MISS_FALLBACK, "error": structs.ON_MISS_ERROR}
LEVELS = ("debug", "info", "warning", "error")
DIGEST_BYTES = 32
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
    compile_in is "process", "workers", "auto" or "hosts": where NVRTC runs (docs/compile-workers.md).
    With fallback_first, a fallback serves until promote() even if the wanted kernel is cached: docs/fleet.md.
    """

    _leaving = False  # the interpreter's exit has begun

    def __init__(self, backend="auto", *, library=None, cache_directory=None, read_only_layers=(), max_cache_bytes=0,
                 nvrtc_path=None, memory_only_cache=False, compile_threads=0, on_event=None, emulator_arch=None,
                 completion=None, seed=0, hazards=False, emulator_threads=0,
                 tuned_dir=None, event_level="debug", launch_sampling=0, check_data=False,
                 lock_timeout_ms=0, bundles=(), bundle_keys=(), fallback_first=False, compile_in=None,
                 compile_worker=None, compile_time_limit_ms=0, compile_memory_bytes=0, compiles_per_host=0,
                 remote=None, remote_keys=(), remote_signing_key=None, remote_allow_unsigned=False, remote_ca=None,
                 remote_certificate=None, remote_certificate_key=None):
        if event_level not in LEVELS:
            raise ConfigError(f'event_level: "{event_level}" is not one of {", ".join(LEVELS)}')
        self._lib = lib.load(library)
        options = structs.EngineOptions(
            backend=_encoded(backend), cache_directory=_encoded(cache_directory), max_cache_bytes=max_cache_bytes,
            nvrtc_path=_encoded(nvrtc_path), memory_only_cache=memory_only_cache, compile_threads=compile_threads,
            emulator_arch=_encoded(emulator_arch), completion=_encoded(completion), seed=seed, hazards=hazards,
            emulator_threads=emulator_threads, tuned_dir=_encoded(tuned_dir), event_level=LEVELS.index(event_level),
            launch_sampling=launch_sampling, check_data=check_data, lock_timeout_ms=lock_timeout_ms,
            fallback_first=fallback_first, compile_in=_encoded(compile_in), compile_worker=_encoded(compile_worker),
            compile_time_limit_ms=compile_time_limit_ms, compile_memory_bytes=compile_memory_bytes,
            compiles_per_host=compiles_per_host, remote=_encoded(remote), remote_signing_key=_encoded(remote_signing_key),
            remote_allow_unsigned=remote_allow_unsigned, remote_ca=_encoded(remote_ca),
            remote_certificate=_encoded(remote_certificate), remote_certificate_key=_encoded(remote_certificate_key))
        if read_only_layers:
            layers = (c_char_p * len(read_only_layers))(*map(_encoded, read_only_layers))
            options.read_only_layers, options.num_read_only_layers = layers, len(layers)
        if bundles:
            files = (c_char_p * len(bundles))(*map(_encoded, bundles))
            options.bundles, options.num_bundles = files, len(files)
        if bundle_keys:
            keys = (c_char_p * len(bundle_keys))(*map(_encoded, bundle_keys))
            options.bundle_keys, options.num_bundle_keys = keys, len(keys)
        if remote_keys:
            trusted = (c_char_p * len(remote_keys))(*map(_encoded, remote_keys))
            options.remote_keys, options.num_remote_keys = trusted, len(trusted)
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
        """The Kernel for a config; for a config of kind "gemm" the GemmKernel, of kind "kv_write" the KvWriteKernel, of kind
        "row_op" the RowOpKernel, of kind "route" the RouteKernel, of kind "moe_combine" the MoeCombineKernel, and of kind "moe"
        the MoeKernel. config: a dict, JSON text or the path of a config file (docs/config.md)."""
        text = _config_text(config)
        options = _prepare_options(device, on_miss, background, allow_when_sealed)
        handle, data = c_void_p(), text.encode()
        self._lib.prepare_json(self._live(), data, len(data), byref(options), byref(handle))
        config = json.loads(text)
        kinds = {"gemm": GemmKernel, "kv_write": KvWriteKernel, "row_op": RowOpKernel, "route": RouteKernel,
                 "moe_combine": MoeCombineKernel, "moe": MoeKernel}
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

    def promote(self, expected=None):
        """Replaces fallbacks by the kernels that are ready, and returns how many were replaced. With `expected`, digests
        of ready_digests(), those kernels alone. If one of them is not ready here, none is replaced, and NotReadyError
        is raised."""
        count = c_int32()
        if expected is None:
            self._lib.engine_promote(self._live(), byref(count))
            return count.value
        digests = list(expected)
        for digest in digests:
            if not isinstance(digest, bytes) or len(digest) != DIGEST_BYTES:
                raise ConfigError(f"expected: {digest!r:.80} is no digest; ready_digests() has bytes objects of {DIGEST_BYTES}")
        self._lib.engine_promote_exactly(self._live(), b"".join(digests), len(digests), byref(count))
        return count.value

    def ready_digests(self):
        """A digest (32 bytes) for each prepared kernel that is loaded, whether it serves or its fallback still does, in
        ascending order. It is equal on all ranks that have the same cubins for the same problem."""
        count, capacity = c_size_t(), 0
        while True:
            digests = ctypes.create_string_buffer(capacity * DIGEST_BYTES)
            self._lib.engine_ready_digests(self._live(), digests, capacity, byref(count))
            if count.value <= capacity:  # else another kernel has become ready meanwhile
                return [digests.raw[i * DIGEST_BYTES:(i + 1) * DIGEST_BYTES] for i in range(count.value)]
            capacity = count.value

    def plan_digest(self):
        """A digest (32 bytes) of what launches run now. Ranks compare it before they capture graphs:
        kernelwright.ranks."""
        digest = ctypes.create_string_buffer(DIGEST_BYTES)
        self._lib.engine_plan_digest(self._live(), digest)
        return digest.raw

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


def _destroy(library, handle, lives, callback):
    """Also called by Python's collector, on any thread. Inside on_event that may be a thread of this very engine, which must not wait
    for itself. Python did not start such threads, so one of its own waits there. It keeps the callback as long."""
    lives.value = 0
    destroy = library.dll.kernelwright_engine_destroy
    if not isinstance(threading.current_thread(), threading._DummyThread):
        return destroy(handle)
    try:
        threading.Thread(target=lambda _: destroy(handle), args=(callback,)).start()
    except RuntimeError:  # the interpreter ends, and so does the engine
        pass


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
