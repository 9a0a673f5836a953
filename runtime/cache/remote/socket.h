/// A stream socket whose every step ends by a deadline.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <string>

#include "kernelwright/generator/trusted_files.h"
#include "kernelwright/runtime/cache/remote/address.h"
#include "kernelwright/runtime/cache/remote/transport.h"

namespace kernelwright {

struct Connection {
  Fd fd;
  std::string reason;  // why there is no fd: "connection refused"
};

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

/// Connects to the first of `addresses` that answers. Attempts run beside each other: the next one begins when one
/// fails, and otherwise so early that half of the time is left for the last (RFC 8305). So an address that swallows
/// packets leaves time for the others.
Connection connect_to_any(std::span<const SocketAddress> addresses, Deadline deadline);
/// Connects to a server. Tries twice, kRemoteConnectTime each.
Connection connect_to_server(const RemoteAddress& address, Deadline deadline);
/// Connects to a host's port. A name is looked up on another thread, because a name server may take many seconds.
Connection connect_tcp(const std::string& host, int port, Deadline deadline);
Connection connect_unix(const std::string& path, Deadline deadline);

/// Sends all of `bytes`. Returns "", or why it could not.
std::string send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);

/// Receives at least one byte, and at most those of `into`. Returns how many. 0: sets `reason`.
std::size_t receive_some(int fd, std::span<std::byte> into, Deadline deadline, std::string& reason);

}  // namespace kernelwright
