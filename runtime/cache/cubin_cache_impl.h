/// What a CubinCache has in it: its layers, its memory, and the compilations that threads wait for. For the files of
/// CubinCache alone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/bundle.h"
#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/cache/directory.h"
#include "kernelwright/runtime/cache/file_lock.h"
#include "kernelwright/runtime/cache/names.h"
#include "kernelwright/runtime/cache/remote_builds.h"
#include "kernelwright/runtime/cache/remote_layer.h"
#include "kernelwright/runtime/process/fork_guard.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {

struct CubinCache::Impl {
  using Clock = std::chrono::steady_clock;
  using Shared = std::shared_ptr<const Binary>;

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

  /// The build that serves a key without a compiler.
  struct AnyBuild {
    std::string rank;  // of its compiler, the least of those in memory; "" if a layer chose the build
    Shared binary;
  };

  struct Failure {
    std::exception_ptr error;
    Clock::time_point forget_at;
  };

  static constexpr std::size_t kNumStats = 12;  // of the directory
  static constexpr int kPatienceMs = 50;        // for its lock, where a caller waits

  CacheOptions options;
  std::string directory_path, no_directory;
  std::unique_ptr<CacheDirectory> directory;
  std::vector<std::unique_ptr<Bundle>> bundles;     // before the directory
  std::vector<std::shared_ptr<CacheLayer>> layers;  // after it
  std::unique_ptr<RemoteLayer> remote;              // asked by a thread that would compile otherwise
  std::unique_ptr<RemoteBuilds> builds;             // asked after it, where there is no compiler

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
  std::atomic<Clock::rep> next_addition{(Clock::now() + std::chrono::seconds(1)).time_since_epoch().count()};
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

  /// Asks the remote cache, or waits for another host that compiles the key. Keeps a hit on disk. If nothing is
  /// returned, other hosts may wait for this one. Throws as RemoteBuilds::build() if this host has no compiler.
  std::optional<Binary> from_remote(const CacheKey& key, const Digest& digest, CompileRoom* room) {
    if (!remote) return std::nullopt;
    const auto start = Clock::now();
    std::optional<DecodedEntry> entry = remote->find_or_lead(
        key, std::chrono::milliseconds(options.lock_timeout_ms), [] { return interrupted(); }, room);
    if (!entry && builds && builds->can_ask(key)) entry = builds->build(key);
    if (!entry) return std::nullopt;
    count_hit(layer_hits, entry->binary);
    const std::chrono::duration<double, std::milli> spent = Clock::now() - start;
    if (options.sink) tell({EventKind::kCacheHit, digest.hex(), entry->binary.entry, "", spent.count()});
    publish(entry->key, entry->binary);
    return std::move(entry->binary);
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
                      double* lock_wait_ms, CompileRoom* room);
  /// Takes the lock of `digest`, unless the binary appears meanwhile. Reports a long wait. Returns the milliseconds
  /// waited.
  double await_lock(const CacheKey& key, const Digest& digest, FileLock& lock);
};

}  // namespace kernelwright
