// The compiler with the real NVRTC ($KERNELWRIGHT_NVRTC, else the one that is found). Skips by name if there is none.
#include "kernelwright/runtime/compile/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/compiler_identity.h"

namespace kernelwright {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kTemplate = R"(#include "spec.h"
#include "tile/scale.cuh"
struct Params { float* out; int n; };
extern "C" __global__ void KERNELWRIGHT_ENTRY(const __grid_constant__ Params params) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < params.n) params.out[i] = scale(params.out[i]);
}
)";
constexpr std::string_view kHeader = "#pragma once\n__device__ inline float scale(float x) { return x * kFactor; }\n";

SourceUnit unit_for(const std::string& arch) {
  SourceUnit unit;
  unit.kernel = "scale";
  unit.entry = "scale_0123456789abcdef";
  unit.arch = arch;
  unit.spec_header = "#pragma once\n#define KERNELWRIGHT_ENTRY " + unit.entry + "\nconstexpr float kFactor = 3.0f;\n";
  unit.spec_text = "factor 3\n";
  unit.source = "#include \"kernels/scale.cu\"\n";
  unit.headers = {{"kernels/scale.cu", kTemplate}, {"tile/scale.cuh", kHeader}};
  unit.closure = sha256(kTemplate);
  unit.options = {"--gpu-architecture=" + arch,
                  "--std=c++17",
                  "--frandom-seed=0123456789abcdef",
                  "--no-cache",
                  "-default-device",
                  "--ptxas-options=-v",
                  "--ptxas-options=--warn-on-spills",
                  "--ptxas-options=--warn-on-local-memory-usage"};
  return unit;
}

/// A unit with `source` as its whole source; its entry is "k".
SourceUnit unit_of(std::string source) {
  SourceUnit unit = unit_for("sm_90a");
  unit.kernel = unit.entry = "k";
  unit.source = std::move(source);
  unit.headers.clear();
  return unit;
}

/// A kernel that takes seconds: `statements` of dependent arithmetic for ptxas to schedule.
SourceUnit slow_unit(int statements) {
  std::ostringstream source;
  source << "extern \"C\" __global__ void k(float* p) {\n  float a = p[0], b = p[1], c = p[2];\n";
  for (int i = 0; i < statements; ++i)
    source << "  a = a * b + c; p[" << i << "] = a; b += p[" << i + 7 << "]; if (a > " << i << ") c *= b;\n";
  source << "  p[0] = a;\n}\n";
  return unit_of(source.str());
}

/// The message of the error that opening `compiler` throws.
std::string expect_missing(Compiler& compiler) {
  try {
    compiler.version();
  } catch (const MissingError& error) {
    return error.what();
  }
  ADD_FAILURE() << compiler.path() << " was opened";
  return "";
}

/// Writes the first `bytes` of a file to another file and changes its time, because identities are remembered by time.
void copy_start(const std::string& from, const std::string& to, std::size_t bytes) {
  std::string start(bytes, '\0');
  std::ifstream(from, std::ios::binary).read(start.data(), static_cast<std::streamsize>(bytes));
  std::filesystem::remove(to);
  std::ofstream(to, std::ios::binary) << start;
}

class CompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (compiler.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  void TearDown() override {
    for (const std::string& dir : dirs) std::filesystem::remove_all(dir);
  }
  /// A folder that goes with the test.
  std::string fresh_dir() {
    std::string dir = ::testing::TempDir() + "kernelwright-failed-XXXXXX";
    return dirs.emplace_back(mkdtemp(dir.data()));
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Compiler compiler;
  std::vector<std::string> dirs;
};

class CompilerOnEachArch : public CompilerTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(CompilerOnEachArch, GivesCubinAndPtxOfOneCompilation) {
  const SourceUnit unit = unit_for(GetParam());
  const Binary binary = compiler.compile(unit);
  ASSERT_GT(binary.cubin.size(), 64u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(binary.cubin.data()), 4),
            "\x7f"
            "ELF");
  EXPECT_THAT(binary.ptx, AllOf(HasSubstr(".target " + unit.arch), HasSubstr(".entry " + unit.entry)));
  EXPECT_EQ(binary.ptx.find('\0'), std::string::npos);
  EXPECT_EQ(binary.entry, unit.entry);
  EXPECT_EQ(binary.arch, GetParam());
  EXPECT_GT(binary.usage.registers, 0);
  EXPECT_EQ(binary.usage.spill_stores, 0);
  EXPECT_THAT(binary.warnings, ElementsAre());
  EXPECT_THAT(binary.compiler, AllOf(HasSubstr("NVRTC "), HasSubstr(compiler.version())));
  EXPECT_GT(binary.compile_ms, 0);
}
INSTANTIATE_TEST_SUITE_P(, CompilerOnEachArch, ::testing::Values("sm_80", "sm_90a", "sm_100a", "sm_120a"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(CompilerTest, GivesTheSameBytesTwice) {
  const Binary first = compiler.compile(unit_for("sm_90a"));
  compiler.compile(unit_for("sm_80"));
  const Binary second = compiler.compile(unit_for("sm_90a"));
  EXPECT_EQ(first.cubin, second.cubin);
  EXPECT_EQ(first.ptx, second.ptx);
}

// Run by GivesTheSameBytesInAnotherProcess in a process of its own.
TEST_F(CompilerTest, DISABLED_PrintsItsCubin) {
  const char* out = std::getenv("KERNELWRIGHT_TEST_OUT");
  ASSERT_TRUE(out);
  const Binary binary = compiler.compile(unit_for("sm_90a"));
  std::ofstream file(out, std::ios::binary);
  file.write(reinterpret_cast<const char*>(binary.cubin.data()), static_cast<std::streamsize>(binary.cubin.size()));
  file << binary.ptx;
}

TEST_F(CompilerTest, GivesTheSameBytesInAnotherProcess) {
  const Binary ours = compiler.compile(unit_for("sm_90a"));
  const std::string out = fresh_dir() + "/out";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  // Without the shard that this process may be: the one test is in some shard alone.
  const std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX KERNELWRIGHT_TEST_OUT='" + out + "' '" +
                              self +
                              "' --gtest_also_run_disabled_tests --gtest_filter=CompilerTest.DISABLED_PrintsItsCubin"
                              " > /dev/null 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string expected =
      std::string(reinterpret_cast<const char*>(ours.cubin.data()), ours.cubin.size()) + ours.ptx;
  EXPECT_EQ(read(out), expected);
}

TEST_F(CompilerTest, NamesFileAndLineOfAnErrorInSpecH) {
  SourceUnit unit = unit_for("sm_90a");
  unit.spec_header += "constexpr int kStages = nonsense;\n";
  Compiler keeping({}, fresh_dir());
  try {
    keeping.compile(unit);
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("scale for sm_90a: NVRTC "), HasSubstr("says NVRTC_ERROR_COMPILATION"),
                                    HasSubstr("spec.h(4): error: identifier \"nonsense\" is undefined"),
                                    HasSubstr("source: " + error.source_path())));
    EXPECT_THAT(error.log(), HasSubstr("nonsense"));
    EXPECT_THAT(read(error.source_path()),
                AllOf(HasSubstr("kStages = nonsense"), HasSubstr("--gpu-architecture=sm_90a")));
    struct stat status {};
    ASSERT_EQ(stat(error.source_path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
}

TEST_F(CompilerTest, NamesFileAndLineOfAnErrorInATemplate) {
  SourceUnit unit = unit_for("sm_90a");
  unit.headers[1].text = "#pragma once\n__device__ inline float scale(float x) { return x + missing; }\n";
  try {
    Compiler({}, fresh_dir()).compile(unit);
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tile/scale.cuh(2): error: identifier \"missing\" is undefined"));
  }
}

TEST_F(CompilerTest, NamesAnIncludeThatIsNoTemplate) {
  try {
    Compiler({}, fresh_dir()).compile(unit_of("#include <cuda_fp16.h>\n"));
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuda_fp16.h"));
  }
}

TEST_F(CompilerTest, GivesTheFirstLinesOfALongLog) {
  std::string source;
  for (int i = 0; i < 40; ++i) source += "int a" + std::to_string(i) + " = b" + std::to_string(i) + ";\n";
  try {
    Compiler({}, fresh_dir()).compile(unit_of(source));
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"b0\""), HasSubstr(" more)"), Not(HasSubstr("\"b30\""))));
    EXPECT_THAT(error.log(), HasSubstr("\"b30\""));
  }
}

TEST_F(CompilerTest, ReportsAFailureOfPtxas) {
  try {
    Compiler({}, fresh_dir())
        .compile(unit_of("extern \"C\" __global__ void k() { asm volatile(\"no.such.instruction;\"); }\n"));
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("k for sm_90a"), HasSubstr("ptxas")));
  }
}

