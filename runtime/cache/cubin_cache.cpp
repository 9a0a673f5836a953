// Memory, flights (one compilation that several threads wait for) and the order in which layers are asked.
#include "kernelwright/runtime/cache/cubin_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/bundle.h"
#include "kernelwright/runtime/cache/directory.h"
#include "kernelwright/runtime/cache/environment.h"
#include "kernelwright/runtime/cache/file_lock.h"
#include "kernelwright/runtime/cache/names.h"
#include "kernelwright/runtime/process/fork_guard.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

using Clock = std::chrono::steady_clock;
using Shared = std::shared_ptr<const Binary>;

constexpr double kSilentLockWaitMs = 1000;

struct DigestHash {
  std::size_t operator()(const Digest& digest) const {
    std::size_t bits;
    std::memcpy(&bits, digest.bytes.data(), sizeof(bits));
    return bits;
  }
};

/// One compilation under way. It has an atomic instead of a condition variable. So a forked child can drop it even if
/// threads that do not exist there wait on it.
struct Flight {
  std::atomic<int> done{0};
  Shared binary;  // set before `done`
  CacheSource source = CacheSource::kNone;
  std::exception_ptr error;  // or this
  const std::thread::id owner = std::this_thread::get_id();
  void finish() {
    done.store(1, std::memory_order_release);
    done.notify_all();
  }
};

constexpr auto kAddEvery = std::chrono::seconds(1);
constexpr int kPatienceMs = 50;
constexpr const char* kStatNames[] = {"runs",       "memory_hits",      "disk_hits",   "layer_hits",
                                      "compiles",   "compile_failures", "saved_us",    "compile_us",
                                      "bytes_read", "bytes_written",    "quarantined", "evicted"};
constexpr std::size_t kNumStats = std::size(kStatNames);

/// The build that serves a key without a compiler.
struct AnyBuild {
  std::string rank;  // of its compiler, the least of those in memory; "" if a layer chose the build
  Shared binary;
};

struct Failure {
  std::exception_ptr error;
  Clock::time_point forget_at;
};

}  // namespace

struct CubinCache::Impl {
  CacheOptions options;
  std::string directory_path, no_directory;
  std::unique_ptr<CacheDirectory> directory;
  std::vector<std::unique_ptr<Bundle>> bundles;     // before the directory
  std::vector<std::shared_ptr<CacheLayer>> layers;  // after it

  ForkSafeMutex mutex{[this] { flights.clear(); }};  // guards the four tables
  std::unordered_map<Digest, Shared, DigestHash> memory;
  std::unordered_map<Digest, AnyBuild, DigestHash> any_build;  // by the digest without the compiler
  std::unordered_map<Digest, std::shared_ptr<Flight>, DigestHash> flights;
  std::unordered_map<Digest, Failure, DigestHash> failures;
  std::uint64_t memory_bytes = 0;

  std::atomic<std::uint64_t> memory_hits{0}, disk_hits{0}, layer_hits{0}, misses{0}, compiles{0}, compile_failures{0},
      remembered_failures{0}, joined{0}, lock_waits{0}, lock_timeouts{0}, writes{0}, write_failures{0}, quarantined{0};

  LatencyHistogram compile_times{kFirstStepNs};

  // The directory's statistics: what this cache did since it last added to them. docs/cache.md
  std::atomic<std::uint64_t> bytes_read{0}, bytes_written{0}, saved_us{0}, compile_us{0};
  std::atomic<Clock::rep> next_addition{(Clock::now() + kAddEvery).time_since_epoch().count()};
  std::array<std::uint64_t, kNumStats> added{};                     // guarded by the mutex below
  mutable ForkSafeMutex added_mutex{[this] { added = so_far(); }};  // the parent itself adds what the parent did
  std::array<std::uint64_t, kNumStats> so_far() const;
  void add_stats(int patience_ms) noexcept;
  void add_stats_now_and_then() noexcept;
  void count_hit(std::atomic<std::uint64_t>& counter, const Binary& binary) {
    ++counter;
    bytes_read += binary.cubin.size() + binary.ptx.size();
    if (binary.compile_ms > 0 && binary.compile_ms < 1e9)
      saved_us += static_cast<std::uint64_t>(binary.compile_ms * 1e3);
  }

