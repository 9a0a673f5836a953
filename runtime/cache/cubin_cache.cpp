// The way of a key through the cache: memory, flights (one compilation that several threads wait for), and the order in
// which layers are asked.
#include "kernelwright/runtime/cache/cubin_cache.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/cubin_cache_impl.h"
#include "kernelwright/runtime/cache/environment.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

using Clock = std::chrono::steady_clock;
using Shared = std::shared_ptr<const Binary>;

constexpr double kSilentLockWaitMs = 1000;

}  // namespace

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
  std::string fault;
  impl.remote = RemoteLayer::of_options(wanted.remote, hooks.report, fault);
  if (!fault.empty())
    impl.tell({EventKind::kCacheDegraded, "", "remote", fmt::format("the remote cache is off: {}", fault)});
  if (impl.remote && wanted.remote.build_wait_ms > 0)
    impl.builds = std::make_unique<RemoteBuilds>(
        *impl.remote, hooks.report,
        RemoteBuilds::Waits{.build = std::chrono::milliseconds(wanted.remote.build_wait_ms)});
}

CubinCache::~CubinCache() {
  impl_->builds.reset();
  impl_->remote.reset();  // may still report what it sends
  impl_->add_stats(Impl::kPatienceMs);
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
                                                         CacheSource* source, double* lock_wait_ms, CompileRoom* room) {
  Impl& impl = *impl_;
  CacheSource unused;
  CacheSource& from = source ? *source : unused;
  const Digest digest = key.digest();
  std::shared_ptr<Impl::Flight> flight;
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
    std::shared_ptr<Impl::Flight>& slot = impl.flights[digest];
    if (!slot) {
      slot = std::make_shared<Impl::Flight>();
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
    return get_or_compile(key, compile, source, lock_wait_ms, room);
  }

  try {
    impl.compile_once(key, digest, compile, *flight, lock_wait_ms, room);
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
CubinCache::Impl::Shared CubinCache::Impl::compile_once(const CacheKey& key, const Digest& digest,
                                                        const Compile& compile, Flight& flight, double* lock_wait_ms,
                                                        CompileRoom* room) {
  auto serve = [&](Binary&& binary) {
    flight.binary = keep(key, digest, std::move(binary));
    flight.finish();
    return flight.binary;
  };
  if (auto binary = from_layers(key, digest, flight.source)) {
    const Shared kept = serve(std::move(*binary));
    // A builder whose disk is warm sends what other hosts may lack. Without its PTX an entry is not whole.
    if (remote && flight.source == CacheSource::kDisk && !kept->ptx.empty()) remote->share(key, *kept);
    return kept;
  }

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
  const auto asked = Clock::now();
  if (auto binary = from_remote(key, digest, room)) {
    flight.source = CacheSource::kLayer;
    return serve(std::move(*binary));
  }
  if (lock_wait_ms) *lock_wait_ms += std::chrono::duration<double, std::milli>(Clock::now() - asked).count();
  ++misses;
  if (options.sink)
    tell({EventKind::kCacheMiss, digest.hex(), key.entry_stem, directory ? directory->why_missed(key) : no_directory});
  const auto start = Clock::now();
  Binary binary;
  try {
    if (room) room->take();
    binary = compile();
    if (room) room->give_back();
  } catch (...) {
    ++compile_failures;
    if (remote) remote->abandon(key);
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
  if (remote) remote->publish(key, *kept);
  return kept;
}

void CubinCache::put(const CacheKey& key, Binary binary) {
  const Shared kept = impl_->keep(key, key.digest(), std::move(binary), /*replace=*/true);
  impl_->publish(key, *kept);
}

void CubinCache::stop_remote() {
  if (impl_->remote) impl_->remote->stop();
  if (impl_->builds) impl_->builds->stop();
}

RemoteCounters CubinCache::remote_counters() const {
  RemoteCounters counters = impl_->remote ? impl_->remote->counters() : RemoteCounters{};
  if (impl_->builds) counters.built = impl_->builds->built(), counters.not_built = impl_->builds->failed();
  return counters;
}

}  // namespace kernelwright
