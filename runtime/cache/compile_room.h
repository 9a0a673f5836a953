/// What a compile takes of its host before it begins: one of the host's slots for compiles, for instance.
#pragma once

namespace kernelwright {

/// Of one compile, on one thread. The cache takes it before the lease of a kernel. So a host holds no lease of a kernel
/// that it cannot begin, and other hosts compile it meanwhile. The end of the object gives it back.
class CompileRoom {
 public:
  virtual ~CompileRoom() = default;
  /// Takes it if it is free now. Returns whether the compile may begin.
  virtual bool try_take() = 0;
  /// Waits for it. A wait that took too long, or was interrupted, ends without it.
  virtual void take() = 0;
  virtual void give_back() = 0;
};

}  // namespace kernelwright
