// One process: what is found where, what is written, what threads see. cubin_cache_process_test tests processes, kills
// and forks; cubin_cache_disk_test tests hostile and broken disks.
#include "kernelwright/runtime/cache/cubin_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "kernelwright/generator/error.h"
#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::entry_path;
using test::Events;
using test::files_in;
using test::read_file;
using test::TempFolder;
using test::test_binary;
using test::test_key;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CubinCache::Compile never() {
  return []() -> Binary { throw std::logic_error("compiled although it should have been found"); };
}

TEST(CubinCache, CompilesOnceAndThenFindsInMemory) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  const auto first = cache.get_or_compile(test_key(), [] { return test_binary(); });
  EXPECT_EQ(*first, test_binary());
  EXPECT_EQ(cache.get_or_compile(test_key(), never()), first) << "the very same object";
  EXPECT_EQ(cache.find(test_key()), first);
  EXPECT_EQ(cache.counters().compiles, 1u);
  EXPECT_EQ(cache.counters().memory_hits, 2u);
  EXPECT_EQ(cache.counters().writes, 1u);
}

TEST(CubinCache, ANewCacheFindsOnDiskWithoutCompiling) {
  TempFolder folder;
  CubinCache({.directory = folder.path()}).put(test_key(), test_binary());
  Events events;
  CubinCache cache({.directory = folder.path(), .sink = events.sink()});
  EXPECT_EQ(*cache.get_or_compile(test_key(), never()), test_binary());
  EXPECT_EQ(cache.counters().disk_hits, 1u);
  EXPECT_EQ(cache.counters().misses, 0u);
  ASSERT_EQ(events.of(EventKind::kCacheHit).size(), 1u);
  EXPECT_EQ(events.of(EventKind::kCacheHit)[0].key, test_key().digest().hex());
}

TEST(CubinCache, WithoutPtxTheRestIsFound) {
  TempFolder folder;
  CubinCache({.directory = folder.path()}).put(test_key(), test_binary());
  Binary expected = test_binary();
  expected.ptx.clear();
  CubinCache cache({.directory = folder.path(), .ptx = false});
  EXPECT_EQ(*cache.find(test_key()), expected);
}

TEST(CubinCache, FindNeverCompilesAndSaysNothingIsThere) {
  TempFolder folder;
  CubinCache cache({.directory = folder / "absent"});
  EXPECT_EQ(cache.find(test_key()), nullptr);
  EXPECT_FALSE(std::filesystem::exists(folder / "absent")) << "looking makes no directory";
}

TEST(CubinCache, WithoutACompilerTheCompilersIdDecidesAndNotTheAge) {
  CacheKey first = test_key(), second = test_key(), none = test_key();
  first.compiler = "nvrtc:one";
  second.compiler = "nvrtc:two";
  none.compiler.clear();
  const Binary wanted =
      compiler_rank(first.compiler) < compiler_rank(second.compiler) ? test_binary(1) : test_binary(2);
  for (const bool swapped : {false, true}) {
    TempFolder folder;
    {
      CubinCache cache({.directory = folder.path()});
      if (swapped) cache.put(second, test_binary(2));
      cache.put(first, test_binary(1));
      if (!swapped) cache.put(second, test_binary(2));
      EXPECT_EQ(*cache.find(none), wanted) << "in memory";
    }
    CubinCache cache({.directory = folder.path()});
    EXPECT_EQ(*cache.find(none), wanted) << "on disk";
    EXPECT_EQ(*cache.find(first), test_binary(1));
    EXPECT_EQ(*cache.find(second), test_binary(2));
    EXPECT_EQ(*cache.find(none), wanted) << "in memory, beside the others";
    CacheKey other = none;
    other.arch = "sm_80";
    EXPECT_EQ(cache.find(other), nullptr);
  }
}

TEST(CubinCache, WithoutACompilerAnotherBuildServesWhereTheFirstIsGone) {
  TempFolder folder;
  CacheKey keys[2] = {test_key(), test_key()}, none = test_key();
  keys[0].compiler = "nvrtc:one";
  keys[1].compiler = "nvrtc:two";
  none.compiler.clear();
  for (int i = 0; i < 2; ++i) CubinCache({.directory = folder.path()}).put(keys[i], test_binary(i));
  const int chosen = compiler_rank(keys[0].compiler) < compiler_rank(keys[1].compiler) ? 0 : 1;
  write_file(entry_path(folder.path(), keys[chosen]), "damaged");
  EXPECT_EQ(*CubinCache({.directory = folder.path()}).find(none), test_binary(1 - chosen));
}

