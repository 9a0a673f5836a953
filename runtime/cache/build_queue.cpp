#include "kernelwright/runtime/cache/build_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/envelope.h"
#include "kernelwright/runtime/cache/remote_name.h"

namespace kernelwright {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOperationTime{500};
constexpr milliseconds kRequestLife{600'000}, kFailureLife{60'000}, kWorkerLife{10'000};
constexpr int kMostQueued = 4096;                 // names in a list
constexpr std::size_t kMostRequestBytes = 16384;  // a Spec's text has about 1000
constexpr std::size_t kMostReasonBytes = 2048;

// KEYS: request, failure, list. ARGV: body, life in ms, most names, name.
constexpr std::string_view kPost = R"(
if redis.call('exists',KEYS[1])==1 or redis.call('exists',KEYS[2])==1 then return 1 end
if redis.call('llen',KEYS[3])>=tonumber(ARGV[3]) then return 0 end
redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2])
redis.call('rpush',KEYS[3],ARGV[4])
redis.call('pexpire',KEYS[3],ARGV[2])
return 1)";

// KEYS: list, workers. ARGV: token, lease in ms, life of the workers' name in ms, most bytes of a request. A name goes
// to the list's end while its request exists, so a request is seen again if its worker dies.
constexpr std::string_view kTake = R"(
redis.call('set',KEYS[2],'1','PX',ARGV[3])
for i=1,math.min(redis.call('llen',KEYS[1]),64) do
  local name=redis.call('lpop',KEYS[1])
  local request=name..':request'
  if redis.call('type',request).ok=='string' then
    if redis.call('strlen',request)>tonumber(ARGV[4]) then
      redis.call('del',request)
    else
      redis.call('rpush',KEYS[1],name)
      if redis.call('set',name..':builder',ARGV[1],'NX','PX',ARGV[2]) then
        return name..'\n'..redis.call('get',request)
      end
    end
  end
end
return false)";

// KEYS: builder. ARGV: token, lease in ms.
constexpr std::string_view kRenew = R"(
if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end)";

// KEYS: workers. ARGV: life in ms.
constexpr std::string_view kAnnounce = "redis.call('set',KEYS[1],'1','PX',ARGV[1]) return 1";

// KEYS: builder, request. ARGV: token.
constexpr std::string_view kFinish = R"(
if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1],KEYS[2]) else return 0 end)";

std::string list_of(const std::string& arch) {
  return fmt::format("kw{}/requests/{}/{}", kEntryFormatVersion, KERNELWRIGHT_VERSION, arch);
}
std::string workers_of(const std::string& arch) {
  return fmt::format("kw{}/workers/{}/{}", kEntryFormatVersion, KERNELWRIGHT_VERSION, arch);
}
std::string request_of(const std::string& name) { return name + ":request"; }
std::string builder_of(const std::string& name) { return name + ":builder"; }
std::string failure_of(const std::string& name) { return name + ":failed"; }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// No other worker has it.
std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string text_of(milliseconds time) { return std::to_string(time.count()); }

/// A text for a person's terminal or log: without control characters, and bounded.
std::string readable(std::string_view text) {
  std::string words(text.substr(0, kMostReasonBytes));
  for (char& c : words)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') c = ' ';
  return words;
}

}  // namespace

BuildQueue::BuildQueue(const RemoteLayer& layer)
    : transport_(layer.transport()), access_(layer.access()), breaker_(std::random_device()()) {}

template <class Operation>
RemoteReply BuildQueue::run(const Operation& operation) {
  if (!breaker_.admits(RemoteClock::now())) return {.detail = "it failed, and is left alone for a while"};
  RemoteReply reply = operation(RemoteClock::now() + kOperationTime);
  if (reply.outcome == RemoteOutcome::kFailed)
    breaker_.failed(RemoteClock::now());
  else
    breaker_.succeeded();  // also of an operation that the credentials do not permit
  return reply;
}

RemoteReply BuildQueue::post(const CacheKey& key) {
  const std::string name = RemoteName(key, true).text;
  const std::string keys[] = {request_of(name), failure_of(name), list_of(key.arch)};
  const std::string arguments[] = {key.entry_stem + "\n" + key.spec, text_of(kRequestLife), std::to_string(kMostQueued),
                                   name};
  if (arguments[0].size() > kMostRequestBytes) return {.detail = "the kernel's Spec is too long for a request"};
  return run([&](Deadline deadline) { return transport_.run_script(kPost, keys, arguments, deadline); });
}

RemoteOutcome BuildQueue::find(const CacheKey& key, std::optional<DecodedEntry>& entry) {
  const RemoteName name(key, true);
  const RemoteReply reply = run([&](Deadline deadline) { return transport_.get(name.text, deadline); });
  if (reply.outcome != RemoteOutcome::kDone) return reply.outcome;
  const EnvelopeResult opened = open_envelope(reply.value, name.digest, access_.trust);
  if (!opened.envelope) return RemoteOutcome::kAbsent;  // RemoteLayer has told of such values
  DecodeResult decoded = decode_entry(opened.envelope->entry, Payload::kUnpack);
  if (!decoded.entry || decoded.entry->key.digest_without_compiler() != name.digest) return RemoteOutcome::kAbsent;
  entry = std::move(decoded.entry);
  return RemoteOutcome::kDone;
}

