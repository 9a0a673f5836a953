/// How many compiles run at once on a host. Eight ranks that start together would otherwise start eight compilers for
/// each core, and each takes up to half a gigabyte.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

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

   private:
    friend class HostSlots;
    std::unique_ptr<FileLock> lock_;
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

}  // namespace kernelwright
