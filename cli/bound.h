/// The best that a device could do: operations over the matrix rate, bytes over the bandwidth.
#pragma once

#include <optional>

#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/verify/attention/case.h"
#include "kernelwright/verify/gemm/case.h"
#include "kernelwright/verify/kv_write/case.h"
#include "kernelwright/verify/moe_combine/case.h"
#include "kernelwright/verify/route/case.h"
#include "kernelwright/verify/row_op/case.h"

namespace kernelwright::cli {

struct PredictedBound {
  double operations, bytes;  // bytes: Q, visible K and V, O, or a, b, c and d, each counted once
  double compute_us, memory_us;
  bool by_memory() const { return memory_us > compute_us; }
  double microseconds() const { return by_memory() ? memory_us : compute_us; }
};
PredictedBound predict(const AttentionProblem& problem, const AttentionShape& shape, const MachineClass& machine);
PredictedBound predict(const GemmProblem& problem, const GemmShape& shape, const MachineClass& machine);
PredictedBound predict(const KvWriteProblem& problem, const KvWriteShape& shape, const MachineClass& machine);
PredictedBound predict(const RowOpProblem& problem, const RowOpShape& shape, const MachineClass& machine);
PredictedBound predict(const RouteProblem& problem, const RouteShape& shape, const MachineClass& machine);
PredictedBound predict(const MoeCombineProblem& problem, const MoeCombineShape& shape, const MachineClass& machine);
PredictedBound bound_of(const GemmCase& call, const MachineClass& machine);

}  // namespace kernelwright::cli
