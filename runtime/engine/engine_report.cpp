// What an engine reports to operators: its kernels one by one, the times of its steps, and both as text for Prometheus.
#include <mutex>
#include <variant>

#include "kernelwright/runtime/engine/engine_state.h"
#include "kernelwright/runtime/engine/prometheus.h"
#include "kernelwright/runtime/engine/slot_contents.h"

namespace kernelwright {

using detail::Binaries;
using detail::KernelSlot;

namespace {

Family family_of(const Spec& spec) {
  return std::visit(
      [](const auto& of) {
        if constexpr (requires { of.family; })
          return of.family;
        else
          return Family::kPortable;
      },
      spec);
}

/// Rows of one plan of a slot. The caller holds the lock. `loaded` is null until the plan's kernels are loaded.
template <class Kind>
void add_rows(std::vector<KernelRow>& rows, const KernelSlot<Kind>& slot, std::size_t prepared, bool fallback) {
  const auto& plan = fallback ? *slot.fallback_plan : slot.plan;
  const auto* loaded = fallback ? slot.fallback.get() : slot.tuned.get();
  const std::vector<std::string>& keys = fallback ? slot.fallback_keys : slot.keys;
  const Binaries binaries = loaded ? binaries_of(*loaded) : Binaries{};
  const std::vector<Spec> specs = detail::specs_of(plan);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    KernelRow row;
    row.prepared = prepared;
    row.kind = kind_of(slot);
    row.kernel = kernel_name(specs[i]);
    row.family = family_of(specs[i]);
    row.key = keys[i];
    row.device = slot.device->ordinal();
    row.state = slot.state;
    row.error = row.state == KernelState::kFailed ? slot.error : "";
    row.fallback = fallback;
    row.serving = loaded && slot.serving.load(std::memory_order_relaxed) == loaded;
    if (i < binaries.size() && binaries[i]) {
      const Binary& binary = *binaries[i];
      const auto source = slot.sources.find(keys[i]);
      row.source = source != slot.sources.end() ? source->second : CacheSource::kMemory;
      row.entry = binary.entry;
      row.usage = binary.usage;
      row.cubin_bytes = binary.cubin.size();
      row.compile_ms = binary.compile_ms;
    }
    rows.push_back(std::move(row));
  }
}

void add_remote(PrometheusText& text, const RemoteCounters& remote) {
  text.counter("kernelwright_remote_results_total", "What came of asking the remote cache.");
  text.sample(remote.hits, {{"result", "hit"}});
  text.sample(remote.misses, {{"result", "miss"}});
  text.sample(remote.rejected, {{"result", "rejected"}});
  text.sample(remote.failures, {{"result", "failed"}});
  text.sample(remote.skipped, {{"result", "not asked"}});
  text.counter("kernelwright_remote_writes_total", "Binaries for the remote cache, by what became of them.");
  text.sample(remote.writes, {{"result", "written"}});
  text.sample(remote.write_failures, {{"result", "failed"}});
  text.sample(remote.dropped, {{"result", "dropped"}});
  text.counter("kernelwright_remote_lease_waits_total", "Compilations of other hosts that were waited for.");
  text.sample(remote.lease_waits);
  text.counter("kernelwright_remote_builds_total", "Kernels that workers on other hosts were asked to build.");
  text.sample(remote.built, {{"result", "built"}});
  text.sample(remote.not_built, {{"result", "not built"}});
}

void add_compile_workers(PrometheusText& text, const CompileWorkerCounters& workers) {
  text.counter("kernelwright_compile_workers_started_total", "Compile workers that were started.");
  text.sample(workers.started);
  text.counter("kernelwright_compile_workers_recycled_total", "Workers that ended after enough compiles or memory.");
  text.sample(workers.recycled);
  text.counter("kernelwright_compile_worker_results_total", "Compiles given to workers, by what came of them.");
  text.sample(workers.compiles, {{"result", "answered"}});
  text.sample(workers.failures, {{"result", "failed"}});
  text.sample(workers.in_process, {{"result", "no worker"}});
}

}  // namespace

