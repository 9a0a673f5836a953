/// Shared by the tests of compile workers: a fixture whose workers load the fake NVRTC, which does what the source
/// says, and helpers that look at processes.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/workers/compile_workers.h"

namespace kernelwright::test {

inline CompileRequest request_of(std::string source) {
  CompileRequest request;
  request.kernel = "fake";
  request.arch = "sm_90a";
  request.source = std::move(source);
  return request;
}

/// A line of the fake compiler's log: what follows `name`.
inline std::string log_line(const CompileAnswer& answer, const std::string& name) {
  const std::size_t at = answer.log.find(name + " ");
  if (at == std::string::npos) return "no line";
  const std::size_t from = at + name.size() + 1;
  return answer.log.substr(from, answer.log.find('\n', from) - from);
}

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

/// The processes whose parent is this one, zombies included.
inline std::set<std::string> children() {
  std::set<std::string> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (std::string pid; file >> pid;) found.insert(pid);
  }
  return found;
}

inline bool is_running(pid_t pid) { return kill(pid, 0) == 0; }

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
    EXPECT_THAT(message, ::testing::HasSubstr(pattern));
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

}  // namespace kernelwright::test
