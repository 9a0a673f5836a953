/// The kernels of a plan as the simulation of a fleet needs them: how large each one is, and how long it compiles.
#pragma once

#include <string>
#include <vector>

namespace kernelwright::fleet {

struct WorkloadKernel {
  std::string kernel;           // the template: "gemm_sm90"
  std::size_t entry_bytes = 0;  // of its entry in a cache
  double compile_ms = 0;        // of one core
};

/// A CSV file with the columns kernel, entry_bytes and compile_ms. Throws ConfigError that names the line.
std::vector<WorkloadKernel> read_workload(const std::string& path);

/// Compiles every kernel of a plan with NVRTC, one after another on one thread, and measures them. `folder` becomes the
/// cache, and must be empty. compile_ms is the thread's processor time, so that a busy machine does not change it.
std::vector<WorkloadKernel> measure_workload(const std::string& plan, const std::string& folder);

}  // namespace kernelwright::fleet
