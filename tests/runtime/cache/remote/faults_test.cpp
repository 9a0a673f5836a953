// Servers that talk nonsense, crawl, announce too much, close, lie or say nothing, through a whole cache: the kernel is
// right, the first key waits for a second at most, and there is one event.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

#include "kernelwright/runtime/cache/signature.h"
#include "runtime/cache/testing.h"
#include "support/listener.h"
#include "support/local_server.h"
#include "support/signing.h"

namespace kernelwright::remote_faults_test {
namespace {

using namespace std::chrono_literals;
using test::test_binary, test::test_key;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::chrono::milliseconds kFirstKey = 1000ms, kLaterKey = 50ms;

struct Cost {
  std::chrono::milliseconds first{},
      later{};  // of the first key, and the longest of those that the server is not asked
  RemoteCounters counters;
  std::vector<Event> events;
};

enum class Host { kReads, kWrites };

/// What a cache whose only help is the server at `port` spends on keys before it compiles them.
Cost cost_of(Host host, int keys, int port) {
  const test::TempFolder folder;
  test::write_file(folder / "key.pub", test::kPublicPem);
  chmod((folder / "key.pub").c_str(), 0644);
  test::Events events;
  CubinCache cache(
      {.directory = folder / "cache",
       .remote = {.address = "redis://127.0.0.1:" + std::to_string(port),
                  .keys = host == Host::kReads ? std::vector{folder / "key.pub"} : std::vector<std::string>()},
       .lock_directory = folder / "locks",
       .sink = events.sink()});
  Cost cost;
  for (int i = 0; i < keys; ++i) {
    int compiles = 0;
    const std::uint64_t skipped = cache.remote_counters().skipped;
    const auto begin = std::chrono::steady_clock::now();
    std::chrono::milliseconds spent{};
    const auto binary = cache.get_or_compile(test_key(i), [&] {
      spent = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
      ++compiles;
      return test_binary(i);
    });
    EXPECT_EQ(*binary, test_binary(i));
    EXPECT_EQ(compiles, 1);
    if (i == 0) cost.first = spent;
    if (cache.remote_counters().skipped > skipped) cost.later = std::max(cost.later, spent);
  }
  cost.counters = cache.remote_counters();
  cost.events = events.of(EventKind::kCacheDegraded);
  return cost;
}

/// The same, measured up to three times: a machine that is busy with other work may cost a measurement half a second.
Cost least_cost_of(Host host, int keys, int port) {
  Cost cost = cost_of(host, keys, port);
  for (int again = 0; again < 2 && (cost.first > kFirstKey || cost.later > kLaterKey); ++again)
    cost = cost_of(host, keys, port);
  return cost;
}

/// Asks for six keys. The third failure is the last time that the server is asked.
void expect_three_failures_and_one_event(int port) {
  const Cost cost = least_cost_of(Host::kReads, 6, port);
  EXPECT_LE(cost.first, kFirstKey);
  EXPECT_LE(cost.later, kLaterKey);
  EXPECT_EQ(cost.counters.failures, 3u);
  EXPECT_EQ(cost.counters.skipped, 3u);
  ASSERT_THAT(cost.events, SizeIs(1));
  EXPECT_THAT(cost.events[0].detail, HasSubstr("it is not asked for"));
}

TEST(RemoteFaults, OfAServerThatDoesNotAnswerEndAfterThree) {
  if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
  struct Fault {
    const char* name;
    std::string text;
    std::size_t step;
    std::chrono::milliseconds pause;
  };
  for (const Fault& fault : {Fault{"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n", 100, 0ms},
                             Fault{"noise", "\x16\x03\x01 what?", 100, 0ms},
                             Fault{"one byte at a time", "$100\r\n" + std::string(100, 'x') + "\r\n", 1, 100ms},
                             Fault{"nothing, and the connection ends", "", 1, 0ms},
                             Fault{"a size beyond the limit", "$1000000000\r\n", 100, 0ms}}) {
    SCOPED_TRACE(fault.name);
    test::Listener server;
    server.answer(fault.text, fault.step, fault.pause, 0ms);
    expect_three_failures_and_one_event(server.port());
  }
  {
    SCOPED_TRACE("accepts connections and says nothing");
    const test::Listener silent;
    expect_three_failures_and_one_event(silent.port());
  }
  SCOPED_TRACE("nobody listens");
  expect_three_failures_and_one_event(test::free_port());
}

TEST(RemoteFaults, OfAServerThatAnswersSlowlyCostASecond) {
  test::Listener server;
  server.answer("$-1\r\n", 100, 0ms, 400ms);
  EXPECT_LE(least_cost_of(Host::kWrites, 1, server.port()).first, kFirstKey);
}

TEST(RemoteFaults, OfAServerThatLiesCostASecondAndOneEvent) {
  {
    test::Listener server;
    server.answer("$5\r\nhello\r\n", 100, 0ms, 0ms);  // a value that is no binary
    const Cost cost = least_cost_of(Host::kWrites, 3, server.port());
    EXPECT_LE(cost.first, kFirstKey);
    EXPECT_GE(cost.counters.rejected, 3u);
    ASSERT_THAT(cost.events, SizeIs(1));
    EXPECT_THAT(cost.events[0].detail, HasSubstr("such values are not used"));
  }
  test::Listener server;
  server.answer("$-1\r\n", 100, 0ms, 0ms);  // each lease is another host's, and nobody's
  const Cost cost = least_cost_of(Host::kWrites, 1, server.port());
  EXPECT_LE(cost.first, kFirstKey);
  EXPECT_THAT(cost.events, SizeIs(0));
}

}  // namespace
}  // namespace kernelwright::remote_faults_test
