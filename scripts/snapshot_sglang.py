#!/usr/bin/env python3
"""Writes what python/kernelwright/sglang relies on in an SGLang, from its Python files: parameters of methods, members of classes.
Nothing of SGLang is imported, so neither torch nor a GPU is needed.

    pip download --no-deps sglang==0.5.17 && unzip -q sglang-0.5.17-*.whl 'sglang/*.py' -d tree
    scripts/snapshot_sglang.py tree > tests/golden/sglang/0.5.17.json
"""
import server_snapshots

SRT = "sglang/srt/"
BACKEND, RUNNER, ARGUMENTS = SRT + "layers/attention/base_attn_backend.py", SRT + "model_executor/model_runner.py", SRT + "server_args.py"
BATCH, LAYER, CONFIG = SRT + "model_executor/forward_batch_info.py", SRT + "layers/radix_attention.py", SRT + "configs/model_config.py"
CHUNKS, HANDLERS = SRT + "model_executor/forward_batch_deepseek_mha_mixin.py", SRT + "models/deepseek_common/attention_backend_handler.py"
FP8 = SRT + "layers/quantization/fp8_utils.py"


def members(of, names):
    return tuple(f"{of}.{name}" for name in names.split())


# File: the names that matter in it. Of a class that is named alone all methods and fields are told.
NAMES = {
    SRT + "plugins/__init__.py": ("GENERAL_PLUGINS_GROUP", "load_plugins"),
    SRT + "layers/attention/attention_registry.py": ("ATTENTION_BACKENDS", "register_attention_backend"),
    BACKEND: ("AttentionBackend",),
    ARGUMENTS: ("ATTENTION_BACKEND_CHOICES", "CHUNKED_PREFIX_CACHE_SUPPORTED_ATTENTION_BACKENDS", "FP8_GEMM_RUNNER_BACKEND_CHOICES", "add_attention_backend_choices",
                "add_chunked_prefix_cache_attention_backend",
                "add_fp8_gemm_runner_backend_choices", *members("ServerArgs", (
                    "_get_default_attn_backend cuda_graph_config dcp_size dllm_algorithm enable_hisparse enable_pdmux enable_two_batch_overlap "
                    "speculative_algorithm speculative_eagle_topk"))),
    RUNNER: members("ModelRunner", (
        "dtype is_draft_worker kv_cache_dtype model model_config page_size prefill_aware_swa ps req_to_token_pool server_args "
        "token_to_kv_pool use_mla_backend")),
    CONFIG: members("ModelConfig", "context_len is_encoder_decoder is_local_attention_model"),
    BATCH: (*members("ForwardBatch", (
        "batch_size extend_seq_lens extend_seq_lens_cpu forward_mode input_ids out_cache_loc positions req_pool_indices seq_lens "
        "seq_lens_cpu spec_info")), *members("ForwardMode", "is_decode is_decode_or_idle is_target_verify")),
    LAYER: ("AttentionType", *members("RadixAttention", (
        "attn_type forward head_dim is_cross_attention k_scale layer_id logit_cap logit_capping_method pos_encoding_mode scaling "
        "sliding_window_size tp_k_head_num tp_q_head_num use_irope v_head_dim v_scale xai_temperature_len"))),
    FP8: ("Fp8GemmRunnerBackend", "_dispatch_auto_backend", "_dispatch_explicit_backend", "dispatch_w8a8_block_fp8_linear",
          "initialize_fp8_gemm_config", "triton_w8a8_block_fp8_linear"),
    SRT + "layers/quantization/fp8.py": members("Fp8LinearMethod", "w8a8_block_fp8_linear weight_block_size"),
    SRT + "mem_cache/memory_pool.py": ("ReqToTokenPool.req_to_token", *members("MHATokenToKVPool", "get_kv_buffer kv_cache_layout"),
                                     "MLATokenToKVPool.get_key_buffer"),
    CHUNKS: members("ForwardBatchDeepSeekMHAMixin", (
        "attn_attend_prefix_cache mha_return_lse prefix_chunk_cu_seq_lens prefix_chunk_idx prefix_chunk_max_seq_lens")),
    HANDLERS: ("AttentionBackendRegistry.register", "_handle_attention_backend"),
    # Backends that get parts of queries and keys, which ours is not.
    SRT + "models/deepseek_common/utils.py": ("FORWARD_ABSORB_CORE_ATTENTION_BACKENDS",),
    SRT + "mem_cache/swa_memory_pool.py": members("SWAKVPool", (
        "full_kv_pool full_to_swa_index_mapping get_kv_buffer layers_mapping swa_kv_pool translate_loc_from_full_to_swa")),
}


def snapshot(tree):
    return server_snapshots.snapshot(tree, NAMES)


if __name__ == "__main__":
    server_snapshots.main(__doc__, "sglang", NAMES, {})
