"""The shared library: where it is searched, the structs and functions of runtime/c/c_api.h, and statuses as
exceptions.

Every struct starts with struct_size. So this file still works with a newer library, and an older library refuses only
fields that are set (docs/embedding.md, "The C ABI").
"""
import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

NAMES = ("libkernelwright_c.so", "libkernelwright_c.so.0")


class KernelwrightError(RuntimeError):
    """An error that a call of the library reported. The subclasses are the statuses of the C ABI."""


class ConfigError(KernelwrightError, ValueError):
    """A config, an option or a tensor that cannot be used. A retry gives the same error."""


class CompileError(KernelwrightError):
    """NVRTC rejected a source."""


class MissingError(KernelwrightError):
    """The machine lacks a driver, a GPU, a compiler, or the library itself."""


class DeviceError(KernelwrightError):
    """A driver call failed, or a launch on the emulator failed."""


class NotReadyError(KernelwrightError):
    """A kernel is not prepared, and the engine is sealed, the stream captures, or the caller does not want to wait."""


class InternalError(KernelwrightError):
    """Out of memory, or a bug in the library."""


BY_STATUS = {1: ConfigError, 2: CompileError, 3: MissingError, 4: DeviceError, 5: NotReadyError, 6: InternalError}


def _limits(kind):
    """The smallest and the largest value of an integer field; None for other fields."""
    signed = kind in (c_int32, c_int64)
    if not signed and kind not in (c_uint32, c_uint64, c_size_t):
        return None
    bits = 8 * ctypes.sizeof(kind) - signed
    return (-(1 << bits) if signed else 0), (1 << bits) - 1


class Checked(ctypes.Structure):
    """A struct that refuses integers which do not fit into their field; ctypes truncates them silently."""

    def __init__(self, **fields):
        super().__init__()
        for name, value in fields.items():
            setattr(self, name, value)

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls._ranges = {name: limits for name, kind in cls._fields_ if (limits := _limits(kind))}

    def __setattr__(self, name, value):
        if isinstance(value, int) and name in self._ranges:
            low, high = self._ranges[name]
            if not low <= value <= high:
                raise ConfigError(f"{name}: {value} is outside [{low}, {high}]")
        super().__setattr__(name, value)


class Struct(Checked):
    """A sized struct of the C ABI: zero, except its size and the given fields."""

    _fields_ = []

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Event(Struct):
    _fields_ = [("struct_size", c_size_t), ("kind", c_char_p), ("key", c_char_p), ("name", c_char_p), ("detail", c_char_p),
                ("milliseconds", c_double), ("level", c_int32)]


EventCallback = ctypes.CFUNCTYPE(None, POINTER(Event), c_void_p)


class EngineOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("backend", c_char_p), ("cache_directory", c_char_p),
                ("read_only_layers", POINTER(c_char_p)), ("num_read_only_layers", c_size_t), ("max_cache_bytes", c_uint64),
                ("nvrtc_path", c_char_p), ("memory_only_cache", c_int32), ("compile_threads", c_int32),
                ("event_callback", EventCallback), ("user_data", c_void_p), ("emulator_arch", c_char_p),
                ("completion", c_char_p), ("seed", c_uint64), ("hazards", c_int32), ("emulator_threads", c_int32),
                ("tuned_dir", c_char_p), ("event_level", c_int32), ("launch_sampling", c_uint32),
                ("check_data", c_int32), ("lock_timeout_ms", c_int32)]


class Counters(Struct):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in (
            "ready pending failed loads loaded_bytes fallback_launches sealed_misses capture_misses promotions compiles "
            "memory_hits disk_hits cache_misses quarantined layer_hits compile_failures writes write_failures "
            "evicted").split()]


LATENCY_BOUNDS = 22


class Latency(Struct):
    _fields_ = [("struct_size", c_size_t), ("count", c_uint64), ("sum_seconds", c_double),
                ("bounds_seconds", c_double * LATENCY_BOUNDS), ("buckets", c_uint64 * (LATENCY_BOUNDS + 1))]


TextCallback = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_void_p)  # the text as an address, because it may contain a zero


class KernelRow(Struct):
    _fields_ = ([("struct_size", c_size_t), ("prepared", c_uint64)]
                + [(name, c_char_p) for name in "kind kernel family key error".split()]
                + [(name, c_int32) for name in "state device fallback serving".split()]
                + [("source", c_char_p), ("entry", c_char_p), ("registers", c_int32), ("spill_bytes", c_int32),
                   ("static_shared_bytes", c_int32), ("cubin_bytes", c_uint64), ("compile_ms", c_double)])


