"""The rules of a handle's fast calls, for python/fast/rules.h: what each argument of a call may be, made of the problem.

A call that breaks a rule is checked in words by _arguments.py, _gemm.py or _quantize.py. So a rule may refuse what is
fine, and must not take what those refuse. tests/python/fast_rules_test.py compares the two on random calls. An argument
without a rule is Python's to check, so a new argument works before it has one.
"""
import ctypes
from ctypes import c_float, c_int32, c_void_p

from . import _structs as structs
from ._arguments import PER_SEQUENCE, STRIDED
from ._kv_write import CACHES, NEW_ROWS
from ._row_op import LSES, MATRICES
from ._tensors import CUDA, CUDA_MANAGED, DLPACK_DTYPES, ITEM_BYTES

CODES = {name: code for code, name in DLPACK_DTYPES.items()}
EXTENSION_DEVICE = 12  # kDLExtDev: memory of the emulator, as tests lend it
# enum class DimKind, Layout and NumberKind
ANY, FIXED, SIZE, AT_LEAST, PART_OF_SIZE, SCALE_BYTES, TIMES_SIZE = range(7)
(HEADS, TOKEN_SCALES, PAGE_SCALES, SCORES, ROWS, PAGES, SCALE_ROWS, CONTIGUOUS, ITEM_SIZE, ROW_STRIDE, COUNT, BYTES,
 WORKSPACE, BATCH) = range(14)
INTEGER, FLOAT, WINDOW, POSITIVE = range(4)


class Rules:
    """The rules of one handle. `names`: the arguments of its call, the first `positional` of them by position; `struct`: the
    C struct of its launch, in which `out` is the field `result`; `sizes`: (name, field or None, whether it must be known)."""

    def __init__(self, names, positional, struct, result, sizes):
        self.names, self.positional, self.struct, self.result = tuple(names), positional, struct, result
        self.size_names, kinds = [name for name, *_ in sizes], dict(struct._fields_)
        self.sizes = tuple((self.names.index(name), self.at(field), ctypes.sizeof(kinds[field]) if field else 0, required)
                           for name, field, required in sizes)
        self.operands, self.numbers, self.ruled = [], [], {"stream", *self.size_names}
        self.pages, self.scales = (-1, -1, 0), (-1, -1)

    def at(self, field):
        """The offset of a field."""
        return getattr(self.struct, field).offset if field else 0

    def dim(self, given):
        """A number; a size's name, or that with a number that is added; (kind, size or None, number)."""
        if isinstance(given, int):
            return FIXED, 0, given
        if isinstance(given, str):
            return SIZE, self.size_names.index(given), 0
        if len(given) == 2:
            return SIZE, self.size_names.index(given[0]), given[1]
        kind, size, number = given
        return kind, self.size_names.index(size) if size else 0, number

    def operand(self, name, dtypes, layout, dims, place=None, beside=None, required=False, settles=True, allocated=False,
                groups=None):
        """A tensor. `place`: the field that the layout writes, or the size that it gives; `beside`: the number that an
        address needs; `groups`: the field of the stride of groups, of the layout BATCH."""
        argument = self.names.index("out" if name == self.result else name)
        codes = tuple(CODES[dtype] for dtype in dtypes if dtype in CODES)
        written = self.size_names.index(place) if layout in (ITEM_SIZE, ROW_STRIDE) else self.at(place)
        self.operands.append((argument, self.at(name), written, self.at(groups), layout, self.names.index(beside) if beside else -1,
                              required, settles, allocated, codes, tuple(map(self.dim, dims))))
        self.ruled |= {self.names[argument], beside}

    def workspace(self):
        self.operand("workspace", ITEM_BYTES, WORKSPACE, (), "workspace_bytes", "workspace_bytes", settles=False)

    def number(self, name, kind, field, bit=0):
        self.numbers.append((self.names.index(name), kind, self.at(field), bit))
        self.ruled.add(name)

    def other_numbers(self, but=()):
        """The arguments that are numbers of the struct, which only the library checks; without those in `but`."""
        for name, kind in self.struct._fields_:
            if name in self.names and name not in self.ruled and name not in but and kind in (c_int32, c_float):
                self.number(name, INTEGER if kind is c_int32 else FLOAT, name, getattr(structs, "SET_" + name.upper(), 0))

    def place(self, name):
        """The place of an operand among the operands; -1: there is none."""
        return next((i for i, operand in enumerate(self.operands) if self.names[operand[0]] == name), -1)

    def described(self, kernel, launch, workspace_bytes=None, scale_bytes=None, scale_format="", results=("out",)):
        """The tuple for Door._open(). launch, workspace_bytes and scale_bytes are functions of the C library."""
        def address(function):
            return ctypes.cast(function, c_void_p).value if function else 0
        types = (EXTENSION_DEVICE,) * 2 if kernel._own_memory else (CUDA, CUDA_MANAGED)
        overrides = self.at("overrides") if hasattr(self.struct, "overrides") else 0
        without_rule = tuple(i for i, name in enumerate(self.names) if name not in self.ruled)
        return ((ctypes.sizeof(self.struct), overrides),
                (kernel._handle.value or 0, ctypes.addressof(kernel.engine._lives), address(launch), address(workspace_bytes),
                 address(scale_bytes), scale_format),
                (*types, kernel.device), (self.names, without_rule, tuple(map(self.place, results))),
                (self.positional, self.names.index("stream"), self.place("workspace")),
                tuple(self.operands), self.sizes, tuple(self.numbers), self.pages, self.scales)


