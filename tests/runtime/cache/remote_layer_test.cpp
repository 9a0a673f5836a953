// The remote cache: envelopes, the breaker, and caches of several hosts on one server, Redis or nginx.
#include "kernelwright/runtime/cache/remote_layer.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <thread>

#include "kernelwright/runtime/cache/remote/breaker.h"
#include "kernelwright/runtime/cache/remote/leases.h"
#include "runtime/cache/remote_cache.h"

namespace kernelwright::remote_layer_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::test_binary, test::test_key, test::write_file;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const Digest kName = sha256("name");
const EnvelopeTrust kNoKeys{{}, true};

EnvelopeTrust trust_in(const char* pem) { return {{*public_key_of_pem(pem)}, false}; }
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::vector<std::byte> signed_envelope() {
  const std::optional<SigningKey> key = signing_key_of_pem(test::kSigningPem);
  return make_envelope(kName, bytes_of("entry"), 1234, &*key);
}

TEST(Envelope, OpensWhatATrustedBuilderMade) {
  if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
  const std::vector<std::byte> bytes = signed_envelope();
  const EnvelopeResult result = open_envelope(bytes, kName, trust_in(test::kPublicPem));
  ASSERT_EQ(result.reason, "");
  EXPECT_EQ(result.envelope->builder, public_key_of_pem(test::kPublicPem));
  EXPECT_EQ(result.envelope->created_s, 1234);
  EXPECT_TRUE(std::ranges::equal(result.envelope->entry, bytes_of("entry")));
}

TEST(Envelope, RefusesEveryFlippedByteAndEveryPrefix) {
  if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
  const EnvelopeTrust trust = trust_in(test::kPublicPem);
  const std::vector<std::byte> bytes = signed_envelope();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> altered = bytes;
    altered[i] ^= std::byte{1};
    EXPECT_NE(open_envelope(altered, kName, trust).reason, "") << i;
    EXPECT_NE(open_envelope(std::span(bytes).first(i), kName, trust).reason, "") << i;
  }
}

/// The entry behind it may be any bytes.
TEST(Envelope, IsProvedByItsHeadToHaveATrustedSender) {
  if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
  const EnvelopeTrust trust = trust_in(test::kPublicPem);
  const std::vector<std::byte> bytes = signed_envelope();
  const std::vector<std::byte> head(bytes.begin(), bytes.begin() + kEnvelopeHeadBytes);
  EXPECT_EQ(fault_of_head(head, kName, trust), "");
  EXPECT_EQ(fault_of_head(bytes, kName, trust), "");
  for (std::size_t i = 0; i < head.size(); ++i) {
    std::vector<std::byte> altered = head;
    altered[i] ^= std::byte{1};
    EXPECT_NE(fault_of_head(altered, kName, trust), "") << i;
    EXPECT_NE(fault_of_head(std::span(head).first(i), kName, trust), "") << i;
  }
  EXPECT_EQ(fault_of_head(head, sha256("other"), trust), "is of another kernel");
  EXPECT_EQ(fault_of_head(head, kName, trust_in(test::kOtherPublicPem)),
            "is signed by none of the keys that are trusted");
}

TEST(Envelope, RefusesOtherKernelsOtherBuildersAndNoSignature) {
  if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
  const EnvelopeTrust trust = trust_in(test::kPublicPem);
  EXPECT_EQ(open_envelope(signed_envelope(), sha256("other"), trust).reason, "is of another kernel");
  EXPECT_EQ(open_envelope(signed_envelope(), kName, trust_in(test::kOtherPublicPem)).reason,
            "is signed by none of the keys that are trusted");
  const std::vector<std::byte> plain = make_envelope(kName, bytes_of("entry"), 0, nullptr);
  EXPECT_EQ(open_envelope(plain, kName, trust).reason, "is not signed, and a signature is asked for");
  EXPECT_EQ(open_envelope(plain, kName, kNoKeys).reason, "");
}

