/// What a user adds to single scores, beyond masks of ranges and modifiers of a score. It is a tensor that hides keys,
/// a tensor that is added, or the user's own sources (policy/place.cuh). A kernel passes each score through here once,
/// after its modifier and before the softmax. A kernel whose Spec has none of these contains none of this code
/// (kernels/attention/attention_open.cuh).
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/mask.cuh"
#include "policy/place.cuh"
#include "ptx/math.cuh"
#include "tile/element.cuh"

namespace kernelwright::policy {

template <class T>
T a_value_of();  // for unevaluated expressions only
template <class>
using Ignored = void;

template <class T, class = void>
struct HasVisible {
  enum : bool { value = false };
};
template <class T>
struct HasVisible<T, Ignored<decltype(static_cast<bool>(T{}.visible(a_value_of<const Place&>())))>> {
  enum : bool { value = true };
};
template <class T, class = void>
struct HasApply {
  enum : bool { value = false };
};
template <class T>
struct HasApply<T, Ignored<decltype(static_cast<float>(T{}.apply(1.f, a_value_of<const Place&>())))>> {
  enum : bool { value = true };
};
template <class T>
struct IsSource {
  enum : bool { value = true };
};
template <>
struct IsSource<NoSource> {
  enum : bool { value = false };
};

/// A query's row of scores, with what is added to its elements and what hides them. kHides: bytes of the launch hide
/// keys. kAdds: elements of kBias are added to scores. NoSource: no source is called.
template <bool kHides, bool kAdds, DType kBias, class MaskSource, class ScoreSource>
class OpenRow {
  static constexpr bool kAsksMask = IsSource<MaskSource>::value, kAsksScore = IsSource<ScoreSource>::value;
  static_assert(!kAsksMask || HasVisible<MaskSource>::value,
                "the mask's type has no member bool visible(const kernelwright::Place&) const that T{} can be asked");
  static_assert(!kAsksScore || HasApply<ScoreSource>::value,
                "the score modifier's type has no member float apply(float, const kernelwright::Place&) const that T{} "
                "can be asked");
  using Bias = tile::Storage<kBias>;
  static constexpr float kLowestScore = -0x1p127f;  // lower finite scores count as this one
  const uint8_t* mask_ = nullptr;
  const Bias* bias_ = nullptr;
  Place place_;
  KeyRange keys_;  // keys that the row sees by its mask of ranges and that have an element

  __device__ __forceinline__ static int64_t offset(const contract::Strides& strides, const Place& place) {
    return place.batch * strides.batch + place.head * strides.head + place.query * strides.token;
  }
  __device__ __forceinline__ static float value_of(Bias element) {
    if constexpr (kBias == DType::kF32)
      return element;
    else if constexpr (kBias == DType::kF16)
      return ptx::cvt_f32_f16(element);
    else
      return __uint_as_float(uint32_t{element} << 16);
  }

  /// Some masks hide keys with the lowest number of a dtype. Times log2 e this number would be -inf, and a row of such
  /// scores alone would subtract infinity from infinity. So finite scores are bounded. Infinity times zero is NaN,
  /// which max() leaves out: -inf stays what it is.
  __device__ __forceinline__ static float bounded(float score) {
    return fmaxf(score, __fmaf_rn(score, 0.0f, kLowestScore));
  }

 public:
  static constexpr bool exists = true;

  /// `place`: the place of the row's first score, with any key. `keys`: what the row sees by its mask of ranges. For a
  /// row that does not exist, nothing is read and no source is called.
  __device__ __forceinline__ OpenRow(const contract::AttentionParams& params, const Place& place, KeyRange keys,
                                     bool is_there)
      : place_(place), keys_{keys.low, is_there ? keys.high : keys.low} {
    // Keys past the tensors' rows: a sequence of ragged keys may be longer than its launch says.
    if constexpr (kHides || kAdds) keys_.high = min(keys_.high, params.kv_len);
    if constexpr (kHides) mask_ = params.mask + offset(params.mask_strides, place);
    if constexpr (kAdds) bias_ = static_cast<const Bias*>(params.bias) + offset(params.bias_strides, place);
  }

  /// The new score of `key`. For a key that the row does not see anyway, nothing is read and no source is called.
  __device__ __forceinline__ float operator()(float score, int key) const {
    if (key < keys_.low || key >= keys_.high) return ptx::minus_infinity();
    if constexpr (kAdds) score += bounded(value_of(bias_[key]));
    if constexpr (kHides)
      if (mask_[key] == 0) return ptx::minus_infinity();
    if constexpr (kAsksMask || kAsksScore) {
      Place place = place_;
      place.key = key;
      if constexpr (kAsksMask)
        if (!MaskSource{}.visible(place)) return ptx::minus_infinity();
      if constexpr (kAsksScore) score = bounded(ScoreSource{}.apply(score, place));
    }
    return score;
  }
};

/// Stands in for OpenRow in a Spec without open scores.
struct ClosedRow {
  enum : bool { exists = false };  // not a static member, which would be in every binary
  __device__ ClosedRow(const contract::AttentionParams&, const Place&, KeyRange, bool) {}
  __device__ float operator()(float score, int) const { return score; }
};

}  // namespace kernelwright::policy
