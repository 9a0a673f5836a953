/// The driver API's entry points, found at run time: libcuda is opened on first use and never linked.
/// Include <cuda.h> first; only .cpp files of runtime/ do.
#pragma once

#ifndef CUDA_VERSION
#error "include <cuda.h> before driver.h"
#endif

#include <concepts>
#include <string>
#include <string_view>

#include "kernelwright/runtime/cuda/cuda_backend.h"

namespace kernelwright {

/// X(call, CUDA version of the form that we use, whether it is required). Calls that are not required are null on older
/// drivers.
#define KERNELWRIGHT_DRIVER_CALLS(X)                         \
  X(cuInit, 2000, true)                                      \
  X(cuDriverGetVersion, 2020, true)                          \
  X(cuGetErrorName, 6000, true)                              \
  X(cuGetErrorString, 6000, true)                            \
  X(cuDeviceGetCount, 2000, true)                            \
  X(cuDeviceGet, 2000, true)                                 \
  X(cuDeviceGetName, 2000, true)                             \
  X(cuDeviceGetAttribute, 2000, true)                        \
  X(cuDeviceTotalMem, 3020, true)                            \
  X(cuDeviceGetPCIBusId, 4010, false)                        \
  X(cuDevicePrimaryCtxRetain, 7000, true)                    \
  X(cuDevicePrimaryCtxRelease, 11000, true)                  \
  X(cuCtxGetCurrent, 4000, true)                             \
  X(cuCtxPushCurrent, 4000, true)                            \
  X(cuCtxPopCurrent, 4000, true)                             \
  X(cuMemAlloc, 3020, true)                                  \
  X(cuMemFree, 3020, true)                                   \
  X(cuMemcpyHtoD, 3020, true)                                \
  X(cuMemcpyDtoH, 3020, true)                                \
  X(cuMemsetD8Async, 3020, true)                             \
  X(cuModuleLoadData, 2000, true)                            \
  X(cuModuleUnload, 2000, true)                              \
  X(cuModuleGetFunction, 2000, true)                         \
  X(cuFuncSetAttribute, 9000, true)                          \
  X(cuFuncGetAttribute, 2020, true)                          \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, true) \
  X(cuOccupancyMaxActiveClusters, 11070, false)              \
  X(cuLaunchKernelEx, 11060, true)                           \
  X(cuStreamCreate, 2000, true)                              \
  X(cuStreamDestroy, 4000, true)                             \
  X(cuStreamSynchronize, 2000, true)                         \
  X(cuStreamIsCapturing, 10000, true)                        \
  X(cuStreamBeginCapture, 10010, true)                       \
  X(cuStreamEndCapture, 10000, true)                         \
  X(cuThreadExchangeStreamCaptureMode, 10010, true)          \
  X(cuGraphInstantiateWithFlags, 11040, true)                \
  X(cuGraphLaunch, 10000, true)                              \
  X(cuGraphDestroy, 10000, true)                             \
  X(cuGraphExecDestroy, 10000, true)                         \
  X(cuEventCreate, 2000, true)                               \
  X(cuEventDestroy, 4000, true)                              \
  X(cuEventRecord, 2000, true)                               \
  X(cuEventSynchronize, 2000, true)                          \
  X(cuEventElapsedTime, 2000, true)                          \
  X(cuLibraryLoadData, 12000, false)                         \
  X(cuLibraryUnload, 12000, false)                           \
  X(cuLibraryGetKernel, 12000, false)                        \
  X(cuKernelGetFunction, 12000, false)                       \
  X(cuTensorMapEncodeTiled, 12000, false)                    \
  X(cuFuncLoad, 12040, false)                                \
  X(cuFuncGetParamInfo, 12040, false)

struct Driver {
#define KERNELWRIGHT_DRIVER_MEMBER(call, version, required) decltype(&::call) call = nullptr;
  KERNELWRIGHT_DRIVER_CALLS(KERNELWRIGHT_DRIVER_MEMBER)
#undef KERNELWRIGHT_DRIVER_MEMBER

  int version = 0;   // 12080: CUDA 12.8
  std::string path;  // the library that was opened

  /// "12.8"
  std::string version_text() const;

  /// Throws DeviceError "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory, allocating 80 bytes" unless
  /// `result` is success. `what`: a present participle phrase, or a callable that returns one (called on failure only).
  void check(CUresult result, const char* call, std::string_view what) const {
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(result, call, what);
  }
  template <std::invocable What>
  void check(CUresult result, const char* call, What&& what) const {
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(result, call, what());
  }
  [[noreturn]] void fail(CUresult result, const char* call, std::string_view what) const;

  /// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
  std::string describe(CUresult result) const;
};

/// Throws DeviceError in a child that was forked after a driver was opened: CUDA does not survive fork(), and a call
/// may hang. Costs one load.
void refuse_after_fork();
bool forked_after_open() noexcept;

}  // namespace kernelwright
