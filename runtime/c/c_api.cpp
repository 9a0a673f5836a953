#include "kernelwright/runtime/c/c_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <type_traits>
#include <variant>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/runtime/c/c_api_engine.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/emulator/machine/per_thread.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright {
namespace {

/// What reading a config needs of the caller's stack; a smaller one is left for a thread of ours.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

struct LastError {
  std::string words;
};

kernelwright_status failed(kernelwright_status status, const char* what) noexcept {
  LastError* last = nullptr;
  try {
    last = &per_thread<LastError>();
    last->words = what;
  } catch (...) {
    if (last) last->words.clear();  // no memory for the words; the status has to do
  }
  return status;
}

/// Runs `body` and turns what it throws into a status and words.
template <class Body>
kernelwright_status guarded(Body&& body) noexcept {
  try {
    body();
    return KERNELWRIGHT_OK;
  } catch (const ConfigError& error) {
    return failed(KERNELWRIGHT_INVALID_ARGUMENT, error.what());
  } catch (const CompileError& error) {
    return failed(KERNELWRIGHT_COMPILE_ERROR, error.what());
  } catch (const MissingError& error) {
    return failed(KERNELWRIGHT_MISSING, error.what());
  } catch (const DeviceError& error) {
    return failed(KERNELWRIGHT_DEVICE_ERROR, error.what());
  } catch (const NotReadyError& error) {
    return failed(KERNELWRIGHT_NOT_READY, error.what());
  } catch (const InterruptedError& error) {
    return failed(KERNELWRIGHT_NOT_READY, error.what());
  } catch (const std::bad_alloc&) {
    return failed(KERNELWRIGHT_INTERNAL_ERROR, "out of memory");
  } catch (const std::exception& error) {
    return failed(KERNELWRIGHT_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(KERNELWRIGHT_INTERNAL_ERROR, "an exception that is no std::exception");
  }
}

template <class T>
T& not_null(T* pointer, const char* name) {
  if (!pointer) throw ConfigError(std::string("/") + name, "is null");
  return *pointer;
}

/// Whether some version of T may have that size: a compiler makes it whole multiples of the alignment, so that no field
/// is cut.
template <class T>
bool may_be_size(std::size_t size, std::size_t first_version_bytes) {
  return size >= first_version_bytes && size <= 4096 && size % alignof(T) == 0;
}

/// The caller's struct as this library knows it: fields that the caller's header lacks are zero, fields that only the
/// caller's header has must be.
template <class T>
T read_struct(const T* given, const char* name, std::size_t first_version_bytes) {
  T known{};
  known.struct_size = sizeof(T);
  if (!given) return known;
  const std::size_t size = given->struct_size;
  if (!may_be_size<T>(size, first_version_bytes))
    throw ConfigError(fmt::format("/{}/struct_size", name),
                      fmt::format("is {}; set it to sizeof(kernelwright_{}), {} here", size, name, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const auto* beyond =
      std::find_if(bytes + std::min(size, sizeof(T)), bytes + size, [](auto byte) { return byte != 0; });
  if (beyond != bytes + size)
    throw ConfigError(
        fmt::format("/{}/struct_size", name),
        fmt::format("is {} and the field at byte {} is set; this library ({}) knows {} bytes: build with its "
                    "header, or leave newer fields zero",
                    size, beyond - bytes, kernelwright_version(), sizeof(T)));
  std::memcpy(&known, given, std::min(size, sizeof(T)));
  return known;
}

/// Writes as much of `result` as the caller's struct has room for, and leaves its struct_size.
template <class T>
void write_struct(const T& result, T* to, const char* name, std::size_t first_version_bytes) {
  const std::size_t size = not_null(to, name).struct_size;
  if (!may_be_size<T>(size, first_version_bytes))
    throw ConfigError(fmt::format("/{}/struct_size", name),
                      fmt::format("is {}; set it to sizeof(kernelwright_{}), {} here", size, name, sizeof(T)));
  constexpr std::size_t kAfterSize = sizeof(std::size_t);
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  std::memset(bytes + kAfterSize, 0, size - kAfterSize);
  std::memcpy(bytes + kAfterSize, reinterpret_cast<const unsigned char*>(&result) + kAfterSize,
              std::min(size, sizeof(T)) - kAfterSize);
}

// Where the first version of each struct ended: it never changes.
#define KERNELWRIGHT_END_OF(Struct, field) (offsetof(Struct, field) + sizeof(Struct::field))
constexpr std::size_t kEngineOptions1 = KERNELWRIGHT_END_OF(kernelwright_engine_options, user_data);
constexpr std::size_t kPrepareOptions1 = KERNELWRIGHT_END_OF(kernelwright_prepare_options, allow_when_sealed);
constexpr std::size_t kProblem1 = KERNELWRIGHT_END_OF(kernelwright_attention_problem, max_q_len);
constexpr std::size_t kTensors1 = KERNELWRIGHT_END_OF(kernelwright_attention_tensors, window_right);
constexpr std::size_t kGemmTensors1 = KERNELWRIGHT_END_OF(kernelwright_gemm_tensors, constant_b);
constexpr std::size_t kQuantizeTensors1 = KERNELWRIGHT_END_OF(kernelwright_quantize_tensors, tensor_scale);
constexpr std::size_t kCounters1 = KERNELWRIGHT_END_OF(kernelwright_counters, quarantined);
constexpr std::size_t kLatency1 = KERNELWRIGHT_END_OF(kernelwright_latency, buckets);
constexpr std::size_t kKernelInfo1 = KERNELWRIGHT_END_OF(kernelwright_kernel_info, key);
// What is appended begins at a multiple of 8: the padding at an old struct's end holds anything.
#undef KERNELWRIGHT_END_OF

PrepareOptions options_of(const kernelwright_prepare_options* given) {
  const auto c = read_struct(given, "prepare_options", kPrepareOptions1);
  if (c.on_miss < KERNELWRIGHT_ON_MISS_BLOCK || c.on_miss > KERNELWRIGHT_ON_MISS_ERROR)
    throw ConfigError("/prepare_options/on_miss",
                      fmt::format("{} is none of block (0), fallback (1) and error (2)", c.on_miss));
  return {.device = c.device,
          .on_miss = static_cast<OnMiss>(c.on_miss),
          .background = c.background != 0,
          .allow_when_sealed = c.allow_when_sealed != 0};
}
static_assert(static_cast<int>(OnMiss::kBlock) == KERNELWRIGHT_ON_MISS_BLOCK &&
              static_cast<int>(OnMiss::kFallback) == KERNELWRIGHT_ON_MISS_FALLBACK &&
              static_cast<int>(OnMiss::kError) == KERNELWRIGHT_ON_MISS_ERROR);
static_assert(static_cast<int>(KernelState::kPending) == KERNELWRIGHT_PENDING &&
              static_cast<int>(KernelState::kReady) == KERNELWRIGHT_READY &&
              static_cast<int>(KernelState::kFailed) == KERNELWRIGHT_FAILED);

static_assert(static_cast<int>(EventLevel::kDebug) == KERNELWRIGHT_LEVEL_DEBUG &&
              static_cast<int>(EventLevel::kInfo) == KERNELWRIGHT_LEVEL_INFO &&
              static_cast<int>(EventLevel::kWarning) == KERNELWRIGHT_LEVEL_WARNING &&
              static_cast<int>(EventLevel::kError) == KERNELWRIGHT_LEVEL_ERROR);
static_assert(LatencySnapshot::kBounds == KERNELWRIGHT_LATENCY_BOUNDS);

template <class E>
void read_word(const char* word, const char* path, E& value) {
  if (!word) return;
  const auto known = from_string<E>(word);
  if (!known) throw ConfigError(path, fmt::format("\"{:.64}\" is not one of {}", word, all_words<E>()));
  value = *known;
}

AttentionProblem problem_of(const kernelwright_attention_problem* given) {
  const auto c = read_struct(&not_null(given, "attention_problem"), "attention_problem", kProblem1);
  AttentionProblem problem;
  read_word(c.q_dtype, "/problem/dtype/q", problem.dtype.q);
  read_word(c.kv_dtype, "/problem/dtype/kv", problem.dtype.kv);
  read_word(c.out_dtype, "/problem/dtype/out", problem.dtype.out);
  problem.head_dim = {c.head_dim_qk, c.head_dim_v};
  problem.heads = {c.q_heads, c.kv_heads};
  read_word(c.q_layout, "/problem/q_layout", problem.q_layout);
  read_word(c.kv_layout, "/problem/kv_layout/kind", problem.kv_layout.kind);
  problem.kv_layout.page_size = c.page_size;
  read_word(c.mask, "/problem/mask/kind", problem.mask.kind);
  if (problem.mask.kind == MaskKind::kSlidingWindow) problem.mask.window = {c.window_left, c.window_right};
  problem.mask.chunk = c.mask_chunk;
  read_word(c.score_mod, "/problem/score_mod/kind", problem.score_mod.kind);
  problem.score_mod.cap = c.softcap;
  problem.sinks = c.sinks != 0;
  problem.lse = c.lse != 0;
  read_word(c.scales, "/problem/scales", problem.scales);
  problem.max_q_len = c.max_q_len;
  problem.kv_offsets = c.kv_offsets != 0;
  problem.deterministic = c.deterministic != 0;
  problem.batch_invariant = c.batch_invariant != 0;
  return problem;
}

AttentionTensors tensors_of(const kernelwright_attention_tensors* given) {
  const auto c = read_struct(&not_null(given, "attention_tensors"), "attention_tensors", kTensors1);
  const auto strides = [](const kernelwright_strides& s) { return TensorStrides{s.batch, s.token, s.head}; };
  AttentionTensors tensors{.q = c.q,
                           .k = c.k,
                           .v = c.v,
                           .o = c.o,
                           .lse = c.lse,
                           .q_offsets = c.q_offsets,
                           .kv_offsets = c.kv_offsets,
                           .kv_lengths = c.kv_lengths,
                           .page_table = c.page_table,
                           .sinks = c.sinks,
                           .k_scale = c.k_scale,
                           .v_scale = c.v_scale,
                           .workspace = c.workspace,
                           .workspace_bytes = c.workspace_bytes,
                           .batch = c.batch,
                           .q_len = c.q_len,
                           .kv_len = c.kv_len,
                           .q_tokens = c.q_tokens,
                           .kv_tokens = c.kv_tokens,
                           .page_table_stride = c.page_table_stride,
                           .q_strides = strides(c.q_strides),
                           .k_strides = strides(c.k_strides),
                           .v_strides = strides(c.v_strides),
                           .o_strides = strides(c.o_strides),
                           .sm_budget = c.sm_budget,
                           .pdl = c.pdl != 0,
                           .alibi_slopes = c.alibi_slopes,
                           .q_rope = c.q_rope,
                           .k_rope = c.k_rope,
                           .q_rope_strides = strides(c.q_rope_strides),
                           .k_rope_strides = strides(c.k_rope_strides),
                           .q_scale = c.q_scale,
                           .num_pages = c.num_pages,
                           .zero_padding = c.zero_padding != 0,
                           .mask = c.mask,
                           .mask_strides = strides(c.mask_strides),
                           .bias = c.bias,
                           .bias_strides = strides(c.bias_strides)};
  if (c.overrides & ~7u)
    throw ConfigError("/attention_tensors/overrides",
                      fmt::format("{:#x} has bits that mean nothing here", c.overrides));
  if (c.overrides & KERNELWRIGHT_SET_SCALE) tensors.scale = c.scale;
  if (c.overrides & KERNELWRIGHT_SET_SOFTCAP) tensors.softcap = c.softcap;
  if (c.overrides & KERNELWRIGHT_SET_WINDOW) tensors.window = Window{c.window_left, c.window_right};
  return tensors;
}

GemmTensors tensors_of(const kernelwright_gemm_tensors* given) {
  const auto c = read_struct(&not_null(given, "gemm_tensors"), "gemm_tensors", kGemmTensors1);
  GemmTensors tensors{.a = c.a,
                      .b = c.b,
                      .d = c.d,
                      .c = c.c,
                      .bias = c.bias,
                      .scale_a = c.scale_a,
                      .scale_b = c.scale_b,
                      .m = c.m,
                      .a_stride = c.a_stride,
                      .b_stride = c.b_stride,
                      .c_stride = c.c_stride,
                      .d_stride = c.d_stride,
                      .scale_a_stride = c.scale_a_stride,
                      .scale_b_stride = c.scale_b_stride,
                      .sm_budget = c.sm_budget,
                      .pdl = c.pdl != 0,
                      .constant_b = c.constant_b != 0,
                      .workspace = c.workspace,
                      .workspace_bytes = c.workspace_bytes};
  if (c.overrides & ~3u)
    throw ConfigError("/gemm_tensors/overrides", fmt::format("{:#x} has bits that mean nothing here", c.overrides));
  if (c.overrides & KERNELWRIGHT_SET_ALPHA) tensors.alpha = c.alpha;
  if (c.overrides & KERNELWRIGHT_SET_BETA) tensors.beta = c.beta;
  return tensors;
}

QuantizeTensors tensors_of(const kernelwright_quantize_tensors* given) {
  const auto c = read_struct(&not_null(given, "quantize_tensors"), "quantize_tensors", kQuantizeTensors1);
  return {.x = c.x,
          .elements = c.elements,
          .scales = c.scales,
          .rows = c.rows,
          .k = c.k,
          .x_stride = c.x_stride,
          .elements_stride = c.elements_stride,
          .tensor_scale = c.tensor_scale == 0 ? 1 : c.tensor_scale,
          .pdl = c.pdl != 0};
}

/// What a handle does, and with which functions.
const char* use_of(const AttentionKernel&) { return "computes attention; kernelwright_launch() launches it"; }
const char* use_of(const GemmKernel&) {
  return "computes a gemm; kernelwright_launch_gemm() launches it, and kernelwright_gemm_workspace_bytes() tells its "
         "workspace";
}
const char* use_of(const QuantizeKernel&) { return "quantises; kernelwright_launch_quantize() launches it"; }

/// The handle, if it is of that kind.
template <class Kernel>
const Kernel& kernel_of(const kernelwright_kernel* given) {
  const auto& held = not_null(given, "kernel").kernel;
  const auto* kernel = std::get_if<Kernel>(&held);
  if (!kernel) throw ConfigError("/kernel", std::visit([](const auto& of) { return use_of(of); }, held));
  return *kernel;
}

/// The one that info speaks of: a GEMM's for many rows.
std::shared_ptr<const Binary> main_binary(const AttentionKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const QuantizeKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const GemmKernel& kernel) {
  const auto binaries = kernel.binaries();
  return binaries.empty() ? nullptr : binaries.back();
}
const std::string& main_key(const AttentionKernel& kernel) { return kernel.key(); }
const std::string& main_key(const QuantizeKernel& kernel) { return kernel.key(); }
const std::string& main_key(const GemmKernel& kernel) { return kernel.key(std::numeric_limits<int>::max()); }

emulator::Completion completion_of(const char* word) {
  using emulator::Completion;
  const std::string_view given = word ? word : "eager";
  if (given == "eager") return Completion::kEager;
  if (given == "lazy") return Completion::kLazy;
  if (given == "random") return Completion::kRandom;
  throw ConfigError("/engine_options/completion", fmt::format("\"{:.64}\" is not one of eager, lazy, random", given));
}

Device& device_of(kernelwright_engine* engine, int32_t ordinal) {
  return not_null(engine, "engine").engine.device(ordinal);
}

EngineOptions engine_options_of(const kernelwright_engine_options* given) {
  const auto c = read_struct(given, "engine_options", kEngineOptions1);
  EngineOptions options;
  if (c.backend) options.backend = c.backend;
  if (c.cache_directory) options.cache.directory = c.cache_directory;
  if (c.num_read_only_layers) not_null(c.read_only_layers, "engine_options/read_only_layers");
  for (std::size_t i = 0; i < c.num_read_only_layers; ++i)
    options.cache.read_only_layers.emplace_back(
        &not_null(c.read_only_layers[i], fmt::format("engine_options/read_only_layers/{}", i).c_str()));
  if (c.max_cache_bytes) options.cache.max_bytes = c.max_cache_bytes;
  if (c.nvrtc_path) options.nvrtc_path = c.nvrtc_path;
  options.cache.disk = c.memory_only_cache == 0;
  options.compile_threads = c.compile_threads;
  read_word(c.emulator_arch, "/engine_options/emulator_arch", options.emulator.arch);
  options.emulator.completion = completion_of(c.completion);
  options.emulator.seed = c.seed;
  options.emulator.hazards = c.hazards != 0;
  options.emulator.threads = c.emulator_threads;
  if (c.tuned_dir) options.tuned_dir = c.tuned_dir;
  if (c.event_level < KERNELWRIGHT_LEVEL_DEBUG || c.event_level > KERNELWRIGHT_LEVEL_ERROR)
    throw ConfigError("/engine_options/event_level",
                      fmt::format("{} is none of debug (0), info (1), warning (2) and error (3)", c.event_level));
  options.sink_level = static_cast<EventLevel>(c.event_level);
  options.launch_sampling = c.launch_sampling;
  options.check_data = c.check_data != 0;
  if (c.lock_timeout_ms) options.cache.lock_timeout_ms = std::max(c.lock_timeout_ms, 0);
  if (c.event_callback)
    options.sink = [call = c.event_callback, data = c.user_data](const Event& event) {
      const kernelwright_event out{.struct_size = sizeof(kernelwright_event),
                                   .kind = to_string(event.kind).data(),  // of literals: they end in a zero
                                   .key = event.key.c_str(),
                                   .name = event.name.c_str(),
                                   .detail = event.detail.c_str(),
                                   .milliseconds = event.milliseconds,
                                   .level = static_cast<int32_t>(event.level())};
      call(&out, data);
    };
  return options;
}

}  // namespace
}  // namespace kernelwright

using namespace kernelwright;

const char* kernelwright_version(void) { return KERNELWRIGHT_VERSION; }

int32_t kernelwright_version_number(void) { return KERNELWRIGHT_VERSION_NUMBER; }

const char* kernelwright_status_name(kernelwright_status status) {
  switch (status) {
    case KERNELWRIGHT_OK: return "ok";
    case KERNELWRIGHT_INVALID_ARGUMENT: return "invalid argument";
    case KERNELWRIGHT_COMPILE_ERROR: return "compile error";
    case KERNELWRIGHT_MISSING: return "missing";
    case KERNELWRIGHT_DEVICE_ERROR: return "device error";
    case KERNELWRIGHT_NOT_READY: return "not ready";
    case KERNELWRIGHT_INTERNAL_ERROR: return "internal error";
    default: return "unknown status";
  }
}

const char* kernelwright_last_error(void) {
  try {
    return per_thread<LastError>().words.c_str();
  } catch (...) {
    return "";
  }
}

kernelwright_status kernelwright_engine_create(const kernelwright_engine_options* options,
                                               kernelwright_engine** engine) {
  return guarded([&] {
    kernelwright_engine*& out = not_null(engine, "engine");
    out = new kernelwright_engine(engine_options_of(options));
  });
}

void kernelwright_engine_destroy(kernelwright_engine* engine) { delete engine; }

kernelwright_status kernelwright_engine_seal(kernelwright_engine* engine) {
  return guarded([&] { not_null(engine, "engine").engine.seal(); });
}

kernelwright_status kernelwright_engine_stop(kernelwright_engine* engine) {
  return guarded([&] { not_null(engine, "engine").engine.stop(); });
}

kernelwright_status kernelwright_engine_wait_until_ready(kernelwright_engine* engine, int32_t timeout_ms,
                                                         int32_t* ready) {
  return guarded([&] {
    int32_t& out = not_null(ready, "ready");
    out = not_null(engine, "engine").engine.wait_until_ready(timeout_ms);
  });
}

kernelwright_status kernelwright_engine_is_ready(const kernelwright_engine* engine, int32_t* ready) {
  return guarded([&] {
    int32_t& out = not_null(ready, "ready");
    out = not_null(engine, "engine").engine.ready();
  });
}

kernelwright_status kernelwright_engine_is_sealed(const kernelwright_engine* engine, int32_t* sealed) {
  return guarded([&] {
    int32_t& out = not_null(sealed, "sealed");
    out = not_null(engine, "engine").engine.sealed();
  });
}

kernelwright_status kernelwright_engine_promote(kernelwright_engine* engine, int32_t* promoted) {
  return guarded([&] {
    const int count = not_null(engine, "engine").engine.promote();
    if (promoted) *promoted = count;
  });
}

kernelwright_status kernelwright_engine_counters(const kernelwright_engine* engine, kernelwright_counters* counters) {
  return guarded([&] {
    const EngineCounters now = not_null(engine, "engine").engine.counters();
    write_struct(kernelwright_counters{.struct_size = sizeof(kernelwright_counters),
                                       .ready = now.ready,
                                       .pending = now.pending,
                                       .failed = now.failed,
                                       .loads = now.loads,
                                       .loaded_bytes = now.loaded_bytes,
                                       .fallback_launches = now.fallback_launches,
                                       .sealed_misses = now.sealed_misses,
                                       .capture_misses = now.capture_misses,
                                       .promotions = now.promotions,
                                       .compiles = now.cache.compiles,
                                       .memory_hits = now.cache.memory_hits,
                                       .disk_hits = now.cache.disk_hits,
                                       .cache_misses = now.cache.misses,
                                       .quarantined = now.cache.quarantined,
                                       .layer_hits = now.cache.layer_hits,
                                       .compile_failures = now.cache.compile_failures,
                                       .writes = now.cache.writes,
                                       .write_failures = now.cache.write_failures,
                                       .evicted = now.cache.evicted},
                 counters, "counters", kCounters1);
  });
}

kernelwright_status kernelwright_engine_latency(const kernelwright_engine* engine, int32_t step,
                                                kernelwright_latency* latency) {
  return guarded([&] {
    const EngineLatencies all = not_null(engine, "engine").engine.latencies();
    const LatencySnapshot* const steps[] = {&all.prepare, &all.compile, &all.load, &all.launch};
    if (step < KERNELWRIGHT_LATENCY_PREPARE || step > KERNELWRIGHT_LATENCY_LAUNCH)
      throw ConfigError("/step", fmt::format("{} is none of prepare (0), compile (1), load (2) and launch (3)", step));
    const LatencySnapshot& of = *steps[step];
    kernelwright_latency out{
        .struct_size = sizeof out, .count = of.count, .sum_seconds = of.sum_s, .bounds_seconds = {}, .buckets = {}};
    std::copy(of.bounds_s.begin(), of.bounds_s.end(), out.bounds_seconds);
    std::copy(of.buckets.begin(), of.buckets.end(), out.buckets);
    write_struct(out, latency, "latency", kLatency1);
  });
}

kernelwright_status kernelwright_engine_metrics(const kernelwright_engine* engine, kernelwright_text_callback callback,
                                                void* user_data) {
  return guarded([&] {
    if (!callback) throw ConfigError("/callback", "is null");
    const std::string text = not_null(engine, "engine").engine.metrics();
    callback(text.c_str(), text.size(), user_data);
  });
}

kernelwright_status kernelwright_engine_list_kernels(const kernelwright_engine* engine,
                                                     kernelwright_kernel_row_callback callback, void* user_data,
                                                     uint64_t* count) {
  return guarded([&] {
    const std::vector<KernelRow> rows = not_null(engine, "engine").engine.kernels();
    if (count) *count = rows.size();
    if (!callback) return;
    for (const KernelRow& row : rows) {
      const kernelwright_kernel_row out{.struct_size = sizeof(kernelwright_kernel_row),
                                        .prepared = row.prepared,
                                        .kind = row.kind.data(),  // these three views are of literals
                                        .kernel = row.kernel.c_str(),
                                        .family = to_string(row.family).data(),
                                        .key = row.key.c_str(),
                                        .error = row.error.c_str(),
                                        .state = static_cast<int32_t>(row.state),
                                        .device = row.device,
                                        .fallback = row.fallback,
                                        .serving = row.serving,
                                        .source = to_string(row.source).data(),
                                        .entry = row.entry.c_str(),
                                        .registers = row.usage.registers,
                                        .spill_bytes = row.usage.spill_stores + row.usage.spill_loads,
                                        .static_shared_bytes = row.usage.static_shared,
                                        .cubin_bytes = row.cubin_bytes,
                                        .compile_ms = row.compile_ms};
      callback(&out, user_data);
    }
  });
}

kernelwright_status kernelwright_engine_take_hazards(kernelwright_engine* engine, kernelwright_hazard_callback callback,
                                                     void* user_data, uint64_t* count) {
  return guarded([&] {
    auto* emulated = dynamic_cast<EmulatorBackend*>(&not_null(engine, "engine").engine.backend());
    std::vector<emulator::KernelHazard> hazards;
    if (emulated) hazards = emulated->take_reports();
    if (count) *count = hazards.size();
    if (!callback) return;
    for (const auto& [kernel, report] : hazards) {
      const std::string text = report.text();
      const kernelwright_hazard hazard{.struct_size = sizeof(kernelwright_hazard),
                                       .kind = emulator::name_of(report.kind).data(),  // of literals
                                       .kernel = kernel.c_str(),
                                       .what = report.what.c_str(),
                                       .where = report.where.c_str(),
                                       .text = text.c_str(),
                                       .count = report.count};
      callback(&hazard, user_data);
    }
  });
}

kernelwright_status kernelwright_device_name(kernelwright_engine* engine, int32_t device, const char** name) {
  return guarded([&] {
    const char*& out = not_null(name, "name");
    out = device_of(engine, device).info().name.c_str();
  });
}

kernelwright_status kernelwright_device_allocate(kernelwright_engine* engine, int32_t device, uint64_t bytes,
                                                 uint64_t* address) {
  return guarded([&] {
    uint64_t& out = not_null(address, "address");
    out = device_of(engine, device).allocate(bytes);
  });
}

kernelwright_status kernelwright_device_free(kernelwright_engine* engine, int32_t device, uint64_t address) {
  return guarded([&] { device_of(engine, device).free(address); });
}

kernelwright_status kernelwright_device_write(kernelwright_engine* engine, int32_t device, uint64_t to,
                                              const void* from, uint64_t bytes) {
  return guarded([&] {
    if (bytes) not_null(static_cast<const char*>(from), "from");
    device_of(engine, device).copy_to_device(to, from, bytes);
  });
}

kernelwright_status kernelwright_device_read(kernelwright_engine* engine, int32_t device, void* to, uint64_t from,
                                             uint64_t bytes) {
  return guarded([&] {
    if (bytes) not_null(static_cast<char*>(to), "to");
    Device& of = device_of(engine, device);
    of.synchronize(nullptr);
    of.copy_to_host(to, from, bytes);
  });
}

kernelwright_status kernelwright_prepare_json(kernelwright_engine* engine, const char* config, size_t length,
                                              const kernelwright_prepare_options* options,
                                              kernelwright_kernel** kernel) {
  return guarded([&] {
    kernelwright_kernel*& out = not_null(kernel, "kernel");
    kernelwright_engine& owner = not_null(engine, "engine");
    not_null(config, "config");
    const Config read =
        with_stack(kStackBytes, kStackBytes, [&] { return read_config(std::string_view(config, length)); });
    out = std::visit(
        [&](const auto& of) {
          return owner.handle(owner.engine.prepare(of.problem, of.schedule, options_of(options)));
        },
        read);
  });
}

kernelwright_status kernelwright_prepare_attention(kernelwright_engine* engine,
                                                   const kernelwright_attention_problem* problem,
                                                   const kernelwright_prepare_options* options,
                                                   kernelwright_kernel** kernel) {
  return guarded([&] {
    kernelwright_kernel*& out = not_null(kernel, "kernel");
    kernelwright_engine& owner = not_null(engine, "engine");
    out = owner.handle(owner.engine.prepare(problem_of(problem), {}, options_of(options)));
  });
}

kernelwright_status kernelwright_kernel_get_info(const kernelwright_kernel* kernel, kernelwright_kernel_info* info) {
  return guarded([&] {
    std::visit(
        [&](const auto& handle) {
          const std::shared_ptr<const Binary> binary = main_binary(handle);
          const ResourceUsage usage = binary ? binary->usage : ResourceUsage{};
          write_struct(kernelwright_kernel_info{.struct_size = sizeof(kernelwright_kernel_info),
                                                .state = static_cast<int32_t>(handle.state()),
                                                .serves_fallback = handle.serves_fallback(),
                                                .device = handle.device(),
                                                .registers = usage.registers,
                                                .spill_bytes = usage.spill_stores + usage.spill_loads,
                                                .static_shared_bytes = usage.static_shared,
                                                .cubin_bytes = binary ? binary->cubin.size() : 0,
                                                .key = main_key(handle).c_str()},
                       info, "kernel_info", kKernelInfo1);
        },
        not_null(kernel, "kernel").kernel);
  });
}

kernelwright_status kernelwright_kernel_wait(const kernelwright_kernel* kernel) {
  return guarded([&] { std::visit([](const auto& handle) { handle.wait(); }, not_null(kernel, "kernel").kernel); });
}

kernelwright_status kernelwright_launch(const kernelwright_kernel* kernel,
                                        const kernelwright_attention_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<AttentionKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}

kernelwright_status kernelwright_workspace_bytes(const kernelwright_kernel* kernel,
                                                 const kernelwright_attention_tensors* tensors, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    const auto& of = kernel_of<AttentionKernel>(kernel);
    out = of.workspace_bytes(of.extent(tensors_of(tensors)));
  });
}

