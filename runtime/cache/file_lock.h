/// Locks between processes. The kernel releases them when their holder dies in any way. They only save work (one
/// compile per key instead of one per process). Nothing is wrong if there are no locks, or if a wait is given up or
/// times out.
///
/// Lock files live in a local directory of our own, 256 of them, and are never deleted: if a process waits on a deleted
/// file, there could be two holders. On overlay and network file systems locks may be private to a mount or outlive
/// their holder, so such directories are refused.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kernelwright/generator/digest.h"

namespace kernelwright {

enum class LockKind {
  kNone,   // no usable directory, or no kind of lock that excludes
  kOfd,    // open file description locks: a byte per key, so keys never wait for one another
  kFlock,  // whole files: keys that share the first byte of their digest wait for one another
};

/// A folder of lock files, probed once. Immutable afterwards; any number of threads may use it.
class LockDirectory {
 public:
  /// The first usable one of: `wanted` (alone, if given), $XDG_RUNTIME_DIR/kernelwright, /dev/shm/kernelwright-<uid>.
  explicit LockDirectory(const std::optional<std::string>& wanted = std::nullopt);
  LockKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  /// "OFD locks in /dev/shm/kernelwright-0", or why there are none.
  const std::string& status() const { return status_; }

 private:
  bool try_directory(const std::string& path, std::string& reason);
  LockKind kind_ = LockKind::kNone;
  std::string path_, status_;
};

enum class LockOutcome { kHeld, kTimedOut, kNotNeeded, kUnavailable };

/// One held lock. Threads must not share it. A forked child holds nothing.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock() { release(); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Waits for the lock of `name` for at most `timeout_ms`, and tries every few milliseconds. Between two attempts it
  /// calls `not_needed`, if given: true ends the wait without the lock. Throws nothing.
  LockOutcome acquire(const LockDirectory& directory, const Digest& name, int timeout_ms,
                      const std::function<bool()>& not_needed = {});
  void release();
  bool held() const { return fd_ >= 0; }

 private:
  friend struct HeldLocks;
  int fd_ = -1;
};

}  // namespace kernelwright
