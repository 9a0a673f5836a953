#include "kernelwright/runtime/cache/remote/server.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

namespace kernelwright {
namespace {

double seconds(std::chrono::milliseconds span) { return static_cast<double>(span.count()) * 1e-3; }

}  // namespace

std::uint64_t remote_random() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
    bits = static_cast<std::uint64_t>(RemoteClock::now().time_since_epoch().count());
  return bits;
}

RemoteServer::RemoteServer(std::unique_ptr<RemoteTransport> transport, EventSink report)
    : transport_(std::move(transport)), report_(std::move(report)), all_(remote_random()), writes_(remote_random()) {}

template <class Operation>
RemoteReply RemoteServer::run(Verb verb, Deadline last, const Operation& operation) {
  const Deadline now = RemoteClock::now();
  if ((verb == Verb::kWrite && !writes_.admits(now)) || !all_.admits(now)) {
    ++skipped_;
    return {.detail = "it is off"};
  }
  const Deadline end{Deadline::duration(end_.load(std::memory_order_relaxed))};
  RemoteReply reply = operation(std::min({now + kRemoteOperationTime, last, end}));
  note(verb, reply);
  return reply;
}

void RemoteServer::note(Verb verb, const RemoteReply& reply) {
  const Deadline now = RemoteClock::now();
  // Credentials that may not read are of no use. Those that may not write still read.
  const bool read_only = reply.outcome == RemoteOutcome::kForbidden && verb == Verb::kWrite;
  const bool refused =
      reply.outcome == RemoteOutcome::kRefused || (reply.outcome == RemoteOutcome::kForbidden && !read_only);
  if (refused || read_only || reply.outcome == RemoteOutcome::kFailed) ++failures_;
  if (refused || reply.outcome == RemoteOutcome::kFailed) {
    if (refused ? all_.refused(now) : all_.failed(now))
      tell(EventKind::kCacheDegraded, fmt::format("{}; it is not asked for {:.0f} s, and kernels are compiled here",
                                                  reply.detail, seconds(all_.left(now))));
    return;
  }
  if (all_.succeeded()) tell(EventKind::kCacheRestored, "it answers again");
  if (read_only && writes_.refused(now))
    tell(EventKind::kCacheDegraded, fmt::format("{}; nothing is sent to it for {:.0f} s, and it is still read",
                                                reply.detail, seconds(writes_.left(now))));
  if (!read_only && verb == Verb::kWrite && writes_.succeeded())
    tell(EventKind::kCacheRestored, "it takes binaries again");
}

void RemoteServer::tell(EventKind kind, std::string text) const {
  if (report_) report_({kind, "", name(), fmt::format("remote cache {}: {}", name(), text)});
}

RemoteReply RemoteServer::get(std::string_view name, Deadline last) {
  return run(Verb::kRead, last, [&](Deadline deadline) { return transport_->get(name, deadline); });
}

RemoteReply RemoteServer::get_start(std::string_view name, std::size_t bytes) {
  return run(Verb::kWrite, Deadline::max(),
             [&](Deadline deadline) { return transport_->get_start(name, bytes, deadline); });
}

RemoteReply RemoteServer::put(std::string_view name, std::span<const std::byte> value) {
  return run(Verb::kWrite, Deadline::max(), [&](Deadline deadline) { return transport_->put(name, value, deadline); });
}

RemoteReply RemoteServer::put_if_absent(std::string_view name, std::span<const std::byte> value,
                                        std::chrono::milliseconds time_to_live, Deadline last) {
  return run(Verb::kWrite, last,
             [&](Deadline deadline) { return transport_->put_if_absent(name, value, time_to_live, deadline); });
}

RemoteReply RemoteServer::remove_if_equal(std::string_view name, std::span<const std::byte> value) {
  return run(Verb::kWrite, Deadline::max(),
             [&](Deadline deadline) { return transport_->remove_if_equal(name, value, deadline); });
}

RemoteReply RemoteServer::replace_if_equal(std::string_view name, std::span<const std::byte> expected,
                                           std::span<const std::byte> value, std::chrono::milliseconds time_to_live,
                                           Deadline last) {
  return run(Verb::kWrite, last, [&](Deadline deadline) {
    return transport_->replace_if_equal(name, expected, value, time_to_live, deadline);
  });
}

}  // namespace kernelwright
