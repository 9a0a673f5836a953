/// As mbarrier.cuh beside it, for templates/ptx/math.cuh: what policy/fp8_scale.cuh calls.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "ptx/mbarrier.cuh"

namespace kernelwright::ptx {

inline float rcp_approx_ftz(float x) { return 1.f / x; }

}  // namespace kernelwright::ptx

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
