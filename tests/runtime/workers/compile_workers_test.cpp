// Compiles in processes of their own. Faults come from an NVRTC of the tests' own, which does what the source says.
#include "kernelwright/runtime/workers/compile_workers.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/compile/nvrtc.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/workers/host_slots.h"
#include "kernelwright/runtime/workers/messages.h"

namespace kernelwright::compile_workers_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

CompileRequest request_of(std::string source) {
  CompileRequest request;
  request.kernel = "fake";
  request.arch = "sm_90a";
  request.source = std::move(source);
  return request;
}

/// A line of the fake compiler's log: what follows `name`.
std::string log_line(const CompileAnswer& answer, const std::string& name) {
  const std::size_t at = answer.log.find(name + " ");
  if (at == std::string::npos) return "no line";
  const std::size_t from = at + name.size() + 1;
  return answer.log.substr(from, answer.log.find('\n', from) - from);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

/// The processes whose parent is this one, zombies included.
std::set<std::string> children() {
  std::set<std::string> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (std::string pid; file >> pid;) found.insert(pid);
  }
  return found;
}

bool is_running(pid_t pid) { return kill(pid, 0) == 0; }

template <class Condition>
bool becomes_true(const Condition& condition) {
  for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (condition()) return true;
  return false;
}

class CompileWorkersTest : public ::testing::Test {
 protected:
  CompileWorkersTest() {
    options.where = CompileIn::kWorkers;
    options.program = KERNELWRIGHT_WORKER_PROGRAM;
    options.lock_directory = folder = ::testing::TempDir() + fmt::format("compile-workers-{}", getpid());
    std::filesystem::create_directories(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  }
  ~CompileWorkersTest() override { std::filesystem::remove_all(folder); }

  Compiler::MakeSourceCompiler in_workers() const {
    return [this](const std::string& path) { return make_source_compiler(path, options, {}); };
  }

  CompileWorkers workers() {
    return CompileWorkers(KERNELWRIGHT_FAKE_NVRTC, options, [this](const Event& event) {
      std::lock_guard hold(mutex);
      events.push_back(event);
    });
  }

  /// The message of the error that the compile of `source` throws.
  template <class Expected = CompilerFaultError>
  static std::string failure(SourceCompiler& compiler, const std::string& source) {
    try {
      compiler.compile(request_of(source));
    } catch (const Expected& error) {
      return error.what();
    }
    ADD_FAILURE() << source << " compiled";
    return {};
  }

  /// The compile of `source` fails with a message like `pattern`, one event has it, and the next compile succeeds.
  void costs_one_kernel(const std::string& source, const std::string& pattern) {
    CompileWorkers compiler = workers();
    const std::string before = log_line(compiler.compile(request_of("one")), "pid");
    const std::string message = failure(compiler, source);
    EXPECT_THAT(message, HasSubstr(pattern));
    const CompileAnswer after = compiler.compile(request_of("two"));
    EXPECT_TRUE(after.compiled);
    EXPECT_NE(log_line(after, "pid"), before);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, EventKind::kCompileWorker);
    EXPECT_EQ(events[0].name, "fake for sm_90a");
    EXPECT_EQ(events[0].detail, message);
    EXPECT_EQ(compiler.counters().failures, 1u);
    EXPECT_EQ(compiler.counters().started, 2u);
    EXPECT_EQ(compiler.counters().compiles, 2u);
  }

  CompileWorkerOptions options;
  std::string folder;
  std::mutex mutex;
  std::vector<Event> events;  // guarded by mutex
};

TEST_F(CompileWorkersTest, AnswersAsNvrtcInThisProcess) {
  CompileWorkers away = workers();
  Nvrtc here(KERNELWRIGHT_FAKE_NVRTC);
  for (const std::string source : {"kernel", "do reject"}) {
    const CompileAnswer one = away.compile(request_of(source)), other = here.compile(request_of(source));
    EXPECT_EQ(one.version, other.version);
    EXPECT_EQ(one.compiled, other.compiled);
    EXPECT_EQ(one.result, other.result);
    EXPECT_EQ(one.cubin, other.cubin);
    EXPECT_EQ(one.ptx, other.ptx);
    if (!one.compiled) EXPECT_EQ(one.log, other.log);
  }
  EXPECT_EQ(away.version(), 13000);
  EXPECT_EQ(away.counters().started, 1u);
}

TEST_F(CompileWorkersTest, ACrashCostsOneKernel) {
  costs_one_kernel("do segv", "the compile worker was killed by SIGSEGV");
}