  // The lock directory is made and tested at the first miss, not at start: hits do not need one.
  ForkSafeMutex locks_mutex;
  std::unique_ptr<LockDirectory> lock_directory;
  const LockDirectory& locks() {
    std::lock_guard hold(locks_mutex);
    if (!lock_directory) lock_directory = std::make_unique<LockDirectory>(options.lock_directory);
    return *lock_directory;
  }

  void tell(const Event& event) {
    if (event.kind == EventKind::kCacheQuarantine) ++quarantined;
    if (options.sink) options.sink(event);
  }

  Shared from_memory(const CacheKey& key, const Digest& digest) {  // with `mutex` held
    auto found = memory.find(digest);
    if (found != memory.end()) return found->second;
    if (!key.compiler.empty()) return nullptr;
    const auto any = any_build.find(key.digest_without_compiler());
    return any != any_build.end() ? any->second.binary : nullptr;
  }

  /// Keeps a binary and returns the one that is kept. The first binary of a key stays, so that pointers stay equal.
  Shared keep(const CacheKey& key, const Digest& digest, Binary&& binary, bool replace = false) {
    auto made = std::make_shared<const Binary>(std::move(binary));
    const Digest any = key.digest_without_compiler();
    std::lock_guard hold(mutex);
    auto [at, fresh] = memory.try_emplace(digest, made);
    if (!fresh && replace) at->second = made;
    if (fresh || replace) memory_bytes += made->cubin.size() + made->ptx.size();
    const Shared kept = at->second;
    std::string rank = key.compiler.empty() ? "" : compiler_rank(key.compiler);
    const auto [build, first] = any_build.try_emplace(any, AnyBuild{rank, kept});
    if (!first && rank <= build->second.rank) build->second = {std::move(rank), kept};
    failures.erase(digest);
    if (memory_bytes > options.max_memory_bytes) shrink();
    return kept;
  }

  void shrink() {  // with `mutex` held: drops binaries that only the cache holds
    std::erase_if(any_build, [](const auto& item) { return item.second.binary.use_count() <= 2; });
    std::erase_if(memory, [](const auto& item) { return item.second.use_count() <= 1; });
    memory_bytes = 0;
    for (const auto& [digest, binary] : memory) memory_bytes += binary->cubin.size() + binary->ptx.size();
  }

  /// Asks disk and further layers. Reports a hit, and puts its place into `source`.
  std::optional<Binary> from_layers(const CacheKey& key, const Digest& digest, CacheSource& source) {
    const auto start = Clock::now();
    const auto from = [&](CacheLayer& layer, CacheSource place) {
      std::optional<Binary> binary = layer.find(key);
      if (!binary) return binary;
      source = place;
      count_hit(place == CacheSource::kDisk ? disk_hits : layer_hits, *binary);
      const std::chrono::duration<double, std::milli> spent = Clock::now() - start;
      if (options.sink) tell({EventKind::kCacheHit, digest.hex(), binary->entry, "", spent.count()});
      add_stats_now_and_then();
      return binary;
    };
    for (const auto& bundle : bundles)
      if (auto binary = from(*bundle, CacheSource::kLayer)) return binary;
    if (directory)
      if (auto binary = from(*directory, CacheSource::kDisk)) return binary;
    for (const auto& layer : layers)
      if (auto binary = from(*layer, CacheSource::kLayer)) return binary;
    return std::nullopt;
  }

  void publish(const CacheKey& key, const Binary& binary) {
    if (!directory) return;
    if (directory->publish(key, binary)) {
      ++writes;
      bytes_written += binary.cubin.size() + binary.ptx.size();
    } else {
      ++write_failures;
    }
    add_stats_now_and_then();
  }

  Shared compile_once(const CacheKey& key, const Digest& digest, const Compile& compile, Flight& flight,
                      double* lock_wait_ms);
  /// Takes the lock of `digest`, unless the binary appears meanwhile. Reports a long wait. Returns the milliseconds
  /// waited.
  double await_lock(const CacheKey& key, const Digest& digest, FileLock& lock);
};

