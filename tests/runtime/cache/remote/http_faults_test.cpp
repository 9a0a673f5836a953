// Servers of HTTP that talk nonsense, crawl, never end, announce too much or lead elsewhere. Every operation ends by
// its deadline and tells why; a whole cache has the right kernel.
#include <gmock/gmock.h>

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/cache/remote/transport.h"
#include "runtime/cache/testing.h"
#include "support/listener.h"
#include "support/local_server.h"

namespace kernelwright::http_faults_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kOperation = 300ms;  // and a busy machine takes longer to return
constexpr auto kReturned = 900ms;
constexpr const char* kHead = "HTTP/1.1 200 OK\r\nContent-Length: ";

struct Fault {
  const char* name;
  std::string text;
  const char* told;
  std::size_t step = 1'000'000;
  std::chrono::milliseconds pause = 0ms;
  bool forever = false;
};

std::vector<Fault> faults() {
  return {
      {"headers, one byte at a time", kHead + std::string("1\r\n\r\nx"), "no answer in time", 1, 100ms},
      {"a body that crawls", kHead + std::string("100\r\n\r\n") + std::string(100, 'x'), "no answer in time", 20,
       100ms},
      {"noise", "\x16\x03\x01 what?", "HTTP/0.9"},
      {"another protocol", "+PONG\r\n", "HTTP/0.9"},
      {"nothing, and the connection ends", "", "Empty reply"},
      {"headers that never end", "HTTP/1.1 200 OK\r\n" + std::string("X-Filler: 0123456789\r\n"),
       "its headers are longer than 16384 bytes", 22, 0ms, true},
      {"one long header", "HTTP/1.1 200 OK\r\nX-Filler: " + std::string(20'000, 'x') + "\r\n\r\n",
       "its headers are longer than 16384 bytes"},
      {"interim responses that never end", "HTTP/1.1 100 Continue\r\n\r\n", "its headers are longer than 16384 bytes",
       25, 0ms, true},
      {"chunks that never end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string("1\r\nx\r\n"),
       "no answer in time", 6, 50ms, true},
      {"a chunk without a size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "hunk"},
      {"a body without a size that never ends", "HTTP/1.1 200 OK\r\n\r\n" + std::string(1 << 20, 'x'),
       "is above the limit of 8388608", 1 << 20, 0ms, true},
      {"a size beyond the limit", kHead + std::string("1000000000\r\n\r\nx"),
       "a value of 1000000000 bytes is above the limit of 8388608"},
      {"a size that is none", kHead + std::string("-5\r\n\r\nx"), "Content-Length"},
      {"less than was announced", kHead + std::string("100\r\n\r\nhello"), "closed with 95 bytes remaining"},
      {"a status that is none", "HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", "the server answers 999"},
  };
}

TEST(HttpFaults, EndByTheDeadlineAndTellWhy) {
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.name);
    test::Listener server;
    server.answer(fault.text, fault.step, fault.pause, {}, fault.forever);
    const auto http = make_remote_transport("http://127.0.0.1:" + std::to_string(server.port()), "remote");
    const auto start = RemoteClock::now();
    const RemoteReply reply = http->get("name", start + kOperation);
    EXPECT_LT(RemoteClock::now() - start, kReturned);
    EXPECT_EQ(reply.outcome, RemoteOutcome::kFailed);
    EXPECT_THAT(reply.detail, HasSubstr(fault.told));
    EXPECT_TRUE(reply.value.empty());
  }
}

/// A reply with some bytes changed, added, left out or cut off.
std::string altered(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most - 1)(random); };
  constexpr std::string_view kBytes = "\r\n :;0123456789-/.HTPchunkedCote\0\x7f\xff";
  for (std::size_t left = 1 + below(6); left > 0 && !text.empty(); --left) {
    const std::size_t at = below(text.size());
    switch (below(5)) {
      case 0: text[at] = static_cast<char>(below(256)); break;
      case 1: text[at] = kBytes[below(kBytes.size())]; break;
      case 2: text.insert(at, 1 + below(3), kBytes[below(kBytes.size())]); break;
      case 3: text.erase(at, 1 + below(3)); break;
      default: text.resize(below(8) == 0 ? at : text.size()); break;
    }
  }
  return text;
}

