/// The layout of scales of block-scaled operands, for kernels that read them: scale_atoms.h, and its numbers as
/// constants.
#pragma once

#include "contract/scale_atoms.h"

namespace kernelwright::contract {

constexpr int32_t kScaleAtomBytes = ScaleAtom::kBytes;
constexpr int32_t kScaleAtomRows = ScaleAtom::kRows;
constexpr int32_t kScaleAtomScales = ScaleAtom::kScales;  // scales of k per atom

}  // namespace kernelwright::contract
