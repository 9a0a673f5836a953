/// Grid, CTA, shared bytes and workspace of a launch: arithmetic only, the same on every machine.
#pragma once

#include <cstdint>

#include "kernelwright/generator/plan/launch.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// The run-time shape that a launch is planned for.
struct AttentionExtent {
  int batch = 1;
  int q_heads = 1, kv_heads = 1;
  int q_len = 1;              // queries of a sequence; the longest one if ragged
  int kv_len = 1;             // keys of the longest sequence: only the number of parts depends on it
  std::int64_t q_tokens = 1;  // batch * q_len, or the rows of ragged queries
};

struct AttentionLaunch {
  LaunchPlan main;
  LaunchPlan combine;  // unused if num_splits is 1, or the kernel merges itself
  int num_splits = 1;
  int num_m_blocks = 1;
  int num_items = 1;  // hopper: query tiles of all heads and sequences; a cluster's tiles count as one
  int m_chunk = 1;    // hopper: tiles of one head that follow each other
  int head_section = 1;
  std::uint64_t workspace_bytes = 0;  // partial_o, partial_lse, then merge_counters; or a queue; needs no zeroing
  std::uint64_t partial_lse_offset = 0;
  std::uint64_t merge_counters_offset = 0;  // 0: the merge is not in the kernel
  bool queued = false;                      // hopper: CTAs take items from a queue, a word at the workspace's start
  bool balanced = false;    // CTAs share all key tiles evenly, and their number decides where keys are cut. With
                            // num_splits 1 no sequence is cut
  bool persistent = false;  // hopper: CTAs take items until none is left; any number of clusters gives the same result
};

/// Dynamic shared bytes of one CTA. Used by validation, launch and explain alike.
std::uint32_t shared_bytes(const AttentionSpec& spec);

/// `forced_splits` > 0 overrides the choice of parts (schedule.splits) where the kernel can split. No allocation, no
/// exceptions; ~20 ns.
AttentionLaunch plan_launch(const AttentionSpec& spec, const AttentionExtent& extent, int num_sms,
                            int forced_splits) noexcept;

}  // namespace kernelwright