TEST(CubinCache, AFailureReachesEveryWaiterAndIsRememberedInMemoryOnly) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  std::atomic<int> compiles{0}, failures{0};
  auto fail = [&]() -> Binary {
    ++compiles;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    throw CompileError("line 3: no such thing");
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      try {
        cache.get_or_compile(test_key(), fail);
      } catch (const CompileError& error) {
        failures += std::string(error.what()) == "line 3: no such thing";
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 8);
  EXPECT_EQ(compiles, 1);
  EXPECT_THROW(cache.get_or_compile(test_key(), never()), CompileError);
  EXPECT_EQ(cache.counters().compile_failures, 1u);
  EXPECT_FALSE(std::filesystem::exists(entry_path(folder.path(), test_key())));
  CubinCache fresh({.directory = folder.path()});
  EXPECT_EQ(*fresh.get_or_compile(test_key(), [] { return test_binary(); }), test_binary());
}

TEST(CubinCache, AFailureIsForgottenInTime) {
  CubinCache cache({.disk = false, .failure_ttl_ms = 30});
  EXPECT_THROW(cache.get_or_compile(test_key(), []() -> Binary { throw CompileError("no"); }), CompileError);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(*cache.get_or_compile(test_key(), [] { return test_binary(); }), test_binary());
}

