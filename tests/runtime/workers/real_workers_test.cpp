// Workers with the real NVRTC. These tests skip where there is none.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/engine/engine.h"
#include "runtime/workers/testing.h"

namespace kernelwright::real_workers_test {
namespace {

using test::CompileWorkersTest;
using ::testing::HasSubstr;

SourceUnit real_unit(int factor) {
  SourceUnit unit;
  unit.kernel = unit.entry = "k", unit.arch = "sm_90a";
  unit.source = fmt::format("extern \"C\" __global__ void k(float* p) {{ p[threadIdx.x] *= {}.0f; }}\n", factor);
  unit.options = {"--gpu-architecture=sm_90a", "--std=c++17", "--no-cache", "--ptxas-options=-v"};
  return unit;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer keeps what is freed
// NVRTC keeps 70 MB in the process that it runs in. $KERNELWRIGHT_WORKER_COMPILES=1000 makes it
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

// The bytes are those of a compile in this process, and NVRTC is not loaded here.
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
}  // namespace kernelwright::real_workers_test
