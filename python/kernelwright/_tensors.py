"""What a launch accepts as a tensor: DLPack, __cuda_array_interface__, the engine's own Array, or a plain address.

Only addresses, shapes and strides are read; nothing is copied, kept or synchronised. The caller keeps the tensors
alive until the launch is done, as in C.
"""
import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint16, c_uint64, c_uint8, c_void_p

from ._errors import ConfigError

ITEM_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "e4m3": 1, "e5m2": 1, "i32": 4, "u8": 1, "bool": 1}
ARRAY_BYTES = ITEM_BYTES | {"i64": 8}  # of an Array: slots are i64; the extension's rules know eight dtypes
# (type code, bits) of DLPack 1.1 and its predecessors; one lane each.
DLPACK_DTYPES = {(2, 16): "f16", (4, 16): "bf16", (2, 32): "f32", (0, 32): "i32", (1, 8): "u8", (0, 8): "i8", (10, 8): "e4m3",
                 (12, 8): "e5m2", (0, 64): "i64", (2, 64): "f64", (6, 8): "bool"}
CUDA_ARRAY_DTYPES = {"<f2": "f16", "<f4": "f32", "<i4": "i32", "|u1": "u8", "|i1": "i8", "<i8": "i64", "<f8": "f64", "|b1": "bool"}
CPU, CUDA, CUDA_MANAGED = 1, 2, 13  # DLDeviceType


class _DLTensor(ctypes.Structure):
    """DLTensor, which is also the first part of DLManagedTensor."""

    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, (ctypes.py_object, c_char_p)


class View:
    """An address with what is known about it. shape is None for a plain address; strides count elements; where is
    "address" (unknown), "host", "cuda" or "engine"."""

    __slots__ = ("address", "shape", "strides", "dtype", "where", "device")

    def __init__(self, address, shape=None, strides=None, dtype=None, where="address", device=0):
        self.address, self.shape, self.dtype, self.where, self.device = address, shape, dtype, where, device
        self.strides = contiguous(shape) if strides is None and shape is not None else strides

    @property
    def bytes(self):
        count = 1
        for extent in self.shape:
            count *= extent
        return count * ITEM_BYTES.get(self.dtype, 0)


def contiguous(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def is_contiguous(view):
    return all(extent <= 1 or stride == dense
               for extent, stride, dense in zip(view.shape, view.strides, contiguous(view.shape)))


def read(name, given):
    """The View of the value given for the argument `name`."""
    if isinstance(given, int):
        return View(given)
    own = getattr(given, "_kernelwright_view", None)
    if own is not None:
        return own()
    if hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__"):
        return _read_dlpack(name, given)
    described = getattr(given, "__cuda_array_interface__", None)
    if described is not None:
        return _read_cuda_array(described)
    raise ConfigError(f"{name}: a {type(given).__name__} is no tensor here; give an object with __dlpack__ or "
                      "__cuda_array_interface__, an Array of the engine, or a device address")


def _read_dlpack(name, given):
    kind, device = (int(part) for part in given.__dlpack_device__())
    try:
        # -1: the producer need not wait for its own stream, because the launch is ordered by the stream that it is
        # given.
        capsule = given.__dlpack__() if kind == CPU else given.__dlpack__(stream=-1)
        # Never renamed to "used_dltensor": the capsule stays the owner, and frees its description when it is destroyed.
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    except Exception as error:
        raise ConfigError(f"{name}: its __dlpack__ refuses: {error}") from error
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    dtype = DLPACK_DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    where = {CPU: "host", CUDA: "cuda", CUDA_MANAGED: "cuda"}.get(kind, f"DLPack device {kind}")
    return View((tensor.data or 0) + tensor.byte_offset, shape, strides,
                dtype or f"DLPack type (code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes)", where, device)


def _read_cuda_array(described):
    # The interface does not name the device. If there are several, only the library's own address checks apply.
    typestr, shape = described["typestr"], tuple(described["shape"])
    dtype = CUDA_ARRAY_DTYPES.get(typestr, f"type {typestr}")
    strides = described.get("strides")
    if strides is not None:
        item = int(typestr[2:])
        strides = tuple(stride // item for stride in strides)
    return View(described["data"][0], shape, strides, dtype, "cuda", None)


def stream_address(stream):
    """The CUstream of an address, a torch.cuda.Stream, a CuPy stream or anything with __cuda_stream__; None is the default."""
    if stream is None:
        return None
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return (protocol() if callable(protocol) else protocol)[1]
    for attribute in ("cuda_stream", "ptr"):
        address = getattr(stream, attribute, None)
        if isinstance(address, int):
            return address
    raise ConfigError(f"stream: a {type(stream).__name__} is no stream here; give a CUstream's address, or an object with "
                      "__cuda_stream__, cuda_stream or ptr")
