#include "kernelwright/runtime/slot/kernel_handle.h"

#include <fmt/format.h>

#include "kernelwright/runtime/slot/kernel_slot.h"

namespace kernelwright {

std::string_view to_string(KernelState state) {
  switch (state) {
    case KernelState::kPending: return "pending";
    case KernelState::kReady: return "ready";
    case KernelState::kFailed: return "failed";
  }
  return "?";
}

namespace detail {

void SlotShared::refuse_after_fork(const char* what) const {
  if (fork_generation() != generation)
    throw Error(
        fmt::format("{}: this process is a child of fork() and its engine is the parent's; create an Engine of "
                    "its own, before anything else of the library",
                    what));
}

}  // namespace detail

}  // namespace kernelwright
