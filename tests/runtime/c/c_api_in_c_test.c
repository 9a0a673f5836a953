/* The C ABI as a C program sees it: compiled as C11 with the strictest warnings, run by c_api_test.cpp on an engine
 * with a fake backend. Each function returns 0, or the line of the check that failed. */
#include "runtime/c/c_api_in_c_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                                          \
  do {                                                                                                            \
    if (!(condition)) {                                                                                           \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, kernelwright_last_error()); \
      return __LINE__;                                                                                            \
    }                                                                                                             \
  } while (0)

static const char kConfig[] =
    "{\"version\": 1, \"kind\": \"attention\", \"name\": \"c\","
    " \"problem\": {\"head_dim\": {\"qk\": 128, \"v\": 128}, \"heads\": {\"q\": 8, \"kv\": 2},"
    " \"mask\": {\"kind\": \"causal\"}}, \"schedule\": \"auto\"}";

static kernelwright_attention_problem a_problem(void) {
  kernelwright_attention_problem problem = {.struct_size = sizeof problem};
  problem.head_dim_qk = problem.head_dim_v = 128;
  problem.q_heads = 8;
  problem.kv_heads = 2;
  problem.mask = "causal";
  return problem;
}

static kernelwright_attention_tensors some_tensors(void) {
  kernelwright_attention_tensors tensors = {.struct_size = sizeof tensors};
  tensors.q = 0x10000;
  tensors.k = 0x20000;
  tensors.v = 0x30000;
  tensors.o = 0x40000;
  tensors.batch = 2;
  tensors.q_len = 100;
  tensors.kv_len = 300;
  return tensors;
}

