// Workers are processes beside a server: what they inherit, what they leave, when they end, and what a fork changes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "kernelwright/runtime/process/interrupt.h"
#include "runtime/workers/testing.h"

namespace kernelwright::worker_processes_test {
namespace {

using test::CompileWorkersTest, test::becomes_true, test::children, test::is_running, test::log_line,
    test::open_descriptors, test::request_of;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST_F(CompileWorkersTest, AWorkerHasNoDescriptorAndNoBlockedSignalOfTheServer) {
  const int leaked = open("/dev/null", O_RDONLY);  // without O_CLOEXEC, as other libraries open theirs
  ASSERT_GT(leaked, 2);
  sigset_t blocked, before;
  sigfillset(&blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  setenv("LD_PRELOAD", "", 1);
  const CompileAnswer answer = workers().compile(request_of("one"));
  unsetenv("LD_PRELOAD");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(leaked);
  EXPECT_EQ(log_line(answer, "descriptors"), "3 ");
  EXPECT_EQ(log_line(answer, "blocked"), "");
  EXPECT_EQ(log_line(answer, "LD_PRELOAD"), "none");
}

TEST_F(CompileWorkersTest, StartsWhereStandardDescriptorsAreClosed) {
  const int kept[3] = {fcntl(0, F_DUPFD_CLOEXEC, 10), fcntl(1, F_DUPFD_CLOEXEC, 10), fcntl(2, F_DUPFD_CLOEXEC, 10)};
  for (int fd = 0; fd < 3; ++fd) close(fd);
  bool compiled = false;
  {
    CompileWorkers compiler = workers();
    compiled = compiler.compile(request_of("one")).compiled;
  }
  for (int fd = 0; fd < 3; ++fd) {
    dup2(kept[fd], fd);
    close(kept[fd]);
  }
  EXPECT_TRUE(compiled);
}

TEST_F(CompileWorkersTest, LeavesNoDescriptorNoChildAndNoZombie) {
  const std::size_t before = open_descriptors();
  const std::set<std::string> others = children();
  {
    CompileWorkers compiler = workers();
    for (const char* source : {"one", "do segv", "do garbage", "do exit", "two"}) try {
        compiler.compile(request_of(source));
      } catch (const CompilerFaultError&) {
      }
    EXPECT_EQ(children().size(), others.size() + 1) << "one idle worker";
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(children(), others);
}

TEST_F(CompileWorkersTest, AnIdleWorkerEnds) {
  options.idle_ms = 50;
  CompileWorkers compiler = workers();
  const std::set<std::string> others = children();
  for (int i = 0; i < 2; ++i) {  // the thread that ends them starts again
    EXPECT_TRUE(compiler.compile(request_of("one")).compiled);
    EXPECT_TRUE(becomes_true([&] { return children() == others; }));
  }
}

// $KERNELWRIGHT_WORKER_COMPILES=1000 makes it long.
TEST_F(CompileWorkersTest, ManyCompilesRecycleTheirWorkersWithoutGrowth) {
  const char* told = std::getenv("KERNELWRIGHT_WORKER_COMPILES");
  const int compiles = told ? std::max(std::atoi(told), 20) : 40;
  options.recycle_after = 10;
  CompileWorkers compiler = workers();
  std::size_t descriptors = 0;
  for (int i = 0; i < compiles; ++i) {
    EXPECT_EQ(log_line(compiler.compile(request_of("one")), "compiles"), std::to_string(i % 10 + 1));
    if (i == 4) descriptors = open_descriptors();
    if (i % 10 == 4) EXPECT_EQ(open_descriptors(), descriptors);
  }
  EXPECT_EQ(compiler.counters().started, static_cast<std::uint64_t>((compiles + 9) / 10));
}

TEST_F(CompileWorkersTest, AWorkerThatKeepsMemoryIsRecycled) {
  options.recycle_bytes = std::uint64_t{60} << 20;
  CompileWorkers compiler = workers();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(compiler.compile(request_of("do leak")).compiled);
  EXPECT_GE(compiler.counters().recycled, 2u);
  EXPECT_LT(compiler.counters().started, 20u);
}

TEST_F(CompileWorkersTest, AStopInterruptsACompile) {
  CompileWorkers compiler = workers();
  std::atomic<bool> stop{false};
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
  });
  const auto begin = Clock::now();
  {
    const InterruptScope scope(&stop);
    EXPECT_THROW(compiler.compile(request_of("do hang")), InterruptedError);
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  stopper.join();
  EXPECT_TRUE(compiler.compile(request_of("one")).compiled);
  EXPECT_TRUE(events.empty());
}

// The workers of a server that is killed end, though a process that it forked still holds its sockets.
TEST_F(CompileWorkersTest, WorkersEndWithTheirServer) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t server = fork();
  if (server == 0) {
    CompileWorkers compiler = workers();
    const std::string pid = log_line(compiler.compile(request_of("one")), "pid") + "\n";
    if (write(ends[1], pid.data(), pid.size()) < 0) _exit(1);
    std::thread([&] {
      try {
        compiler.compile(request_of("do hang"));
      } catch (...) {
      }
    }).detach();
    for (;;) pause();
  }
  close(ends[1]);
  char text[16] = {};
  ASSERT_GT(read(ends[0], text, sizeof(text) - 1), 0);
  close(ends[0]);
  const pid_t worker = std::atoi(text);
  ASSERT_TRUE(is_running(worker));
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  EXPECT_TRUE(becomes_true([&] { return !is_running(worker); }));
}

TEST_F(CompileWorkersTest, AForkedChildStartsWorkersOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no threads in a forked child";
#endif
  CompileWorkers compiler = workers();
  const std::string ours = log_line(compiler.compile(request_of("one")), "pid");
  const pid_t child = fork();
  if (child == 0) {
    const std::string theirs = log_line(compiler.compile(request_of("two")), "pid");
    _exit(theirs != ours && theirs != "no line" ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(log_line(compiler.compile(request_of("three")), "pid"), ours) << "the parent keeps its worker";
}

// A server may wait for all of its children, or ignore SIGCHLD: then the system takes their status.
TEST_F(CompileWorkersTest, WorksWhereTheServerIgnoresItsChildren) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  {
    CompileWorkers compiler = workers();
    EXPECT_TRUE(compiler.compile(request_of("one")).compiled);
    EXPECT_THAT(failure(compiler, "do segv"), HasSubstr("another part of this process took its exit status"));
    EXPECT_TRUE(compiler.compile(request_of("two")).compiled);
  }
  signal(SIGCHLD, before);
}

}  // namespace
}  // namespace kernelwright::worker_processes_test
