// What a CubinCache tells about itself and its directory, and the directory's upkeep. None of it is on the way to a
// hit.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <mutex>

#include "kernelwright/runtime/cache/cubin_cache_impl.h"

namespace kernelwright {
namespace {

constexpr auto kAddEvery = std::chrono::seconds(1);
constexpr const char* kStatNames[] = {"runs",       "memory_hits",      "disk_hits",   "layer_hits",
                                      "compiles",   "compile_failures", "saved_us",    "compile_us",
                                      "bytes_read", "bytes_written",    "quarantined", "evicted"};

}  // namespace

std::array<std::uint64_t, CubinCache::Impl::kNumStats> CubinCache::Impl::so_far() const {
  static_assert(std::size(kStatNames) == kNumStats);
  std::array<std::uint64_t, kNumStats> now{
      0,        memory_hits, disk_hits,  layer_hits,    compiles,    compile_failures,
      saved_us, compile_us,  bytes_read, bytes_written, quarantined, directory ? directory->evicted() : 0};
  now[0] = std::any_of(now.begin(), now.end(), [](std::uint64_t value) { return value > 0; });
  return now;
}

// The statistics are a hint, like the index: a failure here costs counts and nothing else.
void CubinCache::Impl::add_stats(int patience_ms) noexcept {
  if (!directory || !directory->writable()) return;
  try {
    std::array<std::uint64_t, kNumStats> delta;
    {
      std::lock_guard hold(added_mutex);
      const auto now = so_far();
      for (std::size_t i = 0; i < kNumStats; ++i) delta[i] = now[i] - added[i];
      added = now;
    }
    Numbers numbers;
    for (std::size_t i = 0; i < kNumStats; ++i)
      if (delta[i] > 0) numbers[kStatNames[i]] = delta[i];
    if (numbers.empty()) return;
    if (directory->add_stats(numbers, patience_ms)) return;
    std::lock_guard hold(added_mutex);
    for (std::size_t i = 0; i < kNumStats; ++i) added[i] -= delta[i];  // the next addition has them
  } catch (...) {
  }
}

void CubinCache::Impl::add_stats_now_and_then() noexcept {
  const auto now = Clock::now();
  Clock::rep due = next_addition.load(std::memory_order_relaxed);
  if (now.time_since_epoch().count() < due) return;
  if (next_addition.compare_exchange_strong(due, (now + kAddEvery).time_since_epoch().count())) add_stats(0);
}

CacheStats CubinCache::stats() const {
  CacheStats stats;
  Numbers numbers;
  impl_->add_stats(Impl::kPatienceMs);
  if (impl_->directory) {
    NumbersFile file = impl_->directory->stats();
    numbers = std::move(file.numbers);
    stats.fault = std::move(file.fault);
  }
  {  // counts that could not be added yet
    std::lock_guard hold(impl_->added_mutex);
    const auto now = impl_->so_far();
    for (std::size_t i = 0; i < Impl::kNumStats; ++i) numbers[kStatNames[i]] += now[i] - impl_->added[i];
  }
  const auto seconds = [&](const char* name) { return static_cast<double>(numbers[name]) * 1e-6; };
  stats.runs = numbers["runs"];
  stats.memory_hits = numbers["memory_hits"];
  stats.disk_hits = numbers["disk_hits"];
  stats.layer_hits = numbers["layer_hits"];
  stats.compiles = numbers["compiles"];
  stats.compile_failures = numbers["compile_failures"];
  stats.saved_s = seconds("saved_us");
  stats.compile_s = seconds("compile_us");
  stats.bytes_read = numbers["bytes_read"];
  stats.bytes_written = numbers["bytes_written"];
  stats.quarantined = numbers["quarantined"];
  stats.evicted = numbers["evicted"];
  stats.since_s = static_cast<std::int64_t>(numbers["since_s"]);
  return stats;
}

std::uint64_t CubinCache::max_bytes() const {
  return impl_->directory ? impl_->directory->max_bytes() : impl_->options.max_bytes.value_or(kDefaultCacheBytes);
}

std::string CubinCache::set_max_bytes(std::optional<std::uint64_t> bytes) {
  return impl_->directory ? impl_->directory->set_max_bytes(bytes) : "no cache directory: " + impl_->no_directory;
}

CacheCounters CubinCache::counters() const {
  const Impl& impl = *impl_;
  return {.memory_hits = impl.memory_hits,
          .disk_hits = impl.disk_hits,
          .layer_hits = impl.layer_hits,
          .misses = impl.misses,
          .compiles = impl.compiles,
          .compile_failures = impl.compile_failures,
          .remembered_failures = impl.remembered_failures,
          .joined = impl.joined,
          .lock_waits = impl.lock_waits,
          .lock_timeouts = impl.lock_timeouts,
          .writes = impl.writes,
          .write_failures = impl.write_failures,
          .quarantined = impl.quarantined,
          .evicted = impl.directory ? impl.directory->evicted() : 0};
}

LatencySnapshot CubinCache::compile_latency() const { return impl_->compile_times.snapshot(); }

std::string CubinCache::status() const {
  std::string text = "memory: on\n";
  for (const auto& bundle : impl_->bundles) text += bundle->status() + "\n";
  text += impl_->directory ? impl_->directory->status() : "directory: off: " + impl_->no_directory;
  for (const auto& layer : impl_->layers) text += "\n" + layer->status();
  if (impl_->remote) text += "\n" + impl_->remote->status();
  if (impl_->directory && impl_->directory->writable()) text += "\nlocks: " + impl_->locks().status();
  return text;
}

std::string CubinCache::first_with_kernels() const {
  for (const auto& bundle : impl_->bundles)
    if (!bundle->manifest().entries.empty() && bundle->fault().empty()) return bundle->status();
  if (impl_->directory && !impl_->directory->files().empty()) return impl_->directory->status();
  for (const auto& layer : impl_->layers) {
    auto* const directory = dynamic_cast<CacheDirectory*>(layer.get());
    if (!directory || !directory->files().empty()) return layer->status();
  }
  return impl_->remote ? impl_->remote->status() : "";
}

std::vector<std::pair<std::string, bool>> CubinCache::layer_answers(const CacheKey& key) {
  std::vector<std::pair<std::string, bool>> answers;
  const auto ask = [&](CacheLayer& layer) {
    const bool found = layer.find(key).has_value();
    answers.emplace_back(layer.status(), found);
  };
  for (const auto& bundle : impl_->bundles) ask(*bundle);
  if (impl_->directory) ask(*impl_->directory);
  for (const auto& layer : impl_->layers) ask(*layer);
  if (impl_->remote) ask(*impl_->remote);
  return answers;
}

std::optional<RemoteProbe> CubinCache::probe_remote() {
  if (!impl_->remote) return std::nullopt;
  RemoteProbe probe = impl_->remote->probe();
  if (impl_->builds && probe.read) probe.workers = impl_->builds->archs_with_workers();
  return probe;
}

const std::string& CubinCache::directory() const { return impl_->directory_path; }

std::string CubinCache::why_missed(const CacheKey& key) const {
  return impl_->directory ? impl_->directory->why_missed(key) : "no directory: " + impl_->no_directory;
}

std::vector<EntrySummary> CubinCache::list() const {
  std::vector<EntrySummary> entries;
  if (!impl_->directory) return entries;
  const IndexItems uses = impl_->directory->last_uses();
  for (const CacheDirectory::File& file : impl_->directory->files()) {
    const auto use = uses.find(file.digest);
    EntrySummary entry{.name = file.digest.hex(),
                       .file_bytes = file.bytes,
                       .last_used_s = use != uses.end() ? use->second.used_s : file.modified_s};
    DecodeResult result = impl_->directory->read(file, Payload::kSkip);
    if (result.entry) {
      entry.key = std::move(result.entry->key);
      entry.binary = std::move(result.entry->binary);
    }
    entry.fault = std::move(result.reason);
    entries.push_back(std::move(entry));
  }
  return entries;
}

VerifyReport CubinCache::verify() {
  VerifyReport report;
  if (!impl_->directory) return report;
  for (const CacheDirectory::File& file : impl_->directory->files()) {
    const DecodeResult result = impl_->directory->read(file, Payload::kUnpack);
    ++report.checked;
    report.bytes += file.bytes;
    if (!result.entry) report.bad.emplace_back(file.digest.hex(), result.reason);
  }
  return report;
}

std::size_t CubinCache::prune(const PruneLimits& limits, std::string* failure) {
  if (failure) failure->clear();
  if (!impl_->directory) return 0;
  const CacheDirectory::Limits bounds{limits.max_bytes ? *limits.max_bytes : max_bytes(),
                                      limits.max_entries.value_or(impl_->options.max_entries)};
  return impl_->directory->evict(bounds, limits.max_age_s.value_or(-1), failure);
}

std::size_t CubinCache::clear(std::string* failure) {
  if (failure) failure->clear();
  {
    std::lock_guard hold(impl_->mutex);
    impl_->memory.clear();
    impl_->any_build.clear();
    impl_->failures.clear();
    impl_->memory_bytes = 0;
  }
  return impl_->directory ? impl_->directory->clear(failure) : 0;
}

}  // namespace kernelwright
