"""The arguments of a launch, checked against the problem: the shapes, dtypes and strides of its operands.

The library itself checks alignment, the extents that a stride allows, and the workspace's size. This module checks
what only a tensor with a known shape can get wrong.
"""
from ctypes import c_uint64

from . import _structs as structs
from ._errors import ConfigError
from ._tensors import View, is_contiguous, read

DTYPE_FIELDS = {"q": "q", "k": "kv", "v": "kv", "o": "out"}
STRIDED = ("q", "o", "k", "v", "q_rope", "k_rope")  # in the order in which they are checked
# int32 vectors: entries beyond one a sequence
PER_SEQUENCE = {"q_offsets": 1, "kv_offsets": 1, "kv_lengths": 0, "kv_starts": 0}
EVERY_STRIDE_IS_0 = "every stride is 0, which the C ABI reads as contiguous; broadcast over fewer dimensions"


def check_place(name, view, device, own_memory):
    """Checks that an operand lies where the kernel of `device` can read it. own_memory: only the engine's memory is
    allowed."""
    if view.where == "address":
        return
    if view.where == "engine" or (view.where == "cuda" and not own_memory):
        if view.device not in (None, device):
            raise ConfigError(f"{name}: is on device {view.device}, and the kernel on {device}; move it, or prepare the kernel "
                              f"with device={view.device}")
        return
    wanted = "an Array of the engine, whose memory the emulator sees" if own_memory else "memory of the GPU"
    raise ConfigError(f"{name}: lies in {'memory of the host' if view.where == 'host' else view.where}; give {wanted}")


def set_workspace_bytes(c, view, given):
    """The size of a workspace: that of the tensor, or the size given beside an address."""
    if view is None:
        return
    if view.shape is None and given is None:
        raise ConfigError("workspace_bytes: is missing beside a workspace that is an address; give its size")
    c.workspace_bytes = view.bytes if view.shape is not None else given


def tensors_and_numbers(struct, given):
    """The arguments of a bind() as two dicts: the tensors, and the rest. `struct` is the C struct of the launch, in which a
    tensor is an address. `given`: the locals of bind(), of which self is no argument."""
    addresses = {name for name, kind in struct._fields_ if kind is c_uint64 and not name.endswith("_bytes")}
    tensors = {name: value for name, value in given.items() if name in addresses}
    return tensors, {name: value for name, value in given.items() if name != "self" and name not in addresses}


def set_numbers(c, numbers):
    """Sets the numbers and flags that only the library checks. None leaves a number to the problem. Some numbers have a
    bit in the header, such as SET_SCALE, which says that the number is given; this function sets the bit too."""
    for name, value in numbers.items():
        if value is not None:
            setattr(c, name, value)
            if bit := getattr(structs, "SET_" + name.upper(), 0):
                c.overrides |= bit


def head_strides(name, view):
    """The strides of a tensor [..., token, head, element] of three or four dimensions. For an extent of one, a framework
    may give any stride, but the library needs a valid one. All zero: contiguous."""
    if is_contiguous(view):
        return structs.Strides()
    shape, (token, head) = view.shape, view.strides[-3:-1]
    head = head if shape[-2] > 1 else shape[-1]
    token = token if shape[-3] > 1 else max(shape[-2] * head, shape[-1])
    batch = 0
    if len(shape) == 4:
        batch = view.strides[0] if shape[0] > 1 else max(shape[1], 1) * token
    if not (batch or token or head):
        raise ConfigError(f"{name}: {EVERY_STRIDE_IS_0}")
    return structs.Strides(batch, token, head)


def scale_strides(name, view):
    """The strides of scales [..., token, head], one for each head of a token."""
    return head_strides(name, View(view.address, (*view.shape, 1), (*view.strides, 1)))


def page_scale_strides(name, view):
    """The strides of scales [page, head]. All tokens of a page have the same, so their stride is 0."""
    if is_contiguous(view):
        return structs.Strides()
    (pages, heads), (page, head) = view.shape, view.strides
    head = head if heads > 1 else 1
    page = page if pages > 1 else max(heads * head, 1)
    if not (page or head):
        raise ConfigError(f"{name}: {EVERY_STRIDE_IS_0}")
    return structs.Strides(page, 0, head)


def column_strides(name, view, heads, head_dim, page_size):
    """The strides of pages and heads of values in columns, [pages, heads, head_dim, page_size]."""
    if len(view.shape) != 4 or tuple(view.shape[1:]) != (heads, head_dim, page_size):
        raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [num_pages, {heads}, {head_dim}, "
                          f"{page_size}]")
    if tuple(view.strides[2:]) != (page_size, 1):
        raise ConfigError(f"{name}: has strides {list(view.strides)}; the columns of a head must be contiguous")
    if is_contiguous(view):
        return structs.Strides()
    head = view.strides[1] if heads > 1 else head_dim * page_size
    return structs.Strides(view.strides[0] if view.shape[0] > 1 else heads * head, 0, head)


