// Addresses, and the transport on a real Redis of the distribution.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/remote/address.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "support/local_server.h"

namespace kernelwright::redis_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

Deadline soon(int ms = 2000) { return RemoteClock::now() + milliseconds(ms); }
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string address_of(const test::LocalServer& server, const std::string& secret = "") {
  return "redis://" + secret + "127.0.0.1:" + std::to_string(server.port());
}

std::string refusal_of(const std::string& address) {
  try {
    parse_remote_address(address, "/remote");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RemoteAddress, NamesAHostAndHidesThePassword) {
  const RemoteAddress address = parse_remote_address("redis://me:s%40crt@[::1]:7000", "/remote");
  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, 7000);
  EXPECT_EQ(address.user, "me");
  EXPECT_EQ(address.password, "s@crt");
  EXPECT_EQ(address.name, "redis://[::1]:7000");
  EXPECT_TRUE(address.is_local());
  EXPECT_EQ(parse_remote_address("redis://cache", "/remote").port, 6379);
  EXPECT_FALSE(parse_remote_address("redis://127.0.0.1.example", "/remote").is_local());
  EXPECT_TRUE(parse_remote_address("redis+unix:///run/redis.sock", "/remote").is_local());
}

TEST(RemoteAddress, HasThePrefixOfAServerOfHttp) {
  const RemoteAddress address = parse_remote_address("https://me:s%40crt@cache:8443/a/b//", "/remote");
  EXPECT_EQ(address.scheme, RemoteScheme::kHttps);
  EXPECT_EQ(address.port, 8443);
  EXPECT_EQ(address.path, "/a/b");
  EXPECT_EQ(address.name, "https://cache:8443/a/b");
  EXPECT_EQ(address.user, "me");
  EXPECT_EQ(address.password, "s@crt");
  EXPECT_EQ(parse_remote_address("http://cache", "/remote").port, 80);
  EXPECT_EQ(parse_remote_address("http://cache/", "/remote").path, "");
  EXPECT_EQ(parse_remote_address("https://[::1]/kernels", "/remote").port, 443);
}

TEST(RemoteAddress, RefusesPrefixesThatAreNone) {
  EXPECT_THAT(refusal_of("http://u:8/sesame@host"), HasSubstr("a slash in the user or the password is written %2F"));
  for (const char* address : {"http://h/a b", "http://h/a?sesame", "http://h/a#sesame", "http://h/%2e%2e"})
    EXPECT_THAT(refusal_of(address), HasSubstr("its prefix has a character other than")) << address;
  for (const char* address : {"http://h//a", "http://h/a/../b", "http://h/.", "http://h/a/.."})
    EXPECT_THAT(refusal_of(address), HasSubstr("its prefix has an empty part")) << address;
}

TEST(RemoteAddress, RefusalsTellTheReasonAndNeverAPassword) {
  EXPECT_THAT(refusal_of("ftp://x"), HasSubstr("its scheme is unknown"));
  EXPECT_THAT(refusal_of("rediss://x"), HasSubstr("there is no TLS for Redis here"));
  EXPECT_THAT(refusal_of("redis://"), HasSubstr("it names no host"));
  EXPECT_THAT(refusal_of("redis+unix://x"), HasSubstr("its path is not absolute"));
  for (const char* address : {"redis://a:sesame@h:0", "redis://a:sesame@h:70000", "redis://a:sesame@",
                              "redis://sesame@h", "http://a:sesame/b@h", "http://a:sesame@h?x", "redis://a:sesame%zz@h",
                              "redis://a:sesame@h/1", "x://a:sesame@h"}) {
    EXPECT_NE(refusal_of(address), "") << address;
    EXPECT_THAT(refusal_of(address), Not(HasSubstr("sesame")));
  }
}

TEST(RedisTransport, ReadsTheStartOfAValue) {
  KERNELWRIGHT_NEEDS_REDIS();
  const int port = test::free_port();
  test::LocalServer server(
      test::redis_words(port, {"--user", "builder", "on", ">sesame", "~*", "+get", "+set", "+eval"}), port);
  ASSERT_TRUE(server.ready());
  const auto redis = make_remote_transport(address_of(server, "builder:sesame@"), "/remote");
  EXPECT_EQ(redis->get_start("a", 5, soon()).outcome, RemoteOutcome::kAbsent);
  using namespace std::string_view_literals;
  for (const std::string_view value : {"0123456789"sv, "0123"sv, ""sv, "01\0\n456"sv}) {
    EXPECT_EQ(redis->put("a", bytes_of(value), soon()).outcome, RemoteOutcome::kDone);
    const RemoteReply start = redis->get_start("a", 5, soon());
    EXPECT_EQ(start.outcome, RemoteOutcome::kDone);
    EXPECT_EQ(text_of(start.value), value.substr(0, 5));
  }
  // A script that may not call a command says so in words of its own.
  const RemoteReply forbidden = redis->remove_if_equal("a", bytes_of("01\0\n456"sv), soon());
  EXPECT_EQ(forbidden.outcome, RemoteOutcome::kForbidden);
  EXPECT_THAT(forbidden.detail, HasSubstr("to EVAL"));
}

