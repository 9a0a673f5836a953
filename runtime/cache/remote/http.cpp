// HTTP and HTTPS by libcurl: GET, HEAD, PUT and DELETE. libcurl speaks the protocol and TLS, and does nothing else for
// us. Sockets are connected here, so that connecting and names have the same limits as for every server, and no proxy
// or name server is asked by libcurl. The loop that waits is here too, so that the deadline is ours.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/remote/address.h"
#include "kernelwright/runtime/cache/remote/curl.h"
#include "kernelwright/runtime/cache/remote/servers.h"
#include "kernelwright/runtime/cache/remote/socket.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMaxIdleClients = 8;
constexpr std::size_t kMaxHeaderBytes = std::size_t{16} << 10;

/// Keeps SIGPIPE from this thread. A libcurl before 7.87 leaves writing to OpenSSL, which asks for no MSG_NOSIGNAL.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);  // takes one that came, or returns at once
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

struct Request {
  const char* method = "GET";
  std::string_view name;
  std::span<const std::byte> body{};
  bool if_absent = false;
};

/// What libcurl says in words, as one line without control characters. It may quote the server.
std::string one_line(std::string_view text) {
  std::string line(text.substr(0, 160));
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, ' ');
  return line;
}

/// A handle of libcurl's with the connections that it keeps: one, unless the server closes it.
class Client {
 public:
  Client(const Curl& curl, const RemoteAddress& address, const RemoteTls& tls);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// One exchange. kDone with the body, or what is wrong.
  RemoteReply exchange(const std::string& url, const Request& request, Deadline deadline);
  /// "", or what the address asks for and this libcurl cannot do.
  const std::string& unusable() const { return unusable_; }
  /// In a forked child: closes the sockets and nothing more. Ending a connection of TLS would end the parent's.
  void drop_sockets() {
    for (const int fd : sockets_) Fd owned(fd);
  }

 private:
  template <class Value>
  void set(Curl::Option option, Value value) {
    // An option that an older libcurl lacks is one that it has no need of.
    curl_.easy_setopt(easy_, option, value);
  }
  /// The same for what must not be left out.
  template <class Value>
  void require(Curl::Option option, Value value, const char* what) {
    if (curl_.easy_setopt(easy_, option, value) != Curl::kOk && unusable_.empty()) unusable_ = what;
  }
  /// Runs `body`, which may find no memory, inside a call of libcurl's.
  template <class Body>
  auto guarded(decltype(std::declval<Body>()()) otherwise, const Body& body) noexcept {
    try {
      return body();
    } catch (const std::exception&) {
      no_memory_ = true;
      return otherwise;
    }
  }
  int open_socket();
  void close_socket(int fd);
  std::size_t take_header(std::size_t bytes);
  std::size_t take_body(std::string_view piece);
  long status() const;
  Deadline deadline_now() const { return deadline_ + transfer_time(std::max(expected_, received_)); }
  /// "", or why there is no response.
  std::string run();

  const Curl& curl_;
  const RemoteAddress& address_;
  Curl::Easy easy_ = nullptr;
  Curl::Multi multi_ = nullptr;
  Curl::List* resolve_ = nullptr;
  std::vector<int> sockets_;
  std::string unusable_;
  // of one exchange
  Deadline deadline_{};
  std::size_t header_bytes_ = 0, expected_ = 0, received_ = 0;
  std::vector<std::byte> body_;
  std::string fault_;  // what we found wrong, rather than libcurl
  bool no_memory_ = false;
  char words_[Curl::kErrorBytes] = "";
};