def score_tensors(problem):
    """For mask and bias, if the problem has them: whether batch, heads and queries have their own elements, and the
    dtypes."""
    def own(tensor):
        return tuple(tensor.get(name, True) for name in ("batch", "heads", "q"))

    def find(mask):
        if mask.get("kind") == "tensor":
            return mask
        return next(filter(None, map(find, mask.get("operands", []))), None)

    found, mask, score_mod = {}, find(problem.get("mask", {})), problem.get("score_mod", {})
    if mask:
        found["mask"] = own(mask.get("tensor", {})), ("u8", "bool")
    if score_mod.get("kind") == "tensor":
        found["bias"] = own(score_mod.get("tensor", {})), (score_mod.get("dtype", "bf16"),)
    return found


class Problem:
    """A config's "problem" with the defaults of docs/config.md."""

    def __init__(self, problem):
        dtype, kv_layout = problem.get("dtype", {}), problem.get("kv_layout", {})
        self.dtypes = {name: dtype.get(field, "bf16") for name, field in DTYPE_FIELDS.items()}
        self.head_dims = {"q": problem["head_dim"]["qk"], "k": problem["head_dim"]["qk"], "v": problem["head_dim"]["v"],
                          "o": problem["head_dim"]["v"]}
        self.heads = {"q": problem["heads"]["q"], "o": problem["heads"]["q"], "k": problem["heads"]["kv"],
                      "v": problem["heads"]["kv"]}
        rope = problem.get("rope", {})
        scales = problem.get("scales", "none")
        self.rope_width, self.scales = rope.get("width", 0), scales
        self.query_scales = scales == "per_token" and self.dtypes["q"] == "e4m3"
        for name in ("q", "k"):  # a rotary part is a separate operand
            self.head_dims[name] -= self.rope_width
            self.head_dims[name + "_rope"] = self.rope_width
            self.dtypes[name + "_rope"] = rope.get("dtype", "bf16")
            self.heads[name + "_rope"] = self.heads[name]
        self.score_tensors, self.lse = score_tensors(problem), bool(problem.get("lse", False))
        self.ragged_q = problem.get("q_layout", "padded") == "ragged"
        self.kv_kind, self.page_size = kv_layout.get("kind", "padded"), kv_layout.get("page_size", 0)
        self.v_columns = problem.get("v_layout", "rows") == "columns"
        self.latent = problem.get("v_layout", "rows") == "key_prefix"  # v is k, or is not given
        self.records = self.latent and scales == "per_block"  # keys are bytes, and hold their scales
        if self.records:
            latents, rest = self.head_dims["v"], self.head_dims["k"] - self.head_dims["v"]
            self.head_dims["k"] = latents + latents // 128 * 4 + rest * 2
            self.dtypes["k"] = self.dtypes["v"] = "u8"
        if self.latent:
            self.head_dims["v"] = self.head_dims["k"]

    def rows(self, name):
        """The dimensions of an operand ahead of heads: names of sizes, and the keys of a page."""
        if name in ("q", "o", "q_rope"):
            return ("q_tokens",) if self.ragged_q else ("batch", "q_len")
        return {"padded": ("batch", "kv_len"), "ragged": ("kv_tokens",), "paged": ("num_pages", self.page_size)}[self.kv_kind]

    def scales_differ_by_key(self):
        return self.scales in ("per_token", "per_page")

    def key_scale_dims(self):
        """The dimensions of k_scale and of v_scale, whichever order the values have."""
        heads = self.heads["k"]
        return {"per_token": (*self.rows("k"), heads), "per_page": ("num_pages", heads),
                "per_head": (heads,)}.get(self.scales, (1,))


