"""Kernelwright from Python: attention and GEMM kernels, specialised and compiled while the program runs.

scripts/generate_stubs.py writes this file. Do not edit it: change the sources or the script's tables, and run the script.
"""
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, overload, type_check_only

@type_check_only
class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

@type_check_only
class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

@type_check_only
class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

@type_check_only
class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

@type_check_only
class _CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...

@type_check_only
class _ModelConfig(Protocol):  # of transformers
    def to_json_string(self, *args: Any, **kwargs: Any) -> str: ...

_Bytes: TypeAlias = bytes  # Array has an attribute of that name
_Tensor: TypeAlias = Array | _DLPack | _CudaArray | int
_Stream: TypeAlias = _CudaStream | _TorchStream | _CupyStream | int
_Path: TypeAlias = str | PathLike[str]
_Config: TypeAlias = Mapping[str, Any] | str | bytes | bytearray | PathLike[str]
_Dtype: TypeAlias = Literal["f16", "bf16", "f32", "e4m3", "e5m2", "i32", "i64", "u8", "bool"]
_OnMiss: TypeAlias = Literal["block", "fallback", "error"]

class KernelwrightError(RuntimeError): ...

class Array:
    bytes: int
    address: int
    shape: tuple[int, ...]
    dtype: _Dtype
    device: int
    engine: Engine
    def __init__(self, engine: Engine, shape: Sequence[int], dtype: _Dtype, device: int) -> None: ...
    def write(self, data: _Bytes | bytearray | memoryview) -> None: ...
    def read(self) -> _Bytes: ...
    def numpy(self) -> Any: ...

class CompileError(KernelwrightError): ...

class ConfigError(KernelwrightError, ValueError): ...

class DeviceError(KernelwrightError): ...

class Engine:
    def __init__(
        self, backend: Literal["auto", "cuda", "emulator"] = "auto", *, library: _Path | None = None,
        cache_directory: _Path | None = None, read_only_layers: Sequence[_Path] = (), max_cache_bytes: int = 0,
        nvrtc_path: _Path | None = None, memory_only_cache: bool = False, compile_threads: int = 0,
        on_event: Callable[[dict[str, Any]], object] | None = None, emulator_arch: str | None = None,
        completion: str | None = None, seed: int = 0, hazards: bool = False, emulator_threads: int = 0,
        tuned_dir: _Path | None = None, event_level: Literal["debug", "info", "warning", "error"] = "debug",
        launch_sampling: int = 0, check_data: bool = False, lock_timeout_ms: int = 0, bundles: Sequence[_Path] = (),
        bundle_keys: Sequence[_Path] = (), fallback_first: bool = False,
        compile_in: Literal["process", "workers", "auto", "hosts"] | None = None, compile_worker: _Path | None = None,
        compile_time_limit_ms: int = 0, compile_memory_bytes: int = 0, compiles_per_host: int = 0,
        remote: str | None = None, remote_keys: Sequence[_Path] = (), remote_signing_key: _Path | None = None,
        remote_allow_unsigned: bool = False, remote_ca: _Path | None = None, remote_certificate: _Path | None = None,
        remote_certificate_key: _Path | None = None,
    ) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Engine: ...
    def __exit__(self, *exception: object) -> None: ...
    def prepare(
        self, config: _Config, *, device: int = 0, on_miss: _OnMiss = "block", background: bool = False,
        allow_when_sealed: bool = False,
    ) -> Any: ...
    def prepare_quantize(
        self, from_dtype: Literal["f16", "bf16", "f32"], to: Literal["mxfp8", "mxfp4", "nvfp4"], *, device: int = 0,
        on_miss: _OnMiss = "block", background: bool = False, allow_when_sealed: bool = False,
    ) -> QuantizeKernel: ...
    def seal(self) -> None: ...
    def stop(self) -> None: ...
    def wait_until_ready(self, timeout_ms: int = -1) -> bool: ...
    @property
    def ready(self) -> bool: ...
    @property
    def sealed(self) -> bool: ...
    def promote(self, expected: Sequence[_Bytes] | None = None) -> int: ...
    def ready_digests(self) -> list[_Bytes]: ...
    def plan_digest(self) -> _Bytes: ...
    def counters(self) -> dict[str, int]: ...
    def kernels(self) -> list[dict[str, Any]]: ...
    def latencies(self) -> dict[str, dict[str, Any]]: ...
    def metrics(self) -> str: ...
    def take_hazards(self) -> list[dict[str, Any]]: ...
    def device_name(self, device: int = 0) -> str: ...
    def is_emulated(self, device: int = 0) -> bool: ...
    def empty(self, shape: Sequence[int], dtype: _Dtype, *, device: int = 0) -> Array: ...
    def from_numpy(self, values: Any, dtype: _Dtype | None = None, *, device: int = 0) -> Array: ...

