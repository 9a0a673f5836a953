#include "cli/bound.h"

namespace kernelwright::cli {

PredictedBound predict(const AttentionProblem& problem, const AttentionShape& shape, const MachineClass& machine) {
  const AttentionCase call = shape_only(problem, shape);
  PredictedBound bound{};
  bound.operations = call.operations();
  const double q_bytes =
      static_cast<double>(call.q_tokens) * problem.heads.q * problem.head_dim.qk * bits_of(problem.dtype.q) / 8;
  const double o_bytes = static_cast<double>(call.o_elems()) * bits_of(problem.dtype.out) / 8;
  bound.bytes = q_bytes + o_bytes + call.kv_bytes();
  bound.compute_us = bound.operations / machine.matrix_operations_per_s * 1e6;
  bound.memory_us = bound.bytes / machine.bytes_per_s * 1e6;
  return bound;
}

PredictedBound bound_of(const GemmCase& call, const MachineClass& machine) {
  // Tensor cores that support 8-bit operands multiply twice as many of them; other tensor cores get converted operands.
  const bool twice = bits_of(call.problem.dtype.a) == 8 && machine.arch >= Arch::kSm89;
  PredictedBound bound{};
  bound.operations = call.operations();
  bound.bytes = call.bytes();
  bound.compute_us = bound.operations / (machine.matrix_operations_per_s * (twice ? 2 : 1)) * 1e6;
  bound.memory_us = bound.bytes / machine.bytes_per_s * 1e6;
  return bound;
}

PredictedBound predict(const GemmProblem& problem, const GemmShape& shape, const MachineClass& machine) {
  return bound_of(shape_only(problem, shape), machine);
}

namespace {

/// Of a kernel that multiplies nothing: memory alone bounds it.
template <class Case>
PredictedBound bound_by_memory(const Case& call, const MachineClass& machine) {
  PredictedBound bound{};
  bound.operations = call.operations();
  bound.bytes = call.bytes();
  bound.memory_us = bound.bytes / machine.bytes_per_s * 1e6;
  return bound;
}

}  // namespace

PredictedBound predict(const KvWriteProblem& problem, const KvWriteShape& shape, const MachineClass& machine) {
  return bound_by_memory(shape_only(problem, shape), machine);
}

PredictedBound predict(const RowOpProblem& problem, const RowOpShape& shape, const MachineClass& machine) {
  return bound_by_memory(shape_only(problem, shape), machine);
}

PredictedBound predict(const RouteProblem& problem, const RouteShape& shape, const MachineClass& machine) {
  return bound_by_memory(shape_only(problem, shape), machine);
}

PredictedBound predict(const MoeCombineProblem& problem, const MoeCombineShape& shape, const MachineClass& machine) {
  return bound_by_memory(shape_only(problem, shape), machine);
}

}  // namespace kernelwright::cli
