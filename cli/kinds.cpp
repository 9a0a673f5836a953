// The functions of each kind. Templates that use them are in the verbs' files.
#include "cli/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/bound.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/runtime/engine/engine.h"

namespace kernelwright::cli {
namespace {

// JSON has no infinity: a ratio that is infinite is written as text.
JsonValue number(double value) { return std::isfinite(value) ? JsonValue(value) : JsonValue(fmt::format("{}", value)); }

template <class KindOfConfig>
auto prepare_on(const Place& place, const NamedConfig& named, const KindOfConfig& config) {
  // The engine plans for the schedule's architecture where the device runs its binaries; a command refuses it. The rest
  // is the engine's to judge.
  const auto arch = place.device.info().arch;
  if (arch && !is_for(named.config, *arch)) require_valid(named, arch);
  try {
    return place.engine.prepare(config.problem, config.schedule, {.device = place.device.ordinal()});
  } catch (const ConfigError& error) {
    throw in_file(named.path, error);
  }
}

KernelSummary summary(const std::string& key, Arch arch, const Binary* binary) {
  KernelSummary result;
  result.key = key;
  result.arch = to_string(arch);
  if (!binary) return result;
  result.entry = binary->entry;
  result.registers = binary->usage.registers;
  result.spill_bytes = binary->usage.spill_stores + binary->usage.spill_loads;
  result.compile_ms = binary->compile_ms;
  return result;
}

Rate rate(double operations, double bytes, double microseconds) {
  Rate result;
  result.operations = operations;
  result.bytes = bytes;
  result.tflops = operations / microseconds / 1e6;
  result.gbytes = bytes / microseconds / 1e3;
  return result;
}

}  // namespace

AttentionCase inputs_of(const AttentionConfig& config, const AttentionShape& shape, std::uint64_t seed) {
  return make_inputs(config.problem, shape, {.seed = seed, .one_rope = true});  // as models have it
}
GemmCase inputs_of(const GemmConfig& config, const GemmShape& shape, std::uint64_t seed) {
  return make_gemm_inputs(config.problem, shape, {.seed = seed});
}
KvWriteCase inputs_of(const KvWriteConfig& config, const KvWriteShape& shape, std::uint64_t seed) {
  return make_kv_write_inputs(config.problem, shape, {.seed = seed});
}
RowOpCase inputs_of(const RowOpConfig& config, const RowOpShape& shape, std::uint64_t seed) {
  return make_row_op_inputs(config.problem, shape, {.seed = seed});
}
RouteCase inputs_of(const RouteConfig& config, const RouteShape& shape, std::uint64_t seed) {
  return make_route_inputs(config.problem, shape, {.seed = seed});
}
MoeCombineCase inputs_of(const MoeCombineConfig& config, const MoeCombineShape& shape, std::uint64_t seed) {
  return make_moe_combine_inputs(config.problem, shape, {.seed = seed});
}

void forget_uploaded(AttentionCase& call) {
  for (HostTensor* tensor : {&call.q, &call.k, &call.v}) tensor->buffer.reset();
}
void forget_uploaded(GemmCase& call) {
  for (HostMatrix* matrix : {&call.a, &call.b, &call.c}) matrix->bytes = {};
}

AttentionKernel prepare(const Place& place, const NamedConfig& named, const AttentionConfig& config) {
  return prepare_on(place, named, config);
}
GemmKernel prepare(const Place& place, const NamedConfig& named, const GemmConfig& config) {
  return prepare_on(place, named, config);
}
KvWriteKernel prepare(const Place& place, const NamedConfig& named, const KvWriteConfig& config) {
  return prepare_on(place, named, config);
}
RowOpKernel prepare(const Place& place, const NamedConfig& named, const RowOpConfig& config) {
  return prepare_on(place, named, config);
}
RouteKernel prepare(const Place& place, const NamedConfig& named, const RouteConfig& config) {
  return prepare_on(place, named, config);
}
MoeCombineKernel prepare(const Place& place, const NamedConfig& named, const MoeCombineConfig& config) {
  return prepare_on(place, named, config);
}

KernelSummary summary_of(const AttentionKernel& kernel, const AttentionCase&) {
  return summary(kernel.key(), kernel.plan().main.arch, kernel.binary().get());
}

KernelSummary summary_of(const GemmKernel& kernel, const GemmCase& call) {
  const GemmVariant& variant = kernel.plan().variant_for(call.planned_rows());
  const auto index = static_cast<std::size_t>(&variant - kernel.plan().variants.data());
  const auto binaries = kernel.binaries();
  return summary(kernel.key(call.planned_rows()), variant.spec.arch,
                 index < binaries.size() ? binaries[index].get() : nullptr);
}

KernelSummary summary_of(const KvWriteKernel& kernel, const KvWriteCase&) {
  return summary(kernel.key(), kernel.plan().spec.arch, kernel.binary().get());
}

KernelSummary summary_of(const RowOpKernel& kernel, const RowOpCase&) {
  return summary(kernel.key(), kernel.plan().spec.arch, kernel.binary().get());
}

KernelSummary summary_of(const RouteKernel& kernel, const RouteCase&) {
  return summary(kernel.key(), kernel.plan().spec.arch, kernel.binary().get());
}

KernelSummary summary_of(const MoeCombineKernel& kernel, const MoeCombineCase&) {
  return summary(kernel.key(), kernel.plan().spec.arch, kernel.binary().get());
}

std::vector<std::string> verdict_heads(const AttentionConfig&) {
  return {"rows checked", "max error", "of bound", "rms", "lse of bound"};
}
std::vector<std::string> verdict_heads(const GemmConfig&) {
  return {"elements checked", "max error", "of bound", "rms", "of worst tile", "diff"};
}
std::vector<std::string> verdict_heads(const KvWriteConfig&) {
  return {"tokens checked", "max error", "of bound", "stray bytes"};
}
std::vector<std::string> verdict_heads(const RowOpConfig&) {
  return {"rows checked", "max error", "of bound", "rounded apart", "stray bytes"};
}
std::vector<std::string> verdict_heads(const MoeCombineConfig&) { return verdict_heads(RowOpConfig()); }
std::vector<std::string> verdict_heads(const RouteConfig&) {
  return {"tokens", "max error", "of bound", "near ties", "stray bytes"};
}

std::vector<std::string> verdict_cells(const AttentionConfig& config, const Verdict& verdict) {
  return {fmt::format("{}{}", verdict.rows, verdict.sampled ? " sampled" : ""),
          fmt::format("{:.2e}", verdict.max_error), fmt::format("{:.3f}", verdict.worst_ratio),
          verdict.rms_limit > 0 ? fmt::format("{:.2f}", verdict.rms_ratio) : "-",
          config.problem.lse ? fmt::format("{:.3f}", verdict.worst_lse_ratio) : "-"};
}

std::vector<std::string> verdict_cells(const GemmConfig&, const GemmVerdict& verdict) {
  const bool statistics = verdict.rms_limit > 0;
  return {fmt::format("{} x {}{}", verdict.rows, verdict.columns, verdict.sampled ? " sampled" : ""),
          fmt::format("{:.2e}", verdict.max_error),
          fmt::format("{:.3f}", verdict.worst_ratio),
          statistics ? fmt::format("{:.2f}", verdict.rms_ratio) : "-",
          statistics ? fmt::format("{:.2f}", verdict.tile_ratio) : "-",
          fmt::format("{:.1e}", verdict.diff)};
}

std::vector<std::string> verdict_cells(const KvWriteConfig&, const KvWriteVerdict& verdict) {
  return {fmt::format("{}{}", verdict.tokens, verdict.sampled ? " sampled" : ""),
          fmt::format("{:.2e}", verdict.max_error), fmt::format("{:.3f}", verdict.worst_ratio),
          std::to_string(verdict.strayed)};
}

std::vector<std::string> verdict_cells(const RowOpConfig&, const RowsVerdict& verdict) {
  return {fmt::format("{}{}", verdict.rows, verdict.sampled ? " sampled" : ""),
          fmt::format("{:.2e}", verdict.max_error), fmt::format("{:.3f}", verdict.worst_ratio),
          std::to_string(verdict.apart), std::to_string(verdict.strayed)};
}

std::vector<std::string> verdict_cells(const MoeCombineConfig&, const RowsVerdict& verdict) {
  return verdict_cells(RowOpConfig(), verdict);
}

std::vector<std::string> verdict_cells(const RouteConfig&, const RouteVerdict& verdict) {
  return {std::to_string(verdict.tokens), fmt::format("{:.2e}", verdict.max_error),
          fmt::format("{:.3f}", verdict.worst_ratio), std::to_string(verdict.near_ties),
          std::to_string(verdict.strayed)};
}

JsonValue to_json(const Verdict& verdict) {
  return JsonValue::object()
      .set("max_abs", number(verdict.max_error))
      .set("worst_over_bound", number(verdict.worst_ratio))
      .set("rms_over_expected", number(verdict.rms_ratio))
      .set("rms_limit", verdict.rms_limit)
      .set("lse_max_abs", number(verdict.max_lse_error))
      .set("lse_worst_over_bound", number(verdict.worst_lse_ratio))
      .set("not_finite", verdict.not_finite)
      .set("rows", verdict.rows)
      .set("sampled", verdict.sampled);
}

JsonValue to_json(const GemmVerdict& verdict) {
  return JsonValue::object()
      .set("max_abs", number(verdict.max_error))
      .set("worst_over_bound", number(verdict.worst_ratio))
      .set("rms_over_expected", number(verdict.rms_ratio))
      .set("rms_limit", verdict.rms_limit)
      .set("worst_tile_rms_over_limit", number(verdict.tile_ratio))
      .set("diff", number(verdict.diff))
      .set("worst_tile_diff", number(verdict.tile_diff))
      .set("not_finite", verdict.not_finite)
      .set("rows", verdict.rows)
      .set("columns", verdict.columns)
      .set("sampled", verdict.sampled);
}

JsonValue to_json(const KvWriteVerdict& verdict) {
  return JsonValue::object()
      .set("max_abs", number(verdict.max_error))
      .set("worst_over_bound", number(verdict.worst_ratio))
      .set("not_finite", verdict.not_finite)
      .set("stray_bytes", verdict.strayed)
      .set("tokens", verdict.tokens)
      .set("sampled", verdict.sampled);
}

JsonValue to_json(const RowsVerdict& verdict) {
  return JsonValue::object()
      .set("max_abs", number(verdict.max_error))
      .set("worst_over_bound", number(verdict.worst_ratio))
      .set("rounded_apart", verdict.apart)
      .set("stray_bytes", verdict.strayed)
      .set("rows", verdict.rows)
      .set("sampled", verdict.sampled);
}

JsonValue to_json(const RouteVerdict& verdict) {
  return JsonValue::object()
      .set("max_abs", number(verdict.max_error))
      .set("worst_over_bound", number(verdict.worst_ratio))
      .set("near_ties", verdict.near_ties)
      .set("stray_bytes", verdict.strayed)
      .set("tokens", verdict.tokens);
}

std::string Rate::text() const {
  const std::string bandwidth = fmt::format("{:.0f} GB/s{}{}", gbytes, *bytes_of ? " of " : "", bytes_of);
  const std::string arithmetic = fmt::format("{:.1f} TFLOP/s", tflops);
  if (*bytes_of) return by_bytes ? bandwidth : arithmetic;
  return by_bytes ? bandwidth + ", " + arithmetic : arithmetic + ", " + bandwidth;
}

Rate rate_of(const AttentionCase& call, double microseconds, Arch) {
  Rate result = rate(call.operations(), call.kv_bytes(), microseconds);
  // Decode reads each key for a few queries only, so its bytes matter.
  result.by_bytes = result.operations < 100 * std::max(1.0, result.bytes);
  result.bytes_of = "KV";
  return result;
}

Rate rate_of(const GemmCase& call, double microseconds, Arch arch) {
  Rate result = rate(call.operations(), call.bytes(), microseconds);
  result.by_bytes = bound_of(call, usual_machine(arch)).by_memory();
  return result;
}

namespace {

/// Of a kernel that memory alone bounds.
template <class Case>
Rate rate_by_bytes(const Case& call, double microseconds) {
  Rate result = rate(call.operations(), call.bytes(), microseconds);
  result.by_bytes = true;
  return result;
}

}  // namespace

Rate rate_of(const KvWriteCase& call, double microseconds, Arch) { return rate_by_bytes(call, microseconds); }

Rate rate_of(const RowOpCase& call, double microseconds, Arch) { return rate_by_bytes(call, microseconds); }

Rate rate_of(const RouteCase& call, double microseconds, Arch) { return rate_by_bytes(call, microseconds); }

Rate rate_of(const MoeCombineCase& call, double microseconds, Arch) { return rate_by_bytes(call, microseconds); }

}  // namespace kernelwright::cli
