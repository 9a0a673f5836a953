/// Problems and rows for the tests of tuning.
#pragma once

#include <string>

#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright::test {

inline AttentionProblem prefill_of(int q_heads = 8, int kv_heads = 2) {
  AttentionProblem problem;
  problem.head_dim = {128, 128};
  problem.heads = {q_heads, kv_heads};
  problem.mask.kind = MaskKind::kCausal;
  return problem;
}

inline AttentionProblem paged_decode(int page_size = 64) {
  AttentionProblem problem = prefill_of(32, 8);
  problem.kv_layout = {KvLayoutKind::kPaged, page_size};
  problem.max_q_len = 1;
  return problem;
}

/// A row that fits `problem` and differs from the model's choice: rescale "always".
inline TunedRow row_for(const AttentionProblem& problem, DeviceClass device = DeviceClass::kH100) {
  TunedRow row;
  row.arch = arch_of(device);
  row.device = device;
  row.problem = problem;
  row.tuning_class = tuning_class(problem);
  row.schedule.family = Family::kPortable;
  row.schedule.rescale = Rescale::kAlways;
  row.provenance.gpu = "NVIDIA H100 80GB HBM3";
  row.provenance.date = "2026-11-21";
  row.provenance.speedup = 1.07;
  row.provenance.speedup_low = 1.05;
  row.provenance.shapes = {{AttentionShape{.name = "8k", .batch = 1, .q_len = 8192, .kv_len = 8192}, 100, 107, 101}};
  return row;
}

/// A bf16 layer. Also a row for it that fits launches of `rows` on an H100 and differs from the model's choice: 128 x
/// 64 tiles in two slots.
inline GemmProblem mlp_of(int n = 4352, int k = 4096) {  // no shipped row has it
  GemmProblem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}
inline GemmTunedRow gemm_row_for(const GemmProblem& problem, RowRange rows, DeviceClass device = DeviceClass::kH100) {
  GemmTunedRow row;
  row.arch = arch_of(device);
  row.device = device;
  row.problem = problem;
  row.tuning_class = tuning_class(problem);
  row.launches = {.num_sms = 132, .rows = rows};
  row.schedule.family = Family::kHopper;
  row.schedule.block_m = 128;
  row.schedule.block_n = 64;
  row.schedule.stages = 2;
  row.provenance.gpu = "NVIDIA H100 80GB HBM3";
  row.provenance.date = "2026-11-21";
  row.provenance.speedup = 1.07;
  row.provenance.speedup_low = 1.05;
  row.provenance.shapes = {{GemmShape{.name = "m", .m = rows.most}, 100, 107, 101}};
  return row;
}

}  // namespace kernelwright::test
