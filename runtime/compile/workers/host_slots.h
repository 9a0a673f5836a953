/// How many compiles run at once on a host. Eight ranks that start together would otherwise start eight compilers for
/// each core, and each takes up to half a gigabyte.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kernelwright/runtime/cache/file_lock.h"

namespace kernelwright {

/// Locks of files, shared by all processes of this user that see the same lock directory. The kernel frees the slot of
/// a process that ends. They save memory and cores, and nothing depends on them: without locks, or after a long wait, a
/// compile goes on without a slot. Any number of threads.
class HostSlots {
 public:
  /// `most`: how many slots the host has; 0: as count_for() says of this machine. `lock_directory` as in LockDirectory.
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

  /// The number of slots for a machine: one a core, but not more than its free memory has room for, and one at least.
  static int count_for(int cores, std::uint64_t free_bytes);
  /// As the machine is now: the cores that are on line, and MemAvailable.
  static int count_of_this_host();

 private:
  const LockDirectory& locks();
  const int most_;
  const std::optional<std::string> wanted_;
  std::mutex mutex_;  // guards the directory, which is made at the first compile
  std::unique_ptr<LockDirectory> directory_;
};

}  // namespace kernelwright
