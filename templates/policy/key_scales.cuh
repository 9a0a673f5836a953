/// Scales that differ by key, "per_token" and "per_page": k_scale multiplies a key's scores, and v_scale its value.
/// Products take K and V as they lie. So a value's scale joins the exponent:
///
///     x = score * k_scale * exponent_scale + log2(v_scale)
///     O = sum 2^(x - m) V / sum (2^(x - m) / v_scale),   m: the largest x so far, or a power of two above it
///
/// An exponential is then as large beside the others as its value is, and the type of exponentials holds it whatever
/// the scales are. The sum is of exponentials that are not rounded. A sink is added last: ahead of the keys, a logit
/// without a value would set m.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/row_scales.cuh"
#include "ptx/math.cuh"

namespace kernelwright::policy {

/// All keys have one scale, which kernels apply elsewhere.
struct EqualKeys {
  enum : bool { differ = false };
  EqualKeys() = default;
  template <class... Args>
  __device__ explicit EqualKeys(const Args&...) {}
  __device__ void step(const contract::AttentionParams&) {}
};

/// The scales of the keys of a warp's tiles. Lane l has those of keys l, l + 32, ... of a tile, and hands them to the
/// lanes that have scores of these keys. Loads run ahead: scales by one tile, and pages by two.
///   kKeys   keys of a tile that the warp has scores of
///   kStep   -1: tiles are walked from the last to the first; 1: from the first on
template <int kKeys, int kStep, KvLayoutKind kLayout, int kPageSizeOrZero>
class WarpKeyScales {
  enum : int { kShare = (kKeys + 31) / 32, kPageSize = kPageSizeOrZero > 0 ? kPageSizeOrZero : 1 };
  enum : bool { kPaged = kLayout == KvLayoutKind::kPaged };

 public:
  enum : bool { differ = true };

  WarpKeyScales() = default;
  /// `first`: the first key of the warp's first tile; `tile_keys`: keys from there to the next tile. The keys [low,
  /// high) exist. `start`: the place of key 0 among the tokens of its sequence or, ragged, of all. All lanes call it.
  __device__ __forceinline__ WarpKeyScales(const contract::AttentionParams& params, int batch, int kv_head,
                                           int64_t start, int first, int tile_keys, int low, int high, int lane)
      : pages_(params.page_table + static_cast<int64_t>(batch) * params.page_table_stride),
        keys_(params.k_scale + origin(params.k_scale_strides, batch, kv_head, start)),
        values_(params.v_scale + origin(params.v_scale_strides, batch, kv_head, start)),
        key_(first + lane),
        step_(kStep * tile_keys),
        low_(low),
        high_(high),
        lane_(lane) {
    look_up(key_);
    load(params, key_);
    look_up(key_ + step_);
  }

  /// The warp is now on the next tile: the first call is for the first tile. All lanes call it.
  __device__ __forceinline__ void step(const contract::AttentionParams& params) {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      score_[i] = next_key_[i];
      // Whatever is no scale, NaN too, weighs as the least one. An exponential below 2^-126 is flushed to 0, and so is
      // the key's share of the sum. The least scale keeps shares down to 2^-46 beside a scale of 2^20.
      const float scale = next_value_[i] >= 0x1p-60f ? fminf(next_value_[i], 0x1p100f) : 0x1p-60f;
      shift_[i] = ptx::lg2_approx_ftz(scale);
      inverse_[i] = ptx::rcp_approx_ftz(scale);
    }
    key_ += step_;
    load(params, key_);
    look_up(key_ + step_);
  }

  /// Calls use(key, score, shift, inverse) for the lane's own keys, counted from the tile's first.
  template <class Use>
  __device__ __forceinline__ void for_each_of_lane(const Use& use) const {
#pragma unroll
    for (int i = 0; i < kShare; ++i) use(lane_ + 32 * i, score_[i], shift_[i], inverse_[i]);
  }

  /// Of the key of score `column` of the lane, counted as in MmaScores and WgmmaScores: keys 8 * j + 2 * (lane % 4) +
  /// e. All lanes call them.
  __device__ __forceinline__ float score(int column) const { return of(score_, column); }
  __device__ __forceinline__ float shift(int column) const { return of(shift_, column); }
  __device__ __forceinline__ float inverse(int column) const { return of(inverse_, column); }

