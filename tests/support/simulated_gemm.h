/// A GEMM kernel's arithmetic on the host: fp32 sums by blocks of k, an epilogue in fp32. It stands in for a GPU in
/// tests of the bound, and makes the mistakes that the bound must catch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <vector>

#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/gemm/case.h"
#include "kernelwright/verify/parallel.h"

namespace kernelwright {

struct SimulatedGemmFaults {
  int dropped_k = -1;             // this k is left out
  int tile_row = -1;              // rows of this 64 x 64 tile, in columns [0, 64), hold the next tile's values
  float scale_factor = 1;         // sums are wrong by this factor
  bool sixteen_bit_sums = false;  // sums are rounded to d's dtype every 128 of k
  bool core_sums = false;         // no fault: sums of 8-bit operands as the tensor core computes them
};

/// `value` truncated at 2^-13 of `largest`.
inline float cut_as_the_core_does(float value, float largest) {
  if (largest == 0) return value;
  const float step = std::ldexp(1.f, std::ilogb(largest) - 13);
  return std::trunc(value / step) * step;
}

inline float simulated_activation(Activation activation, float x) {
  switch (activation) {
    case Activation::kRelu: return x < 0 ? 0 : x;
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x * 0.5f * (1 + std::erf(x * std::numbers::sqrt2_v<float> / 2));
    case Activation::kGeluTanh: return x * 0.5f * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case Activation::kNone: break;
  }
  return x;
}

/// Replaces values by themselves over their scale, and writes the scales: of kQuantizedGroup values each.
inline void simulate_scales(const GemmCase& call, std::size_t row, std::vector<float>& values, GemmOutput& output) {
  if (call.epilogue.makes_blocks()) {  // elements are written by the caller, so values become them
    const auto together = static_cast<std::size_t>(call.epilogue.scaled_columns());
    std::byte elements[32];
    std::vector<double> decoded(together);
    for (std::size_t first = 0; first < values.size(); first += together) {
      const std::span<float> block(values.data() + first, together);
      output.scale_d[call.scale_d_index(static_cast<std::int64_t>(row), static_cast<std::int64_t>(first / together))] =
          static_cast<std::byte>(
              quantize_block(call.problem.dtype.d, block, elements, call.tensor_scale, call.epilogue.round_up));
      decode_row(call.problem.dtype.d, elements, together, decoded.data());
      std::copy(decoded.begin(), decoded.end(), block.begin());
    }
    return;
  }
  const auto largest = static_cast<float>(float_format(call.problem.dtype.d).largest);
  for (std::size_t first = 0; first < values.size(); first += kQuantizedGroup) {
    float scale = 0x1p-126f;
    for (std::size_t i = first; i < first + kQuantizedGroup; ++i)
      scale = std::max(scale, std::fabs(values[i]) / largest);
    if (call.epilogue.power_of_two) scale = std::exp2(std::ceil(std::log2(scale)));
    for (std::size_t i = first; i < first + kQuantizedGroup; ++i) values[i] *= 1 / scale;
    const std::size_t at = first / kQuantizedGroup * static_cast<std::size_t>(call.m) + row;
    std::memcpy(output.scale_d.data() + at * sizeof scale, &scale, sizeof scale);
  }
}

inline GemmOutput simulate_gemm(const GemmCase& call, const SimulatedGemmFaults& faults = {}) {
  const GemmProblem& problem = call.problem;
  const std::size_t n = static_cast<std::size_t>(problem.n), k = static_cast<std::size_t>(problem.k);
  GemmOutput output;
  output.d.resize(bytes_of(problem.dtype.d, call.d_elems()));
  output.scale_d.resize(static_cast<std::size_t>(call.scale_d_rows() * call.scale_d_columns() * call.scale_d_bytes()));
  std::vector<double> b(n * k);
  for (std::size_t j = 0; j < n; ++j) call.decode_b(static_cast<std::int64_t>(j), 0, k, b.data() + j * k);
  parallel_for(static_cast<std::size_t>(call.m), [&](std::size_t row) {
    std::vector<double> a(k), other(k);
    call.decode_a(static_cast<std::int64_t>(row), 0, k, a.data());
    const bool wrong = faults.tile_row >= 0 && static_cast<int>(row) / 64 == faults.tile_row;
    if (wrong) call.decode_a(static_cast<std::int64_t>(row + 64) % call.m, 0, k, other.data());
    std::vector<float> values(n);
    for (std::size_t j = 0; j < n; ++j) {
      const std::vector<double>& from = wrong && j < 64 ? other : a;
      float total = 0, core = 0;
      for (std::size_t first = 0; first < k; first += kScaleBlock) {
        const std::size_t last = std::min(k, first + kScaleBlock);
        float part = 0;
        if (!faults.core_sums) {
          for (std::size_t i = first; i < last; ++i)
            if (static_cast<int>(i) != faults.dropped_k) part = static_cast<float>(part + from[i] * b[j * k + i]);
        } else {
          float& sum = problem.fast_accumulation ? core : part;
          for (std::size_t at = first; at < last; at += 32) {
            const std::size_t end = std::min(last, at + 32);
            float largest = std::fabs(sum);
            for (std::size_t i = at; i < end; ++i)
              largest = std::max(largest, std::fabs(static_cast<float>(from[i] * b[j * k + i])));
            sum = cut_as_the_core_does(sum, largest);
            for (std::size_t i = at; i < end; ++i)
              sum += cut_as_the_core_does(static_cast<float>(from[i] * b[j * k + i]), largest);
          }
        }
        const auto block = static_cast<std::int64_t>(first) / kScaleBlock;
        const bool by_block = problem.scales == ScaleKind::kPerBlock;
        total += part * (by_block ? static_cast<float>(
                                        call.scale(static_cast<std::int64_t>(row), static_cast<std::int64_t>(j), block))
                                  : 1.f);
        if (faults.sixteen_bit_sums) total = round_to(problem.dtype.d, total);
      }
      total += core;
      if (problem.scales == ScaleKind::kPerTensor || problem.scales == ScaleKind::kPerToken)
        total *= static_cast<float>(call.scale(static_cast<std::int64_t>(row), static_cast<std::int64_t>(j), 0));
      total *= faults.scale_factor;
      double bias = 0, c = 0;
      if (call.epilogue.bias) call.bias.decode(0, static_cast<std::int64_t>(j), 1, &bias);
      if (call.epilogue.c) call.c.decode(static_cast<std::int64_t>(row), static_cast<std::int64_t>(j), 1, &c);
      const float linear = total * (call.epilogue.alpha ? call.alpha : 1) + static_cast<float>(bias);
      values[j] = simulated_activation(call.epilogue.activation, linear) +
                  static_cast<float>(c) * (call.epilogue.beta ? call.beta : 1);
    }
    if (call.epilogue.quantizes) simulate_scales(call, row, values, output);
    encode_row(problem.dtype.d, values, output.d.data() + bytes_of(problem.dtype.d, row * n));
  });
  return output;
}

}  // namespace kernelwright
