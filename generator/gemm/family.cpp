// The table of GEMM families, and the functions that walk it by a Spec alone.
#include "kernelwright/generator/gemm/family.h"

#include <algorithm>

#include "kernelwright/generator/gemm/predicted.h"
#include "kernelwright/generator/gemm/shared_map.h"

namespace kernelwright {
namespace detail {
namespace {

std::vector<const GemmFamily*>& rows() {
  // Never destroyed: a thread may plan while the process exits. Best first.
  static auto& table = *new std::vector<const GemmFamily*>{&hopper_gemm(), &blackwell_gemm(), &portable_gemm()};
  return table;
}

}  // namespace

std::span<const GemmFamily* const> gemm_families() noexcept { return rows(); }

const GemmFamily& gemm_row(Family family) noexcept {
  for (const GemmFamily* row : rows())
    if (row->family == family) return *row;
  return *rows().back();
}

AddedGemmFamily::AddedGemmFamily(const GemmFamily& row) { rows().insert(rows().begin(), &row); }
AddedGemmFamily::~AddedGemmFamily() { rows().erase(rows().begin()); }

ServingGemm serving_gemm(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch) {
  if (!arch && !schedule.arch.is_auto()) arch = schedule.arch.value();
  const auto offered = [&](Family family) {
    ServingGemm serving{family, {}};
    check_gemm(family, problem, schedule, arch, serving.lacks);
    return serving;
  };
  if (!schedule.family.is_auto()) return offered(schedule.family.value());
  std::optional<ServingGemm> speaks;  // where no family takes the config, this one's violations are reported
  for (const GemmFamily* row : gemm_families()) {
    const bool general = row == gemm_families().back();
    if (!general && (!arch || !family_exists_on(row->family, *arch))) continue;
    ServingGemm serving = offered(row->family);
    if (serving.lacks.empty()) return serving;
    if (!speaks) speaks = std::move(serving);
  }
  return std::move(*speaks);
}

void check_gemm(Family family, const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch,
                std::vector<Violation>& violations) {
  gemm_row(family).check(problem, schedule, arch, violations);
}

}  // namespace detail

using detail::family_row;

std::uint32_t shared_bytes(const GemmSpec& spec) { return family_row(spec).shared_bytes(spec); }

std::vector<SharedRegion> shared_map(const GemmSpec& spec) { return family_row(spec).shared_map(spec); }

TensorMemoryMap tensor_memory_map(const GemmSpec& spec) {
  const auto map = family_row(spec).tensor_memory_map;
  return map ? map(spec) : TensorMemoryMap{};
}

std::vector<KernelRole> roles(const GemmSpec& spec) { return family_row(spec).roles(spec); }

std::string workers_text(const GemmSpec& spec) { return family_row(spec).workers(spec); }

std::optional<Predicted> predict(const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape) {
  return predict(plan, problem, shape, usual_machine(plan.variants.back().spec.arch));
}

std::optional<Predicted> predict(const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape,
                                 const MachineClass& machine) {
  const GemmSpec& spec = plan.variant_for(planned_rows(problem, shape)).spec;
  const auto model = family_row(spec).predict;
  return model ? model(spec, problem, shape, machine) : std::nullopt;
}

}  // namespace kernelwright