TEST_F(CompileWorkersTest, AnAbortCostsOneKernelAndItsLastWordsAreTold) {
  costs_one_kernel("do abort", "free(): invalid pointer");
}

TEST_F(CompileWorkersTest, AHangCostsOneKernelAndEndsAtItsTimeLimit) {
  options.time_limit_ms = 300;
  costs_one_kernel("do hang", "was killed at its time limit of 300 ms");
}

TEST_F(CompileWorkersTest, AShortTimeLimitIsToldInMilliseconds) {
  options.time_limit_ms = 20;
  CompileWorkers compiler = workers();
  EXPECT_THAT(failure(compiler, "do hang"), HasSubstr("was killed at its time limit of 20 ms"));
}

TEST_F(CompileWorkersTest, AnEarlyExitCostsOneKernel) { costs_one_kernel("do exit", "ended by itself with status 7"); }

TEST_F(CompileWorkersTest, GarbageCostsOneKernel) { costs_one_kernel("do garbage", "sent bytes that are no answer"); }

TEST_F(CompileWorkersTest, AClosedSocketCostsOneKernel) {
  costs_one_kernel("do close", "ended by itself with status 0");
}

TEST_F(CompileWorkersTest, AKillFromOutsideCostsOneKernel) {
  options.time_limit_ms = 60'000;
  CompileWorkers compiler = workers();
  const pid_t worker = std::stoi(log_line(compiler.compile(request_of("one")), "pid"));
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(worker, SIGKILL);
  });
  EXPECT_THAT(failure(compiler, "do hang"), HasSubstr("was killed by SIGKILL (by a person, or by the system"));
  killer.join();
  EXPECT_TRUE(compiler.compile(request_of("two")).compiled);
}

TEST_F(CompileWorkersTest, AStoppedWorkerEndsAtItsTimeLimit) {
  options.time_limit_ms = 300;
  CompileWorkers compiler = workers();
  kill(std::stoi(log_line(compiler.compile(request_of("one")), "pid")), SIGSTOP);
  EXPECT_THAT(failure(compiler, "two"), HasSubstr("time limit"));
  EXPECT_TRUE(compiler.compile(request_of("three")).compiled);
}

// A worker that ended while it was idle costs no kernel at all.
TEST_F(CompileWorkersTest, AnIdleWorkerThatDiesIsReplaced) {
  CompileWorkers compiler = workers();
  const pid_t worker = std::stoi(log_line(compiler.compile(request_of("one")), "pid"));
  kill(worker, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(worker), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(compiler.compile(request_of("two")).compiled);
  EXPECT_EQ(compiler.counters().failures, 0u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer's worker has no memory limit
TEST_F(CompileWorkersTest, ARunawayOfAHundredGigabytesMeetsItsMemoryLimit) {
  options.memory_bytes = std::uint64_t{512} << 20;
  costs_one_kernel("do take memory",
                   "the compile worker met its memory limit of 512 MiB: 67108864 bytes were refused; NVRTC says "
                   "NVRTC_ERROR_OUT_OF_MEMORY");
}

TEST_F(CompileWorkersTest, ARefusedAllocationThatNvrtcCallsARejectedSourceIsAFaultOfMemory) {
  options.memory_bytes = std::uint64_t{256} << 20;
  costs_one_kernel("do swallow",
                   "met its memory limit of 256 MiB: 16777216 bytes were refused; NVRTC says "
                   "NVRTC_ERROR_COMPILATION: ptxas fatal   : Ptx assembly aborted due to errors");
}

TEST_F(CompileWorkersTest, ACrashOfARefusedAllocationSaysSo) {
  options.memory_bytes = std::uint64_t{256} << 20;
  costs_one_kernel("do crash without memory", "its last words: 16777216 bytes of memory were refused");
}
#endif

TEST_F(CompileWorkersTest, TheFailedSourceIsKeptAndTheErrorNamesIt) {
  Compiler compiler(KERNELWRIGHT_FAKE_NVRTC, folder + "/failed", in_workers());
  SourceUnit unit;
  unit.kernel = "fake", unit.entry = "fake_0123456789abcdef", unit.arch = "sm_90a", unit.source = "do segv";
  unit.spec_header = "// the failed source\n";
  try {
    compiler.compile(unit);
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("fake for sm_90a: the compile worker was killed by SIGSEGV"),
                                    HasSubstr("source: " + folder + "/failed/kernelwright-fake")));
    std::ifstream file(error.source_path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(text, AllOf(HasSubstr("the failed source"), HasSubstr("killed by SIGSEGV")));
  }
}

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

// What a fault of the socket could leave: never a crash, and never a half-read message.
TEST(CompileMessages, CutOrChangedBytesAreRefusedOrReadWhole) {
  CompileRequest request = request_of("source");
  request.headers = {{"a.cuh", "text"}, {"b.cuh", ""}};
  request.options = {"--one", ""};
  request.machine_code = false;
  const std::string bytes = encode(request);
  CompileRequest read;
  ASSERT_TRUE(decode(bytes, read));
  EXPECT_EQ(read.source, "source");
  EXPECT_EQ(read.headers, request.headers);
  EXPECT_EQ(read.options, request.options);
  EXPECT_FALSE(read.machine_code);
  EXPECT_FALSE(decode(bytes + "x", read));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    CompileRequest cut;
    EXPECT_FALSE(decode(std::string_view(bytes).substr(0, i), cut)) << i;
    std::string changed = bytes;
    changed[i] = '\xff';
    CompileRequest other;
    if (decode(changed, other)) EXPECT_EQ(encode(other).size(), bytes.size()) << i;
  }
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

TEST_F(CompileWorkersTest, AMissingProgramIsNamed) {
  options.program = "/no/such/kernelwright-cc";
  CompileWorkers compiler = workers();
  EXPECT_THAT(failure<MissingError>(compiler, "one"),
              AllOf(HasSubstr("no kernelwright-cc is at /no/such/kernelwright-cc"), HasSubstr("$KERNELWRIGHT_CC")));
}

TEST_F(CompileWorkersTest, AutoCompilesHereWhereNoWorkerStartsAndTellsOnce) {
  options.where = CompileIn::kAuto;
  options.program = "/no/such/kernelwright-cc";
  CompileWorkers compiler = workers();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(log_line(compiler.compile(request_of("one")), "pid"), std::to_string(getpid()));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0].detail, HasSubstr("kernels compile in this process"));
  EXPECT_EQ(compiler.counters().in_process, 2u);
}