def attention_rules(problem, names):
    """`problem`: a Problem of _arguments.py."""
    sizes = [("batch", "batch", True), ("q_len", "q_len", True), ("kv_len", "kv_len", True),
             ("q_tokens", "q_tokens" if problem.ragged_q else None, problem.ragged_q), ("kv_tokens", "kv_tokens", False),
             ("num_pages", "num_pages", False)]
    rules = Rules(names, 3, structs.AttentionTensors, "o", sizes)
    for name in STRIDED:
        if name == "v" and problem.v_columns:
            dims = "num_pages", problem.heads[name], problem.head_dims[name], problem.page_size
            rules.operand(name, (problem.dtypes[name],), CONTIGUOUS, dims, required=True)
        elif problem.head_dims[name] > 0:
            dims = *problem.rows(name), problem.heads[name], problem.head_dims[name]
            rules.operand(name, (problem.dtypes[name],), HEADS, dims,
                          name + "_strides", required=name in ("q", "k") or (name == "v" and not problem.latent),
                          settles=name != "o", allocated=name == "o")
    rules.operand("page_table", ("i32",), PAGES, ("batch", (ANY, None, 0)), "page_table_stride", "page_table_stride")
    for name, more in PER_SEQUENCE.items():
        if name in rules.names:
            rules.operand(name, ("i32",), CONTIGUOUS, (("batch", more),))
    heads = problem.heads["q"]
    for name in ("sinks", "alibi_slopes"):
        rules.operand(name, ("f32",), CONTIGUOUS, (heads,))
    layout = {"per_token": TOKEN_SCALES, "per_page": PAGE_SCALES}.get(problem.scales, CONTIGUOUS)
    for name in ("k_scale", "v_scale"):
        rules.operand(name, ("f32",), layout, problem.key_scale_dims(), name + "_strides", settles=False)
    if problem.query_scales:
        rules.operand("q_scale", ("f32",), CONTIGUOUS, (*problem.rows("q"), heads), settles=False)
    rules.operand("lse", ("f32",), CONTIGUOUS, ("q_tokens", heads) if problem.ragged_q else ("batch", heads, "q_len"),
                  settles=False, allocated=problem.lse)
    for name, (own, dtypes) in problem.score_tensors.items():
        extents = ("batch", heads, "q_len")
        dims = tuple(extent if is_own else 1 for extent, is_own in zip(extents, own))
        rules.operand(name, dtypes, SCORES, (*dims, "kv_len"), name + "_strides", settles=False)
    rules.workspace()
    rules.number("window", WINDOW, "window_left", structs.SET_WINDOW)
    rules.other_numbers()
    if problem.kv_kind == "paged":
        rules.pages = rules.size_names.index("kv_len"), rules.place("page_table"), problem.page_size
    return rules