class GemmKernel(_Handle):
    def bind(
        self, *, a: _Tensor, b: _Tensor, d: _Tensor, c: _Tensor | None = None, bias: _Tensor | None = None,
        scale_a: _Tensor | None = None, scale_b: _Tensor | None = None, m: int | None = None,
        alpha: float | None = None, beta: float | None = None, workspace: _Tensor | None = None,
        workspace_bytes: int | None = None, bounds: _Tensor | None = None, status: _Tensor | None = None,
        gather: _Tensor | None = None, source_rows: int | None = None, scale_d: _Tensor | None = None,
        scatter: _Tensor | None = None, result_rows: int | None = None, b_stride: int | None = None,
        tensor_scale: float | None = None, amax: _Tensor | None = None, squares: _Tensor | None = None,
        squares_a: _Tensor | None = None, rms_eps: float | None = None, expected_m: int = 0, sm_budget: int = 0,
        pdl: bool = False, constant_b: bool = False, kv_write: Mapping[str, Any] | None = None,
    ) -> GemmLaunch: ...
    def launch(
        self, *, a: _Tensor, b: _Tensor, d: _Tensor, c: _Tensor | None = None, bias: _Tensor | None = None,
        scale_a: _Tensor | None = None, scale_b: _Tensor | None = None, m: int | None = None,
        alpha: float | None = None, beta: float | None = None, workspace: _Tensor | None = None,
        workspace_bytes: int | None = None, bounds: _Tensor | None = None, status: _Tensor | None = None,
        gather: _Tensor | None = None, source_rows: int | None = None, scale_d: _Tensor | None = None,
        scatter: _Tensor | None = None, result_rows: int | None = None, b_stride: int | None = None,
        tensor_scale: float | None = None, amax: _Tensor | None = None, squares: _Tensor | None = None,
        squares_a: _Tensor | None = None, rms_eps: float | None = None, expected_m: int = 0, sm_budget: int = 0,
        pdl: bool = False, constant_b: bool = False, kv_write: Mapping[str, Any] | None = None,
        stream: _Stream | None = None,
    ) -> None: ...
    def workspace_bytes(
        self, *, a: _Tensor, b: _Tensor, d: _Tensor, c: _Tensor | None = None, bias: _Tensor | None = None,
        scale_a: _Tensor | None = None, scale_b: _Tensor | None = None, m: int | None = None,
        alpha: float | None = None, beta: float | None = None, workspace: _Tensor | None = None,
        workspace_bytes: int | None = None, bounds: _Tensor | None = None, status: _Tensor | None = None,
        gather: _Tensor | None = None, source_rows: int | None = None, scale_d: _Tensor | None = None,
        scatter: _Tensor | None = None, result_rows: int | None = None, b_stride: int | None = None,
        tensor_scale: float | None = None, amax: _Tensor | None = None, squares: _Tensor | None = None,
        squares_a: _Tensor | None = None, rms_eps: float | None = None, expected_m: int = 0, sm_budget: int = 0,
        pdl: bool = False, constant_b: bool = False, kv_write: Mapping[str, Any] | None = None,
    ) -> int: ...
    def __call__(
        self, a: _Tensor, b: _Tensor, *, out: _Tensor | None = None, c: _Tensor | None = None,
        bias: _Tensor | None = None, scale_a: _Tensor | None = None, scale_b: _Tensor | None = None,
        m: int | None = None, alpha: float | None = None, beta: float | None = None, workspace: _Tensor | None = None,
        workspace_bytes: int | None = None, bounds: _Tensor | None = None, status: _Tensor | None = None,
        gather: _Tensor | None = None, source_rows: int | None = None, scale_d: _Tensor | None = None,
        scatter: _Tensor | None = None, result_rows: int | None = None, b_stride: int | None = None,
        tensor_scale: float | None = None, amax: _Tensor | None = None, squares: _Tensor | None = None,
        squares_a: _Tensor | None = None, rms_eps: float | None = None, expected_m: int = 0, sm_budget: int = 0,
        pdl: bool = False, constant_b: bool = False, kv_write: Mapping[str, Any] | None = None,
        stream: _Stream | None = None,
    ) -> Any: ...

