"""The shared library: where it is searched, the functions of runtime/c/c_api.h, and statuses as exceptions.

Every struct starts with struct_size. So this file still works with a newer library, and an older library refuses only
fields that are set (docs/embedding.md, "The C ABI"). A library of another major version is refused.
"""
import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p

from . import _structs as structs
from ._errors import CompileError, ConfigError, DeviceError, InternalError, MissingError, NotReadyError
from ._structs import (AttentionTensors, Counters, EngineOptions, GemmTensors, HazardCallback, KernelInfo, KernelRowCallback,
                       KvWriteTensors, Latency, MoeCombineTensors, MoeTensors, PrepareOptions, QuantizeTensors, Rope,
                       RouteTensors, RowOpTensors, TextCallback)
from ._version import MAJOR, __version__

COMPILER = "NVRTC "  # with which kernel_origin() names one
NAMES = ("libkernelwright_c.so", "libkernelwright_c.so.0")
BY_STATUS = {structs.INVALID_ARGUMENT: ConfigError, structs.COMPILE_ERROR: CompileError, structs.MISSING: MissingError,
             structs.DEVICE_ERROR: DeviceError, structs.NOT_READY: NotReadyError, structs.INTERNAL_ERROR: InternalError}

ENGINE, KERNEL = c_void_p, c_void_p
# name: the parameters of the call after the status. Every function returns a kernelwright_status.
FUNCTIONS = {
    "engine_create": (POINTER(EngineOptions), POINTER(ENGINE)),
    "kernel_origin": (POINTER(EngineOptions), POINTER(c_char_p)),
    "engine_seal": (ENGINE,),
    "engine_stop": (ENGINE,),
    "engine_wait_until_ready": (ENGINE, c_int32, POINTER(c_int32)),
    "engine_is_ready": (ENGINE, POINTER(c_int32)),
    "engine_is_sealed": (ENGINE, POINTER(c_int32)),
    "engine_promote": (ENGINE, POINTER(c_int32)),
    "engine_ready_digests": (ENGINE, c_char_p, c_size_t, POINTER(c_size_t)),
    "engine_promote_exactly": (ENGINE, c_char_p, c_size_t, POINTER(c_int32)),
    "engine_plan_digest": (ENGINE, c_char_p),
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
    "launch_kv_write": (KERNEL, POINTER(KvWriteTensors), c_void_p),
    "launch_row_op": (KERNEL, POINTER(RowOpTensors), c_void_p),
    "launch_route": (KERNEL, POINTER(RouteTensors), c_void_p),
    "route_workspace_bytes": (KERNEL, POINTER(RouteTensors), POINTER(c_uint64)),
    "launch_moe_combine": (KERNEL, POINTER(MoeCombineTensors), c_void_p),
    "launch_moe": (KERNEL, POINTER(MoeTensors), c_void_p),
    "moe_workspace_bytes": (KERNEL, POINTER(MoeTensors), POINTER(c_uint64)),
    "rope_table": (POINTER(Rope), c_int64, c_int64, c_void_p),
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
        if int(self.version().partition(".")[0]) != MAJOR:
            raise MissingError(f"{path} has version {self.version()}, and this package {__version__}, which needs {MAJOR}.x; "
                               "install both from one wheel, or let KERNELWRIGHT_LIBRARY name another library")
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
            self.raise_status(status)

    def raise_status(self, status):
        """Raises the exception of the status that the last call of this thread returned."""
        raise BY_STATUS.get(status, InternalError)(self.dll.kernelwright_last_error().decode(errors="replace"))

    def version(self):
        return self.dll.kernelwright_version().decode()


@functools.lru_cache(maxsize=None)
def load(path=None):
    """The library at `path`, or the one that find() finds; loaded once."""
    return Library(find() if path is None else str(path))


def kernel_origin(library=None):
    """Where an engine gets kernels that nobody has prepared yet, for people: a compiler, which begins with "NVRTC ", or a bundle, a
    cache directory or a server that has kernels. Raises MissingError if there is none of these. It opens no compiler and no GPU, so the process may
    fork afterwards."""
    origin = c_char_p()
    load(library).kernel_origin(None, ctypes.byref(origin))
    return origin.value.decode(errors="replace")
