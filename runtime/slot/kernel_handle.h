/// What every kernel handle has, whatever it computes.
#pragma once

#include <string>
#include <string_view>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

namespace detail {
template <class Kind>
struct KernelSlot;
}

enum class KernelState {
  kPending,  // compiling or waiting to; a fallback may serve
  kReady,    // loaded. Where a fallback serves, it does so until Engine::promote()
  kFailed,   // error() says why; a fallback goes on serving
};
std::string_view to_string(KernelState state);

/// A handle: copied for the price of a pointer, used from any thread, valid as long as its Engine. A
/// default-constructed one is empty and throws Error when it is used. Kind is what the engine makes of its Problem.
template <class Kind, class Problem, class Plan>
class KernelHandle {
 public:
  explicit operator bool() const { return slot_ != nullptr; }

  KernelState state() const;
  /// True while the portable fallback is what launch() queues.
  bool serves_fallback() const;
  /// What stopped the kernel; "" unless the state is kFailed.
  std::string error() const;
  /// Waits until the state is no longer pending. Throws what stopped the kernel if it has failed.
  void wait() const;

  const Problem& problem() const;
  /// The plan that was asked for (not the fallback's).
  const Plan& plan() const;
  int device() const;

  bool operator==(const KernelHandle&) const = default;

 protected:
  using Slot = detail::KernelSlot<Kind>;
  KernelHandle() = default;
  explicit KernelHandle(Slot* slot) : slot_(slot) {}
  Slot& slot() const;
  /// Launches what serves now. Where nothing serves yet it waits or throws, as the kernel was prepared to.
  template <class Tensors>
  void launch_with(const Tensors& tensors, Stream stream) const;

 private:
  Slot* slot_ = nullptr;
};

}  // namespace kernelwright
