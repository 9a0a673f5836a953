#!/usr/bin/env python3
"""Writes what python/kernelwright/vllm relies on in a vLLM, from its Python files: parameters of methods and functions, fields of
dataclasses, members of enums. Nothing of vLLM is imported, so neither torch nor a GPU is needed.

    pip download --no-deps vllm==0.24.0 && unzip -q vllm-0.24.0-*.whl 'vllm/*.py' -d tree
    scripts/snapshot_vllm.py tree > tests/golden/vllm/0.24.0.json
    scripts/snapshot_vllm.py tree --latents > tests/golden/vllm/latents/0.24.0.json
    scripts/snapshot_vllm.py tree --layers > tests/golden/vllm/layers/0.24.0.json

--latents: what latent.py relies on, which serves fewer versions. --layers: the same of linears.py, norms.py, experts.py and model.py.
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

LAYERS, KERNELS = "vllm/model_executor/layers/", "vllm/model_executor/kernels/linear/"
LAYER_NAMES = {
    "vllm/ir/op.py": ("IrOp",),
    "vllm/ir/ops/layernorm.py": ("fused_add_rms_norm", "rms_norm"),
    "vllm/platforms/cuda.py": ("CudaPlatformBase",),
    "vllm/envs.py": ("compile_factors", "environment_variables"),
    "vllm/model_executor/model_loader/base_loader.py": ("BaseModelLoader",),
    "vllm/model_executor/utils.py": ("replace_parameter",),
    "vllm/model_executor/warmup/deep_gemm_warmup.py": ("_fp8_linear_may_use_deep_gemm",),
    KERNELS + "__init__.py": ("_POSSIBLE_FP8_BLOCK_KERNELS", "_POSSIBLE_FP8_KERNELS"),
    KERNELS + "scaled_mm/BlockScaledMMLinearKernel.py": ("FP8BlockParams", "Fp8BlockScaledMMLinearKernel"),
    KERNELS + "scaled_mm/ScaledMMLinearKernel.py": ("FP8ScaledMMLinearKernel", "FP8ScaledMMLinearLayerConfig", "ScaledMMLinearKernel"),
    LAYERS + "activation.py": ("GeluAndMul", "SiluAndMul"),
    LAYERS + "fusion/quant_activation.py": ("QuantizedActivation", "as_quantized_activation"),
    LAYERS + "layernorm.py": ("RMSNorm",),
    LAYERS + "linear.py": ("LinearBase", "MergedColumnParallelLinear", "UnquantizedLinearMethod"),
    LAYERS + "vocab_parallel_embedding.py": ("UnquantizedEmbeddingMethod",),
    LAYERS + "fused_moe/activation.py": ("MoEActivation",),
    LAYERS + "fused_moe/fused_moe_method_base.py": ("FusedMoEMethodBase",),
    LAYERS + "fused_moe/oracle/fp8.py": ("Fp8MoeBackend",),
    LAYERS + "fused_moe/oracle/unquantized.py": ("UnquantizedMoeBackend",),
    LAYERS + "fused_moe/routed_experts.py": ("RoutedExperts",),
    LAYERS + "fused_moe/unquantized_fused_moe_method.py": ("UnquantizedFusedMoEMethod",),
    LAYERS + "quantization/fp8.py": ("Fp8MoEMethod",),
    LAYERS + "quantization/utils/quant_utils.py": ("GroupShape", "QuantKey", "ScaleDesc"),
}
PARTS = {"--latents": LATENT_NAMES, "--layers": LAYER_NAMES}


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
    """{name: what it is} of a file. A name that is only imported or assigned there is told as such."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: "imported" for alias in node.names}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = told(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = "assigned"
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
    if len(sys.argv) not in (2, 3) or not set(sys.argv[2:]) <= set(PARTS) or not pathlib.Path(sys.argv[1], "vllm").is_dir():
        sys.exit(__doc__)
    print(json.dumps(snapshot(sys.argv[1], PARTS[sys.argv[2]] if sys.argv[2:] else NAMES), indent=1))
