/// A socket of loopback that is listened on, and what answers there: a server that misbehaves.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "kernelwright/generator/trusted_files.h"

namespace kernelwright::test {

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
  /// Answers the first request of each connection with `text` after `delay`, `step` bytes at a time, and closes it.
  /// With `forever`, the last `step` bytes are repeated until the client goes.
  void answer(std::string text, std::size_t step, std::chrono::milliseconds pause, std::chrono::milliseconds delay = {},
              bool forever = false) {
    thread_ = std::thread([this, text = std::move(text), step, pause, delay, forever] {
      for (;;) {
        const Fd peer(::accept(fd_.get(), nullptr, nullptr));
        if (!peer) return;
        ++accepted_;
        char request[4096];
        if (::recv(peer.get(), request, sizeof(request), 0) <= 0) continue;
        std::this_thread::sleep_for(delay);
        const std::size_t last = text.size() > step ? text.size() - step : 0;
        for (std::size_t at = 0; at < text.size(); at = forever ? std::min(at + step, last) : at + step) {
          if (::send(peer.get(), text.data() + at, std::min(step, text.size() - at), MSG_NOSIGNAL) <= 0) break;
          std::this_thread::sleep_for(pause);
        }
      }
    });
  }
  int port() const { return port_; }
  int accepted() const { return accepted_; }

 private:
  Fd fd_;
  int port_ = 0;
  std::atomic<int> accepted_{0};
  std::thread thread_;
};

}  // namespace kernelwright::test
