"""accelerate(): GEMMs of Kernelwright in the linear layers of a model of transformers."""
from __future__ import annotations

import statistics
import types
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from transformers.integrations.finegrained_fp8 import FP8Linear

from ._attention import DTYPES, OPS, handle_of_problem, kernels
from ._errors import ConfigError, KernelwrightError
from ._groups import GROUP, quantize_groups
from ._product import GemmProblem

if TYPE_CHECKING:
    from . import Engine

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
ROWS = (1, 8, 32, 128, 512, 2048, 8192)
SLACK = 1.01  # what medians of one candidate differ by from one measurement to the next


class _Linear:
    """What serves one linear layer. `rows` maps a number of rows, up to which a measurement counts, to whether ours
    serves; it is None if ours serves always."""

    def __init__(self, problem, scales, rows):
        self.problem, self.scales, self.rows = problem, scales, rows
        self.sizes = sorted(rows) if rows else ()
        self.dtype, self.k, self.n = TORCH_DTYPES[problem.dtype], problem.k, problem.n
        self.plain = not (problem.fp8 or problem.bias)
        self.kernel = self.found_in = self.device = None  # of the last call

    def __deepcopy__(self, _):
        return self

    def serves(self, m):
        if not m:
            return False
        return self.rows is None or self.rows[self.sizes[min(bisect_left(self.sizes, m), len(self.sizes) - 1)]]

    def __call__(self, module, x):
        """Every step of a model comes here for each layer, so little is done, and the common case comes first."""
        weight = module.weight
        if x.dtype is not self.dtype or not self.serves(x.numel() // self.k) or (
                torch.is_grad_enabled() and (x.requires_grad or any(own.requires_grad for own in module.parameters()))):
            return type(module).forward(module, x)
        a = x if x.dim() == 2 else x.reshape(-1, self.k)
        if self.plain and a.stride(1) == 1:
            out = self.product(a, weight)
        else:
            named = {"bias": module.bias} if self.problem.bias else {}
            if self.problem.fp8:
                a, named["scale_a"] = quantize_groups(a)
                named["scale_b"] = module.weight_scale_inv if self.scales is None else self.scales
            out = self.product(a if a.stride(1) == 1 else a.contiguous(), weight, **named)
        return out if a is x else out.view(*x.shape[:-1], self.n)

    def product(self, a, b, **named):
        """Called where no tensor's gradient is wanted, so that tensors are taken as they are."""
        device = a.device
        if torch.compiler.is_compiling() or device.type != "cuda":
            return OPS.gemm(handle_of_problem(device.type, device.index or 0, type(self.problem), *self.problem), a, b, **named)
        if self.found_in is not kernels.found or self.device != device:
            self.kernel = kernels.find("cuda", device.index or 0, self.problem)[0]
            self.found_in, self.device = kernels.found, device
        return self.kernel(a, b, **named)


def _forward(module, input):  # noqa: A002, the name that torch's linear layers have
    return module._kernelwright(module, input)


def _problem(module):
    """(the GemmProblem of a linear layer, its scales if they had to be cast). Raises ConfigError with the reason if there
    is none."""
    if "forward" in vars(module):
        raise ConfigError("its forward is replaced already")
    weight, scales = module.weight, None
    if type(weight) is not torch.nn.Parameter or weight.device.type == "meta" or not weight.is_contiguous():
        raise ConfigError("its weight is no contiguous tensor of one device")
    n, k = weight.shape
    bias = None if module.bias is None else module.bias.dtype
    if type(module) is FP8Linear and weight.dtype == torch.float8_e4m3fn:
        if tuple(module.block_size or ()) != (GROUP, GROUP):
            raise ConfigError(f"its scales have blocks of {module.block_size}; ours have [{GROUP}, {GROUP}]")
        if module.activation_scheme != "dynamic":
            raise ConfigError(f'its activation_scheme is "{module.activation_scheme}"; ours is "dynamic"')
        if k % GROUP:
            raise ConfigError(f"its {k} columns are no multiple of {GROUP}")
        if module.weight_scale_inv.dtype != torch.float32:  # ue8m0: powers of two, which f32 has
            scales = module.weight_scale_inv.detach().float()
        return GemmProblem(n, k, DTYPES.get(bias, "bf16"), "per_block", bias is not None), scales
    if type(module) is not torch.nn.Linear:
        raise ConfigError(f"is a {type(module).__name__}, whose forward is its own")
    if weight.dtype not in DTYPES:
        raise ConfigError(f"its weight is {weight.dtype}; ours is torch.float16 or torch.bfloat16")
    if bias not in (None, weight.dtype):
        raise ConfigError(f"its bias is {bias}, and its weight {weight.dtype}")
    return GemmProblem(n, k, DTYPES[weight.dtype], bias=bias is not None), None


def _microseconds(calls, device):
    """The time of each call, as the median of rounds that take turns."""
    times = [[] for _ in calls]
    for turn in range(9):
        for call, found in zip(calls, times):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize(device)
            begin.record()
            for _ in range(10):
                call()
            end.record()
            torch.cuda.synchronize(device)
            if turn >= 2:
                found.append(begin.elapsed_time(end) * 100)
    return [statistics.median(found) for found in times]


