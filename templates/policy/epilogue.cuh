/// What a GEMM does to its sums before they are rounded: functions of one f32. All are free of branches. They are right
/// to f32's last bits, except where cancellation in the argument brings the result close to 0.
#pragma once

#include "contract/words.h"
#include "ptx/math.cuh"

namespace kernelwright::policy {

constexpr float kLog2E = 1.44269504f;

/// x / (1 + exp(-2u)), that is, x times the logistic function of 2u: silu with u = x / 2, gelu_tanh with another u.
__device__ __forceinline__ float gated(float x, float minus_2u_log2e) {
  return x * ptx::rcp_approx_ftz(1 + ptx::ex2_approx_ftz(minus_2u_log2e));
}

/// The mass of the normal distribution beyond x >= 0. With t = 1 / (1 + 0.3 x), exp(x^2 / 2) times the mass is a
/// polynomial of t without constant term, to a relative error of 1.3e-7. The coefficients come from Remez' exchange
/// over x in [0, 13.5]; beyond, the mass is no normal f32.
__device__ __forceinline__ float normal_tail(float x) {
  constexpr float kCoefficients[] = {0.035931723f, -0.158275954f, 0.208206533f, -0.0553937858f,
                                     0.129469171f, 0.099637501f,  0.120798357f, 0.11962639f};
  const float t = ptx::rcp_approx_ftz(fmaf(0.3f, x, 1));
  float sum = kCoefficients[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) sum = fmaf(sum, t, kCoefficients[i]);
  return sum * t * ptx::ex2_approx_ftz(x * x * (-0.5f * kLog2E));
}

template <Activation kActivation>
__device__ __forceinline__ float activated(float x) {
  if constexpr (kActivation == Activation::kRelu) {
    return x < 0 ? 0 : x;  // NaN stays NaN
  } else if constexpr (kActivation == Activation::kSilu) {
    return gated(x, x * -kLog2E);
  } else if constexpr (kActivation == Activation::kGelu) {
    const float magnitude = fabsf(x);  // x times the mass of the distribution below x
    return fmaf(-magnitude, normal_tail(magnitude), x < 0 ? 0 : x);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    constexpr float kLinear = -2 * 0.797884561f * kLog2E;  // sqrt(2 / pi)
    return gated(x, x * fmaf(kLinear * 0.044715f, x * x, kLinear));
  } else {
    return x;
  }
}

/// activation(gate) * up. Clamped: gates are at most `limit`, ups within +-limit, and the product is
/// (up + 1) gate sigmoid(steepness gate).
template <Activation kActivation, bool kClamped>
__device__ __forceinline__ float gated_product(float gate, float up, float limit, float steepness) {
  if constexpr (kClamped) {
    gate = gate > limit ? limit : gate;  // NaN stays NaN
    up = up > limit ? limit : up < -limit ? -limit : up;
    return (up + 1) * gated(gate, gate * (-kLog2E * steepness));
  } else {
    return activated<kActivation>(gate) * up;
  }
}

}  // namespace kernelwright::policy
