// Disks that are damaged, full, read-only, owned by another user or a trap: never an error, never a wrong binary, and
// one report.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "kernelwright/runtime/cache/index.h"
#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::as_nobody;
using test::entry_path;
using test::Events;
using test::files_in;
using test::read_file;
using test::start_child;
using test::TempFolder;
using test::test_binary;
using test::test_key;
using test::wait_for;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A cache directory with one entry.
class CubinCacheDamage : public ::testing::Test {
 protected:
  void SetUp() override { CubinCache({.directory = directory()}).put(test_key(), test_binary()); }
  std::string directory() const { return folder_ / "cache"; }
  std::string entry() const { return entry_path(directory(), test_key()); }

  /// The entry was spoilt: it is not used, set aside and told of once, made again, and good from then on.
  void expect_healing(const std::string& reason) {
    Events events;
    CubinCache cache({.directory = directory(), .sink = events.sink()});
    EXPECT_EQ(cache.find(test_key()), nullptr);
    ASSERT_EQ(events.of(EventKind::kCacheQuarantine).size(), 1u);
    EXPECT_THAT(events.of(EventKind::kCacheQuarantine)[0].detail, HasSubstr(reason));
    EXPECT_EQ(cache.counters().quarantined, 1u);
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(entry())));
    bool compiled = false;
    EXPECT_EQ(*cache.get_or_compile(test_key(),
                                    [&] {
                                      compiled = true;
                                      return test_binary();
                                    }),
              test_binary());
    EXPECT_TRUE(compiled);
    CubinCache after({.directory = directory()});
    EXPECT_EQ(*after.find(test_key()), test_binary());
    EXPECT_EQ(after.counters().quarantined, 0u);
  }
  void expect_set_aside() {
    const std::filesystem::directory_iterator kept(directory() + "/quarantine");
    EXPECT_EQ(std::distance(begin(kept), end(kept)), 1);
  }
  TempFolder folder_;
};

TEST_F(CubinCacheDamage, AChangedByteIsSetAsideAndRebuilt) {
  std::string bytes = read_file(entry());
  bytes[bytes.size() / 2] ^= 1;
  write_file(entry(), bytes);
  expect_healing("damaged: the checksum differs");
  expect_set_aside();
}

TEST_F(CubinCacheDamage, EveryByteChangedOnceIsNeverLoaded) {
  const std::string good = read_file(entry());
  CubinCache cache({.directory = directory()});
  for (std::size_t i = 0; i < good.size(); i += 7) {  // each byte: CacheEntry.EveryByteChangedOnceIsDetected
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x55);
    write_file(entry(), bad);
    ASSERT_EQ(cache.find(test_key()), nullptr) << "byte " << i;
  }
  EXPECT_EQ(cache.counters().quarantined, (good.size() + 6) / 7);
}

TEST_F(CubinCacheDamage, ADamagedPtxIsMetByWhoeverReadsItAndByVerify) {
  std::string bytes = read_file(entry());
  bytes[bytes.size() - 40] ^= 1;
  write_file(entry(), bytes);
  Binary expected = test_binary();
  expected.ptx.clear();
  CubinCache cubins({.directory = directory(), .ptx = false});
  EXPECT_EQ(*cubins.find(test_key()), expected) << "its cubin is proven without it";
  EXPECT_EQ(cubins.counters().quarantined, 0u);
  const VerifyReport report = cubins.verify();
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_EQ(report.bad[0].second, "damaged: the PTX's checksum differs");
  write_file(entry(), bytes);
  expect_healing("damaged: the PTX's checksum differs");
}

TEST_F(CubinCacheDamage, ATruncatedPtxIsDamageToAllReaders) {
  std::filesystem::resize_file(entry(), std::filesystem::file_size(entry()) - 1);
  EXPECT_EQ(CubinCache({.directory = directory(), .ptx = false}).find(test_key()), nullptr);
}

