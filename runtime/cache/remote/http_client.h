/// One connection to a server of HTTP, by libcurl. libcurl speaks the protocol and TLS, and does nothing else for us.
/// Sockets are connected here, so that connecting and names have the same limits as for every server, and libcurl asks
/// no proxy and no name server. The loop that waits is here too, so that the deadline is ours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/generator/trusted_files.h"
#include "kernelwright/runtime/cache/remote/address.h"
#include "kernelwright/runtime/cache/remote/curl.h"
#include "kernelwright/runtime/cache/remote/transport.h"

namespace kernelwright {

/// One request. The method is GET, HEAD, PUT or DELETE.
struct HttpRequest {
  const char* method = "GET";
  std::string url;
  std::span<const std::byte> body{};
  bool if_absent = false;       // PUT: with If-None-Match
  std::size_t first_bytes = 0;  // GET: with Range, for so many bytes; 0: for all
};

/// A handle of libcurl's with the connections that it keeps: one, unless the server closes it. They close on exec. A
/// pair of sockets by which an older libcurl wakes itself does not (curl/curl#13618). That pair leads nowhere.
class HttpClient {
 public:
  HttpClient(const Curl& curl, const RemoteAddress& address, const RemoteTls& tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// One exchange. kDone with the body, or what is wrong.
  RemoteReply exchange(const HttpRequest& request, Deadline deadline);
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
  void append(Curl::List*& list, const char* text);
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
  Curl::List *put_headers_ = nullptr, *put_if_absent_headers_ = nullptr, *resolve_ = nullptr;
  std::vector<int> sockets_;
  bool complete_ = true;  // false: there was no memory for a list
  std::string unusable_;
  // of one exchange
  Deadline deadline_{};
  std::size_t header_bytes_ = 0, expected_ = 0, received_ = 0;
  std::vector<std::byte> body_;
  std::string fault_;  // what we found wrong, rather than libcurl
  bool no_memory_ = false;
  char words_[Curl::kErrorBytes] = "";
};

}  // namespace kernelwright
