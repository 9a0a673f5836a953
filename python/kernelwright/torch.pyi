"""Handles as operators of PyTorch: torch.ops.kernelwright.attention, gemm, quantize, kv_write, row_op, route, moe_combine, moe.

scripts/generate_stubs.py writes this file. Do not edit it: change the sources or the script's tables, and run the script.
"""
from typing import TypeVar

from . import GemmKernel, Kernel, KvWriteKernel, MoeCombineKernel, QuantizeKernel, RouteKernel, RowOpKernel

_Kernel = TypeVar(
    "_Kernel", Kernel, GemmKernel, QuantizeKernel, KvWriteKernel, RowOpKernel, RouteKernel, MoeCombineKernel,
)

def handle(

    kernel: Kernel | GemmKernel | QuantizeKernel | KvWriteKernel | RowOpKernel | RouteKernel | MoeCombineKernel | MoeKernel,
) -> int: ...
def release(number: int) -> None: ...
def kernel_of(number: int, kind: type[_Kernel]) -> _Kernel: ...

SCHEMAS: dict[str, str]
