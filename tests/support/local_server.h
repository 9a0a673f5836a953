/// Servers of the distribution's packages for tests, on a free port of loopback. A server ends with its object.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace kernelwright::test {

/// A port that nobody has at this moment. 0: there is none.
inline int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  return bound ? ntohs(address.sin_port) : 0;
}

/// Whether something accepts connections at a port of loopback.
inline bool accepts(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

class LocalServer {
 public:
  /// Starts a program and waits until it accepts connections at `port`, at most 5 s.
  LocalServer(std::vector<std::string> words, int port) : port_(port) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (pid_ > 0 && !(ready_ = accepts(port)) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ~LocalServer() { end(); }
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  bool ready() const { return ready_; }
  int port() const { return port_; }
  void signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int port_;
  bool ready_ = false;
};

inline constexpr const char* kRedisProgram = "/usr/bin/redis-server";

inline bool has_redis() { return access(kRedisProgram, X_OK) == 0; }

/// The command line of a Redis that keeps nothing on disk.
inline std::vector<std::string> redis_words(int port, std::vector<std::string> more = {}) {
  std::vector<std::string> words{
      kRedisProgram, "--port", std::to_string(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
      "--dir",       "/tmp",   "--loglevel",         "warning"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace kernelwright::test

#define KERNELWRIGHT_NEEDS_REDIS() \
  if (!kernelwright::test::has_redis()) GTEST_SKIP() << "/usr/bin/redis-server is missing; install redis-server"
