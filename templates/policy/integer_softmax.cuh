/// The online softmax of row_softmax.cuh where exponentials become e4m3. Its reference is not the row's maximum, but
/// the power of two above it: M = ceil(maximum * scale), and an exponential is 2^(score * scale - M + 6).
///
/// So every rescale is a power of two. It commutes with the rounding to e4m3, as far as that neither overflows nor ends
/// in subnormals. An exponential then does not depend on the tiles before it: on their width, their order, or which
/// part of split keys they are in.
///
/// A reference that moves costs a warp as much as two tiles, and the other warps of its warpgroup wait. So it moves
/// late: scores may rise above it until an exponential rounds to 448, where the format ends. The largest exponential of
/// a row is 2^5 at least. The format is coarse below 2^-6: keys of weights down to 2^-11 of the largest keep their
/// bits.
#pragma once

#include "policy/exp2_polynomial.cuh"
#include "policy/integer_reference.cuh"
#include "policy/key_scales.cuh"
#include "policy/quad_rows.cuh"
#include "policy/score_mod.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/narrow_float.cuh"

namespace kernelwright::policy {

/// Members and order of calls as in RowSoftmax, with references in the place of maxima, and exponentials packed. The
/// sum here is that of the LSE, of exponentials that are not rounded; without kSums there is none. An output is divided
/// by the sum of rounded ones, which the products give. Where keys have scales (key_scales.cuh), the sum here serves
/// both. kEmulated: how many of every 16 exponentials a polynomial computes, instead of the special function unit.
template <bool kSums, int kEmulated>
class IntegerSoftmax {
  enum : int { kLift = 6 };  // log2
  // Added to four packed e4m3, sets the sign bits of 448, which larger ones become, and of NaN.
  enum : uint32_t { kToSign = 0x02020202, kSigns = 0x80808080 };

 public:
  float reference[2], sum[2];

  __device__ IntegerSoftmax() {
#pragma unroll
    for (int r = 0; r < 2; ++r) reference[r] = ptx::minus_infinity(), sum[r] = 0;
  }

  /// Adds a sink to row r's sum before the first tile: a logit without a value. `mine`: this lane carries the quad's
  /// share.
  __device__ void add_sink(int r, float logit, float /*scale*/, bool mine) {
    if (logit == ptx::minus_infinity()) return;
    reference[r] = ceilf(logit * kLog2e);
    if constexpr (kSums) sum[r] = mine ? weight_of(r, logit) : 0.f;
  }

  /// Adds a sink to row r behind the last tile, where keys have scales. `mine` as above.
  template <int kCount>
  __device__ void add_last_sink(int r, float logit, float /*scale*/, bool mine, float (&output)[kCount]) {
    if (logit == ptx::minus_infinity()) return;
    const float raised = fmaxf(reference[r], ceilf(logit * kLog2e)), by = power_of_two(reference[r] - raised);
    reference[r] = raised;
    sum[r] = fmaf(sum[r], by, mine ? weight_of(r, logit) : 0.f);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i / 2 % 2 == r) output[i] *= by;
  }

  /// Packs the exponentials of one tile's scores as an operand; a unit of score is `scale` powers of two. They are
  /// added to the sum before they are rounded.
  ///
  /// Most tiles leave all references as they are. So a warp takes exponentials before it looks at the maxima, unless
  /// kRises says that references are likely to move. If a packed exponential is 448, its score may be too far above its
  /// reference. Mostly one row of a warp has such a score, and a thread has it in one of its two rows. So the warp
  /// finds the maxima of these rows alone, the first or the second of all threads, and packs them again.
  ///
  /// kInHalves: the first half of the scores has landed, and land_rest() waits for the second half. A warp then looks
  /// at exponentials of the first half before that. If one is 448, the maxima are those of the whole tile. The second
  /// half is then packed once.
  ///
  /// rescale(r, factor) multiplies the sums so far of the threads' rows r, where the reference of one moved.
  template <bool kRises, bool kInHalves, int kCount, int kSteps, class Keys, class LandRest, class Rescale>
  __device__ __forceinline__ void exponentiate(const float (&scores)[kCount], float scale,
                                               uint32_t (&packed)[kSteps][4], const Keys& keys,
                                               const LandRest& land_rest, const Rescale& rescale) {
    constexpr int kWords = kSteps * 4;
    float added[2] = {};
    if constexpr (kRises) {
      land_rest();
      float factor[2];
      const bool first = follow<0>(scores, scale, factor[0]), second = follow<1>(scores, scale, factor[1]);
      pack<true, 0, 2, 0, kWords>(scores, scale, packed, added, keys);
      if (first) rescale(0, factor[0]);
      if (second) rescale(1, factor[1]);
    } else if constexpr (kInHalves) {
      pack_and_check<0, kWords / 2>(scores, scale, packed, added, keys, land_rest, rescale);
      pack_and_check<kWords / 2, kWords>(
          scores, scale, packed, added, keys, [] {}, rescale);
    } else {
      pack_and_check<0, kWords>(scores, scale, packed, added, keys, land_rest, rescale);
    }
    if constexpr (kSums) sum[0] += added[0], sum[1] += added[1];
  }

