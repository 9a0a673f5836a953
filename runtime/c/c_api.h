/* The engine in plain C (C11 and later, C++ too): opaque handles, sized structs, status codes. No exception, no C++
 * type and no allocation of ours that the caller would have to free crosses this line. What the calls mean is said in
 * engine.h, runtime/attention/kernel.h and runtime/gemm/kernel.h; here is what differs.
 *
 * Structs. Every struct starts with struct_size. Set it to sizeof and the rest to zero, and you have the defaults:
 *     kernelwright_engine_options options = {.struct_size = sizeof options};
 * Fields are only ever added at the end. A library older than your header refuses fields that it does not know if they
 * are not zero. A library newer than your header takes its own defaults for the fields that you lack.
 *
 * Errors. Every call that can fail returns a status, and kernelwright_last_error() then has the words. A call that
 * fails has done nothing and has written no result.
 *
 * Threads. Everything may be called from any number of threads, except that kernelwright_engine_destroy() must come
 * last.
 */
#ifndef KERNELWRIGHT_RUNTIME_C_API_H
#define KERNELWRIGHT_RUNTIME_C_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KERNELWRIGHT_API __attribute__((visibility("default")))
#else
#define KERNELWRIGHT_API
#endif

/* The version of this header, and the one place that says it. Numbers compare as versions do:
 *     #if KERNELWRIGHT_VERSION_NUMBER >= KERNELWRIGHT_MAKE_VERSION(0, 2, 0)
 * kernelwright_version_number() is that of the library which was loaded. docs/abi.md: which of them go together. */
