#include "kernelwright/runtime/cache/remote/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace kernelwright {
namespace {

constexpr const char* kNoAnswer = "no answer in time";

std::string text_of(int error) { return std::generic_category().message(error); }

/// Waits until `fd` is ready for `events`. False at the deadline.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - RemoteClock::now()).count();
    if (left <= 0) return false;
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(std::min<long long>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next call on `fd` tells what is wrong
  }
}

/// A socket whose connection has begun. Without one, `reason` says why not.
Connection begin_to_connect(const SocketAddress& address) {
  Fd fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return {Fd(), text_of(errno)};
  const int on = 1;
  if (address.bytes.ss_family != AF_UNIX) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const bool begun = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0 ||
                     errno == EINPROGRESS || errno == EINTR;
  if (!begun) return {Fd(), text_of(errno)};
  return {std::move(fd), ""};
}

/// Waits for the first of `begun` that is connected, until `time`, and drops those that fail. Returns early when one of
/// them has failed, so that the next attempt can begin.
Fd first_connected(std::vector<Fd>& begun, Deadline time, std::string& reason) {
  std::vector<pollfd> sockets;
  for (const Fd& fd : begun) sockets.push_back({fd.get(), POLLOUT, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - RemoteClock::now()).count();
  if (left <= 0 || poll(sockets.data(), sockets.size(), static_cast<int>(std::min<long long>(left, 60'000))) <= 0)
    return Fd();
  for (std::size_t i = begun.size(); i-- > 0;) {
    if (sockets[i].revents == 0) continue;
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(begun[i].get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == 0) return std::move(begun[i]);
    reason = text_of(error);
    begun.erase(begun.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return Fd();
}

/// A name's addresses, looked up by a thread for which no caller has to wait.
struct Lookup {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  int error = 0;
  addrinfo* found = nullptr;
  ~Lookup() {
    if (found) freeaddrinfo(found);
  }
};

std::shared_ptr<Lookup> look_up(const std::string& host, int port, Deadline deadline) {
  const auto lookup = std::make_shared<Lookup>();
  const auto run = [lookup, host, port](int flags) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM, hints.ai_flags = flags | AI_NUMERICSERV;
    const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    std::lock_guard hold(lookup->mutex);
    lookup->error = error, lookup->found = found, lookup->done = true;
    lookup->ended.notify_all();
  };
  run(AI_NUMERICHOST);  // asks no server
  if (lookup->error == 0) return lookup;
  lookup->done = false;
  std::thread(run, AI_ADDRCONFIG).detach();
  std::unique_lock hold(lookup->mutex);
  lookup->ended.wait_until(hold, deadline, [&] { return lookup->done; });
  return lookup;
}

}  // namespace

Connection connect_to_any(std::span<const SocketAddress> addresses, Deadline deadline) {
  std::vector<Fd> begun;
  std::string reason;
  const auto step = (deadline - RemoteClock::now()) / static_cast<int>(2 * std::max<std::size_t>(addresses.size(), 1));
  Deadline next = RemoteClock::now();  // when the next attempt begins
  for (;;) {
    const Deadline now = RemoteClock::now();
    if (now >= deadline) return {Fd(), begun.empty() && !reason.empty() ? reason : kNoAnswer};
    if (!addresses.empty() && (begun.empty() || now >= next)) {
      Connection one = begin_to_connect(addresses.front());
      addresses = addresses.subspan(1);
      next = now + step;
      if (one.fd)
        begun.push_back(std::move(one.fd));
      else
        reason = std::move(one.reason);
    }
    if (begun.empty()) {
      if (addresses.empty()) return {Fd(), reason};
      continue;
    }
    const std::size_t before = begun.size();
    if (Fd fd = first_connected(begun, addresses.empty() ? deadline : std::min(next, deadline), reason))
      return {std::move(fd), ""};
    if (begun.size() < before) next = now;
  }
}

Connection connect_to_server(const RemoteAddress& address, Deadline deadline) {
  Connection connection{Fd(), kNoAnswer};
  for (int attempt = 0; attempt < 2 && !connection.fd && RemoteClock::now() < deadline; ++attempt) {
    const Deadline soon = std::min(deadline, RemoteClock::now() + kRemoteConnectTime);
    connection = address.scheme == RemoteScheme::kRedisUnix ? connect_unix(address.host, soon)
                                                            : connect_tcp(address.host, address.port, soon);
  }
  return connection;
}

Connection connect_tcp(const std::string& host, int port, Deadline deadline) try {
  const std::shared_ptr<Lookup> lookup = look_up(host, port, deadline);
  std::lock_guard hold(lookup->mutex);
  if (!lookup->done) return {Fd(), "its name was not found in time"};
  if (lookup->error != 0) return {Fd(), gai_strerror(lookup->error)};
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = lookup->found; at; at = at->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    address.size = std::min<socklen_t>(at->ai_addrlen, sizeof address.bytes);
    std::memcpy(&address.bytes, at->ai_addr, address.size);
  }
  if (addresses.empty()) return {Fd(), "its name has no address"};
  return connect_to_any(addresses, deadline);
} catch (const std::system_error& error) {  // no thread
  return {Fd(), error.what()};
}

Connection connect_unix(const std::string& path, Deadline deadline) {
  SocketAddress address{.size = sizeof(sockaddr_un)};
  auto* const socket = reinterpret_cast<sockaddr_un*>(&address.bytes);
  socket->sun_family = AF_UNIX;
  if (path.size() >= sizeof socket->sun_path) return {Fd(), "its path is too long for a socket"};
  std::memcpy(socket->sun_path, path.c_str(), path.size() + 1);
  return connect_to_any(std::span(&address, 1), deadline);
}

std::string send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, deadline)) return kNoAnswer;
    } else if (errno != EINTR) {
      return text_of(errno);
    }
  }
  return "";
}

std::size_t receive_some(int fd, std::span<std::byte> into, Deadline deadline, std::string& reason) {
  for (;;) {
    // The deadline comes first: a server that sends one byte at a time keeps the socket ready.
    if (RemoteClock::now() >= deadline || !wait_for(fd, POLLIN, deadline)) return reason = kNoAnswer, 0;
    const ssize_t count = recv(fd, into.data(), into.size(), 0);
    if (count > 0) return static_cast<std::size_t>(count);
    if (count == 0) return reason = "the server closed the connection", 0;
    if (errno != EAGAIN && errno != EINTR) return reason = text_of(errno), 0;
  }
}

}  // namespace kernelwright
