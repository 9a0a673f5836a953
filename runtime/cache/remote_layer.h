/// A server that hosts share as a layer of the cache, asked after the disk and before the compiler. What it has is
/// proved before anything uses it or writes it to disk. docs/fleet.md has the deadlines and what each fault leads to.
///
/// A server is never needed. If it fails, hangs or lies, the kernel is compiled as if there were none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kernelwright/runtime/cache/compile_room.h"
#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/cache/envelope.h"
#include "kernelwright/runtime/cache/layer.h"
#include "kernelwright/runtime/cache/options.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "kernelwright/runtime/process/events.h"

namespace kernelwright {

class RemoteLayer : public CacheLayer {
 public:
  struct Access {
    EnvelopeTrust trust;
    std::optional<SigningKey> key;  // signs what publish() sends
    bool writes = false;            // publish() sends; with a key, or where signatures are not asked for
  };
  /// `report`, if set, gets an event whenever the server's state changes, and one for the first value that is rejected.
  RemoteLayer(std::unique_ptr<RemoteTransport> transport, Access access, EventSink report = {});
  /// Waits for publish() to end its sending, at most 2 s and one operation.
  ~RemoteLayer() override;

  /// The layer that options and environment ask for. Null if they name no server. Throws ConfigError that names `field`
  /// for a server that cannot be used, and other Errors for keys. No text has a password.
  static std::unique_ptr<RemoteLayer> open(const RemoteOptions& options, EventSink report, const std::string& field);
  /// The same, but null if the server or a key cannot be used: then `fault` has the reason.
  static std::unique_ptr<RemoteLayer> of_options(const RemoteOptions& options, EventSink report, std::string& fault);

  std::string status() const override;
  std::optional<Binary> find(const CacheKey& key) override;

  /// The entry of `key`, proved. A key without a compiler finds the first build that any compiler has sent.
  std::optional<DecodedEntry> find_entry(const CacheKey& key);
  /// The same. If the server has none, this host becomes the one that compiles it (nothing is returned), unless another
  /// host is. That host is then waited for: see RemoteLeases; at most for `longest_wait`. What is asked before takes at
  /// most 1 s. Ends early when `give_up` returns true. publish() or abandon() of the key must follow if nothing is
  /// returned. `room`, if given, is held once this host leads. While it is not to be had, this waits for it and for
  /// other hosts, whichever comes first.
  std::optional<DecodedEntry> find_or_lead(const CacheKey& key, std::chrono::milliseconds longest_wait,
                                           const std::function<bool()>& give_up, CompileRoom* room = nullptr);
  /// Sends a binary, on another thread. A cache that only reads sends nothing.
  void publish(const CacheKey& key, const Binary& binary);
  /// The same for a binary that was found on this host's disk: the server keeps a value whose sender this cache trusts.
  void share(const CacheKey& key, const Binary& binary);
  /// This host does not compile the key after all.
  void abandon(const CacheKey& key);

  /// From now on nothing is asked and nothing is sent. Whatever is queued still goes out.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }

  /// Reads from the server and, if this cache writes, puts a value there, reads and proves it, and removes it again.
  /// Asks whatever happened before.
  RemoteProbe probe();

  RemoteCounters counters() const;

  /// For BuildQueue, which speaks with the same server under the same keys.
  RemoteTransport& transport() const;
  const Access& access() const;

 private:
  /// The bytes of a binary; none if this cache sends nothing, or no binary of that size.
  std::vector<std::byte> entry_to_send(const CacheKey& key, const Binary& binary);
  void start_sending();
  struct State;
  const std::shared_ptr<State> state_;  // shared with the sending thread
  std::atomic<bool> stopped_{false};
};

}  // namespace kernelwright
