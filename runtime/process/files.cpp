#include "kernelwright/runtime/process/files.h"

#include <unistd.h>

#include <cerrno>

namespace kernelwright {

int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return 0;
}

}  // namespace kernelwright
