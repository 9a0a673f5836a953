// The slots of a host: how many there are, and that all compiles of its servers share them.
#include "kernelwright/runtime/workers/host_slots.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/workers/testing.h"

namespace kernelwright::host_slots_test {
namespace {

using test::CompileWorkersTest, test::children, test::log_line, test::request_of;
using Clock = std::chrono::steady_clock;

TEST_F(CompileWorkersTest, ThreadsCompileSideBySideUpToTheHostsSlots) {
  options.most_per_host = 2;
  CompileWorkers first = workers(), second = workers();  // as two servers of one host
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      CompileWorkers& compiler = i % 2 ? first : second;
      const std::unique_ptr<CompileRoom> room = compiler.room();
      room->take();
      EXPECT_TRUE(compiler.compile(request_of("do sleep")).compiled);
    });
  std::size_t most = 0;
  std::atomic<bool> done{false};
  std::thread watcher([&] {
    while (!done) {
      most = std::max(most, children().size());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const auto begin = Clock::now();
  for (std::thread& thread : threads) thread.join();
  done = true;
  watcher.join();
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(800)) << "three rounds of two compiles";
  EXPECT_LE(most, 4u);
}

struct Compiled {
  long long began_us = 0, ended_us = 0;
};

/// Most compiles that ran at one moment.
std::size_t most_at_once(const std::vector<Compiled>& compiles) {
  std::size_t most = 0;
  for (const Compiled& one : compiles)
    most = std::max(most, static_cast<std::size_t>(std::ranges::count_if(compiles, [&](const Compiled& other) {
                      return other.began_us <= one.began_us && one.began_us < other.ended_us;
                    })));
  return most;
}

// Each server compiles three kernels at once, and the host has two slots.
TEST_F(CompileWorkersTest, TwoServerProcessesShareTheHostsSlots) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no threads in a forked child";
#endif
  options.most_per_host = 2;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t servers[2];
  for (pid_t& server : servers) {
    server = fork();
    if (server != 0) continue;
    CompileWorkers compiler = workers();
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        const std::unique_ptr<CompileRoom> room = compiler.room();
        room->take();
        const CompileAnswer answer = compiler.compile(request_of("do sleep"));
        const Compiled compiled{std::stoll(log_line(answer, "began")), std::stoll(log_line(answer, "ended"))};
        if (write(ends[1], &compiled, sizeof compiled) != sizeof compiled) _exit(1);
      });
    for (std::thread& thread : threads) thread.join();
    _exit(0);
  }
  close(ends[1]);
  std::vector<Compiled> compiles;
  for (Compiled each; read(ends[0], &each, sizeof each) == sizeof each;) compiles.push_back(each);
  close(ends[0]);
  for (const pid_t server : servers) {
    int status = -1;
    waitpid(server, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ASSERT_EQ(compiles.size(), 6u);
  EXPECT_EQ(most_at_once(compiles), 2u);
}

/// The files that HostResources reads, below a folder.
struct FakeHost {
  const std::string root = ::testing::TempDir() + fmt::format("compile-host-{}", getpid());
  FakeHost() {
    std::filesystem::create_directories(root + "/proc");
    std::filesystem::create_directories(root + "/sys/fs/cgroup");
    write("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n");
  }
  ~FakeHost() { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& text) const { std::ofstream(root + path) << text; }
  HostResources read() const { return HostResources::read(root); }
};

TEST(HostResourcesTest, AreTheMachinesWhereNoContainerLimitsThem) {
  const FakeHost host;
  EXPECT_EQ(host.read().cores, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_EQ(host.read().free_bytes, 8000000ull << 10);
  host.write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  host.write("/sys/fs/cgroup/memory.max", "max\n");
  host.write("/sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(host.read().cores, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_EQ(host.read().free_bytes, 8000000ull << 10);
}

TEST(HostResourcesTest, AreAContainersShare) {
  const FakeHost host;
  host.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  host.write("/sys/fs/cgroup/memory.max", "1000000000\n");
  host.write("/sys/fs/cgroup/memory.current", "900000000\n");
  EXPECT_EQ(host.read().cores, 1);
  EXPECT_EQ(host.read().free_bytes, 100'000'000u);
  EXPECT_FALSE(host.read().has_room());
  host.write("/sys/fs/cgroup/memory.stat", "anon 300000000\nfile 600000000\ninactive_file 500000000\n");
  EXPECT_EQ(host.read().free_bytes, 600'000'000u);
  EXPECT_TRUE(host.read().has_room());
}

// With locks of one host, as two processes have them.
TEST(HostSlotsTest, AreGivenOutOnceAndCanBeWaitedFor) {
  const std::string folder = ::testing::TempDir() + fmt::format("compile-slots-{}", getpid());
  std::filesystem::create_directories(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  HostSlots first(2, folder), second(2, folder);
  {
    const HostSlots::Slot one = first.acquire(0, {}), two = second.acquire(0, {});
    EXPECT_TRUE(one.held() && two.held());
    EXPECT_FALSE(second.acquire(50, {}).held()) << "a wait ends without a slot";
    EXPECT_FALSE(SlotRoom(second, 50, {}).try_take());
    EXPECT_FALSE(first.acquire(60'000, [] { return true; }).held()) << "a wait can be stopped";
  }
  EXPECT_TRUE(second.acquire(0, {}).held());
  HostSlots nowhere(1, "/proc/no/such/folder");
  EXPECT_FALSE(nowhere.acquire(60'000, {}).held()) << "without locks there is no wait";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kernelwright::host_slots_test
