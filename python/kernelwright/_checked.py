"""What all structs of the C ABI do beside having fields: they check integers, and they know their size."""
import ctypes
from ctypes import c_int32, c_int64, c_size_t, c_uint32, c_uint64

from ._errors import ConfigError


def _limits(kind):
    """The smallest and the largest value of an integer field; None for other fields."""
    signed = kind in (c_int32, c_int64)
    if not signed and kind not in (c_uint32, c_uint64, c_size_t):
        return None
    bits = 8 * ctypes.sizeof(kind) - signed
    return (-(1 << bits) if signed else 0), (1 << bits) - 1


class Checked(ctypes.Structure):
    """A struct that refuses integers which do not fit into their field, and fields that it does not have. ctypes takes
    both silently."""

    def __init__(self, *values, **fields):
        super().__init__()
        for name, value in [*zip((name for name, _ in self._fields_), values), *fields.items()]:
            setattr(self, name, value)

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls._ranges = {name: _limits(kind) for name, kind in cls._fields_}

    def __setattr__(self, name, value):
        if name not in self._ranges:
            raise AttributeError(f"{type(self).__name__} has no field {name}")
        if isinstance(value, int) and self._ranges[name]:
            low, high = self._ranges[name]
            if not low <= value <= high:
                raise ConfigError(f"{name}: {value} is outside [{low}, {high}]")
        super().__setattr__(name, value)


class Struct(Checked):
    """A sized struct of the C ABI: zero, except its size and the given fields."""

    _fields_ = []

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)
