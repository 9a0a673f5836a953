/// Gives each test of the command its own folder, with a cache in it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kernelwright/generator/json/document.h"
#include "support/command.h"

namespace kernelwright {

class Command : public testing::Test {
 protected:
  Command() {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-cli-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Command() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  /// A config that is small and right, with `problem` and `rest` added to its problem and to itself.
  static std::string config(const std::string& problem = "", const std::string& rest = "") {
    return R"({"version": 1, "kind": "attention", "name": "tiny", "problem": {"head_dim": {"qk": 64, "v": 64},
      "heads": {"q": 4, "kv": 2})" +
           problem + R"(}, "shapes": [{"name": "check", "batch": 2, "q_len": 5, "kv_len": 9, "check": true}])" + rest +
           "}";
  }
  /// A GEMM likewise, of one kernel.
  static std::string gemm_config(const std::string& problem = "") {
    return R"({"version": 1, "kind": "gemm", "name": "tiny-gemm", "problem": {"n": 72, "k": 104)" + problem +
           R"(}, "schedule": {"arch": "sm_90a", "block_m": 64, "block_n": 64, "roles": "cooperative",
      "math_warpgroups": 1, "stages": 4}, "shapes": [{"name": "check", "m": 70, "check": true}, {"name": "row", "m": 1}]})";
  }
  CommandResult run(std::vector<std::string> words, std::vector<std::string> variables = {},
                    const std::string& shell = {}) const {
    variables.push_back("KERNELWRIGHT_CACHE_DIR=" + path("cache"));
    return run_command(words, variables, shell);
  }
  /// sh runs `shell`, in which "$0" "$@" is the command with `words`.
  CommandResult run_in_shell(const std::string& shell, const std::vector<std::string>& words) const {
    return run(words, {}, shell);
  }
  static bool has_gpu() {
    static const bool found = run_command({"doctor", "--json"}).out.find("\"can_run\": true") != std::string::npos;
    return found;
  }
  static bool has_compiler() {
    static const bool found = run_command({"doctor", "--json"}).out.find("\"can_compile\": true") != std::string::npos;
    return found;
  }
  /// Expects exit code 2, a message with `parts`, nothing on standard output, and no file written.
  void expect_refused(const std::vector<std::string>& words, const std::vector<std::string>& parts) const {
    const auto before = files();
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& part : parts) EXPECT_THAT(result.err, testing::HasSubstr(part));
    EXPECT_EQ(files(), before) << "something was written";
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::filesystem::path folder_;
};

#define KERNELWRIGHT_NEEDS_COMPILER() \
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC on this machine"

}  // namespace kernelwright
