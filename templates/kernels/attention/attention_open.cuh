/// The classes of policy/open_scores.cuh for a Spec, in all attention kernels.
#pragma once

#include "spec.h"

#include "contract/words.h"
#include "policy/open_scores.cuh"

namespace kernelwright {

#ifdef KERNELWRIGHT_OPEN_SCORES
using OpenRow = policy::OpenRow<spec::kMaskTensor, spec::kScoreMod == ScoreModKind::kTensor, spec::kBiasDType,
                                spec::MaskSource, spec::ScoreSource>;
#else
using OpenRow = policy::ClosedRow;
#endif

}  // namespace kernelwright