TEST_F(CubinCacheDamage, ATruncatedEntryIsRebuilt) {
  std::filesystem::resize_file(entry(), 100);
  expect_healing("truncated: 100 of ");
}

TEST_F(CubinCacheDamage, AnEmptyEntryIsRebuilt) {
  std::filesystem::resize_file(entry(), 0);
  expect_healing("truncated: 0 bytes");
}

TEST_F(CubinCacheDamage, AForeignFileIsRebuilt) {
  write_file(entry(), std::string(5000, 'x'));
  expect_healing("not an entry");
}

TEST_F(CubinCacheDamage, AWrongVersionIsRebuilt) {
  std::string bytes = read_file(entry());
  bytes[8] = 9;
  write_file(entry(), bytes);
  expect_healing("format version 9; this library reads 2");
}

TEST_F(CubinCacheDamage, AGoodEntryUnderAnotherNameIsForeign) {
  CacheKey other = test_key();
  other.abi = 4;
  const auto bytes = encode_entry(other, test_binary(9));
  write_file(entry(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  expect_healing("foreign: it holds another key: abi: 4 -> 3");
}

TEST_F(CubinCacheDamage, ASymbolicLinkIsNotFollowed) {
  std::filesystem::rename(entry(), folder_ / "elsewhere");
  std::filesystem::create_symlink(folder_ / "elsewhere", entry());
  expect_healing("is a symbolic link");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "elsewhere"));
}

TEST_F(CubinCacheDamage, AFolderOrAPipeInItsPlaceIsMovedAway) {
  std::filesystem::remove(entry());
  std::filesystem::create_directory(entry());
  expect_healing("is not a regular file");
  std::filesystem::remove(entry());
  ASSERT_EQ(mkfifo(entry().c_str(), 0600), 0);
  expect_healing("is not a regular file");
}

TEST_F(CubinCacheDamage, AnEntryThatOthersMayWriteIsNotTrusted) {
  chmod(entry().c_str(), 0666);
  expect_healing("is writable by others (mode 0666)");
}

TEST_F(CubinCacheDamage, AnEntryOfAnotherUserIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a file of another user";
  ASSERT_EQ(chown(entry().c_str(), 12345, 12345), 0);
  expect_healing("belongs to uid 12345");
}

TEST_F(CubinCacheDamage, ADamagedEntryIsNotFoundWithoutACompilerEither) {
  std::string bytes = read_file(entry());
  bytes[bytes.size() - 1] ^= 1;
  write_file(entry(), bytes);  // the same file as the second name
  CacheKey none = test_key();
  none.compiler.clear();
  CubinCache cache({.directory = directory()});
  EXPECT_EQ(cache.find(none), nullptr);
  EXPECT_EQ(cache.counters().quarantined, 1u);
  cache.get_or_compile(test_key(), [] { return test_binary(); });
  EXPECT_EQ(*CubinCache({.directory = directory()}).find(none), test_binary());
}

TEST_F(CubinCacheDamage, VerifyFindsAndSetsAsideTheBadAlone) {
  CubinCache cache({.directory = directory()});
  cache.put(test_key(2), test_binary(2));
  std::filesystem::resize_file(entry(), 60);
  const VerifyReport report = cache.verify();
  EXPECT_EQ(report.checked, 2u);
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_EQ(report.bad[0].first, test_key().digest().hex());
  EXPECT_THAT(report.bad[0].second, HasSubstr("truncated"));
  EXPECT_TRUE(cache.verify().bad.empty());
  EXPECT_EQ(cache.list().size(), 1u);
}

