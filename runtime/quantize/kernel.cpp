#include "kernelwright/runtime/quantize/kernel.h"

#include "kernelwright/runtime/slot/kernel_slot.h"

namespace kernelwright {

void QuantizeKernel::launch(const QuantizeTensors& tensors, Stream stream) const {
  Slot& target = slot();
  const detail::LoadedQuantize* kernel = target.serving.load(std::memory_order_acquire);
  if (!kernel) [[unlikely]]
    kernel = &target.await_serving(stream);
  if (kernel->watched) [[unlikely]]
    return target.watched_launch(*kernel, [&] { detail::launch_quantize(*kernel, tensors, stream); });
  detail::launch_quantize(*kernel, tensors, stream);
}

const std::string& QuantizeKernel::key() const { return slot().keys[0]; }

std::shared_ptr<const Binary> QuantizeKernel::binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->binary : nullptr;
}

}  // namespace kernelwright
