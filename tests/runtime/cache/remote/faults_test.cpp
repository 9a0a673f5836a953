// Servers that talk nonsense, crawl, announce too much, close or say nothing, through a whole cache: the kernel is
// right, and the first key waits for a bounded time.
#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

#include "kernelwright/generator/trusted_files.h"
#include "runtime/cache/testing.h"
#include "support/local_server.h"

namespace kernelwright::remote_faults_test {
namespace {

using namespace std::chrono_literals;
using test::test_binary, test::test_key;

/// A socket of loopback that is listened on, and what answers there.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    const bool listens = ::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                         ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                         ::listen(fd_.get(), 8) == 0;
    EXPECT_TRUE(listens);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  /// Answers the first request of each connection with `text`, `step` bytes at a time, and closes it.
  void answer(std::string text, std::size_t step, std::chrono::milliseconds pause) {
    thread_ = std::thread([this, text = std::move(text), step, pause] {
      for (;;) {
        const Fd peer(::accept(fd_.get(), nullptr, nullptr));
        if (!peer) return;
        char request[4096];
        if (::recv(peer.get(), request, sizeof(request), 0) <= 0) continue;
        for (std::size_t at = 0; at < text.size(); at += step) {
          if (::send(peer.get(), text.data() + at, std::min(step, text.size() - at), MSG_NOSIGNAL) <= 0) break;
          std::this_thread::sleep_for(pause);
        }
      }
    });
  }
  int port() const { return port_; }

 private:
  Fd fd_;
  int port_ = 0;
  std::thread thread_;
};

/// Asks for keys of a cache whose only help is the server at `port`. Returns the longest time that one took.
std::chrono::milliseconds slowest_of(int keys, int port) {
  const test::TempFolder folder;
  CubinCache cache({.directory = folder / "cache",
                    .remote = {.address = "redis://127.0.0.1:" + std::to_string(port)},
                    .lock_directory = folder / "locks"});
  std::chrono::steady_clock::duration slowest{};
  for (int i = 0; i < keys; ++i) {
    int compiles = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto binary = cache.get_or_compile(test_key(i), [&] {
      ++compiles;
      return test_binary(i);
    });
    slowest = std::max(slowest, std::chrono::steady_clock::now() - begin);
    EXPECT_EQ(*binary, test_binary(i));
    EXPECT_EQ(compiles, 1);
  }
  return std::chrono::ceil<std::chrono::milliseconds>(slowest);
}

TEST(RemoteFaults, GiveTheRightKernelAfterABoundedTime) {
  struct Fault {
    const char* name;
    std::string text;
    std::size_t step;
    std::chrono::milliseconds pause;
  };
  // A key asks for the binary and for a lease. Each operation may take half a second, and a busy machine more.
  constexpr auto kTwoOperations = 2500ms;
  for (const Fault& fault : {Fault{"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n", 100, 0ms},
                             Fault{"noise", "\x16\x03\x01 what?", 100, 0ms},
                             Fault{"one byte at a time", "$100\r\n" + std::string(100, 'x') + "\r\n", 1, 100ms},
                             Fault{"nothing, and the connection ends", "", 1, 0ms},
                             Fault{"a size beyond the limit", "$1000000000\r\n", 100, 0ms},
                             Fault{"a value that is no binary", "$5\r\nhello\r\n", 100, 0ms}}) {
    SCOPED_TRACE(fault.name);
    Listener server;
    server.answer(fault.text, fault.step, fault.pause);
    EXPECT_LT(slowest_of(1, server.port()), kTwoOperations);
  }
  const Listener silent;  // it accepts connections
  EXPECT_LT(slowest_of(1, silent.port()), kTwoOperations);
  EXPECT_LT(slowest_of(4, test::free_port()), kTwoOperations) << "nobody listens";
}

}  // namespace
}  // namespace kernelwright::remote_faults_test
