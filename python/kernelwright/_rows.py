"""What problems over rows check of a launch's tensors, whatever they compute."""
from ._arguments import check_place
from ._errors import ConfigError
from ._gemm import no_stride_of_zero
from ._tensors import is_contiguous, read


def views_of(tensors, device, own_memory):
    """The View of each tensor that is given."""
    views = {name: read(name, given) for name, given in tensors.items() if given is not None}
    for name, view in views.items():
        check_place(name, view, device, own_memory)
    return views


def check_dtype(name, view, wanted):
    if view.dtype not in wanted:
        raise ConfigError(f"{name}: is {view.dtype}, and the problem has {' or '.join(wanted)}")


def check_matrix(name, view, dtypes, rows, columns, rows_name="rows"):
    """The stride of [rows, columns] in elements, and the rows, which may be None: any number."""
    check_dtype(name, view, dtypes)
    if len(view.shape) != 2 or view.shape[1] != columns or rows not in (None, view.shape[0]):
        raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [{rows_name if rows is None else rows}, "
                          f"{columns}]")
    if view.shape[1] > 1 and view.strides[1] != 1:
        raise ConfigError(f"{name}: its last dimension has stride {view.strides[1]}; rows must be contiguous")
    no_stride_of_zero(name, view)
    return (view.strides[0] if view.shape[0] > 1 else columns), view.shape[0]


def check_vector(name, view, dtypes, size):
    """`size` elements of any shape, contiguous."""
    check_dtype(name, view, dtypes)
    count = 1
    for extent in view.shape:
        count *= extent
    if count != size or not is_contiguous(view):
        raise ConfigError(f"{name}: has shape {list(view.shape)} and strides {list(view.strides)}; it is [{size}], contiguous")


def check_array(name, view, dtypes, shape):
    """An array of that shape, contiguous."""
    check_dtype(name, view, dtypes)
    if tuple(view.shape) != tuple(shape) or not is_contiguous(view):
        raise ConfigError(f"{name}: has shape {list(view.shape)} and strides {list(view.strides)}; it is {list(shape)}, contiguous")


def check_size(name, value, bits=63):
    """A size that tensors or the caller have given."""
    if value is None:
        raise ConfigError(f"{name}: is missing; addresses do not tell it")
    if not 0 <= value < 2**bits:
        raise ConfigError(f"{name}: {value} is negative, or more than {bits} bits hold")
