// Specialisation of templates/kernels/route_sort.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY route_sort_57639d1fe5923cfb

namespace kernelwright::spec {

constexpr int kArch = 90;  // architecture: sm_90a
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
