#include "fleet/proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/trusted_files.h"

namespace kernelwright::fleet {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

/// One read takes at most that many bytes, so that connections take turns.
constexpr std::size_t kReadBytes = 16 << 10;
/// A direction whose link is booked for longer reads nothing more. The senders then wait, as TCP lets them.
constexpr std::chrono::milliseconds kBooked{5};

enum Side { kClient, kServer };

struct Connection {
  std::array<Fd, 2> fds;                // by side
  std::array<std::string, 2> unsent{};  // to a side, because it is slow to read
  std::array<bool, 2> paused{};         // nothing is read from a side
  std::array<bool, 2> ended{};          // a side has sent its last byte, and the other one knows
};

struct Packet {
  Time due;
  std::shared_ptr<Connection> connection;
  std::string bytes;  // empty: the end
};

/// The link in one direction.
struct Lane {
  Time free_at{};
  std::deque<Packet> packets;                         // by `due`
  std::vector<std::shared_ptr<Connection>> deferred;  // that wait for room
  std::uint64_t bytes = 0;
};

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

class Proxy {
 public:
  explicit Proxy(const ProxyOptions& options);
  void serve();

 private:
  void add(int fd, std::uint32_t events) const;
  void watch(const Connection& connection, Side side) const;
  void accept_one();
  void read_from(const std::shared_ptr<Connection>& connection, Side side);
  void write_to(const std::shared_ptr<Connection>& connection, Side side);
  void deliver(Time now);
  void set_timer() const;
  void close(const std::shared_ptr<Connection>& connection);

  const ProxyOptions options_;
  const Fd listener_, epoll_, timer_, signals_;
  std::array<Lane, 2> lanes_;  // by the side that sends
  struct End {
    std::shared_ptr<Connection> connection;
    Side side;
  };
  std::unordered_map<int, End> ends_;  // by descriptor
  std::size_t most_connections_ = 0;
};

int blocked_sigterm() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

Proxy::Proxy(const ProxyOptions& options)
    : options_(options),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      signals_(blocked_sigterm()) {
  const sockaddr_in address = loopback(options.listen);
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_.get(), 4096) != 0)
    throw Error(fmt::format("port {}: cannot listen; another port would do", options.listen));
  for (const int fd : {listener_.get(), timer_.get(), signals_.get()}) add(fd, EPOLLIN);
}

void Proxy::add(int fd, std::uint32_t events) const {
  epoll_event event{.events = events, .data = {.fd = fd}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Proxy::watch(const Connection& connection, Side side) const {
  epoll_event event{.events = 0, .data = {.fd = connection.fds[side].get()}};
  if (!connection.paused[side]) event.events |= EPOLLIN;
  if (!connection.unsent[side].empty()) event.events |= EPOLLOUT;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

void Proxy::accept_one() {
  Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client) return;
  Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(options_.server);
  if (connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  fcntl(server.get(), F_SETFL, O_NONBLOCK);
  send_at_once(client.get());
  send_at_once(server.get());
  auto connection = std::make_shared<Connection>();
  connection->fds = {std::move(client), std::move(server)};
  for (const Side side : {kClient, kServer}) {
    const int fd = connection->fds[side].get();
    ends_[fd] = {connection, side};
    add(fd, EPOLLIN);
  }
  most_connections_ = std::max(most_connections_, ends_.size() / 2);
}

void Proxy::read_from(const std::shared_ptr<Connection>& connection, Side side) {
  Lane& lane = lanes_[side];
  const Time now = Clock::now();
  if (lane.free_at > now + kBooked) {
    connection->paused[side] = true;
    watch(*connection, side);
    lane.deferred.push_back(connection);
    return;
  }
  std::string bytes(kReadBytes, '\0');
  const ssize_t got = recv(connection->fds[side].get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return close(connection);
  if (got == 0) {
    connection->paused[side] = true;
    watch(*connection, side);
  }
  bytes.resize(static_cast<std::size_t>(got));
  lane.bytes += bytes.size();
  lane.free_at = std::max(lane.free_at, now);
  if (options_.gigabits > 0)
    lane.free_at += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::nano>(static_cast<double>(got) * 8 / options_.gigabits));
  const auto latency = std::chrono::duration<double, std::milli>(options_.latency_ms);
  lane.packets.push_back(
      {lane.free_at + std::chrono::duration_cast<Clock::duration>(latency), connection, std::move(bytes)});
}

void Proxy::write_to(const std::shared_ptr<Connection>& connection, Side side) {
  std::string& unsent = connection->unsent[side];
  const ssize_t sent = send(connection->fds[side].get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return close(connection);
  if (sent > 0) unsent.erase(0, static_cast<std::size_t>(sent));
  watch(*connection, side);
}

void Proxy::deliver(Time now) {
  for (const Side from : {kClient, kServer}) {
    Lane& lane = lanes_[from];
    const Side to = from == kClient ? kServer : kClient;
    for (; !lane.packets.empty() && lane.packets.front().due <= now; lane.packets.pop_front()) {
      Packet& packet = lane.packets.front();
      Connection& connection = *packet.connection;
      if (!connection.fds[to]) continue;
      if (packet.bytes.empty()) {
        shutdown(connection.fds[to].get(), SHUT_WR);
        connection.ended[from] = true;
        if (connection.ended[to]) close(packet.connection);
        continue;
      }
      connection.unsent[to] += packet.bytes;
      write_to(packet.connection, to);
    }
    if (lane.free_at > now + kBooked) continue;
    for (const auto& connection : std::exchange(lane.deferred, {})) {
      if (!connection->fds[from]) continue;
      connection->paused[from] = false;
      watch(*connection, from);
    }
  }
}

void Proxy::set_timer() const {
  Time first = Time::max();
  for (const Lane& lane : lanes_)
    if (!lane.packets.empty()) first = std::min(first, lane.packets.front().due);
  itimerspec when{};
  if (first != Time::max()) {
    const auto since = std::max<std::int64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(first.time_since_epoch()).count(), 1);
    when.it_value = {.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
  }
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void Proxy::close(const std::shared_ptr<Connection>& connection) {
  for (Fd& fd : connection->fds)
    if (fd) {
      ends_.erase(fd.get());
      fd = Fd();
    }
}

void Proxy::serve() {
  std::array<epoll_event, 256> events{};
  for (;;) {
    set_timer();
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.fd == signals_.get()) {
        fmt::print("{{\"bytes_to_server\":{},\"bytes_from_server\":{},\"connections\":{}}}\n", lanes_[kClient].bytes,
                   lanes_[kServer].bytes, most_connections_);
        return;
      }
      if (event.data.fd == listener_.get()) accept_one();
      const auto found = ends_.find(event.data.fd);
      if (found == ends_.end()) continue;
      const End end = found->second;
      if (event.events & EPOLLOUT) write_to(end.connection, end.side);
      if (end.connection->fds[end.side] && (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
        end.connection->paused[end.side] ? close(end.connection) : read_from(end.connection, end.side);
    }
    deliver(Clock::now());
  }
}

}  // namespace

int run_proxy(const ProxyOptions& options) {
  Proxy(options).serve();
  return 0;
}

}  // namespace kernelwright::fleet
