"""Shapes of the models that bench/serve.py loads with random weights, as their config.json has them, and the weights."""
import itertools
import math

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "torch_dtype": "bfloat16", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
         "max_position_embeddings": 8192}
QWEN3 = LLAMA | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                 "vocab_size": 151936, "head_dim": 128, "attention_bias": False}
WEIGHTS = {"bf16": {}, "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
           "fp8-blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}
YARN = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}
MODELS = {
    "llama-3-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
                           "num_hidden_layers": 32, "vocab_size": 128256, "rope_theta": 500000.0},
    "qwen3-8b": QWEN3 | {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8,
                         "num_hidden_layers": 36},
    "qwen3-30b-a3b": QWEN3 | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
                              "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
                              "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "num_attention_heads": 32,
                              "num_key_value_heads": 4, "num_hidden_layers": 48},
    "gemma-3-12b": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 3840,
                    "intermediate_size": 15360, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 48,
                    "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
                    "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window": 1024, "query_pre_attn_scalar": 256,
                    "sliding_window_pattern": 6, "hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16",
                    "bos_token_id": 2, "eos_token_id": 1, "tie_word_embeddings": True},
    # Weights of experts are mxfp4, which are left to vLLM.
    "gpt-oss-20b": LLAMA | {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880,
                            "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
                            "num_hidden_layers": 24, "num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4,
                            "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12, "vocab_size": 201088,
                            "attention_bias": True, "swiglu_limit": 7.0, "rope_theta": 150000,
                            "rope_scaling": YARN | {"factor": 32.0, "truncate": False}, "max_position_embeddings": 131072,
                            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
                                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}},
    # Four of 61 layers, one of them dense, so that one GPU holds them.
    "deepseek-v3-cut": LLAMA | {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
                                "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
                                "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
                                "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
                                "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "moe_layer_freq": 1,
                                "num_hidden_layers": 4, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
                                "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                                "vocab_size": 129280, "rms_norm_eps": 1e-6, "rope_theta": 10000, "attention_bias": False,
                                "rope_scaling": YARN | {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
                                "max_position_embeddings": 163840},
}

SEEDS = itertools.count()
E2M1_RMS = 2.926  # of all 16 values of fp4
CACHE_SCALES = ("q_scale", "k_scale", "v_scale", "prob_scale")  # of an attention layer


def fill(model, config=None):
    """In place of vLLM's initialize_dummy_weights(): of its dummies, which are tiny and the same in all layers, logits show the last
    token alone, and nearly all are 0 in fp8. It may be called for each module of a model as well as for the whole. Two arms get the
    same weights. A row of weights has a norm of about 1, with its scales where it is quantised."""
    import torch
    from vllm.model_executor.model_loader import weight_utils

    weight_utils.initialize_dummy_weights(model, config)
    for module in model.modules():
        given = {name: parameter.data for name, parameter in module.named_parameters(recurse=False)}
        for name, weight in given.items():
            generator = torch.Generator(weight.device).manual_seed(next(SEEDS))
            scaled = given.get(name.removesuffix("_inv").removesuffix("_scale"))
            if "Norm" in type(module).__name__:
                weight.uniform_(0.5, 1.5, generator=generator)
            elif scaled is not None and scaled is not weight and scaled.element_size() == 1:
                fill_scales(weight, scaled)
            elif name in CACHE_SCALES:
                weight.fill_(-1)  # as in a model without them
            elif weight.element_size() == 1:
                fill_quantised(weight, generator)
            elif weight.dim() > 1:
                weight.normal_(0, weight.shape[-1] ** -0.5, generator=generator)


def fill_quantised(weight, generator):
    """weight: of fp8, or pairs of fp4 in bytes. Other bytes stay as they are."""
    import torch

    if weight.dtype == torch.uint8:
        weight.random_(0, 256, generator=generator)
    elif weight.is_floating_point() and weight.dim() > 1:
        for matrix in weight.flatten(0, -3) if weight.dim() > 2 else [weight]:  # one after the other, so that little memory is needed
            matrix.copy_(torch.empty(matrix.shape, dtype=torch.float16, device=weight.device).normal_(generator=generator))


def fill_scales(scale, weight):
    """scale: in floats, or in bytes that are exponents of 2 above -127, of pairs of fp4."""
    if scale.is_floating_point():
        scale.fill_(weight.shape[-1] ** -0.5)
    else:
        scale.fill_(127 + round(math.log2((2 * weight.shape[-1]) ** -0.5 / E2M1_RMS)))


def comparable(given):
    """Whether first tokens tell of all layers: fill() serves, which knows this process alone, and logits do not come from the
    embeddings, which would name the last token again. given: the options of bench/serve.py."""
    return given.gpus == 1 and not MODELS[given.model]["tie_word_embeddings"]
