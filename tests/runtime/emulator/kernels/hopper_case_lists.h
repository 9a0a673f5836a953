/// The cases of each kernel, for hopper_cases().
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/emulator/kernels/hopper_cases.h"

namespace kernelwright::test {

std::vector<HopperCase> gemm_cases();
std::vector<HopperCase> attention_cases();
std::vector<HopperCase> copy_cases();
std::vector<HopperCase> kv_pipeline_cases();
std::vector<HopperCase> tile_gemm_cases();
std::vector<HopperCase> tile_gemm_epilogue_cases();
std::vector<HopperCase> tile_gemm_fp8_cases();

/// D[m][n] = A[m][k] B[n][k]^T, all of it exact where operands are integers within kExactLimit.
struct GemmSize {
  int m, n, k;
  bool exact = true;
};
constexpr int kExactLimit = 8;  // 8 * 8 * k stays below 2^24: sums in f32 are exact

/// Compares outcome.output, D in `dtype`, with sums of bf16 products: to the bit if exact, else within the error of f32
/// sums in any order. Writes the first error to outcome.failure.
void compare_gemm(const GemmSize& gemm, DType dtype, const std::vector<std::uint16_t>& a,
                  const std::vector<std::uint16_t>& b, HopperOutcome& outcome);

}  // namespace kernelwright::test
