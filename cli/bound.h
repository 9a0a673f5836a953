/// What a device could do at best: operations over the matrix rate, bytes over the bandwidth.
#pragma once

#include <optional>

#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/verify/attention/case.h"
#include "kernelwright/verify/gemm/case.h"

namespace kernelwright::cli {

/// Peak rates of one streaming multiprocessor and of the device's memory.
struct DeviceRates {
  double matrix_operations_per_s;  // 16-bit operands, fp32 sums, dense: a multiply-add is two
  double bytes_per_s;
  const char* device;  // whose they are
};
DeviceRates rates_of(Arch arch);

struct PredictedBound {
  double operations, bytes;  // bytes: Q, visible K and V, O, or a, b, c and d, each once
  double compute_us, memory_us;
  bool by_memory() const { return memory_us > compute_us; }
  double microseconds() const { return by_memory() ? memory_us : compute_us; }
};
PredictedBound predict(const AttentionProblem& problem, const AttentionShape& shape, Arch arch);
PredictedBound predict(const GemmProblem& problem, const GemmShape& shape, Arch arch);
PredictedBound bound_of(const GemmCase& call, Arch arch);

}  // namespace kernelwright::cli
