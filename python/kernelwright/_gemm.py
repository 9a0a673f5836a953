"""The arguments of a GEMM's launch, checked against the problem."""
import inspect
import re
from collections.abc import Mapping
from ctypes import pointer

from . import _structs as structs
from ._arguments import check_place, set_numbers, set_workspace_bytes, tensors_and_numbers
from ._errors import ConfigError
from ._kv_write import NEW_ROWS, KvWriteProblem
from ._tensors import View, is_contiguous, read


def no_stride_of_zero(name, view):
    """Refuses a tensor of rows with a stride of zero, as expand() makes one."""
    if view.shape[0] > 1 and view.shape[1] > 0 and view.strides[0] == 0:
        raise ConfigError(f"{name}: its rows have stride 0, which the C ABI reads as contiguous; make it contiguous")


def flat(name, view):
    """A tensor [groups, rows, columns] as the matrix [groups * rows, columns] that it is in memory."""
    if view.shape is None or len(view.shape) != 3:
        return view
    groups, rows, columns = view.shape
    if rows == 1:  # a row of each: they may be any number of elements apart
        return View(view.address, (groups, columns), (view.strides[0], view.strides[2]), view.dtype, view.where, view.device)
    if groups > 1 and rows > 0 and view.strides[0] != rows * view.strides[1]:
        raise ConfigError(f"{name}: its matrices are {view.strides[0]} elements apart; they lie one behind the other, {rows} rows of "
                          f"{view.strides[1]} each")
    return View(view.address, (groups * rows, columns), view.strides[1:], view.dtype, view.where, view.device)


def batch_stride(name, view):
    """Elements from one matrix [rows, columns] of a tensor [groups, rows, columns] to the next; 0: they follow each other."""
    if view.shape is None or len(view.shape) != 3 or view.shape[0] == 1:
        return 0
    if view.strides[0] == 0 and view.shape[1] > 0:
        raise ConfigError(f"{name}: its matrices have stride 0, which the C ABI reads as contiguous; make it contiguous")
    return view.strides[0]


def of_batch(name, view, count):
    """As flat(), wherever the `count` matrices lie."""
    if view.shape is None or len(view.shape) != 3:
        return view
    groups, rows, columns = view.shape
    if groups != count:
        raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem has {count} groups")
    if rows > 1 and view.strides[1] == 0:
        raise ConfigError(f"{name}: its rows have stride 0, which the C ABI reads as contiguous; make it contiguous")
    stride = view.strides[1] if rows > 1 else columns
    return View(view.address, (groups * rows, columns), (stride, view.strides[2]), view.dtype, view.where, view.device)


BITS = {"mxfp8": 8, "mxfp4": 4, "nvfp4": 4}  # of elements that come with scales of their own: tensors of bytes
SHARERS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}  # of a scale