int c_prepares_and_launches(kernelwright_engine* engine) {
  kernelwright_kernel* kernel = NULL;
  CHECK(kernelwright_prepare_json(engine, kConfig, strlen(kConfig), NULL, &kernel) == KERNELWRIGHT_OK);
  CHECK(kernel);
  kernelwright_kernel_info info = {.struct_size = sizeof info};
  CHECK(kernelwright_kernel_get_info(kernel, &info) == KERNELWRIGHT_OK);
  CHECK(info.state == KERNELWRIGHT_READY && info.serves_fallback == 0 && info.device == 0 && info.cubin_bytes > 0);
  CHECK(strlen(info.key) == 64);

  /* The same problem as a struct is the same kernel. */
  kernelwright_attention_problem problem = a_problem();
  kernelwright_kernel* same = NULL;
  CHECK(kernelwright_prepare_attention(engine, &problem, NULL, &same) == KERNELWRIGHT_OK);
  CHECK(same == kernel);

  kernelwright_attention_tensors tensors = some_tensors();
  tensors.overrides = KERNELWRIGHT_SET_SCALE;
  tensors.scale = 0.5f;
  tensors.pdl = 1;
  uint64_t bytes = 1;
  CHECK(kernelwright_workspace_bytes(kernel, &tensors, &bytes) == KERNELWRIGHT_OK);
  CHECK(bytes == 0);
  CHECK(kernelwright_launch(kernel, &tensors, (void*)0x5000) == KERNELWRIGHT_OK);

  kernelwright_counters counters = {.struct_size = sizeof counters};
  CHECK(kernelwright_engine_counters(engine, &counters) == KERNELWRIGHT_OK);
  CHECK(counters.ready == 1 && counters.failed == 0 && counters.loaded_bytes > 0);

  int32_t ready = 0, promoted = 7;
  CHECK(kernelwright_engine_wait_until_ready(engine, 1000, &ready) == KERNELWRIGHT_OK && ready == 1);
  CHECK(kernelwright_engine_promote(engine, &promoted) == KERNELWRIGHT_OK && promoted == 0);

  uint8_t digests[2 * KERNELWRIGHT_DIGEST_BYTES] = {0}, plan[KERNELWRIGHT_DIGEST_BYTES],
                      again[KERNELWRIGHT_DIGEST_BYTES];
  size_t count = 9;
  CHECK(kernelwright_engine_ready_digests(engine, NULL, 0, &count) == KERNELWRIGHT_OK && count == 1);
  CHECK(kernelwright_engine_ready_digests(engine, digests, 2, &count) == KERNELWRIGHT_OK && count == 1);
  CHECK(digests[KERNELWRIGHT_DIGEST_BYTES] == 0 && kernelwright_engine_plan_digest(engine, plan) == KERNELWRIGHT_OK);
  promoted = 7;
  CHECK(kernelwright_engine_promote_exactly(engine, digests, 1, &promoted) == KERNELWRIGHT_OK && promoted == 0);
  promoted = 7; /* the second digest is zeros, which no kernel has */
  CHECK(kernelwright_engine_promote_exactly(engine, digests, 2, &promoted) == KERNELWRIGHT_NOT_READY && promoted == 7);
  CHECK(kernelwright_engine_promote_exactly(engine, NULL, 1, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(kernelwright_engine_promote_exactly(engine, NULL, 0, NULL) == KERNELWRIGHT_OK);
  CHECK(kernelwright_engine_plan_digest(engine, again) == KERNELWRIGHT_OK && memcmp(plan, again, sizeof plan) == 0);
  CHECK(kernelwright_kernel_wait(kernel) == KERNELWRIGHT_OK);
  return 0;
}

static const char kLayer[] =
    "{\"version\": 1, \"kind\": \"moe\", \"name\": \"c\","
    " \"problem\": {\"hidden\": 256, \"intermediate\": 128, \"scales\": \"per_block\", \"residual\": true,"
    " \"route\": {\"experts\": 16, \"top_k\": 4, \"renormalize\": true}}}";

int c_launches_a_layer_of_experts(kernelwright_engine* engine) {
  kernelwright_kernel *layer = NULL, *same = NULL;
  CHECK(kernelwright_prepare_json(engine, kLayer, strlen(kLayer), NULL, &layer) == KERNELWRIGHT_OK);
  CHECK(kernelwright_prepare_json(engine, kLayer, strlen(kLayer), NULL, &same) == KERNELWRIGHT_OK && same == layer);
  CHECK(kernelwright_kernel_wait(layer) == KERNELWRIGHT_OK);
  kernelwright_kernel_info info = {.struct_size = sizeof info};
  CHECK(kernelwright_kernel_get_info(layer, &info) == KERNELWRIGHT_OK);
  CHECK(info.state == KERNELWRIGHT_READY && info.cubin_bytes > 0 && strlen(info.key) == 64);

  kernelwright_moe_tensors tensors = {.struct_size = sizeof tensors, .tokens = 20};
  uint64_t bytes = 0, fewer = 0;
  CHECK(kernelwright_moe_workspace_bytes(layer, &tensors, &bytes) == KERNELWRIGHT_OK && bytes > 0);
  tensors.tokens = 3;
  CHECK(kernelwright_moe_workspace_bytes(layer, &tensors, &fewer) == KERNELWRIGHT_OK && fewer < bytes);
  tensors.x = 0x10000000;
  tensors.logits = 0x11000000;
  tensors.gate_up = 0x12000000;
  tensors.gate_up_scale = 0x13000000;
  tensors.down = 0x14000000;
  tensors.down_scale = 0x15000000;
  tensors.residual = 0x16000000;
  tensors.out = 0x17000000;
  tensors.workspace = 0x18000000;
  tensors.workspace_bytes = bytes;
  tensors.pdl = 1;
  CHECK(kernelwright_launch_moe(layer, &tensors, (void*)0x5000) == KERNELWRIGHT_OK);
  tensors.tokens = 0;
  CHECK(kernelwright_launch_moe(layer, &tensors, (void*)0x5000) == KERNELWRIGHT_OK);
  tensors.tokens = 100;
  CHECK(kernelwright_launch_moe(layer, &tensors, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strstr(kernelwright_last_error(), "/tensors/workspace: ") == kernelwright_last_error());
  CHECK(kernelwright_launch_moe(layer, NULL, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);

  kernelwright_route_tensors other = {.struct_size = sizeof other};
  CHECK(kernelwright_launch_route(layer, &other, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(
      strstr(kernelwright_last_error(), "/kernel: computes a layer of experts; kernelwright_launch_moe() launches it"));
  return 0;
}

int c_reports_errors(kernelwright_engine* engine) {
  kernelwright_kernel* kernel = NULL;
  CHECK(kernelwright_prepare_json(engine, "{", 1, NULL, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strlen(kernelwright_last_error()) > 0 && !kernel);
  CHECK(kernelwright_prepare_json(engine, NULL, 0, NULL, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strcmp(kernelwright_last_error(), "/config: is null") == 0);
  CHECK(kernelwright_prepare_json(NULL, kConfig, strlen(kConfig), NULL, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strcmp(kernelwright_last_error(), "/engine: is null") == 0);

  kernelwright_attention_problem problem = a_problem();
  problem.mask = "diagonal";
  CHECK(kernelwright_prepare_attention(engine, &problem, NULL, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strstr(kernelwright_last_error(), "/problem/mask/kind: \"diagonal\" is not one of none, causal"));
  problem = a_problem();
  problem.q_heads = 0;
  CHECK(kernelwright_prepare_attention(engine, &problem, NULL, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  kernelwright_prepare_options options = {.struct_size = sizeof options, .device = 9};
  problem = a_problem();
  CHECK(kernelwright_prepare_attention(engine, &problem, &options, &kernel) == KERNELWRIGHT_MISSING);
  options.device = 0;
  options.on_miss = 3;
  CHECK(kernelwright_prepare_attention(engine, &problem, &options, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strstr(kernelwright_last_error(), "/prepare_options/on_miss: 3 is none of"));

  CHECK(kernelwright_prepare_attention(engine, &problem, NULL, &kernel) == KERNELWRIGHT_OK);
  kernelwright_attention_tensors tensors = some_tensors();
  tensors.q = 8;
  CHECK(kernelwright_launch(kernel, &tensors, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strcmp(kernelwright_last_error(), "/tensors/q: address 0x8 is not a multiple of 16; give an aligned one") == 0);
  CHECK(kernelwright_launch(NULL, &tensors, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(kernelwright_launch(kernel, NULL, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  tensors = some_tensors();
  tensors.overrides = 8;
  CHECK(kernelwright_launch(kernel, &tensors, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  tensors.overrides = KERNELWRIGHT_SET_SCALE;
  tensors.scale = NAN;
  CHECK(kernelwright_launch(kernel, &tensors, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strcmp(kernelwright_last_error(), "/tensors/scale: nan is not finite") == 0);

  CHECK(kernelwright_engine_seal(engine) == KERNELWRIGHT_OK);
  problem.mask = "none";
  kernelwright_kernel* untouched = NULL;
  CHECK(kernelwright_prepare_attention(engine, &problem, NULL, &untouched) == KERNELWRIGHT_NOT_READY && !untouched);
  CHECK(strcmp(kernelwright_status_name(KERNELWRIGHT_NOT_READY), "not ready") == 0);
  return 0;
}

int c_structs_are_sized(kernelwright_engine* engine) {
  kernelwright_kernel* kernel = NULL;
  kernelwright_attention_problem problem = a_problem();
  problem.struct_size = 0; /* forgotten */
  CHECK(kernelwright_prepare_attention(engine, &problem, NULL, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strstr(kernelwright_last_error(),
               "/attention_problem/struct_size: is 0; set it to sizeof(kernelwright_attention_problem)"));

  /* A newer header's struct: its extra field may be there if it is zero. */
  struct {
    kernelwright_attention_problem known;
    uint64_t added;
  } newer = {a_problem(), 0};
  newer.known.struct_size = sizeof newer;
  CHECK(kernelwright_prepare_attention(engine, &newer.known, NULL, &kernel) == KERNELWRIGHT_OK);
  newer.added = 1;
  CHECK(kernelwright_prepare_attention(engine, &newer.known, NULL, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strstr(kernelwright_last_error(), "is set; this library"));

  /* A result struct of a newer header is filled as far as we know it, and zeroed beyond. */
  struct {
    kernelwright_counters known;
    uint64_t added;
  } counters = {{.struct_size = sizeof counters}, 77};
  CHECK(kernelwright_engine_counters(engine, &counters.known) == KERNELWRIGHT_OK);
  CHECK(counters.known.struct_size == sizeof counters && counters.known.ready == 1 && counters.added == 0);
  counters.known.struct_size = 16; /* below the first version */
  CHECK(kernelwright_engine_counters(engine, &counters.known) == KERNELWRIGHT_INVALID_ARGUMENT);

  kernelwright_attention_tensors tensors = some_tensors();
  tensors.struct_size = 8;
  CHECK(kernelwright_launch(kernel, &tensors, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);
  return 0;
}

static void count_ready_row(const kernelwright_kernel_row* row, void* count) {
  const int known = row->struct_size == sizeof *row && strcmp(row->kind, "attention") == 0 &&
                    strcmp(row->kernel, "attention_portable") == 0 && strcmp(row->family, "portable") == 0 &&
                    strlen(row->key) == 64 && strcmp(row->error, "") == 0 && row->state == KERNELWRIGHT_READY &&
                    row->device == 0 && !row->fallback && row->serving && strcmp(row->source, "compiled") == 0 &&
                    strncmp(row->entry, row->kernel, strlen(row->kernel)) == 0 && row->cubin_bytes == 64;
  *(int*)count += known;
}

static void keep_text(const char* text, size_t length, void* to) {
  if (strlen(text) == length) *(int*)to = strstr(text, "\nkernelwright_launch_seconds_count 1\n") != NULL;
}

int c_tells_operators(kernelwright_engine* engine) {
  int32_t sealed = 7, ready = 7;
  CHECK(kernelwright_engine_is_sealed(engine, &sealed) == KERNELWRIGHT_OK && sealed == 0);
  kernelwright_kernel* kernel = NULL;
  CHECK(kernelwright_prepare_json(engine, kConfig, strlen(kConfig), NULL, &kernel) == KERNELWRIGHT_OK);
  kernelwright_attention_tensors tensors = some_tensors();
  CHECK(kernelwright_launch(kernel, &tensors, NULL) == KERNELWRIGHT_OK);
  CHECK(kernelwright_engine_seal(engine) == KERNELWRIGHT_OK);
  CHECK(kernelwright_engine_is_sealed(engine, &sealed) == KERNELWRIGHT_OK && sealed == 1);
  CHECK(kernelwright_engine_is_ready(engine, &ready) == KERNELWRIGHT_OK && ready == 1);

  int ready_rows = 0, has_count = 0;
  uint64_t rows = 0;
  CHECK(kernelwright_engine_list_kernels(engine, count_ready_row, &ready_rows, &rows) == KERNELWRIGHT_OK);
  CHECK(rows == 1 && ready_rows == 1);
  CHECK(kernelwright_engine_list_kernels(engine, NULL, NULL, NULL) == KERNELWRIGHT_OK);
  CHECK(kernelwright_engine_metrics(engine, keep_text, &has_count) == KERNELWRIGHT_OK && has_count);
  CHECK(kernelwright_engine_metrics(engine, NULL, NULL) == KERNELWRIGHT_INVALID_ARGUMENT);

  for (int32_t step = KERNELWRIGHT_LATENCY_PREPARE; step <= KERNELWRIGHT_LATENCY_LAUNCH; ++step) {
    kernelwright_latency latency = {.struct_size = sizeof latency};
    CHECK(kernelwright_engine_latency(engine, step, &latency) == KERNELWRIGHT_OK);
    uint64_t all = 0;
    for (int i = 0; i <= KERNELWRIGHT_LATENCY_BOUNDS; ++i) all += latency.buckets[i];
    CHECK(latency.count == 1 && all == 1 && latency.sum_seconds >= 0 && latency.bounds_seconds[0] > 0);
  }
  kernelwright_latency latency = {.struct_size = sizeof latency};
  CHECK(kernelwright_engine_latency(engine, 4, &latency) == KERNELWRIGHT_INVALID_ARGUMENT);
  CHECK(strcmp(kernelwright_last_error(), "/step: 4 is none of prepare (0), compile (1), load (2) and launch (3)") ==
        0);

  kernelwright_counters counters = {.struct_size = sizeof counters};
  CHECK(kernelwright_engine_counters(engine, &counters) == KERNELWRIGHT_OK && counters.compile_failures == 0);
  return 0;
}
