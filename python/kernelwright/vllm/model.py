"""Layers of a model that vLLM has loaded, beside its attention."""
from __future__ import annotations

import logging
import time
from collections import Counter

from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

from .attention import served

logger = logging.getLogger("vllm.kernelwright")


def serve_loaded_models(parts):
    """From here on each model that vLLM loads is taken over. `parts`: which of "linears", "gates", "norms", "experts" and "products"."""
    given = BaseModelLoader.load_model
    if getattr(given, "of_kernelwright", False):
        return

    def load_model(self, vllm_config, model_config, *more, **named):
        model = given(self, vllm_config, model_config, *more, **named)
        try:
            take_over(model, parts, has_lora=vllm_config.lora_config is not None)
        except Exception as error:  # layers that were taken over serve, the others are vLLM's
            logger.warning("kernelwright leaves layers of this model to vLLM: %s", error)
            served.failed.add(time.time_ns())  # no model that vLLM has compiled and kept is this one
        return model
    load_model.of_kernelwright = True
    for loader in (ShardedStateLoader, TensorizerLoader):
        refuse_to_save_what_is_interleaved(loader)
    BaseModelLoader.load_model = load_model


def refuse_to_save_what_is_interleaved(loader):
    """A loader of vLLM's writes weights as they lie. Whoever loads such a file takes their rows for the model's own."""
    given = loader.save_model

    def save_model(model, *more, **named):
        from .linears import refuse_to_load

        weights = [name for name, weight in model.named_parameters() if getattr(weight, "weight_loader", None) is refuse_to_load]
        if weights:
            raise RuntimeError(f"kernelwright has interleaved {len(weights)} weights, {weights[0]} ..., so the model cannot be saved; load "
                               'it without "gates", "experts" and "all" in KERNELWRIGHT_VLLM')
        return given(model, *more, **named)
    loader.save_model = staticmethod(save_model)


def take_over(model, parts, has_lora=False):
    """Gives layers of a loaded model methods of ours. The log says how many, and why others are left to vLLM."""
    left = {}
    if "linears" in parts:
        from .linears import fp8_layers, fuse_gates, quantise_gates, serve_linears

        linears, left = serve_linears(model)
        # LoRA adds to the result of a layer and reads what goes into it, so both have to be what vLLM's own layers have.
        fuses = "gates" in parts and not has_lora
        fused = fuse_gates(model, linears) if fuses else []
        quantised, others = quantise_gates(model) if fuses else ([], {})
        left |= others
        logger.info("kernelwright serves %d linear layers of 16 bits, %d of them with the activation behind them", len(linears), len(fused))
        if fp8 := fp8_layers(model):
            logger.info("kernelwright serves %d linear layers of fp8, %d of them with the activation ahead of them", len(fp8), len(quantised))
    if "norms" in parts:
        from .norms import quantise_norms, serve_norms

        norms, others = serve_norms(model)
        left |= others
        making = [] if has_lora or "linears" not in parts else quantise_norms(model)
        logger.info("kernelwright serves %d norms, %d of them make the tokens of an fp8 layer", len(norms), len(making))
    if "experts" in parts:
        from .experts import serve_experts

        experts, others = serve_experts(model, has_lora)
        left |= others
        logger.info("kernelwright serves %d layers of experts", len(experts))
    if "products" in parts:
        from .products import serve_products

        products, others = serve_products(model)
        left |= others
        logger.info("kernelwright serves the products of %d layers over latent keys", len(products))
    for reason, count in Counter(left.values()).items():
        logger.info("kernelwright leaves %d layers to vLLM, %s ...: %s", count, next(name for name in left if left[name] == reason), reason)
