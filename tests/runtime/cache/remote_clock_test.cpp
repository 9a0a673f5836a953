// Hosts whose clock is in the past, or jumps. The clock of this process is ours: time(), clock_gettime() and
// gettimeofday() below stand before those of the C library, for every library of the process.
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "kernelwright/runtime/cache/bundle.h"
#include "kernelwright/runtime/cache/envelope.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "runtime/cache/remote_cache.h"

namespace {
std::atomic<std::int64_t> g_clock_offset_s{0};  // what the wall clock is ahead of the true one
}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* at) noexcept {
  const long failed = syscall(SYS_clock_gettime, clock, at);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += g_clock_offset_s;
  return static_cast<int>(failed);
}

extern "C" time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

extern "C" int gettimeofday(timeval* at, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *at = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

namespace kernelwright::remote_clock_test {
namespace {

using std::chrono::milliseconds;
using test::test_binary, test::test_key;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kYear = 365 * 86400;

/// The wall clock is off by so many seconds while this lives.
class WallClock {
 public:
  explicit WallClock(std::int64_t offset_s) { g_clock_offset_s = offset_s; }
  ~WallClock() { g_clock_offset_s = 0; }
  WallClock(const WallClock&) = delete;
  WallClock& operator=(const WallClock&) = delete;
};

std::int64_t to_the_epoch() { return 60 - std::time(nullptr); }  // a machine without a battery
Binary never() { throw std::logic_error("compiled"); }

TEST(WallClock, IsTheOneThatTheLibrariesSee) {
  const std::int64_t now = std::time(nullptr);
  const auto steady = std::chrono::steady_clock::now();
  const WallClock past(-10 * kYear);
  EXPECT_NEAR(static_cast<double>(std::time(nullptr)), static_cast<double>(now - 10 * kYear), 5);
  EXPECT_NEAR(static_cast<double>(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())),
              static_cast<double>(now - 10 * kYear), 5);
  EXPECT_LT(std::chrono::steady_clock::now() - steady, std::chrono::seconds(5));
}

class RemoteHostClock : public test::RemoteCacheTest,
                        public ::testing::WithParamInterface<test::RemoteCacheTest::Server> {
 protected:
  RemoteHostClock() : RemoteCacheTest(GetParam()) {}
};
std::string name_of(const ::testing::TestParamInfo<test::RemoteCacheTest::Server>& test) {
  return test.param == test::RemoteCacheTest::Server::kRedis ? "Redis" : "Http";
}
INSTANTIATE_TEST_SUITE_P(, RemoteHostClock,
                         ::testing::Values(test::RemoteCacheTest::Server::kRedis, test::RemoteCacheTest::Server::kHttp),
                         name_of);

TEST_P(RemoteHostClock, InThePastStartsWithoutACompile) {
  for (int variant = 0; variant < 3; ++variant) build(variant);
  for (const std::int64_t offset : {-10 * kYear, to_the_epoch(), 10 * kYear}) {
    const std::string name = "reader" + std::to_string(offset);
    for (const std::uint64_t hits : {3u, 0u}) {  // the second time from its disk
      const WallClock wrong(offset);
      CubinCache cache(host(name, false));
      for (int variant = 0; variant < 3; ++variant)
        EXPECT_EQ(*cache.get_or_compile(test_key(variant), never), test_binary(variant)) << offset;
      EXPECT_EQ(cache.remote_counters().hits, hits) << offset;
      EXPECT_EQ(cache.remote_counters().rejected, 0u) << offset;
    }
    CubinCache later(host(name, false));  // its clock was set
    EXPECT_EQ(*later.get_or_compile(test_key(0), never), test_binary(0)) << offset;
    EXPECT_EQ(later.remote_counters().hits, 0u) << offset;
  }
  EXPECT_THAT(told(), SizeIs(0));
}

TEST_P(RemoteHostClock, InThePastBuildsForOtherHosts) {
  for (const std::int64_t offset : {-10 * kYear, to_the_epoch()}) {
    const int variant = offset == -10 * kYear ? 0 : 1;
    {
      const WallClock wrong(offset);
      build(variant);
    }
    CubinCache reader(host("reader", false));
    EXPECT_EQ(*reader.get_or_compile(test_key(variant), never), test_binary(variant));
  }
  EXPECT_THAT(told(), SizeIs(0));
}

/// The server is gone. It is not asked for ten seconds, whatever the wall clock says meanwhile.
TEST_P(RemoteHostClock, ThatJumpsNeitherOpensNorClosesTheBreaker) {
  CubinCache cache(host("reader", false));
  server_->end();
  EXPECT_LE(ask(cache, 3).first, 1.0);
  const auto failures = [&] { return cache.remote_counters().failures; };
  EXPECT_EQ(failures(), 3u);
  for (const std::int64_t offset : {-10 * kYear, 10 * kYear, to_the_epoch()}) {
    const WallClock wrong(offset);
    const std::string status = cache.layer_answers(test_key(0)).back().first;
    EXPECT_THAT(status, testing::ContainsRegex("off for ([7-9]|1[0-2]) s, because it failed")) << offset;
    EXPECT_LE(ask(cache, 12).second, 0.1);
    EXPECT_EQ(failures(), 3u) << offset;
  }
  EXPECT_THAT(told(), SizeIs(1));
}

class RemoteHostsWhoseClockJumps : public test::RemoteCacheTest {};

/// A lease ends by the server's clock, and its holder and those that wait count their own steady time.
TEST_F(RemoteHostsWhoseClockJumps, CompileAKeyOnce) {
  std::jthread jumps([](const std::stop_token& end) {
    for (std::int64_t round = 0; !end.stop_requested(); ++round) {
      g_clock_offset_s = round % 3 == 0 ? 0 : round % 3 == 1 ? -10 * kYear : 10 * kYear;
      std::this_thread::sleep_for(milliseconds(10));
    }
    g_clock_offset_s = 0;
  });
  EXPECT_EQ(compiles_of_all_hosts([](CubinCache&) {}, milliseconds(1500)), 1);  // the lease is renewed once
  EXPECT_THAT(told(), SizeIs(0));
}

class RemoteHostClockAndTls : public test::RemoteCacheTest {
 protected:
  RemoteHostClockAndTls() : RemoteCacheTest(Server::kHttps) {}
};

/// A certificate is not valid yet, and nothing else may be believed of a server without one.
TEST_F(RemoteHostClockAndTls, InThePastCompilesAndSaysWhy) {
  build(0);
  const WallClock past(-10 * kYear);
  CubinCache cache(host("reader", false));
  EXPECT_LE(ask(cache, 5).first, 1.0);
  EXPECT_EQ(cache.counters().compiles, 5u);
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("certificate"));
}

TEST(ClockInThePast, OpensASignedBundle) {
  if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
  const std::optional<SigningKey> key = signing_key_of_pem(test::kSigningPem);
  const auto packed = [&] {
    BundleWriter writer("1.2.3");
    writer.add("decode", test_key(0), test_binary(0));
    return writer.finish(&*key);
  };
  const std::vector<std::byte> today = packed();
  const test::TempFolder folder;
  const std::string path = folder / "model.kwpack";
  test::write_file(path, {reinterpret_cast<const char*>(today.data()), today.size()});
  chmod(path.c_str(), 0644);
  const WallClock past(to_the_epoch());
  EXPECT_EQ(packed(), today) << "no time is in a bundle";
  Bundle bundle(path, Payload::kUnpack, {}, {{*public_key_of_pem(test::kPublicPem)}, ""});
  EXPECT_EQ(bundle.fault(), "");
  EXPECT_TRUE(bundle.find(test_key(0)));
}

/// Entries of the future are younger than any limit.
TEST(ClockInThePast, PrunesNothingForItsAge) {
  const test::TempFolder folder;
  const CacheOptions options{.directory = folder / "cache"};
  CubinCache(options).get_or_compile(test_key(), [] { return test_binary(); });
  const WallClock past(to_the_epoch());
  CubinCache cache(options);
  PruneLimits limits;
  limits.max_age_s = 86400;
  EXPECT_EQ(cache.prune(limits), 0u);
  EXPECT_EQ(*cache.get_or_compile(test_key(), never), test_binary());
}

}  // namespace
}  // namespace kernelwright::remote_clock_test