TEST(Breaker, OpensAfterThreeFailuresAndLetsOneCallTry) {
  Breaker breaker(7);
  Breaker::Time now{};
  EXPECT_FALSE(breaker.failed(now));
  EXPECT_FALSE(breaker.failed(now));
  EXPECT_FALSE(breaker.succeeded());  // three in a row are meant
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(breaker.failed(now));
  EXPECT_TRUE(breaker.failed(now));
  for (milliseconds span(10'000); span < seconds(600); span *= 2) {
    const milliseconds expected = std::min(span, milliseconds(300'000));
    EXPECT_GE(breaker.left(now), expected * 8 / 10);
    EXPECT_LE(breaker.left(now), expected * 12 / 10);
    EXPECT_FALSE(breaker.admits(now));
    now += breaker.left(now);
    EXPECT_TRUE(breaker.admits(now));
    EXPECT_FALSE(breaker.admits(now));
    EXPECT_FALSE(breaker.failed(now));  // it stays open, which is no change
  }
  now += breaker.left(now);
  EXPECT_TRUE(breaker.admits(now));
  EXPECT_TRUE(breaker.succeeded());
  EXPECT_TRUE(breaker.admits(now));
  EXPECT_TRUE(breaker.refused(now));
  EXPECT_GE(breaker.left(now), seconds(240));
}

using RemoteCache = test::RemoteCacheTest;
using Server = RemoteCache::Server;

class RemoteCacheOnEachServer : public RemoteCache, public ::testing::WithParamInterface<Server> {
 protected:
  RemoteCacheOnEachServer() : RemoteCache(GetParam()) {}
};
std::string name_of(const ::testing::TestParamInfo<Server>& test) {
  constexpr const char* kNames[] = {"Redis", "Http", "Https"};
  return kNames[static_cast<int>(test.param)];
}
INSTANTIATE_TEST_SUITE_P(, RemoteCacheOnEachServer, ::testing::Values(Server::kRedis, Server::kHttp, Server::kHttps),
                         name_of);

TEST_P(RemoteCacheOnEachServer, AnotherHostStartsWithoutACompileAndKeepsWhatItFound) {
  for (int variant = 0; variant < 8; ++variant) build(variant);
  for (int start = 0; start < 2; ++start) {  // the second time from its disk
    CubinCache cache(host("reader", false));
    for (int variant = 0; variant < 8; ++variant)
      EXPECT_EQ(*cache.get_or_compile(test_key(variant), [] { return test_binary(99); }), test_binary(variant));
    EXPECT_EQ(cache.counters().compiles, 0u);
    EXPECT_EQ(cache.remote_counters().hits, start == 0 ? 8u : 0u);
  }
  EXPECT_THAT(told(), SizeIs(0));
}

TEST_P(RemoteCacheOnEachServer, ABuilderWithAWarmDiskSendsWhatTheServerLacks) {
  {
    CacheOptions alone = host("builder", true);
    alone.remote = {};
    CubinCache(alone).get_or_compile(test_key(3), [] { return test_binary(3); });
  }
  const auto never = []() -> Binary { throw std::logic_error("compiled"); };
  for (const std::uint64_t sent : {1u, 0u}) {  // the second time the server has it
    CubinCache builder(host("builder", true));
    EXPECT_EQ(*builder.get_or_compile(test_key(3), never), test_binary(3));
    const auto until = RemoteClock::now() + seconds(5);
    while (sent > 0 && builder.remote_counters().writes < sent && RemoteClock::now() < until)
      std::this_thread::sleep_for(milliseconds(5));
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(builder.remote_counters().writes, sent);
    EXPECT_EQ(builder.remote_counters().write_failures, 0u);
  }
  CubinCache reader(host("reader", false));
  EXPECT_EQ(*reader.get_or_compile(test_key(3), never), test_binary(3));
}

/// To find that the server has a kernel costs the heads of its two values, and not the values.
TEST_F(RemoteCache, ABuilderWithAWarmDiskReadsLittle) {
  constexpr std::size_t kBytes = 200'000;
  const auto told_bytes = [&] {
    const auto server = make_remote_transport(address(), "");
    constexpr const char* kScript = "return string.match(redis.call('info','stats'),'total_net_output_bytes:(%d+)')";
    const RemoteReply reply = server->run_script(kScript, {}, {}, RemoteClock::now() + seconds(2));
    return std::stoull(std::string(reinterpret_cast<const char*>(reply.value.data()), reply.value.size()));
  };
  CubinCache(host("builder", true)).get_or_compile(test_key(0), [] { return test_binary(0, kBytes); });
  const std::uint64_t before = told_bytes();
  {
    CubinCache again(host("builder", true));
    EXPECT_EQ(*again.get_or_compile(test_key(0), []() -> Binary { throw std::logic_error("compiled"); }),
              test_binary(0, kBytes));
    std::this_thread::sleep_for(milliseconds(50));
  }  // its end waits for what is sent
  const std::uint64_t told = told_bytes() - before;
  EXPECT_GE(told, 2 * kEnvelopeHeadBytes) << "it has asked for both";
  EXPECT_LT(told, 2 * kEnvelopeHeadBytes + 1000);
}

/// The signature of a value is right, and its last byte is not. No reader takes it, so a host compiles, and replaces it
/// under both names.
TEST_P(RemoteCacheOnEachServer, AHostThatCompilesReplacesAnAlteredValue) {
  build(0);
  const auto server = make_remote_transport(address(), "", {.ca = ca_});
  const auto soon = [] { return RemoteClock::now() + seconds(2); };
  for (const Digest& name : {test_key(0).digest(), test_key(0).digest_without_compiler()}) {
    const std::string text = std::string("kw2/sm_90a/") + (name == test_key(0).digest() ? "" : "any-") + name.hex();
    std::vector<std::byte> value = server->get(text, soon()).value;
    ASSERT_GT(value.size(), kEnvelopeHeadBytes) << text;
    value.back() ^= std::byte{1};
    ASSERT_EQ(server->put(text, value, soon()).outcome, RemoteOutcome::kDone);
  }
  {
    CubinCache other(host("other", true));
    ask(other, 1);
    EXPECT_EQ(other.counters().compiles, 1u);
  }
  CacheKey any = test_key(0);
  any.compiler.clear();
  const auto never = []() -> Binary { throw std::logic_error("compiled"); };
  EXPECT_EQ(*CubinCache(host("reader", false)).get_or_compile(test_key(0), never), test_binary(0));
  EXPECT_EQ(*CubinCache(host("bare", false)).get_or_compile(any, never), test_binary(0));
}

/// After the builder's key was changed, values of the old key are replaced: by a host that compiles, and by one that
/// has the binary on its disk.
TEST_P(RemoteCacheOnEachServer, ABuilderReplacesValuesThatItDoesNotTrust) {
  build(0);
  build(1);
  key_ = "other";
  const CacheOptions options = host("new-builder", true);
  {
    CacheOptions alone = options;
    alone.remote = {};
    CubinCache(alone).get_or_compile(test_key(1), [] { return test_binary(1); });
  }
  {
    CubinCache builder(options);
    ask(builder, 2);
    EXPECT_EQ(builder.counters().compiles, 1u);  // the other one was on disk
  }
  CubinCache reader(host("reader", false));
  const auto never = []() -> Binary { throw std::logic_error("compiled"); };
  for (const int variant : {0, 1}) {
    EXPECT_EQ(*reader.get_or_compile(test_key(variant), never), test_binary(variant));
    CacheKey any = test_key(variant);
    any.compiler.clear();
    EXPECT_EQ(*CubinCache(host("bare" + std::to_string(variant), false)).get_or_compile(any, never),
              test_binary(variant));
  }
}

TEST_P(RemoteCacheOnEachServer, AHostWithoutACompilerFindsTheFirstBuild) {
  build(0);
  CubinCache cache(host("reader", false));
  CacheKey key = test_key(0);
  key.compiler.clear();
  EXPECT_EQ(*cache.get_or_compile(key, [] { return test_binary(99); }), test_binary(0));
  EXPECT_EQ(cache.counters().compiles, 0u);
}

TEST_P(RemoteCacheOnEachServer, AReaderSendsNothing) {
  CubinCache(host("reader", false)).get_or_compile(test_key(), [] { return test_binary(0); });
  CubinCache cache(host("other", false));
  cache.get_or_compile(test_key(), [] { return test_binary(0); });
  EXPECT_EQ(cache.remote_counters().misses, 1u);
  EXPECT_EQ(cache.remote_counters().writes, 0u);
}

TEST_P(RemoteCacheOnEachServer, ABinaryOfAnotherBuilderIsNotUsedAndTouchesNoDisk) {
  build(0);
  build(1);
  CubinCache cache(host("reader", false, "other.pub"));
  ask(cache, 2);
  EXPECT_EQ(cache.counters().compiles, 2u);
  EXPECT_EQ(cache.remote_counters().rejected, 2u);
  ASSERT_THAT(told(), SizeIs(1));  // one event
  EXPECT_THAT(told()[0].detail, HasSubstr("is signed by none of the keys that are trusted"));
}

TEST_P(RemoteCacheOnEachServer, AValueOfAnotherKeyIsNotUsed) {
  build(0);
  const auto server = make_remote_transport(address(), "", {.ca = ca_});
  const auto name_of = [](int variant) { return "kw2/sm_90a/" + test_key(variant).digest().hex(); };
  const auto soon = [] { return RemoteClock::now() + seconds(2); };
  ASSERT_EQ(server->put(name_of(1), server->get(name_of(0), soon()).value, soon()).outcome, RemoteOutcome::kDone);
  CubinCache cache(host("reader", false));
  EXPECT_EQ(*cache.get_or_compile(test_key(1), [] { return test_binary(1); }), test_binary(1));
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("is of another kernel"));
}

TEST_P(RemoteCacheOnEachServer, AServerThatHangsCostsASecondAtMostThenNothing) {
  build(0);
  server_->signal(SIGSTOP);
  CubinCache cache(host("reader", false));
  const auto [slowest, last] = ask(cache, 6);
  EXPECT_LT(slowest, 1.0);
  EXPECT_LT(last, 0.1);
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("no answer in time; it is not asked for"));
  server_->signal(SIGCONT);
}

TEST_P(RemoteCacheOnEachServer, AServerThatIsGoneCostsNothing) {
  server_->end();
  CubinCache cache(host("builder", true));
  const auto [slowest, last] = ask(cache, 6);
  EXPECT_LT(slowest, 1.0);
  EXPECT_LT(last, 0.1);
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("cannot connect"));
}