def atom_bytes(atom_rows, columns, dtype):
    """Bytes of the scales of a matrix with so many rows of atoms."""
    return atom_rows * -(-columns // (4 * SHARERS[dtype])) * 512


def _kv_write_bind():
    from ._handles import KvWriteKernel
    return KvWriteKernel.bind


class GemmProblem:
    """A config's "problem" of kind "gemm" with the defaults of docs/config.md."""

    def __init__(self, problem):
        dtype = problem.get("dtype", {})
        self.n, self.k = problem["n"], problem["k"]
        self.kv_write = KvWriteProblem(problem["kv_write"]) if problem.get("kv_write") else None
        # A gate and an up make one element of d.
        self.gated = "gate" in problem.get("epilogue", "acc")
        self.columns = self.n // 2 if self.gated else self.n
        if self.kv_write:  # d has the queries
            self.columns = self.kv_write.heads["q"] * self.kv_write.head_dims["q"]
        self.dtypes = {name: dtype.get(name, "bf16") for name in ("a", "b", "c", "d")} | {"bias": dtype.get("c", "bf16")}
        self.formats = {name: dtype for name, dtype in self.dtypes.items() if dtype in BITS}
        self.dtypes |= {name: "u8" for name in self.formats}
        self.layout, self.scales = problem.get("layout", "nt"), problem.get("scales", "none")
        groups = problem.get("groups", {})
        kind, self.bounds = groups.get("kind", "none"), groups.get("bounds", "starts")
        self.gathers, self.scatters = groups.get("gather", False), groups.get("scatter", False)
        self.pointers = groups.get("pointers", False)  # b is the addresses of matrices
        self.grouped, self.batched, self.count = kind != "none", kind == "batch", groups.get("count", 1)
        self.slices = kind == "k"  # groups have rows of a and b
        self.stacked = "abcd" if self.batched else "cd" if self.slices else ""  # operands that are a matrix for each group
        self.even = kind in ("masked", "batch") and not self.gathers  # a has as many rows for each group
        epilogue = problem.get("epilogue", "acc")
        self.quantizes = "quantize" in epilogue
        words = set(re.findall(r"\w+", epilogue))
        self.statistics = {"amax": "amax" in words, "squares": "squares" in words, "squares_a": "rstd" in words}
        self.rows_of_scales = self.quantizes and "layout=rows" in epilogue.replace(" ", "")
        self.d_columns = self.bytes_of("d", self.columns)  # of a tensor
        self.even_rows = kind in ("masked", "batch")
        self.result_groups = self.count if kind in ("masked", "batch") else 1  # whose scales of d lie one behind the other

    def bytes_of(self, name, elements):
        """How many elements a tensor of an operand has for these: bytes of block-scaled ones."""
        return elements * BITS[self.formats[name]] // 8 if name in self.formats else elements

    def shape(self, name, m):
        """Rows and columns of a matrix; None: any number. With groups, matrices of b lie one behind the other. Those of slices
        are slice()'s."""
        if name in self.formats:
            rows, columns = {"a": (m, self.k), "b": (self.count * self.n, self.k), "d": (m, self.columns)}[name]
            return rows, self.bytes_of(name, columns)
        n, k, count = self.n, self.k, self.count
        blocks = [-(-k // 128), 2 * -(-self.columns // 128) if self.gated else -(-n // 128)]
        scale_a = (count * blocks[0], m // count) if self.even and isinstance(m, int) else (blocks[0], m)
        scale_d = (self.result_groups * (self.columns // 128), m // self.result_groups if isinstance(m, int) else m)
        return {"scale_d": scale_d, "a": (m, k) if self.layout[0] == "n" else (k, m), "b": (count * n, k) if self.layout[1] == "t" else (count * k, n),
                "c": (m, n), "d": (m, self.columns), "scale_a": scale_a, "scale_b": (count * blocks[1], blocks[0])}[name]

    def results(self):
        """The names of what a call returns."""
        return ("out", "scale_d") if self.quantizes else ("out",)

    def scale_d_shape(self, rows):
        """The scales of a quantised d of so many rows, of masked groups and a batch with the group first. Of block-scaled
        formats they are bytes."""
        if "d" in self.formats:
            sharers = SHARERS[self.formats["d"]]
            if self.rows_of_scales:
                return rows, self.columns // sharers
            return (atom_bytes(self.atom_rows(rows), self.columns, self.formats["d"]),)
        blocks, groups = self.columns // 128, self.result_groups
        return (groups, blocks, rows // groups) if groups > 1 else (blocks, rows)

    def atom_rows(self, rows):
        """Rows of atoms of the scales of so many rows of a or d. Each group's begin a row of atoms; those of groups with bounds
        follow each other, so that these are the most."""
        if self.even_rows:
            return self.count * -(-(rows // self.count) // 128)
        return (rows + 127 * min(self.count, rows)) // 128 if self.count > 1 else -(-rows // 128)

    def bounds_count(self):
        """How many bounds the groups have; None without bounds."""
        return (self.count + (self.bounds == "starts")) if self.grouped and not self.batched else None

    def arguments(self, tensors, numbers, device, own_memory):
        """The C struct of one launch. `numbers`: what bind() takes beside tensors."""
        numbers = dict(numbers)
        m, workspace_bytes = numbers.pop("m"), numbers.pop("workspace_bytes")
        kv_write = numbers.pop("kv_write", None)
        views = {name: read(name, given) for name, given in tensors.items() if given is not None}
        for name, view in views.items():
            check_place(name, view, device, own_memory)
        apart = {f"{name}_batch_stride": batch_stride(name, views[name]) for name in self.stacked if name in views}
        if self.grouped:
            views = {name: of_batch(name, view, self.count) if name in self.stacked else flat(name, view)
                     for name, view in views.items()}
        c = structs.GemmTensors(**{name: view.address for name, view in views.items()}, **apart)
        sources, results = numbers.pop("source_rows", None), numbers.pop("result_rows", None)
        stride_of_b = numbers.pop("b_stride", None)
        if stride_of_b is not None and not self.pointers:
            raise ConfigError("b_stride: is given, and the problem has no groups with pointers")
        if stride_of_b is not None and not 0 <= stride_of_b < 2**63:
            raise ConfigError(f"b_stride: {stride_of_b} are no elements from one row to the next")
        if self.scatters and m is None and "scatter" in views and views["scatter"].shape is not None:
            m = views["scatter"].shape[0]
        for name in ("d", "a", "b", "c"):  # d first: it gives the number of rows
            if name in views and views[name].shape is not None:
                if self.pointers and name == "b":
                    self.vector(name, views[name], "i64", self.count)
                    continue
                if self.gathers and name == "a":
                    c.a_stride, sources = self.matrix(name, views[name], sources)
                    continue
                if self.scatters and name in "cd":
                    stride, results = self.matrix(name, views[name], results)
                    setattr(c, name + "_stride", stride)
                    continue
                if self.slices and name in "ab":
                    stride, sources, m = self.slice(name, views[name], sources, m)
                    setattr(c, name + "_stride", stride)
                    continue
                stride, m = self.matrix(name, views[name], m)
                setattr(c, name + "_stride", stride)
        c.b_stride = stride_of_b or c.b_stride
        for name in ("scale_a", "scale_b"):
            if name in views and views[name].shape is not None:
                if name[-1] in self.formats:
                    of = name[-1]
                    rows = self.count * -(-self.n // 128)
                    if of == "a":
                        rows = -(-sources // 128) if self.gathers else self.atom_rows(m)
                    self.atoms(name, views[name], atom_bytes(rows, self.k, self.formats[of]))
                else:
                    self.scale(name, views[name], sources if self.gathers else m, c)
        if "scale_d" in views and views["scale_d"].shape is not None:
            if not self.quantizes:
                raise ConfigError("scale_d: is given, and the epilogue does not quantise")
            if "d" not in self.formats:
                self.blocks("scale_d", views["scale_d"], m, c)
            elif self.rows_of_scales:
                self.blocks("scale_d", views["scale_d"], m, c, "u8", self.scale_d_shape(m))
            else:
                self.atoms("scale_d", views["scale_d"], *self.scale_d_shape(m))
        for name, is_used in self.statistics.items():
            if name in views and not is_used:
                raise ConfigError(f"{name}: is given, and the epilogue has no {'rstd' if name == 'squares_a' else name}")
            if name == "amax" and name in views and views[name].shape is not None:
                self.vector(name, views[name], "f32", 1)
            elif name in views and views[name].shape is not None:
                self.blocks(name, views[name], m, c, "f32", (-(-(self.k if name == "squares_a" else self.columns) // 128), m))
        if "bias" in views and views["bias"].shape is not None:
            self.vector("bias", views["bias"], self.dtypes["bias"], self.count * self.n)
        for name, size, is_read, what in (("bounds", self.bounds_count(), self.bounds_count(), "with bounds"),
                                          ("status", 1, self.bounds_count(), "with bounds"), ("gather", m, self.gathers, "that gather"),
                                          ("scatter", m, self.scatters, "that scatter")):
            if name not in views:
                continue
            if not is_read:
                raise ConfigError(f"{name}: is given, and the problem has no groups {what}")
            if views[name].shape is not None:
                self.vector(name, views[name], "i32", size)
        set_workspace_bytes(c, views.get("workspace"), workspace_bytes)
        if m is None:
            raise ConfigError("m: is missing; addresses do not tell it")
        if not 0 <= m < 2**31:  # values that the struct would truncate
            raise ConfigError(f"m: {m} rows are more than 31 bits hold, or negative")
        c.m = m
        if self.gathers or self.slices:
            if sources is None or not 0 <= sources < 2**31:
                raise ConfigError(f"source_rows: {sources} are no number of rows of a; addresses do not tell it")
            c.source_rows = sources
        elif sources is not None:
            raise ConfigError("source_rows: is given, and the problem has no groups that gather")
        if self.scatters:
            if results is None or not 0 <= results < 2**31:
                raise ConfigError(f"result_rows: {results} are no number of rows of d; addresses do not tell it")
            c.result_rows = results
        elif results is not None:
            raise ConfigError("result_rows: is given, and the problem has no groups that scatter")
        set_numbers(c, numbers)
        if kv_write is not None:
            c.kv_write = pointer(self.cache_arguments(kv_write, m, device, own_memory))  # the struct keeps it alive
        return c

    def cache_arguments(self, given, m, device, own_memory):
        """The C struct of the cache of a launch, from the arguments that KvWriteKernel.bind() has, without rows."""
        if not self.kv_write:
            raise ConfigError("kv_write: is given, and the problem has no kv_write")
        if not isinstance(given, Mapping):
            raise ConfigError(f"kv_write: is of type {type(given).__name__}; it takes a dict of what KvWriteKernel.bind() takes")
        names = inspect.signature(_kv_write_bind()).parameters
        for name in given:
            if name in (*NEW_ROWS, "pdl") or name not in names:
                raise ConfigError(f"kv_write: has {name}, which is no argument of a cache that a GEMM writes")
        all_given = {name: given.get(name) for name in names if name != "self"} | {"pdl": False}
        if all_given["tokens"] is None:
            all_given["tokens"] = m
        return self.kv_write.arguments(*tensors_and_numbers(structs.KvWriteTensors, all_given), device, own_memory)

    @staticmethod
    def dtype(name, view, wanted):
        if view.dtype != wanted:
            raise ConfigError(f"{name}: is {view.dtype}, and the problem has {wanted}")

    def matrix(self, name, view, m):
        self.dtype(name, view, self.dtypes[name])
        shape = self.shape(name, m)
        fits = len(view.shape) == 2 and all(want is None or have == want for have, want in zip(view.shape, shape))
        if not fits:
            words = ", ".join("m" if want is None else str(want) for want in shape)
            raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [{words}]")
        if view.shape[1] > 1 and view.strides[1] != 1:
            raise ConfigError(f"{name}: its last dimension has stride {view.strides[1]}; rows must be contiguous")
        no_stride_of_zero(name, view)
        if m is None:
            m = view.shape[1 if name == "a" and self.layout[0] == "t" else 0]
        stride = view.strides[0] if view.shape[0] > 1 else view.shape[1]
        return (stride * 8 // BITS[self.formats[name]] if name in self.formats else stride), m

    def slice(self, name, view, rows, m):
        """Of a or b, whose rows belong to groups of kind k: their stride, their number, and the rows of all groups' d."""
        self.dtype(name, view, self.dtypes[name])
        columns = self.n if name == "b" else None if m is None else m // self.count
        if len(view.shape) != 2 or columns not in (None, view.shape[1]) or rows not in (None, view.shape[0]):
            words = ", ".join(word if want is None else str(want) for want, word in ((rows, "rows"), (columns, "m / count")))
            raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [{words}]")
        if view.shape[1] > 1 and view.strides[1] != 1:
            raise ConfigError(f"{name}: its last dimension has stride {view.strides[1]}; rows must be contiguous")
        no_stride_of_zero(name, view)
        if name == "a":
            m = view.shape[1] * self.count
        return (view.strides[0] if view.shape[0] > 1 else view.shape[1]), view.shape[0], m

    def scale(self, name, view, m, c):
        if self.scales != "per_block":
            one = 1 if name == "scale_a" else self.count
            return self.vector(name, view, "f32", {"per_token": m if name == "scale_a" else self.count * self.n}.get(self.scales, one))
        self.blocks(name, view, m, c)

    def atoms(self, name, view, count):
        """Scales of a block-scaled matrix: bytes of whole atoms."""
        if not is_contiguous(view) or view.bytes < count:
            raise ConfigError(f"{name}: has {view.bytes} bytes, shape {list(view.shape)}; it is contiguous and has {count} at least")

    def blocks(self, name, view, m, c, dtype="f32", shape=None):
        """Scales of blocks, a matrix."""
        self.dtype(name, view, dtype)
        shape = shape or self.shape(name, m)
        if tuple(view.shape) != tuple(shape) or (view.shape[1] > 1 and view.strides[1] != 1):
            raise ConfigError(f"{name}: has shape {list(view.shape)} and strides {list(view.strides)}; it is {list(shape)}, its rows "
                              "contiguous")
        no_stride_of_zero(name, view)
        setattr(c, name + "_stride", view.strides[0])

    def vector(self, name, view, dtype, size):
        self.dtype(name, view, dtype)
        count = 1
        for extent in view.shape:
            count *= extent
        if count != size or (size > 1 and not is_contiguous(view)):
            raise ConfigError(f"{name}: has shape {list(view.shape)} and strides {list(view.strides)}; it is [{size}], contiguous")