Client::Client(const Curl& curl, const RemoteAddress& address, const RemoteTls& tls) : curl_(curl), address_(address) {
  const WithoutSigpipe guard;
  easy_ = curl.easy_init();
  multi_ = curl.multi_init();
  if (!easy_ || !multi_) return;
  curl.multi_setopt(multi_, Curl::kMaxConnects, 1L);
  using Self = Client*;
  set(
      Curl::kOpenSocketFunction, +[](void* self, int, void*) { return static_cast<Self>(self)->open_socket(); });
  set(Curl::kOpenSocketData, this);
  set(
      Curl::kSockOptFunction, +[](void*, int, int) { return Curl::kAlreadyConnected; });
  set(
      Curl::kCloseSocketFunction, +[](void* self, int fd) { return static_cast<Self>(self)->close_socket(fd), 0; });
  set(Curl::kCloseSocketData, this);
  set(
      Curl::kHeaderFunction, +[](char*, std::size_t size, std::size_t count, void* self) {
        return static_cast<Self>(self)->take_header(size * count);
      });
  set(Curl::kHeaderData, this);
  set(
      Curl::kWriteFunction, +[](char* data, std::size_t size, std::size_t count, void* self) {
        return static_cast<Self>(self)->take_body({data, size * count});
      });
  set(Curl::kWriteData, this);
  set(Curl::kErrorBuffer, words_);
  set(Curl::kNoSignal, 1L);
  set(Curl::kProxy, "");  // none, whatever the environment says
  if (address.scheme == RemoteScheme::kHttps)
    require(Curl::kProtocols, Curl::kProtocolHttps, "TLS");
  else
    require(Curl::kProtocols, Curl::kProtocolHttp, "HTTP");
  set(Curl::kFollowLocation, 0L);
  set(Curl::kHttpVersion, Curl::kHttp11);  // one request at a time has no use for more
  set(Curl::kHttp09Allowed, 0L);
  set(Curl::kUserAgent, "kernelwright");
  if (!address.password.empty()) {
    set(Curl::kHttpAuth, Curl::kAuthBasic);
    set(Curl::kUserName, address.user.c_str());
    set(Curl::kPassword, address.password.c_str());
  }
  if (address.scheme == RemoteScheme::kHttps) {
    require(Curl::kSslVersion, Curl::kTls12, "TLS 1.2");
    require(Curl::kSslVerifyPeer, 1L, "checks of certificates");
    require(Curl::kSslVerifyHost, 2L, "checks of names in certificates");
  }
  if (!tls.ca.empty()) {
    require(Curl::kCaInfo, tls.ca.c_str(), "a file of authorities");
    set(Curl::kCaPath, static_cast<const char*>(nullptr));  // the folder of the system's authorities
  }
  if (!tls.certificate.empty()) {
    require(Curl::kSslCert, tls.certificate.c_str(), "a client's certificate");
    require(Curl::kSslKey, tls.certificate_key.c_str(), "a client's certificate");
  }
  // libcurl looks no name up: it takes this address, of those that are nobody's (RFC 5737), and open_socket() has the
  // real one.
  if (address.host.find(':') == std::string::npos)
    resolve_ = curl.slist_append(nullptr, fmt::format("{}:{}:192.0.2.1", address.host, address.port).c_str());
  set(Curl::kResolve, resolve_);
}

Client::~Client() {
  const WithoutSigpipe guard;
  if (easy_) curl_.easy_cleanup(easy_);
  if (multi_) curl_.multi_cleanup(multi_);
  curl_.slist_free_all(resolve_);
}

int Client::open_socket() {
  return guarded(Curl::kBadSocket, [&] {
    if (!fault_.empty()) return Curl::kBadSocket;
    Connection connection = connect_to_server(address_, deadline_);
    if (!connection.fd) {
      fault_ = "cannot connect: " + connection.reason;
      return Curl::kBadSocket;
    }
    sockets_.push_back(connection.fd.get());
    return connection.fd.take();
  });
}

void Client::close_socket(int fd) {
  std::erase(sockets_, fd);
  Fd owned(fd);
}

