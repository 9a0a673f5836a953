// Several processes on one cache: one compilation per key, processes killed at every step, forks at bad moments.
#include <fcntl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/process/fork_guard.h"
#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::entry_path;
using test::Events;
using test::files_in;
using test::read_file;
using test::start_child;
using test::TempFolder;
using test::test_binary;
using test::test_key;
using test::wait_for;

// A compiler that leaves a byte in a file each time it runs.
CubinCache::Compile counting(const std::string& count_file, int sleep_ms = 0) {
  return [=] {
    const int fd = open(count_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const bool wrote = fd >= 0 && write(fd, "x", 1) == 1;
    close(fd);
    if (!wrote) throw CompileError("cannot count");
    std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms));
    return test_binary();
  };
}

TEST(CubinCacheProcesses, SixteenProcessesOfEightThreadsCompileAKeyOnce) {
  TempFolder folder;
  const CacheKey key = test_key();
  const std::string gate = folder / "gate", count = folder / "count";
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i)
    children.push_back(start_child([&] {
      CubinCache cache({.directory = folder / "cache"});
      std::atomic<int> wrong{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 8; ++t)
        threads.emplace_back([&] {
          while (access(gate.c_str(), F_OK) != 0) usleep(500);
          wrong += *cache.get_or_compile(key, counting(count, 300)) != test_binary();
        });
      for (std::thread& thread : threads) thread.join();
      return wrong.load();
    }));
  test::write_file(gate, "");
  for (const pid_t child : children) EXPECT_EQ(wait_for(child, 60), 0);
  EXPECT_EQ(read_file(count).size(), 1u);
}

TEST(CubinCacheProcesses, ManyKeysFromManyProcessesAreCompiledOnceEach) {
  TempFolder folder;
  constexpr int kKeys = 20;
  std::vector<CacheKey> keys;
  for (int i = 0; i < kKeys; ++i) keys.push_back(test_key(i));
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i)
    children.push_back(start_child([&, i] {
      CubinCache cache({.directory = folder / "cache"});
      for (int k = 0; k < kKeys; ++k)
        cache.get_or_compile(keys[static_cast<std::size_t>((k * 7 + i * 5) % kKeys)], counting(folder / "count", 5));
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child, 60), 0);
  EXPECT_EQ(read_file(folder / "count").size(), static_cast<std::size_t>(kKeys));
}

// Kills a publisher before each of its steps, in turn and repeatedly, and looks up the entry after each kill. The
// answer is right, no wait is longer than the compile, and leftovers do not pile up.
TEST(CubinCacheProcesses, AKillAtAnyStepOfAPublishLeavesACacheThatHeals) {
  TempFolder folder;
  const std::string directory = folder / "cache";
  std::vector<std::string> steps;
  CubinCache({.directory = folder / "steps", .publish_observer = [&](const char* step) { steps.emplace_back(step); }})
      .put(test_key(), test_binary());
  ASSERT_GE(steps.size(), 9u);
  const char* asked = std::getenv("KERNELWRIGHT_KILL_LOOPS");  // scripts/test.sh --kill-loops
  const int rounds = asked ? std::atoi(asked) : 200;
  ASSERT_GT(rounds, 0);
  std::size_t found = 0;
  for (int round = 0; round < rounds; ++round) {
    const CacheKey key = test_key(round);
    const std::string& fatal = steps[static_cast<std::size_t>(round) % steps.size()];
    const pid_t child = start_child([&] {
      CubinCache cache({.directory = directory, .publish_observer = [&](const char* step) {
                          if (fatal == step) kill(getpid(), SIGKILL);
                        }});
      cache.get_or_compile(key, [&] { return test_binary(round); });
      return 0;
    });
    ASSERT_EQ(wait_for(child), -SIGKILL) << fatal;
    CubinCache cache({.directory = directory});
    const auto start = std::chrono::steady_clock::now();
    bool compiled = false;
    ASSERT_EQ(*cache.get_or_compile(key,
                                    [&] {
                                      compiled = true;
                                      return test_binary(round);
                                    }),
              test_binary(round))
        << fatal;
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5))
        << fatal << ": the dead holder's lock stayed";
    ASSERT_EQ(cache.counters().quarantined, 0u) << fatal;
    found += !compiled;
    CacheKey none = key;
    none.compiler.clear();
    ASSERT_NE(CubinCache({.directory = directory}).find(none), nullptr) << fatal;
  }
  EXPECT_GT(found, 0u) << "deaths after the rename leave the entry";
  CubinCache cache({.directory = directory});
  EXPECT_EQ(cache.list().size(), static_cast<std::size_t>(rounds));
  const VerifyReport report = cache.verify();
  EXPECT_EQ(report.checked, static_cast<std::uint64_t>(rounds));
  EXPECT_TRUE(report.bad.empty());
}

