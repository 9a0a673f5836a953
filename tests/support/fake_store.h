/// A KernelStore with a compiler that the test controls: it counts builds, can hold them, and can fail.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
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

  /// Compiles whose spec has `part` in its text wait until release(). A part may be several texts with "&" between
  /// them: the spec must have each of them.
  void hold(const std::string& part) {
    std::lock_guard lock(mutex_);
    held_.insert(part);
  }
  void release() {
    std::lock_guard lock(mutex_);
    held_.clear();
    changed_.notify_all();
  }
  /// Ends one hold().
  void release(const std::string& part) {
    std::lock_guard lock(mutex_);
    held_.erase(part);
    changed_.notify_all();
  }
  /// From now on, compiles make the cubins of another compiler.
  void compile_as(const std::string& compiler) {
    std::lock_guard lock(mutex_);
    compiler_name_ = compiler;
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
    const std::string text = unit.kernel + "\n" + unit.spec_text;
    const auto has_each_of = [&](std::string_view part) {
      for (std::size_t end = 0; end != part.npos; part.remove_prefix(end + 1)) {
        end = part.find('&');
        if (text.find(part.substr(0, end)) == text.npos) return false;
        if (end == part.npos) break;
      }
      return true;
    };
    const auto matches = [&](const std::set<std::string>& parts) { return std::ranges::any_of(parts, has_each_of); };
    changed_.wait(lock, [&] { return !matches(held_); });
    if (missing_) throw MissingError("NVRTC: not found");
    if (matches(failing_)) throw CompileError("attention_portable.cu(7): error: told to fail");
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    const std::string hex = sha256(compiler_name_ + text).hex();  // 64 bytes, other ones for each kernel
    const auto bytes = std::as_bytes(std::span(hex));
    binary.cubin.assign(bytes.begin(), bytes.end());
    binary.ptx = "// ptx";
    return binary;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_, failing_;
  std::map<std::string, int> builds_;
  std::string compiler_name_;
  int begun_ = 0;
  bool missing_ = false;
};

}  // namespace kernelwright::test