CubinCache::CubinCache(CacheOptions options) : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.options = std::move(options);
  FileLock()
      .release();  // makes the table of held locks now: a fork in the midst of making it would leave a child without
  const CacheOptions& wanted = impl.options;
  const CacheDirectory::Bounds bounds{wanted.max_bytes, wanted.max_entries};
  const CacheDirectory::Hooks hooks{[&impl](const Event& event) { impl.tell(event); }, wanted.publish_observer,
                                    [&impl]() -> const LockDirectory& { return impl.locks(); }};
  const Payload payload = wanted.ptx ? Payload::kUnpack : Payload::kCubinOnly;
  if (!wanted.disk) {
    impl.no_directory = "switched off";
  } else {
    impl.directory_path = wanted.directory ? *wanted.directory : directory_of_environment(impl.no_directory);
    if (wanted.directory && wanted.directory->empty()) impl.no_directory = "the directory's name is empty";
    if (!impl.directory_path.empty())
      impl.directory = std::make_unique<CacheDirectory>(impl.directory_path, CacheDirectory::Mode::kReadWrite, bounds,
                                                        payload, hooks);
    else
      impl.tell({EventKind::kCacheDegraded, "", "", impl.no_directory + "; kernels stay in memory"});
  }
  const BundleTrust trust = BundleTrust::of_files(paths_or_environment(wanted.bundle_keys, "KERNELWRIGHT_BUNDLE_KEYS"));
  for (const std::string& path : paths_or_environment(wanted.bundles, "KERNELWRIGHT_BUNDLES"))
    impl.bundles.push_back(std::make_unique<Bundle>(path, payload, hooks.report, trust));
  for (const std::string& path : wanted.read_only_layers)
    impl.layers.push_back(
        std::make_shared<CacheDirectory>(path, CacheDirectory::Mode::kReadOnly, bounds, payload, hooks));
  for (const auto& layer : wanted.more_layers) impl.layers.push_back(layer);
}

CubinCache::~CubinCache() { impl_->add_stats(kPatienceMs); }