TEST_F(CubinCacheDamage, AnIndexWithAnyContentsIsHarmless) {
  const std::string good = read_file(directory() + "/index");
  ASSERT_GE(good.size(), 2 * 88u);
  std::string torn = good + good.substr(0, 40), changed = good;
  changed[100] ^= 1;
  int variant = 100;
  for (const std::string& bytes :
       {std::string(), std::string("x"), torn, changed, std::string(100'000, '\xff'), good.substr(0, 88)}) {
    write_file(directory() + "/index", bytes);
    CubinCache cache({.directory = directory()});
    EXPECT_NE(cache.find(test_key()), nullptr);
    cache.put(test_key(++variant), test_binary());
    EXPECT_EQ(cache.counters().write_failures, 0u);
    RecencyIndex index;
    const int fd = open(directory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT_TRUE(index.refresh(fd)) << "it was made anew";
    if (bytes.size() != 88) {
      EXPECT_EQ(index.size(), cache.list().size()) << bytes.size();
    }
    close(fd);
  }
  std::filesystem::remove(directory() + "/index");
  std::filesystem::create_directory(directory() + "/index");
  CubinCache cache({.directory = directory()});
  cache.put(test_key(++variant), test_binary());
  EXPECT_EQ(cache.counters().writes, 1u);
}

/// Memory works, the reason was said once however often the disk is asked, nothing was thrown.
void expect_memory_only(CacheOptions options, const std::string& reason) {
  Events events;
  options.sink = events.sink();
  CubinCache cache(std::move(options));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(*cache.get_or_compile(test_key(i), [&] { return test_binary(i); }), test_binary(i));
  EXPECT_NE(cache.find(test_key(1)), nullptr);
  ASSERT_EQ(events.of(EventKind::kCacheDegraded).size(), 1u);
  EXPECT_THAT(events.of(EventKind::kCacheDegraded)[0].detail,
              AllOf(HasSubstr(reason), HasSubstr("kernels stay in memory")));
  EXPECT_THAT(cache.status(), HasSubstr(reason));
}

TEST(CubinCacheRefuses, ADirectoryThatOthersMayWrite) {
  TempFolder folder;
  chmod(folder.path().c_str(), 0777);
  expect_memory_only({.directory = folder.path()}, "is writable by others (mode 0777)");
  EXPECT_EQ(files_in(folder.path()), 0u);
}

TEST(CubinCacheRefuses, ADirectoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a folder of another user";
  TempFolder folder;
  ASSERT_EQ(chown(folder.path().c_str(), 12345, 12345), 0);
  expect_memory_only({.directory = folder.path()}, "belongs to uid 12345, this process runs as 0");
}

TEST(CubinCacheRefuses, ASymbolicLinkToADirectory) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_symlink(folder / "real", folder / "link");
  expect_memory_only({.directory = folder / "link"}, "symbolic link");
  expect_memory_only({.directory = (folder / "link") + "/"}, "symbolic link");
  EXPECT_EQ(files_in(folder / "real"), 0u);
}

TEST(CubinCacheRefuses, AFileInItsPlace) {
  TempFolder folder;
  write_file(folder / "file", "");
  expect_memory_only({.directory = folder / "file"}, "is not a directory");
  expect_memory_only({.directory = folder / "file/below"}, "is not a directory");
}

TEST(CubinCacheRefuses, ADirectoryThatCannotBeRead) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "cache");
  chmod((folder / "cache").c_str(), 0);
  chmod(folder.path().c_str(), 0755);
  const CacheKey key = test_key();
  EXPECT_EQ(as_nobody([&] {
              Events events;
              CubinCache cache({.directory = folder / "cache", .sink = events.sink()});
              cache.get_or_compile(key, [] { return test_binary(); });
              return events.of(EventKind::kCacheDegraded).size() == 1 && cache.find(key) ? 0 : 1;
            }),
            0);
}

TEST(CubinCacheDegrades, WhereTheDirectoryCannotBeMade) {
  TempFolder folder;
  chmod(folder.path().c_str(), 0555);
  const CacheKey key = test_key(), other = test_key(1);
  EXPECT_EQ(as_nobody([&] {
              Events events;
              CubinCache cache({.directory = folder / "cache", .sink = events.sink()});
              cache.get_or_compile(key, [] { return test_binary(); });
              cache.get_or_compile(other, [] { return test_binary(); });
              const auto told = events.of(EventKind::kCacheDegraded);
              return told.size() == 1 &&
                             told[0].detail.find("cannot be made: Permission denied (EACCES)") != std::string::npos
                         ? 0
                         : 1;
            }),
            0);
}