def gemm_rules(problem, names):
    """`problem`: a GemmProblem of _gemm.py."""
    rules = Rules(names, 2, structs.GemmTensors, "d", [("m", "m", True)])
    # A cache has tensors of its own. Rows of a may differ from those of d, or from those of its scales; block-scaled operands are bytes. Python checks
    # these calls.
    if problem.kv_write or problem.formats or any(problem.statistics.values()) or problem.gathers or problem.scatters or problem.pointers or problem.slices or (problem.quantizes and problem.grouped):
        return rules
    if problem.grouped:
        return grouped_gemm_rules(problem, rules)
    for name in ("d", "a", "b", "c"):
        rules.operand(name, (problem.dtypes[name],), ROWS, problem.shape(name, "m"), name + "_stride",
                      required=name in ("a", "b"), settles=name != "d", allocated=name == "d")
    for name in ("scale_a", "scale_b"):
        if problem.scales == "per_block":
            rules.operand(name, ("f32",), SCALE_ROWS, problem.shape(name, "m"), name + "_stride", settles=False)
        else:
            extent = {"per_token": "m" if name == "scale_a" else problem.n}.get(problem.scales, 1)
            rules.operand(name, ("f32",), COUNT, (extent,), settles=False)
    rules.operand("bias", (problem.dtypes["bias"],), COUNT, (problem.n,), settles=False)
    if problem.quantizes:
        rules.operand("scale_d", ("f32",), SCALE_ROWS, problem.shape("scale_d", "m"), "scale_d_stride", settles=False,
                      allocated=True)
    rules.workspace()
    rules.other_numbers(but=("source_rows", "result_rows", "b_stride"))
    return rules


def grouped_gemm_rules(problem, rules):
    """Of groups: what belongs to each is contiguous, but in a batch. Scales of blocks are Python's to check."""
    n, k, count = problem.n, problem.k, problem.count
    b = (n, k) if problem.layout[1] == "t" else (k, n)
    rows_of_group = PART_OF_SIZE, "m", count  # of a batch
    for name in ("d", "a", "c"):
        rows, columns = problem.shape(name, "m")
        dims = (count, rows_of_group, columns) if problem.batched else (rows, columns)
        rules.operand(name, (problem.dtypes[name],), BATCH if problem.batched else ROWS, dims, name + "_stride",
                      required=name == "a", settles=name != "d", allocated=name == "d",
                      groups=name + "_batch_stride" if problem.batched else None)
    if problem.batched:
        rules.operand("b", (problem.dtypes["b"],), BATCH, (count, *b), "b_stride", required=True, settles=False,
                      groups="b_batch_stride")
    else:
        rules.operand("b", (problem.dtypes["b"],), CONTIGUOUS, (count, *b), required=True, settles=False)
    if problem.scales != "per_block":
        tokens = problem.scales == "per_token"
        rules.operand("scale_a", ("f32",), COUNT, ("m" if tokens else 1,), settles=False)
        rules.operand("scale_b", ("f32",), COUNT, (count * (n if tokens else 1),), settles=False)
    rules.operand("bias", (problem.dtypes["bias"],), CONTIGUOUS, (count, n), settles=False)
    if not problem.batched:
        rules.operand("bounds", ("i32",), COUNT, (problem.bounds_count(),), required=True, settles=False)
        rules.operand("status", ("i32",), COUNT, (1,), settles=False)
    rules.workspace()
    rules.other_numbers(but=("source_rows", "result_rows", "b_stride"))
    return rules


