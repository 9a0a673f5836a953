/// Binaries by key: in memory, then on disk, then made by the caller's compiler, once per key across the threads of
/// this process and the processes of this machine. docs/cache.md has the key, the file format, the locks and what each
/// kind of damage leads to.
///
/// Nothing about the disk is ever an error: a cache that cannot read or write says so once through the event sink and
/// goes on in memory. All of CubinCache may be called from any number of threads. After fork() the child may use it: it
/// keeps what is in memory and forgets the compilations that the parent's threads were at.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/binary/cache_key.h"
#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/cache/options.h"
#include "kernelwright/runtime/process/latency.h"

namespace kernelwright {

/// What all users of a cache directory did, over runs. A process adds to it about once a second while it asks for
/// binaries, and at its end; what a killed one did last may lack.
struct CacheStats {
  std::uint64_t runs = 0;                                        // caches that did anything
  std::uint64_t memory_hits = 0, disk_hits = 0, layer_hits = 0;  // as in CacheCounters
  std::uint64_t compiles = 0, compile_failures = 0;              // what nobody had; together the misses
  double compile_s = 0;                                          // that the compiles took
  double saved_s = 0;  // that the binaries of disk and layer hits took when they were compiled
  std::uint64_t bytes_read = 0, bytes_written = 0;  // of the code in those hits, and in entries that were written
  std::uint64_t quarantined = 0, evicted = 0;
  std::int64_t since_s = 0;  // Unix time of the first addition; 0: there was none
  std::string fault;         // what is wrong with the file, which is begun anew; ""
};

/// One entry on disk.
struct EntrySummary {
  std::string name;  // the key's 64 hex digits
  CacheKey key;
  Binary binary;  // without cubin and ptx
  std::uint64_t file_bytes = 0;
  std::int64_t last_used_s = 0;  // Unix time, to the hour
  std::string fault;             // what is wrong with it; then key and binary are empty
};

struct VerifyReport {
  std::uint64_t checked = 0, bytes = 0;
  std::vector<std::pair<std::string, std::string>> bad;  // name and reason; set aside in quarantine/
};

struct PruneLimits {
  std::optional<std::uint64_t> max_bytes, max_entries;  // the cache's own where absent
  std::optional<std::int64_t> max_age_s;                // since the last use
};

class CubinCache {
 public:
  explicit CubinCache(CacheOptions options);
  ~CubinCache();
  CubinCache(const CubinCache&) = delete;
  CubinCache& operator=(const CubinCache&) = delete;

  using Compile = std::function<Binary()>;

  /// The binary of `key`: found, or made by `compile` on the calling thread. Threads and processes that ask for the
  /// same key meanwhile wait for it. What `compile` throws reaches every thread that waits; an Error is remembered for
  /// failure_ttl_ms and thrown again without compiling, unless it is an InterruptedError. `compile` must not ask the
  /// cache for the same key. `source`, if given, is told where the binary came from; `lock_wait_ms`, if given, grows by
  /// what was spent waiting for another process.
  std::shared_ptr<const Binary> get_or_compile(const CacheKey& key, const Compile& compile,
                                               CacheSource* source = nullptr, double* lock_wait_ms = nullptr);

  /// The binary of `key`, or null; never compiles or waits. A key without a compiler finds the newest binary that
  /// agrees with it in all other fields.
  std::shared_ptr<const Binary> find(const CacheKey& key, CacheSource* source = nullptr);

  /// Keeps `binary` in memory and on disk. A failed write shows in counters() and as an event.
  void put(const CacheKey& key, Binary binary);

  CacheCounters counters() const;
  /// The directory's, with all that this cache has done.
  CacheStats stats() const;
  /// Of `compile` alone: neither lookups nor waits for others are in it.
  LatencySnapshot compile_latency() const;

  /// A line per layer: what is on, and why the others are not.
  std::string status() const;

  /// Bytes that entries in the directory may take, now: see CacheOptions::max_bytes.
  std::uint64_t max_bytes() const;
  /// Keeps a limit in the directory, which is made if it is absent, for all caches that use it from now on; without a
  /// value removes it. "", or why it could not be kept. prune() then brings the directory below it.
  std::string set_max_bytes(std::optional<std::uint64_t> bytes);

  /// The directory in use or wanted; "" where none could be named.
  const std::string& directory() const;

  /// The nearest entry on disk and the fields in which it differs from `key`. Reads the index: for people, not for
  /// paths that matter.
  std::string why_missed(const CacheKey& key) const;

  std::vector<EntrySummary> list() const;  // the local directory's, by name
  /// Reads every entry whole; sets the bad ones aside.
  VerifyReport verify();
  /// Removes the least recently used entries beyond the limits; returns how many. What could not be removed, and why,
  /// is put into `failure`; "" where nothing stood in the way.
  std::size_t prune(const PruneLimits& limits = {}, std::string* failure = nullptr);
  /// Removes everything the cache keeps, in memory and on disk; returns how many entries. `failure` as in prune().
  std::size_t clear(std::string* failure = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kernelwright
