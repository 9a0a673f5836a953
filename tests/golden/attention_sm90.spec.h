// Specialisation of templates/kernels/attention/sm90/attention_sm90.cu
#pragma once

#include "contract/words.h"

#define KERNELWRIGHT_WGMMA_N0 128
#define KERNELWRIGHT_ENTRY attention_sm90_27d882d0564197c9

namespace kernelwright::spec {

constexpr Family kFamily = Family::kHopper;  // kernel family
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
constexpr int kBlockN = 128;  // keys of a tile
constexpr int kSwizzleBytes = 128;  // widest shared-memory swizzle
constexpr Rescale kRescale = Rescale::kLazy;  // when the output is rescaled to a new row maximum
constexpr int kMathWarpgroups = 2;  // warpgroups that multiply; one more loads
constexpr int kQStages = 2;  // slots of query tiles
constexpr int kNumKvStages = 2;  // slots of the K/V ring, or of each ring
constexpr int kNumQkStages = 1;  // sub-stages of a tile of K, each some of its columns
constexpr int kNumMmaStages = 1;  // sub-stages of a tile of V, each some of its keys
constexpr KvRing kKvRing = KvRing::kSplit;  // one ring for K and V, or one each
constexpr Overlap kOverlap = Overlap::kBoth;  // which exponentials hide behind which products
constexpr Scheduler kScheduler = Scheduler::kLongestFirst;  // order in which tiles are handed out
constexpr int kClusterM = 1;  // CTAs of a cluster, along the queries
constexpr int kMulticast = 1;  // CTAs that each load of K and V serves

}  // namespace kernelwright::spec
