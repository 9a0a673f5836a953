/// The hot path: arguments checked, parameters packed, one or two launches queued. No allocation, no text; no lock but
/// those of the tensor map cache.
#pragma once

#include <memory>
#include <vector>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/runtime/attention/kernel.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::detail {

/// An attention kernel loaded onto a device, with everything that a launch needs and does not change.
struct LoadedAttention {
  AttentionSpec spec;
  int forced_splits = 1;  // as plan_launch takes it
  int num_sms = 0;
  int q_heads = 1, kv_heads = 1;
  int max_q_len = 0;
  ScoreTensor mask, bias;        // shapes of the two, if the Spec has them
  float scale = 1, softcap = 0;  // where the caller gives none
  Window window;                 // as range_mask() has it
  int chunk_reach = 0;
  bool takes_window = false;  // the caller may give another
  bool has_pdl = false;       // programmatic dependent launch: kernels were compiled with griddepcontrol
  bool tensor_maps = false;   // the kernel reads its keys and values through tensor maps
  // For surely_fine(): which optional operands the kernel takes and needs, bit i for the i-th of kOptionalOperands.
  unsigned takes = 0, needs = 0;
  std::int64_t q_step = 8, kv_step = 8, o_step = 8;  // elements in 16 bytes; powers of two
  bool fallback = false;                             // the portable kernel in another one's place
  bool watched = false;                              // a launch is more than that: KernelSlot::watched_launch()
  Device* device = nullptr;
  const LoadedKernel* main = nullptr;
  const LoadedKernel* combine = nullptr;  // null: keys are never split, or `main` merges
  std::shared_ptr<const Binary> main_binary, combine_binary;
};

/// Fills all but device, kernels and binaries.
LoadedAttention describe(const AttentionProblem& problem, const AttentionPlan& plan, const DeviceInfo& device);

/// The kernels of a plan, and where their binaries belong in what is loaded, in the same order.
std::vector<Spec> specs_of(const AttentionPlan& plan);
void attach(LoadedAttention& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries);
/// Those that another problem has loaded.
void attach(LoadedAttention& loaded, const LoadedAttention& twin);

/// What a launch of `tensors` is planned for.
AttentionExtent extent_of(Heads heads, QLayout layout, const AttentionTensors& tensors) noexcept;

/// Parts that a launch of `plan` may be told to make: as plan_launch takes it.
int forced_splits(const AttentionPlan& plan) noexcept;

void launch_attention(const LoadedAttention& kernel, const AttentionTensors& tensors, Stream stream);

}  // namespace kernelwright::detail
