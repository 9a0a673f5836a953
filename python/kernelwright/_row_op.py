"""The arguments of a launch of steps over rows, checked against the problem."""
import json

from . import _structs as structs
from ._arguments import set_numbers
from ._errors import ConfigError
from ._gemm import no_stride_of_zero
from ._rows import check_dtype, check_matrix, check_size, check_vector, views_of
from ._tensors import is_contiguous

BITS = {"mxfp8": 8, "mxfp4": 4, "nvfp4": 4}  # of elements that come with scales of their own
LSES = ("lse", "residual_lse", "lse_out")  # of a merge
MATRICES = ("x", "residual", "residual_out", "out")  # in the order in which they are checked


class RowOpProblem:
    """A config's "problem" of kind "row_op" with the defaults of docs/config.md."""

    def __init__(self, problem):
        dtype, norm, scales = problem.get("dtype", {}), problem.get("norm", {}), problem.get("scales", {})
        entering, self.out = dtype.get("in", "bf16"), dtype.get("out", "bf16")
        self.words = json.dumps(problem, sort_keys=True)  # tells two problems of equal shapes apart
        self.width, self.input = problem["width"], problem.get("input", "plain")
        self.adds, self.merges = self.input == "add", self.input == "merge"
        self.heads = problem.get("heads", 1)
        self.has_weights = norm.get("kind", "none") != "none" and norm.get("weight", True)
        self.scales = "atoms" if self.out in BITS else scales.get("kind", "none")
        self.columns = scales.get("layout", "columns") == "columns"
        self.dtypes = {name: (entering,) for name in ("x", "residual", "residual_out", "weight")} | {
            "out": ("u8",) if self.scales == "atoms" else (self.out,) + (("u8",) if self.out in ("e4m3", "e5m2") else ())}

    @property
    def makes_scales(self):
        """Whether a launch writes scales."""
        return self.scales not in ("none", "per_tensor")

    def columns_of(self, name):
        """Elements of a row; of block-scaled formats bytes."""
        if name == "x" and self.input == "gate_up":
            return 2 * self.width
        return self.width * BITS[self.out] // 8 if name == "out" and self.scales == "atoms" else self.width

    def scale_shape(self, rows):
        """The shape of scales that a launch writes; of block-scaled formats bytes of whole atoms."""
        blocks = self.width // 128
        if self.scales == "atoms":
            block = 16 if self.out == "nvfp4" else 32
            return ((rows + 127) // 128 * ((self.width // block + 3) // 4) * 512,)
        if self.scales == "per_token":
            return (rows,)
        return (blocks, rows) if self.columns else (rows, blocks)

    def results(self):
        """The names of what a call returns, with shape and dtype as functions of the rows of x."""
        found = {"out": lambda rows: ((rows, self.columns_of("out")), self.dtypes["out"][0])}
        if self.adds:
            found["residual_out"] = lambda rows: ((rows, self.width), self.dtypes["residual_out"][0])
        if self.merges:
            found["lse_out"] = lambda rows: ((rows, self.heads), "f32")
        if self.makes_scales:
            found["scale"] = lambda rows: (self.scale_shape(rows), "u8" if self.scales == "atoms" else "f32")
        return found

    def arguments(self, tensors, numbers, device, own_memory):
        """The C struct of one launch. `numbers`: what bind() takes beside tensors."""
        numbers = dict(numbers)
        rows = numbers.pop("rows")
        if numbers["tensor_scale"] is not None and not numbers["tensor_scale"] > 0:
            raise ConfigError(f"tensor_scale: {numbers['tensor_scale']} does not divide; give a number above 0")
        views = views_of(tensors, device, own_memory)
        c = structs.RowOpTensors(**{name: view.address for name, view in views.items()})
        shaped = {name: view for name, view in views.items() if view.shape is not None}
        for name in MATRICES:
            if name in shaped:
                columns = self.columns_of(name)
                stride, rows = check_matrix(name, shaped[name], self.dtypes[name], rows, columns)
                setattr(c, name + "_stride", stride * self.width // columns if name == "out" else stride)  # of bytes: elements
        check_size("rows", rows)
        if "weight" in shaped:
            check_vector("weight", shaped["weight"], self.dtypes["weight"], self.width)
        if "scale" in shaped:
            self.scale(shaped["scale"], rows, c)
        self.lses({name: shaped[name] for name in LSES if name in shaped}, rows, c)
        c.rows = rows
        set_numbers(c, numbers)
        return c

    def lses(self, views, rows, c):
        """f32 [rows, heads]: any strides, which all three share."""
        if views and not self.merges:
            raise ConfigError(f"{next(iter(views))}: is given, and the problem's input is {self.input}")
        strides = {}
        for name, view in views.items():
            check_dtype(name, view, ("f32",))
            if tuple(view.shape) != (rows, self.heads):
                raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [{rows}, {self.heads}]")
            if any(stride == 0 and size > 1 for stride, size in zip(view.strides, view.shape)):
                raise ConfigError(f"{name}: has strides {list(view.strides)}, and 0 says that there is no gap; make it contiguous")
            strides[name] = (view.strides[0] if rows > 1 else self.heads, view.strides[1] if self.heads > 1 else 1)
        if len(set(strides.values())) > 1:
            words = ", ".join(f"{name} {list(each)}" for name, each in strides.items())
            raise ConfigError(f"lse_out: the LSEs have different strides: {words}; give all three the same")
        if strides:
            c.lse_stride, c.lse_head_stride = next(iter(strides.values()))

    def scale(self, view, rows, c):
        if self.scales == "none":
            raise ConfigError("scale: is given, and the problem has no scales")
        if self.scales == "per_tensor":
            return check_vector("scale", view, ("f32",), 1)
        if self.scales == "atoms":
            (count,) = self.scale_shape(rows)
            if not is_contiguous(view) or not view.bytes >= count:
                raise ConfigError(f"scale: has {view.bytes} bytes, shape {list(view.shape)}; it is contiguous and has {count} at least")
            return
        check_dtype("scale", view, ("f32",))
        shape = self.scale_shape(rows)
        dense = tuple(view.shape) == shape and (
            is_contiguous(view) if self.scales == "per_token" else view.shape[1] <= 1 or view.strides[1] == 1)
        if not dense:
            raise ConfigError(f"scale: has shape {list(view.shape)} and strides {list(view.strides)}; it is {list(shape)}, "
                              f"{'contiguous' if self.scales == 'per_token' else 'its rows contiguous'}")
        if self.scales == "per_block":
            no_stride_of_zero("scale", view)
            c.scale_stride = view.strides[0]
