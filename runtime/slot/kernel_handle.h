/// The members that every kernel handle has, whatever it computes.
#pragma once

#include <string>
#include <string_view>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {

namespace detail {
template <class Kind>
struct KernelSlot;
struct MoeLayer;
}  // namespace detail

enum class KernelState {
  kPending,  // compiling, or waiting to compile; a fallback may serve
  kReady,    // loaded. A fallback that serves does so until Engine::promote()
  kFailed,   // error() says why; a fallback goes on serving
};
std::string_view to_string(KernelState state);

/// A handle. A copy costs no more than a pointer's, any thread may use it, and it is valid as long as its Engine. A
/// default-constructed handle is empty and throws Error when it is used. Kind: the engine's type for this kind of
/// Problem.
template <class Kind, class Problem, class Plan>
class KernelHandle {
 public:
  explicit operator bool() const { return slot_ != nullptr; }

  KernelState state() const;
  /// Whether launch() queues the portable fallback now.
  bool serves_fallback() const;
  /// Why the kernel failed; "" unless the state is kFailed.
  std::string error() const;
  /// Waits until the state is no longer pending. If the kernel has failed, throws the error that stopped it.
  void wait() const;

  const Problem& problem() const;
  /// The wanted plan (not the fallback's).
  const Plan& plan() const;
  int device() const;

  bool operator==(const KernelHandle&) const = default;

 protected:
  using Slot = detail::KernelSlot<Kind>;
  KernelHandle() = default;
  explicit KernelHandle(Slot* slot) : slot_(slot) {}
  Slot& slot() const;
  /// Launches the kernel that serves now. If none serves yet, it waits or throws: the options of prepare() say which.
  template <class Tensors>
  void launch_with(const Tensors& tensors, Stream stream) const;

 private:
  friend struct detail::MoeLayer;  // launches several kernels as one
  Slot* slot_ = nullptr;
};

}  // namespace kernelwright