class GemmLaunch:
    kernel: GemmKernel
    tensors: dict[str, Any]
    def __call__(self, stream: _Stream | None = None) -> None: ...
    def needed_workspace_bytes(self) -> int: ...

class InternalError(KernelwrightError): ...

@type_check_only
class _Handle:
    engine: Engine
    device: int
    def wait(self) -> None: ...
    def info(self) -> dict[str, Any]: ...
    @property
    def state(self) -> Literal["pending", "ready", "failed"]: ...
    @property
    def serves_fallback(self) -> bool: ...
    @property
    def key(self) -> str: ...

class Kernel(_Handle):
    def bind(
        self, *, q: _Tensor, k: _Tensor, o: _Tensor, v: _Tensor | None = None, lse: _Tensor | None = None,
        q_offsets: _Tensor | None = None, kv_offsets: _Tensor | None = None, kv_lengths: _Tensor | None = None,
        page_table: _Tensor | None = None, sinks: _Tensor | None = None, k_scale: _Tensor | None = None,
        v_scale: _Tensor | None = None, alibi_slopes: _Tensor | None = None, workspace: _Tensor | None = None,
        batch: int | None = None, q_len: int | None = None, kv_len: int | None = None, q_tokens: int | None = None,
        kv_tokens: int | None = None, page_table_stride: int | None = None, workspace_bytes: int | None = None,
        scale: float | None = None, softcap: float | None = None, window: Sequence[int] | None = None,
        sm_budget: int = 0, pdl: bool = False, q_rope: _Tensor | None = None, k_rope: _Tensor | None = None,
        q_scale: _Tensor | None = None, num_pages: int | None = None, zero_padding: bool = False,
        mask: _Tensor | None = None, bias: _Tensor | None = None, kv_starts: _Tensor | None = None,
    ) -> Launch: ...
    def launch(
        self, *, q: _Tensor, k: _Tensor, o: _Tensor, v: _Tensor | None = None, lse: _Tensor | None = None,
        q_offsets: _Tensor | None = None, kv_offsets: _Tensor | None = None, kv_lengths: _Tensor | None = None,
        page_table: _Tensor | None = None, sinks: _Tensor | None = None, k_scale: _Tensor | None = None,
        v_scale: _Tensor | None = None, alibi_slopes: _Tensor | None = None, workspace: _Tensor | None = None,
        batch: int | None = None, q_len: int | None = None, kv_len: int | None = None, q_tokens: int | None = None,
        kv_tokens: int | None = None, page_table_stride: int | None = None, workspace_bytes: int | None = None,
        scale: float | None = None, softcap: float | None = None, window: Sequence[int] | None = None,
        sm_budget: int = 0, pdl: bool = False, q_rope: _Tensor | None = None, k_rope: _Tensor | None = None,
        q_scale: _Tensor | None = None, num_pages: int | None = None, zero_padding: bool = False,
        mask: _Tensor | None = None, bias: _Tensor | None = None, kv_starts: _Tensor | None = None,
        stream: _Stream | None = None,
    ) -> None: ...
    def workspace_bytes(
        self, *, q: _Tensor, k: _Tensor, o: _Tensor, v: _Tensor | None = None, lse: _Tensor | None = None,
        q_offsets: _Tensor | None = None, kv_offsets: _Tensor | None = None, kv_lengths: _Tensor | None = None,
        page_table: _Tensor | None = None, sinks: _Tensor | None = None, k_scale: _Tensor | None = None,
        v_scale: _Tensor | None = None, alibi_slopes: _Tensor | None = None, workspace: _Tensor | None = None,
        batch: int | None = None, q_len: int | None = None, kv_len: int | None = None, q_tokens: int | None = None,
        kv_tokens: int | None = None, page_table_stride: int | None = None, workspace_bytes: int | None = None,
        scale: float | None = None, softcap: float | None = None, window: Sequence[int] | None = None,
        sm_budget: int = 0, pdl: bool = False, q_rope: _Tensor | None = None, k_rope: _Tensor | None = None,
        q_scale: _Tensor | None = None, num_pages: int | None = None, zero_padding: bool = False,
        mask: _Tensor | None = None, bias: _Tensor | None = None, kv_starts: _Tensor | None = None,
    ) -> int: ...
    def __call__(
        self, q: _Tensor, k: _Tensor, v: _Tensor, *, out: _Tensor | None = None, lse: _Tensor | None = None,
        q_offsets: _Tensor | None = None, kv_offsets: _Tensor | None = None, kv_lengths: _Tensor | None = None,
        page_table: _Tensor | None = None, sinks: _Tensor | None = None, k_scale: _Tensor | None = None,
        v_scale: _Tensor | None = None, alibi_slopes: _Tensor | None = None, workspace: _Tensor | None = None,
        batch: int | None = None, q_len: int | None = None, kv_len: int | None = None, q_tokens: int | None = None,
        kv_tokens: int | None = None, page_table_stride: int | None = None, workspace_bytes: int | None = None,
        scale: float | None = None, softcap: float | None = None, window: Sequence[int] | None = None,
        sm_budget: int = 0, pdl: bool = False, q_rope: _Tensor | None = None, k_rope: _Tensor | None = None,
        q_scale: _Tensor | None = None, num_pages: int | None = None, zero_padding: bool = False,
        mask: _Tensor | None = None, bias: _Tensor | None = None, kv_starts: _Tensor | None = None,
        stream: _Stream | None = None,
    ) -> Any: ...

