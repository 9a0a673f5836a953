"""What a call needs of the framework whose tensors it gets: new tensors, and the current stream. No framework is imported
here: a tensor of torch shows that torch is loaded."""
import ctypes
import sys

from ._errors import ConfigError

TORCH_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
                "i32": "int32", "u8": "uint8", "bool": "bool"}


def torch_of(tensor):
    """The module torch if `tensor` is one of its tensors, else None."""
    torch = sys.modules.get("torch")
    return torch if isinstance(tensor, getattr(torch, "Tensor", ())) else None


def empty(name, like, shape, dtype):
    """An uninitialised tensor beside `like`, for the argument `name`."""
    torch = torch_of(like)
    if torch:
        return torch.empty(shape, dtype=getattr(torch, TORCH_DTYPES[dtype]), device=like.device)
    engine = getattr(like, "engine", None)
    if engine is not None and hasattr(like, "_kernelwright_view"):
        return engine.empty(shape, dtype, device=like.device)
    raise ConfigError(f"{name}: is missing; a {type(like).__name__} does not tell how another is allocated, so give {name}")


def current_stream(like, device):
    """The address of the stream on which the framework of `like` works now; None: the default stream."""
    torch = torch_of(like)
    if torch and like.is_cuda:
        return torch.cuda.current_stream(device).cuda_stream
    cupy = sys.modules.get("cupy")
    if isinstance(like, getattr(cupy, "ndarray", ())):
        return cupy.cuda.get_current_stream().ptr
    return None


def is_capturing(stream):
    """Whether the stream captures a CUDA graph. The driver is asked; without one nothing captures."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    status = ctypes.c_int(0)
    # The legacy stream cannot be asked while another one captures: that is an error, and the answer is yes.
    return driver.cuStreamIsCapturing(ctypes.c_void_p(stream or None), ctypes.byref(status)) != 0 or status.value != 0