TEST(HttpFaults, AnyBytesAreAReplyOrAFault) {
  std::vector<std::string> replies{kHead + std::string("5\r\n\r\nhello"),
                                   "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc",
                                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                                   "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                                   "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 2\r\n\r\nno"};
  for (const Fault& fault : faults())
    if (!fault.forever && fault.pause == 0ms && fault.text.size() < 1000) replies.push_back(fault.text);
  std::mt19937 random(1);
  int done = 0, failed = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string text = altered(replies[static_cast<std::size_t>(round) % replies.size()], random);
    SCOPED_TRACE(::testing::PrintToString(text));
    test::Listener server;
    server.answer(text, 1 + static_cast<std::size_t>(round) % 7 * 50, 0ms);
    const auto http = make_remote_transport("http://127.0.0.1:" + std::to_string(server.port()), "remote");
    const auto start = RemoteClock::now();
    const RemoteReply reply =
        round % 2 ? http->get("name", start + kOperation) : http->get_start("name", 3, start + kOperation);
    EXPECT_LT(RemoteClock::now() - start, kReturned);
    EXPECT_LE(reply.value.size(), text.size());
    if (reply.outcome == RemoteOutcome::kDone) {
      EXPECT_TRUE(text.starts_with("HTTP/")) << "libcurl takes no other bytes for a status";
      ++done;
    } else {
      EXPECT_TRUE(reply.value.empty());
      EXPECT_EQ(reply.outcome == RemoteOutcome::kFailed, !reply.detail.empty());
      ++failed;
    }
  }
  EXPECT_GT(done, 20);
  EXPECT_GT(failed, 20);
}

TEST(HttpFaults, AServerThatSaysNothingCostsTheDeadline) {
  const test::Listener silent;  // it accepts connections
  for (const char* scheme : {"http", "https"}) {
    const auto http = make_remote_transport(scheme + ("://127.0.0.1:" + std::to_string(silent.port())), "remote");
    const auto start = RemoteClock::now();
    EXPECT_EQ(http->get("name", start + kOperation).detail, "no answer in time") << scheme;
    EXPECT_LT(RemoteClock::now() - start, kReturned);
  }
}

TEST(HttpFaults, ARedirectLeadsNowhere) {
  test::Listener elsewhere;
  elsewhere.answer(kHead + std::string("5\r\n\r\nhello"), 100, 0ms);
  for (const char* status : {"301", "302", "307"}) {
    test::Listener one;
    one.answer(std::string("HTTP/1.1 ") + status + " Moved\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:" +
                   std::to_string(elsewhere.port()) + "/name\r\n\r\n",
               1000, 0ms);
    const auto http = make_remote_transport("http://me:sesame@127.0.0.1:" + std::to_string(one.port()), "remote");
    EXPECT_EQ(http->get("name", RemoteClock::now() + 2s).detail, std::string("the server answers ") + status);
  }
  EXPECT_EQ(elsewhere.accepted(), 0);
}

TEST(HttpFaults, AWholeCacheHasTheRightKernelAfterABoundedTime) {
  for (const std::string& text : {std::string("noise"), std::string(), kHead + std::string("5\r\n\r\nhello")}) {
    SCOPED_TRACE(text);
    test::Listener server;
    server.answer(text, 100, 0ms);
    const test::TempFolder folder;
    test::Events events;
    CubinCache cache({.directory = folder / "cache",
                      .remote = {.address = "http://me:sesame@127.0.0.1:" + std::to_string(server.port()) + "/kernels"},
                      .lock_directory = folder / "locks",
                      .sink = events.sink()});
    for (int i = 0; i < 4; ++i) {
      const auto start = RemoteClock::now();
      EXPECT_EQ(*cache.get_or_compile(test::test_key(i), [&] { return test::test_binary(i); }), test::test_binary(i));
      EXPECT_LT(RemoteClock::now() - start, 1500ms);
    }
    ASSERT_EQ(events.of(EventKind::kCacheDegraded).size(), 1u);
    EXPECT_EQ(events.of(EventKind::kCacheDegraded)[0].detail.find("sesame"), std::string::npos);
  }
}

}  // namespace
}  // namespace kernelwright::http_faults_test
