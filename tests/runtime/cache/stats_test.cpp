// What a cache directory records about itself over several runs: statistics of all its users, and its limit.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <ctime>
#include <thread>

#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/cache/numbers.h"
#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::Events;
using test::start_child;
using test::TempFolder;
using test::test_binary;
using test::test_key;
using test::wait_for;
using test::write_file;
using ::testing::HasSubstr;
using ::testing::SizeIs;

CacheOptions options_in(const std::string& directory) {
  CacheOptions options;
  options.directory = directory;
  return options;
}

void compile(CubinCache& cache, int variant, std::size_t cubin_bytes = 3000) {
  cache.get_or_compile(test_key(variant), [&] { return test_binary(variant, cubin_bytes); });
}

CacheStats stats_of(const std::string& directory) { return CubinCache(options_in(directory)).stats(); }

TEST(CacheStats, AddUpOverRuns) {
  const TempFolder folder;
  const std::string directory = folder / "cache";
  EXPECT_EQ(stats_of(directory).runs, 0u);
  EXPECT_FALSE(std::filesystem::exists(directory)) << "asking makes no directory";
  {
    CubinCache cache(options_in(directory));
    compile(cache, 0);
    compile(cache, 1);
    compile(cache, 1);
    EXPECT_THROW(cache.get_or_compile(test_key(2), []() -> Binary { throw std::runtime_error("no"); }),
                 std::runtime_error);
    EXPECT_EQ(cache.stats().compiles, 2u) << "without waiting for the end of the run";
  }
  for (int run = 0; run < 3; ++run) {
    CubinCache cache(options_in(directory));
    EXPECT_TRUE(cache.find(test_key(0)));
    compile(cache, 1);
  }
  CacheOptions layered = options_in(folder / "other");
  layered.read_only_layers = {directory};
  CubinCache(layered).find(test_key(0));

  const CacheStats stats = stats_of(directory);
  EXPECT_EQ(stats.fault, "");
  EXPECT_EQ(stats.runs, 4u);
  EXPECT_EQ(stats.compiles, 2u);
  EXPECT_EQ(stats.compile_failures, 1u);
  EXPECT_EQ(stats.memory_hits, 1u);
  EXPECT_EQ(stats.disk_hits, 6u);
  EXPECT_EQ(stats.layer_hits, 0u) << "a layer's users count in their own directory";
  EXPECT_NEAR(stats.saved_s, 6 * 0.2745, 1e-3);
  const std::size_t code = 3000 + test_binary().ptx.size();
  EXPECT_EQ(stats.bytes_written, 2 * code);
  EXPECT_EQ(stats.bytes_read, 6 * code);
  EXPECT_NEAR(static_cast<double>(stats.since_s), static_cast<double>(std::time(nullptr)), 100);
}

TEST(CacheStats, OfManyProcessesLackNothing) {
  const TempFolder folder;
  const std::string directory = folder / "cache";
  {
    CubinCache cache(options_in(directory));
    for (int i = 0; i < 4; ++i) compile(cache, i);
  }
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i)
    children.push_back(start_child([&] {
      CubinCache cache(options_in(directory));
      for (int key = 0; key < 4; ++key)
        if (!cache.find(test_key(key))) return 1;
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child, 60), 0);
  const CacheStats stats = stats_of(directory);
  EXPECT_EQ(stats.runs, 13u);
  EXPECT_EQ(stats.disk_hits, 48u);
}

