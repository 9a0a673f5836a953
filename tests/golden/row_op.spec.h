// Specialisation of templates/kernels/row_op.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY row_op_377103127403b136

namespace kernelwright::spec {

constexpr int kArch = 90;  // architecture: sm_90a
constexpr DType kInDType = DType::kBf16;  // dtype of what is read, of the residual and of the weights
constexpr DType kOutDType = DType::kE4m3;  // dtype of the rows that are written
constexpr int kWidth = 7168;  // elements of a row that is written
constexpr bool kAdds = true;  // a residual is added and written back
constexpr bool kGated = false;  // rows have gates and ups
constexpr bool kMerges = false;  // two rows are merged, each head by its LSEs
constexpr int kHeads = 1;  // heads of a row that have an LSE each
constexpr Activation kActivation = Activation::kNone;  // of the gates
constexpr int kPairs = 0;  // gates that lie side by side, ahead of as many ups; 0: all of the row
constexpr bool kClamped = false;  // gates and ups are clamped
constexpr NormKind kNorm = NormKind::kRms;  // norm of the row
constexpr bool kNormWeight = true;  // weights multiply the result of the norm
constexpr int kWeightOffset = 0;  // what is added to a weight
constexpr ScaleKind kScales = ScaleKind::kPerBlock;  // granularity of the scales
constexpr bool kScaleColumns = true;  // scales of a block of all rows lie side by side
constexpr bool kPowerOfTwo = false;  // scales are powers of two
constexpr bool kHasLeast = false;  // the largest magnitude has a bound from below
constexpr int kVector = 16;  // neighbouring elements that a thread has
constexpr int kThreadsPerRow = 448;  // threads of a CTA that share a row
constexpr int kCtasPerRow = 1;  // CTAs that share a row
constexpr int kRowsPerCta = 1;  // rows of a CTA

}  // namespace kernelwright::spec