TEST_F(RemoteCache, AServerThatForbidsWritesIsStillRead) {
  for (const int variant : {0, 2, 4}) build(variant);
  CacheOptions options = host("limited", true);
  options.remote.address = "redis://limited:sesame@127.0.0.1:" + std::to_string(port_);
  CubinCache cache(options);
  ask(cache, 6);
  EXPECT_EQ(cache.counters().compiles, 3u);
  EXPECT_EQ(cache.remote_counters().hits, 3u);
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("the server answers NOPERM to SET; nothing is sent to it for"));
  EXPECT_THAT(cache.status(), HasSubstr("read only for"));
}

TEST_F(RemoteCache, AServerThatRefusesTheCredentialsIsAskedNothing) {
  build(0);
  CacheOptions options = host("guest", true);
  options.remote.address = "redis://limited:guess@127.0.0.1:" + std::to_string(port_);
  CubinCache cache(options);
  ask(cache, 4);
  EXPECT_EQ(cache.counters().compiles, 4u);
  EXPECT_EQ(cache.remote_counters().failures, 1u);
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("the server answers WRONGPASS; it is not asked for"));
}

TEST_F(RemoteCache, HostsCompileAKeyOnce) {
  EXPECT_EQ(compiles_of_all_hosts([](CubinCache&) {}), 1);
}

