"""What a call needs of the framework whose tensors it gets: new tensors, and the current stream. No framework is imported
here: a tensor of torch shows that torch is loaded."""
import concurrent.futures
import ctypes
import sys

from ._errors import ConfigError

TORCH_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
                "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool"}

CAPTURE_ERRORS = range(900, 909)  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD


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


def lasting(name, like, size):
    """Memory of `size` bytes beside `like` that outlives the call, on the current stream. While torch.compile warms up a CUDA
    graph, torch takes all that this thread allocates from the graph's pool, and none of it may stay. So another thread
    allocates."""
    torch = torch_of(like)
    if torch is None or not like.is_cuda:
        return empty(name, like, (size,), "u8")
    stream = torch.cuda.current_stream(like.device)

    def allocate():
        with torch.cuda.stream(stream):
            return torch.empty(size, dtype=torch.uint8, device=like.device)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(allocate).result()


def of_capture(name, like, size):
    """Memory of `size` bytes beside `like`, of the graph that torch.cuda.graph() captures in this thread. It lies in the graph's pool
    for as long as it is kept."""
    return empty(name, like, (size,), "u8")


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
    error = driver.cuStreamIsCapturing(ctypes.c_void_p(stream or None), ctypes.byref(status))
    # The legacy stream cannot be asked while another one captures: that is an error of capturing, and the answer is yes.
    # Any other error, as on a thread that has no context of the driver, says that nothing captures.
    return error in CAPTURE_ERRORS or (error == 0 and status.value != 0)
