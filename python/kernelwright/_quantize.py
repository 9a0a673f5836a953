"""The arguments of a quantising launch, checked."""
from . import _structs as structs
from ._arguments import check_place
from ._errors import ConfigError
from ._gemm import no_stride_of_zero
from ._tensors import is_contiguous, read


def check_sizes(rows, k):
    """Refuses sizes that the C ABI's 32 bits would truncate."""
    for name, size in (("rows", rows), ("k", k)):
        if not 0 <= size < 2**31:
            raise ConfigError(f"{name}: {size} is more than 31 bits hold, or negative")


def quantize_arguments(kernel, tensors, rows, k):
    """The C struct of one launch of a QuantizeKernel."""
    from_dtype, to = kernel._problem
    views = {name: read(name, given) for name, given in tensors.items()}
    for name, view in views.items():
        check_place(name, view, kernel.device, kernel._own_memory)
    c = structs.QuantizeTensors(**{name: view.address for name, view in views.items()})
    x = views["x"]
    if x.shape is not None:
        if x.dtype != from_dtype:
            raise ConfigError(f"x: is {x.dtype}, and the kernel reads {from_dtype}")
        wanted = [rows if rows is not None else "rows", k if k is not None else "k"]
        if len(x.shape) != 2 or any(isinstance(want, int) and have != want for have, want in zip(x.shape, wanted)):
            raise ConfigError(f"x: has shape {list(x.shape)}; it is [{wanted[0]}, {wanted[1]}]")
        if x.shape[1] > 1 and x.strides[1] != 1:
            raise ConfigError(f"x: its last dimension has stride {x.strides[1]}; rows must be contiguous")
        no_stride_of_zero("x", x)
        rows, k = x.shape
        c.x_stride = x.strides[0] if rows > 1 else k
    if rows is None or k is None:
        raise ConfigError(f"{'rows' if rows is None else 'k'}: is missing; an address does not tell it")
    check_sizes(rows, k)
    needed = {"elements": rows * k // (1 if to == "mxfp8" else 2), "scales": kernel.scale_bytes(rows, k)}
    for name, count in needed.items():
        view = views[name]
        if view.shape is None:
            continue
        if count and not view.bytes:
            raise ConfigError(f"{name}: is {view.dtype}, whose size is not known here; view it as u8")
        if not is_contiguous(view) or view.bytes < count:
            raise ConfigError(f"{name}: has {view.bytes} bytes, shape {list(view.shape)}; it is contiguous and has {count} at least")
    c.rows, c.k = rows, k
    return c
