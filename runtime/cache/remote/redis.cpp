// Redis and Valkey: GET, SET, SET NX PX, and scripts that remove or replace a value if it is the expected one.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "kernelwright/runtime/cache/remote/address.h"
#include "kernelwright/runtime/cache/remote/resp.h"
#include "kernelwright/runtime/cache/remote/servers.h"
#include "kernelwright/runtime/cache/remote/socket.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMaxIdleConnections = 8;
constexpr std::string_view kRemoveIfEqual =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// GETRANGE answers alike for an empty value and for none, and would be one permission more.
constexpr std::string_view kGetStart =
    "local v=redis.call('get',KEYS[1]) if not v then return v end return string.sub(v,1,tonumber(ARGV[1]))";

constexpr std::string_view kReplaceIfEqual =
    "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    "if ARGV[3]=='0' then redis.call('set',KEYS[1],ARGV[2]) else redis.call('set',KEYS[1],ARGV[2],'PX',ARGV[3]) end "
    "return 1";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The first word of an error of Redis: "NOAUTH". The rest may repeat what the client sent.
std::string error_code(const RespReply& reply) {
  const std::string code = reply.text.substr(0, std::min<std::size_t>(reply.text.find(' '), 16));
  return std::ranges::all_of(code, [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }) ? code : "an error";
}

/// Whether a script ran, and may not call a command in it. Redis 7.0 and later versions have their own words for it.
bool forbids_a_step(const RespReply& reply) {
  return reply.text.starts_with("ERR The user executing the script can't run this command") ||
         reply.text.starts_with("ERR ACL failure in script");
}

class RedisTransport : public RemoteTransport {
 public:
  explicit RedisTransport(RemoteAddress address) : address_(std::move(address)) {}

  const std::string& name() const override { return address_.name; }
  bool is_local() const override { return address_.is_local(); }

  RemoteReply get(std::string_view name, Deadline deadline) override {
    const std::string_view words[] = {"GET", name};
    return ask(words, deadline);
  }

  RemoteReply get_start(std::string_view name, std::size_t bytes, Deadline deadline) override {
    const std::string count = std::to_string(bytes);
    const std::string_view words[] = {"EVAL", kGetStart, "1", name, count};
    return ask(words, deadline);
  }

  RemoteReply put(std::string_view name, std::span<const std::byte> value, Deadline deadline) override {
    const std::string_view words[] = {"SET", name, text_of(value)};
    return ask(words, deadline + transfer_time(value.size()));
  }

  RemoteReply put_if_absent(std::string_view name, std::span<const std::byte> value,
                            std::chrono::milliseconds time_to_live, Deadline deadline) override {
    const std::string milliseconds = std::to_string(time_to_live.count());
    const std::string_view words[] = {"SET", name, text_of(value), "NX", "PX", milliseconds};
    const std::size_t count = time_to_live.count() > 0 ? 6 : 4;
    RemoteReply reply = ask(std::span(words).first(count), deadline + transfer_time(value.size()));
    if (reply.outcome == RemoteOutcome::kAbsent) reply.outcome = RemoteOutcome::kPresent;  // a null: it was not set
    return reply;
  }

  RemoteReply remove_if_equal(std::string_view name, std::span<const std::byte> value, Deadline deadline) override {
    const std::string_view words[] = {"EVAL", kRemoveIfEqual, "1", name, text_of(value)};
    return ask(words, deadline + transfer_time(value.size()));
  }

  RemoteReply replace_if_equal(std::string_view name, std::span<const std::byte> expected,
                               std::span<const std::byte> value, std::chrono::milliseconds time_to_live,
                               Deadline deadline) override {
    const std::string milliseconds = std::to_string(time_to_live.count());
    const std::string_view words[] = {"EVAL",         kReplaceIfEqual, "1", name, text_of(expected),
                                      text_of(value), milliseconds};
    return ask(words, deadline + transfer_time(expected.size() + value.size()));
  }

  bool runs_scripts() const override { return true; }
  RemoteReply run_script(std::string_view script, std::span<const std::string> keys,
                         std::span<const std::string> arguments, Deadline deadline) override {
    const std::string count = std::to_string(keys.size());
    std::vector<std::string_view> words{"EVAL", script, count};
    words.insert(words.end(), keys.begin(), keys.end());
    words.insert(words.end(), arguments.begin(), arguments.end());
    return ask(words, deadline);
  }

