#!/usr/bin/env python3
"""Writes the type stubs of python/kernelwright: __init__.pyi and torch.pyi.

    scripts/generate_stubs.py           # writes the files
    scripts/generate_stubs.py --check   # fails if a file is not what the sources give

Names, arguments and defaults come from the package itself. The types of a launch's arguments come from the structs of
the C header, and all other types from the tables below. A public name without a type is refused, so that none is left
out silently.
"""
import argparse
import ast
import inspect
import os
import pathlib
import sys
from ctypes import c_float, c_uint64

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "kernelwright"
WIDTH = 120

HEAD = '''"""{}

scripts/generate_stubs.py writes this file. Do not edit it: change the sources or the script's tables, and run the script.
"""
'''

# What the stubs name beside the package's own classes.
PRELUDE = '''from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, overload, type_check_only

@type_check_only
class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

@type_check_only
class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

@type_check_only
class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

@type_check_only
class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

@type_check_only
class _CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...

@type_check_only
class _ModelConfig(Protocol):  # of transformers
    def to_json_string(self, *args: Any, **kwargs: Any) -> str: ...

_Bytes: TypeAlias = bytes  # Array has an attribute of that name
_Tensor: TypeAlias = Array | _DLPack | _CudaArray | int
_Stream: TypeAlias = _CudaStream | _TorchStream | _CupyStream | int
_Path: TypeAlias = str | PathLike[str]
_Config: TypeAlias = Mapping[str, Any] | str | bytes | bytearray | PathLike[str]
_Dtype: TypeAlias = Literal["f16", "bf16", "f32", "e4m3", "e5m2", "i32", "i64", "u8", "bool"]
_OnMiss: TypeAlias = Literal["block", "fallback", "error"]
'''

