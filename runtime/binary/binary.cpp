#include "kernelwright/runtime/binary/binary.h"

namespace kernelwright {

std::string_view to_string(CacheSource source) {
  switch (source) {
    case CacheSource::kNone: return "";
    case CacheSource::kMemory: return "memory";
    case CacheSource::kDisk: return "disk";
    case CacheSource::kLayer: return "read-only layer";
    case CacheSource::kCompiled: return "compiled";
  }
  return "?";
}

}  // namespace kernelwright
