/// Builds for hosts without a compiler. Such a host puts a request on the server of its remote cache. A worker on
/// another host takes it, compiles it, and sends the signed entry, which the first host then finds.
///
/// A request names a kernel and its Spec, and no source. The worker makes the source with its own templates and the key
/// of that source, and refuses a request whose name is not that key's. So a worker compiles the library's own kernels
/// alone, whatever stands in the queue, and its signature says what a builder's always says. Requests themselves need
/// no signature: a client that may write to the server can make workers compile kernels that no host wants, and nothing
/// else.
///
/// On the server, beside an entry's name NAME (docs/fleet.md):
///   kw2/requests/VERSION/ARCH   a list of NAMEs, in turn. A name stays in it while a worker builds it
///   NAME:request                the kernel's name, a line's end, and the text of the Spec. It expires
///   NAME:builder                the token of the worker that builds it. It expires unless that worker renews it, so
///                               another one takes the request of a worker that died
///   NAME:failed                 an envelope with the reason why a worker could not build it, signed as an entry is
///   kw2/workers/VERSION/ARCH    exists while a worker waits for requests
/// Only servers that run scripts can queue: Redis from 5.0 on and Valkey, and no server of HTTP.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "kernelwright/runtime/binary/cache_key.h"
#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/cache/remote/breaker.h"
#include "kernelwright/runtime/cache/remote_layer.h"

namespace kernelwright {

/// A request that a worker has taken. Everything in it is what another host claims.
struct TakenRequest {
  std::string name;          // of the entry that the host waits for
  std::string kernel, spec;  // kernel_name() and canonical_text()
  std::string token;         // proves that this worker has taken it
};

/// One server. Any number of threads. Every operation ends within half a second, and the time of its value. After
/// three failures in a row the server is left alone for a while, as by RemoteLayer.
class BuildQueue {
 public:
  /// `layer` must outlive the queue.
  explicit BuildQueue(const RemoteLayer& layer);

  /// Whether the server can queue.
  bool works() const { return transport_.runs_scripts(); }
  const std::string& server() const { return transport_.name(); }

  // The host that asks, with a key that has no compiler:
  /// Posts a request for `key`, unless there is one, or a failure of a moment ago. kAbsent: the queue is full.
  RemoteReply post(const CacheKey& key);
  /// The entry, proved. kDone, or why there is none.
  RemoteOutcome find(const CacheKey& key, std::optional<DecodedEntry>& entry);
  /// Why a worker could not build it, proved; nothing if none has said so.
  std::optional<std::string> failure(const CacheKey& key);
  /// Whether a worker for the architecture waits. Nothing if the server does not answer.
  std::optional<bool> has_worker(const std::string& arch);

  // The worker:
  /// The next request for an architecture that no other worker builds. kAbsent: there is none. Tells hosts that a
  /// worker waits. For `lease`, the request is this worker's.
  RemoteReply take(const std::string& arch, std::chrono::milliseconds lease, TakenRequest& request);
  /// Keeps a taken request for `lease` from now on. kAbsent: another worker has it.
  RemoteReply renew(const TakenRequest& request, std::chrono::milliseconds lease);
  /// Tells hosts that a worker waits, without taking anything.
  void announce(const std::string& arch);
  /// Sends the signed entry under both names of `key`, which has a compiler. Returns "", or why the server has it not.
  /// Throws CompileError if the binary is larger than a remote cache takes.
  std::string send(const CacheKey& key, const Binary& binary);
  /// Tells the hosts that wait why there is no entry.
  void fail(const TakenRequest& request, const std::string& reason);
  /// Removes a request that was answered or refused.
  void finish(const TakenRequest& request);
  /// Leaves a request to other workers.
  void give_back(const TakenRequest& request);

 private:
  template <class Operation>
  RemoteReply run(const Operation& operation);
  RemoteTransport& transport_;
  const RemoteLayer::Access& access_;
  Breaker breaker_;
};

}  // namespace kernelwright
