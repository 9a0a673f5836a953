#include "kernelwright/runtime/quantize/kernel.h"

#include "kernelwright/runtime/quantize/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright {

template class KernelHandle<detail::QuantizeKind, QuantizeProblem, QuantizePlan>;

void QuantizeKernel::launch(const QuantizeTensors& tensors, Stream stream) const { launch_with(tensors, stream); }

const std::string& QuantizeKernel::key() const { return slot().keys[0]; }

std::shared_ptr<const Binary> QuantizeKernel::binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->binary : nullptr;
}

}  // namespace kernelwright