kernelwright_status kernelwright_gemm_workspace_bytes(const kernelwright_kernel* kernel,
                                                      const kernelwright_gemm_tensors* tensors, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    out = kernel_of<GemmKernel>(kernel).workspace_bytes(tensors_of(tensors).m);
  });
}

kernelwright_status kernelwright_launch_gemm(const kernelwright_kernel* kernel,
                                             const kernelwright_gemm_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<GemmKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}

kernelwright_status kernelwright_prepare_quantize(kernelwright_engine* engine, const char* from, const char* to,
                                                  const kernelwright_prepare_options* options,
                                                  kernelwright_kernel** kernel) {
  return guarded([&] {
    kernelwright_kernel*& out = not_null(kernel, "kernel");
    kernelwright_engine& owner = not_null(engine, "engine");
    QuantizeProblem problem;
    read_word(&not_null(from, "from"), "/from", problem.from);
    read_word(&not_null(to, "to"), "/to", problem.to);
    out = owner.handle(owner.engine.prepare(problem, options_of(options)));
  });
}

kernelwright_status kernelwright_quantize_scale_bytes(const char* to, int64_t rows, int32_t k, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    DType format{};
    read_word(&not_null(to, "to"), "/to", format);
    if (!is_block_scaled(format)) throw ConfigError("/to", fmt::format("\"{}\" has no scales of blocks", to));
    out = static_cast<uint64_t>(quantize_scale_bytes(format, rows, k));
  });
}

kernelwright_status kernelwright_launch_quantize(const kernelwright_kernel* kernel,
                                                 const kernelwright_quantize_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<QuantizeKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}
