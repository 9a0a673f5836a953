"""Kernelwright from Python: attention and GEMM kernels, specialised and compiled while the program runs.

A thin module over the C ABI (runtime/c/c_api.h). It uses ctypes and DLPack, and needs no framework at build or
import. Tensors of PyTorch, CuPy, JAX or any other framework with DLPack can be passed as they are.

    engine = kernelwright.Engine()
    kernel = engine.prepare({"problem": {"head_dim": {"qk": 128, "v": 128}, "heads": {"q": 32, "kv": 8},
                                         "mask": {"kind": "causal"}}})
    kernel.launch(q=q, k=k, v=v, o=o, stream=torch.cuda.current_stream())
"""
from ._door import fast_calls
from ._engine import Array, Engine
from ._errors import CompileError, ConfigError, DeviceError, InternalError, KernelwrightError, MissingError, NotReadyError
from ._handles import GemmKernel, Kernel, KvWriteKernel, MoeCombineKernel, MoeKernel, QuantizeKernel, RouteKernel, RowOpKernel
from ._launches import GemmLaunch, KvWriteLaunch, Launch, MoeCombineLaunch, MoeLaunch, RouteLaunch, RowOpLaunch
from ._library import kernel_origin, load
from ._plan import Plan, plan
from ._rope import rope_table
from ._version import __version__

__all__ = ["Array", "CompileError", "ConfigError", "DeviceError", "Engine", "GemmKernel", "GemmLaunch", "InternalError",
           "Kernel", "KernelwrightError", "KvWriteKernel", "KvWriteLaunch", "Launch", "MissingError", "MoeCombineKernel", "MoeCombineLaunch",
           "MoeKernel", "MoeLaunch",
           "NotReadyError", "Plan", "QuantizeKernel", "RouteKernel", "RouteLaunch", "RowOpKernel", "RowOpLaunch", "__version__", "fast_calls", "kernel_origin", "plan", "rope_table", "version"]


def version(library=None):
    """The version of the library that is found, or of the library at `library`: "0.1.0"."""
    return load(library).version()
