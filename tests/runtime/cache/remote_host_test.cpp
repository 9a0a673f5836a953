// A host with a full disk, values of builders whose clock is wrong, and values that were recorded and sent again.
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <limits>

#include "kernelwright/runtime/cache/envelope.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "runtime/cache/remote_cache.h"

namespace kernelwright::remote_host_test {
namespace {

using std::chrono::seconds;
using test::test_binary, test::test_key;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class RemoteHost : public test::RemoteCacheTest {
 protected:
  static std::string name_of(const CacheKey& key) { return "kw2/sm_90a/" + key.digest().hex(); }
  static Deadline soon() { return RemoteClock::now() + seconds(2); }
  std::vector<std::byte> value_of(const CacheKey& key) {
    return make_remote_transport(address(), "")->get(name_of(key), soon()).value;
  }
  void put(const CacheKey& key, std::span<const std::byte> value) {
    EXPECT_EQ(make_remote_transport(address(), "")->put(name_of(key), value, soon()).outcome, RemoteOutcome::kDone);
  }
};

Binary never() { throw std::logic_error("compiled"); }

/// Asks for what the server has, and for what is compiled. Returns 0 if both kernels are right, one event tells of the
/// disk, and a second host gets what this one has compiled.
int serve_without_disk(const CacheOptions& options, const std::function<std::vector<Event>()>& told) {
  {
    CubinCache cache(options);
    if (*cache.get_or_compile(test_key(0), never) != test_binary(0, 100'000)) return 1;
    if (*cache.get_or_compile(test_key(1), [] { return test_binary(1, 100'000); }) != test_binary(1, 100'000)) return 2;
    if (cache.remote_counters().hits != 1 || cache.counters().compiles != 1) return 3;
    if (cache.counters().write_failures != 2 || told().size() != 1) return 4;
    if (*cache.get_or_compile(test_key(0), never) != test_binary(0, 100'000)) return 5;
  }
  return test::files_in(*options.directory + "/tmp") == 0 ? 0 : 6;  // nothing half-written stays
}

TEST_F(RemoteHost, WithAFullDiskServesFromMemory) {
  CubinCache(host("builder", true)).get_or_compile(test_key(0), [] { return test_binary(0, 100'000); });
  const std::string disk = folder_ / "disk";
  ASSERT_EQ(mkdir(disk.c_str(), 0700), 0);
  if (mount("none", disk.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=700") != 0)
    GTEST_SKIP() << "needs the right to mount a small file system; WithALimitOfFiles covers the rest";
  CacheOptions options = host("full", true);
  options.directory = disk;
  EXPECT_EQ(serve_without_disk(options, [this] { return told(); }), 0);
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("No space left on device (ENOSPC)"));
  umount2(disk.c_str(), MNT_DETACH);
  EXPECT_EQ(*CubinCache(host("next", false)).get_or_compile(test_key(1), never), test_binary(1, 100'000));
}

TEST_F(RemoteHost, WithALimitOfFilesServesFromMemory) {
  CubinCache(host("builder", true)).get_or_compile(test_key(0), [] { return test_binary(0, 100'000); });
  EXPECT_EQ(test::wait_for(test::start_child([this] {
                             signal(SIGXFSZ, SIG_IGN);
                             const rlimit limit{1000, 1000};
                             setrlimit(RLIMIT_FSIZE, &limit);
                             return serve_without_disk(host("full", true), [this] { return told(); });
                           }),
                           20),
            0);
  EXPECT_EQ(*CubinCache(host("next", false)).get_or_compile(test_key(1), never), test_binary(1, 100'000));
}

TEST_F(RemoteHost, TakesValuesFromAnyClock) {
  build(0);
  const std::vector<std::byte> value = value_of(test_key(0));
  const OpenedEnvelope opened =
      open_envelope(value, test_key(0).digest(), {{*public_key_of_pem(test::kPublicPem)}, false}).envelope.value();
  const std::optional<SigningKey> key = signing_key_of_pem(test::kSigningPem);
  for (const std::int64_t time : {std::int64_t{0}, std::int64_t{-1}, opened.created_s - 400 * 86400,
                                  opened.created_s + 400 * 86400, std::numeric_limits<std::int64_t>::max()}) {
    put(test_key(0), make_envelope(test_key(0).digest(), opened.entry, time, &*key));
    CubinCache reader(host("reader" + std::to_string(time), false));
    EXPECT_EQ(*reader.get_or_compile(test_key(0), never), test_binary(0)) << time;
  }
  EXPECT_THAT(told(), SizeIs(0));
}

/// A key is all that goes into a compile, so an older build of it is the right kernel too.
TEST_F(RemoteHost, TakesAnOlderBuildOfTheSameKeyAndOfNoOther) {
  build(0);
  build(1);
  const std::vector<std::byte> older = value_of(test_key(0));
  put(test_key(0), {});  // so that another host builds it anew
  CubinCache(host("rebuilder", true)).get_or_compile(test_key(0), [] { return test_binary(7); });
  EXPECT_EQ(*CubinCache(host("before", false)).get_or_compile(test_key(0), never), test_binary(7));
  told_.clear();
  put(test_key(0), older);
  put(test_key(1), older);  // under a name that is not its own
  CubinCache reader(host("reader", false));
  EXPECT_EQ(*reader.get_or_compile(test_key(0), never), test_binary(0));
  EXPECT_EQ(*reader.get_or_compile(test_key(1), [] { return test_binary(1); }), test_binary(1));
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("is of another kernel"));
  // Its builder's key is not trusted any more.
  EXPECT_EQ(*CubinCache(host("other", false, "other.pub")).get_or_compile(test_key(0), [] { return test_binary(3); }),
            test_binary(3));
}

}  // namespace
}  // namespace kernelwright::remote_host_test
