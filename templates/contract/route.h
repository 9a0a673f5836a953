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
  void* counts;              // [CTAs, route_count_row()]: pairs of each CTA's tokens for each expert
  int64_t logits_stride;
  int32_t tokens, tokens_per_warp;
  float factor;
};

constexpr int32_t kMostRouteCtas = 128;  // each reads the counts of all; but see kMostTokensOfShortCounts

/// Numbers of a CTA's counts, 32 bits each or 16: whole 16 bytes.
constexpr int32_t route_count_row(int32_t buckets, bool is_short) {
  return is_short ? (buckets + 7) / 8 * 8 : (buckets + 3) / 4 * 4;
}

/// A thread adds so many rows of 16 bits without a carry, if no CTA has more tokens than these.
constexpr int32_t kRowsOfShortSum = 8, kMostTokensOfShortCounts = 65535 / kRowsOfShortSum;

/// Threads of a CTA that share a column of rows of 16 bits.
constexpr int32_t route_count_sharers(int32_t buckets, int32_t threads) {
  const int32_t sharers = threads / (route_count_row(buckets, true) / 8);
  return sharers < 32 ? sharers : 32;
}
/// Static shared bytes of the kernel that sorts with counts of 16 bits.
constexpr int32_t route_short_sort_bytes(int32_t buckets, int32_t warps) {
  const int32_t sums = 2 * route_count_sharers(buckets, 32 * warps) * route_count_row(buckets, true) * 2;
  return sums + 4 * (warps * buckets + 2 * buckets + warps) + 16;
}

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
/// Lanes that have the slots of a token, and maybe some more: a power of two.
constexpr int32_t lanes_of_slots(int32_t top_k) {
  int32_t lanes = 1;
  while (lanes < top_k) lanes *= 2;
  return lanes;
}
/// Logits that a lane loads at once: a power of two that divides its run and the group, in 16 bytes at most.
constexpr int32_t logits_of_load(int32_t experts, int32_t groups, int32_t element_bytes) {
  const int32_t of_lane = experts_of_lane(experts, groups), of_group = experts / groups;
  int32_t count = 16 / element_bytes;
  while (of_lane % count != 0 || of_group % count != 0) count /= 2;
  return count;
}

}  // namespace kernelwright::contract
