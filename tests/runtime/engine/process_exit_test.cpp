// Programs that end while their kernels compile in the background: in C, C++ and Python, by every way to exit, after a
// random delay. They must end with their own exit status, soon, and with nothing on standard error.
//
// KERNELWRIGHT_EXITS sets the number of exits (default 24), KERNELWRIGHT_EXIT_SEED the random seed.
// bench/results/tests/2026-11-22-h200-solid-ground.md has one run of the whole list.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernelwright/runtime/compile/nvrtc_path.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kOpensNvrtc = std::chrono::milliseconds(80);  // from the start of a program; then it compiles
constexpr auto kLongestExit = std::chrono::seconds(60);      // after the delay; it has taken 0.4 s on an idle machine

struct Way {
  std::vector<std::string> words;  // program and mode
  int status;
  std::chrono::microseconds longest = std::chrono::microseconds::max();  // of the delay
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const char* mode : {"return", "exit", "thread", "blocking"}) all.push_back({{KERNELWRIGHT_EXIT_IN_C, mode}, 7});
  all.push_back({{KERNELWRIGHT_EXIT_IN_C, "stranger"}, 7, kOpensNvrtc});
  for (const char* mode : {"leaked", "static", "local", "sink"}) all.push_back({{KERNELWRIGHT_EXIT_IN_CPP, mode}, 7});
#ifdef KERNELWRIGHT_PYTHON
  const std::string script = (test::source_dir() / "tests/support/exit_in_python.py").string();
  all.push_back({{KERNELWRIGHT_PYTHON, "-B", script, "end"}, 0});
  all.push_back({{KERNELWRIGHT_PYTHON, "-B", script, "exit"}, 7});
  all.push_back({{KERNELWRIGHT_PYTHON, "-B", script, "daemon"}, 0});
#endif
  return all;
}

long number_from(const char* variable, long otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::atol(text) : otherwise;
}

/// What was wrong with how the program ended; "" if nothing.
std::string run(const Way& way, long delay_us, long number) {
  std::vector<std::string> words = way.words;
  words.push_back(std::to_string(delay_us));
  std::vector<char*> arguments, environment;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> settings = {"PYTHONPATH=" + (test::source_dir() / "python").string(),
                                       "KERNELWRIGHT_LIBRARY=" KERNELWRIGHT_C_LIBRARY,
                                       // NVRTC is not instrumented, so the sanitizer does not see how its threads are
                                       // ordered.
                                       "TSAN_OPTIONS=ignore_noninstrumented_modules=1"};
  for (char** entry = environ; *entry; ++entry) settings.emplace_back(*entry);
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);

  const auto log = std::filesystem::temp_directory_path() /
                   ("kernelwright-exit-" + std::to_string(getpid()) + "-" + std::to_string(number));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int spawned = posix_spawn(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  std::string wrong;
  if (spawned != 0) {
    wrong = "cannot be started";
  } else {
    const auto give_up = Clock::now() + std::chrono::microseconds(delay_us) + kLongestExit;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (Clock::now() > give_up) {
        wrong = "did not end";
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (wrong.empty() && WIFSIGNALED(status)) wrong = "died of signal " + std::to_string(WTERMSIG(status));
    if (wrong.empty() && WEXITSTATUS(status) != way.status) wrong = "status " + std::to_string(WEXITSTATUS(status));
  }
  std::ifstream file(log);
  const std::string said(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove(log);
  if (wrong.empty() && said.empty()) return "";
  std::string text;
  for (const std::string& word : words) text += std::filesystem::path(word).filename().string() + " ";
  return text + (wrong.empty() ? "said something" : wrong) + (said.empty() ? "" : ":\n" + said);
}

TEST(ProcessExit, ProgramsEndCleanlyWhileKernelsCompile) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC: nothing compiles while the programs end";
  const std::vector<Way> all = ways();
  const long exits = number_from("KERNELWRIGHT_EXITS", 24);
  const auto seed = static_cast<unsigned>(number_from("KERNELWRIGHT_EXIT_SEED", 1));
  // A long list also meets kernels that are done; the short one stays with the first compile.
  const long longest_us = exits > 100 ? 1'500'000 : 300'000;
  std::mt19937 random(seed);
  std::vector<long> delays;
  for (long i = 0; i < exits; ++i) delays.push_back(static_cast<long>(random() % static_cast<unsigned>(longest_us)));

  std::atomic<long> next{0};
  std::mutex mutex;
  std::vector<std::string> wrong;
  const auto work = [&] {
    for (long i; (i = next++) < exits;) {
      const Way& way = all[static_cast<std::size_t>(i) % all.size()];
      const long delay = delays[static_cast<std::size_t>(i)];
      std::string text = run(way, delay % way.longest.count(), i);
      if (text.empty()) continue;
      const std::lock_guard lock(mutex);
      wrong.push_back(std::move(text));
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < std::max(2u, std::thread::hardware_concurrency()); ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  std::string text;
  for (const std::string& line : wrong) text += "\n" + line;
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " of " << exits << " exits, seed " << seed << ":" << text;
}

}  // namespace
}  // namespace kernelwright