def quantize_rules(from_dtype, to, names):
    rules = Rules(names, 1, structs.QuantizeTensors, None, [("rows", "rows", True), ("k", "k", True)])
    rules.operand("x", (from_dtype,), ROWS, ("rows", "k"), "x_stride", required=True)
    bytes_first = ("u8", *(dtype for dtype in ITEM_BYTES if dtype != "u8"))  # what the call allocates is bytes
    elements = "k" if to == "mxfp8" else (PART_OF_SIZE, "k", 2)
    rules.operand("elements", bytes_first, BYTES, ("rows", elements), settles=False, allocated=True)
    rules.operand("scales", bytes_first, BYTES, ((SCALE_BYTES, None, 0),), settles=False, allocated=True)
    rules.number("tensor_scale", POSITIVE, "tensor_scale")
    rules.other_numbers()
    rules.scales = tuple(map(rules.size_names.index, ("rows", "k")))
    return rules


def kv_write_rules(problem, names, positional):
    """`problem`: a KvWriteProblem of _kv_write.py. Its order of operands is the one in which sizes are given here."""
    sizes = [("tokens", "tokens", True), *((name, name, False) for name in (
        "num_pages", "batch", "kv_len", "kv_tokens", "page_table_stride", "cos_sin_rows", "position_bytes"))]
    rules = Rules(names, positional, structs.KvWriteTensors, None, sizes)
    for name in ("slot_mapping", "batch_indices"):
        rules.operand(name, (problem.dtypes[name],), CONTIGUOUS, ("tokens",))
    streams = (problem.streams,) if problem.streams > 1 else ()
    rules.operand("positions", ("i32", "i64"), ITEM_SIZE, (*streams, "tokens"), "position_bytes")
    rules.operand("page_table", ("i32",), ROW_STRIDE, ("batch", (ANY, None, 0)), "page_table_stride")
    for name in [name for name in NEW_ROWS if problem.heads_exist(name)]:
        rows = (AT_LEAST, "tokens", 0), problem.heads[name], problem.head_dims[name]
        rules.operand(name, (problem.dtypes[name],), HEADS, rows, name + "_strides", required=name != "q_out",
                      allocated=name == "q_out")
    cache_rows = problem.cache_rows()
    for name in [name for name in CACHES if problem.heads_exist(name)]:
        heads, head_dim = problem.heads[name], problem.head_dims[name]
        if name == "v_cache" and problem.v_columns:
            rules.operand(name, problem.cache_dtypes(name), CONTIGUOUS, ("num_pages", heads, head_dim, problem.page_size),
                          required=True)
            continue
        rules.operand(name, problem.cache_dtypes(name), HEADS, (*cache_rows, heads, head_dim), name + "_strides", required=True)
    for name, of in (("q_weight", "q"), ("k_weight", "k")):
        elements = problem.head_dims[of] * (problem.heads[of] if problem.all_heads else 1)
        rules.operand(name, (problem.dtypes[name],), CONTIGUOUS, (elements,))
    rules.operand("cos_sin", ("f32",), CONTIGUOUS, ("cos_sin_rows", problem.width))
    for name, kind in problem.scales.items():
        heads = problem.heads[name[0]]
        token_rows = ("tokens",) if name == "q_scale" else cache_rows
        dims = {"per_tensor": (1,), "per_head": (heads,), "per_token": (*token_rows, heads)}.get(kind)
        if dims:
            dtype = problem.scale_dtype if kind == "per_token" else "f32"
            layout = TOKEN_SCALES if kind == "per_token" and name != "q_scale" else CONTIGUOUS
            place = name + "_strides" if layout == TOKEN_SCALES else None
            rules.operand(name, (dtype,), layout, dims, place, settles=False)
    rules.other_numbers()
    return rules


