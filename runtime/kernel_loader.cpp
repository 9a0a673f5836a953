#include "kernelwright/runtime/kernel_loader.h"

namespace kernelwright {

const LoadedKernel* KernelLoader::find(const Device& device, const std::string& entry) const {
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find({device.ordinal(), entry});
  return found == kernels_.end() ? nullptr : found->second.get();
}

const LoadedKernel* KernelLoader::load(Device& device, const Binary& binary, std::uint32_t max_shared_bytes) {
  std::mutex* turn;
  {
    std::lock_guard lock(mutex_);
    turn = &loading_[device.ordinal()];
  }
  std::lock_guard loading(*turn);
  if (const LoadedKernel* loaded = find(device, binary.entry)) return loaded;
  std::unique_ptr<LoadedKernel> kernel = device.load(binary.cubin, binary.entry, max_shared_bytes);
  loads_.fetch_add(1, std::memory_order_relaxed);
  loaded_bytes_.fetch_add(kernel->loaded_bytes(), std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  return (kernels_[{device.ordinal(), binary.entry}] = std::move(kernel)).get();
}

}  // namespace kernelwright
