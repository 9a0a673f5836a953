#include "kernelwright/runtime/cache/remote/leases.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>
#include <vector>

namespace kernelwright {
namespace {

constexpr std::size_t kMaxIdle = 4096;
constexpr int kMostVanished = 4;
constexpr std::size_t kMaxLeaseBytes = 128;  // a value of ours is shorter

std::span<const std::byte> value_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

/// The part of a lease's value that its holder keeps: "<holder>:<renewals>".
std::string holder_in(const std::string& value) { return value.substr(0, value.find(':')); }

}  // namespace

RemoteLeases::RemoteLeases(RemoteServer& server, bool takes, LeaseTimes times)
    : server_(server), takes_(takes), times_(times) {}

std::string RemoteLeases::new_token() { return fmt::format("{:016x}{:016x}", remote_random(), remote_random()); }

RemoteLeases::Lead RemoteLeases::ask(const std::string& name, Seen& seen, Deadline last, bool can_begin) {
  if (!server_.has_leases()) return Lead::kNobody;
  const bool may_take = takes_ && server_.unwritten_for().count() == 0, takes = may_take && can_begin;
  std::string mine;
  {
    std::lock_guard hold(mutex_);
    mine = holder_ + ":0";
  }
  const auto take = [&] {
    return lead_after(server_.put_if_absent(name, value_bytes(mine), times_.life, last), name, mine);
  };
  if (takes && seen.value.empty())
    if (const Lead lead = take(); lead != Lead::kOthers) return lead;
  const RemoteReply reply = server_.get(name, last);
  const Deadline now = RemoteClock::now();
  if (reply.outcome == RemoteOutcome::kAbsent) {
    if (may_take && !can_begin) return seen = {}, Lead::kFree;
    // A server that says of each lease that it exists, and then that it does not, is waited for no longer.
    seen = {.vanished = seen.vanished + 1};
    return takes && seen.vanished < kMostVanished ? take() : Lead::kNobody;
  }
  if (reply.outcome != RemoteOutcome::kDone) return Lead::kUnknown;
  if (reply.value.size() > kMaxLeaseBytes) return Lead::kNobody;
  std::string value(reinterpret_cast<const char*>(reply.value.data()), reply.value.size());
  // The server may have taken the lease for us without our hearing of it.
  if (takes && value == mine && !holds(name)) return lead_after({.outcome = RemoteOutcome::kDone}, name, mine);
  const std::string holder = holder_in(value);
  if (seen.value.empty() || holder != holder_in(seen.value)) seen.taken = now;
  if (seen.value.empty() || value != seen.value) seen.changed = now;
  seen.value = std::move(value);
  seen.vanished = 0;
  {
    std::lock_guard hold(mutex_);
    if (now - seen.changed >= times_.life || now - seen.taken >= times_.patience) {
      if (idle_.size() >= kMaxIdle) idle_.clear();
      idle_.insert(holder);
    }
    if (!idle_.contains(holder)) return Lead::kOthers;
  }
  if (!takes) return may_take ? Lead::kFree : Lead::kNobody;
  // One of those that wait comes first. The others see its lease, and wait for it.
  return lead_after(server_.replace_if_equal(name, reply.value, value_bytes(mine), times_.life, last), name, mine);
}

RemoteLeases::Lead RemoteLeases::lead_after(const RemoteReply& reply, const std::string& name, std::string value) {
  if (reply.outcome == RemoteOutcome::kPresent || reply.outcome == RemoteOutcome::kAbsent) return Lead::kOthers;
  if (reply.outcome == RemoteOutcome::kForbidden) return Lead::kNobody;
  if (reply.outcome != RemoteOutcome::kDone) return Lead::kUnknown;
  std::lock_guard hold(mutex_);
  held_[name] = {std::move(value), 0, RemoteClock::now() + times_.renewal};
  return Lead::kMine;
}

bool RemoteLeases::holds(const std::string& name) const {
  std::lock_guard hold(mutex_);
  return held_.contains(name);
}

bool RemoteLeases::holds_any() const {
  std::lock_guard hold(mutex_);
  return !held_.empty();
}

void RemoteLeases::renew() {
  std::vector<std::pair<std::string, Held>> due;
  {
    std::lock_guard hold(mutex_);
    for (const auto& [name, held] : held_)
      if (RemoteClock::now() >= held.due) due.emplace_back(name, held);
  }
  for (auto& [name, held] : due) {
    const std::string before = std::exchange(held.value, fmt::format("{}:{}", holder_in(held.value), ++held.renewals));
    const RemoteReply reply = server_.replace_if_equal(name, value_bytes(before), value_bytes(held.value), times_.life);
    held.due = RemoteClock::now() + times_.renewal;
    std::lock_guard hold(mutex_);
    const auto at = held_.find(name);
    if (at == held_.end() || at->second.value != before) continue;
    if (reply.outcome == RemoteOutcome::kDone)
      at->second = std::move(held);
    else if (reply.outcome == RemoteOutcome::kAbsent)
      held_.erase(at);  // it ended, and may be another host's
    else
      at->second.due = held.due;
  }
}

void RemoteLeases::give_back(const std::string& name) {
  std::string value;
  {
    std::lock_guard hold(mutex_);
    const auto held = held_.extract(name);
    if (!held) return;
    value = held.mapped().value;
  }
  server_.remove_if_equal(name, value_bytes(value));
}

void RemoteLeases::forget(const std::string& name) {
  std::lock_guard hold(mutex_);
  held_.erase(name);
}

}  // namespace kernelwright
