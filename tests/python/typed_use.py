"""A program that mypy checks, strictly, against the stubs of the package (tests/setup/wheel.sh). Each line with an ignored
error has that error: mypy reports an ignore that is not needed. Nothing runs this file."""
from kernelwright import Array, ConfigError, Engine, GemmKernel, Kernel, KvWriteKernel, Plan, QuantizeKernel, fast_calls, plan


class Tensor:
    """As frameworks write it."""

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Stream:
    cuda_stream: int = 0


def attention(engine: Engine, q: Tensor, k: Array, v: int) -> int:
    kernel: Kernel = engine.prepare({"problem": {"heads": {"q": 1, "kv": 1}}}, on_miss="fallback")
    kernel(q, k, v, out=q, stream=Stream(), window=(127, 0), scale=0.5)
    kernel(q, k, v, out=q, scale="half")  # type: ignore[arg-type]
    kernel(q, k)  # type: ignore[call-arg]
    kernel(q, k, v, outt=q)  # type: ignore[call-arg]
    kernel(q, k, "v")  # type: ignore[arg-type]
    launch = kernel.bind(q=q, k=k, v=v, o=q, kv_lengths=k)
    launch(stream=None)
    kernel.launch(q=q, k=k, v=v, o=q, stream=3)
    state: str = kernel.state
    return launch.needed_workspace_bytes() + kernel.workspace_bytes(q=q, k=k, v=v, o=q) + len(state)


def others(engine: Engine) -> dict[str, int]:
    gemm: GemmKernel = engine.prepare("gemm.json")
    gemm(1, 2, out=3, m=4, alpha=2.0)
    quantize: QuantizeKernel = engine.prepare_quantize("bf16", "mxfp8")
    engine.prepare_quantize("bf16", "mxfp9")  # type: ignore[arg-type]
    elements, scales = quantize(engine.empty((4, 32), "bf16"))
    write: KvWriteKernel = engine.prepare("kv-write.json")
    write(1, 2, 3, 4, 5, slot_mapping=6)
    write(2, 3, 4, 5, slot_mapping=6)
    write(2, 3, slot_mapping=6)
    write(2, slot_mapping=6)  # type: ignore[call-overload]
    write.bind(k=1, v=2, k_cache=3, v_cache=4)(stream=None)
    made: Plan = plan("config.json", tp=2, archs=["sm_90a"])
    plan(3)  # type: ignore[arg-type]
    assert fast_calls()["fast"] and made.configs() and elements and scales
    try:
        Engine("gpu")  # type: ignore[arg-type]
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return engine.counters()