class KvWriteKernel(_Handle):
    def bind(
        self, *, k: _Tensor, k_cache: _Tensor, v: _Tensor | None = None, v_cache: _Tensor | None = None,
        q: _Tensor | None = None, q_out: _Tensor | None = None, q_weight: _Tensor | None = None,
        k_weight: _Tensor | None = None, cos_sin: _Tensor | None = None, positions: _Tensor | None = None,
        slot_mapping: _Tensor | None = None, batch_indices: _Tensor | None = None, page_table: _Tensor | None = None,
        q_scale: _Tensor | None = None, k_scale: _Tensor | None = None, v_scale: _Tensor | None = None,
        tokens: int | None = None, num_pages: int | None = None, batch: int | None = None, kv_len: int | None = None,
        kv_tokens: int | None = None, page_table_stride: int | None = None, cos_sin_rows: int | None = None,
        position_bytes: int | None = None, eps: float | None = None, pdl: bool = False,
    ) -> KvWriteLaunch: ...
    def launch(
        self, *, k: _Tensor, k_cache: _Tensor, v: _Tensor | None = None, v_cache: _Tensor | None = None,
        q: _Tensor | None = None, q_out: _Tensor | None = None, q_weight: _Tensor | None = None,
        k_weight: _Tensor | None = None, cos_sin: _Tensor | None = None, positions: _Tensor | None = None,
        slot_mapping: _Tensor | None = None, batch_indices: _Tensor | None = None, page_table: _Tensor | None = None,
        q_scale: _Tensor | None = None, k_scale: _Tensor | None = None, v_scale: _Tensor | None = None,
        tokens: int | None = None, num_pages: int | None = None, batch: int | None = None, kv_len: int | None = None,
        kv_tokens: int | None = None, page_table_stride: int | None = None, cos_sin_rows: int | None = None,
        position_bytes: int | None = None, eps: float | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> None: ...
    @overload
    def __call__(
        self, q: _Tensor, k: _Tensor, v: _Tensor, k_cache: _Tensor, v_cache: _Tensor, *, q_out: _Tensor | None = None,
        q_weight: _Tensor | None = None, k_weight: _Tensor | None = None, cos_sin: _Tensor | None = None,
        positions: _Tensor | None = None, slot_mapping: _Tensor | None = None, batch_indices: _Tensor | None = None,
        page_table: _Tensor | None = None, q_scale: _Tensor | None = None, k_scale: _Tensor | None = None,
        v_scale: _Tensor | None = None, tokens: int | None = None, num_pages: int | None = None,
        batch: int | None = None, kv_len: int | None = None, kv_tokens: int | None = None,
        page_table_stride: int | None = None, cos_sin_rows: int | None = None, position_bytes: int | None = None,
        eps: float | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> Any: ...
    @overload
    def __call__(
        self, k: _Tensor, v: _Tensor, k_cache: _Tensor, v_cache: _Tensor, *, q: _Tensor | None = None,
        q_out: _Tensor | None = None, q_weight: _Tensor | None = None, k_weight: _Tensor | None = None,
        cos_sin: _Tensor | None = None, positions: _Tensor | None = None, slot_mapping: _Tensor | None = None,
        batch_indices: _Tensor | None = None, page_table: _Tensor | None = None, q_scale: _Tensor | None = None,
        k_scale: _Tensor | None = None, v_scale: _Tensor | None = None, tokens: int | None = None,
        num_pages: int | None = None, batch: int | None = None, kv_len: int | None = None, kv_tokens: int | None = None,
        page_table_stride: int | None = None, cos_sin_rows: int | None = None, position_bytes: int | None = None,
        eps: float | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> Any: ...
    @overload
    def __call__(
        self, q: _Tensor, k: _Tensor, k_cache: _Tensor, *, v: _Tensor | None = None, v_cache: _Tensor | None = None,
        q_out: _Tensor | None = None, q_weight: _Tensor | None = None, k_weight: _Tensor | None = None,
        cos_sin: _Tensor | None = None, positions: _Tensor | None = None, slot_mapping: _Tensor | None = None,
        batch_indices: _Tensor | None = None, page_table: _Tensor | None = None, q_scale: _Tensor | None = None,
        k_scale: _Tensor | None = None, v_scale: _Tensor | None = None, tokens: int | None = None,
        num_pages: int | None = None, batch: int | None = None, kv_len: int | None = None, kv_tokens: int | None = None,
        page_table_stride: int | None = None, cos_sin_rows: int | None = None, position_bytes: int | None = None,
        eps: float | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> Any: ...
    @overload
    def __call__(
        self, k: _Tensor, k_cache: _Tensor, *, v: _Tensor | None = None, v_cache: _Tensor | None = None,
        q: _Tensor | None = None, q_out: _Tensor | None = None, q_weight: _Tensor | None = None,
        k_weight: _Tensor | None = None, cos_sin: _Tensor | None = None, positions: _Tensor | None = None,
        slot_mapping: _Tensor | None = None, batch_indices: _Tensor | None = None, page_table: _Tensor | None = None,
        q_scale: _Tensor | None = None, k_scale: _Tensor | None = None, v_scale: _Tensor | None = None,
        tokens: int | None = None, num_pages: int | None = None, batch: int | None = None, kv_len: int | None = None,
        kv_tokens: int | None = None, page_table_stride: int | None = None, cos_sin_rows: int | None = None,
        position_bytes: int | None = None, eps: float | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> Any: ...

class KvWriteLaunch:
    kernel: KvWriteKernel
    tensors: dict[str, Any]
    def __call__(self, stream: _Stream | None = None) -> None: ...

class Launch:
    kernel: Kernel
    tensors: dict[str, Any]
    def __call__(self, stream: _Stream | None = None) -> None: ...
    def needed_workspace_bytes(self) -> int: ...

class MissingError(KernelwrightError): ...

class MoeCombineKernel(_Handle):
    def bind(
        self, *, rows: _Tensor, positions: _Tensor, weights: _Tensor | None = None, residual: _Tensor | None = None,
        out: _Tensor, num_rows: int | None = None, tokens: int | None = None, pdl: bool = False,
    ) -> MoeCombineLaunch: ...
    def launch(
        self, *, rows: _Tensor, positions: _Tensor, weights: _Tensor | None = None, residual: _Tensor | None = None,
        out: _Tensor, num_rows: int | None = None, tokens: int | None = None, pdl: bool = False,
        stream: _Stream | None = None,
    ) -> None: ...
    @overload
    def __call__(
        self, rows: _Tensor, positions: _Tensor, weights: _Tensor, *, residual: _Tensor | None = None,
        out: _Tensor | None = None, num_rows: int | None = None, tokens: int | None = None, pdl: bool = False,
        stream: _Stream | None = None,
    ) -> Any: ...
    @overload
    def __call__(
        self, rows: _Tensor, positions: _Tensor, *, weights: _Tensor | None = None, residual: _Tensor | None = None,
        out: _Tensor | None = None, num_rows: int | None = None, tokens: int | None = None, pdl: bool = False,
        stream: _Stream | None = None,
    ) -> Any: ...

class MoeCombineLaunch:
    kernel: MoeCombineKernel
    tensors: dict[str, Any]
    def __call__(self, stream: _Stream | None = None) -> None: ...

class MoeKernel(_Handle):
    def bind(
        self, *, x: _Tensor, logits: _Tensor | None = None, ids: _Tensor | None = None, weights: _Tensor | None = None,
        gate_up: _Tensor, down: _Tensor, out: _Tensor, bias: _Tensor | None = None, local_ids: _Tensor | None = None,
        gate_up_scale: _Tensor | None = None, gate_up_bias: _Tensor | None = None, down_scale: _Tensor | None = None,
        down_bias: _Tensor | None = None, residual: _Tensor | None = None, workspace: _Tensor | None = None,
        tokens: int | None = None, factor: float | None = None, workspace_bytes: int | None = None, pdl: bool = False,
    ) -> MoeLaunch: ...
    def launch(
        self, *, x: _Tensor, logits: _Tensor | None = None, ids: _Tensor | None = None, weights: _Tensor | None = None,
        gate_up: _Tensor, down: _Tensor, out: _Tensor, bias: _Tensor | None = None, local_ids: _Tensor | None = None,
        gate_up_scale: _Tensor | None = None, gate_up_bias: _Tensor | None = None, down_scale: _Tensor | None = None,
        down_bias: _Tensor | None = None, residual: _Tensor | None = None, workspace: _Tensor | None = None,
        tokens: int | None = None, factor: float | None = None, workspace_bytes: int | None = None, pdl: bool = False,
        stream: _Stream | None = None,
    ) -> None: ...
    def workspace_bytes(self, tokens: int) -> int: ...
    @overload
    def __call__(
        self, x: _Tensor, logits: _Tensor, gate_up: _Tensor, down: _Tensor, *, ids: _Tensor | None = None,
        weights: _Tensor | None = None, out: _Tensor | None = None, bias: _Tensor | None = None,
        local_ids: _Tensor | None = None, gate_up_scale: _Tensor | None = None, gate_up_bias: _Tensor | None = None,
        down_scale: _Tensor | None = None, down_bias: _Tensor | None = None, residual: _Tensor | None = None,
        workspace: _Tensor | None = None, tokens: int | None = None, factor: float | None = None,
        workspace_bytes: int | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> Any: ...
    @overload
    def __call__(
        self, x: _Tensor, ids: _Tensor, weights: _Tensor, gate_up: _Tensor, down: _Tensor, *,
        logits: _Tensor | None = None, out: _Tensor | None = None, bias: _Tensor | None = None,
        local_ids: _Tensor | None = None, gate_up_scale: _Tensor | None = None, gate_up_bias: _Tensor | None = None,
        down_scale: _Tensor | None = None, down_bias: _Tensor | None = None, residual: _Tensor | None = None,
        workspace: _Tensor | None = None, tokens: int | None = None, factor: float | None = None,
        workspace_bytes: int | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> Any: ...

class MoeLaunch:
    kernel: MoeKernel
    tensors: dict[str, Any]
    def __call__(self, stream: _Stream | None = None) -> None: ...
    def needed_workspace_bytes(self) -> int: ...

class NotReadyError(KernelwrightError): ...

class Plan(dict[str, Any]):
    def configs(self) -> dict[str, dict[str, Any]]: ...

class QuantizeKernel(_Handle):
    def scale_bytes(self, rows: int, k: int) -> int: ...
    def launch(
        self, *, x: _Tensor, elements: _Tensor, scales: _Tensor, rows: int | None = None, k: int | None = None,
        tensor_scale: float = 1.0, pdl: bool = False, stream: _Stream | None = None,
    ) -> None: ...
    def __call__(
        self, x: _Tensor, *, elements: _Tensor | None = None, scales: _Tensor | None = None, rows: int | None = None,
        k: int | None = None, tensor_scale: float = 1.0, pdl: bool = False, stream: _Stream | None = None,
    ) -> tuple[Any, Any]: ...

class RouteKernel(_Handle):
    def bind(
        self, *, logits: _Tensor | None = None, bias: _Tensor | None = None, local_ids: _Tensor | None = None,
        ids: _Tensor, weights: _Tensor | None = None, starts: _Tensor | None = None, source_rows: _Tensor | None = None,
        positions: _Tensor | None = None, sorted_weights: _Tensor | None = None, workspace: _Tensor | None = None,
        tokens: int | None = None, factor: float | None = None, workspace_bytes: int | None = None, pdl: bool = False,
    ) -> RouteLaunch: ...
    def launch(
        self, *, logits: _Tensor | None = None, bias: _Tensor | None = None, local_ids: _Tensor | None = None,
        ids: _Tensor, weights: _Tensor | None = None, starts: _Tensor | None = None, source_rows: _Tensor | None = None,
        positions: _Tensor | None = None, sorted_weights: _Tensor | None = None, workspace: _Tensor | None = None,
        tokens: int | None = None, factor: float | None = None, workspace_bytes: int | None = None, pdl: bool = False,
        stream: _Stream | None = None,
    ) -> None: ...
    def __call__(
        self, logits: _Tensor, *, bias: _Tensor | None = None, local_ids: _Tensor | None = None,
        ids: _Tensor | None = None, weights: _Tensor | None = None, starts: _Tensor | None = None,
        source_rows: _Tensor | None = None, positions: _Tensor | None = None, sorted_weights: _Tensor | None = None,
        workspace: _Tensor | None = None, tokens: int | None = None, factor: float | None = None,
        workspace_bytes: int | None = None, pdl: bool = False, stream: _Stream | None = None,
    ) -> Any: ...

class RouteLaunch:
    kernel: RouteKernel
    tensors: dict[str, Any]
    def __call__(self, stream: _Stream | None = None) -> None: ...
    def needed_workspace_bytes(self) -> int: ...

class RowOpKernel(_Handle):
    def bind(
        self, *, x: _Tensor, residual: _Tensor | None = None, out: _Tensor, residual_out: _Tensor | None = None,
        weight: _Tensor | None = None, scale: _Tensor | None = None, rows: int | None = None, eps: float | None = None,
        gate_alpha: float | None = None, gate_limit: float | None = None, tensor_scale: float | None = None,
        pdl: bool = False, constant_weight: bool = False, lse: _Tensor | None = None,
        residual_lse: _Tensor | None = None, lse_out: _Tensor | None = None,
    ) -> RowOpLaunch: ...
    def launch(
        self, *, x: _Tensor, residual: _Tensor | None = None, out: _Tensor, residual_out: _Tensor | None = None,
        weight: _Tensor | None = None, scale: _Tensor | None = None, rows: int | None = None, eps: float | None = None,
        gate_alpha: float | None = None, gate_limit: float | None = None, tensor_scale: float | None = None,
        pdl: bool = False, constant_weight: bool = False, lse: _Tensor | None = None,
        residual_lse: _Tensor | None = None, lse_out: _Tensor | None = None, stream: _Stream | None = None,
    ) -> None: ...
    @overload
    def __call__(
        self, x: _Tensor, *, residual: _Tensor | None = None, out: _Tensor | None = None,
        residual_out: _Tensor | None = None, weight: _Tensor | None = None, scale: _Tensor | None = None,
        rows: int | None = None, eps: float | None = None, gate_alpha: float | None = None,
        gate_limit: float | None = None, tensor_scale: float | None = None, pdl: bool = False,
        constant_weight: bool = False, lse: _Tensor | None = None, residual_lse: _Tensor | None = None,
        lse_out: _Tensor | None = None, stream: _Stream | None = None,
    ) -> Any: ...
    @overload
    def __call__(
        self, x: _Tensor, residual: _Tensor, *, out: _Tensor | None = None, residual_out: _Tensor | None = None,
        weight: _Tensor | None = None, scale: _Tensor | None = None, rows: int | None = None, eps: float | None = None,
        gate_alpha: float | None = None, gate_limit: float | None = None, tensor_scale: float | None = None,
        pdl: bool = False, constant_weight: bool = False, lse: _Tensor | None = None,
        residual_lse: _Tensor | None = None, lse_out: _Tensor | None = None, stream: _Stream | None = None,
    ) -> Any: ...

class RowOpLaunch:
    kernel: RowOpKernel
    tensors: dict[str, Any]
    def __call__(self, stream: _Stream | None = None) -> None: ...

__version__: str
__all__ = [
    "Array", "CompileError", "ConfigError", "DeviceError", "Engine", "GemmKernel", "GemmLaunch", "InternalError",
    "Kernel", "KernelwrightError", "KvWriteKernel", "KvWriteLaunch", "Launch", "MissingError", "MoeCombineKernel",
    "MoeCombineLaunch", "MoeKernel", "MoeLaunch", "NotReadyError", "Plan", "QuantizeKernel", "RouteKernel",
    "RouteLaunch", "RowOpKernel", "RowOpLaunch", "__version__", "fast_calls", "kernel_origin", "plan", "rope_table",
    "version",
]
def fast_calls() -> dict[str, Any]: ...
def kernel_origin(library: _Path | None = None) -> str: ...
def plan(
    config: Mapping[str, Any] | _Path | _ModelConfig, *, tp: int = 1, ep: int = 1, kv: str | None = None,
    kv_scales: Literal["per_tensor", "per_head", "per_token"] | None = None, max_seqs: int = 256,
    max_tokens: int = 8192, server: Literal["vllm", "sglang", "hf"] = "vllm", page_size: int | None = None,
    archs: str | Sequence[str] | None = None, name: str | None = None,
) -> Plan: ...
def rope_table(
    width: int, rows: int, *, first: int = 0,
    scaling: Literal["default", "llama3", "yarn", "longrope", "proportional"] = "default", theta: float = 10000.0,
    factor: float = 1.0, original_positions: int = 0, low: float = 1.0, high: float = 4.0, beta_fast: float = 32.0,
    beta_slow: float = 1.0, truncate: bool = True, mscale: float = 0.0, mscale_all: float = 0.0, share: float = 1.0,
    attention_factor: float | None = None, factors: Sequence[float] = (), library: _Path | None = None,
) -> memoryview: ...
def version(library: _Path | None = None) -> str: ...
