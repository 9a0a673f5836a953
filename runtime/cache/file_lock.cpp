// OFD locks are tried first. Unlike POSIX record locks they belong to the open file, not to the process. So they
// exclude threads of one process as well, and are not lost when another descriptor of the file is closed.
#include "kernelwright/runtime/cache/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "kernelwright/runtime/process/files.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {

/// The descriptors that hold locks now. A forked child shares them with its parent, and would keep the lock after the
/// parent's death. So the child closes its copies.
struct HeldLocks {
  std::set<FileLock*> locks;
  ForkSafeMutex mutex{[this] {
    for (FileLock* lock : locks) {
      close(lock->fd_);
      lock->fd_ = -1;
    }
    locks.clear();
  }};
  static HeldLocks& get() {
    static HeldLocks* const held = new HeldLocks;  // outlives static destructors
    return *held;
  }
};

namespace {

constexpr int kFirstPollMs = 1, kLongestPollMs = 50;

bool try_lock(int fd, LockKind kind, const Digest& name) {
  if (kind == LockKind::kFlock) return flock(fd, LOCK_EX | LOCK_NB) == 0;
  std::uint64_t at = 0;
  std::memcpy(&at, name.bytes.data() + 1, sizeof(at));
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(at >> 2);  // 62 bits: start + length must fit a signed offset
  range.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

// Opens one file twice: while the first descriptor holds the lock, the second must be refused.
bool excludes(const std::string& path, LockKind kind) {
  const std::string name = fmt::format("{}/probe-{}-{}", path, getpid(), static_cast<void*>(&errno));
  const Fd first(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const Fd second(open(name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  unlink(name.c_str());
  return first && second && try_lock(first.get(), kind, {}) && !try_lock(second.get(), kind, {});
}

// The kind of the file system, if its locks may not reach every process; else null. Magic numbers of statfs(2).
const char* remote_or_layered(const std::string& path) {
  struct statfs fs {};
  if (statfs(path.c_str(), &fs) != 0) return "statfs fails";
  switch (static_cast<unsigned long>(fs.f_type)) {
    case 0x794c7630: return "overlay";
    case 0x61756673: return "aufs";
    case 0x6969: return "NFS";
    case 0xff534d42: return "CIFS";
    case 0xfe534d42: return "SMB2";
    case 0x517b: return "SMB";
    case 0x65735546: return "FUSE";
    case 0x01021997: return "9p";
    case 0x0bd00bd0: return "Lustre";
    case 0x00c36400: return "Ceph";
    case 0x47504653: return "GPFS";
    case 0x5346414f: return "AFS";
    default: return nullptr;
  }
}

}  // namespace

bool LockDirectory::try_directory(const std::string& path, std::string& reason) {
  const TrustedDirectory opened = open_trusted_directory(path, /*create=*/true, Trust::kOwnOnly);
  if (!opened.fd) {
    reason = opened.reason;
    return false;
  }
  if (const char* kind = remote_or_layered(path)) {
    reason = fmt::format("{} is on a file system whose locks do not reach every process ({})", path, kind);
    return false;
  }
  for (const LockKind kind : {LockKind::kOfd, LockKind::kFlock}) {
    if (!excludes(path, kind)) continue;
    kind_ = kind;
    path_ = path;
    status_ = fmt::format("{} locks in {}", kind == LockKind::kOfd ? "OFD" : "flock", path);
    return true;
  }
  reason = fmt::format("{} keeps no lock that excludes", path);
  return false;
}

LockDirectory::LockDirectory(const std::optional<std::string>& wanted) {
  std::string reasons;
  auto works = [&](const std::string& path) {
    std::string reason;
    if (try_directory(path, reason)) return true;
    reasons += (reasons.empty() ? "" : "; ") + reason;
    return false;
  };
  if (wanted) {
    if (works(*wanted)) return;
  } else {
    const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
    const bool there = runtime && runtime[0] == '/' && access(runtime, X_OK) == 0;  // the system makes this folder
    if (there && works(fmt::format("{}/kernelwright", runtime))) return;
    if (works(fmt::format("/dev/shm/kernelwright-{}", geteuid()))) return;
  }
  status_ = "no locks between processes: " + reasons;
}

LockOutcome FileLock::acquire(const LockDirectory& directory, const Digest& name, int timeout_ms,
                              const std::function<bool()>& not_needed) {
  using Clock = std::chrono::steady_clock;
  release();
  if (directory.kind() == LockKind::kNone) return LockOutcome::kUnavailable;
  const std::string path = fmt::format("{}/{:02x}", directory.path(), name.bytes[0]);
  const auto deadline = Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return LockOutcome::kUnavailable;
  for (int pause_ms = kFirstPollMs;; pause_ms = std::min(2 * pause_ms, kLongestPollMs)) {
    int error = 0;
    {  // locked and registered in one step, so that no fork falls between
      std::lock_guard hold(HeldLocks::get().mutex);
      if (try_lock(fd.get(), directory.kind(), name)) {
        fd_ = fd.take();
        HeldLocks::get().locks.insert(this);
        return LockOutcome::kHeld;
      }
      error = errno;
    }
    if (error != EAGAIN && error != EACCES && error != EINTR) return LockOutcome::kUnavailable;
    if (not_needed && not_needed()) return LockOutcome::kNotNeeded;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return LockOutcome::kTimedOut;
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min<long long>(pause_ms, left)));
  }
}

void FileLock::release() {
  std::lock_guard hold(HeldLocks::get().mutex);
  if (fd_ < 0) return;
  HeldLocks::get().locks.erase(this);
  // Unlocked first, because a child between its fork and its handler still has the descriptor open.
  struct flock all {};
  all.l_type = F_UNLCK;
  all.l_whence = SEEK_SET;
  fcntl(fd_, F_OFD_SETLK, &all);
  flock(fd_, LOCK_UN);
  close(fd_);
  fd_ = -1;
}

}  // namespace kernelwright
