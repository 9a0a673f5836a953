// Specialisation of templates/kernels/quantize.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY quantize_39a6b96f1edbb2c0

namespace kernelwright::spec {

constexpr int kArch = 100;  // architecture: sm_100a
constexpr DType kFromDType = DType::kF32;  // dtype of the rows
constexpr DType kToDType = DType::kNvfp4;  // block-scaled format that they become

}  // namespace kernelwright::spec
