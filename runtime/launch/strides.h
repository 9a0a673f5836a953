/// How one operand of a launch is walked.
#pragma once

#include <cstdint>

namespace kernelwright {

/// How one operand is walked, in elements; its last dimension is contiguous. All zero: the operand is contiguous and
/// the strides follow from the shape. Inputs may broadcast with a zero (not to kernels that read through tensor maps,
/// attention_sm90); every other stride is at least one head, and a multiple of 16 bytes.
struct TensorStrides {
  std::int64_t batch = 0;  // of a page, where keys are paged; ignored where rows are ragged
  std::int64_t token = 0;
  std::int64_t head = 0;
};

}  // namespace kernelwright
