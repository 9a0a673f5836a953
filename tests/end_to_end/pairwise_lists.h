/// Lists of configs that have a kernel and that contain every pair of values of every two fields of a problem and its
/// schedule, for attention and GEMM. Such a list meets a fault that needs two unusual choices at once; no shipped
/// config does.
#pragma once

#include <string>
#include <vector>

#include "end_to_end/random_calls.h"
#include "kernelwright/generator/problem/config.h"
#include "support/pairwise.h"

namespace kernelwright {

/// Random rows that are drawn for a pair before it is given up. A shorter list takes a twentieth of the time, and has
/// most of the pairs.
inline constexpr int kWholeList = 400, kShortList = 20;

/// One kernel for each row; the same on every machine.
struct AttentionPairs {
  std::vector<DrawnKernel> kernels;
  test::Covering covering;
};
struct GemmPairs {
  std::vector<GemmConfig> configs;
  test::Covering covering;
};
AttentionPairs attention_pairs(Arch arch, int attempts = kWholeList);
GemmPairs gemm_pairs(Arch arch, int attempts = kWholeList);

}  // namespace kernelwright
