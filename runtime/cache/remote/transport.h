/// How a remote cache is reached: six operations on a server of names and values. docs/fleet.md has the protocols.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright {

using RemoteClock = std::chrono::steady_clock;
using Deadline = RemoteClock::time_point;

/// No value is larger, in either direction. The largest kernel seen so far makes an entry of 0.2 MB.
inline constexpr std::size_t kMaxRemoteValueBytes = std::size_t{8} << 20;
/// How long one attempt to connect may take.
inline constexpr std::chrono::milliseconds kRemoteConnectTime{150};

/// What the transfer of a value may take beyond its operation's deadline: its size at 20 MB/s. So the largest value
/// has 420 ms.
inline std::chrono::milliseconds transfer_time(std::size_t bytes) { return std::chrono::milliseconds(bytes / 20'000); }

enum class RemoteOutcome {
  kDone,
  kAbsent,     // get: the server has no such name. remove_if_equal: it has none, or another value
  kPresent,    // put_if_absent: the server has the name already
  kRefused,    // the server does not accept the credentials, whatever the operation
  kForbidden,  // it accepts them, and they do not permit this operation
  kFailed,     // no answer before the deadline, no connection, or an answer that is none
};

struct RemoteReply {
  RemoteOutcome outcome = RemoteOutcome::kFailed;
  std::vector<std::byte> value{};  // of get() and get_start(), if kDone
  std::string detail{};            // for people, of kRefused, kForbidden and kFailed; it has no credentials
};

/// One server. Any number of threads may call it at once. Calls throw nothing but std::bad_alloc, and return by their
/// deadline, plus transfer_time() of the value. A call tries to connect at most twice. It repeats an operation only
/// where a connection that lay idle turns out to be closed.
class RemoteTransport {
 public:
  virtual ~RemoteTransport() = default;
  /// The address, without credentials: for events and pages.
  virtual const std::string& name() const = 0;
  /// Whether the server is on this host: a socket of the file system, or a loopback address.
  virtual bool is_local() const = 0;
  /// Whether put_if_absent() is one step of the server, and ends values by their time to live. Without both, a name
  /// cannot serve as a lease.
  virtual bool has_leases() const { return true; }
  virtual RemoteReply get(std::string_view name, Deadline deadline) = 0;
  /// The first `bytes` of a value; all of it where the server cannot cut it, or has no more.
  virtual RemoteReply get_start(std::string_view name, std::size_t /*bytes*/, Deadline deadline) {
    return get(name, deadline);
  }
  virtual RemoteReply put(std::string_view name, std::span<const std::byte> value, Deadline deadline) = 0;
  /// Writes the value unless the name exists. The server removes it after `time_to_live`; 0: never. Without
  /// has_leases(), of two calls at the same moment both may write, and nothing is removed.
  virtual RemoteReply put_if_absent(std::string_view name, std::span<const std::byte> value,
                                    std::chrono::milliseconds time_to_live, Deadline deadline) = 0;
  /// Removes the name if its value is `value`. Without has_leases(), a value that is written at the same moment may be
  /// removed instead.
  virtual RemoteReply remove_if_equal(std::string_view name, std::span<const std::byte> value, Deadline deadline) = 0;
  /// Writes `value` if the name's value is `expected`, with a time to live as in put_if_absent(). For a server that
  /// cannot do it in one step, these are three: what another host writes in between is lost.
  virtual RemoteReply replace_if_equal(std::string_view name, std::span<const std::byte> expected,
                                       std::span<const std::byte> value, std::chrono::milliseconds /*time_to_live*/,
                                       Deadline deadline) {
    RemoteReply found = get(name, deadline);
    if (found.outcome != RemoteOutcome::kDone) return found;
    if (!std::ranges::equal(found.value, expected)) return {.outcome = RemoteOutcome::kAbsent};
    return put(name, value, deadline);
  }

  /// Whether run_script() works. A server of HTTP has names and values alone.
  virtual bool runs_scripts() const { return false; }
  /// Runs a Lua script of Redis on the server, in one step that no other client sees halves of. `keys` and `arguments`
  /// are its KEYS and ARGV. kDone: it returned a text, which is in `value`, or a number above 0. kAbsent: it returned
  /// another number, or nil.
  virtual RemoteReply run_script(std::string_view script, std::span<const std::string> keys,
                                 std::span<const std::string> arguments, Deadline deadline) {
    static_cast<void>(script), static_cast<void>(keys), static_cast<void>(arguments), static_cast<void>(deadline);
    return {.detail = "the server runs no scripts"};
  }
};

/// Certificates of an https server, in files of PEM. "": there is none.
struct RemoteTls {
  std::string ca;                            // the authorities that are trusted, in place of the system's
  std::string certificate, certificate_key;  // the client's own
};

/// The transport of an address: RemoteOptions has the forms. USER and PASSWORD may have %XX. It connects at the first
/// call. Throws ConfigError that names `field` for other addresses, and never repeats a password. Throws MissingError
/// if an address of HTTP is given where no libcurl can be opened.
std::unique_ptr<RemoteTransport> make_remote_transport(const std::string& address, const std::string& field,
                                                       const RemoteTls& tls = {});

}  // namespace kernelwright
