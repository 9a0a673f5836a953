"""The arguments of launches of mixtures of experts, checked against the problem: the choice of experts, and the sum over
their rows."""
import json

from . import _structs as structs
from ._arguments import set_numbers, set_workspace_bytes
from ._errors import ConfigError
from ._rows import check_array, check_matrix, check_size, check_vector, views_of


class RouteProblem:
    """A config's "problem" of kind "route" with the defaults of docs/config.md."""

    def __init__(self, problem):
        self.words = json.dumps(problem, sort_keys=True)  # tells two problems of equal shapes apart
        self.experts, self.top_k, self.sorts = problem["experts"], problem["top_k"], problem.get("sort", True)
        self.logits = problem.get("dtype", "f32")
        self.given = problem.get("score") == "given"  # then ids and weights are read, and there are no logits
        self.local = problem.get("local_experts", 0)
        self.buckets = self.local or self.experts
        self.between = (problem.get("alignment", 1) - 1) * self.buckets  # rows that may lie between experts
        self.vectors = {name: dtype for name, dtype, there in (
            ("bias", "f32", problem.get("bias", False)), ("local_ids", "i32", self.local > 0)) if there}

    def arrays(self, tokens):
        """What is written: a dict from the name to shape and dtype."""
        pairs, rows = (tokens, self.top_k), (tokens * self.top_k + self.between,)
        found = {"ids": (pairs, "i32"), "weights": (pairs, "f32")}
        if self.sorts:
            found |= {"starts": ((self.buckets + 1,), "i32"), "source_rows": (rows, "i32"), "positions": (pairs, "i32"),
                      "sorted_weights": (rows, "f32")}
        return found

    def results(self):
        """The names of what a call returns, with shape and dtype as functions of the tokens. sorted_weights is only written
        where it is given."""
        def of(name):
            return lambda tokens: self.arrays(tokens)[name]
        left_out = ("sorted_weights", "ids", "weights") if self.given else ("sorted_weights",)
        return {name: of(name) for name in self.arrays(0) if name not in left_out}

    def arguments(self, tensors, numbers, device, own_memory):
        """The C struct of one launch. `numbers`: what bind() takes beside tensors."""
        numbers = dict(numbers)
        tokens, workspace_bytes = numbers.pop("tokens"), numbers.pop("workspace_bytes")
        views = views_of(tensors, device, own_memory)
        c = structs.RouteTensors(**{name: view.address for name, view in views.items()})
        shaped = {name: view for name, view in views.items() if view.shape is not None}
        if "logits" in views and self.given:
            raise ConfigError("logits: is given, and so are the experts; leave it out")
        if self.given and "ids" in shaped and tokens is None and shaped["ids"].shape:
            tokens = shaped["ids"].shape[0]
        if "logits" in shaped:
            c.logits_stride, tokens = check_matrix("logits", shaped["logits"], (self.logits,), tokens, self.experts, "tokens")
        check_size("tokens", tokens)
        for name in ("bias", "local_ids"):
            if name in shaped and name not in self.vectors:
                raise ConfigError(f"{name}: is given, and the problem has none")
            if name in shaped:
                check_vector(name, shaped[name], (self.vectors[name],), self.experts)
        arrays = self.arrays(tokens)
        for name in ("ids", "weights", "starts", "source_rows", "positions", "sorted_weights"):
            if name in views and name not in arrays:
                raise ConfigError(f"{name}: is given, and the problem does not sort")
            if name in shaped:
                shape, dtype = arrays[name]
                check_array(name, shaped[name], (dtype,), shape)
        set_workspace_bytes(c, views.get("workspace"), workspace_bytes)
        c.tokens = tokens
        set_numbers(c, numbers)
        return c


class MoeCombineProblem:
    """A config's "problem" of kind "moe_combine" with the defaults of docs/config.md."""

    def __init__(self, problem):
        dtype = problem.get("dtype", {})
        self.words = json.dumps(problem, sort_keys=True)
        self.width, self.top_k = problem["width"], problem["top_k"]
        self.entering, self.out = dtype.get("in", "bf16"), dtype.get("out", "bf16")
        self.weighted, self.adds = problem.get("weighted", True), problem.get("residual", False)
        # In the order in which they are checked: dtype, and the size that counts the rows.
        self.matrices = {"rows": (self.entering, "num_rows"), "residual": (self.entering, "tokens"), "out": (self.out, "tokens")}
        self.pairs = {"positions": "i32", "weights": "f32"}

    def reads(self, name):
        """Whether the problem has such an operand."""
        return {"weights": self.weighted, "residual": self.adds}.get(name, True)

    def results(self):
        """As RouteProblem's."""
        return {"out": lambda tokens: ((tokens, self.width), self.out)}

    def arguments(self, tensors, numbers, device, own_memory):
        """The C struct of one launch. `numbers`: what bind() takes beside tensors."""
        numbers = dict(numbers)
        sizes = {name: numbers.pop(name) for name in ("num_rows", "tokens")}
        views = views_of(tensors, device, own_memory)
        for name in views:
            if not self.reads(name):
                raise ConfigError(f"{name}: is given, and the problem has none")
        c = structs.MoeCombineTensors(**{name: view.address for name, view in views.items()})
        shaped = {name: view for name, view in views.items() if view.shape is not None}
        for name in ("positions", "weights"):
            if name in shaped:
                view = shaped[name]
                if sizes["tokens"] is None and view.shape:
                    sizes["tokens"] = view.shape[0]
                check_array(name, view, (self.pairs[name],), ("tokens" if sizes["tokens"] is None else sizes["tokens"], self.top_k))
        for name, (dtype, size) in self.matrices.items():
            if name in shaped:
                stride, sizes[size] = check_matrix(name, shaped[name], (dtype,), sizes[size], self.width, size)
                setattr(c, name + "_stride", stride)
        for name, value in sizes.items():
            check_size(name, value)
            setattr(c, name, value)
        set_numbers(c, numbers)
        return c
