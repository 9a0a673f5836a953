#include "cli/tune/candidate_facts.h"

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/work.h"

namespace kernelwright::cli {

/// Adds what identifies a candidate's machine code and its launch.
void add_to_key(DigestBuilder& digest, KernelStore& store, const AttentionPlan& plan) {
  digest.field(store.key(plan.main).digest().hex());
  if (plan.combine) digest.field(store.key(*plan.combine).digest().hex());
  digest.field(static_cast<std::uint64_t>(plan.splits));
}
void add_to_key(DigestBuilder& digest, KernelStore& store, const GemmPlan& plan) {
  digest.field(store.key(plan.variants.back().spec).digest().hex());
  digest.field(static_cast<std::uint64_t>(plan.variants.back().bands_of_n));
}

void order_by_prediction(std::vector<Candidate>& kept, const AttentionConfig& config,
                         const std::vector<AttentionShape>& shapes) {
  kernelwright::order_by_prediction(kept, config.problem, shapes);
}
void order_by_prediction(std::vector<GemmCandidate>&, const GemmConfig&, const std::vector<GemmShape>&) {}

TunedFor<AttentionConfig> launches_of(const AttentionConfig&, const std::vector<AttentionShape>&, const DeviceInfo&) {
  return {};
}
TunedFor<GemmConfig> launches_of(const GemmConfig& config, const std::vector<GemmShape>& shapes,
                                 const DeviceInfo& device) {
  return {device.num_sms, gemm_row_range(planned_rows(config.problem, shapes.at(0)))};
}

double predicted_us(const Candidate& candidate) { return candidate.predicted_us; }
double predicted_us(const GemmCandidate& candidate) { return candidate.cost; }

namespace {

int held_by_sm(const MachineClass& machine, const LaunchPlan& launch, const ResourceUsage& usage) {
  return occupancy(arch_info(machine.arch), static_cast<int>(launch.shared_bytes) + usage.static_shared,
                   static_cast<int>(launch.block), usage.registers)
      .ctas;
}

}  // namespace

int ctas_per_sm(const MachineClass& machine, const AttentionPlan& plan, const AttentionProblem& problem,
                const AttentionShape& shape, const ResourceUsage& usage) {
  return held_by_sm(machine, plan_launch(plan.main, detail::extent_of(problem, shape), machine.sms, plan.splits).main,
                    usage);
}
int ctas_per_sm(const MachineClass& machine, const GemmPlan& plan, const GemmProblem&, const GemmShape&,
                const ResourceUsage& usage) {
  return held_by_sm(machine, plan_launch(plan.variants.back().spec, {}, machine.sms, machine.sms), usage);
}

std::shared_ptr<const Binary> binary_of(const AttentionKernel& kernel) { return kernel ? kernel.binary() : nullptr; }
std::shared_ptr<const Binary> binary_of(const GemmKernel& kernel) {
  const auto binaries = kernel ? kernel.binaries() : std::vector<std::shared_ptr<const Binary>>{};
  return binaries.empty() ? nullptr : binaries.back();
}

}  // namespace kernelwright::cli
