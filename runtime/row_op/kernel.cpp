#include "kernelwright/runtime/row_op/kernel.h"

#include "kernelwright/runtime/row_op/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright {

template class KernelHandle<detail::RowOpKind, RowOpProblem, RowOpPlan>;

void RowOpKernel::launch(const RowOpTensors& tensors, Stream stream) const { launch_with(tensors, stream); }

const std::string& RowOpKernel::key() const { return slot().keys[0]; }

std::shared_ptr<const Binary> RowOpKernel::binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->binary : nullptr;
}

}  // namespace kernelwright
