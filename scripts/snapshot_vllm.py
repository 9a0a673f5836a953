#!/usr/bin/env python3
"""Writes what python/kernelwright/vllm relies on in a vLLM, from its Python files: parameters of methods and functions, fields of
dataclasses, members of enums. Nothing of vLLM is imported, so neither torch nor a GPU is needed.

    pip download --no-deps vllm==0.24.0 && unzip -q vllm-0.24.0-*.whl 'vllm/*.py' -d tree
    scripts/snapshot_vllm.py tree > tests/golden/vllm/0.24.0.json
    scripts/snapshot_vllm.py tree --latents > tests/golden/vllm/latents/0.24.0.json

--latents: what latent.py relies on, which serves fewer versions.
"""
import ast
import json
import pathlib
import sys

BACKEND, REGISTRY = "vllm/v1/attention/backend.py", "vllm/v1/attention/backends/registry.py"
# File: the names that matter in it. Of a class all methods and fields are told.
NAMES = {
    BACKEND: ("AttentionBackend", "AttentionCGSupport", "AttentionImpl", "AttentionMetadata", "AttentionMetadataBuilder",
              "AttentionType", "CommonAttentionMetadata"),
    REGISTRY: ("AttentionBackendEnum", "register_backend"),
    "vllm/v1/attention/backends/utils.py": ("get_kv_cache_layout",),
    "vllm/v1/attention/backends/flash_attn.py": ("FlashAttentionBackend",),
    "vllm/platforms/cuda.py": ("_get_backend_priorities",),
    "vllm/config/__init__.py": ("get_layers_from_vllm_config",),
    "vllm/model_executor/layers/attention/__init__.py": ("Attention",),
}

MLA = "vllm/model_executor/layers/attention/mla_attention.py"
LATENT_NAMES = {
    BACKEND: ("AttentionBackend", "AttentionCGSupport", "AttentionType"),
    MLA: ("MLAAttention", "MLACommonBackend", "MLACommonDecodeMetadata", "MLACommonImpl", "MLACommonMetadata",
          "MLACommonMetadataBuilder", "QueryLenSupport"),
    "vllm/platforms/cuda.py": ("CudaPlatformBase",),
    "vllm/v1/attention/selector.py": ("AttentionSelectorConfig",),
}


def parameters(function):
    found = function.args
    return [argument.arg for argument in (*found.posonlyargs, *found.args, *found.kwonlyargs)]


def told(node):
    """A function as its parameters; a class as its methods, and its fields or members."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return parameters(node)
    methods, fields = {}, []
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            methods[part.name] = parameters(part)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            fields.append(part.target.id)
        elif isinstance(part, ast.Assign):
            fields += [target.id for target in part.targets if isinstance(target, ast.Name)]
    return {"methods": methods, "fields": fields}


def definitions(text):
    """{name: what it is} of a file. A name that is only imported there is told as such."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: "imported" for alias in node.names}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = told(node)
    return found


def snapshot(tree, wanted=NAMES):
    """{file: {name: what it is}}; a name that is missing is null."""
    made = {}
    for file, names in wanted.items():
        path = pathlib.Path(tree) / file
        found = definitions(path.read_text(encoding="utf-8")) if path.is_file() else {}
        made[file] = {name: found.get(name) for name in names}
    return made


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--latents"]) or not pathlib.Path(sys.argv[1], "vllm").is_dir():
        sys.exit(__doc__)
    print(json.dumps(snapshot(sys.argv[1], LATENT_NAMES if sys.argv[2:] else NAMES), indent=1))
