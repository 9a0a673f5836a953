// Specialisation of templates/kernels/attention/portable/attention_portable.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_ENTRY attention_portable_c3d669af505759e6

namespace kernelwright::spec {

constexpr Family kFamily = Family::kPortable;  // kernel family
constexpr int kArch = 90;  // architecture: sm_90a
constexpr DType kQDType = DType::kBf16;  // dtype of queries
constexpr DType kKvDType = DType::kBf16;  // dtype of keys and values
constexpr DType kOutDType = DType::kBf16;  // dtype of the output
constexpr int kHeadDimQk = 128;  // elements of a query or key head
constexpr int kHeadDimV = 128;  // elements of a value head
constexpr int kGroup = 1;  // query heads per KV head
constexpr QLayout kQLayout = QLayout::kPadded;  // layout of queries
constexpr KvLayoutKind kKvLayout = KvLayoutKind::kPadded;  // layout of keys and values
constexpr int kPageSize = 0;  // keys of a page; 0 unless paged
constexpr CacheLength kCacheLength = CacheLength::kAccurate;  // what lengths of keys count: all, or those of the cache alone
constexpr MaskKind kMask = MaskKind::kCausal;  // visibility
constexpr int kChunk = 0;  // keys of a chunk; 0 unless the mask is chunked
constexpr ScoreModKind kScoreMod = ScoreModKind::kNone;  // score modifier
constexpr bool kSinks = false;  // a logit per query head joins the softmax
constexpr bool kLse = false;  // the log of the sum of exponentials is returned
constexpr ScaleKind kScales = ScaleKind::kNone;  // granularity of key and value scales
constexpr bool kTokenGen = false;  // decode form: each warp walks keys of its own
constexpr bool kPackGqa = false;  // query heads of one KV head share a tile
constexpr int kBlockM = 128;  // query rows of a tile
constexpr int kBlockN = 64;  // keys of a tile
constexpr int kSwizzleBytes = 128;  // widest shared-memory swizzle
constexpr Rescale kRescale = Rescale::kLazy;  // when the output is rescaled to a new row maximum
constexpr Staging kStaging = Staging::kCpAsync;  // what the stages of the KV buffer are
constexpr int kBlockK = 128;  // depth chunk of a key tile
constexpr int kWarpN = 64;  // keys of a tile that a warp multiplies
constexpr int kNumWarps = 4;  // warps of a CTA
constexpr int kNumStages = 1;  // stages of the KV buffer
constexpr int kMinCtas = 2;  // CTAs that an SM shall hold

}  // namespace kernelwright::spec