TEST(CacheStats, AdditionsOfThreadsAndProcessesExcludeEachOther) {
  const TempFolder folder;
  const Fd directory(open(folder.path().c_str(), O_RDONLY | O_DIRECTORY));
  const auto add_50 = [&] {
    for (int i = 0; i < 50; ++i)
      if (!add_numbers(directory.get(), "stats", Trust::kOwnOnly, {{"a", 1}, {"b", 2}}, {{"first", 7}}, 60'000)) return;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i)
    children.push_back(start_child([&] {
      std::thread other(add_50);
      add_50();
      other.join();
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child, 100), 0);
  const NumbersFile file = read_numbers(directory.get(), "stats", Trust::kOwnOnly);
  EXPECT_EQ(file.fault, "");
  EXPECT_EQ(file.numbers, (Numbers{{"a", 300}, {"b", 600}, {"first", 7}}));
}

TEST(CacheStats, AKilledProcessLeavesThemWhole) {
  const TempFolder folder;
  const Fd directory(open(folder.path().c_str(), O_RDONLY | O_DIRECTORY));
  std::uint64_t before = 0;
  for (int kill_after_us = 500; kill_after_us < 20'000; kill_after_us += 1300) {
    const pid_t child = start_child([&] {
      for (;;) add_numbers(directory.get(), "stats", Trust::kOwnOnly, {{"a", 1}}, {}, 0);
      return 0;
    });
    usleep(static_cast<useconds_t>(kill_after_us));
    kill(child, SIGKILL);
    wait_for(child);
    NumbersFile file = read_numbers(directory.get(), "stats", Trust::kOwnOnly);
    ASSERT_EQ(file.fault, "");
    ASSERT_GE(file.numbers["a"], before);
    before = file.numbers["a"];
    EXPECT_TRUE(add_numbers(directory.get(), "stats", Trust::kOwnOnly, {{"a", 1}}, {}, 0)) << "its lock went with it";
  }
  EXPECT_GT(before, 0u);
}

TEST(CacheStats, AForkedChildAddsItsOwnAlone) {
  const TempFolder folder;
  const std::string directory = folder / "cache";
  {
    CubinCache cache(options_in(directory));
    compile(cache, 0);
    EXPECT_EQ(wait_for(start_child([&] {
                         compile(cache, 1);
                         return cache.stats().compiles == 1 ? 0 : 1;
                       }),
                       60),
              0);
  }
  EXPECT_EQ(stats_of(directory).compiles, 2u);
}

// Every way in which the file may be wrong: kernels are still compiled, stored and found.
TEST(CacheStats, AnythingInTheirPlaceHurtsNothing) {
  const std::string whole = [] {
    const TempFolder folder;
    const Fd at(open(folder.path().c_str(), O_RDONLY | O_DIRECTORY));
    write_numbers(at.get(), "stats", {{"disk_hits", 5}});
    return test::read_file(folder / "stats");
  }();
  ASSERT_THAT(whole, ::testing::StartsWith("kernelwright numbers 1\ndisk_hits 5\ncheck "));
  std::string changed = whole;
  changed[whole.find('5')] = '6';
  const auto text = [](std::string bytes) { return [bytes](const std::string& path) { write_file(path, bytes); }; };
  struct Case {
    const char* what;
    std::function<void(const std::string&)> make;
    bool can_be_replaced = true;
  };
  for (const auto& [what, make, can_be_replaced] :
       {Case{"empty", text("")}, Case{"another number", text(changed)}, Case{"cut", text(whole.substr(0, 40))},
        Case{"cut by one", text(whole.substr(0, whole.size() - 1))}, Case{"longer", text(whole + "x")},
        Case{"zeros", text(std::string(4096, '\0'))}, Case{"too long", text(std::string(1 << 20, 'x'))},
        Case{"a symbolic link", [](const std::string& path) { std::filesystem::create_symlink("/etc/passwd", path); }},
        Case{"writable by others",
             [&](const std::string& path) {
               write_file(path, whole);
               chmod(path.c_str(), 0666);
             }},
        Case{"a pipe", [](const std::string& path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }},
        Case{"a folder", [](const std::string& path) { std::filesystem::create_directories(path + "/x"); }, false}}) {
    const TempFolder folder;
    const std::string directory = folder / "cache";
    {
      CubinCache cache(options_in(directory));
      compile(cache, 0);
    }
    std::filesystem::remove(directory + "/stats");
    make(directory + "/stats");
    EXPECT_NE(stats_of(directory).fault, "") << what;
    Events events;
    {
      CacheOptions options = options_in(directory);
      options.sink = events.sink();
      CubinCache cache(options);
      EXPECT_TRUE(cache.find(test_key(0))) << what;
      compile(cache, 1);
      EXPECT_TRUE(CubinCache(options_in(directory)).find(test_key(1))) << what;
      EXPECT_EQ(cache.stats().compiles, 1u) << what;
    }
    EXPECT_THAT(events.of(EventKind::kCacheDegraded), SizeIs(0)) << what;
    const CacheStats after = stats_of(directory);
    EXPECT_EQ(after.fault.empty(), can_be_replaced) << what;
    EXPECT_EQ(after.compiles, can_be_replaced ? 1u : 0u) << what;
  }
}

TEST(CacheStats, WhereNothingCanBeWrittenHitsAreServed) {
  const TempFolder folder;
  const std::string directory = folder / "cache";
  CubinCache(options_in(directory)).put(test_key(), test_binary());
  if (geteuid() == 0) {
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder.path()))
      ASSERT_EQ(lchown(item.path().c_str(), 65534, 65534), 0);
    chmod(folder.path().c_str(), 0755);
  }
  std::vector<std::string> locked{directory};
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory))
    if (item.is_directory()) locked.push_back(item.path());
  for (const std::string& path : locked) chmod(path.c_str(), 0555);
  EXPECT_EQ(test::as_nobody([&] {
              CubinCache cache(options_in(directory));
              if (!cache.find(test_key())) return 1;
              return cache.stats().disk_hits == 1 ? 0 : 2;
            }),
            0);
  for (const std::string& path : locked) chmod(path.c_str(), 0755);
}

