// HTTP and HTTPS: GET, HEAD, PUT and DELETE of a server that keeps files (nginx), or of bazel-remote.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/remote/http_client.h"
#include "kernelwright/runtime/cache/remote/servers.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMaxIdleClients = 8;

class HttpTransport : public RemoteTransport {
 public:
  HttpTransport(RemoteAddress address, RemoteTls tls, const Curl& curl)
      : address_(std::move(address)), tls_(std::move(tls)), curl_(curl) {
    const bool numeric6 = address_.host.find(':') != std::string::npos;
    url_ = fmt::format("{}://{}{}{}:{}{}/", address_.scheme == RemoteScheme::kHttps ? "https" : "http",
                       numeric6 ? "[" : "", address_.host, numeric6 ? "]" : "", address_.port, address_.path);
  }

  const std::string& name() const override { return address_.name; }
  bool is_local() const override { return address_.is_local(); }
  // HTTP has no value that ends by itself, and nginx takes a PUT whatever its If-None-Match says.
  bool has_leases() const override { return false; }

  RemoteReply get(std::string_view name, Deadline deadline) override {
    return ask({.method = "GET", .url = url_of(name)}, deadline);
  }

  RemoteReply get_start(std::string_view name, std::size_t bytes, Deadline deadline) override {
    return ask({.method = "GET", .url = url_of(name), .first_bytes = bytes}, deadline);
  }

  RemoteReply put(std::string_view name, std::span<const std::byte> value, Deadline deadline) override {
    return ask({.method = "PUT", .url = url_of(name), .body = value}, deadline + transfer_time(value.size()));
  }

  RemoteReply put_if_absent(std::string_view name, std::span<const std::byte> value, std::chrono::milliseconds,
                            Deadline deadline) override {
    deadline += transfer_time(value.size());
    RemoteReply reply = ask({.method = "HEAD", .url = url_of(name)}, deadline);
    if (reply.outcome == RemoteOutcome::kDone) reply.outcome = RemoteOutcome::kPresent;
    if (reply.outcome != RemoteOutcome::kAbsent) return reply;
    return ask({.method = "PUT", .url = url_of(name), .body = value, .if_absent = true}, deadline);
  }

  RemoteReply remove_if_equal(std::string_view name, std::span<const std::byte> value, Deadline deadline) override {
    RemoteReply reply = get(name, deadline + transfer_time(value.size()));
    if (reply.outcome != RemoteOutcome::kDone) return reply;
    if (!std::ranges::equal(reply.value, value)) return {.outcome = RemoteOutcome::kAbsent};
    return ask({.method = "DELETE", .url = url_of(name)}, deadline + transfer_time(value.size()));
  }

 private:
  RemoteReply ask(const HttpRequest& request, Deadline deadline);
  /// Where a name lies. bazel-remote's action cache takes 64 hex digits and nothing else.
  std::string url_of(std::string_view name) const {
    return url_ + (address_.path.ends_with("/ac") ? sha256(name).hex() : std::string(name));
  }

  const RemoteAddress address_;
  const RemoteTls tls_;
  const Curl& curl_;
  std::string url_;  // with a slash at its end
  std::vector<std::unique_ptr<HttpClient>> idle_;
  // A forked child shares no connection with its parent. It leaves libcurl's memory as it is.
  ForkSafeMutex mutex_{[this] {
    for (std::unique_ptr<HttpClient>& client : idle_) client.release()->drop_sockets();
    idle_.clear();
  }};
};

RemoteReply HttpTransport::ask(const HttpRequest& request, Deadline deadline) {
  std::unique_ptr<HttpClient> client;
  {
    std::lock_guard hold(mutex_);
    if (!idle_.empty()) {
      client = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!client) client = std::make_unique<HttpClient>(curl_, address_, tls_);
  RemoteReply reply = client->exchange(request, deadline);
  std::lock_guard hold(mutex_);
  if (idle_.size() < kMaxIdleClients) idle_.push_back(std::move(client));
  return reply;
}

}  // namespace

std::unique_ptr<RemoteTransport> make_http_transport(RemoteAddress address, RemoteTls tls) {
  const char* named = secure_getenv("KERNELWRIGHT_CURL");
  const Curl& curl = Curl::open(named ? named : "");
  if (const HttpClient tried(curl, address, tls); !tried.unusable().empty())
    throw MissingError(fmt::format("{} cannot do {}, which the address asks for", curl.version(), tried.unusable()));
  return std::make_unique<HttpTransport>(std::move(address), std::move(tls), curl);
}

}  // namespace kernelwright
