/// The cases of each kernel, for hopper_cases().
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/emulator/kernels/hopper_cases.h"

namespace kernelwright::test {

class DeviceBuffer;  // hopper_buffers.h

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

struct AttentionInputs {
  std::vector<std::uint16_t> q, k, v;  // [batch_heads][len][head_dim]
  std::vector<float> bias;             // [batch_heads][bias_stride]
  int bias_stride;
};
AttentionInputs make_attention_inputs(const HopperAttention& attention, std::uint64_t seed);

/// Compares outcome.output, O in bf16, with a softmax in fp64. Writes the first error to outcome.failure.
void compare_attention(const HopperAttention& attention, const AttentionInputs& inputs, HopperOutcome& outcome);

/// A map of `memory`, [batch_heads][len][head_dim], with boxes of 64 columns.
TensorMap attention_head_map(Device& device, const DeviceBuffer& memory, const HopperAttention& attention, int len,
                             int box_rows);

}  // namespace kernelwright::test
