"""Tensors as a framework with DLPack's C exchange table lends them, made with ctypes, for tests without a framework."""
import ctypes
from ctypes import POINTER, PYFUNCTYPE, c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p, py_object

from kernelwright import _tensors

EXTENSION = 12  # kDLExtDev, which stands for the emulator's memory
CODES = {name: code for code, name in _tensors.DLPACK_DTYPES.items()}


class ManagedTensor(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
                ("tensor", _tensors._DLTensor)]


class Lent:
    """A tensor of any memory: of the engine's, or of none. on_allocate(shape, dtype) makes new ones of the class."""

    on_allocate, on_stream, borrowed = None, staticmethod(lambda: 0), 0

    def __init__(self, address, shape, strides=None, dtype="f16", device=(EXTENSION, 0), owner=None):
        self.address, self.shape, self.dtype, self.device, self.owner = address, tuple(shape), dtype, device, owner
        self.strides = tuple(strides) if strides is not None else _tensors.contiguous(self.shape)
        self._sizes = (c_int64 * max(len(self.shape), 1))(*self.shape)
        self._steps = (c_int64 * max(len(self.shape), 1))(*self.strides)

    def _kernelwright_view(self):
        where = {EXTENSION: "engine", 2: "cuda", 1: "host"}[self.device[0]]
        return _tensors.View(self.address, self.shape, self.strides, self.dtype, where, self.device[1])

    def describe(self, out):
        tensor = _tensors._DLTensor.from_address(out)
        tensor.data, tensor.device_type, tensor.device_id = self.address or None, *self.device
        code, bits = CODES.get(self.dtype, (3, 64))
        tensor.ndim, tensor.code, tensor.bits, tensor.lanes = len(self.shape), code, bits, 1
        tensor.shape, tensor.strides, tensor.byte_offset = self._sizes, self._steps, 0


_made = []  # tensors on their way from allocate() to object_of()


def _borrow(lent, out):
    lent.describe(out)
    type(lent).borrowed += 1
    return 0


def _allocate(prototype, out, _context, _set_error):
    tensor = prototype.contents
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    _made.append((ManagedTensor(), Lent.on_allocate(shape, _tensors.DLPACK_DTYPES[tensor.code, tensor.bits])))
    out[0] = ctypes.addressof(_made[-1][0])
    return 0


def _object_of(_managed, out):
    lent = _made.pop()[1]
    ctypes.pythonapi.Py_IncRef(py_object(lent))
    out[0] = id(lent)
    return 0


def _current_stream(_device_type, _device_id, out):
    out[0] = Lent.on_stream()
    return 0


class ExchangeApi(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("previous", c_void_p),
                ("allocate", PYFUNCTYPE(c_int, POINTER(_tensors._DLTensor), POINTER(c_void_p), c_void_p, c_void_p)),
                ("managed_of", c_void_p), ("object_of", PYFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))),
                ("borrow", PYFUNCTYPE(c_int, py_object, c_void_p)),
                ("current_stream", PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p)))]


def table(**fields):
    """A capsule with the table. None for a function: a null pointer."""
    types = dict(ExchangeApi._fields_)
    functions = {"allocate": _allocate, "object_of": _object_of, "borrow": _borrow, "current_stream": _current_stream} | fields
    api = ExchangeApi(**{"major": 1, "minor": 3} | {
        name: value if isinstance(value, int) else types[name](value) if value else types[name]()
        for name, value in functions.items()})
    tables.append(api)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = py_object, (c_void_p, c_char_p, c_void_p)
    return new(ctypes.addressof(api), b"dlpack_exchange_api", None)


tables = []
Lent.__dlpack_c_exchange_api__ = table()
