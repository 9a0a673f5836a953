/* Kernelwright inside a C program: libkernelwright_c and device pointers from the driver API, which is opened by hand
 * so that the example builds where no CUDA toolkit is. Exits 3 where no GPU is. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernelwright/runtime/c_api.h"

enum { kLen = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 128 };

static const char kConfig[] =
    "{\"version\": 1, \"kind\": \"attention\", \"name\": \"embed-c\","
    " \"problem\": {\"head_dim\": {\"qk\": 128, \"v\": 128}, \"heads\": {\"q\": 4, \"kv\": 2},"
    " \"mask\": {\"kind\": \"causal\"}},"
    " \"schedule\": \"auto\"}";

typedef void (*AnyCall)(void);
static AnyCall driver_call(void* driver, const char* name) {
  void* found = dlsym(driver, name);
  AnyCall call;
  if (!found) fprintf(stderr, "the driver has no %s\n", name), exit(3);
  memcpy(&call, &found, sizeof call); /* ISO C casts no object pointer to a function pointer */
  return call;
}
#define DRIVER_CALL(result, name, ...) \
  if (((int (*)(__VA_ARGS__))driver_call(driver, name))result != 0) return fprintf(stderr, "%s failed\n", name), 1

static void on_event(const kernelwright_event* event, void* unused) {
  (void)unused;
  printf("  %s: %s %s\n", event->kind, event->name, event->detail);
}

static int report(kernelwright_status status) {
  fprintf(stderr, "%s: %s\n", kernelwright_status_name(status), kernelwright_last_error());
  return status == KERNELWRIGHT_MISSING ? 3 : 1;
}

int main(void) {
  kernelwright_engine_options options = {.struct_size = sizeof options, .event_callback = on_event};
  kernelwright_engine* engine = NULL;
  kernelwright_kernel* kernel = NULL;
  kernelwright_status status = kernelwright_engine_create(&options, &engine);
  if (status == KERNELWRIGHT_OK) status = kernelwright_prepare_json(engine, kConfig, strlen(kConfig), NULL, &kernel);
  if (status != KERNELWRIGHT_OK) return report(status);

  void* driver = dlopen("libcuda.so.1", RTLD_NOW); /* there: the engine has found it */
  if (!driver) return fprintf(stderr, "%s\n", dlerror()), 3;
  void* context = NULL;
  DRIVER_CALL((0), "cuInit", unsigned);
  DRIVER_CALL((&context, 0), "cuDevicePrimaryCtxRetain", void**, int);
  DRIVER_CALL((context), "cuCtxSetCurrent", void*);

  /* Queries and keys of zero weigh all visible keys alike, and value t is t everywhere: row i is the mean of 0..i.
   * bf16 is the upper half of an f32. */
  static uint16_t zeros[kLen * kHeads * kHeadDim], values[kLen * kKvHeads * kHeadDim], out[kLen * kHeads * kHeadDim];
  for (size_t i = 0; i < sizeof values / 2; ++i) {
    const float value = (float)(i / (kKvHeads * kHeadDim));
    uint32_t bits;
    memcpy(&bits, &value, 4);
    values[i] = (uint16_t)(bits >> 16);
  }
  kernelwright_attention_tensors tensors = {.struct_size = sizeof tensors, .batch = 1, .q_len = kLen, .kv_len = kLen};
  DRIVER_CALL((&tensors.q, sizeof zeros), "cuMemAlloc_v2", uint64_t*, size_t);
  DRIVER_CALL((&tensors.k, sizeof values), "cuMemAlloc_v2", uint64_t*, size_t);
  DRIVER_CALL((&tensors.v, sizeof values), "cuMemAlloc_v2", uint64_t*, size_t);
  DRIVER_CALL((&tensors.o, sizeof out), "cuMemAlloc_v2", uint64_t*, size_t);
  DRIVER_CALL((tensors.q, zeros, sizeof zeros), "cuMemcpyHtoD_v2", uint64_t, const void*, size_t);
  DRIVER_CALL((tensors.k, zeros, sizeof values), "cuMemcpyHtoD_v2", uint64_t, const void*, size_t);
  DRIVER_CALL((tensors.v, values, sizeof values), "cuMemcpyHtoD_v2", uint64_t, const void*, size_t);

  if ((status = kernelwright_launch(kernel, &tensors, NULL)) != KERNELWRIGHT_OK) return report(status);
  DRIVER_CALL((out, tensors.o, sizeof out), "cuMemcpyDtoH_v2", void*, uint64_t, size_t); /* waits for the launch */
  kernelwright_engine_destroy(engine);

  for (int row = 0; row < kLen; row += kLen - 1) {
    const uint32_t bits = (uint32_t)out[row * kHeads * kHeadDim] << 16;
    float found;
    memcpy(&found, &bits, 4);
    printf("row %2d: %g, expected %g\n", row, found, row / 2.0);
    if (found != (float)row / 2) return 1;
  }
  printf("right, by kernelwright %s\n", kernelwright_version());
  return 0;
}
