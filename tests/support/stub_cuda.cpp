// A libcuda that only records calls: the entry points that driver.h lists, over host memory. It is built three times:
// as a current driver, as one from before cuGetProcAddress_v2 and cuLibrary* (STUB_OLD), and as one from before
// cuLaunchKernelEx (STUB_ANCIENT).
#include "support/stub_cuda.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

namespace {

StubState state;
std::set<CUstream> capturing;
thread_local CUcontext stack[16];
thread_local int depth = 0;
thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUcontext const kPrimary = reinterpret_cast<CUcontext>(0x1000);

CUresult result_of(const char* call) {
  if (state.failing_call && std::strcmp(state.failing_call, call) == 0)
    return static_cast<CUresult>(state.failing_result);
  return CUDA_SUCCESS;
}
CUresult in_context(const char* call) {
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return result_of(call);
}

}  // namespace

extern "C" {

StubState* stub_state() { return &state; }
void stub_reset() {
  state = StubState{};
  capturing.clear();
  depth = 0;
}
void* stub_primary() { return kPrimary; }
void stub_set_current(void* context) {
  depth = context ? 1 : 0;
  stack[0] = static_cast<CUcontext>(context);
}
void* stub_current() { return depth ? stack[depth - 1] : nullptr; }

CUresult cuInit(unsigned) { return static_cast<CUresult>(state.init_result); }
CUresult cuDriverGetVersion(int* version) {
  *version = state.driver_version;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_IMAGE: *text = "CUDA_ERROR_INVALID_IMAGE"; return CUDA_SUCCESS;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: *text = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  if (error == CUDA_ERROR_ILLEGAL_ADDRESS)
    *text = "an illegal memory access was encountered";
  else if (error == CUDA_ERROR_OUT_OF_MEMORY)
    *text = "out of memory";
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = state.device_count;
  return result_of("cuDeviceGetCount");
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  std::snprintf(name, static_cast<std::size_t>(length), "Stub %d", device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
    default: *value = 1; break;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = std::size_t{80} << 30;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  ++state.retains;
  *context = kPrimary;
  return result_of("cuDevicePrimaryCtxRetain");
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  ++state.releases;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = depth ? stack[depth - 1] : nullptr;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  ++state.pushes;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  ++state.pops;
  *context = stack[--depth];
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  if (const CUresult result = in_context("cuMemAlloc")) return result;
  ++state.allocations;
  *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  ++state.frees;
  std::free(reinterpret_cast<void*>(address));
  return in_context("cuMemFree");
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  if (const CUresult result = in_context("cuMemcpyHtoD")) return result;
  ++state.copies;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  if (const CUresult result = in_context("cuMemcpyDtoH")) return result;
  ++state.copies;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char byte, std::size_t bytes, CUstream) {
  if (const CUresult result = in_context("cuMemsetD8Async")) return result;
  ++state.fills;
  std::memset(reinterpret_cast<void*>(address), byte, bytes);
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void*) {
  if (const CUresult result = in_context("cuModuleLoadData")) return result;
  ++state.loads;
  *module = reinterpret_cast<CUmodule>(0x2000);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) {
  ++state.unloads;
  return in_context("cuModuleUnload");
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  *function = reinterpret_cast<CUfunction>(0x3000);
  return result_of("cuModuleGetFunction");
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) state.max_shared = value;
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) state.carveout = value;
  return in_context("cuFuncSetAttribute");
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* ctas, CUfunction, int block, std::size_t) {
  *ctas = 2048 / block;
  return in_context("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}
#ifndef STUB_ANCIENT
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params, void**) {
  if (const CUresult result = in_context("cuLaunchKernelEx")) return result;
  ++state.launches;
  StubLaunch& launch = state.last_launch;
  launch = {{config->gridDimX, config->gridDimY, config->gridDimZ},
            config->blockDimX * config->blockDimY * config->blockDimZ,
            config->sharedMemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      launch.cluster[0] = attribute.value.clusterDim.x;
      launch.cluster[1] = attribute.value.clusterDim.y;
      launch.cluster[2] = attribute.value.clusterDim.z;
    }
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      launch.pdl = attribute.value.programmaticStreamSerializationAllowed != 0;
  }
  launch.stream = config->hStream;
  launch.function = function;
  launch.context = stub_current();
  std::memcpy(launch.params, params[0], state.param_size);
  return CUDA_SUCCESS;
}
#endif
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  static std::uintptr_t next = 0x5000;
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = reinterpret_cast<CUstream>(next += 16);
  return in_context("cuStreamCreate");
}
CUresult cuStreamDestroy(CUstream) { return in_context("cuStreamDestroy"); }
CUresult cuStreamSynchronize(CUstream) { return in_context("cuStreamSynchronize"); }
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = capturing.count(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                    : static_cast<CUstreamCaptureStatus>(state.capture_status);
  return in_context("cuStreamIsCapturing");
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode how) {
  if (!stream || how != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  capturing.insert(stream);
  return in_context("cuStreamBeginCapture");
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  capturing.erase(stream);
  *graph = reinterpret_cast<CUgraph>(0x7000);
  return in_context("cuStreamEndCapture");
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* exchanged) {
  ++state.mode_exchanges;
  const CUstreamCaptureMode before = mode;
  mode = *exchanged;
  *exchanged = before;
  return CUDA_SUCCESS;
}
int stub_capture_mode() { return mode; }
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph, unsigned long long) {
  *executable = reinterpret_cast<CUgraphExec>(0x8000);
  return result_of("cuGraphInstantiateWithFlags");
}
CUresult cuGraphLaunch(CUgraphExec, CUstream) {
  ++state.graph_launches;
  return in_context("cuGraphLaunch");
}
CUresult cuGraphDestroy(CUgraph) { return CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(0x9000);
  return in_context("cuEventCreate");
}
CUresult cuEventDestroy(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return in_context("cuEventRecord"); }
CUresult cuEventSynchronize(CUevent) { return in_context("cuEventSynchronize"); }
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 1.5f;
  return CUDA_SUCCESS;
}

#if !defined(STUB_OLD) && !defined(STUB_ANCIENT)
CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                           unsigned) {
  if (const CUresult result = in_context("cuLibraryLoadData")) return result;
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  ++state.loads;
  *library = reinterpret_cast<CUlibrary>(0xa000);
  return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) {
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  ++state.unloads;
  return in_context("cuLibraryUnload");
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) {
  *kernel = reinterpret_cast<CUkernel>(0xb000);
  return result_of("cuLibraryGetKernel");
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel) {
  *function = reinterpret_cast<CUfunction>(0xc000);
  return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction) {
  ++state.func_loads;
  return in_context("cuFuncLoad");
}
CUresult cuFuncGetParamInfo(CUfunction, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (index != 0) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *size = state.param_size;
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t, void* address,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  ++state.encodes;
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &address, sizeof address);
  std::memcpy(reinterpret_cast<char*>(map) + sizeof address, &type, sizeof type);
  return result_of("cuTensorMapEncodeTiled");
}
CUresult cuGetProcAddress(const char* symbol, void** entry, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* status) {
  if (version > state.driver_version) return CUDA_ERROR_NOT_FOUND;
  Dl_info here;
  dladdr(reinterpret_cast<void*>(&stub_reset), &here);
  void* const library = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *entry = dlsym(library, (std::string(symbol) + "_v2").c_str());
  if (!*entry) *entry = dlsym(library, symbol);
  *status = *entry ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
#endif

}  // extern "C"
