#include "kernelwright/runtime/process/events.h"

#include <utility>

namespace kernelwright {

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::kCompile: return "compile";
    case EventKind::kCacheHit: return "cache hit";
    case EventKind::kCacheMiss: return "cache miss";
    case EventKind::kCacheQuarantine: return "cache quarantine";
    case EventKind::kCacheDegraded: return "cache degraded";
    case EventKind::kCacheRestored: return "cache restored";
    case EventKind::kLockWait: return "lock wait";
    case EventKind::kLockTimeout: return "lock timeout";
    case EventKind::kFallback: return "fallback";
    case EventKind::kSealedMiss: return "sealed miss";
    case EventKind::kFailure: return "failure";
    case EventKind::kDevice: return "device";
    case EventKind::kBadData: return "bad data";
    case EventKind::kCompileWorker: return "compile worker";
    case EventKind::kTunedRow: return "tuned row";
  }
  return "?";
}

EventLevel level_of(EventKind kind) {
  switch (kind) {
    case EventKind::kCacheHit:
    case EventKind::kCacheMiss: return EventLevel::kDebug;
    case EventKind::kCacheRestored:
    case EventKind::kCompile:
    case EventKind::kLockWait:
    case EventKind::kFallback: return EventLevel::kInfo;
    case EventKind::kCacheQuarantine:
    case EventKind::kCacheDegraded:
    case EventKind::kLockTimeout:
    case EventKind::kDevice:
    case EventKind::kBadData:
    case EventKind::kCompileWorker:
    case EventKind::kTunedRow: return EventLevel::kWarning;
    case EventKind::kSealedMiss:
    case EventKind::kFailure: return EventLevel::kError;
  }
  return EventLevel::kError;
}

std::string_view to_string(EventLevel level) {
  switch (level) {
    case EventLevel::kDebug: return "debug";
    case EventLevel::kInfo: return "info";
    case EventLevel::kWarning: return "warning";
    case EventLevel::kError: return "error";
  }
  return "?";
}

EventSink at_least(EventLevel least, EventSink sink) {
  if (!sink || least == EventLevel::kDebug) return sink;
  return [least, sink = std::move(sink)](const Event& event) {
    if (event.level() >= least) sink(event);
  };
}

}  // namespace kernelwright
