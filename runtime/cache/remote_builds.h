/// A host without a compiler has other hosts build its kernels: it asks, waits, and finds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/runtime/binary/cache_key.h"
#include "kernelwright/runtime/cache/build_queue.h"
#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/process/events.h"

namespace kernelwright {

/// Any number of threads.
class RemoteBuilds {
 public:
  struct Waits {
    std::chrono::milliseconds build{120'000};  // for one build, the time in the queue included
    std::chrono::milliseconds worker{5'000};   // for any worker to be there
    std::chrono::milliseconds longest_poll{500};
  };
  /// `layer` must outlive this. `sink`, if set, gets one event when no worker builds, and one when one does again.
  RemoteBuilds(const RemoteLayer& layer, EventSink sink, Waits waits);

  /// Whether a worker of another host could build `key`: the key has no compiler, the server can queue, and the kernel
  /// has no source of a user's own.
  bool can_ask(const CacheKey& key) const;

  /// The entry of `key`, built by a worker. Waits for it. Throws MissingError if no worker is there, or none has built
  /// it in time, CompileError with the worker's reason if the kernel does not compile, and InterruptedError.
  DecodedEntry build(const CacheKey& key);

  /// The architectures for which a worker waits for requests. Empty if the server cannot queue, or does not answer.
  std::vector<std::string> archs_with_workers();

  /// From now on no host is asked, and every wait ends.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }

  std::uint64_t built() const { return built_; }    // kernels that came
  std::uint64_t failed() const { return failed_; }  // kernels that did not

 private:
  DecodedEntry wait_for(const CacheKey& key, const std::string& what);
  [[noreturn]] void give_up(const CacheKey& key, const std::string& what, const std::string& why);
  void tell(EventKind kind, const CacheKey& key, std::string detail) const;
  BuildQueue queue_;
  const EventSink sink_;
  const Waits waits_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> nobody_{false};  // no worker was there when the last kernel was asked for
  std::atomic<std::uint64_t> built_{0}, failed_{0};
};

}  // namespace kernelwright