TEST(CubinCacheProcesses, LeftoversOfTheDeadAreSweptAfterAnHour) {
  TempFolder folder;
  const std::string directory = folder / "cache";
  const pid_t child = start_child([&] {
    CubinCache({.directory = directory,
                .publish_observer =
                    [&](const char* step) {
                      if (std::strcmp(step, "sync") == 0) kill(getpid(), SIGKILL);
                    }})
        .put(test_key(1), test_binary());
    return 0;
  });
  ASSERT_EQ(wait_for(child), -SIGKILL);
  ASSERT_EQ(files_in(directory + "/tmp"), 1u);
  CubinCache({.directory = directory}).put(test_key(2), test_binary());
  EXPECT_EQ(files_in(directory + "/tmp"), 1u) << "a publish of this hour may still be at work";
  for (const auto& left : std::filesystem::directory_iterator(directory + "/tmp"))
    std::filesystem::last_write_time(left, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(61));
  CubinCache({.directory = directory}).put(test_key(3), test_binary());
  EXPECT_EQ(files_in(directory + "/tmp"), 0u);
}

TEST(CubinCacheProcesses, AWaitForAnotherProcessIsBounded) {
  TempFolder folder;
  const std::string directory = folder / "cache", ready = folder / "ready";
  const pid_t holder = start_child([&] {
    CubinCache cache({.directory = directory});
    cache.get_or_compile(test_key(), [&]() -> Binary {
      test::write_file(ready, "");
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return test_binary();
    });
    return 0;
  });
  while (access(ready.c_str(), F_OK) != 0) usleep(1000);
  Events events;
  CubinCache cache({.directory = directory, .lock_timeout_ms = 100, .sink = events.sink()});
  EXPECT_EQ(*cache.get_or_compile(test_key(), [] { return test_binary(); }), test_binary());
  EXPECT_EQ(cache.counters().lock_timeouts, 1u);
  EXPECT_EQ(events.of(EventKind::kLockTimeout).size(), 1u);
  kill(holder, SIGKILL);
  wait_for(holder);
}

TEST(CubinCacheProcesses, AWaitOfASecondIsToldAndIsNoCompileTime) {
  TempFolder folder;
  const std::string directory = folder / "cache", ready = folder / "ready";
  const pid_t holder = start_child([&] {
    CubinCache cache({.directory = directory});
    cache.get_or_compile(test_key(), [&]() -> Binary {
      test::write_file(ready, "");
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return test_binary();
    });
    return 0;
  });
  while (access(ready.c_str(), F_OK) != 0) usleep(1000);
  Events events;
  CubinCache cache({.directory = directory, .lock_timeout_ms = 1300, .sink = events.sink()});
  double lock_wait_ms = 0;
  cache.get_or_compile(
      test_key(), [] { return test_binary(); }, nullptr, &lock_wait_ms);
  kill(holder, SIGKILL);
  wait_for(holder);
  const auto waits = events.of(EventKind::kLockWait);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].name, test_key().entry_stem);
  EXPECT_EQ(waits[0].key, test_key().digest().hex());
  EXPECT_EQ(waits[0].detail, "another process is compiling it, and is waited for; for 2 s at most");
  EXPECT_GE(waits[0].milliseconds, 1000);
  EXPECT_GE(lock_wait_ms, 1200);
  const auto compiles = events.of(EventKind::kCompile);
  ASSERT_EQ(compiles.size(), 1u);
  EXPECT_LT(compiles[0].milliseconds, 1000);
}