KernelRowCallback = ctypes.CFUNCTYPE(None, POINTER(KernelRow), c_void_p)


class Hazard(Struct):
    _fields_ = [("struct_size", c_size_t), ("kind", c_char_p), ("kernel", c_char_p), ("what", c_char_p), ("where", c_char_p),
                ("text", c_char_p), ("count", c_uint64)]


HazardCallback = ctypes.CFUNCTYPE(None, POINTER(Hazard), c_void_p)


class PrepareOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("device", c_int32), ("on_miss", c_int32), ("background", c_int32),
                ("allow_when_sealed", c_int32)]


class KernelInfo(Struct):
    _fields_ = [("struct_size", c_size_t), ("state", c_int32), ("serves_fallback", c_int32), ("device", c_int32),
                ("registers", c_int32), ("spill_bytes", c_int32), ("static_shared_bytes", c_int32),
                ("cubin_bytes", c_uint64), ("key", c_char_p)]


class Strides(Checked):
    _fields_ = [("batch", c_int64), ("token", c_int64), ("head", c_int64)]

    def __init__(self, batch=0, token=0, head=0):
        super().__init__(batch=batch, token=token, head=head)


ADDRESSES = ("q", "k", "v", "o", "lse", "q_offsets", "kv_offsets", "kv_lengths", "page_table", "sinks", "k_scale", "v_scale",
             "workspace")


class AttentionTensors(Struct):
    _fields_ = ([("struct_size", c_size_t)] + [(name, c_uint64) for name in ADDRESSES]
                + [("workspace_bytes", c_uint64), ("batch", c_int32), ("q_len", c_int32), ("kv_len", c_int32),
                   ("page_table_stride", c_int32), ("q_tokens", c_int64), ("q_strides", Strides), ("k_strides", Strides),
                   ("v_strides", Strides), ("o_strides", Strides), ("overrides", c_uint32), ("scale", c_float),
                   ("softcap", c_float), ("window_left", c_int32), ("window_right", c_int32),
                   ("kv_tokens", c_int64), ("sm_budget", c_int32),
                   ("alibi_slopes", c_uint64), ("pdl", c_int32), ("q_rope", c_uint64), ("k_rope", c_uint64),
                   ("q_rope_strides", Strides), ("k_rope_strides", Strides), ("q_scale", c_uint64),
                   ("num_pages", c_int32), ("zero_padding", c_int32), ("mask", c_uint64),
                   ("mask_strides", Strides), ("bias", c_uint64), ("bias_strides", Strides)])


SET_SCALE, SET_SOFTCAP, SET_WINDOW = 1, 2, 4


class GemmTensors(Struct):
    _fields_ = ([("struct_size", c_size_t)] + [(name, c_uint64) for name in "a b d c bias scale_a scale_b".split()]
                + [(name + "_stride", c_int64) for name in "a b c d scale_a scale_b".split()]
                + [("m", c_int32), ("sm_budget", c_int32), ("pdl", c_int32), ("overrides", c_uint32), ("alpha", c_float),
                   ("beta", c_float), ("constant_b", c_int32), ("workspace", c_uint64), ("workspace_bytes", c_uint64)])


SET_ALPHA, SET_BETA = 1, 2


class QuantizeTensors(Struct):
    _fields_ = ([("struct_size", c_size_t)] + [(name, c_uint64) for name in "x elements scales".split()]
                + [("x_stride", c_int64), ("elements_stride", c_int64), ("rows", c_int32), ("k", c_int32), ("pdl", c_int32),
                   ("tensor_scale", c_float)])