#define KERNELWRIGHT_VERSION_MAJOR 0
#define KERNELWRIGHT_VERSION_MINOR 1
#define KERNELWRIGHT_VERSION_PATCH 0
#define KERNELWRIGHT_MAKE_VERSION(major, minor, patch) ((major)*1000000 + (minor)*1000 + (patch))
#define KERNELWRIGHT_VERSION_NUMBER \
  KERNELWRIGHT_MAKE_VERSION(KERNELWRIGHT_VERSION_MAJOR, KERNELWRIGHT_VERSION_MINOR, KERNELWRIGHT_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kernelwright_engine kernelwright_engine;
typedef struct kernelwright_kernel kernelwright_kernel; /* lives as long as its engine; never freed by the caller */

typedef int32_t kernelwright_status;
enum {
  KERNELWRIGHT_OK = 0,
  KERNELWRIGHT_INVALID_ARGUMENT = 1, /* a config, a struct or a tensor that cannot be used */
  KERNELWRIGHT_COMPILE_ERROR = 2,    /* NVRTC rejected a source */
  KERNELWRIGHT_MISSING = 3,          /* the machine lacks a driver, a GPU or a compiler */
  KERNELWRIGHT_DEVICE_ERROR = 4,     /* a driver call failed */
  KERNELWRIGHT_NOT_READY = 5,        /* a miss while sealed, capturing or under KERNELWRIGHT_ON_MISS_ERROR */
  KERNELWRIGHT_INTERNAL_ERROR = 6    /* out of memory, or a bug of ours */
};

/* "0.1.0" */
KERNELWRIGHT_API const char* kernelwright_version(void);
/* The same as a number: KERNELWRIGHT_MAKE_VERSION(0, 1, 0). */
KERNELWRIGHT_API int32_t kernelwright_version_number(void);
/* "missing": the status' name. */
KERNELWRIGHT_API const char* kernelwright_status_name(kernelwright_status status);
/* What went wrong in this thread's last call that failed, "" before the first one; valid until its next one. */
KERNELWRIGHT_API const char* kernelwright_last_error(void);

/* ---- engine ---- */

/* How much an event asks of an operator. events.h says which event has which. */
enum {
  KERNELWRIGHT_LEVEL_DEBUG = 0,
  KERNELWRIGHT_LEVEL_INFO = 1,
  KERNELWRIGHT_LEVEL_WARNING = 2,
  KERNELWRIGHT_LEVEL_ERROR = 3
};

typedef struct kernelwright_event {
  size_t struct_size;
  const char* kind; /* "compile", "cache hit", ... : events.h */
  const char* key;  /* hex, or "" */
  const char* name;
  const char* detail;
  double milliseconds;
  int32_t level; /* KERNELWRIGHT_LEVEL_... */
} kernelwright_event;
/* Called on the event's thread, maybe several at once. The event lives for the call. It must not throw or call back. */
typedef void (*kernelwright_event_callback)(const kernelwright_event* event, void* user_data);

enum { KERNELWRIGHT_ON_MISS_BLOCK = 0, KERNELWRIGHT_ON_MISS_FALLBACK = 1, KERNELWRIGHT_ON_MISS_ERROR = 2 };

typedef struct kernelwright_engine_options {
  size_t struct_size;
  const char* backend;         /* "cuda", "emulator"; NULL: "auto", cuda where a GPU is, else the emulator */
  const char* cache_directory; /* NULL: found as docs/cache.md says */
  const char* const* read_only_layers;
  size_t num_read_only_layers;
  uint64_t max_cache_bytes;  /* 0: the cache directory's own limit, else 2 GiB */
  const char* nvrtc_path;    /* NULL: found */
  int32_t memory_only_cache; /* 1: the disk is not touched */
  int32_t compile_threads;   /* 0: as many as cores */
  kernelwright_event_callback event_callback;
  void* user_data;
  /* The emulator alone reads the rest. */
  const char* emulator_arch; /* what it claims to be; NULL: "sm_90a" */
  const char* completion;    /* of asynchronous work: "eager", "lazy", "random"; NULL: "eager" */
  uint64_t seed;             /* of "random" and, unless it is 0, of the order in which warps take turns */
  int32_t hazards;           /* 1: launches are checked; kernelwright_engine_take_hazards() has what was found */
  int32_t emulator_threads;  /* of the host; 0: as many as cores */
  /* Any backend. A folder of tuned rows over the library's; NULL: $KERNELWRIGHT_TUNED_DIR, else none */
  const char* tuned_dir;
  int32_t event_level;      /* KERNELWRIGHT_LEVEL_...: event_callback is told of events of this level and above */
  uint32_t launch_sampling; /* about one launch in so many is timed: kernelwright_engine_latency(). 0: none */
  /* For debugging, 1: launches of attention and cache writes wait for their stream, and check lengths, offsets, pages,
   * slots, positions and scales. What contradicts the tensors is an event, "bad data". `hazards` always checks. */
  int32_t check_data;
  /* Milliseconds to wait for another process that compiles the same kernel; after one second an event, "lock wait" */
  int32_t lock_timeout_ms; /* 0: a minute; negative: not at all */
  /* Files of `kernelwright pack`, taken before any directory. One that cannot be used is an event, "cache degraded". */
  const char* const* bundles; /* none: those of $KERNELWRIGHT_BUNDLES, which a colon separates */
  size_t num_bundles;
  /* Files of public keys (PEM, Ed25519). If there are any, a bundle is taken only if one of them has signed it. */
  const char* const* bundle_keys; /* none: those of $KERNELWRIGHT_BUNDLE_KEYS, which a colon separates */
  size_t num_bundle_keys;
  /* 1: KERNELWRIGHT_ON_MISS_FALLBACK's fallbacks serve until promotion even for cached kernels, so ranks begin alike */
  int32_t fallback_first;
  /* Where NVRTC runs, "process", "workers", "auto" or "hosts": docs/compile-workers.md */
  const char* compile_in;        /* NULL: $KERNELWRIGHT_COMPILE_IN, else "process" */
  const char* compile_worker;    /* the worker program; NULL: $KERNELWRIGHT_CC, else beside the library */
  int32_t compile_time_limit_ms; /* of one compile by a worker; 0: two minutes */
  int32_t compiles_per_host;     /* at once, by the workers of all processes of this user; 0: as many as cores */
  uint64_t compile_memory_bytes; /* that a worker may have; 0: 2 GiB */
  /* A server from which hosts share binaries: docs/fleet.md. NULL: that of $KERNELWRIGHT_REMOTE, else none. */
  const char* remote;
  const char* const* remote_keys; /* files of public keys; none: those of $KERNELWRIGHT_REMOTE_KEYS */
  size_t num_remote_keys;
  const char* remote_signing_key;     /* a private key's file, to send too; NULL: $KERNELWRIGHT_REMOTE_SIGNING_KEY's */
  int32_t remote_allow_unsigned;      /* 1: no signature is needed: a person who writes there chooses what runs here */
  const char* remote_ca;              /* https: authorities; NULL: $KERNELWRIGHT_REMOTE_CA's, else the system's */
  const char* remote_certificate;     /* https: this host's own; NULL: $KERNELWRIGHT_REMOTE_CERTIFICATE's */
  const char* remote_certificate_key; /* NULL: $KERNELWRIGHT_REMOTE_CERTIFICATE_KEY's */
} kernelwright_engine_options;

/* `options` may be NULL. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_create(const kernelwright_engine_options* options,
                                                                kernelwright_engine** engine);
/* *origin, for people: where such an engine gets new kernels. "NVRTC /usr/.../libnvrtc.so.13", else a bundle or a cache
 * directory that has any kernels, or a server; KERNELWRIGHT_MISSING if there is none. It opens no compiler and no
 * device, so a process may fork afterwards. Valid until this thread's next call. `options` may be NULL. */
KERNELWRIGHT_API kernelwright_status kernelwright_kernel_origin(const kernelwright_engine_options* options,
                                                                const char** origin);
/* Frees the engine and its kernels, which must not be running. NULL is fine. A program may end without it: exit() waits
 * for an instant until no compile of ours is inside NVRTC or the driver. */
KERNELWRIGHT_API void kernelwright_engine_destroy(kernelwright_engine* engine);

/* Ends preparing for good: what is queued is dropped, what compiles is interrupted, and once this returns the event
 * callback is called by no thread of the engine's. What is not ready has failed then; ready kernels go on launching.
 * For hosts whose callback must end before the engine can. Not to be called by the callback. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_stop(kernelwright_engine* engine);

KERNELWRIGHT_API kernelwright_status kernelwright_engine_seal(kernelwright_engine* engine);
/* *ready: 1 if every prepared kernel is ready, 0 if one has failed or time is over. timeout_ms < 0 waits for ever. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_wait_until_ready(kernelwright_engine* engine,
                                                                          int32_t timeout_ms, int32_t* ready);
/* *ready: what kernelwright_engine_wait_until_ready() would say now, without waiting. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_is_ready(const kernelwright_engine* engine, int32_t* ready);
/* *sealed: 1 once kernelwright_engine_seal() was called. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_is_sealed(const kernelwright_engine* engine, int32_t* sealed);
/* *promoted (may be NULL): how many kernels took over from their fallback. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_promote(kernelwright_engine* engine, int32_t* promoted);

/* How ranks stay alike: docs/fleet.md. A digest is KERNELWRIGHT_DIGEST_BYTES bytes. */
#define KERNELWRIGHT_DIGEST_BYTES 32
/* A digest for each prepared kernel that is loaded, in ascending order, whether it serves or its fallback still does.
 * It is equal on all ranks that have the same cubins for the same problem. Writes at most `capacity` of them to
 * `digests` (which may be NULL if capacity is 0). *count: how many there are. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_ready_digests(const kernelwright_engine* engine,
                                                                       uint8_t* digests, size_t capacity,
                                                                       size_t* count);
/* The kernels with these `count` digests take over from their fallbacks, and no others. KERNELWRIGHT_NOT_READY if one
 * of them is not ready here: then none does. *promoted (may be NULL): how many changed. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_promote_exactly(kernelwright_engine* engine,
                                                                         const uint8_t* digests, size_t count,
                                                                         int32_t* promoted);
/* Writes one digest of what launches run now: of all prepared kernels, in whatever order they were prepared. Ranks
 * compare it before they capture graphs. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_plan_digest(const kernelwright_engine* engine,
                                                                     uint8_t* digest);

typedef struct kernelwright_counters {
  size_t struct_size;
  uint64_t ready, pending, failed; /* kernels by state, now */
  uint64_t loads, loaded_bytes;
  uint64_t fallback_launches, sealed_misses, capture_misses, promotions;
  uint64_t compiles, memory_hits, disk_hits, cache_misses, quarantined;
  uint64_t layer_hits, compile_failures, writes, write_failures, evicted;
} kernelwright_counters;
/* Fills as many fields as counters->struct_size has room for. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_counters(const kernelwright_engine* engine,
                                                                  kernelwright_counters* counters);

/* Which of an engine's steps: engine.h, EngineLatencies. */
enum {
  KERNELWRIGHT_LATENCY_PREPARE = 0,
  KERNELWRIGHT_LATENCY_COMPILE = 1,
  KERNELWRIGHT_LATENCY_LOAD = 2,
  KERNELWRIGHT_LATENCY_LAUNCH = 3
};
enum { KERNELWRIGHT_LATENCY_BOUNDS = 22 };
typedef struct kernelwright_latency {
  size_t struct_size;
  uint64_t count;
  double sum_seconds;
  double bounds_seconds[KERNELWRIGHT_LATENCY_BOUNDS]; /* ascending */
  /* buckets[i] counts what took at most bounds_seconds[i], and more than the bound before it; the last one the rest */
  uint64_t buckets[KERNELWRIGHT_LATENCY_BOUNDS + 1];
} kernelwright_latency;
/* Fills as many fields as latency->struct_size has room for. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_latency(const kernelwright_engine* engine, int32_t step,
                                                                 kernelwright_latency* latency);

/* `text` of `length` bytes, and a zero behind them; lives for the call. Must not throw. */
typedef void (*kernelwright_text_callback)(const char* text, size_t length, void* user_data);
/* Calls `callback` once, on this thread, with counters, latencies, sealed and ready as Prometheus text 0.0.4. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_metrics(const kernelwright_engine* engine,
                                                                 kernelwright_text_callback callback, void* user_data);

/* What the emulator found wrong with a launch, whatever its result was. */
typedef struct kernelwright_hazard {
  size_t struct_size;
  const char* kind;    /* "race", "missing proxy fence", ... : emulator/machine/hazard_kind.h */
  const char* kernel;  /* the entry */
  const char* what;    /* one sentence */
  const char* where;   /* "keys stage 1 (shared 17408)", or "" */
  const char* text;    /* all of it, in several lines: roles, PTX and template lines of both sides */
  uint64_t count;      /* how often it was seen */
  const char* rule;    /* "shared-race", ... : docs/emulator/checker.md lists them */
  const char* grade;   /* "error": a legal schedule gives another result; "isa": hardware tolerates it; "note" */
  const char* section; /* of the PTX ISA, by its title, or "" */
  const char* mend;    /* what would mend it */
} kernelwright_hazard;
/* The hazard lives for the call. Must not throw. */
typedef void (*kernelwright_hazard_callback)(const kernelwright_hazard* hazard, void* user_data);
/* Calls `callback` (may be NULL) for each report since the last call, on this thread. *count (may be NULL): how many. A
 * GPU reports none. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_take_hazards(kernelwright_engine* engine,
                                                                      kernelwright_hazard_callback callback,
                                                                      void* user_data, uint64_t* count);

/* ---- memory ---- */

