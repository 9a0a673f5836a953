/* Leaves while compiles run in the background, for process_exit_test.cpp: MODE DELAY_US.
 *   return     from main
 *   exit       by exit(7) on the main thread
 *   thread     by exit(7) on another thread that uses the library, while main waits for a kernel
 *   blocking   from main, while another thread is inside a prepare() that waits
 *   stranger   from main, which never calls the library: another thread does, and may be opening NVRTC just then
 * The engine is never destroyed. Exit status 7, or 99 if a call failed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernelwright/runtime/c/c_api.h"

static kernelwright_engine* engine; /* reachable to the end: a leak checker has nothing to say */
static atomic_long events;

static void count(const kernelwright_event* event, void* data) {
  (void)event;
  atomic_fetch_add((atomic_long*)data, 1);
}

static void pause_us(long us) {
  const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  nanosleep(&time, NULL);
}

static kernelwright_kernel* prepare(int head_dim, const char* mask, int background) {
  const kernelwright_attention_problem problem = {.struct_size = sizeof problem,
                                                  .head_dim_qk = head_dim,
                                                  .head_dim_v = head_dim,
                                                  .q_heads = 4,
                                                  .kv_heads = 4,
                                                  .mask = mask};
  const kernelwright_prepare_options how = {.struct_size = sizeof how, .background = background};
  kernelwright_kernel* kernel = NULL;
  /* While the process leaves, a refusal is an answer. */
  if (kernelwright_prepare_attention(engine, &problem, &how, &kernel) == KERNELWRIGHT_INVALID_ARGUMENT) {
    fprintf(stderr, "prepare: %s\n", kernelwright_last_error());
    _Exit(99);
  }
  return kernel;
}

static void* leave_later(void* delay_us) {
  prepare(96, "none", 1);
  pause_us(*(const long*)delay_us);
  exit(7);
}

static void* prepare_blocking(void* unused) {
  prepare(96, "causal", 0);
  prepare(192, "causal", 0);
  return unused;
}

static kernelwright_kernel* start(void) {
  const kernelwright_engine_options options = {.struct_size = sizeof options,
                                               .backend = "emulator",
                                               .memory_only_cache = 1,
                                               .compile_threads = 3,
                                               .event_callback = count,
                                               .user_data = &events};
  if (kernelwright_engine_create(&options, &engine) != KERNELWRIGHT_OK) {
    fprintf(stderr, "create: %s\n", kernelwright_last_error());
    _Exit(99);
  }
  prepare(64, "causal", 1);
  prepare(128, "causal", 1);
  prepare(64, "none", 1);
  return prepare(128, "none", 1);
}

static void* start_elsewhere(void* unused) {
  start();
  return unused;
}

int main(int argc, char** argv) {
  pthread_t thread;
  kernelwright_kernel* last = NULL;
  const char* const mode = argc > 2 ? argv[1] : "return";
  long delay_us = argc > 2 ? atol(argv[2]) : 0;
  if (strcmp(mode, "stranger") == 0) {
    if (pthread_create(&thread, NULL, start_elsewhere, NULL) != 0) return 99;
    pthread_detach(thread);
    pause_us(delay_us);
    return 7;
  }
  last = start();
  if (strcmp(mode, "thread") == 0) {
    if (pthread_create(&thread, NULL, leave_later, &delay_us) != 0) return 99;
    kernelwright_kernel_wait(last);
    pthread_join(thread, NULL);
  }
  if (strcmp(mode, "blocking") == 0) {
    if (pthread_create(&thread, NULL, prepare_blocking, NULL) != 0) return 99;
    pthread_detach(thread);
  }
  pause_us(delay_us);
  if (strcmp(mode, "exit") == 0) exit(7);
  return 7;
}