std::optional<std::string> BuildQueue::failure(const CacheKey& key) {
  const std::string name = failure_of(RemoteName(key, true).text);
  const RemoteReply reply = run([&](Deadline deadline) { return transport_.get(name, deadline); });
  if (reply.outcome != RemoteOutcome::kDone) return std::nullopt;
  const EnvelopeResult opened = open_envelope(reply.value, sha256(name), access_.trust);
  if (!opened.envelope) return std::nullopt;
  const auto words = opened.envelope->entry;
  return readable({reinterpret_cast<const char*>(words.data()), words.size()});
}

std::optional<bool> BuildQueue::has_worker(const std::string& arch) {
  const RemoteReply reply = run([&](Deadline deadline) { return transport_.get(workers_of(arch), deadline); });
  if (reply.outcome == RemoteOutcome::kDone) return true;
  return reply.outcome == RemoteOutcome::kAbsent ? std::optional(false) : std::nullopt;
}

RemoteReply BuildQueue::take(const std::string& arch, milliseconds lease, TakenRequest& request) {
  request.token = new_token();
  const std::string keys[] = {list_of(arch), workers_of(arch)};
  const std::string arguments[] = {request.token, text_of(lease), text_of(kWorkerLife),
                                   std::to_string(kMostRequestBytes)};
  RemoteReply reply = run([&](Deadline deadline) { return transport_.run_script(kTake, keys, arguments, deadline); });
  if (reply.outcome != RemoteOutcome::kDone) return reply;
  const std::string_view text{reinterpret_cast<const char*>(reply.value.data()), reply.value.size()};
  const std::size_t name_end = std::min(text.find('\n'), text.size());
  const std::string_view body = text.substr(std::min(name_end + 1, text.size()));
  const std::size_t kernel_end = std::min(body.find('\n'), body.size());
  request.name = text.substr(0, name_end);
  request.kernel = body.substr(0, kernel_end);
  request.spec = body.substr(std::min(kernel_end + 1, body.size()));
  return reply;
}

RemoteReply BuildQueue::renew(const TakenRequest& request, milliseconds lease) {
  const std::string keys[] = {builder_of(request.name)}, arguments[] = {request.token, text_of(lease)};
  return run([&](Deadline deadline) { return transport_.run_script(kRenew, keys, arguments, deadline); });
}

void BuildQueue::announce(const std::string& arch) {
  const std::string keys[] = {workers_of(arch)}, arguments[] = {text_of(kWorkerLife)};
  run([&](Deadline deadline) { return transport_.run_script(kAnnounce, keys, arguments, deadline); });
}

std::string BuildQueue::send(const CacheKey& key, const Binary& binary) {
  const std::vector<std::byte> entry = encode_entry(key, binary);
  if (entry.size() + kEnvelopeHeadBytes > kMaxRemoteValueBytes)
    throw CompileError(fmt::format("its binary has {} bytes, and a remote cache takes {}", entry.size(),
                                   kMaxRemoteValueBytes - kEnvelopeHeadBytes));
  for (const bool any_compiler : {false, true}) {
    // The first build that any compiler has sent stays, so that hosts without a compiler run the same cubin. A value
    // that no host trusts does not stay.
    std::optional<DecodedEntry> first;
    if (any_compiler && find(key, first) == RemoteOutcome::kDone) break;
    const RemoteName name(key, any_compiler);
    const std::vector<std::byte> value =
        make_envelope(name.digest, entry, std::time(nullptr), access_.key ? &*access_.key : nullptr);
    const RemoteReply reply = run([&](Deadline deadline) { return transport_.put(name.text, value, deadline); });
    if (reply.outcome != RemoteOutcome::kDone) return reply.detail;
  }
  return "";
}

void BuildQueue::fail(const TakenRequest& request, const std::string& reason) {
  const std::string name = failure_of(request.name), words = readable(reason);
  const std::vector<std::byte> value =
      make_envelope(sha256(name), bytes_of(words), std::time(nullptr), access_.key ? &*access_.key : nullptr);
  run([&](Deadline deadline) { return transport_.put_if_absent(name, value, kFailureLife, deadline); });
  finish(request);
}

void BuildQueue::finish(const TakenRequest& request) {
  const std::string keys[] = {builder_of(request.name), request_of(request.name)}, arguments[] = {request.token};
  run([&](Deadline deadline) { return transport_.run_script(kFinish, keys, arguments, deadline); });
}

void BuildQueue::give_back(const TakenRequest& request) {
  run([&](Deadline deadline) {
    return transport_.remove_if_equal(builder_of(request.name), bytes_of(request.token), deadline);
  });
}

}  // namespace kernelwright
