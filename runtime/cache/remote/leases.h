/// Leases on a server: the host that holds a name's lease compiles it, and other hosts wait. docs/fleet.md has the
/// rules.
///
/// A holder renews its lease, and its value changes each time. So a waiting host sees that the holder is alive. A lease
/// of a holder that is gone ends by its time to live. Where the server cannot end it, or the holder lives and has
/// nothing to show, one of those that wait takes the lease over.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "kernelwright/runtime/cache/remote/server.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {

struct LeaseTimes {
  std::chrono::milliseconds life{4'000};       // of a lease that is not renewed
  std::chrono::milliseconds renewal{1'000};    // how often its holder renews it
  std::chrono::milliseconds patience{30'000};  // how long one holder is waited for
};

/// The leases that a process holds on one server, and what it knows of the other holders. A forked child holds none.
class RemoteLeases {
 public:
  RemoteLeases(RemoteServer& server, bool takes, LeaseTimes times = {});

  enum class Lead {
    kMine,     // this process holds the lease now
    kOthers,   // another process does, and may be waited for
    kNobody,   // nobody is worth a wait: no host holds it and this one only reads, or the server has no leases
    kFree,     // no host holds it, and the caller could not begin
    kUnknown,  // the server does not answer
  };
  /// What one caller has seen of a lease while it waits.
  struct Seen {
    std::string value{};          // "": nothing
    int vanished = 0;             // how often in a row the server had a lease, and then none
    Deadline changed{}, taken{};  // when the value was first seen, and when its holder was
  };
  /// Takes the lease of `name` if nobody is worth a wait and the caller `can_begin`. Its operations end by `last`.
  Lead ask(const std::string& name, Seen& seen, Deadline last, bool can_begin = true);

  bool holds(const std::string& name) const;
  bool holds_any() const;
  /// Renews what is due. At most one thread calls it or give_back() at a time.
  void renew();
  /// Removes a lease that this process holds from the server.
  void give_back(const std::string& name);
  /// Does not renew a lease any more. It ends by its time to live.
  void forget(const std::string& name);

 private:
  struct Held {
    std::string value;
    std::uint64_t renewals = 0;
    Deadline due{};
  };
  static std::string new_token();
  /// What the reply to an attempt to put `value` into a lease means.
  Lead lead_after(const RemoteReply& reply, const std::string& name, std::string value);

  RemoteServer& server_;
  const bool takes_;
  const LeaseTimes times_;
  mutable ForkSafeMutex mutex_{[this] { held_.clear(), holder_ = new_token(); }};
  std::string holder_ = new_token();  // no other process has it
  std::map<std::string, Held> held_;  // by name
  std::set<std::string> idle_;        // holders that were waited for and had nothing to show
};

}  // namespace kernelwright
