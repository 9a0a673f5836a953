"""What tests of layers behind vLLM's own classes share: an engine on the GPU if there is one, else on the emulator, and modules of
vLLM's with random weights.
"""
import contextlib
import socket
import unittest

import torch
import vllm
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel

import kernelwright

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
BF16, F16 = torch.bfloat16, torch.float16
FP8 = torch.float8_e4m3fn
HAS_TOKENS = vllm.__version__ >= "0.24"  # whether the layer ahead of an fp8 layer may make its tokens

ENGINES = []  # of this process: at most one
CONTEXT = contextlib.ExitStack()  # until the process ends


def begin():
    """Called ahead of the first test of a process. Returns the engine."""
    from kernelwright.vllm import attention

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "tcp://127.0.0.1:%d" % free.getsockname()[1]
    CONTEXT.enter_context(set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device=DEVICE))))
    init_distributed_environment(1, 0, address, 0, backend="nccl" if HAS_GPU else "gloo")
    initialize_model_parallel(1)
    ENGINES.append(kernelwright.Engine("cuda" if HAS_GPU else "emulator", hazards=not HAS_GPU))
    attention.served.use(ENGINES[0])
    return ENGINES[0]


def made(make, dtype):
    """A module of vLLM's on the device, with random weights."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(DEVICE):
            module = make()
    finally:
        torch.set_default_dtype(default)
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape) * (0.5 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5))
    return module


def randn(*shape, dtype=BF16):
    return torch.randn(*shape).to(dtype).to(DEVICE)


class Layers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(17)
        self.enterContext(torch.no_grad())  # as vLLM runs its models

    def near(self, found, want, rounding, terms=0.0):
        """rounding: of the result and of what lies between, relative; terms: the size of what a sum adds up, whose order is
        free in f32."""
        off = (found.double().cpu() - want.cpu()).abs()
        bound = rounding * want.abs().cpu() + 2.0**-16 * (terms + 1.0) + rounding * 2.0**-6
        self.assertLessEqual((off - bound).max().item(), 0, f"off by {off.max().item()} of {want.abs().max().item()}")
        if not HAS_GPU:
            self.assertEqual(ENGINES[0].take_hazards(), [])
