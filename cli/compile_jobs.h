/// The kernels of configs and architectures, planned and built: the work of compile and pack.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "kernelwright/generator/source/spec.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::cli {

/// One kernel of a config that must be compiled.
struct CompileJob {
  const NamedConfig* named;
  Arch arch;
  std::string role;
  Spec spec;
  std::shared_ptr<const Binary> binary;
  bool cached = false;
  double milliseconds = 0;
  std::string key, error;  // key: in hex digits; error: "" if it is built
  bool missing = false;    // the machine causes the error, not the kernel
};

/// Kernels, not jobs.
struct CompileTotals {
  std::size_t kernels = 0;
  int failed = 0, missing = 0, compiled = 0;
  double milliseconds = 0;
  int exit_code() const;
};

/// Configs that are skipped go to configs.skipped, by name. In a folder, a config is skipped if its schedule is for
/// other architectures, or on one architecture if another one accepts it. If the user named no architecture, each one
/// that does not accept the config is skipped. A config that no architecture accepts is refused.
std::vector<CompileJob> plan_jobs(Configs& configs, const Options& options);

/// Builds each Spec on all cores, and gives the result to all jobs that share it.
CompileTotals build_all(KernelStore& store, std::vector<CompileJob>& jobs);

/// Prints a line for each cause of failed jobs to standard error.
void print_errors(const std::vector<CompileJob>& jobs);

}  // namespace kernelwright::cli
