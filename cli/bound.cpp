#include "cli/bound.h"

namespace kernelwright::cli {

// Vendor data sheets: dense 16-bit matrix rate and memory bandwidth of the device that people have most.
DeviceRates rates_of(Arch arch) {
  switch (arch) {
    case Arch::kSm80: return {312e12, 2.039e12, "A100 80GB"};
    case Arch::kSm86: return {71e12, 0.936e12, "RTX 3090"};
    case Arch::kSm89: return {165e12, 1.008e12, "RTX 4090"};
    case Arch::kSm90a: return {989e12, 3.35e12, "H100 SXM"};
    case Arch::kSm100a: return {2250e12, 8e12, "B200"};
    case Arch::kSm103a: return {2500e12, 8e12, "B300"};
    case Arch::kSm120a: return {210e12, 1.792e12, "RTX 5090"};
  }
  return {};
}

PredictedBound predict(const AttentionProblem& problem, const AttentionShape& shape, Arch arch) {
  const AttentionCase call = shape_only(problem, shape);
  const DeviceRates rates = rates_of(arch);
  PredictedBound bound{};
  bound.operations = call.operations();
  const double q_bytes =
      static_cast<double>(call.q_tokens) * problem.heads.q * problem.head_dim.qk * bits_of(problem.dtype.q) / 8;
  const double o_bytes = static_cast<double>(call.o_elems()) * bits_of(problem.dtype.out) / 8;
  bound.bytes = q_bytes + o_bytes + call.kv_bytes();
  bound.compute_us = bound.operations / rates.matrix_operations_per_s * 1e6;
  bound.memory_us = bound.bytes / rates.bytes_per_s * 1e6;
  return bound;
}

PredictedBound bound_of(const GemmCase& call, Arch arch) {
  const DeviceRates rates = rates_of(arch);
  // Of 8-bit operands, tensor cores that have them multiply twice as many; the others convert.
  const bool twice = bits_of(call.problem.dtype.a) == 8 && arch >= Arch::kSm89;
  PredictedBound bound{};
  bound.operations = call.operations();
  bound.bytes = call.bytes();
  bound.compute_us = bound.operations / (rates.matrix_operations_per_s * (twice ? 2 : 1)) * 1e6;
  bound.memory_us = bound.bytes / rates.bytes_per_s * 1e6;
  return bound;
}

PredictedBound predict(const GemmProblem& problem, const GemmShape& shape, Arch arch) {
  return bound_of(shape_only(problem, shape), arch);
}

}  // namespace kernelwright::cli