/* For programs without a driver of their own, and for the emulator, whose addresses a driver does not know: plain
 * device memory. A server goes on using its own. */

/* "NVIDIA H100 80GB HBM3", "emulated sm_90a". Lives as long as the engine. */
KERNELWRIGHT_API kernelwright_status kernelwright_device_name(kernelwright_engine* engine, int32_t device,
                                                              const char** name);
/* 256-byte aligned; 0 bytes give address 0. Here and below, more bytes than any memory has, 2^56, and spans that pass
 * the last address are an invalid argument. */
KERNELWRIGHT_API kernelwright_status kernelwright_device_allocate(kernelwright_engine* engine, int32_t device,
                                                                  uint64_t bytes, uint64_t* address);
KERNELWRIGHT_API kernelwright_status kernelwright_device_free(kernelwright_engine* engine, int32_t device,
                                                              uint64_t address);
/* Both return when it is done; the second waits for the default stream. */
KERNELWRIGHT_API kernelwright_status kernelwright_device_write(kernelwright_engine* engine, int32_t device, uint64_t to,
                                                               const void* from, uint64_t bytes);
KERNELWRIGHT_API kernelwright_status kernelwright_device_read(kernelwright_engine* engine, int32_t device, void* to,
                                                              uint64_t from, uint64_t bytes);