# The type of a parameter by its name; "Class.method.name" goes before "name".
PARAMETERS = {
    "allow_when_sealed": "bool", "background": "bool", "backend": 'Literal["auto", "cuda", "emulator"]',
    "cache_directory": "_Path", "check_data": "bool", "compile_in": 'Literal["process", "workers", "auto", "hosts"]',
    "compile_memory_bytes": "int", "compile_time_limit_ms": "int", "compile_worker": "_Path", "compiles_per_host": "int",
    "compile_threads": "int", "completion": "str",
    "config": "_Config", "plan.config": "Mapping[str, Any] | _Path | _ModelConfig",
    "data": "_Bytes | bytearray | memoryview", "device": "int", "dtype": "_Dtype", "emulator_arch": "str",
    "engine": "Engine", "emulator_threads": "int", "event_level": 'Literal["debug", "info", "warning", "error"]',
    "from_dtype": 'Literal["f16", "bf16", "f32"]', "hazards": "bool", "k": "int",
    "kernel": "Kernel | GemmKernel | QuantizeKernel | KvWriteKernel | RowOpKernel | RouteKernel | MoeCombineKernel | "
              "MoeKernel",
    "kv_write": "Mapping[str, Any]", "launch_sampling": "int",
    "library": "_Path",
    "lock_timeout_ms": "int", "max_cache_bytes": "int", "memory_only_cache": "bool", "nvrtc_path": "_Path",
    "bundles": "Sequence[_Path]", "bundle_keys": "Sequence[_Path]", "expected": "Sequence[_Bytes]",
    "fallback_first": "bool", "on_event": "Callable[[dict[str, Any]], object]", "on_miss": "_OnMiss",
    "read_only_layers": "Sequence[_Path]", "remote": "str", "remote_keys": "Sequence[_Path]",
    "remote_signing_key": "_Path", "remote_allow_unsigned": "bool", "remote_ca": "_Path",
    "remote_certificate": "_Path", "remote_certificate_key": "_Path",
    "rows": "int", "seed": "int", "shape": "Sequence[int]", "stream": "_Stream", "timeout_ms": "int",
    "to": 'Literal["mxfp8", "mxfp4", "nvfp4"]', "tuned_dir": "_Path", "values": "Any", "window": "Sequence[int]",
    "archs": "str | Sequence[str]", "ep": "int", "kv": "str", "max_seqs": "int", "max_tokens": "int", "name": "str",
    "kv_scales": 'Literal["per_tensor", "per_head", "per_token"]',
    "page_size": "int", "server": 'Literal["vllm", "sglang", "hf"]', "tp": "int", "number": "int",
    "kind": "type[_Kernel]", "width": "int", "first": "int", "theta": "float", "factor": "float", "low": "float",
    "high": "float", "original_positions": "int", "beta_fast": "float", "beta_slow": "float", "truncate": "bool",
    "scaling": 'Literal["default", "llama3", "yarn", "longrope", "proportional"]', "mscale": "float",
    "mscale_all": "float", "share": "float", "attention_factor": "float", "factors": "Sequence[float]",
}
# The type of a result, of a property, or of an attribute that __init__ sets.
RESULTS = {
    "Array.bytes": "int", "Array.address": "int", "Array.shape": "tuple[int, ...]", "Array.dtype": "_Dtype",
    "Array.device": "int", "Array.engine": "Engine", "Array.numpy": "Any", "Array.read": "_Bytes",
    "Array.write": "None", "Engine.close": "None", "Engine.counters": "dict[str, int]", "Engine.device_name": "str",
    "Engine.empty": "Array", "Engine.from_numpy": "Array", "Engine.is_emulated": "bool",
    "Engine.kernels": "list[dict[str, Any]]", "Engine.latencies": "dict[str, dict[str, Any]]",
    "Engine.metrics": "str", "Engine.prepare": "Any", "Engine.prepare_quantize": "QuantizeKernel",
    "Engine.plan_digest": "_Bytes", "Engine.promote": "int", "Engine.ready_digests": "list[_Bytes]", "Engine.ready": "bool", "Engine.seal": "None", "Engine.sealed": "bool",
    "Engine.stop": "None", "Engine.take_hazards": "list[dict[str, Any]]", "Engine.wait_until_ready": "bool",
    "Engine.__enter__": "Engine", "Engine.__exit__": "None", "_Handle.engine": "Engine", "_Handle.device": "int",
    "_Handle.wait": "None", "_Handle.info": "dict[str, Any]",
    "_Handle.state": 'Literal["pending", "ready", "failed"]', "_Handle.serves_fallback": "bool", "_Handle.key": "str",
    "Kernel.bind": "Launch", "Kernel.launch": "None", "Kernel.workspace_bytes": "int", "Kernel.__call__": "Any",
    "GemmKernel.bind": "GemmLaunch", "GemmKernel.launch": "None", "GemmKernel.workspace_bytes": "int",
    "GemmKernel.__call__": "Any", "QuantizeKernel.launch": "None", "QuantizeKernel.scale_bytes": "int",
    "QuantizeKernel.__call__": "tuple[Any, Any]", "KvWriteKernel.bind": "KvWriteLaunch",
    "KvWriteKernel.launch": "None", "KvWriteKernel.__call__": "Any", "KvWriteLaunch.kernel": "KvWriteKernel",
    "KvWriteLaunch.tensors": "dict[str, Any]", "KvWriteLaunch.__call__": "None", "RowOpKernel.bind": "RowOpLaunch",
    "RowOpKernel.launch": "None", "RowOpKernel.__call__": "Any", "RowOpLaunch.kernel": "RowOpKernel",
    "RowOpLaunch.tensors": "dict[str, Any]", "RowOpLaunch.__call__": "None", "RouteKernel.bind": "RouteLaunch",
    "RouteKernel.launch": "None", "RouteKernel.__call__": "Any", "RouteLaunch.kernel": "RouteKernel",
    "RouteLaunch.tensors": "dict[str, Any]", "RouteLaunch.__call__": "None", "RouteLaunch.needed_workspace_bytes": "int",
    "MoeCombineKernel.bind": "MoeCombineLaunch", "MoeCombineKernel.launch": "None", "MoeCombineKernel.__call__": "Any",
    "MoeCombineLaunch.kernel": "MoeCombineKernel", "MoeCombineLaunch.tensors": "dict[str, Any]",
    "MoeCombineLaunch.__call__": "None", "MoeKernel.bind": "MoeLaunch", "MoeKernel.launch": "None",
    "MoeKernel.workspace_bytes": "int", "MoeKernel.__call__": "Any",
    "MoeLaunch.kernel": "MoeKernel", "MoeLaunch.tensors": "dict[str, Any]", "MoeLaunch.__call__": "None",
    "MoeLaunch.needed_workspace_bytes": "int", "Launch.kernel": "Kernel",
    "Launch.tensors": "dict[str, Any]",
    "Launch.__call__": "None", "Launch.needed_workspace_bytes": "int", "GemmLaunch.kernel": "GemmKernel",
    "GemmLaunch.tensors": "dict[str, Any]", "GemmLaunch.__call__": "None", "GemmLaunch.needed_workspace_bytes": "int",
    "Plan.configs": "dict[str, dict[str, Any]]", "fast_calls": "dict[str, Any]", "kernel_origin": "str", "plan": "Plan", "version": "str",
    "rope_table": "memoryview",
    "handle": "int", "release": "None", "kernel_of": "_Kernel",
}
BASES = {"dict": "dict[str, Any]"}
# Made by the package alone: a stub must not offer to create them.
MADE_BY_ENGINE = {"_Handle", "Kernel", "GemmKernel", "QuantizeKernel", "KvWriteKernel", "Launch", "GemmLaunch",
                  "KvWriteLaunch", "RowOpKernel", "RowOpLaunch", "RouteKernel", "RouteLaunch", "MoeCombineKernel",
                  "MoeCombineLaunch", "MoeKernel", "MoeLaunch"}