/// That a name is remembered as absent saves a question, and takes no lease away.
TEST_F(RemoteCache, HostsCompileAKeyOnceThatTheyKnowToBeAbsent) {
  EXPECT_EQ(
      compiles_of_all_hosts([](CubinCache& cache) { EXPECT_FALSE(cache.layer_answers(test_key()).back().second); }), 1);
}

TEST_F(RemoteCache, HostsCompileAKeyOnceWhoseValueTheyDoNotTrust) {
  build(0);
  key_ = "other";
  EXPECT_EQ(compiles_of_all_hosts([](CubinCache&) {}), 1);
}

/// The compile takes longer than a lease that is not renewed.
TEST_F(RemoteCache, HostsWaitForACompileThatTakesLong) {
  EXPECT_EQ(compiles_of_all_hosts([](CubinCache&) {}, LeaseTimes().life + milliseconds(500)), 1);
  ASSERT_THAT(waits_, SizeIs(7));
  EXPECT_THAT(waits_[0].detail, HasSubstr("another host is compiling it, and is waited for; for 60 s at most"));
}

TEST_F(RemoteCache, AHostIsWaitedForAsLongAsALock) {
  CubinCache slow(host("slow", true));
  std::atomic<bool> compiles{false}, done{false};
  std::jthread thread([&] {
    slow.get_or_compile(test_key(), [&] {
      for (compiles = true; !done;) std::this_thread::sleep_for(milliseconds(5));
      return test_binary();
    });
  });
  while (!compiles) std::this_thread::sleep_for(milliseconds(1));
  CacheOptions options = host("hasty", true);
  options.lock_timeout_ms = 300;
  CubinCache hasty(options);
  EXPECT_EQ(*hasty.get_or_compile(test_key(), [] { return test_binary(); }), test_binary());
  EXPECT_EQ(hasty.counters().compiles, 1u);
  EXPECT_EQ(hasty.remote_counters().lease_waits, 1u);
  EXPECT_FALSE(done);
  done = true;
}

