/// Problems, shapes and schedules that the mutated attention kernels share.
#pragma once

#include <utility>
#include <vector>

#include "runtime/emulator/mutation/subject_calls.h"

namespace kernelwright::test {

constexpr int kSms = 2;  // where a CTA is to walk several items

inline AttentionProblem small_problem(Heads heads, int head_dim = 64) {
  AttentionProblem problem;
  problem.dtype = {DType::kBf16, DType::kBf16, DType::kBf16};
  problem.head_dim = {head_dim, head_dim};
  problem.heads = heads;
  return problem;
}

inline AttentionShape small_shape(int q_len, int kv_len) {
  AttentionShape shape;
  shape.name = "mutation";
  shape.q_len = q_len;
  shape.kv_len = kv_len;
  return shape;
}

/// Lengths of sequences: an item each, and a tile or several.
inline AttentionShape small_batch(std::vector<int> q_lens, std::vector<int> kv_lens) {
  AttentionShape shape = small_shape(1, 1);
  shape.batch = static_cast<int>(kv_lens.size());
  shape.q_lens = std::move(q_lens);
  shape.kv_lens = std::move(kv_lens);
  return shape;
}

inline AttentionSchedule hopper_schedule() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.math_warpgroups = 2;
  schedule.block_n = 48;
  return schedule;
}

inline AttentionSchedule hopper_decode_schedule() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.token_gen = true;
  schedule.splits = 3;
  schedule.num_warps = 2;
  schedule.block_n = 64;
  schedule.num_stages = 2;
  schedule.merge = Merge::kInKernel;
  return schedule;
}

inline AttentionSchedule blackwell_schedule() {
  AttentionSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.num_q = 2;
  schedule.block_n = 64;
  schedule.kv_ring = KvRing::kShared;
  schedule.num_kv_stages = 3;
  schedule.rescale = Rescale::kAlways;
  return schedule;
}

/// Five items. In a grid of two CTAs, one CTA takes the first, fourth and fifth, the other the second and third. The
/// first and last item have several tiles, and all rows see some of these whole. The others have one tile, and two of
/// them have fewer than 16 keys, so that both math warpgroups write zeros. The second CTA has no more items than slots
/// of queries, and no more tiles than slots of a ring. So no earlier wait has covered what it waits for at its end.
inline AttentionShape items_of_two_ctas() {
  AttentionShape shape = small_batch({}, {290, 20, 9, 9, 260});
  shape.q_len = 110;
  return shape;
}

inline AttentionSchedule hopper_ring_of_two() {
  AttentionSchedule schedule = hopper_schedule();
  schedule.scheduler = Scheduler::kPersistent;
  schedule.q_stages = 2;
  schedule.kv_ring = KvRing::kSplit;
  schedule.num_kv_stages = 2;
  return schedule;
}

}  // namespace kernelwright::test
