/// What the library tells its caller while it works. It neither prints nor exits: a sink gets every event, counters can
/// be read at any time.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kernelwright {

enum class EventKind {
  kCompile,          // a kernel was compiled; `milliseconds` has the time
  kCacheHit,         // found on disk
  kCacheMiss,        // not found; `detail` says which field differs from the nearest entry, where one is known
  kCacheQuarantine,  // a damaged entry was set aside
  kCacheDegraded,    // the disk layer is off; `detail` says why. Once per cause
  kLockWait,         // another process compiles this key and has been waited for for a second; `milliseconds` so far
  kLockTimeout,      // another process held a key's lock for too long; compiled alone
  kFallback,         // a launch was served by the portable kernel while a better one compiles
  kSealedMiss,       // a kernel was asked for after seal()
  kFailure,          // a background compile failed; `detail` has the error
  kDevice,           // backend "auto" found no GPU and took the emulator; `detail` says what is missing
  kBadData,   // a length, offset or page of a launch is none of its tensors'; `name` is the kernel, `detail` the row
  kTunedRow,  // a tuned row, or a folder of them, was set aside; `name` is its file, `detail` says why
};

/// How much an event asks of an operator, ascending.
enum class EventLevel {
  kDebug,    // what the cache found
  kInfo,     // work that takes time: a compile, a fallback that serves
  kWarning,  // it goes on, but slower or elsewhere than was asked for
  kError,    // a kernel that was asked for cannot be had
};

EventLevel level_of(EventKind kind);

struct Event {
  EventKind kind;
  std::string key;     // hex of the cache key, or ""
  std::string name;    // kernel or file
  std::string detail;  // for people
  double milliseconds = 0;
  EventLevel level() const { return level_of(kind); }
};

std::string_view to_string(EventKind kind);
std::string_view to_string(EventLevel level);

/// Called from whichever thread the event happens on, possibly from several at once; must not throw or call back in.
using EventSink = std::function<void(const Event&)>;

/// `sink`, told of events of `least` and above alone. An empty sink stays empty.
EventSink at_least(EventLevel least, EventSink sink);

}  // namespace kernelwright
