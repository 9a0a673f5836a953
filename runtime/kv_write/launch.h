/// Checks the arguments of a launch that writes a cache, and queues it.
#pragma once

#include <span>
#include <vector>

#include "contract/kv_write.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/runtime/kv_write/kernel.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/slot/one_kernel.h"

namespace kernelwright::detail {

struct LoadedKvWrite : OneKernel<KvWriteSpec> {
  float eps = 0, least = 0;
};

/// As in runtime/gemm/launch.h.
LoadedKvWrite describe(const KvWriteProblem& problem, const KvWritePlan& plan, const DeviceInfo& device);
std::vector<Spec> specs_of(const KvWritePlan& plan);

/// `tensors` with the strides that a launch uses: those that are not given are the shape's.
KvWriteTensors resolved(const KvWriteSpec& spec, KvWriteTensors tensors);

/// What a kernel takes of `tensors`, which are resolved() and break no rule.
contract::KvWriteParams params_of(const LoadedKvWrite& kernel, const KvWriteTensors& tensors);

void launch_kv_write(const LoadedKvWrite& kernel, const KvWriteTensors& tensors, Stream stream);

/// Every rule that `tensors`, which are resolved(), break.
std::vector<Violation> broken_rules(const LoadedKvWrite& kernel, const KvWriteTensors& tensors);

/// An operand of a GEMM that writes a cache, and its name.
struct OtherOperand {
  const char* name;
  const Matrix& of;
};
/// The same without those of q, k, v, q_out and pdl: of a GEMM that makes them. The cache overlaps none of `others`.
std::vector<Violation> broken_cache_rules(const LoadedKvWrite& kernel, const KvWriteTensors& tensors,
                                          std::span<const OtherOperand> others);

}  // namespace kernelwright::detail