TEST(CubinCache, AFailureThatIsNotTheCompilersIsNotRemembered) {
  CubinCache cache({.disk = false});
  EXPECT_THROW(cache.get_or_compile(test_key(), []() -> Binary { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_EQ(*cache.get_or_compile(test_key(), [] { return test_binary(); }), test_binary());
}

TEST(CubinCache, ACompilationThatAsksForItselfIsAnErrorAndNoDeadlock) {
  CubinCache cache({.disk = false});
  EXPECT_THROW(cache.get_or_compile(test_key(), [&] { return *cache.get_or_compile(test_key(), never()); }), Error);
}

TEST(CubinCache, ThreadsCompileDifferentKeysAtOnce) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  auto compile = [&] {  // returns once both are compiling, or after 10 s
    ++inside;
    for (int i = 0; i < 2000 && !met; ++i) {
      if (inside == 2) met = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return test_binary();
  };
  std::thread other([&] { cache.get_or_compile(test_key(1), compile); });
  cache.get_or_compile(test_key(2), compile);
  other.join();
  EXPECT_TRUE(met);
}

TEST(CubinCache, WritesPrivateFilesAndNoLeftovers) {
  TempFolder folder;
  const std::string directory = folder / "deep/er/cache";
  CubinCache cache({.directory = directory});
  cache.put(test_key(), test_binary());
  EXPECT_EQ(files_in(directory + "/tmp"), 0u);
  struct stat info {};
  ASSERT_EQ(stat(directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(entry_path(directory, test_key()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(CubinCache, TheFileHoldsTheEntryAndNothingElse) {
  TempFolder folder;
  CubinCache({.directory = folder.path()}).put(test_key(), test_binary());
  const std::vector<std::byte> expected = encode_entry(test_key(), test_binary());
  const std::string bytes = read_file(entry_path(folder.path(), test_key()));
  ASSERT_EQ(bytes.size(), expected.size());
  EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0);
}

TEST(CubinCache, ADirectoryRemovedUnderItIsMadeAgain) {
  TempFolder folder;
  const std::string directory = folder / "cache";
  CubinCache cache({.directory = directory});
  cache.put(test_key(1), test_binary(1));
  std::filesystem::remove_all(directory);
  cache.put(test_key(2), test_binary(2));
  EXPECT_EQ(cache.counters().write_failures, 0u);
  EXPECT_EQ(*CubinCache({.directory = directory}).find(test_key(2)), test_binary(2));
}

TEST(CubinCache, EvictsTheLeastRecentlyUsedAndKeepsWhatIsHeld) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path(), .max_entries = 10});
  const auto held = cache.get_or_compile(test_key(0), [] { return test_binary(0); });
  const std::string path = entry_path(folder.path(), test_key(0));
  std::ifstream opened(path, std::ios::binary);
  const std::string before = read_file(path);
  for (int i = 1; i < 10; ++i) cache.put(test_key(i), test_binary(i));
  for (int i = 0; i < 10; ++i) {
    const timespec old[2] = {{std::time(nullptr) - 100'000 + i, 0}, {std::time(nullptr) - 100'000 + i, 0}};
    utimensat(AT_FDCWD, entry_path(folder.path(), test_key(i)).c_str(), old, 0);
  }
  std::filesystem::remove(folder / "index");  // so that the times above are all that is known
  CubinCache full({.directory = folder.path(), .max_entries = 10});
  full.put(test_key(10), test_binary(10));
  EXPECT_EQ(full.counters().evicted, 2u) << "one tenth below the bound";
  EXPECT_EQ(cache.list().size(), 9u);
  EXPECT_FALSE(std::filesystem::exists(entry_path(folder.path(), test_key(1))));
  EXPECT_TRUE(std::filesystem::exists(entry_path(folder.path(), test_key(2))));
  EXPECT_FALSE(std::filesystem::exists(path)) << "the oldest went";
  EXPECT_TRUE(std::filesystem::exists(entry_path(folder.path(), test_key(10)))) << "the newest stayed";
  EXPECT_EQ(*held, test_binary(0));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(opened), {}), before) << "an opened entry stays readable";
  EXPECT_EQ(files_in(folder / "any"), cache.list().size()) << "second names went with their entries";
}

TEST(CubinCache, AUseMovesAnEntryToTheEndOfTheLine) {
  TempFolder folder;
  {
    CubinCache writer({.directory = folder.path()});
    for (int i = 0; i < 4; ++i) writer.put(test_key(i), test_binary(i));
  }
  for (int i = 0; i < 4; ++i) {  // all were used long ago, 0 before 1 before 2 before 3
    const timespec old[2] = {{std::time(nullptr) - 100'000 + i, 0}, {std::time(nullptr) - 100'000 + i, 0}};
    utimensat(AT_FDCWD, entry_path(folder.path(), test_key(i)).c_str(), old, 0);
  }
  std::filesystem::remove(folder / "index");
  CubinCache cache({.directory = folder.path()});
  cache.prune();  // makes the index anew, from the times
  ASSERT_NE(cache.find(test_key(0)), nullptr);
  EXPECT_EQ(cache.prune({.max_entries = 2}), 2u);
  EXPECT_TRUE(std::filesystem::exists(entry_path(folder.path(), test_key(0))));
  EXPECT_TRUE(std::filesystem::exists(entry_path(folder.path(), test_key(3))));
}

TEST(CubinCache, ARecentlyUsedEntryIsNotTouchedAgain) {
  TempFolder folder;
  CubinCache({.directory = folder.path()}).put(test_key(), test_binary());
  const auto size = std::filesystem::file_size(folder / "index");
  ASSERT_NE(CubinCache({.directory = folder.path()}).find(test_key()), nullptr);
  EXPECT_EQ(std::filesystem::file_size(folder / "index"), size);
}

TEST(CubinCache, KeepsTheBoundInBytes) {
  TempFolder folder;
  const std::uint64_t each = encode_entry(test_key(0), test_binary(0)).size();
  CubinCache cache({.directory = folder.path(), .max_bytes = 5 * each + each / 2});
  for (int i = 0; i < 12; ++i) cache.put(test_key(i), test_binary(i));
  std::uint64_t bytes = 0;
  for (const EntrySummary& entry : cache.list()) bytes += entry.file_bytes;
  EXPECT_LE(bytes, 5 * each + each / 2);
  EXPECT_GE(cache.list().size(), 3u);
}

TEST(CubinCache, PruneTakesAnAge) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  cache.put(test_key(), test_binary());
  EXPECT_EQ(cache.prune({.max_age_s = 3600}), 0u);
  EXPECT_EQ(cache.prune({.max_bytes = 0}), 1u);
}

TEST(CubinCache, ListTellsWhatIsThere) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  cache.put(test_key(), test_binary());
  const std::vector<EntrySummary> entries = cache.list();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, test_key().digest().hex());
  EXPECT_EQ(entries[0].key, test_key());
  EXPECT_EQ(entries[0].binary.usage, test_binary().usage);
  EXPECT_TRUE(entries[0].binary.cubin.empty());
  EXPECT_EQ(entries[0].fault, "");
  EXPECT_NEAR(static_cast<double>(entries[0].last_used_s), static_cast<double>(std::time(nullptr)), 60);
}

