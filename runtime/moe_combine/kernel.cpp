#include "kernelwright/runtime/moe_combine/kernel.h"

#include "kernelwright/runtime/moe_combine/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright {

template class KernelHandle<detail::MoeCombineKind, MoeCombineProblem, MoeCombinePlan>;

void MoeCombineKernel::launch(const MoeCombineTensors& tensors, Stream stream) const { launch_with(tensors, stream); }

const std::string& MoeCombineKernel::key() const { return slot().keys[0]; }

std::shared_ptr<const Binary> MoeCombineKernel::binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->binary : nullptr;
}

}  // namespace kernelwright
