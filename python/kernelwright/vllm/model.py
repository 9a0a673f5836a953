"""Layers of a model that vLLM has loaded, beside its attention."""
from __future__ import annotations

import functools
import importlib
import inspect
import logging
import time
from collections import Counter

from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.tensorizer_loader import TensorizerLoader

from .attention import leaving, served

logger = logging.getLogger("vllm.kernelwright")

# Methods of vLLM's that may write weights as they come: (module, class, name, how an object of the class tells its model, whether they
# do so always, or where the argument is_checkpoint_format is false). Some versions have not all of them.
WRITERS = (("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "reload_weights", lambda runner: runner.get_model(), False),
           ("vllm.v1.worker.gpu_worker", "Worker", "start_weight_update", lambda worker: worker.model_runner.get_model(), False),
           ("vllm.distributed.weight_transfer.sparse_nccl_engine", "SparseNCCLWeightTransferEngine", "receive_weights",
            lambda engine: engine.model, True))

# Loaders of vLLM's whose load_model() does not call BaseModelLoader's: (module, class). Some versions have not all of them.
LOADERS_OF_THEIR_OWN = (("vllm.model_executor.model_loader.tensorizer_loader", "TensorizerLoader"),
                        ("vllm.model_executor.model_loader.modelexpress_loader", "ModelExpressModelLoader"),
                        ("vllm.model_executor.model_loader.gguf_loader", "GGUFModelLoader"))

# Parts that change a model's parameters: they interleave rows in place, or keep matrices that are parameters from vLLM 0.26 on.
CHANGING = ("gates", "experts", "products")


def serve_loaded_models(parts):
    """From here on each model that vLLM loads is taken over. `parts`: which of "linears", "gates", "norms", "experts" and "products"."""
    given = BaseModelLoader.load_model
    if getattr(given, "of_kernelwright", False):
        return

    def load_model(self, vllm_config, model_config, *more, **named):
        for writer in WRITERS:  # a process that loads a model has most of their modules by then
            refuse_to_write_what_is_interleaved(*writer)
        model = given(self, vllm_config, model_config, *more, **named)
        if leaving.get():  # a loader with steps of its own may hand over to another one, and the log has said what is left
            return model
        try:
            take_over(model, parts_beside(vllm_config.parallel_config, parts), has_lora=vllm_config.lora_config is not None)
        except Exception as error:  # layers that were taken over serve, the others are vLLM's
            logger.warning("kernelwright leaves layers of this model to vLLM: %s", error)
            served.failed.add(time.time_ns())  # no model that vLLM has compiled and kept is this one
        return model
    load_model.of_kernelwright = True
    for loader in (ShardedStateLoader, TensorizerLoader):
        refuse_to_save_what_is_interleaved(loader)
    for loader in LOADERS_OF_THEIR_OWN:
        leave_what_it_loads(*loader, parts)
    BaseModelLoader.load_model = load_model


def parts_beside(parallel_config, parts):
    """Those of `parts` that serve with a ParallelConfig of vLLM's. The log tells of the others."""
    if not parallel_config.enable_elastic_ep:
        return parts
    if left := [part for part in parts if part in CHANGING]:
        logger.warning("kernelwright leaves %s to vLLM: with elastic expert parallelism (enable_elastic_ep) ranks send each other "
                       "parameters as they lie in memory, so these stay as vLLM has them", ", ".join(left))
    return [part for part in parts if part not in CHANGING]


def leave_what_it_loads(module, owner, parts):
    """Lets the log say that models of this loader of vLLM's stay vLLM's. Some are in another state than the one that we take over:
    TensorizerLoader does not call what processes weights behind a load."""
    try:
        loader = getattr(importlib.import_module(module), owner, None)
    except ImportError:
        return
    given = vars(loader).get("load_model") if loader else None  # not one that it inherits: we serve behind that
    if given is None or hasattr(given, "of_kernelwright"):
        return

    @functools.wraps(given)
    def load_model(self, *more, **named):
        logger.warning("kernelwright leaves %s to vLLM: its %s makes a model by steps of its own", ", ".join(parts), owner)
        served.failed.add(0)  # no handle; models that vLLM has compiled and kept with layers of ours have another key
        before = leaving.set(True)
        try:
            return given(self, *more, **named)
        finally:
            leaving.reset(before)
    load_model.of_kernelwright = True
    loader.load_model = load_model


def refuse_where_interleaved(model, what):
    """Raises RuntimeError if rows of the model's weights are interleaved. what: what is refused then, for the message."""
    from .linears import refuse_to_load

    weights = [name for name, weight in model.named_parameters() if getattr(weight, "weight_loader", None) is refuse_to_load]
    if weights:
        raise RuntimeError(f"kernelwright has interleaved {len(weights)} weights, {weights[0]} ..., so {what}; load the model "
                           'without "gates", "experts" and "all" in KERNELWRIGHT_VLLM')


def refuse_to_save_what_is_interleaved(loader):
    """A loader of vLLM's writes weights as they lie. Whoever loads such a file takes their rows for the model's own."""
    given = loader.save_model

    def save_model(model, *more, **named):
        refuse_where_interleaved(model, "the model cannot be saved")
        return given(model, *more, **named)
    loader.save_model = staticmethod(save_model)


def refuse_to_write_what_is_interleaved(module, owner, name, model_of, always):
    """vLLM copies weights that are not in a checkpoint's format over the model's own, as they come. Their rows are not in our order."""
    try:
        owner = getattr(importlib.import_module(module), owner, None)
    except ImportError:
        return
    given = getattr(owner, name, None)
    if given is None or hasattr(given, "of_kernelwright"):
        return

    @functools.wraps(given)
    def write(self, *more, **named):
        as_they_come = always or not inspect.signature(given).bind(self, *more, **named).arguments.get("is_checkpoint_format", True)
        if as_they_come:
            refuse_where_interleaved(model_of(self), "others cannot be written over them")
        return given(self, *more, **named)
    write.of_kernelwright = True
    setattr(owner, name, write)


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
