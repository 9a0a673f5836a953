/// route: kernel parameters, and how experts are dealt to lanes, in one place for the host and the kernels.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// Both kernels of route have these. A null pointer stands for an operand that the problem lacks. Strides count
/// elements.
struct RouteParams {
  const void* logits;        // [tokens, logits_stride]
  const float* bias;         // [experts]
  const int32_t* local_ids;  // [experts]: which of the experts that are sorted it is; else it has none
  int32_t* ids;              // [tokens, top_k]
  float* weights;            // [tokens, top_k]
  int32_t* starts;           // [buckets + 1]
  int32_t* source_rows;      // [sorted rows]
  int32_t* positions;        // [tokens, top_k]
  float* sorted_weights;     // [sorted rows]; may be null
  int32_t* counts;           // [CTAs, route_count_stride()]: pairs of each CTA's tokens for each expert
  int64_t logits_stride;
  int32_t tokens, tokens_per_cta;
  float factor;
};

constexpr int32_t kMostRouteCtas = 128;  // each reads the counts of all

/// Elements of a CTA's counts: whole 16 bytes.
constexpr int32_t route_count_stride(int32_t buckets) { return (buckets + 3) / 4 * 4; }

/// Lanes that share a group: a power of two. Lane i has the i-th run of its group, so that lanes are in the order of
/// their experts.
constexpr int32_t lanes_of_group(int32_t groups) {
  int32_t lanes = 32;
  while (lanes * groups > 32) lanes /= 2;
  return lanes;
}
constexpr int32_t experts_of_lane(int32_t experts, int32_t groups) {
  const int32_t lanes = lanes_of_group(groups);
  return (experts / groups + lanes - 1) / lanes;
}
/// Logits that a lane loads at once: a power of two that divides its run and the group, in 16 bytes at most.
constexpr int32_t logits_of_load(int32_t experts, int32_t groups, int32_t element_bytes) {
  const int32_t of_lane = experts_of_lane(experts, groups), of_group = experts / groups;
  int32_t count = 16 / element_bytes;
  while (of_lane % count != 0 || of_group % count != 0) count /= 2;
  return count;
}

}  // namespace kernelwright::contract
