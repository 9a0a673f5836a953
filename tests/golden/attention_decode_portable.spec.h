// Specialisation of templates/kernels/attention/decode/attention_decode_portable.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY attention_decode_portable_7ebdfe3e7b8cd54c

namespace kernelwright::spec {

constexpr Family kFamily = Family::kPortable;  // kernel family
constexpr int kArch = 80;  // architecture: sm_80
constexpr DType kQDType = DType::kF16;  // dtype of queries
constexpr DType kKvDType = DType::kE4m3;  // dtype of keys and values
constexpr DType kOutDType = DType::kF16;  // dtype of the output
constexpr int kHeadDimQk = 128;  // elements of a query or key head
constexpr int kHeadDimV = 128;  // elements of a value head
constexpr int kGroup = 4;  // query heads per KV head
constexpr QLayout kQLayout = QLayout::kPadded;  // layout of queries
constexpr KvLayoutKind kKvLayout = KvLayoutKind::kPaged;  // layout of keys and values
constexpr int kPageSize = 16;  // keys of a page; 0 unless paged
constexpr CacheLength kCacheLength = CacheLength::kAccurate;  // what lengths of keys count: all, or those of the cache alone
constexpr MaskKind kMask = MaskKind::kNone;  // visibility
constexpr int kChunk = 0;  // keys of a chunk; 0 unless the mask is chunked
constexpr ScoreModKind kScoreMod = ScoreModKind::kNone;  // score modifier
constexpr bool kSinks = false;  // a logit per query head joins the softmax
constexpr bool kLse = false;  // the log of the sum of exponentials is returned
constexpr ScaleKind kScales = ScaleKind::kPerHead;  // granularity of key and value scales
constexpr bool kTokenGen = true;  // decode form: each warp walks keys of its own
constexpr bool kPackGqa = true;  // query heads of one KV head share a tile
constexpr int kBlockM = 16;  // query rows of a tile
constexpr int kBlockN = 64;  // keys of a tile
constexpr int kSwizzleBytes = 128;  // widest shared-memory swizzle
constexpr Rescale kRescale = Rescale::kLazy;  // when the output is rescaled to a new row maximum
constexpr Staging kStaging = Staging::kRegisters;  // what the stages of the KV buffer are
constexpr int kBlockK = 128;  // depth chunk of a key tile
constexpr int kNumWarps = 4;  // warps of a CTA
constexpr int kNumStages = 1;  // stages of the KV buffer
constexpr int kMinCtas = 1;  // CTAs that an SM shall hold
constexpr Merge kMerge = Merge::kInKernel;  // who merges the parts of split keys

}  // namespace kernelwright::spec