std::size_t Client::take_header(std::size_t bytes) {
  return guarded(std::size_t{0}, [&] {
    header_bytes_ += bytes;  // of all interim responses too
    if (header_bytes_ <= kMaxHeaderBytes) return bytes;
    fault_ = fmt::format("its headers are longer than {} bytes", kMaxHeaderBytes);
    return std::size_t{0};
  });
}

std::size_t Client::take_body(std::string_view piece) {
  return guarded(std::size_t{0}, [&] {
    std::int64_t announced = -1;
    if (received_ == 0) curl_.easy_getinfo(easy_, Curl::kContentLengthDownload, &announced);
    const std::size_t whole =
        std::max(received_ + piece.size(), static_cast<std::size_t>(std::max<std::int64_t>(announced, 0)));
    if (whole > kMaxRemoteValueBytes) {
      fault_ = fmt::format("a value of {} bytes is above the limit of {}", whole, kMaxRemoteValueBytes);
      return std::size_t{0};
    }
    if (received_ == 0) expected_ = whole;
    received_ += piece.size();
    if (status() != 200) return piece.size();  // a page for people
    if (body_.empty()) body_.reserve(whole);
    const std::span bytes = std::as_bytes(std::span(piece));
    body_.insert(body_.end(), bytes.begin(), bytes.end());
    return piece.size();
  });
}

long Client::status() const {
  long status = 0;
  curl_.easy_getinfo(easy_, Curl::kResponseCode, &status);
  return status;
}

std::string Client::run() {
  for (;;) {
    int running = 0, ready = 0;
    const int broken = curl_.multi_perform(multi_, &running);
    if (broken != Curl::kOk) return "libcurl cannot go on";
    if (running == 0) break;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_now() - RemoteClock::now()).count();
    if (left <= 0) return "no answer in time";
    curl_.multi_wait(multi_, nullptr, 0, static_cast<int>(std::min<long long>(left, 1000)), &ready);
    if (ready == 0 && left > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // no socket to wait for yet
  }
  int left = 0;
  const Curl::Message* message = curl_.multi_info_read(multi_, &left);
  if (!message || message->kind != Curl::kDone) return "libcurl cannot go on";
  const int code = message->data.result;
  if (code == Curl::kOk) return "";
  if (code == Curl::kOutOfMemory) no_memory_ = true;
  return one_line(words_[0] != '\0' ? words_ : curl_.easy_strerror(code));
}

RemoteReply reply_of(long status, std::vector<std::byte> value) {
  switch (status) {
    case 200:
    case 201:
    case 204: return {.outcome = RemoteOutcome::kDone, .value = std::move(value)};
    case 404:
    case 410: return {.outcome = RemoteOutcome::kAbsent};
    case 412: return {.outcome = RemoteOutcome::kPresent};
    default: break;
  }
  const bool refused = status == 401 || status == 403 || status == 405;
  return {.outcome = refused ? RemoteOutcome::kRefused : RemoteOutcome::kFailed,
          .detail = fmt::format("the server answers {}", status)};
}

