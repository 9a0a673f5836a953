/// Shared by the cache's tests: keys and binaries with contents, a folder for each test, and processes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/cache/names.h"

namespace kernelwright::test {

/// A folder that is removed with its contents. On the disk that holds the build, not in memory.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "kernelwright-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A key for this test only: locks are shared by all users of one key.
inline CacheKey test_key(int variant = 0) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  CacheKey key;
  key.entry_stem = "attention_portable";
  key.spec = std::string("test = ") + test->test_suite_name() + "." + test->name() +
             "\nnum_stages = 2\nvariant = " + std::to_string(variant) + "\n";
  key.closure = sha256("templates");
  key.options = {"-arch=sm_90a", "-std=c++17"};
  key.arch = "sm_90a";
  key.abi = 3;
  key.compiler = "nvrtc:0123+builtins:4567";
  return key;
}

inline Binary test_binary(int variant = 0, std::size_t cubin_bytes = 3000) {
  Binary binary;
  binary.entry = "kernelwright_attention_" + std::to_string(variant);
  binary.arch = "sm_90a";
  for (std::size_t i = 0; i < cubin_bytes; ++i)
    binary.cubin.push_back(static_cast<std::byte>((i * i + i / 7 + static_cast<std::size_t>(variant)) & 0xff));
  binary.ptx = ".version 8.0\n.target sm_90a\n";
  for (int i = 0; i < 50; ++i)
    binary.ptx += "  mov.b32 %r" + std::to_string(i) + ", " + std::to_string(variant) + ";\n";
  binary.usage = {
      .registers = 168, .spill_stores = 4, .spill_loads = 8, .stack = 16, .static_shared = 1024, .barriers = 2};
  binary.warnings = {"4 bytes spill stores", ""};
  binary.compiler = "NVRTC 13.0";
  binary.compile_ms = 274.5;
  return binary;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::size_t files_in(const std::string& folder) {
  std::error_code absent;
  std::size_t count = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder, absent))
    count += item.is_regular_file();
  return count;
}

inline std::string entry_path(const std::string& directory, const CacheKey& key) {
  return directory + "/" + EntryName(key.digest()).path();
}

/// Collects events; give sink() to a cache.
class Events {
 public:
  EventSink sink() {
    return [this](const Event& event) {
      std::lock_guard hold(mutex_);
      all_.push_back(event);
    };
  }
  std::vector<Event> of(EventKind kind) const {
    std::lock_guard hold(mutex_);
    std::vector<Event> some;
    for (const Event& event : all_)
      if (event.kind == kind) some.push_back(event);
    return some;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Event> all_;
};

/// Runs `body` in a forked child; its exit status is body's, 99 if it throws.
inline pid_t start_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    _exit(status);
  }
  return child;
}

/// The exit status, or minus the signal.
inline int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// The same for a child that may hang: after `seconds` it is killed, and -SIGALRM is returned.
inline int wait_for(pid_t child, int seconds) {
  for (int i = 0; i < seconds * 200; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    usleep(5000);
  }
  kill(child, SIGKILL);
  wait_for(child);
  return -SIGALRM;
}

/// Permission bits do not restrict root, so such tests run in a child of another user.
inline int as_nobody(const std::function<int()>& body) {
  return wait_for(start_child([&] {
                    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 98;
                    return body();
                  }),
                  60);
}

}  // namespace kernelwright::test
