/// What the verbs need to know of a kind of config. A verb is written once, as a template over the kind; what differs
/// is an overload here.
///
///   std::visit([&](const auto& config) { run_config(named, config); }, named.config);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/engine_for.h"
#include "cli/options.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"

namespace kernelwright::cli {

template <class KindOfConfig>
struct Kind;
template <>
struct Kind<AttentionConfig> {
  using Shape = AttentionShape;
  using Case = AttentionCase;
  using Output = AttentionOutput;
  using Kernel = AttentionKernel;
  using OnDevice = DeviceCase;
  using Verdict = kernelwright::Verdict;
  using VerdictOptions = kernelwright::VerdictOptions;
};
template <>
struct Kind<GemmConfig> {
  using Shape = GemmShape;
  using Case = GemmCase;
  using Output = GemmOutput;
  using Kernel = GemmKernel;
  using OnDevice = GemmDeviceCase;
  using Verdict = GemmVerdict;
  using VerdictOptions = GemmVerdictOptions;
};

AttentionCase inputs_of(const AttentionConfig& config, const AttentionShape& shape, std::uint64_t seed);
GemmCase inputs_of(const GemmConfig& config, const GemmShape& shape, std::uint64_t seed);

/// Lets go of what a device has a copy of: gigabytes that nobody reads again.
void forget_uploaded(AttentionCase& call);
void forget_uploaded(GemmCase& call);

/// The kernel of a config where it runs. Throws ConfigError led by the file's path, else as Engine::prepare().
AttentionKernel prepare(const Place& place, const NamedConfig& named, const AttentionConfig& config);
GemmKernel prepare(const Place& place, const NamedConfig& named, const GemmConfig& config);

/// The kernel that one call is launched with.
struct KernelSummary {
  std::string key, entry, arch;
  int registers = 0, spill_bytes = 0;
  double compile_ms = 0;
};
KernelSummary summary_of(const AttentionKernel& kernel, const AttentionCase& call);
KernelSummary summary_of(const GemmKernel& kernel, const GemmCase& call);

/// A verdict's columns of a table, and as JSON.
std::vector<std::string> verdict_heads(const AttentionConfig&);
std::vector<std::string> verdict_heads(const GemmConfig&);
std::vector<std::string> verdict_cells(const AttentionConfig& config, const Verdict& verdict);
std::vector<std::string> verdict_cells(const GemmConfig& config, const GemmVerdict& verdict);
JsonValue to_json(const Verdict& verdict);
JsonValue to_json(const GemmVerdict& verdict);

/// How fast a call was.
struct Rate {
  double operations = 0, bytes = 0;
  double tflops = 0, gbytes = 0;  // a second
  bool by_bytes = false;          // which of the two matters
  const char* bytes_of = "";      // what is counted: "KV"
  std::string text() const;
  double value() const { return by_bytes ? gbytes : tflops; }
};
Rate rate_of(const AttentionCase& call, double microseconds, Arch arch);
Rate rate_of(const GemmCase& call, double microseconds, Arch arch);

}  // namespace kernelwright::cli
