/// File-system steps of the cache, its locks and tuned rows, each with the checks that make it safe. They never read
/// from, or write into, a place that another user could have prepared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kernelwright {

/// An owned file descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.take()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  int take() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

enum class Trust {
  kOwnOnly,    // owned by the effective user
  kOwnOrRoot,  // or by root: read-only layers come with an image
};

struct TrustedDirectory {
  Fd fd;
  bool absent = false;  // the path does not exist, and `create` was not asked for
  std::string reason;   // why there is no fd: "/x is writable by others (mode 0777); chmod go-w it"
};

/// Opens a directory that no other user can write: no symbolic link, the right owner, no write permission for group or
/// others. With `create`, makes it and its missing parents (0700).
TrustedDirectory open_trusted_directory(const std::string& path, bool create, Trust trust);

/// The same for one level below an open directory; no parents are made.
TrustedDirectory open_trusted_subdirectory(int parent, const std::string& name, bool create, Trust trust);

struct FileBytes {
  enum class Status { kRead, kAbsent, kRefused, kUnreadable } status = Status::kAbsent;
  std::vector<std::byte> bytes;  // from the start; all, or as many as were needed
  std::uint64_t file_bytes = 0;
  std::string reason;  // for kRefused (the file must not be trusted) and kUnreadable (an I/O error)
  std::uint64_t inode = 0;
  std::int64_t modified_s = 0;
  Fd fd;
};

/// How much of a file to read. The file's first bytes and its size decide.
struct ReadPlan {
  std::size_t prefix_bytes = 0;                                                                // read first
  std::size_t (*needed)(std::span<const std::byte> prefix, std::size_t file_bytes) = nullptr;  // then so many in all
};

/// Reads a regular file that has a trusted owner and that no other user can write, of at most `max_bytes`, whole or as
/// `plan` says. Never follows a symbolic link in `name`, and never blocks on a pipe.
FileBytes read_trusted_file(int directory, const std::string& name, Trust trust, std::size_t max_bytes,
                            const ReadPlan& plan = {});

struct TrustedFile {
  Fd fd;
  std::uint64_t bytes = 0;
  std::string reason;  // why there is no fd: "is writable by others (mode 0666); chmod go-w it"
};

/// Opens a regular file that a person named, of at most `max_bytes`, whose owner is trusted and that no other user can
/// write. Its folders are not checked, and symbolic links are followed. Never blocks on a pipe.
TrustedFile open_trusted_file(const std::string& path, Trust trust, std::uint64_t max_bytes);

/// The names in a directory, without "." and "..", in no order.
std::vector<std::string> names_in(int directory);

/// A text such as "No space left on device (ENOSPC)" for errno's number.
std::string error_text(int error);

}  // namespace kernelwright
