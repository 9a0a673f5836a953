#include "kernelwright/runtime/cache/remote/http_client.h"

#include <fmt/format.h>
#include <signal.h>

#include <ctime>
#include <new>
#include <thread>

#include "kernelwright/runtime/cache/remote/socket.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

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

/// What libcurl says in words, as one line without control characters. It may quote the server.
std::string one_line(std::string_view text) {
  std::string line(text.substr(0, 160));
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, ' ');
  return line;
}

/// What a status means in answer to `method`. `anonymous`: no password was sent.
RemoteReply reply_of(long status, std::string_view method, bool anonymous, std::vector<std::byte> value) {
  switch (status) {
    case 200:
    case 201:
    case 204:
    case 206: return {.outcome = RemoteOutcome::kDone, .value = std::move(value)};
    case 416: return {.outcome = RemoteOutcome::kDone};  // an empty value has no first byte
    case 404:
    case 410: return {.outcome = RemoteOutcome::kAbsent};
    case 412: return {.outcome = RemoteOutcome::kPresent};
    default: break;
  }
  const bool writes = method == "PUT" || method == "DELETE";
  RemoteOutcome outcome = RemoteOutcome::kFailed;
  if (status == 401) outcome = RemoteOutcome::kRefused;
  // A server that anybody may read asks for a password before a write.
  if (status == 403 || status == 405 || (status == 401 && anonymous && writes)) outcome = RemoteOutcome::kForbidden;
  std::string detail = fmt::format("the server answers {}", status);
  if (outcome == RemoteOutcome::kForbidden) detail += fmt::format(" to {}", method);
  return {.outcome = outcome, .detail = std::move(detail)};
}

}  // namespace

HttpClient::HttpClient(const Curl& curl, const RemoteAddress& address, const RemoteTls& tls)
    : curl_(curl), address_(address) {
  const WithoutSigpipe guard;
  easy_ = curl.easy_init();
  multi_ = curl.multi_init();
  if (!easy_ || !multi_) return;
  for (Curl::List** const list : {&put_headers_, &put_if_absent_headers_}) {
    append(*list, "Content-Type: application/octet-stream");
    append(*list, "Expect:");  // else libcurl asks for leave, and waits a second for an answer
  }
  append(put_if_absent_headers_, "If-None-Match: *");
  curl.multi_setopt(multi_, Curl::kMaxConnects, 1L);
  using Self = HttpClient*;
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
    append(resolve_, fmt::format("{}:{}:192.0.2.1", address.host, address.port).c_str());
  set(Curl::kResolve, resolve_);
}

HttpClient::~HttpClient() {
  const ExitHold hold;
  if (process_is_ending()) return;  // the TLS library may have ended already
  const WithoutSigpipe guard;
  if (easy_) curl_.easy_cleanup(easy_);
  if (multi_) curl_.multi_cleanup(multi_);
  for (Curl::List* list : {put_headers_, put_if_absent_headers_, resolve_}) curl_.slist_free_all(list);
}

void HttpClient::append(Curl::List*& list, const char* text) {
  Curl::List* const longer = curl_.slist_append(list, text);
  if (longer) list = longer;
  complete_ = complete_ && longer;
}

int HttpClient::open_socket() {
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

void HttpClient::close_socket(int fd) {
  std::erase(sockets_, fd);
  Fd owned(fd);
}

std::size_t HttpClient::take_header(std::size_t bytes) {
  return guarded(std::size_t{0}, [&] {
    header_bytes_ += bytes;  // of all interim responses too
    if (header_bytes_ <= kMaxHeaderBytes) return bytes;
    fault_ = fmt::format("its headers are longer than {} bytes", kMaxHeaderBytes);
    return std::size_t{0};
  });
}

std::size_t HttpClient::take_body(std::string_view piece) {
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
    if (const long code = status(); code != 200 && code != 206) return piece.size();  // a page for people
    if (body_.empty()) body_.reserve(whole);
    const std::span bytes = std::as_bytes(std::span(piece));
    body_.insert(body_.end(), bytes.begin(), bytes.end());
    return piece.size();
  });
}

long HttpClient::status() const {
  long status = 0;
  curl_.easy_getinfo(easy_, Curl::kResponseCode, &status);
  return status;
}

std::string HttpClient::run() {
  for (;;) {
    int running = 0, ready = 0;
    const int broken = curl_.multi_perform(multi_, &running);
    if (broken != Curl::kOk) return "libcurl cannot go on";
    if (running == 0) break;
    if (process_is_ending()) return "the process is exiting";
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_now() - RemoteClock::now()).count();
    if (left <= 0) return "no answer in time";
    curl_.multi_wait(multi_, nullptr, 0, static_cast<int>(std::min<long long>(left, 100)), &ready);
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

RemoteReply HttpClient::exchange(const HttpRequest& request, Deadline deadline) {
  if (!easy_ || !multi_ || !complete_) throw std::bad_alloc();
  const ExitHold hold;
  if (process_is_ending()) return {.detail = "the process is exiting"};
  const WithoutSigpipe guard;
  deadline_ = deadline;
  header_bytes_ = expected_ = received_ = 0;
  body_.clear(), fault_.clear(), words_[0] = '\0', no_memory_ = false;
  const std::string_view method = request.method;
  set(Curl::kUrl, request.url.c_str());
  set(Curl::kHttpGet, 1L);  // forgets the method and the body of the last exchange
  if (method == "HEAD") set(Curl::kNoBody, 1L);
  if (method == "PUT") {
    set(Curl::kPostFields, request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
    set(Curl::kPostFieldSizeLarge, static_cast<std::int64_t>(request.body.size()));
  }
  set(Curl::kCustomRequest, request.method);
  const std::string range = request.first_bytes > 0 ? fmt::format("0-{}", request.first_bytes - 1) : "";
  set(Curl::kRange, range.empty() ? static_cast<const char*>(nullptr) : range.c_str());
  Curl::List* const headers = request.if_absent ? put_if_absent_headers_ : put_headers_;
  set(Curl::kHttpHeader, method == "PUT" ? headers : nullptr);
  curl_.multi_add_handle(multi_, easy_);
  std::string why = run();
  const long code = status();
  curl_.multi_remove_handle(multi_, easy_);  // closes a connection that is in the middle of something
  if (no_memory_) throw std::bad_alloc();
  if (!fault_.empty()) return {.detail = fault_};
  if (!why.empty()) return {.detail = std::move(why)};
  return reply_of(code, method, address_.password.empty(), std::move(body_));
}

}  // namespace kernelwright
