#include "kernelwright/runtime/kv_write/kernel.h"

#include "kernelwright/runtime/kv_write/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright {

template class KernelHandle<detail::KvWriteKind, KvWriteProblem, KvWritePlan>;

void KvWriteKernel::launch(const KvWriteTensors& tensors, Stream stream) const { launch_with(tensors, stream); }

const std::string& KvWriteKernel::key() const { return slot().keys[0]; }

std::shared_ptr<const Binary> KvWriteKernel::binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->binary : nullptr;
}

}  // namespace kernelwright
