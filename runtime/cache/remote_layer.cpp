#include "kernelwright/runtime/cache/remote_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "kernelwright/runtime/cache/remote/leases.h"
#include "kernelwright/runtime/cache/remote/server.h"
#include "kernelwright/runtime/cache/remote_name.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrainTime{2'000};
constexpr milliseconds kFirstAnswer{900};  // for all that is asked before another host is waited for
constexpr milliseconds kFirstPoll{50}, kLongestPoll{500}, kSlice{20}, kSilentWait{1'000};
constexpr milliseconds kForgetAbsent{60'000};
constexpr std::size_t kMaxQueued = 64, kMaxQueuedBytes = std::size_t{32} << 20, kMaxAbsent = 4096;

/// What becomes of a value that the server has under a name already.
enum class Former {
  kReplaced,
  kKeptIfProved,  // it stays if this cache would use it, every byte
  kKeptIfSigned,  // it stays if its first bytes have a signature that is trusted, which is a fraction of the traffic
};

struct Sending {
  CacheKey key;
  std::vector<std::byte> entry;  // empty: there is nothing to send
  Former former = Former::kReplaced;
};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

struct RemoteLayer::State {
  State(std::unique_ptr<RemoteTransport> transport, Access granted, EventSink report)
      : server(std::move(transport), report),
        leases(server, granted.writes),
        access(std::move(granted)),
        sink(std::move(report)) {}

  RemoteServer server;
  RemoteLeases leases;
  const Access access;
  const EventSink sink;
  std::atomic<std::uint64_t> hits{0}, misses{0}, rejected{0}, writes{0}, write_failures{0}, dropped{0}, lease_waits{0};

  // A forked child has no sending thread, and sends nothing of its parent's.
  ForkSafeMutex mutex{[this] { queue.clear(), queued_bytes = 0, sending = false; }};
  std::deque<Sending> queue;
  std::size_t queued_bytes = 0;
  bool called = false;                      // the thread has to look for work once more
  bool closing = false;                     // leases that nobody gives back are let go
  bool sending = false;                     // a thread empties the queue, and renews leases
  std::map<Digest, Deadline> absent_until;  // until when a name is taken to be absent

  /// The entry in a value of `name`. Nothing: sets `reason`, "is of another kernel".
  std::optional<DecodedEntry> open(const RemoteName& name, std::span<const std::byte> value, std::string& reason) const;
  /// The entry. If there is none, `none` tells whether the server has said so, or has a value that is not trusted.
  std::optional<DecodedEntry> fetch(const CacheKey& key, const RemoteName& name, Deadline last, bool& none);
  /// The same, unless there was none a moment ago.
  std::optional<DecodedEntry> look(const CacheKey& key, const RemoteName& name, Deadline last, bool& none);
  /// Sleeps for about `span`, or until `wake` returns true. False if `give_up` returns true.
  static bool pause(milliseconds span, const std::function<bool()>& give_up, const std::function<bool()>& wake);
  bool known_absent(const Digest& name);
  void remember_absent(const Digest& name);
  /// False: there is nothing to send, or no room for it.
  bool enqueue(const CacheKey& key, std::vector<std::byte> entry, Former former);
  static void send_all_queued(const std::shared_ptr<State>& state);
  void send(const Sending& sending);
  /// Writes a value under a name. kPresent: the former one stays.
  RemoteReply write(const RemoteName& name, std::span<const std::byte> value, Former former);
};

bool RemoteLayer::State::known_absent(const Digest& name) {
  std::lock_guard hold(mutex);
  const auto found = absent_until.find(name);
  return found != absent_until.end() && RemoteClock::now() < found->second;
}

void RemoteLayer::State::remember_absent(const Digest& name) {
  std::lock_guard hold(mutex);
  if (absent_until.size() >= kMaxAbsent) absent_until.clear();
  absent_until[name] = RemoteClock::now() + kForgetAbsent;
}

std::optional<DecodedEntry> RemoteLayer::State::open(const RemoteName& name, std::span<const std::byte> value,
                                                     std::string& reason) const {
  EnvelopeResult result = open_envelope(value, name.digest, access.trust);
  reason = std::move(result.reason);
  if (!result.envelope) return std::nullopt;
  DecodeResult decoded = decode_entry(result.envelope->entry, Payload::kUnpack);
  reason = std::move(decoded.reason);
  if (!decoded.entry) return std::nullopt;
  const CacheKey& key = decoded.entry->key;
  if ((name.any ? key.digest_without_compiler() : key.digest()) == name.digest) return std::move(decoded.entry);
  reason = "is of another kernel";
  return std::nullopt;
}

std::optional<DecodedEntry> RemoteLayer::State::fetch(const CacheKey& key, const RemoteName& name, Deadline last,
                                                      bool& none) {
  RemoteReply reply = server.get(name.text, last);
  none = reply.outcome == RemoteOutcome::kAbsent;
  if (none) ++misses;
  if (reply.outcome != RemoteOutcome::kDone) return std::nullopt;
  std::string reason;
  if (std::optional<DecodedEntry> entry = open(name, reply.value, reason)) return ++hits, std::move(entry);
  none = true;
  if (rejected++ == 0 && sink)
    sink({EventKind::kCacheDegraded, name.digest.hex(), key.entry_stem,
          fmt::format("remote cache {}: {} {}; such values are not used", server.name(), name.text, reason)});
  return std::nullopt;
}

std::optional<DecodedEntry> RemoteLayer::State::look(const CacheKey& key, const RemoteName& name, Deadline last,
                                                     bool& none) {
  none = known_absent(name.digest);
  if (none) return std::nullopt;
  std::optional<DecodedEntry> found = fetch(key, name, last, none);
  if (none) remember_absent(name.digest);
  return found;
}

bool RemoteLayer::State::pause(milliseconds span, const std::function<bool()>& give_up,
                               const std::function<bool()>& wake) {
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(remote_random()));
  std::uniform_real_distribution<double> jitter(0.5, 1.5);
  const Deadline end = RemoteClock::now() + std::chrono::duration_cast<RemoteClock::duration>(span * jitter(random));
  while (RemoteClock::now() < end) {
    if (give_up && give_up()) return false;
    if (wake()) return true;
    std::this_thread::sleep_for(kSlice);
  }
  return true;
}

bool RemoteLayer::State::enqueue(const CacheKey& key, std::vector<std::byte> entry, Former former) {
  const std::string lease = RemoteName(key, false).lease;
  if (entry.empty() && !leases.holds(lease)) return false;
  {
    std::lock_guard hold(mutex);
    if (queue.size() < kMaxQueued && queued_bytes + entry.size() <= kMaxQueuedBytes) {
      queued_bytes += entry.size();
      queue.push_back({key, std::move(entry), former});
      return true;
    }
  }
  ++dropped;
  leases.forget(lease);
  return false;
}

RemoteReply RemoteLayer::State::write(const RemoteName& name, std::span<const std::byte> value, Former former) {
  if (former == Former::kReplaced) return server.put(name.text, value);
  if (former == Former::kKeptIfSigned) {
    RemoteReply start = server.get_start(name.text, kEnvelopeHeadBytes);
    if (start.outcome == RemoteOutcome::kAbsent) return server.put_if_absent(name.text, value, milliseconds(0));
    if (start.outcome != RemoteOutcome::kDone) return start;
    if (fault_of_head(start.value, name.digest, access.trust).empty()) return {.outcome = RemoteOutcome::kPresent};
  }
  const RemoteReply found = server.get(name.text);
  if (found.outcome == RemoteOutcome::kAbsent) return server.put_if_absent(name.text, value, milliseconds(0));
  if (found.outcome != RemoteOutcome::kDone) return found;
  std::string reason;
  if (open(name, found.value, reason)) return {.outcome = RemoteOutcome::kPresent};
  // A builder's key was changed: hosts with the new one would reject the old value for ever.
  RemoteReply reply = server.replace_if_equal(name.text, found.value, value, milliseconds(0));
  if (reply.outcome == RemoteOutcome::kAbsent) reply.outcome = RemoteOutcome::kPresent;  // another host was faster
  return reply;
}

void RemoteLayer::State::send(const Sending& item) {
  if (!item.entry.empty()) {
    for (const bool any_compiler : {false, true}) {
      const RemoteName name(item.key, any_compiler);
      const std::vector<std::byte> value =
          make_envelope(name.digest, item.entry, std::time(nullptr), access.key ? &*access.key : nullptr);
      // The first build that any compiler has sent stays, so that hosts without a compiler run the same cubin.
      const Former former = any_compiler && item.former == Former::kReplaced ? Former::kKeptIfProved : item.former;
      const RemoteReply reply = write(name, value, former);
      if (any_compiler || reply.outcome == RemoteOutcome::kPresent) continue;
      ++(reply.outcome == RemoteOutcome::kDone ? writes : write_failures);
    }
  }
  leases.give_back(RemoteName(item.key, false).lease);
}

void RemoteLayer::State::send_all_queued(const std::shared_ptr<State>& state) {
  for (;;) {
    std::optional<Sending> item;
    {
      std::lock_guard hold(state->mutex);
      state->called = false;
    }
    const bool holds = state->leases.holds_any();
    {
      std::lock_guard hold(state->mutex);
      if (state->server.ended()) {
        state->dropped += state->queue.size();
        state->queue.clear();
      }
      state->sending = !state->queue.empty() || state->called || (holds && !state->closing);
      if (!state->sending) return;
      if (!state->queue.empty()) {
        item = std::move(state->queue.front());
        state->queue.pop_front();
        state->queued_bytes -= item->entry.size();
      }
    }
    try {
      state->leases.renew();
      if (item) state->send(*item);
    } catch (const std::exception&) {  // no memory
      if (item) ++state->write_failures;
    }
    if (!item) std::this_thread::sleep_for(kSlice);
  }
}

RemoteLayer::RemoteLayer(std::unique_ptr<RemoteTransport> transport, Access access, EventSink report)
    : state_(std::make_shared<State>(std::move(transport), std::move(access), std::move(report))) {}

RemoteLayer::~RemoteLayer() {
  state_->server.end_by(RemoteClock::now() + kDrainTime);
  const auto is_sending = [&] {
    std::lock_guard hold(state_->mutex);
    state_->closing = true;
    return state_->sending;
  };
  while (is_sending()) std::this_thread::sleep_for(milliseconds(1));
}

std::string RemoteLayer::status() const {
  const RemoteServer& server = state_->server;
  const auto seconds = [](milliseconds span) { return static_cast<double>(span.count()) * 1e-3; };
  if (stopped_) return fmt::format("remote: {}: not asked any more", server.name());
  if (const auto left = server.silent_for(); left.count() > 0)
    return fmt::format("remote: {}: off for {:.0f} s, because it failed", server.name(), seconds(left));
  if (const auto left = server.unwritten_for(); left.count() > 0)
    return fmt::format("remote: {}: read only for {:.0f} s, because it takes no writes", server.name(), seconds(left));
  return fmt::format("remote: {}: {}", server.name(), state_->access.writes ? "read and written" : "read only");
}

std::optional<DecodedEntry> RemoteLayer::find_entry(const CacheKey& key) try {
  if (stopped_) return std::nullopt;
  bool none = false;
  return state_->look(key, RemoteName(key, key.compiler.empty()), Deadline::max(), none);
} catch (const std::exception&) {  // no memory
  return std::nullopt;
}

std::optional<Binary> RemoteLayer::find(const CacheKey& key) {
  std::optional<DecodedEntry> entry = find_entry(key);
  return entry ? std::optional<Binary>(std::move(entry->binary)) : std::nullopt;
}

std::optional<DecodedEntry> RemoteLayer::find_or_lead(const CacheKey& key, milliseconds longest_wait,
                                                      const std::function<bool()>& give_up, CompileRoom* room) try {
  if (stopped_) return std::nullopt;
  const RemoteName name(key, key.compiler.empty());
  const Deadline begin = RemoteClock::now();
  bool none = false;
  // A lease needs a server that answers. Without a compiler there is nothing to lead.
  if (auto found = state_->look(key, name, begin + kFirstAnswer, none); found || !none || key.compiler.empty())
    return found;
  RemoteLeases::Seen seen;
  bool waited = false, waited_for_others = false, told = false;
  for (milliseconds poll = kFirstPoll;; poll = std::min(poll * 2, kLongestPoll)) {
    const Deadline last = waited ? Deadline::max() : begin + kFirstAnswer;
    const RemoteLeases::Lead lead = state_->leases.ask(name.lease, seen, last, !room || room->try_take());
    const bool mine = lead == RemoteLeases::Lead::kMine, is_free = lead == RemoteLeases::Lead::kFree;
    if (!mine && room) room->give_back();
    if (mine) start_sending();  // renews it
    // Its last holder may have sent the entry between our look and our lease.
    if (mine || waited)
      if (std::optional<DecodedEntry> found = state_->fetch(key, name, last, none)) {
        if (mine) abandon(key);
        return found;
      }
    // One answer that is late ends no wait. Three of them turn the server off.
    const bool waits = lead == RemoteLeases::Lead::kOthers || is_free ||
                       (lead == RemoteLeases::Lead::kUnknown && waited && state_->server.silent_for().count() == 0);
    if (!waits || RemoteClock::now() - begin >= longest_wait) return std::nullopt;
    waited = true;
    if (!is_free && !std::exchange(waited_for_others, true)) ++state_->lease_waits;
    const auto spent = std::chrono::ceil<milliseconds>(RemoteClock::now() - begin);
    if (waited_for_others && spent >= kSilentWait && !std::exchange(told, true) && state_->sink)
      state_->sink({EventKind::kLockWait, name.digest.hex(), key.entry_stem,
                    fmt::format("another host is compiling it, and is waited for; for {} s at most",
                                (longest_wait.count() + 999) / 1000),
                    static_cast<double>(spent.count())});
    if (!State::pause(poll, give_up, [&] { return is_free && room->try_take(); })) return std::nullopt;
  }
} catch (const std::exception&) {
  return std::nullopt;
}

void RemoteLayer::start_sending() {
  {
    std::lock_guard hold(state_->mutex);
    state_->called = true;
    if (std::exchange(state_->sending, true)) return;
  }
  try {
    std::thread([state = state_] { State::send_all_queued(state); }).detach();
  } catch (const std::exception&) {
    std::lock_guard hold(state_->mutex);
    state_->sending = false;  // the next call tries again
  }
}

std::vector<std::byte> RemoteLayer::entry_to_send(const CacheKey& key, const Binary& binary) {
  if (!state_->access.writes || stopped_ || key.compiler.empty()) return {};
  std::vector<std::byte> entry = encode_entry(key, binary);
  if (entry.size() + kEnvelopeHeadBytes <= kMaxRemoteValueBytes) return entry;
  ++state_->dropped;
  return {};
}

void RemoteLayer::publish(const CacheKey& key, const Binary& binary) try {
  if (state_->enqueue(key, entry_to_send(key, binary), Former::kReplaced)) start_sending();
} catch (const std::exception&) {
  ++state_->write_failures;
}

void RemoteLayer::share(const CacheKey& key, const Binary& binary) try {
  std::vector<std::byte> entry = entry_to_send(key, binary);
  if (entry.empty()) return;
  if (state_->enqueue(key, std::move(entry), Former::kKeptIfSigned)) start_sending();
} catch (const std::exception&) {
  ++state_->write_failures;
}

void RemoteLayer::abandon(const CacheKey& key) try {
  if (state_->enqueue(key, {}, Former::kReplaced)) start_sending();
} catch (const std::exception&) {
  ++state_->write_failures;
}

RemoteTransport& RemoteLayer::transport() const { return state_->server.transport(); }

const RemoteLayer::Access& RemoteLayer::access() const { return state_->access; }

RemoteProbe RemoteLayer::probe() {
  RemoteTransport& server = state_->server.transport();
  const Access& access = state_->access;
  RemoteProbe probe{.server = server.name()};
  const std::string name =
      fmt::format("kw{}/probe/{:016x}{:016x}", kEntryFormatVersion, remote_random(), remote_random());
  const auto soon = [] { return RemoteClock::now() + kRemoteOperationTime; };
  const auto start = RemoteClock::now();
  RemoteReply reply = server.get(name, soon());
  probe.milliseconds = std::chrono::duration<double, std::milli>(RemoteClock::now() - start).count();
  probe.read = reply.outcome == RemoteOutcome::kAbsent;
  if (!probe.read) return probe.fault = "get: " + reply.detail, probe;
  if (!access.writes) return probe;
  const Digest digest = sha256(name);
  const std::vector<std::byte> value =
      make_envelope(digest, bytes_of(name), std::time(nullptr), access.key ? &*access.key : nullptr);
  reply = server.put(name, value, soon());
  if (reply.outcome != RemoteOutcome::kDone) return probe.fault = "put: " + reply.detail, probe;
  reply = server.get(name, soon());
  if (reply.outcome != RemoteOutcome::kDone) return probe.fault = "get of what was put: " + reply.detail, probe;
  const EnvelopeResult result = open_envelope(reply.value, digest, access.trust);
  probe.wrote = result.envelope.has_value();
  if (!probe.wrote) probe.fault = "what was put " + result.reason;
  reply = server.remove_if_equal(name, value, soon());
  if (probe.wrote && reply.outcome != RemoteOutcome::kDone)
    probe.fault = "remove: " + (reply.detail.empty() ? "the value was gone" : reply.detail);
  return probe;
}

RemoteCounters RemoteLayer::counters() const {
  const State& state = *state_;
  return {.hits = state.hits,
          .misses = state.misses,
          .failures = state.server.failures(),
          .rejected = state.rejected,
          .skipped = state.server.skipped(),
          .writes = state.writes,
          .write_failures = state.write_failures,
          .dropped = state.dropped,
          .lease_waits = state.lease_waits};
}

}  // namespace kernelwright