/// A host's place for a compile, which is free when the test says so.
class Room final : public CompileRoom {
 public:
  explicit Room(std::atomic<bool>& is_free) : is_free_(is_free) {}
  bool try_take() override { return is_held_ = is_held_ || is_free_; }
  void take() override {
    while (!try_take()) std::this_thread::sleep_for(milliseconds(1));
  }
  void give_back() override { is_held_ = false; }
  bool is_held() const { return is_held_; }

 private:
  std::atomic<bool>& is_free_;
  bool is_held_ = false;
};

/// The first host cannot begin. It takes no lease, so the second one compiles at once, and the first has its kernel.
TEST_F(RemoteCache, AHostWithoutRoomLeavesTheKernelToAnother) {
  std::atomic<bool> is_free{false};
  CubinCache full(host("full", true)), idle(host("idle", true));
  std::jthread thread([&] {
    Room room(is_free);
    EXPECT_EQ(*full.get_or_compile(
                  test_key(), []() -> Binary { throw std::logic_error("compiled"); }, nullptr, nullptr, &room),
              test_binary(0));
    EXPECT_FALSE(room.is_held());
  });
  while (full.remote_counters().misses < 2) std::this_thread::sleep_for(milliseconds(1));  // it asks again and again
  const auto start = RemoteClock::now();
  idle.get_or_compile(test_key(), [] { return test_binary(0); });
  EXPECT_LT(RemoteClock::now() - start, milliseconds(500)) << "no lease is in its way";
  thread.join();
  EXPECT_EQ(full.counters().compiles, 0u);
  EXPECT_EQ(idle.remote_counters().lease_waits, 0u);
}

TEST_F(RemoteCache, AHostCompilesOnceItHasRoom) {
  std::atomic<bool> is_free{false}, compiled{false};
  CubinCache cache(host("host", true));
  std::jthread thread([&] {
    Room room(is_free);
    const auto compile = [&] {
      EXPECT_TRUE(room.is_held());
      compiled = true;
      return test_binary(0);
    };
    cache.get_or_compile(test_key(), compile, nullptr, nullptr, &room);
    EXPECT_FALSE(room.is_held()) << "it is given back with the end of the compile";
  });
  while (cache.remote_counters().misses < 2) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(compiled);
  const auto start = RemoteClock::now();
  is_free = true;
  thread.join();
  EXPECT_LT(RemoteClock::now() - start, milliseconds(500));
  EXPECT_EQ(cache.counters().compiles, 1u);
  EXPECT_EQ(cache.remote_counters().lease_waits, 0u) << "it waited for no other host";
}

