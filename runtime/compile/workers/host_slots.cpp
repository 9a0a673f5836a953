#include "kernelwright/runtime/compile/workers/host_slots.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "kernelwright/generator/digest.h"

namespace kernelwright {
namespace {

/// What one compile may need. The largest kernel that was measured took 484 MB.
constexpr std::uint64_t kBytesOfOne = std::uint64_t{512} << 20;
constexpr int kFirstPauseMs = 1, kLongestPauseMs = 50;

/// MemAvailable of /proc/meminfo, in bytes; nothing if the system does not tell.
std::optional<std::uint64_t> available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    std::uint64_t kilobytes = 0;
    file >> kilobytes;
    if (name == "MemAvailable:") return kilobytes << 10;
    std::getline(file, unit);
  }
  return std::nullopt;
}

}  // namespace

HostSlots::HostSlots(int most, std::optional<std::string> lock_directory)
    : most_(most), wanted_(std::move(lock_directory)) {}

int HostSlots::count_for(int cores, std::uint64_t free_bytes) {
  return static_cast<int>(std::clamp<std::uint64_t>(free_bytes / kBytesOfOne, 1, std::max(cores, 1)));
}

int HostSlots::count_of_this_host() {
  // All cores, and not those of this process: ranks that are bound to different cores share the slots.
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return count_for(cores, available_bytes().value_or(UINT64_MAX));
}

const LockDirectory& HostSlots::locks() {
  std::lock_guard hold(mutex_);
  if (!directory_) directory_ = std::make_unique<LockDirectory>(wanted_);
  return *directory_;
}

HostSlots::Slot HostSlots::acquire(int timeout_ms, const std::function<bool()>& stop) {
  Slot slot;
  const LockDirectory& directory = locks();
  if (directory.kind() == LockKind::kNone) return slot;
  slot.lock_ = std::make_unique<FileLock>();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (int pause_ms = kFirstPauseMs;; pause_ms = std::min(2 * pause_ms, kLongestPauseMs)) {
    // Counted anew each time: the compiles of others take memory and give it back.
    const int count = most_ > 0 ? most_ : count_of_this_host();
    for (int i = 0; i < count; ++i)
      switch (slot.lock_->acquire(directory, sha256(fmt::format("kernelwright compile slot {}", i)), 0)) {
        case LockOutcome::kHeld:
        case LockOutcome::kUnavailable: return slot;
        default: break;
      }
    if ((stop && stop()) || std::chrono::steady_clock::now() >= deadline) return slot;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  }
}

}  // namespace kernelwright
