/* Kernelwright inside a C program: libkernelwright_c alone. It runs on the GPU, or on the emulator where none is.
 * Exits 3 where no compiler is and the kernel is not cached. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernelwright/c.h"

enum { kLen = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 128 };

static const char kConfig[] =
    "{\"version\": 1, \"kind\": \"attention\", \"name\": \"embed-c\","
    " \"problem\": {\"head_dim\": {\"qk\": 128, \"v\": 128}, \"heads\": {\"q\": 4, \"kv\": 2},"
    " \"mask\": {\"kind\": \"causal\"}},"
    " \"schedule\": \"auto\"}";

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
  struct {
    uint64_t* address;
    const void* from;
    uint64_t bytes;
  } const operands[] = {{&tensors.q, zeros, sizeof zeros},
                        {&tensors.k, zeros, sizeof values},
                        {&tensors.v, values, sizeof values},
                        {&tensors.o, out, sizeof out}};
  for (int i = 0; i < 4; ++i) {
    status = kernelwright_device_allocate(engine, 0, operands[i].bytes, operands[i].address);
    if (status == KERNELWRIGHT_OK)
      status = kernelwright_device_write(engine, 0, *operands[i].address, operands[i].from, operands[i].bytes);
    if (status != KERNELWRIGHT_OK) return report(status);
  }

  if ((status = kernelwright_launch(kernel, &tensors, NULL)) != KERNELWRIGHT_OK) return report(status);
  status = kernelwright_device_read(engine, 0, out, tensors.o, sizeof out); /* waits for the launch */
  if (status != KERNELWRIGHT_OK) return report(status);
  for (int i = 0; i < 4; ++i) kernelwright_device_free(engine, 0, *operands[i].address);
  const char* device = NULL;
  if ((status = kernelwright_device_name(engine, 0, &device)) != KERNELWRIGHT_OK) return report(status);
  printf("ran on %s\n", device);
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
