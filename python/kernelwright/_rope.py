"""The table of cosines and sines that a cache's writer reads."""
import ctypes

from . import _library as lib
from . import _structs as structs
from ._errors import ConfigError


def rope_table(width, rows, *, first=0, scaling="default", theta=10000.0, factor=1.0, original_positions=0, low=1.0, high=4.0,
               beta_fast=32.0, beta_slow=1.0, truncate=True, mscale=0.0, mscale_all=0.0, share=1.0, attention_factor=None,
               factors=(), library=None):
    """The table cos_sin of rows [first, first + rows), as a memoryview of f32 with the shape [rows, width]: NumPy and
    torch take it as it is. docs/kv-write.md has the scalings and their numbers."""
    rope = structs.Rope(scaling=scaling.encode(), width=width, no_truncate=not truncate, theta=theta, factor=factor,
                        original_positions=original_positions, low=low, high=high, beta_fast=beta_fast, beta_slow=beta_slow,
                        mscale=mscale, mscale_all=mscale_all, share=share, attention_factor=attention_factor or 0.0)
    if factors:
        held = (ctypes.c_double * len(factors))(*factors)
        rope.factors, rope.num_factors = held, len(factors)
    if not (0 < width <= 1024 and 0 <= rows < 2**31):
        raise ConfigError(f"width, rows: [{rows}, {width}] is no table; width is 2 to 1024, rows 31 bits")
    table = bytearray(4 * rows * width)
    place = (ctypes.c_char * len(table)).from_buffer(table) if table else None
    lib.load(library).rope_table(ctypes.byref(rope), first, rows, place)
    del place
    return memoryview(table).cast("f", shape=[rows, width]) if table else memoryview(table).cast("f")
