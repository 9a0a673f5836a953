// Faults of compiles in processes of their own cost one kernel, and options are taken or refused by name.
#include "kernelwright/runtime/workers/compile_workers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/compile/nvrtc.h"
#include "runtime/workers/testing.h"

namespace kernelwright::compile_workers_test {
namespace {

using test::CompileWorkersTest, test::log_line, test::request_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace kernelwright::compile_workers_test