TEST_F(CompilerTest, ReportsAnUnknownOption) {
  SourceUnit unit = unit_for("sm_90a");
  unit.options.push_back("--no-such-option");
  try {
    Compiler({}, fresh_dir()).compile(unit);
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("NVRTC_ERROR_INVALID_OPTION"));
  }
}

TEST_F(CompilerTest, TakesNamesWithQuotesForTextOnly) {
  SourceUnit unit = unit_of("int broken = \"");
  unit.kernel = "a\"b'; $(touch /tmp/x) ../../c";
  unit.entry = "../../" + std::string(300, 'e') + "\"'\n";
  const std::string dir = fresh_dir();
  try {
    Compiler({}, dir).compile(unit);
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_EQ(std::filesystem::path(error.source_path()).parent_path(), dir);
    EXPECT_THAT(error.what(), HasSubstr("a\"b'; $(touch"));
  }
}

TEST_F(CompilerTest, SaysThatASourceCouldNotBeKept) {
  try {
    Compiler({}, "/proc/no/such/folder").compile(unit_of("broken"));
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("source: could not be kept"));
    EXPECT_EQ(error.source_path(), "");
  }
}

TEST_F(CompilerTest, ReadsSharedBytesAndBarriers) {
  const Binary binary = compiler.compile(unit_of(R"(
extern "C" __global__ void k(float* p) {
  __shared__ float tile[256];
  tile[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = tile[255 - threadIdx.x];
})"));
  EXPECT_EQ(binary.usage.static_shared, 1024);
  EXPECT_EQ(binary.usage.barriers, 1);
  EXPECT_EQ(binary.usage.stack, 0);
}

TEST_F(CompilerTest, ReadsSpillsAndTheirWarning) {
  SourceUnit unit = unit_of(R"(
extern "C" __global__ void k(volatile float* p) {
  float x[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i] = p[i * 32 + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 96; ++i) p[i * 64 + threadIdx.x] = x[i] * x[95 - i] + x[(i * 7) % 96];
})");
  unit.options.push_back("--maxrregcount=32");
  const Binary binary = compiler.compile(unit);
  EXPECT_LE(binary.usage.registers, 32);
  EXPECT_GT(binary.usage.spill_stores, 0);
  EXPECT_GT(binary.usage.spill_loads, 0);
  EXPECT_GT(binary.usage.stack, 0);
  EXPECT_THAT(binary.warnings, ::testing::Contains(HasSubstr("spill")));
}

TEST_F(CompilerTest, WarnsOfLocalMemory) {
  const Binary binary = compiler.compile(unit_of(R"(
extern "C" __global__ void k(int* p, int n) {
  int x[64];
  for (int i = 0; i < n; ++i) x[p[i] & 63] = i;
  p[0] = x[p[1] & 63];
})"));
  EXPECT_GT(binary.usage.stack, 0);
  EXPECT_THAT(binary.warnings, ::testing::Contains(HasSubstr("ocal memory")));
}

TEST_F(CompilerTest, ServesFourThreadsAtOnce) {
  const std::vector<std::byte> alone = compiler.compile(unit_for("sm_90a")).cubin;
  std::vector<std::byte> results[4];
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) result = compiler.compile(unit_for("sm_90a")).cubin;
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, alone);
}

/// The result of `compile` in a forked child: exit status 7 for the expected error.
template <class Function>
int child_status(const Function& compile) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang ends as a signal, not as a stuck test
    try {
      compile();
      _exit(1);
    } catch (const CompileError& error) {
      _exit(std::string(error.what()).find("forked") != std::string::npos ? 7 : 2);
    } catch (...) {
      _exit(3);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(CompilerTest, RefusesInAChildForkedDuringACompile) {
  std::atomic<bool> started = false, done = false;
  std::thread busy([&] {
    const SourceUnit unit = slow_unit(150);
    started = true;
    compiler.compile(unit);
    done = true;
  });
  while (!started) std::this_thread::yield();
  compiler.version();  // opened, whichever thread did it
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(done) << "the compile was too fast to fork during it";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(child_status([&] { compiler.compile(unit_for("sm_80")); }), 7);
  EXPECT_EQ(child_status([&] { Compiler().compile(unit_for("sm_80")); }), 7) << "a new Compiler in the child";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  busy.join();
  EXPECT_NO_THROW(compiler.compile(unit_for("sm_80"))) << "the parent goes on";
}

TEST_F(CompilerTest, KeysAUnitWithoutItsPaths) {
  const SourceUnit unit = unit_for("sm_90a");
  const CacheKey key = compiler.key(unit);
  EXPECT_EQ(key.entry_stem, "scale");
  EXPECT_EQ(key.spec, unit.spec_text);
  EXPECT_EQ(key.closure, unit.closure);
  EXPECT_EQ(key.options, unit.options);
  EXPECT_EQ(key.arch, "sm_90a");
  EXPECT_GT(key.abi, 0);
  EXPECT_NE(key.compiler, "");
}

TEST_F(CompilerTest, NamesTheVersionOfNvrtc) {
  EXPECT_THAT(compiler.version(), ::testing::MatchesRegex("1[2-9]\\.[0-9]+"));
}

TEST(CompilerWithoutNvrtc, NamesAPathThatDoesNotExist) {
  Compiler compiler("/nowhere/libnvrtc.so.13");
  EXPECT_EQ(compiler.path(), "/nowhere/libnvrtc.so.13");
  try {
    compiler.compile(unit_for("sm_90a"));
    FAIL() << "compiled";
  } catch (const MissingError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no NVRTC: /nowhere/libnvrtc.so.13 cannot be opened"));
  }
}

TEST(CompilerWithoutNvrtc, NamesTheFoldersThatWereLookedInto) {
  const std::string empty = ::testing::TempDir() + "kernelwright-no-nvrtc-here";
  std::filesystem::create_directories(empty);
  setenv("KERNELWRIGHT_NVRTC", empty.c_str(), 1);
  Compiler compiler;
  EXPECT_EQ(compiler.path(), "");
  EXPECT_THAT(expect_missing(compiler),
              AllOf(HasSubstr("neither libnvrtc.so.13 nor libnvrtc.so.12 is in " + empty + ", " + empty + "/lib64"),
                    HasSubstr("of $KERNELWRIGHT_NVRTC"), HasSubstr("install the CUDA toolkit or")));
  unsetenv("KERNELWRIGHT_NVRTC");
  std::filesystem::remove(empty);
}

// The loader maps a file by its headers, and a page past the file's end is a SIGBUS that nothing can catch.
TEST_F(CompilerTest, RefusesAnNvrtcThatIsCutShort) {
  const std::string folder = fresh_dir(), cut = folder + "/libnvrtc.so.13";
  for (const std::size_t bytes : {0u, 40u, 4096u, 1u << 20}) {
    copy_start(compiler.path(), cut, bytes);
    Compiler broken(cut, folder);
    EXPECT_EQ(broken.key(unit_for("sm_90a")).compiler, "") << "as where there is none";
    EXPECT_THAT(expect_missing(broken),
                AllOf(HasSubstr("no NVRTC: " + cut),
                      bytes == 0    ? HasSubstr("is an empty file")
                      : bytes == 40 ? HasSubstr("is cut short: its headers name 64 bytes, and the file has 40")
                                    : HasSubstr(", and the file has " + std::to_string(bytes))));
  }
}

TEST_F(CompilerTest, RefusesBuiltinsThatAreCutShort) {
  const std::string folder = fresh_dir(), ours = folder + "/libnvrtc.so.13";
  const std::vector<std::string> builtins = builtins_beside(compiler.path());
  if (builtins.empty()) GTEST_SKIP() << "the builtins of " << compiler.path() << " do not lie beside it";
  std::error_code failed;  // 110 MB need not be copied if a link is enough
  std::filesystem::create_hard_link(std::filesystem::canonical(compiler.path()), ours, failed);
  if (failed) std::filesystem::copy_file(compiler.path(), ours);
  const std::string cut = folder + "/" + std::filesystem::path(builtins.front()).filename().string();
  copy_start(builtins.front(), cut, 1 << 20);
  Compiler broken(ours, folder);
  EXPECT_EQ(broken.key(unit_for("sm_90a")).compiler, "");
  EXPECT_THAT(expect_missing(broken),
              AllOf(HasSubstr("no NVRTC: " + cut + " is cut short"), HasSubstr("the file has 1048576")));
}

TEST(CompilerWithoutNvrtc, NamesALibraryThatIsNoNvrtc) {
  try {
    Compiler("libm.so.6").version();
    FAIL() << "accepted";
  } catch (const MissingError& error) {
    EXPECT_STREQ(error.what(), "libm.so.6 is not an NVRTC that we can use: it has no nvrtcVersion");
  }
}

}  // namespace
}  // namespace kernelwright