class Untyped(Exception):
    """A public name that the tables lack."""


def package():
    """The package, without the extension: what a machine has must not change the stubs."""
    os.environ |= {"KERNELWRIGHT_FAST": "0", "KERNELWRIGHT_LIBRARY": "/nonexistent"}
    sys.path.insert(0, str(PACKAGE.parent))
    sys.dont_write_bytecode = True
    import kernelwright
    return kernelwright


def look_up(table, owner, name):
    for key in (f"{owner}.{name}", name) if table is PARAMETERS else (owner,):
        if key in table:
            return table[key]
    raise Untyped(f"{owner}{f', {name}' if name else ''}: has no type; add one to a table of scripts/generate_stubs.py")


def wrapped(indent, head, parts, tail):
    """head(parts)tail, over as many lines as WIDTH asks for."""
    line = indent + head + ", ".join(parts) + tail
    if len(line) <= WIDTH:
        return line + "\n"
    lines, inner = [indent + head], indent + "    "
    line = inner
    for part in parts:
        if len(line) + len(part) + 1 > WIDTH:
            lines.append(line.rstrip())
            line = inner
        line += part + ", "
    return "\n".join([*lines, line.rstrip(), indent + tail]) + "\n"


def default_of(value):
    return repr(value).replace("'", '"') if isinstance(value, str) else repr(value)


def parameter_text(owner, name, default, kinds):
    """A parameter with its type and default. `kinds`: the fields of the C struct in which a launch has the parameter."""
    if kinds.get(name) is c_uint64 and not name.endswith("_bytes"):
        kind = "_Tensor"
    elif name in kinds and f"{owner}.{name}" not in PARAMETERS and name not in PARAMETERS:
        kind = "bool" if default is False else "float" if kinds[name] is c_float else "int"
    else:
        kind = look_up(PARAMETERS, owner, name)
    if default is inspect.Parameter.empty:
        return f"{name}: {kind}"
    return f"{name}: {kind}{' | None' if default is None else ''} = {default_of(default)}"


def parameters_text(owner, parameters, kinds):
    parts, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL and owner.endswith("__exit__"):
            parts.append("*exception: object")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        parts.append(parameter.name if parameter.name == "self"
                     else parameter_text(owner, parameter.name, parameter.default, kinds))
    return parts


def function_text(indent, owner, parameters, kinds=None, result=None):
    name = owner.rpartition(".")[2]
    result = result or look_up(RESULTS, owner, "")
    return wrapped(indent, f"def {name}(", parameters_text(owner, parameters, kinds or {}), f") -> {result}: ...")


def parameters_of(function):
    return list(inspect.signature(function).parameters.values())


