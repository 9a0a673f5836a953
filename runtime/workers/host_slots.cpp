#include "kernelwright/runtime/workers/host_slots.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "kernelwright/generator/digest.h"

namespace kernelwright {
namespace {

constexpr int kFirstPauseMs = 1, kLongestPauseMs = 50;

/// The first number of a file; nothing if there is no file, or another word ("max").
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// The number behind `name` in a file of names and numbers.
std::optional<std::uint64_t> number_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word, rest;
  std::uint64_t number = 0;
  while (file >> word >> number) {
    if (word == name) return number;
    std::getline(file, rest);
  }
  return std::nullopt;
}

}  // namespace

HostResources HostResources::read(const std::string& root) {
  HostResources found;
  // All cores, and not those of this process: ranks that are bound to different cores share the slots.
  found.cores = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  if (const auto kilobytes = number_of(root + "/proc/meminfo", "MemAvailable:")) found.free_bytes = *kilobytes << 10;
  const std::string group = root + "/sys/fs/cgroup/";
  std::uint64_t quota = 0, period = 0;
  if (std::ifstream file(group + "cpu.max"); file >> quota >> period && period > 0)
    found.cores = std::clamp<int>(static_cast<int>((quota + period - 1) / period), 1, found.cores);
  const auto most = number_in(group + "memory.max"), used = number_in(group + "memory.current");
  if (most && used) {  // pages of files that no one has used lately are as good as free
    const std::uint64_t old_pages = std::min(*used, number_of(group + "memory.stat", "inactive_file").value_or(0));
    found.free_bytes = std::min(found.free_bytes, *most - std::min(*most, *used - old_pages));
  }
  return found;
}

HostSlots::HostSlots(int most, std::optional<std::string> lock_directory)
    : most_(most), wanted_(std::move(lock_directory)) {}

const LockDirectory& HostSlots::locks() {
  std::lock_guard hold(mutex_);
  if (!directory_) directory_ = std::make_unique<LockDirectory>(wanted_);
  return *directory_;
}

HostSlots::Slot HostSlots::acquire(int timeout_ms, const std::function<bool()>& stop) {
  Slot slot;
  const LockDirectory& directory = locks();
  slot.granted_ = directory.kind() == LockKind::kNone;
  if (slot.granted_) return slot;
  slot.lock_ = std::make_unique<FileLock>();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (int pause_ms = kFirstPauseMs;; pause_ms = std::min(2 * pause_ms, kLongestPauseMs)) {
    const HostResources host = most_ > 0 ? HostResources{.cores = most_} : HostResources::read();
    for (int i = 0; i < host.cores && (i == 0 || host.has_room()); ++i)
      switch (slot.lock_->acquire(directory, sha256(fmt::format("kernelwright compile slot {}", i)), 0)) {
        case LockOutcome::kHeld:
        case LockOutcome::kUnavailable: slot.granted_ = true; return slot;
        default: break;
      }
    if ((stop && stop()) || std::chrono::steady_clock::now() >= deadline) return slot;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  }
}

}  // namespace kernelwright
