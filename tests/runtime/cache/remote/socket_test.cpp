// Connections to hosts with several addresses, some of which are dead.
#include "kernelwright/runtime/cache/remote/socket.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/local_server.h"

namespace kernelwright::socket_test {
namespace {

using std::chrono::milliseconds;

SocketAddress loopback(int port) {
  SocketAddress address{.size = sizeof(sockaddr_in)};
  auto* const ip = reinterpret_cast<sockaddr_in*>(&address.bytes);
  ip->sin_family = AF_INET;
  ip->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ip->sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

/// A port of loopback with room for `backlog` connections that nobody accepts.
class Port {
 public:
  explicit Port(int backlog) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), address_(loopback(0)) {
    auto* const address = reinterpret_cast<sockaddr*>(&address_.bytes);
    EXPECT_EQ(bind(fd_.get(), address, address_.size), 0);
    EXPECT_EQ(getsockname(fd_.get(), address, &address_.size), 0);
    EXPECT_EQ(listen(fd_.get(), backlog), 0);
  }
  const SocketAddress& address() const { return address_; }

  /// From now on, Linux drops what asks for a connection, as a firewall does.
  void fill() {
    for (int i = 0; i < 4; ++i) {
      const Fd& fd = waiting_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_.bytes), address_.size);
    }
  }

 private:
  Fd fd_;
  SocketAddress address_;
  std::vector<Fd> waiting_;
};

Connection connect_within(std::vector<SocketAddress> addresses, int ms = 150) {
  return connect_to_any(addresses, RemoteClock::now() + milliseconds(ms));
}

TEST(Socket, ADeadAddressLeavesTimeForTheNext) {
  Port dead(0), live(8);
  dead.fill();
  const Connection alone = connect_within({dead.address()});
  EXPECT_FALSE(alone.fd);
  EXPECT_EQ(alone.reason, "no answer in time");
  for (const std::size_t dead_ones : {1, 3}) {
    std::vector<SocketAddress> addresses(dead_ones, dead.address());
    addresses.push_back(live.address());
    const Connection found = connect_within(addresses);
    ASSERT_TRUE(found.fd) << found.reason;
    SocketAddress peer{.size = sizeof peer.bytes};
    ASSERT_EQ(getpeername(found.fd.get(), reinterpret_cast<sockaddr*>(&peer.bytes), &peer.size), 0);
    EXPECT_EQ(reinterpret_cast<const sockaddr_in*>(&peer.bytes)->sin_port,
              reinterpret_cast<const sockaddr_in*>(&live.address().bytes)->sin_port);
  }
}

TEST(Socket, AnAddressThatRefusesCostsNoTime) {
  Port live(8);
  const SocketAddress refuses = loopback(test::free_port());
  const auto start = RemoteClock::now();
  EXPECT_EQ(connect_within({refuses}, 20'000).reason, "Connection refused");
  EXPECT_TRUE(connect_within({refuses, live.address()}, 20'000).fd);
  EXPECT_LT(RemoteClock::now() - start, milliseconds(5000)) << "half of the time was not waited for";
}

}  // namespace
}  // namespace kernelwright::socket_test