TEST(CubinCacheDegrades, WhereTheDirectoryIsReadOnlyAndStillReadsIt) {
  TempFolder folder;
  const std::string directory = folder / "cache";
  CubinCache({.directory = directory}).put(test_key(), test_binary());
  if (geteuid() == 0) {
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder.path()))
      ASSERT_EQ(lchown(item.path().c_str(), 65534, 65534), 0);
    chmod(folder.path().c_str(), 0755);
  }
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory))
    if (item.is_directory()) chmod(item.path().c_str(), 0555);
  chmod(directory.c_str(), 0555);
  const CacheKey key = test_key(), missing = test_key(1), another = test_key(2);
  EXPECT_EQ(as_nobody([&] {
              Events events;
              CubinCache cache({.directory = directory, .sink = events.sink()});
              if (!cache.find(key)) return 1;
              cache.get_or_compile(missing, [] { return test_binary(); });
              cache.get_or_compile(another, [] { return test_binary(); });
              if (events.of(EventKind::kCacheDegraded).size() != 1) return 2;
              return cache.counters().write_failures == 2 ? 0 : 3;
            }),
            0);
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory))
    if (item.is_directory()) chmod(item.path().c_str(), 0755);
  chmod(directory.c_str(), 0755);
}

TEST(CubinCacheDegrades, WithoutAHome) {
  EXPECT_EQ(wait_for(start_child([] {
              for (const char* name : {"HOME", "XDG_CACHE_HOME", "KERNELWRIGHT_CACHE_DIR"}) unsetenv(name);
              Events events;
              CubinCache cache({.sink = events.sink()});
              cache.get_or_compile(CacheKey{}, [] { return test_binary(); });
              const auto told = events.of(EventKind::kCacheDegraded);
              if (told.size() != 1 || told[0].detail.find("HOME names a directory") == std::string::npos) return 1;
              return cache.directory().empty() && cache.find(CacheKey{}) ? 0 : 2;
            })),
            0);
}

TEST(CubinCacheDirectory, IsFoundThroughTheEnvironmentInOrder) {
  EXPECT_EQ(wait_for(start_child([] {
              setenv("HOME", "/nonexistent/home", 1);
              unsetenv("XDG_CACHE_HOME");
              unsetenv("KERNELWRIGHT_CACHE_DIR");
              if (CubinCache(CacheOptions{}).directory() != "/nonexistent/home/.cache/kernelwright") return 1;
              setenv("XDG_CACHE_HOME", "relative/is/ignored", 1);
              if (CubinCache(CacheOptions{}).directory() != "/nonexistent/home/.cache/kernelwright") return 2;
              setenv("XDG_CACHE_HOME", "/nonexistent/xdg", 1);
              if (CubinCache(CacheOptions{}).directory() != "/nonexistent/xdg/kernelwright") return 3;
              setenv("KERNELWRIGHT_CACHE_DIR", "/nonexistent/own", 1);
              if (CubinCache(CacheOptions{}).directory() != "/nonexistent/own") return 4;
              return CubinCache({.directory = "/nonexistent/told"}).directory() == "/nonexistent/told" ? 0 : 5;
            })),
            0);
}