class Stub:
    def __init__(self, kernelwright):
        from kernelwright import _errors, _handles, _structs
        self.package, self.handle, self.text = kernelwright, _handles._Handle, ""
        self.errors = [kind for kind in vars(_errors).values() if isinstance(kind, type)]
        self.structs = {"Kernel": _structs.AttentionTensors, "GemmKernel": _structs.GemmTensors,
                        "QuantizeKernel": _structs.QuantizeTensors, "KvWriteKernel": _structs.KvWriteTensors,
                        "RowOpKernel": _structs.RowOpTensors, "RouteKernel": _structs.RouteTensors,
                        "MoeCombineKernel": _structs.MoeCombineTensors, "MoeKernel": _structs.MoeTensors}

    def kinds(self, name):
        return dict(self.structs[name]._fields_) if name in self.structs else {}

    def call(self, kind):
        """A handle's call: the arguments of bind() or launch(), the first by position, with `out` for the result."""
        from kernelwright._door import arguments_of
        main = getattr(kind, "bind", kind.launch)
        forms = getattr(kind, "FORMS", (kind.POSITIONAL,))
        mark = "    @overload\n" if len(forms) > 1 else ""
        return "".join(mark + self.form(kind, main, form, arguments_of(main, form, kind.RESULT)) for form in forms)

    def form(self, kind, main, first, names):
        own = {"out" if name == kind.RESULT else name: given for name, given in inspect.signature(main).parameters.items()}
        allocated = {"out", "lse", "elements", "scales"} | ({"ids", "weights"} if kind.__name__ == "RouteKernel" else set())
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        for name in names:
            positional = name in first
            default = None if name in allocated or name == "stream" else inspect.Parameter.empty if positional else own[name].default
            place = inspect.Parameter.POSITIONAL_OR_KEYWORD if positional else inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, place, default=default))
        fields = self.kinds(kind.__name__)
        return function_text("    ", f"{kind.__name__}.__call__", parameters, fields | {"out": c_uint64})

    def methods(self, kind):
        for name, value in vars(kind).items():
            owner = f"{kind.__name__}.{name}"
            if isinstance(value, property):
                yield f"    @property\n    def {name}(self) -> {look_up(RESULTS, owner, '')}: ...\n"
            elif inspect.isfunction(value) and (not name.startswith("_") or name in ("__enter__", "__exit__", "__call__")):
                parameters = parameters_of(value)
                if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:  # the arguments of bind()
                    parameters[-1:] = [given for given in parameters_of(kind.bind) if given.name != "self"]
                    parameters = [given for given in parameters if given.name != "stream"] + [
                        given for given in parameters if given.name == "stream"]
                yield function_text("    ", owner, parameters, self.kinds(kind.__name__))
            elif name == "__init__" and kind.__name__ not in MADE_BY_ENGINE:
                yield function_text("    ", owner, parameters_of(value), result="None")

    def add_class(self, kind):
        bases = [self.handle.__name__] if issubclass(kind, self.handle) and kind is not self.handle else [
            BASES.get(base.__name__, base.__name__) for base in kind.__bases__ if base is not object and base.__name__[0] != "_" and kind is not self.handle]
        if kind in self.errors:
            self.text += f"\nclass {kind.__name__}({', '.join(bases)}): ...\n"
            return
        body = "".join(f"    {key.partition('.')[2]}: {text}\n" for key, text in RESULTS.items()
                       if key.startswith(kind.__name__ + ".") and not hasattr(kind, key.partition(".")[2]))
        body += "".join(self.methods(kind))
        if hasattr(kind, "POSITIONAL") and kind is not self.handle:
            body += self.call(kind)
        mark = "@type_check_only\n" if kind is self.handle else ""
        self.text += f"\n{mark}class {kind.__name__}{f'({chr(44).join(bases)})' if bases else ''}:\n{body or '    ...'}"

    def made(self):
        for name in ("KernelwrightError", *(name for name in self.package.__all__ if name != "KernelwrightError")):
            value = getattr(self.package, name)
            if value is self.package.Kernel:
                self.add_class(self.handle)
            if isinstance(value, type):
                self.add_class(value)
        names = [f'"{name}"' for name in self.package.__all__]
        self.text += "\n__version__: str\n" + wrapped("", "__all__ = [", names, "]")
        for name in self.package.__all__:
            if inspect.isfunction(getattr(self.package, name)):
                self.text += function_text("", name, parameters_of(getattr(self.package, name)))
        return self.text


def package_stub():
    kernelwright = package()
    return HEAD.format(kernelwright.__doc__.splitlines()[0]) + PRELUDE + Stub(kernelwright).made()


def torch_stub():
    """Read from the source: torch need not be here."""
    tree = ast.parse((PACKAGE / "torch.py").read_text(encoding="utf-8"))
    text = HEAD.format(ast.get_docstring(tree).splitlines()[0])
    kinds = "Kernel", "GemmKernel", "QuantizeKernel", "KvWriteKernel", "RowOpKernel", "RouteKernel", "MoeCombineKernel"
    text += f"from typing import TypeVar\n\nfrom . import {', '.join(sorted(kinds))}\n\n"
    text += wrapped("", "_Kernel = TypeVar(", ('"_Kernel"', *kinds), ")") + "\n"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            if node.args.defaults or node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
                raise Untyped(f"torch.{node.name}: this script reads plain parameters alone")
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            text += function_text("", node.name, [inspect.Parameter(given.arg, kind) for given in node.args.args])
    return text + "\nSCHEMAS: dict[str, str]\n"


def stubs():
    """The text of each stub by its path."""
    return {PACKAGE / "__init__.pyi": package_stub(), PACKAGE / "torch.pyi": torch_stub()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; fail if a file is not current")
    check = arguments.parse_args().check
    try:
        made = stubs()
    except Untyped as error:
        sys.exit(str(error))
    for path, text in made.items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.relative_to(ROOT)} is not what the sources give; run scripts/generate_stubs.py")


if __name__ == "__main__":
    main()
