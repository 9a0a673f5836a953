/// How many compiles run at once on a host. Eight ranks that start together would otherwise start eight compilers for
/// each core, and each takes up to half a gigabyte.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "kernelwright/runtime/cache/compile_room.h"
#include "kernelwright/runtime/cache/file_lock.h"

namespace kernelwright {

/// What a machine, or the container that this process is in, has for compiles.
struct HostResources {
  /// What one compile may need. The largest kernel that was measured took 484 MB.
  static constexpr std::uint64_t kBytesOfOne = std::uint64_t{512} << 20;
  int cores = 1;                          // that are on line, of all processes; or a container's share of them
  std::uint64_t free_bytes = UINT64_MAX;  // of memory that can be had without swapping
  bool has_room() const { return free_bytes >= kBytesOfOne; }
  /// Reads /proc/meminfo, and the limits of a container (cgroup 2). `root` stands before these paths, for tests.
  static HostResources read(const std::string& root = {});
};

/// Locks of files, shared by all processes of this user that see the same lock directory. The kernel frees the slot of
/// a process that ends. They save memory and cores, and nothing depends on them: without locks, or after a long wait, a
/// compile goes on without a slot. Any number of threads.
class HostSlots {
 public:
  /// `most`: how many slots the host has. 0: one a core, and all but the first are given out only while memory has
  /// room. `lock_directory` as in LockDirectory.
  HostSlots(int most, std::optional<std::string> lock_directory);

  /// One held slot, or none if locks are out of order.
  class Slot {
   public:
    bool held() const { return lock_ && lock_->held(); }
    /// Whether a compile need not wait: the slot is held, or locks are out of order.
    bool granted() const { return granted_; }

   private:
    friend class HostSlots;
    std::unique_ptr<FileLock> lock_;
    bool granted_ = false;
  };

  /// Waits until a slot is free, for at most `timeout_ms`. `stop` is asked every few milliseconds; true ends the wait.
  Slot acquire(int timeout_ms, const std::function<bool()>& stop);

 private:
  const LockDirectory& locks();
  const int most_;
  const std::optional<std::string> wanted_;
  std::mutex mutex_;  // guards the directory, which is made at the first compile
  std::unique_ptr<LockDirectory> directory_;
};

/// A slot as the cache asks for it.
class SlotRoom final : public CompileRoom {
 public:
  /// take() waits for at most `wait_ms`, and until `stop` is true. `slots` must outlive it.
  SlotRoom(HostSlots& slots, int wait_ms, std::function<bool()> stop)
      : slots_(slots), wait_ms_(wait_ms), stop_(std::move(stop)) {}
  bool try_take() override { return acquire(0); }
  void take() override { acquire(wait_ms_); }
  void give_back() override { slot_ = {}; }

 private:
  bool acquire(int timeout_ms) {
    if (!slot_.granted()) slot_ = slots_.acquire(timeout_ms, stop_);
    return slot_.granted();
  }
  HostSlots& slots_;
  const int wait_ms_;
  const std::function<bool()> stop_;
  HostSlots::Slot slot_;
};

}  // namespace kernelwright