/// Where nobody leads, room is waited for before the compile.
TEST(CubinCacheRoom, IsHeldWhileACompileRuns) {
  std::atomic<bool> is_free{true};
  Room room(is_free);
  const test::TempFolder folder;
  CubinCache cache({.directory = folder / "cache"});
  bool held = false;
  const auto compile = [&] { return held = room.is_held(), test_binary(0); };
  cache.get_or_compile(test_key(), compile, nullptr, nullptr, &room);
  EXPECT_TRUE(held);
  EXPECT_FALSE(room.is_held());
}

TEST_F(RemoteCache, AFailedCompileGivesTheLeaseBack) {
  CubinCache first(host("first", true)), second(host("second", true));
  EXPECT_THROW(first.get_or_compile(test_key(), []() -> Binary { throw std::runtime_error("no"); }),
               std::runtime_error);
  const auto start = RemoteClock::now();
  second.get_or_compile(test_key(), [] { return test_binary(0); });
  EXPECT_LT(RemoteClock::now() - start, seconds(2));
}

TEST_P(RemoteCacheOnEachServer, IsNotAskedAfterItWasStopped) {
  build(0);
  CubinCache cache(host("reader", false));
  cache.stop_remote();
  cache.get_or_compile(test_key(0), [] { return test_binary(0); });
  EXPECT_EQ(cache.counters().compiles, 1u);
  EXPECT_EQ(cache.remote_counters().misses, 0u);
}

TEST_P(RemoteCacheOnEachServer, AProbeProvesWhatAHostMayDo) {
  const RemoteProbe writer = CubinCache(host("builder", true)).probe_remote().value();
  EXPECT_EQ(writer.fault, "");
  EXPECT_TRUE(writer.wrote);
  EXPECT_EQ(writer.server, address());
  const RemoteProbe reader = CubinCache(host("reader", false)).probe_remote().value();
  EXPECT_EQ(reader.fault, "");
  EXPECT_TRUE(reader.read);
  EXPECT_FALSE(reader.wrote);
  if (GetParam() == Server::kRedis) {
    CacheOptions half = host("half", true);
    half.remote.address = "redis://half:sesame@127.0.0.1:" + std::to_string(port_);
    EXPECT_EQ(CubinCache(half).probe_remote()->fault, "remove: the server answers NOPERM to EVAL");
  }
  EXPECT_THAT(CubinCache(host("mixed", true, "other.pub")).probe_remote()->fault,
              HasSubstr("is signed by none of the keys that are trusted"));
  server_->end();
  EXPECT_THAT(CubinCache(host("late", true)).probe_remote()->fault, HasSubstr("get: cannot connect"));
}

TEST_P(RemoteCacheOnEachServer, EachLayerTellsWhetherItHasAKey) {
  build(0);
  CubinCache cache(host("reader", false));
  const auto answers = cache.layer_answers(test_key(0));
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_FALSE(answers[0].second);
  EXPECT_TRUE(answers[1].second);
  EXPECT_THAT(answers[1].first, HasSubstr("remote: " + address()));
}

class RemoteCacheOnHttp : public RemoteCache {
 protected:
  RemoteCacheOnHttp() : RemoteCache(Server::kHttp) {}
};

TEST_F(RemoteCacheOnHttp, HostsCompileWithoutWaitingForEachOther) {
  CubinCache first(host("first", true)), second(host("second", true));
  std::atomic<int> compiles{0};
  first.get_or_compile(test_key(), [&] {
    const auto start = RemoteClock::now();
    second.get_or_compile(test_key(), [&] { return ++compiles, test_binary(0); });
    EXPECT_LT(RemoteClock::now() - start, seconds(2));
    return ++compiles, test_binary(0);
  });
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(first.remote_counters().lease_waits + second.remote_counters().lease_waits, 0u);
}