ENGINE, KERNEL = c_void_p, c_void_p
# name: the parameters of the call after the status. Every function returns a kernelwright_status.
FUNCTIONS = {
    "engine_create": (POINTER(EngineOptions), POINTER(ENGINE)),
    "engine_seal": (ENGINE,),
    "engine_stop": (ENGINE,),
    "engine_wait_until_ready": (ENGINE, c_int32, POINTER(c_int32)),
    "engine_is_ready": (ENGINE, POINTER(c_int32)),
    "engine_is_sealed": (ENGINE, POINTER(c_int32)),
    "engine_promote": (ENGINE, POINTER(c_int32)),
    "engine_counters": (ENGINE, POINTER(Counters)),
    "engine_latency": (ENGINE, c_int32, POINTER(Latency)),
    "engine_metrics": (ENGINE, TextCallback, c_void_p),
    "engine_list_kernels": (ENGINE, KernelRowCallback, c_void_p, POINTER(c_uint64)),
    "engine_take_hazards": (ENGINE, HazardCallback, c_void_p, POINTER(c_uint64)),
    "device_name": (ENGINE, c_int32, POINTER(c_char_p)),
    "device_allocate": (ENGINE, c_int32, c_uint64, POINTER(c_uint64)),
    "device_free": (ENGINE, c_int32, c_uint64),
    "device_write": (ENGINE, c_int32, c_uint64, c_void_p, c_uint64),
    "device_read": (ENGINE, c_int32, c_void_p, c_uint64, c_uint64),
    "prepare_json": (ENGINE, c_char_p, c_size_t, POINTER(PrepareOptions), POINTER(KERNEL)),
    "kernel_get_info": (KERNEL, POINTER(KernelInfo)),
    "kernel_wait": (KERNEL,),
    "launch": (KERNEL, POINTER(AttentionTensors), c_void_p),
    "launch_gemm": (KERNEL, POINTER(GemmTensors), c_void_p),
    "workspace_bytes": (KERNEL, POINTER(AttentionTensors), POINTER(c_uint64)),
    "gemm_workspace_bytes": (KERNEL, POINTER(GemmTensors), POINTER(c_uint64)),
    "prepare_quantize": (ENGINE, c_char_p, c_char_p, POINTER(PrepareOptions), POINTER(KERNEL)),
    "quantize_scale_bytes": (c_char_p, c_int64, c_int32, POINTER(c_uint64)),
    "launch_quantize": (KERNEL, POINTER(QuantizeTensors), c_void_p),
}


def candidates():
    """Where the library may lie, best first, if KERNELWRIGHT_LIBRARY is not set: beside the package or in one of the
    three folders above it (an installed tree), then in the build folders of the source tree, the newest first."""
    package = pathlib.Path(__file__).resolve().parent
    for folder in (package, *list(package.parents)[:3]):
        yield from (folder / name for name in NAMES)
    root = package.parent.parent
    built = [path for pattern in ("build/runtime", "build/*/runtime", "out/*/runtime", "out/*/lib")
             for folder in root.glob(pattern) for path in [folder / NAMES[0]] if path.exists()]
    yield from sorted(built, key=lambda path: path.stat().st_mtime, reverse=True)


def find():
    """The library's path. If KERNELWRIGHT_LIBRARY names the library or its folder, no other place is searched."""
    named = os.environ.get("KERNELWRIGHT_LIBRARY")
    if named:
        path = pathlib.Path(named)
        tried = [path / name for name in NAMES] if path.is_dir() else [path]
    else:
        tried = list(candidates())
    for path in tried:
        if path.is_file():
            return str(path)
    if named:
        raise MissingError(f"KERNELWRIGHT_LIBRARY is {named}, and there is no {' and no '.join(map(str, tried))}; name "
                           f"{NAMES[0]} or its folder")
    folders = list(dict.fromkeys(str(path.parent) for path in tried))
    raise MissingError(f"{NAMES[0]} is in none of {', '.join(folders)}, nor in a build folder; build the target "
                       "kernelwright_c, or set KERNELWRIGHT_LIBRARY to it")


class Library:
    """The loaded library. Calls raise the exception of their status, with the library's message."""

    def __init__(self, path):
        self.path = path
        try:
            self.dll = ctypes.CDLL(path)
        except OSError as error:
            raise MissingError(f"{path} cannot be loaded: {error}") from error
        for name, restype, argtypes in (("version", c_char_p, ()), ("last_error", c_char_p, ()),
                                        ("engine_destroy", None, (ENGINE,))):
            function = getattr(self.dll, "kernelwright_" + name)
            function.restype, function.argtypes = restype, argtypes
        for name, argtypes in FUNCTIONS.items():
            try:
                function = getattr(self.dll, "kernelwright_" + name)
            except AttributeError:  # an older library: calls that do not need the function work
                setattr(self, name, functools.partial(self.absent, name))
                continue
            function.restype, function.argtypes = c_int32, argtypes
            setattr(self, name, functools.partial(self.checked, function))

    def absent(self, name, *_):
        raise MissingError(f"{self.path} ({self.version()}) has no kernelwright_{name}(); it is older than this package")

    def checked(self, function, *arguments):
        status = function(*arguments)
        if status != 0:
            raise BY_STATUS.get(status, InternalError)(self.dll.kernelwright_last_error().decode(errors="replace"))

    def version(self):
        return self.dll.kernelwright_version().decode()


@functools.lru_cache(maxsize=None)
def load(path=None):
    """The library at `path`, or the one that find() finds; loaded once."""
    return Library(find() if path is None else str(path))
