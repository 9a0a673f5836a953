// Specialisation of templates/kernels/kv_write.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY kv_write_c1b48fa05642af8d

namespace kernelwright::spec {

constexpr int kArch = 90;  // architecture: sm_90a
constexpr DType kInDType = DType::kBf16;  // dtype of what is read
constexpr DType kQDType = DType::kBf16;  // dtype of the queries that are written
constexpr DType kKvDType = DType::kE4m3;  // dtype of the cache
constexpr int kHeadDimQk = 128;  // elements of a query or key head
constexpr int kHeadDimV = 128;  // elements of a value head
constexpr int kQHeads = 32;  // query heads that are written
constexpr int kKvHeads = 8;  // key and value heads
constexpr bool kVOut = true;  // value heads are written
constexpr KvLayoutKind kKvLayout = KvLayoutKind::kPaged;  // layout of the cache
constexpr int kPageSize = 16;  // keys of a page; 0 unless paged
constexpr bool kVColumns = false;  // a page of values has an element of all its keys side by side
constexpr CacheIndex kIndex = CacheIndex::kSlots;  // what names the place of a token
constexpr NormKind kNorm = NormKind::kRms;  // norm of queries and keys
constexpr bool kNormWeight = true;  // weights multiply the result of the norm
constexpr int kWeightOffset = 0;  // what is added to a weight
constexpr bool kNormBeforeRope = true;  // the norm comes before the rotation
constexpr bool kNormV = false;  // values are normalised, without weights
constexpr RopeStyle kRope = RopeStyle::kNeox;  // which elements turn with each other
constexpr int kRopeWidth = 128;  // elements that turn
constexpr int kRopeBegin = 0;  // the first of them
constexpr int kSectionFirst = 0;  // pairs of the first stream of positions; 0: one stream
constexpr int kSectionSecond = 0;  // pairs of the second stream
constexpr int kSectionThird = 0;  // pairs of the third stream
constexpr bool kInterleaved = false;  // streams take turns
constexpr bool kHadamard = false;  // queries and keys are transformed
constexpr bool kHadamardSigns = false;  // with fixed signs ahead of it
constexpr ScaleKind kQScales = ScaleKind::kNone;  // granularity of the query scales
constexpr ScaleKind kKScales = ScaleKind::kPerHead;  // granularity of the key scales
constexpr ScaleKind kVScales = ScaleKind::kPerHead;  // granularity of the value scales
constexpr bool kPowerOfTwo = false;  // scales of tokens are powers of two
constexpr bool kUe8m0 = false;  // and are written as bytes
constexpr bool kHasLeast = false;  // the largest magnitude of a head has a bound from below
constexpr int kNumWarps = 4;  // warps of a CTA
constexpr int kHeadsPerLane = 4;  // heads of which a lane has 16 elements each
constexpr bool kSplitsFew = false;  // of few tokens a lane has one head

}  // namespace kernelwright::spec