/* ---- kernels ---- */

typedef struct kernelwright_prepare_options {
  size_t struct_size;
  int32_t device;
  int32_t on_miss; /* KERNELWRIGHT_ON_MISS_... */
  int32_t background;
  int32_t allow_when_sealed;
} kernelwright_prepare_options;

/* The kernel for a config: the text of a config file (docs/config.md), `length` bytes of it, with its schedule. A
 * kernel of kind "attention" is launched by kernelwright_launch(), one of kind "gemm" by kernelwright_launch_gemm(),
 * and so on. Kind "moe" is a whole layer of experts, several kernels behind one handle. `options` may be NULL. */
KERNELWRIGHT_API kernelwright_status kernelwright_prepare_json(kernelwright_engine* engine, const char* config,
                                                               size_t length,
                                                               const kernelwright_prepare_options* options,
                                                               kernelwright_kernel** kernel);

/* An attention problem in the words of a config; the schedule is left to the planner. NULL and 0 are the defaults of
 * docs/config.md, so head_dim_qk, head_dim_v, q_heads and kv_heads must be set. */
typedef struct kernelwright_attention_problem {
  size_t struct_size;
  const char* q_dtype; /* "bf16", ... */
  const char* kv_dtype;
  const char* out_dtype;
  int32_t head_dim_qk, head_dim_v;
  int32_t q_heads, kv_heads;
  const char* q_layout;  /* "padded", "ragged" */
  const char* kv_layout; /* "padded", "ragged", "paged" */
  int32_t page_size;
  const char* mask;                  /* "none", "causal", "sliding_window", "chunked", "padding", "tensor" */
  int32_t window_left, window_right; /* read for "sliding_window" alone */
  const char* score_mod;             /* "none", "softcap", "alibi", "tensor" (of bf16) */
  double softcap;
  int32_t sinks, lse;
  const char* scales; /* "none", "per_tensor", "per_head" */
  int32_t max_q_len;
  int32_t kv_offsets; /* 1: ragged keys have offsets of their own, not the queries' */
  int32_t deterministic, batch_invariant;
  int32_t mask_chunk; /* keys of a chunk, for "chunked" */
  int32_t kv_starts;  /* 1: a launch may give the first key of each sequence */
} kernelwright_attention_problem;

KERNELWRIGHT_API kernelwright_status kernelwright_prepare_attention(kernelwright_engine* engine,
                                                                    const kernelwright_attention_problem* problem,
                                                                    const kernelwright_prepare_options* options,
                                                                    kernelwright_kernel** kernel);

enum { KERNELWRIGHT_PENDING = 0, KERNELWRIGHT_READY = 1, KERNELWRIGHT_FAILED = 2 };

typedef struct kernelwright_kernel_info {
  size_t struct_size;
  int32_t state; /* KERNELWRIGHT_PENDING, ... */
  int32_t serves_fallback;
  int32_t device;
  int32_t registers, spill_bytes, static_shared_bytes; /* 0 unless ready */
  uint64_t cubin_bytes;                                /* 0 unless ready */
  const char* key;                                     /* 64 hex digits; lives as long as the engine */
} kernelwright_kernel_info;
/* Fills as many fields as info->struct_size has room for. */
KERNELWRIGHT_API kernelwright_status kernelwright_kernel_get_info(const kernelwright_kernel* kernel,
                                                                  kernelwright_kernel_info* info);
/* Waits until the kernel is ready. If it has failed: the status and the words of what stopped it. In a child of fork()
 * it fails unless the kernel was ready. */
KERNELWRIGHT_API kernelwright_status kernelwright_kernel_wait(const kernelwright_kernel* kernel);