class _Race:
    """Which of two serves a shape, for each number of rows: measured once for a shape on a device."""

    def __init__(self, rows):
        self.rows, self.results = rows, {}

    def run(self, module, problem, scales):
        """{rows: (microseconds of ours, of the layer's own forward)}. The layer's own is None where it cannot run."""
        key = problem, module.weight.device
        if key not in self.results:
            self.results[key] = {m: self._times(module, problem, scales, m) for m in self.rows}
        return self.results[key]

    @staticmethod
    def _times(module, problem, scales, m):
        x = torch.randn(m, problem.k, device=module.weight.device, dtype=TORCH_DTYPES[problem.dtype])
        ours = _Linear(problem, scales, None)
        try:
            type(module).forward(module, x)
        except (ImportError, NotImplementedError):  # kernels of transformers' own that are not here
            return _microseconds([lambda: ours(module, x)], x.device)[0], None
        return tuple(_microseconds([lambda: ours(module, x), lambda: type(module).forward(module, x)], x.device))


class Report:
    """What accelerate() did. str() is a text for people.

    swapped: a dict for each layer that was changed: name, problem, and microseconds {rows: (ours, the layer's own)},
    None if nothing was measured. left: a dict for each layer that was not: name and reason.
    """

    def __init__(self) -> None:
        self.swapped: list[dict[str, Any]] = []
        self.left: list[dict[str, Any]] = []
        self._modules: list[torch.nn.Module] = []

    def undo(self) -> None:
        """Gives the layers their own forward back."""
        for module in self._modules:
            vars(module).pop("forward", None)
            vars(module).pop("_kernelwright", None)
        self._modules.clear()

    def __str__(self):
        lines = [f"kernelwright serves {len(self.swapped)} linear layers and leaves {len(self.left)}"]
        for rows, word in ((self.swapped, "serves"), (self.left, "leaves")):
            groups = {}
            for row in rows:
                groups.setdefault(_told(row), []).append(row["name"])
            lines += [f"  {word} {len(names):4}  {names[0]}{' ...' if len(names) > 1 else ''}: {told}"
                      for told, names in groups.items()]
        return "\n".join(lines)


def _told(row):
    """What the report says of one layer."""
    if "reason" in row:
        return row["reason"]
    problem, times = row["problem"], row["microseconds"]
    kind = "fp8 of 128 x 128 blocks" if problem.fp8 else problem.dtype
    told = f"{problem.n} x {problem.k}, {kind}"
    if times is None:
        return told + ", not measured"
    of = ", ".join(f"{m}: {mine:.1f}" + ("" if own is None else f" for {own:.1f}") for m, (mine, own) in times.items())
    return f"{told}; us by rows: {of}"


def accelerate(model: torch.nn.Module, *, engine: Engine | None = None, rows: Iterable[int] = ROWS,
               force: bool = False) -> Report:
    """Lets our GEMMs serve linear layers of `model`, and returns a Report.

    FineGrainedFP8 layers (blocks of 128 x 128, dynamic activations) and plain ones of 16 bits are candidates. For each
    shape, ours and the layer's own forward take turns on the GPU for each number of rows. Ours serves the numbers of rows
    for which it is not slower. force=True measures nothing, and ours serves every candidate.

    Weights stay where they are; the model is saved and loaded as before. A call that needs gradients takes the layer's
    own forward.
    """
    if engine is not None:
        kernels.use(engine)
    report, race = Report(), _Race(tuple(sorted(rows)))
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear):
            if any(parameter.dim() == 3 for parameter in module.parameters(recurse=False)):
                report.left.append({"name": name, "reason": f"is a {type(module).__name__}; experts_implementation="
                                    '"kernelwright" serves layers of experts'})
            continue
        try:
            with torch.no_grad():
                _swap(report, race, name, module, force)
        except KernelwrightError as error:
            report.left.append({"name": name, "reason": str(error)})
    return report


def _swap(report, race, name, module, force):
    problem, scales = _problem(module)
    device = module.weight.device
    kernels.find(device.type, device.index or 0, problem)
    times = won = None
    if not force:
        if device.type != "cuda":
            raise ConfigError(f'lies on a device of type "{device.type}", where nothing is measured; force=True swaps it')
        times = race.run(module, problem, scales)
        won = {m: own is None or mine <= SLACK * own for m, (mine, own) in times.items()}
        if not any(won.values()):
            shown = ", ".join(f"{m}: {mine:.1f} for {own:.1f}" for m, (mine, own) in times.items())
            raise ConfigError(f"ours is slower for each number of rows; us by rows, {problem.n} x {problem.k}: {shown}")
    module._kernelwright = _Linear(problem, scales, won)
    module.forward = types.MethodType(_forward, module)
    report.swapped.append({"name": name, "problem": problem, "microseconds": times})
    report._modules.append(module)