TEST_F(RemoteCacheOnHttp, AServerThatForbidsWritesIsStillRead) {
  for (const int variant : {0, 2, 4}) build(variant);
  server_->end();
  server_.emplace(test::nginx_words(folder_.path(), port_, {.location = "limit_except GET { deny all; }"}), port_);
  CubinCache cache(host("limited", true));
  ask(cache, 6);
  EXPECT_EQ(cache.counters().compiles, 3u);
  EXPECT_EQ(cache.remote_counters().hits, 3u);
  const auto until = RemoteClock::now() + seconds(5);  // the first binary is sent by a thread of its own
  while (told().empty() && RemoteClock::now() < until) std::this_thread::sleep_for(milliseconds(5));
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("the server answers 403 to PUT; nothing is sent to it for"));
}

class RemoteCacheOnAFullDisk : public RemoteCacheOnHttp {
 protected:
  RemoteCacheOnAFullDisk() { nginx_.location = "if ($request_method = PUT) { return 507; }"; }
};

TEST_F(RemoteCacheOnAFullDisk, KernelsAreCompiledAndWritesAreCountedAsFailed) {
  CubinCache cache(host("builder", true));
  ask(cache, 4);
  EXPECT_EQ(cache.counters().compiles, 4u);
  const auto until = RemoteClock::now() + seconds(5);
  while (cache.remote_counters().write_failures < 4 && RemoteClock::now() < until)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(cache.remote_counters().write_failures, 4u);
  EXPECT_EQ(cache.remote_counters().writes, 0u);
}

TEST_F(RemoteCache, WithoutAKeyOnlyAServerOfThisHostIsUsed) {
  std::string fault;
  EXPECT_NE(RemoteLayer::of_options({.address = address()}, {}, fault), nullptr);
  EXPECT_EQ(RemoteLayer::of_options({.address = "redis://a:sesame@cache.example"}, {}, fault), nullptr);
  EXPECT_THAT(fault, HasSubstr("no public key is given, and the server is not on this host"));
  EXPECT_THAT(fault, Not(HasSubstr("sesame")));
  chmod((folder_ / "key.pem").c_str(), 0644);
  fault.clear();
  EXPECT_EQ(RemoteLayer::of_options({.address = address(), .signing_key = folder_ / "key.pem"}, {}, fault), nullptr);
  EXPECT_THAT(fault, HasSubstr("is readable by others (mode 0644); chmod 600 it"));
}

TEST(RemoteOptions, AClientsKeyIsReadByItsOwnerAlone) {
  const test::TempFolder folder;
  for (const char* name : {"ca.pem", "client.pem", "client.key"}) write_file(folder / name, "PEM");
  const RemoteOptions options{.address = "https://127.0.0.1/",
                              .ca = folder / "ca.pem",
                              .certificate = folder / "client.pem",
                              .certificate_key = folder / "client.key"};
  for (const char* name : {"ca.pem", "client.pem", "client.key"}) chmod((folder / name).c_str(), 0644);
  std::string fault;
  EXPECT_EQ(RemoteLayer::of_options(options, {}, fault), nullptr);
  EXPECT_THAT(fault, HasSubstr("client.key: is readable by others (mode 0644); chmod 600 it"));
  chmod((folder / "client.key").c_str(), 0600);
  chmod((folder / "ca.pem").c_str(), 0666);
  EXPECT_EQ(RemoteLayer::of_options(options, {}, fault), nullptr);
  EXPECT_THAT(fault, HasSubstr("ca.pem: it is writable by others (mode 0666)"));
  chmod((folder / "ca.pem").c_str(), 0644);
  fault.clear();
  EXPECT_NE(RemoteLayer::of_options(options, {}, fault), nullptr);
  EXPECT_EQ(fault, "");
}

}  // namespace
}  // namespace kernelwright::remote_layer_test