/* A binary that the engine was asked for. A prepared kernel may have several: their rows follow each other. */
typedef struct kernelwright_kernel_row {
  size_t struct_size;
  uint64_t prepared;  /* the number of the prepared kernel, the same in all of its rows */
  const char* kind;   /* "attention", "gemm", "quantize", "kv_write", "row_op", "route", "moe_combine" */
  const char* kernel; /* the template: "attention_sm90" */
  const char* family; /* "portable", "hopper", "blackwell" */
  const char* key;    /* 64 hex digits */
  const char* error;  /* what stopped it; "" unless the state is KERNELWRIGHT_FAILED */
  int32_t state;      /* KERNELWRIGHT_PENDING, ...: of the prepared kernel */
  int32_t device;
  int32_t fallback; /* 1: the portable kernel that stands in for the prepared one */
  int32_t serving;  /* 1: launches run it now */
  /* Known once it is loaded; "" and 0 before. */
  const char* source; /* where it was when it was first asked for: "memory", "disk", "read-only layer", "compiled" */
  const char* entry;  /* its name in a profile */
  int32_t registers, spill_bytes, static_shared_bytes;
  uint64_t cubin_bytes;
  double compile_ms; /* of the compilation that made it, here or elsewhere */
} kernelwright_kernel_row;
/* The row lives for the call. Must neither throw nor call back into the engine. */
typedef void (*kernelwright_kernel_row_callback)(const kernelwright_kernel_row* row, void* user_data);
/* Calls `callback` (may be NULL) for each binary of each kernel, on this thread. *count (may be NULL): how many. */
KERNELWRIGHT_API kernelwright_status kernelwright_engine_list_kernels(const kernelwright_engine* engine,
                                                                      kernelwright_kernel_row_callback callback,
                                                                      void* user_data, uint64_t* count);

/* In elements; all zero: contiguous. */
typedef struct kernelwright_strides {
  int64_t batch, token, head;
} kernelwright_strides;

/* Bits of kernelwright_attention_tensors.overrides. */
enum { KERNELWRIGHT_SET_SCALE = 1, KERNELWRIGHT_SET_SOFTCAP = 2, KERNELWRIGHT_SET_WINDOW = 4 };

/* AttentionTensors of runtime/attention/kernel.h, field for field. Addresses are those of a device; 0: none. */
typedef struct kernelwright_attention_tensors {
  size_t struct_size;
  uint64_t q, k, v, o;
  uint64_t lse;
  uint64_t q_offsets, kv_offsets, kv_lengths, page_table;
  uint64_t sinks, k_scale, v_scale;
  uint64_t workspace, workspace_bytes;
  int32_t batch, q_len, kv_len;
  int32_t page_table_stride;
  int64_t q_tokens;
  kernelwright_strides q_strides, k_strides, v_strides, o_strides;
  uint32_t overrides; /* which of the following are read; the others are the problem's */
  float scale, softcap;
  int32_t window_left, window_right;
  int64_t kv_tokens; /* rows of ragged k and v */
  int32_t sm_budget; /* SMs that a persistent kernel takes at most; 0: all */
  uint64_t alibi_slopes;
  int32_t pdl; /* programmatic dependent launch: may start while the kernel ahead of it ends; sm_90 and newer */
  uint64_t q_rope, k_rope; /* the rotary part of a head, if the problem has one */
  kernelwright_strides q_rope_strides, k_rope_strides;
  uint64_t q_scale; /* scales "per_token" of e4m3 queries */
  /* Pages that paged k and v have: an entry of page_table that names none of them stands for a page of zeros. Give it.
   * 0: not known, and a wrong entry makes the kernel read what is not its own. */
  int32_t num_pages;
  int32_t zero_padding; /* 1: rows of ragged o that are no sequence's become zeros; 0: they are left alone */
  /* Mask "tensor", bytes of which 0 hides a key, and score_mod "tensor", elements of score_mod.dtype: [batch or 1,
   * q_heads or 1, q_len or 1, kv_len]. Strides: token is a query's; keys are contiguous; 0: one element for all. */
  uint64_t mask;
  kernelwright_strides mask_strides;
  uint64_t bias;
  kernelwright_strides bias_strides;
  uint64_t kv_starts; /* [batch] i32: the first key of each sequence, for a problem with kv_starts; 0: its key 0 */
  kernelwright_strides k_scale_strides, v_scale_strides; /* scales "per_token", "per_page"; zero: contiguous */
} kernelwright_attention_tensors;

/* Queues the attention on `stream` (a CUstream or cudaStream_t; NULL: the default stream). Allocates nothing and waits
 * for nothing once the kernel is ready; legal while the stream captures. */
KERNELWRIGHT_API kernelwright_status kernelwright_launch(const kernelwright_kernel* kernel,
                                                         const kernelwright_attention_tensors* tensors, void* stream);

/* Bytes of workspace that a launch with the sizes of `tensors` needs (addresses are not read). It needs no zeroing; one
 * buffer serves all launches of one stream. */
KERNELWRIGHT_API kernelwright_status kernelwright_workspace_bytes(const kernelwright_kernel* kernel,
                                                                  const kernelwright_attention_tensors* tensors,
                                                                  uint64_t* bytes);

/* Bits of kernelwright_kv_write_tensors.overrides. */
enum { KERNELWRIGHT_SET_EPS = 1 };