std::array<std::uint64_t, kNumStats> CubinCache::Impl::so_far() const {
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
  impl_->add_stats(kPatienceMs);
  if (impl_->directory) {
    NumbersFile file = impl_->directory->stats();
    numbers = std::move(file.numbers);
    stats.fault = std::move(file.fault);
  }
  {  // counts that could not be added yet
    std::lock_guard hold(impl_->added_mutex);
    const auto now = impl_->so_far();
    for (std::size_t i = 0; i < kNumStats; ++i) numbers[kStatNames[i]] += now[i] - impl_->added[i];
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

std::shared_ptr<const Binary> CubinCache::find(const CacheKey& key, CacheSource* source) {
  CacheSource unused;
  CacheSource& from = source ? *source : unused;
  const Digest digest = key.digest();
  {
    std::lock_guard hold(impl_->mutex);
    if (Shared found = impl_->from_memory(key, digest)) {
      ++impl_->memory_hits;
      from = CacheSource::kMemory;
      return found;
    }
  }
  if (auto binary = impl_->from_layers(key, digest, from)) return impl_->keep(key, digest, std::move(*binary));
  from = CacheSource::kNone;
  ++impl_->misses;
  return nullptr;
}

std::shared_ptr<const Binary> CubinCache::get_or_compile(const CacheKey& key, const Compile& compile,
                                                         CacheSource* source, double* lock_wait_ms) {
  Impl& impl = *impl_;
  CacheSource unused;
  CacheSource& from = source ? *source : unused;
  const Digest digest = key.digest();
  std::shared_ptr<Flight> flight;
  bool mine = false;
  {
    std::lock_guard hold(impl.mutex);
    if (Shared found = impl.from_memory(key, digest)) {
      ++impl.memory_hits;
      from = CacheSource::kMemory;
      return found;
    }
    if (const auto failed = impl.failures.find(digest); failed != impl.failures.end()) {
      if (Clock::now() < failed->second.forget_at) {
        ++impl.remembered_failures;
        std::rethrow_exception(failed->second.error);
      }
      impl.failures.erase(failed);
    }
    std::shared_ptr<Flight>& slot = impl.flights[digest];
    if (!slot) {
      slot = std::make_shared<Flight>();
      mine = true;
    }
    flight = slot;
  }
  if (!mine) {
    if (flight->owner == std::this_thread::get_id())
      throw Error(fmt::format("cubin cache: the compilation of {} asks the cache for itself", key.entry_stem));
    ++impl.joined;
    flight->done.wait(0, std::memory_order_acquire);
    if (!flight->error) {
      from = flight->source;
      return flight->binary;
    }
    try {
      std::rethrow_exception(flight->error);
    } catch (const InterruptedError&) {  // its owner ended, which is not this thread's owner
      if (interrupted()) throw;
    }
    {
      std::lock_guard hold(impl.mutex);
      if (const auto slot = impl.flights.find(digest); slot != impl.flights.end() && slot->second == flight)
        impl.flights.erase(slot);
    }
    return get_or_compile(key, compile, source, lock_wait_ms);
  }

  try {
    impl.compile_once(key, digest, compile, *flight, lock_wait_ms);
  } catch (...) {
    if (flight->done.load() == 0) {
      flight->error = std::current_exception();
      flight->finish();
    }
  }
  std::lock_guard hold(impl.mutex);
  // In a child that was forked meanwhile, the table was cleared. It may hold another flight of this key.
  if (const auto slot = impl.flights.find(digest); slot != impl.flights.end() && slot->second == flight)
    impl.flights.erase(slot);
  from = flight->source;
  if (!flight->error) return flight->binary;
  try {
    std::rethrow_exception(flight->error);
  } catch (const InterruptedError&) {
    throw;
  } catch (const Error&) {  // other errors (no memory, a caller's own) may not come again
    const auto ttl = std::chrono::milliseconds(impl.options.failure_ttl_ms);
    if (ttl.count() > 0) impl.failures[digest] = {flight->error, Clock::now() + ttl};
    throw;
  }
}

double CubinCache::Impl::await_lock(const CacheKey& key, const Digest& digest, FileLock& lock) {
  const auto start = Clock::now();
  const auto waited_ms = [&] { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); };
  bool waited = false, told = false;
  const LockOutcome outcome = lock.acquire(locks(), digest, options.lock_timeout_ms, [&] {
    waited = true;
    if (!told && waited_ms() >= kSilentLockWaitMs) {
      told = true;
      tell({EventKind::kLockWait, digest.hex(), key.entry_stem,
            fmt::format("another process is compiling it, and is waited for; for {} s at most",
                        (options.lock_timeout_ms + 999) / 1000),
            waited_ms()});
    }
    return interrupted() || directory->contains(key);
  });
  if (waited) ++lock_waits;
  if (outcome == LockOutcome::kTimedOut) {
    ++lock_timeouts;
    tell({EventKind::kLockTimeout, digest.hex(), key.entry_stem, "another process holds this key; compiling alone",
          waited_ms()});
  }
  return waited_ms();
}

/// Runs on the thread that owns the flight: looks once more, waits for other processes, compiles, publishes.
Shared CubinCache::Impl::compile_once(const CacheKey& key, const Digest& digest, const Compile& compile, Flight& flight,
                                      double* lock_wait_ms) {
  auto serve = [&](Binary&& binary) {
    flight.binary = keep(key, digest, std::move(binary));
    flight.finish();
    return flight.binary;
  };
  if (auto binary = from_layers(key, digest, flight.source)) return serve(std::move(*binary));

  FileLock lock;
  if (directory && directory->writable()) {  // else a lock would make others wait for nothing
    const double waited_ms = await_lock(key, digest, lock);
    if (lock_wait_ms) *lock_wait_ms += waited_ms;
    // Another process may have held the lock, or taken and released it between our look and our lock. It has published
    // by now.
    if (auto binary = directory->find(key)) {
      count_hit(disk_hits, *binary);
      flight.source = CacheSource::kDisk;
      return serve(std::move(*binary));
    }
  }
  ++misses;
  if (options.sink)
    tell({EventKind::kCacheMiss, digest.hex(), key.entry_stem, directory ? directory->why_missed(key) : no_directory});
  const auto start = Clock::now();
  Binary binary;
  try {
    binary = compile();
  } catch (...) {
    ++compile_failures;
    throw;
  }
  ++compiles;
  flight.source = CacheSource::kCompiled;
  const auto took = Clock::now() - start;
  compile_times.add(took);
  compile_us += static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count());
  const std::chrono::duration<double, std::milli> spent = took;
  if (options.sink) tell({EventKind::kCompile, digest.hex(), binary.entry, "", spent.count()});
  const Shared kept = serve(std::move(binary));
  publish(key, *kept);  // under the lock: the next holder finds the entry
  return kept;
}

void CubinCache::put(const CacheKey& key, Binary binary) {
  const Shared kept = impl_->keep(key, key.digest(), std::move(binary), /*replace=*/true);
  impl_->publish(key, *kept);
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
  if (impl_->directory && impl_->directory->writable()) text += "\nlocks: " + impl_->locks().status();
  return text;
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