class Arguments:
    """Builds the C struct of one launch. `device` is the kernel's device; `own_memory` says that only the engine's
    memory is allowed."""

    def __init__(self, problem, device, own_memory):
        self.problem, self.device, self.own_memory = problem, device, own_memory
        self.views = {}

    def build(self, tensors, numbers):
        """`numbers`: what bind() takes beside tensors."""
        numbers = dict(numbers)
        known = {name: numbers.pop(name) for name in ("batch", "q_len", "kv_len", "q_tokens", "kv_tokens", "num_pages")}
        page_table_stride, workspace_bytes = numbers.pop("page_table_stride"), numbers.pop("workspace_bytes")
        window = numbers.pop("window")
        self.views = {name: read(name, given) for name, given in tensors.items() if given is not None}
        for name, view in self.views.items():
            check_place(name, view, self.device, self.own_memory)
        c = structs.AttentionTensors(**{name: view.address for name, view in self.views.items()})
        for name in STRIDED:
            if name in self.views and self.views[name].shape is not None:
                setattr(c, name + "_strides", self.operand(name, self.views[name], known))
        if "page_table" in self.views:
            c.page_table_stride = self.page_table(self.views["page_table"], known, page_table_stride)
        self.small_operands(known)
        self.scales(c, known)
        if self.problem.kv_kind == "paged" and known["kv_len"] is None:
            known["kv_len"] = c.page_table_stride * self.problem.page_size
        for name in ("mask", "bias"):
            if name in self.views and self.views[name].shape is not None:
                setattr(c, name + "_strides", self.per_score(name, self.views[name], known))
        self.finish(c, known, workspace_bytes)
        if window is not None:
            (c.window_left, c.window_right), c.overrides = window, c.overrides | structs.SET_WINDOW
        set_numbers(c, numbers)
        return c

    def settle(self, known, name, found, by):
        """Settles a size: the size of a tensor must equal the given size, or that of another tensor."""
        if known[name] is None:
            known[name] = found
        elif known[name] != found:
            raise ConfigError(f"{by}: makes {name} {found}, and it is {known[name]} by the arguments before it")

    def dtype(self, name, view, wanted):
        if view.dtype != wanted:
            raise ConfigError(f"{name}: is {view.dtype}, and the problem has {wanted}")

    def operand(self, name, view, known):
        """The strides of q, k, v or o, and the sizes that its shape gives."""
        problem, is_q = self.problem, name in ("q", "o", "q_rope")
        self.dtype(name, view, problem.dtypes[name])
        heads, head_dim = problem.heads[name], problem.head_dims[name]
        if name == "v" and problem.v_columns:
            strides = column_strides(name, view, heads, head_dim, problem.page_size)
            self.settle(known, "num_pages", view.shape[0], name)
            return strides
        kind = ("ragged" if problem.ragged_q else "padded") if is_q else problem.kv_kind
        length = "q_len" if is_q else "kv_len"
        first = {"padded": f"batch, {length}", "ragged": "tokens", "paged": f"pages, {problem.page_size}"}[kind]
        wanted = f"[{first}, {heads}, {head_dim}]"
        shape, strides = view.shape, view.strides
        if len(shape) != (3 if kind == "ragged" else 4) or tuple(shape[-2:]) != (heads, head_dim) or (
                kind == "paged" and shape[1] != problem.page_size):
            raise ConfigError(f"{name}: has shape {list(shape)}, and the problem's is {wanted}")
        if head_dim > 1 and strides[-1] != 1:
            raise ConfigError(f"{name}: its last dimension has stride {strides[-1]}; heads must be contiguous")
        if kind == "padded":
            self.settle(known, "batch", shape[0], name)
            self.settle(known, length, shape[1], name)
        elif is_q:
            self.settle(known, "q_tokens", shape[0], name)
        elif kind == "ragged":
            self.settle(known, "kv_tokens", shape[0], name)
        else:
            self.settle(known, "num_pages", shape[0], name)
        return head_strides(name, view)

    def per_score(self, name, view, known):
        """The strides of mask or bias, which has an element for each score."""
        if name not in self.problem.score_tensors:
            raise ConfigError(f"{name}: is given, and the problem's {'mask' if name == 'mask' else 'score_mod'} is not a tensor")
        own, dtypes = self.problem.score_tensors[name]
        if view.dtype not in dtypes:
            raise ConfigError(f"{name}: is {view.dtype}, and the problem has {' or '.join(dtypes)}")
        extents = [known["batch"], self.problem.heads["q"], known["q_len"], known["kv_len"]]
        words = [str(extent) if is_own else "1" for extent, is_own in zip(extents, own + (True,))]
        if len(view.shape) != 4 or any(size != (extent if is_own else 1) for size, extent, is_own
                                       in zip(view.shape, extents, own + (True,)) if extent is not None or not is_own):
            raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [{', '.join(words)}]")
        if view.shape[3] > 1 and view.strides[3] != 1:
            raise ConfigError(f"{name}: its last dimension has stride {view.strides[3]}; keys must be contiguous")
        if is_contiguous(view):
            return structs.Strides()
        batch, head, token = (stride if size > 1 else 0 for stride, size in zip(view.strides, view.shape[:3]))
        if not (batch or head or token):
            raise ConfigError(f"{name}: {EVERY_STRIDE_IS_0}")
        return structs.Strides(batch, token, head)

    def page_table(self, view, known, given_stride):
        if view.shape is None:
            if given_stride is None:
                raise ConfigError("page_table_stride: is missing beside a page_table that is an address; give the entries of "
                                  "one row")
            return given_stride
        self.dtype("page_table", view, "i32")
        if len(view.shape) != 2 or (view.shape[1] > 1 and view.strides[1] != 1):
            raise ConfigError(f"page_table: has shape {list(view.shape)} and strides {list(view.strides)}; it is [batch, pages], "
                              "its rows contiguous")
        self.settle(known, "batch", view.shape[0], "page_table")
        return view.strides[0] if view.shape[0] > 1 else view.shape[1]

    def small_operands(self, known):
        """Offsets, lengths, sinks, slopes, scales of heads, the LSE and the workspace: contiguous, each of one dtype and
        one shape."""
        problem = self.problem
        for name, more in PER_SEQUENCE.items():
            view = self.views.get(name)
            if view is None or view.shape is None:
                continue
            self.vector(name, view, "i32", f"batch + {more}" if more else "batch", None)
            self.settle(known, "batch", view.shape[0] - more, name)
        sizes = {"sinks": problem.heads["q"], "alibi_slopes": problem.heads["q"]}
        if not problem.scales_differ_by_key():
            sizes |= {"k_scale": problem.key_scale_dims()[0], "v_scale": problem.key_scale_dims()[0]}
        for name, size in sizes.items():
            view = self.views.get(name)
            if view is not None and view.shape is not None:
                self.vector(name, view, "f32", str(size), (size,))
        for name in ("lse", "workspace"):
            view = self.views.get(name)
            if view is not None and view.shape is not None and not is_contiguous(view):
                raise ConfigError(f"{name}: has strides {list(view.strides)}; give a contiguous one")
        view = self.views.get("lse")
        if view is not None and view.shape is not None:
            self.dtype("lse", view, "f32")
            if problem.ragged_q:
                wanted = (known["q_tokens"], problem.heads["q"])
            else:
                wanted = (known["batch"], problem.heads["q"], known["q_len"])
            if None not in wanted and tuple(view.shape) != wanted:
                raise ConfigError(f"lse: has shape {list(view.shape)}, and the problem's is {list(wanted)}")

    def scales(self, c, known):
        """Scales of queries, and of keys, of which each token or each page has its own."""
        problem, dims = self.problem, {}
        if problem.query_scales:
            dims["q_scale"] = (*problem.rows("q"), problem.heads["q"])
        if problem.scales_differ_by_key():
            dims |= {"k_scale": problem.key_scale_dims(), "v_scale": problem.key_scale_dims()}
        for name, wanted in dims.items():
            view = self.views.get(name)
            if view is None or view.shape is None:
                continue
            self.dtype(name, view, "f32")
            extents = [known[dim] if isinstance(dim, str) else dim for dim in wanted]
            if len(view.shape) != len(wanted) or any(want not in (None, have) for have, want in zip(view.shape, extents)):
                words = ", ".join(str(dim if extent is None else extent) for dim, extent in zip(wanted, extents))
                raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [{words}]")
            if name != "q_scale":
                strides = scale_strides if problem.scales == "per_token" else page_scale_strides
                setattr(c, name + "_strides", strides(name, view))
            elif not is_contiguous(view):
                raise ConfigError(f"q_scale: has strides {list(view.strides)}; give a contiguous one")

    def vector(self, name, view, dtype, words, sizes):
        self.dtype(name, view, dtype)
        if len(view.shape) != 1 or (view.shape[0] > 1 and view.strides[0] != 1) or (sizes and view.shape[0] not in sizes):
            raise ConfigError(f"{name}: has shape {list(view.shape)} and strides {list(view.strides)}; it is [{words}], contiguous")

    def finish(self, c, known, workspace_bytes):
        needed = ["batch", "q_len", "kv_len"] + (["q_tokens"] if self.problem.ragged_q else [])
        for name in needed:
            if known[name] is None:
                why = ("the longest sequence's, which offsets on the device do not tell" if name in ("q_len", "kv_len")
                       else "which addresses do not tell")
                raise ConfigError(f"{name}: is missing; give the number, {why}")
            setattr(c, name, known[name])
        c.kv_tokens = known["kv_tokens"] or 0
        c.num_pages = known["num_pages"] or 0
        set_workspace_bytes(c, self.views.get("workspace"), workspace_bytes)
