#include "kernelwright/runtime/gemm/kernel.h"

#include <algorithm>

#include "kernelwright/runtime/gemm/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright {

template class KernelHandle<detail::GemmKind, GemmProblem, GemmPlan>;

void GemmKernel::launch(const GemmTensors& tensors, Stream stream) const { launch_with(tensors, stream); }

std::uint64_t GemmKernel::workspace_bytes(int m) const {
  const Slot& of = slot();
  const auto bytes = [&](const GemmPlan& plan) {
    return plan_workspace(plan.variant_for(m).spec, {m, of.problem.n, of.problem.k, 0}).bytes;
  };
  if (m <= 0) return 0;  // nothing will be launched
  return std::max(bytes(of.plan), of.fallback_plan ? bytes(*of.fallback_plan) : 0);
}

const std::string& GemmKernel::key(int m) const {
  const Slot& of = slot();
  for (std::size_t i = 0; i < of.plan.variants.size(); ++i)
    if (m <= of.plan.variants[i].most_m) return of.keys[i];
  return of.keys.back();
}

std::vector<std::shared_ptr<const Binary>> GemmKernel::binaries() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  std::vector<std::shared_ptr<const Binary>> binaries;
  if (of.tuned)
    for (const auto& variant : of.tuned->variants) binaries.push_back(variant.binary);
  return binaries;
}

}  // namespace kernelwright
