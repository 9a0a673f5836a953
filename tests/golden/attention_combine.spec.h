// Specialisation of templates/kernels/attention/attention_combine.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY attention_combine_1bb6483a9b3a2a61

namespace kernelwright::spec {

constexpr int kArch = 100;  // architecture: sm_100a
constexpr DType kOutDType = DType::kBf16;  // dtype of the output
constexpr int kHeadDimV = 128;  // elements of a value head
constexpr bool kLse = true;  // the log of the sum of exponentials is returned

}  // namespace kernelwright::spec
