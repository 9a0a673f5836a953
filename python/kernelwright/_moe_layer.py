"""The arguments of launches of whole layers of experts, checked against the problem."""
import json

from . import _structs as structs
from ._arguments import set_numbers, set_workspace_bytes
from ._errors import ConfigError
from ._rows import check_array, check_matrix, check_size, views_of


class MoeProblem:
    """A config's "problem" of kind "moe" with the defaults of docs/moe.md."""

    def __init__(self, problem):
        self.words = json.dumps(problem, sort_keys=True)  # tells two problems of equal shapes apart
        route = problem["route"]
        self.given = route.get("score") == "given"  # then ids and weights are read, and there are no logits
        self.top_k, self.width, self.out = route["top_k"], problem["hidden"], problem.get("dtype", "bf16")
        all_experts, hidden, wide = route["experts"], problem["hidden"], problem["intermediate"]
        own, scaled = route.get("local_experts", 0) or route["experts"], problem.get("scales", "none") == "per_block"
        weights, of_gates = "e4m3" if scaled else self.out, problem.get("gates", "silu(gate) * up")
        # Rows that are as far apart as strides say, in the order in which they are checked: dtype and columns.
        self.matrices = {"x": (self.out, hidden)}
        if not self.given:
            self.matrices["logits"] = route.get("dtype", "f32"), all_experts
        if problem.get("residual", False):
            self.matrices["residual"] = self.out, hidden
        self.matrices["out"] = self.out, hidden
        self.pairs = {"ids": "i32", "weights": "f32"}  # [tokens, top_k], contiguous
        blocks = -(-wide // 128)
        self.arrays = {name: (dtype, shape) for name, dtype, shape, there in (
            ("bias", "f32", (all_experts,), route.get("bias", False)),
            ("local_ids", "i32", (all_experts,), route.get("local_experts", 0) > 0),
            ("gate_up", weights, (own, 2 * wide, hidden), True),
            ("gate_up_scale", "f32", (own, 2 * blocks, hidden // 128), scaled),
            ("gate_up_bias", self.out, (own, 2 * wide), "bias" in of_gates),
            ("down", weights, (own, hidden, wide), True),
            ("down_scale", "f32", (own, hidden // 128, wide // 128), scaled),
            ("down_bias", self.out, (own, hidden), problem.get("down_bias", False))) if there}

    def needs(self, name):
        """Whether a call must give the tensor."""
        return name in self.arrays or name in self.matrices and name != "out" or self.given and name in self.pairs

    def results(self):
        """The names of what a call returns, with shape and dtype as functions of the tokens."""
        return {"out": lambda tokens: ((tokens, self.width), self.out)}

    def arguments(self, tensors, numbers, device, own_memory):
        """The C struct of one launch. `numbers`: what bind() takes beside tensors."""
        numbers = dict(numbers)
        tokens, workspace_bytes = numbers.pop("tokens"), numbers.pop("workspace_bytes")
        views = views_of(tensors, device, own_memory)
        for name in views:
            if name not in {**self.matrices, **self.arrays, **self.pairs, "workspace": None}:
                raise ConfigError(f"{name}: is given, and the problem has none")
        c = structs.MoeTensors(**{name: view.address for name, view in views.items()})
        shaped = {name: view for name, view in views.items() if view.shape is not None}
        for name, (dtype, columns) in self.matrices.items():
            if name in shaped:
                stride, tokens = check_matrix(name, shaped[name], (dtype,), tokens, columns, "tokens")
                setattr(c, name + "_stride", stride)
        check_size("tokens", tokens)
        for name, dtype in self.pairs.items():
            if name in shaped:
                check_array(name, shaped[name], (dtype,), (tokens, self.top_k))
        for name, (dtype, shape) in self.arrays.items():
            if name in shaped:
                check_array(name, shaped[name], (dtype,), shape)
        set_workspace_bytes(c, views.get("workspace"), workspace_bytes)
        c.tokens = tokens
        set_numbers(c, numbers)
        return c
