// Specialisation of templates/kernels/attention/decode/attention_decode_sm90.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY attention_decode_sm90_e3300336f9812e49

namespace kernelwright::spec {

constexpr Family kFamily = Family::kHopper;  // kernel family
constexpr int kArch = 90;  // architecture: sm_90a
constexpr DType kQDType = DType::kBf16;  // dtype of queries
constexpr DType kKvDType = DType::kBf16;  // dtype of keys and values
constexpr DType kOutDType = DType::kBf16;  // dtype of the output
constexpr int kHeadDimQk = 128;  // elements of a query or key head
constexpr int kHeadDimV = 128;  // elements of a value head
constexpr int kGroup = 4;  // query heads per KV head
constexpr QLayout kQLayout = QLayout::kPadded;  // layout of queries
constexpr KvLayoutKind kKvLayout = KvLayoutKind::kPadded;  // layout of keys and values
constexpr int kPageSize = 0;  // keys of a page; 0 unless paged
constexpr CacheLength kCacheLength = CacheLength::kAccurate;  // what lengths of keys count: all, or those of the cache alone
constexpr MaskKind kMask = MaskKind::kNone;  // visibility
constexpr int kChunk = 0;  // keys of a chunk; 0 unless the mask is chunked
constexpr ScoreModKind kScoreMod = ScoreModKind::kNone;  // score modifier
constexpr bool kSinks = false;  // a logit per query head joins the softmax
constexpr bool kLse = false;  // the log of the sum of exponentials is returned
constexpr ScaleKind kScales = ScaleKind::kNone;  // granularity of key and value scales
constexpr bool kTokenGen = true;  // decode form: each warp walks keys of its own
constexpr bool kPackGqa = true;  // query heads of one KV head share a tile
constexpr int kBlockM = 16;  // query rows of a tile
constexpr int kBlockN = 64;  // keys of a tile
constexpr int kSwizzleBytes = 128;  // widest shared-memory swizzle
constexpr Rescale kRescale = Rescale::kLazy;  // when the output is rescaled to a new row maximum
constexpr int kNumWarps = 4;  // warps of a CTA
constexpr int kNumStages = 4;  // stages of the KV buffer
constexpr int kMinCtas = 1;  // CTAs that an SM shall hold
constexpr Merge kMerge = Merge::kInKernel;  // who merges the parts of split keys

}  // namespace kernelwright::spec
