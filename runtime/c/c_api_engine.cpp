/// The C ABI of the engine.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/c/c_api_guard.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"

namespace kernelwright {
namespace {

constexpr std::size_t kEngineOptions1 = KERNELWRIGHT_END_OF(kernelwright_engine_options, user_data);
constexpr std::size_t kCounters1 = KERNELWRIGHT_END_OF(kernelwright_counters, quarantined);
constexpr std::size_t kLatency1 = KERNELWRIGHT_END_OF(kernelwright_latency, buckets);

static_assert(static_cast<int>(EventLevel::kDebug) == KERNELWRIGHT_LEVEL_DEBUG &&
              static_cast<int>(EventLevel::kInfo) == KERNELWRIGHT_LEVEL_INFO &&
              static_cast<int>(EventLevel::kWarning) == KERNELWRIGHT_LEVEL_WARNING &&
              static_cast<int>(EventLevel::kError) == KERNELWRIGHT_LEVEL_ERROR);
constexpr std::size_t kMostDigests = std::size_t{1} << 20;  // a model has tens of kernels
static_assert(sizeof(Digest) == KERNELWRIGHT_DIGEST_BYTES);
static_assert(LatencySnapshot::kBounds == KERNELWRIGHT_LATENCY_BOUNDS);

emulator::Completion completion_of(const char* word) {
  using emulator::Completion;
  const std::string_view given = word ? word : "eager";
  if (given == "eager") return Completion::kEager;
  if (given == "lazy") return Completion::kLazy;
  if (given == "random") return Completion::kRandom;
  throw ConfigError("/engine_options/completion", fmt::format("\"{:.64}\" is not one of eager, lazy, random", given));
}

std::vector<std::string> paths_of(const char* const* paths, std::size_t count, const char* field) {
  const std::string name = std::string("engine_options/") + field;
  std::vector<std::string> found;
  if (count) not_null(paths, name.c_str());
  for (std::size_t i = 0; i < count; ++i)
    found.emplace_back(&not_null(paths[i], fmt::format("{}/{}", name, i).c_str()));
  return found;
}

CompileWorkerOptions compile_workers_of(const kernelwright_engine_options& c) {
  CompileWorkerOptions workers;
  if (c.compile_in) workers.where = compile_in_of(c.compile_in, "/engine_options/compile_in");
  if (c.compile_worker) workers.program = c.compile_worker;
  const auto natural = [](std::int32_t given, const char* field, const char* what) {
    if (given < 0)
      throw ConfigError(std::string("/engine_options/") + field,
                        fmt::format("{} is no {}; write 0 or more", given, what));
    return given;
  };
  if (const int limit = natural(c.compile_time_limit_ms, "compile_time_limit_ms", "time"))
    workers.time_limit_ms = limit;
  workers.most_per_host = natural(c.compiles_per_host, "compiles_per_host", "number of compiles");
  if (c.compile_memory_bytes) workers.memory_bytes = c.compile_memory_bytes;
  return workers;
}

EngineOptions engine_options_of(const kernelwright_engine_options* given) {
  const auto c = read_struct(given, "engine_options", kEngineOptions1);
  EngineOptions options;
  if (c.backend) options.backend = c.backend;
  if (c.cache_directory) options.cache.directory = c.cache_directory;
  options.cache.read_only_layers = paths_of(c.read_only_layers, c.num_read_only_layers, "read_only_layers");
  options.cache.bundles = paths_of(c.bundles, c.num_bundles, "bundles");
  options.cache.bundle_keys = paths_of(c.bundle_keys, c.num_bundle_keys, "bundle_keys");
  options.fallback_first = c.fallback_first != 0;
  options.compile_workers = compile_workers_of(c);
  if (c.remote) options.cache.remote.address = c.remote;
  options.cache.remote.keys = paths_of(c.remote_keys, c.num_remote_keys, "remote_keys");
  if (c.remote_signing_key) options.cache.remote.signing_key = c.remote_signing_key;
  if (c.remote_ca) options.cache.remote.ca = c.remote_ca;
  if (c.remote_certificate) options.cache.remote.certificate = c.remote_certificate;
  if (c.remote_certificate_key) options.cache.remote.certificate_key = c.remote_certificate_key;
  options.cache.remote.allow_unsigned = c.remote_allow_unsigned != 0;
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

kernelwright_status kernelwright_engine_create(const kernelwright_engine_options* options,
                                               kernelwright_engine** engine) {
  return guarded([&] {
    kernelwright_engine*& out = not_null(engine, "engine");
    out = new kernelwright_engine(engine_options_of(options));
  });
}

kernelwright_status kernelwright_kernel_origin(const kernelwright_engine_options* options, const char** origin) {
  return guarded([&] {
    const char*& out = not_null(origin, "origin");
    thread_local std::string text;
    text = Engine::kernel_origin(engine_options_of(options));
    out = text.c_str();
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

kernelwright_status kernelwright_engine_ready_digests(const kernelwright_engine* engine, uint8_t* digests,
                                                      size_t capacity, size_t* count) {
  return guarded([&] {
    const Engine& from = not_null(engine, "engine").engine;
    size_t& out = not_null(count, "count");
    if (capacity) not_null(digests, "digests");
    const std::vector<Digest> ready = from.ready_digests();
    for (std::size_t i = 0; i < std::min(capacity, ready.size()); ++i)
      std::ranges::copy(ready[i].bytes, digests + i * KERNELWRIGHT_DIGEST_BYTES);
    out = ready.size();
  });
}

kernelwright_status kernelwright_engine_promote_exactly(kernelwright_engine* engine, const uint8_t* digests,
                                                        size_t count, int32_t* promoted) {
  return guarded([&] {
    Engine& to = not_null(engine, "engine").engine;
    if (count) not_null(digests, "digests");
    if (count > kMostDigests) throw ConfigError("/count", fmt::format("{} is more than {}", count, kMostDigests));
    std::vector<Digest> expected(count);
    for (std::size_t i = 0; i < count; ++i)
      std::copy_n(digests + i * KERNELWRIGHT_DIGEST_BYTES, KERNELWRIGHT_DIGEST_BYTES, expected[i].bytes.begin());
    const int moved = to.promote(expected);
    if (promoted) *promoted = moved;
  });
}

kernelwright_status kernelwright_engine_plan_digest(const kernelwright_engine* engine, uint8_t* digest) {
  return guarded([&] {
    const Engine& of = not_null(engine, "engine").engine;
    uint8_t& out = not_null(digest, "digest");
    std::ranges::copy(of.plan_digest().bytes, &out);
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
      const emulator::HazardRuleRow& row = emulator::row_of(report.rule);
      const kernelwright_hazard hazard{.struct_size = sizeof(kernelwright_hazard),
                                       .kind = emulator::name_of(report.kind).data(),  // of literals
                                       .kernel = kernel.c_str(),
                                       .what = report.what.c_str(),
                                       .where = report.where.c_str(),
                                       .text = text.c_str(),
                                       .count = report.count,
                                       .rule = row.name.data(),
                                       .grade = emulator::name_of(row.grade).data(),
                                       .section = row.section.data(),
                                       .mend = row.mend.data()};
      callback(&hazard, user_data);
    }
  });
}
