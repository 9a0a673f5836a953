/// What a launch does about a kernel that is not ready yet.
#pragma once

#include "kernelwright/generator/error.h"

namespace kernelwright {

/// A kernel is needed now, is not ready, and may not be made ready now. Either its stream captures, or the engine is
/// sealed, or OnMiss::kError asks for this. what() names the kernel, its key and the remedy.
class NotReadyError : public Error {
 public:
  using Error::Error;
};

/// What a launch does while its kernel is being made ready in the background.
enum class OnMiss {
  kBlock,  // waits for it
  /// The portable kernel with its default schedule serves until promote(). It serves at once if another problem has
  /// loaded it. Otherwise it is loaded or compiled first, and launches wait until then. If the wanted kernel is in the
  /// cache, that is loaded instead. If the wanted kernel is the portable one, or the portable family does not compute
  /// the problem, this is kBlock.
  kFallback,
  kError,  // throws NotReadyError
};

}  // namespace kernelwright
