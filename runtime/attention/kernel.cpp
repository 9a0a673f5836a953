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
  const int num_sms = of.device->info().num_sms;
  const auto bytes = [&](const AttentionPlan& plan) {
    return plan_launch(plan.main, extent, num_sms, detail::forced_splits(plan)).workspace_bytes;
  };
  const bool empty = extent.batch <= 0 || extent.q_len <= 0 || extent.q_tokens <= 0 || extent.kv_len < 0;
  if (empty) return 0;  // nothing will be launched
  if (auto broken = detail::broken_extent(extent); !broken.empty()) throw ConfigError(std::move(broken));
  return std::max(bytes(of.plan), of.fallback_plan ? bytes(*of.fallback_plan) : 0);
}

AttentionExtent AttentionKernel::extent(const AttentionTensors& tensors) const {
  return detail::extent_of(slot().problem, tensors);
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
