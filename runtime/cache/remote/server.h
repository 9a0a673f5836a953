/// The server of a remote cache, as a layer asks it: each operation has its time, and a server that fails is not asked
/// for a while. docs/fleet.md has the times and what each fault leads to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "kernelwright/runtime/cache/remote/breaker.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "kernelwright/runtime/process/events.h"

namespace kernelwright {

/// How long an operation may take, connecting included.
inline constexpr std::chrono::milliseconds kRemoteOperationTime{500};

/// Bits that no other process has.
std::uint64_t remote_random();

/// Two states: whether the server is asked at all, and whether it is sent anything. A server that forbids writes to
/// these credentials is still read. Any number of threads may call it at once.
class RemoteServer {
 public:
  /// `report`, if set, gets an event whenever one of the states changes.
  RemoteServer(std::unique_ptr<RemoteTransport> transport, EventSink report);

  /// The address, without credentials.
  const std::string& name() const { return transport_->name(); }
  bool has_leases() const { return transport_->has_leases(); }
  /// What a probe asks, whatever happened before.
  RemoteTransport& transport() { return *transport_; }

  /// The operations of RemoteTransport. Each ends by kRemoteOperationTime and by `last`, plus the value's transfer. An
  /// operation that is not let out is kFailed.
  RemoteReply get(std::string_view name, Deadline last = Deadline::max());
  /// Comes before a write: a server that forbids it is sent nothing, and is still read.
  RemoteReply get_start(std::string_view name, std::size_t bytes);
  RemoteReply put(std::string_view name, std::span<const std::byte> value);
  RemoteReply put_if_absent(std::string_view name, std::span<const std::byte> value,
                            std::chrono::milliseconds time_to_live, Deadline last = Deadline::max());
  RemoteReply remove_if_equal(std::string_view name, std::span<const std::byte> value);
  RemoteReply replace_if_equal(std::string_view name, std::span<const std::byte> expected,
                               std::span<const std::byte> value, std::chrono::milliseconds time_to_live,
                               Deadline last = Deadline::max());

  /// How long the server is not asked; how long it is sent nothing although it is asked. 0: it is.
  std::chrono::milliseconds silent_for() const { return all_.left(RemoteClock::now()); }
  std::chrono::milliseconds unwritten_for() const { return writes_.left(RemoteClock::now()); }

  /// No operation takes longer than until `time`, from now on.
  void end_by(Deadline time) { end_.store(time.time_since_epoch().count(), std::memory_order_relaxed); }
  bool ended() const { return RemoteClock::now().time_since_epoch().count() >= end_.load(std::memory_order_relaxed); }

  std::uint64_t failures() const { return failures_; }
  std::uint64_t skipped() const { return skipped_; }

 private:
  enum class Verb { kRead, kWrite };
  template <class Operation>
  RemoteReply run(Verb verb, Deadline last, const Operation& operation);
  void note(Verb verb, const RemoteReply& reply);
  void tell(EventKind kind, std::string text) const;

  const std::unique_ptr<RemoteTransport> transport_;
  const EventSink report_;
  Breaker all_, writes_;
  std::atomic<Deadline::rep> end_{Deadline::max().time_since_epoch().count()};
  std::atomic<std::uint64_t> failures_{0}, skipped_{0};
};

}  // namespace kernelwright
