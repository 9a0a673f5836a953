// Specialisation of templates/kernels/gemm/portable/gemm_portable.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY gemm_portable_0715e9a75b9d5578

namespace kernelwright::spec {

constexpr Family kFamily = Family::kPortable;  // kernel family
constexpr int kArch = 80;  // architecture: sm_80
constexpr DType kADType = DType::kBf16;  // dtype of the left operand
constexpr DType kBDType = DType::kBf16;  // dtype of the right operand
constexpr DType kDDType = DType::kBf16;  // dtype of the result
constexpr DType kCDType = DType::kBf16;  // dtype of bias and c
constexpr OperandLayout kLayout = OperandLayout::kNt;  // which operands lie with k innermost
constexpr ScaleKind kScales = ScaleKind::kNone;  // granularity of the operands' scales
constexpr bool kAlpha = false;  // a number multiplies the sums
constexpr bool kBias = true;  // a row is added to each row of the sums
constexpr Activation kActivation = Activation::kGelu;  // what happens to them then
constexpr bool kAddsC = false;  // a matrix times a number is added at last
constexpr bool kGated = false;  // sums are gates and ups, and two of them make a result
constexpr bool kClamped = false;  // gates and ups are clamped
constexpr float kLimit = 0x0p+0f;  // clamped: the largest gate, and the largest magnitude of an up: 0
constexpr float kSteepness = 0x0p+0f;  // clamped: of the sigmoid: 0
constexpr bool kSwapAb = false;  // rows of the kernel's tile are columns of the result
constexpr int kBlockM = 128;  // rows of a tile
constexpr int kBlockN = 128;  // columns of a tile
constexpr int kStages = 4;  // slots of the operands' ring
constexpr int kSlabBytes = 128;  // bytes of k in a slot
constexpr int kSwizzleBytes = 128;  // shared-memory swizzle of the operands
constexpr GroupKind kGroups = GroupKind::kNone;  // whether rows belong to groups, each with a right operand of its own
constexpr GroupBounds kBounds = GroupBounds::kStarts;  // what the bounds of groups say
constexpr int kMostGroups = 0;  // groups for which shared memory has room
constexpr bool kGather = false;  // a launch says which row of the left operand each row is
constexpr int kNumWarps = 8;  // warps of a CTA
constexpr int kPromotion = 0;  // slabs of k between additions to f32 sums; 0: none

}  // namespace kernelwright::spec
