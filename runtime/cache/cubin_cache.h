/// Binaries by key: in memory, then on disk, then made by the caller's compiler. A key is compiled once across the
/// threads of this process and the processes of this machine. docs/cache.md has the key, the file format, the locks and
/// what each kind of damage leads to.
///
/// A fault of the disk is never an error. A cache that cannot read or write reports that once through the event sink
/// and goes on in memory. Any number of threads may call CubinCache. After fork() the child may use it: it keeps what
/// is in memory, and forgets the compilations of the parent's threads.
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
#include "kernelwright/runtime/cache/compile_room.h"
#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/cache/options.h"
#include "kernelwright/runtime/process/latency.h"

namespace kernelwright {

/// What all users of a cache directory did, over runs. A process adds to it about once a second while it asks for
/// binaries, and at its end. A killed process may not have added its last second.
struct CacheStats {
  std::uint64_t runs = 0;                                        // runs of caches that did anything
  std::uint64_t memory_hits = 0, disk_hits = 0, layer_hits = 0;  // as in CacheCounters
  std::uint64_t compiles = 0, compile_failures = 0;              // binaries that no layer had; together the misses
  double compile_s = 0;                                          // seconds that the compiles took
  double saved_s = 0;  // seconds that compiling took for the binaries of disk and layer hits
  std::uint64_t bytes_read = 0, bytes_written = 0;  // code of those hits; entries that were written
  std::uint64_t quarantined = 0, evicted = 0;
  std::int64_t since_s = 0;  // Unix time of the first addition; 0: there was none
  std::string fault;         // what is wrong with the file, which is then begun anew; ""
};

/// One entry on disk.
struct EntrySummary {
  std::string name;  // the key's 64 hex digits
  CacheKey key;
  Binary binary;  // without cubin and ptx
  std::uint64_t file_bytes = 0;
  std::int64_t last_used_s = 0;  // Unix time, to the hour
  std::string fault;             // what is wrong with it; key and binary are then empty
};

struct VerifyReport {
  std::uint64_t checked = 0, bytes = 0;
  std::vector<std::pair<std::string, std::string>> bad;  // name and reason; set aside in quarantine/
};

struct PruneLimits {
  std::optional<std::uint64_t> max_bytes, max_entries;  // absent: the cache's own
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
  /// same key meanwhile wait for it. An exception of `compile` reaches every thread that waits. An Error is remembered
  /// for failure_ttl_ms and thrown again without compiling, unless it is an InterruptedError. `compile` must not ask
  /// the cache for the same key. `source`, if given, receives the place where the binary was found. `lock_wait_ms`, if
  /// given, grows by the time spent waiting for another process or host. For a key without a compiler, a worker of
  /// another host is asked before `compile` (RemoteOptions::build_wait_ms); then this throws as RemoteBuilds::build()
  /// does. `room`, if given, is held while `compile` runs. It is taken before this host leads others on a remote cache.
  std::shared_ptr<const Binary> get_or_compile(const CacheKey& key, const Compile& compile,
                                               CacheSource* source = nullptr, double* lock_wait_ms = nullptr,
                                               CompileRoom* room = nullptr);

  /// The binary of `key`, or null; never compiles or waits. A key without a compiler finds a binary that agrees
  /// with it in all other fields. The compiler's id decides which, and not its age.
  std::shared_ptr<const Binary> find(const CacheKey& key, CacheSource* source = nullptr);

  /// From now on no remote cache is asked, and nothing is sent to it.
  void stop_remote();

  /// Keeps `binary` in memory and on disk. A failed write shows in counters() and as an event.
  void put(const CacheKey& key, Binary binary);

  CacheCounters counters() const;
  /// Of the remote cache; all 0 if there is none.
  RemoteCounters remote_counters() const;
  /// The directory's statistics, with everything that this cache has done.
  CacheStats stats() const;
  /// The latency of `compile` alone, without lookups and without waits for others.
  LatencySnapshot compile_latency() const;

  /// A line for each layer: whether it is on, and if not, why.
  std::string status() const;
  /// The status of the first layer that has kernels, whatever they are, or of the remote cache; "" if none has any.
  std::string first_with_kernels() const;

  /// Bytes that entries in the directory may now take: see CacheOptions::max_bytes.
  std::uint64_t max_bytes() const;
  /// Keeps a limit in the directory for all caches that use it from now on, and makes the directory if it is absent.
  /// Without a value, removes the limit. Returns "", or why the limit could not be kept. prune() then brings the
  /// directory below it.
  std::string set_max_bytes(std::optional<std::uint64_t> bytes);

  /// Each layer behind the memory, by its status, and whether it has `key`. The remote cache is asked too.
  std::vector<std::pair<std::string, bool>> layer_answers(const CacheKey& key);
  /// Proves that the remote cache can be used: see RemoteLayer::probe(). Nothing if there is none.
  std::optional<RemoteProbe> probe_remote();

  /// The directory in use or wanted; "" if no directory could be named.
  const std::string& directory() const;

  /// The nearest entry on disk and the fields in which it differs from `key`. It reads the index: for people, not for
  /// fast paths.
  std::string why_missed(const CacheKey& key) const;

  std::vector<EntrySummary> list() const;  // the local directory's, by name
  /// Reads every entry whole, and sets the bad ones aside.
  VerifyReport verify();
  /// Removes the least recently used entries beyond the limits, and returns how many. If entries could not be removed,
  /// `failure` says why; otherwise it is "".
  std::size_t prune(const PruneLimits& limits = {}, std::string* failure = nullptr);
  /// Removes everything that the cache keeps, in memory and on disk. Returns how many entries. `failure` as in prune().
  std::size_t clear(std::string* failure = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kernelwright