TEST(CacheLimit, IsKeptInTheDirectoryAndTheSmallerOneHolds) {
  const TempFolder folder;
  const std::string directory = folder / "cache";
  CubinCache early(options_in(directory));
  EXPECT_EQ(early.max_bytes(), kDefaultCacheBytes);
  EXPECT_EQ(CubinCache(options_in(directory)).set_max_bytes(50'000), "");
  EXPECT_EQ(early.max_bytes(), 50'000u) << "a cache that was open before goes by it, too";
  for (int i = 0; i < 12; ++i) compile(early, i, 10'000);
  EXPECT_LE(early.list().size(), 5u);
  EXPECT_GE(early.counters().evicted, 7u);
  early.clear();
  EXPECT_EQ(early.max_bytes(), 50'000u) << "clear() takes kernels";

  CacheOptions own = options_in(directory);
  own.max_bytes = 20'000;
  EXPECT_EQ(CubinCache(own).max_bytes(), 20'000u);
  own.max_bytes = 90'000;
  EXPECT_EQ(CubinCache(own).max_bytes(), 50'000u) << "what was set for the directory binds all who use it";
  EXPECT_EQ(early.set_max_bytes(std::nullopt), "");
  EXPECT_EQ(early.max_bytes(), kDefaultCacheBytes);
  EXPECT_EQ(CubinCache(own).max_bytes(), 90'000u);
}

TEST(CacheLimit, PruneGoesByIt) {
  const TempFolder folder;
  CubinCache cache(options_in(folder / "cache"));
  for (int i = 0; i < 5; ++i) compile(cache, i, 10'000);
  EXPECT_EQ(cache.prune(), 0u);
  EXPECT_EQ(cache.set_max_bytes(25'000), "");
  EXPECT_EQ(cache.prune(), 3u);
}

TEST(CacheLimit, ADamagedOneIsToldOnceAndDoesNotHold) {
  const TempFolder folder;
  const std::string directory = folder / "cache";
  EXPECT_EQ(CubinCache(options_in(directory)).set_max_bytes(50'000), "");
  write_file(directory + "/limit", "max_bytes 7\n");
  Events events;
  CacheOptions options = options_in(directory);
  options.sink = events.sink();
  CubinCache cache(options);
  compile(cache, 0);
  compile(cache, 1);
  EXPECT_EQ(cache.max_bytes(), kDefaultCacheBytes);
  const auto told = events.of(EventKind::kCacheDegraded);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_THAT(told[0].detail, HasSubstr("its file limit is damaged"));
}

TEST(CacheLimit, SaysWhyItCannotBeKept) {
  const TempFolder folder;
  write_file(folder / "file", "");
  EXPECT_THAT(CubinCache(options_in(folder / "file")).set_max_bytes(1), HasSubstr("is not a directory"));
  CacheOptions none;
  none.disk = false;
  EXPECT_EQ(CubinCache(none).set_max_bytes(1), "no cache directory: switched off");
}

}  // namespace
}  // namespace kernelwright
