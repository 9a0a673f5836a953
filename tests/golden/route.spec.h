// Specialisation of templates/kernels/route.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY route_c23818087491f447

namespace kernelwright::spec {

constexpr int kArch = 90;  // architecture: sm_90a
constexpr DType kLogitsDType = DType::kF32;  // dtype of the logits
constexpr int kGroups = 8;  // groups of experts
constexpr int kPickedGroups = 4;  // groups of which experts are chosen
constexpr bool kSoftmax = false;  // weights are a softmax
constexpr bool kSigmoid = true;  // weights are sigmoids
constexpr bool kTopKFirst = false;  // scores are those of the chosen experts alone
constexpr bool kBiased = true;  // a bias is added for the choice
constexpr bool kSumsTwo = true;  // a group counts with the sum of its two largest scores
constexpr bool kRenormalized = true;  // weights are divided by their sum
constexpr bool kBounded = true;  // a bound leaves few candidates, which are ranked at once
constexpr int kTopK = 8;  // experts of a token
constexpr bool kSorts = true;  // pairs of token and slot are sorted
constexpr int kBuckets = 256;  // experts by which pairs are sorted
constexpr bool kMapped = false;  // a map says which expert is which of them
constexpr int kExperts = 256;  // experts with a logit
constexpr int kAlignment = 1;  // the rows of an expert begin at a multiple of it
constexpr int kWarps = 16;  // warps of a CTA
constexpr int kFewWarps = 16;  // warps of a CTA where few tokens are launched
constexpr bool kGiven = false;  // a launch gives the experts of tokens
constexpr bool kShortCounts = true;  // counts of a CTA have 16 bits

}  // namespace kernelwright::spec
