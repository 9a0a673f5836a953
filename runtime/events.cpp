#include "kernelwright/runtime/events.h"

namespace kernelwright {

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::kCompile: return "compile";
    case EventKind::kCacheHit: return "cache hit";
    case EventKind::kCacheMiss: return "cache miss";
    case EventKind::kCacheQuarantine: return "cache quarantine";
    case EventKind::kCacheDegraded: return "cache degraded";
    case EventKind::kLockTimeout: return "lock timeout";
    case EventKind::kFallback: return "fallback";
    case EventKind::kSealedMiss: return "sealed miss";
    case EventKind::kFailure: return "failure";
    case EventKind::kDevice: return "device";
    case EventKind::kTunedRow: return "tuned row";
  }
  return "?";
}

}  // namespace kernelwright
