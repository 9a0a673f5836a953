"""The arguments of a launch that writes a cache, checked against the problem."""
import json

from . import _structs as structs
from ._arguments import check_place, column_strides, head_strides, scale_strides, set_numbers
from ._errors import ConfigError
from ._tensors import View, is_contiguous, read

NEW_ROWS, CACHES = ("q", "k", "v", "q_out"), ("k_cache", "v_cache")


class KvWriteProblem:
    """A config's "problem" of kind "kv_write" with the defaults of docs/config.md."""

    def __init__(self, problem):
        dtype, layout, scales = problem.get("dtype", {}), problem.get("kv_layout", {}), problem.get("scales", {})
        norm, rope = problem.get("qk_norm", {}), problem.get("rope", {})
        entering = dtype.get("in", "bf16")
        self.words = json.dumps(problem, sort_keys=True)  # tells two problems of equal shapes apart
        self.q_out, self.index = problem.get("q_out", True), problem.get("index", "slots")
        self.kv_kind, self.page_size = layout.get("kind", "padded"), layout.get("page_size", 0)
        self.dtypes = {name: entering for name in ("q", "k", "v", "q_weight", "k_weight")} | {
            "q_out": dtype.get("q", "bf16"), "k_cache": dtype.get("kv", "bf16"), "v_cache": dtype.get("kv", "bf16"),
            "slot_mapping": "i64", "batch_indices": "i32"}
        heads, head_dim = problem["heads"], problem["head_dim"]
        self.heads = {name: heads["q" if name[0] == "q" else "kv"] for name in (*NEW_ROWS, *CACHES)}
        self.head_dims = {name: head_dim["v" if name[0] == "v" else "qk"] for name in (*NEW_ROWS, *CACHES)}
        self.all_heads = norm.get("kind", "none") == "rms_all_heads"
        self.v_columns = problem.get("v_layout", "rows") == "columns"
        self.width = rope.get("width", 0)
        self.streams = 3 if any(rope.get("sections", {}).values()) else 1
        self.v_out, self.scale_dtype = problem.get("v_out", True), "u8" if scales.get("ue8m0") else "f32"
        self.scales = {f"{name}_scale": scales.get(name, "none") for name in ("q", "k", "v")}

    def arguments(self, tensors, numbers, device, own_memory):
        """The C struct of one launch. `numbers`: what launch() takes beside tensors."""
        numbers = dict(numbers)
        known = {name: numbers.pop(name) for name in ("tokens", "num_pages", "batch", "kv_len", "kv_tokens", "page_table_stride",
                                                      "cos_sin_rows", "position_bytes")}
        views = {name: read(name, given) for name, given in tensors.items() if given is not None}
        for name, view in views.items():
            check_place(name, view, device, own_memory)
        c = structs.KvWriteTensors(**{name: view.address for name, view in views.items()})
        shaped = {name: view for name, view in views.items() if view.shape is not None}
        self.places(shaped, known)  # they give the number of tokens; q, k and v may have more rows
        for name in NEW_ROWS:
            if name in shaped:
                setattr(c, name + "_strides", self.rows(name, shaped[name], known))
        for name in CACHES:
            if name in shaped:
                setattr(c, name + "_strides", self.cache(name, shaped[name], known))
        self.small(shaped, known)
        for name in ("k_scale", "v_scale"):
            if name in shaped and self.scales[name] == "per_token":
                setattr(c, name + "_strides", scale_strides(name, shaped[name]))
        if known["tokens"] is None:
            raise ConfigError("tokens: is missing; addresses do not tell it")
        set_numbers(c, known | numbers)
        return c

    def dtype(self, name, view, wanted):
        if view.dtype not in wanted:
            raise ConfigError(f"{name}: is {view.dtype}, and the problem has {' or '.join(wanted)}")

    @staticmethod
    def settle(known, name, found, by):
        if known[name] is None:
            known[name] = found
        elif known[name] != found:
            raise ConfigError(f"{by}: makes {name} {found}, and it is {known[name]} by the arguments before it")

    def contiguous(self, name, view, shapes, strided=False):
        """A tensor of one of these shapes; None is any extent. strided: it may have any strides."""
        fits = any(len(view.shape) == len(shape) and all(want in (None, have) for have, want in zip(view.shape, shape))
                   for shape in shapes)
        if not fits or not (strided or is_contiguous(view)):
            words = " or ".join(str(["?" if extent is None else extent for extent in shape]) for shape in shapes)
            if strided:
                raise ConfigError(f"{name}: has shape {list(view.shape)}; it is {words}, with any strides")
            raise ConfigError(f"{name}: has shape {list(view.shape)} and strides {list(view.strides)}; it is {words}, contiguous")

    def places(self, shaped, known):
        for name in ("slot_mapping", "batch_indices"):
            if name in shaped:
                self.dtype(name, shaped[name], (self.dtypes[name],))
                self.contiguous(name, shaped[name], [(None,)])
                self.settle(known, "tokens", shaped[name].shape[0], name)
        if "positions" in shaped:
            view = shaped["positions"]
            self.dtype("positions", view, ("i32", "i64"))
            self.settle(known, "position_bytes", 8 if view.dtype == "i64" else 4, "positions")
            tokens = known["tokens"]
            self.contiguous("positions", view, [(3, tokens)] if self.streams == 3 else [(tokens,), (1, tokens)])
            self.settle(known, "tokens", view.shape[-1], "positions")
        if "page_table" in shaped:
            view = shaped["page_table"]
            self.dtype("page_table", view, ("i32",))
            if len(view.shape) != 2 or (view.shape[1] > 1 and view.strides[1] != 1):
                raise ConfigError(f"page_table: has shape {list(view.shape)} and strides {list(view.strides)}; it is [batch, "
                                  "pages], its rows contiguous")
            self.settle(known, "batch", view.shape[0], "page_table")
            self.settle(known, "page_table_stride", view.strides[0] if view.shape[0] > 1 else view.shape[1], "page_table")

    def rows(self, name, view, known):
        """[tokens, heads, head_dim] or [tokens, heads * head_dim]. q, k and v may have more rows than there are tokens."""
        heads, head_dim = self.heads[name], self.head_dims[name]
        self.dtype(name, view, (self.dtypes[name],))
        flat = len(view.shape) == 2 and view.shape[1] == heads * head_dim
        if not flat and (len(view.shape) != 3 or tuple(view.shape[1:]) != (heads, head_dim)):
            raise ConfigError(f"{name}: has shape {list(view.shape)}, and the problem's is [tokens, {heads}, {head_dim}]")
        if view.strides[-1] != 1:
            raise ConfigError(f"{name}: its last dimension has stride {view.strides[-1]}; heads must be contiguous")
        if known["tokens"] is None:
            known["tokens"] = view.shape[0]
        if view.shape[0] < known["tokens"]:
            raise ConfigError(f"{name}: has {view.shape[0]} rows for {known['tokens']} tokens")
        if flat:
            view = View(view.address, (view.shape[0], heads, head_dim), (view.strides[0], head_dim, 1))
        return head_strides(name, view)

    def cache(self, name, view, known):
        """Paged [pages, page_size, heads, head_dim], padded [batch, kv_len, ...], ragged [rows, ...], with any strides."""
        heads, head_dim = self.heads[name], self.head_dims[name]
        self.dtype(name, view, self.cache_dtypes(name))
        if name == "v_cache" and self.v_columns:
            strides = column_strides(name, view, heads, head_dim, self.page_size)
            self.settle(known, "num_pages", view.shape[0], name)
            return strides
        first, shape = self.cache_rows(), view.shape
        if len(shape) != len(first) + 2 or tuple(shape[-2:]) != (heads, head_dim) or (
                self.kv_kind == "paged" and shape[1] != self.page_size):
            wanted = f"[{', '.join(map(str, first))}, {heads}, {head_dim}]"
            raise ConfigError(f"{name}: has shape {list(shape)}, and the problem's is {wanted}")
        if view.strides[-1] != 1:
            raise ConfigError(f"{name}: its last dimension has stride {view.strides[-1]}; heads must be contiguous")
        for extent, size in zip(first, shape):
            if isinstance(extent, str):
                self.settle(known, extent, size, name)
        return head_strides(name, view)

    def cache_rows(self):
        """The dimensions of a cache ahead of heads: names of sizes, and the keys of a page."""
        return {"paged": ("num_pages", self.page_size), "padded": ("batch", "kv_len"), "ragged": ("kv_tokens",)}[self.kv_kind]

    def heads_exist(self, name):
        """Whether an operand is of heads that are written."""
        return self.q_out if name[0] == "q" else self.v_out or name[0] == "k"

    def cache_dtypes(self, name):
        """What frameworks may call the elements of a cache: bytes may stand for fp8."""
        return (self.dtypes[name],) + (("u8",) if self.dtypes[name] in ("e4m3", "e5m2") else ())

    def tokens_of(self, given, rows):
        """The tokens of a call by its arguments; `rows` are those of q, which may be more."""
        if given.get("tokens") is not None:
            return given["tokens"]
        for name in ("slot_mapping", "batch_indices", "positions"):
            if given.get(name) is not None and not isinstance(given[name], int):
                shape = given[name].shape if hasattr(given[name], "shape") else read(name, given[name]).shape
                return shape[-1] if shape else rows
        return rows

    def small(self, shaped, known):
        """Weights, the table and the scales."""
        for name, of in (("q_weight", "q"), ("k_weight", "k")):
            if name in shaped:
                self.dtype(name, shaped[name], (self.dtypes[name],))
                head_dim, heads = self.head_dims[of], self.heads[of]
                shapes = [(heads, head_dim), (heads * head_dim,)] if self.all_heads else [(head_dim,)]
                self.contiguous(name, shaped[name], shapes)
        if "cos_sin" in shaped:
            self.dtype("cos_sin", shaped["cos_sin"], ("f32",))
            self.contiguous("cos_sin", shaped["cos_sin"], [(None, self.width)])
            self.settle(known, "cos_sin_rows", shaped["cos_sin"].shape[0], "cos_sin")
        rows = tuple(known[extent] if isinstance(extent, str) else extent for extent in self.cache_rows())
        for name, of in (("q_scale", "q"), ("k_scale", "k"), ("v_scale", "v")):
            if name not in shaped:
                continue
            made = self.scales[name] == "per_token"
            self.dtype(name, shaped[name], (self.scale_dtype if made else "f32",))
            heads = self.heads[of]
            shapes = {"per_tensor": [(1,), ()], "per_head": [(heads,)], "none": []}.get(self.scales[name])
            if shapes is None:
                shapes = [((known["tokens"],) if of == "q" else rows) + (heads,)]
            if not shapes:
                raise ConfigError(f"{name}: is given, and the problem has no such scales")
            self.contiguous(name, shaped[name], shapes, strided=made and of != "q")