 private:
  __device__ __forceinline__ static int64_t origin(const contract::Strides& strides, int batch, int kv_head,
                                                   int64_t start) {
    const int64_t head = kv_head * strides.head;
    if constexpr (kPaged) return head;
    return head + (kLayout == KvLayoutKind::kPadded ? batch * strides.batch : 0) + start * strides.token;
  }
  /// Whether key `key`, number `i` of the lane's, is a key of the warp that a row sees.
  __device__ __forceinline__ bool exists(int key, int i) const {
    return (kKeys % 32 == 0 || lane_ + 32 * i < kKeys) && key >= low_ && key < high_;
  }

  __device__ __forceinline__ void look_up(int first) {
    if constexpr (kPaged) {
#pragma unroll
      for (int i = 0; i < kShare; ++i) page_[i] = exists(first + 32 * i, i) ? pages_[(first + 32 * i) / kPageSize] : -1;
    }
  }
  /// A key that no row sees, or whose page does not exist, has scales of 1.
  __device__ __forceinline__ void load(const contract::AttentionParams& params, int first) {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const int key = first + 32 * i;
      next_key_[i] = next_value_[i] = 1;
      if constexpr (kPaged) {
        if (static_cast<unsigned>(page_[i]) < static_cast<unsigned>(params.num_pages)) {
          next_key_[i] =
              keys_[page_[i] * params.k_scale_strides.batch + key % kPageSize * params.k_scale_strides.token];
          next_value_[i] =
              values_[page_[i] * params.v_scale_strides.batch + key % kPageSize * params.v_scale_strides.token];
        }
      } else if (exists(key, i)) {
        next_key_[i] = keys_[key * params.k_scale_strides.token];
        next_value_[i] = values_[key * params.v_scale_strides.token];
      }
    }
  }
  __device__ __forceinline__ float of(const float (&share)[kShare], int column) const {
    const int key = column / 2 * 8 + column % 2;
    return __shfl_sync(0xffffffff, share[key / 32], key % 32 + lane_ % 4 * 2);
  }

  const int32_t* pages_;
  const float *keys_, *values_;
  int key_, step_, low_, high_, lane_;
  int page_[kShare];
  float next_key_[kShare], next_value_[kShare];
  float score_[kShare], shift_[kShare], inverse_[kShare];
};

/// Multiplies the scores of each key by the key's scale.
template <class Fragment, class Keys>
__device__ __forceinline__ void multiply_keys(const Fragment& scores, const Keys& keys) {
  if constexpr (Keys::differ) {
#pragma unroll
    for (int i = 0; i < Fragment::columns; ++i) {
      const float by = keys.score(i);
#pragma unroll
      for (int r = 0; r < Fragment::rows; ++r) scores.at(r, i) *= by;
    }
  }
}

/// Turns scores, modified, into exponents: a unit of score is `scale` powers of two, a float or RowScales. Softmaxes
/// then take them as scores of scale 1.
template <class Fragment, class Keys, class Scale>
__device__ __forceinline__ void to_exponents(const Fragment& scores, const Keys& keys, const Scale& scale) {
  if constexpr (Keys::differ) {
#pragma unroll
    for (int i = 0; i < Fragment::columns; ++i) {
      const float shift = keys.shift(i);
#pragma unroll
      for (int r = 0; r < Fragment::rows; ++r) scores.at(r, i) = fmaf(scores.at(r, i), scale_of(scale, r), shift);
    }
  }
}

/// What exponentials `low` and `high` of the lane's columns `column` and `column + 1` add to a row's sums.
template <class Keys>
__device__ __forceinline__ void add_weights(float (&part)[2], float low, float high, const Keys& keys, int column) {
  if constexpr (Keys::differ) {
    part[0] = fmaf(low, keys.inverse(column), part[0]), part[1] = fmaf(high, keys.inverse(column + 1), part[1]);
  } else {
    part[0] += low, part[1] += high;
  }
}

}  // namespace kernelwright::policy
