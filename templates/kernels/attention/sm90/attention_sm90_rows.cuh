/// What the math warpgroups of attention_sm90 have beside products: their barriers, turns and policies, and the rows of
/// tiles that they touch one by one. These are rows of V that they clean, and rows of the output.
#pragma once

#include "kernels/attention/attention_open.cuh"
#include "kernels/attention/sm90/attention_sm90_columns.cuh"
#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "mma/promotion_sm90.cuh"
#include "policy/either.cuh"
#include "policy/integer_softmax.cuh"
#include "policy/item_record.cuh"
#include "policy/item_scales.cuh"
#include "policy/row_softmax.cuh"
#include "policy/score_mod.cuh"
#include "policy/scores.cuh"
#include "policy/turns.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

constexpr uint32_t kCleanBarrier = 5;  // the turns use named barriers 1 to 3
constexpr uint32_t kStageBarrier = 6;  // and one more for each further warpgroup
// An item's output leaves through the slot of its queries, if that slot need not be free before the output is stored. A
// slot of fp8 queries has no room for it.
constexpr bool kStagesOutput = spec::kQStages > 1 && !kNarrow;
constexpr bool kTakesTurns = spec::kOverlap == Overlap::kPingPong || spec::kOverlap == Overlap::kBoth;
// fp8 products whose exponentials hide behind the products of other warpgroups alone. A step is then one product after
// the other: O += P(j-1) V(j-1), then S = Q K(j)^T. Both take the same registers, so a tile may have twice as many
// keys.
constexpr bool kOneProduct = kNarrow && (spec::kOverlap == Overlap::kNone || spec::kOverlap == Overlap::kPingPong);
// The parts of P V take turns between the registers of scores and others as wide. The next scores are issued behind the
// last part, and not behind its additions.
enum : bool {
  kPartsTakeTurns = spec::kPvBuffers == 2,
  kScoresInHalves = kPartsTakeTurns && contract::parts_lie_in_scores(spec::kBlockN)
};
static_assert(!kPartsTakeTurns ||
                  (spec::kPvPromote == 1 && contract::parts_take_turns(kOneProduct, spec::kBlockN, spec::kHeadDimV)),
              "several parts, each as wide as scores");
// With packed heads, a sequence that decodes in a ragged batch is a tile of few rows. Warpgroups that have none of
// these rows do not multiply.
constexpr bool kSkipsRows = spec::kPackGqa && spec::kQLayout == QLayout::kRagged && spec::kMathWarpgroups > 1;

// Of ptx::pin_registers(). The kernels with 4 take NVRTC longest. Their instructions are those of 16, in the same
// order.
enum : int {
  kPinnedAtOnce = kPartsTakeTurns || (!kNarrow && (kSkipsRows ? !kConvertsKv : spec::kHeadDimV > 192)) ? 4 : 16
};

// With sub-stages of V, products begin when a tile's first sub-stage lands, and wait for more in the middle. Otherwise
// they wait for both tiles first.
constexpr bool kInStages = kValueStages > 1;
constexpr int kKeyStages = kInStages ? spec::kNumQkStages : 1;  // shares of the sum of scores

// Rows have seen few keys of a diagonal tile. In the tile behind it they are likely to see larger scores.
enum : bool { kRisesBehindDiagonal = kTransposesV && spec::kMask == MaskKind::kCausal };

using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
using PlaceMod = policy::PlaceMod<spec::kScoreMod>;
using Fragment = policy::WgmmaScores<spec::kBlockN / 2>;
using Softmax = policy::Either<kNarrow, policy::IntegerSoftmax<spec::kLse || kKeyScales, spec::kExp2Emulated>,
                               policy::RowSoftmax<spec::kRescale, spec::kExp2Emulated>>::type;
// Exponentials of the first half of a tile's scores begin when that half has landed, where nothing else reads a score.
enum : bool { kScoresLandInHalves = kScoresInHalves && !ScoreMod::changes_scores && !kKeyScales && !OpenRow::exists };
constexpr bool kPacksAtOnce = kNarrow;  // that softmax makes an operand, and leaves the scores as they are
using Halves =
    policy::Either<kKeepsHalves, mma::SharedHalves<kOutputColumns, kMathThreads>, mma::OwnHalves<kOutputColumns>>::type;
using PromotionOfTiles =
    policy::Either<kPartsTakeTurns,
                   mma::AlternatingPromotion<spec::kQDType, kOutputColumns, spec::kBlockN, kValueSwizzleBytes>,
                   mma::Promotion<kNarrow, contract::shares_scores(kOneProduct, spec::kBlockN, spec::kHeadDimV),
                                  spec::kQDType, kOutputColumns, spec::kBlockN, kValueSwizzleBytes>>::type;
