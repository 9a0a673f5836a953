/// Problems, schedules and tensors of attention_sm90 on a fake device, and their tensor maps.
#pragma once

#include <functional>

#include "kernelwright/runtime/attention/tensor_maps.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test::hopper_calls {

/// A tile of 128 x 128, whatever the planner would take.
inline AttentionSchedule hopper() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.math_warpgroups = 2;
  schedule.block_n = 128;
  schedule.kv_ring = KvRing::kSplit;
  schedule.pack_gqa = false;
  return schedule;
}

/// The tensor maps of some_tensors() (batch 2, q_len 100, kv_len 300; heads 8 and 2) after `change`.
inline detail::AttentionTensorMaps maps_of(
    const AttentionProblem& problem, const std::function<void(AttentionTensors&)>& change = [](AttentionTensors&) {},
    const AttentionSchedule& schedule = hopper()) {
  AttentionTensors tensors = some_tensors();
  change(tensors);
  const detail::LoadedAttention kernel =
      detail::describe(problem, plan_attention(problem, schedule, Arch::kSm90a), DeviceInfo{.num_sms = 132});
  return detail::tensor_maps_of(kernel, tensors, detail::resolve_strides(kernel, tensors));
}

inline AttentionProblem rotary_problem() {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {192, 128};
  problem.rope.width = 64;
  return problem;
}
inline AttentionSchedule rotary_schedule() {
  AttentionSchedule schedule = hopper();
  schedule.block_n = 112;
  return schedule;
}
/// Queries as one projection leaves them, keys and values as another, and rotary parts as a cache of latents has them.
inline void give_rotary_parts(AttentionTensors& tensors) {
  tensors.q_strides = tensors.q_rope_strides = {100 * 8 * 192, 8 * 192, 192};
  tensors.q_rope = tensors.q + 128 * 2;
  tensors.k_strides = tensors.v_strides = {300 * 2 * 256, 2 * 256, 256};
  tensors.v = tensors.k + 128 * 2;
  tensors.k_rope = 0x80000;
  tensors.k_rope_strides = {300 * 576, 576, 0};
}

inline AttentionSchedule hopper_decode() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.token_gen = true;
  schedule.num_warps = 4;
  schedule.block_n = 128;
  schedule.splits = 3;
  return schedule;
}

inline AttentionProblem short_queries() {
  AttentionProblem problem = prefill_problem();
  problem.max_q_len = 4;
  return problem;
}

}  // namespace kernelwright::test::hopper_calls
