/// Short ways to write problems: the default problem, and functions that change it.
#pragma once

#include <utility>
#include <vector>

#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

/// bf16, 8 query and 2 KV heads of 128, padded, no mask, with LSE.
inline AttentionProblem default_problem(DType dtype = DType::kBf16) {
  AttentionProblem problem;
  problem.dtype = {dtype, dtype, dtype};
  problem.head_dim = {128, 128};
  problem.heads = {8, 2};
  problem.lse = true;
  return problem;
}

inline AttentionShape shape_of(int batch, int q_len, int kv_len) {
  AttentionShape shape;
  shape.name = "shape";
  shape.batch = batch;
  shape.q_len = q_len;
  shape.kv_len = kv_len;
  return shape;
}

inline AttentionShape lists(std::vector<int> q_lens, std::vector<int> kv_lens) {
  AttentionShape shape = shape_of(static_cast<int>(kv_lens.size()), 1, 1);
  shape.q_lens = std::move(q_lens);
  shape.kv_lens = std::move(kv_lens);
  return shape;
}

inline AttentionProblem causal(AttentionProblem problem) {
  problem.mask.kind = MaskKind::kCausal;
  return problem;
}
inline AttentionProblem windowed(AttentionProblem problem, int left = 128, int right = 0) {
  problem.mask = {MaskKind::kSlidingWindow, {left, right}, 0, {}};
  return problem;
}
inline Mask chunks(int keys) { return {MaskKind::kChunked, {}, keys, {}}; }
inline Mask window(int left, int right = 0) { return {MaskKind::kSlidingWindow, {left, right}, 0, {}}; }
inline Mask all_of(std::vector<Mask> masks) { return {MaskKind::kAnd, {}, 0, std::move(masks)}; }
inline Mask any_of(std::vector<Mask> masks) { return {MaskKind::kOr, {}, 0, std::move(masks)}; }
inline AttentionProblem masked(AttentionProblem problem, Mask mask) {
  problem.mask = std::move(mask);
  return problem;
}
inline AttentionProblem decode(AttentionProblem problem, int max_q_len = 1) {
  problem.max_q_len = max_q_len;
  return problem;
}
inline AttentionProblem heads(AttentionProblem problem, int q, int kv) {
  problem.heads = {q, kv};
  return problem;
}
inline AttentionProblem dims(AttentionProblem problem, int qk, int v) {
  problem.head_dim = {qk, v};
  return problem;
}
/// The last `width` elements of each head of q and k are a rotary part.
inline AttentionProblem rotary(AttentionProblem problem, int width = 64, DType dtype = DType::kBf16) {
  problem.rope = {width, dtype};
  return problem;
}
inline AttentionProblem paged(AttentionProblem problem, int size) {
  problem.kv_layout = {KvLayoutKind::kPaged, size};
  return problem;
}
inline AttentionProblem ragged(AttentionProblem problem) {
  problem.q_layout = QLayout::kRagged;
  problem.kv_layout.kind = KvLayoutKind::kRagged;
  problem.kv_offsets = true;
  return problem;
}
inline AttentionProblem fp8(AttentionProblem problem, ScaleKind scales = ScaleKind::kPerTensor,
                            DType dtype = DType::kE4m3) {
  problem.dtype.kv = dtype;
  problem.scales = scales;
  return problem;
}
inline AttentionProblem with_sinks(AttentionProblem problem) {
  problem.sinks = true;
  return problem;
}
inline AttentionProblem left_padded(AttentionProblem problem) {
  problem.kv_starts = true;
  return problem;
}
inline AttentionProblem capped(AttentionProblem problem, double cap) {
  problem.score_mod = {ScoreModKind::kSoftcap, cap};
  return problem;
}
inline AttentionProblem with_alibi(AttentionProblem problem) {
  problem.score_mod.kind = ScoreModKind::kAlibi;
  return problem;
}
inline AttentionSchedule splits(int count) {
  AttentionSchedule schedule;
  schedule.splits = count;
  return schedule;
}

}  // namespace kernelwright
