#include "kernelwright/generator/kernels.h"

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/shared_map.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright {

std::vector<Violation> validate(const Config& config, std::optional<Arch> arch) {
  return std::visit([&](const auto& kind) { return validate(kind, arch); }, config);
}

bool is_for(const Config& config, Arch arch) {
  std::vector<Violation> violations;
  std::visit([&](const auto& kind) { detail::check_target(kind.schedule, arch, violations); }, config);
  return violations.empty();
}

void require_usable(const AnyTunedRow& row) {
  std::visit([](const auto& any) { plan_by_model(any.problem, any.schedule, any.arch); }, row);
}

std::uint32_t shared_bytes(const Spec& spec) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) return shared_bytes(*attention);
  if (const auto* gemm = std::get_if<GemmSpec>(&spec)) return shared_bytes(*gemm);
  return 0;  // attention_combine, quantize, kv_write, row_op, route, moe_combine
}

std::vector<SharedRegion> shared_map(const Spec& spec) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) return shared_map(*attention);
  if (const auto* gemm = std::get_if<GemmSpec>(&spec)) return shared_map(*gemm);
  return {};  // attention_combine, quantize, kv_write, row_op, route, moe_combine
}

std::vector<KernelRole> roles(const Spec& spec) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) return roles(*attention);
  if (const auto* gemm = std::get_if<GemmSpec>(&spec)) return roles(*gemm);
  return {};  // attention_combine, quantize, kv_write, row_op, route, moe_combine
}

}  // namespace kernelwright