using Promotion =
    policy::Either<kInRuns, mma::RunPromotion<spec::kQDType, kValueSwizzleBytes, spec::kPvPromote, Halves>,
                   policy::Either<kNarrow && spec::kPvPromote == 0, mma::NoPromotion<spec::kQDType, kValueSwizzleBytes>,
                                  PromotionOfTiles>::type>::type;
using Scales = policy::ItemScales<kKeyScales ? ScaleKind::kNone : spec::kScales, Rows>;
using Turns = policy::Turns<kTakesTurns, spec::kMathWarpgroups>;

/// A math thread's first row of a query tile; its second is 8 rows further on.
__device__ __forceinline__ int first_row(uint32_t warpgroup, uint32_t lane) {
  return static_cast<int>(warpgroup * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4);
}

/// Writes zeros for the first `keys` keys of the tile of V at `values`: a share of each math thread.
__device__ __forceinline__ void clear_first_keys(uint32_t values, int keys) {
  if constexpr (spec::kVColumns) return ValueColumns::clear(values, 0, keys);
  const int thread = static_cast<int>(ptx::opaque(threadIdx.x)) - 128;
#pragma unroll 1
  for (int i = thread; i < keys * kRowPieces; i += kMathThreads)
#pragma unroll
    for (int slab = 0; slab < kSlabsV; ++slab)
      ptx::st_shared_v4(
          values + slab * kValueSlabBytes + i * 16 + between_stages<Consumer::mma_v_bytes>(i / kRowPieces), {});
}
/// Likewise, from key `keys` on. By reference: ptxas sees the same sums as where the caller's own member is read.
__device__ __forceinline__ void clear_last_keys(uint32_t values, const int& keys) {
  if constexpr (spec::kVColumns) return ValueColumns::clear(values, keys, spec::kBlockN);
  const int thread = static_cast<int>(ptx::opaque(threadIdx.x)) - 128;
#pragma unroll 1
  for (int i = thread; i < (spec::kBlockN - keys) * kRowPieces; i += kMathThreads)
#pragma unroll
    for (int slab = 0; slab < kSlabsV; ++slab)
      ptx::st_shared_v4(values + slab * kValueSlabBytes + keys * kRowBytes + i * 16 +
                            between_stages<Consumer::mma_v_bytes>(keys + i / kRowPieces),
                        {});
}

/// Ends the sums of probabilities of fp8 products. Outputs are divided by the sum of e4m3 probabilities as they were
/// rounded, which is a product with ones. A row whose weight is all on one key then has that key's value exactly.
/// `first`: the thread's first row. Other products need no such end. Where keys have scales, the sum is the softmax's
/// own.
template <class Softmax, class Sums>
__device__ __forceinline__ void take_narrow_sums(Softmax&, const Sums&, const float*, const Rows&, int) {}
template <bool kSums, int kEmulated, class Sums>
__device__ __forceinline__ void take_narrow_sums(policy::IntegerSoftmax<kSums, kEmulated>& softmax, const Sums& output,
                                                 const float* sinks, const Rows& rows, int first) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if constexpr (kKeyScales)
      softmax.take_own_sum(r);
    else
      softmax.take_rounded_sum(r, output[spec::kHeadDimV / 2 + 2 * r],
                               spec::kSinks ? sinks[rows.q_head(first + r * 8)] : ptx::minus_infinity());
  }
}

/// The places of an item's rows. They are computed anew for every item, from an opaque thread index. Otherwise values
/// that follow from the row alone would hold registers through the loop over keys.
struct OutputRows {
  const contract::AttentionParams& params;
  policy::ItemRecord::Target target;
  int num_rows;
  __device__ __forceinline__ OutputRows(const contract::AttentionParams& params, const policy::PostedItem& item)
      : params(params), target(item.target()), num_rows(item.num_rows()) {}
  __device__ bool exists(int row) const { return row < num_rows; }
  __device__ uint16_t* row(int row) const {
    return static_cast<uint16_t*>(params.o) + target.output + Rows::query(row) * params.o_strides.token +
           Rows::head_in_group(row) * params.o_strides.head;
  }
  /// Stores the LSE of the thread's rows, `first` and the one 8 rows further on.
  template <class OnlineSoftmax, class Scale>
  __device__ __forceinline__ void store_lse(const OnlineSoftmax& softmax, Scale scale, int first, uint32_t lane) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (lane % 4 == 0 && exists(first + r * 8)) *lse(first + r * 8) = softmax.log2_sum(r, scale) * policy::kLn2;
  }

 private:
  __device__ float* lse(int row) const {
    constexpr bool kRagged = spec::kQLayout == QLayout::kRagged;
    return params.lse + target.lse + static_cast<int64_t>(Rows::query(row)) * (kRagged ? params.q_heads : 1) +
           static_cast<int64_t>(Rows::head_in_group(row)) * (kRagged ? 1 : params.q_len);
  }
};

}  // namespace
}  // namespace kernelwright
