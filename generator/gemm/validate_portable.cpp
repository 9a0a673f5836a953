// GEMM: which family serves a config; then what portable has, and its tile against the machine.
#include <fmt/format.h>

#include "contract/gemm_portable.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kPortableFields = *new std::vector<std::string_view>{
    "arch", "family", "block_m", "block_n", "block_k", "stages", "swizzle", "raster"};

bool is_fp8(DType dtype) { return dtype == DType::kE4m3 || dtype == DType::kE5m2; }

/// "sm_89, sm_90a", of those for which `has`.
std::string archs_where(bool ArchInfo::*has) {
  std::string names;
  for (const ArchInfo& row : all_archs())
    if (row.*has) names.append(names.empty() ? "" : ", ").append(row.name);
  return names;
}

}  // namespace

Family gemm_family(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch) {
  if (!schedule.family.is_auto()) return schedule.family.value();
  if (!arch && !schedule.arch.is_auto()) arch = schedule.arch.value();
  const std::optional<Family> own = arch ? own_family(*arch) : std::nullopt;
  if (!own) return Family::kPortable;
  Violations of_own, of_portable;
  check_gemm(*own, problem, schedule, arch, of_own);
  if (of_own.empty()) return *own;
  check_gemm(Family::kPortable, problem, schedule, arch, of_portable);
  return of_portable.empty() ? Family::kPortable : *own;  // the one to say what is wrong
}

void check_gemm(Family family, const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch,
                Violations& violations) {
  switch (family) {
    case Family::kPortable: return check_gemm_portable(problem, schedule, arch, violations);
    case Family::kHopper: return check_gemm_hopper(problem, schedule, violations);
    case Family::kBlackwell: return check_gemm_blackwell(problem, schedule, violations);
  }
}

void check_gemm_portable(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch,
                         Violations& violations) {
  FamilyRules portable(Family::kPortable, violations);
  const auto [a, b, d, c] = problem.dtype;
  portable.takes("/problem/dtype/a", a, {DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2});
  if (is_fp8(a)) portable.takes("/problem/layout", problem.layout, {OperandLayout::kNt});
  if (arch && is_fp8(a) && !arch_info(*arch).fp8_mma_sync)
    violations.push_back(
        {"/problem/dtype/a", fmt::format("\"{}\" operands have no product on {}; {} have one", to_string(a),
                                         to_string(*arch), archs_where(&ArchInfo::fp8_mma_sync))});
  if (arch && is_fp8(d) && !arch_info(*arch).fp8_cvt)
    violations.push_back({"/problem/dtype/d", fmt::format("{} does not round to \"{}\"; {} do", to_string(*arch),
                                                          to_string(d), archs_where(&ArchInfo::fp8_cvt))});
  portable.has_only(schedule, kPortableFields);
  check_slab(problem, schedule, violations);
  if (!schedule.block_m.is_auto()) portable.takes("/schedule/block_m", schedule.block_m.value(), {16, 32, 64, 128});
  if (!schedule.block_n.is_auto()) portable.takes("/schedule/block_n", schedule.block_n.value(), {32, 64, 128});
}

void check_gemm_portable_tile(const GemmSpec& spec, const ArchInfo& arch, Violations& violations) {
  if (spec.stages < 2) {
    violations.push_back({"/schedule/stages",
                          fmt::format("{}: one slab is loaded while another is multiplied; 2 would do", spec.stages)});
    return;
  }
  const int bytes = static_cast<int>(shared_bytes(spec));
  if (bytes <= arch.shared_bytes_per_cta) return;
  const int most = arch.shared_bytes_per_cta / (bytes / spec.stages);
  violations.push_back(
      {"/schedule/stages", fmt::format("{}: needs {} shared bytes and {} has {}; stages {} would fit",
                                       kernel_name(spec), bytes, arch.name, arch.shared_bytes_per_cta, most)});
}

}  // namespace kernelwright::detail
