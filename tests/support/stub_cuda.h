/// What a test sets in the stub driver (stub_cuda.cpp) and reads back from it. Plain C data, shared by both sides.
#pragma once

#include <cstddef>
#include <cstdint>

/// One recorded cuLaunchKernelEx.
struct StubLaunch {
  std::uint32_t grid[3], block, shared_bytes;
  std::uint32_t cluster[3];  // 0 if the launch had no such attribute
  bool pdl;
  void* stream;
  void* function;
  unsigned char params[64];  // the first bytes of the one argument
  void* context;             // the current one
};

struct StubState {
  int device_count = 1;
  int init_result = 0;
  int driver_version = 12080;
  const char* failing_call = nullptr;  // the call with this name returns failing_result
  int failing_result = 0;
  std::size_t param_size = 16;  // what cuFuncGetParamInfo reports for argument 0
  int capture_status = 0;       // CUstreamCaptureStatus of every stream that was not captured through the stub
  int launches = 0;
  StubLaunch last_launch = {};
  int loads = 0, unloads = 0, func_loads = 0;
  int max_shared = 0, carveout = 0;  // last function attributes
  int encodes = 0;
  int retains = 0, releases = 0;
  int pushes = 0, pops = 0;
  int mode_exchanges = 0;
  int allocations = 0, frees = 0;
  int fills = 0, copies = 0;
  int graph_launches = 0;
};
