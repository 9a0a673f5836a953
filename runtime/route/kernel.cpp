#include "kernelwright/runtime/route/kernel.h"

#include "kernelwright/runtime/route/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright {

template class KernelHandle<detail::RouteKind, RouteProblem, RoutePlan>;

void RouteKernel::launch(const RouteTensors& tensors, Stream stream) const { launch_with(tensors, stream); }

std::uint64_t RouteKernel::workspace_bytes(std::int64_t tokens) const {
  detail::require_tokens(plan().spec, tokens);
  return most_workspace_bytes(plan().spec, tokens);
}

const std::string& RouteKernel::key() const { return slot().keys[0]; }

std::shared_ptr<const Binary> RouteKernel::binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->binaries[0] : nullptr;
}

}  // namespace kernelwright
