#!/usr/bin/env python3
"""Writes what python/kernelwright/vllm relies on in a vLLM, from its Python files: parameters of methods and functions, fields of
dataclasses, members of enums. Nothing of vLLM is imported, so neither torch nor a GPU is needed.

    pip download --no-deps vllm==0.26.0 && unzip -q vllm-0.26.0-*.whl 'vllm/*.py' -d tree
    scripts/snapshot_vllm.py tree > tests/golden/vllm/0.26.0.json
    scripts/snapshot_vllm.py tree --latents > tests/golden/vllm/latents/0.26.0.json
    scripts/snapshot_vllm.py tree --layers > tests/golden/vllm/layers/0.26.0.json

--latents: what latent.py and prompts.py rely on, which serve models with latent keys. --layers: the same of linears.py, norms.py,
experts.py, products.py and model.py.
"""
import server_snapshots
from server_snapshots import parameters  # noqa: F401, the test reads it here

BACKEND, REGISTRY = "vllm/v1/attention/backend.py", "vllm/v1/attention/backends/registry.py"
# File: the names that matter in it. Of a class all methods and fields are told.
NAMES = {
    BACKEND: ("AttentionBackend", "AttentionCGSupport", "AttentionImpl", "AttentionMetadata", "AttentionMetadataBuilder",
              "AttentionType", "CommonAttentionMetadata"),
    REGISTRY: ("AttentionBackendEnum", "register_backend"),
    "vllm/v1/attention/backends/utils.py": ("get_kv_cache_layout",),
    "vllm/v1/attention/backends/flash_attn.py": ("FlashAttentionBackend", "FlashAttentionBackend.get_kv_cache_shape()",
                                                 "FlashAttentionBackend.get_kv_cache_stride_order()"),
    "vllm/platforms/cuda.py": ("_get_backend_priorities",),
    "vllm/config/__init__.py": ("get_layers_from_vllm_config",),
    "vllm/model_executor/layers/attention/__init__.py": ("Attention",),
    "vllm/v1/worker/gpu_worker.py": ("Worker.compile_or_warm_up_model",),
}

MLA = "vllm/model_executor/layers/attention/mla_attention.py"
PREFILL = "vllm/v1/attention/backends/mla/prefill/"
LATENT_NAMES = {
    BACKEND: ("AttentionBackend", "AttentionCGSupport", "AttentionType", "MLAAttentionImpl"),
    MLA: ("MLAAttention", "MLACommonBackend", "MLACommonBaseImpl", "MLACommonDecodeMetadata", "MLACommonImpl", "MLACommonMetadata",
          "MLACommonMetadataBuilder", "MLACommonPrefillMetadata", "QueryLenSupport"),
    PREFILL + "base.py": ("MLADimensions", "MLAPrefillBackend"),
    PREFILL + "flash_attn.py": ("FlashAttnPrefillBackend",),
    PREFILL + "registry.py": ("MLAPrefillBackendEnum", "register_mla_prefill_backend"),
    PREFILL + "selector.py": ("MLAPrefillSelectorConfig", "_get_mla_prefill_backend_priorities", "get_mla_prefill_backend"),
    "vllm/config/attention.py": ("AttentionConfig.backend", "AttentionConfig.mla_prefill_backend"),
    "vllm/config/__init__.py": ("get_current_vllm_config_or_none",),
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
    "vllm/model_executor/model_loader/sharded_state_loader.py": ("ShardedStateLoader.save_model",),
    "vllm/model_executor/model_loader/tensorizer_loader.py": ("TensorizerLoader.load_model", "TensorizerLoader.save_model"),
    "vllm/config/parallel.py": ("ParallelConfig.enable_elastic_ep",),
    "vllm/v1/worker/gpu_model_runner.py": ("GPUModelRunner.get_model", "GPUModelRunner.reload_weights"),
    "vllm/v1/worker/gpu_worker.py": ("Worker.start_weight_update",),
    "vllm/model_executor/utils.py": ("replace_parameter",),
    "vllm/model_executor/warmup/deep_gemm_warmup.py": ("_fp8_linear_may_use_deep_gemm",),
    KERNELS + "__init__.py": ("_POSSIBLE_FP8_BLOCK_KERNELS", "_POSSIBLE_FP8_KERNELS"),
    KERNELS + "scaled_mm/BlockScaledMMLinearKernel.py": ("FP8BlockParams", "Fp8BlockScaledMMLinearKernel"),
    KERNELS + "scaled_mm/ScaledMMLinearKernel.py": ("FP8ScaledMMLinearKernel", "FP8ScaledMMLinearLayerConfig", "ScaledMMLinearKernel"),
    MLA: ("MLAAttention.W_UK_T", "MLAAttention.W_UV", "MLAAttention@W_UK_T", "MLAAttention@W_UV", "MLAAttention.impl",
          "MLAAttention.process_weights_after_loading"),
    LAYERS + "activation.py": ("GeluAndMul", "SiluAndMul"),
    LAYERS + "fusion/quant_activation.py": ("QuantizedActivation", "as_quantized_activation"),
    LAYERS + "layernorm.py": ("RMSNorm",),
    LAYERS + "linear.py": ("LinearBase", "MergedColumnParallelLinear", "UnquantizedLinearMethod"),
    LAYERS + "vocab_parallel_embedding.py": ("UnquantizedEmbeddingMethod",),
    LAYERS + "fused_moe/activation.py": ("MoEActivation",),
    LAYERS + "fused_moe/fused_moe_method_base.py": ("FusedMoEMethodBase",),
    LAYERS + "fused_moe/layer.py": ("FusedMoE",),
    LAYERS + "fused_moe/oracle/fp8.py": ("Fp8MoeBackend",),
    LAYERS + "fused_moe/oracle/unquantized.py": ("UnquantizedMoeBackend",),
    LAYERS + "fused_moe/routed_experts.py": ("RoutedExperts",),
    LAYERS + "fused_moe/unquantized_fused_moe_method.py": ("UnquantizedFusedMoEMethod",),
    LAYERS + "quantization/fp8.py": ("Fp8MoEMethod",),
    LAYERS + "quantization/utils/quant_utils.py": ("GroupShape", "QuantKey", "ScaleDesc"),
}
PARTS = {"--latents": LATENT_NAMES, "--layers": LAYER_NAMES}


def snapshot(tree, wanted=NAMES):
    return server_snapshots.snapshot(tree, wanted)


if __name__ == "__main__":
    server_snapshots.main(__doc__, "vllm", NAMES, PARTS)
