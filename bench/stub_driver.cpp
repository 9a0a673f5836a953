// A driver whose calls succeed and do nothing, so a launch takes the engine's own time alone. launch_bench.cpp opens it
// in place of libcuda.so.1. Every entry point that is not defined here is a function that returns 0, CUDA_SUCCESS.
#include <cstdio>
#include <cstring>

namespace {

using Result = int;
void* const kContext = reinterpret_cast<void*>(0x1000);

Result succeed() { return 0; }
Result driver_version(int* version) { return *version = 12080, 0; }
Result device_count(int* count) { return *count = 1, 0; }
Result device_get(int* device, int ordinal) { return *device = ordinal, 0; }
Result device_name(char* name, int length, int) {
  return std::snprintf(name, static_cast<std::size_t>(length), "stub"), 0;
}
Result device_attribute(int* value, int attribute, int) {
  switch (attribute) {                // values of CUdevice_attribute
    case 75: *value = 9; break;       // compute capability, major
    case 76: *value = 0; break;       // minor
    case 16: *value = 132; break;     // multiprocessors
    case 97: *value = 232448; break;  // shared bytes of a CTA with opt-in
    default: *value = 1; break;
  }
  return 0;
}
Result total_memory(std::size_t* bytes, int) { return *bytes = std::size_t{80} << 30, 0; }
Result retain(void** context, int) { return *context = kContext, 0; }
Result current(void** context) { return *context = kContext, 0; }
Result no_param_info(void*, std::size_t, std::size_t*, std::size_t*) { return 1; }  // CUDA_ERROR_INVALID_VALUE
Result get_attribute(int* value, int, void*) { return *value = 0, 0; }
Result make_object(void** object) { return *object = kContext, 0; }
Result make_kernel(void** object, void*, const char*) { return *object = kContext, 0; }
Result capturing(void*, int* status) { return *status = 0, 0; }

struct Entry {
  const char* name;
  void* function;
};
template <class F>
void* address(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

/// cuLaunchKernelEx itself: the bench subtracts its time.
extern "C" Result stub_launch(const void*, void*, void**, void**) { return 0; }

extern "C" Result cuGetProcAddress_v2(const char* name, void** found, int, unsigned long long, void*) {
  const Entry entries[] = {{"cuDriverGetVersion", address(driver_version)},
                           {"cuDeviceGetCount", address(device_count)},
                           {"cuDeviceGet", address(device_get)},
                           {"cuDeviceGetName", address(device_name)},
                           {"cuDeviceGetAttribute", address(device_attribute)},
                           {"cuDeviceTotalMem", address(total_memory)},
                           {"cuDevicePrimaryCtxRetain", address(retain)},
                           {"cuCtxGetCurrent", address(current)},
                           {"cuFuncGetParamInfo", address(no_param_info)},
                           {"cuFuncGetAttribute", address(get_attribute)},
                           {"cuLibraryLoadData", address(make_object)},
                           {"cuLibraryGetKernel", address(make_kernel)},
                           {"cuKernelGetFunction", address(make_object)},
                           {"cuStreamIsCapturing", address(capturing)},
                           {"cuLaunchKernelEx", address(stub_launch)}};
  *found = address(succeed);
  for (const Entry& entry : entries)
    if (std::strcmp(entry.name, name) == 0) *found = entry.function;
  return 0;
}
