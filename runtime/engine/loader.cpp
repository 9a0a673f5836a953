#include "kernelwright/runtime/engine/loader.h"

#include <string_view>
#include <utility>

#include "kernelwright/generator/error.h"

namespace kernelwright {

const LoadedKernel* KernelLoader::find(const Device& device, const std::string& entry) const {
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find({device.ordinal(), entry});
  return found == kernels_.end() ? nullptr : found->second.get();
}

namespace {

std::unique_ptr<LoadedKernel> load_ptx(Device& device, const Binary& binary, std::uint32_t max_shared_bytes,
                                       const KernelLoader::Explain& explain) {
  if (binary.ptx.empty())
    throw Error("loading " + binary.entry + ": " + device.info().name +
                " runs PTX, and the binary came without it; read the cache with CacheOptions::ptx");
  KernelLoader::Explained explained = explain ? explain() : KernelLoader::Explained{};
  KernelImage image{std::string_view(binary.ptx)};
  image.registers = static_cast<std::uint32_t>(binary.usage.registers);
  image.notes = &explained.notes;
  image.lined_ptx = std::move(explained.lined_ptx);
  return device.load(image, binary.entry, max_shared_bytes);
}

}  // namespace

const LoadedKernel* KernelLoader::load(Device& device, const Binary& binary, std::uint32_t max_shared_bytes,
                                       const Explain& explain) {
  std::mutex* turn;
  {
    std::lock_guard lock(mutex_);
    turn = &loading_[device.ordinal()];
  }
  std::lock_guard loading(*turn);
  if (const LoadedKernel* loaded = find(device, binary.entry)) return loaded;
  const auto start = LatencyHistogram::Clock::now();
  std::unique_ptr<LoadedKernel> kernel = device.info().wants == ImageKind::kPtx
                                             ? load_ptx(device, binary, max_shared_bytes, explain)
                                             : device.load(binary.cubin, binary.entry, max_shared_bytes);
  latency_.add(LatencyHistogram::Clock::now() - start);
  loads_.fetch_add(1, std::memory_order_relaxed);
  loaded_bytes_.fetch_add(kernel->loaded_bytes(), std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  return (kernels_[{device.ordinal(), binary.entry}] = std::move(kernel)).get();
}

}  // namespace kernelwright