 private:
  RemoteReply ask(std::span<const std::string_view> words, Deadline deadline);
  /// A connection that was used before, or a new one that has given its password.
  RemoteReply open(Fd& fd, bool& used, Deadline deadline);
  RespReply exchange(int fd, std::span<const std::string_view> words, Deadline deadline) const;
  void keep(Fd fd) {
    std::lock_guard hold(mutex_);
    if (idle_.size() < kMaxIdleConnections) idle_.push_back(std::move(fd));
  }
  static RemoteReply reply_of(RespReply reply);

  const RemoteAddress address_;
  ForkSafeMutex mutex_{[this] { idle_.clear(); }};  // a forked child shares no connection with its parent
  std::vector<Fd> idle_;
};

RespReply RedisTransport::exchange(int fd, std::span<const std::string_view> words, Deadline deadline) const {
  if (std::string why = send_all(fd, resp_command(words), deadline); !why.empty())
    return {.kind = RespReply::Kind::kBroken, .text = std::move(why)};
  const RespSource source{.receive = [&](std::span<std::byte> into,
                                         std::string& reason) { return receive_some(fd, into, deadline, reason); },
                          .expect = [&](std::size_t bytes) { deadline += transfer_time(bytes); }};
  return read_resp_reply(source, kMaxRemoteValueBytes);
}

RemoteReply RedisTransport::reply_of(RespReply reply) {
  using Kind = RespReply::Kind;
  switch (reply.kind) {
    case Kind::kStatus: return {.outcome = RemoteOutcome::kDone};
    case Kind::kNumber: return {.outcome = reply.number > 0 ? RemoteOutcome::kDone : RemoteOutcome::kAbsent};
    case Kind::kBulk: return {.outcome = RemoteOutcome::kDone, .value = std::move(reply.bytes)};
    case Kind::kNull: return {.outcome = RemoteOutcome::kAbsent};
    case Kind::kBroken: return {.outcome = RemoteOutcome::kFailed, .detail = std::move(reply.text)};
    case Kind::kError: break;
  }
  const std::string code = error_code(reply);
  RemoteOutcome outcome = RemoteOutcome::kFailed;
  if (code == "NOAUTH" || code == "WRONGPASS") outcome = RemoteOutcome::kRefused;
  if (code == "NOPERM" || code == "READONLY" || forbids_a_step(reply))
    outcome = RemoteOutcome::kForbidden;  // READONLY: by a replica
  return {.outcome = outcome, .detail = fmt::format("the server answers {}", code)};
}

RemoteReply RedisTransport::open(Fd& fd, bool& used, Deadline deadline) {
  {
    std::lock_guard hold(mutex_);
    used = !idle_.empty();
    if (used) {
      fd = std::move(idle_.back());
      idle_.pop_back();
      return {.outcome = RemoteOutcome::kDone};
    }
  }
  Connection connection = connect_to_server(address_, deadline);
  if (!connection.fd) return {.detail = "cannot connect: " + connection.reason};
  fd = std::move(connection.fd);
  if (address_.password.empty()) return {.outcome = RemoteOutcome::kDone};
  const std::string_view words[] = {"AUTH", address_.user, address_.password};
  const std::string_view without_user[] = {"AUTH", address_.password};
  return reply_of(exchange(fd.get(),
                           address_.user.empty() ? std::span<const std::string_view>(without_user)
                                                 : std::span<const std::string_view>(words),
                           deadline));
}

RemoteReply RedisTransport::ask(std::span<const std::string_view> words, Deadline deadline) {
  for (;;) {
    Fd fd;
    bool used = false;
    if (RemoteReply opened = open(fd, used, deadline); opened.outcome != RemoteOutcome::kDone) return opened;
    RespReply reply = exchange(fd.get(), words, deadline);
    const bool broken = reply.kind == RespReply::Kind::kBroken;
    if (!broken) keep(std::move(fd));
    // The server may have closed a connection that lay idle. Every operation may be done twice: a lease has its
    // holder's name, and one that was lost is taken by another host.
    if (broken && used && RemoteClock::now() < deadline) continue;
    RemoteReply answer = reply_of(std::move(reply));
    if (answer.outcome == RemoteOutcome::kForbidden) answer.detail += fmt::format(" to {}", words.front());
    return answer;
  }
}

}  // namespace

std::unique_ptr<RemoteTransport> make_redis_transport(RemoteAddress address) {
  return std::make_unique<RedisTransport>(std::move(address));
}

}  // namespace kernelwright
