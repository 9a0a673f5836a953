/// A KernelStore with a compiler that the test controls: it counts builds, can hold them, and can fail.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::test {

inline CacheOptions memory_only() {
  CacheOptions options;
  options.disk = false;
  options.failure_ttl_ms = 0;
  return options;
}

class FakeStore final : public KernelStore {
 public:
  explicit FakeStore(CacheOptions cache = memory_only(), std::string nvrtc_path = {})
      : KernelStore(std::move(cache), std::move(nvrtc_path)) {}

  /// Compiles whose spec has `part` in its text wait until release().
  void hold(const std::string& part) {
    std::lock_guard lock(mutex_);
    held_.insert(part);
  }
  void release() {
    std::lock_guard lock(mutex_);
    held_.clear();
    changed_.notify_all();
  }
  /// From now on, compiles of specs with `part` in their text throw CompileError; "" matches all specs.
  void fail(const std::string& part) {
    std::lock_guard lock(mutex_);
    failing_.insert(part);
  }
  void heal() {
    std::lock_guard lock(mutex_);
    failing_.clear();
  }
  void lose_the_compiler() {
    std::lock_guard lock(mutex_);
    missing_ = true;
  }
  int builds() const {
    std::lock_guard lock(mutex_);
    int total = 0;
    for (const auto& [spec, count] : builds_) total += count;
    return total;
  }
  /// Number of builds of the spec that was built most often.
  int most_builds_of_one() const {
    std::lock_guard lock(mutex_);
    int most = 0;
    for (const auto& [spec, count] : builds_) most = std::max(most, count);
    return most;
  }
  void wait_for_builds(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= count; });
  }

 protected:
  Binary build(const SourceUnit& unit) override {
    std::unique_lock lock(mutex_);
    ++begun_;
    ++builds_[unit.spec_text];
    changed_.notify_all();
    const auto matches = [&](const std::set<std::string>& parts) {
      for (const std::string& part : parts)
        if ((unit.kernel + "\n" + unit.spec_text).find(part) != std::string::npos) return true;
      return false;
    };
    changed_.wait(lock, [&] { return !matches(held_); });
    if (missing_) throw MissingError("NVRTC: not found");
    if (matches(failing_)) throw CompileError("attention_portable.cu(7): error: told to fail");
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    binary.cubin = std::vector<std::byte>(64, std::byte{1});
    binary.ptx = "// ptx";
    return binary;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_, failing_;
  std::map<std::string, int> builds_;
  int begun_ = 0;
  bool missing_ = false;
};

}  // namespace kernelwright::test