TEST(RedisTransport, DoesItsFiveOperations) {
  KERNELWRIGHT_NEEDS_REDIS();
  const int port = test::free_port();
  test::LocalServer server(test::redis_words(port), port);
  ASSERT_TRUE(server.ready());
  const auto redis = make_remote_transport(address_of(server), "/remote");
  EXPECT_EQ(redis->get("a", soon()).outcome, RemoteOutcome::kAbsent);
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(redis->put("a", bytes_of(large), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(text_of(redis->get("a", soon()).value), large);
  EXPECT_EQ(redis->put_if_absent("lease", bytes_of("me"), milliseconds(300), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(redis->put_if_absent("lease", bytes_of("you"), milliseconds(300), soon()).outcome, RemoteOutcome::kPresent);
  EXPECT_EQ(redis->remove_if_equal("lease", bytes_of("you"), soon()).outcome, RemoteOutcome::kAbsent);
  EXPECT_EQ(redis->remove_if_equal("lease", bytes_of("me"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(redis->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  const auto replace = [&](const char* expected, const char* value, int ms) {
    return redis->replace_if_equal("a", bytes_of(expected), bytes_of(value), milliseconds(ms), soon()).outcome;
  };
  EXPECT_EQ(replace("2", "3", 0), RemoteOutcome::kAbsent);
  EXPECT_EQ(replace("1", "2", 0), RemoteOutcome::kDone);
  EXPECT_EQ(replace("2", "3", 30), RemoteOutcome::kDone);
  EXPECT_EQ(text_of(redis->get("a", soon()).value), "3");
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(redis->get("a", soon()).outcome, RemoteOutcome::kAbsent);
  EXPECT_EQ(replace("3", "4", 0), RemoteOutcome::kAbsent);
  EXPECT_EQ(redis->put_if_absent("lease", bytes_of("you"), milliseconds(30), soon()).outcome, RemoteOutcome::kDone);
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(redis->get("lease", soon()).outcome, RemoteOutcome::kAbsent);
}

TEST(RedisTransport, AsksForAPasswordAndTellsItToNobody) {
  KERNELWRIGHT_NEEDS_REDIS();
  const int port = test::free_port();
  test::LocalServer server(test::redis_words(port, {"--requirepass", "sesame"}), port);
  ASSERT_TRUE(server.ready());
  const auto open = [&](const char* secret) { return make_remote_transport(address_of(server, secret), "/remote"); };
  EXPECT_EQ(open(":sesame@")->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(open("default:sesame@")->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(open("")->get("a", soon()).detail, "the server answers NOAUTH");
  const RemoteReply wrong = open(":guess@")->get("a", soon());
  EXPECT_EQ(wrong.outcome, RemoteOutcome::kRefused);
  EXPECT_EQ(wrong.detail, "the server answers WRONGPASS");
  EXPECT_EQ(open(":sesame@")->name(), address_of(server));
}

TEST(RedisTransport, EndsByItsDeadline) {
  KERNELWRIGHT_NEEDS_REDIS();
  const int port = test::free_port();
  test::LocalServer server(test::redis_words(port), port);
  ASSERT_TRUE(server.ready());
  const auto redis = make_remote_transport(address_of(server), "/remote");
  EXPECT_EQ(redis->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  server.signal(SIGSTOP);
  const auto start = RemoteClock::now();
  EXPECT_EQ(redis->get("a", soon(100)).detail, "no answer in time");
  EXPECT_LT(RemoteClock::now() - start, milliseconds(900));
  server.end();
  EXPECT_THAT(redis->get("a", soon()).detail, HasSubstr("cannot connect: "));
}

TEST(RedisTransport, ConnectsAgainAfterTheServerWasStartedAnew) {
  KERNELWRIGHT_NEEDS_REDIS();
  const int port = test::free_port();
  const auto redis = make_remote_transport("redis://127.0.0.1:" + std::to_string(port), "/remote");
  for (int start = 0; start < 2; ++start) {
    test::LocalServer server(test::redis_words(port), port);
    ASSERT_TRUE(server.ready());
    EXPECT_EQ(redis->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  }
}

}  // namespace
}  // namespace kernelwright::redis_test
