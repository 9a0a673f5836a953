/// The tensor maps that a launch of attention_sm90 or attention_sm100 passes, or attention_decode_sm90 but for q, as
/// requests: contract/attention_sm90.h and contract/attention_sm100.h say what each is.
#pragma once

#include <optional>

#include "kernelwright/runtime/attention/arguments.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::detail {

struct AttentionTensorMaps {
  TensorMapRequest q, k, v;
  TensorMapRequest q_rope, k_rope;  // if the problem has a rotary part
  TensorMapRequest k_scale;         // if keys are records, which hold their scales
  bool one_rope = false;            // k_rope has one head, for all
  bool gathers = false;             // prefill: the kernel takes no k and v, for it copies keys row by row
};

/// For arguments that broke no rule. Pure: asks no device. Extents of zero become one, and strides of dimensions that
/// have one element become legal ones: nothing is loaded there.
AttentionTensorMaps tensor_maps_of(const LoadedAttention& kernel, const AttentionTensors& tensors,
                                   const ResolvedStrides& strides) noexcept;

}  // namespace kernelwright::detail