TEST_F(CompileWorkersTest, AProgramOfAnotherVersionIsRefusedByName) {
  options.program = folder + "/kernelwright-cc";
  std::ofstream(options.program) << "#!/bin/sh\nexec " << KERNELWRIGHT_WORKER_PROGRAM
                                 << " another-version \"$2\" \"$3\" \"$4\"\n";
  std::filesystem::permissions(options.program, std::filesystem::perms::owner_all);
  CompileWorkers compiler = workers();
  EXPECT_THAT(failure(compiler, "one"), HasSubstr("and the library another-version; install both from one build"));
}

TEST_F(CompileWorkersTest, AMissingNvrtcIsTheErrorOfThisProcess) {
  CompileWorkers away("/no/such/libnvrtc.so.13", options, {});
  Nvrtc here("/no/such/libnvrtc.so.13");
  EXPECT_EQ(failure<MissingError>(away, "one"), failure<MissingError>(here, "one"));
}

TEST_F(CompileWorkersTest, AMemoryLimitBelowWhatNvrtcItselfTakesIsRefusedByName) {
  options.memory_bytes = std::uint64_t{63} << 20;
  try {
    workers();
    ADD_FAILURE() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "/compile_memory_bytes: 66060288 is less than NVRTC takes without any kernel; write 67108864 (64 MiB) "
                 "or more");
  }
}

TEST(CompileInTest, TheEnvironmentsWordIsTakenOrRefused) {
  ::setenv("KERNELWRIGHT_COMPILE_IN", "auto", 1);
  EXPECT_EQ(compile_in({}), CompileIn::kAuto);
  CompileWorkerOptions options;
  options.where = CompileIn::kProcess;
  EXPECT_EQ(compile_in(options), CompileIn::kProcess);
  ::setenv("KERNELWRIGHT_COMPILE_IN", "child", 1);
  try {
    compile_in({});
    ADD_FAILURE() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "$KERNELWRIGHT_COMPILE_IN: \"child\" is not one of process, workers, auto, hosts");
  }
  ::unsetenv("KERNELWRIGHT_COMPILE_IN");
}

