// Every open here is O_CLOEXEC, and O_NOFOLLOW but for files that a person named. The code judges the opened file by
// fstat, never a path that it looked at before.
#include "kernelwright/generator/trusted_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kernelwright {
namespace {

// What is wrong with the owner or mode of `what`, or "".
std::string distrust(const struct stat& file, const std::string& what, Trust trust) {
  const uid_t me = geteuid();
  if (file.st_uid != me && !(trust == Trust::kOwnOrRoot && file.st_uid == 0))
    return fmt::format("{} belongs to uid {}, this process runs as {}", what, file.st_uid, me);
  if (file.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("{} is writable by others (mode {:04o}); chmod go-w it", what, file.st_mode & 07777);
  return {};
}

TrustedDirectory judge(int fd, const std::string& name, Trust trust) {
  TrustedDirectory result;
  if (fd < 0) {
    result.absent = errno == ENOENT;
    if (errno == ELOOP)
      result.reason = fmt::format("{} is a symbolic link; name the directory itself", name);
    else if (errno == ENOTDIR)
      result.reason = fmt::format("{} is not a directory, or is a symbolic link", name);
    else
      result.reason = fmt::format("{}: {}", name, error_text(errno));
    return result;
  }
  result.fd = Fd(fd);
  struct stat info {};
  if (fstat(fd, &info) != 0)
    result.reason = fmt::format("{}: {}", name, error_text(errno));
  else
    result.reason = distrust(info, name, trust);
  if (!result.reason.empty()) result.fd = Fd();
  return result;
}

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.take();
  }
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

TrustedDirectory open_trusted_directory(const std::string& given, bool create, Trust trust) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();  // "x/" would follow a symbolic link x
  if (create) {
    for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
      const std::string part = path.substr(0, slash);
      if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && slash == std::string::npos) {
        const int error = errno;
        TrustedDirectory existing = judge(open(path.c_str(), kOpenDirectory), path, trust);
        if (existing.absent) existing.reason = fmt::format("{} cannot be made: {}", path, error_text(error));
        return existing;
      }
      if (slash == std::string::npos) break;
    }
  }
  return judge(open(path.c_str(), kOpenDirectory), path, trust);
}

TrustedDirectory open_trusted_subdirectory(int parent, const std::string& name, bool create, Trust trust) {
  int fd = openat(parent, name.c_str(), kOpenDirectory);
  if (fd < 0 && errno == ENOENT && create) {
    if (mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST)
      return {Fd(), false, fmt::format("{} cannot be made: {}", name, error_text(errno))};
    fd = openat(parent, name.c_str(), kOpenDirectory);
  }
  return judge(fd, name, trust);
}

TrustedFile open_trusted_file(const std::string& path, Trust trust, std::uint64_t max_bytes) {
  TrustedFile file;
  file.fd = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file.fd || fstat(file.fd.get(), &info) != 0)
    file.reason = "cannot be read: " + error_text(errno);
  else if (!S_ISREG(info.st_mode))
    file.reason = "is not a regular file";
  else if (std::string why = distrust(info, "it", trust); !why.empty())
    file.reason = std::move(why);
  else if (static_cast<std::uint64_t>(info.st_size) > max_bytes)
    file.reason = fmt::format("has {} bytes, at most {} are read", info.st_size, max_bytes);
  if (file.reason.empty())
    file.bytes = static_cast<std::uint64_t>(info.st_size);
  else
    file.fd = Fd();
  return file;
}

FileBytes read_trusted_file(int directory, const std::string& name, Trust trust, std::size_t max_bytes,
                            const ReadPlan& plan) {
  using Status = FileBytes::Status;
  FileBytes file;
  auto fail = [&](Status status, std::string reason) {
    file.status = status;
    file.reason = std::move(reason);
    return std::move(file);
  };
  file.fd = Fd(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd) {
    if (errno == ENOENT) return file;
    if (errno == ELOOP) return fail(Status::kRefused, "is a symbolic link");
    return fail(errno == ENXIO ? Status::kRefused : Status::kUnreadable, error_text(errno));
  }
  struct stat info {};
  if (fstat(file.fd.get(), &info) != 0) return fail(Status::kUnreadable, error_text(errno));
  file.inode = info.st_ino;
  file.modified_s = info.st_mtime;
  if (!S_ISREG(info.st_mode)) return fail(Status::kRefused, "is not a regular file");
  if (std::string why = distrust(info, "it", trust); !why.empty()) return fail(Status::kRefused, std::move(why));
  if (static_cast<std::uint64_t>(info.st_size) > max_bytes)
    return fail(Status::kRefused, fmt::format("has {} bytes, at most {} are read", info.st_size, max_bytes));
  file.file_bytes = static_cast<std::uint64_t>(info.st_size);
  const auto file_bytes = static_cast<std::size_t>(info.st_size);
  std::size_t wanted = plan.needed ? std::min(plan.prefix_bytes, file_bytes) : file_bytes, done = 0;
  for (bool planned = !plan.needed;;) {
    file.bytes.resize(wanted);
    while (done < wanted) {
      const ssize_t got = pread(file.fd.get(), file.bytes.data() + done, wanted - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail(Status::kUnreadable, error_text(errno));
      if (got == 0) break;  // it shrank: the check of the bytes reports it
      done += static_cast<std::size_t>(got);
    }
    if (planned || done < wanted) break;
    planned = true;
    wanted = std::clamp(plan.needed(file.bytes, file_bytes), wanted, file_bytes);
  }
  file.bytes.resize(done);
  file.status = Status::kRead;
  return file;
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  const int copy = openat(directory, ".", kOpenDirectory);  // fdopendir takes over its descriptor and its position
  DIR* stream = copy >= 0 ? fdopendir(copy) : nullptr;
  if (!stream) {
    if (copy >= 0) close(copy);
    return names;
  }
  while (const dirent* item = readdir(stream)) {
    const std::string name = item->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(stream);
  return names;
}

// strerrorname_np and strerrordesc_np came with glibc 2.32, and a wheel runs on older ones.
std::string error_text(int error) {
  static constexpr std::pair<int, const char*> kNames[] = {
#define NAMED(e) {e, #e}
      NAMED(EPERM),     NAMED(ENOENT),   NAMED(EINTR),   NAMED(EIO),       NAMED(ENXIO),     NAMED(EBADF),
      NAMED(EAGAIN),    NAMED(ENOMEM),   NAMED(EACCES),  NAMED(EFAULT),    NAMED(EBUSY),     NAMED(EEXIST),
      NAMED(EXDEV),     NAMED(ENODEV),   NAMED(ENOTDIR), NAMED(EISDIR),    NAMED(EINVAL),    NAMED(ENFILE),
      NAMED(EMFILE),    NAMED(ETXTBSY),  NAMED(EFBIG),   NAMED(ENOSPC),    NAMED(ESPIPE),    NAMED(EROFS),
      NAMED(EMLINK),    NAMED(EPIPE),    NAMED(EDEADLK), NAMED(ENOLCK),    NAMED(ENOSYS),    NAMED(ELOOP),
      NAMED(EDQUOT),    NAMED(ESTALE),   NAMED(ENOTSUP), NAMED(EOVERFLOW), NAMED(ENOTEMPTY), NAMED(ENAMETOOLONG),
      NAMED(EREMOTEIO), NAMED(ETIMEDOUT)};
#undef NAMED
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);  // the host program's language does not matter
  std::string name = fmt::format("error {}", error);
  for (const auto& [number, word] : kNames)
    if (number == error) name = word;
  return fmt::format("{} ({})", strerror_l(error, plain), name);
}

}  // namespace kernelwright
