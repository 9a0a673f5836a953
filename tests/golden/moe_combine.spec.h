// Specialisation of templates/kernels/moe_combine.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY moe_combine_b45993fc1ec3ffce

namespace kernelwright::spec {

constexpr int kArch = 90;  // architecture: sm_90a
constexpr DType kInDType = DType::kBf16;  // dtype of the rows of experts, and of the residual
constexpr DType kOutDType = DType::kBf16;  // dtype of the rows of tokens
constexpr int kWidth = 7168;  // elements of a row
constexpr int kTopK = 8;  // slots of a token
constexpr bool kWeighted = true;  // each row is multiplied by a weight
constexpr bool kAdds = true;  // a residual is added last
constexpr int kThreads = 128;  // threads of a CTA

}  // namespace kernelwright::spec