  /// exponentiate() has rescaled the sums.
  template <class Output>
  __device__ __forceinline__ static void rescale(Output&) {}

  /// Adds up the quads' sums: afterwards `sum` is the row's in all four lanes.
  __device__ void finish() {
    if constexpr (!kSums) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
    }
  }

  /// What row r's output is divided by: the sum of rounded exponentials, beside a sink or -inf.
  __device__ void take_rounded_sum(int r, float sum, float logit) { rounded_[r] = sum + weight_of(r, logit); }
  /// Or the sum of the LSE.
  __device__ void take_own_sum(int r) { rounded_[r] = sum[r]; }
  /// 1 / that sum, or 0 for a row that saw no key.
  __device__ float inverse(int r) const { return rounded_[r] == 0 ? 0 : 1 / rounded_[r]; }

  /// The exponential of a sink, as those of row r.
  __device__ float weight_of(int r, float logit) const {
    if (logit == ptx::minus_infinity()) return 0;
    return ptx::ex2_approx_ftz(fmaf(logit, kLog2e, kLift - reference[r]));
  }

  /// log2 of the sum of exponentials; -inf for a row that saw no key.
  __device__ float log2_sum(int r, float /*scale*/) const {
    return sum[r] == 0 ? ptx::minus_infinity() : reference[r] - kLift + ptx::lg2_approx_ftz(sum[r]);
  }

 private:
  float rounded_[2];

  /// Raises references of the threads' rows kRow to the maxima of one tile's scores. Returns whether one moved, the
  /// same in all lanes, and then the thread's factor.
  template <int kRow, int kCount>
  __device__ __forceinline__ bool follow(const float (&scores)[kCount], float scale, float& factor) {
    float largest[2];
    largest_of_rows<kRow, kRow + 1>(scores, largest, [&](int, float score) { return ceilf(score * scale); });
    const bool grown = largest[kRow] > reference[kRow];  // a row that has seen no key stays as it is
    const bool any_grown = __any_sync(0xffffffff, grown);
    if (any_grown) {
      factor = grown ? power_of_two(reference[kRow] - largest[kRow]) : 1;
      if (grown) reference[kRow] = largest[kRow];
      if constexpr (kSums) sum[kRow] *= factor;
    }
    return any_grown;
  }

  /// 2^exponent, for the number `i` of a thread's. A sum of the LSE tells the finer polynomial from the coarse one.
  __device__ __forceinline__ static float exponential(float exponent, int i) {
    if (i % 16 >= kEmulated) return ptx::ex2_approx_ftz(exponent);
    return kSums ? exp2_polynomial(exponent) : exp2_coarse(exponent);
  }

  /// Of a tile whose first kEnd words are packed: whether some exponential of row r of the warp's threads is 448 or
  /// more.
  template <int kEnd, int kSteps>
  __device__ __forceinline__ static bool any_above(const uint32_t (&packed)[kSteps][4], int r) {
    // Opaque: otherwise the sums of pack() would hold registers until here.
    const uint32_t to_sign = ptx::opaque(uint32_t{kToSign});
    uint32_t signs = 0;
#pragma unroll
    for (int i = r; i < kEnd; i += 2) signs |= packed[i / 4][i % 4] + to_sign;
    return __any_sync(0xffffffff, signs & kSigns);
  }
  template <int kRow, int kEnd, int kCount, int kSteps, class Keys, class Rescale>
  __device__ __forceinline__ void pack_again_if_above(const float (&scores)[kCount], float scale,
                                                      uint32_t (&packed)[kSteps][4], float (&added)[2],
                                                      const Keys& keys, const Rescale& rescale) {
    if (!any_above<kEnd>(packed, kRow)) return;
    float factor;
    const bool any_grown = follow<kRow>(scores, scale, factor);
    added[kRow] = 0;
    pack<true, kRow, kRow + 1, 0, kEnd>(scores, scale, packed, added, keys);
    if (any_grown) rescale(kRow, factor);
  }
  /// Packs the words from kBegin to kEnd. Where they have an exponential of 448 or more, packs all words up to kEnd
  /// again, of rows that have one. Calls land_rest() before that.
  template <int kBegin, int kEnd, int kCount, int kSteps, class Keys, class LandRest, class Rescale>
  __device__ __forceinline__ void pack_and_check(const float (&scores)[kCount], float scale,
                                                 uint32_t (&packed)[kSteps][4], float (&added)[2], const Keys& keys,
                                                 const LandRest& land_rest, const Rescale& rescale) {
    const bool above = !pack<false, 0, 2, kBegin, kEnd>(scores, scale, packed, added, keys);
    land_rest();
    if (__builtin_expect(!above, true)) return;
    pack_again_if_above<0, kEnd>(scores, scale, packed, added, keys, rescale);
    pack_again_if_above<1, kEnd>(scores, scale, packed, added, keys, rescale);
  }

  /// Packs exponentials of the rows from kFirst to kEnd into the words from kBegin to kEndWord. `added` grows by what
  /// they add to the rows' sums, with kSums. Returns whether none of the warp is 448 or more. kFollowed: the references
  /// have followed these scores.
  template <bool kFollowed, int kFirst, int kEnd, int kBegin, int kEndWord, int kCount, int kSteps, class Keys>
  __device__ __forceinline__ bool pack(const float (&scores)[kCount], float scale, uint32_t (&packed)[kSteps][4],
                                       float (&added)[2], const Keys& keys) {
    static_assert(kCount == kSteps * 16, "an operand of 32 keys holds 16 scores of a thread");
    float offset[2];
#pragma unroll
    for (int r = kFirst; r < kEnd; ++r) {
      // Of a row that has seen no key. Before it has followed, any key is above its reference.
      const float unseen = kFollowed ? 0 : -ptx::minus_infinity();
      offset[r] = reference[r] == ptx::minus_infinity() ? unseen : kLift - reference[r];
    }
    float part[2][2] = {}, inverse[4] = {};
    uint32_t above = 0;
    // An accumulator of 32 columns is an operand of 32 k: a lane has four neighbours of k where it has pairs of scores
    // 8 columns apart. So the keys of every 16 come in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15.
#pragma unroll
    for (int i = kBegin; i < kEndWord; ++i) {
      const int at = i / 2 * 8 + i % 2 * 2, r = i % 2;
      if (r < kFirst || r >= kEnd) continue;
      float weights[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        weights[k] = exponential(fmaf(scores[at + k / 2 * 4 + k % 2], scale, offset[r]), i * 4 + k);
        if constexpr (Keys::differ) {
          if (r == kFirst) inverse[k] = keys.inverse(i / 2 * 4 + k);  // row 1 has the same keys
          part[r][k % 2] = fmaf(weights[k], inverse[k], part[r][k % 2]);
        } else if constexpr (kSums) {
          part[r][k % 2] += weights[k];
        }
      }
      packed[i / 4][i % 4] = tile::fp8_pair<DType::kE4m3>(weights[0], weights[1]) |
                             uint32_t{tile::fp8_pair<DType::kE4m3>(weights[2], weights[3])} << 16;
      above |= packed[i / 4][i % 4] + kToSign;
    }
#pragma unroll
    for (int r = kFirst; r < kEnd; ++r) added[r] += part[r][0] + part[r][1];
    return kFollowed || !__any_sync(0xffffffff, above & kSigns);
  }
};

}  // namespace kernelwright::policy