TEST(CubinCache, ClearRemovesEverything) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  cache.put(test_key(1), test_binary(1));
  cache.put(test_key(2), test_binary(2));
  EXPECT_EQ(cache.clear(), 2u);
  EXPECT_EQ(cache.find(test_key(1)), nullptr);
  EXPECT_EQ(files_in(folder / "any"), 0u);
  cache.put(test_key(1), test_binary(1));
  EXPECT_EQ(cache.list().size(), 1u);
}

TEST(CubinCache, WhyMissedNamesTheNearestEntryAndTheField) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  EXPECT_EQ(cache.why_missed(test_key()), "no entry of kernel 'attention_portable'");
  cache.put(test_key(), test_binary());
  CacheKey far = test_key(1);
  far.arch = "sm_80";
  far.abi = 9;
  cache.put(far, test_binary());
  CacheKey wanted = test_key();
  wanted.spec.replace(wanted.spec.find("num_stages = 2"), 14, "num_stages = 3");
  const std::string name = test_key().digest().hex().substr(0, 12);
  EXPECT_EQ(cache.why_missed(wanted), "nearest entry " + name + ": spec: num_stages 2 -> 3");
  wanted = test_key();
  wanted.compiler = "nvrtc:89ab";
  EXPECT_EQ(cache.why_missed(wanted), "nearest entry " + name + ": compiler: nvrtc:0123+builtins:4567 -> nvrtc:89ab");
  EXPECT_EQ(cache.why_missed(test_key()), "entry " + name + " has this key");
}

TEST(CubinCache, AMissTellsWhichFieldDiffered) {
  TempFolder folder;
  Events events;
  CubinCache cache({.directory = folder.path(), .sink = events.sink()});
  cache.put(test_key(), test_binary());
  CacheKey wanted = test_key();
  wanted.abi = 4;
  cache.get_or_compile(wanted, [] { return test_binary(); });
  ASSERT_EQ(events.of(EventKind::kCacheMiss).size(), 1u);
  EXPECT_THAT(events.of(EventKind::kCacheMiss)[0].detail, HasSubstr(": abi: 3 -> 4"));
  EXPECT_EQ(events.of(EventKind::kCompile).size(), 1u);
}

TEST(CubinCache, MemoryLetsGoOfWhatNobodyHoldsBeyondItsBound) {
  CubinCache cache({.disk = false, .max_memory_bytes = 10'000});
  const auto held = cache.get_or_compile(test_key(0), [] { return test_binary(0); });
  for (int i = 1; i < 8; ++i) cache.put(test_key(i), test_binary(i));
  EXPECT_EQ(cache.find(test_key(0)), held);
  int left = 0;
  for (int i = 1; i < 8; ++i) left += cache.find(test_key(i)) != nullptr;
  EXPECT_LT(left, 4);
}

TEST(CubinCache, FurtherLayersAreAskedInOrder) {
  struct Layer : CacheLayer {
    int asked = 0;
    std::string status() const override { return "a layer for tests"; }
    std::optional<Binary> find(const CacheKey&) override {
      ++asked;
      return test_binary(5);
    }
  };
  const auto layer = std::make_shared<Layer>();
  TempFolder folder;
  CubinCache cache({.directory = folder.path(), .more_layers = {layer}});
  EXPECT_EQ(*cache.get_or_compile(test_key(), never()), test_binary(5));
  EXPECT_EQ(cache.find(test_key())->entry, test_binary(5).entry);
  EXPECT_EQ(layer->asked, 1) << "then it is in memory";
  EXPECT_EQ(cache.counters().layer_hits, 1u);
  EXPECT_THAT(cache.status(), HasSubstr("a layer for tests"));
}

TEST(CubinCache, StatusSaysWhichLayersAreOn) {
  TempFolder folder;
  CubinCache cache({.directory = folder.path()});
  EXPECT_THAT(cache.status(), HasSubstr("directory " + folder.path() + ": on"));
  EXPECT_EQ(cache.directory(), folder.path());
  EXPECT_THAT(CubinCache({.disk = false}).status(), HasSubstr("directory: off: switched off"));
}

}  // namespace
}  // namespace kernelwright
