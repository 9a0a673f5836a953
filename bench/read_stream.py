"""A kernel that reads and does nothing else: the bandwidth with which a decode is compared. It uses NVRTC and the
driver through ctypes.

Two CTAs per SM and 16-byte loads were the fastest of 1, 2, 4 and 8 CTAs: 3094 GB/s over 8 GiB on an H100 80GB HBM3.
"""
import ctypes
import glob
import os
import sys

SOURCE = br"""
struct alignas(16) Vector { unsigned x, y, z, w; };
__device__ Vector load(const Vector* p) {
  Vector v;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
extern "C" __global__ void __launch_bounds__(512, 2) read_stream(const Vector* data, unsigned long long count, Vector* out) {
  constexpr int kInFlight = 8;
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  Vector sum = {0, 0, 0, 0};
  Vector some[kInFlight];
  for (; i + (kInFlight - 1) * step < count; i += kInFlight * step) {
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) some[j] = load(data + i + j * step);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
      sum.x ^= some[j].x, sum.y ^= some[j].y, sum.z ^= some[j].z, sum.w ^= some[j].w;
  }
  for (; i < count; i += step) {
    some[0] = load(data + i);
    sum.x ^= some[0].x, sum.y ^= some[0].y, sum.z ^= some[0].z, sum.w ^= some[0].w;
  }
  if (out) *out = sum;  // null: nothing is written, and the compiler cannot know
}
"""
THREADS, CTAS_PER_SM = 512, 2


def _nvrtc():
    named = os.environ.get("KERNELWRIGHT_NVRTC", "")
    places = [named] if named and not os.path.isdir(named) else []
    folders = [named] if named else []
    folders += [found for root in sys.path for found in glob.glob(os.path.join(root, "nvidia", "*", "lib"))]
    for folder in folders + ["/usr/local/cuda/lib64", ""]:
        places += [os.path.join(folder, name) for name in ("libnvrtc.so.13", "libnvrtc.so.12")]
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    raise RuntimeError("no libnvrtc.so.13 or .12 was found; set KERNELWRIGHT_NVRTC to it or its folder")


def compile_cubin(arch):
    nvrtc, program = _nvrtc(), ctypes.c_void_p()

    def check(status, call):
        if status != 0:
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(max(1, size.value))
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"{call} says {status}: {log.value.decode(errors='replace')}")

    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"read_stream.cu", 0, None, None), "nvrtcCreateProgram")
    options = (ctypes.c_char_p * 2)(b"--gpu-architecture=" + arch.encode(), b"--std=c++17")
    check(nvrtc.nvrtcCompileProgram(program, len(options), options), "nvrtcCompileProgram")
    size = ctypes.c_size_t()
    check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
    cubin = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetCUBIN(program, cubin), "nvrtcGetCUBIN")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin


class ReadStream:
    """Loads the kernel into the current context (torch's). Calling it queues one pass over `bytes` from `address`."""

    def __init__(self):
        import torch
        major, minor = torch.cuda.get_device_capability()
        torch.cuda.synchronize()  # makes the context current
        self.sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        self.driver = ctypes.CDLL("libcuda.so.1")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), compile_cubin(f"sm_{major}{minor}")), "cuModuleLoadData")
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, b"read_stream"), "cuModuleGetFunction")

    @staticmethod
    def check(status, call):
        if status != 0:
            raise RuntimeError(f"{call} says {status}")

    def __call__(self, address, size, stream):
        if address % 16 or size % 16:
            raise RuntimeError(f"{size} bytes from {address:#x} are no whole 16-byte words")
        arguments = (ctypes.c_uint64(address), ctypes.c_uint64(size // 16), ctypes.c_uint64(0))
        pointers = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments))
        self.check(self.driver.cuLaunchKernel(self.function, self.sms * CTAS_PER_SM, 1, 1, THREADS, 1, 1, 0,
                                              ctypes.c_void_p(stream), pointers, None), "cuLaunchKernel")
