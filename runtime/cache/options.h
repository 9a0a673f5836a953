/// The options of a cache of binaries, and its counters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/runtime/cache/layer.h"
#include "kernelwright/runtime/process/events.h"

namespace kernelwright {

inline constexpr std::uint64_t kDefaultCacheBytes = std::uint64_t{2} << 30;

/// How a cache shares binaries with other hosts.
struct RemoteOptions {
  /// The server: "redis://[USER:PASSWORD@]HOST[:PORT]", "redis+unix:///PATH", or "http://" or "https://" with
  /// "[USER:PASSWORD@]HOST[:PORT]/PREFIX". "": that of $KERNELWRIGHT_REMOTE, if it is set; else there is no remote
  /// cache.
  std::string address;
  /// Files of public keys (PEM, Ed25519). A binary is taken only if one of them has signed it. Empty: those of
  /// $KERNELWRIGHT_REMOTE_KEYS, which a colon separates; else the public half of `signing_key`.
  std::vector<std::string> keys;
  /// The file of a private key (PEM, Ed25519), with which this cache signs what it compiles, and sends it. "": that of
  /// $KERNELWRIGHT_REMOTE_SIGNING_KEY; else this cache only reads.
  std::string signing_key;
  /// Binaries need no signature, and are sent without one if there is no signing key. A person who can write to the
  /// server then chooses what runs here, so this is an event. Without keys, a server on this host is trusted in any
  /// case.
  bool allow_unsigned = false;
  /// For an https server, files of PEM. `ca`: the authorities that it may be certified by, in place of the system's.
  /// "": those of $KERNELWRIGHT_REMOTE_CA; else the system's.
  std::string ca;
  /// The certificate that this host shows to an https server that asks for one, and its private key. "": those of
  /// $KERNELWRIGHT_REMOTE_CERTIFICATE and $KERNELWRIGHT_REMOTE_CERTIFICATE_KEY; else none.
  std::string certificate, certificate_key;
  /// How long a host without a compiler waits for a build by `kernelwright worker` on another host, in milliseconds.
  /// 0: it asks none.
  int build_wait_ms = 120'000;
  /// There is no remote cache, whatever the environment says.
  bool off = false;
};

struct CacheOptions {
  /// The folder of the entries. If absent: $KERNELWRIGHT_CACHE_DIR, else $XDG_CACHE_HOME/kernelwright, else
  /// $HOME/.cache/kernelwright, else memory only.
  std::optional<std::string> directory;
  /// Files of `kernelwright pack`, asked before `directory`. Empty: those of $KERNELWRIGHT_BUNDLES, which a colon
  /// separates.
  std::vector<std::string> bundles;
  /// Files of public keys (PEM, Ed25519). If there are any, a bundle is taken only if one of them has signed it. Empty:
  /// those of $KERNELWRIGHT_BUNDLE_KEYS, which a colon separates.
  std::vector<std::string> bundle_keys;
  std::vector<std::string> read_only_layers;             // cache directories asked after `directory`, never written
  std::vector<std::shared_ptr<CacheLayer>> more_layers;  // asked after those
  RemoteOptions remote;                                  // a server that hosts share, asked before a compile
  bool disk = true;                                      // false: memory only, silently
  bool ptx = true;  // false: binaries from disk come without PTX, which is neither read nor checked
  /// The limit of entries in `directory`. If absent: the limit that set_max_bytes() has kept in the directory, else
  /// kDefaultCacheBytes. If both exist, the smaller one holds.
  std::optional<std::uint64_t> max_bytes;
  std::uint64_t max_entries = 50'000;
  std::uint64_t max_memory_bytes = std::uint64_t{512} << 20;  // of binaries that only the cache holds
  /// How long to wait for another process' compilation of the same key, and as long again for another host's. After one
  /// second the sink gets an event (kLockWait).
  int lock_timeout_ms = 60'000;
  int failure_ttl_ms = 60'000;                // how long a failed compilation is remembered, in memory
  std::optional<std::string> lock_directory;  // else a local one is found: see LockDirectory
  EventSink sink;
  /// For tests: called before each step of a publish; may never return.
  std::function<void(const char* step)> publish_observer;
};

struct CacheCounters {
  std::uint64_t memory_hits = 0, disk_hits = 0, layer_hits = 0;  // layers: bundles, read-only directories, more_layers
  std::uint64_t misses = 0;                                      // no layer had it
  std::uint64_t compiles = 0, compile_failures = 0;
  std::uint64_t remembered_failures = 0;            // asked again while a failure was remembered
  std::uint64_t joined = 0;                         // waited for a compilation of another thread
  std::uint64_t lock_waits = 0, lock_timeouts = 0;  // waited for another process; gave up waiting
  std::uint64_t writes = 0, write_failures = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t evicted = 0;
};

/// What a remote cache was asked, and how it answered.
struct RemoteCounters {
  std::uint64_t hits = 0, misses = 0;
  std::uint64_t failures = 0;  // operations without an answer, or refused ones
  std::uint64_t rejected = 0;  // values that are no envelope of the key, or not signed by a trusted key
  std::uint64_t skipped = 0;   // operations that the breaker kept from the server
  std::uint64_t writes = 0, write_failures = 0;
  std::uint64_t dropped = 0;  // binaries that were not sent: the queue was full, they were too large, or time was over
  std::uint64_t lease_waits = 0;           // another host compiled the key, and was waited for
  std::uint64_t built = 0, not_built = 0;  // kernels that were asked of workers on other hosts: what became of them
};

/// What a remote cache has proved.
struct RemoteProbe {
  std::string server;                // its address, without credentials
  bool read = false;                 // it answered a get
  bool wrote = false;                // it took a value, which came back whole and signed by a trusted key
  std::string fault;                 // what failed; "": nothing did
  double milliseconds = 0;           // of one get
  std::vector<std::string> workers;  // architectures for which a worker of another host waits for requests
};

}  // namespace kernelwright