def row_op_rules(problem, names, positional):
    """`problem`: a RowOpProblem of _row_op.py. Atoms of scales have a size that no rule tells, so Python checks them."""
    rules = Rules(names, positional, structs.RowOpTensors, None, [("rows", "rows", True)])
    atoms = problem.scales == "atoms"
    for name in MATRICES:
        if (name == "residual" and not (problem.adds or problem.merges)) or (name == "residual_out" and not problem.adds):
            continue
        layout, place = (CONTIGUOUS, None) if atoms and name == "out" else (ROWS, name + "_stride")
        made = name in ("out", "residual_out")
        rules.operand(name, problem.dtypes[name], layout, ("rows", problem.columns_of(name)), place, required=not made, allocated=made)
    rules.operand("weight", problem.dtypes["weight"], COUNT, (problem.width,), settles=False)
    for name in LSES if problem.merges else ():
        made = name == "lse_out"
        rules.operand(name, ("f32",), CONTIGUOUS, ("rows", problem.heads), settles=False, required=not made, allocated=made)
    if atoms:
        rules.operand("scale", ("u8",), BYTES, ((ANY, None, 0),), settles=False, required=True)
    elif problem.scales == "per_tensor":
        rules.operand("scale", ("f32",), COUNT, (1,), settles=False)
    elif problem.scales == "per_token":
        rules.operand("scale", ("f32",), CONTIGUOUS, ("rows",), settles=False, allocated=True)
    elif problem.scales == "per_block":
        blocks = problem.width // 128
        rules.operand("scale", ("f32",), SCALE_ROWS, (blocks, "rows") if problem.columns else ("rows", blocks), "scale_stride",
                      settles=False, allocated=True)
    rules.number("tensor_scale", POSITIVE, "tensor_scale")
    rules.other_numbers()
    return rules


def route_rules(problem, names, positional):
    """`problem`: a RouteProblem of _moe.py. Rows that lie between experts have a number that no rule tells, so Python checks
    them."""
    rules = Rules(names, positional, structs.RouteTensors, None, [("tokens", "tokens", True)])
    if problem.between:
        return rules
    if problem.given:
        for name, dtype in (("ids", "i32"), ("weights", "f32")):
            rules.operand(name, (dtype,), CONTIGUOUS, ("tokens", problem.top_k), required=name == "ids")
    else:
        rules.operand("logits", (problem.logits,), ROWS, ("tokens", problem.experts), "logits_stride", required=True)
    for name, dtype in problem.vectors.items():
        rules.operand(name, (dtype,), COUNT, (problem.experts,), settles=False)
    pairs, rows = ("tokens", problem.top_k), ((TIMES_SIZE, "tokens", problem.top_k),)
    dims = {"starts": (problem.buckets + 1,), "source_rows": rows, "sorted_weights": rows}
    for name, (_, dtype) in problem.arrays(0).items():
        if problem.given and name in ("ids", "weights"):
            continue
        rules.operand(name, (dtype,), CONTIGUOUS, dims.get(name, pairs), settles=False, allocated=name != "sorted_weights")
    rules.workspace()
    rules.other_numbers()
    return rules


def moe_rules(problem, names, positional):
    """`problem`: a MoeProblem of _moe_layer.py. What a choice writes is Python's to check."""
    rules = Rules(names, positional, structs.MoeTensors, None, [("tokens", "tokens", True)])
    for name, (dtype, columns) in problem.matrices.items():
        made = name == "out"
        rules.operand(name, (dtype,), ROWS, ("tokens", columns), name + "_stride", required=not made, allocated=made)
    if problem.given:
        for name, dtype in problem.pairs.items():
            rules.operand(name, (dtype,), CONTIGUOUS, ("tokens", problem.top_k), required=True)
    for name, (dtype, shape) in problem.arrays.items():
        rules.operand(name, (dtype,), CONTIGUOUS, shape, required=True, settles=False)
    rules.workspace()
    rules.other_numbers()
    return rules


def moe_combine_rules(problem, names, positional):
    """`problem`: a MoeCombineProblem of _moe.py, whose order of operands is this one."""
    rules = Rules(names, positional, structs.MoeCombineTensors, None, [("tokens", "tokens", True), ("num_rows", "num_rows", True)])
    for name, dtype in problem.pairs.items():
        if problem.reads(name):
            rules.operand(name, (dtype,), CONTIGUOUS, ("tokens", problem.top_k), required=True)
    for name, (dtype, size) in problem.matrices.items():
        if problem.reads(name):
            made = name == "out"
            rules.operand(name, (dtype,), ROWS, (size, problem.width), name + "_stride", required=not made, allocated=made)
    rules.other_numbers()
    return rules
