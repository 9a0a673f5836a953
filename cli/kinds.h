/// What the verbs need to know about a kind of config. A verb is written once, as a template over the kind. What
/// differs between kinds is an overload here.
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
#include "kernelwright/verify/kv_write/bound.h"
#include "kernelwright/verify/kv_write/device.h"
#include "kernelwright/verify/moe_combine/bound.h"
#include "kernelwright/verify/moe_combine/device.h"
#include "kernelwright/verify/route/bound.h"
#include "kernelwright/verify/route/device.h"
#include "kernelwright/verify/row_op/bound.h"
#include "kernelwright/verify/row_op/device.h"

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
template <>
struct Kind<KvWriteConfig> {
  using Shape = KvWriteShape;
  using Case = KvWriteCase;
  using Output = KvWriteOutput;
  using Kernel = KvWriteKernel;
  using OnDevice = KvWriteDeviceCase;
  using Verdict = KvWriteVerdict;
  using VerdictOptions = KvWriteVerdictOptions;
};
template <>
struct Kind<RowOpConfig> {
  using Shape = RowOpShape;
  using Case = RowOpCase;
  using Output = RowOpOutput;
  using Kernel = RowOpKernel;
  using OnDevice = RowOpDeviceCase;
  using Verdict = RowOpVerdict;
  using VerdictOptions = RowOpVerdictOptions;
};
template <>
struct Kind<RouteConfig> {
  using Shape = RouteShape;
  using Case = RouteCase;
  using Output = RouteOutput;
  using Kernel = RouteKernel;
  using OnDevice = RouteDeviceCase;
  using Verdict = RouteVerdict;
  using VerdictOptions = RouteVerdictOptions;
};
template <>
struct Kind<MoeCombineConfig> {
  using Shape = MoeCombineShape;
  using Case = MoeCombineCase;
  using Output = MoeCombineOutput;
  using Kernel = MoeCombineKernel;
  using OnDevice = MoeCombineDeviceCase;
  using Verdict = MoeCombineVerdict;
  using VerdictOptions = MoeCombineVerdictOptions;
};

AttentionCase inputs_of(const AttentionConfig& config, const AttentionShape& shape, std::uint64_t seed);
GemmCase inputs_of(const GemmConfig& config, const GemmShape& shape, std::uint64_t seed);
KvWriteCase inputs_of(const KvWriteConfig& config, const KvWriteShape& shape, std::uint64_t seed);
RowOpCase inputs_of(const RowOpConfig& config, const RowOpShape& shape, std::uint64_t seed);
RouteCase inputs_of(const RouteConfig& config, const RouteShape& shape, std::uint64_t seed);
MoeCombineCase inputs_of(const MoeCombineConfig& config, const MoeCombineShape& shape, std::uint64_t seed);

/// Frees the host's copy of data that the device has: gigabytes that are not read again.
void forget_uploaded(AttentionCase& call);
void forget_uploaded(GemmCase& call);

/// The kernel of a config on its device. Throws ConfigError that begins with the file's path, and otherwise what
/// Engine::prepare() throws.
AttentionKernel prepare(const Place& place, const NamedConfig& named, const AttentionConfig& config);
GemmKernel prepare(const Place& place, const NamedConfig& named, const GemmConfig& config);
KvWriteKernel prepare(const Place& place, const NamedConfig& named, const KvWriteConfig& config);
RowOpKernel prepare(const Place& place, const NamedConfig& named, const RowOpConfig& config);
RouteKernel prepare(const Place& place, const NamedConfig& named, const RouteConfig& config);
MoeCombineKernel prepare(const Place& place, const NamedConfig& named, const MoeCombineConfig& config);

/// The kernel with which one call is launched.
struct KernelSummary {
  std::string key, entry, arch;
  int registers = 0, spill_bytes = 0;
  double compile_ms = 0;
};
KernelSummary summary_of(const AttentionKernel& kernel, const AttentionCase& call);
KernelSummary summary_of(const GemmKernel& kernel, const GemmCase& call);
KernelSummary summary_of(const KvWriteKernel& kernel, const KvWriteCase& call);
KernelSummary summary_of(const RowOpKernel& kernel, const RowOpCase& call);
KernelSummary summary_of(const RouteKernel& kernel, const RouteCase& call);
KernelSummary summary_of(const MoeCombineKernel& kernel, const MoeCombineCase& call);

/// The columns that a verdict fills in a table, and the verdict as JSON.
std::vector<std::string> verdict_heads(const AttentionConfig&);
std::vector<std::string> verdict_heads(const GemmConfig&);
std::vector<std::string> verdict_heads(const KvWriteConfig&);
std::vector<std::string> verdict_heads(const RowOpConfig&);
std::vector<std::string> verdict_heads(const RouteConfig&);
std::vector<std::string> verdict_heads(const MoeCombineConfig&);
std::vector<std::string> verdict_cells(const AttentionConfig& config, const Verdict& verdict);
std::vector<std::string> verdict_cells(const GemmConfig& config, const GemmVerdict& verdict);
std::vector<std::string> verdict_cells(const KvWriteConfig& config, const KvWriteVerdict& verdict);
std::vector<std::string> verdict_cells(const RowOpConfig& config, const RowsVerdict& verdict);
std::vector<std::string> verdict_cells(const RouteConfig& config, const RouteVerdict& verdict);
std::vector<std::string> verdict_cells(const MoeCombineConfig& config, const RowsVerdict& verdict);
JsonValue to_json(const Verdict& verdict);
JsonValue to_json(const GemmVerdict& verdict);
JsonValue to_json(const KvWriteVerdict& verdict);
JsonValue to_json(const RowsVerdict& verdict);
JsonValue to_json(const RouteVerdict& verdict);

/// The speed of a call.
struct Rate {
  double operations = 0, bytes = 0;
  double tflops = 0, gbytes = 0;  // per second
  bool by_bytes = false;          // whether gbytes is the number that matters
  const char* bytes_of = "";      // the data that gbytes counts: "KV"
  std::string text() const;
  double value() const { return by_bytes ? gbytes : tflops; }
};
Rate rate_of(const AttentionCase& call, double microseconds, Arch arch);
Rate rate_of(const GemmCase& call, double microseconds, Arch arch);
Rate rate_of(const KvWriteCase& call, double microseconds, Arch arch);
Rate rate_of(const RowOpCase& call, double microseconds, Arch arch);
Rate rate_of(const RouteCase& call, double microseconds, Arch arch);
Rate rate_of(const MoeCombineCase& call, double microseconds, Arch arch);

}  // namespace kernelwright::cli
