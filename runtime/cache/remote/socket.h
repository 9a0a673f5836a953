/// A stream socket whose every step ends by a deadline.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernelwright/generator/trusted_files.h"
#include "kernelwright/runtime/cache/remote/transport.h"

namespace kernelwright {

struct Connection {
  Fd fd;
  std::string reason;  // why there is no fd: "connection refused"
};

/// Connects to a host's port. A name is looked up on another thread, because a name server may take many seconds.
Connection connect_tcp(const std::string& host, int port, Deadline deadline);
Connection connect_unix(const std::string& path, Deadline deadline);

/// Sends all of `bytes`. Returns "", or why it could not.
std::string send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);

/// Receives at least one byte, and at most those of `into`. Returns how many. 0: sets `reason`.
std::size_t receive_some(int fd, std::span<std::byte> into, Deadline deadline, std::string& reason);

}  // namespace kernelwright