SourceUnit real_unit(int factor) {
  SourceUnit unit;
  unit.kernel = unit.entry = "k", unit.arch = "sm_90a";
  unit.source = fmt::format("extern \"C\" __global__ void k(float* p) {{ p[threadIdx.x] *= {}.0f; }}\n", factor);
  unit.options = {"--gpu-architecture=sm_90a", "--std=c++17", "--no-cache", "--ptxas-options=-v"};
  return unit;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer keeps what is freed
// With the real NVRTC, which keeps 70 MB in the process that it runs in. $KERNELWRIGHT_WORKER_COMPILES=1000 makes it
// long.
TEST_F(CompileWorkersTest, RealCompilesLeaveTheServersMemoryAsItWas) {
  options.recycle_after = 8;
  Compiler compiler({}, folder, in_workers());
  if (compiler.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const auto resident = [] {
    malloc_trim(0);
    std::ifstream file("/proc/self/statm");
    long size = 0, pages = 0;
    file >> size >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  const char* told = std::getenv("KERNELWRIGHT_WORKER_COMPILES");
  const int compiles = told ? std::max(std::atoi(told), 20) : 20;
  const long before = resident();
  for (int i = 0; i < compiles; ++i) EXPECT_FALSE(compiler.compile(real_unit(i)).cubin.empty());
  EXPECT_LT(resident() - before, 4l << 20);
}
#endif

TEST_F(CompileWorkersTest, AnEngineTellsOperatorsWhatItsWorkersDid) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  EngineOptions wanted;
  wanted.backend = "emulator";
  wanted.cache.disk = false;
  wanted.compile_workers = options;
  Engine engine(wanted);
  EXPECT_THAT(engine.metrics(), HasSubstr("\nkernelwright_compile_workers_started_total 0\n"));
  GemmProblem problem;
  problem.n = problem.k = 64;
  engine.prepare(problem);
  const CompileWorkerCounters counters = engine.counters().compile_workers;
  EXPECT_GE(counters.started, 1u);
  EXPECT_EQ(counters.compiles, engine.counters().cache.compiles);
  const std::string metrics = engine.metrics();
  EXPECT_THAT(metrics, HasSubstr(fmt::format("\nkernelwright_compile_workers_started_total {}\n", counters.started)));
  EXPECT_THAT(metrics, HasSubstr(fmt::format("\nkernelwright_compile_worker_results_total{{result=\"answered\"}} {}\n",
                                             counters.compiles)));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The real NVRTC calls its own PTX wrong then. A worker with enough memory compiles the same source.
TEST_F(CompileWorkersTest, TheRealCompilerWithoutMemoryIsAFaultOfMemoryAndNotOfTheSource) {
  AttentionSpec hopper;
  hopper.family = Family::kHopper, hopper.arch = Arch::kSm90a, hopper.block_n = 128;
  const SourceUnit unit = specialize(hopper);
  options.memory_bytes = std::uint64_t{64} << 20;
  Compiler compiler({}, folder, [this](const std::string& path) {
    return make_source_compiler(path, options, [this](const Event& event) { events.push_back(event); });
  });
  if (compiler.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  try {
    compiler.compile(unit);
    ADD_FAILURE() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("attention_sm90 for sm_90a: the compile worker met its memory limit of 64 MiB"));
  }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kCompileWorker);
  EXPECT_THAT(events[0].detail, HasSubstr("bytes were refused; NVRTC says NVRTC_ERROR"));
  options.memory_bytes = CompileWorkerOptions().memory_bytes;
  EXPECT_FALSE(Compiler({}, folder, in_workers()).compile(unit).cubin.empty());
}
#endif

// The same bytes as in this process, with the real NVRTC, which is not loaded here.
TEST_F(CompileWorkersTest, TheRealCompilerGivesTheSameBytesAndIsNotLoadedHere) {
  Compiler here;
  if (here.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  SourceUnit unit = real_unit(3);
  const auto mapped = [] {
    std::ifstream maps("/proc/self/maps");
    return std::string{std::istreambuf_iterator<char>(maps), {}}.find("libnvrtc") != std::string::npos;
  };
  const bool loaded_before = mapped();  // by an earlier test of this process
  Compiler away({}, folder, in_workers());
  const Binary one = away.compile(unit);
  EXPECT_EQ(mapped(), loaded_before);
  Binary other = here.compile(unit);
  other.compile_ms = one.compile_ms;
  EXPECT_EQ(one, other);
  unit.source += "broken";
  std::string messages[2];
  for (Compiler* compiler : {&away, &here}) try {
      compiler->compile(unit);
    } catch (const CompileError& error) {
      messages[compiler == &here] = error.log();
    }
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_THAT(messages[0], HasSubstr("broken"));
}

}  // namespace
}  // namespace kernelwright::compile_workers_test
