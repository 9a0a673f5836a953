/// Calls through the engine whose kernels are mutated: attention and GEMM of each family, cache writes, steps over rows
/// and choices of experts, in the forms that differ in synchronisation.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/problem/kv_write.h"
#include "kernelwright/generator/problem/moe_combine.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/route.h"
#include "kernelwright/generator/problem/row_op.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright::test {

/// A call of attention, and the kernel that its schedule asks for. It may launch two kernels.
struct AttentionCall {
  std::string name;
  AttentionProblem problem;
  AttentionShape shape;
  AttentionSchedule schedule = {};
  int num_sms = 0;  // 0: as many as the emulator has by itself
};

/// A call of GEMM likewise. Two SMs: each CTA walks several tiles.
struct GemmCall {
  std::string name;
  GemmProblem problem;
  int m = 0;
  GemmSchedule schedule = {};
  int num_sms = 2;
};

/// A call that writes a cache.
struct KvWriteCall {
  std::string name;
  KvWriteProblem problem;
  int tokens = 0;
};

/// A call of steps over rows.
struct RowOpCall {
  std::string name;
  RowOpProblem problem;
  int rows = 0;
};

/// A choice of experts. It launches two kernels for more tokens than a CTA has warps.
struct RouteCall {
  std::string name;
  RouteProblem problem;
  int tokens = 0;
};

/// A sum over the rows of tokens' experts.
struct MoeCombineCall {
  std::string name;
  MoeCombineProblem problem;
  int tokens = 0;
};

std::vector<AttentionCall> attention_calls();
std::vector<AttentionCall> fp8_attention_calls();  // among attention_calls()
std::vector<GemmCall> gemm_calls();
std::vector<KvWriteCall> kv_write_calls();
std::vector<RowOpCall> row_op_calls();
std::vector<RouteCall> route_calls();
std::vector<MoeCombineCall> moe_combine_calls();

}  // namespace kernelwright::test