RemoteReply Client::exchange(const std::string& url, const Request& request, Deadline deadline) {
  if (!easy_ || !multi_) throw std::bad_alloc();
  const WithoutSigpipe guard;
  deadline_ = deadline;
  header_bytes_ = expected_ = received_ = 0;
  body_.clear(), fault_.clear(), words_[0] = '\0', no_memory_ = false;
  Curl::List* headers = nullptr;
  const std::string_view method = request.method;
  set(Curl::kUrl, url.c_str());
  set(Curl::kHttpGet, 1L);  // forgets the method and the body of the last exchange
  if (method == "HEAD") set(Curl::kNoBody, 1L);
  if (method == "PUT") {
    set(Curl::kPostFields, request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
    set(Curl::kPostFieldSizeLarge, static_cast<std::int64_t>(request.body.size()));
    headers = curl_.slist_append(headers, "Content-Type: application/octet-stream");
    headers = curl_.slist_append(headers, "Expect:");  // else libcurl asks for leave, and waits a second for an answer
    if (request.if_absent) headers = curl_.slist_append(headers, "If-None-Match: *");
  }
  set(Curl::kCustomRequest, request.method);
  set(Curl::kHttpHeader, headers);
  curl_.multi_add_handle(multi_, easy_);
  std::string why = run();
  const long code = status();
  curl_.multi_remove_handle(multi_, easy_);  // closes a connection that is in the middle of something
  set(Curl::kHttpHeader, static_cast<Curl::List*>(nullptr));
  curl_.slist_free_all(headers);
  if (no_memory_) throw std::bad_alloc();
  if (!fault_.empty()) return {.detail = fault_};
  if (!why.empty()) return {.detail = std::move(why)};
  return reply_of(code, std::move(body_));
}

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
    return ask({.method = "GET", .name = name}, deadline);
  }

  RemoteReply put(std::string_view name, std::span<const std::byte> value, Deadline deadline) override {
    return ask({.method = "PUT", .name = name, .body = value}, deadline + transfer_time(value.size()));
  }

  RemoteReply put_if_absent(std::string_view name, std::span<const std::byte> value, std::chrono::milliseconds,
                            Deadline deadline) override {
    deadline += transfer_time(value.size());
    RemoteReply reply = ask({.method = "HEAD", .name = name}, deadline);
    if (reply.outcome == RemoteOutcome::kDone) reply.outcome = RemoteOutcome::kPresent;
    if (reply.outcome != RemoteOutcome::kAbsent) return reply;
    return ask({.method = "PUT", .name = name, .body = value, .if_absent = true}, deadline);
  }

  RemoteReply remove_if_equal(std::string_view name, std::span<const std::byte> value, Deadline deadline) override {
    RemoteReply reply = get(name, deadline + transfer_time(value.size()));
    if (reply.outcome != RemoteOutcome::kDone) return reply;
    if (!std::ranges::equal(reply.value, value)) return {.outcome = RemoteOutcome::kAbsent};
    return ask({.method = "DELETE", .name = name}, deadline + transfer_time(value.size()));
  }

 private:
  RemoteReply ask(const Request& request, Deadline deadline);
  /// Where a name lies. bazel-remote's action cache takes 64 hex digits and nothing else.
  std::string url_of(std::string_view name) const {
    return url_ + (address_.path.ends_with("/ac") ? sha256(name).hex() : std::string(name));
  }

  const RemoteAddress address_;
  const RemoteTls tls_;
  const Curl& curl_;
  std::string url_;  // with a slash at its end
  // A forked child shares no connection with its parent. It leaves libcurl's memory as it is.
  ForkSafeMutex mutex_{[this] {
    for (std::unique_ptr<Client>& client : idle_) client.release()->drop_sockets();
    idle_.clear();
  }};
  std::vector<std::unique_ptr<Client>> idle_;
};

RemoteReply HttpTransport::ask(const Request& request, Deadline deadline) {
  std::unique_ptr<Client> client;
  {
    std::lock_guard hold(mutex_);
    if (!idle_.empty()) {
      client = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!client) client = std::make_unique<Client>(curl_, address_, tls_);
  RemoteReply reply = client->exchange(url_of(request.name), request, deadline);
  std::lock_guard hold(mutex_);
  if (idle_.size() < kMaxIdleClients) idle_.push_back(std::move(client));
  return reply;
}

}  // namespace

std::unique_ptr<RemoteTransport> make_http_transport(RemoteAddress address, RemoteTls tls) {
  const char* named = secure_getenv("KERNELWRIGHT_CURL");
  const Curl& curl = Curl::open(named ? named : "");
  if (const Client tried(curl, address, tls); !tried.unusable().empty())
    throw MissingError(fmt::format("{} cannot do {}, which the address asks for", curl.version(), tried.unusable()));
  return std::make_unique<HttpTransport>(std::move(address), std::move(tls), curl);
}

}  // namespace kernelwright