/* KvWriteTensors of runtime/kv_write/kernel.h, field for field. Addresses are device addresses; 0: none. */
typedef struct kernelwright_kv_write_tensors {
  size_t struct_size;
  uint64_t q, k, v;                   /* [tokens, heads, head_dim] of dtype.in */
  uint64_t q_out, k_cache, v_cache;   /* what is written; the caches as attention reads them */
  uint64_t q_weight, k_weight;        /* of the norm, dtype.in */
  uint64_t cos_sin;                   /* [cos_sin_rows, rope.width] f32 */
  uint64_t positions;                 /* [tokens], with sections [3, tokens] */
  uint64_t slot_mapping;              /* index "slots": [tokens] i64; negative: not written */
  uint64_t batch_indices, page_table; /* index "positions": [tokens] i32, [batch, page_table_stride] i32 */
  uint64_t q_scale, k_scale, v_scale; /* f32; scales "per_token" are written, the others are read */
  int64_t tokens;
  int32_t num_pages, batch;             /* batch: rows of page_table, or sequences of a padded cache */
  int32_t kv_len;                       /* padded: keys of a sequence */
  int32_t page_table_stride;            /* entries of one row of page_table */
  int64_t kv_tokens;                    /* ragged: rows of the cache */
  int32_t cos_sin_rows, position_bytes; /* position_bytes: 4 or 8; 0: 4 */
  kernelwright_strides q_strides, k_strides, v_strides, q_out_strides; /* batch is not used */
  kernelwright_strides k_cache_strides, v_cache_strides;
  int32_t pdl;
  uint32_t overrides; /* whether eps is read; otherwise it is the problem's */
  float eps;
  kernelwright_strides k_scale_strides, v_scale_strides; /* of scales "per_token"; zero: as the contiguous caches */
} kernelwright_kv_write_tensors;

/* Bits of kernelwright_gemm_tensors.overrides. */
enum { KERNELWRIGHT_SET_ALPHA = 1, KERNELWRIGHT_SET_BETA = 2, KERNELWRIGHT_SET_RMS_EPS = 4 };

/* GemmTensors of runtime/gemm/kernel.h, field for field. Device addresses, 0: none. Strides in elements, 0: no gap. */
typedef struct kernelwright_gemm_tensors {
  size_t struct_size;
  uint64_t a, b, d; /* b with pointers: uint64 [count], the address of each group's matrix */
  uint64_t c, bias, scale_a, scale_b;
  int64_t a_stride, b_stride, c_stride, d_stride, scale_a_stride, scale_b_stride;
  int32_t m, sm_budget, pdl; /* m: rows of d */
  uint32_t overrides;        /* which of alpha, beta and rms_eps are read; the others are 1, 1, 1e-6 */
  float alpha, beta;
  int32_t constant_b; /* with pdl: no kernel ahead that may still run writes b */
  uint64_t workspace, workspace_bytes;
  uint64_t bounds;     /* of groups: int32 starts [count + 1], ends [count] or counts [count] */
  uint64_t status;     /* int32 that becomes 1 if bounds do not fit; 0: none */
  uint64_t gather;     /* with gather: int32 [m], the row of a for each row of d; outside [0, source_rows): zeros */
  int32_t expected_m;  /* rows of a group that has any; 0: m / count, rounded up */
  int32_t source_rows; /* with gather: rows of a; of groups of kind k: rows of a and b */
  uint64_t scale_d;    /* where the epilogue quantises: f32 [columns of d / 128, m], or a block format's bytes */
  int64_t scale_d_stride;
  /* of a batch, and c and d of kind k: elements from the first row of a group to that of the next; 0: without a gap */
  int64_t a_batch_stride, b_batch_stride, c_batch_stride, d_batch_stride;
  uint64_t scatter;                  /* with scatter: int32 [m], the row of d that each row becomes; -1: none */
  int32_t result_rows;               /* with scatter: rows of d and c */
  float tensor_scale, rms_eps;       /* d of a block format: values / tensor_scale are quantised, 0: 1; of rstd */
  uint64_t amax, squares, squares_a; /* of epilogues with amax, squares, rstd: GemmTensors says what they are */
  int64_t squares_stride, squares_a_stride;
  const kernelwright_kv_write_tensors* kv_write; /* of a problem with kv_write, without q, k, v and q_out; else NULL */
} kernelwright_gemm_tensors;

/* Bytes of workspace that a launch with the rows of `tensors` needs (addresses are not read): 0 but for kernels whose
 * parts of k take turns. As kernelwright_workspace_bytes(). */
KERNELWRIGHT_API kernelwright_status kernelwright_gemm_workspace_bytes(const kernelwright_kernel* kernel,
                                                                       const kernelwright_gemm_tensors* tensors,
                                                                       uint64_t* bytes);

/* Queues d = epilogue(a b) on `stream`, as kernelwright_launch() queues attention. */
KERNELWRIGHT_API kernelwright_status kernelwright_launch_gemm(const kernelwright_kernel* kernel,
                                                              const kernelwright_gemm_tensors* tensors, void* stream);

/* The kernel that quantises rows of `from` ("f16", "bf16", "f32") to `to` ("mxfp8", "mxfp4", "nvfp4"), elements and
 * scales as a GEMM's operand has them. kernelwright_launch_quantize() launches it. `options` may be NULL. */
KERNELWRIGHT_API kernelwright_status kernelwright_prepare_quantize(kernelwright_engine* engine, const char* from,
                                                                   const char* to,
                                                                   const kernelwright_prepare_options* options,
                                                                   kernelwright_kernel** kernel);

