/// What the library reports to its caller while it works. It neither prints nor exits: a sink gets every event, and
/// counters can be read at any time.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kernelwright {

enum class EventKind {
  kCompile,          // a kernel was compiled; `milliseconds` has the time
  kCacheHit,         // found on disk
  kCacheMiss,        // not found; `detail` has the field that differs from the nearest entry, if one is known
  kCacheQuarantine,  // a damaged entry was set aside
  kCacheDegraded,    // a layer of the cache is off, or has bad data; `detail` says why. Once per cause
  kCacheRestored,    // a remote cache that was off answers again
  kLockWait,         // another process or host compiles this key, and we waited a second; `milliseconds` so far
  kLockTimeout,      // another process held a key's lock for too long; compiled alone
  kFallback,         // a launch was served by the portable kernel while a better one compiles
  kSealedMiss,       // a caller asked for a kernel after seal()
  kFailure,          // a background compile failed; `detail` has the error
  kDevice,           // backend "auto" found no GPU and took the emulator; `detail` says what is missing
  kBadData,  // a length, offset or page of a launch contradicts its tensors; `name` is the kernel, `detail` the row
  kCompileWorker,  // a compile worker failed, or none can be started; `name` is the kernel, `detail` says why
  kTunedRow,       // a tuned row, or a folder of them, was set aside; `name` is its file, `detail` says why
};

/// How important an event is for an operator, ascending.
enum class EventLevel {
  kDebug,    // what the cache found
  kInfo,     // work that takes time: a compile, a fallback that serves
  kWarning,  // work goes on, but slower or elsewhere than wanted
  kError,    // a wanted kernel is not available
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

/// Called from the thread on which the event happens, possibly from several at once; must not throw or call back in.
using EventSink = std::function<void(const Event&)>;

/// `sink`, but only for events of `least` and above. An empty sink stays empty.
EventSink at_least(EventLevel least, EventSink sink);

}  // namespace kernelwright
