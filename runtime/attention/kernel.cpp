#include "kernelwright/runtime/attention/kernel.h"

#include <algorithm>
#include <utility>

#include "kernelwright/runtime/attention/arguments.h"
#include "kernelwright/runtime/attention/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright {

template class KernelHandle<detail::AttentionKind, AttentionProblem, AttentionPlan>;

void AttentionKernel::launch(const AttentionTensors& tensors, Stream stream) const { launch_with(tensors, stream); }

std::uint64_t AttentionKernel::workspace_bytes(const AttentionExtent& extent) const {
  const Slot& of = slot();
  const int device_sms = of.device->info().num_sms;
  // A kernel with clusters may reach fewer SMs than the device has; a launch counts those once it is loaded.
  const auto* serving = of.serving.load(std::memory_order_acquire);
  const int plan_sms = serving && !serving->fallback ? serving->num_sms : device_sms;
  const auto bytes = [&](const AttentionPlan& plan, int num_sms) {
    return plan_launch(plan.main, extent, num_sms, detail::forced_splits(plan)).workspace_bytes;
  };
  const bool empty = extent.batch <= 0 || extent.q_len <= 0 || extent.q_tokens <= 0 || extent.kv_len < 0;
  if (empty) return 0;  // nothing will be launched
  if (auto broken = detail::broken_extent(extent); !broken.empty()) throw ConfigError(std::move(broken));
  return std::max(bytes(of.plan, plan_sms), of.fallback_plan ? bytes(*of.fallback_plan, device_sms) : 0);
}

AttentionExtent AttentionKernel::extent(const AttentionTensors& tensors) const {
  const AttentionProblem& of = slot().problem;
  return detail::extent_of(of.heads, of.q_layout, tensors);
}

const std::string& AttentionKernel::key() const { return slot().keys[0]; }

std::shared_ptr<const Binary> AttentionKernel::binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->main_binary : nullptr;
}

std::shared_ptr<const Binary> AttentionKernel::combine_binary() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->combine_binary : nullptr;
}

}  // namespace kernelwright
