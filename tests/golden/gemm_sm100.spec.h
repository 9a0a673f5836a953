// Specialisation of templates/kernels/gemm/sm100/gemm_sm100.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY gemm_sm100_cfe024c8be21c437

namespace kernelwright::spec {

constexpr Family kFamily = Family::kBlackwell;  // kernel family
constexpr int kArch = 100;  // architecture: sm_100a
constexpr DType kADType = DType::kBf16;  // dtype of the left operand
constexpr DType kBDType = DType::kBf16;  // dtype of the right operand
constexpr DType kDDType = DType::kBf16;  // dtype of the result
constexpr DType kCDType = DType::kBf16;  // dtype of bias and c
constexpr OperandLayout kLayout = OperandLayout::kNt;  // which operands lie with k innermost
constexpr ScaleKind kScales = ScaleKind::kNone;  // granularity of the operands' scales
constexpr bool kAlpha = false;  // a number multiplies the sums
constexpr bool kBias = false;  // a row is added to each row of the sums
constexpr Activation kActivation = Activation::kNone;  // what happens to them then
constexpr bool kAddsC = false;  // a matrix times a number is added at last
constexpr bool kGated = false;  // sums are gates and ups, and two of them make a result
constexpr bool kClamped = false;  // gates and ups are clamped
constexpr float kLimit = 0x0p+0f;  // clamped: the largest gate, and the largest magnitude of an up: 0
constexpr float kSteepness = 0x0p+0f;  // clamped: of the sigmoid: 0
constexpr bool kSwapAb = false;  // rows of the kernel's tile are columns of the result
constexpr int kBlockM = 128;  // rows of a tile
constexpr int kBlockN = 256;  // columns of a tile
constexpr int kStages = 6;  // slots of the operands' ring
constexpr int kSlabBytes = 128;  // bytes of k in a slot
constexpr int kSwizzleBytes = 128;  // shared-memory swizzle of the operands
constexpr int kKGroup = 1;  // slots behind one pair of barriers
constexpr int kStoreStages = 2;  // slabs of results of a warp on their way
constexpr int kClusterM = 2;  // CTAs of a cluster, which share columns of the right operand
constexpr int kClusterN = 1;  // CTAs of a cluster, which share rows of the left operand
constexpr int kCtaGroup = 2;  // CTAs that share each product
constexpr int kAccumulators = 2;  // sums that tensor memory holds at a time
constexpr Scheduler kScheduler = Scheduler::kQueued;  // how CTAs come to their tiles
constexpr int kClcDepth = 2;  // answers of cluster launch control on their way
constexpr int kPromotion = 0;  // slabs of k between additions to f32 sums; 0: none
constexpr int kSplitK = 1;  // CTAs that take turns at a tile, each with a part of k

}  // namespace kernelwright::spec