/* QuantizeTensors of runtime/quantize/kernel.h, field for field. Device addresses. Strides in elements, 0: no gap. */
typedef struct kernelwright_quantize_tensors {
  size_t struct_size;
  uint64_t x;        /* [rows, k] of the kernel's `from` */
  uint64_t elements; /* [rows, k] of its `to` */
  uint64_t scales;   /* kernelwright_quantize_scale_bytes() of them */
  int64_t x_stride, elements_stride;
  int32_t rows, k;
  int32_t pdl;
  float tensor_scale; /* x / tensor_scale is quantised, which a GEMM's alpha brings back; 0: 1 */
} kernelwright_quantize_tensors;

/* Bytes of the scales of [rows, k] elements of `to`, those of whole atoms. */
KERNELWRIGHT_API kernelwright_status kernelwright_quantize_scale_bytes(const char* to, int64_t rows, int32_t k,
                                                                       uint64_t* bytes);

/* Queues elements, scales = quantised x on `stream`, as kernelwright_launch() queues attention. */
KERNELWRIGHT_API kernelwright_status kernelwright_launch_quantize(const kernelwright_kernel* kernel,
                                                                  const kernelwright_quantize_tensors* tensors,
                                                                  void* stream);

/* Queues the writing of a cache on `stream`, as kernelwright_launch() queues attention. kernelwright_prepare_json()
 * prepares the kernel. */
KERNELWRIGHT_API kernelwright_status kernelwright_launch_kv_write(const kernelwright_kernel* kernel,
                                                                  const kernelwright_kv_write_tensors* tensors,
                                                                  void* stream);

/* Bits of kernelwright_row_op_tensors.overrides, beside KERNELWRIGHT_SET_EPS. */
enum { KERNELWRIGHT_SET_GATE_ALPHA = 2, KERNELWRIGHT_SET_GATE_LIMIT = 4 };

/* RowOpTensors of runtime/row_op/kernel.h, field for field. Addresses are device addresses; 0: none. Strides count
 * elements from one row to the next; 0: rows follow each other without a gap. */
typedef struct kernelwright_row_op_tensors {
  size_t struct_size;
  uint64_t x;                      /* [rows, width], with input "gate_up" [rows, 2 width], of dtype.in */
  uint64_t residual, residual_out; /* input "add": [rows, width] of dtype.in; they may be one. "merge": the first */
  uint64_t weight;                 /* of the norm: [width] of dtype.in */
  uint64_t out;                    /* [rows, width] of dtype.out; may be x with its dtype and stride */
  uint64_t scale;                  /* scales "per_tensor" are read, the others are written */
  int64_t rows;
  int64_t x_stride, residual_stride, residual_out_stride, out_stride;
  int64_t scale_stride; /* "per_block": from one row of the scales to the next */
  int32_t pdl;
  uint32_t overrides; /* whether eps, gate_alpha and gate_limit are read, or those of the problem */
  float eps, gate_alpha, gate_limit;
  float tensor_scale;      /* mxfp8, mxfp4, nvfp4: values / tensor_scale are quantised; 0: 1 */
  int32_t constant_weight; /* with pdl: no kernel ahead that may still run writes weight */
  /* input "merge": f32 [rows, heads], -inf where a row saw no key, of x, of residual and, written, of both */
  uint64_t lse, residual_lse, lse_out;
  int64_t lse_stride, lse_head_stride; /* of all three, from one row to the next, and from one head; 0: no gap */
} kernelwright_row_op_tensors;

/* Queues steps over rows on `stream`, as kernelwright_launch() does. kernelwright_prepare_json() makes the kernel. */
KERNELWRIGHT_API kernelwright_status kernelwright_launch_row_op(const kernelwright_kernel* kernel,
                                                                const kernelwright_row_op_tensors* tensors,
                                                                void* stream);

/* A bit of kernelwright_route_tensors.overrides. */
enum { KERNELWRIGHT_SET_FACTOR = 1 };

/* RouteTensors of runtime/route/kernel.h, field for field. Addresses are device addresses; 0: none. */
typedef struct kernelwright_route_tensors {
  size_t struct_size;
  uint64_t logits;                     /* [tokens, experts] of dtype; aligned to 16 bytes */
  uint64_t bias;                       /* f32 [experts] */
  uint64_t local_ids;                  /* int32 [experts]: below local_experts, or -1 */
  uint64_t ids;                        /* int32 [tokens, top_k] */
  uint64_t weights;                    /* f32 [tokens, top_k] */
  uint64_t starts;                     /* int32 [local experts + 1] */
  uint64_t source_rows;                /* int32 [sorted rows]: tokens * top_k, and (alignment - 1) * local experts */
  uint64_t positions;                  /* int32 [tokens, top_k] */
  uint64_t sorted_weights;             /* f32 [sorted rows]; may be 0 */
  uint64_t workspace, workspace_bytes; /* see kernelwright_route_workspace_bytes() */
  int64_t tokens, logits_stride;
  int32_t pdl;
  uint32_t overrides; /* whether factor is read, or that of the problem */
  float factor;
} kernelwright_route_tensors;

/* Bytes of workspace that a launch with the tokens of `tensors` needs (addresses are not read): 0 for few. As
 * kernelwright_workspace_bytes(). */
KERNELWRIGHT_API kernelwright_status kernelwright_route_workspace_bytes(const kernelwright_kernel* kernel,
                                                                        const kernelwright_route_tensors* tensors,
                                                                        uint64_t* bytes);

