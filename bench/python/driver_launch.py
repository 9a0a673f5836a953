"""The driver's own launch of a kernel that reads nothing, from C: the floor under every call of bench/python/calls.py.
Needs a C compiler, as Triton does."""
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from read_stream import THREADS, ReadStream  # noqa: E402

LAUNCHES = 8  # of one call, so that Python's part of it is small; few, so that no call waits for a full queue
SOURCE = """
typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
int burst(Launch launch, void* function, unsigned threads, void* stream, void** parameters, int times) {
  int status = 0;
  for (int i = 0; i < times && !status; ++i) status = launch(function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, 0);
  return status;
}
"""


def bursts():
    """A callable that queues LAUNCHES launches."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "burst.c"), pathlib.Path(folder, "burst.so")
        source.write_text(SOURCE, encoding="utf-8")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        burst = ctypes.CDLL(str(library)).burst
    stream = ReadStream()
    numbers = [ctypes.c_uint64(0) for _ in range(3)]
    parameters = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(n), ctypes.c_void_p) for n in numbers))
    raw = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    launch = ctypes.cast(stream.driver.cuLaunchKernel, ctypes.c_void_p)

    def call():
        stream.check(burst(launch, stream.function, THREADS, raw, parameters, LAUNCHES), "cuLaunchKernel")
    call.keep = numbers
    return call