TEST(CubinCacheDegrades, OnAFullDisk) {
  TempFolder folder;
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=700") != 0)
    GTEST_SKIP() << "needs the right to mount a small file system; FileSizeLimit covers the rest";
  Events events;
  {
    CubinCache cache({.directory = disk, .sink = events.sink()});
    for (int i = 0; i < 30; ++i) cache.get_or_compile(test_key(i), [&] { return test_binary(i, 6000); });
    EXPECT_GT(cache.counters().writes, 0u);
    EXPECT_GT(cache.counters().write_failures, 0u);
    EXPECT_EQ(events.of(EventKind::kCacheDegraded).size(), 1u);
    EXPECT_THAT(events.of(EventKind::kCacheDegraded)[0].detail, HasSubstr("No space left on device (ENOSPC)"));
    EXPECT_EQ(files_in(disk + "/tmp"), 0u) << "nothing half-written stays";
    EXPECT_TRUE(cache.verify().bad.empty());
    for (int i = 0; i < 30; ++i) EXPECT_NE(cache.find(test_key(i)), nullptr);
  }
  umount2(disk.c_str(), MNT_DETACH);
}

TEST(CubinCacheDegrades, OnAFileSizeLimit) {
  TempFolder folder;
  const CacheKey key = test_key();
  EXPECT_EQ(wait_for(start_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1000, 1000};
              setrlimit(RLIMIT_FSIZE, &limit);
              Events events;
              CubinCache cache({.directory = folder / "cache", .sink = events.sink()});
              cache.get_or_compile(key, [] { return test_binary(); });
              if (cache.counters().write_failures != 1 || events.of(EventKind::kCacheDegraded).size() != 1) return 1;
              if (files_in(folder / "cache/tmp") != 0) return 2;
              return cache.find(key) ? 0 : 3;
            })),
            0);
  EXPECT_EQ(CubinCache({.directory = folder / "cache"}).find(key), nullptr);
}

TEST(CubinCacheLayers, AReadOnlyLayerIsFoundAndNeverWritten) {
  TempFolder folder;
  const std::string shipped = folder / "shipped", own = folder / "own";
  CubinCache({.directory = shipped}).put(test_key(), test_binary());
  const std::size_t before = files_in(shipped);
  const auto index_bytes = std::filesystem::file_size(shipped + "/index");
  CubinCache cache({.directory = own, .read_only_layers = {folder / "absent", shipped}});
  EXPECT_EQ(*cache.get_or_compile(test_key(), []() -> Binary { throw 1; }), test_binary());
  EXPECT_EQ(cache.counters().layer_hits, 1u);
  cache.put(test_key(2), test_binary(2));
  EXPECT_EQ(files_in(shipped), before);
  EXPECT_EQ(std::filesystem::file_size(shipped + "/index"), index_bytes);
  CacheKey none = test_key();
  none.compiler.clear();
  EXPECT_NE(CubinCache({.directory = own, .read_only_layers = {shipped}}).find(none), nullptr);
}

TEST(CubinCacheLayers, ADamagedEntryOfAReadOnlyLayerIsPassedOver) {
  TempFolder folder;
  const std::string shipped = folder / "shipped";
  CubinCache({.directory = shipped}).put(test_key(), test_binary());
  std::filesystem::resize_file(entry_path(shipped, test_key()), 99);
  Events events;
  CubinCache cache({.directory = folder / "own", .read_only_layers = {shipped}, .sink = events.sink()});
  EXPECT_EQ(cache.find(test_key()), nullptr);
  EXPECT_EQ(events.of(EventKind::kCacheQuarantine).size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(entry_path(shipped, test_key()))) << "it is not ours to move";
}

TEST(CubinCacheLayers, ALayerThatOthersMayWriteIsRefused) {
  TempFolder folder;
  const std::string shipped = folder / "shipped";
  CubinCache({.directory = shipped}).put(test_key(), test_binary());
  chmod(shipped.c_str(), 0777);
  Events events;
  CubinCache cache({.directory = folder / "own", .read_only_layers = {shipped}, .sink = events.sink()});
  EXPECT_EQ(cache.find(test_key()), nullptr);
  EXPECT_EQ(events.of(EventKind::kCacheDegraded).size(), 1u);
}

}  // namespace
}  // namespace kernelwright