/* Queues a choice of experts on `stream`, as kernelwright_launch() does. Its kernel is made as that of row_op is. */
KERNELWRIGHT_API kernelwright_status kernelwright_launch_route(const kernelwright_kernel* kernel,
                                                               const kernelwright_route_tensors* tensors, void* stream);

/* MoeCombineTensors of runtime/moe_combine/kernel.h, field for field. Addresses are device addresses; 0: none. */
typedef struct kernelwright_moe_combine_tensors {
  size_t struct_size;
  uint64_t rows;      /* [num_rows, width] of dtype.in */
  uint64_t positions; /* int32 [tokens, top_k]: the row of each pair; outside [0, num_rows): skipped */
  uint64_t weights;   /* f32 [tokens, top_k]; 0: its row is not read */
  uint64_t residual;  /* [tokens, width] of dtype.in */
  uint64_t out;       /* [tokens, width] of dtype.out; may be the residual */
  int64_t num_rows, tokens;
  int64_t rows_stride, residual_stride, out_stride; /* elements; 0: width */
  int32_t pdl;
} kernelwright_moe_combine_tensors;

/* Queues the sums on `stream`, as kernelwright_launch() does. kernelwright_prepare_json() prepares the kernel. */
KERNELWRIGHT_API kernelwright_status kernelwright_launch_moe_combine(const kernelwright_kernel* kernel,
                                                                     const kernelwright_moe_combine_tensors* tensors,
                                                                     void* stream);

/* MoeTensors of runtime/moe/kernel.h, field for field. Addresses are device addresses; 0: none. Experts are those whose
 * weights the layer has; wide is the problem's intermediate. */
typedef struct kernelwright_moe_tensors {
  size_t struct_size;
  uint64_t x;             /* [tokens, hidden] of dtype */
  uint64_t logits;        /* [tokens, route.experts] of route.dtype; 0 where experts are given */
  uint64_t bias;          /* f32 [route.experts] */
  uint64_t local_ids;     /* int32 [route.experts]: below local_experts, or -1 */
  uint64_t ids, weights;  /* int32, f32 [tokens, top_k]: read where experts are given; else written, or 0 */
  uint64_t gate_up;       /* [experts, 2 wide, hidden]: 8 rows of gates, the 8 rows of their ups, ... */
  uint64_t gate_up_scale; /* f32 [experts, 2 ceil(wide / 128), hidden / 128], those of gates first */
  uint64_t gate_up_bias;  /* [experts, 2 wide] of dtype, interleaved as the rows are */
  uint64_t down;          /* [experts, hidden, wide] */
  uint64_t down_scale;    /* f32 [experts, hidden / 128, wide / 128] */
  uint64_t down_bias;     /* [experts, hidden] of dtype */
  uint64_t residual;      /* [tokens, hidden] of dtype */
  uint64_t out;           /* [tokens, hidden] of dtype; may be x or the residual */
  uint64_t workspace, workspace_bytes; /* see kernelwright_moe_workspace_bytes() */
  int64_t tokens;
  int64_t x_stride, logits_stride, residual_stride, out_stride; /* elements; 0: rows follow each other */
  int32_t pdl;
  uint32_t overrides; /* KERNELWRIGHT_SET_FACTOR: factor is read, or that of the problem */
  float factor;
} kernelwright_moe_tensors;

/* Bytes of workspace for any launch of at most as many tokens as tensors->tokens (addresses are not read). It needs no
 * zeroing; one buffer serves all launches of one stream. */
KERNELWRIGHT_API kernelwright_status kernelwright_moe_workspace_bytes(const kernelwright_kernel* kernel,
                                                                      const kernelwright_moe_tensors* tensors,
                                                                      uint64_t* bytes);

/* Queues a whole layer of experts on `stream`, as kernelwright_launch() queues attention: up to seven kernels.
 * kernelwright_prepare_json() prepares it, of a config of kind "moe" (docs/moe.md). */
KERNELWRIGHT_API kernelwright_status kernelwright_launch_moe(const kernelwright_kernel* kernel,
                                                             const kernelwright_moe_tensors* tensors, void* stream);

/* RopeTable of generator/kv_write/rope_table.h, field for field. A number that is 0 is left out. */
typedef struct kernelwright_rope {
  size_t struct_size;
  const char* scaling; /* "default", "llama3", "yarn", "longrope", "proportional"; NULL: default */
  int32_t width;       /* elements that turn: the problem's rope.width */
  int32_t no_truncate; /* yarn: bounds stay fractions of a pair */
  double theta;        /* 10000 if left out */
  double factor;       /* 1 */
  double original_positions;
  double low, high;            /* llama3: 1, 4 */
  double beta_fast, beta_slow; /* yarn: 32, 1 */
  double mscale, mscale_all;   /* yarn */
  double share;                /* proportional: 1 */
  double attention_factor;     /* that of the scaling */
  const double* factors;       /* longrope: one a pair */
  uint64_t num_factors;
} kernelwright_rope;

/* Computes rows [first, first + rows) of the table cos_sin of a cache's writer, on the host: width floats each. */
KERNELWRIGHT_API kernelwright_status kernelwright_rope_table(const kernelwright_rope* rope, int64_t first, int64_t rows,
                                                             float* table);

#ifdef __cplusplus
}
#endif

#endif