TEST(CubinCacheProcesses, AWaiterTakesOverWhenTheHolderIsKilled) {
  TempFolder folder;
  const std::string directory = folder / "cache", ready = folder / "ready";
  const pid_t holder = start_child([&] {
    CubinCache cache({.directory = directory});
    cache.get_or_compile(test_key(), [&]() -> Binary {
      test::write_file(ready, "");
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return test_binary();
    });
    return 0;
  });
  while (access(ready.c_str(), F_OK) != 0) usleep(1000);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(holder, SIGKILL);
    wait_for(holder);
  });
  CubinCache cache({.directory = directory});
  EXPECT_EQ(*cache.get_or_compile(test_key(), [] { return test_binary(); }), test_binary());
  EXPECT_EQ(cache.counters().lock_timeouts, 0u);
  EXPECT_EQ(cache.counters().lock_waits, 1u);
  killer.join();
}

TEST(CubinCacheFork, AChildForkedDuringACompilationFindsAndCompiles) {
  TempFolder folder;
  CubinCache cache({.directory = folder / "cache"});
  cache.put(test_key(1), test_binary(1));
  std::atomic<bool> compiling{false}, let_go{false};
  const int generation = fork_generation();
  std::thread compiler([&] {
    cache.get_or_compile(test_key(2), [&] {
      compiling = true;
      while (!let_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return test_binary(2);
    });
  });
  while (!compiling) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::thread waiter([&] { cache.get_or_compile(test_key(2), [] { return test_binary(2); }); });
  while (cache.counters().joined == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const pid_t child = start_child([&] {
    if (fork_generation() != generation + 1) return 1;
    if (!cache.find(test_key(1)) || *cache.find(test_key(1)) != test_binary(1)) return 2;
    if (cache.find(test_key(2))) return 3;
    if (*cache.get_or_compile(test_key(3), [] { return test_binary(3); }) != test_binary(3)) return 4;
    return 0;
  });
  EXPECT_EQ(wait_for(child, 30), 0);
  // The key that the parent is compiling: the child waits for the parent's lock like any process, then helps itself.
  const pid_t second =
      start_child([&] { return *cache.get_or_compile(test_key(2), [] { return test_binary(2); }) != test_binary(2); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  let_go = true;
  EXPECT_EQ(wait_for(second, 30), 0);
  compiler.join();
  waiter.join();
  EXPECT_EQ(*cache.find(test_key(2)), test_binary(2));
}

TEST(CubinCacheFork, AChildForkedInsideACompilationMayFinishIt) {
  TempFolder folder;
  CubinCache cache({.directory = folder / "cache"});
  pid_t child = -1;
  const auto binary = cache.get_or_compile(test_key(), [&] {
    child = fork();
    return test_binary();
  });
  if (child == 0) _exit(*binary == test_binary() && cache.find(test_key()) ? 0 : 1);
  EXPECT_EQ(*binary, test_binary());
  EXPECT_EQ(wait_for(child, 30), 0);
}

TEST(CubinCacheFork, ForksAmongBusyThreadsNeverHang) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's allocator does not survive a fork while another thread allocates: a child of a "
                  "program that does nothing else waits in it for ever";
#endif
  constexpr int kThreads = 3, kKeysOfAThread = 50, kRounds = 30;
  // Made before the threads: a key asks GoogleTest for the test's name, and GoogleTest's mutex is not one that a child
  // finds free after a fork.
  std::vector<CacheKey> keys, child_keys;
  for (int i = 0; i < kThreads * kKeysOfAThread; ++i) keys.push_back(test_key(i));
  for (int i = 0; i < kRounds; ++i) child_keys.push_back(test_key(5000 + i));
  TempFolder folder;
  CubinCache cache({.directory = folder / "cache"});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i)
        cache.get_or_compile(keys[static_cast<std::size_t>(kKeysOfAThread * t + i % kKeysOfAThread)],
                             [&] { return test_binary(i); });
    });
  for (std::size_t round = 0; round < kRounds; ++round) {
    const pid_t child = start_child([&] {
      cache.find(keys[1]);
      cache.get_or_compile(child_keys[round], [] { return test_binary(); });
      return 0;
    });
    const int status = wait_for(child, 30);
    EXPECT_EQ(status, 0) << "round " << round;
    if (status != 0) break;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kernelwright