std::vector<KernelRow> Engine::kernels() const {
  std::vector<KernelRow> rows;
  std::size_t prepared = 0;
  state_->shared.refuse_after_fork("kernels()");
  std::lock_guard lock(state_->shared.mutex);
  state_->each_slot([&](const auto& slot) {
    add_rows(rows, slot, prepared, false);
    if (slot.fallback) add_rows(rows, slot, prepared, true);
    ++prepared;
  });
  return rows;
}

EngineLatencies Engine::latencies() const {
  return {.prepare = state_->prepares.snapshot(),
          .compile = state_->store->cache().compile_latency(),
          .load = state_->loader.latency(),
          .launch = state_->shared.launches.snapshot()};
}

std::string Engine::metrics() const {
  const EngineCounters now = counters();
  const EngineLatencies latency = latencies();
  PrometheusText text;
  const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
    text.gauge(name, help);
    text.sample(value);
  };
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    text.counter(name, help);
    text.sample(value);
  };
  text.gauge("kernelwright_device_info", "1 for each device that kernels run on.");
  for (int i = 0; i < device_count(); ++i)
    text.sample(
        std::uint64_t{1},
        {{"backend", std::string(backend().name())}, {"device", std::to_string(i)}, {"name", device(i).info().name}});
  gauge("kernelwright_sealed", "1 once the engine is sealed: nothing compiles from then on.", sealed());
  gauge("kernelwright_ready", "1 while every prepared kernel is ready.", ready());
  text.gauge("kernelwright_kernels", "Prepared kernels by state.");
  text.sample(now.ready, {{"state", "ready"}});
  text.sample(now.pending, {{"state", "pending"}});
  text.sample(now.failed, {{"state", "failed"}});
  gauge("kernelwright_loaded_bytes", "Device memory that loaded kernels take.", now.loaded_bytes);
  counter("kernelwright_loads_total", "Binaries loaded onto a device.", now.loads);
  counter("kernelwright_promotions_total", "Kernels that took over from their fallback.", now.promotions);
  counter("kernelwright_fallback_launches_total", "Launches that the portable kernel served for another.",
          now.fallback_launches);
  counter("kernelwright_sealed_misses_total", "Kernels asked for after seal() that were not in the cache.",
          now.sealed_misses);
  counter("kernelwright_capture_misses_total", "Launches refused because the stream captured.", now.capture_misses);
  text.counter("kernelwright_cache_hits_total", "Binaries that the cache had, by where it found them.");
  text.sample(now.cache.memory_hits, {{"source", "memory"}});
  text.sample(now.cache.disk_hits, {{"source", "disk"}});
  text.sample(now.cache.layer_hits, {{"source", "layer"}});
  counter("kernelwright_cache_misses_total", "Binaries that the cache did not have.", now.cache.misses);
  counter("kernelwright_compiles_total", "Kernels compiled.", now.cache.compiles);
  counter("kernelwright_compile_failures_total", "Compilations that failed.", now.cache.compile_failures);
  counter("kernelwright_cache_writes_total", "Entries written to the cache directory.", now.cache.writes);
  counter("kernelwright_cache_write_failures_total", "Entries that could not be written.", now.cache.write_failures);
  counter("kernelwright_cache_quarantined_total", "Damaged cache entries set aside.", now.cache.quarantined);
  counter("kernelwright_cache_evicted_total", "Cache entries evicted.", now.cache.evicted);
  counter("kernelwright_cache_lock_waits_total", "Compilations of other processes that were waited for.",
          now.cache.lock_waits);
  counter("kernelwright_cache_lock_timeouts_total", "Such waits that were given up.", now.cache.lock_timeouts);
  add_remote(text, now.remote);
  add_compile_workers(text, now.compile_workers);
  text.histogram("kernelwright_prepare_seconds", "From prepare() until the kernel is ready.", latency.prepare);
  text.histogram("kernelwright_compile_seconds", "One compilation by NVRTC.", latency.compile);
  text.histogram("kernelwright_load_seconds", "Loading one binary onto a device.", latency.load);
  text.histogram("kernelwright_launch_seconds", "Host time of a sampled launch; on the emulator, of the work too.",
                 latency.launch);
  return text.take();
}

}  // namespace kernelwright
