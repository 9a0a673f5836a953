/// Caches of several hosts on one server, Redis or nginx. A host is a cache directory and a lock directory of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernelwright/runtime/cache/signature.h"
#include "runtime/cache/testing.h"
#include "support/local_server.h"
#include "support/nginx.h"
#include "support/signing.h"

namespace kernelwright::test {

class RemoteCacheTest : public ::testing::Test {
 public:
  enum class Server { kRedis, kHttp, kHttps };

 protected:
  explicit RemoteCacheTest(Server kind = Server::kRedis) : kind_(kind) {}

  void SetUp() override {
    if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
    port_ = free_port();
    if (kind_ == Server::kRedis) {
      KERNELWRIGHT_NEEDS_REDIS();
      server_.emplace(redis_words(port_, {"--user", "limited", "on", ">sesame", "~*", "+get",  //
                                          "--user", "half", "on", ">sesame", "~*", "+get", "+set"}),
                      port_);
    } else {
      KERNELWRIGHT_NEEDS_NGINX();
      NginxLines lines = nginx_;
      if (kind_ == Server::kHttps) {
        KERNELWRIGHT_NEEDS_OPENSSL();
        const Certificates certificates(folder_.path(), "IP:127.0.0.1");
        ASSERT_TRUE(certificates.ok);
        lines = certificates.lines();
        ca_ = certificates.ca;
      }
      server_.emplace(nginx_words(folder_.path(), port_, lines), port_);
    }
    ASSERT_TRUE(server_->ready());
    write_file(folder_ / "key.pem", kSigningPem);
    write_file(folder_ / "key.pub", kPublicPem);
    write_file(folder_ / "other.pem", kOtherSigningPem);
    write_file(folder_ / "other.pub", kOtherPublicPem);
    for (const char* name : {"key.pem", "other.pem"}) chmod((folder_ / name).c_str(), 0600);
    for (const char* name : {"key.pub", "other.pub"}) chmod((folder_ / name).c_str(), 0644);
  }

  std::string address() const {
    const std::string port = std::to_string(port_);
    if (kind_ == Server::kRedis) return "redis://127.0.0.1:" + port;
    return (kind_ == Server::kHttp ? "http://127.0.0.1:" : "https://127.0.0.1:") + port + "/kernels";
  }

  /// A host that writes, or one that has the public key alone.
  CacheOptions host(const std::string& name, bool writes) { return host(name, writes, key_ + ".pub"); }
  CacheOptions host(const std::string& name, bool writes, const std::string& key) {
    const std::string locks = folder_ / (name + "-locks");
    mkdir(locks.c_str(), 0700);
    CacheOptions options{.directory = folder_ / name};
    options.lock_directory = locks;
    options.remote = {.address = address(),
                      .keys = {folder_ / key},
                      .signing_key = writes ? folder_ / (key_ + ".pem") : "",
                      .allow_unsigned = false,
                      .ca = ca_};
    options.sink = [this](const Event& event) {
      std::lock_guard hold(mutex_);
      if (event.kind == EventKind::kCacheDegraded || event.kind == EventKind::kCacheRestored) told_.push_back(event);
      if (event.kind == EventKind::kLockWait) waits_.push_back(event);
    };
    return options;
  }

  /// Compiles kernel `variant` on a host that writes, and sends it.
  void build(int variant) {
    CubinCache cache(host("builder", true));
    cache.get_or_compile(test_key(variant), [&] { return test_binary(variant); });
  }

  /// How often eight hosts that write compile one key, for which they ask at the same time. Each does `before` first.
  int compiles_of_all_hosts(const std::function<void(CubinCache&)>& before,
                            std::chrono::milliseconds compile = std::chrono::milliseconds(200)) {
    constexpr int kHosts = 8;
    std::atomic<int> compiles{0}, ready{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < kHosts; ++i)
      threads.emplace_back([&, options = host("host" + std::to_string(i), true)] {
        CubinCache cache(options);
        before(cache);
        for (++ready; ready < kHosts;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(*cache.get_or_compile(test_key(),
                                        [&] {
                                          ++compiles;
                                          std::this_thread::sleep_for(compile);
                                          return test_binary(0);
                                        }),
                  test_binary(0));
      });
    threads.clear();
    return compiles;
  }

  std::vector<Event> told() {
    std::lock_guard hold(mutex_);
    return told_;
  }

  /// Asks for kernels 0 to `count` on `cache`, and returns how long the slowest and the last one took. Every one must
  /// be right.
  std::pair<double, double> ask(CubinCache& cache, int count) {
    double slowest = 0, last = 0;
    for (int variant = 0; variant < count; ++variant) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(cache.get_or_compile(test_key(variant), [&] { return test_binary(variant); })->entry,
                test_binary(variant).entry);
      last = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      slowest = std::max(slowest, last);
    }
    return {slowest, last};
  }

  const Server kind_;
  NginxLines nginx_;
  TempFolder folder_;
  std::string ca_;
  std::string key_ = "key";  // of the hosts from now on
  int port_ = 0;
  std::optional<LocalServer> server_;
  std::mutex mutex_;
  std::vector<Event> told_, waits_;  // of the remote cache's state, and of waits for others
};

}  // namespace kernelwright::test
